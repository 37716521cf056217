/* cluster_commands.c: CLUSTER, by which operators look at the cluster and change it. */
#include "server/cluster_commands.h"
#include "server/adding.h"
#include "server/backup.h"
#include "server/bootstrap.h"
#include "server/cluster.h"
#include "server/info.h"
#include "server/log.h"
#include "server/membership.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define DIGEST_SHARE \
    10u /* of the loop's time, one in so many parts at most is for CLUSTER DIGEST */

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

const char *cluster_trouble(const struct server *server)
{
    uint64_t incarnation = cluster_incarnation(server, server->config->id);

    if (server->sessions.stopped_why[0])
        return server->sessions.stopped_why;
    if (incarnation != 0 && incarnation != node_identity(server->node)->incarnation)
        return NODE_LOST;
    if (membership_hears_nothing(server))
        return MEMBERSHIP_HEARS_NOTHING;
    return server->membership.shut_out ? server->membership.shut_out : "";
}

static enum verdict cluster_status(struct session *session, const struct resp_node *value)
{
    struct resp_writer *out = &session->out;
    struct member seen[REPLICA_MEMBERS_MAX];
    struct replica_status status;
    unsigned count = cluster_members(server_of(session), seen);
    char advice[ERROR_TEXT_MAX];

    (void)value;
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
    resp_write_text(out, cluster_trouble(server_of(session)));
    resp_write_text(out, "advice");
    resp_write_text(out, advice);
    resp_write_text(out, "members");
    resp_write_array(out, count);
    for (unsigned i = 0; i < count; i++)
        write_member(session, &seen[i], &status);
    return VERDICT_DONE;
}

static void write_hash(struct resp_writer *out, const char *field, uint64_t hash)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, hash);
    resp_write_text(out, field);
    resp_write_text(out, text);
}

/* From this node's own table, whatever others have: what is compared must not come from one place. It goes through the whole table, and clients
 * and other nodes wait meanwhile: however many ask, they leave most of the time to those. */
static enum verdict cluster_digest(struct session *session, const struct resp_node *value)
{
    struct resp_writer *out = &session->out;
    struct server *server = server_of(session);
    uint64_t began_ns = uv_hrtime();
    struct replica_digest digest;
    struct error_text err = {""};

    (void)value;
    if (began_ns < server->digest_after_ns)
        return refuse(session,
                      "TRYAGAIN a digest was computed just now, and others have their turn: ask "
                      "again in %" PRIu64 " ms",
                      (server->digest_after_ns - began_ns) / 1000000 + 1);
    replica_digest(server->replica, &digest);
    core_check(replica_table(server->replica), &err);
    server->digest_after_ns = uv_hrtime() + (uv_hrtime() - began_ns) * (DIGEST_SHARE - 1);
    resp_write_map(out, 5, session->resp3);
    write_number(out, "applied", (int64_t)digest.index);
    write_hash(out, "table", digest.table);
    write_hash(out, "members", digest.members);
    write_number(out, "members_index", (int64_t)digest.members_index);
    resp_write_text(out, "broken");
    resp_write_text(out, err.text);
    return VERDICT_DONE;
}

/* One range of slots, on the node that leads: what `redis-cli -c` and cluster clients want to know. */
static enum verdict cluster_slots(struct session *session, const struct resp_node *value)
{
    struct resp_writer *out = &session->out;
    const struct server *server = server_of(session);
    uint64_t leader = replica_leader(server->replica);
    char text[CORE_ADDRESS_MAX + 1], id[24];
    struct endpoint at;

    (void)value;
    if (leader == 0 || !cluster_client_address(server, leader, text, sizeof text) ||
        endpoint_parse(text, &at, NULL) != HF_OK) {
        resp_write_array(out, 0);
        return VERDICT_DONE;
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
    return VERDICT_DONE;
}

static enum verdict cluster_my_id(struct session *session, const struct resp_node *value)
{
    char id[24];

    (void)value;
    snprintf(id, sizeof id, "%" PRIu64, server_of(session)->config->id);
    resp_write_text(&session->out, id);
    return VERDICT_DONE;
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
    bool before =
        server->hand_over.transferring; /* another transfer, which this one does not end */
    int result;

    server->hand_over.transferring = true;
    result = node_transfer(server->node, to, request, err);
    if (result != HF_OK)
        server->hand_over.transferring = before;
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
    bool transfer = server->hand_over.transferring;
    char text[ERROR_TEXT_MAX];

    if (transfer)
        log_transfer(server, result);
    server->hand_over.transferring = false;
    if (!request) { /* the hand-over of a clean stop: whatever came of it, we go */
        server->hand_over.is_over = true;
        return;
    }
    if (result == REPLICA_CHANGED) {
        resp_write_simple(&request->session->out, "OK");
        request_finish(request);
    } else if (result == REPLICA_NO_MAJORITY) {
        request_fail(request, no_majority(request->about, text, sizeof text));
    } else if (result == REPLICA_UNCHANGED) {
        request_fail(request,
                     transfer
                         ? "TRYAGAIN it did not take over in time"
                         : "TRYAGAIN nothing was changed: this node leads no more, or is busy");
    } else {
        request_fail(request, "UNKNOWN this node leads no more: see CLUSTER STATUS");
    }
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

const struct command cluster_parts[] = {
    {"STATUS", 2, cluster_status, 0, RIGHT_LOOK_OR_ADMIN, NAMES_NONE,
     "The members, as this node sees them", "", NULL},
    {"DIGEST", 2, cluster_digest, 0, RIGHT_ADMIN, NAMES_NONE, "What of this node can be compared",
     "", NULL},
    {"INIT", 2, command_cluster_init, COMMAND_WRITES, RIGHT_ADMIN, NAMES_NONE, "Founds the cluster",
     "", NULL},
    {"ADD", 4, command_cluster_add, COMMAND_WRITES, RIGHT_ADMIN, NAMES_NONE, "Adds a member",
     "id host:port", NULL},
    {"REMOVE", 3, cluster_remove, COMMAND_WRITES, RIGHT_ADMIN, NAMES_NONE, "Removes a member", "id",
     NULL},
    {"TRANSFER", -2, cluster_transfer, COMMAND_WRITES, RIGHT_ADMIN, NAMES_NONE,
     "Lets another member lead", "[id]", NULL},
    {"BACKUP", 2, command_cluster_backup, COMMAND_WRITES, RIGHT_ADMIN, NAMES_NONE,
     "Begins a backup, by an operator", "", NULL},
    {"PIECE", 4, command_cluster_piece, 0, RIGHT_ADMIN, NAMES_NONE, "A piece of a backup",
     "id offset", NULL},
    {"SLOTS", 2, cluster_slots, 0, RIGHT_NONE, NAMES_NONE, "Who leads, for clients of a cluster",
     "", NULL},
    {"MYID", 2, cluster_my_id, 0, RIGHT_NONE, NAMES_NONE, "The id of this node", "", NULL},
    {.name = NULL},
};
