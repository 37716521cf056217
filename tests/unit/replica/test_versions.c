/* test_versions.c: nodes of "the next version" among those of this one: they go up one by one, and down again as long as nothing is agreed
 * on; afterwards an older one neither starts nor takes part, and says why. */
#include "driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct driver *begin(uint64_t seed, uint32_t version, uint64_t snapshot_bytes)
{
    struct driver *driver = driver_new(seed);

    for (uint64_t id = 1; id < NODES; id++) {
        driver->nodes[id].options.version = version;
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

/* Another holdfastd is installed there. */
static void restart_with(struct driver *driver, uint64_t id, uint32_t version)
{
    driver_kill(driver, id, 0);
    driver_hang_up(driver, id);
    driver->nodes[id].options.version = version;
    driver_start(driver, id);
    driver_work(driver, 6);
    driver_run(driver, 2 * SECOND_US);
    driver_work(driver, 6);
    driver_await_agreement(driver);
}

static void expect_version(struct driver *driver, uint32_t version)
{
    driver_await_agreement(driver);
    for (uint64_t id = 1; id < NODES; id++)
        if (driver->nodes[id].replica)
            assert_int_equal(replica_version(driver->nodes[id].replica), version);
}

static void they_go_up_one_by_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct driver *driver = begin(seed, 1, seed % 2 ? 0 : 300);
        uint64_t token = driver_acquired(driver, "name", "lease", 3600000);

        for (uint64_t id = 1; id <= 3; id++) {
            expect_version(driver, 1);
            restart_with(driver, id, 2);
        }
        expect_version(driver, 2);
        assert_non_null(strstr(driver->nodes[driver_leader(driver)].noted, "version 2"));
        driver_work(driver, 40);
        for (uint64_t id = 1; id <= 3; id++)
            restart_with(driver, id, 2);
        expect_version(driver, 2);
        /* One that comes later, with the log or with a snapshot. */
        driver->nodes[4].options.version = 2;
        driver_start(driver, 4);
        driver_do_add(driver, 4);
        expect_version(driver, 2);
        assert_int_equal(driver_acquired(driver, "name", "lease", 3600000), token);
        driver_free(driver);
    }
}

static void they_go_down_again(void **state)
{
    struct driver *driver = begin(1, 1, 300);

    (void)state;
    restart_with(driver, 1, 2);
    restart_with(driver, 2, 2);
    expect_version(driver, 1);
    restart_with(driver, 1, 1);
    /* What node 1 had said does not count any more. */
    restart_with(driver, 3, 2);
    expect_version(driver, 1);
    restart_with(driver, 2, 1);
    restart_with(driver, 3, 1);
    driver_work(driver, 40);
    expect_version(driver, 1);
    driver_free(driver);
}

/* Without anybody seeing that its process ended. */
static void what_was_said_long_ago_does_not_count(void **state)
{
    struct driver *driver = begin(2, 1, 0);
    uint64_t leader, other, third;

    (void)state;
    for (uint64_t id = 1; id <= 2; id++)
        restart_with(driver, id, 2);
    leader = driver_leader(driver);
    if (leader == 3) {
        driver_transfer(driver, 3, 1);
        driver_run(driver, 2 * SECOND_US);
        leader = driver_await_leader(driver);
    }
    other = 3 - leader;
    third = 3;
    driver_run(driver, SECOND_US);
    driver_kill(driver, other, 0);
    driver->nodes[other].options.version = 1;
    driver_start(driver, other);
    driver_run(driver, SECOND_US);
    driver_kill(driver, third, 0);
    driver->nodes[third].options.version = 2;
    driver_start(driver, third);
    driver_run(driver, 2 * SECOND_US);
    assert_int_equal(driver_leader(driver), leader);
    expect_version(driver, 1);
    driver_free(driver);
}

static void an_option_holds_it_back(void **state)
{
    struct driver *driver = begin(3, 1, 0);

    (void)state;
    driver->nodes[2].options.version_hold = 1;
    for (uint64_t id = 1; id <= 3; id++)
        restart_with(driver, id, 2);
    for (uint64_t to = 1; to <= 3; to++) { /* whoever leads */
        driver_transfer(driver, driver_await_leader(driver), to);
        driver_run(driver, 2 * SECOND_US);
        expect_version(driver, 1);
    }
    driver->nodes[2].options.version_hold = 0;
    restart_with(driver, 2, 2);
    expect_version(driver, 2);
    driver_free(driver);
}

