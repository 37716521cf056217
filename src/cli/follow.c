#include "cli/follow.h"
#include "cli/outage.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static void look_for_outage(struct outage *outage, hf_store *store, const char *name)
{
    char what[1024];

    snprintf(what, sizeof what, "watching '%s'", printable(name));
    if (outage_look(outage, store, what) == OUTAGE_OVER)
        say("%s: the store answers again", what);
}

/* So that nothing stays behind in the store. Whoever does not want to wait for that says it again. */
static _Noreturn void end(struct cli *cli, struct signals *signals, int number)
{
    sigprocmask(SIG_SETMASK, &signals->inherited, NULL);
    hf_close(cli->store);
    signals_die(number, false);
}

int follow(struct cli *cli, const char *name, hf_observer_fn *fn, void *arg)
{
    /* stdout only for its hang-up: `watch NAME | head -1` should end with head, not a change later.
     */
    hf_store *store = cli->store;
    struct pollfd fds[] = {
        {.fd = hf_fd(store), .events = POLLIN}, {.fd = STDOUT_FILENO}, {.events = POLLIN}};
    struct outage outage = {0};
    struct signals signals;
    hf_observer *observer;
    int result, number;

    if (fds[0].fd < 0)
        return say_result(fds[0].fd);
    /* Until the store has been reached nothing is left behind there: a signal ends us as it ends anybody. */
    result = hf_observe(store, name, fn, arg, &observer);
    if (result != HF_OK)
        return say_result(result);
    if (!signals_begin_ends(&signals)) {
        say("cannot watch for signals: %s", strerror(errno));
        return EXIT_OURS;
    }
    fds[2].fd = signals.fd;
    for (;;) {
        if (poll(fds, 3, OUTAGE_LOOK_MS) < 0 && errno != EINTR) {
            say("poll: %s", strerror(errno));
            return EXIT_OURS;
        }
        if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL))
            return EXIT_DONE;
        number = fds[2].revents ? signals_take(&signals) : 0;
        if (number != 0)
            end(cli, &signals, number);
        result = hf_dispatch(store);
        if (result < 0)
            return say_result(result);
        look_for_outage(&outage, store, name);
        if (fflush(stdout) != 0 || ferror(stdout))
            return finish_output(EXIT_DONE);
    }
}
