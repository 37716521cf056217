/* install.c: a snapshot comes from a leader, in pieces.
 *
 *     NOTHING ──a piece──▶ PIECES ──all are there, and make a table──▶ WAITS ──the disk is free──▶ WRITE ──stored──▶ NOTHING
 *
 * raft hears of each piece before anything of it can become durable (raft.h, RAFT_ON_INSTALLED). From WAITS on no entries are taken from
 * anybody: the log is about to be dropped, and they would go with it after they were acknowledged. The old table
 * serves until the new one is durable [P7]. */
#include "replica/inside.h"

#include <inttypes.h>
#include <stdlib.h>

static void forget(struct replica *replica)
{
    struct receiving_snapshot *receiving = &replica->receiving;

    free(receiving->bytes);
    if (receiving->table)
        core_free(receiving->table);
    *receiving = (struct receiving_snapshot){.state = RECEIVING_NOTHING};
}

static void acknowledge(struct replica *replica, const struct message *piece, uint64_t offset,
                        bool again)
{
    struct message message = {.raft = {.type = MESSAGE_SNAPSHOT_ACK,
                                       .to = piece->raft.from,
                                       .term = raft_term(replica->raft),
                                       .id = piece->raft.id},
                              .offset = offset,
                              .again = again};

    send_own(replica, &message);
}

static bool is_same(const struct raft_id *a, const struct raft_id *b)
{
    return a->index == b->index && a->term == b->term && a->chain == b->chain;
}

static void begin_receiving(struct replica *replica, const struct message *piece)
{
    struct receiving_snapshot *receiving = &replica->receiving;

    if (receiving->state == RECEIVING_PIECES && receiving->from == piece->raft.from &&
        is_same(&receiving->id, &piece->raft.id) && receiving->total == piece->total)
        return;
    forget(replica);
    receiving->state = RECEIVING_PIECES;
    receiving->from = piece->raft.from;
    receiving->id = piece->raft.id;
    receiving->total = piece->total;
}

/* Memory grows with what has come, not with what is said to come. */
static void collect(struct receiving_snapshot *receiving, const struct message *piece)
{
    if (receiving->have + piece->size > receiving->capacity) {
        receiving->capacity = 2 * receiving->capacity > receiving->have + piece->size
                                  ? 2 * receiving->capacity
                                  : receiving->have + piece->size;
        receiving->bytes = replica_realloc(receiving->bytes, receiving->capacity);
    }
    INVARIANT(receiving->bytes);
    memcpy(receiving->bytes + receiving->have, piece->bytes, piece->size);
    receiving->have += piece->size;
}

/* [P7] */
static bool makes_a_table(struct replica *replica, struct error_text *err)
{
    struct receiving_snapshot *receiving = &replica->receiving;
    struct replica_snapshot *snapshot = &receiving->snapshot;

    if (!replica_snapshot_decode(receiving->bytes, receiving->have, snapshot) ||
        !is_same(&snapshot->id, &receiving->id)) {
        error_set(err, HF_EIO, "it is damaged, or not the one that was announced");
        return false;
    }
    if (replica->has_cluster && memcmp(snapshot->cluster, replica->cluster, REPLICA_CLUSTER) != 0) {
        error_set(err, HF_EIO, "it is of another cluster");
        return false;
    }
    if (snapshot->version > replica->options.version) {
        error_set(err, HF_EIO, "it is in version %u of the formats: run a newer holdfastd",
                  snapshot->version);
        return false;
    }
    receiving->table = core_new(replica->hash_seed);
    return core_restore(receiving->table, snapshot->table, snapshot->table_size, err) == HF_OK;
}

static void complete(struct replica *replica)
{
    struct error_text err = {""};

    if (makes_a_table(replica, &err)) {
        replica->receiving.state = RECEIVING_WAITS;
        return;
    }
    replica_note(replica, 1, "a snapshot from node %" PRIu64 " cannot be used: %s",
                 replica->receiving.from, err.text);
    forget(replica);
}

/* What is committed here goes further: raft only has to say so. */
static void tell_installed(struct replica *replica, const struct raft_id *id,
                           const struct raft_members *members)
{
    struct raft_event event = {.type = RAFT_ON_INSTALLED, .id = *id, .members = members};

    replica_step(replica, &event);
}

