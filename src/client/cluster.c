/* cluster.c: the nodes behind a store, for operators. An engine asks once; here it is asked again
 * while nothing was done, as long as the caller wants to wait. */
#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Until no node answers: longer than an engine sticks to one that is silent. */
#define ANYBODY_MS 4000
#define LEADER_MIN_MS 500  /* for finding the leader, even if finding anybody took all the time */
#define UNKNOWN_TRIES 3    /* a look whose answer is lost again and again */
#define BY_ITSELF_MS 500   /* for one server of several, where another has answered already */
#define SILENT_MS 2000     /* since a member was heard: then it may have stopped, and say so */
#define SILENT_EACH_MS 300 /* for asking one that is silent: it is down, or answers at once */
#define SILENT_ALL_MS 1000 /* for all of them: an operator waits */

#define CLUSTER_ID_MAX 64 /* bytes */
#define ROLE_MAX 15

/* A change may take so long: what cannot end in time would only leave in doubt what was refused before, and why. */
#define CHANGE_MS 1500
#define INIT_MS \
    5000 /* a little more than a founding takes, at a node that passes it on (server/founding.c) */
#define NEWCOMER_MS 750 /* a little more than ASK_MS of the server (adding.c) */

struct seen {
    hf_member member; /* its texts are those below */
    char peer[HF_ADDRESS_MAX + 1], client[HF_ADDRESS_MAX + 1];
    struct error_text stopped;
};

struct hf_cluster {
    hf_cluster_info info; /* its texts are those below */
    struct error_text why, trouble, advice;
    char cluster[CLUSTER_ID_MAX + 1], role[ROLE_MAX + 1];
    struct seen seen[HF_MEMBERS_MAX];
};

/* ---- looking --------------------------------------------------------------------------------- */

static void begin(void *context, const hf_cluster_info *about)
{
    hf_cluster *cluster = context;

    cluster->info = *about;
    cluster->info.member_count = 0;
    cluster->info.why = NULL;
    snprintf(cluster->cluster, sizeof cluster->cluster, "%s", about->cluster);
    snprintf(cluster->role, sizeof cluster->role, "%s", about->role);
    snprintf(cluster->trouble.text, sizeof cluster->trouble.text, "%s", about->trouble);
    snprintf(cluster->advice.text, sizeof cluster->advice.text, "%s", about->advice);
    cluster->info.cluster = cluster->cluster;
    cluster->info.role = cluster->role;
    cluster->info.trouble = cluster->trouble.text;
    cluster->info.advice = cluster->advice.text;
}

static int add(void *context, const hf_member *member)
{
    hf_cluster *cluster = context;
    struct seen *seen = &cluster->seen[cluster->info.member_count];

    if (cluster->info.member_count == HF_MEMBERS_MAX)
        return HF_EINTERNAL; /* no server has so many */
    snprintf(seen->peer, sizeof seen->peer, "%s", member->peer);
    snprintf(seen->client, sizeof seen->client, "%s", member->client);
    seen->member = *member;
    seen->member.peer = seen->peer;
    seen->member.client = seen->client;
    seen->stopped.text[0] = '\0';
    seen->member.stopped = seen->stopped.text;
    cluster->info.member_count++;
    return HF_OK;
}

/* *ret_cluster is the answer on success only; else what is in there may be anything. */
static int look(hf_store *store, bool of_leader, int64_t deadline_ms, hf_cluster *ret_cluster,
                struct error_text *err)
{
    struct engine_cluster_sink sink = {ret_cluster, begin, add};
    int unknown = 0, result;

    do {
        result =
            store->engine->cluster_look(store->engine_store, of_leader, &sink, deadline_ms, err);
    } while ((result == HF_EUNREACH || (result == HF_EUNKNOWN && ++unknown < UNKNOWN_TRIES)) &&
             clock_boot_ms() < deadline_ms);
    return result;
}

/* A member, not one that was removed, has stopped or came back without its data: those know nothing of the others. */
static bool is_informed(const hf_cluster *cluster)
{
    return cluster->info.member_count > 0 && !cluster->trouble.text[0] && !cluster->advice.text[0];
}

/* Then there is nothing to wait for: those that have their data are too few to elect anybody. */
static bool majority_lost_data(const hf_cluster *cluster)
{
    size_t voters = 0, lost = 0;

    for (size_t i = 0; i < cluster->info.member_count; i++)
        if (cluster->seen[i].member.votes) {
            voters++;
            lost += cluster->seen[i].member.lost != 0;
        }
    return lost > 0 && voters - lost < voters / 2 + 1;
}

/* The engine takes whichever server answers first. If that is no member, each server of the URL is asked by itself, and *cluster becomes what the
 * first member sees, if there is one. One that leads is left out: ours was looked for, so this one leads another cluster, or does so only now. */
