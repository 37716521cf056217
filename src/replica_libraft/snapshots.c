/* snapshots.c: when a snapshot of the table is taken, and how, without anybody waiting for it.
 *
 * libraft knows one moment, a number of entries, and one way: it calls fsm.snapshot, wants the bytes
 * at once, and puts them. We want to count bytes, and to take a large table in slices. So its
 * threshold is out of reach until it is time, and then 1; fsm.snapshot only begins, and hands it an
 * empty buffer; the put that follows is kept here until all slices are taken and the buffer is what
 * libraft believes it to be. Meanwhile entries go on being applied: core keeps the snapshot as of
 * the moment when it began.
 *
 *     NONE ──fsm.snapshot──▶ ASKED ──put──▶ TAKING ──slices──▶ WRITING ──fsm.snapshot_finalize──▶ NONE
 *                                └──put──▶ TOLD ─────────────────────────fsm.snapshot_finalize──▶ NONE
 *
 * TOLD: there is none, and libraft only gets to believe so (memory.c). */
#include "replica_libraft/inside.h"

#include <limits.h>
#include <stdlib.h>

#define THRESHOLD_NEVER UINT_MAX
#define THRESHOLD_NOW 1
#define WRITING_SLOW_US 30000000

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A snapshot costs as much as the table is large. With as much log between two of them, they are half
 * of all that is written. */
static bool is_time(const struct replica *replica)
{
    const struct snapshots *snapshots = &replica->snapshots;
    uint64_t enough = max_u64(replica->snapshot_bytes, snapshots->last_size);

    if (snapshots->bytes >= enough || snapshots->entries > SNAPSHOT_ENTRIES_MAX ||
        memory_wants(replica))
        return true;
    return snapshots->bytes > SNAPSHOT_BYTES_IDLE &&
           replica_now(replica) - snapshots->last_command_us >= SNAPSHOT_IDLE_US;
}

void snapshots_consider(struct replica *replica)
{
    if (replica->snapshots.state == SNAPSHOT_NONE && (is_time(replica) || memory_is_time(replica)))
        raft_set_snapshot_threshold(&replica->raft, THRESHOLD_NOW);
}

void snapshots_count(struct replica *replica, size_t bytes, uint32_t commands)
{
    struct snapshots *snapshots = &replica->snapshots;

    snapshots->bytes += bytes;
    snapshots->entries++;
    memory_count(replica, bytes);
    if (commands > 0)
        snapshots->last_command_us = replica_now(replica);
    snapshots_consider(replica);
}

void snapshots_restored(struct replica *replica, size_t size)
{
    replica->snapshots.last_size = size;
    replica->snapshots.bytes = 0;
    replica->snapshots.entries = 0;
    memory_restored(replica);
}

/* They stay in memory too, hence counted by their bytes. */
static unsigned usual_trailing(const struct replica *replica)
{
    const struct snapshots *snapshots = &replica->snapshots;
    uint64_t average = snapshots->bytes / max_u64(snapshots->entries, 1);
    uint64_t count = SNAPSHOT_TRAILING_BYTES / max_u64(average, 1);

    if (replica->snapshot_trailing)
        return replica->snapshot_trailing;
    if (count < SNAPSHOT_TRAILING_MIN)
        return SNAPSHOT_TRAILING_MIN;
    return count > SNAPSHOT_TRAILING_MAX ? SNAPSHOT_TRAILING_MAX : (unsigned)count;
}

/* An entry may be committed by others, and applied, while it is on its way to this node's disk. libraft looks for it when it is
 * there: if it had forgotten it, it would never acknowledge it, nor anything behind it. */
unsigned snapshots_trailing(const struct replica *replica)
{
    const struct raft *raft = &replica->raft;
    uint64_t unwritten =
        raft->last_applied > raft->last_stored ? raft->last_applied - raft->last_stored + 1 : 0;

    return (unsigned)max_u64(usual_trailing(replica), unwritten);
}

/* libraft applies a change of members and takes it for committed in two steps, and may ask for a snapshot between them: that would
 * have the members of before, and the log behind it no entry that says otherwise. It asks again after the next step. */
static bool members_lag(const struct raft *raft)
{
    return raft->configuration_uncommitted_index != 0 &&
           raft->configuration_uncommitted_index <= raft->last_applied;
}

static int begin(struct raft_fsm *fsm, struct raft_buffer *ret_buffers[], unsigned *ret_count)
{
    struct replica *replica = fsm->data;
    struct snapshots *snapshots = &replica->snapshots;

    INVARIANT(snapshots->state == SNAPSHOT_NONE);
    if (members_lag(&replica->raft))
        return RAFT_BUSY;
    apply_put_off(replica);
    raft_set_snapshot_threshold(&replica->raft, THRESHOLD_NEVER);
    snapshots->buffer = (struct raft_buffer){0};
    snapshots->state = SNAPSHOT_ASKED;
    snapshots->real = is_time(replica);
    if (snapshots->real) {
        raft_set_snapshot_trailing(&replica->raft, snapshots_trailing(replica));
        snapshots->covered_bytes = snapshots->bytes;
        snapshots->covered_entries = snapshots->entries;
        core_snapshot_begin(replica->table);
    } else {
        raft_set_snapshot_trailing(&replica->raft, memory_trailing(replica));
    }
    *ret_buffers = &snapshots->buffer;
    *ret_count = 1;
    return 0;
}

