/* bootstrap.c: see bootstrap.h. What nodes say to each other, as words with a blank between them:
 *
 *     ask NUMBER                               what are you?
 *     is NUMBER empty|joins LIFE LIST          the answer of one that waits
 *     is NUMBER member CLUSTER LIST            and of one that does not
 *     found NUMBER CLUSTER RECORD              the record of a founding, "1=HOST:PORT/LIFE,2=..."; the answer is as above
 *     init NUMBER                              somebody said CLUSTER INIT to me
 *     done NUMBER TEXT                         and this is what to answer
 *     lost NUMBER                              the cluster knows you with other data than you have */
#include "server/bootstrap.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "server/init_words.h"
#include "server/initial_members.h"
#include "server/log.h"
#include "server/membership.h"
#include "server/record.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_MS 20    /* how often it looks */
#define AGAIN_MS 250   /* what is not answered is said again */
#define ASK_MS 1800    /* for all members to answer */
#define TELL_MS 700    /* and to take the record */
#define SPREAD_MS 1000 /* how often it is handed on while nobody leads */
#define NUMBER_MAX 20  /* digits */
#define OR_RESTORE                                                                                \
    "if a majority has lost its data, begin anew with 'holdfastd --restore-from', from a backup " \
    "or the directory of a survivor"

static const struct config_cluster *listed(const struct server *server)
{
    return &server->config->cluster;
}

static bool is_own(const struct server *server, int i)
{
    return listed(server)->at[i].id == server->config->id;
}

static bool waits(const struct server *server)
{
    return server->node && node_waits(server->node);
}

/* False: there is no connection yet. */
static bool say(struct server *server, uint64_t to, const char *address, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static bool say(struct server *server, uint64_t to, const char *address, const char *format, ...)
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
        say(server, to->from, to->address, "is %" PRIu64 " member %s %s", number,
            node_cluster(server->node), bootstrap->list);
    else
        say(server, to->from, to->address, "is %" PRIu64 " %s %s %s", number,
            server->config->join == CONFIG_JOINS ? "joins" : "empty", bootstrap->incarnation_text,
            bootstrap->list);
}

static bool tell(struct server *server, const struct record *record, int i)
{
    char text[MEMBERS_TEXT_MAX + 1];

    record_write(listed(server), record, text);
    return say(server, listed(server)->at[i].id, listed(server)->at[i].address,
               "found %" PRIu64 " %s %s", server->bootstrap.number, node_cluster(server->node),
               text);
}

/* ---- the end of an INIT ------------------------------------------------------------------------- */

/* The i-th of the nodes that passed INIT on to this one. */
static void reply_node(struct server *server, unsigned i, const char *answer)
{
    const struct bootstrap *bootstrap = &server->bootstrap;
    const struct config_member *node = initial_members_find(listed(server), bootstrap->nodes[i].id);

    if (node)
        say(server, node->id, node->address, "done %" PRIu64 " %s", bootstrap->nodes[i].number,
            answer);
}

static void finish(struct server *server, const char *said)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    char answer[ERROR_TEXT_MAX];

    snprintf(answer, sizeof answer, "%s", said);
    for (char *at = answer; *at; at++) /* another node may have said it */
        if (*at < ' ' || *at > '~')
            *at = '?';
    bootstrap->phase = BOOTSTRAP_IDLE;
    for (unsigned i = 0; i < bootstrap->node_count; i++)
        reply_node(server, i, answer);
    bootstrap->node_count = 0;
    for (unsigned i = 0; i < bootstrap->asker_count; i++) {
        struct request *request = bootstrap->askers[i];

        if (strcmp(answer, "OK") == 0)
            resp_write_simple(&request->session->out, answer);
        else
            resp_write_error(&request->session->out, answer);
        request_finish(request);
    }
    bootstrap->asker_count = 0;
}

/* Refuses, naming all that are in the way; to each who asked in its own words. False: nobody is. */
static bool refuse_init(struct server *server, const char *what, bool founded)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    char text[ERROR_TEXT_MAX];
    int count = 0;

    for (int i = 0; i < listed(server)->count; i++)
        count += init_is_in_the_way(server, i, founded);
    if (count == 0)
        return false;
    for (unsigned i = 0; i < bootstrap->node_count; i++) {
        init_words(server, what, founded, bootstrap->nodes[i].id, text);
        reply_node(server, i, text);
    }
    bootstrap->node_count = 0;
    init_words(server, what, founded, server->config->id, text);
    finish(server, text);
    return true;
}

/* ---- the founder -------------------------------------------------------------------------------- */

static bool all_are(const struct server *server, enum bootstrap_answer answer)
{
    for (int i = 0; i < listed(server)->count; i++)
        if (!is_own(server, i) && server->bootstrap.members[i].answer != answer)
            return false;
    return true;
}

