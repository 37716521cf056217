/* once.c: what is to be done once, however often it is asked for. */
#include "once_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLERS 100

/* ---- running it ------------------------------------------------------------------------------ */

static void the_first_runs_it_and_the_next_gets_the_result(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_store *another = open_another(context);
    hf_once *once = must_run(context->store, "one", &options);
    uint64_t token = hf_once_token(once);

    assert_true(hf_lock_token(hf_once_lock(once)) == token);
    assert_string_equal("one", hf_lock_name(hf_once_lock(once)));
    assert_true(hf_once_left_ms(once) > 0);
    must_finish(once, "42");
    must_be_done(must_begin(context->store, "one", &options), token, "42", 2);
    must_be_done(must_begin(another, "one", &options), token, "42", 2);
    options.wait_ms = 0;
    must_be_done(must_begin(another, "one", &options), token, "42", 2);
    options.fail_if_died = 1;
    must_be_done(must_begin(another, "one", &options), token, "42", 2);
    hf_close(another);
}

/* So many at the same time, over two handles: one runs it, and all have the same answer. */
static void call_together(struct context *context, int count)
{
    static struct caller callers[CALLERS];
    hf_store *another = open_another(context);
    struct tally runs, go, begun;
    int ran = 0;

    tally_new(&runs);
    tally_new(&go);
    tally_new(&begun);
    for (int i = 0; i < count; i++) {
        callers[i] = (struct caller){.store = i % 2 ? another : context->store,
                                     .options = once_options_of(context),
                                     .runs = &runs,
                                     .go = &go,
                                     .begun = &begun};
        callers[i].options.wait_ms = 2 * PATIENCE_MS;
        caller_start(&callers[i]);
    }
    tally_await(&runs, 1);
    tally_await(&begun, count);
    tally_add(&go, 1);
    for (int i = 0; i < count; i++) {
        caller_join(&callers[i]);
        if (callers[i].result != HF_OK)
            fail_msg("a caller: %s: %s", hf_result_name(callers[i].result), callers[i].text);
        ran += callers[i].ran;
        assert_string_equal(callers[0].text, callers[i].text);
        assert_true(callers[0].token == callers[i].token);
    }
    assert_int_equal(1, ran);
    assert_int_equal(1, tally_now(&runs));
    tally_free(&begun);
    tally_free(&go);
    tally_free(&runs);
    hf_close(another);
}

static void two_callers_and_one_run(void **state)
{
    call_together(*state, 2);
}

static void a_hundred_callers_and_one_run(void **state)
{
    call_together(*state, CALLERS);
}

static void a_release_lets_the_next_one_run(void **state)
{
    struct context *context = *state;
    struct tally runs;
    struct caller caller = {
        .store = context->store, .options = once_options_of(context), .runs = &runs};
    hf_once *once = must_run(context->store, "one", &caller.options);
    uint64_t token = hf_once_token(once);

    tally_new(&runs);
    caller_start(&caller);
    must(HF_OK, hf_once_release(once));
    caller_join(&caller);
    must(HF_OK, caller.result);
    assert_true(caller.ran);
    assert_true(caller.token > token);
    once = must_begin(context->store, "one", &caller.options);
    must_be_done(once, caller.token, caller.text, strlen(caller.text));
    tally_free(&runs);
}

static void whoever_does_not_wait_is_told_that_it_runs(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_store *another = open_another(context);
    hf_once *once = must_run(context->store, "one", &options), *other;

    options.wait_ms = 0;
    must(HF_EBUSY, hf_once_begin(another, "one", &options, &other));
    must(HF_EBUSY, hf_once_begin(context->store, "one", &options, &other));
    options.wait_ms = 200;
    must(HF_EBUSY, hf_once_begin(another, "one", &options, &other));
    must(HF_OK, hf_once_release(once));
    options.wait_ms = 0; /* and nobody has a place: it is free */
    must(HF_OK, hf_once_release(must_run(another, "one", &options)));
    hf_close(another);
}

