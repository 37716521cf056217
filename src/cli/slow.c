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

    if (lasts(slow))
        say("%s: %s from %s for %s; trying for up to %s in all", slow->what,
            hf_reached(slow->cli->store) == 0 ? "no answer" : slow->missing,
            printable(hf_info(slow->cli->store)->where), span(SLOW_MS), span(slow->limit_ms));
    return NULL;
}

void slow_begin(struct slow *slow, const struct cli *cli, const char *what, const char *missing,
                int64_t limit_ms)
{
    pthread_condattr_t monotonic;

    *slow = (struct slow){.cli = cli, .what = what, .missing = missing, .limit_ms = limit_ms};
    if (cli->quiet || limit_ms <= SLOW_MS ||
        !(hf_info(cli->store)->features & HF_HAS_TTL)) /* no server */
        return;
    pthread_mutex_init(&slow->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&slow->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    slow->runs = pthread_create(&slow->thread, NULL, watch, slow) == 0;
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
