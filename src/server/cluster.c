/* cluster.c: who belongs to the cluster, who leads it, and where clients find each of them.
 *
 * Peers tell each other where clients find them when they connect. Whoever leads puts that into the log, so that
 * every node can send a client to the leader. */
#include "replica/network.h"
#include "server/log.h"
#include "server/server.h"

#include <stdio.h>
#include <string.h>

#define LOST                                                                                       \
    "the members of the cluster know this node with other data: its directory was lost or is not " \
    "mounted; mount it, or remove this node and add it under another id"

#define REMOVED "this node was removed from the cluster"
#define WAS_REMOVED 'R' /* between nodes */

/* ---- where clients find them ------------------------------------------------------------------- */

/* A node says of itself: address/life. Where the slash is; behind all of it, if there is none. */
static size_t slash_in(struct core_text about)
{
    const char *slash = about.size ? memchr(about.bytes, '/', about.size) : NULL;

    return slash ? (size_t)(slash - about.bytes) : about.size;
}

/* "" if there is none. */
static struct core_text life_of(struct core_text about)
{
    size_t slash = slash_in(about), begin = slash < about.size ? slash + 1 : slash;

    return (struct core_text){about.bytes + begin, about.size - begin};
}

bool cluster_client_address(const struct server *server, uint64_t id, char *ret_text, size_t size)
{
    struct core_text about = core_member(replica_table(server->replica), id);
    size_t length = slash_in(about);

    if (length == 0 || length >= size)
        return false;
    memcpy(ret_text, about.bytes, length);
    ret_text[length] = '\0';
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
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);

    for (unsigned i = 0; i < count; i++)
        if (seen[i].id == id)
            return true;
    return false;
}

/* A node that waits to be added knows of no members yet: it takes everybody for one. */
static bool may_be_member(const struct server *server, uint64_t id)
{
    struct replica_seen any;

    return replica_members(server->replica, &any, 1) == 0 || cluster_is_member(server, id);
}

static bool same(struct core_text a, struct core_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.bytes, b.bytes, a.size) == 0);
}

/* See lives.h. The table may be an old one: only of nodes that were never met it is asked. */
static bool has_lost_its_data(const struct server *server, uint64_t id, struct core_text about)
{
    struct core_text known = lives_find(&server->lives, id)
                                 ? lives_text(&server->lives, id)
                                 : life_of(core_member(replica_table(server->replica), id));

    return known.size > 0 && !same(known, life_of(about));
}

static void learn_life(struct server *server, uint64_t id, struct core_text life)
{
    struct replica_status status;
    struct error_text err;

    replica_status(server->replica, &status);
    if (id != server->config->id &&
        lives_learn(&server->lives, server->storage, id, life, status.applied_index, &err) != HF_OK)
        log_warning(err.text);
}

/* What the log says. Of a member on which all agree it is right: what it said of one that had the id before was cleared before this
 * one was added. */
static void learn_lives(struct server *server)
{
    uint64_t ids[LIVES_MAX];
    unsigned count = server->lives.count;

    for (unsigned i = 0; i < count; i++)
        ids[i] = server->lives.at[i].id;
    for (unsigned i = 0; i < count; i++)
        if (!may_be_member(server, ids[i]))
            learn_life(server, ids[i], (struct core_text){"", 0});
    for (unsigned i = 0; core_member_id(replica_table(server->replica), i) != 0; i++) {
        uint64_t id = core_member_id(replica_table(server->replica), i);
        struct core_text life = life_of(core_member(replica_table(server->replica), id));

        if (life.size > 0 && cluster_is_member(server, id))
            learn_life(server, id, life);
    }
}

void cluster_learn(struct server *server)
{
    uint64_t table = core_members_version(replica_table(server->replica));
    uint64_t members = replica_members_version(server->replica);

    if (!server->network || !replica_members_agreed(server->replica) ||
        (server->learnt_table == table && server->learnt_members == members))
        return;
    server->learnt_table = table;
    server->learnt_members = members;
    learn_lives(server);
    server->tells_lives = true;
    server->said_new = true; /* of one that is no member, nothing must be left in the table */
}

static bool is_among(const uint64_t *ids, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static void replace_first(uint64_t *ids, uint64_t id, uint64_t by)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (ids[i] == id) {
            ids[i] = by;
            return;
        }
}

static void put_among(uint64_t *ids, uint64_t id)
{
    if (!is_among(ids, id))
        replace_first(ids, 0, id);
}

static void drop_from(uint64_t *ids, uint64_t id)
{
    replace_first(ids, id, 0);
}

bool cluster_is_lost(const struct server *server, uint64_t id)
{
    return is_among(server->lost, id);
}

static bool refuse_node(struct server *server, uint64_t id, const char *why)
{
    if (!is_among(server->turned_away, id))
        log_error(why, log_number("node", (int64_t)id));
    put_among(server->turned_away, id);
    return false;
}

/* ---- who was removed ----------------------------------------------------------------------------- */

/* A node that was removed does not know it, and goes on calling. It is not answered. But one that was added again meanwhile may
 * lead by now, and be the only one from whom this node can hear of it: so only a node that hears its leader is sure. */
static bool is_removed(const struct server *server, uint64_t id)
{
    uint64_t leader = replica_leader(server->replica);

    return leader != 0 && leader != id && is_among(server->removed, id) &&
           !cluster_is_member(server, id);
}

static void note_removed(struct server *server, uint64_t id)
{
    uint64_t *removed = server->removed;

    if (is_among(removed, id))
        return;
    log_info("a node was removed: connections with it end", log_number("node", (int64_t)id));
    memmove(removed + 1, removed, (REPLICA_MEMBERS_MAX - 1) * sizeof *removed);
    removed[0] = id;
}

