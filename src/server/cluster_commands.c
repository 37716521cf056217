/* cluster_commands.c: CLUSTER, by which operators look at the cluster and change it. */
#include "replica_libraft/network.h"
#include "server/log.h"
#include "server/membership.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- looking ------------------------------------------------------------------------------------- */

static void write_number(struct resp_writer *out, const char *field, int64_t number)
{
    resp_write_text(out, field);
    resp_write_integer(out, number);
}

/* The leader knows what others have stored, as long as they can tell it. */
static bool knows_log_of(struct server *server, const struct replica_status *status, uint64_t id)
{
    return status->id != 0 && status->leader_id == status->id &&
           (id == status->id || cluster_is_connected(server, id));
}

static void write_member(struct connection *connection, const struct replica_seen *seen,
                         const struct replica_status *status)
{
    struct resp_writer *out = &connection->out;
    char client[CORE_ADDRESS_MAX + 1] = "";
    bool known = knows_log_of(connection->server, status, seen->id);

    cluster_client_address(connection->server, seen->id, client, sizeof client);
    resp_write_map(out, 8, connection->resp3);
    write_number(out, "id", (int64_t)seen->id);
    resp_write_text(out, "peer");
    resp_write_text(out, seen->address);
    resp_write_text(out, "client");
    resp_write_text(out, client);
    write_number(out, "votes", seen->votes);
    write_number(out, "behind", known ? (int64_t)(status->last_index - seen->match_index) : -1);
    write_number(out, "index", known ? (int64_t)seen->match_index : -1);
    write_number(out, "silent", seen->silent_ms);
    write_number(out, "lost", cluster_is_lost(connection->server, seen->id));
}

/* What keeps this node from taking part; "": nothing that it knows. */
static const char *trouble_of(const struct server *server)
{
    const char *life = replica_life(server->replica, server->config->id);

    if (server->stopped_why[0])
        return server->stopped_why;
    if (life && life[0] && strcmp(life, server->bootstrap.life) != 0)
        return NETWORK_LOST;
    if (membership_hears_nothing(server))
        return MEMBERSHIP_HEARS_NOTHING;
    return server->shut_out ? server->shut_out : "";
}

static void cluster_status(struct connection *connection)
{
    struct resp_writer *out = &connection->out;
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    struct replica_status status;
    unsigned count = replica_members(connection->server->replica, seen, REPLICA_MEMBERS_MAX);
    char advice[ERROR_TEXT_MAX];

    replica_status(connection->server->replica, &status);
    cluster_advice(connection->server, advice, sizeof advice);
    resp_write_map(out, 10, connection->resp3);
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
    resp_write_text(out, "advice");
    resp_write_text(out, advice);
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

int64_t cluster_term(const struct server *server)
{
    struct replica_status status;

    replica_status(server->replica, &status);
    return (int64_t)status.term;
}

static void log_transfer(const struct server *server, enum replica_change result)
{
    uint64_t leader = replica_leader(server->replica);

    if (result == REPLICA_UNCHANGED)
        log_warning("leadership was not transferred: the other node did not take over in time");
    else if (result == REPLICA_PERHAPS)
        log_warning("leadership was given up, and who leads now is not known yet",
                    log_number("term", cluster_term(server)));
    else if (leader != server->config->id)
        log_info("leadership was transferred", log_number("leader", (int64_t)leader),
                 log_number("term", cluster_term(server)));
}

int cluster_hand_over(struct server *server, uint64_t to, struct request *request,
                      struct error_text *err)
{
    int result;

    server->transferring = true;
    result = replica_transfer(server->replica, to, request, err);
    if (result != HF_OK)
        server->transferring = false;
    return result;
}

void cluster_changed(void *context, void *about, enum replica_change result)
{
    struct server *server = context;
    struct request *request = about;
    struct resp_writer *out;

    if (server->transferring)
        log_transfer(server, result);
    server->transferring = false;
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
    request_finish(request);
}

void cluster_refusal(struct server *server, int result, const struct error_text *err,
                     char ret_text[ERROR_TEXT_MAX])
{
    if (result == HF_EUNREACH)
        snprintf(ret_text, ERROR_TEXT_MAX, "%s",
                 answer_not_leading(server, (char[ERROR_TEXT_MAX]){""}, ERROR_TEXT_MAX));
    else
        snprintf(ret_text, ERROR_TEXT_MAX, "%s %.*s", result == HF_EBUSY ? "TRYAGAIN" : "ERR",
                 ERROR_TEXT_MAX - 16, err->text);
}

static enum verdict changed(struct request *request, int result, const struct error_text *err)
{
    struct connection *connection = request->connection;
    char text[ERROR_TEXT_MAX];

    if (result == HF_OK)
        return VERDICT_DONE;
    request_forget(request);
    cluster_refusal(connection->server, result, err, text);
    return refuse(connection, "%s", text);
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
    if (connection->server->role == REPLICA_LEADING && cluster_is_member(connection->server, id) &&
        core_member(replica_table(connection->server->replica), id).size == 0)
        return refuse(connection, "TRYAGAIN that there is a node %" PRIu64 " is being written down",
                      id);
    request = request_begin(connection);
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
    return changed(request, cluster_hand_over(connection->server, id, request, &err), &err);
}

enum verdict command_cluster(struct connection *connection, const struct resp_node *value)
{
    const struct resp_node *what = word_at(value, 1);
    char id[24];

    if (word_is(what, "INIT"))
        return command_cluster_init(connection, value);
    if (word_is(what, "ADD"))
        return command_cluster_add(connection, value);
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
