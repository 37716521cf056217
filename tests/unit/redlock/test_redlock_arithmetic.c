/* test_redlock_arithmetic.c: how long a majority's grant is good, and how many are a majority. What
 * becomes of it on real servers is in tests/system/redis/test_redlock_failures.py. */
#include "engines/redis/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Scenario B8: TTL 10 s, 2 s spent, a drift of 1 % and 2 ms. */
static void test_what_is_left_of_ten_seconds_after_two(void **state)
{
    (void)state;
    assert_int_equal(7898, redlock_validity_ms(10000, 2000));
    assert_int_equal(9898, redlock_validity_ms(10000, 0));
}

static void test_the_drift_grows_with_the_ttl(void **state)
{
    (void)state;
    assert_int_equal(100 - 1 - 2, redlock_validity_ms(100, 0));
    assert_int_equal(30000 - 300 - 2, redlock_validity_ms(30000, 0));
    assert_int_equal(HF_TTL_MAX_MS - HF_TTL_MAX_MS / 100 - 2,
                     redlock_validity_ms(HF_TTL_MAX_MS, 0));
}

static void test_every_millisecond_spent_counts(void **state)
{
    (void)state;
    for (int64_t elapsed_ms = 0; elapsed_ms < 20000; elapsed_ms++)
        assert_int_equal(redlock_validity_ms(10000, elapsed_ms) - 1,
                         redlock_validity_ms(10000, elapsed_ms + 1));
}

/* The last of it goes before the TTL does: by the drift. */
static void test_nothing_is_left_when_the_ttl_has_run(void **state)
{
    static const int64_t ttls[] = {HF_TTL_MIN_MS, 101, 999, 10000, 30000, HF_TTL_MAX_MS};

    (void)state;
    for (size_t i = 0; i < sizeof ttls / sizeof *ttls; i++) {
        int64_t drift_ms = ttls[i] / 100 + 2;

        assert_true(redlock_validity_ms(ttls[i], ttls[i] - drift_ms - 1) > 0);
        assert_true(redlock_validity_ms(ttls[i], ttls[i] - drift_ms) <= 0);
        assert_true(redlock_validity_ms(ttls[i], ttls[i]) <= 0);
        assert_true(redlock_validity_ms(ttls[i], ttls[i] + 1) <= 0);
        assert_true(redlock_validity_ms(ttls[i], 10 * HF_TTL_MAX_MS) <= 0);
    }
}

/* Two majorities have a node in common, and so have a majority and those who can prevent one; with
 * one node less, neither would. */
static void test_how_many_are_a_majority(void **state)
{
    static const struct {
        int nodes, quorum, blocking;
    } table[] = {{3, 2, 2}, {4, 3, 2}, {5, 3, 3}, {6, 4, 3}, {7, 4, 4}, {15, 8, 8}};
    struct engine_store store = {0};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        store.node_count = table[i].nodes;
        assert_int_equal(table[i].quorum, redlock_quorum(&store));
        assert_int_equal(table[i].blocking, redlock_blocking(&store));
    }
    for (store.node_count = 1; store.node_count <= REDIS_NODES_MAX; store.node_count++) {
        int quorum = redlock_quorum(&store);

        assert_true(2 * quorum > store.node_count);
        assert_true(2 * (quorum - 1) <= store.node_count);
        assert_int_equal(store.node_count + 1, quorum + redlock_blocking(&store));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left_of_ten_seconds_after_two),
        cmocka_unit_test(test_the_drift_grows_with_the_ttl),
        cmocka_unit_test(test_every_millisecond_spent_counts),
        cmocka_unit_test(test_nothing_is_left_when_the_ttl_has_run),
        cmocka_unit_test(test_how_many_are_a_majority),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
