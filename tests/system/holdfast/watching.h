/* watching.h: what the tests on real servers share. */
#ifndef TESTS_HOLDFAST_WATCHING_H
#define TESTS_HOLDFAST_WATCHING_H

#include "servers.h"

#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdint.h>

#define PATIENCE_MS 10000

int64_t now_ms(void);

/* A number of INFO. */
long info_of(const struct holdfastd *server, const char *key);
void await_info_of(const struct holdfastd *server, const char *key, long wanted,
                   int64_t patience_ms);

#define LINE_MAX_PLACES 64

/* Those who came in, in their order. */
struct line {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int order[LINE_MAX_PLACES], count, failed;
    int64_t last_ms; /* when the last one did */
};

#define LINE_INIT                                                         \
    {                                                                     \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0, 0 \
    }

struct place {
    struct line *line;
    int number;
};

/* For hf_acquire_start, with a place: notes who it was, and lets the next one in. */
void came_in(hf_op *op, int result, void *place);
/* Until so many came in, and nobody failed. */
void await_line(struct line *line, int count);

#endif
