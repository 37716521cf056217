/* cluster.c: who belongs to the cluster, who leads it, and where clients find each of them.
 *
 * Peers tell each other where clients find them when they connect. Whoever leads puts that into the log, so that
 * every node can send a client to the leader.
 *
 * An id is used once. Whoever was away still counts by the members it knows: if another node had an id of theirs by then, its votes
 * would be counted for those of one that had acknowledged more. So the highest id that there ever was stays in the table, whether
 * it is a member or not, and a new one must be above it. */
#include "server/cluster.h"
#include "base/clock.h"
#include "base/switches.h"
#include "base/text.h"
#include "server/initial_members.h"
#include "server/log.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* In the table, in place of where clients find a node: it has said nothing yet, or it was removed. */
#define NOTHING_SAID "-"

#define REMOVED "this node was removed from the cluster"
#define REMOVED_ADVICE                                                                            \
    "stop it, and do not start it again with this data; to let the machine come back, empty its " \
    "data directory, start it with a new id and --join, and add that"
#define LOST_SURE_MS 3000 /* whoever has the data comes meanwhile, if he runs */
#define WAS_REMOVED 'R'   /* between nodes, beside NODE_IS_STRAY */

#define STRAY                                                                                    \
    "a node with this id is a member of a cluster already, and runs, with other data than this " \
    "one: start this one with an id and an address of its own; 'holdfast cluster add' adds it "  \
    "then"

/* A stopped node says why, and that it is to be replaced, if nothing else helps; how, is the same for all. */
#define REPLACED "replace this node"
#define REPLACED_ADVICE                                                                            \
    "it is removed with 'holdfast cluster remove', and comes back with an empty directory under "  \
    "a "                                                                                           \
    "new id, by 'holdfast cluster add'. If so many have stopped that nobody leads, nobody can be " \
    "removed: put the right directories back, or begin anew from the node that has most, with "    \
    "'holdfastd --restore-from' (docs/cluster.md)"

/* ---- where clients find them ------------------------------------------------------------------- */

static bool reads(struct core_text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.bytes, word, text.size) == 0;
}

bool cluster_client_address(const struct server *server, uint64_t id, char *ret_text, size_t size)
{
    struct core_text address = core_member(replica_table(server->replica), id);

    if (address.size == 0 || address.size >= size || reads(address, NOTHING_SAID))
        return false;
    memcpy(ret_text, address.bytes, address.size);
    ret_text[address.size] = '\0';
    return true;
}

bool cluster_leader_address(const struct server *server, char *ret_text, size_t size)
{
    uint64_t leader = server->replica ? replica_leader(server->replica) : 0;

    return leader != 0 && (leader != server->config->id || SWITCHED(SWITCH_MOVED_TO_ITSELF)) &&
           cluster_client_address(server, leader, ret_text, size);
}

/* ---- who belongs to it ---------------------------------------------------------------------------- */

unsigned cluster_members(const struct server *server,
                         struct member ret_members[REPLICA_MEMBERS_MAX])
{
    const struct replica_config *config = replica_members(server->replica);

    for (int i = 0; i < config->count; i++) {
        struct member *member = &ret_members[i];
        bool is_own = config->at[i].id == server->config->id;

        *member = (struct member){.id = config->at[i].id,
                                  .incarnation = config->at[i].incarnation,
                                  .votes = config->at[i].votes,
                                  .silent_ms =
                                      is_own ? 0 : node_silent_ms(server->node, config->at[i].id)};
        snprintf(member->address, sizeof member->address, "%s", config->at[i].address);
        member->known = replica_progress(server->replica, member->id, &member->match_index);
    }
    return (unsigned)config->count;
}

uint64_t cluster_version(const struct server *server)
{
    return replica_members(server->replica)->index;
}

uint64_t cluster_incarnation(const struct server *server, uint64_t id)
{
    const struct replica_config *config = replica_members(server->replica);

    for (int i = 0; i < config->count; i++)
        if (config->at[i].id == id)
            return config->at[i].incarnation;
    return 0;
}

