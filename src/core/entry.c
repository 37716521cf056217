/* entry.c: entries of the log as bytes. Numbers of the header are little-endian.
 *
 *     0  u8   version: 1, or 2 if a command may have the flag CORE_QUOTA
 *     1  u8   flags: 1 = first entry of its leader's term
 *     2  u16  elapsed ms
 *     4  u32  number of commands
 *     8  u64  origin: the process that packed it
 *    16  u64  sequence: its batches in order
 *    24  …    commands, then zeros up to a multiple of 8
 *
 * A command is its op (u8), its flags (u8) and its fields, in the order of the table below. Numbers are
 * varints (seven bits to a byte, the least first, the eighth bit set if more follow), texts have
 * their length before them.
 *
 *     READ
 *     ACQUIRE   name lease mode permits ttl wait delay owner     wait: plus 1, 0 is for ever;
 *               and with CORE_QUOTA: user leases holds places    limits: 0 is none
 *     RELEASE   name lease token
 *     RENEW     ttl count lease…
 *     END       lease ttl
 *     LEAVE     name lease attachment
 *     BREAK     name
 *     FLOOR     token
 *     FINISH    name lease token keep result
 *     IDENTITY  16 bytes as a text, token
 *     MEMBER    id address */
#include "core/inside.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_VERSION 1
#define ENTRY_VERSION_USERS 2
#define HEADER_SIZE 24u
#define FLAG_NEW_TERM 1
#define VARINT_MAX 10u
#define FIXED_MAX (2 + 12 * VARINT_MAX) /* bytes of a command besides its texts */

/* ---- packing ---------------------------------------------------------------------------------- */

static void reserve(struct core_packer *packer, size_t size)
{
    if (packer->size + size <= packer->capacity)
        return;
    while (packer->size + size > packer->capacity)
        packer->capacity = packer->capacity ? 2 * packer->capacity : 4096;
    packer->bytes = core_realloc(packer->bytes, packer->capacity);
}

static void put8(struct core_packer *packer, uint32_t value)
{
    packer->bytes[packer->size++] = (unsigned char)value;
}

static void put16(struct core_packer *packer, uint32_t value)
{
    uint16_t le = htole16((uint16_t)value);

    memcpy(packer->bytes + packer->size, &le, sizeof le);
    packer->size += sizeof le;
}

static void put32(struct core_packer *packer, uint32_t value)
{
    uint32_t le = htole32(value);

    memcpy(packer->bytes + packer->size, &le, sizeof le);
    packer->size += sizeof le;
}

static void put64(struct core_packer *packer, uint64_t value)
{
    uint64_t le = htole64(value);

    memcpy(packer->bytes + packer->size, &le, sizeof le);
    packer->size += sizeof le;
}

static void put(struct core_packer *packer, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        put8(packer, (uint32_t)(number & 0x7f) | 0x80);
    put8(packer, (uint32_t)number);
}

static void put_text(struct core_packer *packer, struct core_text text)
{
    put(packer, text.size);
    if (text.size)
        memcpy(packer->bytes + packer->size, text.bytes, text.size);
    packer->size += text.size;
}

static void pack_acquire(struct core_packer *packer, const struct core_command *command)
{
    put_text(packer, command->name);
    put_text(packer, command->lease);
    put(packer, (uint64_t)command->mode);
    put(packer, command->permits);
    put(packer, command->ttl_ms);
    put(packer, command->wait_ms == CORE_FOREVER ? 0 : command->wait_ms + 1);
    put(packer, command->delay_ms);
    put_text(packer, command->owner);
    if (!(command->flags & CORE_QUOTA))
        return;
    put_text(packer, command->user);
    put(packer, command->quota.leases);
    put(packer, command->quota.holds);
    put(packer, command->quota.places);
}

static void pack_renew(struct core_packer *packer, const struct core_command *command)
{
    put(packer, command->ttl_ms);
    put(packer, command->lease_count);
    for (uint32_t i = 0; i < command->lease_count; i++) {
        reserve(packer, command->leases[i].size + VARINT_MAX);
        put_text(packer, command->leases[i]);
    }
}

