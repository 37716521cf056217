/* The watchdog, over a store that fails on command: renewing, not giving up, and saying `lost` in time. */
#include "fixture.h"

#include "base/clock.h"
#include "client/client.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

struct told {
    _Atomic int64_t at_ms;
};

static hf_lock *acquire_told(hf_store *store, const char *name, int64_t ttl_ms, struct told *loss)
{
    hf_options options = options_of(ttl_ms, PATIENCE_MS);
    hf_lock *lock = NULL;

    atomic_store(&loss->at_ms, 0);
    options.on_lost = note_lost;
    options.arg = (void *)&loss->at_ms;
    must(HF_OK, hf_acquire(store, name, &options, &lock));
    return lock;
}

static void it_renews_at_a_third_of_the_ttl(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", 600);
    uint64_t renewals;

    faults_reset_counts(fixture->faults);
    sleep_ms(1500);
    renewals = faults_count(fixture->faults, CALL_RENEW);
    assert_in_range(renewals, 4, 10); /* 7, give or take a busy machine */
    assert_true(hf_lock_left_ms(lock) > 0);
    must(HF_OK, hf_release(lock));
}

static void many_locks_are_renewed_together(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *locks[40];
    char name[16];

    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "lock %d", i);
        locks[i] = must_acquire(fixture->store, name, 900);
    }
    faults_reset_counts(fixture->faults);
    sleep_ms(1400);
    assert_in_range(faults_count(fixture->faults, CALL_RENEW), 2, 40); /* not 160 */
    for (int i = 0; i < 40; i++) {
        assert_true(hf_lock_left_ms(locks[i]) > 0);
        must(HF_OK, hf_release(locks[i]));
    }
}

#define MANY 400 /* more than go into one request, whose renewals are spread */

/* How long before its end it is to be renewed: the same for all, if they are not spread. */
static int64_t ahead_ms(hf_lock *lock)
{
    int64_t ahead;

    pthread_mutex_lock(&lock->store->mutex);
    ahead = lock->valid_ms - lock->renew_ms;
    pthread_mutex_unlock(&lock->store->mutex);
    return ahead;
}

static void many_locks_are_not_renewed_in_one_burst(void **state)
{
    struct fixture *fixture = *state;
    int64_t least = INT64_MAX, most = 0;
    hf_lock *locks[MANY];
    char name[16];

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "lock %d", i);
        locks[i] = must_acquire(fixture->store, name, LONG_TTL_MS);
    }
    for (int i = MANY - 100; i < MANY; i++) { /* the last ones: now there are many */
        int64_t ahead = ahead_ms(locks[i]);

        least = ahead < least ? ahead : least;
        most = ahead > most ? ahead : most;
    }
    /* A renewal is never later than a third of the TTL; the end is 1 % and 2 ms before the TTL's. */
    assert_true(least >= LONG_TTL_MS * 2 / 3 - LONG_TTL_MS / 100 - 2);
    assert_true(most <= LONG_TTL_MS * 5 / 6);
    assert_true(most - least > LONG_TTL_MS / 12); /* of TTL/6 */
    must(HF_OK, hf_renew(locks[MANY - 1]));       /* long before it was due: it has its place */
    assert_true(ahead_ms(locks[MANY - 1]) <= LONG_TTL_MS * 2 / 3 + LONG_TTL_MS / 16);
    most = 0;
    for (int i = 0; i < 40; i++) { /* it could not be renewed for long */
        int64_t ahead;

        pthread_mutex_lock(&fixture->store->mutex);
        locks[i]->renew_ms = clock_boot_ms() - LONG_TTL_MS / 3;
        pthread_mutex_unlock(&fixture->store->mutex);
        must(HF_OK, hf_renew(locks[i]));
        ahead = ahead_ms(locks[i]);
        most = ahead > most ? ahead : most;
    }
    assert_true(most > LONG_TTL_MS * 2 / 3 + LONG_TTL_MS / 16);
    for (int i = 0; i < MANY; i++)
        must(HF_OK, hf_release(locks[i]));
}

/* Redisson 3194, 5698: the watchdog stops after one error. */
static void it_keeps_on_after_errors(void **state)
{
    static const enum fault_kind kinds[] = {FAULT_LOSE_REPLY, FAULT_LOSE_REQUEST, FAULT_UNREACHABLE,
                                            FAULT_REFUSE};
    struct fixture *fixture = *state;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct told loss;
        hf_lock *lock = acquire_told(fixture->store, "one", 800, &loss);

        faults_set(fixture->faults, kinds[i], CALL_RENEW, 3);
        sleep_ms(1200); /* beyond the TTL: only renewals after the errors can have kept it */
        assert_true(atomic_load(&loss.at_ms) == 0);
        assert_true(hf_lock_left_ms(lock) > 0);
        must(HF_OK, hf_check(fixture->store, "one", hf_lock_token(lock)));
        must(HF_OK, hf_release(lock));
    }
}

