/* test_audit_budget.c: how many refusals are written down, and from where. */
#include "server/audit_budget.h"
#include "server/origin.h"
#include "tools.h"

#define BEGIN_MS INT64_C(5000000)

static struct audit_budget fresh;

/* Of so many that come from there at once. */
static int taken(struct audit_budget *budget, const char *address, int64_t now_ms, int tries)
{
    int count = 0;

    for (int i = 0; i < tries; i++)
        count += audit_budget_take(budget, origin_of(address), now_ms);
    return count;
}

static void test_one_address_has_its_part(void **state)
{
    struct audit_budget budget = fresh;

    (void)state;
    assert_int_equal(AUDIT_ORIGIN_BURST, taken(&budget, "10.0.0.1:1", BEGIN_MS, 100000));
    assert_int_equal(AUDIT_ORIGIN_BURST, taken(&budget, "10.0.0.2:1", BEGIN_MS, 100000));
    assert_int_equal(0, taken(&budget, "10.0.0.1:2", BEGIN_MS + AUDIT_ORIGIN_EVERY_MS - 1, 10));
    assert_int_equal(1, taken(&budget, "10.0.0.1:2", BEGIN_MS + AUDIT_ORIGIN_EVERY_MS, 10));
}

static void test_all_together_have_no_more(void **state)
{
    struct audit_budget budget = fresh;
    int count = 0;
    char address[32];

    (void)state;
    for (int i = 0; i < 10000; i++) {
        snprintf(address, sizeof address, "10.1.%d.%d:%d", i / 250, i % 250, i);
        count += taken(&budget, address, BEGIN_MS, 3);
    }
    assert_int_equal(AUDIT_BURST, count);
    /* For a day, as many as come: a line a second. */
    count = 0;
    for (int64_t s = 1; s <= 86400; s++)
        for (int i = 0; i < 20; i++) {
            snprintf(address, sizeof address, "10.2.%d.%d:1", (int)(s % 250), i);
            count += taken(&budget, address, BEGIN_MS + 1000 * s, 2);
        }
    assert_int_equal(86400, count);
}

static void test_what_is_left_out_is_told_once(void **state)
{
    struct audit_budget budget = fresh;

    (void)state;
    taken(&budget, "10.0.0.1:1", BEGIN_MS, AUDIT_ORIGIN_BURST);
    assert_int_equal(0, audit_budget_left_out(&budget, BEGIN_MS, true));
    taken(&budget, "10.0.0.1:1", BEGIN_MS, 7);
    assert_int_equal(0, audit_budget_left_out(&budget, BEGIN_MS + AUDIT_LEFT_OUT_MS - 1, false));
    assert_int_equal(7, audit_budget_left_out(&budget, BEGIN_MS + AUDIT_LEFT_OUT_MS, false));
    assert_int_equal(0, audit_budget_left_out(&budget, BEGIN_MS + AUDIT_LEFT_OUT_MS, true));
    taken(&budget, "10.0.0.1:1", BEGIN_MS, 3);
    assert_int_equal(3, audit_budget_left_out(&budget, BEGIN_MS, true));
}

static void test_where_somebody_comes_from(void **state)
{
    (void)state;
    assert_int_equal(origin_of("10.0.0.9:51234"), origin_of("10.0.0.9:7 (admin)"));
    assert_int_equal(origin_of("10.0.0.9:51234"), origin_of("[::ffff:10.0.0.9]:51234"));
    assert_true(origin_of("10.0.0.9:51234") != origin_of("10.0.0.8:51234"));
    assert_int_equal(origin_of("[2001:db8:0:1::1]:5"), origin_of("[2001:db8:0:1:ffff::2]:6"));
    assert_true(origin_of("[2001:db8:0:1::1]:5") != origin_of("[2001:db8:0:2::1]:5"));
    assert_int_equal(origin_of("[fe80::1%eth0]:5"), origin_of("[fe80::2]:5"));
    assert_int_equal(ORIGIN_NONE, origin_of("unix:/run/holdfastd.sock"));
    assert_int_equal(ORIGIN_NONE, origin_of(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_address_has_its_part),
        cmocka_unit_test(test_all_together_have_no_more),
        cmocka_unit_test(test_what_is_left_out_is_told_once),
        cmocka_unit_test(test_where_somebody_comes_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
