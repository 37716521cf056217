/* members.c: who belongs to the cluster, and who leads it.
 *
 * A node that is added passes through three states, each a configuration in the log. Whoever leads takes it
 * to the next one, so that nothing is lost if the leader goes meanwhile:
 *
 *     SPARE ──at once──▶ STANDBY: gets the log ──has caught up──▶ VOTER
 *
 * libraft can do all that in one step, but gives up when the new node needs longer than it thinks right.
 *
 * Its callbacks only come by way of its own libuv backend. So what became of a change is seen by looking at
 * libraft's state after each event. */
#include "base/hash.h"
#include "replica_libraft/identity.h"
#include "replica_libraft/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATCH_UP_LAG 64u      /* entries behind: near enough to vote */
#define CATCH_UP_MS 10000u    /* of one round of libraft's own, for the last of it */
#define TRANSFER_TIMEOUTS 4   /* election timeouts until nobody knows any more what became of it */
#define HEARD_LATELY_BEATS 10 /* who has said something within so many heartbeats is alive */

static const struct raft_configuration *members_of(const struct replica *replica)
{
    return &replica->raft.configuration;
}

static int64_t timeout_us(const struct replica *replica)
{
    return (int64_t)replica->raft.election_timeout * 1000;
}

static const struct raft_server *find(const struct replica *replica, uint64_t id)
{
    const struct raft_configuration *members = members_of(replica);

    for (unsigned i = 0; i < members->n; i++)
        if (members->servers[i].id == id)
            return &members->servers[i];
    return NULL;
}

static const struct raft_server *find_at(const struct replica *replica, const char *address)
{
    const struct raft_configuration *members = members_of(replica);

    for (unsigned i = 0; i < members->n; i++)
        if (identity_is_at(members->servers[i].address, address))
            return &members->servers[i];
    return NULL;
}

void members_init(struct replica *replica)
{
    raft_set_max_catch_up_round_duration(&replica->raft, CATCH_UP_MS);
}

/* ---- who is alive ----------------------------------------------------------------------------- */

struct heard *members_heard(struct replica *replica, uint64_t id)
{
    struct heard *oldest = replica->heard;

    for (struct heard *heard = replica->heard; heard < replica->heard + REPLICA_MEMBERS_MAX;
         heard++) {
        if (heard->id == id) {
            heard->us = replica_now(replica);
            return heard;
        }
        if (heard->us < oldest->us)
            oldest = heard;
    }
    *oldest = (struct heard){.id = id, .us = replica_now(replica)};
    return oldest;
}

/* Since it last said something; -1: never. */
static int64_t silent_us(const struct replica *replica, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (replica->heard[i].id == id)
            return replica_now(replica) - replica->heard[i].us;
    return -1;
}

static int64_t lately_us(const struct replica *replica)
{
    return (int64_t)replica->heartbeat_ms * 1000 * HEARD_LATELY_BEATS;
}

static uint64_t match_index(const struct replica *replica, uint64_t id)
{
    raft_index index = 0;

    if (replica->raft.state != RAFT_LEADER || raft_match_index(&replica->raft, id, &index) != 0)
        return 0;
    return index;
}

/* The leader knows what others have, and sends the rest to them. Spare ones get nothing. A follower knows from where its leader
 * has sent last: until that has heard that it came, it sends it again. */
uint64_t members_have(const struct replica *replica)
{
    const struct raft_configuration *members = members_of(replica);
    uint64_t least = replica->raft.last_applied;

    if (replica->raft.state != RAFT_LEADER)
        return replica->memory.sent_from < least ? replica->memory.sent_from : least;
    for (unsigned i = 0; i < members->n; i++) {
        const struct raft_server *server = &members->servers[i];
        uint64_t has = match_index(replica, server->id);

        if (server->id != replica->id && server->role != RAFT_SPARE && has < least)
            least = has;
    }
    return least;
}

