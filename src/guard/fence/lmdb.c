/* lmdb.c: the marks of a fence in LMDB; the module holdfast-fence.so.
 *
 * Why LMDB: for batches of 64 tokens it is half again as fast as SQLite's write-ahead log, with every
 * commit synced; readers wait for nobody and nobody for them; and a writer that is killed leaves
 * nothing to recover, because what a commit replaces is not overwritten.
 *
 *     data.mdb    LMDB's file. The main database, without a name, has a record per key:
 *                 key: 1 to HF_KEY_MAX bytes    value: 8 bytes, the mark, as this machine has numbers
 *     lock.mdb    LMDB's table of readers, and its lock for writers: a robust mutex, which the next
 *                 one gets when its owner is killed
 *
 * LMDB forbids a process to open a file twice, so there is a list of what is open. It also has no way
 * to bound the wait for another writer: fence.c lets in only one at a time.
 *
 * A transaction holds `resizing` shared. When another process has made the map greater, ours must be
 * made greater too, which wants that nobody is in a transaction.
 *
 * Read transactions are kept and used again: a slot in the table of readers is taken under a mutex
 * that all processes share, and one that is stopped in there would stop all. The slots of processes
 * that were killed are looked for at open, when something has run out, and now and then. */
#include "guard/fence/lmdb.h"

#include <string.h>

/* ---- records --------------------------------------------------------------------------------- */

static MDB_val key_value(const char *key, size_t size)
{
    return (MDB_val){.mv_size = size, .mv_data = (void *)(uintptr_t)key};
}

/* False: these bytes are no mark. */
static bool parse_mark(const MDB_val *value, uint64_t *ret_mark)
{
    uint64_t mark;

    if (value->mv_size != sizeof mark)
        return false;
    memcpy(&mark, value->mv_data, sizeof mark);
    if (mark == 0 || mark > HF_TOKEN_MAX)
        return false;
    *ret_mark = mark;
    return true;
}

static int explain_record(const struct marks *marks, struct error_text *err)
{
    return error_set(err, HF_EIO,
                     "%s has a record that is no mark: damaged, or of a newer version of holdfast",
                     marks->path);
}

/* LMDB's code; MDB_SUCCESS with 0 where there is no record. A record that is none: MDB_SUCCESS and
 * *ret_result. */
static int get_mark(struct marks *marks, MDB_txn *txn, const char *key, size_t size,
                    uint64_t *ret_mark, int *ret_result, struct error_text *err)
{
    MDB_val key_bytes = key_value(key, size), value;
    int code = mdb_get(txn, marks->dbi, &key_bytes, &value);

    *ret_mark = 0;
    if (code == MDB_NOTFOUND)
        return MDB_SUCCESS;
    if (code == MDB_SUCCESS && !parse_mark(&value, ret_mark))
        *ret_result = explain_record(marks, err);
    return code;
}

static int put_mark(struct marks *marks, MDB_txn *txn, const char *key, size_t size, uint64_t mark)
{
    MDB_val key_bytes = key_value(key, size), value = {sizeof mark, &mark};

    return mdb_put(txn, marks->dbi, &key_bytes, &value, 0);
}

/* ---- comparing and raising ------------------------------------------------------------------- */

static int look(struct marks *marks, struct marks_knock *knocks, size_t count, int mode,
                bool *ret_rises, struct error_text *err)
{
    bool rises = false;
    MDB_txn *txn;
    int code = MDB_SUCCESS, result = lmdb_begin_reading(marks, &txn, err);

    if (result != HF_OK)
        return result;
    for (size_t i = 0; i < count && !rises; i++) {
        struct marks_knock *knock = &knocks[i];

        code = get_mark(marks, txn, knock->key, knock->size, &knock->mark, &result, err);
        if (code != MDB_SUCCESS || result != HF_OK)
            break;
        knock->stale = !marks_accept(knock->token, knock->mark, mode);
        rises = knock->token > knock->mark;
    }
    lmdb_end_reading(marks, txn);
    if (code != MDB_SUCCESS)
        return lmdb_explain(marks, code, "read", err);
    if (result == HF_OK)
        *ret_rises = rises;
    return result;
}

struct crowd {
    struct marks_knock *knocks;
    size_t count;
    int mode;
};

/* One walk down the tree serves the comparing and the raising. */
static int raise_one(struct marks *marks, MDB_cursor *cursor, struct marks_knock *knock, int mode,
                     int *ret_result, struct error_text *err)
{
    MDB_val key = key_value(knock->key, knock->size), value;
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET);
    bool found = code == MDB_SUCCESS;

    if (!found && code != MDB_NOTFOUND)
        return code;
    knock->mark = 0;
    if (found && !parse_mark(&value, &knock->mark)) {
        *ret_result = explain_record(marks, err);
        return MDB_SUCCESS;
    }
    knock->stale = !marks_accept(knock->token, knock->mark, mode);
    if (knock->token <= knock->mark && !SWITCHED(SWITCH_FENCE_LOWERED))
        return MDB_SUCCESS;
    value = (MDB_val){sizeof knock->token, &knock->token};
    return mdb_cursor_put(cursor, &key, &value, found ? MDB_CURRENT : 0);
}

static int raise_all(struct marks *marks, MDB_txn *txn, void *context, int *ret_result,
                     struct error_text *err)
{
    const struct crowd *crowd = context;
    MDB_cursor *cursor;
    int code = mdb_cursor_open(txn, marks->dbi, &cursor);

