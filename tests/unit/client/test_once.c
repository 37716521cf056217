/* How what is to be done once ends when answers get lost, over a store that fails on command: kept, not
 * kept, or unknown, and never two results. */
#include "fixture.h"

#include <holdfast/once.h>
#include <poll.h>
#include <string.h>

#define KEEP_MS INT64_C(60000)
#define RECORD "\1one" /* how the test store calls it */

static hf_once_options once_options(int64_t ttl_ms, int64_t wait_ms)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;

    options.ttl_ms = ttl_ms;
    options.wait_ms = wait_ms;
    return options;
}

static hf_once *must_run(hf_store *store, int64_t ttl_ms)
{
    hf_once_options options = once_options(ttl_ms, PATIENCE_MS);
    hf_once *once;

    must(HF_OK, hf_once_begin(store, "one", &options, &once));
    assert_true(hf_once_runs(once));
    return once;
}

static int state_now(hf_store *store)
{
    hf_once *once;
    int state;

    must(HF_OK, hf_once_read(store, "one", &once));
    state = hf_once_state(once);
    hf_once_free(once);
    return state;
}

static void must_be_kept(hf_store *store, const char *text)
{
    hf_once *once;
    size_t size;

    must(HF_OK, hf_once_read(store, "one", &once));
    assert_int_equal(HF_ONCE_DONE, hf_once_state(once));
    assert_memory_equal(text, hf_once_result(once, &size), strlen(text));
    assert_int_equal(strlen(text), size);
    hf_once_free(once);
}

static int finish(hf_once *once, const char *text)
{
    return hf_once_finish(once, text, strlen(text), KEEP_MS);
}

/* Until so many calls of the kind were made. */
static void await_calls(struct fixture *fixture, int call, uint64_t count)
{
    int64_t until_ms = now_ms() + PATIENCE_MS;

    while (faults_count(fixture->faults, call) < count && now_ms() < until_ms)
        sleep_ms(2);
    assert_true(faults_count(fixture->faults, call) >= count);
}

/* ---- finishing ------------------------------------------------------------------------------- */

static void a_lost_answer_is_asked_for_again(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, LONG_TTL_MS);

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_FINISH, 2);
    must(HF_OK, finish(once, "42"));
    assert_int_equal(3, faults_count(fixture->faults, CALL_FINISH));
    assert_int_equal(HF_ONCE_DONE, state_now(fixture->store));
}

static void a_lost_request_is_sent_again(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, LONG_TTL_MS);

    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_FINISH, 1);
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_FINISH, 2);
    must(HF_OK, finish(once, "42"));
    assert_int_equal(4, faults_count(fixture->faults, CALL_FINISH));
    assert_int_equal(HF_ONCE_DONE, state_now(fixture->store));
}

static void what_cannot_be_settled_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, 1500);

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_FINISH, FAULT_ALWAYS);
    must(HF_EUNKNOWN, finish(once, "42"));
    assert_non_null(strstr(hf_error(), "may or may not be kept"));
    assert_int_equal(HF_ONCE_DONE, state_now(fixture->store)); /* this time it was */
}

static void *finish_main(void *once)
{
    return (void *)(intptr_t)finish(once, "42");
}

/* The last word is that the store cannot be reached; but one was lost before. */
static void what_was_sent_once_is_not_unreachable(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, 1500);
    pthread_t thread;
    void *result;

    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_FINISH, FAULT_ALWAYS);
    pthread_create(&thread, NULL, finish_main, once);
    await_calls(fixture, CALL_FINISH, 1);
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_FINISH, FAULT_ALWAYS);
    pthread_join(thread, &result);
    must(HF_EUNKNOWN, (int)(intptr_t)result);
}

/* The last word is that we are refused, as after an exchange of passwords: that says nothing of what was sent before. */
static void whoever_is_refused_after_a_lost_answer_does_not_know(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, LONG_TTL_MS);
    pthread_t thread;
    void *result;

    faults_delay(fixture->faults, CALL_FINISH, 100);
    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_FINISH, 1);
    pthread_create(&thread, NULL, finish_main, once);
    await_calls(fixture, CALL_FINISH, 2); /* which takes a while */
    faults_set(fixture->faults, FAULT_REFUSE, CALL_FINISH, FAULT_ALWAYS);
    pthread_join(thread, &result);
    must(HF_EUNKNOWN, (int)(intptr_t)result);
    assert_int_equal(HF_ONCE_DONE, state_now(fixture->store));
}

