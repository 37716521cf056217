/* changes.c: how the members change, and who leads: what is asked for, and what the leader does by itself.
 *
 *     add ──▶ learner: gets the log ──has caught up──▶ voter        Whoever leads takes it further. */
#include "replica/inside.h"

static void end_change(struct replica *replica, enum replica_change result)
{
    void *request = replica->members.change.request;

    replica->members.change.kind = CHANGE_NONE;
    replica->host.changed(replica->host.context, request, result);
}

void changes_applied(struct replica *replica, uint64_t index, uint64_t term)
{
    const struct change *change = &replica->members.change;

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
    for (int i = 0; i < after.count && change == RAFT_MOVE; i++)
        if (after.at[i].id == member->id)
            memcpy(after.at[i].address, member->address, sizeof member->address);
    if (change == RAFT_ADD && after.count < REPLICA_MEMBERS_MAX)
        after.at[after.count++] = *member;
    size = replica_config_write(&after, bytes);
    members_to_raft(&after, &members);
    head_size = raft_members_write(&members, head);
    memcpy(ret_bytes, bytes + head_size, size - head_size);
    return size - head_size;
}

/* since_us: when it was asked for (R22). Returns raft's result. */
static int change_members(struct replica *replica, enum raft_change change,
                          const struct replica_member *member, int64_t since_us)
{
    uint8_t addresses[REPLICA_CONFIG_BYTES_MAX];
    struct raft_event event = {.type = RAFT_ON_CHANGE,
                               .change = (uint8_t)change,
                               .member = {.id = member->id, .incarnation = member->incarnation},
                               .since_us = since_us,
                               .bytes = addresses};

    event.bytes_size = addresses_after(replica, change, member, addresses);
    return replica_step(replica, &event);
}

/* Another change, or too few that have answered since (R22): that may be over in a moment. If not, the learner is forgotten, and
 * noted again when it answers again. */
static void promote(struct replica *replica)
{
    struct members *members = &replica->members;
    const struct replica_member *member = members_find(replica, members->caught_up);
    int result = RAFT_NO_SUCH;

    if (members->change.kind != CHANGE_NONE) {
        result = RAFT_BUSY;
    } else if (member && !member->votes && replica->leading == LEAD_SERVING) {
        struct replica_member copy = *member;

        result = change_members(replica, RAFT_PROMOTE, &copy, members->caught_up_us);
    }
    if ((result != RAFT_BUSY && result != RAFT_NO_MAJORITY) ||
        replica->now_us - members->caught_up_us >= replica->limits.election_us)
        members->caught_up = 0;
}

static void change_appended(struct replica *replica)
{
    struct change *change = &replica->members.change;

    change->kind = CHANGE_MEMBERS;
    change->index = replica->log.last;
    change->term = replica->term;
}

/* Nothing of it is in the log before raft takes it. */
static void look_at_removal(struct replica *replica)
{
    struct change *change = &replica->members.change;
    struct replica_member member = {.id = change->to};
    int result = change_members(replica, RAFT_REMOVE, &member, change->since_us);

    if (result == RAFT_OK)
        change_appended(replica);
    else if (replica->now_us >= change->until_us ||
             (result != RAFT_NO_MAJORITY && result != RAFT_BUSY))
        end_change(replica, result == RAFT_NO_MAJORITY ? REPLICA_NO_MAJORITY : REPLICA_UNCHANGED);
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

void changes_pump(struct replica *replica)
{
    struct members *members = &replica->members;

    if (members->caught_up)
        promote(replica);
    if (!is_stopped(replica) && members->change.kind == CHANGE_CONFIRMING)
        look_at_removal(replica);
    if (!is_stopped(replica) && members->change.kind == CHANGE_LEADER)
        look_at_transfer(replica);
    if (members->told != members->version) {
        members->told = members->version;
        replica->host.members(replica->host.context);
    }
}

int64_t changes_next_us(const struct replica *replica)
{
    const struct change *change = &replica->members.change;

    return change->kind == CHANGE_CONFIRMING || (change->kind == CHANGE_LEADER && !leads(replica))
               ? change->until_us
               : NEVER_US;
}

void changes_fail(struct replica *replica, bool for_good)
{
    enum change_kind kind = replica->members.change.kind;

    if (kind == CHANGE_CONFIRMING)
        end_change(replica, REPLICA_UNCHANGED);
    else if (kind == CHANGE_MEMBERS || (for_good && kind == CHANGE_LEADER))
        end_change(replica, REPLICA_PERHAPS);
}

/* ---- what is asked for ------------------------------------------------------------------------ */

static int may_change(const struct replica *replica, struct error_text *err)
{
    if (replica->role != REPLICA_LEADING)
        return error_set(err, HF_EUNREACH, "this node does not lead");
    if (replica->members.change.kind != CHANGE_NONE)
        return error_set(err, HF_EBUSY,
                         "another change of the members is under way: ask again when it is over");
    return HF_OK;
}

static void set_now(struct replica *replica, int64_t now_us)
{
    if (now_us > replica->now_us)
        replica->now_us = now_us;
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
    int result = change_members(replica, change, member, replica->now_us);

    if (result != RAFT_OK && result != RAFT_NO_MAJORITY)
        return refuse(result, member->id, err);
    INVARIANT(result == RAFT_OK || change == RAFT_REMOVE); /* that is what is tried again */
    replica->members.change = (struct change){
        .kind = CHANGE_CONFIRMING,
        .request = request,
        .to = member->id,
        .since_us = replica->now_us,
        .until_us = replica->now_us + tuning.confirm_timeouts * replica->limits.election_us};
    if (result == RAFT_OK)
        change_appended(replica);
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

static uint64_t greatest_id(const struct replica_config *members)
{
    uint64_t greatest = 0;

    for (int i = 0; i < members->count; i++)
        if (members->at[i].id > greatest)
            greatest = members->at[i].id;
    return greatest;
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
            *ret_is_there = same_place && (member->incarnation == 0 ||
                                           members->at[i].incarnation == member->incarnation);
            if (*ret_is_there)
                return HF_OK;
            return error_set(err, HF_EINVAL,
                             "node %llu is a member already, at %s: a new node needs an id of its "
                             "own, for instance %llu",
                             (unsigned long long)member->id, members->at[i].address,
                             (unsigned long long)greatest_id(members) + 1);
        }
        if (same_place && member->address[0])
            return error_set(err, HF_EINVAL, "node %llu is at %s already",
                             (unsigned long long)members->at[i].id, member->address);
    }
    return HF_OK;
}

