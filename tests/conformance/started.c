/* started.c: operations that are started, with a loop of the program's own and without. */
#include "suite.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* Runs callbacks until the tally is that high. */
static void dispatch_until(hf_store *store, struct tally *tally, int least)
{
    struct pollfd pollfd = {.fd = hf_fd(store), .events = POLLIN};
    int64_t deadline_ms = now_ms() + AWAIT_MS;

    assert_true(pollfd.fd >= 0);
    while (tally_now(tally) < least) {
        int64_t left_ms = deadline_ms - now_ms();

        if (left_ms <= 0 || poll(&pollfd, 1, (int)left_ms) != 1)
            fail_msg("waited for %d callbacks, only %d came", least, tally_now(tally));
        assert_true(hf_dispatch(store) >= 0);
    }
}

struct outcome {
    struct tally *done;
    int result;
    int times;
    hf_lock *lock;
    hf_report *report;
    unsigned long thread;
    bool leave_it; /* do not take the lock out */
};

static void note_outcome(hf_op *op, int result, void *arg)
{
    struct outcome *outcome = arg;

    outcome->result = result;
    outcome->times++;
    outcome->thread = pthread_self();
    if (!outcome->leave_it)
        outcome->lock = hf_op_take_lock(op);
    outcome->report = hf_op_take_report(op);
    if (result != HF_OK && hf_op_error(op)[0] == '\0')
        outcome->result = HF_EINTERNAL; /* a failure must come with its words */
    tally_add(outcome->done, 1);
}

static void a_started_acquisition_ends_in_the_loop(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct tally done;
    struct outcome first = {.done = &done}, second = {.done = &done}, gone = {.done = &done};
    hf_op *op;

    tally_new(&done);
    assert_true(hf_fd(context->store) >= 0);
    must(HF_OK, hf_acquire_start(context->store, "one", &options, note_outcome, &first, &op));
    sleep_ms(100);
    assert_int_equal(0, tally_now(&done)); /* callbacks run only inside hf_dispatch */
    dispatch_until(context->store, &done, 1);
    must(HF_OK, first.result);
    assert_true(first.thread == pthread_self());
    assert_non_null(first.lock);
    must(HF_OK, hf_acquire_start(context->store, "one", &options, note_outcome, &second, &op));
    await_waiters(context, "one", 1);
    must(HF_OK, hf_release_start(first.lock, note_outcome, &gone, &op));
    dispatch_until(context->store, &done, 3);
    must(HF_OK, second.result);
    must(HF_OK, gone.result);
    must(HF_OK, hf_release(second.lock));
    assert_int_equal(1, first.times);
    assert_int_equal(0, hf_dispatch(context->store));
    tally_free(&done);
}

static void a_started_acquisition_can_fail(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    struct tally done;
    struct outcome busy = {.done = &done}, cancelled = {.done = &done}, fired = {.done = &done};
    hf_cancel *cancel;
    hf_op *op, *second;

    tally_new(&done);
    options.wait_ms = 0;
    must(HF_OK, hf_acquire_start(context->store, "one", &options, note_outcome, &busy, &op));
    dispatch_until(context->store, &done, 1);
    must(HF_EBUSY, busy.result);
    options.wait_ms = HF_FOREVER;
    must(HF_OK, hf_acquire_start(context->store, "one", &options, note_outcome, &cancelled, &op));
    must(HF_OK, hf_cancel_new(&cancel));
    options.cancel = cancel;
    must(HF_OK, hf_acquire_start(context->store, "one", &options, note_outcome, &fired, &second));
    await_waiters(context, "one", 2);
    hf_op_cancel(op);
    hf_cancel_fire(cancel);
    dispatch_until(context->store, &done, 3);
    must(HF_ECANCELED, cancelled.result);
    must(HF_ECANCELED, fired.result);
    assert_null(cancelled.lock);
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_WAITER));
    must(HF_EINVAL, hf_acquire_start(context->store, "", &options, note_outcome, &busy, &op));
    must(HF_OK, hf_release(lock));
    hf_cancel_free(cancel);
    tally_free(&done);
}