static void what_was_never_sent_is_not_kept(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, 600);

    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_FINISH, FAULT_ALWAYS);
    must(HF_EUNREACH, finish(once, "42"));
    assert_non_null(strstr(hf_error(), "is not kept"));
    assert_int_equal(HF_ONCE_DIED, state_now(fixture->store)); /* nobody renews it */
}

static void a_refusal_is_told_at_once(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, LONG_TTL_MS);

    faults_set(fixture->faults, FAULT_REFUSE, CALL_FINISH, 1);
    must(HF_EREFUSED, finish(once, "42"));
    assert_int_equal(1, faults_count(fixture->faults, CALL_FINISH));
    /* It has been run, and nobody may take that for nothing: the key is not freed. */
    assert_int_equal(HF_ONCE_RUNNING, state_now(fixture->store));
    faults_expire(fixture->faults, RECORD);
    assert_int_equal(HF_ONCE_DIED, state_now(fixture->store));
}

/* The store took it away, and we have not heard of it. */
static void a_stale_runner_is_refused_by_the_store(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, LONG_TTL_MS), *next;
    uint64_t token = hf_once_token(once);

    assert_int_equal(1, faults_expire(fixture->faults, RECORD));
    next = must_run(fixture->store, LONG_TTL_MS);
    assert_true(hf_once_token(next) > token);
    assert_true(hf_once_left_ms(once) > 0);
    must(HF_ESTALE, finish(once, "the first one's"));
    assert_int_equal(1, faults_count(fixture->faults, CALL_FINISH));
    must(HF_OK, finish(next, "second"));
    must_be_kept(fixture->store, "second");
}

/* A lost answer, and then "stale": had the first one been kept, the second would have found it. Unless it
 * may be forgotten by now. */
static void stale_after_a_lost_answer(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, LONG_TTL_MS);

    faults_expire(fixture->faults, RECORD);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_FINISH, 1);
    must(HF_ESTALE, finish(once, "42"));
    assert_int_equal(2, faults_count(fixture->faults, CALL_FINISH));
    once = must_run(fixture->store, LONG_TTL_MS);
    faults_expire(fixture->faults, RECORD);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_FINISH, 1);
    must(HF_EUNKNOWN, hf_once_finish(once, "42", 2, 1));
}

static void what_is_lost_is_not_even_offered(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, 300);
    struct pollfd pollfd = {.fd = hf_lock_lost_fd(hf_once_lock(once)), .events = POLLIN};

    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RENEW, FAULT_ALWAYS);
    assert_int_equal(1, poll(&pollfd, 1, (int)PATIENCE_MS));
    assert_int_equal(0, hf_once_left_ms(once));
    must(HF_ESTALE, finish(once, "42"));
    assert_non_null(strstr(hf_error(), "could not be renewed in time"));
    assert_int_equal(0, faults_count(fixture->faults, CALL_FINISH));
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void a_lost_grant_is_found_again(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once;

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, 2);
    once = must_run(fixture->store, LONG_TTL_MS);
    assert_int_equal(1, hf_once_token(once)); /* the first ever: the lost grants were this one */
    assert_int_equal(3, faults_count(fixture->faults, CALL_ACQUIRE));
    must(HF_OK, hf_once_release(once));
    assert_int_equal(HF_ONCE_NOTHING, state_now(fixture->store));
}

/* What is known stays known, whatever else went wrong. */
static void a_result_stands_though_nothing_can_be_settled(void **state)
{
    struct fixture *fixture = *state;
    hf_once_options options = once_options(LONG_TTL_MS, PATIENCE_MS);
    hf_once *once = must_run(fixture->store, LONG_TTL_MS);

    must(HF_OK, finish(once, "42"));
    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, 1);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_ABANDON, FAULT_ALWAYS);
    must(HF_OK, hf_once_begin(fixture->store, "one", &options, &once));
    assert_int_equal(HF_ONCE_DONE, hf_once_state(once));
    assert_true(faults_count(fixture->faults, CALL_ABANDON) >= 1);
    hf_once_free(once);
}

