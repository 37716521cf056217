#include "suite.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_MS 10 /* eventually: between two looks */
#define UNSEEN_WAIT_MS 150

int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&span, &span) < 0 && errno == EINTR)
        ;
}

hf_options options_of(const struct context *context)
{
    hf_options options = HF_OPTIONS_INIT;

    options.wait_ms = PATIENCE_MS;
    if (context->features & HF_HAS_TTL)
        options.ttl_ms = LONG_TTL_MS;
    return options;
}

int64_t ttl_of(const struct context *context, int64_t ttl_ms)
{
    return ttl_ms > context->kind->short_ttl_ms ? ttl_ms : context->kind->short_ttl_ms;
}

hf_options short_options_of(const struct context *context)
{
    hf_options options = options_of(context);

    if (context->features & HF_HAS_TTL)
        options.ttl_ms = ttl_of(context, SHORT_TTL_MS);
    return options;
}

void must(int expected, int result)
{
    /* The words are of this thread's last failure, so perhaps not of this result. */
    if (result != expected)
        fail_msg("expected %s, got %s (%s)", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

int try_free(hf_store *store, const char *name, const hf_options *options, hf_lock **ret_lock)
{
    int64_t deadline_ms = now_ms() + PATIENCE_MS;
    int result;

    do
        result = hf_try(store, name, options, ret_lock);
    while (result == HF_EBUSY && strstr(hf_error(), "answers were lost") && now_ms() < deadline_ms);
    return result;
}

void must_be_busy(const struct context *context, hf_store *store, const char *name,
                  const hf_options *options)
{
    int64_t deadline_ms = now_ms() + AWAIT_MS;
    hf_lock *lock = NULL;
    int result;

    do
        result = hf_try(store, name, options, &lock);
    while (result == HF_EUNREACH && context->kind->leaders_fall && now_ms() < deadline_ms);
    must(HF_EBUSY, result);
    assert_null(lock);
}

hf_store *open_another(const struct context *context)
{
    hf_store *store = NULL;

    must(HF_OK, hf_open(context->url, &store));
    assert_non_null(store);
    return store;
}

hf_lock *must_acquire(hf_store *store, const char *name, const hf_options *options)
{
    hf_lock *lock = NULL;

    must(HF_OK, hf_acquire(store, name, options, &lock));
    assert_non_null(lock);
    assert_true(hf_lock_token(lock) >= 1 && hf_lock_token(lock) <= HF_TOKEN_MAX);
    return lock;
}

int count_entries(hf_store *store, const char *name, int kind)
{
    hf_report *report = NULL;
    int count = 0;

    must(HF_OK, hf_show(store, name, &report));
    for (size_t i = 0; i < hf_report_count(report); i++)
        if (hf_report_entry(report, i)->kind == kind)
            count++;
    hf_report_free(report);
    return count;
}

void eventually(bool (*condition)(void *arg), void *arg, const char *what)
{
    int64_t deadline_ms = now_ms() + AWAIT_MS;

    while (!condition(arg)) {
        if (now_ms() > deadline_ms)
            fail_msg("did not happen in %d ms: %s", (int)AWAIT_MS, what);
        sleep_ms(LOOK_MS);
    }
}

struct waiters_wanted {
    hf_store *store;
    const char *name;
    int count;
};

static bool waiters_are(void *arg)
{
    struct waiters_wanted *wanted = arg;

    return count_entries(wanted->store, wanted->name, HF_ENTRY_WAITER) == wanted->count;
}

void await_waiters(const struct context *context, const char *name, int count)
{
    struct waiters_wanted wanted = {context->store, name, count};

    if (context->kind->shows_waiters)
        eventually(waiters_are, &wanted, "so many wait");
    else if (count > 0)
        sleep_ms(UNSEEN_WAIT_MS);
}

void await_lost(hf_lock *lock)
{
    struct pollfd pollfd = {.fd = hf_lock_lost_fd(lock), .events = POLLIN};

    assert_true(pollfd.fd >= 0);
    assert_int_equal(1, poll(&pollfd, 1, (int)PATIENCE_MS));
    assert_int_equal(0, hf_lock_left_ms(lock));
}

/* ---- tallies --------------------------------------------------------------------------------- */

struct tally_inside {
    pthread_mutex_t mutex;
    pthread_cond_t raised;
    int count;
};

void tally_new(struct tally *tally)
{
    struct tally_inside *inside = calloc(1, sizeof *inside);
    pthread_condattr_t attributes;

    if (!inside)
        abort();
    pthread_mutex_init(&inside->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&inside->raised, &attributes);
    pthread_condattr_destroy(&attributes);
    tally->inside = inside;
}

void tally_free(struct tally *tally)
{
    struct tally_inside *inside = tally->inside;

    pthread_cond_destroy(&inside->raised);
    pthread_mutex_destroy(&inside->mutex);
    free(inside);
}

void tally_add(struct tally *tally, int count)
{
    struct tally_inside *inside = tally->inside;

    pthread_mutex_lock(&inside->mutex);
    inside->count += count;
    pthread_cond_broadcast(&inside->raised);
    pthread_mutex_unlock(&inside->mutex);
}

int tally_now(struct tally *tally)
{
    struct tally_inside *inside = tally->inside;
    int count;

    pthread_mutex_lock(&inside->mutex);
    count = inside->count;
    pthread_mutex_unlock(&inside->mutex);
    return count;
}

void tally_await(struct tally *tally, int least)
{
    struct tally_inside *inside = tally->inside;
    struct timespec until;
    int count, failed = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(AWAIT_MS / 1000);
    pthread_mutex_lock(&inside->mutex);
    while (inside->count < least && !failed)
        failed = pthread_cond_timedwait(&inside->raised, &inside->mutex, &until);
    count = inside->count;
    pthread_mutex_unlock(&inside->mutex);
    if (count < least)
        fail_msg("waited for %d of something, only %d came", least, count);
}

/* ---- waiters --------------------------------------------------------------------------------- */

static void *waiter_main(void *arg)
{
    struct waiter *waiter = arg;

    waiter->result = hf_acquire(waiter->store, waiter->name, &waiter->options, &waiter->lock);
    waiter->ended_ms = now_ms();
    /* The words are this thread's; the two that tests provoke need none. */
    if (waiter->result < 0 && waiter->result != HF_EBUSY && waiter->result != HF_ECANCELED)
        fprintf(stderr, "(a waiter for %s: %s: %s)\n", waiter->name, hf_result_name(waiter->result),
                hf_error());
    return NULL;
}

void waiter_start(struct waiter *waiter, hf_store *store, const char *name,
                  const hf_options *options)
{
    pthread_t thread;

    *waiter = (struct waiter){.store = store, .name = name, .options = *options};
    assert_int_equal(0, pthread_create(&thread, NULL, waiter_main, waiter));
    waiter->thread = thread;
}

int waiter_join(struct waiter *waiter)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(2 * PATIENCE_MS / 1000);
    if (pthread_timedjoin_np(waiter->thread, NULL, &until) != 0)
        fail_msg("a thread that waits for %s never came back", waiter->name);
    return waiter->result;
}