static void pack_fields(struct core_packer *packer, const struct core_command *command)
{
    switch (command->op) {
    case CORE_READ:
        break;
    case CORE_ACQUIRE:
        pack_acquire(packer, command);
        break;
    case CORE_RELEASE:
        put_text(packer, command->name);
        put_text(packer, command->lease);
        put(packer, command->token);
        break;
    case CORE_RENEW:
        pack_renew(packer, command);
        break;
    case CORE_END:
        put_text(packer, command->lease);
        put(packer, command->ttl_ms);
        break;
    case CORE_LEAVE:
        put_text(packer, command->name);
        put_text(packer, command->lease);
        put(packer, command->attachment);
        break;
    case CORE_BREAK:
        put_text(packer, command->name);
        break;
    case CORE_FLOOR:
        put(packer, command->token);
        break;
    case CORE_FINISH:
        put_text(packer, command->name);
        put_text(packer, command->lease);
        put(packer, command->token);
        put(packer, command->keep_ms);
        put_text(packer, command->result);
        break;
    case CORE_IDENTITY:
        put_text(packer, command->result);
        put(packer, command->token);
        break;
    case CORE_MEMBER:
        put(packer, command->token);
        put_text(packer, command->result);
        break;
    }
}

static void pack_header(struct core_packer *packer)
{
    if (packer->size == 0) {
        reserve(packer, HEADER_SIZE);
        memset(packer->bytes, 0, HEADER_SIZE);
        packer->size = HEADER_SIZE;
    }
}

size_t core_packed_size(const struct core_packer *packer)
{
    size_t size = packer->size ? packer->size : HEADER_SIZE;

    return (size + 7) / 8 * 8;
}

void core_packer_finish(struct core_packer *packer, uint32_t elapsed_ms, bool new_term,
                        uint64_t origin, uint64_t sequence)
{
    size_t size;

    pack_header(packer);
    size = packer->size;
    INVARIANT(elapsed_ms <= CORE_ELAPSED_MAX_MS);
    packer->size = 0;
    put8(packer, packer->users ? ENTRY_VERSION_USERS : ENTRY_VERSION);
    put8(packer, new_term ? FLAG_NEW_TERM : 0);
    put16(packer, elapsed_ms);
    put32(packer, packer->count);
    put64(packer, origin);
    put64(packer, sequence);
    packer->size = size;
    reserve(packer, 8);
    while (packer->size % 8)
        put8(packer, 0);
}

/* Most entries are small, and are kept for as long as the end of the log: without the room that they did not need. */
void *core_packer_take(struct core_packer *packer, size_t *ret_size)
{
    void *bytes = core_realloc(packer->bytes, packer->size);

    *ret_size = packer->size;
    memset(packer, 0, sizeof *packer);
    return bytes;
}

void core_packer_clear(struct core_packer *packer)
{
    packer->size = 0;
    packer->count = 0;
    packer->users = false;
}

void core_packer_free(struct core_packer *packer)
{
    free(packer->bytes);
    memset(packer, 0, sizeof *packer);
}

/* ---- unpacking -------------------------------------------------------------------------------- */

static bool get_number(struct unpacker *unpacker, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;

    for (unsigned shift = 0; unpacker->at < unpacker->end && shift < 63; shift += 7) {
        unsigned char byte = *unpacker->at++;

        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_number = number;
            return number <= max;
        }
    }
    return false;
}

static bool get32(struct unpacker *unpacker, uint32_t max, uint32_t *ret_number)
{
    uint64_t number;

    if (!get_number(unpacker, max, &number))
        return false;
    *ret_number = (uint32_t)number;
    return true;
}

static bool get_text(struct unpacker *unpacker, size_t min, size_t max, struct core_text *ret_text)
{
    uint64_t size;

    if (!get_number(unpacker, max, &size) || size < min ||
        size > (size_t)(unpacker->end - unpacker->at))
        return false;
    *ret_text = (struct core_text){(const char *)unpacker->at, (size_t)size};
    unpacker->at += size;
    return true;
}

static bool get_lease(struct unpacker *unpacker, struct core_text *ret_text)
{
    return get_text(unpacker, 1, HF_LEASE_MAX, ret_text);
}

