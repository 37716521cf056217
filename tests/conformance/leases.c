/* leases.c: renewal, expiry, lock-delay, handing a hold on; and, on stores without TTL, that there is none. */
#include "suite.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void renewal_keeps_a_hold_beyond_its_ttl(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *lock, *other;
    int64_t until_ms;

    options.ttl_ms = ttl_of(context, RENEWED_TTL_MS);
    lock = must_acquire(context->store, "one", &options);
    until_ms = now_ms() + 5 * options.ttl_ms / 2;
    while (now_ms() < until_ms) {
        int64_t left_ms = hf_lock_left_ms(lock);

        assert_in_range(left_ms, 1, options.ttl_ms);
        must(HF_EBUSY, hf_try(another, "one", &options, &other));
        sleep_ms(30);
    }
    must(HF_OK, hf_check(another, "one", hf_lock_token(lock)));
    must(HF_OK, hf_renew(lock));
    must(HF_OK, hf_release(lock));
    hf_close(another);
}

static void a_waiter_waits_beyond_its_ttl(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context), waiting = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    struct waiter waiter;

    waiting.ttl_ms = ttl_of(context, 300);
    waiting.wait_ms += 4 * (waiting.ttl_ms - 300);
    waiter_start(&waiter, context->store, "one", &waiting);
    await_waiters(context, "one", 1);
    sleep_ms(4 * waiting.ttl_ms);
    must(HF_OK, hf_release(lock));
    must(HF_OK, waiter_join(&waiter));
    assert_true(hf_lock_left_ms(waiter.lock) > 0);
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(waiter.lock)));
    must(HF_OK, hf_release(waiter.lock));
}

/* Section B 1: the holder is stopped for longer than its TTL, wakes up, and must know. */
static void a_stopped_holder_is_followed_and_knows(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "ttl=600", &helper);
    hf_lock *lock;

    kill(helper->pid, SIGSTOP);
    lock = must_acquire(context->store, "one", &options);
    assert_true(hf_lock_token(lock) > token);
    must(HF_ELOST, hf_check(context->store, "one", token));
    helper_say(helper, "left"); /* the first thing it looks at when it wakes */
    kill(helper->pid, SIGCONT);
    for (int told = 0; told < 2; told++) { /* in either order */
        const char *line = helper_hear(helper, "l");

        if (strncmp(line, "eft", 3) == 0)
            assert_string_equal("eft 0", line);
        else
            assert_string_equal("ost", line);
    }
    helper_say(helper, "release");
    assert_string_equal("HF_ELOST", helper_hear(helper, "released"));
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(lock)));
    must(HF_OK, hf_release(lock));
}

/* etcd 11456: a waiter whose lease ran out in the queue is not taken for the holder. */
static void a_stopped_waiter_loses_its_place_but_not_the_lock(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options), *next;
    struct helper *helper = helper_start(context, "one", "ttl=600");
    uint64_t token;

    await_waiters(context, "one", 1);
    kill(helper->pid, SIGSTOP);
    await_waiters(context, "one", 0);
    must(HF_OK, hf_release(lock));
    next = must_acquire(context->store, "one", &options);
    token = hf_lock_token(next);
    kill(helper->pid, SIGCONT);
    must(HF_OK, hf_check(context->store, "one", token));
    must(HF_OK, hf_release(next));
    assert_true(strtoull(helper_hear(helper, "held"), NULL, 10) > token);
}

static void a_lock_delay_keeps_the_name_back_after_an_expiry(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    const int64_t delay_ms = ttl_of(context, 300) + 600; /* not to be taken for the TTL */
    int64_t killed_ms;
    char words[64];
    hf_lock *lock;

    snprintf(words, sizeof words, "ttl=300 delay=%" PRId64, delay_ms);
    helper_hold(context, "one", words, &helper);
    helper_kill(helper);
    killed_ms = now_ms();
    lock = must_acquire(context->store, "one", &options);
    assert_true(now_ms() - killed_ms >= delay_ms); /* and what was left of its TTL */
    must(HF_OK, hf_release(lock));
}

static void a_lock_delay_does_not_follow_a_release(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock, *next;

    options.delay_ms = 60000;
    lock = must_acquire(context->store, "one", &options);
    must(HF_OK, hf_release(lock));
    must(HF_OK, try_free(context->store, "one", &options, &next));
    must(HF_OK, hf_release(next));
}

