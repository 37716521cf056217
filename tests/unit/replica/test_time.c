/* test_time.c: the cluster's clock [P3]. That it never runs ahead of the real one, the driver sees after each pump. */
#include "driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TTL_MS 1000

static int64_t clock_of(struct driver *driver, uint64_t id)
{
    return core_now(replica_table(driver->nodes[id].replica));
}

/* A lease is never over before its time, and an election costs it little. */
static void a_lease_outlives_its_leader(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct driver *driver = driver_new(seed);
        int64_t began_us, lasted_us;
        uint64_t leader;

        driver_cluster(driver, 3);
        leader = driver_await_leader(driver);
        began_us = driver->now_us;
        assert_true(driver_acquired(driver, "name", "lease", TTL_MS) > 0);
        driver_run(driver, (int64_t)driver_draw(driver, TTL_MS * 1000 / 2));
        driver_kill(driver, leader, 0);
        while (driver_acquired(driver, "name", "other", TTL_MS) == 0)
            driver_run(driver, 5000);
        lasted_us = driver->now_us - began_us;
        assert_in_range(lasted_us, TTL_MS * 1000, TTL_MS * 1000 + 2500000);
        driver_free(driver);
    }
}

static void it_ends_in_time_without_a_change(void **state)
{
    struct driver *driver = driver_new(3);
    struct core_counts counts;
    uint64_t leader;

    (void)state;
    driver_cluster(driver, 3);
    leader = driver_await_leader(driver);
    driver_acquired(driver, "name", "lease", TTL_MS);
    driver_run(driver, (TTL_MS - 10) * 1000);
    core_count(replica_table(driver->nodes[leader].replica), &counts);
    assert_int_equal(counts.holds, 1);
    driver_run(driver, 40000);
    core_count(replica_table(driver->nodes[leader].replica), &counts);
    assert_int_equal(counts.holds, 0);
    driver_free(driver);
}

/* Somebody who was not there for long does not bring all of it at once. */
static void a_pause_is_not_brought_in_full(void **state)
{
    struct driver *driver = driver_new(4);
    int64_t before_ms;

    (void)state;
    driver_cluster(driver, 1);
    driver_await_leader(driver);
    driver_acquired(driver, "name", "lease", 60000);
    before_ms = clock_of(driver, 1);
    driver->nodes[1].paused = true;
    driver_run(driver, 5 * SECOND_US);
    driver->nodes[1].paused = false;
    driver->nodes[1].wake_us = driver->now_us;
    driver_run(driver, 100000);
    assert_in_range(clock_of(driver, 1), before_ms + 900, before_ms + CORE_ELAPSED_MAX_MS + 100);
    driver_free(driver);
}

/* With several in flight, each brings what has passed since the one before: together not more than has passed. */
static void entries_in_flight_share_the_time(void **state)
{
    struct driver *driver = driver_new(5);
    uint64_t leader;

    (void)state;
    driver_cluster(driver, 3);
    leader = driver_await_leader(driver);
    driver->nodes[leader].expected = 4;
    driver->began_us = driver->now_us - clock_of(driver, leader) * 1000; /* no slack */
    for (int i = 0; i < 200; i++) {
        char name[16];

        for (uint64_t id = 1; id <= 3; id++) /* three of them wait for the disks */
            driver->nodes[id].disk_held = i % 4 != 3;
        snprintf(name, sizeof name, "name-%d", i);
        driver_acquire(driver, leader, name, "lease", 60000);
        driver_run(driver, 2700);
    }
    driver_run(driver, 300000);
    assert_in_range(clock_of(driver, leader), (driver->now_us - driver->began_us) / 1000 - 300,
                    (driver->now_us - driver->began_us) / 1000);
    driver_free(driver);
}

/* What passed while another led was brought by that one. */
static void a_term_counts_from_its_beginning(void **state)
{
    struct driver *driver = driver_new(8);
    uint64_t first, second;

    (void)state;
    driver_cluster(driver, 3);
    first = driver_await_leader(driver);
    driver_acquired(driver, "name", "lease", 60000);
    driver_transfer(driver, first, 0);
    driver_run(driver, SECOND_US);
    second = driver_await_leader(driver);
    assert_true(second != first);
    driver_run(driver, 3 * SECOND_US);
    driver->began_us = driver->now_us - clock_of(driver, second) * 1000 - 250000; /* no slack */
    driver_transfer(driver, second, first);
    driver_run(driver, SECOND_US);
    assert_int_equal(driver_await_leader(driver), first);
    driver_free(driver);
}

static void ticks_come_while_a_deadline_is_open(void **state)
{
    struct driver *driver = driver_new(6);
    uint64_t before;

    (void)state;
    driver_cluster(driver, 1);
    driver_await_leader(driver);
    driver_run(driver, 5 * SECOND_US);
    assert_int_equal(driver_status(driver, 1).ticks, 0);
    driver_acquired(driver, "name", "lease", 60000);
    before = driver_status(driver, 1).ticks;
    driver_run(driver, 5 * SECOND_US);
    assert_in_range(driver_status(driver, 1).ticks - before, 19, 21);
    driver_free(driver);
}

/* Whoever was connected to the leader that is gone is not: its place goes with its lease. */
static void kept_places_end_with_their_leader(void **state)
{
    struct driver *driver = driver_new(7);
    struct core_command waits = {.op = CORE_ACQUIRE,
                                 .flags = CORE_WAITS | CORE_KEPT,
                                 .name = {"name", 4},
                                 .lease = {"waiting", 7},
                                 .mode = HF_EXCLUSIVE,
                                 .ttl_ms = TTL_MS,
                                 .wait_ms = CORE_FOREVER};
    struct core_counts counts;
    uint64_t leader;
    int request;

    (void)state;
    driver_cluster(driver, 3);
    leader = driver_await_leader(driver);
    driver_acquired(driver, "name", "lease", 3600000);
    request = driver_submit(driver, leader, &waits);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].answer, ANSWER_QUEUED);
    driver_run(driver, 3 * SECOND_US);
    core_count(replica_table(driver->nodes[leader].replica), &counts);
    assert_int_equal(counts.places, 1);
    driver_kill(driver, leader, 0);
    leader = driver_await_leader(driver);
    driver_run(driver, 3 * SECOND_US);
    core_count(replica_table(driver->nodes[leader].replica), &counts);
    assert_int_equal(counts.places, 0);
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_lease_outlives_its_leader),
                                       cmocka_unit_test(it_ends_in_time_without_a_change),
                                       cmocka_unit_test(a_pause_is_not_brought_in_full),
                                       cmocka_unit_test(entries_in_flight_share_the_time),
                                       cmocka_unit_test(a_term_counts_from_its_beginning),
                                       cmocka_unit_test(ticks_come_while_a_deadline_is_open),
                                       cmocka_unit_test(kept_places_end_with_their_leader)};

    return cmocka_run_group_tests_name("replica: time", tests, NULL, NULL);
}
