/* queries.c: asking about locks. */
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "engines/zookeeper/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW 64   /* requests under way at once */
#define TRY_MS 1500 /* until another server is asked */
#define PAUSE_MS 20 /* the least between two tries */
#define LEASE_SHOWN 16
#define STORE_ID_BYTES 16

/* ---- what a node says ------------------------------------------------------------------------ */

#define RECORD_WORD "holdfast/1 "

size_t record_write(int64_t ttl_ms, bool broken, const char *owner, char ret_data[ZK_DATA_MAX])
{
    return (size_t)snprintf(ret_data, ZK_DATA_MAX, RECORD_WORD "ttl=%lld%s\n%s", (long long)ttl_ms,
                            broken ? " broken" : "", owner);
}

/* Of somebody else's node: whatever can be shown is the owner. */
void record_read(const char *data, size_t size, struct zk_record *ret_record)
{
    const char *owner = data, *line = memchr(data, '\n', size);
    char head[64] = "";
    uint64_t ttl_ms;

    *ret_record = (struct zk_record){0};
    if (line && (size_t)(line - data) < sizeof head &&
        (size_t)(line - data) >= strlen(RECORD_WORD) + 4 &&
        memcmp(data, RECORD_WORD "ttl=", strlen(RECORD_WORD) + 4) == 0) {
        char *blank;

        memcpy(head, data + strlen(RECORD_WORD) + 4,
               (size_t)(line - data) - strlen(RECORD_WORD) - 4);
        blank = strchr(head, ' ');
        if (blank)
            *blank++ = '\0';
        if (text_to_u64(head, HF_DURATION_MAX_MS, &ttl_ms)) {
            ret_record->ours = true;
            ret_record->ttl_ms = (int64_t)ttl_ms;
            ret_record->broken = blank && strcmp(blank, "broken") == 0;
            owner = line + 1;
        }
    }
    size -= (size_t)(owner - data);
    if (size > HF_OWNER_MAX)
        size = HF_OWNER_MAX;
    if (!memchr(owner, '\0', size) && (ret_record->ours || text_is_utf8(owner, size)))
        memcpy(ret_record->owner, owner, size);
}

/* ---- a name's contenders --------------------------------------------------------------------- */

void rows_free(struct rows *rows)
{
    queue_free(&rows->queue);
    free(rows->rows);
    call_end(rows->list);
    *rows = (struct rows){0};
}

static int rows_read_some(struct session *session, const char *parent, struct row *rows, int count,
                          int64_t deadline_ms, struct error_text *err)
{
    struct call *calls[WINDOW] = {0};
    char path[ZK_PATH_MAX];
    int result = HF_OK, its;

    for (int i = 0; i < count && result == HF_OK; i++) {
        zk_child_path(parent, rows[i].contender->name, path);
        calls[i] = call_get(session, path, 0, &result, err);
    }
    for (int i = 0; i < count && calls[i]; i++) {
        its = result == HF_OK ? call_await(calls[i], deadline_ms, err) : result;
        if (its == HF_OK && calls[i]->rc == ZOK) {
            rows[i].there = true;
            rows[i].stat = calls[i]->stat;
            record_read(calls[i]->text, calls[i]->size, &rows[i].record);
        }
        result = its != HF_OK ? its : result;
    }
    for (int i = 0; i < count; i++)
        call_end(calls[i]);
    return result;
}

/* Takes the call of a list, which has been sent. */
static int rows_read(struct session *session, const char *parent, struct call *list,
                     struct rows *ret_rows, int64_t deadline_ms, struct error_text *err)
{
    int result = call_await(list, deadline_ms, err), ignored;