static void a_cancelled_wait_leaves_nothing(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_once *once = must_run(context->store, "one", &options);
    struct tally begun;
    struct caller caller = {.store = context->store, .options = options, .begun = &begun};

    tally_new(&begun);
    must(HF_OK, hf_cancel_new(&caller.options.cancel));
    caller_start(&caller);
    tally_await(&begun, 1);
    sleep_ms(50); /* so that it most likely waits; either way it must end so */
    hf_cancel_fire(caller.options.cancel);
    caller_join(&caller);
    must(HF_ECANCELED, caller.result);
    must(HF_OK, hf_once_release(once));
    options.wait_ms = 0;
    must(HF_OK, hf_once_release(must_run(context->store, "one", &options)));
    hf_cancel_free(caller.options.cancel);
    tally_free(&begun);
}

static void a_key_is_not_a_lock(void **state)
{
    struct context *context = *state;
    hf_options plain = options_of(context);
    hf_once_options options = once_options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &plain);
    hf_once *once = must_run(context->store, "one", &options);
    char sequencer[HF_SEQUENCER_MAX];
    hf_report *report;

    assert_true(hf_once_token(once) != hf_lock_token(lock));
    assert_int_equal(1, count_entries(context->store, "one", HF_ENTRY_HOLDER));
    must(HF_ELOST, hf_check(context->store, "one", hf_once_token(once)));
    must(HF_OK, hf_release(lock));
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_HOLDER));
    must(HF_OK, hf_list(context->store, NULL, &report));
    assert_int_equal(0, hf_report_count(report));
    hf_report_free(report);
    must(HF_EINVAL, hf_lock_sequencer(hf_once_lock(once), sequencer, sizeof sequencer));
    if (context->features & HF_HAS_DETACH)
        must(HF_EINVAL, hf_lock_detach(hf_once_lock(once)));
    must(HF_OK, hf_renew(hf_once_lock(once)));
    must_finish(once, "");
}

/* ---- what comes out -------------------------------------------------------------------------- */

static void results_of_any_size(void **state)
{
    static const size_t sizes[] = {0, 1, 1000, HF_ONCE_RESULT_MAX};
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    char *bytes = malloc(HF_ONCE_RESULT_MAX + 1), key[32];

    assert_non_null(bytes);
    for (size_t i = 0; i <= HF_ONCE_RESULT_MAX; i++)
        bytes[i] = (char)(i * 7); /* also NUL, CR, LF */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hf_once *once;
        uint64_t token;

        snprintf(key, sizeof key, "size %zu", sizes[i]);
        once = must_run(context->store, key, &options);
        token = hf_once_token(once);
        must(HF_OK, hf_once_finish(once, sizes[i] ? bytes : NULL, sizes[i], KEEP_MS));
        must_be_done(must_begin(context->store, key, &options), token, bytes, sizes[i]);
        must(HF_OK, hf_once_read(context->store, key, &once));
        must_be_done(once, token, bytes, sizes[i]);
    }
    free(bytes);
}

static void what_cannot_be_kept_is_refused_and_changes_nothing(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_once *once = must_run(context->store, "one", &options);
    uint64_t token = hf_once_token(once);
    char *bytes = calloc(1, HF_ONCE_RESULT_MAX + 1);

    assert_non_null(bytes);
    must(HF_EINVAL, hf_once_finish(once, bytes, HF_ONCE_RESULT_MAX + 1, KEEP_MS));
    must(HF_EINVAL, hf_once_finish(once, NULL, 1, KEEP_MS));
    must(HF_EINVAL, hf_once_finish(once, "x", 1, 0));
    must(HF_EINVAL, hf_once_finish(once, "x", 1, -1));
    must(HF_EINVAL, hf_once_finish(once, "x", 1, HF_DURATION_MAX_MS + 1));
    must(HF_EINVAL, hf_once_finish(NULL, "x", 1, KEEP_MS));
    assert_true(hf_once_runs(once));
    must(HF_OK, hf_once_finish(once, "x", 1, HF_DURATION_MAX_MS));
    once = must_begin(context->store, "one", &options);
    must(HF_EINVAL, hf_once_finish(once, "y", 1, KEEP_MS)); /* it was run by somebody else */
    must_be_done(once, token, "x", 1);
    must(HF_EINVAL, hf_once_begin(context->store, "", &options, &once));
    options.death_ms = -1;
    must(HF_EINVAL, hf_once_begin(context->store, "two", &options, &once));
    free(bytes);
}

