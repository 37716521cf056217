/* members.c: who belongs to the cluster, with their addresses.
 *
 * Two configurations are kept as raft keeps them (R11): the latest in the log, and the one before, which is in effect again if the
 * latest is cut off. A third is the one that was applied last, for snapshots [P6]. */
#include "replica/inside.h"

static const struct replica_member *find(const struct replica_config *config, uint64_t id)
{
    for (int i = 0; i < config->count; i++)
        if (config->at[i].id == id)
            return &config->at[i];
    return NULL;
}

const struct replica_member *members_find(const struct replica *replica, uint64_t id)
{
    return find(&replica->members.latest, id);
}

const char *members_address(const struct replica *replica, uint64_t id)
{
    const struct replica_member *member = find(&replica->members.latest, id);

    if (!member)
        member = find(&replica->members.previous, id);
    return member ? member->address : NULL;
}

const struct replica_config *replica_members(const struct replica *replica)
{
    return &replica->members.latest;
}

bool replica_members_agreed(const struct replica *replica)
{
    return !replica->raft || replica->members.latest.index <= raft_commit(replica->raft);
}

/* ---- as the log has them ---------------------------------------------------------------------- */

void members_push(struct replica *replica, uint64_t index, const void *bytes, size_t size)
{
    struct members *members = &replica->members;

    members->previous = members->latest;
    INVARIANT(replica_config_read(bytes, size, &members->latest));
    members->latest.index = index;
    members->version++;
}

void members_cut(struct replica *replica, uint64_t index)
{
    struct members *members = &replica->members;

    if (members->latest.index < index)
        return;
    members->latest = members->previous;
    members->previous = (struct replica_config){0};
    members->version++;
}

void members_set(struct replica *replica, const struct replica_config *config)
{
    replica->members.latest = replica->members.applied = *config;
    replica->members.previous = (struct replica_config){0};
    replica->members.version++;
}

void members_applied(struct replica *replica, uint64_t index, const void *bytes, size_t size)
{
    INVARIANT(replica_config_read(bytes, size, &replica->members.applied));
    replica->members.applied.index = index;
    if (index == 1) {
        bootstrap_cluster_id(bytes, size, replica->cluster);
        replica->has_cluster = true;
    }
}
