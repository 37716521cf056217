/* test_restart.c: a node dies with each of the calls by which it has something done, and comes back; what was acknowledged is there. */
#include "driver.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NAMES 12

/* It comes back as soon as it is gone. */
static void revive(struct driver *driver, int count)
{
    for (uint64_t id = 1; id <= (uint64_t)count; id++)
        if (!driver->nodes[id].replica) {
            struct replica_config config;
            struct error_text err;

            driver_start(driver, id);
            driver_config(driver, count, &config);
            if (driver->nodes[id].replica)
                assert_int_equal(
                    replica_found(driver->nodes[id].replica, &config, driver->now_us, &err), HF_OK);
        }
}

static uint64_t acquire(struct driver *driver, int count, const char *name)
{
    for (int tries = 0; tries < 200; tries++) {
        uint64_t leader = driver_leader(driver);
        int request = leader ? driver_acquire(driver, leader, name, "lease", 3600000) : -1;

        for (int i = 0; i < 400 && (request < 0 || (!driver->outcomes[request].answers &&
                                                    !driver->outcomes[request].failures));
             i++) {
            driver_run(driver, 1000);
            revive(driver, count);
            if (request < 0 && driver_leader(driver))
                break;
        }
        if (request >= 0 && driver->outcomes[request].answers)
            return driver->outcomes[request].number;
    }
    fail_msg("nobody answers");
    return 0;
}

/* Returns how many calls it took, with a death of the node at that one; 0: of nobody. */
static long script(int count, uint64_t dying, long dies_at)
{
    struct driver *driver = driver_new(9);
    uint64_t tokens[NAMES];
    long calls;

    for (uint64_t id = 1; id <= (uint64_t)count; id++) {
        driver->nodes[id].options.snapshot_bytes = 600;
        driver->nodes[id].options.snapshot_trailing = 2;
        driver->nodes[id].options.memory_bytes = 1;
    }
    driver->nodes[dying].dies_at = dies_at;
    driver_cluster(driver, count);
    revive(driver, count);
    for (int i = 0; i < NAMES; i++) {
        char name[16];

        snprintf(name, sizeof name, "name-%d", i);
        tokens[i] = acquire(driver, count, name);
        if (i == NAMES / 3 && count > 1)
            driver_isolate(driver, dying % 3 + 1, true);
        if (i == 2 * NAMES / 3)
            driver_isolate(driver, dying % 3 + 1, false);
        revive(driver, count);
    }
    driver_run(driver, SECOND_US);
    revive(driver, count);
    for (int i = 0; i < NAMES; i++) {
        char name[16];

        snprintf(name, sizeof name, "name-%d", i);
        assert_int_equal(acquire(driver, count, name), tokens[i]);
    }
    driver_await_agreement(driver);
    calls = driver->nodes[dying].io_calls;
    driver_free(driver);
    return calls;
}

static void one_node_dies_everywhere(void **state)
{
    long calls = script(1, 1, 0);

    (void)state;
    assert_true(calls > 30);
    for (long at = 1; at <= calls; at++)
        script(1, 1, at);
}

static void one_of_three_dies_everywhere(void **state)
{
    (void)state;
    for (uint64_t dying = 1; dying <= 3; dying++) {
        long calls = script(3, dying, 0);

        for (long at = 1; at <= calls; at += 1 + (at > 120) * 2)
            script(3, dying, at);
    }
}

/* What cannot be is refused in words. */
static void damage_is_refused(void **state)
{
    struct driver *driver = driver_new(3);
    struct driver_disk *disk = &driver->nodes[1].disk;
    struct error_text err;

    (void)state;
    driver_cluster(driver, 1);
    driver_work(driver, 10);
    driver_kill(driver, 1, 0);
    disk->log[3].record.chain ^= 1;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_EIO);
    assert_non_null(strstr(err.text, "entry 4"));
    disk->log[3].record.chain ^= 1;
    disk->log[4].bytes[0] ^= 1;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_EIO);
    disk->log[4].bytes[0] ^= 1;
    disk->log[5].record.index += 1;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_EIO);
    disk->log[5].record.index = 1;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_EIO);
    assert_non_null(strstr(err.text, "committed"));
    disk->log[5].record.index = 6;
    disk->term = 0;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_EIO);
    assert_non_null(strstr(err.text, "term"));
    disk->term = 5;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_OK);
    driver_free(driver);
}

/* A segment is gone behind the snapshot: what is left of the log is not one that the snapshot has replaced. */
static void a_gap_behind_the_snapshot_is_refused(void **state)
{
    struct driver *driver = driver_new(3);
    struct driver_disk *disk = &driver->nodes[1].disk;
    struct stored *log;
    struct error_text err;
    size_t count, gone = 0;

    (void)state;
    driver->nodes[1].options.snapshot_bytes = 600;
    driver->nodes[1].options.snapshot_trailing = 2;
    driver_cluster(driver, 1);
    do
        driver_work(driver, 1);
    while (disk->snapshot_index == 0 ||
           disk->log[disk->log_count - 1].record.index < disk->snapshot_index + 3);
    driver_kill(driver, 1, 0);
    log = disk->log;
    count = disk->log_count;
    while (log[gone].record.index <= disk->snapshot_index + 1)
        gone++;
    disk->log = log + gone;
    disk->log_count = count - gone;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_EIO);
    assert_non_null(strstr(err.text, "are missing"));
    disk->log = log;
    disk->log_count = count;
    assert_int_equal(driver_try_start(driver, 1, &err), HF_OK);
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_node_dies_everywhere),
                                       cmocka_unit_test(one_of_three_dies_everywhere),
                                       cmocka_unit_test(damage_is_refused),
                                       cmocka_unit_test(a_gap_behind_the_snapshot_is_refused)};

    return cmocka_run_group_tests_name("replica: restarts", tests, NULL, NULL);
}
