/* test_catch_up.c: followers that are far behind: from the log on disk, and by snapshots in pieces. */
#include "driver.h"
#include "replica/message.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILL 3600 /* names of 500 bytes: several pieces of a snapshot */
#define FILL_MORE 7200

static void fill(struct driver *driver, int count)
{
    uint64_t leader = driver_await_leader(driver);
    char name[501], lease[32];
    int last = -1, first = driver->request_count;

    memset(name, 'x', sizeof name);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%06d", i);
        name[6] = 'x';
        name[500] = '\0';
        snprintf(lease, sizeof lease, "lease-%d", i);
        last = driver_acquire(driver, leader, name, lease, 3600000);
        assert_true(last >= 0);
        if (i % 400 == 399)
            assert_true(driver_await(driver, last, 10 * SECOND_US));
    }
    assert_true(driver_await(driver, last, 10 * SECOND_US));
    driver->request_count = first;
}

static struct driver *begin(uint64_t seed, uint64_t snapshot_bytes, uint64_t memory_bytes)
{
    struct driver *driver = driver_new(seed);

    for (uint64_t id = 1; id < NODES; id++) {
        driver->nodes[id].options.snapshot_bytes = snapshot_bytes;
        driver->nodes[id].options.snapshot_trailing = 2;
        driver->nodes[id].options.memory_bytes = memory_bytes;
    }
    driver_cluster(driver, 3);
    driver_await_leader(driver);
    driver_await_agreement(driver);
    return driver;
}

static uint64_t other_than(uint64_t leader)
{
    return leader % 3 + 1;
}

static void from_the_log_on_disk(void **state)
{
    struct driver *driver = begin(1, 0, 1);
    uint64_t behind = other_than(driver_leader(driver)), leader;

    (void)state;
    driver_kill(driver, behind, 0);
    driver_work(driver, 600);
    driver_start(driver, behind);
    driver_await_agreement(driver);
    leader = driver_leader(driver);
    assert_true(driver->nodes[leader].log_reads_done > 2);
    assert_int_equal(driver_status(driver, behind).snapshots_installed, 0);
    assert_true(driver_status(driver, leader).memory_bytes < 4096);
    driver_free(driver);
}

/* What raft sends at once is more than a message holds, or a read of the disk gives: the rest follows without a pause. */
static void many_reads_follow_each_other(void **state)
{
    struct driver *driver = begin(31, 0, 1);
    uint64_t behind = other_than(driver_leader(driver));
    int64_t began_us;

    (void)state;
    driver_isolate(driver, behind, true);
    driver_work(driver, 900);
    driver_isolate(driver, behind, false);
    began_us = driver->now_us;
    driver_await_agreement(driver);
    assert_in_range(driver->now_us - began_us, 0, 120000);
    assert_int_equal(driver_status(driver, behind).snapshots_installed, 0);
    driver_free(driver);
}

/* One follower is down while there is a lot of work; snapshots are taken, and the log goes. */
static struct driver *far_behind_by(uint64_t seed, int count, uint64_t *ret_behind)
{
    struct driver *driver = begin(seed, 100000, 1);

    *ret_behind = other_than(driver_leader(driver));
    driver_kill(driver, *ret_behind, 0);
    fill(driver, count);
    driver_run(driver, SECOND_US);
    assert_true(driver->nodes[driver_leader(driver)].disk.snapshot_size > 3 * REPLICA_PIECE_BYTES);
    return driver;
}

static struct driver *far_behind(uint64_t seed, uint64_t *ret_behind)
{
    return far_behind_by(seed, FILL, ret_behind);
}

static int pieces_of(struct driver *driver, uint64_t id)
{
    return (int)((driver->nodes[id].disk.snapshot_size + REPLICA_PIECE_BYTES - 1) /
                 REPLICA_PIECE_BYTES);
}

