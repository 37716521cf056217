/* test_leading.c: who leads, what is answered and when, and what becomes of requests when a leader goes. */
#include "driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct driver *three(uint64_t seed, uint64_t *ret_leader)
{
    struct driver *driver = driver_new(seed);

    driver_cluster(driver, 3);
    *ret_leader = driver_await_leader(driver);
    driver_await_agreement(driver);
    return driver;
}

/* A commit takes the leader 10 ms, of which its own disk has the least part, as with nodes that are far apart. */
static struct driver *three_far(uint64_t seed, uint64_t *ret_leader)
{
    struct driver *driver = three(seed, ret_leader);

    for (int i = 0; i < 30; i++) {
        char name[16];
        int request;

        snprintf(name, sizeof name, "far-%d", i);
        for (uint64_t id = 1; id <= 3; id++)
            driver->nodes[id].disk_held = id != *ret_leader;
        request = driver_acquire(driver, *ret_leader, name, "far", 60000);
        driver_run(driver, 10000);
        assert_int_equal(driver->outcomes[request].answers, 0);
        for (uint64_t id = 1; id <= 3; id++)
            driver->nodes[id].disk_held = false;
        assert_true(driver_await(driver, request, SECOND_US));
    }
    driver_await_agreement(driver);
    return driver;
}

static void expect_failure(struct driver *driver, int request, enum replica_failure failure)
{
    assert_int_equal(driver->outcomes[request].answers, 0);
    assert_int_equal(driver->outcomes[request].failures, 1);
    assert_int_equal(driver->outcomes[request].failure, failure);
}

/* [P1], and the leader's disk counts as any other. */
static void nothing_is_answered_before_it_is_committed(void **state)
{
    uint64_t leader;
    struct driver *driver = three(1, &leader);
    int request;

    (void)state;
    for (uint64_t id = 1; id <= 3; id++)
        driver->nodes[id].disk_held = id != leader;
    request = driver_acquire(driver, leader, "a", "lease", 5000);
    driver_run(driver, 300000);
    assert_int_equal(driver->outcomes[request].answers, 0);
    for (uint64_t id = 1; id <= 3; id++)
        driver->nodes[id].disk_held = false;
    assert_true(driver_await(driver, request, SECOND_US));
    driver->nodes[leader].disk_held = true;
    request = driver_acquire(driver, leader, "b", "lease", 5000);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].answers, 1);
    driver_free(driver);
}

/* [P2] */
static void serves_after_its_first_entry(void **state)
{
    uint64_t leader, next;
    struct driver *driver = three(2, &leader);

    (void)state;
    driver_kill(driver, leader, 0);
    for (uint64_t id = 1; id <= 3; id++)
        driver->nodes[id].disk_held = true;
    driver_run(driver, 2 * SECOND_US);
    next = replica_leader(driver->nodes[leader % 3 + 1].replica);
    assert_true(next > 0 && next != leader);
    assert_int_equal(driver_leader(driver), 0);
    assert_int_equal(driver_acquire(driver, next, "a", "lease", 5000), -1);
    for (uint64_t id = 1; id <= 3; id++)
        driver->nodes[id].disk_held = false;
    assert_true(driver_await_leader(driver) != 0);
    driver_free(driver);
}

/* [P4] */
static void a_leader_that_is_cut_off_says_what_is_known(void **state)
{
    uint64_t leader;
    struct driver *driver = three(3, &leader);
    int in_flight, in_batch;

    (void)state;
    driver_isolate(driver, leader, true);
    in_flight = driver_acquire(driver, leader, "a", "lease", 5000);
    driver_run(driver, 1000);
    in_batch = driver_acquire(driver, leader, "b", "lease", 5000);
    driver_run(driver, 1000);
    assert_int_equal(driver->outcomes[in_flight].failures, 0);
    driver_run(driver, 2 * SECOND_US);
    expect_failure(driver, in_flight, REPLICA_UNKNOWN);
    expect_failure(driver, in_batch, REPLICA_NOT_LEADING);
    assert_int_equal(driver_acquire(driver, leader, "c", "lease", 5000), -1);
    assert_true(driver_acquired(driver, "a", "another", 60000) > 0);
    driver_isolate(driver, leader, false);
    driver_await_agreement(driver);
    driver_free(driver);
}

static uint64_t deposed;

/* Nothing but appends with several entries reach it. */
static bool is_small(struct driver *driver, const struct packet *packet)
{
    (void)driver;
    return packet->to == deposed &&
           (packet->bytes[1] != RAFT_APPEND || packet->bytes[APPEND_COUNT_AT] < 3);
}

