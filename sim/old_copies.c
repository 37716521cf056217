/* old_copies.c: somebody copies a member's directory, and puts it back later in its place.
 *
 * What the member has promised meanwhile it does not know any more, which no consensus survives in general. So it is done only
 * where nothing hangs on it: all others are there, in the same term, and have all of the leader's log. Then the node must stop as soon as
 * it hears that leader (raft.h, R21), and is replaced; if another leads before that, it catches up like one that was away. */
#include "sim/sim.h"

#include <endian.h>
#include <string.h>

#define MS 1000
#define AWAY_MS_MIN 1000 /* what it has sent has arrived by then */
#define AWAY_MS_MAX 3000
#define TYPE_AT 1 /* in a message */
#define TERM_AT 10
#define HEAD_BYTES 18

static void take(struct sim *sim, struct node *leader)
{
    struct old_copy *old = &sim->operator.old;
    const struct replica_config *config = replica_members(leader->replica);
    struct node *node =
        sim_node(sim, config->at[chance_below(&sim->operator.chance, (uint64_t)config->count)].id);

    if (!node->up || !replica_members_agreed(leader->replica))
        return;
    old->copy = sim_disk_copy(node->store.disk, chance_draw(&sim->operator.chance));
    old->of = node->id;
    old->incarnation = node->incarnation;
    old->members = config->index;
}

void old_copies_drop(struct sim *sim)
{
    if (sim->operator.old.copy)
        sim_disk_free(sim->operator.old.copy);
    sim->operator.old.copy = NULL;
}

/* Does this one, which is not the node, have all that the leader has, in its term? */
static bool has_all(const struct node *node, const struct node *leader)
{
    struct replica_status own, theirs;
    uint64_t match = 0;

    if (!node->up)
        return false;
    replica_status(node->replica, &own);
    replica_status(leader->replica, &theirs);
    if (node == leader)
        return !node->store.writes.first;
    replica_progress(leader->replica, node->id, &match);
    return own.term == theirs.term && match == theirs.last_index;
}

static bool is_legal(struct sim *sim, const struct node *leader, const struct node *node)
{
    const struct old_copy *old = &sim->operator.old;
    const struct replica_config *config = replica_members(leader->replica);
    int members = 0;

    if (sim->operator.wiped || sim->operator.change || !operator_is_content(sim) ||
        node->incarnation != old->incarnation || config->index != old->members || config->count < 3)
        return false;
    for (uint64_t id = 1; id <= SIM_NODES; id++)
        members += sim_node(sim, id)->exists;
    if (members != config->count || !has_all(node, leader))
        return false;
    for (int i = 0; i < config->count; i++)
        if (!config->at[i].votes || !has_all(sim_node(sim, config->at[i].id), leader))
            return false;
    return true;
}

static void put_back(struct sim *sim, struct node *leader, struct node *node)
{
    struct old_copy *old = &sim->operator.old;
    struct replica_status status;

    replica_status(leader->replica, &status);
    node_end(sim, node, ENDING_POWER);
    sim_disk_free(node->store.disk);
    node->store.disk = old->copy;
    sim_disk_crash(node->store.disk);
    old->copy = NULL;
    old->node = node->id;
    old->until = status.last_index;
    old->leader = leader->id;
    old->term = status.term;
    check_wiped(&node->seen);
    check_voting(&node->seen); /* term and vote are what the copy has */
    sim->counts.old_copies++;
    trace(&sim->trace, sim->now_us, TRACE_OLD_COPY, node->id, old->until, 0, 0);
    sim_at(sim, sim->now_us + chance_between(&sim->operator.chance, AWAY_MS_MIN, AWAY_MS_MAX) * MS,
           EVENT_RESTART, node, 0, NULL);
}

void old_copies_event(struct sim *sim)
{
    struct old_copy *old = &sim->operator.old;
    struct node *leader = sim_leader(sim);
    struct node *node = sim_node(sim, old->of);

    if (old->node && (!node->exists || node->incarnation != old->incarnation))
        old->node = 0; /* it was removed */
    if (!leader || old->node)
        return;
    if (!old->copy) {
        take(sim, leader);
        return;
    }
    if (node == leader || !is_legal(sim, leader, node)) {
        if (chance_below(&sim->operator.chance, 4) == 0)
            old_copies_drop(sim);
        return;
    }
    put_back(sim, leader, node);
}

bool old_copies_may_stop(const struct sim *sim, const struct node *node)
{
    return sim->operator.old.node == node->id && sim->operator.old.incarnation == node->incarnation;
}

/* All that comes from that leader was sent after the copy was put back: what was before has arrived by now. */
bool old_copies_must_stop(const struct sim *sim, const struct node *node,
                          const struct packet *packet)
{
    const struct old_copy *old = &sim->operator.old;
    struct replica_status status;
    uint64_t term;

    if (!old_copies_may_stop(sim, node) || packet->from != old->leader ||
        packet->size < HEAD_BYTES || packet->bytes[TYPE_AT] != RAFT_APPEND)
        return false;
    memcpy(&term, packet->bytes + TERM_AT, sizeof term);
    replica_status(node->replica, &status);
    return le64toh(term) == old->term && status.term <= old->term &&
           (status.term < old->term || status.last_index < old->until);
}

void old_copies_see(struct sim *sim, const struct node *node, uint64_t applied)
{
    struct old_copy *old = &sim->operator.old;

    if (old->node == node->id && applied >= old->until)
        old->node = 0;
}

void old_copies_replace(struct sim *sim, struct node *node)
{
    sim->operator.old.node = 0;
    sim->operator.wiped = node->id;
    sim->counts.old_copies_found++;
    node_make(sim, node);
    trace(&sim->trace, sim->now_us, TRACE_WIPED, node->id, node->incarnation, 0, 0);
}
