/* cluster.c: who belongs to the cluster, who leads it, and where clients find each of them.
 *
 * Peers tell each other where clients find them when they connect. Whoever leads puts that into the log, so that
 * every node can send a client to the leader.
 *
 * An id is used once. Whoever was away still counts by the members it knows: if another node had an id of theirs by then, its votes
 * would be counted for those of one that had acknowledged more. So the highest id that there ever was stays in the table, whether
 * it is a member or not, and a new one must be above it. */
#include "base/text.h"
#include "replica_libraft/identity.h"
#include "replica_libraft/network.h"
#include "server/founders.h"
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
#define WAS_REMOVED 'R' /* between nodes */

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

    return leader != 0 && leader != server->config->id &&
           cluster_client_address(server, leader, ret_text, size);
}

bool cluster_is_member(const struct server *server, uint64_t id)
{
    return replica_life(server->replica, id) != NULL;
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
    return is_among(server->removed, id) && !cluster_is_member(server, id);
}

static void note_removed(struct server *server, const struct agreed *member)
{
    uint64_t *removed = server->removed;

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
        if (server->agreed[i].id == id)
            return &server->agreed[i];
    return NULL;
}

/* Each node says it when it learns of it: whoever reads one log alone knows who the members were, and when. */
static void log_new(const struct server *server, const struct replica_seen *seen)
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
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
    bool first = server->agreed[0].id == 0; /* of this process: nothing has changed */

    for (unsigned i = 0; i < count && !first; i++)
        log_new(server, &seen[i]);
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->agreed[i].id != 0 && !cluster_is_member(server, server->agreed[i].id))
            note_removed(server, &server->agreed[i]);
    memset(server->agreed, 0, sizeof server->agreed);
    for (unsigned i = 0; i < count; i++) {
        struct agreed *agreed = &server->agreed[i];

        agreed->id = seen[i].id;
        agreed->votes = seen[i].votes;
        snprintf(agreed->address, sizeof agreed->address, "%s", seen[i].address);
    }
    server->agreed_version = replica_members_version(server->replica);
    server->said_new = true; /* what the table has of those that were removed */
}

void cluster_cut_off(struct server *server)
{
    if (!server->network || !replica_members_agreed(server->replica))
        return;
    if (server->agreed_version != replica_members_version(server->replica))
        note_agreed(server);
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->removed[i] != 0 && is_removed(server, server->removed[i]))
            network_forget(server->network, server->removed[i]);
}

/* ---- who comes ----------------------------------------------------------------------------------- */

/* NULL: nothing yet. */
static struct said *find_said(const struct server *server, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->said[i].id == id)
            return (struct said *)&server->said[i];
    return NULL;
}

/* For one more: in place of one that is no member, if there is no room. */
static struct said *room_for_said(struct server *server)
{
    struct said *said = find_said(server, 0);

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX && !said; i++)
        if (!cluster_is_member(server, server->said[i].id))
            said = &server->said[i];
    return said;
}

bool cluster_is_lost(const struct server *server, uint64_t id)
{
    const struct said *said = find_said(server, id);
    const char *life = replica_life(server->replica, id);

    return said && life && life[0] && strcmp(life, identity_life(said->about)) != 0;
}

/* The log says once what STATUS shows as long as it is so. */
static void look_for_lost(struct server *server)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++) {
        uint64_t id = server->said[i].id;
        bool lost = id != 0 && cluster_is_lost(server, id);

        if (lost && !server->said[i].lost)
            log_error("a node has come back without its data, and is not let in: remove it, and "
                      "add it under another id",
                      log_number("node", (int64_t)id));
        server->said[i].lost = lost;
    }
}

static void note_said(struct server *server, uint64_t id, const char *about)
{
    struct said *said = find_said(server, id);

    if (!said)
        said = room_for_said(server);
    if (!said)
        return;
    if (said->id != id)
        *said = (struct said){.id = id};
    snprintf(said->about, sizeof said->about, "%s", about);
    server->said_new = true;
    look_for_lost(server);
}

