/* signals.h: signals as something to read, from before the lock is asked for until we end.
 *
 * Nothing here installs a handler. What we react to is blocked and read from a descriptor; what was
 * ignored when we started (nohup, cron, `cmd &` in a script) stays ignored, for us and for the
 * child. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

struct signals {
    int fd;                           /* readable when signals_take has something */
    sigset_t inherited;               /* the mask we started with: the child gets it back */
    struct sigaction inherited_child; /* what SIGCHLD did; likewise */
    /* Somebody asked a second time while a wait was being given up: the store is not told any more, nor closed. */
    bool hurried;
};

/* Blocks and begins to collect. False with errno set. */
bool signals_begin(struct signals *signals);
/* The same for somebody without a child: only what asks us to end, and can be said by hand. All else does what it always did. */
bool signals_begin_ends(struct signals *signals);
/* The next signal, or 0 when there is none. Never blocks. */
int signals_take(struct signals *signals);
/* Whether this signal asks us to end (as opposed to job control and SIGCHLD). */
bool signals_ends(int number);

/* Stops this process, or with `group` all of our process group, as the terminal would have done;
 * returns when continued. */
void signals_stop(int number, bool group);
/* Ends this process so that whoever waits for it sees the signal. */
_Noreturn void signals_die(int number, bool group);

#endif
