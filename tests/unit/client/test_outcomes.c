/* How an acquisition and a release end when answers get lost, over a store that fails on command: held, not
 * held, or unknown, and never a ghost. */
#include "fixture.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static uint64_t holder_token(hf_store *store, const char *name)
{
    hf_report *report;
    uint64_t token = 0;

    must(HF_OK, hf_show(store, name, &report));
    if (hf_report_count(report) > 0 && hf_report_entry(report, 0)->kind == HF_ENTRY_HOLDER)
        token = hf_report_entry(report, 0)->token;
    hf_report_free(report);
    return token;
}

static void assert_nothing_left(struct fixture *fixture, const char *name)
{
    assert_int_equal(0, count_entries(fixture->store, name, HF_ENTRY_HOLDER));
    assert_int_equal(0, count_entries(fixture->store, name, HF_ENTRY_WAITER));
}

/* ---- lost answers ---------------------------------------------------------------------------- */

/* Section B 7: same lease, same token, no ghost in the queue. */
static void a_lost_grant_is_found_again(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock;

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, 2);
    lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    assert_int_equal(1, hf_lock_token(lock)); /* the first ever: the lost grants were this one */
    assert_int_equal(3, faults_count(fixture->faults, CALL_ACQUIRE));
    assert_int_equal(1, count_entries(fixture->store, "one", HF_ENTRY_HOLDER));
    assert_int_equal(0, count_entries(fixture->store, "one", HF_ENTRY_WAITER));
    must(HF_OK, hf_release(lock));
    assert_nothing_left(fixture, "one");
}

static void a_lost_request_is_sent_again(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, 0);
    hf_lock *lock;

    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_ACQUIRE, 1);
    must(HF_OK, hf_try(fixture->store, "one", &options, &lock)); /* a try settles, too */
    must(HF_OK, hf_release(lock));
}

static void a_place_in_the_queue_survives_lost_answers(void **state)
{
    struct fixture *fixture = *state;
    hf_store *another = fixture_another(fixture, "test", "");
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    struct caller first, second;

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, 1);
    caller_start(&first, another, "one", options_of(LONG_TTL_MS, PATIENCE_MS));
    await_entries(fixture->store, "one", HF_ENTRY_WAITER, 1);
    caller_start(&second, another, "one", options_of(LONG_TTL_MS, PATIENCE_MS));
    await_entries(fixture->store, "one", HF_ENTRY_WAITER, 2);
    sleep_ms(100); /* the retries are over, and made no third place */
    assert_int_equal(2, count_entries(fixture->store, "one", HF_ENTRY_WAITER));
    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, 2);
    must(HF_OK, hf_release(lock));
    must(HF_OK, caller_join(&first));
    assert_int_equal(1, count_entries(fixture->store, "one", HF_ENTRY_WAITER));
    assert_true(hf_lock_token(first.lock) == holder_token(fixture->store, "one"));
    must(HF_OK, hf_release(first.lock));
    must(HF_OK, caller_join(&second));
    must(HF_OK, hf_release(second.lock));
    hf_close(another);
}

static void what_cannot_be_settled_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(600, 0);
    hf_lock *lock = NULL;

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, FAULT_ALWAYS);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_ABANDON, FAULT_ALWAYS);
    must(HF_EUNKNOWN, hf_try(fixture->store, "one", &options, &lock));
    assert_null(lock);
    /* What was perhaps given ends by itself: nobody renews it. */
    await_entries(fixture->store, "one", HF_ENTRY_HOLDER, 0);
}

static void what_can_be_settled_is_not_unknown(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, 300);
    hf_lock *lock;
    int result;

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, FAULT_ALWAYS);
    result = hf_acquire(fixture->store, "one", &options, &lock);
    assert_true(result == HF_EBUSY || result == HF_EUNREACH);
    assert_null(strstr(hf_error(), "did not become free")); /* nobody has said that it was not */
    assert_true(faults_count(fixture->faults, CALL_ABANDON) >= 1);
    assert_nothing_left(fixture, "one");
}