static void a_lock_not_taken_out_is_released(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct tally done;
    struct outcome outcome = {.done = &done, .leave_it = true};
    hf_store *another = open_another(context);
    hf_lock *lock;
    hf_op *op;

    tally_new(&done);
    must(HF_OK, hf_acquire_start(context->store, "one", &options, note_outcome, &outcome, &op));
    dispatch_until(context->store, &done, 1);
    must(HF_OK, outcome.result);
    lock = must_acquire(another, "one", &options);
    must(HF_OK, hf_release(lock));
    tally_free(&done);
    hf_close(another);
}

#define MANY 300

static void several_hundred_at_once(void **state)
{
    static struct outcome outcomes[MANY], releases[MANY];
    struct context *context = *state;
    hf_options options = options_of(context);
    struct tally done;
    hf_report *report;
    hf_op *op;

    /* Each may be a thread, and all begin anew with a new leader. */
    if (context->kind->leaders_fall)
        options.wait_ms = AWAIT_MS;
    tally_new(&done);
    for (int i = 0; i < MANY; i++) {
        char name[32];

        snprintf(name, sizeof name, "many/%d", i);
        outcomes[i] = releases[i] = (struct outcome){.done = &done};
        must(HF_OK,
             hf_acquire_start(context->store, name, &options, note_outcome, &outcomes[i], &op));
    }
    dispatch_until(context->store, &done, MANY);
    for (int i = 0; i < MANY; i++)
        must(HF_OK, outcomes[i].result);
    must(HF_OK, hf_list(context->store, NULL, &report));
    assert_int_equal(MANY, hf_report_count(report));
    hf_report_free(report);
    for (int i = 0; i < MANY; i++)
        must(HF_OK, hf_release_start(outcomes[i].lock, note_outcome, &releases[i], &op));
    dispatch_until(context->store, &done, 2 * MANY);
    for (int i = 0; i < MANY; i++) {
        must(HF_OK, releases[i].result);
        assert_int_equal(1, outcomes[i].times + releases[i].times - 1);
    }
    tally_free(&done);
}

#define LINE 100

struct in_line {
    struct tally *done;
    _Atomic int inside;
    _Atomic int wrong;
    _Atomic uint64_t last;
};

static void enter_and_leave(hf_op *op, int result, void *arg)
{
    struct in_line *line = arg;
    hf_lock *lock = hf_op_take_lock(op);

    if (result != HF_OK || !lock || atomic_fetch_add(&line->inside, 1) != 0 ||
        hf_lock_token(lock) <= line->last)
        atomic_fetch_add(&line->wrong, 1);
    if (lock) {
        line->last = hf_lock_token(lock);
        atomic_fetch_sub(&line->inside, 1);
        if (hf_release(lock) != HF_OK) /* a callback may call anything but close */
            atomic_fetch_add(&line->wrong, 1);
    }
    tally_add(line->done, 1);
}

static void a_hundred_wait_for_one_name(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "line", &options);
    struct tally done;
    struct in_line line = {.done = &done};
    hf_op *op;

    tally_new(&done);
    options.wait_ms = HF_FOREVER;
    for (int i = 0; i < LINE; i++)
        must(HF_OK,
             hf_acquire_start(context->store, "line", &options, enter_and_leave, &line, &op));
    must(HF_OK, hf_release(lock));
    tally_await(&done, LINE); /* no loop: a thread of the library calls */
    assert_int_equal(0, line.wrong);
    assert_int_equal(0, count_entries(context->store, "line", HF_ENTRY_HOLDER));
    tally_free(&done);
}

static void without_a_loop_the_library_calls(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct tally done;
    struct outcome outcome = {.done = &done};
    hf_op *op;

    tally_new(&done);
    must(HF_OK, hf_acquire_start(context->store, "one", &options, note_outcome, &outcome, &op));
    tally_await(&done, 1);
    must(HF_OK, outcome.result);
    assert_true(outcome.thread != pthread_self());
    must(HF_OK, hf_release(outcome.lock));
    tally_free(&done);
}

