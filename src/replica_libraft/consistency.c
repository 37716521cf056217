/* consistency.c: messages that contradict what this node knows to be committed.
 *
 * Raft promises that they cannot be. They come nevertheless when a promise beneath it was broken: a directory was put back from an old
 * copy, two nodes run with copies of one directory, a disk has lied. libraft 0.22.1 refuses an append of that kind and then frees it
 * twice (recvCb); a snapshot it installs over what is committed; two leaders of one term it takes for a broken invariant of
 * its own. Nothing that this node could do on its own would be right: it says what it has seen, and takes no part any more. */
#include "replica_libraft/inside.h"

#include <inttypes.h>

#define ASK_AGAIN_US 1000000

/* As libraft's TrailTermOf, which it does not export. */
raft_term consistency_term_of(const struct raft *raft, raft_index index)
{
    const struct raft_trail *trail = &raft->trail;
    unsigned count = trail->size ? (trail->back + trail->size - trail->front) % trail->size : 0;
    raft_index before = trail->offset;

    for (unsigned i = 0; i < count; i++) {
        unsigned at = (trail->front + i) % trail->size;

        if (index > before && index <= trail->records[at].index)
            return trail->records[at].term;
        before = trail->records[at].index;
    }
    return index == trail->snapshot.index ? trail->snapshot.term : 0;
}

/* Does what is committed here at this index have another term? */
static bool differs(struct replica *replica, uint64_t from, raft_index index, raft_term term)
{
    raft_term own = index > 0 && index <= raft_commit_index(&replica->raft)
                        ? consistency_term_of(&replica->raft, index)
                        : 0;

    if (own == 0 || own == term)
        return false;
    gate_trouble(
        replica,
        "node %" PRIu64 " leads with another log: its entry %" PRIu64 " is of term %" PRIu64
        ", and the one that is committed here is of term %" PRIu64
        "; one of the two has an old copy of its data, or somebody else's: replace that node",
        from, (uint64_t)index, (uint64_t)term, (uint64_t)own);
    return true;
}

static bool append_contradicts(struct replica *replica, uint64_t from,
                               const struct raft_append_entries *append)
{
    if (differs(replica, from, append->prev_log_index, append->prev_log_term))
        return true;
    for (unsigned i = 0; i < append->n_entries; i++)
        if (differs(replica, from, append->prev_log_index + 1 + i, append->entries[i].term))
            return true;
    return false;
}

/* Only one node is elected in a term, and it is this one. */
static bool is_second_leader(struct replica *replica, uint64_t from, raft_term term)
{
    if (raft_state(&replica->raft) != RAFT_LEADER || term != raft_current_term(&replica->raft))
        return false;
    gate_trouble(replica,
                 "node %" PRIu64 " leads in term %" PRIu64
                 ", in which this node was elected: one of "
                 "the two has an old copy of its data: replace that node",
                 from, (uint64_t)term);
    return true;
}

bool consistency_violated(struct replica *replica, const struct raft_message *message)
{
    uint64_t from = message->server_id;

    if (message->type == RAFT_APPEND_ENTRIES)
        return message->append_entries.term >= raft_current_term(&replica->raft) &&
               (is_second_leader(replica, from, message->append_entries.term) ||
                append_contradicts(replica, from, &message->append_entries));
    if (message->type == RAFT_INSTALL_SNAPSHOT)
        return message->install_snapshot.term >= raft_current_term(&replica->raft) &&
               (is_second_leader(replica, from, message->install_snapshot.term) ||
                differs(replica, from, message->install_snapshot.last_index,
                        message->install_snapshot.last_term));
    return false;
}

/* ---- a node that has less than it had ---------------------------------------------------------- */

/* In one term a node never loses what it has acknowledged to the leader, unless its directory was exchanged for an old copy. Old messages
 * there are, too, so it is asked: its own log is not one of them. Neither is for libraft: it would go back below what it knows the node
 * to have, and compute from that that too much is in flight; it never sends that node an entry again, even if it comes
 * back with the right directory, and counts it as a member that is there. True: libraft must not get it. */
bool consistency_forgets(struct replica *replica, struct heard *heard,
                         const struct raft_append_entries_result *result)
{
    const struct replica_host *host = &replica->host;

    if (raft_state(&replica->raft) != RAFT_LEADER ||
        result->term != raft_current_term(&replica->raft))
        return false;
    if (heard->term != result->term) {
        heard->term = result->term;
        heard->index = 0;
    }
    if (result->rejected == 0) {
        if (result->last_log_index > heard->index)
            heard->index = result->last_log_index;
        return false;
    }
    if (result->last_log_index >= heard->index)
        return false;
    if (host->doubts && (!heard->asked_us || heard->us - heard->asked_us >= ASK_AGAIN_US)) {
        heard->asked_us = heard->us;
        host->doubts(host->context, heard->id, heard->term, heard->index);
    }
    return true;
}

void replica_asked(struct replica *replica, uint64_t leader, uint64_t term, uint64_t index)
{
    const struct raft *raft = &replica->raft;
    raft_index last;

    if (replica->waits || replica->closing || raft_current_term(&replica->raft) != term ||
        raft->snapshot.installing)
        return;
    last = raft_last_index(&replica->raft);
    if (last < index)
        gate_trouble(replica,
                     "this node had acknowledged entry %" PRIu64 " of the log to node %" PRIu64
                     ", which leads, and has only %" PRIu64
                     ": its data directory is an old copy that was put back: replace this node",
                     index, leader, (uint64_t)last);
}

/* ---- messages that cannot be -------------------------------------------------------------------- */

/* Numbers that no node of ours sends, and libraft asserts not to get. */
bool consistency_impossible(const struct raft_message *message)
{
    const struct raft_append_entries *append = &message->append_entries;

    if (message->type == RAFT_INSTALL_SNAPSHOT)
        return message->install_snapshot.last_index == 0 ||
               message->install_snapshot.last_term == 0;
    if (message->type != RAFT_APPEND_ENTRIES)
        return false;
    if ((append->prev_log_index == 0) != (append->prev_log_term == 0))
        return true;
    for (unsigned i = 0; i < append->n_entries; i++)
        if (append->entries[i].term == 0)
            return true;
    return false;
}
