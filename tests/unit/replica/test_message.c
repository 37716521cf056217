/* test_message.c: messages as bytes, and bytes that are none. */
#include "driver.h"
#include "replica/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEPT 4000
#define RANDOM 200000

#define VERSION_AT 18  /* in a message that says what its sender reads */
#define NEXT_VERSION 2 /* so that nodes speak of it */

static struct packet kept[KEPT];
static int kept_count;

static bool keep(struct driver *driver, const struct packet *packet)
{
    (void)driver;
    if (kept_count < KEPT && packet->size < 5000) {
        kept[kept_count] = *packet;
        kept[kept_count].bytes = malloc(packet->size);
        memcpy(kept[kept_count++].bytes, packet->bytes, packet->size);
    }
    return false;
}

/* All kinds of messages there are, from nodes that live. */
static void collect(void)
{
    struct driver *driver = driver_new(1);

    for (uint64_t id = 1; id < NODES; id++) {
        driver->nodes[id].options.version = NEXT_VERSION;
        driver->nodes[id].options.snapshot_bytes = 200;
        driver->nodes[id].options.snapshot_trailing = 1;
        driver->nodes[id].options.memory_bytes = 1;
    }
    driver->drops = keep;
    driver_cluster(driver, 3);
    driver_work(driver, 20);
    driver_kill(driver, driver_leader(driver) % 3 + 1, 0);
    driver_work(driver, 60);
    for (uint64_t id = 1; id <= 4; id++)
        if (!driver->nodes[id].replica)
            driver_start(driver, id);
    driver_do_add(driver, 4);
    driver_run(driver, 2 * SECOND_US); /* tables are compared */
    driver_transfer(driver, driver_leader(driver), 0);
    driver_run(driver, SECOND_US);
    driver_free(driver);
}

static bool decodes(const void *bytes, size_t size)
{
    struct raft_entry *entries = malloc(MESSAGE_ENTRIES_MAX * sizeof *entries);
    struct message message = {0};
    unsigned char *exact = malloc(size ? size : 1); /* so that a checker sees one byte too far */
    bool result;

    memcpy(exact, bytes, size);
    result = message_decode(exact, size, entries, &message);
    free(exact);
    free(entries);
    return result;
}

static void what_is_sent_is_understood(void **state)
{
    int types[16] = {0};

    (void)state;
    for (int i = 0; i < kept_count; i++) {
        struct raft_entry entries[MESSAGE_ENTRIES_MAX];
        struct message message = {0};
        uint8_t head[MESSAGE_HEAD_MAX], again[8192], *at = again;
        struct iovec pieces[MESSAGE_PIECES_MAX];
        unsigned count;

        assert_true(message_decode(kept[i].bytes, kept[i].size, entries, &message));
        types[message.raft.type]++;
        count = message_encode(&message, kept[i].bytes[0], head, pieces);
        for (unsigned j = 0; j < count; at += pieces[j++].iov_len)
            memcpy(at, pieces[j].iov_base, pieces[j].iov_len);
        assert_int_equal(at - again, kept[i].size);
        assert_memory_equal(again, kept[i].bytes, kept[i].size);
    }
    for (int type = RAFT_APPEND; type <= (int)MESSAGE_DIGEST; type++)
        assert_true(types[type] > 0);
}

static void shorter_and_longer_ones_are_not(void **state)
{
    (void)state;
    for (int i = 0; i < kept_count; i += 7) {
        unsigned char longer[5001];
        bool piece = kept[i].bytes[1] == RAFT_SNAPSHOT; /* its bytes are what is left */

        for (size_t size = 0; size < kept[i].size; size += 1 + size / 64)
            assert_true(!decodes(kept[i].bytes, size) || piece);
        memcpy(longer, kept[i].bytes, kept[i].size);
        longer[kept[i].size] = 0;
        assert_true(!decodes(longer, kept[i].size + 1) || piece);
    }
}

/* Its sum is part of the chain, so the bytes must be those it was made of. */
static void changed_entries_are_refused(void **state)
{
    int seen = 0;

    (void)state;
    for (int i = 0; i < kept_count; i++)
        if (kept[i].bytes[1] == RAFT_APPEND && kept[i].bytes[APPEND_COUNT_AT] > 0 &&
            kept[i].size > 78 + 25) {
            struct raft_entry entries[MESSAGE_ENTRIES_MAX];
            struct message message = {0};

            assert_true(message_decode(kept[i].bytes, kept[i].size, entries, &message));
            if (message.raft.count == 0 || entries[message.raft.count - 1].size == 0)
                continue;
            kept[i].bytes[kept[i].size - 1] ^= 1;
            assert_false(decodes(kept[i].bytes, kept[i].size));
            kept[i].bytes[kept[i].size - 1] ^= 1;
            seen++;
        }
    assert_true(seen > 10);
}

