/* once_ends.c: what becomes of it when whoever runs it dies, is stopped, closes its store; and what is started. */
#include "once_tools.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- when the runner dies -------------------------------------------------------------------- */

static void a_runner_that_dies_is_replaced_by_a_waiter(void **state)
{
    struct context *context = *state;
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "once ttl=1500", &helper);
    struct tally runs, begun;
    struct caller caller = {.store = context->store,
                            .options = once_options_of(context),
                            .runs = &runs,
                            .begun = &begun};

    tally_new(&runs);
    tally_new(&begun);
    caller_start(&caller);
    tally_await(&begun, 1);
    helper_kill(helper);
    caller_join(&caller);
    must(HF_OK, caller.result);
    assert_true(caller.ran);
    assert_true(caller.token > token);
    must_be_done(must_begin(context->store, "one", &caller.options), caller.token, caller.text,
                 strlen(caller.text));
    tally_free(&begun);
    tally_free(&runs);
}

static void a_runner_that_dies_is_not_replaced_by_those_who_said_so(void **state)
{
    struct context *context = *state;
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "once ttl=1500", &helper), known_token = 0;
    struct tally begun;
    struct caller caller = {
        .store = context->store, .options = once_options_of(context), .begun = &begun};
    hf_once *once;

    tally_new(&begun);
    caller.options.fail_if_died = 1;
    caller_start(&caller);
    tally_await(&begun, 1);
    helper_kill(helper);
    caller_join(&caller);
    must(HF_ELOST, caller.result);
    assert_int_equal(HF_ONCE_DIED, known(context->store, &known_token));
    assert_true(known_token == token);
    /* And for as long as that is known. Whoever did not say so runs it. */
    must(HF_ELOST, hf_once_begin(context->store, "one", &caller.options, &once));
    assert_non_null(strstr(hf_error(), "died"));
    caller.options.fail_if_died = 0;
    once = must_run(context->store, "one", &caller.options);
    assert_true(hf_once_token(once) > token);
    must_finish(once, "after all");
    caller.options.fail_if_died = 1;
    must_be_done(must_begin(context->store, "one", &caller.options), 0, "after all", 9);
    tally_free(&begun);
}

static void a_death_is_known_to_a_later_caller(void **state)
{
    struct context *context = *state;
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "once ttl=600", &helper);
    hf_once_options options = once_options_of(context);
    hf_once *once;

    helper_kill(helper);
    eventually(knows_death, context->store, "a death is known");
    must(HF_OK, hf_once_read(context->store, "one", &once));
    assert_true(hf_once_token(once) == token);
    assert_in_range(hf_once_left_ms(once), HF_ONCE_DEATH_MS / 2, HF_ONCE_DEATH_MS);
    hf_once_free(once);
    once = must_run(context->store, "one", &options);
    assert_true(hf_once_token(once) > token);
    must(HF_OK, hf_once_release(once));
    assert_int_equal(HF_ONCE_NOTHING, known(context->store, NULL));
}

static void whoever_abandons_it_counts_as_dead(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_once *once;
    uint64_t token, known_token;

    if (context->features & HF_HAS_TTL)
        options.ttl_ms = ttl_of(context, SHORT_TTL_MS);
    once = must_run(context->store, "one", &options);
    token = hf_once_token(once);
    hf_once_abandon(once);
    eventually(knows_death, context->store, "a death is known");
    assert_int_equal(HF_ONCE_DIED, known(context->store, &known_token));
    assert_true(known_token == token);
    once = must_run(context->store, "one", &options);
    assert_true(hf_once_token(once) > token);
    must(HF_OK, hf_once_release(once));
    hf_once_abandon(NULL);
}

/* Section B 1: stopped for longer than its TTL, it wakes up and wants to finish. */
static void a_stopped_runner_is_replaced_and_refused(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "once ttl=600", &helper);
    hf_once *once;

    kill(helper->pid, SIGSTOP);
    once = must_run(context->store, "one", &options);
    assert_true(hf_once_token(once) > token);
    token = hf_once_token(once);
    must_finish(once, "the successor's");
    helper_say(helper, "finish the first one's");
    kill(helper->pid, SIGCONT);
    assert_string_equal("HF_ESTALE", helper_hear(helper, "finished"));
    must_be_done(must_begin(context->store, "one", &options), token, "the successor's", 15);
}

static void what_runs_is_renewed_beyond_its_ttl(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context), other = once_options_of(context);
    hf_once *once, *none;

    options.ttl_ms = ttl_of(context, RENEWED_TTL_MS);
    once = must_run(context->store, "one", &options);
    other.wait_ms = 5 * options.ttl_ms / 2;
    must(HF_EBUSY, hf_once_begin(context->store, "one", &other, &none));
    assert_in_range(hf_once_left_ms(once), 1, options.ttl_ms);
    must_finish(once, "x");
}