/* It hears of the next leader, of entries of its own indexes, and that they are committed, in one message. */
static void another_leaders_entry_answers_nobody(void **state)
{
    uint64_t leader, next;
    struct driver *driver = three_far(4, &leader);
    int requests[2], other;
    uint64_t last;

    (void)state;
    driver->nodes[leader].expected = 4;
    driver_isolate(driver, leader, true);
    /* Where the other one's term begins there is a change here, and entries with commands are at the same indexes. */
    assert_true(driver_add(driver, leader, 4) >= 0);
    driver_run(driver, 1000);
    for (int i = 0; i < 2; i++) {
        char name[8];

        snprintf(name, sizeof name, "own-%d", i);
        requests[i] = driver_acquire(driver, leader, name, "lease", 60000);
        driver_run(driver, 1000);
    }
    last = driver_status(driver, leader).last_index;
    driver->nodes[leader].paused = true;
    driver_run(driver, 1000);
    next = driver_await_leader(driver);
    assert_true(next != leader);
    other = driver_acquire(driver, next, "other", "other", 60000);
    assert_true(driver_await(driver, other, SECOND_US));
    assert_int_equal(driver_status(driver, next).last_index, last);
    deposed = leader;
    driver->drops = is_small;
    driver_isolate(driver, leader, false);
    driver_run(driver, SECOND_US);
    driver->nodes[leader].paused = false;
    driver->nodes[leader].wake_us = driver->now_us;
    driver_run(driver, SECOND_US);
    driver->drops = NULL;
    for (int i = 0; i < 2; i++)
        expect_failure(driver, requests[i], REPLICA_UNKNOWN);
    driver_await_agreement(driver);
    driver_free(driver);
}

/* The same with a change of members. */
static void another_leaders_change_is_not_ones_own(void **state)
{
    uint64_t leader, next;
    struct driver *driver = three_far(11, &leader);
    int own, other;

    (void)state;
    driver->nodes[leader].expected = 4;
    driver_isolate(driver, leader, true);
    driver_acquire(driver, leader, "a", "lease", 60000);
    driver_run(driver, 1000);
    driver_acquire(driver, leader, "b", "lease", 60000);
    driver_run(driver, 1000);
    own = driver_add(driver, leader, 4);
    driver_run(driver, 1000);
    driver->nodes[leader].paused = true;
    next = driver_await_leader(driver);
    other = driver_add(driver, next, 5);
    assert_true(own >= 0 && other >= 0 && next != leader);
    assert_true(driver_await(driver, other, SECOND_US));
    assert_int_equal(driver->outcomes[other].change, REPLICA_CHANGED);
    assert_int_equal(replica_members(driver->nodes[next].replica)->index,
                     replica_members(driver->nodes[leader].replica)->index);
    deposed = leader;
    driver->drops = is_small;
    driver_isolate(driver, leader, false);
    driver_run(driver, SECOND_US);
    driver->nodes[leader].paused = false;
    driver->nodes[leader].wake_us = driver->now_us;
    driver_run(driver, SECOND_US);
    driver->drops = NULL;
    assert_int_equal(driver->outcomes[own].changes, 1);
    assert_int_equal(driver->outcomes[own].change, REPLICA_UNCHANGED);
    driver_free(driver);
}

/* The next leader's term, a grant in it, and that it is committed: whoever is blocked at the one before hears of the first. */
static void a_deposed_leader_says_so_before_it_applies_what_follows(void **state)
{
    uint64_t leader, next;
    struct driver *driver = three(12, &leader);
    struct core_command waits = driver_acquire_command("a", "waits", 60000);
    int request;

    (void)state;
    waits.flags = CORE_WAITS | CORE_KEPT;
    waits.wait_ms = 60000;
    assert_true(driver_acquired(driver, "a", "holds", 60000) > 0);
    request = driver_submit(driver, leader, &waits);
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->outcomes[request].answer, ANSWER_QUEUED);
    driver->nodes[leader].paused = true;
    driver_run(driver, 1000);
    next = driver_await_leader(driver);
    assert_true(next != leader);
    deposed = leader;
    driver->drops = is_small;
    request = driver_release(driver, next, "a", "holds");
    assert_true(driver_await(driver, request, SECOND_US));
    assert_int_equal(driver->nodes[next].granted_leading, 1);
    driver_acquired(driver, "b", "other", 60000);
    driver_run(driver, SECOND_US);
    driver->nodes[leader].paused = false;
    driver->nodes[leader].wake_us = driver->now_us;
    driver_run(driver, SECOND_US);
    driver->drops = NULL;
    driver_await_agreement(driver);
    assert_int_equal(driver->nodes[leader].granted_leading, 0);
    driver_free(driver);
}