/* Who may say what to whom is decided for each message, by the members of that moment (replica/identity.h): here it is remembered. */
bool cluster_met(struct server *server, const struct network_node *node)
{
    if (!server->replica || is_removed(server, node->id))
        return false;
    note_said(server, node->id, node->about);
    return true;
}

void cluster_tell_lost(struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);

    for (unsigned i = 0; i < count; i++)
        if (cluster_is_lost(server, seen[i].id))
            network_say(server->network, seen[i].id, seen[i].address, "lost 0");
}

void cluster_told_lost(struct server *server)
{
    if (!replica_waits(server->replica) || server->shut_out)
        return;
    server->shut_out = NETWORK_LOST;
    log_error(NETWORK_LOST);
}

bool cluster_is_connected(void *context, uint64_t id)
{
    const struct server *server = context;

    return server->network && network_is_connected(server->network, id);
}

void cluster_doubts(void *context, uint64_t id, uint64_t term, uint64_t index)
{
    struct server *server = context;
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
    char text[NETWORK_WORDS_MAX];

    snprintf(text, sizeof text, "had %" PRIu64 " %" PRIu64, index, term);
    for (unsigned i = 0; i < count; i++)
        if (seen[i].id == id)
            network_say(server->network, id, seen[i].address, text);
    log_limited(LOG_LEVEL_WARNING, 1,
                "a node refuses what it has acknowledged: is its data directory an old copy?",
                log_number("node", (int64_t)id), log_number("entry", (int64_t)index));
}

void cluster_told_had(struct server *server, const struct network_words *words, uint64_t index,
                      const char *rest)
{
    uint64_t term;

    if (strcmp(words->cluster, server->bootstrap.cluster) == 0 &&
        text_to_u64(rest, UINT64_MAX, &term))
        replica_asked(server->replica, words->from, term, index);
}

char cluster_why_not(struct server *server, uint64_t id)
{
    return server->replica && is_removed(server, id) ? WAS_REMOVED : 0;
}

void cluster_turned_away(struct server *server, char why)
{
    if (why != WAS_REMOVED || server->shut_out || !server->replica ||
        replica_leader(server->replica) != 0)
        return;
    server->shut_out = REMOVED;
    log_warning(REMOVED ": " REMOVED_ADVICE);
}

bool cluster_was_removed(const struct server *server)
{
    return server->shut_out && strcmp(server->shut_out, REMOVED) == 0;
}

void cluster_advice(const struct server *server, char *ret_text, size_t size)
{
    const struct config *config = server->config;
    const struct config_member *own = founders_find(&config->cluster, config->id);

    ret_text[0] = '\0';
    if (cluster_was_removed(server))
        snprintf(ret_text, size, "%s", REMOVED_ADVICE);
    else if (server->shut_out || !own || !replica_waits(server->replica))
        return;
    else if (config->join == CONFIG_JOINS)
        snprintf(ret_text, size,
                 "it was started with --join: add it, at a member of the cluster that it is to "
                 "belong to, with 'holdfast cluster add %" PRIu64 " %s'",
                 config->id, own->address);
    else
        snprintf(ret_text, size,
                 "when all its members run (%s), found the cluster with 'holdfast cluster init'",
                 server->bootstrap.list);
}

void cluster_tidy(struct server *server)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->said[i].id != 0 && is_removed(server, server->said[i].id))
            server->said[i] = (struct said){0};
    look_for_lost(server);
}

uint64_t cluster_highest_id(const struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
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
           replica_submit(server->replica, &command, NULL) == HF_OK;
}

/* A member that has said nothing to this node is in the table all the same: nobody would know, when it is removed, that there was one. */
static bool publish_silent(struct server *server, uint64_t id)
{
    return core_member(replica_table(server->replica), id).size > 0 ||
           make_known(server, id, NOTHING_SAID);
}

static bool publish_said(struct server *server, const struct said *said)
{
    char address[CORE_ADDRESS_MAX + 1];

    identity_address(said->about, address);
    return make_known(server, said->id, address[0] ? address : NOTHING_SAID);
}

static bool publish_members(struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
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

    server->said_new = !members || !removed;
}