#define CALLED_LATE_MS 5000 /* on a busy machine, by a thread that has to get its turn */

static void lost_comes_before_the_store_lets_go(struct fixture *fixture, enum fault_kind kind)
{
    struct told loss;
    int64_t began_ms = now_ms(), expiry_ms, lost_ms;
    hf_lock *lock = acquire_told(fixture->store, "one", 800, &loss);

    faults_set(fixture->faults, kind, CALL_RENEW, FAULT_ALWAYS);
    expiry_ms = faults_expiry_ms(fixture->faults, "one");
    while (now_ms() < expiry_ms)
        sleep_ms(1);
    assert_int_equal(0, hf_lock_left_ms(lock)); /* whoever runs when */
    await_lost(lock);
    lost_ms = await_told(&loss.at_ms);
    assert_true(lost_ms <= expiry_ms + CALLED_LATE_MS);
    assert_true(lost_ms - began_ms >= 500); /* and not much before it must be */
    must(HF_ELOST, hf_renew(lock));
    faults_clear(fixture->faults);
    assert_int_equal(0, hf_lock_left_ms(lock)); /* once lost, always lost */
    (void)hf_release(lock);
}

static void lost_comes_in_time_when_the_store_is_unreachable(void **state)
{
    lost_comes_before_the_store_lets_go(*state, FAULT_UNREACHABLE);
}

static void lost_comes_in_time_when_requests_get_lost(void **state)
{
    lost_comes_before_the_store_lets_go(*state, FAULT_LOSE_REQUEST);
}

static void lost_comes_in_time_when_the_store_hangs(void **state)
{
    lost_comes_before_the_store_lets_go(*state, FAULT_HANG);
}

static void stay_in_a_callback(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_store((_Atomic int64_t *)arg, 1);
    sleep_ms(1000);
}

static void a_slow_callback_makes_no_other_loss_late(void **state)
{
    struct fixture *fixture = *state;
    _Atomic int64_t entered = 0;
    hf_options options = options_of(500, PATIENCE_MS);
    hf_lock *slow, *other;
    int64_t expiry_ms;

    options.on_lost = stay_in_a_callback;
    options.arg = (void *)&entered;
    must(HF_OK, hf_acquire(fixture->store, "slow", &options, &slow));
    other = must_acquire(fixture->store, "other", 900);
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RENEW, FAULT_ALWAYS);
    expiry_ms = faults_expiry_ms(fixture->faults, "other");
    assert_true(await_lost(other) <= expiry_ms); /* by descriptor and by the clock */
    assert_true(atomic_load(&entered) != 0);
    faults_clear(fixture->faults);
    (void)hf_release(other);
    (void)hf_release(slow);
}

static void lost_comes_with_the_renewal_that_says_so(void **state)
{
    struct fixture *fixture = *state;
    struct told loss;
    hf_lock *lock = acquire_told(fixture->store, "one", 3000, &loss);
    int64_t ended_ms = now_ms();

    assert_int_equal(1, faults_expire(fixture->faults, "one"));
    await_lost(lock);
    assert_in_range(await_told(&loss.at_ms) - ended_ms, 0, 2000); /* at TTL/3, not at the TTL */
    must(HF_ELOST, hf_release(lock));
}

static void lost_comes_when_the_store_pushes_it(void **state)
{
    static const char *const options[] = {"?lost=push", "?lost=push&push=poll"};
    struct fixture *fixture = *state;

    for (int i = 0; i < 2; i++) {
        hf_store *pushing = fixture_another(fixture, "test", options[i]);
        struct told loss;
        hf_lock *lock = acquire_told(pushing, "one", LONG_TTL_MS, &loss);
        int64_t ended_ms = now_ms();

        faults_expire(fixture->faults, "one");
        await_lost(lock);
        assert_in_range(await_told(&loss.at_ms) - ended_ms, 0,
                        3000); /* a renewal would take longer */
        must(HF_ELOST, hf_release(lock));
        hf_close(pushing);
    }
}

/* In one batch with one that is well, one that cannot be renewed and one that is gone: each is told its own,
 * and in its own time. */