static void closing_the_store_frees_the_key(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_store *another = open_another(context);

    must_run(another, "one", &options);
    hf_close(another); /* and what it was to run is freed with it */
    assert_int_equal(HF_ONCE_NOTHING, known(context->store, NULL));
    options.wait_ms = 0;
    must(HF_OK, hf_once_release(must_run(context->store, "one", &options)));
}

static void a_forked_child_finishes_nothing(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    hf_once *once = must_run(context->store, "one", &options);
    uint64_t token = hf_once_token(once);
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0)
        _exit(hf_once_finish(once, "child", 5, KEEP_MS) == HF_EFORK ? 0 : 1);
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_int_equal(0, status);
    must_finish(once, "parent");
    must_be_done(must_begin(context->store, "one", &options), token, "parent", 6);
}

/* ---- started --------------------------------------------------------------------------------- */

struct ending {
    struct tally *done;
    int result;
    hf_once *once;
    bool leave_it;
};

static void note_ending(hf_op *op, int result, void *arg)
{
    struct ending *ending = arg;

    ending->result = result;
    if (!ending->leave_it)
        ending->once = hf_op_take_once(op);
    tally_add(ending->done, 1);
}

static void what_can_wait_can_be_started(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    struct tally done;
    struct ending first = {.done = &done}, second = first, third = first, read = first;
    hf_op *op;

    tally_new(&done);
    must(HF_OK, hf_once_begin_start(context->store, "one", &options, note_ending, &first, &op));
    tally_await(&done, 1);
    must(HF_OK, first.result);
    assert_true(hf_once_runs(first.once));
    must(HF_OK, hf_once_begin_start(context->store, "one", &options, note_ending, &second, &op));
    must(HF_OK, hf_once_begin_start(context->store, "one", &options, note_ending, &third, &op));
    hf_op_cancel(op);
    tally_await(&done, 2);
    must(HF_ECANCELED, third.result);
    must(HF_OK, hf_once_finish_start(first.once, "42", 2, KEEP_MS, note_ending, &third, &op));
    tally_await(&done, 4);
    must(HF_OK, third.result);
    must(HF_OK, second.result);
    must_be_done(second.once, 0, "42", 2);
    must(HF_OK, hf_once_read_start(context->store, "one", note_ending, &read, &op));
    tally_await(&done, 5);
    must(HF_OK, read.result);
    must_be_done(read.once, 0, "42", 2);
    tally_free(&done);
}

static void what_was_started_and_not_taken_is_given_back(void **state)
{
    struct context *context = *state;
    hf_once_options options = once_options_of(context);
    struct tally done;
    struct ending left = {.done = &done, .leave_it = true}, freed = {.done = &done};
    hf_once *once;
    hf_op *op;

    tally_new(&done);
    must(HF_OK, hf_once_begin_start(context->store, "one", &options, note_ending, &left, &op));
    tally_await(&done, 1);
    must(HF_OK, left.result);
    once = must_run(context->store, "one", &options); /* it was released, or will be in a moment */
    must(HF_OK, hf_once_release_start(once, note_ending, &freed, &op));
    tally_await(&done, 2);
    must(HF_OK, freed.result);
    must_finish(must_run(context->store, "one", &options), "x");
    must(HF_OK, hf_once_begin_start(context->store, "one", &options, note_ending, &left, &op));
    tally_await(&done, 3);
    must(HF_OK, left.result);
    tally_free(&done);
}

#define ONCE .needs = HF_HAS_ONCE
const struct suite_test once_end_tests[] = {
    SUITE_TEST(a_runner_that_dies_is_replaced_by_a_waiter, ONCE, .brief = true),
    SUITE_TEST(a_runner_that_dies_is_not_replaced_by_those_who_said_so, ONCE, .brief = true),
    SUITE_TEST(a_death_is_known_to_a_later_caller, ONCE),
    SUITE_TEST(whoever_abandons_it_counts_as_dead, ONCE, .steady = true),
    SUITE_TEST(a_stopped_runner_is_replaced_and_refused, ONCE | HF_HAS_TTL, .brief = true),
    SUITE_TEST(what_runs_is_renewed_beyond_its_ttl, ONCE | HF_HAS_TTL, .steady = true),
    SUITE_TEST(closing_the_store_frees_the_key, ONCE),
    SUITE_TEST(a_forked_child_finishes_nothing, ONCE),
    SUITE_TEST(what_can_wait_can_be_started, ONCE),
    SUITE_TEST(what_was_started_and_not_taken_is_given_back, ONCE),
    {0},
};