/* ---- unreachable, refused -------------------------------------------------------------------- */

static void a_try_of_an_unreachable_store_says_so(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, 0);
    hf_lock *lock;
    int64_t began_ms = now_ms();

    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_ANY, FAULT_ALWAYS);
    must(HF_EUNREACH, hf_try(fixture->store, "one", &options, &lock));
    assert_true(now_ms() - began_ms < 5000);
    options.wait_ms = 200;
    must(HF_EUNREACH, hf_acquire(fixture->store, "one", &options, &lock));
    faults_clear(fixture->faults);
    assert_nothing_left(fixture, "one");
}

/* Somebody who mistyped a host must not take that for a lock that is held. */
static void a_wait_for_a_store_that_was_never_reached_ends_at_once(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, HF_FOREVER);
    hf_lock *lock;
    int64_t began_ms = now_ms();

    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_ANY, FAULT_ALWAYS);
    must(HF_EUNREACH, hf_acquire(fixture->store, "one", &options, &lock));
    assert_true(now_ms() - began_ms < 5000);
    assert_int_equal(0, hf_outage_ms(fixture->store)); /* nothing waits for its end */
    faults_clear(fixture->faults);
    assert_nothing_left(fixture, "one");
}

static void a_wait_outlives_an_unreachable_store(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, 0);
    struct caller caller;
    hf_lock *lock;

    must(HF_OK, hf_try(fixture->store, "two", &options, &lock)); /* the store is there */
    must(HF_OK, hf_release(lock));
    assert_int_equal(0, hf_outage_ms(fixture->store));
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_ANY, FAULT_ALWAYS);
    caller_start(&caller, fixture->store, "one", options_of(LONG_TTL_MS, PATIENCE_MS));
    sleep_ms(500);
    /* It has not given up, and it has not stormed either. */
    assert_in_range(faults_count(fixture->faults, CALL_ACQUIRE), 3, 31);
    assert_true(hf_outage_ms(fixture->store) > 0);
    assert_non_null(strstr(hf_error(), "told to be unreachable"));
    faults_clear(fixture->faults);
    must(HF_OK, caller_join(&caller));
    assert_int_equal(0, hf_outage_ms(fixture->store));
    must(HF_OK, hf_release(caller.lock));
}

static void a_refusal_is_an_answer(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, PATIENCE_MS);
    hf_lock *lock;

    faults_set(fixture->faults, FAULT_REFUSE, CALL_ACQUIRE, FAULT_ALWAYS);
    must(HF_EREFUSED, hf_acquire(fixture->store, "one", &options, &lock));
    assert_int_equal(1, faults_count(fixture->faults, CALL_ACQUIRE)); /* not asked again */
}

static void a_lease_that_ended_in_the_queue_is_not_revived(void **state)
{
    struct fixture *fixture = *state;
    hf_store *another = fixture_another(fixture, "test", "");
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    struct caller caller;

    caller_start(&caller, another, "one", options_of(1500, PATIENCE_MS));
    await_entries(fixture->store, "one", HF_ENTRY_WAITER, 1);
    /* Both end: the name is free, and the waiter holds nothing although its client believes in a place. */
    assert_int_equal(2, faults_expire(fixture->faults, "one"));
    must(HF_OK, caller_join(&caller));
    assert_true(hf_lock_token(caller.lock) == holder_token(fixture->store, "one"));
    must(HF_OK, hf_check(fixture->store, "one", hf_lock_token(caller.lock)));
    must(HF_OK, hf_release(caller.lock));
    must(HF_ELOST, hf_release(lock));
    hf_close(another);
}

/* ---- slow answers ---------------------------------------------------------------------------- */