    *ret_rows = (struct rows){.list = list};
    if (result == HF_OK && list->rc == ZNONODE)
        return HF_OK;
    if (result == HF_OK && list->rc != ZOK)
        result = call_unexpected(list, parent, err);
    if (result == HF_OK && queue_read(session->store->names, &list->names, &ret_rows->queue))
        ret_rows->rows = calloc((size_t)ret_rows->queue.count + 1, sizeof *ret_rows->rows);
    if (result == HF_OK && !ret_rows->rows)
        result = error_set(err, HF_ENOMEM, "out of memory");
    for (int i = 0; result == HF_OK && i < ret_rows->queue.count; i++) {
        ret_rows->rows[i].contender = &ret_rows->queue.contenders[i];
        ret_rows->rows[i].holds = contenders_judge(ret_rows->queue.contenders,
                                                   ret_rows->queue.count, i, &ignored) == ZK_HOLDS;
    }
    for (int i = 0; result == HF_OK && i < ret_rows->queue.count; i += WINDOW)
        result =
            rows_read_some(session, parent, ret_rows->rows + i,
                           ret_rows->queue.count - i < WINDOW ? ret_rows->queue.count - i : WINDOW,
                           deadline_ms, err);
    if (result != HF_OK)
        rows_free(ret_rows);
    return result;
}

static int rows_try(struct session *session, const char *name, bool by_write, struct rows *ret_rows,
                    int64_t deadline_ms, struct error_text *err)
{
    char parent[ZK_PARENT_MAX];
    const char *parents[] = {parent};
    const int32_t any[] = {-1};
    struct call *first, *list = NULL;
    int result;

    zk_parent_path(session->store, name, parent);
    first = by_write ? call_check(session, parents, any, 1, &result, err)
                     : call_sync(session, parent, &result, err);
    if (first)
        list = call_list(session, parent, 0, &result, err);
    if (!list) {
        call_end(first);
        return result;
    }
    result = call_await(first, deadline_ms, err);
    call_end(first);
    if (result == HF_OK)
        return rows_read(session, parent, list, ret_rows, deadline_ms, err);
    call_end(list);
    return result;
}

int session_ask(struct engine_store *store, session_question *question, void *context,
                int64_t deadline_ms, struct error_text *err)
{
    for (;;) {
        int64_t now_ms = clock_boot_ms(), try_ms = clock_after(now_ms, TRY_MS);
        struct session *session;
        int result = session_for_query(store, deadline_ms, &session, err);

        if (result != HF_OK)
            return result;
        result = question(session, context, try_ms < deadline_ms ? try_ms : deadline_ms, err);
        session_unref(session);
        if (result == HF_ELOST) /* the session's end is no answer */
            result = HF_EUNREACH;
        if ((result != HF_EUNKNOWN && result != HF_EUNREACH) || clock_boot_ms() >= deadline_ms)
            return result;
        if (clock_boot_ms() - now_ms < PAUSE_MS)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}

struct rows_question {
    const char *name;
    bool by_write;
    struct rows *rows;
};

static int ask_rows(struct session *session, void *context, int64_t deadline_ms,
                    struct error_text *err)
{
    struct rows_question *question = context;

    return rows_try(session, question->name, question->by_write, question->rows, deadline_ms, err);
}

int rows_ask(struct engine_store *store, const char *name, bool by_write, struct rows *ret_rows,
             int64_t deadline_ms, struct error_text *err)
{
    struct rows_question question = {name, by_write, ret_rows};

    return session_ask(store, ask_rows, &question, deadline_ms, err);
}

/* ---- show and list --------------------------------------------------------------------------- */

static int add_row(const char *name, const struct row *row, const struct engine_sink *sink)
{
    int64_t age_ms = clock_wall_ms() - row->stat.ctime;
    char lease[LEASE_SHOWN + 1] = "";
    size_t used = 0;

    for (const char *at = row->contender->id; at && used < LEASE_SHOWN; at++)
        if (*at != '-')
            lease[used++] = *at;
    return sink->add(
        sink->context,
        &(hf_entry){.size = sizeof(hf_entry),
                    .kind = !row->holds          ? HF_ENTRY_WAITER
                            : row->record.broken ? HF_ENTRY_WITHHELD
                                                 : HF_ENTRY_HOLDER,
                    .mode = row->contender->mode,
                    .permits = row->contender->permits,
                    .name = name,
                    .token = row->holds && !row->record.broken ? (uint64_t)row->stat.czxid : 0,
                    .owner = row->holds && row->record.broken ? "" : row->record.owner,
                    .lease = lease,
                    .age_ms = age_ms < 0 ? -1 : age_ms,
                    .left_ms = -1,
                    .foreign = !row->record.ours});
}

static int add_rows(const char *name, const struct rows *rows, bool all,
                    const struct engine_sink *sink)
{
    bool withheld = false;
    int result = HF_OK;

    for (int i = 0; i < rows->queue.count && result == HF_OK; i++) {
        const struct row *row = &rows->rows[i];
        bool broken = row->holds && row->record.broken;

        if (row->there && !(broken && withheld)) /* one stands for all */
            result = add_row(name, row, sink);
        withheld = withheld || (row->there && broken);
    }
    if (result == HF_OK && all && rows->queue.count == 0)
        result = sink->add(sink->context, &(hf_entry){.size = sizeof(hf_entry),
                                                      .kind = HF_ENTRY_FREE,
                                                      .name = name,
                                                      .owner = "",
                                                      .lease = "",
                                                      .age_ms = -1,
                                                      .left_ms = -1});
    return result;
}

int zk_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err)
{
    struct rows rows = {0};
    int result = rows_ask(store, name, false, &rows, deadline_ms, err);

    if (result != HF_OK)
        return result;
    result = add_rows(name, &rows, false, sink);
    rows_free(&rows);
    return result;
}