static struct replica_seen see(const struct replica *replica, const struct raft_server *server)
{
    int64_t silent = silent_us(replica, server->id);
    struct replica_seen seen = {.id = server->id,
                                .votes = server->role == RAFT_VOTER,
                                .match_index = match_index(replica, server->id),
                                .silent_ms = server->id == replica->id ? 0
                                             : silent < 0              ? -1
                                                                       : silent / 1000};

    identity_address(server->address, seen.address);
    snprintf(seen.life, sizeof seen.life, "%s", identity_life(server->address));
    return seen;
}

/* libraft keeps them as they were added, which is by their ids. */
unsigned replica_members(const struct replica *replica, struct replica_seen *ret_seen, unsigned max)
{
    const struct raft_configuration *members = members_of(replica);
    unsigned count = 0;

    if (replica->closing)
        return 0;
    for (; count < members->n && count < max; count++)
        ret_seen[count] = see(replica, &members->servers[count]);
    return count;
}

const char *replica_life(const struct replica *replica, uint64_t id)
{
    const char *identity = replica->closing ? NULL : identity_find(members_of(replica), id);

    return identity ? identity_life(identity) : NULL;
}

uint64_t replica_members_version(const struct replica *replica)
{
    const struct raft *raft = &replica->raft;

    return raft->configuration_uncommitted_index ? raft->configuration_uncommitted_index
                                                 : raft->configuration_committed_index;
}

/* A sum: their order does not matter. */
uint64_t members_hash(const struct replica *replica)
{
    const struct raft_configuration *members = members_of(replica);
    uint64_t hash = 0;

    for (unsigned i = 0; i < members->n; i++) {
        const struct raft_server *server = &members->servers[i];
        uint64_t parts[] = {server->id, (uint64_t)server->role,
                            hash_bytes(server->address, strlen(server->address))};

        hash += hash_bytes(parts, sizeof parts);
    }
    return hash;
}

bool replica_members_agreed(const struct replica *replica)
{
    return replica->raft.configuration_uncommitted_index == 0;
}

/* ---- changes ---------------------------------------------------------------------------------- */

/* Also if libraft does not lead any more, and we have not yet seen it. */
static bool is_changing(struct replica *replica)
{
    return raft_state(&replica->raft) != RAFT_LEADER ||
           replica->raft.configuration_uncommitted_index != 0 ||
           replica->raft.leader_state.promotee_id != 0 || raft_transferee(&replica->raft) != 0;
}

static void end_change(struct replica *replica, enum replica_change result)
{
    void *request = replica->change.request;

    replica->change.kind = CHANGE_NONE;
    replica->host.changed(replica->host.context, request, result);
}

void members_fail(struct replica *replica, bool for_good)
{
    if (replica->change.kind == CHANGE_MEMBERS ||
        (for_good && replica->change.kind == CHANGE_LEADER))
        end_change(replica, REPLICA_PERHAPS);
}

/* libraft asks the heir to stand as soon as it acknowledges anything, though it may lack more: then it
 * refuses, and is not asked again. So libraft hears of it when the heir lacks nothing, and nothing comes after. */
static void ask_heir(struct replica *replica)
{
    struct change *change = &replica->change;

    if (!replica->flight.active &&
        match_index(replica, change->heir) == raft_last_index(&replica->raft)) {
        change->asked = true;
        change->until_us = replica_now(replica) + TRANSFER_TIMEOUTS * timeout_us(replica);
        if (raft_transfer(&replica->raft, &change->transfer, change->heir, NULL) != 0)
            end_change(replica, REPLICA_UNCHANGED);
    } else if (replica_now(replica) >= change->until_us) {
        end_change(replica, REPLICA_UNCHANGED);
    }
}

static void look_at_transfer(struct replica *replica)
{
    raft_id leader;
    const char *address;

    if (raft_state(&replica->raft) == RAFT_LEADER) {
        if (!replica->change.asked)
            ask_heir(replica);
        else if (raft_transferee(&replica->raft) == 0)
            end_change(replica, REPLICA_UNCHANGED);
        return;
    }
    raft_leader(&replica->raft, &leader, &address);
    if (leader != 0 && leader != replica->id)
        end_change(replica, !replica->change.particular || leader == replica->change.heir
                                ? REPLICA_CHANGED
                                : REPLICA_UNCHANGED);
    else if (replica_now(replica) >= replica->change.until_us)
        end_change(replica, REPLICA_PERHAPS);
}

