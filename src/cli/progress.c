#include "cli/progress.h"
#include "cli/output.h"

#include <signal.h>
#include <time.h>

#define AFTER_S 1

static void *wait_and_say(void *arg)
{
    struct progress_line *line = arg;
    struct timespec until;
    int late = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += AFTER_S;
    pthread_mutex_lock(&line->mutex);
    while (!line->over && late == 0)
        late = pthread_cond_timedwait(&line->ended, &line->mutex, &until);
    if (!line->over)
        say("%s", line->text);
    pthread_mutex_unlock(&line->mutex);
    return NULL;
}

void progress_begin(struct progress_line *line, const char *text)
{
    pthread_condattr_t clock;
    sigset_t all, before;

    *line = (struct progress_line){.text = text};
    pthread_mutex_init(&line->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&line->ended, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    line->runs = pthread_create(&line->thread, NULL, wait_and_say, line) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_end(struct progress_line *line)
{
    pthread_mutex_lock(&line->mutex);
    line->over = true;
    pthread_cond_signal(&line->ended);
    pthread_mutex_unlock(&line->mutex);
    if (line->runs)
        pthread_join(line->thread, NULL);
    pthread_cond_destroy(&line->ended);
    pthread_mutex_destroy(&line->mutex);
}
