#include "cli/slow.h"
#include "cli/output.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define SLOW_MS 2000     /* as long as other commands try in all */
#define UNREACHED_MS 500 /* so much later where a first contact has failed by then, mostly */

/* False: the call has ended before. */
static bool lasts(struct slow *slow, int64_t span_ms)
{
    struct timespec until;
    bool over;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += span_ms / 1000;
    until.tv_nsec += span_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&slow->mutex);
    while (!slow->over && pthread_cond_timedwait(&slow->changed, &slow->mutex, &until) != ETIMEDOUT)
        ;
    over = slow->over;
    pthread_mutex_unlock(&slow->mutex);
    return !over;
}

static void tell(const struct slow *slow, const char *missing, int64_t since_ms,
                 const char *how_long)
{
    const char *where = printable(hf_info(slow->cli->store)->where);

    if (slow->capture)
        capture_say(slow->capture, "%s: %s from %s for %s; %s", slow->what, missing, where,
                    span(since_ms), how_long);
    else
        say("%s: %s from %s for %s; %s", slow->what, missing, where, span(since_ms), how_long);
}

static void *watch(void *context)
{
    struct slow *slow = context;
    char how_long[80] = "still trying";

    if (!lasts(slow, SLOW_MS))
        return NULL;
    if (hf_reached(slow->cli->store) == 0) {
        if (!slow->soon_refused)
            tell(slow, "no answer", SLOW_MS, how_long);
        else if (lasts(slow, UNREACHED_MS)) /* ?timeout= allows more */
            tell(slow, "no answer", SLOW_MS + UNREACHED_MS, how_long);
        return NULL;
    }
    if (slow->limit_ms != SLOW_NO_LIMIT)
        snprintf(how_long, sizeof how_long, "trying for up to %s in all", span(slow->limit_ms));
    tell(slow, slow->missing, SLOW_MS, how_long);
    return NULL;
}

static void start(struct slow *slow)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;

    if (slow->cli->quiet || (slow->limit_ms != SLOW_NO_LIMIT && slow->limit_ms <= SLOW_MS) ||
        !(hf_info(slow->cli->store)->features & HF_HAS_TTL)) /* no server */
        return;
    pthread_mutex_init(&slow->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&slow->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    slow->runs = pthread_create(&slow->thread, NULL, watch, slow) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void slow_begin(struct slow *slow, const struct cli *cli, const char *what, const char *missing,
                int64_t limit_ms)
{
    *slow = (struct slow){.cli = cli, .what = what, .missing = missing, .limit_ms = limit_ms};
    start(slow);
}

void slow_begin_soon_refused(struct slow *slow, const struct cli *cli, const char *what,
                             const char *missing, int64_t limit_ms)
{
    *slow = (struct slow){
        .cli = cli, .what = what, .missing = missing, .limit_ms = limit_ms, .soon_refused = true};
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
    slow->runs = false;
}
