/* bootstrap.c: see bootstrap.h. What nodes say to each other, as words with a blank between them:
 *
 *     ask NUMBER                               what are you?
 *     is NUMBER empty|joins LIFE LIST          the answer of one that waits
 *     is NUMBER member CLUSTER LIST            and of one that does not
 *     found NUMBER CLUSTER RECORD              the record of a founding, "1=HOST:PORT/LIFE,2=..."; the answer is as above
 *     init NUMBER                              somebody said CLUSTER INIT to me
 *     done NUMBER TEXT                         and this is what to answer
 *     lost NUMBER                              the cluster knows you with other data than you have
 *
 * Words that a node does not know are passed over. "at" is taken: by node/links.c. */
#include "server/bootstrap.h"
#include "base/clock.h"
#include "base/text.h"
#include "server/cluster.h"
#include "server/founding.h"
#include "server/init_words.h"
#include "server/log.h"
#include "server/membership.h"
#include "server/record.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ROUND_MS 20    /* how often it looks */
#define SPREAD_MS 1000 /* how often it is handed on while nobody leads */
#define NUMBER_MAX 20  /* digits */

static const struct config_cluster *listed(const struct server *server)
{
    return &server->config->cluster;
}

bool bootstrap_is_own(const struct server *server, int i)
{
    return listed(server)->at[i].id == server->config->id;
}

bool bootstrap_waits(const struct server *server)
{
    return server->node && node_waits(server->node);
}

bool bootstrap_say(struct server *server, uint64_t to, const char *address, const char *format, ...)
{
    char text[NODE_WORDS_MAX + 1];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return node_say(server->node, to, address, text);
}

/* ---- what this node is -------------------------------------------------------------------------- */

static void say_what_i_am(struct server *server, const struct node_words *to, uint64_t number)
{
    const struct bootstrap *bootstrap = &server->bootstrap;

    if (node_cluster(server->node)[0])
        bootstrap_say(server, to->from, to->address, "is %" PRIu64 " member %s %s", number,
                      node_cluster(server->node), bootstrap->list);
    else
        bootstrap_say(server, to->from, to->address, "is %" PRIu64 " %s %s %s", number,
                      server->config->join == CONFIG_JOINS ? "joins" : "empty",
                      bootstrap->incarnation_text, bootstrap->list);
}

bool bootstrap_tell(struct server *server, const struct record *record, int i)
{
    char text[MEMBERS_TEXT_MAX + 1];

    record_write(listed(server), record, text);
    return bootstrap_say(server, listed(server)->at[i].id, listed(server)->at[i].address,
                         "found %" PRIu64 " %s %s", server->bootstrap.number,
                         node_cluster(server->node), text);
}

/* ---- the timer ---------------------------------------------------------------------------------- */

/* Step 4. */
static void spread(struct server *server)
{
    struct record record;

    if (replica_leader(server->replica) != 0 || !record_find(server, &record))
        return;
    for (int i = 0; i < listed(server)->count; i++)
        if (!bootstrap_is_own(server, i))
            bootstrap_tell(server, &record, i);
}

/* Not "STOPPED", which a client takes for "try again, perhaps elsewhere": nobody is to wait for this node. */
static void stopped_answer(const struct server *server, char ret_text[ERROR_TEXT_MAX])
{
    snprintf(ret_text, ERROR_TEXT_MAX, "ERR this node has stopped: %.400s",
             server->sessions.stopped_why);
}

static void finish_stopped(struct server *server)
{
    char text[ERROR_TEXT_MAX];

    stopped_answer(server, text);
    founding_finish(server, text);
}

static void stray_answer(const struct server *server, char ret_text[ERROR_TEXT_MAX])
{
    snprintf(ret_text, ERROR_TEXT_MAX,
             "ERR node %" PRIu64
             " is a member of a cluster already, and runs, with other data than "
             "this one, which founds nothing: start this one with an id and an address of its own",
             server->config->id);
}

static void finish_stray(struct server *server)
{
    char text[ERROR_TEXT_MAX];

    stray_answer(server, text);
    founding_finish(server, text);
}

static void on_timer(uv_timer_t *timer)
{
    struct server *server = timer->data;
    struct bootstrap *bootstrap = &server->bootstrap;
    int64_t now_ms = clock_boot_ms();

    if (server->sessions.stopping || !server->replica)
        return;
    if (server->sessions.role == REPLICA_STOPPED) {
        finish_stopped(server);
        return;
    }
    if (bootstrap->phase != BOOTSTRAP_IDLE && cluster_is_stray(server))
        finish_stray(server);
    if (bootstrap->phase != BOOTSTRAP_IDLE) {
        founding_step(server, now_ms);
    } else if (now_ms >= bootstrap->next_ms) {
        bootstrap->next_ms = now_ms + SPREAD_MS;
        spread(server);
        cluster_tell_lost(server);
    }
    uv_timer_start(timer, on_timer, bootstrap->phase == BOOTSTRAP_IDLE ? SPREAD_MS : ROUND_MS, 0);
}

