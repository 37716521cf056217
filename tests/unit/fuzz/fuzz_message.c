/* fuzz_message.c: bytes from another node, as a message. What is taken is, byte for byte, what the encoder makes of it, and has no entry
 * whose bytes are others than its checksum says. The search does not guess checksums, so the target puts right those of an append, unless
 * the input's first byte says otherwise. The same of a snapshot's head: its first byte is the one that says so. */
#include "base/crc32c.h"
#include "fuzz.h"
#include "replica/inside.h"

#include <endian.h>

#define WRONG_SUMS 1u /* of the first byte: the checksums are left as they are */
#define IS_SNAPSHOT 2u
#define ENTRIES_AT 78u /* in an append */
#define COUNT_AT (ENTRIES_AT - 4)
#define ENTRY_HEAD 25u /* bytes of each before their own */
#define SNAPSHOT_HEAD 80u

static uint32_t number_at(const uint8_t *at)
{
    uint32_t number;

    memcpy(&number, at, sizeof number);
    return le32toh(number);
}

static void put_at(uint8_t *at, uint32_t number)
{
    number = htole32(number);
    memcpy(at, &number, sizeof number);
}

/* Of as many entries as are there. */
static void mend_append(uint8_t *bytes, size_t size)
{
    size_t count, at;

    if (size < ENTRIES_AT || bytes[1] != RAFT_APPEND)
        return;
    count = number_at(bytes + COUNT_AT);
    if (count > MESSAGE_ENTRIES_MAX || ENTRIES_AT + count * ENTRY_HEAD > size)
        return;
    at = ENTRIES_AT + count * ENTRY_HEAD;
    for (size_t i = 0; i < count; i++) {
        uint8_t *head = bytes + ENTRIES_AT + i * ENTRY_HEAD;
        size_t length = number_at(head + 16);

        if (length > size - at)
            return;
        put_at(head + 20, crc32c(0, bytes + at, length));
        at += length;
    }
}

static void mend_snapshot(uint8_t *bytes, size_t size)
{
    size_t config, table;

    if (size < SNAPSHOT_HEAD)
        return;
    config = number_at(bytes + 60);
    if (config > size - SNAPSHOT_HEAD)
        return;
    table = SNAPSHOT_HEAD + config;
    put_at(bytes + 64, (uint32_t)(size - table));
    put_at(bytes + 68, 0);
    put_at(bytes + 72, crc32c(0, bytes + table, size - table));
    put_at(bytes + 76, crc32c(crc32c(0, bytes, 76), bytes + SNAPSHOT_HEAD, config));
}

/* ---- what must hold ---------------------------------------------------------------------------- */

static void is_sound(const struct message *message, const uint8_t *bytes, size_t size)
{
    const struct raft_message *raft = &message->raft;

    REQUIRE(raft->from == 7 && raft->incarnation == 8); /* whatever the bytes say */
    REQUIRE(raft->type >= RAFT_APPEND && raft->type <= MESSAGE_DIGEST);
    REQUIRE(raft->term <= RAFT_TERM_MAX);
    for (uint32_t i = 0; i < raft->count; i++) {
        const struct raft_entry *entry = &raft->entries[i];
        const uint8_t *of = entry->bytes;

        REQUIRE(entry->type >= RAFT_COMMAND && entry->type <= RAFT_VERSION);
        REQUIRE(entry->size == 0 || (of >= bytes && of + entry->size <= bytes + size));
        REQUIRE(crc32c(0, of, entry->size) == entry->sum);
    }
    if (raft->type == RAFT_SNAPSHOT)
        REQUIRE(message->size > 0 && message->bytes + message->size == bytes + size);
    replica_message_is_leaders(bytes, size);
}

static void is_encoded_to(const struct message *message, const uint8_t *bytes, size_t size)
{
    static uint8_t head[MESSAGE_HEAD_MAX];
    static struct iovec pieces[MESSAGE_PIECES_MAX];
    unsigned count = message_encode(message, bytes[0], head, pieces);
    size_t at = 0;

    for (unsigned i = 0; i < count; i++) {
        REQUIRE(pieces[i].iov_len <= size - at);
        REQUIRE(memcmp(bytes + at, pieces[i].iov_base, pieces[i].iov_len) == 0);
        at += pieces[i].iov_len;
    }
    REQUIRE(at == size);
}

