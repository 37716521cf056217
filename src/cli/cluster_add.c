/* cluster_add.c: holdfast cluster add: takes a node in, and watches it catch up until it votes. */
#include "base/clock.h"
#include "cli/cluster.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define REASON_MS \
    1600 /* for two questions: then it is said what they came to, and the node is waited for */
#define AGAIN_MS 800      /* for one more */
#define LOOK_MS 1000      /* of one look while we wait */
#define LOOK_EVERY_MS 100 /* while we wait */
#define ONCE_MS 1400      /* with --no-wait: too short for asking twice */
#define FIRST_TELL_MS 1000
#define NEXT_TELL_MS 5000
#define SILENT_MAX_MS 10000 /* then we watch no longer, if --wait does not say how long */

struct progress {
    uint64_t id;
    int64_t began_ms, answered_ms, told_ms; /* told: 0, not yet */
    int64_t until_ms;                       /* if --wait was given, when its time is over */
    bool heard;                             /* it has said something to the leader since then */
    int64_t spoke_ms;                       /* it was not silent */
    char told[256];
};

/* What takes so long, but only if it does, and not twice the same. */
static void tell(struct progress *progress, const hf_cluster_info *about, const hf_member *member)
{
    int64_t now_ms = clock_boot_ms();
    char text[sizeof progress->told];

    if (now_ms - progress->began_ms < FIRST_TELL_MS ||
        (progress->told_ms != 0 && now_ms - progress->told_ms < NEXT_TELL_MS))
        return;
    if (cluster_is_silent(about, member) && progress->heard)
        snprintf(text, sizeof text,
                 "node %llu is a member now, does not vote yet, and is silent: has it stopped? Its "
                 "log says why",
                 (unsigned long long)member->id);
    else if (cluster_is_silent(about, member))
        snprintf(
            text, sizeof text,
            "node %llu is a member now, and nothing is heard of it: does it run, with an empty "
            "directory, where its peers look for it (%s)?",
            (unsigned long long)member->id, printable(member->peer));
    else
        snprintf(text, sizeof text, "node %llu is catching up: %lld entries behind",
                 (unsigned long long)member->id, (long long)member->behind);
    if (strcmp(text, progress->told) == 0)
        return;
    say("%s", text);
    snprintf(progress->told, sizeof progress->told, "%s", text);
    progress->told_ms = now_ms;
}

/* We stop watching, and the node is not what it was to become. */
static void say_goes_on(const struct progress *progress)
{
    unsigned long long id = progress->id;

    if (progress->heard)
        say("node %llu goes on catching up, and will vote; 'holdfast cluster status' shows how far "
            "it is, 'holdfast cluster remove %llu' takes it back",
            id, id);
    else
        say("node %llu is a member now, but nothing was heard of it: it does not run, or has "
            "another secret, id or address, or the directory of another cluster: see its log. "
            "'holdfast cluster remove %llu' takes it back",
            id, id);
}

/* Whoever interrupts us only stops watching. */
static void sleep_or_die(struct signals *signals, const struct progress *progress)
{
    struct pollfd fd = {.fd = signals->fd, .events = POLLIN};
    int number;

    poll(&fd, 1, LOOK_EVERY_MS);
    while ((number = signals_take(signals)) != 0) {
        if (number == SIGTSTP) {
            signals_stop(SIGTSTP, false);
        } else if (signals_ends(number)) {
            say_goes_on(progress);
            signals_die(number, false);
        }
    }
}

static bool is_over(const struct cluster_request *request, const struct progress *progress)
{
    return request->waits_so_long && clock_boot_ms() >= progress->until_ms;
}

/* It may be a long time until somebody looks after it. */
static bool is_silent_for_long(const struct cluster_request *request,
                               const struct progress *progress)
{
    return !request->waits_so_long && clock_boot_ms() - progress->spoke_ms >= SILENT_MAX_MS;
}

static void say_silent(const struct progress *progress)
{
    unsigned long long id = progress->id;

    say("node %llu is a member, but does not vote yet, and nothing was heard of it for %s: its log "
        "says why, if it runs. It catches up as soon as it is there again; 'holdfast cluster "
        "remove %llu' takes it back",
        id, span(SILENT_MAX_MS), id);
}

/* Since we added it: one that had this id before may have been heard long ago. */
static bool is_heard(const struct progress *progress, const hf_member *member)
{
    return member->silent_ms >= 0 && member->silent_ms <= clock_boot_ms() - progress->began_ms;
}

static const hf_member *find(const hf_cluster *cluster, uint64_t id)
{
    const hf_member *member;

    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        if (member->id == id)
            return member;
    return NULL;
}