bool cluster_is_member(const struct server *server, uint64_t id)
{
    return cluster_incarnation(server, id) != 0;
}

static bool is_among(const uint64_t *ids, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* ---- who was removed ----------------------------------------------------------------------------- */

/* A node that was removed does not know it, and goes on calling. It is not answered. */
static bool is_removed(const struct server *server, uint64_t id)
{
    return is_among(server->membership.removed, id) && !cluster_is_member(server, id);
}

/* It belonged to this cluster, by its own word, and does not any more. server->membership.removed has those that were removed in this process's
 * time; the table knows up to which id all others were. */
static bool was_removed(const struct server *server, const struct node_peer *peer)
{
    if (is_removed(server, peer->id))
        return true;
    return peer->cluster[0] && !cluster_is_member(server, peer->id) &&
           replica_members_agreed(server->replica) && peer->id <= cluster_highest_id(server);
}

static void note_removed(struct server *server, const struct agreed *member)
{
    uint64_t *removed = server->membership.removed;

    if (is_among(removed, member->id))
        return;
    log_info("a node was removed: connections with it end", log_number("node", (int64_t)member->id),
             log_text("peer", member->address));
    memmove(removed + 1, removed, (REPLICA_MEMBERS_MAX - 1) * sizeof *removed);
    removed[0] = member->id;
}

/* NULL: it was no member when they were last agreed on. */
static const struct agreed *find_agreed(const struct server *server, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->membership.agreed[i].id == id)
            return &server->membership.agreed[i];
    return NULL;
}

/* Each node says it when it learns of it: whoever reads one log alone knows who the members were, and when. */
static void log_new(const struct server *server, const struct member *seen)
{
    const struct agreed *before = find_agreed(server, seen->id);

    if (!before)
        log_info("a node was added: it gets the log, and does not vote yet",
                 log_number("node", (int64_t)seen->id), log_text("peer", seen->address));
    if (seen->votes && (!before || !before->votes))
        log_info("a node has caught up: it votes from now on",
                 log_number("node", (int64_t)seen->id), log_text("peer", seen->address));
}

/* What is agreed on is not taken back: who is no member now will never be one again. */
static void note_agreed(struct server *server)
{
    struct member seen[REPLICA_MEMBERS_MAX] = {{0}};
    unsigned count = cluster_members(server, seen);
    bool first = server->membership.agreed[0].id == 0; /* of this process: nothing has changed */

    for (unsigned i = 0; i < count && !first; i++)
        log_new(server, &seen[i]);
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->membership.agreed[i].id != 0 &&
            !cluster_is_member(server, server->membership.agreed[i].id))
            note_removed(server, &server->membership.agreed[i]);
    memset(server->membership.agreed, 0, sizeof server->membership.agreed);
    for (unsigned i = 0; i < count; i++) {
        struct agreed *agreed = &server->membership.agreed[i];

        agreed->id = seen[i].id;
        agreed->votes = seen[i].votes;
        snprintf(agreed->address, sizeof agreed->address, "%s", seen[i].address);
    }
    server->membership.agreed_version = cluster_version(server);
    server->membership.said_new = true; /* what the table has of those that were removed */
}

void cluster_cut_off(struct server *server)
{
    if (!server->has_links || !replica_members_agreed(server->replica))
        return;
    if (server->membership.agreed_version != cluster_version(server))
        note_agreed(server);
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->membership.removed[i] != 0 && is_removed(server, server->membership.removed[i]))
            node_forget(server->node, server->membership.removed[i]);
}

/* ---- who comes ----------------------------------------------------------------------------------- */

/* NULL: nothing yet. */
static struct said *find_said(const struct server *server, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->membership.said[i].id == id)
            return (struct said *)&server->membership.said[i];
    return NULL;
}

/* For one more: in place of one that is no member, if there is no room. */
static struct said *room_for_said(struct server *server)
{
    struct said *said = find_said(server, 0);

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX && !said; i++)
        if (!cluster_is_member(server, server->membership.said[i].id))
            said = &server->membership.said[i];
    return said;
}

