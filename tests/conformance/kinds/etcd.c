/* etcd.c: three nodes of etcd, which all tests share: each has a prefix of its own.
 *
 * Where nodes fail, the warden has the cluster (warden.h): every few seconds it kills one of the nodes, in turn, and starts it
 * again; or pauses the leader for longer than the leases that the tests wait for. It is told 's' before a test that is to be spared, 'n'
 * before any other. Before the former, and some of the latter, it waits until all nodes serve. */
#include "etcd.h"
#include "suite.h"
#include "warden.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_FAULT_DOUBLINGS 10u /* the first fault comes within 1 ms, or 2, 4, ... 512 ms */
#define FAULT_EVERY_MS 4000
#define OWN_FAULT_EVERY \
    3 /* so many tests, without HF_SOAK: until all nodes are back takes longer than most tests do */
#define PAUSED_MS 2500
#define BACK_AFTER_MS 700
#define FAILING_TIMEOUT "500ms" /* most of a test's patience is not to be spent on one server */
#define AGAIN_MS 20             /* there is nothing to do something to just now */

static struct etcd_cluster cluster;
static char url[URL_SIZE];

static void stop(void)
{
    etcd_cluster_stop(&cluster);
}

static int start(char ret_url[URL_SIZE])
{
    if (etcd_cluster_start(&cluster) < 0)
        return -1;
    etcd_cluster_url(&cluster, ret_url, URL_SIZE);
    return 0;
}

/* ---- the warden ------------------------------------------------------------------------------ */

static enum fault fault;
static int faults, victim = -1;
static int64_t next_ms = INT64_MAX; /* of the next fault, or of the end of this one */

static void end_fault(void)
{
    if (victim < 0)
        return;
    if (fault == FAULT_KILL ? etcd_node_begin_again(&cluster, victim) < 0
                            : etcd_node_resume(&cluster.nodes[victim]) < 0)
        _exit(1);
    victim = -1;
}

/* Never two at once: a majority is needed. */
static void await_whole(void)
{
    int64_t deadline_ms = now_ms() + 3 * PATIENCE_MS;

    while (!etcd_cluster_is_whole(&cluster)) {
        if (now_ms() > deadline_ms) {
            fprintf(stderr, "not all nodes of etcd came back\n");
            _exit(1);
        }
        sleep_ms(5);
    }
}

static void begin_fault(void)
{
    if (!etcd_cluster_is_whole(&cluster))
        return;
    victim = fault == FAULT_KILL ? faults % ETCD_NODES : etcd_cluster_leader(&cluster);
    if (victim < 0)
        return;
    faults++;
    if (fault == FAULT_KILL)
        etcd_node_kill9(&cluster.nodes[victim]);
    else if (etcd_node_pause(&cluster.nodes[victim]) < 0)
        _exit(1);
}

static void go_on(void)
{
    if (victim >= 0) {
        end_fault();
        next_ms = now_ms() + FAULT_EVERY_MS;
    } else {
        begin_fault();
        next_ms = now_ms() + (victim < 0            ? AGAIN_MS
                              : fault == FAULT_KILL ? BACK_AFTER_MS
                                                    : PAUSED_MS);
    }
}

static int look_after(void)
{
    if (next_ms != INT64_MAX && now_ms() >= next_ms)
        go_on();
    return warden_until(next_ms);
}

static void obey(char order)
{
    static int tests;
    int own_fault_every = getenv("HF_SOAK") ? 1 : OWN_FAULT_EVERY;

    if (order == 's' || next_ms == INT64_MAX || tests++ % own_fault_every == 0) {
        end_fault();
        await_whole();
        next_ms = order == 's' ? INT64_MAX : warden_first_fault(FIRST_FAULT_DOUBLINGS);
    }
    warden_say(&order, 1);
}

static void begin(void)
{
    if (start(url) < 0)
        _exit(1);
    warden_say(url, sizeof url);
}

static void end(void)
{
    stop();
    printf("nodes were %s %d times\n", fault == FAULT_KILL ? "killed" : "paused", faults);
}

/* ---- the side of the suite ------------------------------------------------------------------- */

static int start_warden(enum fault its_fault)
{
    static const struct warden warden = {begin, look_after, obey, end};

    fault = its_fault;
    return warden_start(&warden) == 0 ? warden_hear(url, sizeof url) : -1;
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

/* A prefix for each directory, and the warden is told of each test. */
static int start_for(const char *dir, char ret_url[URL_SIZE])
{
    char order = steady_server ? 's' : 'n';
    int used;

    if (warden_tell(order, &order, 1) < 0)
        return -1;
    used = snprintf(ret_url, URL_SIZE, url, dir + 1);
    snprintf(ret_url + used, URL_SIZE - (size_t)used, "?timeout=" FAILING_TIMEOUT);
    return 0;
}

#define FAILING_KIND(its_name, its_start)                                                  \
    {                                                                                      \
        .name = its_name, .start = its_start, .start_for = start_for, .stop = warden_stop, \
        .shows_waiters = true, .time_max_s = TIME_MAX_NETWORK_S, .leaders_fall = true,     \
        .short_ttl_ms = 1000                                                               \
    }

const struct store_kind etcd_kinds[] = {
    {.name = "etcd",
     .start = start,
     .stop = stop,
     .shows_waiters = true,
     .time_max_s = TIME_MAX_NETWORK_S,
     .short_ttl_ms = 1000},
    FAILING_KIND("etcd-killed", start_killed),
    FAILING_KIND("etcd-paused", start_paused),
    {0},
};
