/* test_retry.c: hf_retry, and hf_guard_token. */
#include "base/clock.h"
#include "base/sequencer.h"
#include "fence_tools.h"

/* ---- sequencers ------------------------------------------------------------------------------ */

static const char *sequencer_of(int mode, uint64_t token)
{
    static char text[HF_SEQUENCER_MAX];
    struct sequencer sequencer = {.store = "abc", .mode = mode, .token = token, .name = "nightly"};

    sequencer_write(&sequencer, text);
    return text;
}

static void test_only_exclusive_tokens_fence(void **state)
{
    uint64_t token = 77;

    (void)state;
    MUST(hf_guard_token(sequencer_of(HF_EXCLUSIVE, 35), &token));
    assert_int_equal(token, 35);
    assert_int_equal(hf_guard_token(sequencer_of(HF_SHARED, 36), &token), HF_EINVAL);
    assert_says("not an exclusive token");
    assert_int_equal(hf_guard_token(sequencer_of(HF_PERMIT, 36), &token), HF_EINVAL);
    assert_says("not an exclusive token");
    assert_int_equal(hf_guard_token("hf1.nonsense", &token), HF_EINVAL);
    assert_int_equal(hf_guard_token(NULL, &token), HF_EINVAL);
    assert_int_equal(hf_guard_token(sequencer_of(HF_EXCLUSIVE, 35), NULL), HF_EINVAL);
    assert_int_equal(token, 35);
}

/* ---- trying again ---------------------------------------------------------------------------- */

static void test_retries_are_bounded_by_their_number(void **state)
{
    hf_retry retry = HF_RETRY_INIT;
    int tries = 0;

    (void)state;
    retry.attempts_max = 7;
    retry.wait_max_ms = 2;
    do
        tries++;
    while (hf_retry_wait(&retry) == HF_OK);
    assert_int_equal(tries, 7);
    assert_int_equal(hf_retry_wait(&retry), HF_EBUSY);
    assert_says("7 attempts");
}

static void test_retries_are_bounded_in_time(void **state)
{
    hf_retry retry = HF_RETRY_INIT;
    int64_t began_ms = clock_boot_ms();
    int result;

    (void)state;
    retry.attempts_max = HF_RETRY_ATTEMPTS_MAX;
    retry.total_max_ms = 60;
    retry.first_ms = retry.wait_max_ms = 10;
    while ((result = hf_retry_wait(&retry)) == HF_OK)
        ;
    assert_int_equal(result, HF_EBUSY);
    assert_says("60 ms");
    assert_true(clock_boot_ms() - began_ms >= 59);
    assert_true(retry.waits >= 3);
    /* A wait that would last longer is cut: else this one would take days. */
    retry = (hf_retry)HF_RETRY_INIT;
    retry.total_max_ms = 5;
    retry.first_ms = retry.wait_max_ms = HF_DURATION_MAX_MS;
    MUST(hf_retry_wait(&retry));
    assert_int_equal(hf_retry_wait(&retry), HF_EBUSY);
    assert_true(clock_boot_ms() - began_ms < PATIENCE_MS);
}

static int64_t wait_of(uint32_t waits_before)
{
    hf_retry retry = HF_RETRY_INIT;
    int64_t began_ns = clock_boot_ns();

    retry.first_ms = 1;
    retry.wait_max_ms = 4;
    retry.waits = waits_before;
    retry.until_ms = clock_boot_ms() + PATIENCE_MS;
    MUST(hf_retry_wait(&retry));
    return clock_boot_ns() - began_ns;
}

/* Waits are anything from nothing to 1, 2, 4, 4, 4 ms. A sleep may last longer than it should on a
 * busy machine, so only the shortest of many are looked at. */
static void test_waits_are_spread_and_grow(void **state)
{
    int short_first = 0, short_late = 0, long_late = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        short_first += wait_of(0) < 1500000;
        short_late += wait_of(8) < 1500000;
        long_late += wait_of(8) > 2500000;
    }
    assert_true(short_late >= 5); /* of about 35: jitter reaches down to nothing */
    assert_true(long_late >= 5);  /* of about 38: and up to the span */
    assert_true(short_first > short_late);
}

static void test_a_retry_is_checked(void **state)
{
    hf_retry retry = HF_RETRY_INIT;

    (void)state;
    assert_int_equal(hf_retry_wait(NULL), HF_EINVAL);
    retry.size = 0;
    assert_int_equal(hf_retry_wait(&retry), HF_EINVAL);
    retry = (hf_retry)HF_RETRY_INIT;
    retry.attempts_max = 0;
    assert_int_equal(hf_retry_wait(&retry), HF_EINVAL);
    retry = (hf_retry)HF_RETRY_INIT;
    retry.first_ms = 0;
    assert_int_equal(hf_retry_wait(&retry), HF_EINVAL);
    retry = (hf_retry)HF_RETRY_INIT;
    retry.wait_max_ms = 1;
    assert_int_equal(hf_retry_wait(&retry), HF_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_exclusive_tokens_fence),
        cmocka_unit_test(test_retries_are_bounded_by_their_number),
        cmocka_unit_test(test_retries_are_bounded_in_time),
        cmocka_unit_test(test_waits_are_spread_and_grow),
        cmocka_unit_test(test_a_retry_is_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