bool cluster_is_lost(const struct server *server, uint64_t id)
{
    const struct said *said = find_said(server, id);
    uint64_t incarnation = cluster_incarnation(server, id);

    return said && incarnation != 0 && said->incarnation != incarnation;
}

static void note_lost(struct said *said)
{
    log_error(
        "a node has come back without its data, and is not let in: remove it, and add it under "
        "another id; or, if the one with the data is elsewhere, stop this one, and start that",
        log_number("node", (int64_t)said->id), log_text("peer", said->peer));
    said->lost_noted = true;
}

/* The log says once what STATUS shows as long as it is so. One that has the id of another may be there first: that one, if it runs, is not long
 * in coming. */
static void look_at_lost(struct server *server, struct said *said)
{
    int64_t now_ms = clock_boot_ms();
    bool is_there = said->id != 0 && cluster_incarnation(server, said->id) == said->incarnation;

    said->lost = said->id != 0 && cluster_is_lost(server, said->id);
    if (said->lost && said->lost_ms == 0)
        said->lost_ms = now_ms;
    if (said->lost && !said->lost_noted && now_ms - said->lost_ms >= LOST_SURE_MS)
        note_lost(said);
    if (said->lost)
        return;
    if (is_there && said->lost_noted)
        log_info("a node is there, with its data: it was another one that has its id",
                 log_number("node", (int64_t)said->id), log_text("peer", said->peer));
    said->lost_ms = 0;
    said->lost_noted = false;
}

static void look_for_lost(struct server *server)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        look_at_lost(server, &server->membership.said[i]);
}

static void note_said(struct server *server, const struct node_peer *peer)
{
    struct said *said = find_said(server, peer->id);

    if (!said)
        said = room_for_said(server);
    if (!said)
        return;
    if (said->id != peer->id)
        *said = (struct said){.id = peer->id};
    said->incarnation = peer->incarnation;
    snprintf(said->client, sizeof said->client, "%s", peer->client);
    snprintf(said->peer, sizeof said->peer, "%s", peer->peer);
    server->membership.said_new = true;
    look_for_lost(server);
}

/* Who may say what to whom is decided for each message, by the members of that moment (node/links.c): here it is remembered. */
bool cluster_met(struct server *server, const struct node_peer *peer)
{
    server->membership.told_removed = server->replica && was_removed(server, peer);
    if (!server->replica || server->membership.told_removed)
        return false;
    note_said(server, peer);
    return true;
}

void cluster_tell_lost(struct server *server)
{
    struct member seen[REPLICA_MEMBERS_MAX];
    unsigned count = cluster_members(server, seen);

    look_for_lost(server);
    for (unsigned i = 0; i < count; i++)
        if (cluster_is_lost(server, seen[i].id))
            node_say(server->node, seen[i].id, seen[i].address, "lost 0");
}

void cluster_told_lost(struct server *server)
{
    if (!node_waits(server->node) || (server->membership.shut_out && !cluster_is_stray(server)))
        return;
    server->membership.shut_out = NODE_LOST;
    log_error(NODE_LOST);
}

char cluster_why_not(struct server *server, uint64_t id)
{
    (void)id; /* the one that cluster_met has just refused */
    return server->membership.told_removed ? WAS_REMOVED : 0;
}

bool cluster_is_stray(const struct server *server)
{
    return server->membership.shut_out && strcmp(server->membership.shut_out, STRAY) == 0;
}

static void told_stray(struct server *server)
{
    if (!node_waits(server->node) || server->membership.shut_out)
        return;
    server->membership.shut_out = STRAY;
    log_error(STRAY);
}

void cluster_turned_away(struct server *server, char why)
{
    if (why == NODE_IS_STRAY && server->replica)
        told_stray(server);
    if (why != WAS_REMOVED || server->membership.shut_out || !server->replica ||
        replica_leader(server->replica) != 0)
        return;
    server->membership.shut_out = REMOVED;
    log_warning(REMOVED ": " REMOVED_ADVICE);
}

