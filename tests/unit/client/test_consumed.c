/* What is told of a lock that was given up: nothing. A renewal that hangs keeps the lock busy past its end, so that it is lost
 * while its release waits; whoever gave it up may have freed what on_lost would use. */
#include "fixture.h"

#include <holdfast/once.h>

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define TTL_MS \
    1500 /* of a store that hangs: the third renewal begins before the end, and ends after it */
#define RENEWALS 3 /* by then */
#define LEAST_MS \
    30 /* what must be left when that has begun; else the machine was too busy, and it begins again */
#define CONSUMED_MAGIC 107 /* what on_lost must find in its argument */
#define LOSSES 200

struct told {
    int magic; /* overwritten before it is freed: seen without a sanitizer, too */
    _Atomic int *wrong;
    _Atomic int *calls;
};

struct outcome {
    _Atomic int done;
    int result;
    bool leave_it;
    hf_lock *lock;
    hf_once *once;
    struct fixture *fixture;
    struct told *told; /* freed by done */
};

static _Atomic int calls, wrong;

static struct told *told_new(void)
{
    struct told *told = malloc(sizeof *told);

    assert_non_null(told);
    atomic_store(&calls, 0);
    atomic_store(&wrong, 0);
    *told = (struct told){CONSUMED_MAGIC, &wrong, &calls};
    return told;
}

static void told_free(struct told *told)
{
    told->magic = 0;
    free(told);
}

static void on_lost(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_fetch_add(&calls, 1); /* before the argument: that may be gone */
    if (((struct told *)arg)->magic != CONSUMED_MAGIC)
        atomic_fetch_add(&wrong, 1);
}

static void until(bool (*condition)(void *arg), void *arg, const char *what)
{
    int64_t deadline_ms = now_ms() + PATIENCE_MS;

    while (!condition(arg)) {
        if (now_ms() > deadline_ms)
            fail_msg("never: %s", what);
        sleep_ms(2);
    }
}

static bool is_renewed(void *arg)
{
    return faults_count(((struct fixture *)arg)->faults, CALL_RENEW) >= RENEWALS;
}

static bool is_done(void *arg)
{
    return atomic_load(&((struct outcome *)arg)->done) > 0;
}

/* Takes nothing out, or all. */
static void note_done(hf_op *op, int result, void *arg)
{
    struct outcome *outcome = arg;

    outcome->result = result;
    if (outcome->fixture) /* stays until the lock is busy with a renewal */
        until(is_renewed, outcome->fixture, "the last renewal");
    if (!outcome->leave_it) {
        outcome->lock = hf_op_take_lock(op);
        outcome->once = hf_op_take_once(op);
    }
    if (outcome->told)
        told_free(outcome->told);
    atomic_fetch_add(&outcome->done, 1);
}

/* A lock whose renewal hangs until after its end. */
static hf_lock *acquire_busy(struct fixture *fixture, struct told *told)
{
    hf_options options = options_of(TTL_MS, PATIENCE_MS);
    hf_lock *lock = NULL;

    options.on_lost = on_lost;
    options.arg = told;
    for (;;) {
        faults_clear(fixture->faults);
        must(HF_OK, hf_acquire(fixture->store, "one", &options, &lock));
        faults_reset_counts(fixture->faults);
        faults_set(fixture->faults, FAULT_HANG, CALL_RENEW, FAULT_ALWAYS);
        until(is_renewed, fixture, "the last renewal");
        if (hf_lock_left_ms(lock) >= LEAST_MS)
            return lock;
        hf_release(lock);
        atomic_store(&calls, 0);
    }
}

/* What is run once has no on_lost, but a descriptor. */
static hf_once *begin_busy(struct fixture *fixture, int *ret_fd)
{
    hf_once_options options = HF_ONCE_OPTIONS_INIT;
    hf_once *once = NULL;

    options.ttl_ms = TTL_MS;
    for (;;) {
        faults_clear(fixture->faults);
        must(HF_OK, hf_once_begin(fixture->store, "one", &options, &once));
        *ret_fd = hf_lock_lost_fd(hf_once_lock(once));
        assert_true(*ret_fd >= 0);
        faults_reset_counts(fixture->faults);
        faults_set(fixture->faults, FAULT_HANG, CALL_RENEW, FAULT_ALWAYS);
        until(is_renewed, fixture, "the last renewal");
        if (hf_lock_left_ms(hf_once_lock(once)) >= LEAST_MS)
            return once;
        hf_once_release(once);
    }
}