void members_observe(struct replica *replica)
{
    if (replica->change.kind == CHANGE_LEADER)
        look_at_transfer(replica);
    else if (replica->change.kind == CHANGE_MEMBERS &&
             replica->raft.configuration_uncommitted_index == 0)
        end_change(replica, REPLICA_CHANGED);
}

/* It answers, and is near enough. libraft begins a catch-up of its own then, for what may still be missing, and allows no
 * other change meanwhile. */
static bool has_caught_up(const struct replica *replica, const struct raft_server *server)
{
    uint64_t match = match_index(replica, server->id);
    int64_t silent = silent_us(replica, server->id);

    return match > 0 && match + CATCH_UP_LAG >= raft_last_index((struct raft *)&replica->raft) &&
           silent >= 0 && silent <= lately_us(replica);
}

void members_promote(struct replica *replica)
{
    const struct raft_configuration *members = members_of(replica);

    if (replica->leading != LEAD_SERVING || is_changing(replica))
        return;
    for (unsigned i = 0; i < members->n; i++) {
        const struct raft_server *server = &members->servers[i];
        int role = server->role == RAFT_SPARE ? RAFT_STANDBY : RAFT_VOTER;

        if (server->role == RAFT_VOTER ||
            (server->role == RAFT_STANDBY && !has_caught_up(replica, server)))
            continue;
        raft_assign(&replica->raft, &replica->change.members, server->id, role, NULL);
        return;
    }
}

/* ---- what is asked for ------------------------------------------------------------------------ */

static int may_change(struct replica *replica, struct error_text *err)
{
    if (replica->role != REPLICA_LEADING || replica->closing)
        return error_set(err, HF_EUNREACH, "this node does not lead");
    if (replica->change.kind != CHANGE_NONE || is_changing(replica))
        return error_set(err, HF_EBUSY,
                         "another change of the members is under way: ask again when it is over");
    return HF_OK;
}

static int begin_change(struct replica *replica, int result, void *request, struct error_text *err)
{
    if (result == RAFT_NOTLEADER)
        return error_set(err, HF_EUNREACH, "this node does not lead");
    if (result != 0)
        return error_set(err, HF_EINVAL, "%s",
                         *raft_errmsg(&replica->raft) ? raft_errmsg(&replica->raft)
                                                      : raft_strerror(result));
    replica->change.kind = CHANGE_MEMBERS;
    replica->change.request = request;
    return HF_OK;
}

/* Is it there as it is asked for? Another one with its id or at its place is in the way. */
static int check_new(const struct replica *replica, const struct replica_member *member,
                     bool *ret_is_there, struct error_text *err)
{
    const struct raft_server *server = find(replica, member->id);
    char address[REPLICA_ADDRESS_MAX + 1];

    *ret_is_there = server && identity_is_at(server->address, member->address);
    if (*ret_is_there)
        return HF_OK;
    if (server) {
        identity_address(server->address, address);
        return error_set(err, HF_EINVAL, "node %llu is a member already, at %s: remove it first",
                         (unsigned long long)member->id, address);
    }
    server = find_at(replica, member->address);
    if (server)
        return error_set(err, HF_EINVAL, "node %llu is at %s already",
                         (unsigned long long)server->id, member->address);
    if (members_of(replica)->n >= REPLICA_MEMBERS_MAX)
        return error_set(err, HF_EINVAL, "a cluster has at most %u members", REPLICA_MEMBERS_MAX);
    return HF_OK;
}

int replica_may_add(struct replica *replica, const struct replica_member *member,
                    bool *ret_is_there, struct error_text *err)
{
    int result = may_change(replica, err);

    if (result != HF_OK)
        return result;
    if (member->id == 0 || strlen(member->address) > REPLICA_ADDRESS_MAX)
        return error_set(err, HF_EINVAL, "there is no such node");
    return check_new(replica, member, ret_is_there, err);
}

