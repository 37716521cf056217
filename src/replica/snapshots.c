/* snapshots.c: taking a snapshot of the table, in slices beside the commands that go on, and having it stored.
 *
 *     NOTHING ──it is time──▶ SLICES ──all are taken──▶ WRITE ──stored──▶ NOTHING
 *
 * Its configuration is the one that was applied last [P6]: a later one in the log may yet be cut off. */
#include "replica/inside.h"

#include <stdlib.h>

void snapshots_count(struct replica *replica, size_t bytes)
{
    replica->snapshots.log_bytes += bytes;
    replica->snapshots.log_entries++;
}

static void begin(struct replica *replica)
{
    struct snapshots *snapshots = &replica->snapshots;

    snapshots->state = TAKING_SLICES;
    snapshots->wanted = false;
    snapshots->snapshot = (struct replica_snapshot){.id = replica->applied};
    if (!SWITCHED(SWITCH_SNAPSHOT_UNMANNED))
        snapshots->snapshot.config = replica->members.applied;
    snapshots->snapshot.version = replica->versions.now;
    memcpy(snapshots->snapshot.cluster, replica->cluster, REPLICA_CLUSTER);
    snapshots->covered_bytes = snapshots->log_bytes;
    snapshots->covered_entries = snapshots->log_entries;
    core_snapshot_begin(replica->table);
}

static void store(struct replica *replica)
{
    struct snapshots *snapshots = &replica->snapshots;

    snapshots->bytes = core_snapshot_end(replica->table, &snapshots->snapshot.table_size);
    snapshots->snapshot.table = snapshots->bytes;
    snapshots->state = TAKING_WRITE;
    replica->io.store_snapshot(replica->io.context, &snapshots->snapshot, false, true);
}

bool snapshots_pump(struct replica *replica)
{
    struct snapshots *snapshots = &replica->snapshots;

    if (snapshots->state == TAKING_NOTHING && !install_blocks(replica) &&
        replica->members.applied.count > 0 && schedule_snapshot(replica))
        begin(replica);
    if (snapshots->state != TAKING_SLICES)
        return false;
    if (!core_snapshot_step(replica->table, tuning.snapshot_slice))
        return true;
    store(replica);
    return false;
}

/* One that is being taken, or written, may have it. */
void replica_want_snapshot(struct replica *replica, uint64_t index)
{
    struct snapshots *snapshots = &replica->snapshots;
    bool comes = snapshots->state != TAKING_NOTHING && snapshots->snapshot.id.index >= index;

    if (!comes && index > snapshots->stored.index)
        snapshots->wanted = true;
}

void snapshots_give_up(struct replica *replica)
{
    size_t size;

    if (replica->snapshots.state != TAKING_SLICES)
        return;
    free(core_snapshot_end(replica->table, &size));
    replica->snapshots.state = TAKING_NOTHING;
}

/* Followers that wait for one get it now. */
void snapshots_stored(struct replica *replica)
{
    struct snapshots *snapshots = &replica->snapshots;
    uint64_t index;

    snapshots->before = snapshots->stored.index;
    snapshots->stored = snapshots->snapshot.id;
    snapshots->last_size = snapshots->snapshot.table_size;
    snapshots->log_bytes -= snapshots->covered_bytes;
    snapshots->log_entries -= snapshots->covered_entries;
    snapshots->taken++;
    snapshots->state = TAKING_NOTHING;
    free(snapshots->bytes);
    snapshots->bytes = NULL;
    snapshots->kept_bytes += snapshots->covered_bytes;
    index = schedule_trim(replica);
    if (index + replica->options.snapshot_trailing >= snapshots->stored.index)
        snapshots->kept_bytes = 0;
    replica->io.trim_log(replica->io.context, index);
}

void snapshots_free(struct replica *replica)
{
    snapshots_give_up(replica);
    free(replica->snapshots.bytes);
}

void replica_snapshot_stored(struct replica *replica, const struct error_text *failure,
                             int64_t now_us)
{
    if (now_us > replica->now_us)
        replica->now_us = now_us;
    if (is_stopped(replica))
        return;
    if (failure)
        replica_stop(replica, "a snapshot cannot be written: %s" REPLICA_MEND_DISK, failure->text);
    else if (replica->snapshots.state == TAKING_WRITE)
        snapshots_stored(replica);
    else if (replica->receiving.state == RECEIVING_WRITE)
        install_stored(replica);
}