void bootstrap_wake(struct server *server)
{
    uv_timer_start(&server->bootstrap.timer, on_timer, 0, 0);
}

/* ---- what is heard ------------------------------------------------------------------------------ */

static int place_of(const struct server *server, uint64_t id)
{
    for (int i = 0; i < listed(server)->count; i++)
        if (listed(server)->at[i].id == id)
            return i;
    return -1;
}

static enum bootstrap_answer judge(const struct server *server, uint64_t from, const char *what,
                                   const char *of, const char *list)
{
    const struct bootstrap *bootstrap = &server->bootstrap;
    char incarnation_text[INCARNATION_DIGITS + 1];

    snprintf(incarnation_text, sizeof incarnation_text, "%016" PRIx64,
             cluster_incarnation(server, from));
    if (strcmp(what, "member") == 0)
        return strcmp(of, node_cluster(server->node)) == 0 ? MEMBER_FOUNDED : MEMBER_ELSEWHERE;
    if (strcmp(what, "joins") == 0)
        return MEMBER_JOINS;
    if (strcmp(list, bootstrap->list) != 0)
        return MEMBER_DIFFERS;
    if (node_cluster(server->node)[0] && strcmp(incarnation_text, of) != 0)
        return MEMBER_LOST;
    return MEMBER_EMPTY;
}

static void on_is(struct server *server, const struct node_words *words, uint64_t number,
                  const char *rest)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    char what[8], of[CLUSTER_ID_DIGITS + 1], list[MEMBERS_TEXT_MAX + 1];
    int i = place_of(server, words->from);

    if (sscanf(rest, "%7[a-z] %32[0-9a-f] %3071s", what, of, list) != 3 ||
        strlen(of) != (strcmp(what, "member") == 0 ? CLUSTER_ID_DIGITS : INCARNATION_DIGITS))
        return;
    adding_heard(server, words, number, what, of);
    if (i < 0 || number != bootstrap->number)
        return;
    bootstrap->members[i].answer = judge(server, words->from, what, of, list);
    snprintf(bootstrap->members[i].incarnation_text, sizeof bootstrap->members[i].incarnation_text,
             "%.*s", INCARNATION_DIGITS, of);
    snprintf(bootstrap->members[i].list, sizeof bootstrap->members[i].list, "%s", list);
    if (bootstrap->phase != BOOTSTRAP_IDLE)
        bootstrap_wake(server);
}

/* Step 3, at those who are told. */
static void on_found(struct server *server, const struct node_words *words, uint64_t number,
                     const char *rest)
{
    char cluster[CLUSTER_ID_DIGITS + 1], founded[CLUSTER_ID_DIGITS + 1], text[MEMBERS_TEXT_MAX + 1];
    const struct bootstrap *bootstrap = &server->bootstrap;
    struct record record;
    int own = place_of(server, server->config->id);

    if (own < 0 || sscanf(rest, "%32[0-9a-f] %3071s", cluster, text) != 2 ||
        strlen(cluster) != CLUSTER_ID_DIGITS || strcmp(cluster, words->cluster) != 0)
        return;
    if (bootstrap_waits(server) && server->config->join != CONFIG_JOINS &&
        record_read(listed(server), text, &record) &&
        strcmp(record.incarnations[own], bootstrap->incarnation_text) == 0) {
        record_cluster(listed(server), &record, founded);
        if (strcmp(founded, cluster) == 0)
            membership_founded(server, &record);
    }
    say_what_i_am(server, words, number);
}

static void on_init(struct server *server, uint64_t from, uint64_t number)
{
    struct bootstrap *bootstrap = &server->bootstrap;

    for (unsigned i = 0; i < bootstrap->node_count; i++)
        if (bootstrap->nodes[i].id == from) {
            bootstrap->nodes[i].number = number; /* it is being done */
            return;
        }
    if (place_of(server, from) < 0 || bootstrap->node_count == CONFIG_MEMBERS_MAX ||
        bootstrap->phase == BOOTSTRAP_PASSES)
        return;
    bootstrap->nodes[bootstrap->node_count].id = from;
    bootstrap->nodes[bootstrap->node_count++].number = number;
    founding_begin(server);
}