static void a_beginning_that_cannot_be_settled_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    hf_once_options options = once_options(LONG_TTL_MS, 0);
    hf_once *once = NULL;

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, FAULT_ALWAYS);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_ABANDON, FAULT_ALWAYS);
    must(HF_EUNKNOWN, hf_once_begin(fixture->store, "one", &options, &once));
    assert_null(once);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_ABANDON, 0);
    faults_expire(fixture->faults, NULL);
    must(HF_EBUSY, hf_once_begin(fixture->store, "one", &options, &once)); /* settled: not given */
    assert_int_equal(HF_ONCE_NOTHING, state_now(fixture->store));
}

struct begin {
    hf_store *store;
    hf_once_options options;
    hf_once *once;
    int result;
    pthread_t thread;
};

static void *begin_main(void *arg)
{
    struct begin *begin = arg;

    begin->result = hf_once_begin(begin->store, "one", &begin->options, &begin->once);
    return NULL;
}

/* Of two who wait, the first would rather not: it hears of the death although the second inherits. */
static void whoever_would_not_inherit_is_told_though_another_does(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, 2000);
    struct begin waits[2];

    for (int i = 0; i < 2; i++) {
        waits[i] = (struct begin){.store = fixture->store,
                                  .options = once_options(LONG_TTL_MS, PATIENCE_MS)};
        waits[i].options.fail_if_died = i == 0;
        pthread_create(&waits[i].thread, NULL, begin_main, &waits[i]);
        await_calls(fixture, CALL_ACQUIRE, 2 + (uint64_t)i);
    }
    faults_advance(fixture->faults, 3000);
    pthread_join(waits[1].thread, NULL);
    must(HF_OK, waits[1].result);
    assert_true(hf_once_runs(waits[1].once));
    pthread_join(waits[0].thread, NULL);
    must(HF_ELOST, waits[0].result);
    must(HF_ESTALE, finish(once, "the first one's"));
    must(HF_OK, finish(waits[1].once, "second"));
    must_be_kept(fixture->store, "second");
}

static void whoever_would_not_inherit_runs_what_was_released(void **state)
{
    struct fixture *fixture = *state;
    hf_once *once = must_run(fixture->store, LONG_TTL_MS);
    struct begin waits = {.store = fixture->store,
                          .options = once_options(LONG_TTL_MS, PATIENCE_MS)};

    waits.options.fail_if_died = 1;
    pthread_create(&waits.thread, NULL, begin_main, &waits);
    await_calls(fixture, CALL_ACQUIRE, 2);
    must(HF_OK, hf_once_release(once)); /* a release is no death */
    pthread_join(waits.thread, NULL);
    must(HF_OK, waits.result);
    assert_true(hf_once_runs(waits.once));
    hf_once_free(waits.once);
    assert_int_equal(HF_ONCE_NOTHING, state_now(fixture->store));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lost_answer_is_asked_for_again),
        TEST(a_lost_request_is_sent_again),
        TEST(what_cannot_be_settled_is_unknown),
        TEST(what_was_sent_once_is_not_unreachable),
        TEST(whoever_is_refused_after_a_lost_answer_does_not_know),
        TEST(what_was_never_sent_is_not_kept),
        TEST(a_refusal_is_told_at_once),
        TEST(a_stale_runner_is_refused_by_the_store),
        TEST(stale_after_a_lost_answer),
        TEST(what_is_lost_is_not_even_offered),
        TEST(a_lost_grant_is_found_again),
        TEST(a_result_stands_though_nothing_can_be_settled),
        TEST(a_beginning_that_cannot_be_settled_is_unknown),
        TEST(whoever_would_not_inherit_is_told_though_another_does),
        TEST(whoever_would_not_inherit_runs_what_was_released),
    };

    return cmocka_run_group_tests_name("once", tests, NULL, NULL);
}