static void each_of_a_batch_has_its_own_answer(void **state)
{
    struct fixture *fixture = *state;
    struct told well, spoilt, gone;
    hf_lock *locks[3] = {acquire_told(fixture->store, "well", 3000, &well),
                         acquire_told(fixture->store, "spoilt", 3000, &spoilt),
                         acquire_told(fixture->store, "gone", 3000, &gone)};
    int64_t expiry_ms;

    faults_spoil(fixture->faults, "spoilt");
    expiry_ms = faults_expiry_ms(fixture->faults, "spoilt");
    must(HF_EREFUSED, hf_renew(locks[1]));
    assert_int_equal(1, faults_expire(fixture->faults, "gone"));
    await_told(&gone.at_ms);
    assert_true(atomic_load(&spoilt.at_ms) == 0); /* nobody has said so, and there is time left */
    assert_true(await_told(&spoilt.at_ms) < expiry_ms);
    sleep_ms(3000); /* beyond the TTL of what is well */
    assert_true(atomic_load(&well.at_ms) == 0);
    must(HF_OK, hf_release(locks[0]));
    must(HF_ELOST, hf_release(locks[1]));
    must(HF_ELOST, hf_release(locks[2]));
}

/* Due together with one whose TTL is so short that its renewal is soon given up, on a store that takes longer than that. */
static void a_short_ttl_leaves_a_long_one_its_time(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *longer = must_acquire(fixture->store, "long", 60000);
    hf_lock *shorter = must_acquire(fixture->store, "short", 5000);
    int64_t valid_ms;
    bool failed, renewed;

    faults_delay(fixture->faults, CALL_RENEW,
                 3000); /* more than TTL/5 of the one, less than the other's */
    pthread_mutex_lock(&fixture->store->mutex);
    valid_ms = longer->valid_ms;
    longer->renew_ms = shorter->renew_ms = clock_boot_ms();
    claim_watch(longer);
    claim_watch(shorter);
    pthread_mutex_unlock(&fixture->store->mutex);
    do {
        sleep_ms(5);
        pthread_mutex_lock(&fixture->store->mutex);
        failed = longer->failing_ms != 0;
        renewed = longer->valid_ms > valid_ms;
        pthread_mutex_unlock(&fixture->store->mutex);
    } while (!failed && !renewed);
    assert_false(failed);
    faults_clear(fixture->faults);
    must(HF_OK, hf_release(longer));
    (void)hf_release(shorter);
}

/* What could not be renewed for a while is, when it can be again. */
static void one_that_was_refused_is_tried_again(void **state)
{
    struct fixture *fixture = *state;
    struct told well, spoilt;
    hf_lock *locks[2] = {acquire_told(fixture->store, "well", 1500, &well),
                         acquire_told(fixture->store, "spoilt", 1500, &spoilt)};

    faults_spoil(fixture->faults, "spoilt");
    sleep_ms(800); /* past its renewal */
    faults_spoil(fixture->faults, NULL);
    sleep_ms(1500);
    assert_true(atomic_load(&well.at_ms) == 0 && atomic_load(&spoilt.at_ms) == 0);
    must(HF_OK, hf_release(locks[0]));
    must(HF_OK, hf_release(locks[1]));
}

/* What is known of why is said while there is time left, and is part of the loss. */
static void a_loss_says_why_it_could_not_be_renewed(void **state)
{
    static const struct {
        enum fault_kind kind;
        const char *why;
    } causes[] = {{FAULT_UNREACHABLE, "test store: told to be unreachable"},
                  {FAULT_REFUSE, "test store: told to refuse"},
                  {FAULT_HANG, "test store: no answer in time"}};
    struct fixture *fixture = *state;
    char why[128];

    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        struct told loss;
        hf_lock *lock = acquire_told(fixture->store, "one", 1500, &loss);

        assert_int_equal(0, hf_lock_unrenewed_ms(lock));
        faults_set(fixture->faults, causes[i].kind, CALL_RENEW, FAULT_ALWAYS);
        while (hf_lock_unrenewed_ms(lock) == 0 && hf_lock_left_ms(lock) > 0)
            sleep_ms(2);
        assert_true(hf_lock_unrenewed_ms(lock) > 0);
        if (causes[i].kind != FAULT_HANG) /* it ends when it is overdue: one or the other */
            assert_string_equal(causes[i].why, hf_error());
        await_told(&loss.at_ms);
        snprintf(why, sizeof why, "it could not be renewed in time: %s", causes[i].why);
        assert_string_equal(why, hf_lock_lost_why(lock));
        faults_clear(fixture->faults);
        hf_release(lock);
    }
}

/* Before its time is over: whoever has to end a job in time does not learn the cause. */
static void a_renewal_that_takes_long_is_a_reason(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);

    pthread_mutex_lock(&fixture->store->mutex);
    lock->asked_ms = clock_boot_ms();
    pthread_mutex_unlock(&fixture->store->mutex);
    assert_int_equal(0, hf_lock_unrenewed_ms(lock));
    pthread_mutex_lock(&fixture->store->mutex);
    lock->asked_ms = clock_boot_ms() - LONG_TTL_MS / 10;
    pthread_mutex_unlock(&fixture->store->mutex);
    assert_true(hf_lock_unrenewed_ms(lock) > 0);
    assert_memory_equal("the store has not answered for ", hf_error(), 31);
    must(HF_OK, hf_release(lock));
}