static void an_old_grant_is_renewed_first(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(1000, PATIENCE_MS);
    hf_lock *lock;

    faults_delay(fixture->faults, CALL_ACQUIRE, 700);
    must(HF_OK, hf_acquire(fixture->store, "one", &options, &lock));
    assert_true(faults_count(fixture->faults, CALL_RENEW) >= 1);
    assert_true(hf_lock_left_ms(lock) > 0);
    must(HF_OK, hf_check(fixture->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

static void a_fresh_grant_is_not(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);

    assert_int_equal(0, faults_count(fixture->faults, CALL_RENEW));
    must(HF_OK, hf_release(lock));
}

static void an_old_grant_that_cannot_be_renewed_is_not_held(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(800, 1200);
    hf_lock *lock;

    faults_delay(fixture->faults, CALL_ACQUIRE, 600);
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RENEW, FAULT_ALWAYS);
    assert_int_not_equal(HF_OK, hf_acquire(fixture->store, "one", &options, &lock));
    faults_clear(fixture->faults);
    assert_nothing_left(fixture, "one");
}

/* What clocks may differ by, as docs/safety.md has it. */
#define DRIFT_MS (LONG_TTL_MS / 100 + 2)

/* The store counts from somewhere between the request and the answer: at the worst from the request. */
static void a_hold_counts_from_before_its_request(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock;

    faults_delay(fixture->faults, CALL_ANY, 300);
    lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    assert_in_range(hf_lock_left_ms(lock), 1, LONG_TTL_MS - DRIFT_MS - 300);
    must(HF_OK, hf_renew(lock));
    assert_in_range(hf_lock_left_ms(lock), 1, LONG_TTL_MS - DRIFT_MS - 300);
    must(HF_OK, hf_release(lock));
}

/* Any of those that were sent since the last answer may have been the grant. */
static void a_hold_counts_from_the_first_lost_answer(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock;

    faults_delay(fixture->faults, CALL_ACQUIRE, 300);
    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_ACQUIRE, 2);
    lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    assert_in_range(hf_lock_left_ms(lock), 1, LONG_TTL_MS - DRIFT_MS - 900);
    must(HF_OK, hf_release(lock));
}

/* redsync: clean-up that used the cancelled deadline was no clean-up. */
static void clean_up_has_a_time_of_its_own(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, 200);
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS), *other;
    struct caller caller;
    hf_cancel *cancel;

    faults_delay(fixture->faults, CALL_ABANDON, 300);
    must(HF_EBUSY, hf_acquire(fixture->store, "one", &options, &other));
    assert_int_equal(0, count_entries(fixture->store, "one", HF_ENTRY_WAITER));
    must(HF_OK, hf_cancel_new(&cancel));
    options.cancel = cancel;
    options.wait_ms = HF_FOREVER;
    caller_start(&caller, fixture->store, "one", options);
    await_entries(fixture->store, "one", HF_ENTRY_WAITER, 1);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_ABANDON, 1); /* and is tried again */
    hf_cancel_fire(cancel);
    must(HF_ECANCELED, caller_join(&caller));
    assert_int_equal(0, count_entries(fixture->store, "one", HF_ENTRY_WAITER));
    hf_cancel_free(cancel);
    must(HF_OK, hf_release(lock));
    assert_nothing_left(fixture, "one");
}

static void a_request_that_hangs_is_settled(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, 300);
    hf_lock *lock;
    int64_t began_ms = now_ms();
    int result;

    faults_set(fixture->faults, FAULT_HANG, CALL_ACQUIRE, FAULT_ALWAYS);
    result = hf_acquire(fixture->store, "one", &options, &lock);
    assert_true(result == HF_EBUSY || result == HF_EUNREACH);
    assert_true(now_ms() - began_ms < 6000);
    assert_true(faults_count(fixture->faults, CALL_ABANDON) >= 1);
    faults_clear(fixture->faults);
    assert_nothing_left(fixture, "one");
}

/* ---- releases -------------------------------------------------------------------------------- */

/* Section B 6, etcd 22082. */
static void a_late_release_touches_nothing_newer(void **state)
{
    struct fixture *fixture = *state;
    hf_store *another = fixture_another(fixture, "test", "");
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS), *newer;

    faults_expire(fixture->faults, "one");
    newer = must_acquire(another, "one", LONG_TTL_MS);
    must(HF_ELOST, hf_release(lock));
    must(HF_OK, hf_check(fixture->store, "one", hf_lock_token(newer)));
    must(HF_OK, hf_release(newer));
    hf_close(another);
}

