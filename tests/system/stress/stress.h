/* stress.h: the client library under stress. Eight threads do at random whatever a program can do with two stores they share and
 * with some of their own, while the server is killed, paused, or loses its connections.
 *
 * What must be true, whatever happens:
 *
 *     on a strict store nobody is inside a section while another is who has not been told that it lost it (witness.c);
 *     tokens of one name grow, and those who find a result find the one of its token;
 *     nothing is called back that was released, stopped, closed, or is over; what was started is done once (started.c);
 *     no call hangs (main.c), all children end well (ending.c);
 *     at the end no memory, no thread and no descriptor is left.
 *
 * Who violates that ends the process, with what each thread was doing. */
#ifndef TESTS_STRESS_STRESS_H
#define TESTS_STRESS_STRESS_H

#include <holdfast/holdfast.h>
#include <holdfast/once.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define WORKERS 8
#define NAMES 4     /* of locks that are taken exclusively, */
#define KEYS 3      /* and of once-records */
#define TEXT_MAX 64 /* bytes of a name */
#define SECTIONS (NAMES + KEYS)
#define STARTED_MAX 24 /* operations of one worker that are under way */

enum count {
    COUNT_HELD,
    COUNT_BUSY,
    COUNT_CANCELED,
    COUNT_UNKNOWN,
    COUNT_UNREACHED,
    COUNT_LOST,
    COUNT_SHARED,
    COUNT_ELECTED,
    COUNT_ONCE_RUN,
    COUNT_ONCE_FOUND,
    COUNT_STARTED,
    COUNT_DONE,
    COUNT_OBSERVED,
    COUNT_BROKEN,
    COUNT_ADOPTED,
    COUNT_FORKS,
    COUNT_CLOSED,
    COUNT_FAULTS,
    COUNTS
};

struct worker {
    int number;
    uint64_t random;
    pthread_t thread;
    _Atomic(const char *) doing;
    atomic_int_least64_t since_ms;
    pthread_mutex_t mutex;
    hf_cancel *cancel; /* of the wait that it is in, under the mutex; or NULL */
    atomic_int started;
};

struct stress {
    const char *url;
    uint64_t seed;
    bool strict, has_ttl, has_detach;
    hf_store *store;   /* calls back on a thread of its own */
    hf_store *looping; /* calls back in hf_dispatch */
    atomic_bool over;
    atomic_ullong counts[COUNTS];
    struct worker workers[WORKERS];
};
extern struct stress stress;

/* ---- main.c ---- */
int64_t now_ms(void);
void count(enum count what);
/* What it does from now on, for whoever wants to know why it does not end. A literal. */
void doing(struct worker *worker, const char *what);
_Noreturn void violated(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *allocate(size_t size);
/* Frees it later: who uses it meanwhile finds that it is over. */
void bury(void *memory);
/* A result that an operation on a store may have, in times like these; counted. */
void expect(const char *what, int result, const char *words);

/* ---- random choices ---- */
uint64_t draw(struct worker *worker);
static inline unsigned below(struct worker *worker, unsigned limit)
{
    return (unsigned)(draw(worker) % limit);
}
void nap(struct worker *worker, unsigned us_max);
hf_store *some_store(struct worker *worker);

/* ---- witness.c ---- */

/* One hold, or the attempt to get one: what on_lost is given. */
struct hold {
    int section; /* which it is; -1: none that is exclusive */
    hf_lock *lock;
    uint64_t token;
    bool inside;
    atomic_bool consumed; /* released, or never granted: nothing is to be told any more */
};
struct hold *hold_new(int section);
void section_name(int section, char *ret_text);
/* As its options say it: on_lost is watched. */
void hold_options(struct worker *worker, struct hold *hold, hf_options *ret_options);
/* Granted. */
void hold_enter(struct hold *hold, hf_lock *lock);
/* The section is left; the lock still has to be given up. */
void hold_leave(struct hold *hold);
/* The lock is given up, or was never granted. */
void hold_over(struct hold *hold);

/* ---- what they do ---- */
typedef void action(struct worker *worker);
action do_acquire, do_try, do_cancel, do_elect, do_share, do_once, do_ask, do_break,
    do_adopt;                                                /* blocking.c */
action do_start, do_start_once, do_start_asking, do_observe; /* started.c */
action do_fork, do_close, do_close_looping;                  /* ending.c */

/* started.c: operations of a store that is closed now are called back no more. worker: whose it was; NULL: everybody's. */
void started_closed(const struct worker *worker, const hf_store *store);
void start_some(struct worker *worker, hf_store *store);
struct watcher;
/* stops: by itself, when it is told something for the first time. */
struct watcher *watch(hf_store *store, const char *name, bool stops, hf_observer **ret_observer);
void watch_over(struct watcher *watcher);
/* Gives a lock up in one of the ways there are. */
void give_up(struct worker *worker, hf_store *store, struct hold *hold);

#endif