static void try_message(uint8_t *bytes, size_t size, unsigned how)
{
    static struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    struct message message = {.raft = {.from = 7, .incarnation = 8}};

    if (!(how & WRONG_SUMS))
        mend_append(bytes, size);
    if (!message_decode(bytes, size, entries, &message))
        return;
    is_sound(&message, bytes, size);
    is_encoded_to(&message, bytes, size);
}

static void try_snapshot(uint8_t *bytes, size_t size, unsigned how)
{
    static uint8_t head[REPLICA_SNAPSHOT_HEAD_MAX];
    static struct replica_snapshot snapshot;
    size_t head_size;

    if (!(how & WRONG_SUMS))
        mend_snapshot(bytes, size);
    if (!replica_snapshot_decode(bytes, size, &snapshot))
        return;
    REQUIRE(snapshot.id.index >= snapshot.config.index && snapshot.id.term > 0);
    REQUIRE(snapshot.config.count >= 1 && snapshot.config.count <= REPLICA_MEMBERS_MAX);
    head_size = replica_snapshot_encode(&snapshot, head);
    REQUIRE(head_size + snapshot.table_size == size);
    REQUIRE(memcmp(head, bytes, head_size) == 0);
}

const int fuzz_rounds = 400000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes;

    if (size < 2)
        return 0;
    bytes = fuzz_copy(data + 1, size - 1);
    if (data[0] & IS_SNAPSHOT)
        try_snapshot(bytes, size - 1, data[0]);
    else
        try_message(bytes, size - 1, data[0]);
    free(bytes);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static const struct replica_config members = {
    .index = 4,
    .count = 2,
    .at = {{.id = 1, .incarnation = 11, .votes = true, .address = "db1:7421"},
           {.id = 2, .incarnation = 12, .address = "[::1]:7421"}}};

static size_t snapshot_seed(uint8_t *ret_bytes)
{
    static const char table[] = "a table";
    struct replica_snapshot snapshot = {.id = {9, 3, 77},
                                        .cluster = "0123456789abcde",
                                        .config = members,
                                        .table = table,
                                        .table_size = sizeof table};
    static uint8_t head[REPLICA_SNAPSHOT_HEAD_MAX];
    size_t size = replica_snapshot_encode(&snapshot, head);

    ret_bytes[0] = IS_SNAPSHOT;
    memcpy(ret_bytes + 1, head, size);
    memcpy(ret_bytes + 1 + size, table, sizeof table);
    return 1 + size + sizeof table;
}

static size_t message_seed(unsigned type, uint8_t *ret_bytes)
{
    static uint8_t config[REPLICA_CONFIG_BYTES_MAX], head[MESSAGE_HEAD_MAX];
    static const uint8_t version[4] = {1};
    static struct iovec pieces[MESSAGE_PIECES_MAX];
    const struct raft_entry entries[] = {
        {.term = 3, .type = RAFT_FIRST_OF_TERM},
        {.term = 3, .size = 8, .type = RAFT_COMMAND, .bytes = "commands"},
        {.term = 3,
         .size = (uint32_t)replica_config_write(&members, config),
         .type = RAFT_CONFIG,
         .bytes = config},
        {.term = 3, .size = sizeof version, .type = RAFT_VERSION, .bytes = version}};
    struct message message = {.raft = {.type = (uint8_t)type,
                                       .to = 2,
                                       .term = 3,
                                       .id = {8, 2, 66},
                                       .commit = 7,
                                       .entries = entries,
                                       .count = type == RAFT_APPEND ? COUNT(entries) : 0,
                                       .yes = true,
                                       .index = 8,
                                       .transfer = true},
                              .total = 100,
                              .offset = 40,
                              .bytes = (const unsigned char *)"piece",
                              .size = 5,
                              .version = 2,
                              .digest_says = DIGEST_ASKS,
                              .digest = {5, 6}};
    unsigned count = message_encode(&message, 1, head, pieces);
    size_t size = 1;

    ret_bytes[0] = 0;
    for (unsigned i = 0; i < count; size += pieces[i++].iov_len)
        memcpy(ret_bytes + size, pieces[i].iov_base, pieces[i].iov_len);
    mend_append(ret_bytes + 1, size - 1);
    return size;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    if (n == 0)
        return snapshot_seed(ret_bytes);
    return n <= MESSAGE_DIGEST ? message_seed(n, ret_bytes) : 0;
}
