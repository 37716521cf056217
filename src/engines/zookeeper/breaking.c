/* breaking.c: the operator's way out.
 *
 * Without a grace, the holders' nodes are deleted. With one, their data says first that they are broken: a holder watches
 * its own node, is told, and lets go; whoever waits is granted after that, and not before. A holder that cannot hear has its
 * node deleted when its TTL is over, or the grace. */
#include "base/clock.h"
#include "engines/zookeeper/store.h"

#include <time.h>

#define BREAK_MS 10000
#define LOOK_MS 20 /* while a broken hold is let go */

/* A holder's node, of which the holder is told by its data first, and which is deleted by the holder, or by us. */
struct breaking {
    struct session *session;
    int64_t deadline_ms;
    struct error_text *err;
};

static int break_at_once(const struct breaking *breaking, const char *path, uint32_t *broken)
{
    int result;
    struct call *call = call_delete(breaking->session, path, -1, &result, breaking->err);

    if (!call)
        return result;
    result = call_await(call, breaking->deadline_ms, breaking->err);
    if (result == HF_OK && call->rc == ZOK)
        ++*broken;
    else if (result == HF_OK && call->rc != ZNONODE)
        result = call_unexpected(call, path, breaking->err);
    call_end(call);
    return result;
}

static int mark_broken(const struct breaking *breaking, const struct row *row, const char *path,
                       uint32_t *broken)
{
    char data[ZK_DATA_MAX];
    size_t size = record_write(row->record.ttl_ms, true, row->record.owner, data);
    int result;
    struct call *call =
        call_set(breaking->session, path, data, size, row->stat.version, &result, breaking->err);

    if (!call)
        return result;
    result = call_await(call, breaking->deadline_ms, breaking->err);
    if (result == HF_OK && call->rc == ZOK)
        ++*broken;
    else if (result == HF_OK && call->rc != ZNONODE && call->rc != ZBADVERSION)
        result = call_unexpected(call, path, breaking->err);
    call_end(call);
    return result;
}

/* Until the holder has let go, which its engine does as soon as it has told it. */
static int await_gone(const struct breaking *breaking, const char *path, int64_t until_ms)
{
    const struct engine_host *host = breaking->session->store->host;
    const struct timespec span = {.tv_nsec = LOOK_MS * 1000000L};
    bool there = true;
    int result = HF_OK;

    while (there && result == HF_OK && clock_boot_ms() < until_ms) {
        struct call *call;

        if (host->closing(host->context))
            return HF_ECANCELED;
        nanosleep(&span, NULL);
        call = call_exists(breaking->session, path, 0, &result, breaking->err);
        if (call)
            result = call_await(call, clock_after(clock_boot_ms(), BREAK_MS), breaking->err);
        there = !call || call->rc != ZNONODE;
        call_end(call);
    }
    return result;
}

static int break_rows(struct breaking *breaking, const char *parent, const struct rows *rows,
                      int64_t grace_ms, uint32_t *broken)
{
    int64_t withheld_ms = 0;
    char path[ZK_PATH_MAX];
    uint32_t ignored = 0;
    int result = HF_OK;

    for (int i = 0; i < rows->queue.count && result == HF_OK; i++) {
        const struct row *row = &rows->rows[i];

        if (!row->holds || !row->there)
            continue;
        zk_child_path(parent, row->contender->name, path);
        if (grace_ms == 0 || !row->record.ours)
            result = break_at_once(breaking, path, broken);
        else
            result = mark_broken(breaking, row, path, broken);
        if (row->record.ttl_ms > withheld_ms)
            withheld_ms = row->record.ttl_ms;
    }
    withheld_ms = clock_after(clock_boot_ms(), withheld_ms < grace_ms ? withheld_ms : grace_ms);
    for (int i = 0; i < rows->queue.count && result == HF_OK && grace_ms > 0; i++) {
        if (!rows->rows[i].holds || !rows->rows[i].record.ours)
            continue;
        zk_child_path(parent, rows->rows[i].contender->name, path);
        result = await_gone(breaking, path, withheld_ms);
        breaking->deadline_ms = clock_after(clock_boot_ms(), BREAK_MS);
        if (result == HF_OK)
            result = break_at_once(breaking, path, &ignored);
    }
    return result;
}

int zk_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
             struct error_text *err)
{
    struct breaking breaking = {.deadline_ms = clock_after(clock_boot_ms(), BREAK_MS), .err = err};
    char parent[ZK_PARENT_MAX];
    struct rows rows = {0};
    int result = rows_ask(store, name, false, &rows, breaking.deadline_ms, err);

    if (result != HF_OK)
        return result;
    zk_parent_path(store, name, parent);
    result = session_for_query(store, breaking.deadline_ms, &breaking.session, err);
    if (result == HF_OK) {
        *ret_broken = 0;
        result = break_rows(&breaking, parent, &rows, grace_ms, ret_broken);
        session_unref(breaking.session);
    }
    rows_free(&rows);
    return result == HF_ELOST ? error_code(HF_EUNKNOWN, 0) : result;
}