/* It is closed by now, by this thread, and its number is free: nobody writes to it or closes it later. */
static void assert_number_is_free(int fd)
{
    int mine = dup(0);

    assert_int_equal(fd, mine);
}

/* The renewal is over, and with it the lock: whoever wanted to say so has. */
static void assert_nothing_told(struct outcome *outcome, int result)
{
    until(is_done, outcome, "the end of the operation");
    must(result, outcome->result);
    assert_int_equal(0, atomic_load(&calls));
    assert_int_equal(0, atomic_load(&wrong));
}

static void nothing_is_told_of_a_started_release(void **state)
{
    struct fixture *fixture = *state;
    struct told *told = told_new();
    hf_lock *lock = acquire_busy(fixture, told);
    struct outcome outcome = {0};
    hf_op *op;

    must(HF_OK, hf_release_start(lock, note_done, &outcome, &op));
    told_free(told);
    assert_nothing_told(&outcome, HF_ELOST);
}

static void nothing_is_told_of_a_started_finish(void **state)
{
    struct outcome outcome = {0};
    hf_once *once;
    hf_op *op;
    int fd;

    once = begin_busy(*state, &fd);
    must(HF_OK, hf_once_finish_start(once, "x", 1, 1000, note_done, &outcome, &op));
    assert_number_is_free(fd);
    until(is_done, &outcome, "the end of the operation");
    must(HF_ESTALE, outcome.result);
    assert_int_equal(0, close(fd));
}

static void nothing_is_told_of_a_started_release_of_what_is_run_once(void **state)
{
    struct outcome outcome = {0};
    hf_once *once;
    hf_op *op;
    int fd;

    once = begin_busy(*state, &fd);
    must(HF_OK, hf_once_release_start(once, note_done, &outcome, &op));
    assert_number_is_free(fd);
    until(is_done, &outcome, "the end of the operation");
    must(HF_ELOST, outcome.result);
    assert_int_equal(0, close(fd));
}

/* Who is inside hf_release may have a mutex that on_lost wants: then neither would end. */
static void nothing_is_told_while_it_is_released(void **state)
{
    struct told *told = told_new();
    hf_lock *lock = acquire_busy(*state, told);

    must(HF_ELOST, hf_release(lock));
    assert_int_equal(0, atomic_load(&calls));
    told_free(told);
}

static void nothing_is_told_of_what_is_not_taken_out(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(TTL_MS, PATIENCE_MS);
    struct outcome outcome = {.leave_it = true, .fixture = fixture, .told = told_new()};
    hf_op *op;

    options.on_lost = on_lost;
    options.arg = outcome.told;
    faults_reset_counts(fixture->faults);
    faults_set(fixture->faults, FAULT_HANG, CALL_RENEW, FAULT_ALWAYS);
    must(HF_OK, hf_acquire_start(fixture->store, "one", &options, note_done, &outcome, &op));
    until(is_done, &outcome, "the end of the operation");
    sleep_ms(TTL_MS); /* there is no event for what must not happen */
    assert_nothing_told(&outcome, HF_OK);
}

/* ---- with a loop of the program's own -------------------------------------------------------- */

static void dispatch_until_done(hf_store *store, struct outcome *outcome)
{
    struct pollfd pollfd = {.fd = hf_fd(store), .events = POLLIN};

    while (!is_done(outcome)) {
        assert_int_equal(1, poll(&pollfd, 1, (int)PATIENCE_MS));
        assert_true(hf_dispatch(store) >= 0);
    }
}

static void nothing_is_told_of_what_is_queued_already(void **state)
{
    struct fixture *fixture = *state;
    hf_options options = options_of(400, PATIENCE_MS);
    struct outcome outcome = {0};
    struct told *told = told_new();
    hf_lock *lock;
    hf_op *op;

    assert_true(hf_fd(fixture->store) >= 0);
    options.on_lost = on_lost;
    options.arg = told;
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RENEW, FAULT_ALWAYS);
    must(HF_OK, hf_acquire(fixture->store, "one", &options, &lock));
    await_lost(lock); /* and on_lost waits for hf_dispatch */
    must(HF_OK, hf_release_start(lock, note_done, &outcome, &op));
    told_free(told);
    dispatch_until_done(fixture->store, &outcome);
    assert_nothing_told(&outcome, HF_ELOST);
}

