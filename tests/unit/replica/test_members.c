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
    struct replica_snapshot snapshot;
    int request;

    (void)state;
    driver->nodes[leader].snapshot_held = true;
    driver_work(driver, 20);
    driver_run(driver, 10000);
    driver_isolate(driver, leader, true);
    request = driver_add(driver, leader, 4);
    assert_true(request >= 0);
    driver_run(driver, 10000);
    assert_int_equal(replica_members(driver->nodes[leader].replica)->count, 4);
    assert_false(replica_members_agreed(driver->nodes[leader].replica));
    driver->nodes[leader].snapshot_held = false;
    driver->nodes[leader].snapshots_stored = 0;
    driver_run(driver, 10000);
    assert_true(driver->nodes[leader].snapshots_stored >= 2);
    assert_true(replica_snapshot_decode(driver->nodes[leader].disk.snapshot,
                                        driver->nodes[leader].disk.snapshot_size, &snapshot));
    assert_int_equal(snapshot.config.count, 3);
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
    request = driver_remove(driver, leader, 6 - leader - other);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_NO_MAJORITY);
    driver_free(driver);
}

/* One freezes, and before anybody can know that, the other one is to be removed: the leader and the frozen one would be no majority (R22). */
static void a_removal_waits_for_answers_to_what_is_sent_since(void **state)
{
    struct driver *driver = begin(12, 3, 0);
    uint64_t leader = driver_leader(driver), frozen = leader % 3 + 1, goes = frozen % 3 + 1;
    uint64_t index = replica_members(driver->nodes[leader].replica)->index;
    int request;

    (void)state;
    driver_work(driver, 5);
    driver->nodes[frozen].paused = true;
    request = driver_remove(driver, leader, goes);
    assert_true(request >= 0);
    /* Meanwhile nothing else is changed. */
    assert_int_equal(driver_add(driver, leader, 4), -1);
    assert_non_null(strstr(driver->nodes[leader].noted, "under way"));
    assert_int_equal(driver_transfer(driver, leader, 0), -1);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_NO_MAJORITY);
    assert_int_equal(replica_members(driver->nodes[leader].replica)->count, 3);
    assert_int_equal(replica_members(driver->nodes[leader].replica)->index, index);
    driver_acquired(driver, "name", "lease", 60000);
    assert_int_equal(driver_leader(driver), leader);
    /* The frozen one may go: the other one answers. */
    request = driver_remove(driver, leader, frozen);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
    /* And of two the second, whether it is there or not: the leader alone is a majority. */
    driver->nodes[goes].paused = true;
    request = driver_remove(driver, leader, goes);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
    driver_acquired(driver, "name", "lease", 60000);
    driver_free(driver);
}

/* It wakes in time, and the removal goes on. */
static void a_removal_goes_on_when_the_rest_answers(void **state)
{
    struct driver *driver = begin(13, 3, 0);
    uint64_t leader = driver_leader(driver), frozen = leader % 3 + 1, goes = frozen % 3 + 1;
    int request;

    (void)state;
    driver->nodes[frozen].paused = true;
    request = driver_remove(driver, leader, goes);
    assert_true(request >= 0);
    driver_run(driver, SECOND_US / 5);
    assert_int_equal(driver->outcomes[request].changes, 0);
    driver->nodes[frozen].paused = false;
    driver->nodes[frozen].wake_us = driver->now_us;
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
    driver_kill(driver, goes, 0);
    driver_acquired(driver, "name", "lease", 60000);
    driver_free(driver);
}

