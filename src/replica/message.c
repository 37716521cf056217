/* message.c: what nodes say to each other, as bytes. Numbers have their lowest byte first.
 *
 *     version of the formats (1), type (1), receiver (8), term (8); then
 *
 *     APPEND          id, commit (8), round (8), acked (8), acked_by (8), count (4); for each entry term (8), chain (8), size (4), sum (4), type (1); then their bytes
 *     APPEND_REPLY    yes (1), index (8), round (8), hint_index (8), hint_term (8)
 *     VOTE, PRE_VOTE  id, transfer (1)
 *     their replies   yes (1), asked_term (8)
 *     TIMEOUT_NOW     id
 *     SNAPSHOT        id, total (8), offset (8), and the bytes of the piece
 *     SNAPSHOT_ACK       id, offset (8), again (1)
 *     VERSION         version (4)
 *     DIGEST          what it says (1), index (8), hash (8)
 *
 * An id is index, term, chain (8 each). The sender is whoever the connection has proved to be. */
#include "replica/message.h"
#include "base/crc32c.h"
#include "replica/bytes.h"
#include "replica/inside.h"

/* ---- writing ---------------------------------------------------------------------------------- */

static void write_id(struct bytes_writer *writer, const struct raft_id *id)
{
    write_u64(writer, id->index);
    write_u64(writer, id->term);
    write_u64(writer, id->chain);
}

/* Returns how many pieces follow. */
static unsigned write_append(struct bytes_writer *writer, const struct raft_message *message,
                             struct iovec *pieces)
{
    unsigned count = 0;

    write_id(writer, &message->id);
    write_u64(writer, message->commit);
    write_u64(writer, (uint64_t)message->round);
    write_u64(writer, message->acked);
    write_u64(writer, message->acked_by);
    write_u32(writer, message->count);
    for (uint32_t i = 0; i < message->count; i++) {
        const struct raft_entry *entry = &message->entries[i];

        write_u64(writer, entry->term);
        write_u64(writer, entry->chain);
        write_u32(writer, entry->size);
        write_u32(writer, entry->sum);
        write_u8(writer, entry->type);
        if (entry->size > 0)
            pieces[count++] = (struct iovec){(void *)(uintptr_t)entry->bytes, entry->size};
    }
    return count;
}

static unsigned write_body(struct bytes_writer *writer, const struct message *message,
                           struct iovec *pieces)
{
    const struct raft_message *raft = &message->raft;

    switch (raft->type) {
    case RAFT_APPEND:
        return write_append(writer, raft, pieces);
    case RAFT_APPEND_REPLY:
        write_u8(writer, raft->yes);
        write_u64(writer, raft->index);
        write_u64(writer, (uint64_t)raft->round);
        write_u64(writer, raft->hint_index);
        write_u64(writer, raft->hint_term);
        return 0;
    case RAFT_VOTE:
    case RAFT_PRE_VOTE:
        write_id(writer, &raft->id);
        write_u8(writer, raft->transfer);
        return 0;
    case RAFT_VOTE_REPLY:
    case RAFT_PRE_VOTE_REPLY:
        write_u8(writer, raft->yes);
        write_u64(writer, raft->asked_term);
        return 0;
    case RAFT_TIMEOUT_NOW:
        write_id(writer, &raft->id);
        return 0;
    case RAFT_SNAPSHOT:
        write_id(writer, &raft->id);
        write_u64(writer, message->total);
        write_u64(writer, message->offset);
        pieces[0] = (struct iovec){(void *)(uintptr_t)message->bytes, message->size};
        return 1;
    case MESSAGE_VERSION:
        write_u32(writer, message->version);
        return 0;
    case MESSAGE_DIGEST:
        write_u8(writer, message->digest_says);
        write_u64(writer, message->digest.index);
        write_u64(writer, message->digest.hash);
        return 0;
    default:
        write_id(writer, &raft->id);
        write_u64(writer, message->offset);
        write_u8(writer, message->again);
        return 0;
    }
}

unsigned message_encode(const struct message *message, uint32_t version,
                        uint8_t head[MESSAGE_HEAD_MAX], struct iovec pieces[MESSAGE_PIECES_MAX])
{
    struct bytes_writer writer = {head};
    unsigned count;

    INVARIANT(message->raft.type >= RAFT_APPEND && message->raft.type <= MESSAGE_DIGEST);
    INVARIANT(message->raft.type != RAFT_APPEND || message->raft.count <= MESSAGE_ENTRIES_MAX);
    write_u8(&writer, (uint8_t)version);
    write_u8(&writer, message->raft.type);
    write_u64(&writer, message->raft.to);
    write_u64(&writer, message->raft.term);
    count = write_body(&writer, message, pieces + 1);
    pieces[0] = (struct iovec){head, (size_t)(writer.at - head)};
    return 1 + count;
}

/* ---- reading ---------------------------------------------------------------------------------- */

static void read_id(struct bytes_reader *reader, struct raft_id *ret_id)
{
    ret_id->index = read_u64(reader);
    ret_id->term = read_u64(reader);
    ret_id->chain = read_u64(reader);
}