bool cluster_was_removed(const struct server *server)
{
    return server->membership.shut_out && strcmp(server->membership.shut_out, REMOVED) == 0;
}

void cluster_advice(const struct server *server, char *ret_text, size_t size)
{
    const struct config *config = server->config;
    const struct config_member *own = initial_members_find(&config->cluster, config->id);

    ret_text[0] = '\0';
    if (strstr(server->sessions.stopped_why, REPLACED) && server->has_links)
        snprintf(ret_text, size, "%s", REPLACED_ADVICE);
    else if (cluster_was_removed(server))
        snprintf(ret_text, size, "%s", REMOVED_ADVICE);
    else if (server->membership.shut_out || !own || !node_waits(server->node))
        return;
    else if (config->join == CONFIG_JOINS)
        snprintf(ret_text, size,
                 "it was started with --join: add it, at a member of the cluster that it is to "
                 "belong to, with 'holdfast cluster add %" PRIu64 " %s'",
                 config->id, own->address);
    else if (config->cluster.count == 1)
        snprintf(ret_text, size,
                 "it lists nobody else: add it, at a member of the cluster that it is to belong "
                 "to, with 'holdfast cluster add %" PRIu64
                 " %s'; or 'holdfast cluster init' founds "
                 "a cluster of it alone",
                 config->id, own->address);
    else
        snprintf(ret_text, size,
                 "when all its members run (%s), found the cluster with 'holdfast cluster init'",
                 server->bootstrap.list);
}

void cluster_tidy(struct server *server)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->membership.said[i].id != 0 && is_removed(server, server->membership.said[i].id))
            server->membership.said[i] = (struct said){0};
    look_for_lost(server);
}

uint64_t cluster_highest_id(const struct server *server)
{
    struct member seen[REPLICA_MEMBERS_MAX];
    unsigned count = cluster_members(server, seen);
    uint64_t id, highest = count > 0 ? seen[count - 1].id : 0;

    for (unsigned i = 0; (id = core_member_id(replica_table(server->replica), i)) != 0; i++)
        highest = id > highest ? id : highest;
    return highest;
}

/* The leader puts what is known of a node into the log; "" forgets it. False: not now, try again. */
static bool make_known(struct server *server, uint64_t id, const char *about)
{
    struct core_command command = {
        .op = CORE_MEMBER, .token = id, .result = {about, strlen(about)}};

    return reads(core_member(replica_table(server->replica), id), about) ||
           node_submit(server->node, &command, NULL) == HF_OK;
}

/* A member that has said nothing to this node is in the table all the same: nobody would know, when it is removed, that there was one. */
static bool publish_silent(struct server *server, uint64_t id)
{
    return core_member(replica_table(server->replica), id).size > 0 ||
           make_known(server, id, NOTHING_SAID);
}

static bool publish_said(struct server *server, const struct said *said)
{
    return make_known(server, said->id, said->client[0] ? said->client : NOTHING_SAID);
}

static bool publish_members(struct server *server)
{
    struct member seen[REPLICA_MEMBERS_MAX] = {0};
    unsigned count = cluster_members(server, seen);
    bool all = true;

    for (unsigned i = 0; i < count; i++) {
        const struct said *said = find_said(server, seen[i].id);

        if (said && !said->lost)
            all = publish_said(server, said) && all;
        else
            all = publish_silent(server, seen[i].id) && all;
    }
    return all;
}

/* Those that were removed go from the table, but for the highest. */
static bool publish_removed(struct server *server)
{
    uint64_t id, highest = cluster_highest_id(server);
    bool all = true;

    if (!replica_members_agreed(server->replica))
        return true; /* cluster_cut_off comes when they are */
    for (unsigned i = 0; (id = core_member_id(replica_table(server->replica), i)) != 0; i++)
        if (!cluster_is_member(server, id))
            all = make_known(server, id, id == highest ? NOTHING_SAID : "") && all;
    return all;
}

void cluster_publish(struct server *server)
{
    bool members = publish_members(server), removed = publish_removed(server);

    server->membership.said_new = !members || !removed;
}