static void on_done(struct server *server, uint64_t from, uint64_t number, const char *rest)
{
    const struct bootstrap *bootstrap = &server->bootstrap;

    if (bootstrap->phase == BOOTSTRAP_PASSES && number == bootstrap->number &&
        from == listed(server)->at[0].id)
        founding_finish(server, rest);
}

void bootstrap_heard(struct server *server, const struct node_words *words)
{
    char what[8], digits[NUMBER_MAX + 1];
    uint64_t number;
    int end = 0;

    if (!server->replica || server->sessions.stopping ||
        sscanf(words->text, "%7[a-z] %20[0-9]%n", what, digits, &end) != 2 ||
        !text_to_u64(digits, UINT64_MAX, &number))
        return;
    end += words->text[end] == ' ';
    if (strcmp(what, "ask") == 0)
        say_what_i_am(server, words, number);
    else if (strcmp(what, "is") == 0)
        on_is(server, words, number, words->text + end);
    else if (strcmp(what, "found") == 0)
        on_found(server, words, number, words->text + end);
    else if (strcmp(what, "init") == 0)
        on_init(server, words->from, number);
    else if (strcmp(what, "lost") == 0)
        cluster_told_lost(server);
    else if (strcmp(what, "done") == 0)
        on_done(server, words->from, number, words->text + end);
}

/* ---- CLUSTER INIT ------------------------------------------------------------------------------- */

enum verdict command_cluster_init(struct session *session, const struct resp_node *value)
{
    struct server *server = server_of(session);
    struct bootstrap *bootstrap = &server->bootstrap;
    char text[ERROR_TEXT_MAX];

    (void)value;
    if (server->sessions.role == REPLICA_STOPPED) {
        stopped_answer(server, text);
        return refuse(session, "%s", text);
    }
    if (!server->has_links)
        return refuse(session,
                      "ERR this node was started without a cluster, and has founded itself: "
                      "there is nothing to do");
    if (bootstrap_waits(server) && server->config->join == CONFIG_JOINS)
        return refuse(session, "ERR this node was started with --join: it waits to be added, with "
                               "'holdfast cluster add' at the cluster that it is to belong to");
    if (cluster_is_stray(server)) {
        stray_answer(server, text);
        return refuse(session, "%s", text);
    }
    if (server->membership.shut_out)
        return refuse(
            session,
            "ERR this node has come back without its data, and founds nothing: mount its "
            "directory, or remove this node and add it under another id; " INIT_OR_RESTORE);
    if (bootstrap->asker_count == BOOTSTRAP_ASKERS_MAX)
        return refuse(session, "TRYAGAIN too many have said CLUSTER INIT at once");
    bootstrap->askers[bootstrap->asker_count++] = request_begin(session);
    founding_begin(server);
    return VERDICT_DONE;
}

/* ---- the beginning and the end ------------------------------------------------------------------ */

void bootstrap_open(struct server *server)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    const struct identity *settled = node_identity(server->node);
    struct replica_member members[CONFIG_MEMBERS_MAX] = {0};
    const struct config_cluster *cluster = listed(server);

    memcpy(bootstrap->incarnation_text, settled->incarnation_text,
           sizeof bootstrap->incarnation_text);
    for (int i = 0; i < cluster->count; i++) {
        members[i].id = cluster->at[i].id;
        snprintf(members[i].address, sizeof members[i].address, "%s", cluster->at[i].address);
    }
    members_text(members, cluster->count, bootstrap->list);
    if (cluster->count == 0)
        return;
    uv_timer_init(server->loop, &bootstrap->timer);
    bootstrap->timer.data = server;
    bootstrap->open = true;
    uv_timer_start(&bootstrap->timer, on_timer, SPREAD_MS, 0);
    if (settled->state != IDENTITY_WAITS && membership_hears_nothing(server))
        log_warning(MEMBERSHIP_HEARS_NOTHING, log_text("cluster", settled->cluster));
    else if (settled->state == IDENTITY_WAITS && server->config->join == CONFIG_JOINS)
        log_info("this node belongs to no cluster yet: it waits to be added, with 'holdfast "
                 "cluster add'");
    else if (settled->state == IDENTITY_WAITS)
        log_warning(
            "this node belongs to no cluster yet, and serves nobody: when all members run, found "
            "the cluster with 'holdfast cluster init'; or add this node to one with 'holdfast "
            "cluster add'",
            log_text("members", bootstrap->list));
}

void bootstrap_close(struct server *server)
{
    struct bootstrap *bootstrap = &server->bootstrap;

    if (!bootstrap->open)
        return;
    bootstrap->open = false;
    uv_close((uv_handle_t *)&bootstrap->timer, NULL);
    bootstrap->node_count = 0; /* they ask again */
    founding_finish(server, "TRYAGAIN the server is being stopped");
}