static void look_at_each(const hf_store *store, hf_cluster **cluster)
{
    hf_cluster *other = calloc(1, sizeof *other);
    char *url = malloc(HF_URL_MAX + 1);
    struct error_text ignored;
    bool found = is_informed(*cluster);

    for (size_t i = 0; other && url && !found && cluster_server_url(store, i, url); i++) {
        hf_store *server;

        if (hf_open(url, &server) != HF_OK)
            continue;
        if (look(server, false, clock_after(clock_boot_ms(), BY_ITSELF_MS), other, &ignored) ==
            HF_OK)
            found = is_informed(other) && other->info.leader != other->info.id;
        hf_close(server);
    }
    if (found && !is_informed(*cluster)) {
        hf_cluster *before = *cluster;

        *cluster = other;
        other = before;
    }
    if (url)
        explicit_bzero(url, HF_URL_MAX + 1);
    free(url);
    free(other);
}

/* The node that answered hears nothing of it. A leader knows how far those are that are connected to it. */
static bool is_silent(const hf_cluster *cluster, const struct seen *seen)
{
    const hf_member *member = &seen->member;
    bool disconnected = cluster->info.leader == cluster->info.id && member->behind < 0;

    return member->id != cluster->info.id &&
           (disconnected || member->silent_ms < 0 || member->silent_ms >= SILENT_MS);
}

static bool any_is_silent(const hf_cluster *cluster)
{
    for (size_t i = 0; i < cluster->info.member_count; i++)
        if (is_silent(cluster, &cluster->seen[i]))
            return true;
    return false;
}

/* `other`: what a node says of itself. */
static void note_stopped(hf_cluster *cluster, const hf_cluster *other)
{
    if (strcmp(other->role, "stopped") != 0 || strcmp(other->cluster, cluster->cluster) != 0)
        return;
    for (size_t i = 0; i < cluster->info.member_count; i++)
        if (cluster->seen[i].member.id == other->info.id && is_silent(cluster, &cluster->seen[i]))
            cluster->seen[i].stopped = other->trouble;
}

/* A node that has stopped says nothing to the others, but answers its clients: what the others call silent has a reason, which it knows. */
static void ask_the_silent(const hf_store *store, hf_cluster *cluster)
{
    int64_t until_ms = clock_after(clock_boot_ms(), SILENT_ALL_MS);
    hf_cluster *other = any_is_silent(cluster) ? calloc(1, sizeof *other) : NULL;
    char *url = other ? malloc(HF_URL_MAX + 1) : NULL;
    struct error_text ignored;
    hf_store *server;

    for (size_t i = 0; url && clock_boot_ms() < until_ms && cluster_server_url(store, i, url);
         i++) {
        int64_t most_ms = clock_after(clock_boot_ms(), SILENT_EACH_MS);

        if (hf_open(url, &server) != HF_OK)
            continue;
        if (server->engine->cluster_look(server->engine_store, false,
                                         &(struct engine_cluster_sink){other, begin, add}, most_ms,
                                         &ignored) == HF_OK)
            note_stopped(cluster, other);
        hf_close(server);
    }
    if (url)
        explicit_bzero(url, HF_URL_MAX + 1);
    free(url);
    free(other);
}

/* Anybody first: where no node is there at all, it is said soon, however long the caller would wait
 * for an election. pair: room for two. *ret_which of them has the answer. */
static int look_twice(hf_store *store, int64_t wait_ms, hf_cluster *pair[2], int *ret_which,
                      struct error_text *err)
{
    int64_t began_ms = clock_boot_ms(), until_ms, soonest_ms;
    struct error_text why;
    int result =
        look(store, false, clock_after(began_ms, reach_span(store, ANYBODY_MS)), pair[0], err);

    if (result != HF_OK)
        return result;
    look_at_each(store, &pair[0]);
    /* A node that waits to be added, was removed or has stopped knows of no election that could be waited for. */
    until_ms = pair[0]->trouble.text[0] || pair[0]->advice.text[0] || majority_lost_data(pair[0])
                   ? began_ms
                   : clock_after(began_ms, wait_ms);
    soonest_ms = clock_after(clock_boot_ms(), LEADER_MIN_MS);
    *ret_which = 1;
    result = look(store, true, until_ms > soonest_ms ? until_ms : soonest_ms, pair[1], err);
    if (!is_transient(result))
        return result;
    why = *err;
    /* What was seen at first is old by now. */
    result = look(store, false, clock_after(clock_boot_ms(), ANYBODY_MS), pair[1], err);
    *ret_which = result == HF_OK ? 1 : 0;
    look_at_each(store, &pair[*ret_which]);
    pair[*ret_which]->why = why;
    pair[*ret_which]->info.why = pair[*ret_which]->why.text;
    return HF_OK;
}

/* From cron, say, where the shell's variables are not. */
static int no_cluster(const hf_store *store, struct error_text *err)
{
    if (strcmp(store->info.origin, "default") == 0)
        return error_set(err, HF_ENOTSUP,
                         "no store was named (--on, HOLDFAST_URL, client.conf), and %s, the "
                         "default, is no cluster: that is for holdfast:// stores",
                         store->info.where);
    return error_set(err, HF_ENOTSUP,
                     "%s has no cluster to look after: that is for holdfast:// stores",
                     text_kind(&store->info).text);
}