static void everything_that_can_wait_can_be_started(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    uint64_t token = hf_lock_token(lock);
    struct tally done;
    struct outcome shown = {.done = &done}, all = {.done = &done}, alive = {.done = &done},
                   stale = {.done = &done}, renewed = {.done = &done}, broken = {.done = &done};
    int count = 5;
    hf_op *op;

    tally_new(&done);
    must(HF_OK, hf_show_start(context->store, "one", note_outcome, &shown, &op));
    must(HF_OK, hf_list_start(context->store, NULL, note_outcome, &all, &op));
    must(HF_OK, hf_check_start(context->store, "one", token, note_outcome, &alive, &op));
    must(HF_OK, hf_check_start(context->store, "one", token + 9, note_outcome, &stale, &op));
    must(HF_OK, hf_renew_start(lock, note_outcome, &renewed, &op));
    dispatch_until(context->store, &done, count);
    must(HF_OK, shown.result);
    assert_int_equal(1, hf_report_count(shown.report));
    assert_true(hf_report_entry(shown.report, 0)->token == token);
    hf_report_free(shown.report);
    must(HF_OK, all.result);
    assert_int_equal(1, hf_report_count(all.report));
    hf_report_free(all.report);
    must(HF_OK, alive.result);
    must(HF_ELOST, stale.result);
    must(HF_OK, renewed.result);
    if (context->features & HF_HAS_BREAK) {
        must(HF_OK, hf_break_start(context->store, "one", 0, note_outcome, &broken, &op));
        dispatch_until(context->store, &done, count + 1);
        must(HF_OK, broken.result);
        must(HF_ELOST, hf_check(context->store, "one", token));
    }
    (void)hf_release(lock);
    tally_free(&done);
}

static void count_lost(hf_lock *lock, void *arg)
{
    (void)lock;
    tally_add(arg, 1);
}

static void a_loss_is_told_in_the_loop(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct tally lost;
    hf_lock *lock;

    tally_new(&lost);
    assert_true(hf_fd(context->store) >= 0);
    options.max_hold_ms = 300;
    options.on_lost = count_lost;
    options.arg = &lost;
    lock = must_acquire(context->store, "one", &options);
    await_lost(lock);
    assert_int_equal(0, tally_now(&lost));
    dispatch_until(context->store, &lost, 1);
    must(HF_ELOST, hf_release(lock));
    assert_int_equal(1, tally_now(&lost));
    tally_free(&lost);
}

static void closing_ends_what_was_started(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options), *other;
    hf_store *another = open_another(context);
    struct tally done;
    struct outcome outcomes[10];
    hf_op *op;

    tally_new(&done);
    options.wait_ms = HF_FOREVER;
    for (int i = 0; i < 10; i++) {
        outcomes[i] = (struct outcome){.done = &done};
        must(HF_OK, hf_acquire_start(another, "one", &options, note_outcome, &outcomes[i], &op));
    }
    await_waiters(context, "one", 10);
    hf_close(another);
    assert_int_equal(0, tally_now(&done)); /* its callbacks are called no more */
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_WAITER));
    must(HF_OK, hf_release(lock));
    must(HF_OK, try_free(context->store, "one", &options, &other));
    must(HF_OK, hf_release(other));
    tally_free(&done);
}

const struct suite_test started_tests[] = {
    SUITE_TEST(a_started_acquisition_ends_in_the_loop),
    SUITE_TEST(a_started_acquisition_can_fail),
    SUITE_TEST(a_lock_not_taken_out_is_released),
    SUITE_TEST(several_hundred_at_once, .brief = true),
    SUITE_TEST(a_hundred_wait_for_one_name, .brief = true),
    SUITE_TEST(without_a_loop_the_library_calls),
    SUITE_TEST(everything_that_can_wait_can_be_started, .fragile = BREAKS, .steady = true),
    SUITE_TEST(a_loss_is_told_in_the_loop),
    SUITE_TEST(closing_ends_what_was_started, .brief = true),
    {0},
};
