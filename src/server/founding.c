/* founding.c: see founding.h. The steps are those of bootstrap.h. */
#include "server/founding.h"
#include "base/clock.h"
#include "base/random.h"
#include "server/bootstrap.h"
#include "server/init_words.h"
#include "server/initial_members.h"
#include "server/membership.h"
#include "server/record.h"
#include "server/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AGAIN_MS 250 /* what is not answered is said again */
#define ASK_MS 1800  /* for all members to answer */
#define TELL_MS 2000 /* and to take the record, on a disk that others use */

static const struct config_cluster *listed(const struct server *server)
{
    return &server->config->cluster;
}

/* ---- the end ------------------------------------------------------------------------------------ */

/* The i-th of the nodes that passed INIT on to this one. */
static void reply_node(struct server *server, unsigned i, const char *answer)
{
    const struct bootstrap *bootstrap = &server->bootstrap;
    const struct config_member *node = initial_members_find(listed(server), bootstrap->nodes[i].id);

    if (node)
        bootstrap_say(server, node->id, node->address, "done %" PRIu64 " %s",
                      bootstrap->nodes[i].number, answer);
}

void founding_finish(struct server *server, const char *said)
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

        if (strcmp(answer, "OK") != 0) {
            request_fail(request, answer);
            continue;
        }
        resp_write_simple(&request->session->out, answer);
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
    founding_finish(server, text);
    return true;
}

/* ---- the founder -------------------------------------------------------------------------------- */

static bool all_are(const struct server *server, enum bootstrap_answer answer)
{
    for (int i = 0; i < listed(server)->count; i++)
        if (!bootstrap_is_own(server, i) && server->bootstrap.members[i].answer != answer)
            return false;
    return true;
}

static bool all_answered(const struct server *server)
{
    for (int i = 0; i < listed(server)->count; i++)
        if (!bootstrap_is_own(server, i) && server->bootstrap.members[i].answer == MEMBER_SILENT)
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
               bootstrap_is_own(server, i) ? bootstrap->incarnation_text
                                           : bootstrap->members[i].incarnation_text,
               sizeof record.incarnations[i]);
    if (membership_founded(server, &record))
        begin_telling(server);
    else
        founding_finish(server, "ERR the cluster cannot be founded: see this node's log");
}

static bool has_lost(const struct server *server)
{
    for (int i = 0; i < listed(server)->count; i++)
        if (!bootstrap_is_own(server, i) && server->bootstrap.members[i].answer == MEMBER_LOST)
            return true;
    return false;
}

/* All have answered, or the time is up. */
static void decide(struct server *server)
{
    struct record record;

    if (membership_hears_nothing(server)) {
        founding_finish(server, "ERR " MEMBERSHIP_HEARS_NOTHING);
        return;
    }
    if (bootstrap_waits(server)) {
        if (!refuse_init(server, "the cluster is not founded, and nothing was changed", false))
            found(server);
        return;
    }
    if (has_lost(server))
        refuse_init(server,
                    "this cluster is founded already, and nothing was changed (mount what was not "
                    "mounted, or remove the members that lost their data, and add them under other "
                    "ids; " INIT_OR_RESTORE ")",
                    true);
    else if (all_are(server, MEMBER_FOUNDED))
        founding_finish(
            server,
            "ERR this cluster is founded already, with all its members: nothing was changed");
    else if (!record_find(server, &record))
        founding_finish(server,
                        "ERR this cluster has been founded already: nodes are added with 'holdfast "
                        "cluster add'");
    else
        begin_telling(server);
}

/* Those from that place on. False: not all could be asked. */
static bool ask_silent(struct server *server, int from)
{
    const struct bootstrap *bootstrap = &server->bootstrap;
    bool said = true;

    for (int i = from; i < listed(server)->count; i++)
        if (!bootstrap_is_own(server, i) && bootstrap->members[i].answer == MEMBER_SILENT)
            said = bootstrap_say(server, listed(server)->at[i].id, listed(server)->at[i].address,
                                 "ask %" PRIu64, bootstrap->number) &&
                   said;
    return said;
}

static void look_at_asking(struct server *server, int64_t now_ms)
{
    struct bootstrap *bootstrap = &server->bootstrap;

    if (all_answered(server) || now_ms >= bootstrap->until_ms) {
        decide(server);
        return;
    }
    if (now_ms < bootstrap->next_ms)
        return;
    bootstrap->next_ms = now_ms + (ask_silent(server, 0) ? AGAIN_MS : 0);
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
        founding_finish(server, "OK");
        return;
    }
    if (now && !record_find(server, &record))
        now = false; /* somebody leads, and has changed the members: it sends its log */
    for (int i = 0; i < listed(server)->count; i++) {
        const struct bootstrap_member *member = &bootstrap->members[i];

        if (bootstrap_is_own(server, i) || member->answer == MEMBER_FOUNDED || is_hopeless(member))
            continue;
        hopeless = false;
        if (now)
            said = bootstrap_tell(server, &record, i) && said;
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

    if (now_ms >= bootstrap->until_ms && !bootstrap->asked) {
        refuse_init(server, "the cluster is not founded, and nothing was changed", false);
        return;
    }
    if (now_ms >= bootstrap->until_ms) {
        snprintf(text, sizeof text,
                 "UNKNOWN node %" PRIu64 " at %s founds the cluster, and has not answered: ask "
                 "again, which does no harm",
                 founder->id, founder->address);
        founding_finish(server, text);
        return;
    }
    if (now_ms < bootstrap->next_ms)
        return;
    said = bootstrap_say(server, founder->id, founder->address, "init %" PRIu64, bootstrap->number);
    bootstrap->asked = said || bootstrap->asked;
    if (!bootstrap->asked) /* is it the founder's fault, or ours? */
        ask_silent(server, 1);
    bootstrap->next_ms = now_ms + (said ? AGAIN_MS : 0);
}

/* ---- the beginning, and each look ------------------------------------------------------------------ */

void founding_begin(struct server *server)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    bool passes = bootstrap_waits(server) && !bootstrap_is_own(server, 0);

    if (bootstrap->phase != BOOTSTRAP_IDLE)
        return;
    bootstrap->phase = passes ? BOOTSTRAP_PASSES : BOOTSTRAP_ASKS;
    random_fill(&bootstrap->number, sizeof bootstrap->number);
    bootstrap->asked = bootstrap->founded = false;
    bootstrap->until_ms = clock_boot_ms() + ASK_MS + (passes ? TELL_MS + AGAIN_MS : 0);
    bootstrap->next_ms = 0;
    for (int i = 0; i < CONFIG_MEMBERS_MAX; i++)
        bootstrap->members[i].answer = MEMBER_SILENT;
    bootstrap_wake(server);
}

void founding_step(struct server *server, int64_t now_ms)
{
    switch (server->bootstrap.phase) {
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
        break;
    }
}
