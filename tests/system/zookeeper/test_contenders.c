/* test_contenders.c: queues of names, without a server. */
#include "engines/zookeeper/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "0123456789abcdef0123456789abcdef"
#define UUID "01234567-89ab-cdef-0123-456789abcdef"

static void names_are_read_as_they_were_written(void **state)
{
    static const struct {
        enum zk_names names;
        int mode;
        uint32_t permits;
        const char *prefix;
    } cases[] = {
        {ZK_NAMES_OURS, HF_EXCLUSIVE, 0, "x-" ID "-"},
        {ZK_NAMES_OURS, HF_SHARED, 0, "s-" ID "-"},
        {ZK_NAMES_OURS, HF_PERMIT, 12, "p12-" ID "-"},
        {ZK_NAMES_KAZOO, HF_EXCLUSIVE, 0, ID "__lock__"},
        {ZK_NAMES_CURATOR, HF_EXCLUSIVE, 0, "_c_" UUID "-lock-"},
    };
    /* As Java's "%010d" writes them. */
    static const struct {
        const char *text;
        int32_t value;
    } sequences[] = {{"0000000000", 0},          {"2147483647", INT32_MAX},
                     {"-2147483648", INT32_MIN}, {"-2147483647", -INT32_MAX},
                     {"-000000001", -1},         {"-123456789", -123456789}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t j = 0; j < sizeof sequences / sizeof *sequences; j++) {
            char name[ZK_CHILD_MAX], text[2 * ZK_CHILD_MAX];
            struct String_vector list = {1, (char *[]){text}};
            struct contender contender;
            struct queue queue;

            contender_name(cases[i].names, cases[i].mode, cases[i].permits, ID, name);
            assert_string_equal(cases[i].prefix, name);
            snprintf(text, sizeof text, "%s%s", name, sequences[j].text);
            if (!contender_parse(cases[i].names, text, &contender))
                fail_msg("not understood: %s", text);
            assert_int_equal(sequences[j].value, contender.sequence);
            assert_int_equal(cases[i].mode, contender.mode);
            assert_int_equal(cases[i].permits, contender.permits);
            assert_true(queue_read(cases[i].names, &list, &queue));
            assert_int_equal(0, queue_find(&queue, ID));
            assert_int_equal(-1, queue_find(&queue, "ff23456789abcdef0123456789abcdef"));
            queue_free(&queue);
        }
}

static void what_is_not_ours_is_not_taken_for_it(void **state)
{
    static const char *const others[] = {"",
                                         "0000000000",
                                         "x-0000000000",
                                         "x-" ID "-000000000",
                                         "x-" ID "-9999999999",
                                         "x-" ID "0000000000",
                                         "y-" ID "-0000000000",
                                         "p-" ID "-0000000000",
                                         "p0-" ID "-0000000000",
                                         "p4294967296-" ID "-0000000000",
                                         "x-0123456789ABCDEF0123456789abcdef-0000000000",
                                         ID "__lock__0000000000",
                                         "lock-0000000000"};
    struct contender contender;
    char name[ZK_CHILD_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(name, sizeof name, "%s", others[i]);
        if (contender_parse(ZK_NAMES_OURS, name, &contender))
            fail_msg("taken for ours: %s", name);
    }
    /* Others count as contenders where theirs are the names, whatever they are called. */
    snprintf(name, sizeof name, "me__lock__0000000007");
    assert_true(contender_parse(ZK_NAMES_KAZOO, name, &contender));
    snprintf(name, sizeof name, "lock-0000000007");
    assert_true(contender_parse(ZK_NAMES_CURATOR, name, &contender));
    snprintf(name, sizeof name, ID "__rlock__0000000007");
    assert_false(contender_parse(ZK_NAMES_KAZOO, name, &contender));
}

static void the_counter_may_overflow(void **state)
{
    struct contender contenders[] = {{.sequence = INT32_MIN},
                                     {.sequence = INT32_MAX},
                                     {.sequence = INT32_MIN + 1},
                                     {.sequence = INT32_MAX - 1}};

    (void)state;
    contenders_sort(contenders, 4);
    assert_int_equal(INT32_MAX - 1, contenders[0].sequence);
    assert_int_equal(INT32_MAX, contenders[1].sequence);
    assert_int_equal(INT32_MIN, contenders[2].sequence);
    assert_int_equal(INT32_MIN + 1, contenders[3].sequence);
}

/* x, s, or a digit: one of so many permits. */
static void judge(const char *queue, int own, enum zk_verdict verdict, int watch)
{
    struct contender contenders[16];
    int count = (int)strlen(queue), watched = -1;

    for (int i = 0; i < count; i++)
        contenders[i] = (struct contender){
            .mode = queue[i] == 'x'   ? HF_EXCLUSIVE
                    : queue[i] == 's' ? HF_SHARED
                                      : HF_PERMIT,
            .permits = queue[i] >= '1' && queue[i] <= '9' ? (uint32_t)(queue[i] - '0') : 0,
            .sequence = i};
    if (contenders_judge(contenders, count, own, &watched) != verdict || watched != watch)
        fail_msg("%s: of %d the verdict is another, or it watches %d", queue, own, watched);
}

static void each_waits_for_one(void **state)
{
    (void)state;
    judge("xxx", 0, ZK_HOLDS, -1);
    judge("xxx", 2, ZK_WAITS, 1);
    judge("sssx", 2, ZK_HOLDS, -1);
    judge("sssx", 3, ZK_WAITS, 2);
    judge("sxss", 2, ZK_WAITS, 1);
    judge("sxss", 3, ZK_WAITS, 1);
    judge("22222", 1, ZK_HOLDS, -1);
    judge("22222", 2, ZK_WAITS_CHANGES, -1);
    judge("22222", 3, ZK_WAITS, 2);
    judge("22222", 4, ZK_WAITS, 3);
}

static void another_use_of_the_name_is_refused_and_nobody_passes_it(void **state)
{
    (void)state;
    judge("x3", 1, ZK_MISFITS, -1);
    judge("3x", 1, ZK_MISFITS, -1);
    judge("34", 1, ZK_MISFITS, -1);
    judge("s3s", 2, ZK_WAITS, 1);
    judge("343", 2, ZK_WAITS, 1);
    judge("sx", 1, ZK_WAITS, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_as_they_were_written),
        cmocka_unit_test(what_is_not_ours_is_not_taken_for_it),
        cmocka_unit_test(the_counter_may_overflow),
        cmocka_unit_test(each_waits_for_one),
        cmocka_unit_test(another_use_of_the_name_is_refused_and_nobody_passes_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
