#include "replica_libraft/message.h"
#include "base/error.h"

#include <raft.h>

#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define HEADER 8
#define NUMBERS_MAX 5
#define ENTRY_HEADER 16 /* term (8), size (4), type (1), nothing (3) */
#define CONFIGURATION_MAX ((size_t)1 << 20)
#define CONFIGURATION_VERSION 1
#define MEMBERS_MAX 1000

/* Flags. */
#define FLAG_DISRUPT 1u
#define FLAG_PRE_VOTE 2u
#define FLAG_GRANTED 4u
#define FLAGS 7u

/* ---- numbers ---------------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *at, uint64_t number)
{
    number = htole64(number);
    memcpy(at, &number, sizeof number);
    return at + sizeof number;
}

static uint64_t get(const unsigned char *at, unsigned number)
{
    uint64_t found;

    memcpy(&found, at + HEADER + number * sizeof found, sizeof found);
    return le64toh(found);
}

static uint32_t get_u32(const unsigned char *at)
{
    uint32_t number;

    memcpy(&number, at, sizeof number);
    return le32toh(number);
}

static void put_u32(unsigned char *at, uint32_t number)
{
    number = htole32(number);
    memcpy(at, &number, sizeof number);
}

/* How many numbers a message of this type has; 0: there is no such type. */
static unsigned numbers_of(unsigned type)
{
    switch (type) {
    case RAFT_APPEND_ENTRIES:
    case RAFT_REQUEST_VOTE:
        return 4;
    case RAFT_APPEND_ENTRIES_RESULT:
        return 4;
    case RAFT_REQUEST_VOTE_RESULT:
        return 2;
    case RAFT_INSTALL_SNAPSHOT:
        return 5;
    case RAFT_TIMEOUT_NOW:
        return 3;
    default:
        return 0;
    }
}

/* What a node can do (features) and has room for, in one number. */
static uint64_t abilities(unsigned short features, unsigned short capacity)
{
    return (uint64_t)features << 16 | capacity;
}

/* ---- out -------------------------------------------------------------------------------------- */

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);

    INVARIANT(memory != NULL);
    return memory;
}

static void encode_entries(const struct raft_append_entries *append, unsigned char *at,
                           struct encoded *encoded)
{
    for (unsigned i = 0; i < append->n_entries; i++, at += ENTRY_HEADER) {
        const struct raft_entry *entry = &append->entries[i];

        put(at, entry->term);
        put_u32(at + 8, (uint32_t)entry->buf.len);
        at[12] = (unsigned char)entry->type;
        encoded->pieces[encoded->count++] = (struct iovec){entry->buf.base, entry->buf.len};
    }
}

static void encode_snapshot(const struct raft_install_snapshot *install, unsigned char *at,
                            struct encoded *encoded)
{
    struct raft_buffer configuration;

    INVARIANT(raft_configuration_encode(&install->conf, &configuration) == 0);
    encoded->configuration = configuration.base;
    put(at, configuration.len);
    encoded->pieces[encoded->count++] = (struct iovec){configuration.base, configuration.len};
    encoded->pieces[encoded->count++] = (struct iovec){install->data.base, install->data.len};
}

/* The numbers; returns where they end. */
static unsigned char *encode_numbers(const struct raft_message *message, unsigned char *at,
                                     unsigned char *flags)
{
    const struct raft_append_entries *append = &message->append_entries;
    const struct raft_append_entries_result *appended = &message->append_entries_result;
    const struct raft_request_vote *request = &message->request_vote;
    const struct raft_request_vote_result *vote = &message->request_vote_result;
    const struct raft_install_snapshot *install = &message->install_snapshot;
    const struct raft_timeout_now *timeout = &message->timeout_now;

    switch (message->type) {
    case RAFT_APPEND_ENTRIES:
        at = put(put(at, append->term), append->prev_log_index);
        return put(put(at, append->prev_log_term), append->leader_commit);
    case RAFT_APPEND_ENTRIES_RESULT:
        at = put(put(at, appended->term), appended->rejected);
        return put(put(at, appended->last_log_index),
                   abilities(appended->features, appended->capacity));
    case RAFT_REQUEST_VOTE:
        *flags = (unsigned char)((request->disrupt_leader ? FLAG_DISRUPT : 0) |
                                 (request->pre_vote ? FLAG_PRE_VOTE : 0));
        at = put(put(at, request->term), request->candidate_id);
        return put(put(at, request->last_log_index), request->last_log_term);
    case RAFT_REQUEST_VOTE_RESULT:
        *flags = (unsigned char)((vote->vote_granted ? FLAG_GRANTED : 0) |
                                 (vote->pre_vote ? FLAG_PRE_VOTE : 0));
        return put(put(at, vote->term), abilities(vote->features, vote->capacity));
    case RAFT_INSTALL_SNAPSHOT:
        at = put(put(at, install->term), install->last_index);
        return put(put(at, install->last_term), install->conf_index);
    case RAFT_TIMEOUT_NOW:
        at = put(put(at, timeout->term), timeout->last_log_index);
        return put(at, timeout->last_log_term);
    }
    return at;
}

