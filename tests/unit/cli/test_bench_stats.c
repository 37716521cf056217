/* What `holdfast bench` computes, against the same done the long way; and what it accuses a store of. */
#include "cli/bench_names.h"
#include "cli/bench_stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VALUES 20000

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* From nanoseconds to minutes: never below the truth, and at most 1/32 above it. */
static void test_percentiles(void **state)
{
    static const double parts[] = {0.0001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    struct bench_histogram *all = calloc(1, sizeof *all), *half = calloc(1, sizeof *half);
    int64_t *values = calloc(VALUES, sizeof *values);
    uint64_t random = 88172645463325252u;

    (void)state;
    for (int i = 0; i < VALUES; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        values[i] = (int64_t)(random >> (24 + random % 40));
        bench_histogram_add(i % 2 ? all : half, values[i]);
    }
    bench_histogram_merge(all, half);
    qsort(values, VALUES, sizeof *values, compare);
    assert_int_equal(all->count, VALUES);
    assert_int_equal(all->max_ns, values[VALUES - 1]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t rank = (size_t)(parts[i] * VALUES);
        int64_t truth = values[rank > 0 ? rank - 1 : 0], told = bench_histogram_at(all, parts[i]);

        assert_true(told >= truth);
        assert_true((double)told <= (double)truth * (1 + 1.0 / BENCH_BUCKETS_EACH) + 1);
    }
    free(values);
    free(half);
    free(all);
}

/* Each bucket ends where the next begins. */
static void test_edges(void **state)
{
    static const int64_t edges[] = {0,
                                    1,
                                    63,
                                    64,
                                    65,
                                    127,
                                    128,
                                    4095,
                                    4096,
                                    999999999,
                                    1000000000,
                                    INT64_C(1) << 40,
                                    (INT64_C(1) << 41) - 1};

    (void)state;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        struct bench_histogram *one = calloc(1, sizeof *one);

        bench_histogram_add(one, edges[i]);
        assert_int_equal(bench_histogram_at(one, 0.5),
                         edges[i]); /* its bucket's end, or the longest if that is less */
        bench_histogram_add(one, INT64_MAX);
        assert_true(bench_histogram_at(one, 0.5) >= edges[i]);
        assert_int_equal(bench_histogram_at(one, 1), INT64_MAX);
        free(one);
    }
}

static void test_empty(void **state)
{
    struct bench_histogram *none = calloc(1, sizeof *none);
    uint64_t nothing[3] = {0};

    (void)state;
    assert_int_equal(bench_histogram_at(none, 0.99), 0);
    assert_true(bench_median(NULL, 0) == 0);
    assert_true(bench_fairness_of(nothing, 3).jain == 1);
    free(none);
}

static void test_fairness(void **state)
{
    uint64_t even[] = {7, 7, 7, 7}, alone[] = {0, 28, 0, 0}, some[] = {1, 3};

    (void)state;
    assert_float_equal(bench_fairness_of(even, 4).jain, 1, 1e-9);
    assert_float_equal(bench_fairness_of(alone, 4).jain, 0.25, 1e-9);
    assert_float_equal(bench_fairness_of(alone, 4).most, 4, 1e-9);
    assert_float_equal(bench_fairness_of(alone, 4).least, 0, 1e-9);
    assert_float_equal(bench_fairness_of(some, 2).jain, 0.8, 1e-9);
    assert_float_equal(bench_fairness_of(some, 2).least, 0.5, 1e-9);
}

static void test_median(void **state)
{
    double odd[] = {9, 1, 5}, even[] = {4, 1, 3, 2};

    (void)state;
    assert_true(bench_median(odd, 3) == 5);
    assert_true(bench_median(even, 4) == 2.5);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_holders(void **state)
{
    struct bench_names names = {0};
    struct bench_inside one = {.token = 5}, two = {.token = 6};
    struct bench_name *name;
    char text[256];

    (void)state;
    assert_true(bench_names_begin(&names, "bench/x", 3));
    assert_int_equal(names.count, BENCH_HOT_NAMES + 3);
    assert_string_equal(names.all[0].text, "bench/x/hot/0");
    assert_string_equal(names.all[names.count - 1].text, "bench/x/own/2");
    name = &names.all[0];
    assert_int_equal(bench_name_enter(&names, name, &one, 10, 20), -1); /* nobody had it */
    bench_name_leave(name, &one, 30);
    assert_int_equal(bench_name_enter(&names, name, &two, 25, 37),
                     7); /* asked for while it was held */
    bench_name_leave(name, &two, 40);
    two.token = 7;
    assert_int_equal(bench_name_enter(&names, name, &two, 45, 50),
                     -1); /* asked for when it was free */
    assert_int_equal(names.violations, 0);
    assert_false(bench_names_accuse(&names, text, sizeof text));

    one.token = 8;
    bench_name_enter(&names, name, &one, 46, 51);
    assert_int_equal(names.violations, 1);
    assert_true(bench_names_accuse(&names, text, sizeof text));
    assert_string_equal(text, "bench/x/hot/0: TWO HOLDERS at once, tokens 7 and 8");
    assert_false(bench_names_accuse(&names, text, sizeof text));
    bench_name_leave(name, &two, 60);
    bench_name_leave(name, &one, 61);
    bench_names_end(&names);
}

static void test_tokens(void **state)
{
    struct bench_names names = {0};
    struct bench_inside one = {.token = 5};
    char text[256];

    (void)state;
    assert_true(bench_names_begin(&names, "bench/x", 1));
    for (int i = 0; i < 2; i++) {
        bench_name_enter(&names, &names.all[4], &one, 1, 2);
        bench_name_leave(&names.all[4], &one, 3);
    }
    assert_int_equal(names.violations, 1);
    assert_true(bench_names_accuse(&names, text, sizeof text));
    assert_string_equal(text, "bench/x/own/0: a token that did NOT GROW, tokens 5 and 5");
    one.token = 4; /* of another name: each has its own */
    bench_name_enter(&names, &names.all[1], &one, 1, 2);
    bench_name_leave(&names.all[1], &one, 3);
    assert_int_equal(names.violations, 1);
    bench_names_end(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles), cmocka_unit_test(test_edges),
        cmocka_unit_test(test_empty),       cmocka_unit_test(test_fairness),
        cmocka_unit_test(test_median),      cmocka_unit_test(test_holders),
        cmocka_unit_test(test_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
