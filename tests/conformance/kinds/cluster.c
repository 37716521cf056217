/* cluster.c: clusters of holdfastd for the suite, and what happens to their leaders meanwhile.
 *
 * The warden has them all (warden.h), and is told:
 *
 *     n   a cluster for a test                  it says its ports
 *     s   the same, and nothing happens to it
 *     e   the test is over                      it says 0 when all nodes that were killed came back
 *
 * A fresh cluster needs a second or more until somebody leads it: most tests do not take that long. So some are
 * always being started for the tests to come.
 *
 * The first fault comes soon after a test has begun, at random, so that each test has its own to live with, and
 * then one every FAULT_EVERY_MS. */
#include "servers.h"
#include "suite.h"
#include "warden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLUSTERS_MAX 4 /* in use by one test */
#define SPARES 4
#define FIRST_FAULT_DOUBLINGS 9u /* the first fault comes within 1 ms, or 2, 4, ... 256 ms */
#define FAULT_EVERY_MS 5000
#define PAUSED_MS 2500
#define AGAIN_MS 20 /* there is no leader to do something to just now */

/* ---- the warden ------------------------------------------------------------------------------ */

struct ward {
    bool in_use;
    struct cluster cluster;
    int64_t fault_ms; /* INT64_MAX: none */
    int paused;       /* a node, -1: none */
    int64_t resume_ms;
};

static struct ward wards[CLUSTERS_MAX];
static struct cluster spares[SPARES];
static int spare_count;
static enum fault fault;
static int faults; /* so far */

static void refill(void)
{
    while (spare_count < SPARES)
        if (cluster_begin(&spares[spare_count++]) < 0)
            _exit(1);
}

static void give_out(bool steady)
{
    struct ward *ward = wards;
    int ports[CLUSTER_NODES];

    while (ward < wards + CLUSTERS_MAX && ward->in_use)
        ward++;
    if (ward == wards + CLUSTERS_MAX || cluster_await(&spares[0]) < 0)
        _exit(1);
    *ward = (struct ward){.in_use = true, .cluster = spares[0], .paused = -1};
    memmove(spares, spares + 1, sizeof *spares * (size_t)--spare_count);
    ward->fault_ms =
        steady || fault == FAULT_NONE ? INT64_MAX : warden_first_fault(FIRST_FAULT_DOUBLINGS);
    for (int i = 0; i < CLUSTER_NODES; i++)
        ports[i] = ward->cluster.nodes[i].port;
    warden_say(ports, sizeof ports);
    refill();
}

static bool has_ended(const struct holdfastd *node)
{
    siginfo_t how = {0};

    /* WNOWAIT: whoever stops it waits for it. */
    return waitid(P_PID, (id_t)node->pid, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid;
}

static void take_back(void)
{
    int missing = 0;

    for (struct ward *ward = wards; ward < wards + CLUSTERS_MAX; ward++) {
        if (!ward->in_use)
            continue;
        for (int i = 0; i < CLUSTER_NODES; i++)
            missing += has_ended(&ward->cluster.nodes[i]);
        cluster_stop(&ward->cluster);
        ward->in_use = false;
    }
    warden_say(&missing, sizeof missing);
}

static void do_harm(struct ward *ward)
{
    int leader = cluster_leader(&ward->cluster);

    if (leader < 0) {
        ward->fault_ms = now_ms() + AGAIN_MS;
        return;
    }
    ward->fault_ms = now_ms() + FAULT_EVERY_MS;
    faults++;
    if (fault == FAULT_KILL && holdfastd_begin_again(&ward->cluster.nodes[leader]) < 0)
        _exit(1);
    if (fault == FAULT_PAUSE) {
        if (holdfastd_pause(&ward->cluster.nodes[leader]) < 0)
            _exit(1);
        ward->paused = leader;
        ward->resume_ms = now_ms() + PAUSED_MS;
    }
}

/* Does what is due; returns when to look again. */
static int64_t look_after(struct ward *ward)
{
    if (!ward->in_use)
        return INT64_MAX;
    if (ward->paused >= 0 && now_ms() >= ward->resume_ms) {
        if (holdfastd_resume(&ward->cluster.nodes[ward->paused]) < 0)
            _exit(1);
        ward->paused = -1;
    }
    if (now_ms() >= ward->fault_ms)
        do_harm(ward);
    return ward->paused >= 0 && ward->resume_ms < ward->fault_ms ? ward->resume_ms : ward->fault_ms;
}

static int look_after_all(void)
{
    int64_t next_ms = INT64_MAX;

    for (struct ward *ward = wards; ward < wards + CLUSTERS_MAX; ward++) {
        int64_t ward_ms = look_after(ward);

        next_ms = ward_ms < next_ms ? ward_ms : next_ms;
    }
    return warden_until(next_ms);
}

static void obey(char order)
{
    if (order == 'e')
        take_back();
    else
        give_out(order == 's');
}

static void end(void)
{
    for (int i = 0; i < spare_count; i++)
        cluster_stop(&spares[i]);
    if (fault != FAULT_NONE)
        printf("leaders were %s %d times\n", fault == FAULT_KILL ? "killed" : "paused", faults);
}

/* ---- the side of the suite ------------------------------------------------------------------- */

static int start_warden(enum fault its_fault)
{
    static const struct warden warden = {refill, look_after_all, obey, end};

    fault = its_fault;
    return warden_start(&warden);
}

static int start(char ret_url[URL_SIZE])
{
    (void)ret_url; /* each directory has its own */
    return start_warden(FAULT_NONE);
}

static int start_killed(char ret_url[URL_SIZE])
{
    (void)ret_url;
    return start_warden(FAULT_KILL);
}

static int start_paused(char ret_url[URL_SIZE])
{
    (void)ret_url;
    return start_warden(FAULT_PAUSE);
}

static int start_for(const char *dir, char ret_url[URL_SIZE])
{
    struct cluster cluster = {0};
    int ports[CLUSTER_NODES];

    (void)dir;
    if (warden_tell(steady_server ? 's' : 'n', ports, sizeof ports) < 0)
        return -1;
    for (int i = 0; i < CLUSTER_NODES; i++)
        cluster.nodes[i].port = ports[i];
    cluster_url(&cluster, 0, ret_url, URL_SIZE);
    return 0;
}

/* Ends the run if something is wrong: without its servers no test means anything. */
static void stop_all(void)
{
    int missing = 0;

    if (warden_tell('e', &missing, sizeof missing) == 0 && missing == 0)
        return;
    fprintf(stderr, "%d nodes that were killed did not come back\n", missing);
    exit(1);
}

#define CLUSTER_KIND(its_name, its_start, leaders_do_fall)                                  \
    {                                                                                       \
        .name = its_name, .start = its_start, .start_for = start_for, .stop_all = stop_all, \
        .stop = warden_stop, .shows_waiters = true, .time_max_s = TIME_MAX_NETWORK_S,       \
        .leaders_fall = leaders_do_fall                                                     \
    }

const struct store_kind cluster_kinds[] = {
    CLUSTER_KIND("holdfast-cluster", start, false),
    CLUSTER_KIND("holdfast-cluster-killed", start_killed, true),
    CLUSTER_KIND("holdfast-cluster-paused", start_paused, true),
    {0},
};
