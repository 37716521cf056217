#include "cli/follow.h"
#include "cli/outage.h"
#include "cli/output.h"

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

int follow(hf_store *store, const char *name, hf_observer_fn *fn, void *arg)
{
    /* stdout only for its hang-up: `watch NAME | head -1` should end with head, not a change later.
     */
    struct pollfd fds[] = {{.fd = hf_fd(store), .events = POLLIN}, {.fd = STDOUT_FILENO}};
    struct outage outage = {0};
    hf_observer *observer;
    int result;

    if (fds[0].fd < 0)
        return say_result(fds[0].fd);
    result = hf_observe(store, name, fn, arg, &observer);
    if (result != HF_OK)
        return say_result(result);
    for (;;) {
        if (poll(fds, 2, OUTAGE_LOOK_MS) < 0 && errno != EINTR) {
            say("poll: %s", strerror(errno));
            return EXIT_OURS;
        }
        if (fds[1].revents & (POLLERR | POLLHUP | POLLNVAL))
            return EXIT_DONE;
        result = hf_dispatch(store);
        if (result < 0)
            return say_result(result);
        look_for_outage(&outage, store, name);
        if (fflush(stdout) != 0 || ferror(stdout))
            return finish_output(EXIT_DONE);
    }
}
