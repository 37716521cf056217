/* breaking.c: the operator's ways out, break and floor, and what the old holder learns. */
#include "suite.h"

#include <signal.h>
#include <stdatomic.h>

/* Longer than a holder needs to hear of it; it does not let go in these tests before that is over. */
static int64_t grace_of(const struct context *context)
{
    return 5 * ttl_of(context, SHORT_TTL_MS) / 3;
}

static void note_time(hf_lock *lock, void *arg)
{
    (void)lock;
    *(_Atomic int64_t *)arg = now_ms();
}

static void a_broken_holder_is_told_and_followed(void **state)
{
    struct context *context = *state;
    hf_options options = short_options_of(context), others = options_of(context);
    hf_store *another = open_another(context);
    _Atomic int64_t lost_ms = 0;
    uint32_t broken = 0;
    struct waiter waiter;
    hf_lock *lock;

    options.on_lost = note_time;
    options.arg = (void *)&lost_ms;
    lock = must_acquire(context->store, "one", &options);
    waiter_start(&waiter, another, "one", &others);
    await_waiters(context, "one", 1);
    must(HF_OK, hf_break(another, "one", grace_of(context), &broken));
    assert_int_equal(1, broken);
    must(HF_OK, waiter_join(&waiter));
    /* With a grace, the old holder knows before anybody else is granted. */
    assert_int_equal(0, hf_lock_left_ms(lock));
    await_lost(lock);
    assert_true(lost_ms != 0);
    assert_true(lost_ms <= waiter.ended_ms);
    assert_true(hf_lock_token(waiter.lock) > hf_lock_token(lock));
    must(HF_ELOST, hf_check(another, "one", hf_lock_token(lock)));
    must(HF_ELOST, hf_renew(lock));
    must(HF_ELOST, hf_release(lock));
    must(HF_OK, hf_check(another, "one", hf_lock_token(waiter.lock)));
    must(HF_OK, hf_release(waiter.lock));
    hf_close(another);
}

/* Section B 6, etcd 22082: what comes late from the old holder touches nothing of the new one. */
static void breaking_without_grace_does_not_wait(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context), short_options = short_options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(context->store, "one", &short_options), *next;
    uint32_t broken = 0;

    must(HF_OK, hf_break(another, "one", 0, &broken));
    assert_int_equal(1, broken);
    options.wait_ms = PATIENCE_MS;
    next = must_acquire(another, "one", &options);
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    await_lost(lock);
    must(HF_ELOST, hf_release(lock));
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(next)));
    assert_int_equal(1, count_entries(context->store, "one", HF_ENTRY_HOLDER));
    must(HF_OK, hf_release(next));
    hf_close(another);
}

static void a_late_release_of_a_broken_hold_touches_nothing(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock = must_acquire(context->store, "one", &options), *next;

    must(HF_OK, hf_break(another, "one", 0, NULL));
    next = must_acquire(another, "one", &options);
    /* Perhaps it has not even heard that it lost. */
    must(HF_ELOST, hf_release(lock));
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(next)));
    must(HF_OK, hf_release(next));
    hf_close(another);
}

static void breaking_another_process_tells_it(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "ttl=600", &helper);
    hf_lock *lock;

    must(HF_OK, hf_break(context->store, "one", grace_of(context), NULL));
    helper_hear(helper, "lost");
    lock = must_acquire(context->store, "one", &options);
    assert_true(hf_lock_token(lock) > token);
    helper_say(helper, "left");
    assert_string_equal("0", helper_hear(helper, "left"));
    helper_say(helper, "release");
    assert_string_equal("HF_ELOST", helper_hear(helper, "released"));
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

#define STOPPED_TTL_MS 3000
#define BRIEF_GRACE_MS 300

/* It hears nothing, and may believe that it holds until its TTL is over, however short the grace is. */
static void a_broken_holder_that_is_stopped_keeps_the_name_for_its_ttl(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    int64_t began_ms = now_ms();
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "ttl=3000", &helper);
    uint32_t broken = 0;
    hf_lock *lock;

    kill(helper->pid, SIGSTOP);
    must(HF_OK, hf_break(context->store, "one", BRIEF_GRACE_MS, &broken));
    assert_int_equal(1, broken);
    assert_int_equal(0, count_entries(context->store, "one", HF_ENTRY_HOLDER));
    must(HF_OK, hf_break(context->store, "one", BRIEF_GRACE_MS, &broken));
    assert_int_equal(0, broken); /* nobody holds it any more */
    lock = must_acquire(context->store, "one", &options);
    assert_true(now_ms() - began_ms >= STOPPED_TTL_MS);
    assert_true(hf_lock_token(lock) > token);
    kill(helper->pid, SIGCONT);
    helper_hear(helper, "lost");
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