static void what_is_renewed_again_has_no_reason(void **state)
{
    struct fixture *fixture = *state;
    struct told loss;
    hf_lock *lock = acquire_told(fixture->store, "one", 3000, &loss);

    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RENEW, FAULT_ALWAYS);
    while (hf_lock_unrenewed_ms(lock) == 0 && hf_lock_left_ms(lock) > 0)
        sleep_ms(2);
    faults_clear(fixture->faults);
    must(HF_OK, hf_renew(lock));
    assert_int_equal(0, hf_lock_unrenewed_ms(lock));
    clock_test_shift_ms(60000);
    watchdog_poke(fixture->store);
    await_told(&loss.at_ms);
    assert_string_equal("it could not be renewed in time", hf_lock_lost_why(lock));
    must(HF_ELOST, hf_release(lock));
    clock_test_shift_ms(0);
}

static void a_renewal_asked_for_says_lost(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", LONG_TTL_MS);

    must(HF_OK, hf_renew(lock));
    assert_true(faults_count(fixture->faults, CALL_RENEW) >= 1);
    faults_expire(fixture->faults, "one");
    must(HF_ELOST, hf_renew(lock));
    assert_int_equal(0, hf_lock_left_ms(lock));
    must(HF_ELOST, hf_release(lock));
}

/* Section B 10: a suspend makes CLOCK_BOOTTIME jump. */
static void a_jump_of_the_clock_is_a_loss_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct told loss;
    hf_lock *lock = acquire_told(fixture->store, "one", LONG_TTL_MS, &loss);
    int64_t jumped_ms;

    assert_true(hf_lock_left_ms(lock) > 0);
    clock_test_shift_ms(60000);
    jumped_ms = now_ms();
    assert_int_equal(0, hf_lock_left_ms(lock)); /* without anybody being told anything */
    watchdog_poke(fixture->store);
    assert_in_range(await_told(&loss.at_ms) - jumped_ms, 0, 5000);
    await_lost(lock);
    must(HF_ELOST, hf_release(lock));
    clock_test_shift_ms(0);
}

static void a_released_lock_is_renewed_no_more(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", 300);

    must(HF_OK, hf_release(lock));
    faults_reset_counts(fixture->faults);
    sleep_ms(700);
    assert_int_equal(0, faults_count(fixture->faults, CALL_RENEW)); /* Redisson 7272, 2714 */
}

static void a_detached_lock_is_renewed_no_more(void **state)
{
    struct fixture *fixture = *state;
    hf_lock *lock = must_acquire(fixture->store, "one", 300);

    must(HF_OK, hf_lock_detach(lock));
    faults_reset_counts(fixture->faults);
    sleep_ms(700);
    assert_int_equal(0, faults_count(fixture->faults, CALL_RENEW));
    assert_int_equal(0, faults_expiry_ms(fixture->faults, "one"));
}

static void closing_does_not_wait_for_a_store_that_hangs(void **state)
{
    struct fixture *fixture = *state;
    hf_store *another = fixture_another(fixture, "test", "");
    int64_t began_ms;

    must_acquire(another, "one", 600);
    must_acquire(another, "two", 600);
    faults_set(fixture->faults, FAULT_HANG, CALL_ANY, FAULT_ALWAYS);
    began_ms = now_ms();
    hf_close(another);
    assert_true(now_ms() - began_ms < 12000);
    faults_clear(fixture->faults);
    await_entries(fixture->store, "one", HF_ENTRY_HOLDER, 0); /* ends with its TTL */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_renews_at_a_third_of_the_ttl),
        TEST(many_locks_are_renewed_together),
        TEST(many_locks_are_not_renewed_in_one_burst),
        TEST(it_keeps_on_after_errors),
        TEST(lost_comes_in_time_when_the_store_is_unreachable),
        TEST(lost_comes_in_time_when_requests_get_lost),
        TEST(lost_comes_in_time_when_the_store_hangs),
        TEST(a_slow_callback_makes_no_other_loss_late),
        TEST(lost_comes_with_the_renewal_that_says_so),
        TEST(lost_comes_when_the_store_pushes_it),
        TEST(each_of_a_batch_has_its_own_answer),
        TEST(a_short_ttl_leaves_a_long_one_its_time),
        TEST(one_that_was_refused_is_tried_again),
        TEST(a_loss_says_why_it_could_not_be_renewed),
        TEST(a_renewal_that_takes_long_is_a_reason),
        TEST(what_is_renewed_again_has_no_reason),
        TEST(a_renewal_asked_for_says_lost),
        TEST(a_jump_of_the_clock_is_a_loss_at_once),
        TEST(a_released_lock_is_renewed_no_more),
        TEST(a_detached_lock_is_renewed_no_more),
        TEST(closing_does_not_wait_for_a_store_that_hangs),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