/* Its disk is slow: what another leader cuts off is still being written, and lives until then. */
static void what_is_cut_off_lives_until_it_is_written(void **state)
{
    uint64_t leader;
    struct driver *driver = three_far(10, &leader);

    (void)state;
    driver->nodes[leader].expected = 4;
    driver->nodes[leader].disk_held = true;
    driver_isolate(driver, leader, true);
    for (int i = 0; i < 4; i++) {
        char name[8];

        snprintf(name, sizeof name, "own-%d", i);
        assert_true(driver_acquire(driver, leader, name, "lease", 60000) >= 0);
        driver_run(driver, 1000);
    }
    assert_true(driver->nodes[leader].write_count >= 4);
    driver_run(driver, 3 * SECOND_US);
    driver_isolate(driver, leader, false);
    driver_work(driver, 10);
    driver_run(driver, SECOND_US);
    driver->nodes[leader].disk_held = false;
    driver_await_agreement(driver);
    driver_free(driver);
}

/* What the next leader commits of one's own is answered. */
static void what_survives_is_answered(void **state)
{
    uint64_t leader;
    struct driver *driver = three(5, &leader);
    int request;

    (void)state;
    request = driver_acquire(driver, leader, "a", "lease", 60000);
    driver_step(driver);
    driver_step(driver); /* it is on its way to the others, */
    driver->nodes[leader].paused = true;
    driver_run(driver, 3 * SECOND_US);
    assert_int_equal(driver->outcomes[request].answers, 0);
    driver->nodes[leader].paused = false;
    driver->nodes[leader].wake_us = driver->now_us;
    driver_run(driver, SECOND_US);
    assert_int_equal(driver->outcomes[request].answers, 1);
    assert_int_equal(driver->outcomes[request].failures, 0);
    driver_free(driver);
}

static uint64_t in_flight_with(bool far, uint32_t expected, int requests)
{
    uint64_t leader, before, after;
    struct driver *driver = far ? three_far(6, &leader) : three(6, &leader);

    driver->nodes[leader].expected = expected;
    for (uint64_t id = 1; id <= 3; id++)
        driver->nodes[id].disk_held = true;
    before = driver_status(driver, leader).last_index;
    for (int i = 0; i < requests; i++) {
        char name[16];

        snprintf(name, sizeof name, "name-%d", i);
        assert_true(driver_acquire(driver, leader, name, "lease", 60000) >= 0);
        driver_run(driver, 1000);
    }
    after = driver_status(driver, leader).last_index;
    for (uint64_t id = 1; id <= 3; id++)
        driver->nodes[id].disk_held = false;
    driver_run(driver, SECOND_US);
    for (int i = 0; i < requests; i++)
        assert_int_equal(driver->outcomes[driver->request_count - 1 - i].answers, 1);
    driver_free(driver);
    return after - before;
}

/* Where most of a commit is spent on the way. Disks that are near write one after the other. */
static void several_entries_are_in_flight(void **state)
{
    (void)state;
    assert_int_equal(in_flight_with(true, 1, 6), 4);
    assert_int_equal(in_flight_with(true, 8, 10), 4);
    assert_int_equal(in_flight_with(true, 50, 10), 4);
    assert_int_equal(in_flight_with(false, 1, 6), 1);
    assert_int_equal(in_flight_with(false, 8, 10), 1);
}

/* Two clients that were answered at the same time come back at about the same time: the first waits for the second. Nobody waits for who
 * was not answered lately. */
static void who_was_answered_is_waited_for(void **state)
{
    uint64_t leader, before;
    struct driver *driver = three(12, &leader);
    int requests[2];

    (void)state;
    driver->nodes[leader].expected = 2;
    driver_run(driver, SECOND_US / 10);
    before = driver_status(driver, leader).last_index;
    requests[0] = driver_acquire(driver, leader, "a", "lease", 60000);
    driver_step(driver);
    assert_int_equal(driver_status(driver, leader).last_index, before + 1);
    assert_true(driver_await(driver, requests[0], SECOND_US));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(driver_status(driver, leader).last_index, before + 1);
        requests[i] = driver_acquire(driver, leader, i ? "c" : "b", "lease", 60000);
        driver_step(driver);
    }
    assert_int_equal(driver_status(driver, leader).last_index, before + 2);
    for (int i = 0; i < 2; i++)
        assert_true(driver_await(driver, requests[i], SECOND_US));
    assert_int_equal(driver_status(driver, leader).last_index, before + 2);
    driver_acquire(driver, leader, "d", "lease", 60000); /* the other one has left */
    driver_run(driver, 1000);
    assert_int_equal(driver_status(driver, leader).last_index, before + 3);
    driver_free(driver);
}