/* The children of the root that are names of ours, decoded in place; the others become "". */
static void decode_names(const struct engine_store *store, const struct String_vector *list)
{
    for (int i = 0; i < list->count; i++) {
        char *text = list->data[i], name[3 * HF_NAME_MAX + 1], again[ZK_PARENT_MAX];
        size_t length = strlen(text);

        if (length >= sizeof name || !text_percent_decode(text, length, name, HF_NAME_MAX + 1) ||
            !name[0]) {
            text[0] = '\0';
            continue;
        }
        zk_parent_path(store, name, again);
        if (strcmp(again + strlen(store->root) + 1, text) != 0)
            text[0] = '\0';
        else
            memcpy(text, name, strlen(name) + 1);
    }
}

/* The next ones, after *done. */
static int list_some(struct session *session, char *const *names, int count, bool all,
                     const struct engine_sink *sink, int *done, int64_t deadline_ms,
                     struct error_text *err)
{
    struct call *calls[WINDOW] = {0};
    char parent[ZK_PARENT_MAX];
    int result = HF_OK, first = *done;
    int size = count - first < WINDOW ? count - first : WINDOW;

    for (int i = 0; i < size && result == HF_OK; i++) {
        if (!names[first + i][0])
            continue;
        zk_parent_path(session->store, names[first + i], parent);
        calls[i] = call_list(session, parent, 0, &result, err);
    }
    for (int i = 0; i < size; i++) {
        const char *name = names[first + i];
        struct rows rows;

        if (result == HF_OK && calls[i]) {
            zk_parent_path(session->store, name, parent);
            result = rows_read(session, parent, calls[i], &rows, deadline_ms, err);
            calls[i] = NULL;
            if (result == HF_OK) {
                /* Another program's node that has no contenders is no free name. */
                result = add_rows(name, &rows, all && !rows.queue.foreign, sink);
                rows_free(&rows);
            }
        }
        call_end(calls[i]);
        *done += result == HF_OK;
    }
    return result;
}

struct list_question {
    bool all;
    const struct engine_sink *sink;
    struct call *names; /* NULL: not known yet */
    int done;           /* so many of them have been told */
};

static int ask_names(struct session *session, struct list_question *question, int64_t deadline_ms,
                     struct error_text *err)
{
    const char *root = session->store->root[0] ? session->store->root : "/";
    int result;
    struct call *sync = call_sync(session, root, &result, err);
    struct call *list = sync ? call_list(session, root, 0, &result, err) : NULL;