static void by_a_snapshot(void **state)
{
    uint64_t behind, leader;
    struct driver *driver = far_behind(2, &behind);
    int sent;

    (void)state;
    leader = driver_leader(driver);
    sent = driver->nodes[leader].pieces_sent;
    driver_start(driver, behind);
    driver_await_agreement(driver);
    assert_int_equal(driver_status(driver, behind).snapshots_installed, 1);
    sent = driver->nodes[leader].pieces_sent - sent;
    assert_in_range(sent, pieces_of(driver, leader), pieces_of(driver, leader) + 1);
    assert_int_equal(driver->nodes[behind].disk.snapshot_index,
                     driver->nodes[leader].disk.snapshot_index);
    /* And it goes on from there, also after a restart: what came after the snapshot is still there. */
    driver_work(driver, 20);
    driver_await_agreement(driver);
    driver_kill(driver, behind, 0);
    driver_isolate(driver, behind, true);
    driver->nodes[behind].resets = 0;
    driver_start(driver, behind);
    assert_int_equal(driver->nodes[behind].resets, 0);
    assert_int_equal(driver_status(driver, behind).last_index,
                     driver_status(driver, leader).last_index);
    driver_isolate(driver, behind, false);
    driver_await_agreement(driver);
    driver_free(driver);
}

static void pieces_are_lost_doubled_and_mixed(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 16; seed++) {
        uint64_t behind;
        struct driver *driver = far_behind(seed, &behind);

        driver->loss = 100;
        driver->doubling = 200;
        driver->mixing = 300;
        driver_start(driver, behind);
        driver_run(driver, 20 * SECOND_US);
        driver->loss = driver->doubling = driver->mixing = 0;
        driver_await_agreement(driver);
        assert_true(driver_status(driver, behind).snapshots_installed >= 1);
        driver_free(driver);
    }
}

static uint64_t sender;

static bool has_some(struct driver *driver)
{
    return driver->nodes[sender].pieces_sent >= 3;
}

static bool has_many(struct driver *driver)
{
    return driver->nodes[sender].pieces_sent >= pieces_of(driver, sender) - 1;
}

/* A connection that is away for a moment costs the pieces that were on their way. */
static void it_resumes_where_it_was(void **state)
{
    uint64_t behind;
    struct driver *driver = far_behind_by(20, FILL_MORE, &behind);
    int pieces;

    (void)state;
    sender = driver_leader(driver);
    pieces = pieces_of(driver, sender);
    assert_true(pieces > 7);
    driver->nodes[sender].pieces_sent = 0;
    driver_start(driver, behind);
    assert_true(driver_until(driver, has_many, 10 * SECOND_US));
    driver->cut[sender][behind] = driver->cut[behind][sender] = true;
    driver_run(driver, 400000);
    driver->cut[sender][behind] = driver->cut[behind][sender] = false;
    driver_await_agreement(driver);
    assert_int_equal(driver_status(driver, behind).snapshots_installed, 1);
    assert_in_range(driver->nodes[sender].pieces_sent, pieces, pieces + 5);
    driver_free(driver);
}

/* Who is silent for long gets nothing, until it is back. */
static void silence_ends_it(void **state)
{
    uint64_t behind;
    struct driver *driver = far_behind(21, &behind);
    int sent;

    (void)state;
    sender = driver_leader(driver);
    driver->nodes[sender].pieces_sent = 0;
    driver_start(driver, behind);
    assert_true(driver_until(driver, has_some, 10 * SECOND_US));
    driver_isolate(driver, behind, true);
    driver_run(driver, 3 * SECOND_US);
    sent = driver->nodes[sender].pieces_sent;
    driver_run(driver, 10 * SECOND_US);
    assert_in_range(driver->nodes[sender].pieces_sent, sent, sent + 12);
    driver_isolate(driver, behind, false);
    driver_await_agreement(driver);
    driver_free(driver);
}

static void the_sender_changes(void **state)
{
    uint64_t behind;
    struct driver *driver = far_behind(22, &behind);

    (void)state;
    sender = driver_leader(driver);
    driver->nodes[sender].pieces_sent = 0;
    driver_start(driver, behind);
    assert_true(driver_until(driver, has_some, 10 * SECOND_US));
    driver_kill(driver, sender, 0);
    driver_hang_up(driver, sender);
    driver_run(driver, 5 * SECOND_US);
    driver_start(driver, sender);
    driver_await_agreement(driver);
    assert_true(driver_status(driver, behind).snapshots_installed >= 1);
    driver_free(driver);
}

