/* Reports of progress: until when a hold is renewed, when it is lost, and what a late report does. */
#include "fixture.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 5

static hf_lock *acquire_reporting(hf_store *store, int64_t ttl_ms, int64_t progress_ms,
                                  _Atomic int64_t *lost_ms)
{
    hf_options options = options_of(ttl_ms, PATIENCE_MS);
    hf_lock *lock = NULL;

    options.progress_ms = progress_ms;
    if (lost_ms) {
        options.on_lost = note_lost;
        options.arg = (void *)lost_ms;
    }
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    return lock;
}

/* Until the library tells that it does not renew it. */
static void await_stall(hf_lock *lock)
{
    int64_t deadline_ms = now_ms() + PATIENCE_MS;

    while (hf_lock_unrenewed_ms(lock) == 0) {
        if (now_ms() > deadline_ms)
            fail_msg("it is renewed though nobody reports");
        sleep_ms(LOOK_MS);
    }
    assert_non_null(strstr(hf_error(), "no progress was reported for "));
}

/* By its own clock, whoever runs when; and that is told. When. */
static int64_t assert_lost_in_time(hf_lock *lock, int64_t expiry_ms)
{
    while (now_ms() < expiry_ms)
        sleep_ms(1);
    assert_int_equal(0, hf_lock_left_ms(lock));
    return await_lost(lock);
}

static void who_is_silent_is_lost_when_its_ttl_ends(void **state)
{
    struct fixture *fixture = *state;
    _Atomic int64_t lost_ms = 0;
    int64_t began_ms = now_ms(), expiry_ms, told_ms;
    hf_lock *lock = acquire_reporting(fixture->store, 900, 1000, &lost_ms);
    uint64_t renewals;

    await_stall(lock);
    assert_true(now_ms() - began_ms >= 1000);
    renewals = faults_count(fixture->faults, CALL_RENEW);
    expiry_ms = faults_expiry_ms(fixture->faults, "one");
    assert_true(expiry_ms != 0); /* nobody has released it */
    told_ms = assert_lost_in_time(lock, expiry_ms);
    assert_true(told_ms - began_ms >= 1000); /* however it is counted, not before that */
    await_told(&lost_ms);
    assert_non_null(strstr(hf_lock_lost_why(lock), "no progress was reported for "));
    assert_non_null(strstr(hf_lock_lost_why(lock), "so it was not renewed"));
    assert_true(faults_count(fixture->faults, CALL_RENEW) == renewals);
    assert_true(faults_count(fixture->faults, CALL_RELEASE) ==
                0); /* the TTL ends it, nobody else */
    must(HF_ELOST, hf_progress(lock));
    assert_non_null(strstr(hf_error(), "no progress"));
    must(HF_ELOST, hf_renew(lock));
    must(HF_ELOST, hf_release(lock));
}

static void who_reports_is_renewed(void **state)
{
    struct fixture *fixture = *state;
    _Atomic int64_t lost_ms = 0;
    hf_lock *lock = acquire_reporting(fixture->store, 1500, 1500, &lost_ms);
    int64_t until_ms = now_ms() + 4000;

    while (now_ms() < until_ms) { /* longer than it would last without, 3 s at most */
        must(HF_OK, hf_progress(lock));
        sleep_ms(LOOK_MS);
    }
    assert_true(atomic_load(&lost_ms) == 0);
    must(HF_OK, hf_check(fixture->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

/* The renewal of a third of the TTL was passed over: the report makes up for it. */
static void a_late_report_is_not_too_late(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = acquire_reporting(fixture->store, 6000, 100, NULL);
    int64_t expiry_ms = faults_expiry_ms(fixture->faults, "one"), deadline_ms;

    await_stall(lock);
    assert_true(faults_count(fixture->faults, CALL_RENEW) == 0);
    assert_true(hf_lock_left_ms(lock) > 0);
    must(HF_OK, hf_progress(lock));
    deadline_ms = now_ms() + PATIENCE_MS;
    while (faults_expiry_ms(fixture->faults, "one") == expiry_ms) {
        if (now_ms() > deadline_ms)
            fail_msg("the report did not bring a renewal");
        sleep_ms(LOOK_MS);
    }
    assert_true(faults_expiry_ms(fixture->faults, "one") > expiry_ms);
    assert_true(hf_lock_unrenewed_ms(lock) == 0);
    must(HF_OK, hf_release(lock));
}

/* Shorter than the time between two renewals: it is lost a TTL after the grant, and no later. */
static void a_short_time_for_progress_ends_with_the_first_ttl(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = acquire_reporting(fixture->store, 900, 50, NULL);
    int64_t expiry_ms = faults_expiry_ms(fixture->faults, "one");

    assert_lost_in_time(lock, expiry_ms);
    assert_true(faults_count(fixture->faults, CALL_RENEW) == 0);
    must(HF_ELOST, hf_release(lock));
}

/* Others of the same handle go on. */
static void silence_concerns_one_lock_only(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *other = must_acquire(fixture->store, "other", 900);
    hf_lock *lock = acquire_reporting(fixture->store, 900, 300, NULL);

    await_lost(lock);
    sleep_ms(900); /* beyond the TTL */
    assert_true(hf_lock_left_ms(other) > 0);
    must(HF_OK, hf_progress(other)); /* nobody asked for it: it changes nothing */
    must(HF_OK, hf_release(other));
    must(HF_ELOST, hf_release(lock));
}

/* Renewing by hand is possible, and says nothing of progress. */
static void a_renewal_by_hand_is_no_report(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = acquire_reporting(fixture->store, 3000, 100, NULL);
    int64_t expiry_ms;

    await_stall(lock);
    must(HF_OK, hf_renew(lock));
    expiry_ms = faults_expiry_ms(fixture->faults, "one");
    assert_true(hf_lock_unrenewed_ms(lock) > 0);
    assert_lost_in_time(lock, expiry_ms);
    must(HF_ELOST, hf_release(lock));
}

/* What was renewed by hand while its owner was silent is renewed again, when its time has come, once he reports. */
static void reports_after_a_renewal_by_hand_keep_it(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = acquire_reporting(fixture->store, 1500, 200, NULL);
    int64_t until_ms;

    await_stall(lock);
    must(HF_OK, hf_renew(lock));
    assert_true(hf_lock_unrenewed_ms(lock) > 0);
    until_ms = now_ms() + 2000; /* longer than that renewal lasts */
    while (now_ms() < until_ms) {
        must(HF_OK, hf_progress(lock));
        sleep_ms(LOOK_MS);
    }
    must(HF_OK, hf_check(fixture->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

static void what_cannot_be_is_refused(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(1000, 0);
    hf_lock *lock;

    must(HF_EINVAL, hf_progress(NULL));
    options.progress_ms = -1;
    must(HF_EINVAL, hf_try(fixture->store, "one", &options, &lock));
    assert_non_null(strstr(hf_error(), "progress"));
    options.progress_ms = HF_DURATION_MAX_MS + 1;
    must(HF_EINVAL, hf_try(fixture->store, "one", &options, &lock));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_is_silent_is_lost_when_its_ttl_ends),
        TEST(who_reports_is_renewed),
        TEST(a_late_report_is_not_too_late),
        TEST(a_short_time_for_progress_ends_with_the_first_ttl),
        TEST(silence_concerns_one_lock_only),
        TEST(a_renewal_by_hand_is_no_report),
        TEST(reports_after_a_renewal_by_hand_keep_it),
        TEST(what_cannot_be_is_refused),
    };

    alarm(55);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
