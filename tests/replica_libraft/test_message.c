/* Messages between nodes: as they went in, so they come out; and nothing else comes in. */
#include "replica_libraft/message.h"

#include <raft.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 3
#define TYPES 6

static struct raft_entry entries[ENTRIES];
static char payload[64] = "what is in the entries, one after the other, and in snapshots";
static struct raft_message samples[TYPES];

static int set_up(void **state)
{
    struct raft_configuration conf;

    (void)state;
    entries[0] = (struct raft_entry){.term = 3, .type = RAFT_COMMAND, .buf = {payload, 16}};
    entries[1] = (struct raft_entry){.term = 4, .type = RAFT_BARRIER, .buf = {payload, 0}};
    raft_configuration_init(&conf);
    raft_configuration_add(&conf, 1, "127.0.0.1:7431", RAFT_VOTER);
    raft_configuration_add(&conf, 2, "127.0.0.1:7432", RAFT_STANDBY);
    entries[2] = (struct raft_entry){.term = 5, .type = RAFT_CHANGE};
    raft_configuration_encode(&conf, &entries[2].buf);
    samples[0] = (struct raft_message){.type = RAFT_APPEND_ENTRIES,
                                       .append_entries = {0, 9, 1000, 8, 999, entries, ENTRIES}};
    samples[1] = (struct raft_message){.type = RAFT_APPEND_ENTRIES_RESULT,
                                       .append_entries_result = {1, 9, 5, 6, 0x1234, 0x5678}};
    samples[2] = (struct raft_message){.type = RAFT_REQUEST_VOTE,
                                       .request_vote = {2, 9, 3, 77, 8, true, false}};
    samples[3] = (struct raft_message){.type = RAFT_REQUEST_VOTE_RESULT,
                                       .request_vote_result = {2, 9, true, true, 3, 4}};
    samples[4] = (struct raft_message){.type = RAFT_INSTALL_SNAPSHOT,
                                       .install_snapshot = {.term = 9,
                                                            .last_index = 50,
                                                            .last_term = 7,
                                                            .conf_index = 20,
                                                            .data = {payload, sizeof payload}}};
    samples[4].install_snapshot.conf = conf;
    samples[5] = (struct raft_message){.type = RAFT_TIMEOUT_NOW, .timeout_now = {1, 9, 77, 8}};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    raft_configuration_close(&samples[4].install_snapshot.conf);
    raft_free(entries[2].buf.base);
    return 0;
}

/* In one piece, as it arrives. */
static unsigned char *encode(const struct raft_message *message, size_t *ret_size)
{
    struct encoded encoded;
    unsigned char *bytes;
    size_t size = 0;

    message_encode(message, &encoded);
    for (unsigned i = 0; i < encoded.count; i++)
        size += encoded.pieces[i].iov_len;
    bytes = malloc(size + 1);
    assert_non_null(bytes);
    *ret_size = size;
    size = 0;
    for (unsigned i = 0; i < encoded.count; i++) {
        memcpy(bytes + size, encoded.pieces[i].iov_base, encoded.pieces[i].iov_len);
        size += encoded.pieces[i].iov_len;
    }
    encoded_free(&encoded);
    return bytes;
}

static unsigned char *copy(const unsigned char *bytes, size_t size)
{
    unsigned char *own = malloc(size ? size : 1);

    assert_non_null(own);
    memcpy(own, bytes, size);
    return own;
}

/* As libraft would. */
static void free_message(struct raft_message *message)
{
    if (message->type == RAFT_INSTALL_SNAPSHOT) {
        raft_configuration_close(&message->install_snapshot.conf);
        raft_free(message->install_snapshot.data.base);
    }
    if (message->type == RAFT_APPEND_ENTRIES && message->append_entries.n_entries > 0) {
        raft_free(message->append_entries.entries[0].batch);
        raft_free(message->append_entries.entries);
    }
}

static void compare_entries(const struct raft_append_entries *came)
{
    assert_int_equal(came->n_entries, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(came->entries[i].term, entries[i].term);
        assert_int_equal(came->entries[i].type, entries[i].type);
        assert_int_equal(came->entries[i].buf.len, entries[i].buf.len);
        assert_memory_equal(came->entries[i].buf.base, entries[i].buf.base, entries[i].buf.len);
        assert_ptr_equal(came->entries[i].batch, came->entries[0].batch);
        assert_int_equal((uintptr_t)came->entries[i].buf.base % 8, 0);
    }
}