/* One look. EXIT_DONE: it votes. EXIT_BUSY: not yet. */
static int look_whether_it_votes(struct cli *cli, const struct cluster_request *request,
                                 struct progress *progress)
{
    hf_cluster *cluster = NULL;
    const hf_cluster_info *about;
    const hf_member *member;
    int status = EXIT_BUSY, result = hf_cluster_status(cli->store, LOOK_MS, &cluster);

    about = hf_cluster_about(cluster);
    if (result != HF_OK || about->why) {
        if (clock_boot_ms() - progress->answered_ms >= request->wait_ms ||
            is_over(request, progress)) {
            say("node %llu is a member; whether it votes is not known: %s",
                (unsigned long long)request->id, result != HF_OK ? hf_error() : about->why);
            status = EXIT_UNAVAILABLE;
        }
    } else if (!(member = find(cluster, request->id))) {
        say("node %llu was removed by somebody else", (unsigned long long)request->id);
        status = EXIT_UNAVAILABLE;
    } else if (member->votes) {
        status = EXIT_DONE;
    } else {
        progress->heard = progress->heard || is_heard(progress, member);
        if (!cluster_is_silent(about, member))
            progress->spoke_ms = clock_boot_ms();
        tell(progress, about, member);
        progress->answered_ms = clock_boot_ms();
    }
    hf_cluster_free(cluster);
    return status;
}

static int await_vote(struct cli *cli, const struct cluster_request *request, int64_t until_ms)
{
    int64_t now_ms = clock_boot_ms();
    struct progress progress = {.id = request->id,
                                .began_ms = now_ms,
                                .answered_ms = now_ms,
                                .until_ms = until_ms,
                                .spoke_ms = now_ms};
    struct signals signals;
    int status;

    if (!signals_begin(&signals)) {
        say("cannot watch for signals: %s", strerror(errno));
        return EXIT_OURS;
    }
    while ((status = look_whether_it_votes(cli, request, &progress)) == EXIT_BUSY) {
        if (is_over(request, &progress)) {
            say_goes_on(&progress);
            return EXIT_UNAVAILABLE;
        }
        if (is_silent_for_long(request, &progress)) {
            say_silent(&progress);
            return EXIT_UNAVAILABLE;
        }
        sleep_or_die(&signals, &progress);
    }
    return status;
}

static void added_json(const struct cluster_request *request, bool votes)
{
    struct json json;

    json_begin(&json);
    json_u64(&json, "id", request->id);
    json_string(&json, "peer", request->words[1]);
    json_bool(&json, "member", true);
    if (votes)
        json_bool(&json, "votes", true);
    json_end(&json);
}

/* A node that does not answer is waited for, by the library: nothing is changed before it does. Why it does not is said at once. */
static int add_when_it_answers(struct cli *cli, const struct cluster_request *request,
                               int64_t until_ms)
{
    int64_t left_ms = until_ms - clock_boot_ms();
    int result;

    if (request->no_wait)
        return hf_cluster_add(cli->store, request->id, request->words[1], ONCE_MS);
    if (left_ms > REASON_MS + AGAIN_MS) {
        result = hf_cluster_add(cli->store, request->id, request->words[1], REASON_MS);
        if (result != HF_EUNREACH)
            return result;
        say("%s; waiting for it", hf_error());
        left_ms = until_ms - clock_boot_ms();
    }
    return hf_cluster_add(cli->store, request->id, request->words[1], left_ms > 1 ? left_ms : 1);
}

static int say_not_added(const struct cluster_request *request, int result)
{
    if (result != HF_EUNREACH || !request->no_wait)
        return cluster_say_change(request, result);
    say("%s", hf_error());
    return status_of(result);
}

int cluster_add(struct cli *cli, const struct cluster_request *request)
{
    int64_t until_ms = clock_after(clock_boot_ms(), request->wait_ms);
    int status = EXIT_DONE, result;
    hf_cluster *cluster = cluster_ask_leader(cli, request, CLUSTER_NOTHING_CHANGED, &status);

    if (!cluster)
        return status;
    hf_cluster_free(cluster);
    result = add_when_it_answers(cli, request, until_ms);
    if (result != HF_OK)
        return say_not_added(request, result);
    if (!request->no_wait)
        status = await_vote(cli, request, until_ms);
    if (status != EXIT_DONE)
        return status;
    if (cli->json)
        added_json(request, !request->no_wait);
    else
        printf("node %llu is a member%s\n", (unsigned long long)request->id,
               request->no_wait ? ", and votes as soon as it has caught up" : ", and votes");
    return EXIT_DONE;
}
