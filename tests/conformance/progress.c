/* progress.c: a holder that hangs, and reports no progress, does not hold for ever. */
#include "once_tools.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static void note_time(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_store((_Atomic int64_t *)arg, now_ms());
}

/* Who reports nothing for less than a third of this is silent before a renewal is due: that is why it is lost, however late a renewal of before
 * would have been. */
static int64_t long_ttl_of(const struct context *context)
{
    return context->features & HF_HAS_TTL ? ttl_of(context, RENEWED_TTL_MS) : 0;
}

/* Also where nothing runs out. Whoever waits gets it after the holder was told, with a greater token. */
static void a_silent_holder_is_followed_and_knows(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context), others = options_of(context);
    hf_store *another = open_another(context);
    _Atomic int64_t lost_ms = 0;
    int64_t began_ms = now_ms();
    struct waiter waiter;
    hf_lock *lock;
    uint64_t token;

    options.ttl_ms = long_ttl_of(context);
    options.progress_ms = 500;
    options.on_lost = note_time;
    options.arg = (void *)&lost_ms;
    lock = must_acquire(context->store, "one", &options);
    token = hf_lock_token(lock);
    waiter_start(&waiter, another, "one", &others);
    await_lost(lock);
    assert_true(now_ms() - began_ms >= 500);
    must(HF_OK, waiter_join(&waiter));
    assert_true(atomic_load(&lost_ms) != 0 && atomic_load(&lost_ms) <= waiter.ended_ms);
    assert_true(hf_lock_token(waiter.lock) > token);
    assert_non_null(strstr(hf_lock_lost_why(lock), "no progress was reported"));
    must(HF_ELOST, hf_progress(lock));
    must(HF_ELOST, hf_release(lock));
    must(HF_OK, hf_check(another, "one", hf_lock_token(waiter.lock)));
    must(HF_OK, hf_release(waiter.lock));
    hf_close(another);
}

static void a_holder_that_reports_holds_on(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    int64_t until_ms = now_ms() + 5000;
    hf_lock *lock;

    options.ttl_ms = long_ttl_of(context);
    options.progress_ms = 2000;
    lock = must_acquire(context->store, "one", &options);
    while (now_ms() < until_ms) {
        must(HF_OK, hf_progress(lock));
        sleep_ms(20);
    }
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

/* What it has done is not known, so it counts as dead, on a store without TTL too. */
static void a_silent_runner_counts_as_dead(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_once *once, *other;
    uint64_t token, known_token = 0;

    if (context->features & HF_HAS_TTL)
        options.ttl_ms = ttl_of(context, SHORT_TTL_MS);
    options.progress_ms = 400;
    once = must_run(context->store, "one", &options);
    token = hf_once_token(once);
    await_lost(hf_once_lock(once));
    eventually(knows_death, context->store, "a death is known");
    assert_int_equal(HF_ONCE_DIED, known(context->store, &known_token));
    assert_true(known_token == token);
    options.fail_if_died = 1;
    must(HF_ELOST, hf_once_begin(context->store, "one", &options, &other));
    must(HF_ELOST, hf_progress(hf_once_lock(once)));
    must(HF_ESTALE, hf_once_finish(once, "late", 4, KEEP_MS));
}

/* Its time begins when it is taken up. */
static void what_is_adopted_must_report(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    char lease[HF_LEASE_MAX + 1];
    hf_lock *lock;
    uint64_t token;

    options.ttl_ms = long_ttl_of(context);
    lock = must_acquire(context->store, "one", &options);
    token = hf_lock_token(lock);
    snprintf(lease, sizeof lease, "%s", hf_lock_lease(lock));
    must(HF_OK, hf_lock_detach(lock));
    options.progress_ms = 200;
    must(HF_OK, hf_adopt(context->store, "one", lease, token, &options, &lock));
    await_lost(lock);
    assert_non_null(strstr(hf_lock_lost_why(lock), "no progress was reported"));
    must(HF_ELOST, hf_release(lock));
}

const struct suite_test progress_tests[] = {
    SUITE_TEST(a_silent_holder_is_followed_and_knows, .fragile = HOLDS_BRIEFLY, .steady = true),
    SUITE_TEST(a_holder_that_reports_holds_on, .steady = true, .fragile = HOLDS_BRIEFLY),
    SUITE_TEST(a_silent_runner_counts_as_dead, .needs = HF_HAS_ONCE, .fragile = HOLDS_BRIEFLY,
               .steady = true),
    SUITE_TEST(what_is_adopted_must_report, .needs = HF_HAS_DETACH, .fragile = HOLDS_BRIEFLY,
               .steady = true),
    {0},
};
