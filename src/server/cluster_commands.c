/* cluster_commands.c: CLUSTER, by which operators look at the cluster and change it. */
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

static void write_member(struct session *session, const struct member *seen,
                         const struct replica_status *status)
{
    struct resp_writer *out = &session->out;
    char client[CORE_ADDRESS_MAX + 1] = "";
    /* The leader knows what others have stored, as long as they can tell it. */
    bool known = seen->known && (seen->id == server_of(session)->config->id ||
                                 node_is_connected(server_of(session)->node, seen->id));

    cluster_client_address(server_of(session), seen->id, client, sizeof client);
    resp_write_map(out, 8, session->resp3);
    write_number(out, "id", (int64_t)seen->id);
    resp_write_text(out, "peer");
    resp_write_text(out, seen->address);
    resp_write_text(out, "client");
    resp_write_text(out, client);
    write_number(out, "votes", seen->votes);
    write_number(out, "behind", known ? (int64_t)(status->last_index - seen->match_index) : -1);
    write_number(out, "index", known ? (int64_t)seen->match_index : -1);
    write_number(out, "silent", seen->silent_ms);
    write_number(out, "lost", cluster_is_lost(server_of(session), seen->id));
}

/* What keeps this node from taking part; "": nothing that it knows. */
static const char *trouble_of(const struct server *server)
{
    uint64_t incarnation = cluster_incarnation(server, server->config->id);

    if (server->sessions.stopped_why[0])
        return server->sessions.stopped_why;
    if (incarnation != 0 && incarnation != node_identity(server->node)->incarnation)
        return NODE_LOST;
    if (membership_hears_nothing(server))
        return MEMBERSHIP_HEARS_NOTHING;
    return server->shut_out ? server->shut_out : "";
}

static void cluster_status(struct session *session)
{
    struct resp_writer *out = &session->out;
    struct member seen[REPLICA_MEMBERS_MAX];
    struct replica_status status;
    unsigned count = cluster_members(server_of(session), seen);
    char advice[ERROR_TEXT_MAX];

    replica_status(server_of(session)->replica, &status);
    cluster_advice(server_of(session), advice, sizeof advice);
    resp_write_map(out, 10, session->resp3);
    resp_write_text(out, "role");
    resp_write_text(out, role_word(server_of(session)));
    write_number(out, "id", (int64_t)server_of(session)->config->id);
    write_number(out, "leader", (int64_t)replica_leader(server_of(session)->replica));
    write_number(out, "term", (int64_t)status.term);
    write_number(out, "commit", (int64_t)status.commit_index);
    write_number(out, "applied", (int64_t)status.applied_index);
    resp_write_text(out, "cluster");
    resp_write_text(out, node_cluster(server_of(session)->node));
    resp_write_text(out, "trouble");
    resp_write_text(out, trouble_of(server_of(session)));
    resp_write_text(out, "advice");
    resp_write_text(out, advice);
    resp_write_text(out, "members");
    resp_write_array(out, count);
    for (unsigned i = 0; i < count; i++)
        write_member(session, &seen[i], &status);
}

static void write_hash(struct resp_writer *out, const char *field, uint64_t hash)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, hash);
    resp_write_text(out, field);
    resp_write_text(out, text);
}

/* From this node's own table, whatever others have: what is compared must not come from one place. */
static void cluster_digest(struct session *session)
{
    struct resp_writer *out = &session->out;
    struct replica_digest digest;
    struct error_text err = {""};

    replica_digest(server_of(session)->replica, &digest);
    core_check(replica_table(server_of(session)->replica), &err);
    resp_write_map(out, 5, session->resp3);
    write_number(out, "applied", (int64_t)digest.index);
    write_hash(out, "table", digest.table);
    write_hash(out, "members", digest.members);
    write_number(out, "members_index", (int64_t)digest.members_index);
    resp_write_text(out, "broken");
    resp_write_text(out, err.text);
}

/* One range of slots, on the node that leads: what `redis-cli -c` and cluster clients want to know. */
static void cluster_slots(struct session *session)
{
    struct resp_writer *out = &session->out;
    const struct server *server = server_of(session);
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
    bool before = server->transferring; /* another transfer, which this one does not end */
    int result;

    server->transferring = true;
    result = node_transfer(server->node, to, request, err);
    if (result != HF_OK)
        server->transferring = before;
    return result;
}

static const char *no_majority(uint64_t without, char *ret_text, size_t size)
{
    snprintf(ret_text, size,
             "ERR without node %" PRIu64 " no majority of the members would be there: bring the "
             "silent ones back, or remove them first",
             without);
    return ret_text;
}

