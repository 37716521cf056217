#include "fixture.h"

#include <ftw.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOOK_MS 10

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int fixture_open(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    if (!fixture)
        return -1;
    snprintf(fixture->dir, sizeof fixture->dir, "/tmp/holdfast-unit.XXXXXX");
    if (!mkdtemp(fixture->dir))
        return -1;
    snprintf(fixture->path, sizeof fixture->path, "%s/store", fixture->dir);
    fixture->faults = faults_open(fixture->path);
    if (!fixture->faults)
        return -1;
    fixture->store = fixture_another(fixture, "test", "");
    *state = fixture;
    return fixture->store ? 0 : -1;
}

int fixture_close(void **state)
{
    struct fixture *fixture = *state;

    faults_clear(fixture->faults); /* what a failed test left must not hold up the closing */
    hf_close(fixture->store);
    faults_close(fixture->faults);
    nftw(fixture->dir, remove_one, 4, FTW_DEPTH | FTW_PHYS);
    free(fixture);
    return 0;
}

hf_store *fixture_another(const struct fixture *fixture, const char *scheme, const char *options)
{
    hf_store *store = NULL;
    char url[256];

    snprintf(url, sizeof url, "%s:%s%s", scheme, fixture->path, options);
    if (hf_open(url, &store) != HF_OK)
        fprintf(stderr, "cannot open %s: %s\n", url, hf_error());
    return store;
}

int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&span, NULL);
}

void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s: %s", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

hf_options options_of(int64_t ttl_ms, int64_t wait_ms)
{
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = ttl_ms;
    options.wait_ms = wait_ms;
    return options;
}

hf_lock *must_acquire(hf_store *store, const char *name, int64_t ttl_ms)
{
    hf_options options = options_of(ttl_ms, PATIENCE_MS);
    hf_lock *lock = NULL;

    must(HF_OK, hf_acquire(store, name, &options, &lock));
    assert_non_null(lock);
    return lock;
}

int count_entries(hf_store *store, const char *name, int kind)
{
    hf_report *report;
    int count = 0;

    must(HF_OK, hf_show(store, name, &report));
    for (size_t i = 0; i < hf_report_count(report); i++)
        if (hf_report_entry(report, i)->kind == kind)
            count++;
    hf_report_free(report);
    return count;
}

void await_entries(hf_store *store, const char *name, int kind, int count)
{
    int64_t deadline_ms = now_ms() + PATIENCE_MS;

    while (count_entries(store, name, kind) != count) {
        if (now_ms() > deadline_ms)
            fail_msg("never %d %s of %s", count, kind == HF_ENTRY_WAITER ? "waiters" : "holders",
                     name);
        sleep_ms(LOOK_MS);
    }
}

int64_t await_lost(hf_lock *lock)
{
    struct pollfd pollfd = {.fd = hf_lock_lost_fd(lock), .events = POLLIN};

    assert_true(pollfd.fd >= 0);
    assert_int_equal(1, poll(&pollfd, 1, (int)PATIENCE_MS));
    assert_int_equal(0, hf_lock_left_ms(lock));
    return now_ms();
}

void note_lost(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_store((_Atomic int64_t *)arg, now_ms());
}

int64_t await_told(const _Atomic int64_t *told_ms)
{
    int64_t deadline_ms = now_ms() + PATIENCE_MS;

    while (atomic_load(told_ms) == 0) {
        if (now_ms() > deadline_ms)
            fail_msg("on_lost was never called");
        sleep_ms(2);
    }
    return atomic_load(told_ms);
}

static void *caller_main(void *arg)
{
    struct caller *caller = arg;

    caller->result = hf_acquire(caller->store, caller->name, &caller->options, &caller->lock);
    /* The words are this thread's; the two that tests provoke need none. */
    if (caller->result < 0 && caller->result != HF_EBUSY && caller->result != HF_ECANCELED)
        fprintf(stderr, "(a caller for %s: %s: %s)\n", caller->name, hf_result_name(caller->result),
                hf_error());
    return NULL;
}

void caller_start(struct caller *caller, hf_store *store, const char *name, hf_options options)
{
    *caller = (struct caller){.store = store, .name = name, .options = options};
    assert_int_equal(0, pthread_create(&caller->thread, NULL, caller_main, caller));
}

int caller_join(struct caller *caller)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(2 * PATIENCE_MS / 1000);
    if (pthread_timedjoin_np(caller->thread, NULL, &until) != 0)
        fail_msg("a thread that waits for %s never came back", caller->name);
    return caller->result;
}