static void test_all_come_out_as_they_went_in(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        struct raft_message came;
        size_t size;
        unsigned char *bytes = encode(&samples[i], &size);

        assert_true(message_decode(bytes, size, &came));
        assert_int_equal(came.type, samples[i].type);
        if (i == 0) {
            assert_memory_equal(&came.append_entries, &samples[0].append_entries,
                                offsetof(struct raft_append_entries, entries));
            compare_entries(&came.append_entries);
        } else if (i == 4) {
            const struct raft_install_snapshot *snapshot = &came.install_snapshot;

            assert_int_equal(snapshot->term, 9);
            assert_int_equal(snapshot->last_index, 50);
            assert_int_equal(snapshot->last_term, 7);
            assert_int_equal(snapshot->conf_index, 20);
            assert_int_equal(snapshot->conf.n, 2);
            assert_string_equal(snapshot->conf.servers[1].address, "127.0.0.1:7432");
            assert_int_equal(snapshot->data.len, sizeof payload);
            assert_memory_equal(snapshot->data.base, payload, sizeof payload);
        } else {
            assert_memory_equal(&came.request_vote, &samples[i].request_vote,
                                i == 1   ? sizeof(struct raft_append_entries_result)
                                : i == 2 ? sizeof(struct raft_request_vote)
                                : i == 3 ? sizeof(struct raft_request_vote_result)
                                         : sizeof(struct raft_timeout_now));
        }
        free_message(&came);
    }
}

static void test_a_heartbeat_has_no_entries(void **state)
{
    struct raft_message came, heartbeat = samples[0];
    unsigned char *bytes;
    size_t size;

    (void)state;
    heartbeat.append_entries.n_entries = 0;
    bytes = encode(&heartbeat, &size);
    assert_true(message_decode(bytes, size, &came));
    assert_int_equal(came.append_entries.n_entries, 0);
    assert_int_equal(came.append_entries.leader_commit, 999);
}

/* A snapshot may end anywhere, as far as we know. */
static void test_too_short_or_too_long(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        size_t size, least = i == 4 ? 8 + 5 * 8 + 8 : SIZE_MAX;
        unsigned char *bytes = encode(&samples[i], &size), *longer = malloc(size + 8);
        struct raft_message came;

        for (size_t length = 0; length < size && length < least; length++) {
            unsigned char *part = copy(bytes, length);

            assert_false(message_decode(part, length, &came));
            free(part);
        }
        assert_non_null(longer);
        memcpy(longer, bytes, size);
        memset(longer + size, 0, 8);
        if (i != 4)
            assert_false(message_decode(longer, size + 8, &came));
        free(longer);
        free(bytes);
    }
}

/* Whatever it is, it is decoded within its bytes, or refused. */
static void test_any_byte_may_be_wrong(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        size_t size;
        unsigned char *bytes = encode(&samples[i], &size);

        for (size_t at = 0; at < size * 8; at++) {
            unsigned char *wrong = copy(bytes, size);
            struct raft_message came;

            wrong[at / 8] ^= (unsigned char)(1 << at % 8);
            if (message_decode(wrong, size, &came))
                free_message(&came);
            else
                free(wrong);
        }
        free(bytes);
    }
}

static void refuse_with(int sample, size_t at, unsigned char byte)
{
    struct raft_message came;
    size_t size;
    unsigned char *bytes = encode(&samples[sample], &size);

    bytes[at] = byte;
    assert_false(message_decode(bytes, size, &came));
    free(bytes);
}

/* Eight bytes behind the last member are none of it. */
static void test_a_configuration_that_is_too_long(void **state)
{
    struct raft_message came, change = samples[0];
    struct raft_entry entry = entries[2];
    size_t size = entry.buf.len;
    unsigned char *bytes, *longer = calloc(1, size + 8);

    (void)state;
    assert_non_null(longer);
    memcpy(longer, entry.buf.base, size);
    entry.buf = (struct raft_buffer){longer, size + 8};
    change.append_entries.entries = &entry;
    change.append_entries.n_entries = 1;
    bytes = encode(&change, &size);
    assert_false(message_decode(bytes, size, &came));
    free(bytes);
    free(longer);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    refuse_with(1, 0, 2); /* a version to come */
    refuse_with(1, 1, 0); /* types that there are not */
    refuse_with(1, 1, 7);
    refuse_with(1, 2, 8);              /* flags likewise */
    refuse_with(1, 4, 1);              /* entries where there are none */
    refuse_with(0, 8 + 4 * 8 + 12, 0); /* types of entries */
    refuse_with(0, 8 + 4 * 8 + 12, 4);
    refuse_with(0, 8 + 4 * 8 + 8, 12);  /* a size that is no multiple of 8 */
    refuse_with(0, 7, 255);             /* more entries than there can be */
    refuse_with(4, 8 + 4 * 8 + 3, 255); /* a configuration larger than all */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_come_out_as_they_went_in),
        TEST(test_a_heartbeat_has_no_entries),
        TEST(test_too_short_or_too_long),
        TEST(test_any_byte_may_be_wrong),
        TEST(test_what_is_refused),
        TEST(test_a_configuration_that_is_too_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
