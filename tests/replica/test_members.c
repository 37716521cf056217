/* test_members.c: members are added, promoted, removed and replaced, with small snapshots and restarts between. */
#include "driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct driver *begin(uint64_t seed, int count, uint64_t snapshot_bytes)
{
    struct driver *driver = driver_new(seed);

    for (uint64_t id = 1; id < NODES; id++) {
        driver->nodes[id].options.snapshot_bytes = snapshot_bytes;
        driver->nodes[id].options.snapshot_trailing = 1;
        driver->nodes[id].options.memory_bytes = 1;
    }
    driver_cluster(driver, count);
    driver_await_leader(driver);
    driver_await_agreement(driver);
    return driver;
}

static void restart_all(struct driver *driver)
{
    for (uint64_t id = 1; id < NODES; id++)
        if (driver->nodes[id].replica) {
            driver_kill(driver, id, 0);
            driver_start(driver, id);
        }
    driver_await_leader(driver);
}

static void expect_members(struct driver *driver, const char *expected)
{
    driver_await_agreement(driver);
    for (uint64_t id = 1; id < NODES; id++) {
        const struct replica_config *members;
        char found[64] = "";

        if (!driver->nodes[id].replica)
            continue;
        members = replica_members(driver->nodes[id].replica);
        for (int i = 0; i < members->count; i++) {
            size_t used = strlen(found);
            char address[32];

            snprintf(found + used, sizeof found - used, "%d%s ", (int)members->at[i].id,
                     members->at[i].votes ? "" : "-");
            snprintf(address, sizeof address, "node-%d:7421", (int)members->at[i].id);
            assert_string_equal(members->at[i].address, address);
        }
        assert_string_equal(found, expected);
        assert_true(replica_members_agreed(driver->nodes[id].replica));
    }
}

static void one_grows_to_three(void **state)
{
    (void)state;
    for (uint64_t snapshot_bytes = 0; snapshot_bytes <= 400; snapshot_bytes += 200) {
        struct driver *driver = begin(1 + snapshot_bytes, 1, snapshot_bytes);
        uint64_t token = driver_acquired(driver, "name", "lease", 3600000);

        driver_work(driver, 50);
        for (uint64_t id = 2; id <= 3; id++) {
            driver_start(driver, id);
            driver_do_add(driver, id);
            driver_work(driver, 20);
        }
        expect_members(driver, "1 2 3 ");
        restart_all(driver);
        expect_members(driver, "1 2 3 ");
        /* The one that was alone is not needed any more. */
        driver_kill(driver, 1, 0);
        assert_int_equal(driver_acquired(driver, "name", "lease", 3600000), token);
        driver_free(driver);
    }
}

static void a_learner_that_is_away_does_not_vote(void **state)
{
    struct driver *driver = begin(2, 3, 0);
    uint64_t leader = driver_leader(driver);
    int request = driver_add(driver, leader, 4);

    (void)state;
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
    driver_run(driver, 3 * SECOND_US);
    expect_members(driver, "1 2 3 4- ");
    driver_start(driver, 4);
    driver_run(driver, 2 * SECOND_US);
    expect_members(driver, "1 2 3 4 ");
    driver_free(driver);
}

static void one_is_removed(void **state)
{
    struct driver *driver = begin(3, 3, 200);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;
    int request;

    (void)state;
    assert_int_equal(driver_remove(driver, leader, leader), -1);
    assert_non_null(strstr(driver->nodes[leader].noted, "leads"));
    assert_int_equal(driver_remove(driver, leader, 5), -1);
    request = driver_remove(driver, leader, other);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
    driver_run(driver, SECOND_US);
    /* It knows, and disturbs nobody. */
    assert_int_equal(replica_members(driver->nodes[other].replica)->count, 2);
    driver_run(driver, 5 * SECOND_US);
    assert_int_equal(driver_leader(driver), leader);
    driver_kill(driver, other, 0);
    driver_work(driver, 20);
    restart_all(driver);
    assert_int_equal(replica_members(driver->nodes[leader].replica)->count, 2);
    driver_free(driver);
}

/* Its directory is lost: it is removed, and added with the new one. */
static void one_is_replaced(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct driver *driver = begin(seed, 3, 300);
        uint64_t token = driver_acquired(driver, "name", "lease", 3600000), leader, lost;

        leader = driver_leader(driver);
        lost = leader % 3 + 1;
        driver_wipe(driver, lost);
        driver_start(driver, lost);
        driver_work(driver, 30);
        /* Under its old number it counts for nothing. */
        assert_int_equal(driver_add(driver, driver_await_leader(driver), lost), -1);
        driver_do_remove(driver, lost);
        driver_do_add(driver, lost);
        driver_work(driver, 10);
        driver_await_agreement(driver);
        driver_kill(driver, driver_leader(driver), 0);
        assert_int_equal(driver_acquired(driver, "name", "lease", 3600000), token);
        driver_free(driver);
    }
}

