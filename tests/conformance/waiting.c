/* waiting.c: timed and blocking waits, cancelling, and that nothing stays behind. */
#include "suite.h"

#include <pthread.h>
#include <sched.h>

static void a_timed_wait_runs_out_and_leaves_nothing(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(another, "one", &options), *other;
    int64_t began_ms = now_ms();

    options.wait_ms = 200;
    must(HF_EBUSY, hf_acquire(context->store, "one", &options, &other));
    assert_in_range(now_ms() - began_ms, 195, PATIENCE_MS);
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_WAITER));
    must(HF_OK, hf_release(lock));
    must(HF_OK, try_free(context->store, "one", &options, &other));
    must(HF_OK, hf_release(other));
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_HOLDER));
    hf_close(another);
}

static void a_wait_ends_with_a_release(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(another, "one", &options);
    uint64_t token = hf_lock_token(lock);
    struct waiter waiter;

    options.wait_ms = HF_FOREVER;
    waiter_start(&waiter, context->store, "one", &options);
    await_waiters(context, "one", 1);
    must(HF_OK, hf_release(lock));
    must(HF_OK, waiter_join(&waiter));
    assert_true(hf_lock_token(waiter.lock) > token);
    must(HF_OK, hf_release(waiter.lock));
    hf_close(another);
}

static void a_wait_ends_with_a_release_by_another_process(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", NULL, &helper);
    struct waiter waiter;

    waiter_start(&waiter, context->store, "one", &options);
    await_waiters(context, "one", 1);
    helper_say(helper, "release");
    helper_hear(helper, "released");
    must(HF_OK, waiter_join(&waiter));
    assert_true(hf_lock_token(waiter.lock) > token);
    must(HF_OK, hf_release(waiter.lock));
}

static void a_cancelled_wait_leaves_nothing(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options), *other;
    struct waiter waiter;
    hf_cancel *cancel;

    must(HF_OK, hf_cancel_new(&cancel));
    options.cancel = cancel;
    options.wait_ms = HF_FOREVER;
    waiter_start(&waiter, context->store, "one", &options);
    await_waiters(context, "one", 1);
    hf_cancel_fire(cancel);
    must(HF_ECANCELED, waiter_join(&waiter));
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_WAITER));
    /* Once fired it stays fired. */
    must(HF_ECANCELED, hf_acquire(context->store, "one", &options, &other));
    must(HF_OK, hf_release(lock));
    options.cancel = NULL;
    must(HF_OK, try_free(context->store, "one", &options, &other));
    must(HF_OK, hf_release(other));
    hf_cancel_free(cancel);
}

#define SHARERS 5

static void one_cancel_ends_many_waits(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    struct waiter waiters[SHARERS];
    hf_cancel *cancel;

    must(HF_OK, hf_cancel_new(&cancel));
    options.cancel = cancel;
    for (int i = 0; i < SHARERS; i++)
        waiter_start(&waiters[i], context->store, "one", &options);
    await_waiters(context, "one", SHARERS);
    hf_cancel_fire(cancel);
    for (int i = 0; i < SHARERS; i++)
        must(HF_ECANCELED, waiter_join(&waiters[i]));
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_WAITER));
    assert_int_equal(1, count_entries(context->store, "one", HF_ENTRY_HOLDER));
    must(HF_OK, hf_release(lock));
    hf_cancel_free(cancel);
}

/* redsync, kazoo PR 760: whoever cancels while the grant is on its way must not leave an orphan. */
static void a_cancel_that_races_a_grant_leaves_no_orphan(void **state)
{
    struct context *context = *state;
    int granted = 0;

    for (int i = 0; i < 60; i++) {
        hf_options options = options_of(context);
        hf_lock *lock = must_acquire(context->store, "raced", &options), *other;
        struct waiter waiter;
        hf_cancel *cancel;
        int result;

        must(HF_OK, hf_cancel_new(&cancel));
        options.cancel = cancel;
        waiter_start(&waiter, context->store, "raced", &options);
        if (i % 4 == 0 && context->kind->shows_waiters)
            await_waiters(context, "raced", 1);
        for (int k = 0; k < i % 7; k++)
            sched_yield();
        if (i % 2) {
            must(HF_OK, hf_release(lock));
            for (int k = 0; k < i % 5; k++)
                sched_yield();
            hf_cancel_fire(cancel);
        } else {
            hf_cancel_fire(cancel);
            must(HF_OK, hf_release(lock));
        }
        result = waiter_join(&waiter);
        assert_true(result == HF_OK || result == HF_ECANCELED);
        if (result == HF_OK) {
            granted++;
            must(HF_OK, hf_release(waiter.lock));
        }
        options.cancel = NULL;
        must(HF_OK, try_free(context->store, "raced", &options, &other));
        must(HF_OK, hf_release(other));
        hf_cancel_free(cancel);
    }
    print_message("             (granted before the cancel: %d of 60)\n", granted);
}

static void a_timeout_that_races_a_grant_leaves_no_orphan(void **state)
{
    struct context *context = *state;

    for (int i = 0; i < 25; i++) {
        hf_options options = options_of(context);
        hf_lock *lock = must_acquire(context->store, "raced", &options), *other;
        struct waiter waiter;
        int result;

        options.wait_ms = 20;
        waiter_start(&waiter, context->store, "raced", &options);
        sleep_ms(17 + i % 6);
        must(HF_OK, hf_release(lock));
        result = waiter_join(&waiter);
        assert_true(result == HF_OK || result == HF_EBUSY);
        if (result == HF_OK)
            must(HF_OK, hf_release(waiter.lock));
        must(HF_OK, try_free(context->store, "raced", &options, &other));
        must(HF_OK, hf_release(other));
    }
}

#define LINE 6

static void every_waiter_gets_its_turn(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(context->store, "line", &options);
    struct waiter waiters[LINE];
    uint64_t last = hf_lock_token(lock);

    for (int i = 0; i < LINE; i++)
        waiter_start(&waiters[i], i % 2 ? another : context->store, "line", &options);
    await_waiters(context, "line", LINE);
    must(HF_OK, hf_release(lock));
    for (int turn = 0; turn < LINE; turn++) {
        struct waiter *holder = NULL;
        int64_t deadline_ms = now_ms() + PATIENCE_MS;

        while (!holder && now_ms() < deadline_ms) {
            sleep_ms(1);
            for (int i = 0; i < LINE && !holder; i++)
                if (waiters[i].thread && pthread_tryjoin_np(waiters[i].thread, NULL) == 0)
                    holder = &waiters[i];
        }
        assert_non_null(holder);
        holder->thread = 0;
        must(HF_OK, holder->result);
        assert_true(hf_lock_token(holder->lock) > last);
        last = hf_lock_token(holder->lock);
        must(HF_OK, hf_release(holder->lock));
    }
    hf_close(another);
}

const struct suite_test waiting_tests[] = {
    SUITE_TEST(a_timed_wait_runs_out_and_leaves_nothing, .fragile = WAITS_BRIEFLY),
    SUITE_TEST(a_wait_ends_with_a_release, .brief = true),
    SUITE_TEST(a_wait_ends_with_a_release_by_another_process),
    SUITE_TEST(a_cancelled_wait_leaves_nothing, .brief = true),
    SUITE_TEST(one_cancel_ends_many_waits),
    SUITE_TEST(a_cancel_that_races_a_grant_leaves_no_orphan, .brief = true),
    SUITE_TEST(a_timeout_that_races_a_grant_leaves_no_orphan, .fragile = WAITS_BRIEFLY),
    SUITE_TEST(every_waiter_gets_its_turn, .brief = true),
    {0},
};