static void breaking_now_frees_what_is_withheld(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "ttl=20000", &helper);
    int64_t began_ms = now_ms();
    hf_lock *lock;

    kill(helper->pid, SIGSTOP);
    must(HF_OK, hf_break(context->store, "one", BRIEF_GRACE_MS, NULL));
    must(HF_EBUSY, hf_try(context->store, "one", &options, &lock));
    must(HF_OK, hf_break(context->store, "one", 0, NULL));
    lock = must_acquire(context->store, "one", &options);
    assert_true(now_ms() - began_ms < LONG_TTL_MS);
    assert_true(hf_lock_token(lock) > token);
    kill(helper->pid, SIGCONT);
    helper_hear(helper, "lost");
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

static void breaking_ends_all_holds_of_a_name(void **state)
{
    struct context *context = *state;
    hf_options options = short_options_of(context), exclusive = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *readers[3], *writer;
    uint32_t broken = 0;

    options.mode = HF_SHARED;
    for (int i = 0; i < 3; i++)
        readers[i] = must_acquire(i ? another : context->store, "one", &options);
    must(HF_OK, hf_break(context->store, "one", grace_of(context), &broken));
    assert_int_equal(3, broken);
    for (int i = 0; i < 3; i++)
        await_lost(readers[i]);
    writer = must_acquire(context->store, "one", &exclusive);
    for (int i = 0; i < 3; i++)
        must(HF_ELOST, hf_release(readers[i]));
    must(HF_OK, hf_release(writer));
    hf_close(another);
}

/* Whatever it was held as. */
static void breaking_keeps_a_lock_delay(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context), others = options_of(context);
    const int64_t delay_ms = grace_of(context) + 500;
    hf_store *another = open_another(context);

    options.ttl_ms = ttl_of(context, SHORT_TTL_MS);
    options.delay_ms = delay_ms;
    for (int mode = HF_EXCLUSIVE; mode <= HF_SHARED; mode++) {
        hf_lock *lock, *next;
        int64_t broken_ms;

        options.mode = mode;
        lock = must_acquire(context->store, "one", &options);
        broken_ms = now_ms();
        must(HF_OK, hf_break(another, "one", grace_of(context), NULL));
        next = must_acquire(another, "one", &others);
        if (now_ms() - broken_ms < delay_ms)
            fail_msg("in mode %d it was free after %d ms", mode, (int)(now_ms() - broken_ms));
        must(HF_ELOST, hf_release(lock));
        must(HF_OK, hf_release(next));
    }
    hf_close(another);
}

static void breaking_what_nobody_holds_is_no_error(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    uint32_t broken = 9;
    hf_lock *lock;

    must(HF_OK, hf_break(context->store, "nobody's", 0, &broken));
    assert_int_equal(0, broken);
    must(HF_EINVAL, hf_break(context->store, "", 0, &broken));
    lock = must_acquire(context->store, "nobody's", &options);
    must(HF_OK, hf_release(lock));
}

/* One that nobody answered is asked for again, which changes nothing more: the server may be starting. */
static void must_floor(hf_store *store, uint64_t token, uint64_t *ret_at, int *ret_ended)
{
    int64_t until_ms = now_ms() + PATIENCE_MS;
    int result;

    do
        result = hf_floor_at(store, token, ret_at, ret_ended);
    while ((result == HF_EUNKNOWN || result == HF_EUNREACH) && now_ms() < until_ms);
    must(HF_OK, result);
}

static void a_floor_raises_later_tokens(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    uint64_t floor = hf_lock_token(lock) + 5000000;
    struct helper *helper;
    uint64_t token, at = 0;

    must(HF_OK, hf_release(lock));
    must_floor(context->store, floor, &at, NULL);
    assert_true(at == floor);
    lock = must_acquire(context->store, "one", &options);
    token = hf_lock_token(lock);
    assert_true(token > floor);
    must(HF_OK, hf_release(lock));
    must_floor(context->store, 3, NULL, NULL); /* never lowers */
    assert_true(helper_hold(context, "one", NULL, &helper) > token);
    assert_int_not_equal(HF_OK, hf_floor(context->store, HF_TOKEN_MAX + 1));
}

