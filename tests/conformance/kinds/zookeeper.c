/* zookeeper.c: three ZooKeeper servers, and what happens to them meanwhile.
 *
 * Java takes a second or two to start, so one ensemble serves all tests, each of which has a root of its own. The warden has it
 * (warden.h), and is told:
 *
 *     n   a test begins
 *     s   the same, and nothing may happen in it: it answers when all servers are there
 *     e   the test is over
 *
 * A fault comes whenever all servers are there
 * and a test may have one: at some time of it, at random. */
#include "zookeeper.h"

#include "base/text.h"
#include "servers.h"
#include "suite.h"
#include "warden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULT_WITHIN_MS 512 /* of all servers being there */
#define FAULT_EVERY_MS 3000
#define PAUSED_MS \
    3000 /* sessions for SHORT_TTL_MS take a good second, another leader another one */
#define LOOK_MS 100

/* ---- the warden ------------------------------------------------------------------------------ */

static enum fault fault;
static struct ensemble ensemble;
static int faults; /* so far */
static int64_t fault_ms;
static bool calm = true;

static int paused_node(void)
{
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        if (ensemble.nodes[i].paused)
            return i;
    return -1;
}

static void do_harm(void)
{
    int node =
        fault == FAULT_PAUSE ? ensemble_leader(&ensemble) : (int)warden_draw(ZOOKEEPER_NODES);

    if (node < 0)
        return;
    faults++;
    if (fault == FAULT_KILL && zookeeper_begin_again(&ensemble.nodes[node]) < 0)
        _exit(1);
    if (fault == FAULT_PAUSE && zookeeper_pause(&ensemble.nodes[node]) < 0)
        _exit(1);
}

static void heal(void)
{
    int paused = paused_node();

    if (paused >= 0 && zookeeper_resume(&ensemble.nodes[paused]) < 0)
        _exit(1);
    if (ensemble_await_whole(&ensemble) < 0)
        _exit(1);
}

static void go_on(void)
{
    int64_t now = now_ms();
    int paused = paused_node();

    if (paused >= 0) {
        if (zookeeper_resume(&ensemble.nodes[paused]) < 0)
            _exit(1);
        fault_ms = now + FAULT_EVERY_MS;
    } else if (!ensemble_is_whole(&ensemble)) {
        fault_ms = now + LOOK_MS;
    } else {
        do_harm();
        fault_ms = now_ms() + (fault == FAULT_PAUSE ? PAUSED_MS : FAULT_EVERY_MS);
    }
}

static int look_after(void)
{
    if (calm || fault == FAULT_NONE)
        return -1;
    if (now_ms() >= fault_ms)
        go_on();
    return warden_until(fault_ms);
}

static void obey(char order)
{
    if (order == 's')
        heal();
    /* Soon, unless one is under way. */
    if (order == 'n' && paused_node() < 0)
        fault_ms = now_ms() + warden_draw(FAULT_WITHIN_MS);
    calm = order != 'n';
    warden_say(&order, 1);
}

static void begin(void)
{
    int ports[ZOOKEEPER_NODES];

    if (ensemble_start_with(&ensemble, fault == FAULT_PAUSE ? "syncLimit=4" : "") < 0)
        _exit(1);
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        ports[i] = ensemble.nodes[i].port;
    warden_say(ports, sizeof ports);
}

static void end(void)
{
    ensemble_stop(&ensemble);
    if (fault == FAULT_KILL)
        printf("servers were killed %d times\n", faults);
    if (fault == FAULT_PAUSE)
        printf("leaders were paused %d times\n", faults);
}

/* ---- the side of the suite ------------------------------------------------------------------- */

static char servers_url[URL_SIZE];

static int start_warden(enum fault its_fault)
{
    static const struct warden warden = {begin, look_after, obey, end};
    struct ensemble seen = {0};
    int ports[ZOOKEEPER_NODES];

    fault = its_fault;
    if (warden_start(&warden) < 0 || warden_hear(ports, sizeof ports) < 0)
        return -1;
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        seen.nodes[i].port = ports[i];
    ensemble_url(&seen, servers_url, sizeof servers_url);
    return 0;
}

static int start_plain(char ret_url[URL_SIZE])
{
    (void)ret_url; /* each directory has its own */
    return start_warden(FAULT_NONE);
}

static int start_killed(char ret_url[URL_SIZE])
{
    (void)ret_url; /* each directory has its own */
    return start_warden(FAULT_KILL);
}

static int start_paused(char ret_url[URL_SIZE])
{
    (void)ret_url; /* each directory has its own */
    return start_warden(FAULT_PAUSE);
}

/* A directory of the test is a root of the store. */
static int start_for(const char *dir, char ret_url[URL_SIZE])
{
    size_t used = (size_t)snprintf(ret_url, URL_SIZE, "%s", servers_url);
    char order;

    if (warden_tell(steady_server ? 's' : 'n', &order, 1) < 0)
        return -1;
    return used + text_percent_encode(dir, strlen(dir), "/-._~", ret_url + used, URL_SIZE - used) <
                   URL_SIZE
               ? 0
               : -1;
}

/* Ends the run if something is wrong: without its servers no test means anything. */
static void end_test(void)
{
    char order;

    if (warden_tell('e', &order, 1) < 0)
        exit(1);
}

#define ZOOKEEPER_KIND(its_name, its_start, ...)                                                  \
    {                                                                                             \
        .name = its_name, .start = its_start, .start_for = start_for, .stop_all = end_test,       \
        .stop = warden_stop, .shows_waiters = true, .time_max_s = TIME_MAX_NETWORK_S, __VA_ARGS__ \
    }

const struct store_kind zookeeper_kinds[] = {
    ZOOKEEPER_KIND("zookeeper", start_plain, .leaders_fall = false),
    ZOOKEEPER_KIND("zookeeper-killed", start_killed, .leaders_fall = true),
    ZOOKEEPER_KIND("zookeeper-paused", start_paused, .leaders_fall = true),
    {0},
};