void cluster_changed(void *context, void *about, enum replica_change result)
{
    struct server *server = context;
    struct request *request = about;
    bool transfer = server->transferring;
    char text[ERROR_TEXT_MAX];
    struct resp_writer *out;

    if (transfer)
        log_transfer(server, result);
    server->transferring = false;
    if (!request) { /* the hand-over of a clean stop: whatever came of it, we go */
        server->handed_over = true;
        return;
    }
    out = &request->session->out;
    if (result == REPLICA_CHANGED)
        resp_write_simple(out, "OK");
    else if (result == REPLICA_NO_MAJORITY)
        resp_write_error(out, no_majority(request->about, text, sizeof text));
    else if (result == REPLICA_UNCHANGED)
        resp_write_error(
            out, transfer ? "TRYAGAIN it did not take over in time"
                          : "TRYAGAIN nothing was changed: this node leads no more, or is busy");
    else
        resp_write_error(out, "UNKNOWN this node leads no more: see CLUSTER STATUS");
    request_finish(request);
}

void cluster_refusal(struct server *server, int result, const struct error_text *err,
                     char ret_text[ERROR_TEXT_MAX])
{
    if (result == HF_EUNREACH)
        snprintf(
            ret_text, ERROR_TEXT_MAX, "%s",
            sessions_not_leading(&server->sessions, (char[ERROR_TEXT_MAX]){""}, ERROR_TEXT_MAX));
    else
        snprintf(ret_text, ERROR_TEXT_MAX, "%s %.*s", result == HF_EBUSY ? "TRYAGAIN" : "ERR",
                 ERROR_TEXT_MAX - 16, err->text);
}

static enum verdict changed(struct request *request, int result, const struct error_text *err)
{
    struct session *session = request->session;
    char text[ERROR_TEXT_MAX];

    if (result == HF_OK)
        return VERDICT_DONE;
    request_forget(request);
    cluster_refusal(server_of(session), result, err, text);
    return refuse(session, "%s", text);
}

static enum verdict cluster_remove(struct session *session, const struct resp_node *value)
{
    struct error_text err = {""};
    struct request *request;
    uint64_t id;

    if (value->count != 3)
        return refuse(session, "ERR CLUSTER REMOVE id");
    if (!parse_number(session, word_at(value, 2), "id", 1, UINT64_C(1) << 32, &id))
        return VERDICT_REFUSED;
    if (server_of(session)->sessions.role == REPLICA_LEADING &&
        cluster_is_member(server_of(session), id) &&
        core_member(replica_table(server_of(session)->replica), id).size == 0)
        return refuse(session, "TRYAGAIN that there is a node %" PRIu64 " is being written down",
                      id);
    request = request_begin(session);
    request->about = id;
    return changed(request, node_remove(server_of(session)->node, id, request, &err), &err);
}

static enum verdict cluster_transfer(struct session *session, const struct resp_node *value)
{
    struct error_text err = {""};
    struct request *request;
    uint64_t id = 0;

    if (value->count > 3)
        return refuse(session, "ERR CLUSTER TRANSFER [id]");
    if (value->count == 3 &&
        !parse_number(session, word_at(value, 2), "id", 1, UINT64_C(1) << 32, &id))
        return VERDICT_REFUSED;
    request = request_begin(session);
    return changed(request, cluster_hand_over(server_of(session), id, request, &err), &err);
}

enum verdict command_cluster(struct session *session, const struct resp_node *value)
{
    const struct resp_node *what = word_at(value, 1);
    char id[24];

    if (word_is(what, "INIT"))
        return command_cluster_init(session, value);
    if (word_is(what, "ADD"))
        return command_cluster_add(session, value);
    if (word_is(what, "REMOVE"))
        return cluster_remove(session, value);
    if (word_is(what, "TRANSFER"))
        return cluster_transfer(session, value);
    if (word_is(what, "STATUS")) {
        cluster_status(session);
    } else if (word_is(what, "DIGEST")) {
        cluster_digest(session);
    } else if (word_is(what, "SLOTS")) {
        cluster_slots(session);
    } else if (word_is(what, "MYID")) {
        snprintf(id, sizeof id, "%" PRIu64, server_of(session)->config->id);
        resp_write_text(&session->out, id);
    } else {
        return refuse(session, "ERR CLUSTER is followed by STATUS, DIGEST, INIT, ADD, REMOVE, "
                               "TRANSFER, SLOTS or MYID");
    }
    return VERDICT_DONE;
}
