/* test_serving.c: one node, and three, elect and serve. */
#include "driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void one_node_serves(void **state)
{
    struct driver *driver = driver_new(1);
    uint64_t token;

    (void)state;
    driver_cluster(driver, 1);
    assert_int_equal(driver_await_leader(driver), 1);
    token = driver_acquired(driver, "name", "lease", 5000);
    assert_true(token > 0);
    assert_int_equal(driver_acquired(driver, "name", "lease", 5000), token);
    assert_int_equal(driver_acquired(driver, "name", "other", 5000), 0);
    driver_free(driver);
}

static void three_nodes_elect_and_serve(void **state)
{
    struct driver *driver = driver_new(2);
    uint64_t token;

    (void)state;
    driver_cluster(driver, 3);
    token = driver_acquired(driver, "name", "lease", 60000);
    assert_true(token > 0);
    driver_work(driver, 50);
    driver_await_agreement(driver);
    assert_int_equal(driver_acquired(driver, "name", "lease", 60000), token);
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_node_serves),
                                       cmocka_unit_test(three_nodes_elect_and_serve)};

    return cmocka_run_group_tests_name("replica: serving", tests, NULL, NULL);
}