void install_on_piece(struct replica *replica, const struct message *piece)
{
    struct receiving_snapshot *receiving = &replica->receiving;
    struct raft_event event = {.type = RAFT_ON_MESSAGE, .message = piece->raft};

    if (replica_step(replica, &event) != RAFT_OK || is_stopped(replica))
        return;
    if (piece->raft.id.index <= raft_commit(replica->raft)) {
        acknowledge(replica, piece, piece->total, false);
        tell_installed(replica, &piece->raft.id, NULL);
        return;
    }
    if (install_blocks(replica)) {
        if (receiving->from == piece->raft.from && is_same(&receiving->id, &piece->raft.id))
            acknowledge(replica, piece, piece->total, false);
        return;
    }
    if (piece->total > tuning.snapshot_max) {
        replica_note(replica, 1, "a snapshot of %" PRIu64 " bytes is too large", piece->total);
        return;
    }
    begin_receiving(replica, piece);
    if (piece->offset == receiving->have)
        collect(receiving, piece);
    acknowledge(replica, piece, receiving->have, piece->offset > receiving->have);
    if (receiving->have == receiving->total)
        complete(replica);
}

/* Nothing is being written, and nothing will be until it is stored. */
static void store(struct replica *replica)
{
    struct receiving_snapshot *receiving = &replica->receiving;
    struct raft_id own;
    bool same_term =
        log_id(&replica->log, receiving->id.index, &own) && own.term == receiving->id.term;

    if (replica->write_count > 0 || replica->snapshots.state == TAKING_WRITE)
        return;
    if (receiving->id.index <= raft_commit(replica->raft)) {
        forget(replica);
        return;
    }
    if (same_term && own.chain != receiving->id.chain) {
        replica_stop(replica,
                     "a snapshot from node %" PRIu64 " and our log differ in entry %" PRIu64
                     " of the same term: one of the two has a damaged log: replace that node",
                     receiving->from, receiving->id.index);
        return;
    }
    snapshots_give_up(replica);
    receiving->keeps_log = same_term || SWITCHED(SWITCH_INSTALL_KEEPS_LOG);
    receiving->state = RECEIVING_WRITE;
    replica->io.store_snapshot(replica->io.context, &receiving->snapshot, true,
                               receiving->keeps_log);
}

/* The table, and all that belongs to it. */
static void swap(struct replica *replica)
{
    struct receiving_snapshot *receiving = &replica->receiving;
    struct replica_snapshot *snapshot = &receiving->snapshot;

    core_free(replica->table);
    replica->table = receiving->table;
    receiving->table = NULL;
    replica->applied = snapshot->id;
    replica->versions.now = snapshot->version;
    divergence_reset(replica);
    memcpy(replica->cluster, snapshot->cluster, REPLICA_CLUSTER);
    replica->has_cluster = true;
    if (receiving->keeps_log) {
        replica->members.applied = snapshot->config;
    } else {
        log_reset(&replica->log, &snapshot->id);
        members_set(replica, &snapshot->config);
    }
    replica->snapshots.last_size = snapshot->table_size;
    replica->snapshots.log_bytes = replica->snapshots.log_entries = 0;
    replica->snapshots.installed++;
}

void install_stored(struct replica *replica)
{
    struct receiving_snapshot *receiving = &replica->receiving;
    struct raft_members members;
    bool is_newer =
        receiving->id.index > raft_commit(replica->raft) && raft_role(replica->raft) != RAFT_LEADER;

    replica->snapshots.stored = receiving->id;
    if (!is_newer && !receiving->keeps_log) {
        replica_stop(replica, "a snapshot took the place of the log of a node that leads");
        return;
    }
    if (is_newer)
        swap(replica);
    members_to_raft(&receiving->snapshot.config, &members);
    tell_installed(replica, &receiving->id, &members);
    forget(replica);
}

void install_pump(struct replica *replica)
{
    struct receiving_snapshot *receiving = &replica->receiving;

    if (receiving->state == RECEIVING_PIECES && receiving->id.index <= raft_commit(replica->raft))
        forget(replica);
    if (receiving->state == RECEIVING_WAITS)
        store(replica);
}

void install_free(struct replica *replica)
{
    forget(replica);
}
