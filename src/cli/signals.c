#include "cli/signals.h"
#include "cli/cli.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int ending[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool signals_begin(struct signals *signals)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t taken, blocked;

    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (!is_ignored(ending[i]))
            sigaddset(&taken, ending[i]);
    if (!is_ignored(SIGTSTP))
        sigaddset(&taken, SIGTSTP);
    sigaddset(&taken, SIGCONT);
    sigaddset(&taken, SIGCHLD);
    blocked = taken;
    /* We hand the terminal to and fro (SIGTTOU), and a reader of our messages that went away must
     * not end us while a job depends on us (SIGPIPE). */
    sigaddset(&blocked, SIGTTOU);
    sigaddset(&blocked, SIGPIPE);
    /* An inherited "ignore" of SIGCHLD would take the child's status from us. */
    if (sigaction(SIGCHLD, &plain, &signals->inherited_child) != 0 ||
        sigprocmask(SIG_BLOCK, &blocked, &signals->inherited) != 0)
        return false;
    signals->fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd >= 0;
}

bool signals_begin_ends(struct signals *signals)
{
    static const int by_hand[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t taken;

    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        if (!is_ignored(by_hand[i]))
            sigaddset(&taken, by_hand[i]);
    if (sigprocmask(SIG_BLOCK, &taken, &signals->inherited) != 0)
        return false;
    signals->fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd >= 0;
}

int signals_take(struct signals *signals)
{
    struct signalfd_siginfo info;

    if (read(signals->fd, &info, sizeof info) != sizeof info)
        return 0;
    return (int)info.ssi_signo;
}

bool signals_ends(int number)
{
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (ending[i] == number)
            return true;
    return false;
}

static void deliver(int number, bool group, sigset_t *ret_before)
{
    sigset_t only;

    sigemptyset(&only);
    sigaddset(&only, number);
    kill(group ? 0 : getpid(), number);
    sigprocmask(SIG_UNBLOCK, &only, ret_before);
}

void signals_stop(int number, bool group)
{
    sigset_t before;

    deliver(number, group, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void signals_die(int number, bool group)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t before;

    prctl(PR_SET_DUMPABLE, 0); /* SIGQUIT was not about a fault of ours: no core file */
    sigaction(number, &plain, NULL);
    deliver(number, group, &before);
    /* Still here: we are process 1 of a container, which such signals do not end. */
    _exit(EXIT_SIGNAL + number);
}
