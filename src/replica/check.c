/* check.c: looking at a replica, and whether it contradicts itself. */
#include "base/hash.h"
#include "replica/inside.h"

const struct core *replica_table(const struct replica *replica)
{
    return replica->table;
}

enum replica_role replica_role(const struct replica *replica)
{
    return replica->role;
}

uint64_t replica_leader(const struct replica *replica)
{
    return replica->raft && !is_stopped(replica) ? raft_leader(replica->raft) : 0;
}

const unsigned char *replica_cluster(const struct replica *replica)
{
    return replica->has_cluster && replica->log.written >= replica->bootstrap_append
               ? replica->cluster
               : NULL;
}

const struct histogram *replica_commits(const struct replica *replica)
{
    return &replica->commits;
}

void replica_status(const struct replica *replica, struct replica_status *ret_status)
{
    const struct snapshots *snapshots = &replica->snapshots;

    *ret_status = (struct replica_status){.term = replica->stored_term,
                                          .last_index = replica->log.last,
                                          .commit_index = replica->raft ? raft_commit(replica->raft)
                                                                        : replica->applied.index,
                                          .applied_index = replica->applied.index,
                                          .entries = replica->entries,
                                          .commands = replica->commands,
                                          .ticks = replica->ticks,
                                          .log_bytes = snapshots->log_bytes,
                                          .memory_bytes = replica->log.bytes,
                                          .snapshots = snapshots->taken,
                                          .snapshot_bytes = snapshots->last_size,
                                          .snapshots_installed = snapshots->installed,
                                          .snapshotting = snapshots->state != TAKING_NOTHING,
                                          .snapshot = snapshots->stored};
}

bool replica_progress(const struct replica *replica, uint64_t id, uint64_t *ret_match)
{
    struct raft_progress progress = {0};

    *ret_match = 0;
    if (!replica->raft || raft_role(replica->raft) != RAFT_LEADER)
        return false;
    if (id == replica->options.id) {
        *ret_match = raft_last(replica->raft);
        return true;
    }
    if (!raft_progress(replica->raft, id, &progress) || !progress.answered)
        return false;
    *ret_match = progress.match;
    return true;
}

void replica_digest(const struct replica *replica, struct replica_digest *ret_digest)
{
    uint8_t bytes[REPLICA_CONFIG_BYTES_MAX];

    *ret_digest = (struct replica_digest){.index = replica->applied.index,
                                          .table = core_hash(replica->table),
                                          .chain = replica->applied.chain,
                                          .members_index = replica->members.applied.index,
                                          .version = replica->versions.now};
    if (replica->members.applied.count > 0)
        ret_digest->members =
            hash_bytes(bytes, replica_config_write(&replica->members.applied, bytes));
}

/* ---- contradictions --------------------------------------------------------------------------- */

static const char *check_log(const struct replica *replica)
{
    uint64_t bytes = 0;

    if (replica->log.last != raft_last(replica->raft))
        return "the log and raft end at different entries";
    if (replica->log.before.index > replica->applied.index)
        return "entries that are not applied are not in memory";
    for (uint64_t i = replica->log.before.index; i <= replica->log.last; i++) {
        struct raft_id own, theirs;

        log_id(&replica->log, i, &own);
        bytes += i > replica->log.before.index ? log_at(&replica->log, i)->size : 0;
        if (raft_id_of(replica->raft, i, &theirs) &&
            (own.term != theirs.term || own.chain != theirs.chain))
            return "the log and raft have different entries at an index";
    }
    return bytes == replica->log.bytes ? NULL : "the bytes of the log are miscounted";
}

static const char *check_order(const struct replica *replica)
{
    const struct in_flight *in_flight = &replica->in_flight;
    uint64_t elapsed_ms = 0, before = replica->applied.index;

    if (replica->applied.index > raft_commit(replica->raft))
        return "more is applied than is committed";
    for (uint32_t i = 0; i < in_flight->count; i++) {
        const struct proposal *proposal = &in_flight->at[in_flight->first + i];

        if (proposal->index <= before || proposal->index > replica->log.last)
            return "entries in flight are not in order, or applied, or not in the log";
        before = proposal->index;
        elapsed_ms += proposal->elapsed_ms;
    }
    if (elapsed_ms != in_flight->elapsed_ms)
        return "the time in flight is miscounted";
    if ((in_flight->count > 0 || replica->batch.packer.count > 0) && replica->leading == LEAD_IDLE)
        return "somebody waits for a node that does not lead";
    for (size_t i = 1; i < replica->write_count; i++)
        if (replica->writes[i].number != replica->writes[i - 1].number + 1)
            return "writes under way are not in order";
    return NULL;
}

static const char *check_config(const struct replica_config *own, const struct raft_members *raft)
{
    if (own->count != raft->count || (own->count > 0 && own->index != raft->index))
        return "the members and raft's are of different entries";
    for (int i = 0; i < own->count; i++)
        if (own->at[i].id != raft->at[i].id || own->at[i].incarnation != raft->at[i].incarnation ||
            own->at[i].votes != raft->at[i].votes)
            return "the members and raft's differ";
    return NULL;
}

static const char *check_members(const struct replica *replica)
{
    struct raft_members members;
    const char *wrong;

    raft_members(replica->raft, &members);
    wrong = check_config(&replica->members.latest, &members);
    if (wrong)
        return wrong;
    raft_members_before(replica->raft, &members);
    return check_config(&replica->members.previous, &members);
}

const char *replica_check(const struct replica *replica)
{
    static struct error_text err;
    const char *wrong;

    if (!replica->raft || is_stopped(replica))
        return NULL;
    wrong = raft_check(replica->raft);
    if (!wrong)
        wrong = check_log(replica);
    if (!wrong)
        wrong = check_order(replica);
    if (!wrong)
        wrong = check_members(replica);
    if (!wrong && core_check(replica->table, &err) != HF_OK)
        wrong = err.text;
    return wrong;
}
