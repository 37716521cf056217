/* test_divergence.c: a table that was changed behind its replica's back is found, and the node that has it stops [P9]. */
#include "driver.h"
#include "replica/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PASS 900 /* entries: then all parts of a small table have come round */

static struct driver *begin(uint64_t seed, int count)
{
    struct driver *driver = driver_new(seed);

    driver_cluster(driver, count);
    driver_await_leader(driver);
    driver_work(driver, 10);
    driver_await_agreement(driver);
    driver->may_differ = driver->may_stop = true;
    return driver;
}

static void ignore(void *context, const struct core_effect *effect)
{
    (void)context;
    (void)effect;
}

/* An entry that is in no log. */
static void change_table(struct driver *driver, uint64_t id, const char *first, const char *second)
{
    const struct core_sink sink = {NULL, ignore};
    struct core_packer packer = {0};
    const char *names[] = {first, second};
    struct error_text err;
    void *bytes;
    size_t size;

    for (int i = 0; i < 2; i++) {
        struct core_command command = driver_acquire_command(names[i], "nobody", 3600000);

        assert_int_not_equal(core_pack(&packer, &command), CORE_NOT_PACKED);
    }
    core_packer_finish(&packer, 0, false, id, 1);
    bytes = core_packer_take(&packer, &size);
    assert_int_equal(core_apply((struct core *)(uintptr_t)replica_table(driver->nodes[id].replica),
                                bytes, size, &sink, &err),
                     HF_OK);
    free(bytes);
    core_packer_free(&packer);
}

static bool somebody_stopped(struct driver *driver)
{
    for (uint64_t id = 1; id < NODES; id++)
        if (driver->nodes[id].stopped[0])
            return true;
    return false;
}

static void work_until_one_stops(struct driver *driver)
{
    for (int i = 0; i < PASS && !somebody_stopped(driver); i += 10) {
        driver_work(driver, 10);
        driver_run(driver, SECOND_US / 10);
    }
    driver_run(driver, 3 * SECOND_US);
    assert_true(somebody_stopped(driver));
}

static void expect_stopped(struct driver *driver, uint64_t id, const char *words)
{
    assert_non_null(strstr(driver->nodes[id].stopped, "though"));
    assert_non_null(strstr(driver->nodes[id].stopped, words));
    for (uint64_t other = 1; other < NODES; other++)
        assert_true(other == id || !driver->nodes[other].stopped[0]);
}

static void a_followers_table_is_found(void **state)
{
    struct driver *driver = begin(1, 3);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;

    (void)state;
    change_table(driver, other, "p", "q");
    work_until_one_stops(driver);
    expect_stopped(driver, other, "its memory or data is damaged: replace node");
    assert_int_equal(driver_leader(driver), leader);
    driver_work(driver, 10);
    driver_free(driver);
}

/* As many records, the same counters: only what is in two of them differs. It takes until that part comes round. */
static void one_record_is_found(void **state)
{
    struct driver *driver = begin(2, 3);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;

    (void)state;
    for (uint64_t id = 1; id <= 3; id++)
        change_table(driver, id, id == other ? "p" : "q", id == other ? "q" : "p");
    work_until_one_stops(driver);
    expect_stopped(driver, other, "its memory or data is damaged: replace node");
    driver_free(driver);
}

/* The others go on without it. */
static void the_leaders_table_is_found(void **state)
{
    struct driver *driver = begin(3, 3);
    uint64_t leader = driver_leader(driver);

    (void)state;
    change_table(driver, leader, "p", "q");
    work_until_one_stops(driver);
    expect_stopped(driver, leader, "its memory or data is damaged: replace node");
    assert_int_not_equal(driver_await_leader(driver), leader);
    driver_work(driver, 10);
    driver_free(driver);
}

/* Of two nobody knows which one is right: it is not said. */
static void of_two_one_stops(void **state)
{
    struct driver *driver = begin(4, 2);
    uint64_t leader = driver_leader(driver);

    (void)state;
    change_table(driver, leader, "p", "q");
    for (int i = 0; i < 200 && !somebody_stopped(driver); i++) {
        driver_acquire(driver, leader, "work", "worker", 60000);
        driver_run(driver, SECOND_US / 20);
    }
    driver_run(driver, 3 * SECOND_US);
    expect_stopped(driver, 3 - leader, "find out which of the two");
    driver_free(driver);
}

/* Who was behind answers when it has come so far. */
static void one_that_is_behind_is_found(void **state)
{
    struct driver *driver = begin(5, 3);
    uint64_t leader = driver_leader(driver), other = leader % 3 + 1;

    (void)state;
    change_table(driver, other, "p", "q");
    driver_isolate(driver, other, true);
    driver_work(driver, 130);
    driver_isolate(driver, other, false);
    work_until_one_stops(driver);
    expect_stopped(driver, other, "its memory or data is damaged: replace node");
    driver_free(driver);
}

/* With small snapshots, installed and restored, and restarts: nobody differs. */
static void honest_ones_go_on(void **state)
{
    struct driver *driver = driver_new(6);

    (void)state;
    for (uint64_t id = 1; id < NODES; id++) {
        driver->nodes[id].options.snapshot_bytes = 500;
        driver->nodes[id].options.snapshot_trailing = 1;
        driver->nodes[id].options.memory_bytes = 1;
    }
    driver_cluster(driver, 3);
    driver_await_leader(driver);
    for (uint64_t turn = 0; turn < 6; turn++) {
        uint64_t away = turn % 3 + 1;

        driver_work(driver, 70);
        driver_kill(driver, away, 0);
        driver_work(driver, 150);
        driver_start(driver, away);
        driver_run(driver, 2 * SECOND_US);
    }
    driver_await_agreement(driver);
    assert_false(somebody_stopped(driver));
    driver_free(driver);
}

/* A leader of a later term, whose log has something else where this node knows it to be committed. */
static void another_log_stops_the_node(void **state)
{
    struct driver *driver = begin(7, 3);
    uint64_t leader = driver_leader(driver), id = leader % 3 + 1, other = 6 - leader - id;
    struct replica_status status = driver_status(driver, id);
    struct message message = {.raft = {.type = RAFT_APPEND,
                                       .to = id,
                                       .term = status.term + 1,
                                       .id = {status.commit_index, status.term + 1, 7}}};
    struct iovec pieces[MESSAGE_PIECES_MAX];
    uint8_t head[MESSAGE_HEAD_MAX];

    (void)state;
    assert_int_equal(message_encode(&message, 1, head, pieces), 1);
    assert_true(replica_received(driver->nodes[id].replica, other,
                                 driver->nodes[other].disk.incarnation, head, pieces[0].iov_len,
                                 driver->now_us));
    assert_non_null(strstr(driver->nodes[id].stopped, "differs from what is committed here"));
    assert_non_null(strstr(driver->nodes[id].stopped, "by a message of node"));
    assert_non_null(strstr(driver->nodes[id].stopped, "replace that node"));
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_followers_table_is_found),  cmocka_unit_test(one_record_is_found),
        cmocka_unit_test(the_leaders_table_is_found),  cmocka_unit_test(of_two_one_stops),
        cmocka_unit_test(one_that_is_behind_is_found), cmocka_unit_test(honest_ones_go_on),
        cmocka_unit_test(another_log_stops_the_node)};

    return cmocka_run_group_tests_name("replica: divergence", tests, NULL, NULL);
}
