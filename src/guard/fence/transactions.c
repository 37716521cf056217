/* transactions.c: transactions of a fence's marks, and what to do when one fails. */
#include "guard/fence/lmdb.h"

#include <errno.h>

#define CHECK_EVERY 1024 /* commits between looks for dead readers */
#define TRIES_MAX 4      /* of a transaction that finds the map resized or something used up */

/* ---- failures -------------------------------------------------------------------------------- */

static int explain_full(const struct marks *marks, struct error_text *err)
{
    MDB_envinfo info = {0};

    mdb_env_info(marks->env, &info);
    return error_set(err, HF_EIO,
                     "the fence is full (bytes_max is %zu) and nothing was changed; open it with a "
                     "greater bytes_max: %s",
                     info.me_mapsize, marks->path);
}

int lmdb_explain(const struct marks *marks, int code, const char *doing, struct error_text *err)
{
    const char *path = marks->path;

    switch (code) {
    case MDB_MAP_FULL:
        return explain_full(marks, err);
    case MDB_READERS_FULL:
        return error_set(err, HF_ENOMEM,
                         "cannot %s %s: %d transactions read it already; use fewer threads", doing,
                         path, READERS_MAX);
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_BAD_TXN:
        return error_set(err, HF_EIO,
                         "cannot %s %s: it is damaged (%s); put a copy back, or begin a new fence "
                         "when no old holder is left",
                         doing, path, mdb_strerror(code));
    case MDB_PANIC:
        return error_set(err, HF_EIO,
                         "cannot %s %s: an earlier write failed half-way; see to the disk, and "
                         "start the program again",
                         doing, path);
    case ENOSPC:
    case EDQUOT:
        return error_set(err, HF_EIO, "cannot %s %s: the disk is full; nothing was changed", doing,
                         path);
    case EFBIG:
        return error_set(err, HF_EIO,
                         "cannot %s %s: the file size limit of this process is in the way (ulimit "
                         "-f); nothing was changed",
                         doing, path);
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return error_set_errno(err, HF_ENOMEM, code, "cannot %s %s", doing, path);
    case EACCES:
    case EPERM:
    case EROFS:
        return error_set_errno(err, HF_EREFUSED, code, "cannot %s %s", doing, path);
    case EAGAIN: /* readers are told apart by their process ids */
        return error_set(err, HF_EREFUSED,
                         "cannot %s %s: another container has a process with our process id; let "
                         "containers that share a fence share their process ids, too",
                         doing, path);
    default:
        return error_set(err, HF_EIO, "cannot %s %s: %s", doing, path, mdb_strerror(code));
    }
}

/* ---- transactions ---------------------------------------------------------------------------- */

void lmdb_forget_dead_readers(struct marks *marks)
{
    int dead;

    mdb_reader_check(marks->env, &dead);
}

void lmdb_drop_idle(struct marks *marks)
{
    pthread_mutex_lock(&marks->mutex);
    while (marks->idle_count > 0)
        mdb_txn_abort(marks->idle[--marks->idle_count]);
    pthread_mutex_unlock(&marks->mutex);
}

int lmdb_resize(struct marks *marks, size_t bytes)
{
    int code;

    pthread_rwlock_wrlock(&marks->resizing);
    lmdb_drop_idle(marks);
    code = mdb_env_set_mapsize(marks->env, bytes);
    pthread_rwlock_unlock(&marks->resizing);
    return code;
}

/* After a failure: whether it is worth trying again. */
static bool can_help(struct marks *marks, int code, int tries)
{
    if (tries >= TRIES_MAX)
        return false;
    if (code == MDB_MAP_RESIZED)
        return lmdb_resize(marks, 0) == MDB_SUCCESS;
    if (code != MDB_READERS_FULL && code != MDB_MAP_FULL)
        return false;
    /* The dead use up slots, and keep old pages from being used again. */
    lmdb_forget_dead_readers(marks);
    if (code == MDB_MAP_FULL) /* for us; perhaps not for those who opened it with more */
        lmdb_resize(marks, 0);
    return tries == 1;
}

static MDB_txn *take_idle(struct marks *marks)
{
    MDB_txn *txn = NULL;

    pthread_mutex_lock(&marks->mutex);
    if (marks->idle_count > 0)
        txn = marks->idle[--marks->idle_count];
    pthread_mutex_unlock(&marks->mutex);
    return txn;
}

static int begin_reading_once(struct marks *marks, MDB_txn **ret_txn)
{
    MDB_txn *txn = take_idle(marks);
    int code;

    if (!txn)
        return mdb_txn_begin(marks->env, NULL, MDB_RDONLY, ret_txn);
    code = mdb_txn_renew(txn);
    if (code != MDB_SUCCESS)
        mdb_txn_abort(txn);
    else
        *ret_txn = txn;
    return code;
}

int lmdb_begin_reading(struct marks *marks, MDB_txn **ret_txn, struct error_text *err)
{
    int tries = 0, code, result = lmdb_check_files(marks, err);

    if (result != HF_OK)
        return result;
    do {
        pthread_rwlock_rdlock(&marks->resizing);
        code = begin_reading_once(marks, ret_txn);
        if (code == MDB_SUCCESS)
            return HF_OK;
        pthread_rwlock_unlock(&marks->resizing);
    } while (can_help(marks, code, ++tries));
    return lmdb_explain(marks, code, "read", err);
}

void lmdb_end_reading(struct marks *marks, MDB_txn *txn)
{
    mdb_txn_reset(txn);
    pthread_mutex_lock(&marks->mutex);
    if (marks->idle_count < IDLE_MAX) {
        marks->idle[marks->idle_count++] = txn;
        txn = NULL;
    }
    pthread_mutex_unlock(&marks->mutex);
    if (txn)
        mdb_txn_abort(txn);
    pthread_rwlock_unlock(&marks->resizing);
}

static int write_once(struct marks *marks, lmdb_write_fn *body, void *context, int *ret_result,
                      struct error_text *err)
{
    MDB_txn *txn;
    int code;

    *ret_result = HF_OK;
    pthread_rwlock_rdlock(&marks->resizing);
    code = mdb_txn_begin(marks->env, NULL, 0, &txn);
    if (code == MDB_SUCCESS) {
        code = body(marks, txn, context, ret_result, err);
        if (code == MDB_SUCCESS && *ret_result == HF_OK && !SWITCHED(SWITCH_FENCE_FORGETS))
            code = mdb_txn_commit(txn);
        else
            mdb_txn_abort(txn);
    }
    pthread_rwlock_unlock(&marks->resizing);
    return code;
}

int lmdb_write(struct marks *marks, lmdb_write_fn *body, void *context, struct error_text *err)
{
    int tries = 0, code, result = lmdb_check_files(marks, err);

    if (result != HF_OK)
        return result;
    do
        code = write_once(marks, body, context, &result, err);
    while (code != MDB_SUCCESS && can_help(marks, code, ++tries));
    if (code != MDB_SUCCESS)
        return lmdb_explain(marks, code, "write to", err);
    if ((atomic_fetch_add(&marks->commits, 1) + 1) % CHECK_EVERY == 0)
        lmdb_forget_dead_readers(marks);
    return result;
}