/* Nobody loses a lock to a floor below what was given. */
static void a_floor_below_all_tokens_changes_nothing(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    uint64_t token, at = 0;
    int ended = -1;
    hf_lock *lock;

    must_floor(context->store, 1000, NULL, NULL); /* some stores begin at 1 */
    lock = must_acquire(context->store, "one", &options);
    token = hf_lock_token(lock);
    must_floor(another, token - 1, &at, &ended);
    assert_true(at >= token);
    assert_int_equal(0, ended);
    must_floor(another, 3, NULL, NULL);
    must(HF_OK, hf_check(another, "one", token));
    if (context->features & HF_HAS_TTL)
        must(HF_OK, hf_renew(lock));
    must(HF_OK, hf_release(lock));
    lock = must_acquire(another, "one", &options);
    assert_true(hf_lock_token(lock) > token);
    must(HF_OK, hf_release(lock));
    hf_close(another);
}

static void ignore_done(hf_op *op, int result, void *arg)
{
    (void)op;
    (void)result;
    (void)arg;
}

/* Without a TTL it is the one who breaks that withholds the name; but whoever closes does not wait for that. */
static void closing_ends_a_started_break_and_the_name_stays_withheld(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context), *third = open_another(context);
    hf_lock *lock = must_acquire(context->store, "one", &options), *next;
    struct waiter waiter;
    int64_t began_ms;
    hf_op *op;

    must(HF_OK, hf_break_start(another, "one", 10 * PATIENCE_MS, ignore_done, NULL, &op));
    await_lost(lock);
    began_ms = now_ms();
    hf_close(another);
    assert_true(now_ms() - began_ms < PATIENCE_MS / 2);
    for (int i = 0; i < 3; i++) /* however often it is asked */
        must(HF_EBUSY, hf_try(third, "one", &options, &next));
    options.wait_ms = 100;
    must(HF_EBUSY, hf_acquire(third, "one", &options, &next));
    options.wait_ms = PATIENCE_MS;
    waiter_start(&waiter, third, "one", &options);
    await_waiters(context, "one", 1);
    must(HF_ELOST, hf_release(lock)); /* now it has let go */
    must(HF_OK, waiter_join(&waiter));
    must(HF_OK, hf_release(waiter.lock));
    next = must_acquire(context->store, "one", &options);
    must(HF_OK, hf_release(next));
    hf_close(third);
}

const struct suite_test breaking_tests[] = {
    SUITE_TEST(a_broken_holder_is_told_and_followed, .needs = HF_HAS_BREAK,
               .fragile = HOLDS_BRIEFLY, .steady = true),
    SUITE_TEST(breaking_without_grace_does_not_wait, .needs = HF_HAS_BREAK,
               .fragile = HOLDS_BRIEFLY, .steady = true),
    SUITE_TEST(a_late_release_of_a_broken_hold_touches_nothing, .needs = HF_HAS_BREAK,
               .fragile = RELEASES_WHAT_IS_LOST, .steady = true),
    SUITE_TEST(breaking_another_process_tells_it, .needs = HF_HAS_BREAK, .fragile = BREAKS,
               .steady = true),
    SUITE_TEST(a_broken_holder_that_is_stopped_keeps_the_name_for_its_ttl,
               .needs = HF_HAS_BREAK | HF_HAS_TTL, .fragile = BREAKS, .steady = true),
    SUITE_TEST(breaking_now_frees_what_is_withheld, .needs = HF_HAS_BREAK | HF_HAS_TTL,
               .fragile = BREAKS, .steady = true),
    SUITE_TEST(breaking_ends_all_holds_of_a_name, .needs = HF_HAS_BREAK | HF_HAS_SHARED,
               .fragile = HOLDS_BRIEFLY, .steady = true),
    SUITE_TEST(breaking_keeps_a_lock_delay, .needs = HF_HAS_BREAK | HF_HAS_DELAY | HF_HAS_SHARED,
               .fragile = BREAKS, .steady = true),
    SUITE_TEST(breaking_what_nobody_holds_is_no_error, .needs = HF_HAS_BREAK, .steady = true),
    SUITE_TEST(closing_ends_a_started_break_and_the_name_stays_withheld, .needs = HF_HAS_BREAK,
               .needs_no = HF_HAS_TTL),
    SUITE_TEST(a_floor_raises_later_tokens, .needs = HF_HAS_FLOOR, .brief = true),
    SUITE_TEST(a_floor_below_all_tokens_changes_nothing, .needs = HF_HAS_FLOOR),
    {0},
};
