/* warden.c: starting it, telling it, and its loop. */
#include "warden.h"

#include "suite.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t pid;
static int channel = -1; /* to the other side, in both processes */

/* ---- within the warden ----------------------------------------------------------------------- */

void warden_say(const void *answer, size_t size)
{
    if (write(channel, answer, size) != (ssize_t)size)
        _exit(1);
}

unsigned int warden_draw(unsigned int below)
{
    unsigned int random;

    if (getrandom(&random, sizeof random, 0) != sizeof random)
        _exit(1);
    return random % below;
}

int64_t warden_first_fault(unsigned int doublings)
{
    return now_ms() + warden_draw(1u << warden_draw(doublings));
}

int warden_until(int64_t then_ms)
{
    int64_t left_ms = then_ms - now_ms();

    return then_ms == INT64_MAX ? -1 : left_ms > 0 ? (int)left_ms : 0;
}

static void become_warden(const struct warden *warden, pid_t parent)
{
    struct pollfd pollfd = {.fd = channel, .events = POLLIN};
    char order;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    warden->begin();
    for (;;) {
        if (poll(&pollfd, 1, warden->look_after()) == 0)
            continue;
        if (read(channel, &order, 1) != 1)
            break;
        warden->obey(order);
    }
    warden->end();
    fflush(stdout);
    _exit(0);
}

/* ---- the side of the suite ------------------------------------------------------------------- */

int warden_start(const struct warden *warden)
{
    pid_t parent = getpid();
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    fflush(NULL);
    pid = fork();
    channel = ends[pid == 0];
    close(ends[pid != 0]);
    if (pid == 0) {
        alarm(0);
        become_warden(warden, parent);
    }
    return pid > 0 ? 0 : -1;
}

int warden_hear(void *answer, size_t size)
{
    if (recv(channel, answer, size, MSG_WAITALL) == (ssize_t)size)
        return 0;
    fprintf(stderr, "the process that has the servers has ended\n");
    return -1;
}

int warden_tell(char order, void *answer, size_t size)
{
    if (write(channel, &order, 1) != 1) {
        fprintf(stderr, "the process that has the servers has ended\n");
        return -1;
    }
    return warden_hear(answer, size);
}

void warden_stop(void)
{
    close(channel);
    waitpid(pid, NULL, 0);
}