static void the_receiver_restarts(void **state)
{
    uint64_t behind;
    struct driver *driver = far_behind(23, &behind);

    (void)state;
    sender = driver_leader(driver);
    driver->nodes[sender].pieces_sent = 0;
    driver_start(driver, behind);
    assert_true(driver_until(driver, has_some, 10 * SECOND_US));
    driver_kill(driver, behind, 0);
    driver_start(driver, behind);
    driver_await_agreement(driver);
    assert_int_equal(driver_status(driver, behind).snapshots_installed, 1);
    driver_free(driver);
}

static uint64_t receiver;

static bool stores(struct driver *driver)
{
    return driver->nodes[receiver].storing.active;
}

/* While the snapshot is on its way to the disk the old table is there, and no entries are taken: they would go with the log. [P7] */
static void nothing_is_taken_while_it_is_stored(void **state)
{
    uint64_t behind, before, last;
    struct driver *driver = far_behind(24, &behind);

    (void)state;
    receiver = behind;
    driver->nodes[behind].snapshot_held = true;
    driver_start(driver, behind);
    before = driver_status(driver, behind).applied_index;
    last = driver_status(driver, behind).last_index;
    assert_true(driver_until(driver, stores, 10 * SECOND_US));
    /* Another leads meanwhile, and sends what it has. */
    driver_transfer(driver, driver_leader(driver), 6 - behind - driver_leader(driver));
    driver_run(driver, SECOND_US);
    driver_work(driver, 40);
    driver_run(driver, SECOND_US);
    assert_int_equal(driver_status(driver, behind).applied_index, before);
    assert_int_equal(driver_status(driver, behind).last_index, last);
    assert_int_equal(driver->nodes[behind].write_count, 0);
    driver->nodes[behind].snapshot_held = false;
    driver_await_agreement(driver);
    assert_true(driver_status(driver, behind).snapshots_installed >= 1);
    driver_free(driver);
}

static bool spoils(struct driver *driver, const struct packet *packet)
{
    (void)driver;
    if (packet->bytes[1] == RAFT_SNAPSHOT)
        packet->bytes[packet->size - 1] ^= 1;
    return false;
}

/* [P7] */
static void a_damaged_one_is_not_installed(void **state)
{
    uint64_t behind;
    struct driver *driver = far_behind(25, &behind);

    (void)state;
    driver->drops = spoils;
    driver_start(driver, behind);
    driver_run(driver, 5 * SECOND_US);
    assert_int_equal(driver_status(driver, behind).snapshots_installed, 0);
    assert_int_equal(driver->nodes[behind].snapshots_stored, 0);
    assert_non_null(strstr(driver->nodes[behind].noted, "cannot be used"));
    driver->drops = NULL;
    driver_await_agreement(driver);
    assert_true(driver_status(driver, behind).snapshots_installed >= 1);
    driver_free(driver);
}

/* A piece of the snapshot that one node has, to another, as a leader of that term would send it. */
static void send_piece_from(struct driver *driver, uint64_t speaker, const struct node *from,
                            uint64_t to, uint64_t term)
{
    struct message message = {.raft = {.type = RAFT_SNAPSHOT, .to = to, .term = term}};
    struct replica_snapshot snapshot;
    uint8_t head[MESSAGE_HEAD_MAX], *bytes;
    struct iovec pieces[MESSAGE_PIECES_MAX];

    assert_true(replica_snapshot_decode(from->disk.snapshot, from->disk.snapshot_size, &snapshot));
    message.raft.id = snapshot.id;
    message.total = message.size = from->disk.snapshot_size;
    if (message.size > REPLICA_PIECE_BYTES)
        message.size = REPLICA_PIECE_BYTES;
    message.bytes = from->disk.snapshot;
    assert_int_equal(message_encode(&message, 1, head, pieces), 2);
    bytes = malloc(pieces[0].iov_len + pieces[1].iov_len);
    memcpy(bytes, pieces[0].iov_base, pieces[0].iov_len);
    memcpy(bytes + pieces[0].iov_len, pieces[1].iov_base, pieces[1].iov_len);
    assert_true(replica_received(driver->nodes[to].replica, speaker, 100 + speaker, bytes,
                                 pieces[0].iov_len + pieces[1].iov_len, driver->now_us));
    driver->nodes[to].wake_us = driver->now_us;
    free(bytes);
}

