/* test_old_copies.c: a copy of a member's directory, put back in its place: what it had acknowledged since is gone. While the leader to whom it
 * was acknowledged leads, the node is found out, and stops (raft.h, R21). */
#include "driver.h"
#include "driver_disk.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct driver *begin(uint64_t seed, uint64_t snapshot_bytes)
{
    struct driver *driver = driver_new(seed);

    for (uint64_t id = 1; id < NODES; id++) {
        driver->nodes[id].options.snapshot_bytes = snapshot_bytes;
        driver->nodes[id].options.snapshot_trailing = 1;
        driver->nodes[id].options.memory_bytes = 1;
    }
    driver_cluster(driver, 3);
    driver_await_leader(driver);
    driver_work(driver, 10);
    driver_await_agreement(driver);
    return driver;
}

/* It is killed, and comes back with the copy, which is taken. */
static void put_back(struct driver *driver, uint64_t id, struct driver_disk *copy)
{
    driver_kill(driver, id, 0);
    disk_clear(&driver->nodes[id].disk);
    driver->nodes[id].disk = *copy;
    driver_start(driver, id);
    driver_hang_up(driver, id);
}

/* Also if it needs a snapshot by now. The others go on, and it can be replaced. */
static void it_is_found_out(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct driver *driver = begin(seed, seed % 2 ? 0 : 300);
        uint64_t token = driver_acquired(driver, "name", "lease", 3600000);
        uint64_t leader = driver_leader(driver), old = leader % 3 + 1;
        struct driver_disk copy = disk_copy(&driver->nodes[old].disk);

        driver_work(driver, seed <= 10 ? 40 : 1);
        driver_await_agreement(driver);
        put_back(driver, old, &copy);
        driver->may_stop = true;
        driver_run(driver, 3 * SECOND_US);
        assert_int_equal(replica_role(driver->nodes[old].replica), REPLICA_STOPPED);
        assert_non_null(strstr(driver->nodes[old].stopped, "an older copy of itself"));
        assert_non_null(strstr(driver->nodes[old].stopped, "replace this node"));
        assert_int_equal(driver_leader(driver), leader);
        driver->may_stop = false;
        driver_work(driver, 10);
        driver_wipe(driver, old);
        driver_start(driver, old);
        driver_do_remove(driver, old);
        driver_do_add(driver, old);
        driver_await_agreement(driver);
        assert_int_equal(driver_acquired(driver, "name", "lease", 3600000), token);
        driver_free(driver);
    }
}

/* The leader is gone, and the old copy elects the third, which never had what the two acknowledged. When the one that has it comes back, whoever
 * leads sees it, and goes no further; nobody takes the honest one for the broken one. */
static void who_has_more_than_its_leader_is_believed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct driver *driver = begin(seed, seed % 2 ? 0 : 300);
        uint64_t honest = driver_leader(driver), old = honest % 3 + 1, third = 6 - honest - old,
                 next;
        struct driver_disk copy = disk_copy(&driver->nodes[old].disk);
        char words[64];

        driver_isolate(driver, third, true);
        driver_work(driver, 40);
        driver_run(driver, SECOND_US / 10); /* both know that it is committed */
        driver_kill(driver, honest, driver->nodes[honest].write_count);
        driver_isolate(driver, third, false);
        driver->may_differ = driver->may_stop = true;
        put_back(driver, old, &copy);
        next = driver_await_leader(driver);
        assert_true(next != honest);
        driver_work(driver, 5);
        driver_start(driver, honest);
        driver_run(driver, SECOND_US);
        assert_int_equal(replica_role(driver->nodes[next].replica), REPLICA_STOPPED);
        snprintf(words, sizeof words, "restore from node %" PRIu64, honest);
        assert_non_null(strstr(driver->nodes[next].stopped, words));
        assert_int_not_equal(replica_role(driver->nodes[honest].replica), REPLICA_STOPPED);
        driver_free(driver);
    }
}

/* While it was stopped nothing was taken back: with one of the others gone it is needed, and enough. */
static void it_comes_back_with_the_right_directory(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct driver *driver = begin(seed, seed % 2 ? 0 : 300);
        uint64_t leader = driver_leader(driver), old = leader % 3 + 1;
        struct driver_disk copy = disk_copy(&driver->nodes[old].disk), right;
        uint64_t token;

        driver_work(driver, 40);
        driver_await_agreement(driver);
        right = disk_copy(&driver->nodes[old].disk);
        put_back(driver, old, &copy);
        driver->may_stop = true;
        driver_run(driver, 3 * SECOND_US);
        assert_int_equal(replica_role(driver->nodes[old].replica), REPLICA_STOPPED);
        driver->may_stop = false;
        put_back(driver, old, &right);
        token = driver_acquired(driver, "name", "lease", 3600000);
        assert_int_equal(driver_leader(driver), leader);
        driver_kill(driver, 6 - leader - old, 0);
        driver_work(driver, 10);
        driver_kill(driver, leader, 0);
        driver_start(driver, 6 - leader - old);
        assert_int_equal(driver_acquired(driver, "name", "lease", 3600000), token);
        driver_free(driver);
    }
}

/* Founded, and killed before that is durable: it has nothing, and has acknowledged nothing. */
static void one_that_was_founded_and_forgot_it_is_honest(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct driver *driver = driver_new(seed);
        struct replica_config config;
        struct error_text err;

        driver_config(driver, 3, &config);
        driver->nodes[3].disk_held = true;
        for (uint64_t id = 1; id <= 3; id++) {
            driver_start(driver, id);
            assert_int_equal(
                replica_found(driver->nodes[id].replica, &config, driver->now_us, &err), HF_OK);
        }
        driver->nodes[3].skew_us = -SECOND_US; /* it does not lead */
        driver_await_leader(driver);
        driver_run(driver, SECOND_US);
        driver_kill(driver, 3, 0);
        driver->nodes[3].disk_held = false;
        driver_start(driver, 3);
        driver_run(driver, SECOND_US);
        driver_work(driver, 10);
        driver_await_agreement(driver);
        assert_int_equal(replica_role(driver->nodes[3].replica), REPLICA_FOLLOWING);
        driver_free(driver);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_found_out),
        cmocka_unit_test(who_has_more_than_its_leader_is_believed),
        cmocka_unit_test(it_comes_back_with_the_right_directory),
        cmocka_unit_test(one_that_was_founded_and_forgot_it_is_honest)};

    return cmocka_run_group_tests_name("replica: old copies", tests, NULL, NULL);
}