    call_end(sync);
    if (!list)
        return result;
    result = call_await(list, deadline_ms, err);
    if (result == HF_OK && list->rc != ZOK && list->rc != ZNONODE)
        result = call_unexpected(list, root, err);
    if (result != HF_OK) {
        call_end(list);
        return result;
    }
    decode_names(session->store, &list->names);
    question->names = list;
    return HF_OK;
}

static int ask_list(struct session *session, void *context, int64_t deadline_ms,
                    struct error_text *err)
{
    struct list_question *question = context;
    int result = question->names ? HF_OK : ask_names(session, question, deadline_ms, err);

    INVARIANT(result != HF_OK || question->names);
    while (result == HF_OK && question->done < question->names->names.count)
        result = list_some(session, question->names->names.data, question->names->names.count,
                           question->all, question->sink, &question->done,
                           clock_after(clock_boot_ms(), TRY_MS), err);
    return result;
}

int zk_list(struct engine_store *store, const char *match, bool all, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err)
{
    struct list_question question = {.all = all, .sink = sink};
    int result = session_ask(store, ask_list, &question, deadline_ms, err);

    (void)match; /* the client filters */
    call_end(question.names);
    return result;
}

int zk_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
             int64_t deadline_ms, struct error_text *err)
{
    struct rows rows = {0};
    int result = rows_ask(store, name, true, &rows, deadline_ms, err);

    if (result != HF_OK)
        return result;
    *ret_mode = ENGINE_GONE;
    for (int i = 0; i < rows.queue.count; i++) {
        const struct row *row = &rows.rows[i];

        if (row->there && row->holds && !row->record.broken && (uint64_t)row->stat.czxid == token)
            *ret_mode = row->contender->mode;
    }
    rows_free(&rows);
    return HF_OK;
}

/* ---- the store's id -------------------------------------------------------------------------- */

static int read_id(struct session *session, const char *path, char ret_id[65], int *ret_rc,
                   int64_t deadline_ms, struct error_text *err)
{
    int result;
    struct call *call = call_get(session, path, 0, &result, err);

    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    *ret_rc = call->rc;
    if (result == HF_OK && call->rc == ZOK) {
        if (call->size != 2 * STORE_ID_BYTES ||
            strspn(call->text, "0123456789abcdef") != call->size)
            result = error_set(err, HF_EREFUSED,
                               "the store's id, in the node %.300s, is not one of ours", path);
        else
            memcpy(ret_id, call->text, call->size + 1);
    } else if (result == HF_OK && call->rc != ZNONODE) {
        result = call_unexpected(call, path, err);
    }
    call_end(call);
    return result;
}

static int make_id(struct session *session, const char *path, int64_t deadline_ms,
                   struct error_text *err)
{
    unsigned char bytes[STORE_ID_BYTES];
    char id[2 * STORE_ID_BYTES + 1];
    struct call *call;
    int result = zk_make_root(session, deadline_ms, err);

    if (result != HF_OK)
        return result;
    random_fill(bytes, sizeof bytes);
    text_hex(bytes, sizeof bytes, id);
    call = call_create(session, path, id, strlen(id), ZOO_PERSISTENT, &result, err);
    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    if (result == HF_OK && call->rc != ZOK && call->rc != ZNODEEXISTS)
        result = call_unexpected(call, path, err);
    call_end(call);
    return result;
}

static int ask_id(struct session *session, void *context, int64_t deadline_ms,
                  struct error_text *err)
{
    char path[ZK_PATH_MAX];
    int rc = ZNONODE, result = HF_OK;

    snprintf(path, sizeof path, "%s/%%id", session->store->root);
    /* Whoever comes first names it. */
    for (int i = 0; i < 2 && result == HF_OK && rc == ZNONODE; i++) {
        result = i == 0 ? HF_OK : make_id(session, path, deadline_ms, err);
        if (result == HF_OK)
            result = read_id(session, path, context, &rc, deadline_ms, err);
    }
    if (result == HF_OK && rc != ZOK)
        result = error_set(err, HF_EUNREACH, "'%.300s' is deleted as often as it is made", path);
    return result;
}

int zk_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms, struct error_text *err)
{
    return session_ask(store, ask_id, ret_id, deadline_ms, err);
}
