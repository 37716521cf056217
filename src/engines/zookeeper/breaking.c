/* breaking.c: the operator's way out.
 *
 *     held ──mark──▶ marked ──the holder hears, by its watch or its renewal, and lets go──▶ deleted
 *                      ├──its TTL has passed since the mark, and we are still here───────▶ deleted, by us
 *                      └──its session ends, later than its TTL───────────────────────────▶ deleted, by ZooKeeper
 *
 * A node that is marked broken keeps its place before all who wait, so nobody else gets the name while its holder may believe that it
 * holds. A renewal is a write that compares the version of the node's data, so none succeeds after the mark: the holder's own count ends at
 * most a TTL later. We wait for the holder to let go, as long as the grace, and then leave the node, marked, to itself.
 *
 * Without a grace, the holders' nodes are deleted. So are those of other libraries, with a grace too: they do not look at their data, and
 * nobody knows their TTL. */
#include "base/clock.h"
#include "engines/zookeeper/store.h"

#include <stdlib.h>
#include <time.h>

#define BREAK_MS 10000
#define MARK_TRIES 5 /* of a node whose holder writes it just now */
#define LOOK_MS 20   /* while a broken hold is let go; doubles */
#define LOOK_MS_MAX 250

struct breaking {
    struct engine_store *store;
    struct session *session; /* with a reference */
    char parent[ZK_PARENT_MAX];
    int64_t deadline_ms;
    uint32_t broken;
    struct error_text *err;
};

/* ---- one node -------------------------------------------------------------------------------- */

/* Deletes it. *ret_there: it was there. */
static int delete_node(const struct breaking *breaking, const char *path, bool *ret_there)
{
    int result;
    struct call *call = call_delete(breaking->session, path, -1, &result, breaking->err);

    if (!call)
        return result;
    result = call_await(call, breaking->deadline_ms, breaking->err);
    *ret_there = result == HF_OK && call->rc == ZOK;
    if (result == HF_OK && call->rc != ZOK && call->rc != ZNONODE)
        result = call_unexpected(call, path, breaking->err);
    call_end(call);
    return result;
}

/* What it says now, if it is there. */
static int read_node(const struct breaking *breaking, const char *path, struct row *row)
{
    int result;
    struct call *call = call_get(breaking->session, path, 0, &result, breaking->err);

    if (!call)
        return result;
    result = call_await(call, breaking->deadline_ms, breaking->err);
    row->there = result == HF_OK && call->rc == ZOK;
    if (row->there) {
        row->stat = call->stat;
        record_read(call->text, call->size, &row->record);
    } else if (result == HF_OK && call->rc != ZNONODE) {
        result = call_unexpected(call, path, breaking->err);
    }
    call_end(call);
    return result;
}

static int mark_once(const struct breaking *breaking, const char *path, const struct row *row,
                     int *ret_rc)
{
    char data[ZK_DATA_MAX];
    size_t size = record_write(row->record.ttl_ms, true, row->record.owner, data);
    int result;
    struct call *call =
        call_set(breaking->session, path, data, size, row->stat.version, &result, breaking->err);

    if (!call)
        return result;
    result = call_await(call, breaking->deadline_ms, breaking->err);
    *ret_rc = call->rc;
    if (result == HF_OK && call->rc != ZOK && call->rc != ZNONODE && call->rc != ZBADVERSION)
        result = call_unexpected(call, path, breaking->err);
    call_end(call);
    return result;
}