/* A learner is a member: the cluster waits for it, though it does not vote. */
static void a_learner_has_its_say(void **state)
{
    struct driver *driver = begin(4, 1, 0);
    uint64_t leader = driver_leader(driver);
    int request = driver_add(driver, leader, 4);

    (void)state;
    assert_true(driver_await(driver, request, SECOND_US));
    for (uint64_t id = 1; id <= 3; id++)
        restart_with(driver, id, 2);
    expect_version(driver, 1);
    driver_do_remove(driver, 4);
    driver_run(driver, 2 * SECOND_US);
    expect_version(driver, 2);
    driver_free(driver);
}

/* From the log, or from a snapshot. */
static void an_older_one_does_not_start(void **state)
{
    (void)state;
    for (uint64_t snapshot_bytes = 0; snapshot_bytes <= 300; snapshot_bytes += 300) {
        struct driver *driver = begin(5, 2, snapshot_bytes);
        struct error_text err = {""};

        driver_run(driver, SECOND_US);
        driver_work(driver, 40);
        expect_version(driver, 2);
        driver_kill(driver, 3, 0);
        driver->nodes[3].options.version = 1;
        assert_int_equal(driver_try_start(driver, 3, &err), HF_EIO);
        assert_non_null(strstr(err.text, "version 2 of the formats is in use"));
        assert_non_null(strstr(err.text, "run a newer holdfastd"));
        driver->nodes[3].options.version = 2;
        driver_start(driver, 3);
        expect_version(driver, 2);
        driver_free(driver);
    }
}

static uint64_t muted, deaf;

static bool has_entries(struct driver *driver, const struct packet *packet)
{
    (void)driver;
    return (packet->from == muted || packet->to == deaf) && packet->bytes[1] == RAFT_APPEND &&
           packet->bytes[APPEND_COUNT_AT] > 0;
}

/* It has said that it reads it, and did not hear that it was agreed on: its log does not know, and its peers tell it. */
static void an_older_one_that_was_away_stops(void **state)
{
    struct driver *driver = begin(6, 1, 0);

    (void)state;
    for (uint64_t id = 1; id <= 2; id++)
        restart_with(driver, id, 2);
    if (driver_leader(driver) == 3) {
        driver_transfer(driver, 3, 1);
        driver_run(driver, 2 * SECOND_US);
    }
    driver_await_agreement(driver);
    deaf = 3;
    driver->drops = has_entries;
    driver_kill(driver, 3, 0);
    driver->nodes[3].options.version = 2;
    driver_start(driver, 3);
    driver_run(driver, SECOND_US / 2);
    assert_int_equal(replica_version(driver->nodes[driver_leader(driver)].replica), 2);
    assert_int_equal(replica_version(driver->nodes[3].replica), 1);
    driver_kill(driver, 3, 0);
    driver->drops = NULL;
    deaf = 0;
    driver->nodes[3].options.version = 1;
    driver->may_stop = true;
    driver_start(driver, 3);
    driver_run(driver, SECOND_US);
    assert_int_equal(replica_role(driver->nodes[3].replica), REPLICA_STOPPED);
    assert_non_null(strstr(driver->nodes[3].stopped, "version 2 of the formats is in use"));
    driver->may_stop = false;
    restart_with(driver, 3, 2);
    expect_version(driver, 2);
    driver_free(driver);
}

static void an_older_one_is_not_added(void **state)
{
    struct driver *driver = begin(7, 2, 0);
    uint64_t leader = driver_leader(driver);
    struct replica_member member = driver_member(driver, 4);
    struct error_text err = {""};

    (void)state;
    driver_run(driver, SECOND_US);
    expect_version(driver, 2);
    member.version = 1;
    assert_int_equal(
        replica_add(driver->nodes[leader].replica, &member, NULL, driver->now_us, &err), HF_EINVAL);
    assert_non_null(strstr(err.text, "run a newer holdfastd there first"));
    /* Nobody knew what it runs: it says so itself. */
    driver->nodes[4].options.version = 1;
    driver_start(driver, 4);
    driver->may_stop = true;
    assert_true(driver_add(driver, leader, 4) >= 0);
    driver_run(driver, SECOND_US);
    assert_int_equal(replica_role(driver->nodes[4].replica), REPLICA_STOPPED);
    assert_non_null(strstr(driver->nodes[4].stopped, "run a newer holdfastd"));
    assert_int_equal(driver_leader(driver), leader);
    driver_free(driver);
}