static bool get_name(struct unpacker *unpacker, struct core_text *ret_text)
{
    return get_text(unpacker, 1, HF_NAME_MAX, ret_text);
}

static bool get_token(struct unpacker *unpacker, uint64_t *ret_token)
{
    return get_number(unpacker, HF_TOKEN_MAX, ret_token);
}

static bool get_ttl(struct unpacker *unpacker, bool optional, uint32_t *ret_ttl_ms)
{
    return get32(unpacker, CORE_TTL_MAX_MS, ret_ttl_ms) &&
           ((optional && *ret_ttl_ms == 0) || *ret_ttl_ms >= HF_TTL_MIN_MS);
}

static bool unpack_quota(struct unpacker *unpacker, struct core_command *command)
{
    struct core_quota *quota = &command->quota;

    return unpacker->users && get_text(unpacker, 1, CORE_USER_MAX, &command->user) &&
           get32(unpacker, CORE_CLAIMS_MAX, &quota->leases) &&
           get32(unpacker, CORE_CLAIMS_MAX, &quota->holds) &&
           get32(unpacker, CORE_CLAIMS_MAX, &quota->places);
}

static bool unpack_acquire(struct unpacker *unpacker, struct core_command *command)
{
    uint32_t mode;
    uint64_t wait;

    if (!get_name(unpacker, &command->name) || !get_lease(unpacker, &command->lease) ||
        !get32(unpacker, HF_PERMIT, &mode) || !get32(unpacker, HF_PERMITS_MAX, &command->permits) ||
        !get_ttl(unpacker, false, &command->ttl_ms) ||
        !get_number(unpacker, CORE_SPAN_MAX_MS + 1, &wait) ||
        !get_number(unpacker, CORE_SPAN_MAX_MS, &command->delay_ms) ||
        !get_text(unpacker, 0, HF_OWNER_MAX, &command->owner))
        return false;
    command->wait_ms = wait == 0 ? CORE_FOREVER : wait - 1;
    command->mode = (int)mode;
    if (command->flags & CORE_ONCE && mode != HF_EXCLUSIVE)
        return false;
    if (command->flags & CORE_QUOTA && !unpack_quota(unpacker, command))
        return false;
    return (mode == HF_PERMIT) == (command->permits > 0);
}

static bool unpack_renew(struct unpacker *unpacker, struct core_command *command)
{
    if (!get_ttl(unpacker, true, &command->ttl_ms) ||
        !get32(unpacker, CORE_RENEW_MAX, &command->lease_count) || command->lease_count == 0)
        return false;
    for (uint32_t i = 0; i < command->lease_count; i++) {
        struct core_text lease;

        if (!get_lease(unpacker, &lease))
            return false;
        if (unpacker->leases)
            unpacker->leases[i] = lease;
    }
    command->leases = unpacker->leases;
    return true;
}

bool core_unpack(struct unpacker *unpacker, struct core_command *ret_command)
{
    struct core_command *command = ret_command;

    memset(command, 0, sizeof *command);
    if (unpacker->end - unpacker->at < 2)
        return false;
    command->op = unpacker->at[0];
    command->flags = unpacker->at[1];
    unpacker->at += 2;
    if (command->flags >= 2 * CORE_QUOTA) /* the last flag there is */
        return false;
    if (command->flags & CORE_QUOTA && command->op != CORE_ACQUIRE)
        return false;
    switch (command->op) {
    case CORE_READ:
        return true;
    case CORE_ACQUIRE:
        return unpack_acquire(unpacker, command);
    case CORE_RELEASE:
        return get_name(unpacker, &command->name) && get_lease(unpacker, &command->lease) &&
               get_token(unpacker, &command->token);
    case CORE_RENEW:
        return unpack_renew(unpacker, command);
    case CORE_END:
        return get_lease(unpacker, &command->lease) && get_ttl(unpacker, true, &command->ttl_ms);
    case CORE_LEAVE:
        return get_name(unpacker, &command->name) && get_lease(unpacker, &command->lease) &&
               get32(unpacker, UINT32_MAX, &command->attachment);
    case CORE_BREAK:
        return get_name(unpacker, &command->name);
    case CORE_FLOOR:
        return get_token(unpacker, &command->token);
    case CORE_FINISH:
        return get_name(unpacker, &command->name) && get_lease(unpacker, &command->lease) &&
               get_token(unpacker, &command->token) &&
               get_number(unpacker, CORE_SPAN_MAX_MS, &command->keep_ms) &&
               get_text(unpacker, 0, CORE_RESULT_MAX, &command->result) &&
               command->flags & CORE_ONCE;
    case CORE_IDENTITY:
        return get_text(unpacker, 16, 16, &command->result) && get_token(unpacker, &command->token);
    case CORE_MEMBER:
        return get_token(unpacker, &command->token) && command->token > 0 &&
               get_text(unpacker, 0, CORE_ADDRESS_MAX, &command->result);
    default:
        return false;
    }
}