    if (code != MDB_SUCCESS)
        return code;
    for (size_t i = 0; i < crowd->count && code == MDB_SUCCESS && *ret_result == HF_OK; i++)
        code = raise_one(marks, cursor, &crowd->knocks[i], crowd->mode, ret_result, err);
    mdb_cursor_close(cursor);
    return code;
}

static int raise_marks(struct marks *marks, struct marks_knock *knocks, size_t count, int mode,
                       struct error_text *err)
{
    struct crowd crowd = {knocks, count, mode};

    return lmdb_write(marks, raise_all, &crowd, err);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_mark(struct marks *marks, const char *key, size_t size, uint64_t *ret_mark,
                     struct error_text *err)
{
    uint64_t mark = 0;
    MDB_txn *txn;
    int code, result = lmdb_begin_reading(marks, &txn, err);

    if (result != HF_OK)
        return result;
    code = get_mark(marks, txn, key, size, &mark, &result, err);
    lmdb_end_reading(marks, txn);
    if (code != MDB_SUCCESS)
        return lmdb_explain(marks, code, "read", err);
    if (result == HF_OK)
        *ret_mark = mark;
    return result;
}

static bool copy_row(const MDB_val *key, const MDB_val *value, struct marks_row *ret_row)
{
    if (key->mv_size == 0 || key->mv_size > HF_KEY_MAX ||
        memchr(key->mv_data, '\0', key->mv_size) || !parse_mark(value, &ret_row->mark))
        return false;
    memcpy(ret_row->key, key->mv_data, key->mv_size);
    ret_row->key[key->mv_size] = '\0';
    return true;
}

/* The cursor on the first key behind `after`. */
static int seek(MDB_cursor *cursor, const char *after, MDB_val *ret_key, MDB_val *ret_value)
{
    MDB_val wanted;
    int code;

    if (!after)
        return mdb_cursor_get(cursor, ret_key, ret_value, MDB_FIRST);
    wanted = *ret_key = key_value(after, strlen(after));
    code = mdb_cursor_get(cursor, ret_key, ret_value, MDB_SET_RANGE);
    if (code == MDB_SUCCESS && ret_key->mv_size == wanted.mv_size &&
        memcmp(ret_key->mv_data, wanted.mv_data, wanted.mv_size) == 0)
        code = mdb_cursor_get(cursor, ret_key, ret_value, MDB_NEXT);
    return code;
}

static int fill_page(struct marks *marks, MDB_cursor *cursor, const char *after,
                     struct marks_page *page, int *ret_result, struct error_text *err)
{
    MDB_val key, value;
    int code = seek(cursor, after, &key, &value);

    page->count = 0;
    while (code == MDB_SUCCESS && page->count < MARKS_PAGE_ROWS) {
        if (!copy_row(&key, &value, &page->rows[page->count])) {
            *ret_result = explain_record(marks, err);
            break;
        }
        page->count++;
        code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    return code == MDB_NOTFOUND ? MDB_SUCCESS : code;
}

static int read_page(struct marks *marks, const char *after, struct marks_page *ret_page,
                     struct error_text *err)
{
    MDB_cursor *cursor;
    MDB_txn *txn;
    int code, result = lmdb_begin_reading(marks, &txn, err);

    if (result != HF_OK)
        return result;
    code = mdb_cursor_open(txn, marks->dbi, &cursor);
    if (code == MDB_SUCCESS) {
        code = fill_page(marks, cursor, after, ret_page, &result, err);
        mdb_cursor_close(cursor);
    }
    lmdb_end_reading(marks, txn);
    return code != MDB_SUCCESS ? lmdb_explain(marks, code, "read", err) : result;
}

/* ---- setting --------------------------------------------------------------------------------- */

struct setting {
    const char *key;
    size_t size;
    uint64_t mark;
    marks_before_fn *before;
    void *context;
};

static int set_one(struct marks *marks, MDB_txn *txn, void *context, int *ret_result,
                   struct error_text *err)
{
    const struct setting *setting = context;
    MDB_val key = key_value(setting->key, setting->size);
    uint64_t was = 0;
    int code = get_mark(marks, txn, setting->key, setting->size, &was, ret_result, err);

    if (code != MDB_SUCCESS || *ret_result != HF_OK)
        return code;
    if (setting->mark != 0)
        code = put_mark(marks, txn, setting->key, setting->size, setting->mark);
    else if (was != 0)
        code = mdb_del(txn, marks->dbi, &key, NULL);
    if (code == MDB_SUCCESS)
        *ret_result = setting->before(setting->context, was, err);
    return code;
}

static int set_mark(struct marks *marks, const char *key, size_t size, uint64_t mark,
                    marks_before_fn *before, void *context, struct error_text *err)
{
    struct setting setting = {key, size, mark, before, context};

    return lmdb_write(marks, set_one, &setting, err);
}

/* ---- the module ------------------------------------------------------------------------------ */

static const struct marks_provider provider = {.abi = MARKS_ABI,
                                               .open = lmdb_open,
                                               .close = lmdb_close,
                                               .look = look,
                                               .raise = raise_marks,
                                               .read = read_mark,
                                               .page = read_page,
                                               .set = set_mark};

HF_API marks_module_fn holdfast_fence;

const struct marks_provider *holdfast_fence(void)
{
    return &provider;
}
