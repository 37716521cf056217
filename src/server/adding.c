#include "server/adding.h"
#include "base/clock.h"
#include "base/random.h"
#include "server/cluster.h"
#include "server/cluster_commands.h"
#include "server/initial_members.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROUND_MS 20
#define AGAIN_MS 250 /* what is not answered is asked again */
#define ASK_MS 700   /* for the node to answer; then whoever wants it added asks again */

/* An id with some digits too many would leave none for those that come later. */
#define ID_STEP_MAX 1000000

/* ---- may it be added? --------------------------------------------------------------------------- */

/* NULL: nothing speaks against this id. */
static const char *refuse_id(const struct server *server, uint64_t id, char *ret_text, size_t size)
{
    uint64_t highest = cluster_highest_id(server);
    bool is_member = cluster_is_member(server, id);

    if (is_member && cluster_is_lost(server, id))
        snprintf(ret_text, size,
                 "ERR node %" PRIu64 " has come back without its data: remove it, then add it "
                 "under another id",
                 id);
    else if (!is_member && id <= highest)
        snprintf(ret_text, size,
                 "ERR an id is used once, and %" PRIu64
                 " was, or is below one that was: take %" PRIu64 ", and start the new node with it",
                 id, highest + 1);
    else if (!is_member && id - highest > ID_STEP_MAX)
        snprintf(ret_text, size,
                 "ERR %" PRIu64 " is far above %" PRIu64
                 ", the greatest id so far, and ids only grow: take %" PRIu64
                 ", and start the new node with it",
                 id, highest, highest + 1);
    else
        return NULL;
    return ret_text;
}

/* Why it cannot be added, as it is answered; NULL: nothing speaks against it. Asked before and after the node was: meanwhile another may have
 * led, and used the id. */
static const char *refusal_of(struct server *server, const struct replica_member *member,
                              bool *ret_is_there, char ret_text[ERROR_TEXT_MAX])
{
    struct error_text err = {""};
    int result = node_may_add(server->node, member, ret_is_there, &err);

    if (server->sessions.role == REPLICA_LEADING &&
        refuse_id(server, member->id, ret_text, ERROR_TEXT_MAX))
        return ret_text;
    if (result == HF_OK)
        return NULL;
    cluster_refusal(server, result, &err, ret_text);
    return ret_text;
}

/* ---- the end of an ADD -------------------------------------------------------------------------- */

static struct request *end(struct server *server)
{
    struct adding *adding = &server->adding;
    struct request *request = adding->request;

    adding->request = NULL;
    uv_timer_stop(&adding->timer);
    return request;
}

static void reply_error(struct server *server, const char *text)
{
    request_fail(end(server), text);
}

/* Where a newcomer looks for this node: at its own word, and where the log has it. */
static void own_addresses(const struct server *server, char *ret_text, size_t size)
{
    const struct config_member *own =
        initial_members_find(&server->config->cluster, server->config->id);
    const char *word = own ? own->address : "";
    struct member seen[REPLICA_MEMBERS_MAX];
    unsigned count = cluster_members(server, seen);

    snprintf(ret_text, size, "%s", word);
    for (unsigned i = 0; i < count; i++)
        if (seen[i].id == server->config->id && seen[i].address[0] &&
            strcmp(seen[i].address, word) != 0)
            snprintf(ret_text, size, "%s or %s", word, seen[i].address);
}

static void reply_silent(struct server *server)
{
    const struct adding *adding = &server->adding;
    const char *why = node_why(server->node, adding->id);
    char text[ERROR_TEXT_MAX], own[2 * REPLICA_ADDRESS_MAX + 8], back[sizeof own + 64] = "";

    own_addresses(server, own, sizeof own);
    if (node_is_connected(server->node, adding->id))
        snprintf(back, sizeof back, "; or it cannot reach this node at %s: see its log", own);
    snprintf(text, sizeof text,
             "NOREPLY node %" PRIu64
             " at %s does not answer, and is not added: start it there first, with this id, an "
             "empty directory and the same secret%s%s%s%s",
             adding->id, adding->address, back, why[0] ? " (" : "", why, why[0] ? ")" : "");
    reply_error(server, text);
}

static void add(struct server *server, const char *incarnation_text, uint32_t version)
{
    struct adding *adding = &server->adding;
    struct replica_member member = {.id = adding->id, .version = version};
    struct error_text err = {""};
    char text[ERROR_TEXT_MAX];
    bool is_there;
    int result;

    snprintf(member.address, sizeof member.address, "%s", adding->address);
    member.incarnation = incarnation_parse(incarnation_text);
    if (refusal_of(server, &member, &is_there, text)) {
        reply_error(server, text);
        return;
    }
    result = node_add(server->node, &member, adding->request, &err);
    if (result == HF_OK) {
        end(server);
        return;
    }
    cluster_refusal(server, result, &err, text);
    reply_error(server, text);
}