static void nothing_is_told_by_its_descriptor(void **state)
{
    struct fixture *fixture = *state;
    struct told *told = told_new();
    hf_lock *lock = acquire_busy(fixture, told);
    struct outcome outcome = {0};
    int fd = hf_lock_lost_fd(lock);
    hf_op *op;

    assert_true(fd >= 0);
    must(HF_OK, hf_release_start(lock, note_done, &outcome, &op));
    assert_number_is_free(fd);
    told_free(told);
    assert_nothing_told(&outcome, HF_ELOST);
    assert_int_equal(0, close(fd));
}

/* ---- a callback that is running -------------------------------------------------------------- */

struct slow {
    _Atomic bool inside, over;
    hf_lock *_Atomic lock;
    struct outcome *outcome; /* to give the lock up from within */
};

static void stay_inside(hf_lock *lock, void *arg)
{
    struct slow *slow = arg;
    hf_op *op;

    atomic_store(&slow->inside, true);
    if (slow->outcome)
        must(HF_OK, hf_release_start(lock, note_done, slow->outcome, &op));
    sleep_ms(400);
    atomic_store(&slow->over, true);
}

static bool is_inside(void *arg)
{
    return atomic_load(&((struct slow *)arg)->inside);
}

static hf_lock *lose_slowly(struct fixture *fixture, struct slow *slow)
{
    hf_options options = options_of(400, PATIENCE_MS);
    hf_lock *lock;

    options.on_lost = stay_inside;
    options.arg = slow;
    faults_set(fixture->faults, FAULT_UNREACHABLE, CALL_RENEW, FAULT_ALWAYS);
    must(HF_OK, hf_acquire(fixture->store, "one", &options, &lock));
    until(is_inside, slow, "on_lost");
    return lock;
}

static void what_is_being_told_is_waited_for(void **state)
{
    struct slow slow = {0}, again = {0};
    struct outcome outcome = {0};
    hf_lock *lock = lose_slowly(*state, &slow);
    hf_op *op;

    must(HF_OK, hf_release_start(lock, note_done, &outcome, &op));
    assert_true(atomic_load(&slow.over));
    until(is_done, &outcome, "the end of the operation");
    lock = lose_slowly(*state, &again);
    must(HF_ELOST, hf_release(lock));
    assert_true(atomic_load(&again.over));
}

static void a_callback_does_not_wait_for_itself(void **state)
{
    struct outcome outcome = {0};
    struct slow slow = {.outcome = &outcome};

    (void)lose_slowly(*state, &slow);
    until(is_done, &outcome, "the end of the operation");
    must(HF_ELOST, outcome.result);
    assert_true(atomic_load(&slow.over)); /* one callback at a time */
}

/* ---- a lock that nobody has seen yet --------------------------------------------------------- */

struct order {
    _Atomic int done, lost;
    _Atomic bool lost_first;
};

static void take_it(hf_op *op, int result, void *arg)
{
    struct order *order = arg;

    (void)result;
    (void)hf_op_take_lock(op); /* on_lost releases it */
    atomic_fetch_add(&order->done, 1);
}

static void release_it(hf_lock *lock, void *arg)
{
    struct order *order = arg;

    if (atomic_load(&order->done) == 0)
        atomic_store(&order->lost_first, true);
    hf_release(lock);
    atomic_fetch_add(&order->lost, 1);
}

static bool is_lost(void *arg)
{
    return atomic_load(&((struct order *)arg)->lost) > 0;
}

/* A lock that is lost as soon as it is granted: whoever started the acquisition hears of that first, or on_lost would release what
 * done then hands out. */
static void done_comes_before_on_lost(void **state)
{
    struct fixture *fixture = *state;
    hf_op *op;

    faults_delay(fixture->faults, CALL_ACQUIRE, 5);
    for (int i = 0; i < LOSSES; i++) {
        hf_options options = options_of(LONG_TTL_MS, PATIENCE_MS);
        struct order order = {0};

        options.max_hold_ms = 1;
        options.on_lost = release_it;
        options.arg = &order;
        must(HF_OK, hf_acquire_start(fixture->store, "one", &options, take_it, &order, &op));
        until(is_lost, &order, "on_lost");
        assert_false(atomic_load(&order.lost_first));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_told_of_a_started_release),
        TEST(nothing_is_told_of_a_started_finish),
        TEST(nothing_is_told_of_a_started_release_of_what_is_run_once),
        TEST(nothing_is_told_while_it_is_released),
        TEST(nothing_is_told_of_what_is_not_taken_out),
        TEST(nothing_is_told_of_what_is_queued_already),
        TEST(nothing_is_told_by_its_descriptor),
        TEST(what_is_being_told_is_waited_for),
        TEST(a_callback_does_not_wait_for_itself),
        TEST(done_comes_before_on_lost),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