static void random_bytes_are_refused(void **state)
{
    uint64_t chance = 7;

    (void)state;
    for (int i = 0; i < RANDOM; i++) {
        unsigned char bytes[200];
        size_t size;

        for (size_t j = 0; j < sizeof bytes; j++) {
            chance = chance * 6364136223846793005u + 1442695040888963407u;
            bytes[j] = (unsigned char)(chance >> 56);
        }
        size = bytes[199] % 200;
        bytes[0] = 1;
        bytes[1] = (unsigned char)(bytes[1] % 13);
        decodes(bytes, size);
    }
}

static void claims_are_not_believed(void **state)
{
    unsigned char bytes[78] = {1, RAFT_APPEND};

    (void)state;
    memset(bytes + APPEND_COUNT_AT, 0xff, 4); /* entries */
    assert_false(decodes(bytes, sizeof bytes));
    bytes[APPEND_COUNT_AT] = 200;
    bytes[75] = bytes[76] = bytes[77] = 0;
    assert_false(decodes(bytes, sizeof bytes));
    bytes[0] = 0; /* of no version */
    bytes[APPEND_COUNT_AT] = 0;
    assert_false(decodes(bytes, sizeof bytes));
    bytes[0] = 1;
    assert_true(decodes(bytes, sizeof bytes));
    memset(bytes + VERSION_AT, 0, 4);
    bytes[1] = MESSAGE_VERSION;
    assert_false(decodes(bytes, VERSION_AT + 4));
    bytes[VERSION_AT] = REPLICA_VERSION_MAX;
    assert_true(decodes(bytes, VERSION_AT + 4));
    bytes[VERSION_AT] = 0;
    bytes[VERSION_AT + 1] = 1;
    assert_false(decodes(bytes, VERSION_AT + 4));
}

/* Changed ones, to a node that lives: it refuses them, lives on with them, or stops in words. */
static void changed_ones_do_no_harm(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct driver *driver = driver_new(seed);

        driver->may_stop = true;
        for (uint64_t id = 1; id < NODES; id++)
            driver->nodes[id].options.version = NEXT_VERSION;
        driver_cluster(driver, 3);
        driver_await_leader(driver);
        for (int i = 0; i < 3000; i++) {
            const struct packet *packet = &kept[driver_draw(driver, (uint64_t)kept_count)];
            uint64_t to = 1 + driver_draw(driver, 3);
            unsigned char *bytes = malloc(packet->size);

            memcpy(bytes, packet->bytes, packet->size);
            for (uint64_t flips = driver_draw(driver, 3); flips > 0; flips--)
                bytes[driver_draw(driver, packet->size < 120 ? packet->size : 120)] ^=
                    (unsigned char)(1 << driver_draw(driver, 8));
            bytes[2] = (unsigned char)to;
            if (!driver->nodes[to].replica || driver->nodes[to].role == REPLICA_STOPPED) {
                driver_kill(driver, to, 0);
                driver_start(driver, to);
            }
            replica_received(driver->nodes[to].replica, 1 + driver_draw(driver, 4),
                             100 + driver_draw(driver, 5), bytes, packet->size, driver->now_us);
            replica_pump(driver->nodes[to].replica, 1, driver->now_us);
            driver->now_us += 50;
            free(bytes);
        }
        driver_free(driver);
    }
}

static void snapshots_that_are_none_are_refused(void **state)
{
    struct driver *driver = driver_new(3);
    const struct driver_disk *disk = &driver->nodes[1].disk;
    struct replica_snapshot snapshot;

    (void)state;
    driver->nodes[1].options.snapshot_bytes = 100;
    driver_cluster(driver, 1);
    driver_work(driver, 30);
    assert_true(replica_snapshot_decode(disk->snapshot, disk->snapshot_size, &snapshot));
    for (size_t i = 0; i < disk->snapshot_size; i++) {
        unsigned char *shorter = malloc(i + 1);

        memcpy(shorter, disk->snapshot, i);
        assert_false(replica_snapshot_decode(shorter, i, &snapshot));
        disk->snapshot[i] ^= 4;
        assert_false(replica_snapshot_decode(disk->snapshot, disk->snapshot_size, &snapshot));
        disk->snapshot[i] ^= 4;
        free(shorter);
    }
    driver_free(driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_sent_is_understood),
                                       cmocka_unit_test(shorter_and_longer_ones_are_not),
                                       cmocka_unit_test(changed_entries_are_refused),
                                       cmocka_unit_test(random_bytes_are_refused),
                                       cmocka_unit_test(claims_are_not_believed),
                                       cmocka_unit_test(changed_ones_do_no_harm),
                                       cmocka_unit_test(snapshots_that_are_none_are_refused)};
    int result;

    collect();
    result = cmocka_run_group_tests_name("replica: messages", tests, NULL, NULL);
    for (int i = 0; i < kept_count; i++)
        free(kept[i].bytes);
    return result;
}
