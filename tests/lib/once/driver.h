/* driver.h: once-records of an engine, called directly: what a client does, a step at a time. */
#ifndef TESTS_ONCE_DRIVER_H
#define TESTS_ONCE_DRIVER_H

#include "engines/engine.h"

#include <pthread.h>
#include <stdatomic.h>

#define PATIENCE_MS 20000 /* much longer than anything takes; then something hangs */
#define TTL_MS 30000
#define DEATH_MS 3600000
#define KEEP_MS 3600000

struct driver {
    const struct engine *engine;
    struct engine_store *store;
    struct engine_host host;
    struct error_text err; /* of the last call */
    _Atomic int losses;    /* told by the engine */
};

/* Fail the test if they cannot. */
void driver_open(struct driver *driver, const char *url);
void driver_close(struct driver *driver);

/* A claim with a lease of its own. Change `claim` before the first attempt as you like. */
struct claimant {
    struct driver *driver;
    struct engine_claim claim;
    char lease[33];
};

/* key: borrowed. */
void claimant_begin(struct claimant *claimant, struct driver *driver, const char *key);
/* Frees what came out, too. */
void claimant_end(struct claimant *claimant);
/* One attempt: its outcome. Of a claim that may be asked again. */
int claimant_try(struct claimant *claimant);
/* Until it is neither BUSY nor QUEUED, or PATIENCE_MS have passed. */
int claimant_wait(struct claimant *claimant);
int claimant_finish(struct claimant *claimant, const void *bytes, size_t size, int64_t keep_ms);
int claimant_release(struct claimant *claimant);
/* The whole life of a claim that must get HELD. Returns its token. */
uint64_t run_once(struct driver *driver, const char *key, const void *bytes, size_t size,
                  int64_t keep_ms);
/* Of a fresh claim that does not wait: its outcome, and the token of its answer. */
int ask_once(struct driver *driver, const char *key, bool no_heir, uint64_t *ret_token);

/* What a claim must have been answered: DONE with this. */
void assert_done(const struct claimant *claimant, uint64_t token, const void *bytes, size_t size);

/* A claim that waits in a thread. */
struct waiter {
    struct claimant claimant;
    pthread_t thread;
    _Atomic bool over;
    int outcome;
};

/* key: borrowed. */
void waiter_start(struct waiter *waiter, struct driver *driver, const char *key, bool no_heir);
/* Joins it. The claimant is still to be ended. */
int waiter_outcome(struct waiter *waiter);

/* A process that claims the key, says so, and finishes when told to, if ever. */
struct runner {
    pid_t pid;
    int to, from; /* pipes */
    uint64_t token;
};

/* Waits until it runs the key. */
void runner_start(struct runner *runner, const char *url, const char *key, int64_t ttl_ms,
                  int64_t death_ms);
/* What finish answered there. */
int runner_finish(struct runner *runner, const char *text);
/* kill -9, unless it is dead already. */
void runner_kill(struct runner *runner);

/* Until it is true. Fails the test after PATIENCE_MS. */
#define EVENTUALLY(condition)                            \
    do {                                                 \
        int64_t until_ms_ = test_now_ms() + PATIENCE_MS; \
        while (!(condition)) {                           \
            assert_true(test_now_ms() < until_ms_);      \
            test_pause_ms(2);                            \
        }                                                \
    } while (0)
int64_t test_now_ms(void);
void test_pause_ms(long ms);

#endif
