/* cluster_health.c: holdfast cluster status --health: one line and an exit status, for monitoring.
 *
 * The exit statuses are those of Nagios plugins, which most monitoring systems understand: they are part of the interface, and say nothing
 * about the command itself. A wrong command line is 64, as everywhere. */
#include "base/clock.h"
#include "cli/cluster.h"
#include "cli/json.h"
#include "cli/output.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define BEHIND_MAX 64u /* entries: a follower under load lacks a few at any moment */
/* A new leader has not heard of everybody yet, and whoever is behind should have got further by then: it is asked once more. */
#define AGAIN_MAX_MS 1000u

enum health { HEALTH_OK = 0, HEALTH_DEGRADED = 1, HEALTH_DOWN = 2, HEALTH_UNKNOWN = 3 };

static const struct {
    const char *nagios, *json;
} words[] = {[HEALTH_OK] = {"OK", "ok"},
             [HEALTH_DEGRADED] = {"WARNING", "degraded"},
             [HEALTH_DOWN] = {"CRITICAL", "not serving"},
             [HEALTH_UNKNOWN] = {"UNKNOWN", "unknown"}};

struct finding {
    enum health health;
    char text[CLUSTER_TEXT_MAX];
    unsigned stuck;     /* members that are there, and store nothing */
    bool some_lag;      /* a member lacks entries: that may be nothing, or it may be stuck */
    int64_t between_ms; /* this look and the one before */
};

/* ---- the end of the time ----------------------------------------------------------------------- */

/* A server that takes connections and is silent is given several seconds by the library, which a monitoring system may not have: it would
 * call its own time-out a failure of the check. */
static char late[256];

static void on_late(int number)
{
    ssize_t said = write(STDOUT_FILENO, late, strlen(late));

    (void)number;
    (void)said; /* if that fails, the exit status says it */
    _exit(HEALTH_UNKNOWN);
}

static void limit_time(const struct cli *cli, int64_t wait_ms)
{
    const struct itimerval timer = {
        .it_value = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000}};
    struct sigaction action = {.sa_handler = on_late};

    if (cli->json)
        snprintf(late, sizeof late,
                 "{\"health\":\"unknown\",\"status\":3,\"why\":\"no answer within %s\"}\n",
                 span(wait_ms));
    else
        snprintf(late, sizeof late, "UNKNOWN: no answer within %s\n", span(wait_ms));
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void end_limit(void)
{
    const struct itimerval none = {0};

    setitimer(ITIMER_REAL, &none, NULL);
}

/* ---- what is found ------------------------------------------------------------------------------ */

/* Has it got no further since the look before? */
static bool is_stuck(const hf_cluster *before, const hf_member *member)
{
    const hf_member *then;

    for (size_t i = 0; before && (then = hf_cluster_member(before, i)); i++)
        if (then->id == member->id)
            return then->behind > 0 && member->behind > 0 && then->index == member->index;
    return false;
}

static void degrade(struct finding *finding, const hf_cluster_info *about, const hf_cluster *before,
                    const hf_member *member)
{
    unsigned long long id = (unsigned long long)member->id;
    const char *separator = finding->text[0] ? "; " : "";

    if (member->lost)
        cluster_append(finding->text, sizeof finding->text, "%snode %llu has lost its data",
                       separator, id);
    else if (*member->stopped) /* to its leader it is as silent as if it were down */
        cluster_append(finding->text, sizeof finding->text, "%snode %llu has stopped: %s",
                       separator, id, printable(member->stopped));
    else if (cluster_is_silent(about, member))
        cluster_append(finding->text, sizeof finding->text, "%snode %llu cannot be reached",
                       separator, id);
    else if (!member->votes)
        cluster_append(finding->text, sizeof finding->text,
                       "%snode %llu is catching up, and does not vote yet", separator, id);
    else if (member->behind > (int64_t)BEHIND_MAX)
        cluster_append(finding->text, sizeof finding->text, "%snode %llu is %lld entries behind",
                       separator, id, (long long)member->behind);
    else if (is_stuck(before, member)) {
        finding->stuck++;
        if (member->silent_ms >= finding->between_ms) /* nothing since the look before */
            cluster_append(
                finding->text, sizeof finding->text,
                "%snode %llu is behind, and has said nothing for %s: it hangs, or is cut off",
                separator, id, span(member->silent_ms));
        else
            cluster_append(finding->text, sizeof finding->text,
                           "%snode %llu is behind, and gets no further: see its log and its disk",
                           separator, id);
    } else {
        finding->some_lag = finding->some_lag || member->behind > 0;
        return;
    }
    finding->health = HEALTH_DEGRADED;
}