static void note_agreed(struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count;

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->agreed[i] != 0 && !cluster_is_member(server, server->agreed[i]))
            note_removed(server, server->agreed[i]);
    memset(server->agreed, 0, sizeof server->agreed);
    count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
    for (unsigned i = 0; i < count; i++)
        server->agreed[i] = seen[i].id;
    server->agreed_version = replica_members_version(server->replica);
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

static void note_said(struct server *server, uint64_t id, const char *about)
{
    struct said *said = server->said;

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++) {
        said = &server->said[i];
        if (said->id == id || said->id == 0)
            break;
    }
    said->id = id;
    snprintf(said->about, sizeof said->about, "%s", about);
    server->said_new = true;
    drop_from(server->turned_away, id);
}

/* What another node says of itself is remembered, before anything is taken from it. */
static bool remember(struct server *server, uint64_t id, const char *about)
{
    struct core_text text = {about, strlen(about)};
    struct error_text err;

    if (life_of(text).size == 0 ||
        lives_meet(&server->lives, server->storage, id, life_of(text), &err) != HF_OK)
        return refuse_node(server, id, "a node is not let in: which life it has cannot be stored");
    note_said(server, id, about);
    return true;
}

struct core_text cluster_life_said(const struct server *server, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->said[i].id == id)
            return life_of(
                (struct core_text){server->said[i].about, strlen(server->said[i].about)});
    return (struct core_text){"", 0};
}

/* A node that belongs to no cluster may be talked to about founding: none of libraft's messages are taken from it, nor sent
 * to it if it is one that came back without its data. Who is no member has been removed, or is to be added: what it says is
 * of no importance. */
enum network_reach cluster_reached(struct server *server, const struct network_node *node)
{
    struct core_text about = {node->about, strlen(node->about)};

    if (!server->replica || is_removed(server, node->id))
        return NETWORK_NOTHING;
    if (replica_waits(server->replica))
        note_said(server, node->id, node->about);
    if (replica_waits(server->replica) || !may_be_member(server, node->id))
        return NETWORK_ALL;
    if (has_lost_its_data(server, node->id, about)) {
        put_among(server->lost, node->id); /* so that whoever looks is told */
        refuse_node(
            server, node->id,
            "a node has come back without its data, and is not let in: remove it, and add it "
            "under another id");
        return node->cluster[0] ? NETWORK_NOTHING : NETWORK_WORDS;
    }
    drop_from(server->lost, node->id);
    server->tells_lives = true;
    return remember(server, node->id, node->about) ? NETWORK_ALL : NETWORK_NOTHING;
}

bool cluster_met(struct server *server, const struct network_node *node)
{
    return cluster_reached(server, node) != NETWORK_NOTHING;
}

/* When something is new, or somebody has connected who may not know it. */
void cluster_tell_lives(struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
    char lives[LIVES_TEXT_MAX + 1], text[LIVES_TEXT_MAX + sizeof "lives 0 "];

    _Static_assert(sizeof text <= NETWORK_WORDS_MAX + 1, "all lives are told in one message");
    if (!server->tells_lives)
        return;
    server->tells_lives = false;
    lives_tell(&server->lives, lives);
    snprintf(text, sizeof text, "lives 0 %s", lives);
    for (unsigned i = 0; i < count && lives[0]; i++)
        if (seen[i].id != server->config->id)
            network_say(server->network, seen[i].id, seen[i].address, text);
}

void cluster_told_lives(struct server *server, const char *cluster, const char *text)
{
    struct error_text err;

    if (replica_waits(server->replica) || strcmp(cluster, server->bootstrap.cluster) != 0)
        return;
    if (lives_told(&server->lives, server->storage, server->config->id, text, &err) != HF_OK)
        log_warning(err.text);
}

void cluster_tell_lost(struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);

    for (unsigned i = 0; i < count; i++)
        if (is_among(server->lost, seen[i].id))
            network_say(server->network, seen[i].id, seen[i].address, "lost 0");
}

void cluster_told_lost(struct server *server)
{
    if (!replica_waits(server->replica) || server->shut_out)
        return;
    server->shut_out = LOST;
    log_error(LOST);
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
    log_warning(REMOVED);
}

void cluster_tidy(struct server *server)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++) {
        struct said *said = &server->said[i];

        if (said->id != 0 && !may_be_member(server, said->id))
            *said = (struct said){0};
        if (server->lost[i] != 0 && !may_be_member(server, server->lost[i]))
            server->lost[i] = 0;
    }
}

bool cluster_make_known(struct server *server, uint64_t id, const char *about)
{
    struct core_text known = core_member(replica_table(server->replica), id);
    struct core_command command = {
        .op = CORE_MEMBER, .token = id, .result = {about, strlen(about)}};

    if (same(known, command.result) ||
        (command.result.size > 0 && has_lost_its_data(server, id, command.result)))
        return true;
    return replica_submit(server->replica, &command, NULL) == HF_OK;
}

void cluster_publish(struct server *server)
{
    bool all = true;

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++) {
        const struct said *said = &server->said[i];

        if (said->id != 0 && cluster_is_member(server, said->id))
            all = cluster_make_known(server, said->id, said->about) && all;
    }
    for (unsigned i = 0; replica_members_agreed(server->replica) &&
                         core_member_id(replica_table(server->replica), i) != 0;
         i++)
        if (!cluster_is_member(server, core_member_id(replica_table(server->replica), i)))
            all =
                cluster_make_known(server, core_member_id(replica_table(server->replica), i), "") &&
                all;
    server->said_new = !all;
}
