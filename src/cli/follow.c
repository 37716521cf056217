#include "cli/follow.h"
#include "cli/outage.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/slow.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static void look_for_outage(struct outage *outage, hf_store *store, const char *what)
{
    if (outage_look(outage, store, what) == OUTAGE_OVER)
        say("%s: the store answers again", what);
}

/* So that nothing stays behind in the store. Whoever does not want to wait for that says it again. */
static _Noreturn void end(struct cli *cli, struct signals *signals, struct slow *slow, int number)
{
    sigprocmask(SIG_SETMASK, &signals->inherited, NULL);
    slow_end(slow);
    hf_close(cli->store);
    signals_die(number, false);
}

/* slow: until the first report. */
static int follow_on(struct cli *cli, struct signals *signals, struct slow *slow)
{
    /* stdout only for its hang-up: `watch NAME | head -1` should end with head, not a change later.
     */
    struct pollfd fds[] = {{.fd = hf_fd(cli->store), .events = POLLIN},
                           {.fd = STDOUT_FILENO},
                           {.fd = signals->fd, .events = POLLIN}};
    struct outage outage = {0};
    int result, number;

    for (;;) {
        if (poll(fds, 3, OUTAGE_LOOK_MS) < 0 && errno != EINTR) {
            say("poll: %s", strerror(errno));
            return EXIT_OURS;
        }
        if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL))
            return EXIT_DONE;
        number = fds[2].revents ? signals_take(signals) : 0;
        if (number != 0)
            end(cli, signals, slow, number);
        result = hf_dispatch(cli->store);
        if (result < 0)
            return say_result(result);
        if (result > 0)
            slow_end(slow);
        look_for_outage(&outage, cli->store, slow->what);
        if (fflush(stdout) != 0 || ferror(stdout))
            return finish_output(EXIT_DONE);
    }
}

int follow(struct cli *cli, const char *name, hf_observer_fn *fn, void *arg)
{
    int result = hf_fd(cli->store), status;
    struct signals signals;
    struct slow slow;
    hf_observer *observer;
    char what[1024];

    if (result < 0)
        return say_result(result);
    snprintf(what, sizeof what, "watching '%s'", printable(name));
    slow_begin_soon_refused(&slow, cli, what, "no answer", SLOW_NO_LIMIT);
    /* Until the store has been reached nothing is left behind there: a signal ends us as it ends anybody. */
    result = hf_observe(cli->store, name, fn, arg, &observer);
    if (result != HF_OK) {
        status = say_result(result);
    } else if (!signals_begin_ends(&signals)) {
        say("cannot watch for signals: %s", strerror(errno));
        status = EXIT_OURS;
    } else {
        status = follow_on(cli, &signals, &slow);
    }
    slow_end(&slow);
    return status;
}