/* The leader's entry reaches nobody: the version is not in effect, and the others may still go back. */
static void it_is_in_effect_when_it_is_agreed_on(void **state)
{
    struct driver *driver = begin(8, 1, 0);
    uint64_t leader, last;

    (void)state;
    restart_with(driver, 1, 2);
    restart_with(driver, 2, 2);
    leader = driver_leader(driver);
    if (leader == 3) {
        driver_transfer(driver, 3, 1);
        driver_run(driver, 2 * SECOND_US);
        leader = driver_await_leader(driver);
    }
    last = driver_status(driver, leader).last_index;
    muted = leader;
    driver->drops = has_entries;
    driver_kill(driver, 3, 0);
    driver->nodes[3].options.version = 2;
    driver_start(driver, 3);
    driver_run(driver, SECOND_US / 2);
    assert_int_equal(driver_leader(driver), leader);
    assert_true(driver_status(driver, leader).last_index > last);
    assert_int_equal(replica_version(driver->nodes[leader].replica), 1);
    driver_isolate(driver, leader, true);
    driver->drops = NULL;
    muted = 0;
    for (uint64_t id = 1; id <= 3; id++)
        if (id != leader) {
            driver_kill(driver, id, 0);
            driver->nodes[id].options.version = 1;
            driver_start(driver, id);
        }
    driver_run(driver, 3 * SECOND_US);
    driver_work(driver, 5);
    driver_isolate(driver, leader, false);
    driver_run(driver, 2 * SECOND_US);
    driver_work(driver, 5);
    expect_version(driver, 1);
    driver_free(driver);
}

/* The answer to an ACQUIRE of a user who may hold one lock. */
static enum core_answer acquire_of_user(struct driver *driver, const char *name, const char *lease)
{
    struct core_command command = driver_acquire_command(name, lease, 3600000);
    int request;

    command.flags |= CORE_QUOTA;
    command.user = (struct core_text){"ci", 2};
    command.quota.holds = 1;
    request = driver_submit(driver, driver_await_leader(driver), &command);
    assert_true(request >= 0 && driver_await(driver, request, 5 * SECOND_US));
    assert_int_equal(driver->outcomes[request].answers, 1);
    return driver->outcomes[request].answer;
}

/* While one member is of version 1, nobody puts into the log what it could not read: there are no limits, and the leader says so once. */
static void limits_of_users_are_in_force_when_all_can_read_them(void **state)
{
    struct driver *driver = begin(21, 1, 300);
    uint64_t leader = driver_leader(driver);

    (void)state;
    for (uint64_t id = 1; id <= 3; id++)
        if (id != leader)
            restart_with(driver, id, 2);
    driver_transfer(driver, leader, leader % 3 + 1);
    driver_run(driver, SECOND_US);
    assert_true(driver_await_leader(driver) != leader);
    driver->nodes[driver_leader(driver)].noted[0] = '\0';
    assert_int_equal(ANSWER_TOKEN, acquire_of_user(driver, "one", "A"));
    assert_non_null(strstr(driver->nodes[driver_leader(driver)].noted, "not in force yet"));
    driver->nodes[driver_leader(driver)].noted[0] = '\0';
    assert_int_equal(ANSWER_TOKEN, acquire_of_user(driver, "two", "B"));
    assert_string_equal("", driver->nodes[driver_leader(driver)].noted);
    expect_version(driver, 1);
    restart_with(driver, leader, 2);
    expect_version(driver, 2);
    /* What was taken before is nobody's, and asking again for it is nothing new. */
    assert_int_equal(ANSWER_TOKEN, acquire_of_user(driver, "two", "B"));
    assert_int_equal(ANSWER_TOKEN, acquire_of_user(driver, "three", "C"));
    assert_int_equal(ANSWER_OVER_HOLDS, acquire_of_user(driver, "four", "D"));
    /* Another leader, restarts, and snapshots (300 bytes) in between: it is counted as before. */
    for (uint64_t id = 1; id <= 3; id++) {
        restart_with(driver, id, 2);
        driver_work(driver, 20);
        assert_int_equal(ANSWER_OVER_HOLDS, acquire_of_user(driver, "four", "D"));
    }
    driver_wipe(driver, 3); /* what it knows it knows from a snapshot */
    driver_do_remove(driver, 3);
    driver_start(driver, 3);
    driver_do_add(driver, 3);
    driver_await_agreement(driver);
    driver_transfer(driver, driver_await_leader(driver), 3);
    driver_run(driver, SECOND_US);
    assert_int_equal(ANSWER_OVER_HOLDS, acquire_of_user(driver, "four", "D"));
    driver_await_agreement(driver);
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_go_up_one_by_one),
        cmocka_unit_test(they_go_down_again),
        cmocka_unit_test(what_was_said_long_ago_does_not_count),
        cmocka_unit_test(an_option_holds_it_back),
        cmocka_unit_test(a_learner_has_its_say),
        cmocka_unit_test(an_older_one_does_not_start),
        cmocka_unit_test(an_older_one_that_was_away_stops),
        cmocka_unit_test(an_older_one_is_not_added),
        cmocka_unit_test(it_is_in_effect_when_it_is_agreed_on),
        cmocka_unit_test(limits_of_users_are_in_force_when_all_can_read_them)};

    return cmocka_run_group_tests_name("replica: versions", tests, NULL, NULL);
}