void message_encode(const struct raft_message *message, struct encoded *ret_encoded)
{
    bool append = message->type == RAFT_APPEND_ENTRIES;
    unsigned entries = append ? message->append_entries.n_entries : 0;
    unsigned numbers = numbers_of(message->type);
    size_t size = HEADER + numbers * sizeof(uint64_t) + entries * (size_t)ENTRY_HEADER;
    unsigned char *at;

    INVARIANT(numbers > 0);
    *ret_encoded = (struct encoded){.pieces = allocate((entries + 3) * sizeof(struct iovec)),
                                    .count = 1,
                                    .header = allocate(size)};
    ret_encoded->header[0] = VERSION;
    ret_encoded->header[1] = (unsigned char)message->type;
    ret_encoded->header[3] = message->request_vote.version; /* all types begin with it */
    put_u32(ret_encoded->header + 4, entries);
    ret_encoded->pieces[0] = (struct iovec){ret_encoded->header, size};
    at = encode_numbers(message, ret_encoded->header + HEADER, &ret_encoded->header[2]);
    if (append)
        encode_entries(&message->append_entries, at, ret_encoded);
    else if (message->type == RAFT_INSTALL_SNAPSHOT)
        encode_snapshot(&message->install_snapshot, at, ret_encoded);
}

void encoded_free(struct encoded *encoded)
{
    raft_free(encoded->configuration);
    free(encoded->header);
    free(encoded->pieces);
    *encoded = (struct encoded){0};
}

/* ---- in --------------------------------------------------------------------------------------- */

/* libraft believes what a configuration says about itself: a version, how many members, and of each its id,
 * its address with a NUL, and its role; then zeros up to a multiple of 8. */
bool message_is_configuration(const void *configuration, size_t size)
{
    const unsigned char *bytes = configuration;
    const unsigned char *at = bytes + 9, *end = bytes + size;
    uint64_t count;

    if (size < 9 || size % 8 != 0 || bytes[0] != CONFIGURATION_VERSION)
        return false;
    memcpy(&count, bytes + 1, sizeof count);
    count = le64toh(count);
    if (count > MEMBERS_MAX)
        return false;
    for (; count > 0; count--) {
        const unsigned char *nul =
            end - at > 8 ? memchr(at + 8, '\0', (size_t)(end - at) - 8) : NULL;

        if (!nul || end - nul < 2 || nul[1] > RAFT_SPARE)
            return false;
        at = nul + 2;
    }
    return end - at < 8;
}

/* Entries stay where they are: all are of one batch, the message itself, which libraft frees. */
static bool decode_entries(unsigned char *bytes, size_t size, struct raft_append_entries *append)
{
    size_t at = HEADER + 4 * sizeof(uint64_t), count = get_u32(bytes + 4);
    size_t data = at + count * ENTRY_HEADER;
    struct raft_entry *entries;

    append->n_entries = (unsigned)count;
    if (count > (size - at) / ENTRY_HEADER)
        return false;
    if (count == 0) {
        if (size != at)
            return false;
        free(bytes);
        return true;
    }
    entries = raft_malloc(count * sizeof *entries);
    INVARIANT(entries != NULL);
    for (size_t i = 0; i < count; i++, at += ENTRY_HEADER) {
        size_t length = get_u32(bytes + at + 8);
        unsigned type = bytes[at + 12];
        uint64_t term;

        memcpy(&term, bytes + at, sizeof term);
        if (length > size - data || length % 8 != 0 || type < RAFT_COMMAND || type > RAFT_CHANGE ||
            (type == RAFT_CHANGE && !message_is_configuration(bytes + data, length)))
            goto broken;
        entries[i] = (struct raft_entry){.term = le64toh(term),
                                         .type = (enum raft_entry_type)type,
                                         .buf = {bytes + data, length},
                                         .batch = bytes};
        data += length;
    }
    if (data != size)
        goto broken;
    append->entries = entries;
    return true;

broken:
    raft_free(entries);
    return false;
}

