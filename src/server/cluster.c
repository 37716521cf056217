/* cluster.c: who belongs to the cluster, who leads it, and where clients find each of them.
 *
 * Peers tell each other where clients find them when they connect. Whoever leads puts that into the log, so that
 * every node can send a client to the leader. */
#include "replica/network.h"
#include "server/founders.h"
#include "server/log.h"
#include "server/server.h"

#include <inttypes.h>
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

static bool is_member(const struct server *server, uint64_t id)
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

    return replica_members(server->replica, &any, 1) == 0 || is_member(server, id);
}

static bool same(struct core_text a, struct core_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.bytes, b.bytes, a.size) == 0);
}

static struct core_text life_known(const struct server *server, uint64_t id)
{
    struct core_text known = life_of(core_member(replica_table(server->replica), id));

    return known.size > 0 ? known : lives_find(&server->lives, id);
}

/* See lives.h. */
static bool has_lost_its_data(const struct server *server, uint64_t id, struct core_text about)
{
    struct core_text known = life_known(server, id);

    return known.size > 0 && !same(known, life_of(about));
}

static bool is_among(const uint64_t *ids, uint64_t id)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* So that whoever looks is told. */
static void note_lost(struct server *server, uint64_t id, bool lost)
{
    uint64_t from = lost ? 0 : id;

    if (lost == is_among(server->lost, id))
        return;
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        if (server->lost[i] == from) {
            server->lost[i] = lost ? id : 0;
            return;
        }
}

static bool refuse_node(struct server *server, uint64_t id, const char *why)
{
    if (server->refused_id != id)
        log_error(why, log_number("node", (int64_t)id));
    server->refused_id = id;
    return false;
}

/* ---- who was removed ----------------------------------------------------------------------------- */

/* A node that was removed does not know it, and goes on calling. It is not answered. But one that was added again meanwhile may
 * lead by now, and be the only one from whom this node can hear of it: so only a node that hears its leader is sure. */
static bool is_removed(const struct server *server, uint64_t id)
{
    uint64_t leader = replica_leader(server->replica);

    return leader != 0 && leader != id && is_among(server->removed, id) && !is_member(server, id);
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
        if (server->agreed[i] != 0 && !is_member(server, server->agreed[i]))
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
    if (server->refused_id == id)
        server->refused_id = 0;
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
        note_lost(server, node->id, true);
        refuse_node(
            server, node->id,
            "a node has come back without its data, and is not let in: remove it, and add it "
            "under another id");
        return node->cluster[0] ? NETWORK_NOTHING : NETWORK_WORDS;
    }
    note_lost(server, node->id, false);
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

static bool is_member_of(void *context, uint64_t id)
{
    return may_be_member(context, id);
}

void cluster_tidy(struct server *server)
{
    struct error_text err;

    if (lives_tidy(&server->lives, server->storage, is_member_of, server, &err) != HF_OK)
        log_warning(err.text);
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++) {
        struct said *said = &server->said[i];

        if (said->id != 0 && !may_be_member(server, said->id))
            *said = (struct said){0};
        if (server->lost[i] != 0 && !may_be_member(server, server->lost[i]))
            server->lost[i] = 0;
    }
}

/* "" forgets it. What does not go into the log now is tried again in the next round. */
static bool make_known(struct server *server, uint64_t id, const char *about)
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

        if (said->id != 0 && is_member(server, said->id))
            all = make_known(server, said->id, said->about) && all;
    }
    server->said_new = !all;
}

/* ---- looking ------------------------------------------------------------------------------------- */

static void write_number(struct resp_writer *out, const char *field, int64_t number)
{
    resp_write_text(out, field);
    resp_write_integer(out, number);
}

static void write_member(struct connection *connection, const struct replica_seen *seen,
                         const struct replica_status *status)
{
    struct resp_writer *out = &connection->out;
    char client[CORE_ADDRESS_MAX + 1] = "";
    bool leads = status->leader_id == status->id && status->id != 0;

    cluster_client_address(connection->server, seen->id, client, sizeof client);
    resp_write_map(out, 7, connection->resp3);
    write_number(out, "id", (int64_t)seen->id);
    resp_write_text(out, "peer");
    resp_write_text(out, seen->address);
    resp_write_text(out, "client");
    resp_write_text(out, client);
    write_number(out, "votes", seen->votes);
    write_number(out, "behind", leads ? (int64_t)(status->last_index - seen->match_index) : -1);
    write_number(out, "silent", seen->silent_ms);
    write_number(out, "lost", is_among(connection->server->lost, seen->id));
}

