/* test_bootstrap.c: how a cluster begins. */
#include "driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int found(struct driver *driver, uint64_t id, const struct replica_config *config)
{
    struct error_text err;

    driver->nodes[id].wake_us = driver->now_us;
    return replica_found(driver->nodes[id].replica, config, driver->now_us, &err);
}

static void founding_twice_is_founding_once(void **state)
{
    struct driver *driver = driver_new(1);
    struct replica_config config, turned, other;

    (void)state;
    driver_config(driver, 3, &config);
    turned = config;
    turned.at[0] = config.at[2];
    turned.at[2] = config.at[0];
    driver_config(driver, 2, &other);
    for (uint64_t id = 1; id <= 3; id++)
        driver_start(driver, id);
    assert_null(replica_cluster(driver->nodes[1].replica));
    assert_int_equal(found(driver, 1, &config), HF_OK);
    assert_null(replica_cluster(driver->nodes[1].replica)); /* it is not durable */
    assert_int_equal(found(driver, 1, &turned), HF_OK);
    assert_int_equal(found(driver, 1, &other), HF_EBUSY);
    /* Somebody else asks the others at the same time. */
    assert_int_equal(found(driver, 2, &turned), HF_OK);
    assert_int_equal(found(driver, 3, &turned), HF_OK);
    driver_await_leader(driver);
    driver_await_agreement(driver);
    for (uint64_t id = 2; id <= 3; id++)
        assert_memory_equal(replica_cluster(driver->nodes[id].replica),
                            replica_cluster(driver->nodes[1].replica), REPLICA_CLUSTER);
    assert_int_equal(driver_status(driver, 1).last_index, driver_status(driver, 2).last_index);
    assert_int_equal(found(driver, 1, &config), HF_OK);
    assert_int_equal(found(driver, 1, &other), HF_EBUSY);
    driver_free(driver);
}

static void a_cluster_is_its_members_and_their_incarnations(void **state)
{
    unsigned char ids[3][REPLICA_CLUSTER];

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct driver *driver = driver_new(2);
        struct replica_config config;

        if (i == 1)
            driver->nodes[2].disk.incarnation++;
        driver_config(driver, i == 2 ? 1 : 2, &config);
        driver_start(driver, 1);
        assert_int_equal(found(driver, 1, &config), HF_OK);
        driver_run(driver, 1000);
        memcpy(ids[i], replica_cluster(driver->nodes[1].replica), REPLICA_CLUSTER);
        driver_free(driver);
    }
    assert_memory_not_equal(ids[0], ids[1], REPLICA_CLUSTER);
    assert_memory_not_equal(ids[0], ids[2], REPLICA_CLUSTER);
}

/* Before anybody has founded it. */
static void its_id_is_known_before(void **state)
{
    struct driver *driver = driver_new(2);
    struct replica_config config, turned;
    unsigned char id[REPLICA_CLUSTER], id_turned[REPLICA_CLUSTER];

    (void)state;
    driver_config(driver, 3, &config);
    turned = config;
    turned.at[0] = config.at[2];
    turned.at[2] = config.at[0];
    replica_cluster_id(&config, id);
    replica_cluster_id(&turned, id_turned);
    assert_memory_equal(id, id_turned, REPLICA_CLUSTER);
    driver_start(driver, 1);
    assert_int_equal(found(driver, 1, &config), HF_OK);
    driver_run(driver, 1000);
    assert_memory_equal(id, replica_cluster(driver->nodes[1].replica), REPLICA_CLUSTER);
    driver_free(driver);
}

static void what_cannot_be_is_refused(void **state)
{
    struct driver *driver = driver_new(3);
    struct replica_config config;

    (void)state;
    driver_start(driver, 1);
    driver_config(driver, 3, &config);
    config.at[0].incarnation++;
    assert_int_equal(found(driver, 1, &config), HF_EINVAL);
    driver_config(driver, 3, &config);
    config.at[2].id = 2;
    assert_int_equal(found(driver, 1, &config), HF_EINVAL);
    driver_config(driver, 3, &config);
    config.at[1].address[3] = ' ';
    assert_int_equal(found(driver, 1, &config), HF_EINVAL);
    driver_config(driver, 3, &config);
    config.count = 0;
    assert_int_equal(found(driver, 1, &config), HF_EINVAL);
    config.count = 33;
    assert_int_equal(found(driver, 1, &config), HF_EINVAL);
    driver_config(driver, 3, &config);
    config.at[0].id = 4;
    assert_int_equal(found(driver, 1, &config), HF_EINVAL);
    driver_config(driver, 3, &config);
    for (int i = 0; i < 3; i++)
        config.at[i].votes = false;
    assert_int_equal(found(driver, 1, &config), HF_EINVAL);
    assert_null(replica_cluster(driver->nodes[1].replica));
    driver_free(driver);
}

/* One of the founders hears of it from the others. */
static void one_was_not_asked(void **state)
{
    struct driver *driver = driver_new(4);
    struct replica_config config;

    (void)state;
    driver_config(driver, 3, &config);
    for (uint64_t id = 1; id <= 3; id++)
        driver_start(driver, id);
    assert_int_equal(found(driver, 1, &config), HF_OK);
    assert_int_equal(found(driver, 2, &config), HF_OK);
    driver_await_leader(driver);
    driver_await_agreement(driver);
    assert_memory_equal(replica_cluster(driver->nodes[3].replica),
                        replica_cluster(driver->nodes[1].replica), REPLICA_CLUSTER);
    assert_int_equal(found(driver, 3, &config), HF_OK);
    driver_free(driver);
}

static void an_empty_node_waits(void **state)
{
    struct driver *driver = driver_new(5);

    (void)state;
    driver_start(driver, 1);
    driver_run(driver, 5 * SECOND_US);
    assert_int_equal(driver_status(driver, 1).term, 0);
    assert_int_equal(driver->nodes[1].messages_sent, 0);
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(founding_twice_is_founding_once),
        cmocka_unit_test(a_cluster_is_its_members_and_their_incarnations),
        cmocka_unit_test(its_id_is_known_before),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(one_was_not_asked),
        cmocka_unit_test(an_empty_node_waits)};

    return cmocka_run_group_tests_name("replica: bootstrap", tests, NULL, NULL);
}
