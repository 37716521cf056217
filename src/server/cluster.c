/* cluster.c: who belongs to the cluster, who leads it, and where clients find each of them.
 *
 * Peers tell each other where clients find them when they connect. Whoever leads puts that into the log, so that
 * every node can send a client to the leader.
 *
 * An id is used once. Whoever was away still counts by the members it knows: if another node had an id of theirs by then, its votes
 * would be counted for those of one that had acknowledged more. So the highest id that there ever was stays in the table, whether
 * it is a member or not, and a new one must be above it. */
#include "replica/network.h"
#include "server/log.h"
#include "server/server.h"

#include <stdio.h>
#include <string.h>

#define LOST                                                                                       \
    "the members of the cluster know this node with other data: its directory was lost or is not " \
    "mounted; mount it, or remove this node and add it under another id"

/* In the table, in place of what a node says of itself: it has said nothing yet, and its life is not known; or it was removed. */
#define NOTHING_SAID "-"

#define REMOVED "this node was removed from the cluster"
#define WAS_REMOVED 'R' /* between nodes */

/* ---- where clients find them ------------------------------------------------------------------- */

/* A node says of itself: address/life. "/life": it has said nothing, and whoever founded the cluster knows its life. Where the slash
 * is; behind all of it, if there is none. */
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

static bool same(struct core_text a, struct core_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.bytes, b.bytes, a.size) == 0);
}

/* What the log knows of it. "" if it has said nothing. */
static struct core_text about_of(const struct server *server, uint64_t id)
{
    struct core_text about = core_member(replica_table(server->replica), id);

    return same(about, (struct core_text){NOTHING_SAID, strlen(NOTHING_SAID)})
               ? (struct core_text){"", 0}
               : about;
}

bool cluster_client_address(const struct server *server, uint64_t id, char *ret_text, size_t size)
{
    struct core_text about = about_of(server, id);
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

/* See lives.h. Where both are known, the log is right. "" if neither knows it. */
static struct core_text known_life(const struct server *server, uint64_t id)
{
    struct core_text life = life_of(about_of(server, id));

    return life.size > 0 ? life : lives_find(&server->lives, id);
}

static bool has_lost_its_data(const struct server *server, uint64_t id, struct core_text about)
{
    struct core_text known = known_life(server, id);

    return known.size > 0 && !same(known, life_of(about));
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

/* Its life is known now: it is met once more, and judged by that. */
static void meet_again(struct server *server, uint64_t id)
{
    if (!is_among(server->unjudged, id))
        return;
    drop_from(server->unjudged, id);
    network_forget(server->network, id);
}

/* What the log says of the lives of members is written down: after a restart the table is an old one. */
void cluster_learn(struct server *server)
{
    const struct core *table = replica_table(server->replica);
    struct error_text err;

    if (!server->network || server->learnt_version == core_members_version(table))
        return;
    server->learnt_version = core_members_version(table);
    for (unsigned i = 0; core_member_id(table, i) != 0; i++) {
        uint64_t id = core_member_id(table, i);
        struct core_text life = life_of(about_of(server, id));

        if (life.size == 0 || id == server->config->id || !cluster_is_member(server, id))
            continue;
        if (lives_set(&server->lives, server->storage, id, life, &err) != HF_OK)
            log_warning(err.text);
        meet_again(server, id);
    }
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

/* A node that was removed does not know it, and goes on calling. It is not answered. */
static bool is_removed(const struct server *server, uint64_t id)
{
    return is_among(server->removed, id) && !cluster_is_member(server, id);
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

static bool is_member_of(void *server, uint64_t id)
{
    return may_be_member(server, id);
}

/* What is agreed on is not taken back: who is no member now will never be one again. */
static void note_agreed(struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    struct error_text err;
    unsigned count;

    if (lives_tidy(&server->lives, server->storage, is_member_of, server, &err) != HF_OK)
        log_warning(err.text);

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->agreed[i] != 0 && !cluster_is_member(server, server->agreed[i]))
            note_removed(server, server->agreed[i]);
    memset(server->agreed, 0, sizeof server->agreed);
    count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
    for (unsigned i = 0; i < count; i++)
        server->agreed[i] = seen[i].id;
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
        lives_set(&server->lives, server->storage, id, life_of(text), &err) != HF_OK)
        return refuse_node(server, id, "a node is not let in: which life it has cannot be stored");
    note_said(server, id, about);
    return true;
}

/* NULL: nothing yet. */
static const struct said *find_said(const struct server *server, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->said[i].id == id)
            return &server->said[i];
    return NULL;
}

struct core_text cluster_life_said(const struct server *server, uint64_t id)
{
    const struct said *said = find_said(server, id);

    return said ? life_of((struct core_text){said->about, strlen(said->about)})
                : (struct core_text){"", 0};
}

static bool is_voter(const struct server *server, uint64_t id)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);

    for (unsigned i = 0; i < count; i++)
        if (seen[i].id == id)
            return seen[i].votes;
    return false;
}

/* A node that belongs to no cluster may be talked to about founding: none of libraft's messages are taken from it, nor sent
 * to it if it is one that came back without its data; or if it may be: the life of whoever votes is in the log, and this node has
 * not heard all of that yet. Who is no member has been removed, or is to be added: what it says is of no importance. */
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
    if (!node->cluster[0] && known_life(server, node->id).size == 0 && is_voter(server, node->id)) {
        put_among(server->unjudged, node->id);
        return NETWORK_WORDS;
    }
    return remember(server, node->id, node->about) ? NETWORK_ALL : NETWORK_NOTHING;
}

bool cluster_met(struct server *server, const struct network_node *node)
{
    return cluster_reached(server, node) != NETWORK_NOTHING;
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
        if (server->unjudged[i] != 0 && !may_be_member(server, server->unjudged[i]))
            server->unjudged[i] = 0;
    }
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

    return same(core_member(replica_table(server->replica), id), command.result) ||
           replica_submit(server->replica, &command, NULL) == HF_OK;
}

/* A member that has said nothing to this node is in the table all the same. By its life, if it is known from the founding: a node that
 * is added later has no other way to know it. Else by its id: nobody would know, when it is removed, that there was one. */
static bool publish_silent(struct server *server, uint64_t id)
{
    struct core_text life = lives_find(&server->lives, id);
    char about[LIFE_MAX + 2];

    if (life_of(about_of(server, id)).size > 0)
        return true;
    snprintf(about, sizeof about, "/%.*s", (int)life.size, life.bytes);
    if (life.size > 0)
        return make_known(server, id, about);
    return core_member(replica_table(server->replica), id).size > 0 ||
           make_known(server, id, NOTHING_SAID);
}

static bool publish_members(struct server *server)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(server->replica, seen, REPLICA_MEMBERS_MAX);
    bool all = true;

    for (unsigned i = 0; i < count; i++) {
        const struct said *said = find_said(server, seen[i].id);

        if (said && !has_lost_its_data(server, said->id,
                                       (struct core_text){said->about, strlen(said->about)}))
            all = make_known(server, said->id, said->about) && all;
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