static void send_piece(struct driver *driver, const struct node *from, uint64_t to, uint64_t term)
{
    send_piece_from(driver, 2, from, to, term);
}

/* The term in which a snapshot is committed is durable before anything of it is, and nobody whose time is over sends one. */
static void a_piece_is_of_its_term(void **state)
{
    struct driver *driver = begin(29, 100, 0);
    struct node *node = &driver->nodes[1];
    uint64_t term;

    (void)state;
    driver_isolate(driver, 1, true);
    driver_work(driver, 200);
    driver_run(driver, SECOND_US);
    assert_true(driver->nodes[2].disk.snapshot_index > driver_status(driver, 1).last_index);
    term = node->disk.term;
    node->snapshot_held = true;
    node->snapshots_stored = 0;
    send_piece(driver, &driver->nodes[2], 1, term + 7);
    driver_run(driver, 1000);
    assert_int_equal(node->disk.term, term + 7);
    assert_true(node->storing.active && node->storing.installs);
    driver_kill(driver, 1, 0);
    driver_start(driver, 1);
    send_piece(driver, &driver->nodes[2], 1, term + 6);
    driver_run(driver, 1000);
    assert_false(node->storing.active);
    driver_free(driver);
}

static bool knows_less_than_its_log(struct driver *driver)
{
    uint64_t snapshot = driver->nodes[2].disk.snapshot_index;

    return snapshot > driver_status(driver, 1).commit_index &&
           snapshot <= driver_status(driver, 1).last_index && driver->nodes[1].write_count == 0;
}

/* The log holds the snapshot's entry, and does not know that it is committed: it stays, and what is behind it (R12). */
static void a_log_that_holds_its_entry_stays(void **state)
{
    struct driver *driver = begin(32, 1, 0);
    struct node *node = &driver->nodes[1];
    uint64_t last;

    (void)state;
    while (driver_await_leader(driver) != 2) {
        driver_transfer(driver, driver_leader(driver), 2);
        driver_run(driver, SECOND_US);
    }
    node->options.snapshot_bytes = 0; /* it takes none of its own */
    driver_kill(driver, 1, 0);
    driver_start(driver, 1);
    driver_await_agreement(driver);
    driver->nodes[2].expected = 4;
    for (int i = 0; i < 20 && !knows_less_than_its_log(driver); i++) {
        char name[16];

        snprintf(name, sizeof name, "name-%d", i);
        driver_acquire(driver, 2, name, "lease", 60000);
        driver_until(driver, knows_less_than_its_log, 20000);
    }
    assert_true(knows_less_than_its_log(driver));
    driver_isolate(driver, 1, true);
    node->resets = 0;
    node->snapshot_held = true;
    last = driver_status(driver, 1).last_index;
    send_piece(driver, &driver->nodes[2], 1, node->disk.term);
    driver_run(driver, 1000);
    assert_true(node->storing.active && node->storing.installs && node->storing.keeps_log);
    node->snapshot_held = false;
    driver_run(driver, 1000);
    assert_int_equal(driver_status(driver, 1).snapshots_installed, 1);
    assert_int_equal(driver_status(driver, 1).last_index, last);
    assert_int_equal(node->resets, 0);
    driver_kill(driver, 1, 0);
    driver_start(driver, 1);
    assert_int_equal(driver_status(driver, 1).last_index, last);
    assert_int_equal(node->resets, 0);
    driver_isolate(driver, 1, false);
    driver_await_agreement(driver);
    driver_free(driver);
}

static bool reads_log(struct driver *driver)
{
    return driver->nodes[sender].log_reads[receiver].active;
}

