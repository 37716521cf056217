/* apply.c: committed entries go into the table, and those who wait are answered [P1].
 *
 * A leader lets the next entry take off first: others write it while this one is applied and answered. A follower's table is
 * nobody's concern, its disk is: see schedule_apply. */
#include "replica/inside.h"

#include <inttypes.h>

struct applying {
    struct replica *replica;
    const struct proposal *proposal; /* NULL: another node's entry, or one without answers */
};

static void on_effect(void *context, const struct core_effect *effect)
{
    const struct applying *applying = context;
    const struct replica_host *host = &applying->replica->host;
    void *request = NULL;

    if (effect->kind == EFFECT_ANSWER || effect->kind == EFFECT_READ) {
        if (!applying->proposal)
            return;
        INVARIANT(effect->command < applying->proposal->count);
        request = applying->proposal->requests[effect->command];
    }
    if (applying->replica->live)
        host->effect(host->context, request, effect);
}

/* [P2] */
static void begin_serving(struct replica *replica, uint64_t term)
{
    if (replica->leading != LEAD_BEGINNING || term != replica->term ||
        raft_role(replica->raft) != RAFT_LEADER || raft_term(replica->raft) != term)
        return;
    replica->leading = LEAD_SERVING;
    replica_set_role(replica, REPLICA_LEADING);
}

static void apply_command(struct replica *replica, uint64_t index, const struct log_entry *entry)
{
    struct proposal *proposal = in_flight_front(replica);
    /* [P4] */
    bool is_own = proposal && proposal->index == index &&
                  (proposal->term == entry->term || SWITCHED(SWITCH_DEPOSED_ANSWERS));
    struct applying applying = {replica, is_own && !proposal->new_term ? proposal : NULL};
    const struct core_sink sink = {&applying, on_effect};
    struct core_entry_header header;
    struct error_text err;
    bool is_entry;

    if (SWITCHED(SWITCH_TABLE_DIVERGES) && !is_own && replica->live &&
        replica->options.id % 2 == 0 && index % 101 == 0)
        return;
    is_entry = core_entry_header(entry->bytes, entry->size, &header);
    if (!is_entry)
        error_set(&err, HF_EIO, "it is none of ours");
    if (!is_entry || core_apply(replica->table, entry->bytes, entry->size, &sink, &err) != HF_OK) {
        replica_stop(replica, "entry %" PRIu64 " of the log cannot be applied: %s", index,
                     err.text);
        return;
    }
    if (header.count > 0)
        replica->schedule.command_us = replica->now_us;
    if (!is_own)
        return;
    proposal =
        in_flight_front(replica); /* whoever was answered may have submitted, but nothing more */
    if (proposal->new_term)
        begin_serving(replica, entry->term);
    in_flight_pop(replica);
    replica->schedule.answering = true;
}

static void apply_members(struct replica *replica, uint64_t index, const struct log_entry *entry)
{
    members_applied(replica, index, entry->bytes, entry->size);
    changes_applied(replica, index, entry->term);
}

static void apply_next(struct replica *replica)
{
    uint64_t index = replica->applied.index + 1;
    /* A copy: the log may move when somebody submits; the bytes do not. */
    struct log_entry entry = *log_at(&replica->log, index);

    replica->applied = (struct raft_id){index, entry.term, entry.chain};
    if (entry.type == RAFT_COMMAND)
        apply_command(replica, index, &entry);
    else if (entry.type == RAFT_CONFIG)
        apply_members(replica, index, &entry);
    else if (entry.type == RAFT_VERSION)
        version_applied(replica, index, entry.bytes, entry.size);
    if (is_stopped(replica))
        return;
    snapshots_count(replica, entry.size);
    divergence_applied(replica);
}

static uint64_t committed(const struct replica *replica)
{
    uint64_t commit = replica->raft ? raft_commit(replica->raft) : replica->known_commit;

    return commit < replica->log.last ? commit : replica->log.last;
}

void apply_some(struct replica *replica, size_t bytes)
{
    size_t done = 0;

    while (!is_stopped(replica) && done < bytes && replica->applied.index < committed(replica)) {
        apply_next(replica);
        done += 1 + (replica->applied.index > replica->log.before.index
                         ? log_at(&replica->log, replica->applied.index)->size
                         : 0);
    }
}

void apply_terms(struct replica *replica, uint64_t term)
{
    while (!is_stopped(replica) && replica->applied.index < committed(replica) &&
           log_at(&replica->log, replica->applied.index + 1)->term <= term)
        apply_next(replica);
}

void apply_all(struct replica *replica)
{
    apply_some(replica, SIZE_MAX);
}