int cluster_check(const hf_store *store, int64_t wait_ms, struct error_text *err)
{
    int result = store_check(store, err);

    if (result != HF_OK)
        return result;
    if (wait_ms < 0 || wait_ms > HF_DURATION_MAX_MS)
        return error_set(err, HF_EINVAL, "a wait of %lld ms: must be from 0 to a year",
                         (long long)wait_ms);
    if (!store->engine->cluster_look || !store->engine->cluster_change)
        return no_cluster(store, err);
    return HF_OK;
}

int hf_cluster_status(hf_store *store, int64_t wait_ms, hf_cluster **ret_cluster)
{
    struct error_text err = {""};
    hf_cluster *pair[2] = {NULL, NULL};
    int which = 0, result = cluster_check(store, wait_ms, &err);

    if (result == HF_OK && !ret_cluster)
        result = error_set(&err, HF_EINVAL, "nowhere to put the answer");
    if (result == HF_OK) {
        pair[0] = calloc(1, sizeof *pair[0]);
        pair[1] = calloc(1, sizeof *pair[1]);
        result = pair[0] && pair[1] ? look_twice(store, wait_ms, pair, &which, &err)
                                    : error_set(&err, HF_ENOMEM, "out of memory");
    }
    if (result == HF_OK) {
        ask_the_silent(store, pair[which]);
        *ret_cluster = pair[which];
        pair[which] = NULL;
    }
    free(pair[0]);
    free(pair[1]);
    return failure_keep(result, &err);
}

const hf_cluster_info *hf_cluster_about(const hf_cluster *cluster)
{
    return cluster ? &cluster->info : NULL;
}

const hf_member *hf_cluster_member(const hf_cluster *cluster, size_t index)
{
    return cluster && index < cluster->info.member_count ? &cluster->seen[index].member : NULL;
}

void hf_cluster_free(hf_cluster *cluster)
{
    free(cluster);
}

/* ---- changing -------------------------------------------------------------------------------- */

static void sleep_ms(int64_t span_ms)
{
    struct timespec span = {span_ms / 1000, span_ms % 1000 * 1000000};

    while (nanosleep(&span, &span) < 0 && errno == EINTR)
        ;
}

/* Is there time to ask once more? Whether a cluster was founded is not to be left in doubt. A node that is to be added may begin to answer at any moment. The leader looks for it for NEWCOMER_MS before it
 * says that there is nobody. So the last of these questions begins so late that it ends with our time, and its answer is awaited a little longer:
 * nothing is left in doubt. */
static bool has_time(enum engine_change what, int64_t deadline_ms, int64_t *ret_ask_until_ms)
{
    int64_t left_ms = deadline_ms - clock_boot_ms();

    if (what != ENGINE_ADD)
        return left_ms > (what == ENGINE_INIT ? INIT_MS : CHANGE_MS);
    if (left_ms < NEWCOMER_MS)
        return false;
    if (left_ms < 2 * NEWCOMER_MS)
        sleep_ms(left_ms - NEWCOMER_MS);
    *ret_ask_until_ms = clock_after(deadline_ms, CHANGE_MS);
    return true;
}

static int change(hf_store *store, enum engine_change what, uint64_t id, const char *address,
                  int64_t wait_ms)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), wait_ms), ask_until_ms = deadline_ms;
    struct error_text err = {""};
    int result = cluster_check(store, wait_ms, &err);

    if (result == HF_OK &&
        (id > HF_NODE_MAX || (id == 0 && what != ENGINE_TRANSFER && what != ENGINE_INIT)))
        result = error_set(&err, HF_EINVAL, "the id of a node is a number from 1 to 2^32");
    if (result == HF_OK && what == ENGINE_ADD &&
        (!address || !*address || strlen(address) > HF_ADDRESS_MAX))
        result =
            error_set(&err, HF_EINVAL, "the address of a node has 1 to %d bytes", HF_ADDRESS_MAX);
    if (result == HF_OK)
        do
            result = store->engine->cluster_change(store->engine_store, what, id, address,
                                                   ask_until_ms, &err);
        while (result == HF_EUNREACH && has_time(what, deadline_ms, &ask_until_ms));
    return failure_keep(result, &err);
}

int hf_cluster_init(hf_store *store, int64_t wait_ms)
{
    return change(store, ENGINE_INIT, 0, NULL, wait_ms);
}

int hf_cluster_add(hf_store *store, uint64_t id, const char *address, int64_t wait_ms)
{
    return change(store, ENGINE_ADD, id, address, wait_ms);
}

int hf_cluster_remove(hf_store *store, uint64_t id, int64_t wait_ms)
{
    return change(store, ENGINE_REMOVE, id, NULL, wait_ms);
}

int hf_cluster_transfer(hf_store *store, uint64_t id, int64_t wait_ms)
{
    return change(store, ENGINE_TRANSFER, id, NULL, wait_ms);
}