/* Taken with a lock-delay, renewed by somebody who knows of none, and then silence. */
static void a_lock_delay_outlives_a_renewal_by_another(void **state)
{
    static const char *const names[] = {"exclusive", "shared", "permit"};
    struct context *context = *state;
    const int64_t delay_ms = 1500, longer_ms = ttl_of(context, RENEWED_TTL_MS) + 2 * delay_ms;
    hf_options taking = options_of(context), plain = options_of(context), after = taking;
    hf_store *another = open_another(context);
    char lease[HF_LEASE_MAX + 1];
    int64_t renewed_ms[3];
    hf_lock *lock;

    taking.ttl_ms = ttl_of(context, RENEWED_TTL_MS);
    taking.delay_ms = delay_ms;
    plain.ttl_ms = longer_ms;
    for (int mode = HF_EXCLUSIVE; mode <= HF_PERMIT; mode++) {
        uint64_t token;

        taking.mode = mode;
        taking.permits = mode == HF_PERMIT;
        lock = must_acquire(context->store, names[mode], &taking);
        token = hf_lock_token(lock);
        snprintf(lease, sizeof lease, "%s", hf_lock_lease(lock));
        must(HF_OK, hf_lock_detach(lock));
        renewed_ms[mode] = now_ms();
        must(HF_OK, hf_adopt(another, names[mode], lease, token, &plain, &lock));
        must(HF_OK, hf_lock_detach(lock));
    }
    for (int mode = HF_EXCLUSIVE; mode <= HF_PERMIT; mode++) {
        after.mode = mode == HF_PERMIT ? HF_PERMIT : HF_EXCLUSIVE;
        after.permits = mode == HF_PERMIT;
        lock = must_acquire(context->store, names[mode], &after);
        if (now_ms() - renewed_ms[mode] < longer_ms + delay_ms)
            fail_msg("%s: free after %d ms", names[mode], (int)(now_ms() - renewed_ms[mode]));
        must(HF_OK, hf_release(lock));
    }
    hf_close(another);
}

static void a_detached_hold_can_be_adopted(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *first = open_another(context);
    hf_lock *lock = must_acquire(first, "one", &options), *other;
    uint64_t token = hf_lock_token(lock);
    char lease[HF_LEASE_MAX + 1];

    snprintf(lease, sizeof lease, "%s", hf_lock_lease(lock));
    must(HF_OK, hf_lock_detach(lock));
    hf_close(first); /* a hold can outlive the handle that took it */
    must_be_busy(context, context->store, "one", &options);
    must(HF_OK, hf_check(context->store, "one", token));
    must(HF_ELOST, hf_adopt(context->store, "one", lease, token + 1, &options, &other));
    must(HF_ELOST, hf_adopt(context->store, "one", "another-lease", token, &options, &other));
    must(HF_OK, hf_adopt(context->store, "one", lease, token, &options, &other));
    assert_true(hf_lock_token(other) == token);
    assert_true(hf_lock_left_ms(other) > 0);
    must(HF_OK, hf_renew(other));
    must(HF_OK, hf_release(other));
    must(HF_ELOST, hf_check(context->store, "one", token));
    must(HF_OK, try_free(context->store, "one", &options, &other));
    must(HF_OK, hf_release(other));
}

/* Whoever adopts need not know how it was taken: the store does, and the sequencer says so. */
static void an_adopted_hold_keeps_its_mode(void **state)
{
    struct context *context = *state;
    hf_options plain = options_of(context), options = plain;
    char lease[HF_LEASE_MAX + 1], before[HF_SEQUENCER_MAX], after[HF_SEQUENCER_MAX];
    hf_lock *lock, *adopted;
    uint64_t token;

    for (int mode = HF_EXCLUSIVE; mode <= HF_PERMIT; mode++) {
        if ((mode == HF_SHARED && !(context->features & HF_HAS_SHARED)) ||
            (mode == HF_PERMIT && !(context->features & HF_HAS_PERMITS)))
            continue;
        options.mode = mode;
        options.permits = mode == HF_PERMIT ? 3 : 0;
        lock = must_acquire(context->store, "one", &options);
        must(HF_OK, hf_lock_sequencer(lock, before, sizeof before));
        snprintf(lease, sizeof lease, "%s", hf_lock_lease(lock));
        token = hf_lock_token(lock);
        must(HF_OK, hf_lock_detach(lock));
        if (context->features & HF_HAS_SHARED && mode != HF_SHARED) {
            hf_options wrong = plain;

            wrong.mode = HF_SHARED;
            must(HF_EMODE, hf_adopt(context->store, "one", lease, token, &wrong, &adopted));
        }
        must(HF_OK, hf_adopt(context->store, "one", lease, token, &plain, &adopted));
        assert_int_equal(mode, hf_lock_mode(adopted));
        must(HF_OK, hf_lock_sequencer(adopted, after, sizeof after));
        assert_string_equal(before, after);
        must(HF_OK, hf_check_sequencer(context->store, after));
        must(HF_OK, hf_renew(adopted));
        must(HF_OK, hf_release(adopted));
    }
}

struct staleness {
    hf_store *store;
    uint64_t token;
};

