/* bench_names.h: the names that a bench uses in one store, and what it has seen of each: whether two were ever inside at once, whether
 * tokens grow, and how long the way was from a release to the next grant. Any thread may call. */
#ifndef CLI_BENCH_NAMES_H
#define CLI_BENCH_NAMES_H

#include "cli/cli.h"

#include <pthread.h>
#include <stdatomic.h>

#define BENCH_NAME_MAX 64
#define BENCH_HOT_NAMES 4 /* of the mix; the work that is all hot uses the first alone */

/* Somebody who holds a name: part of whoever that is. */
struct bench_inside {
    hf_lock *lock; /* NULL in the loop that does nothing */
    uint64_t token;
    struct bench_inside *next;
};

struct bench_name {
    char text[BENCH_NAME_MAX];
    pthread_mutex_t mutex;
    struct bench_inside
        *first; /* never two, but for holds that are over and were not given up yet */
    uint64_t last_token;
    int64_t freed_ns; /* 0: granted since, or never freed */
};

struct bench_names {
    struct bench_name *all; /* the hot ones first */
    size_t count;
    atomic_uint_fast64_t violations;
    pthread_mutex_t mutex;
    char first_violation[256]; /* guarded by the mutex; "" */
};

/* prefix: "bench/4b1f0c9e". False: out of memory. */
bool bench_names_begin(struct bench_names *names, const char *prefix, size_t own);
void bench_names_end(struct bench_names *names);

/* inside->lock, just granted, and its token are set. began_ns: when it was asked for. Returns how long the name had been free, if it was
 * asked for before that, or -1: that was no hand-over. */
int64_t bench_name_enter(struct bench_names *names, struct bench_name *name,
                         struct bench_inside *inside, int64_t began_ns, int64_t now_ns);
/* Before the release is asked for. */
void bench_name_leave(struct bench_name *name, struct bench_inside *inside, int64_t now_ns);

/* What the first violation was, once: later calls answer false. */
bool bench_names_accuse(struct bench_names *names, char *ret_text, size_t size);

#endif