static void a_result_is_kept_as_long_as_said(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_once *once = must_run(context->store, "one", &options);
    uint64_t token = hf_once_token(once);
    int64_t began_ms = now_ms();

    must(HF_OK, hf_once_finish(once, "x", 1, 500));
    eventually(knows_nothing, context->store, "a result is forgotten");
    assert_true(now_ms() - began_ms >= 500);
    once = must_run(context->store, "one", &options);
    assert_true(hf_once_token(once) > token);
    must_finish(once, "y");
}

static void reading_tells_what_is_known(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_store *another = open_another(context);
    hf_once *once, *read;
    uint64_t token;

    must(HF_OK, hf_once_read(context->store, "one", &read));
    assert_int_equal(HF_ONCE_NOTHING, hf_once_state(read));
    assert_null(hf_once_result(read, NULL));
    hf_once_free(read);
    options.owner = "somebody";
    once = must_run(context->store, "one", &options);
    token = hf_once_token(once);
    assert_string_equal("somebody", hf_once_owner(once));
    must(HF_OK, hf_once_read(another, "one", &read));
    assert_int_equal(HF_ONCE_RUNNING, hf_once_state(read));
    assert_false(hf_once_runs(read)); /* it is not ours */
    assert_null(hf_once_lock(read));
    assert_true(hf_once_token(read) == token);
    assert_string_equal("somebody", hf_once_owner(read));
    assert_in_range(hf_once_age_ms(read), 0, PATIENCE_MS);
    hf_once_free(read);
    must_finish(once, "42");
    must(HF_OK, hf_once_read(another, "one", &read));
    assert_in_range(hf_once_left_ms(read), KEEP_MS - PATIENCE_MS, KEEP_MS);
    must_be_done(read, token, "42", 2);
    hf_close(another);
}

static void without_once_records_it_is_an_error(void **state)
{
    struct context *context = *state;
    hf_once *once;

    must(HF_ENOTSUP, hf_once_begin(context->store, "one", NULL, &once));
    must(HF_ENOTSUP, hf_once_read(context->store, "one", &once));
}

#define ONCE .needs = HF_HAS_ONCE
const struct suite_test once_tests[] = {
    SUITE_TEST(the_first_runs_it_and_the_next_gets_the_result, ONCE, .brief = true),
    SUITE_TEST(two_callers_and_one_run, ONCE, .brief = true),
    SUITE_TEST(a_hundred_callers_and_one_run, ONCE, .brief = true),
    SUITE_TEST(a_release_lets_the_next_one_run, ONCE),
    SUITE_TEST(whoever_does_not_wait_is_told_that_it_runs, ONCE, .fragile = WAITS_BRIEFLY),
    SUITE_TEST(a_cancelled_wait_leaves_nothing, ONCE, .fragile = WAITS_BRIEFLY),
    SUITE_TEST(a_key_is_not_a_lock, ONCE),
    SUITE_TEST(results_of_any_size, ONCE, .brief = true),
    SUITE_TEST(what_cannot_be_kept_is_refused_and_changes_nothing, ONCE),
    SUITE_TEST(a_result_is_kept_as_long_as_said, ONCE),
    SUITE_TEST(reading_tells_what_is_known, ONCE),
    SUITE_TEST(without_once_records_it_is_an_error, .needs_no = HF_HAS_ONCE),
    {0},
};
