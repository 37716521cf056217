/* slow.h: a line for whoever waits for a store that does not answer, or cannot do what is asked: early, and once.
 *
 *     slow_begin(&slow, cli, "ls", "no list", SLOW_NO_LIMIT);
 *     result = hf_list(...);
 *     slow_end(&slow); */
#ifndef CLI_SLOW_H
#define CLI_SLOW_H

#include "cli/capture.h"
#include "cli/cli.h"

#include <pthread.h>

#define SLOW_NO_LIMIT \
    0 /* or none that could be said: the call may end long before it, with what the store says then */

struct slow {
    const struct cli *cli;
    struct capture *capture; /* what speaks, or NULL: we do */
    const char *what, *missing;
    int64_t
        limit_ms; /* how long the call tries, to be said of a store that has answered something */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool soon_refused; /* a store that was never reached has a little longer */
    bool runs, over;
};

/* missing: what has not come of a store that answers otherwise, perhaps because nobody leads there. Texts are borrowed until slow_end, as is
 * the cli, whose store is open. Without a thread nothing is said. */
void slow_begin(struct slow *slow, const struct cli *cli, const char *what, const char *missing,
                int64_t limit_ms);
/* Where a store that was never reached is found out in those 2 s, if its URL does not allow more: the line would come with the failure. */
void slow_begin_soon_refused(struct slow *slow, const struct cli *cli, const char *what,
                             const char *missing, int64_t limit_ms);
/* Of a job whose output is captured: the line comes behind that. */
void slow_begin_captured(struct slow *slow, const struct cli *cli, struct capture *capture,
                         const char *what, const char *missing, int64_t limit_ms);
/* A second time does nothing. */
void slow_end(struct slow *slow);

#endif