static bool all_answered(const struct server *server)
{
    for (int i = 0; i < listed(server)->count; i++)
        if (!is_own(server, i) && server->bootstrap.members[i].answer == MEMBER_SILENT)
            return false;
    return true;
}

static void begin_telling(struct server *server)
{
    struct bootstrap *bootstrap = &server->bootstrap;

    bootstrap->phase = BOOTSTRAP_TELLS;
    bootstrap->founded = true;
    bootstrap->until_ms = clock_boot_ms() + TELL_MS;
    bootstrap->next_ms = 0;
}

/* Step 2. All are empty and list the same. */
static void found(struct server *server)
{
    const struct bootstrap *bootstrap = &server->bootstrap;
    struct record record = {0};

    for (int i = 0; i < listed(server)->count; i++)
        memcpy(record.incarnations[i],
               is_own(server, i) ? bootstrap->incarnation_text
                                 : bootstrap->members[i].incarnation_text,
               sizeof record.incarnations[i]);
    if (membership_founded(server, &record))
        begin_telling(server);
    else
        finish(server, "ERR the cluster cannot be founded: see this node's log");
}

static bool has_lost(const struct server *server)
{
    for (int i = 0; i < listed(server)->count; i++)
        if (!is_own(server, i) && server->bootstrap.members[i].answer == MEMBER_LOST)
            return true;
    return false;
}

/* All have answered, or the time is up. */
static void decide(struct server *server)
{
    struct record record;

    if (membership_hears_nothing(server)) {
        finish(server, "ERR " MEMBERSHIP_HEARS_NOTHING);
        return;
    }
    if (waits(server)) {
        if (!refuse_init(server, "the cluster is not founded, and nothing was changed", false))
            found(server);
        return;
    }
    if (has_lost(server))
        refuse_init(server,
                    "this cluster is founded already, and nothing was changed (mount what was not "
                    "mounted, or remove the members that lost their data, and add them under other "
                    "ids; " OR_RESTORE ")",
                    true);
    else if (all_are(server, MEMBER_FOUNDED))
        finish(server,
               "ERR this cluster is founded already, with all its members: nothing was changed");
    else if (!record_find(server, &record))
        finish(server, "ERR this cluster has been founded already: nodes are added with 'holdfast "
                       "cluster add'");
    else
        begin_telling(server);
}

static void look_at_asking(struct server *server, int64_t now_ms)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    bool said = true;

    if (all_answered(server) || now_ms >= bootstrap->until_ms) {
        decide(server);
        return;
    }
    if (now_ms < bootstrap->next_ms)
        return;
    for (int i = 0; i < listed(server)->count; i++)
        if (!is_own(server, i) && bootstrap->members[i].answer == MEMBER_SILENT)
            said = say(server, listed(server)->at[i].id, listed(server)->at[i].address,
                       "ask %" PRIu64, bootstrap->number) &&
                   said;
    bootstrap->next_ms = now_ms + (said ? AGAIN_MS : 0);
}

static bool is_hopeless(const struct bootstrap_member *member)
{
    return member->answer != MEMBER_SILENT && member->answer != MEMBER_EMPTY &&
           member->answer != MEMBER_FOUNDED;
}

static void look_at_telling(struct server *server, int64_t now_ms)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    bool hopeless = true, said = true, now = now_ms >= bootstrap->next_ms;
    struct record record;

    if (all_are(server, MEMBER_FOUNDED)) {
        finish(server, "OK");
        return;
    }
    if (now && !record_find(server, &record))
        now = false; /* somebody leads, and has changed the members: it sends its log */
    for (int i = 0; i < listed(server)->count; i++) {
        const struct bootstrap_member *member = &bootstrap->members[i];

        if (is_own(server, i) || member->answer == MEMBER_FOUNDED || is_hopeless(member))
            continue;
        hopeless = false;
        if (now)
            said = tell(server, &record, i) && said;
    }
    if (now)
        bootstrap->next_ms = now_ms + (said ? AGAIN_MS : 0);
    if (hopeless || now_ms >= bootstrap->until_ms)
        refuse_init(
            server,
            "the cluster is founded, but not all of its members know (those that wait are told "
            "as soon as they answer)",
            true);
}

/* ---- passing it on ------------------------------------------------------------------------------ */

static void look_at_passing(struct server *server, int64_t now_ms)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    const struct config_member *founder = &listed(server)->at[0];
    char text[ERROR_TEXT_MAX];
    bool said;

    if (now_ms >= bootstrap->until_ms) {
        snprintf(text, sizeof text,
                 bootstrap->asked ? "UNKNOWN node %" PRIu64
                                    " at %s founds the cluster, and has not "
                                    "answered: ask again, which does no harm"
                                  : "ERR the cluster is not founded, and nothing was changed: "
                                    "node %" PRIu64 " at %s does not answer (does it run there, "
                                    "and with the same secret?)",
                 founder->id, founder->address);
        finish(server, text);
        return;
    }
    if (now_ms < bootstrap->next_ms)
        return;
    said = say(server, founder->id, founder->address, "init %" PRIu64, bootstrap->number);
    bootstrap->asked = said || bootstrap->asked;
    bootstrap->next_ms = now_ms + (said ? AGAIN_MS : 0);
}