static void a_release_whose_answer_got_lost_is_a_release(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);

    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_RELEASE, 1);
    must(HF_OK, hf_release(lock));
    assert_nothing_left(fixture, "one");
    lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_RELEASE, 1);
    must(HF_OK, hf_release(lock));
    assert_nothing_left(fixture, "one");
}

static void a_release_that_cannot_be_told_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", 600);

    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_RELEASE, FAULT_ALWAYS);
    faults_set(fixture->faults, FAULT_LOSE_REQUEST, CALL_ABANDON, FAULT_ALWAYS);
    must(HF_EUNKNOWN, hf_release(lock));
    await_entries(fixture->store, "one", HF_ENTRY_HOLDER, 0); /* ends with its TTL, not renewed */
}

static void *release_it(void *lock)
{
    return (void *)(intptr_t)hf_release(lock);
}

static void await_calls(struct fixture *fixture, int call, uint64_t least)
{
    int64_t deadline_ms = now_ms() + PATIENCE_MS;

    while (faults_count(fixture->faults, call) < least) {
        if (now_ms() > deadline_ms)
            fail_msg("never %d calls of %s", (int)least, fault_call_name(call));
        sleep_ms(2);
    }
}

/* As after an exchange of passwords: that says nothing of what was sent before. */
static void a_release_that_is_refused_after_a_lost_answer_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    pthread_t thread;
    void *result;

    faults_reset_counts(fixture->faults);
    faults_delay(fixture->faults, CALL_RELEASE, 100);
    faults_set(fixture->faults, FAULT_LOSE_REPLY, CALL_RELEASE, 1);
    assert_int_equal(0, pthread_create(&thread, NULL, release_it, lock));
    await_calls(fixture, CALL_RELEASE, 2); /* which takes a while */
    faults_set(fixture->faults, FAULT_REFUSE, CALL_RELEASE, FAULT_ALWAYS);
    assert_int_equal(0, pthread_join(thread, &result));
    must(HF_EUNKNOWN, (int)(intptr_t)result);
}

/* A server that is being started again refuses connections, each within a millisecond. */
static void a_release_is_tried_for_all_of_its_time(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    pthread_t thread;
    void *result;

    faults_reset_counts(fixture->faults);
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RELEASE, FAULT_ALWAYS);
    assert_int_equal(0, pthread_create(&thread, NULL, release_it, lock));
    await_calls(fixture, CALL_RELEASE, 6);
    faults_clear(fixture->faults);
    assert_int_equal(0, pthread_join(thread, &result));
    must(HF_OK, (int)(intptr_t)result);
    assert_nothing_left(fixture, "one");
}

static void a_clean_up_is_tried_for_all_of_its_time(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(LONG_TTL_MS, HF_FOREVER);
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    struct caller caller;

    must(HF_OK, hf_cancel_new(&options.cancel));
    caller_start(&caller, fixture->store, "one", options);
    await_entries(fixture->store, "one", HF_ENTRY_WAITER, 1);
    faults_reset_counts(fixture->faults);
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_ABANDON, FAULT_ALWAYS);
    hf_cancel_fire(options.cancel);
    await_calls(fixture, CALL_ABANDON, 6);
    faults_clear(fixture->faults);
    must(HF_ECANCELED, caller_join(&caller));
    assert_int_equal(0, count_entries(fixture->store, "one", HF_ENTRY_WAITER));
    hf_cancel_free(options.cancel);
    must(HF_OK, hf_release(lock));
}

/* But not for longer, and with pauses that grow. */
static void a_release_is_not_tried_for_ever(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    int64_t began_ms = now_ms();

    faults_reset_counts(fixture->faults);
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RELEASE, FAULT_ALWAYS);
    must(HF_EUNKNOWN, hf_release(lock));
    assert_in_range(now_ms() - began_ms, 4900, 8000);
    assert_in_range(faults_count(fixture->faults, CALL_RELEASE), 8, 40);
}