static void judge_led(const hf_cluster *cluster, const hf_cluster *before,
                      struct finding *ret_finding)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    struct cluster_votes votes = cluster_count_votes(cluster, 0);
    const hf_member *member;

    ret_finding->health = HEALTH_OK;
    for (size_t i = 0; (member = hf_cluster_member(cluster, i)); i++)
        degrade(ret_finding, about, before, member);
    if (ret_finding->health == HEALTH_OK && about->member_count == 1)
        cluster_append(ret_finding->text, sizeof ret_finding->text,
                       "node %llu leads, and is the only member",
                       (unsigned long long)about->leader);
    else if (ret_finding->health == HEALTH_OK)
        cluster_append(ret_finding->text, sizeof ret_finding->text,
                       "node %llu leads, all %zu members are reachable and caught up",
                       (unsigned long long)about->leader, about->member_count);
    if (votes.spare > ret_finding->stuck)
        cluster_append(ret_finding->text, sizeof ret_finding->text, "; %u more may be lost",
                       votes.spare - ret_finding->stuck);
    else
        cluster_append(ret_finding->text, sizeof ret_finding->text,
                       "; 1 more loss and nothing is granted");
}

/* The one that answered knows nothing of the cluster: others may well be served. */
static bool is_outside(const hf_cluster_info *about)
{
    return strcmp(about->role, "removed") == 0;
}

static void judge(const hf_cluster *cluster, const hf_cluster *before, int64_t between_ms,
                  struct finding *ret_finding)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);

    *ret_finding = (struct finding){.health = HEALTH_UNKNOWN, .between_ms = between_ms};
    if (!about->why) {
        judge_led(cluster, before, ret_finding);
    } else if (about->leader == 0) {
        ret_finding->health = is_outside(about) ? HEALTH_UNKNOWN : HEALTH_DOWN;
        cluster_describe_leaderless(cluster, ret_finding->text, sizeof ret_finding->text);
    } else {
        cluster_append(ret_finding->text, sizeof ret_finding->text,
                       "node %llu follows node %llu, which did not answer: %s",
                       (unsigned long long)about->id, (unsigned long long)about->leader,
                       printable(about->why));
    }
}

/* ---- what is said -------------------------------------------------------------------------------- */

static void say_json(const hf_cluster *cluster, const struct finding *finding)
{
    const hf_cluster_info *about = hf_cluster_about(cluster);
    struct json json;

    json_begin(&json);
    json_string(&json, "health", words[finding->health].json);
    json_u64(&json, "status", finding->health);
    json_string(&json, "why", finding->text);
    if (about) {
        struct cluster_votes votes = cluster_count_votes(cluster, 0);

        json_u64(&json, "leader", about->why ? 0 : about->leader);
        json_u64(&json, "term", about->term);
        json_u64(&json, "members", about->member_count);
        json_u64(&json, "voters", votes.voters);
        json_u64(&json, "reachable", votes.reachable);
        json_u64(&json, "may_lose",
                 about->why                     ? 0
                 : votes.spare > finding->stuck ? votes.spare - finding->stuck
                                                : 0);
        json_u64(&json, "answered_by", about->id);
        json_string(&json, "cluster", *about->cluster ? about->cluster : NULL);
    }
    json_end(&json);
}

/* One look, and the one between_ms before it, or NULL. Returns NULL if nobody answers, as the finding says. */
static hf_cluster *look(struct cli *cli, int64_t wait_ms, const hf_cluster *before,
                        int64_t between_ms, struct finding *ret_finding, int *ret_result)
{
    hf_cluster *cluster = NULL;

    *ret_result = hf_cluster_status(cli->store, wait_ms, &cluster);
    if (*ret_result == HF_OK) {
        judge(cluster, before, between_ms, ret_finding);
        return cluster;
    }
    *ret_finding = (struct finding){.health = HEALTH_UNKNOWN};
    cluster_append(ret_finding->text, sizeof ret_finding->text, "%s", printable(hf_error()));
    return NULL;
}

int cluster_health(struct cli *cli, const struct cluster_request *request)
{
    int64_t began_ms = clock_boot_ms(), half_ms = request->wait_ms / 2;
    int64_t again_ms = request->wait_ms / 5 < AGAIN_MAX_MS ? request->wait_ms / 5 : AGAIN_MAX_MS;
    hf_cluster *cluster, *before = NULL;
    struct finding finding;
    int result;

    limit_time(cli, request->wait_ms);
    cluster = look(cli, half_ms, NULL, 0, &finding, &result);
    if ((finding.health == HEALTH_DEGRADED || finding.some_lag) &&
        clock_boot_ms() - began_ms < again_ms) {
        before = cluster;
        poll(NULL, 0, (int)again_ms);
        cluster = look(cli, half_ms, before, again_ms, &finding, &result);
    }
    hf_cluster_free(before);
    end_limit();
    if (status_of(result) == EXIT_USAGE) /* a store that has no cluster */
        return say_result(result);
    if (cli->json)
        say_json(cluster, &finding);
    else
        printf("%s: %s\n", words[finding.health].nagios, finding.text);
    hf_cluster_free(cluster);
    return (int)finding.health;
}
