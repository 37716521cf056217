#include "watching.h"
#include "tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

long info_of(const struct holdfastd *server, const char *key)
{
    static char text[8192];
    char line[64];
    const char *at;

    assert_int_equal(0, HOLDFASTD_DO(server, text, sizeof text, "INFO"));
    snprintf(line, sizeof line, "\n%s:", key);
    at = strstr(text, line);
    assert_non_null(at);
    return strtol(at + strlen(line), NULL, 10);
}

void await_info_of(const struct holdfastd *server, const char *key, long wanted,
                   int64_t patience_ms)
{
    int64_t deadline_ms = now_ms() + patience_ms;
    long found;

    while ((found = info_of(server, key)) != wanted) {
        if (now_ms() > deadline_ms)
            fail_msg("%s is %ld and not %ld after %" PRId64 " ms", key, found, wanted, patience_ms);
        usleep(5000);
    }
}

void came_in(hf_op *op, int result, void *arg)
{
    const struct place *place = arg;
    hf_lock *lock = hf_op_take_lock(op);

    pthread_mutex_lock(&place->line->mutex);
    place->line->last_ms = now_ms();
    if (result == HF_OK)
        place->line->order[place->line->count++] = place->number;
    else
        place->line->failed++;
    pthread_cond_broadcast(&place->line->changed);
    pthread_mutex_unlock(&place->line->mutex);
    if (result == HF_OK && hf_release(lock) != HF_OK)
        abort();
}

void await_line(struct line *line, int count)
{
    struct timespec until;
    int failed = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    pthread_mutex_lock(&line->mutex);
    while (line->count + line->failed < count && !failed)
        failed = pthread_cond_timedwait(&line->changed, &line->mutex, &until);
    pthread_mutex_unlock(&line->mutex);
    assert_int_equal(0, line->failed);
    assert_int_equal(count, line->count);
}
