/* cluster.c: clusters of holdfastd for the suite, and what happens to their leaders meanwhile.
 *
 * A process of its own, the warden, has them all, because whoever starts a server must live as long as the
 * server, and because faults come while a test runs. It is told:
 *
 *     n   a cluster for a test                  it says its ports
 *     s   the same, and nothing happens to it
 *     e   the test is over                      it says 0 when all nodes that were killed came back
 *
 * and ends, with all of them, when nobody can tell it anything any more.
 *
 * A fresh cluster needs a second or more until somebody leads it: most tests do not take that long. So some are
 * always being started for the tests to come.
 *
 * The first fault comes soon after a test has begun, at random, so that each test has its own to live with, and
 * then one every FAULT_EVERY_MS. */
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

#define CLUSTERS_MAX 4 /* in use by one test */
#define SPARES 4
#define FIRST_FAULT_DOUBLINGS 9u /* the first fault comes within 1 ms, or 2, 4, ... 256 ms */
#define FAULT_EVERY_MS 5000
#define PAUSED_MS 2500
#define AGAIN_MS 20 /* there is no leader to do something to just now */

enum fault { FAULT_NONE, FAULT_KILL, FAULT_PAUSE };

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

/* Sooner rather than later: many tests are over within some milliseconds. */
static int64_t first_fault(void)
{
    unsigned int random[2];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        _exit(1);
    return now_ms() + random[0] % (1u << random[1] % FIRST_FAULT_DOUBLINGS);
}

static void give_out(int fd, bool steady)
{
    struct ward *ward = wards;
    int ports[CLUSTER_NODES];

    while (ward < wards + CLUSTERS_MAX && ward->in_use)
        ward++;
    if (ward == wards + CLUSTERS_MAX || cluster_await(&spares[0]) < 0)
        _exit(1);
    *ward = (struct ward){.in_use = true, .cluster = spares[0], .paused = -1};
    memmove(spares, spares + 1, sizeof *spares * (size_t)--spare_count);
    ward->fault_ms = steady || fault == FAULT_NONE ? INT64_MAX : first_fault();
    for (int i = 0; i < CLUSTER_NODES; i++)
        ports[i] = ward->cluster.nodes[i].port;
    if (write(fd, ports, sizeof ports) != sizeof ports)
        _exit(1);
    refill();
}

static bool has_ended(const struct holdfastd *node)
{
    siginfo_t how = {0};

    /* WNOWAIT: whoever stops it waits for it. */
    return waitid(P_PID, (id_t)node->pid, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid;
}

static void take_back(int fd)
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
    if (write(fd, &missing, sizeof missing) != sizeof missing)
        _exit(1);
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
    int64_t next_ms = INT64_MAX, left_ms;

    for (struct ward *ward = wards; ward < wards + CLUSTERS_MAX; ward++) {
        int64_t ward_ms = look_after(ward);

        next_ms = ward_ms < next_ms ? ward_ms : next_ms;
    }
    left_ms = next_ms - now_ms();
    return next_ms == INT64_MAX ? -1 : left_ms > 0 ? (int)left_ms : 0;
}

static void become_warden(int fd, pid_t parent)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    char order;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    refill();
    for (;;) {
        if (poll(&pollfd, 1, look_after_all()) == 0)
            continue;
        if (read(fd, &order, 1) != 1)
            break;
        if (order == 'e')
            take_back(fd);
        else
            give_out(fd, order == 's');
    }
    for (int i = 0; i < spare_count; i++)
        cluster_stop(&spares[i]);
    if (fault != FAULT_NONE)
        printf("leaders were %s %d times\n", fault == FAULT_KILL ? "killed" : "paused", faults);
    fflush(stdout);
    _exit(0);
}

/* ---- the side of the suite ------------------------------------------------------------------- */

static pid_t warden;
static int warden_fd = -1;

static int start_warden(enum fault its_fault)
{
    pid_t parent = getpid();
    int ends[2];

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
    return warden > 0 ? 0 : -1;
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

/* Says it and hears the answer. */
static int tell(char order, void *answer, size_t size)
{
    if (write(warden_fd, &order, 1) == 1 &&
        recv(warden_fd, answer, size, MSG_WAITALL) == (ssize_t)size)
        return 0;
    fprintf(stderr, "the process that has the clusters has ended\n");
    return -1;
}

static int start_for(const char *dir, char ret_url[URL_SIZE])
{
    struct cluster cluster = {0};
    int ports[CLUSTER_NODES];

    (void)dir;
    if (tell(steady_server ? 's' : 'n', ports, sizeof ports) < 0)
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

    if (tell('e', &missing, sizeof missing) == 0 && missing == 0)
        return;
    fprintf(stderr, "%d nodes that were killed did not come back\n", missing);
    exit(1);
}

static void stop(void)
{
    close(warden_fd);
    waitpid(warden, NULL, 0);
}

#define CLUSTER_KIND(its_name, its_start, leaders_do_fall)                                  \
    {                                                                                       \
        .name = its_name, .start = its_start, .start_for = start_for, .stop_all = stop_all, \
        .stop = stop, .shows_waiters = true, .time_max_s = TIME_MAX_NETWORK_S,              \
        .leaders_fall = leaders_do_fall                                                     \
    }

const struct store_kind cluster_kinds[] = {
    CLUSTER_KIND("holdfast-cluster", start, false),
    CLUSTER_KIND("holdfast-cluster-killed", start_killed, true),
    CLUSTER_KIND("holdfast-cluster-paused", start_paused, true),
    {0},
};
