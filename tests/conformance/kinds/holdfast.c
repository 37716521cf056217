/* holdfast.c: one holdfastd; one over TLS; and one that is killed by SIGKILL and started again every few seconds. */
#include "servers.h"
#include "suite.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A name may have as many bytes as a server takes, so that there is no room for a prefix: each directory
 * has a server of its own. */
#define HOLDFASTD_MAX 4

static struct holdfastd holdfastds[HOLDFASTD_MAX];

static int start_one(const char *const *extra_args, struct holdfastd **ret_server)
{
    for (int i = 0; i < HOLDFASTD_MAX; i++) {
        if (holdfastds[i].pid > 0)
            continue;
        *ret_server = &holdfastds[i];
        return holdfastd_start(&holdfastds[i], extra_args);
    }
    fprintf(stderr, "more than %d servers at once\n", HOLDFASTD_MAX);
    return -1;
}

static int start_for(const char *dir, char ret_url[URL_SIZE])
{
    struct holdfastd *server;

    (void)dir;
    if (start_one(NULL, &server) < 0)
        return -1;
    snprintf(ret_url, URL_SIZE, "holdfast://127.0.0.1:%d", server->port);
    return 0;
}

/* HF_TLS_CERT and HF_TLS_KEY: a certificate for 127.0.0.1, which is its own authority. Both sides show it. */
static int start_tls_for(const char *dir, char ret_url[URL_SIZE])
{
    const char *cert = getenv("HF_TLS_CERT"), *key = getenv("HF_TLS_KEY");
    const char *const extra[] = {"--tls-cert",    cert,  "--tls-key", key, "--tls-ca", cert,
                                 "--tls-clients", "yes", NULL};
    struct holdfastd *server;

    (void)dir;
    if (!cert || !key || start_one(extra, &server) < 0)
        return -1;
    snprintf(ret_url, URL_SIZE, "holdfasts://127.0.0.1:%d?ca-file=%s&cert-file=%s&key-file=%s",
             server->port, cert, cert, key);
    return 0;
}

/* Kills come at fixed times of the clock, whatever test is running then: most tests are shorter than the
 * time between two of them. */
#define KILL_EVERY_MS 3000

/* A process that keeps a server, kills it and starts it again. */
struct killer {
    pid_t pid;
    int fd; /* it ends when this is closed */
};

static struct killer killers[HOLDFASTD_MAX];
static _Atomic int *kills;

static void kill_until_told(struct holdfastd *server, int from)
{
    for (;;) {
        struct pollfd pollfd = {.fd = from, .events = POLLIN};

        if (poll(&pollfd, 1, (int)(KILL_EVERY_MS - now_ms() % KILL_EVERY_MS)) != 0)
            return;
        if (holdfastd_restart(server) < 0)
            _exit(1);
        atomic_fetch_add(kills, 1);
    }
}

static void become_killer(pid_t parent, int from, int to)
{
    struct holdfastd server;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < HOLDFASTD_MAX; i++) /* else the others would never see it closed */
        if (killers[i].pid > 0)
            close(killers[i].fd);
    if (getppid() != parent || holdfastd_start(&server, NULL) < 0 ||
        write(to, &server.port, sizeof server.port) != sizeof server.port)
        _exit(1);
    close(to);
    kill_until_told(&server, from);
    holdfastd_stop(&server);
    _exit(0);
}

static int start_killer(struct killer *killer, int *ret_port)
{
    int orders[2], ports[2];
    pid_t parent = getpid(), pid;
    ssize_t got;

    if (pipe(orders) < 0 || pipe(ports) < 0)
        return -1;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(orders[1]);
        close(ports[0]);
        become_killer(parent, orders[0], ports[1]);
    }
    close(orders[0]);
    close(ports[1]);
    *killer = (struct killer){pid, orders[1]};
    got = read(ports[0], ret_port, sizeof *ret_port);
    close(ports[0]);
    return got == sizeof *ret_port ? 0 : -1;
}

static int start_killed_for(const char *dir, char ret_url[URL_SIZE])
{
    int i = 0, port;

    if (steady_server)
        return start_for(dir, ret_url);
    if (!kills)
        kills =
            mmap(NULL, sizeof *kills, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    while (i < HOLDFASTD_MAX && killers[i].pid > 0)
        i++;
    if (kills == MAP_FAILED || i == HOLDFASTD_MAX || start_killer(&killers[i], &port) < 0)
        return -1;
    snprintf(ret_url, URL_SIZE, "holdfast://127.0.0.1:%d", port);
    return 0;
}

static void stop_all(void)
{
    for (int i = 0; i < HOLDFASTD_MAX; i++) {
        int status = 0;

        holdfastd_stop(&holdfastds[i]);
        if (killers[i].pid <= 0)
            continue;
        close(killers[i].fd);
        waitpid(killers[i].pid, &status, 0);
        if (status != 0)
            fprintf(stderr, "the server that was killed did not come back\n");
        killers[i] = (struct killer){0};
    }
}

static void say_kills(void)
{
    printf("the server was killed %d times\n", atomic_load(kills));
}

const struct store_kind holdfast_kinds[] = {
    {.name = "holdfast",
     .start_for = start_for,
     .stop_all = stop_all,
     .shows_waiters = true,
     .time_max_s = TIME_MAX_NETWORK_S},
    {.name = "holdfast-tls",
     .start_for = start_tls_for,
     .stop_all = stop_all,
     .shows_waiters = true,
     .time_max_s = TIME_MAX_NETWORK_S},
    {.name = "holdfast-killed",
     .start_for = start_killed_for,
     .stop_all = stop_all,
     .stop = say_kills,
     .shows_waiters = true,
     .time_max_s = TIME_MAX_NETWORK_S},
    {0},
};