int replica_add(struct replica *replica, const struct replica_member *member, void *request,
                struct error_text *err)
{
    char identity[IDENTITY_MAX + 1];
    bool is_there;
    int result = replica_may_add(replica, member, &is_there, err);

    if (result != HF_OK)
        return result;
    if (is_there) {
        replica->host.changed(replica->host.context, request, REPLICA_CHANGED);
        return HF_OK;
    }
    identity_write(member->address, member->life, identity);
    result = raft_add(&replica->raft, &replica->change.members, member->id, identity, NULL);
    return begin_change(replica, result, request, err);
}

static bool is_alive(const struct replica *replica, uint64_t id)
{
    const struct replica_host *host = &replica->host;
    int64_t silent = silent_us(replica, id);

    return id == replica->id || (silent >= 0 && silent <= lately_us(replica) &&
                                 (!host->connected || host->connected(host->context, id)));
}

/* Of those who would vote then: is a majority alive? If not, nobody would serve, nor could the change be taken back. */
static bool can_do_without(const struct replica *replica, uint64_t id)
{
    const struct raft_configuration *members = members_of(replica);
    unsigned alive = 0, voters = 0;

    for (unsigned i = 0; i < members->n; i++)
        if (members->servers[i].id != id && members->servers[i].role == RAFT_VOTER) {
            voters++;
            alive += is_alive(replica, members->servers[i].id);
        }
    return 2 * alive > voters;
}

int replica_remove(struct replica *replica, uint64_t id, void *request, struct error_text *err)
{
    int result = may_change(replica, err);

    if (result != HF_OK)
        return result;
    if (id == replica->id)
        return error_set(err, HF_EINVAL, "node %llu leads: let another one lead before it goes",
                         (unsigned long long)id);
    if (!find(replica, id))
        return error_set(err, HF_EINVAL, "node %llu is no member", (unsigned long long)id);
    if (!can_do_without(replica, id))
        return error_set(err, HF_EINVAL,
                         "without node %llu no majority of the members would be there: bring the "
                         "silent ones back, or remove them first",
                         (unsigned long long)id);
    result = raft_remove(&replica->raft, &replica->change.members, id, NULL);
    return begin_change(replica, result, request, err);
}

/* The one that has most of the log, of those that are alive; 0: nobody. */
static uint64_t choose_heir(struct replica *replica)
{
    const struct raft_configuration *members = members_of(replica);
    uint64_t best = 0, most = 0;

    for (unsigned i = 0; i < members->n; i++) {
        const struct raft_server *server = &members->servers[i];
        uint64_t match = match_index(replica, server->id);

        if (server->id == replica->id || server->role != RAFT_VOTER ||
            !is_alive(replica, server->id) || match < most)
            continue;
        best = server->id;
        most = match;
    }
    return best;
}

int replica_transfer(struct replica *replica, uint64_t to, void *request, struct error_text *err)
{
    const struct raft_server *server;
    int result = may_change(replica, err);

    if (result != HF_OK)
        return result;
    if (to == replica->id) {
        replica->host.changed(replica->host.context, request, REPLICA_CHANGED);
        return HF_OK;
    }
    replica->change.particular = to != 0;
    if (to == 0)
        to = choose_heir(replica);
    if (to == 0)
        return error_set(err, HF_EINVAL, "there is no other node that could lead");
    server = find(replica, to);
    if (!server || server->role != RAFT_VOTER)
        return error_set(err, HF_EINVAL, "node %llu is not a member that votes",
                         (unsigned long long)to);
    if (!is_alive(replica, to))
        return error_set(
            err, HF_EINVAL,
            "node %llu is silent, and cannot lead: bring it back first, or name another",
            (unsigned long long)to);
    replica->change.kind = CHANGE_LEADER;
    replica->change.request = request;
    replica->change.heir = to;
    replica->change.asked = false;
    replica->change.until_us = replica_now(replica) + timeout_us(replica);
    return HF_OK;
}