/* A configuration has addresses, which raft knows nothing of; the first entry of a term has no bytes. */
static bool is_sound(const struct raft_entry *entry)
{
    struct replica_config config;

    if (entry->size > MESSAGE_ENTRY_MAX || crc32c(0, entry->bytes, entry->size) != entry->sum)
        return false;
    switch (entry->type) {
    case RAFT_COMMAND:
        return true;
    case RAFT_FIRST_OF_TERM:
        return entry->size == 0;
    case RAFT_CONFIG:
        return replica_config_read(entry->bytes, entry->size, &config);
    case RAFT_VERSION:
        return version_of_entry(entry->bytes, entry->size) > 0;
    default:
        return false;
    }
}

static bool read_append(struct bytes_reader *reader, struct raft_entry *entries,
                        struct raft_message *message)
{
    read_id(reader, &message->id);
    message->commit = read_u64(reader);
    message->round = (int64_t)read_u64(reader);
    message->acked = read_u64(reader);
    message->acked_by = read_u64(reader);
    message->count = read_u32(reader);
    if (reader->wrong || message->count > MESSAGE_ENTRIES_MAX)
        return false;
    message->entries = entries;
    for (uint32_t i = 0; i < message->count; i++) {
        entries[i].term = read_u64(reader);
        entries[i].chain = read_u64(reader);
        entries[i].size = read_u32(reader);
        entries[i].sum = read_u32(reader);
        entries[i].type = read_u8(reader);
    }
    for (uint32_t i = 0; i < message->count && !reader->wrong; i++) {
        entries[i].bytes = read_bytes(reader, entries[i].size);
        if (reader->wrong || !is_sound(&entries[i]))
            return false;
    }
    return true;
}

static bool read_piece(struct bytes_reader *reader, struct message *message)
{
    read_id(reader, &message->raft.id);
    message->total = read_u64(reader);
    message->offset = read_u64(reader);
    message->size = bytes_left(reader);
    message->bytes = read_bytes(reader, message->size);
    return message->size > 0 && message->size <= REPLICA_PIECE_BYTES &&
           message->offset < message->total && message->size <= message->total - message->offset &&
           message->raft.id.index > 0 && message->raft.id.term > 0 &&
           message->raft.id.term <= message->raft.term;
}

static bool read_body(struct bytes_reader *reader, struct raft_entry *entries,
                      struct message *message)
{
    struct raft_message *raft = &message->raft;

    switch (raft->type) {
    case RAFT_APPEND:
        return read_append(reader, entries, raft);
    case RAFT_APPEND_REPLY:
        raft->yes = read_bool(reader);
        raft->index = read_u64(reader);
        raft->round = (int64_t)read_u64(reader);
        raft->hint_index = read_u64(reader);
        raft->hint_term = read_u64(reader);
        return true;
    case RAFT_VOTE:
    case RAFT_PRE_VOTE:
        read_id(reader, &raft->id);
        raft->transfer = read_bool(reader);
        return true;
    case RAFT_VOTE_REPLY:
    case RAFT_PRE_VOTE_REPLY:
        raft->yes = read_bool(reader);
        raft->asked_term = read_u64(reader);
        return true;
    case RAFT_TIMEOUT_NOW:
        read_id(reader, &raft->id);
        return true;
    case RAFT_SNAPSHOT:
        return read_piece(reader, message);
    case MESSAGE_SNAPSHOT_ACK:
        read_id(reader, &raft->id);
        message->offset = read_u64(reader);
        message->again = read_bool(reader);
        return true;
    case MESSAGE_VERSION:
        message->version = read_u32(reader);
        return message->version > 0 && message->version <= REPLICA_VERSION_MAX;
    case MESSAGE_DIGEST:
        message->digest_says = read_u8(reader);
        message->digest.index = read_u64(reader);
        message->digest.hash = read_u64(reader);
        return message->digest_says >= DIGEST_ASKS && message->digest_says <= DIGEST_STOPS_FOR_SURE;
    default:
        return false;
    }
}

bool message_decode(const void *bytes, size_t size, struct raft_entry *entries,
                    struct message *ret_message)
{
    struct bytes_reader reader = {.at = bytes, .end = (const uint8_t *)bytes + size};
    uint64_t from = ret_message->raft.from, incarnation = ret_message->raft.incarnation;

    *ret_message = (struct message){.raft = {.from = from, .incarnation = incarnation}};
    if (read_u8(&reader) == 0)
        return false;
    ret_message->raft.type = read_u8(&reader);
    ret_message->raft.to = read_u64(&reader);
    ret_message->raft.term = read_u64(&reader);
    return !reader.wrong && ret_message->raft.term <= RAFT_TERM_MAX &&
           read_body(&reader, entries, ret_message) && bytes_read(&reader);
}

bool replica_message_is_leaders(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    return size > 1 && (at[1] == RAFT_APPEND || at[1] == RAFT_SNAPSHOT);
}