/* A slow disk says that the log does not go back so far, for a follower that has got a snapshot in the meantime. */
static void the_log_is_gone_too_late(void **state)
{
    struct driver *driver = begin(33, 100, 1);
    uint64_t leader = driver_leader(driver), behind = other_than(leader), term;

    (void)state;
    sender = leader;
    receiver = behind;
    driver_kill(driver, behind, 0);
    driver_work(driver, 200);
    driver->nodes[leader].reads_held = true;
    driver_start(driver, behind);
    assert_true(driver_until(driver, reads_log, 5 * SECOND_US));
    term = driver->nodes[leader].disk.term;
    send_piece_from(driver, leader, &driver->nodes[leader], behind, term);
    driver_run(driver, 200000);
    assert_int_equal(driver_status(driver, behind).snapshots_installed, 1);
    driver->nodes[leader].reads_held = false;
    driver_await_agreement(driver);
    driver_free(driver);
}

/* One's own is on its way to the disk: the other comes after it. */
static void snapshots_are_stored_one_after_the_other(void **state)
{
    struct driver *driver = begin(30, 100, 1);
    uint64_t behind = other_than(driver_leader(driver));

    (void)state;
    driver->nodes[behind].snapshot_held = true;
    driver_work(driver, 60);
    driver_run(driver, 10000);
    assert_true(driver->nodes[behind].storing.active);
    assert_false(driver->nodes[behind].storing.installs);
    driver_isolate(driver, behind, true);
    driver_work(driver, 200);
    driver_isolate(driver, behind, false);
    driver_run(driver, 3 * SECOND_US);
    assert_false(driver->nodes[behind].storing.installs);
    driver->nodes[behind].snapshot_held = false;
    driver_await_agreement(driver);
    assert_true(driver_status(driver, behind).snapshots_installed >= 1);
    driver_free(driver);
}

/* Whatever is said of it on the way. */
static void one_of_another_cluster_is_not_installed(void **state)
{
    struct driver *driver = begin(27, 0, 0), *other = driver_new(28);

    (void)state;
    other->nodes[1].options.snapshot_bytes = 500;
    driver_cluster(other, 1);
    driver_work(other, 100);
    assert_true(other->nodes[1].disk.snapshot_index > driver_status(driver, 1).last_index);
    send_piece(driver, &other->nodes[1], 1, 100);
    driver_run(driver, 10000);
    assert_int_equal(driver_status(driver, 1).snapshots_installed, 0);
    assert_non_null(strstr(driver->nodes[1].noted, "another cluster"));
    driver_free(driver);
    driver_free(other);
}

/* The snapshot is durable, and the log that goes with the old one is still there. */
static void a_crash_between_snapshot_and_log(void **state)
{
    uint64_t behind;
    struct driver *driver = far_behind(26, &behind);

    (void)state;
    receiver = behind;
    driver->nodes[behind].snapshot_held = true;
    driver_start(driver, behind);
    assert_true(driver_until(driver, stores, 10 * SECOND_US));
    driver->nodes[behind].dies_at = driver->nodes[behind].io_calls + 1;
    driver->nodes[behind].snapshot_held = false;
    driver_run(driver, STEP_US);
    assert_null(driver->nodes[behind].replica);
    assert_true(driver->nodes[behind].disk.log_count > 0);
    driver->nodes[behind].resets = 0;
    driver_start(driver, behind);
    assert_int_equal(driver->nodes[behind].resets, 1);
    driver_await_agreement(driver);
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(from_the_log_on_disk),
                                       cmocka_unit_test(many_reads_follow_each_other),
                                       cmocka_unit_test(by_a_snapshot),
                                       cmocka_unit_test(a_log_that_holds_its_entry_stays),
                                       cmocka_unit_test(pieces_are_lost_doubled_and_mixed),
                                       cmocka_unit_test(it_resumes_where_it_was),
                                       cmocka_unit_test(silence_ends_it),
                                       cmocka_unit_test(the_sender_changes),
                                       cmocka_unit_test(the_receiver_restarts),
                                       cmocka_unit_test(nothing_is_taken_while_it_is_stored),
                                       cmocka_unit_test(a_damaged_one_is_not_installed),
                                       cmocka_unit_test(one_of_another_cluster_is_not_installed),
                                       cmocka_unit_test(a_piece_is_of_its_term),
                                       cmocka_unit_test(the_log_is_gone_too_late),
                                       cmocka_unit_test(snapshots_are_stored_one_after_the_other),
                                       cmocka_unit_test(a_crash_between_snapshot_and_log)};

    return cmocka_run_group_tests_name("replica: catching up", tests, NULL, NULL);
}