uint32_t core_pack(struct core_packer *packer, const struct core_command *command)
{
    struct core_command again;
    struct unpacker unpacker = {.users = true};
    size_t before;

    if (command->lease_count > CORE_RENEW_MAX)
        return CORE_NOT_PACKED;
    pack_header(packer);
    before = packer->size;
    reserve(packer, FIXED_MAX + command->name.size + command->lease.size + command->owner.size +
                        command->user.size + command->result.size);
    put8(packer, command->op);
    put8(packer, command->flags);
    pack_fields(packer, command);
    unpacker.at = packer->bytes + before;
    unpacker.end = packer->bytes + packer->size;
    if (!core_unpack(&unpacker, &again) || unpacker.at != unpacker.end) {
        packer->size = before;
        return CORE_NOT_PACKED;
    }
    packer->users = packer->users || command->flags & CORE_QUOTA;
    return packer->count++;
}

/* ---- the whole -------------------------------------------------------------------------------- */

bool core_entry_header(const void *bytes, size_t size, struct core_entry_header *ret_header)
{
    struct {
        uint8_t version, flags;
        uint16_t elapsed;
        uint32_t count;
        uint64_t origin, sequence;
    } header;

    _Static_assert(sizeof header == HEADER_SIZE, "the header has no holes");
    if (size % 8 || size > CORE_ENTRY_MAX || size < sizeof header)
        return false;
    memcpy(&header, bytes, sizeof header);
    *ret_header = (struct core_entry_header){.elapsed_ms = le16toh(header.elapsed),
                                             .count = le32toh(header.count),
                                             .new_term = header.flags & FLAG_NEW_TERM,
                                             .users = header.version == ENTRY_VERSION_USERS,
                                             .origin = le64toh(header.origin),
                                             .sequence = le64toh(header.sequence)};
    return (header.version == ENTRY_VERSION || ret_header->users) &&
           header.flags <= FLAG_NEW_TERM && ret_header->elapsed_ms <= CORE_ELAPSED_MAX_MS;
}

static bool only_padding(const struct unpacker *unpacker)
{
    if (unpacker->end - unpacker->at >= 8)
        return false;
    for (const unsigned char *at = unpacker->at; at < unpacker->end; at++)
        if (*at)
            return false;
    return true;
}

int core_unpack_begin(struct unpacker *unpacker, struct core *core, const void *bytes, size_t size,
                      struct core_entry_header *ret_header, struct error_text *err)
{
    struct core_command command;

    if (!core_entry_header(bytes, size, ret_header))
        return error_set(err, HF_EREFUSED, "an entry of the log that this version does not know");
    *unpacker = (struct unpacker){.at = (const unsigned char *)bytes + HEADER_SIZE,
                                  .end = (const unsigned char *)bytes + size,
                                  .leases = core->renewing,
                                  .users = ret_header->users};
    for (uint32_t i = 0; i < ret_header->count; i++) {
        if (!core_unpack(unpacker, &command))
            return error_set(err, HF_EREFUSED, "command %u of an entry of the log is damaged", i);
        core_prefetch(core, i, &command);
    }
    if (!only_padding(unpacker))
        return error_set(err, HF_EREFUSED, "an entry of the log has bytes behind its commands");
    unpacker->at = (const unsigned char *)bytes + HEADER_SIZE;
    return HF_OK;
}