/* ---- asking ------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    struct server *server = timer->data;
    struct adding *adding = &server->adding;
    struct replica_member member = {.id = adding->id};
    int64_t now_ms = clock_boot_ms();
    char text[ERROR_TEXT_MAX];
    bool is_there;

    snprintf(member.address, sizeof member.address, "%s", adding->address);
    if (refusal_of(server, &member, &is_there, text)) {
        reply_error(server, text);
        return;
    }
    if (now_ms >= adding->until_ms) {
        reply_silent(server);
        return;
    }
    snprintf(text, sizeof text, "ask %" PRIu64, adding->number);
    if (now_ms >= adding->next_ms &&
        node_say_there(server->node, adding->id, adding->address, text))
        adding->next_ms = now_ms + AGAIN_MS;
    uv_timer_start(timer, on_timer, ROUND_MS, 0);
}

void adding_heard(struct server *server, const struct node_words *words, uint64_t number,
                  const char *what, const char *of)
{
    struct adding *adding = &server->adding;
    char text[ERROR_TEXT_MAX];

    if (!adding->request || words->from != adding->id || number != adding->number)
        return;
    if (strcmp(what, "member") != 0) {
        add(server, of, words->version);
        return;
    }
    snprintf(text, sizeof text,
             "ERR node %" PRIu64
             " at %s has the data of a member: start it with an empty directory, and add it then",
             adding->id, adding->address);
    reply_error(server, text);
}

/* ---- CLUSTER ADD -------------------------------------------------------------------------------- */

static void ask(struct server *server, const struct config_member *node, struct request *request)
{
    struct adding *adding = &server->adding;

    if (adding->id != 0 && adding->id != node->id && !cluster_is_member(server, adding->id))
        node_forget(server->node, adding->id); /* it was asked for before, in vain */
    adding->request = request;
    adding->id = node->id;
    snprintf(adding->address, sizeof adding->address, "%s", node->address);
    random_fill(&adding->number, sizeof adding->number);
    adding->until_ms = clock_boot_ms() + ASK_MS;
    adding->next_ms = 0;
    uv_timer_start(&adding->timer, on_timer, 0, 0);
}

static enum verdict add_node(struct session *session, const struct config_member *node)
{
    struct server *server = server_of(session);
    struct replica_member member = {.id = node->id};
    char text[ERROR_TEXT_MAX];
    bool is_there = false;

    snprintf(member.address, sizeof member.address, "%s", node->address);
    if (refusal_of(server, &member, &is_there, text))
        return refuse(session, "%s", text);
    if (is_there)
        resp_write_simple(&session->out, "OK");
    else if (server->adding.request)
        return refuse(session, "TRYAGAIN another node is being added: ask again when it is over");
    else
        ask(server, node, request_begin(session));
    return VERDICT_DONE;
}

enum verdict command_cluster_add(struct session *session, const struct resp_node *value)
{
    struct config_cluster one;
    struct error_text err = {""};
    char text[ENDPOINT_TEXT_MAX + 24];
    uint64_t id;

    if (!parse_number(session, word_at(value, 2), "id", 1, UINT64_C(1) << 32, &id))
        return VERDICT_REFUSED;
    snprintf(text, sizeof text, "%" PRIu64 "=%.*s", id,
             (int)(word_at(value, 3)->size < sizeof text ? word_at(value, 3)->size : sizeof text),
             word_at(value, 3)->text);
    if (initial_members_kind.parse(NULL, text, &one, &err) != HF_OK || one.count != 1)
        return refuse(session, "ERR %s", err.text[0] ? err.text : "one node at a time");
    if (!server_of(session)->has_links)
        return refuse(session,
                      "ERR this node is alone: start it with itself as the only member of its "
                      "cluster (--id %" PRIu64 " --cluster %" PRIu64
                      "=HOST:PORT --secret-file FILE), then add others",
                      server_of(session)->config->id, server_of(session)->config->id);
    return add_node(session, &one.at[0]);
}

/* ---- the beginning and the end ------------------------------------------------------------------ */

void adding_open(struct server *server)
{
    struct adding *adding = &server->adding;

    if (!server->has_links)
        return;
    uv_timer_init(server->loop, &adding->timer);
    adding->timer.data = server;
    adding->open = true;
}

void adding_close(struct server *server)
{
    struct adding *adding = &server->adding;

    if (!adding->open)
        return;
    if (adding->request)
        reply_error(server, "TRYAGAIN the server is being stopped");
    adding->open = false;
    uv_close((uv_handle_t *)&adding->timer, NULL);
}