/* What keeps this node from taking part; "": nothing that it knows. */
static const char *trouble_of(const struct server *server)
{
    if (server->stopped_why[0])
        return server->stopped_why;
    return server->shut_out ? server->shut_out : "";
}

static void cluster_status(struct connection *connection)
{
    struct resp_writer *out = &connection->out;
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    struct replica_status status;
    unsigned count = replica_members(connection->server->replica, seen, REPLICA_MEMBERS_MAX);

    replica_status(connection->server->replica, &status);
    resp_write_map(out, 9, connection->resp3);
    resp_write_text(out, "role");
    resp_write_text(out, role_word(connection->server));
    write_number(out, "id", (int64_t)status.id);
    write_number(out, "leader", (int64_t)status.leader_id);
    write_number(out, "term", (int64_t)status.term);
    write_number(out, "commit", (int64_t)status.commit_index);
    write_number(out, "applied", (int64_t)status.applied_index);
    resp_write_text(out, "cluster");
    resp_write_text(out, connection->server->bootstrap.cluster);
    resp_write_text(out, "trouble");
    resp_write_text(out, trouble_of(connection->server));
    resp_write_text(out, "members");
    resp_write_array(out, count);
    for (unsigned i = 0; i < count; i++)
        write_member(connection, &seen[i], &status);
}

static void write_hash(struct resp_writer *out, const char *field, uint64_t hash)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, hash);
    resp_write_text(out, field);
    resp_write_text(out, text);
}

/* From this node's own table, whatever others have: what is compared must not come from one place. */
static void cluster_digest(struct connection *connection)
{
    struct resp_writer *out = &connection->out;
    struct replica_digest digest;
    struct error_text err = {""};

    replica_digest(connection->server->replica, &digest);
    core_check(replica_table(connection->server->replica), &err);
    resp_write_map(out, 5, connection->resp3);
    write_number(out, "applied", (int64_t)digest.index);
    write_hash(out, "table", digest.table);
    write_hash(out, "members", digest.members);
    write_number(out, "members_index", (int64_t)digest.members_index);
    resp_write_text(out, "broken");
    resp_write_text(out, err.text);
}

/* One range of slots, on the node that leads: what `redis-cli -c` and cluster clients want to know. */
static void cluster_slots(struct connection *connection)
{
    struct resp_writer *out = &connection->out;
    const struct server *server = connection->server;
    uint64_t leader = replica_leader(server->replica);
    char text[CORE_ADDRESS_MAX + 1], id[24];
    struct endpoint at;

    if (leader == 0 || !cluster_client_address(server, leader, text, sizeof text) ||
        endpoint_parse(text, &at, NULL) != HF_OK) {
        resp_write_array(out, 0);
        return;
    }
    snprintf(id, sizeof id, "%" PRIu64, leader);
    resp_write_array(out, 1);
    resp_write_array(out, 3);
    resp_write_integer(out, 0);
    resp_write_integer(out, 16383);
    resp_write_array(out, 3);
    resp_write_text(out, at.host);
    resp_write_integer(out, at.port);
    resp_write_text(out, id);
}

/* ---- changing -------------------------------------------------------------------------------------- */

void cluster_changed(void *context, void *about, enum replica_change result)
{
    struct server *server = context;
    struct request *request = about;
    struct resp_writer *out;

    if (!request) { /* the hand-over of a clean stop: whatever came of it, we go */
        server->handed_over = true;
        return;
    }
    out = &request->connection->out;
    if (result == REPLICA_CHANGED)
        resp_write_simple(out, "OK");
    else if (result == REPLICA_UNCHANGED)
        resp_write_error(out, "TRYAGAIN it did not take over in time");
    else
        resp_write_error(out, "UNKNOWN this node leads no more: see CLUSTER STATUS");
    if (result == REPLICA_CHANGED && request->forgets && server->role == REPLICA_LEADING)
        make_known(server, request->forgets, "");
    request_finish(request);
}

