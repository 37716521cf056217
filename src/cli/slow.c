#include "cli/slow.h"
#include "cli/output.h"

#include <errno.h>
#include <time.h>

#define SLOW_MS 2000 /* as long as other commands try in all */

/* False: the call has ended before. */
static bool lasts(struct slow *slow)
{
    struct timespec until;
    bool over;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SLOW_MS / 1000;
    pthread_mutex_lock(&slow->mutex);
    while (!slow->over && pthread_cond_timedwait(&slow->changed, &slow->mutex, &until) != ETIMEDOUT)
        ;
    over = slow->over;
    pthread_mutex_unlock(&slow->mutex);
    return !over;
}

static void *watch(void *context)
{
    struct slow *slow = context;
    bool reached;

    if (!lasts(slow))
        return NULL;
    reached = hf_reached(slow->cli->store) != 0;
    if (reached || !slow->reached_only)
        say("%s: %s from %s for %s; trying for up to %s in all", slow->what,
            reached ? slow->missing : "no answer", printable(hf_info(slow->cli->store)->where),
            span(SLOW_MS), span(slow->limit_ms));
    return NULL;
}

static void start(struct slow *slow)
{
    pthread_condattr_t monotonic;

    if (slow->cli->quiet || slow->limit_ms <= SLOW_MS ||
        !(hf_info(slow->cli->store)->features & HF_HAS_TTL)) /* no server */
        return;
    pthread_mutex_init(&slow->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&slow->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    slow->runs = pthread_create(&slow->thread, NULL, watch, slow) == 0;
}

void slow_begin(struct slow *slow, const struct cli *cli, const char *what, const char *missing,
                int64_t limit_ms)
{
    *slow = (struct slow){.cli = cli, .what = what, .missing = missing, .limit_ms = limit_ms};
    start(slow);
}

void slow_begin_reached(struct slow *slow, const struct cli *cli, const char *what,
                        const char *missing, int64_t limit_ms)
{
    *slow = (struct slow){
        .cli = cli, .what = what, .missing = missing, .limit_ms = limit_ms, .reached_only = true};
    start(slow);
}

void slow_end(struct slow *slow)
{
    if (!slow->runs)
        return;
    pthread_mutex_lock(&slow->mutex);
    slow->over = true;
    pthread_cond_signal(&slow->changed);
    pthread_mutex_unlock(&slow->mutex);
    pthread_join(slow->thread, NULL);
}
