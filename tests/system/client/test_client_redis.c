/* test_client_redis.c: giving a lock up while its server hangs, or is away. */
#include "servers.h"

#include <holdfast/holdfast.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS INT64_C(20000)
#define LONG_TTL_MS 20000
#define TTL_MS \
    3000 /* the third renewal of a store that hangs begins before the end, and ends after it */
#define LATE_MS 400  /* what is left by then */
#define AWAY_MS 1500 /* how long a server is away: three quick tries are over by then */

static struct redis_server server;
static hf_store *store;
static char url[128];

/* ---- helpers --------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void sleep_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&span, NULL);
}

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s: %s", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

static int start(void **state)
{
    (void)state;
    server = (struct redis_server){0};
    if (redis_start(&server, NULL) < 0)
        return -1;
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", server.port);
    return hf_open(url, &store) == HF_OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    (void)redis_resume(&server);
    hf_close(store);
    redis_stop(&server);
    return 0;
}

/* ---- a server that hangs --------------------------------------------------------------------- */

static _Atomic int calls, done_result;
static _Atomic bool done;

static void on_lost(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_fetch_add(&calls, 1);
    ++*(volatile int *)arg; /* which is freed: a sanitizer would say so */
}

static void note_done(hf_op *op, int result, void *arg)
{
    (void)op;
    (void)arg;
    atomic_store(&done_result, result);
    atomic_store(&done, true);
}

/* The argument is freed as soon as the lock is given up, with a renewal in flight that outlasts the lock. */
static void nothing_is_told_of_a_lock_that_is_given_up_in_time(void **state)
{
    hf_options options = HF_OPTIONS_INIT;
    int64_t deadline_ms = now_ms() + PATIENCE_MS;
    volatile int *arg = malloc(sizeof *arg);
    hf_lock *lock;
    hf_op *op;

    (void)state;
    assert_non_null((void *)arg);
    *arg = 0;
    options.ttl_ms = TTL_MS;
    options.on_lost = on_lost;
    options.arg = (void *)arg;
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    assert_int_equal(0, redis_pause(&server));
    while (hf_lock_left_ms(lock) > LATE_MS)
        sleep_ms(5);
    atomic_store(&calls, 0);
    atomic_store(&done, false);
    must(HF_OK, hf_release_start(lock, note_done, NULL, &op));
    free((void *)arg);
    sleep_ms(2 * LATE_MS); /* its end passes */
    assert_int_equal(0, redis_resume(&server));
    while (!atomic_load(&done)) {
        assert_true(now_ms() < deadline_ms);
        sleep_ms(5);
    }
    assert_int_equal(0, atomic_load(&calls));
}

/* ---- a server that is away ------------------------------------------------------------------- */

struct giving_up {
    hf_lock *lock;
    int result;
};

static void *release_it(void *arg)
{
    struct giving_up *giving_up = arg;

    giving_up->result = hf_release(giving_up->lock);
    return NULL;
}

static void save_and_kill(void)
{
    char reply[64];

    assert_int_equal(0, REDIS_DO(&server, reply, sizeof reply, "SAVE"));
    redis_kill9(&server);
}

/* While the thread tries to reach it. */
static void come_back_after(pthread_t thread)
{
    sleep_ms(AWAY_MS);
    assert_int_equal(0, redis_restart(&server, true));
    assert_int_equal(0, pthread_join(thread, NULL));
}

static void a_release_outlasts_a_restart_of_the_server(void **state)
{
    hf_options options = HF_OPTIONS_INIT;
    struct giving_up giving_up;
    hf_store *another = NULL;
    pthread_t thread;
    hf_lock *lock;

    (void)state;
    options.ttl_ms = LONG_TTL_MS;
    must(HF_OK, hf_acquire(store, "one", &options, &giving_up.lock));
    save_and_kill();
    assert_int_equal(0, pthread_create(&thread, NULL, release_it, &giving_up));
    come_back_after(thread);
    must(HF_OK, giving_up.result);
    must(HF_OK, hf_open(url, &another));
    must(HF_OK, hf_try(another, "one", &options, &lock)); /* long before its TTL */
    must(HF_OK, hf_release(lock));
    hf_close(another);
}

struct waiting {
    hf_options options;
    int result;
};

static void *wait_for_it(void *arg)
{
    struct waiting *waiting = arg;
    hf_lock *lock = NULL;

    waiting->result = hf_acquire(store, "one", &waiting->options, &lock);
    return NULL;
}

static bool somebody_waits(void)
{
    hf_report *report = NULL;
    bool waits = false;

    must(HF_OK, hf_show(store, "one", &report));
    for (size_t i = 0; i < hf_report_count(report); i++)
        waits = waits || hf_report_entry(report, i)->kind == HF_ENTRY_WAITER;
    hf_report_free(report);
    return waits;
}

static void a_clean_up_outlasts_a_restart_of_the_server(void **state)
{
    struct waiting waiting = {.options = HF_OPTIONS_INIT};
    int64_t deadline_ms = now_ms() + PATIENCE_MS;
    pthread_t thread;
    hf_lock *lock;

    (void)state;
    waiting.options.ttl_ms = LONG_TTL_MS;
    must(HF_OK, hf_acquire(store, "one", &waiting.options, &lock));
    must(HF_OK, hf_cancel_new(&waiting.options.cancel));
    assert_int_equal(0, pthread_create(&thread, NULL, wait_for_it, &waiting));
    while (!somebody_waits()) {
        assert_true(now_ms() < deadline_ms);
        sleep_ms(5);
    }
    save_and_kill();
    hf_cancel_fire(waiting.options.cancel);
    come_back_after(thread);
    must(HF_ECANCELED, waiting.result);
    assert_false(somebody_waits());
    hf_cancel_free(waiting.options.cancel);
    must(HF_OK, hf_release(lock));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_told_of_a_lock_that_is_given_up_in_time),
        TEST(a_release_outlasts_a_restart_of_the_server),
        TEST(a_clean_up_outlasts_a_restart_of_the_server),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
