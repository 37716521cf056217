/* zookeeper.c: three ZooKeeper servers, and what happens to them meanwhile.
 *
 * Java takes a second or two to start, so one ensemble serves all tests, each of which has a root of its own. A process of
 * its own, the warden, has it, because faults come while tests run. It is told:
 *
 *     n   a test begins
 *     s   the same, and nothing may happen in it: it answers when all servers are there
 *     e   the test is over
 *
 * and ends, with all of them, when nobody can tell it anything any more. A fault comes whenever all servers are there
 * and a test may have one: at some time of it, at random. */
#include "zookeeper.h"

#include "base/text.h"
#include "servers.h"
#include "suite.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAULT_WITHIN_MS 512 /* of all servers being there */
#define FAULT_EVERY_MS 3000
#define PAUSED_MS \
    3000 /* sessions for SHORT_TTL_MS take a good second, another leader another one */
#define LOOK_MS 100

enum fault { FAULT_NONE, FAULT_KILL, FAULT_PAUSE };

/* ---- the warden ------------------------------------------------------------------------------ */

static enum fault fault;
static struct ensemble ensemble;
static int faults; /* so far */

static unsigned int draw(unsigned int below)
{
    unsigned int random;

    if (getrandom(&random, sizeof random, 0) != sizeof random)
        _exit(1);
    return random % below;
}

static int paused_node(void)
{
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        if (ensemble.nodes[i].paused)
            return i;
    return -1;
}

static void do_harm(void)
{
    int node = fault == FAULT_PAUSE ? ensemble_leader(&ensemble) : (int)draw(ZOOKEEPER_NODES);

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

/* Does what is due. */
static void look_after(bool calm, int64_t *fault_ms)
{
    int64_t now = now_ms();
    int paused = paused_node();

    if (calm || fault == FAULT_NONE || now < *fault_ms)
        return;
    if (paused >= 0) {
        if (zookeeper_resume(&ensemble.nodes[paused]) < 0)
            _exit(1);
        *fault_ms = now + FAULT_EVERY_MS;
    } else if (!ensemble_is_whole(&ensemble)) {
        *fault_ms = now + LOOK_MS;
    } else {
        do_harm();
        *fault_ms = now_ms() + (fault == FAULT_PAUSE ? PAUSED_MS : FAULT_EVERY_MS);
    }
}

static void obey(int fd, char order, bool *calm, int64_t *fault_ms)
{
    if (order == 's')
        heal();
    /* Soon, unless one is under way. */
    if (order == 'n' && paused_node() < 0)
        *fault_ms = now_ms() + draw(FAULT_WITHIN_MS);
    *calm = order != 'n';
    if (write(fd, &order, 1) != 1)
        _exit(1);
}

static void become_warden(int fd, pid_t parent)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    int64_t fault_ms = 0;
    bool calm = true;
    int ports[ZOOKEEPER_NODES];
    char order;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent ||
        ensemble_start_with(&ensemble, fault == FAULT_PAUSE ? "syncLimit=4" : "") < 0)
        _exit(1);
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        ports[i] = ensemble.nodes[i].port;
    if (write(fd, ports, sizeof ports) != sizeof ports)
        _exit(1);
    for (;;) {
        if (poll(&pollfd, 1, LOOK_MS / 2) == 0)
            look_after(calm, &fault_ms);
        else if (read(fd, &order, 1) == 1)
            obey(fd, order, &calm, &fault_ms);
        else
            break;
    }
    ensemble_stop(&ensemble);
    if (fault == FAULT_KILL)
        printf("servers were killed %d times\n", faults);
    if (fault == FAULT_PAUSE)
        printf("leaders were paused %d times\n", faults);
    fflush(stdout);
    _exit(0);
}

/* ---- the side of the suite ------------------------------------------------------------------- */

static pid_t warden;
static int warden_fd = -1;

static char servers_url[URL_SIZE];

static int start_warden(enum fault its_fault)
{
    struct ensemble seen = {0};
    pid_t parent = getpid();
    int ends[2], ports[ZOOKEEPER_NODES];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    fflush(NULL);
    fault = its_fault;
    warden = fork();
    if (warden == 0) {
        close(ends[0]);
        alarm(0);
        become_warden(ends[1], parent);
    }
    close(ends[1]);
    warden_fd = ends[0];
    if (warden < 0 || recv(warden_fd, ports, sizeof ports, MSG_WAITALL) != sizeof ports)
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

/* Ends the run if something is wrong: without its servers no test means anything. */
static void tell(char order)
{
    if (write(warden_fd, &order, 1) == 1 && recv(warden_fd, &order, 1, 0) == 1)
        return;
    fprintf(stderr, "the process that has the ZooKeeper servers has ended\n");
    exit(1);
}

/* A directory of the test is a root of the store. */
static int start_for(const char *dir, char ret_url[URL_SIZE])
{
    size_t used = (size_t)snprintf(ret_url, URL_SIZE, "%s", servers_url);

    tell(steady_server ? 's' : 'n');
    return used + text_percent_encode(dir, strlen(dir), "/-._~", ret_url + used, URL_SIZE - used) <
                   URL_SIZE
               ? 0
               : -1;
}

static void end(void)
{
    tell('e');
}

static void stop(void)
{
    close(warden_fd);
    waitpid(warden, NULL, 0);
}

#define ZOOKEEPER_KIND(its_name, its_start, ...)                                           \
    {                                                                                      \
        .name = its_name, .start = its_start, .start_for = start_for, .stop_all = end,     \
        .stop = stop, .shows_waiters = true, .time_max_s = TIME_MAX_NETWORK_S, __VA_ARGS__ \
    }

const struct store_kind zookeeper_kinds[] = {
    ZOOKEEPER_KIND("zookeeper", start_plain, .leaders_fall = false),
    ZOOKEEPER_KIND("zookeeper-killed", start_killed, .leaders_fall = true),
    ZOOKEEPER_KIND("zookeeper-paused", start_paused, .leaders_fall = true),
    {0},
};