static bool decode_snapshot(unsigned char *bytes, size_t size,
                            struct raft_install_snapshot *install)
{
    size_t at = HEADER + 5 * sizeof(uint64_t);
    uint64_t length = get(bytes, 4);
    struct raft_buffer configuration = {bytes + at, (size_t)length};
    size_t left;

    if (length > CONFIGURATION_MAX || length > size - at ||
        !message_is_configuration(bytes + at, (size_t)length))
        return false;
    raft_configuration_init(&install->conf);
    if (raft_configuration_decode(&configuration, &install->conf) != 0)
        return false;
    left = size - at - (size_t)length;
    /* libraft wants the snapshot by itself. */
    memmove(bytes, bytes + at + length, left);
    install->data = (struct raft_buffer){bytes, left};
    return true;
}

static void decode_small(const unsigned char *bytes, struct raft_message *message)
{
    unsigned flags = bytes[2];

    switch (message->type) {
    case RAFT_APPEND_ENTRIES_RESULT:
        message->append_entries_result =
            (struct raft_append_entries_result){.version = bytes[3],
                                                .term = get(bytes, 0),
                                                .rejected = get(bytes, 1),
                                                .last_log_index = get(bytes, 2),
                                                .features = (unsigned short)(get(bytes, 3) >> 16),
                                                .capacity = (unsigned short)get(bytes, 3)};
        break;
    case RAFT_REQUEST_VOTE:
        message->request_vote = (struct raft_request_vote){.version = bytes[3],
                                                           .term = get(bytes, 0),
                                                           .candidate_id = get(bytes, 1),
                                                           .last_log_index = get(bytes, 2),
                                                           .last_log_term = get(bytes, 3),
                                                           .disrupt_leader = flags & FLAG_DISRUPT,
                                                           .pre_vote = flags & FLAG_PRE_VOTE};
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        message->request_vote_result =
            (struct raft_request_vote_result){.version = bytes[3],
                                              .term = get(bytes, 0),
                                              .vote_granted = flags & FLAG_GRANTED,
                                              .pre_vote = flags & FLAG_PRE_VOTE,
                                              .features = (unsigned short)(get(bytes, 1) >> 16),
                                              .capacity = (unsigned short)get(bytes, 1)};
        break;
    default:
        message->timeout_now = (struct raft_timeout_now){.version = bytes[3],
                                                         .term = get(bytes, 0),
                                                         .last_log_index = get(bytes, 1),
                                                         .last_log_term = get(bytes, 2)};
        break;
    }
}

bool message_decode(void *memory, size_t size, struct raft_message *ret_message)
{
    unsigned char *bytes = memory;
    unsigned numbers = size >= HEADER ? numbers_of(bytes[1]) : 0;

    if (numbers == 0 || bytes[0] != VERSION || bytes[2] > FLAGS ||
        size < HEADER + numbers * sizeof(uint64_t))
        return false;
    memset(ret_message, 0, sizeof *ret_message);
    ret_message->type = (enum raft_message_type)bytes[1];
    if (ret_message->type == RAFT_APPEND_ENTRIES) {
        ret_message->append_entries = (struct raft_append_entries){.version = bytes[3],
                                                                   .term = get(bytes, 0),
                                                                   .prev_log_index = get(bytes, 1),
                                                                   .prev_log_term = get(bytes, 2),
                                                                   .leader_commit = get(bytes, 3)};
        return decode_entries(bytes, size, &ret_message->append_entries);
    }
    if (ret_message->type == RAFT_INSTALL_SNAPSHOT) {
        ret_message->install_snapshot = (struct raft_install_snapshot){.version = bytes[3],
                                                                       .term = get(bytes, 0),
                                                                       .last_index = get(bytes, 1),
                                                                       .last_term = get(bytes, 2),
                                                                       .conf_index = get(bytes, 3)};
        return decode_snapshot(bytes, size, &ret_message->install_snapshot);
    }
    if (size != HEADER + numbers * sizeof(uint64_t) || get_u32(bytes + 4) != 0)
        return false;
    decode_small(bytes, ret_message);
    free(bytes);
    return true;
}