static void leadership_is_handed_over(void **state)
{
    uint64_t leader, to;
    struct driver *driver = three(7, &leader);
    int request;

    (void)state;
    to = leader % 3 + 1;
    request = driver_transfer(driver, leader, to);
    assert_true(request >= 0);
    assert_true(driver_await(driver, request, 3 * SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
    assert_int_equal(driver_await_leader(driver), to);
    request = driver_transfer(driver, to, 0);
    assert_true(driver_await(driver, request, 3 * SECOND_US));
    assert_int_equal(driver->outcomes[request].change, REPLICA_CHANGED);
    leader = driver_await_leader(driver);
    assert_true(leader != to);
    driver_kill(driver, to, 0);
    request = driver_transfer(driver, leader, to);
    assert_true(request < 0 || driver_await(driver, request, 3 * SECOND_US));
    if (request >= 0)
        assert_int_equal(driver->outcomes[request].change, REPLICA_UNCHANGED);
    assert_int_equal(driver_await_leader(driver), leader);
    assert_true(driver_acquired(driver, "a", "lease", 5000) > 0);
    driver_free(driver);
}

static size_t sent_by(struct driver *driver, uint64_t id)
{
    return driver->nodes[id].messages_sent;
}

/* [P5] */
static void a_disk_that_fails_stops_the_node(void **state)
{
    uint64_t leader;
    struct driver *driver = three(8, &leader);
    int in_flight, in_batch;
    size_t sent;

    (void)state;
    driver->nodes[leader].fails = true;
    in_flight = driver_acquire(driver, leader, "a", "lease", 5000);
    driver_step(driver);
    in_batch = driver_acquire(driver, leader, "b", "lease", 5000);
    driver_run(driver, 1000);
    expect_failure(driver, in_flight, REPLICA_UNKNOWN);
    expect_failure(driver, in_batch, REPLICA_NOT_LEADING);
    assert_int_equal(driver->nodes[leader].role, REPLICA_STOPPED);
    assert_non_null(strstr(driver->nodes[leader].stopped, "the disk is gone"));
    sent = sent_by(driver, leader);
    driver_run(driver, 3 * SECOND_US);
    assert_int_equal(sent_by(driver, leader), sent);
    assert_true(driver_await_leader(driver) != leader);
    driver_free(driver);
}

/* A busy leader serves a majority first; the third gets several entries together, and soon. */
static void the_rest_is_served_later(void **state)
{
    uint64_t leader;
    struct driver *driver = three(9, &leader);
    size_t together = 0;

    (void)state;
    driver->nodes[leader].expected = 40;
    for (uint64_t id = 1; id <= 3; id++)
        driver->nodes[id].entries_max = 0;
    for (int i = 0; i < 40; i++) {
        char name[16];

        snprintf(name, sizeof name, "name-%d", i);
        driver_acquire(driver, leader, name, "lease", 60000);
        driver_run(driver, 400);
    }
    for (uint64_t id = 1; id <= 3; id++)
        if (driver->nodes[id].entries_max > together)
            together = driver->nodes[id].entries_max;
    assert_true(together >= 3);
    driver_run(driver, 20000);
    for (int i = 0; i < 40; i++)
        assert_int_equal(driver->outcomes[driver->request_count - 1 - i].answers, 1);
    driver_free(driver);
}

/* Whoever is prompt is gone: that costs one entry a little, and another one is prompt. */
static void another_majority_is_served_first(void **state)
{
    (void)state;
    for (uint64_t gone = 1; gone <= 2; gone++) {
        uint64_t leader;
        struct driver *driver = three(12, &leader);
        int64_t began_us;

        driver->nodes[leader].expected = 40;
        driver_kill(driver, (leader + gone - 1) % 3 + 1, 0);
        began_us = driver->now_us;
        for (int i = 0; i < 20; i++) {
            char name[16];

            snprintf(name, sizeof name, "name-%d", i);
            assert_true(driver_await(driver, driver_acquire(driver, leader, name, "lease", 60000),
                                     SECOND_US));
        }
        assert_in_range(driver->now_us - began_us, 0, 30000);
        driver_free(driver);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_answered_before_it_is_committed),
        cmocka_unit_test(serves_after_its_first_entry),
        cmocka_unit_test(a_leader_that_is_cut_off_says_what_is_known),
        cmocka_unit_test(another_leaders_entry_answers_nobody),
        cmocka_unit_test(another_leaders_change_is_not_ones_own),
        cmocka_unit_test(a_deposed_leader_says_so_before_it_applies_what_follows),
        cmocka_unit_test(what_is_cut_off_lives_until_it_is_written),
        cmocka_unit_test(what_survives_is_answered),
        cmocka_unit_test(several_entries_are_in_flight),
        cmocka_unit_test(who_was_answered_is_waited_for),
        cmocka_unit_test(leadership_is_handed_over),
        cmocka_unit_test(a_disk_that_fails_stops_the_node),
        cmocka_unit_test(the_rest_is_served_later),
        cmocka_unit_test(another_majority_is_served_first)};

    return cmocka_run_group_tests_name("replica: leading", tests, NULL, NULL);
}