/* ---- waiting without being told -------------------------------------------------------------- */

static void wait_without_being_told(struct fixture *fixture, const char *scheme, int least_asked,
                                    int64_t most_ms)
{
    hf_store *another = fixture_another(fixture, scheme, "?push=no");
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
    struct caller caller;
    int64_t released_ms;

    faults_reset_counts(fixture->faults);
    caller_start(&caller, another, "one", options_of(LONG_TTL_MS, PATIENCE_MS));
    sleep_ms(1500);
    assert_in_range(faults_count(fixture->faults, CALL_ACQUIRE), least_asked,
                    30); /* does not storm */
    must(HF_OK, hf_release(lock));
    released_ms = now_ms();
    must(HF_OK, caller_join(&caller));
    assert_in_range(now_ms() - released_ms, 0, most_ms);
    must(HF_OK, hf_release(caller.lock));
    hf_close(another);
}

/* Who has a place will be told; a store that forgets to is asked all the same, only not often. */
static void with_a_place_but_no_push_it_asks_now_and_then(void **state)
{
    wait_without_being_told(*state, "test", 1, 7000);
}

static void without_a_place_or_push_it_asks_with_pauses(void **state)
{
    wait_without_being_told(*state, "testweak", 2, 4000);
}

static void with_push_it_hardly_asks(void **state)
{
    static const char *const schemes[] = {"test", "testweak"};
    struct fixture *fixture = *state;

    for (int i = 0; i < 2; i++) {
        hf_store *another = fixture_another(fixture, schemes[i], "");
        hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);
        struct caller caller;
        int64_t released_ms;

        faults_reset_counts(fixture->faults);
        caller_start(&caller, another, "one", options_of(LONG_TTL_MS, PATIENCE_MS));
        sleep_ms(1200);
        must(HF_OK, hf_release(lock));
        released_ms = now_ms();
        must(HF_OK, caller_join(&caller));
        assert_in_range(now_ms() - released_ms, 0, 3000);
        /* Once to join, once when told; without a place also now and then, to be sure. */
        assert_in_range(faults_count(fixture->faults, CALL_ACQUIRE), 2, i == 0 ? 5 : 12);
        must(HF_OK, hf_release(caller.lock));
        hf_close(another);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lost_grant_is_found_again),
        TEST(a_lost_request_is_sent_again),
        TEST(a_place_in_the_queue_survives_lost_answers),
        TEST(what_cannot_be_settled_is_unknown),
        TEST(what_can_be_settled_is_not_unknown),
        TEST(a_try_of_an_unreachable_store_says_so),
        TEST(a_wait_for_a_store_that_was_never_reached_ends_at_once),
        TEST(a_wait_outlives_an_unreachable_store),
        TEST(a_refusal_is_an_answer),
        TEST(a_lease_that_ended_in_the_queue_is_not_revived),
        TEST(an_old_grant_is_renewed_first),
        TEST(a_fresh_grant_is_not),
        TEST(an_old_grant_that_cannot_be_renewed_is_not_held),
        TEST(a_hold_counts_from_before_its_request),
        TEST(a_hold_counts_from_the_first_lost_answer),
        TEST(clean_up_has_a_time_of_its_own),
        TEST(a_request_that_hangs_is_settled),
        TEST(a_late_release_touches_nothing_newer),
        TEST(a_release_whose_answer_got_lost_is_a_release),
        TEST(a_release_that_cannot_be_told_is_unknown),
        TEST(a_release_that_is_refused_after_a_lost_answer_is_unknown),
        TEST(a_release_is_tried_for_all_of_its_time),
        TEST(a_clean_up_is_tried_for_all_of_its_time),
        TEST(a_release_is_not_tried_for_ever),
        TEST(with_a_place_but_no_push_it_asks_now_and_then),
        TEST(without_a_place_or_push_it_asks_with_pauses),
        TEST(with_push_it_hardly_asks),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