/* ---- the timer ---------------------------------------------------------------------------------- */

/* Step 4. */
static void spread(struct server *server)
{
    struct record record;

    if (replica_leader(server->replica) != 0 || !record_find(server, &record))
        return;
    for (int i = 0; i < listed(server)->count; i++)
        if (!is_own(server, i))
            tell(server, &record, i);
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
    finish(server, text);
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
    finish(server, text);
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
    switch (bootstrap->phase) {
    case BOOTSTRAP_ASKS:
        look_at_asking(server, now_ms);
        break;
    case BOOTSTRAP_TELLS:
        look_at_telling(server, now_ms);
        break;
    case BOOTSTRAP_PASSES:
        look_at_passing(server, now_ms);
        break;
    case BOOTSTRAP_IDLE:
        if (now_ms >= bootstrap->next_ms) {
            bootstrap->next_ms = now_ms + SPREAD_MS;
            spread(server);
            cluster_tell_lost(server);
        }
        break;
    }
    uv_timer_start(timer, on_timer, bootstrap->phase == BOOTSTRAP_IDLE ? SPREAD_MS : ROUND_MS, 0);
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
        uv_timer_start(&bootstrap->timer, on_timer, 0, 0);
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
    if (waits(server) && server->config->join != CONFIG_JOINS &&
        record_read(listed(server), text, &record) &&
        strcmp(record.incarnations[own], bootstrap->incarnation_text) == 0) {
        record_cluster(listed(server), &record, founded);
        if (strcmp(founded, cluster) == 0)
            membership_founded(server, &record);
    }
    say_what_i_am(server, words, number);
}

static void begin_init(struct server *server);

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
    begin_init(server);
}

static void on_done(struct server *server, uint64_t from, uint64_t number, const char *rest)
{
    const struct bootstrap *bootstrap = &server->bootstrap;

    if (bootstrap->phase == BOOTSTRAP_PASSES && number == bootstrap->number &&
        from == listed(server)->at[0].id)
        finish(server, rest);
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

/* One at a time: whoever asks meanwhile gets the same answer. */
static void begin_init(struct server *server)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    bool passes = waits(server) && !is_own(server, 0);

    if (bootstrap->phase != BOOTSTRAP_IDLE)
        return;
    bootstrap->phase = passes ? BOOTSTRAP_PASSES : BOOTSTRAP_ASKS;
    random_fill(&bootstrap->number, sizeof bootstrap->number);
    bootstrap->asked = bootstrap->founded = false;
    bootstrap->until_ms = clock_boot_ms() + ASK_MS + (passes ? TELL_MS + AGAIN_MS : 0);
    bootstrap->next_ms = 0;
    for (int i = 0; i < CONFIG_MEMBERS_MAX; i++)
        bootstrap->members[i].answer = MEMBER_SILENT;
    uv_timer_start(&bootstrap->timer, on_timer, 0, 0);
}

enum verdict command_cluster_init(struct session *session, const struct resp_node *value)
{
    struct server *server = server_of(session);
    struct bootstrap *bootstrap = &server->bootstrap;
    char text[ERROR_TEXT_MAX];

    if (value->count != 2)
        return refuse(session, "ERR CLUSTER INIT takes no arguments");
    if (server->sessions.role == REPLICA_STOPPED) {
        stopped_answer(server, text);
        return refuse(session, "%s", text);
    }
    if (!server->has_links)
        return refuse(session,
                      "ERR this node was started without a cluster, and has founded itself: "
                      "there is nothing to do");
    if (waits(server) && server->config->join == CONFIG_JOINS)
        return refuse(session, "ERR this node was started with --join: it waits to be added, with "
                               "'holdfast cluster add' at the cluster that it is to belong to");
    if (cluster_is_stray(server)) {
        stray_answer(server, text);
        return refuse(session, "%s", text);
    }
    if (server->shut_out)
        return refuse(session,
                      "ERR this node has come back without its data, and founds nothing: mount its "
                      "directory, or remove this node and add it under another id; " OR_RESTORE);
    if (bootstrap->asker_count == BOOTSTRAP_ASKERS_MAX)
        return refuse(session, "TRYAGAIN too many have said CLUSTER INIT at once");
    bootstrap->askers[bootstrap->asker_count++] = request_begin(session);
    begin_init(server);
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
    finish(server, "TRYAGAIN the server is being stopped");
}