int replica_may_add(const struct replica *replica, const struct replica_member *member,
                    bool *ret_is_there, struct error_text *err)
{
    int result = may_change(replica, err);

    *ret_is_there = false;
    if (result == HF_OK && (member->id == 0 || !is_address(member->address)))
        result = error_set(err, HF_EINVAL, "there is no such node");
    return result == HF_OK ? check_new(replica, member, ret_is_there, err) : result;
}

int replica_add(struct replica *replica, const struct replica_member *member, void *request,
                int64_t now_us, struct error_text *err)
{
    bool is_there;
    int result = replica_may_add(replica, member, &is_there, err);

    set_now(replica, now_us);
    if (result == HF_OK)
        result = version_check_new(replica, member, err);
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
    int result = may_change(replica, err);

    set_now(replica, now_us);
    if (result != HF_OK)
        return result;
    if (id == replica->options.id)
        return error_set(err, HF_EINVAL, "node %llu leads: let another one lead before it goes",
                         (unsigned long long)id);
    if (!members_find(replica, id))
        return error_set(err, HF_EINVAL, "node %llu is no member", (unsigned long long)id);
    return begin_change(replica, RAFT_REMOVE, &member, request, err);
}

static int check_move(const struct replica *replica, uint64_t id, const char *address,
                      struct error_text *err)
{
    const struct replica_config *members = &replica->members.latest;

    if (!is_address(address))
        return error_set(err, HF_EINVAL, "there is no such address");
    if (!members_find(replica, id))
        return error_set(err, HF_EINVAL, "node %llu is no member", (unsigned long long)id);
    for (int i = 0; i < members->count; i++)
        if (members->at[i].id != id && address[0] && strcmp(members->at[i].address, address) == 0)
            return error_set(err, HF_EINVAL, "node %llu is at %s already",
                             (unsigned long long)members->at[i].id, address);
    return HF_OK;
}

int replica_move(struct replica *replica, uint64_t id, const char *address, void *request,
                 int64_t now_us, struct error_text *err)
{
    struct replica_member member = {.id = id};
    int result = may_change(replica, err);

    set_now(replica, now_us);
    if (result == HF_OK)
        result = check_move(replica, id, address, err);
    if (result != HF_OK)
        return result;
    if (strcmp(members_find(replica, id)->address, address) == 0) {
        replica->host.changed(replica->host.context, request, REPLICA_CHANGED);
        return HF_OK;
    }
    memcpy(member.address, address, strlen(address) + 1);
    return begin_change(replica, RAFT_MOVE, &member, request, err);
}

static bool is_silent(const struct replica *replica, uint64_t id)
{
    struct raft_progress progress;

    return raft_progress(replica->raft, id, &progress) &&
           replica->now_us - progress.acked_us >= replica->limits.election_us;
}

int replica_transfer(struct replica *replica, uint64_t to, void *request, int64_t now_us,
                     struct error_text *err)
{
    struct raft_event event = {.type = RAFT_ON_TRANSFER, .member.id = to};
    int result = may_change(replica, err);

    set_now(replica, now_us);
    if (result != HF_OK)
        return result;
    if (to == replica->options.id) {
        replica->host.changed(replica->host.context, request, REPLICA_CHANGED);
        return HF_OK;
    }
    if (to != 0 && is_silent(replica, to))
        return error_set(
            err, HF_EINVAL,
            "node %llu is silent, and cannot lead: bring it back first, or name another",
            (unsigned long long)to);
    result = replica_step(replica, &event);
    if (result == RAFT_NO_SUCH && to == 0)
        return error_set(err, HF_EINVAL, "there is no other node that could lead");
    if (result == RAFT_NO_SUCH)
        return error_set(err, HF_EINVAL, "node %llu is not a member that votes",
                         (unsigned long long)to);
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