/* *ret_until_ms: until when its holder may believe that it holds; 0: it was let go meanwhile, or is marked already. */
static int mark(const struct breaking *breaking, const char *path, struct row *row,
                int64_t *ret_until_ms)
{
    int rc = ZBADVERSION, result = HF_OK;

    *ret_until_ms = 0;
    for (int i = 0; i < MARK_TRIES && result == HF_OK; i++) {
        if (!row->there || row->record.broken)
            return HF_OK;
        result = mark_once(breaking, path, row, &rc);
        if (result == HF_OK && rc == ZOK)
            *ret_until_ms = clock_after(clock_boot_ms(), row->record.ttl_ms);
        if (result == HF_OK && rc != ZBADVERSION)
            return HF_OK;
        if (result == HF_OK) /* a holder with a permit writes its own data once */
            result = read_node(breaking, path, row);
    }
    return result == HF_OK
               ? error_set(breaking->err, HF_EUNKNOWN, "'%.300s' changes all the time", path)
               : result;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* HF_OK: what is to be deleted is deleted, the others are marked, and until_ms says until when that counts. */
static int break_rows(struct breaking *breaking, struct rows *rows, bool now, int64_t *until_ms)
{
    int result = HF_OK;

    for (int i = 0; i < rows->queue.count && result == HF_OK; i++) {
        struct row *row = &rows->rows[i];
        char path[ZK_PATH_MAX];
        bool there = false;

        if (!row->holds || !row->there)
            continue;
        zk_child_path(breaking->parent, row->contender->name, path);
        if (now || !row->record.ours)
            result = delete_node(breaking, path, &there);
        else
            result = mark(breaking, path, row, &until_ms[i]);
        breaking->broken += there || until_ms[i] != 0;
    }
    return result;
}

static bool is_gone(struct engine_store *store, const char *path, int64_t until_ms)
{
    struct error_text ignored;
    struct session *session;
    struct call *call;
    bool gone = false;
    int result;

    if (session_for_query(store, until_ms, &session, &ignored) != HF_OK)
        return false;
    call = call_exists(session, path, 0, &result, &ignored);
    if (call)
        gone = call_await(call, until_ms, &ignored) == HF_OK && call->rc == ZNONODE;
    call_end(call);
    session_unref(session);
    return gone;
}

/* Until the holder has let go, which its engine does as soon as it has told it. */
static int await_gone(struct engine_store *store, const char *path, int64_t until_ms,
                      bool *ret_gone)
{
    int64_t pause_ms = LOOK_MS;

    *ret_gone = false;
    while (!*ret_gone && clock_boot_ms() < until_ms) {
        if (store->host->closing(store->host->context))
            return HF_ECANCELED;
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000L}, NULL);
        pause_ms = 2 * pause_ms < LOOK_MS_MAX ? 2 * pause_ms : LOOK_MS_MAX;
        *ret_gone = is_gone(store, path, until_ms);
    }
    return HF_OK;
}

/* The break is done: what goes wrong from here on only means that the name is withheld for longer. */
static int await_holders(struct breaking *breaking, const struct rows *rows,
                         const int64_t *until_ms, int64_t grace_ms)
{
    int64_t patience_ms = clock_after(clock_boot_ms(), grace_ms);
    int result = HF_OK;

    for (int i = 0; i < rows->queue.count && result == HF_OK; i++) {
        char path[ZK_PATH_MAX];
        bool gone, ignored;

        if (until_ms[i] == 0)
            continue;
        zk_child_path(breaking->parent, rows->queue.contenders[i].name, path);
        result = await_gone(breaking->store, path,
                            until_ms[i] < patience_ms ? until_ms[i] : patience_ms, &gone);
        if (result != HF_OK || gone || clock_boot_ms() < until_ms[i])
            continue;
        breaking->deadline_ms = clock_after(clock_boot_ms(), BREAK_MS);
        delete_node(breaking, path, &ignored);
    }
    return result;
}

int zk_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
             struct error_text *err)
{
    struct breaking breaking = {
        .store = store, .deadline_ms = clock_after(clock_boot_ms(), BREAK_MS), .err = err};
    struct rows rows = {0};
    int64_t *until_ms = NULL;
    int result = rows_ask(store, name, false, &rows, breaking.deadline_ms, err);

    if (result != HF_OK)
        return result;
    zk_parent_path(store, name, breaking.parent);
    until_ms = calloc((size_t)rows.queue.count + 1, sizeof *until_ms);
    if (!until_ms)
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (result == HF_OK)
        result = session_for_query(store, breaking.deadline_ms, &breaking.session, err);
    if (result == HF_OK)
        result = break_rows(&breaking, &rows, grace_ms == 0, until_ms);
    if (result == HF_OK) {
        *ret_broken = breaking.broken;
        result = await_holders(&breaking, &rows, until_ms, grace_ms);
    }
    session_unref(breaking.session);
    free(until_ms);
    rows_free(&rows);
    return result == HF_ELOST ? error_code(HF_EUNKNOWN, 0) : result;
}