/* Whatever became of it, libraft does not need it any more. */
static int finalize(struct raft_fsm *fsm, struct raft_buffer *buffers[], unsigned *count)
{
    struct replica *replica = fsm->data;
    struct snapshots *snapshots = &replica->snapshots;
    size_t size;

    if (snapshots->real &&
        (snapshots->state == SNAPSHOT_ASKED || snapshots->state == SNAPSHOT_TAKING))
        free(core_snapshot_end(replica->table, &size));
    free(snapshots->buffer.base);
    snapshots->buffer = (struct raft_buffer){0};
    snapshots->state = SNAPSHOT_NONE;
    *buffers = NULL;
    *count = 0;
    return 0;
}

void snapshots_init(struct replica *replica)
{
    replica->fsm.snapshot = begin;
    replica->fsm.snapshot_finalize = finalize;
    replica->snapshots.last_command_us = replica_now(replica);
    raft_set_snapshot_threshold(&replica->raft, THRESHOLD_NEVER);
}

/* ---- putting ---------------------------------------------------------------------------------- */

static void count_taken(struct replica *replica, unsigned trailing)
{
    struct snapshots *snapshots = &replica->snapshots;

    memory_forgot(replica, trailing);
    snapshots->taken++;
    snapshots->last_size = snapshots->buffer.len;
    snapshots->bytes -= snapshots->covered_bytes;
    snapshots->entries -= snapshots->covered_entries;
}

static void keep_put(struct kept_put *put)
{
    put->next = put->replica->failed_puts;
    put->replica->failed_puts = put;
}

static void on_put(struct raft_io_snapshot_put *ours, int status)
{
    struct kept_put *put = ours->data;
    struct replica *replica = put->replica;

    if (!replica->closing && status != 0)
        gate_trouble(replica, "a snapshot cannot be written: %s", raft_strerror(status));
    if (!replica->closing && gate_shut(replica)) {
        keep_put(put);
        return;
    }
    if (put->own && status == 0)
        count_taken(replica, put->trailing);
    put->done(put->theirs, status);
    if (put->own && status == 0)
        memory_taken(replica);
    free(put);
    replica_observe(replica);
}

static void hand_to_io(struct kept_put *put)
{
    struct replica *replica = put->replica;
    int result = 0;

    if (!gate_shut(replica))
        result = replica->saved.snapshot_put(replica->io, put->trailing, &put->ours, put->snapshot,
                                             on_put);
    if (result != 0)
        gate_trouble(replica, "a snapshot cannot be written: %s", raft_strerror(result));
    if (gate_shut(replica))
        keep_put(put);
}

void snapshots_put(struct replica *replica, unsigned count, struct raft_io_snapshot_put *req,
                   const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done)
{
    struct kept_put *put = replica_realloc(NULL, sizeof *put);

    *put = (struct kept_put){.theirs = req,
                             .done = done,
                             .replica = replica,
                             .own = replica->snapshots.state == SNAPSHOT_ASKED,
                             .snapshot = snapshot,
                             .trailing = count};
    put->ours.data = put;
    if (put->own) {
        replica->snapshots.put = put;
        replica->snapshots.state = replica->snapshots.real ? SNAPSHOT_TAKING : SNAPSHOT_TOLD;
    } else {
        hand_to_io(put); /* from the leader: its bytes are all there */
    }
}

/* What libraft believes to be a snapshot is on disk, as far as it is concerned. */
static void end_told(struct replica *replica)
{
    struct kept_put *put = replica->snapshots.put;

    replica->memory.ahead = true;
    memory_forgot(replica, put->trailing);
    put->done(put->theirs, 0);
    free(put);
}

bool snapshots_step(struct replica *replica)
{
    struct snapshots *snapshots = &replica->snapshots;

    if (snapshots->state == SNAPSHOT_TOLD)
        end_told(replica);
    if (snapshots->state != SNAPSHOT_TAKING)
        return false;
    if (!core_snapshot_step(replica->table, SNAPSHOT_SLICE_BYTES))
        return true;
    snapshots->buffer.base = core_snapshot_end(replica->table, &snapshots->buffer.len);
    snapshots->state = SNAPSHOT_WRITING;
    snapshots->writing_us = 0;
    snapshots->slow_noted = false;
    hand_to_io(snapshots->put);
    return false;
}

/* A disk without room makes the raft_io try again for ever. That alone is no reason to stop serving: the
 * log has room of its own until its segments are full. */
void snapshots_watch(struct replica *replica, int64_t passed_us)
{
    struct snapshots *snapshots = &replica->snapshots;

    if (snapshots->state != SNAPSHOT_WRITING)
        return;
    snapshots->writing_us += passed_us;
    if (snapshots->writing_us >= WRITING_SLOW_US && !snapshots->slow_noted) {
        snapshots->slow_noted = true;
        replica_note(replica, 2,
                     "a snapshot of %zu bytes is not written after %d s: is the disk full? "
                     "Meanwhile the log grows",
                     snapshots->buffer.len, WRITING_SLOW_US / 1000000);
    }
}

void snapshots_cancel(struct replica *replica)
{
    struct snapshots *snapshots = &replica->snapshots;

    if (snapshots->state == SNAPSHOT_TAKING || snapshots->state == SNAPSHOT_TOLD)
        keep_put(snapshots->put);
    while (replica->failed_puts) {
        struct kept_put *put = replica->failed_puts;

        replica->failed_puts = put->next;
        put->done(put->theirs, RAFT_CANCELED);
        free(put);
    }
}
