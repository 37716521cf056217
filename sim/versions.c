/* versions.c: nodes whose processes are started with the holdfastd before this one or with this, the next one, up and down as an operator may: never with the older one
 * once the newer version is known to be in effect. Whoever was started with the older one just before that stops in words, and gets the newer
 * one. */
#include "sim/sim.h"

#include <string.h>

#define NEXT REPLICA_VERSION

uint32_t versions_choose(struct sim *sim, struct node *node)
{
    struct versions *versions = &sim->versions;

    if (!sim->swarm.versions) /* limits of users need it */
        node->version = sim->swarm.holds ? NEXT : NEXT - 1;
    else if (versions->in_effect || sim->healing ||
             chance_happens(&versions->chance, sim->swarm.versions))
        node->version = NEXT;
    else
        node->version = NEXT - 1;
    node->ran_next = node->ran_next || node->version == NEXT;
    return node->version;
}

static bool is_founder(const struct sim *sim, const struct node *node)
{
    for (int i = 0; i < sim->initial.count; i++)
        if (sim->initial.at[i].id == node->id)
            return sim->initial.at[i].incarnation == node->incarnation;
    return false;
}

/* A newcomer may be added while the others agree, and who is being removed is not waited for. Any other member has said that it reads it. */
bool versions_may_stop(struct sim *sim, const struct node *node, const char *why)
{
    if (!sim->swarm.versions || node->version == NEXT || !strstr(why, "run a newer holdfastd"))
        return false;
    if (is_founder(sim, node) && !node->ran_next && !node->removed)
        return false;
    sim->versions.in_effect = true;
    return true;
}

void versions_see(struct sim *sim, const struct node *node)
{
    uint32_t version = replica_version(node->replica);

    if (version < NEXT)
        return;
    if (!sim->versions.in_effect)
        trace(&sim->trace, sim->now_us, TRACE_VERSION, node->id, version, 0, 0);
    sim->versions.in_effect = true;
    if (node->version != NEXT)
        sim_wrong(sim, "node %d uses version %d, which it does not read", (int)node->id,
                  (int)version);
}

bool versions_are_settled(struct sim *sim, const struct node *leader)
{
    const struct replica_config *config = replica_members(leader->replica);

    for (int i = 0; i < config->count; i++)
        if (sim_node(sim, config->at[i].id)->version != NEXT)
            return true;
    return !sim->swarm.versions || replica_version(leader->replica) == NEXT;
}

void versions_begin(struct sim *sim)
{
    sim->versions.chance = chance_new(sim->seed, 7);
}
