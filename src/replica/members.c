/* members.c: who belongs to the cluster, with their addresses, and how that changes.
 *
 * Two configurations are kept as raft keeps them (R11): the latest in the log, and the one before, which is in effect again if the
 * latest is cut off. A third is the one that was applied last, for snapshots [P6].
 *
 *     add ──▶ learner: gets the log ──has caught up──▶ voter        Whoever leads takes it further. */
#include "replica/bytes.h"
#include "replica/inside.h"

static const struct replica_member *find(const struct replica_config *config, uint64_t id)
{
    for (int i = 0; i < config->count; i++)
        if (config->at[i].id == id)
            return &config->at[i];
    return NULL;
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

/* ---- changes ---------------------------------------------------------------------------------- */

static void end_change(struct replica *replica, enum replica_change result)
{
    void *request = replica->members.change.request;

    replica->members.change.kind = CHANGE_NONE;
    replica->host.changed(replica->host.context, request, result);
}

void members_applied(struct replica *replica, uint64_t index, uint64_t term, const void *bytes,
                     size_t size)
{
    struct change *change = &replica->members.change;

    INVARIANT(replica_config_read(bytes, size, &replica->members.applied));
    replica->members.applied.index = index;
    if (index == 1) {
        bootstrap_cluster_id(bytes, size, replica->cluster);
        replica->has_cluster = true;
    }
    if (change->kind == CHANGE_MEMBERS && change->index <= index)
        end_change(replica, change->index == index && change->term == term ? REPLICA_CHANGED
                                                                           : REPLICA_UNCHANGED);
}

/* The addresses that belong to the members as raft will have them. */
static size_t addresses_after(const struct replica *replica, enum raft_change change,
                              const struct replica_member *member, uint8_t *ret_bytes)
{
    struct replica_config after = replica->members.latest;
    struct raft_members members;
    uint8_t bytes[REPLICA_CONFIG_BYTES_MAX], head[RAFT_CONFIG_BYTES_MAX];
    size_t size, head_size;
    int kept = 0;

    for (int i = 0; i < after.count; i++)
        if (change != RAFT_REMOVE || after.at[i].id != member->id)
            after.at[kept++] = after.at[i];
    after.count = kept;
    if (change == RAFT_ADD && after.count < REPLICA_MEMBERS_MAX)
        after.at[after.count++] = *member;
    size = replica_config_write(&after, bytes);
    members_to_raft(&after, &members);
    head_size = raft_members_write(&members, head);
    memcpy(ret_bytes, bytes + head_size, size - head_size);
    return size - head_size;
}

static int change_members(struct replica *replica, enum raft_change change,
                          const struct replica_member *member)
{
    uint8_t addresses[REPLICA_CONFIG_BYTES_MAX];
    struct raft_event event = {.type = RAFT_ON_CHANGE,
                               .change = (uint8_t)change,
                               .member = {.id = member->id, .incarnation = member->incarnation},
                               .bytes = addresses};

    event.bytes_size = addresses_after(replica, change, member, addresses);
    return replica_step(replica, &event);
}

static void promote(struct replica *replica)
{
    const struct replica_member *member =
        find(&replica->members.latest, replica->members.caught_up);

    replica->members.caught_up = 0;
    /* What raft does not allow now it says again: the learner goes on answering. */
    if (member && !member->votes && replica->leading == LEAD_SERVING &&
        replica->members.change.kind == CHANGE_NONE) {
        struct replica_member copy = *member;

        change_members(replica, RAFT_PROMOTE, &copy);
    }
}

static void look_at_transfer(struct replica *replica)
{
    const struct change *change = &replica->members.change;
    uint64_t leader = raft_leader(replica->raft);

    if (raft_role(replica->raft) == RAFT_LEADER && raft_term(replica->raft) == change->term) {
        if (raft_transferee(replica->raft) == 0)
            end_change(replica, REPLICA_UNCHANGED);
    } else if (leader != 0) {
        end_change(replica,
                   leader == change->to || (!change->particular && leader != replica->options.id)
                       ? REPLICA_CHANGED
                       : REPLICA_UNCHANGED);
    } else if (replica->now_us >= change->until_us) {
        end_change(replica, REPLICA_PERHAPS);
    }
}

void members_pump(struct replica *replica)
{
    struct members *members = &replica->members;

    if (members->caught_up)
        promote(replica);
    if (!is_stopped(replica) && members->change.kind == CHANGE_LEADER)
        look_at_transfer(replica);
    if (members->told != members->version) {
        members->told = members->version;
        replica->host.members(replica->host.context);
    }
}

int64_t members_next_us(const struct replica *replica)
{
    const struct change *change = &replica->members.change;

    return change->kind == CHANGE_LEADER && !leads(replica) ? change->until_us : NEVER_US;
}

void members_fail(struct replica *replica, bool for_good)
{
    enum change_kind kind = replica->members.change.kind;

    if (kind == CHANGE_MEMBERS || (for_good && kind == CHANGE_LEADER))
        end_change(replica, REPLICA_PERHAPS);
}

/* ---- what is asked for ------------------------------------------------------------------------ */

static int may_change(struct replica *replica, int64_t now_us, struct error_text *err)
{
    if (now_us > replica->now_us)
        replica->now_us = now_us;
    if (replica->role != REPLICA_LEADING)
        return error_set(err, HF_EUNREACH, "this node does not lead");
    if (replica->members.change.kind != CHANGE_NONE)
        return error_set(err, HF_EBUSY,
                         "another change of the members is under way: ask again when it is over");
    return HF_OK;
}

/* What raft says, in words. */
static int refuse(int result, uint64_t id, struct error_text *err)
{
    switch (result) {
    case RAFT_NOT_LEADER:
        return error_set(err, HF_EUNREACH, "this node does not lead");
    case RAFT_BUSY:
        return error_set(err, HF_EBUSY,
                         "another change of the members is under way: ask again when it is over");
    case RAFT_NO_SUCH:
        return error_set(err, HF_EINVAL, "node %llu is not a member that could do that",
                         (unsigned long long)id);
    case RAFT_TOO_MANY:
        return error_set(err, HF_EINVAL, "a cluster has at most %u members", REPLICA_MEMBERS_MAX);
    case RAFT_NO_MAJORITY:
        return error_set(err, HF_EINVAL,
                         "without node %llu no majority of the members would be there: bring the "
                         "silent ones back, or remove them first",
                         (unsigned long long)id);
    case RAFT_LAST_VOTER:
        return error_set(err, HF_EINVAL, "node %llu is the only one that votes",
                         (unsigned long long)id);
    default:
        return error_set(err, HF_EINVAL, "that is so already");
    }
}

static int begin_change(struct replica *replica, enum raft_change change,
                        const struct replica_member *member, void *request, struct error_text *err)
{
    int result = change_members(replica, change, member);

    if (result != RAFT_OK)
        return refuse(result, member->id, err);
    replica->members.change = (struct change){.kind = CHANGE_MEMBERS,
                                              .request = request,
                                              .index = replica->log.last,
                                              .term = replica->term};
    return HF_OK;
}

static bool is_address(const char *address)
{
    size_t size = strnlen(address, REPLICA_ADDRESS_MAX + 1);

    for (size_t i = 0; i < size; i++)
        if ((unsigned char)address[i] <= ' ' || address[i] == 0x7f)
            return false;
    return size <= REPLICA_ADDRESS_MAX;
}

/* Is it there as it is asked for? Another one with its id or at its place is in the way. */
static int check_new(const struct replica *replica, const struct replica_member *member,
                     bool *ret_is_there, struct error_text *err)
{
    const struct replica_config *members = &replica->members.latest;

    *ret_is_there = false;
    for (int i = 0; i < members->count; i++) {
        bool same_place = strcmp(members->at[i].address, member->address) == 0;

        if (members->at[i].id == member->id) {
            *ret_is_there = same_place && members->at[i].incarnation == member->incarnation;
            if (*ret_is_there)
                return HF_OK;
            return error_set(err, HF_EINVAL,
                             "node %llu is a member already, at %s: remove it first",
                             (unsigned long long)member->id, members->at[i].address);
        }
        if (same_place && member->address[0])
            return error_set(err, HF_EINVAL, "node %llu is at %s already",
                             (unsigned long long)members->at[i].id, member->address);
    }
    return HF_OK;
}

int replica_add(struct replica *replica, const struct replica_member *member, void *request,
                int64_t now_us, struct error_text *err)
{
    int result = may_change(replica, now_us, err);
    bool is_there;

    if (result == HF_OK && (member->id == 0 || !is_address(member->address)))
        result = error_set(err, HF_EINVAL, "there is no such node");
    if (result == HF_OK)
        result = check_new(replica, member, &is_there, err);
    if (result != HF_OK)
        return result;
    if (is_there) {
        replica->host.changed(replica->host.context, request, REPLICA_CHANGED);
        return HF_OK;
    }
    return begin_change(replica, RAFT_ADD, member, request, err);
}

int replica_remove(struct replica *replica, uint64_t id, void *request, int64_t now_us,
                   struct error_text *err)
{
    struct replica_member member = {.id = id};
    int result = may_change(replica, now_us, err);

    if (result != HF_OK)
        return result;
    if (id == replica->options.id)
        return error_set(err, HF_EINVAL, "node %llu leads: let another one lead before it goes",
                         (unsigned long long)id);
    if (!find(&replica->members.latest, id))
        return error_set(err, HF_EINVAL, "node %llu is no member", (unsigned long long)id);
    return begin_change(replica, RAFT_REMOVE, &member, request, err);
}

int replica_transfer(struct replica *replica, uint64_t to, void *request, int64_t now_us,
                     struct error_text *err)
{
    struct raft_event event = {.type = RAFT_ON_TRANSFER, .member.id = to};
    int result = may_change(replica, now_us, err);

    if (result != HF_OK)
        return result;
    if (to == replica->options.id) {
        replica->host.changed(replica->host.context, request, REPLICA_CHANGED);
        return HF_OK;
    }
    result = replica_step(replica, &event);
    if (result == RAFT_NO_SUCH && to == 0)
        return error_set(err, HF_EINVAL, "there is no other node that could lead");
    if (result != RAFT_OK)
        return refuse(result, to, err);
    replica->members.change = (struct change){
        .kind = CHANGE_LEADER,
        .request = request,
        .term = replica->term,
        .to = raft_transferee(replica->raft),
        .particular = to != 0,
        .until_us = replica->now_us + tuning.transfer_timeouts * replica->limits.election_us};
    return HF_OK;
}
