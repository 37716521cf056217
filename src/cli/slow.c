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

static void tell(const struct slow *slow, const char *missing, const char *how_long)
{
    const char *where = printable(hf_info(slow->cli->store)->where);

    if (slow->capture)
        capture_say(slow->capture, "%s: %s from %s for %s; %s", slow->what, missing, where,
                    span(SLOW_MS), how_long);
    else
        say("%s: %s from %s for %s; %s", slow->what, missing, where, span(SLOW_MS), how_long);
}

static void *watch(void *context)
{
    struct slow *slow = context;
    char how_long[80] = "still trying";

    if (!lasts(slow))
        return NULL;
    if (hf_reached(slow->cli->store) == 0) {
        if (!slow->reached_only) /* how soon a store gives that up is its own matter */
            tell(slow, "no answer", how_long);
        return NULL;
    }
    if (slow->limit_ms != SLOW_NO_LIMIT)
        snprintf(how_long, sizeof how_long, "trying for up to %s in all", span(slow->limit_ms));
    tell(slow, slow->missing, how_long);
    return NULL;
}

static void start(struct slow *slow)
{
    pthread_condattr_t monotonic;

    if (slow->cli->quiet || (slow->limit_ms != SLOW_NO_LIMIT && slow->limit_ms <= SLOW_MS) ||
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

void slow_begin_captured(struct slow *slow, const struct cli *cli, struct capture *capture,
                         const char *what, const char *missing, int64_t limit_ms)
{
    *slow = (struct slow){
        .cli = cli, .capture = capture, .what = what, .missing = missing, .limit_ms = limit_ms};
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
