/* snapshot_io.c: snapshots to the disk, by a thread. What the disk refuses is tried again: until then the log is kept, and
 * nothing is lost. */
#include "node/inside.h"

#define AGAIN_US 1000000

static void store(uv_work_t *work)
{
    struct node *node = work->data;
    struct snapshot_writer *snapshot = &node->snapshot;

    snapshot->result =
        recovery_store_snapshot(&node->recovery, &snapshot->snapshot, false, &snapshot->err);
    if (snapshot->result != HF_OK || !snapshot->drops_log)
        return;
    uv_mutex_lock(&node->journal_mutex);
    snapshot->result = journal_reset(node->recovery.journal, &snapshot->err);
    uv_mutex_unlock(&node->journal_mutex);
}

static void on_stored(uv_work_t *work, int status)
{
    struct node *node = work->data;
    struct snapshot_writer *snapshot = &node->snapshot;

    (void)status;
    snapshot->running = false;
    if (node->closing) {
        node_maybe_finish(node);
        return;
    }
    if (snapshot->result == HF_OK) {
        if (snapshot->told)
            node_note(node, 3, "the snapshot could be stored now");
        snapshot->wanted = snapshot->told = false;
        catch_up_close(node, false);
        replica_snapshot_stored(node->replica, NULL, node_now_us());
        disk_make_spare(node);
        return;
    }
    snapshot->again_us = node_now_us() + AGAIN_US;
    if (!snapshot->told)
        node_note(
            node, 2,
            snapshot->drops_log
                ? "the leader's snapshot cannot be stored, and nothing else is taken before: %s"
                : "a snapshot cannot be stored, and the log goes on growing: %s",
            snapshot->err.text);
    snapshot->told = true;
}

static void begin(struct node *node)
{
    struct snapshot_writer *snapshot = &node->snapshot;

    snapshot->running = true;
    snapshot->work.data = node;
    INVARIANT(uv_queue_work(node->loop, &snapshot->work, store, on_stored) == 0);
}

/* Of one that replaces the log nothing is being written now, nor will be (replica.h). */
void snapshot_store(void *context, const struct replica_snapshot *snapshot, bool installs,
                    bool keeps_log)
{
    struct node *node = context;

    node->snapshot.wanted = true;
    node->snapshot.snapshot = *snapshot;
    node->snapshot.drops_log = installs && !keeps_log;
    node->snapshot.again_us = 0; /* snapshot_pump begins it */
}

int64_t snapshot_pump(struct node *node, int64_t now_us)
{
    const struct snapshot_writer *snapshot = &node->snapshot;

    if (!snapshot->wanted || snapshot->running)
        return NEVER_US;
    if (snapshot->drops_log && node->log.trim_running)
        return NEVER_US; /* it removes files of the same log; its end is a round */
    if (now_us < snapshot->again_us)
        return snapshot->again_us;
    begin(node);
    return NEVER_US;
}