static bool is_stale(void *arg)
{
    struct staleness *staleness = arg;

    return hf_check(staleness->store, "one", staleness->token) == HF_ELOST;
}

static void a_detached_hold_that_nobody_adopts_runs_out(void **state)
{
    struct context *context = *state;
    hf_options options = short_options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options), *other;
    struct staleness staleness = {context->store, hf_lock_token(lock)};
    char lease[HF_LEASE_MAX + 1];

    snprintf(lease, sizeof lease, "%s", hf_lock_lease(lock));
    must(HF_OK, hf_lock_detach(lock));
    eventually(is_stale, &staleness, "a detached hold runs out");
    must(HF_ELOST, hf_adopt(context->store, "one", lease, staleness.token, &options, &other));
    other = must_acquire(context->store, "one", &options);
    must(HF_OK, hf_release(other));
}

static void what_is_adopted_is_renewed(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock, *adopted;
    uint64_t token;
    char lease[HF_LEASE_MAX + 1];

    options.ttl_ms = ttl_of(context, RENEWED_TTL_MS);
    lock = must_acquire(context->store, "one", &options);
    token = hf_lock_token(lock);
    snprintf(lease, sizeof lease, "%s", hf_lock_lease(lock));
    must(HF_OK, hf_lock_detach(lock));
    must(HF_OK, hf_adopt(context->store, "one", lease, token, &options, &adopted));
    sleep_ms(5 * options.ttl_ms / 2);
    must(HF_OK, hf_check(context->store, "one", token));
    must(HF_OK, hf_release(adopted));
}

static void a_ttl_has_limits(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock;

    options.ttl_ms = HF_TTL_MIN_MS - 1;
    must(HF_EINVAL, hf_try(context->store, "one", &options, &lock));
    options.ttl_ms = HF_TTL_MAX_MS + 1;
    must(HF_EINVAL, hf_try(context->store, "one", &options, &lock));
    options.ttl_ms = -1;
    must(HF_EINVAL, hf_try(context->store, "one", &options, &lock));
    options.ttl_ms = HF_TTL_MAX_MS;
    must(HF_OK, try_free(context->store, "one", &options, &lock));
    assert_true(hf_lock_left_ms(lock) > HF_TTL_MAX_MS / 2);
    must(HF_OK, hf_release(lock));
    options.ttl_ms = 0;
    must(HF_OK, try_free(context->store, "one", &options, &lock));
    assert_in_range(hf_lock_left_ms(lock), 1, hf_info(context->store)->ttl_ms);
    must(HF_OK, hf_release(lock));
}

static void without_ttl_nothing_runs_out(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);

    assert_int_equal(0, hf_info(context->store)->ttl_ms);
    assert_true(hf_lock_left_ms(lock) == HF_UNLIMITED);
    must(HF_OK, hf_renew(lock)); /* nothing to renew, but it is held */
    must(HF_ENOTSUP, hf_lock_detach(lock));
    must(HF_OK, hf_release(lock));
}

const struct suite_test lease_tests[] = {
    SUITE_TEST(renewal_keeps_a_hold_beyond_its_ttl, .needs = HF_HAS_TTL, .steady = true),
    SUITE_TEST(a_waiter_waits_beyond_its_ttl, .needs = HF_HAS_TTL, .fragile = HOLDS_BRIEFLY),
    SUITE_TEST(a_stopped_holder_is_followed_and_knows, .needs = HF_HAS_TTL, .brief = true),
    SUITE_TEST(a_stopped_waiter_loses_its_place_but_not_the_lock, .needs = HF_HAS_TTL,
               .brief = true),
    SUITE_TEST(a_lock_delay_keeps_the_name_back_after_an_expiry, .needs = HF_HAS_DELAY,
               .brief = true),
    SUITE_TEST(a_lock_delay_does_not_follow_a_release, .needs = HF_HAS_DELAY),
    SUITE_TEST(a_lock_delay_outlives_a_renewal_by_another,
               .needs = HF_HAS_DELAY | HF_HAS_DETACH | HF_HAS_SHARED | HF_HAS_PERMITS,
               .steady = true),
    SUITE_TEST(a_detached_hold_can_be_adopted, .needs = HF_HAS_DETACH, .brief = true),
    SUITE_TEST(an_adopted_hold_keeps_its_mode, .needs = HF_HAS_DETACH, .brief = true),
    SUITE_TEST(a_detached_hold_that_nobody_adopts_runs_out, .needs = HF_HAS_DETACH),
    SUITE_TEST(what_is_adopted_is_renewed, .needs = HF_HAS_DETACH, .steady = true),
    SUITE_TEST(a_ttl_has_limits, .needs = HF_HAS_TTL),
    SUITE_TEST(without_ttl_nothing_runs_out, .needs_no = HF_HAS_TTL),
    {0},
};