static enum verdict changed(struct request *request, int result, const struct error_text *err)
{
    struct connection *connection = request->connection;
    char text[ERROR_TEXT_MAX];

    if (result == HF_OK)
        return VERDICT_DONE;
    request_forget(request);
    if (result == HF_EUNREACH)
        return refuse(connection, "%s", answer_not_leading(connection->server, text, sizeof text));
    return refuse(connection, "%s %s", result == HF_EBUSY ? "TRYAGAIN" : "ERR", err->text);
}

static enum verdict cluster_add(struct connection *connection, const struct resp_node *value)
{
    struct config_cluster one;
    struct error_text err = {""};
    struct request *request;
    char text[ENDPOINT_TEXT_MAX + 24];
    uint64_t id;

    if (value->count != 4)
        return refuse(connection, "ERR CLUSTER ADD id host:port");
    if (!parse_number(connection, word_at(value, 2), "id", 1, UINT64_C(1) << 32, &id))
        return VERDICT_REFUSED;
    snprintf(text, sizeof text, "%" PRIu64 "=%.*s", id,
             (int)(word_at(value, 3)->size < sizeof text ? word_at(value, 3)->size : sizeof text),
             word_at(value, 3)->text);
    if (founders_kind.parse(NULL, text, &one, &err) != HF_OK || one.count != 1)
        return refuse(connection, "ERR %s", err.text[0] ? err.text : "one node at a time");
    if (!connection->server->network)
        return refuse(connection, "ERR this node is alone: start it with itself as the only member "
                                  "of its cluster, then add others");
    if (connection->server->role == REPLICA_LEADING && is_among(connection->server->lost, id) &&
        is_member(connection->server, id))
        return refuse(connection,
                      "ERR node %" PRIu64 " has come back without its data: remove it, then add it "
                      "under another id",
                      id);
    request = request_begin(connection);
    return changed(request,
                   replica_add(connection->server->replica, id, one.at[0].address, request, &err),
                   &err);
}

static enum verdict cluster_remove(struct connection *connection, const struct resp_node *value)
{
    struct error_text err = {""};
    struct request *request;
    uint64_t id;

    if (value->count != 3)
        return refuse(connection, "ERR CLUSTER REMOVE id");
    if (!parse_number(connection, word_at(value, 2), "id", 1, UINT64_C(1) << 32, &id))
        return VERDICT_REFUSED;
    request = request_begin(connection);
    request->forgets = id;
    return changed(request, replica_remove(connection->server->replica, id, request, &err), &err);
}

static enum verdict cluster_transfer(struct connection *connection, const struct resp_node *value)
{
    struct error_text err = {""};
    struct request *request;
    uint64_t id = 0;

    if (value->count > 3)
        return refuse(connection, "ERR CLUSTER TRANSFER [id]");
    if (value->count == 3 &&
        !parse_number(connection, word_at(value, 2), "id", 1, UINT64_C(1) << 32, &id))
        return VERDICT_REFUSED;
    request = request_begin(connection);
    return changed(request, replica_transfer(connection->server->replica, id, request, &err), &err);
}

enum verdict command_cluster(struct connection *connection, const struct resp_node *value)
{
    const struct resp_node *what = word_at(value, 1);
    char id[24];

    if (word_is(what, "INIT"))
        return command_cluster_init(connection, value);
    if (word_is(what, "ADD"))
        return cluster_add(connection, value);
    if (word_is(what, "REMOVE"))
        return cluster_remove(connection, value);
    if (word_is(what, "TRANSFER"))
        return cluster_transfer(connection, value);
    if (word_is(what, "STATUS")) {
        cluster_status(connection);
    } else if (word_is(what, "DIGEST")) {
        cluster_digest(connection);
    } else if (word_is(what, "SLOTS")) {
        cluster_slots(connection);
    } else if (word_is(what, "MYID")) {
        snprintf(id, sizeof id, "%" PRIu64, connection->server->config->id);
        resp_write_text(&connection->out, id);
    } else {
        return refuse(connection, "ERR CLUSTER is followed by STATUS, DIGEST, INIT, ADD, REMOVE, "
                                  "TRANSFER, SLOTS or MYID");
    }
    return VERDICT_DONE;
}