/* A leader that is cut off has a change in its log, takes a snapshot, and dies: the change was never agreed on. [P6] */
static void a_snapshot_has_the_members_that_were_applied(void **state)
{
    struct driver *driver = begin(5, 3, 1);
    uint64_t leader = driver_leader(driver);
    struct replica_image image;
    int request;

    (void)state;
    driver->nodes[leader].image_held = true;
    driver_work(driver, 20);
    driver_run(driver, 10000);
    driver_isolate(driver, leader, true);
    request = driver_add(driver, leader, 4);
    assert_true(request >= 0);
    driver_run(driver, 10000);
    assert_int_equal(replica_members(driver->nodes[leader].replica)->count, 4);
    assert_false(replica_members_agreed(driver->nodes[leader].replica));
    driver->nodes[leader].image_held = false;
    driver->nodes[leader].images_stored = 0;
    driver_run(driver, 10000);
    assert_true(driver->nodes[leader].images_stored >= 2);
    assert_true(replica_image_decode(driver->nodes[leader].disk.image,
                                     driver->nodes[leader].disk.image_size, &image));
    assert_int_equal(image.config.count, 3);
    driver_kill(driver, leader, 0);
    assert_int_equal(driver->outcomes[request].change, REPLICA_PERHAPS);
    driver_work(driver, 10);
    driver_isolate(driver, leader, false);
    driver_start(driver, leader);
    assert_int_equal(replica_members(driver->nodes[leader].replica)->count, 4);
    driver_work(driver, 10);
    expect_members(driver, "1 2 3 ");
    driver_free(driver);
}

static void what_cannot_be_is_refused(void **state)
{
    struct driver *driver = begin(6, 3, 0);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;
    struct replica_member member = driver_member(driver, 4);
    struct error_text err;
    int request;

    (void)state;
    member.address[0] = '\n';
    assert_int_equal(
        replica_add(driver->nodes[leader].replica, &member, NULL, driver->now_us, &err), HF_EINVAL);
    member = driver_member(driver, other);
    member.id = 4;
    assert_int_equal(
        replica_add(driver->nodes[leader].replica, &member, NULL, driver->now_us, &err), HF_EINVAL);
    assert_non_null(strstr(err.text, "already"));
    member = driver_member(driver, 4);
    assert_int_equal(replica_add(driver->nodes[other].replica, &member, NULL, driver->now_us, &err),
                     HF_EUNREACH);
    request = driver_add(driver, leader, 4);
    assert_true(request >= 0);
    assert_int_equal(driver_add(driver, leader, 5), -1);
    assert_non_null(strstr(driver->nodes[leader].noted, "under way"));
    assert_true(driver_await(driver, request, SECOND_US));
    /* There as it was asked for: nothing is to be done. */
    request = driver_add(driver, leader, 4);
    assert_int_equal(driver->outcomes[request].changes, 1);
    /* Of two that remain one is silent. */
    driver_kill(driver, other, 0);
    driver_run(driver, SECOND_US);
    assert_int_equal(driver_remove(driver, leader, 6 - leader - other), -1);
    assert_non_null(strstr(driver->nodes[leader].noted, "no majority"));
    driver_free(driver);
}

/* All five places are taken in turn by new directories, with restarts. */
static void everybody_is_replaced(void **state)
{
    struct driver *driver = begin(7, 3, 300);
    uint64_t token = driver_acquired(driver, "name", "lease", 3600000);

    (void)state;
    for (uint64_t id = 4; id <= 8; id++) {
        uint64_t comes = (id - 1) % 5 + 1, goes = (id - 4) % 5 + 1;

        if (driver->nodes[comes].replica)
            driver_wipe(driver, comes);
        driver_start(driver, comes);
        driver_do_add(driver, comes);
        driver_do_remove(driver, goes);
        driver_kill(driver, goes, 0);
        driver_wipe(driver, goes);
        driver_work(driver, 10);
        restart_all(driver);
    }
    assert_int_equal(driver_acquired(driver, "name", "lease", 3600000), token);
    driver_await_agreement(driver);
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_grows_to_three),
        cmocka_unit_test(a_learner_that_is_away_does_not_vote),
        cmocka_unit_test(one_is_removed),
        cmocka_unit_test(one_is_replaced),
        cmocka_unit_test(a_snapshot_has_the_members_that_were_applied),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(everybody_is_replaced)};

    return cmocka_run_group_tests_name("replica: members", tests, NULL, NULL);
}