/* A leader that is cut off while it waits has appended nothing, and says so. */
static void a_removal_ends_with_its_leader(void **state)
{
    struct driver *driver = begin(14, 3, 0);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;
    int request;

    (void)state;
    driver_run(driver, SECOND_US / 20 - 1000); /* the last answers are older than the question */
    driver_isolate(driver, leader, true);
    request = driver_remove(driver, leader, other);
    assert_true(request >= 0);
    assert_true(driver_await(driver, request, 2 * SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_UNCHANGED);
    assert_int_equal(driver->outcomes[request].changes, 1);
    driver_isolate(driver, leader, false);
    driver_await_leader(driver);
    driver_run(driver, SECOND_US);
    expect_members(driver, "1 2 3 ");
    /* Likewise one that ends. */
    leader = driver_leader(driver);
    request = driver_remove(driver, leader, leader % 3 + 1);
    assert_int_equal(driver->outcomes[request].changes, 0);
    driver_kill(driver, leader, 0);
    assert_int_equal(driver->outcomes[request].change, REPLICA_UNCHANGED);
    driver_free(driver);
}

#define LEARNER_US \
    20000 /* enough to catch up, and less than a heartbeat: nothing new is asked of it */

static int64_t learner_until_us;

static bool is_learners_late(struct driver *driver, const struct packet *packet)
{
    return packet->from == 4 && driver->now_us > learner_until_us;
}

/* Of three one is dead, and a learner falls silent as soon as it has everything: with its vote, two of four would be no majority. */
static void a_learner_that_falls_silent_does_not_vote(void **state)
{
    struct driver *driver = begin(15, 3, 0);
    uint64_t leader = driver_leader(driver);
    int request;

    (void)state;
    driver_kill(driver, leader % 3 + 1, 0);
    driver_run(driver, 2 * SECOND_US);
    driver_start(driver, 4);
    request = driver_add(driver, leader, 4);
    learner_until_us = driver->now_us + LEARNER_US;
    driver->drops = is_learners_late;
    assert_true(driver_await(driver, request, SECOND_US));
    driver_run(driver, 3 * SECOND_US);
    assert_false(driver_votes(driver, 4));
    driver_acquired(driver, "name", "lease", 60000);
    driver->drops = NULL;
    driver_run(driver, SECOND_US);
    assert_true(driver_votes(driver, 4));
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

static const char *address_of(struct driver *driver, uint64_t at, uint64_t id)
{
    const struct replica_config *members = replica_members(driver->nodes[at].replica);

    for (int i = 0; i < members->count; i++)
        if (members->at[i].id == id)
            return members->at[i].address;
    return "no member";
}

static void expect_address(struct driver *driver, uint64_t id, const char *address)
{
    driver_await_agreement(driver);
    for (uint64_t at = 1; at < NODES; at++)
        if (driver->nodes[at].replica)
            assert_string_equal(address_of(driver, at, id), address);
}

/* The address is in effect after restarts, from the log and from a snapshot, and at one who comes later. */
static void one_moves(void **state)
{
    (void)state;
    for (uint64_t snapshot_bytes = 0; snapshot_bytes <= 200; snapshot_bytes += 200) {
        struct driver *driver = begin(8, 3, snapshot_bytes);
        uint64_t leader = driver_leader(driver), other = leader % 3 + 1;
        int told = driver->nodes[other].members_told, request;

        request = driver_move(driver, leader, other, "elsewhere:1");
        assert_true(driver_await(driver, request, SECOND_US));
        assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
        driver_run(driver, SECOND_US);
        assert_true(driver->nodes[other].members_told > told);
        expect_address(driver, other, "elsewhere:1");
        driver_work(driver, 50);
        restart_all(driver);
        expect_address(driver, other, "elsewhere:1");
        driver_start(driver, 4);
        driver_do_add(driver, 4);
        expect_address(driver, other, "elsewhere:1");
        driver_free(driver);
    }
}

/* A node that was alone has no address: it gets one when it becomes the first of a cluster. */
static void one_that_was_alone_gets_an_address(void **state)
{
    struct driver *driver = driver_new(9);
    struct replica_config config;
    struct error_text err;
    int request;

    (void)state;
    driver_start(driver, 1);
    driver_config(driver, 1, &config);
    config.at[0].address[0] = '\0';
    assert_int_equal(replica_found(driver->nodes[1].replica, &config, driver->now_us, &err), HF_OK);
    driver_await_leader(driver);
    expect_address(driver, 1, "");
    request = driver_move(driver, 1, 1, "node-1:7421");
    assert_true(driver_await(driver, request, SECOND_US));
    expect_address(driver, 1, "node-1:7421");
    restart_all(driver);
    expect_address(driver, 1, "node-1:7421");
    for (uint64_t id = 2; id <= 3; id++) {
        driver_start(driver, id);
        driver_do_add(driver, id);
    }
    expect_members(driver, "1 2 3 ");
    driver_free(driver);
}

/* A leader that is cut off has a member moved, and nobody else agrees: its address is again what it was. */
static void a_move_that_is_not_agreed_on_is_undone(void **state)
{
    struct driver *driver = begin(10, 3, 200);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;
    int request;

    (void)state;
    driver_isolate(driver, leader, true);
    request = driver_move(driver, leader, other, "elsewhere:1");
    assert_true(request >= 0);
    driver_run(driver, 10000);
    assert_string_equal(address_of(driver, leader, other), "elsewhere:1");
    driver_run(driver, 5 * SECOND_US);
    assert_int_equal(driver->outcomes[request].change, REPLICA_PERHAPS);
    driver_work(driver, 10);
    driver_isolate(driver, leader, false);
    driver_run(driver, 2 * SECOND_US);
    expect_members(driver, "1 2 3 ");
    driver_free(driver);
}

static void a_move_that_cannot_be_is_refused(void **state)
{
    struct driver *driver = begin(11, 3, 0);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;
    char taken[32];
    int request;

    (void)state;
    snprintf(taken, sizeof taken, "node-%d:7421", (int)leader);
    assert_int_equal(driver_move(driver, leader, other, taken), -1);
    assert_non_null(strstr(driver->nodes[leader].noted, "already"));
    assert_int_equal(driver_move(driver, leader, 5, "elsewhere:1"), -1);
    assert_non_null(strstr(driver->nodes[leader].noted, "no member"));
    assert_int_equal(driver_move(driver, leader, other, "a b"), -1);
    assert_non_null(strstr(driver->nodes[leader].noted, "no such address"));
    assert_int_equal(driver_move(driver, other, other, "elsewhere:1"), -1);
    assert_non_null(strstr(driver->nodes[other].noted, "does not lead"));
    /* It is there already. */
    request = driver_move(driver, leader, leader, taken);
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
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
        cmocka_unit_test(a_removal_waits_for_answers_to_what_is_sent_since),
        cmocka_unit_test(a_removal_goes_on_when_the_rest_answers),
        cmocka_unit_test(a_removal_ends_with_its_leader),
        cmocka_unit_test(a_learner_that_falls_silent_does_not_vote),
        cmocka_unit_test(everybody_is_replaced),
        cmocka_unit_test(one_moves),
        cmocka_unit_test(one_that_was_alone_gets_an_address),
        cmocka_unit_test(a_move_that_is_not_agreed_on_is_undone),
        cmocka_unit_test(a_move_that_cannot_be_is_refused)};

    return cmocka_run_group_tests_name("replica: members", tests, NULL, NULL);
}
