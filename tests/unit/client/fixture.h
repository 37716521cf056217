/* fixture.h: a client over the test engine, for tests of what the client does when things go wrong. */
#ifndef TESTS_UNIT_FIXTURE_H
#define TESTS_UNIT_FIXTURE_H

#include "test_engine.h"

#include <holdfast/holdfast.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PATIENCE_MS INT64_C(10000)
#define LONG_TTL_MS INT64_C(20000)

struct fixture {
    char dir[64];
    char path[96];
    hf_store *store;
    struct faults *faults;
};

/* cmocka's set-up and tear-down: a fresh test: store, opened, and its faults. */
int fixture_open(void **state);
int fixture_close(void **state);
/* Another handle on the same table; options: "" or "?push=no" and the like. */
hf_store *fixture_another(const struct fixture *fixture, const char *scheme, const char *options);

int64_t now_ms(void);
void sleep_ms(int64_t ms);
void must(int expected, int result);
hf_options options_of(int64_t ttl_ms, int64_t wait_ms);
hf_lock *must_acquire(hf_store *store, const char *name, int64_t ttl_ms);
int count_entries(hf_store *store, const char *name, int kind);
/* Until so many wait (or hold). */
void await_entries(hf_store *store, const char *name, int kind, int count);
/* Until the lock's descriptor says it is lost; returns when that was seen. */
int64_t await_lost(hf_lock *lock);
/* on_lost with an _Atomic int64_t as arg: when it was called. */
void note_lost(hf_lock *lock, void *arg);
/* Until it was; returns when. */
int64_t await_told(const _Atomic int64_t *told_ms);

struct caller {
    hf_store *store;
    const char *name;
    hf_options options;
    hf_lock *lock;
    int result;
    pthread_t thread;
};
void caller_start(struct caller *caller, hf_store *store, const char *name, hf_options options);
int caller_join(struct caller *caller);

#endif
