/* entry.c: entries of the log as bytes. All numbers are little-endian.
 *
 *     0  u8   version, 1
 *     1  u8   flags: 1 = first entry of its leader's term
 *     2  u16  elapsed ms
 *     4  u32  number of commands
 *     8  u64  origin: the process that packed it
 *    16  u64  sequence: its batches in order
 *    24  …    commands, then zeros up to a multiple of 8
 *
 * A command is its op (u8), its flags (u8) and its fields, in the order of the table below. Texts
 * have their length before them: u8 for leases and owners, u16 for names, u32 for results.
 *
 *     READ
 *     ACQUIRE   name lease mode:u8 permits:u32 ttl:u32 wait:u64 delay:u64 owner
 *     RELEASE   name lease token:u64
 *     RENEW     ttl:u32 count:u32 lease…
 *     END       lease ttl:u32
 *     LEAVE     name lease attachment:u32
 *     BREAK     name
 *     FLOOR     token:u64
 *     FINISH    name lease token:u64 keep:u64 result
 *     IDENTITY  16 bytes as a result */
#include "core/inside.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_VERSION 1
#define HEADER_SIZE 24u
#define FLAG_NEW_TERM 1
#define FIXED_MAX 64u /* bytes of a command besides its texts */

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

static void put_bytes(struct core_packer *packer, struct core_text text)
{
    if (text.size)
        memcpy(packer->bytes + packer->size, text.bytes, text.size);
    packer->size += text.size;
}

static void put_short(struct core_packer *packer, struct core_text text)
{
    put8(packer, (uint32_t)text.size);
    put_bytes(packer, text);
}

static void put_name(struct core_packer *packer, struct core_text text)
{
    put16(packer, (uint32_t)text.size);
    put_bytes(packer, text);
}

static void put_result(struct core_packer *packer, struct core_text text)
{
    put32(packer, (uint32_t)text.size);
    put_bytes(packer, text);
}

static void pack_acquire(struct core_packer *packer, const struct core_command *command)
{
    put_name(packer, command->name);
    put_short(packer, command->lease);
    put8(packer, (uint32_t)command->mode);
    put32(packer, command->permits);
    put32(packer, command->ttl_ms);
    put64(packer, command->wait_ms);
    put64(packer, command->delay_ms);
    put_short(packer, command->owner);
}

static void pack_renew(struct core_packer *packer, const struct core_command *command)
{
    put32(packer, command->ttl_ms);
    put32(packer, command->lease_count);
    for (uint32_t i = 0; i < command->lease_count; i++) {
        reserve(packer, HF_LEASE_MAX + 1);
        put_short(packer, command->leases[i]);
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
        put_name(packer, command->name);
        put_short(packer, command->lease);
        put64(packer, command->token);
        break;
    case CORE_RENEW:
        pack_renew(packer, command);
        break;
    case CORE_END:
        put_short(packer, command->lease);
        put32(packer, command->ttl_ms);
        break;
    case CORE_LEAVE:
        put_name(packer, command->name);
        put_short(packer, command->lease);
        put32(packer, command->attachment);
        break;
    case CORE_BREAK:
        put_name(packer, command->name);
        break;
    case CORE_FLOOR:
        put64(packer, command->token);
        break;
    case CORE_FINISH:
        put_name(packer, command->name);
        put_short(packer, command->lease);
        put64(packer, command->token);
        put64(packer, command->keep_ms);
        put_result(packer, command->result);
        break;
    case CORE_IDENTITY:
        put_result(packer, command->result);
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

uint32_t core_pack(struct core_packer *packer, const struct core_command *command)
{
    pack_header(packer);
    reserve(packer, FIXED_MAX + command->name.size + command->lease.size + command->owner.size +
                        command->result.size);
    put8(packer, command->op);
    put8(packer, command->flags);
    pack_fields(packer, command);
    return packer->count++;
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
    put8(packer, ENTRY_VERSION);
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

void *core_packer_take(struct core_packer *packer, size_t *ret_size)
{
    void *bytes = packer->bytes;

    *ret_size = packer->size;
    memset(packer, 0, sizeof *packer);
    return bytes;
}

void core_packer_clear(struct core_packer *packer)
{
    packer->size = 0;
    packer->count = 0;
}

void core_packer_free(struct core_packer *packer)
{
    free(packer->bytes);
    memset(packer, 0, sizeof *packer);
}

/* ---- unpacking -------------------------------------------------------------------------------- */

static bool get(struct unpacker *unpacker, void *value, size_t size)
{
    if ((size_t)(unpacker->end - unpacker->at) < size)
        return false;
    memcpy(value, unpacker->at, size);
    unpacker->at += size;
    return true;
}

static bool get32(struct unpacker *unpacker, uint32_t *ret_value)
{
    if (!get(unpacker, ret_value, sizeof *ret_value))
        return false;
    *ret_value = le32toh(*ret_value);
    return true;
}

static bool get64(struct unpacker *unpacker, uint64_t max, uint64_t *ret_value)
{
    if (!get(unpacker, ret_value, sizeof *ret_value))
        return false;
    *ret_value = le64toh(*ret_value);
    return *ret_value <= max;
}

static bool get_bytes(struct unpacker *unpacker, size_t size, struct core_text *ret_text)
{
    if ((size_t)(unpacker->end - unpacker->at) < size)
        return false;
    *ret_text = (struct core_text){(const char *)unpacker->at, size};
    unpacker->at += size;
    return true;
}

static bool get_short(struct unpacker *unpacker, size_t min, size_t max, struct core_text *ret_text)
{
    uint8_t size;

    return get(unpacker, &size, sizeof size) && size >= min && size <= max &&
           get_bytes(unpacker, size, ret_text);
}

static bool get_lease(struct unpacker *unpacker, struct core_text *ret_text)
{
    return get_short(unpacker, 1, HF_LEASE_MAX, ret_text);
}

static bool get_name(struct unpacker *unpacker, struct core_text *ret_text)
{
    uint16_t size;

    if (!get(unpacker, &size, sizeof size))
        return false;
    size = le16toh(size);
    return size >= 1 && size <= HF_NAME_MAX && get_bytes(unpacker, size, ret_text);
}

static bool get_result(struct unpacker *unpacker, struct core_text *ret_text)
{
    uint32_t size;

    return get32(unpacker, &size) && size <= CORE_RESULT_MAX && get_bytes(unpacker, size, ret_text);
}

static bool get_ttl(struct unpacker *unpacker, bool optional, uint32_t *ret_ttl_ms)
{
    return get32(unpacker, ret_ttl_ms) &&
           ((optional && *ret_ttl_ms == 0) ||
            (*ret_ttl_ms >= HF_TTL_MIN_MS && *ret_ttl_ms <= HF_TTL_MAX_MS));
}

static bool unpack_acquire(struct unpacker *unpacker, struct core_command *command)
{
    uint8_t mode;

    if (!get_name(unpacker, &command->name) || !get_lease(unpacker, &command->lease) ||
        !get(unpacker, &mode, sizeof mode) || !get32(unpacker, &command->permits) ||
        !get_ttl(unpacker, false, &command->ttl_ms) ||
        !get64(unpacker, UINT64_MAX, &command->wait_ms) ||
        !get64(unpacker, HF_DURATION_MAX_MS, &command->delay_ms) ||
        !get_short(unpacker, 0, HF_OWNER_MAX, &command->owner))
        return false;
    command->mode = mode;
    if (command->wait_ms > HF_DURATION_MAX_MS && command->wait_ms != CORE_FOREVER)
        return false;
    if (command->flags & CORE_ONCE && mode != HF_EXCLUSIVE)
        return false;
    if (mode == HF_PERMIT)
        return command->permits >= 1 && command->permits <= HF_PERMITS_MAX;
    return (mode == HF_EXCLUSIVE || mode == HF_SHARED) && command->permits == 0;
}

static bool unpack_renew(struct unpacker *unpacker, struct core_command *command)
{
    if (!get_ttl(unpacker, true, &command->ttl_ms) || !get32(unpacker, &command->lease_count) ||
        command->lease_count > CORE_RENEW_MAX)
        return false;
    for (uint32_t i = 0; i < command->lease_count; i++)
        if (!get_lease(unpacker, &unpacker->leases[i]))
            return false;
    command->leases = unpacker->leases;
    return true;
}

bool core_unpack(struct unpacker *unpacker, struct core_command *ret_command)
{
    struct core_command *command = ret_command;
    uint8_t op, flags;

    memset(command, 0, sizeof *command);
    if (!get(unpacker, &op, sizeof op) || !get(unpacker, &flags, sizeof flags))
        return false;
    command->op = op;
    command->flags = flags;
    switch (op) {
    case CORE_READ:
        return true;
    case CORE_ACQUIRE:
        return unpack_acquire(unpacker, command);
    case CORE_RELEASE:
        return get_name(unpacker, &command->name) && get_lease(unpacker, &command->lease) &&
               get64(unpacker, HF_TOKEN_MAX, &command->token);
    case CORE_RENEW:
        return unpack_renew(unpacker, command);
    case CORE_END:
        return get_lease(unpacker, &command->lease) && get_ttl(unpacker, true, &command->ttl_ms);
    case CORE_LEAVE:
        return get_name(unpacker, &command->name) && get_lease(unpacker, &command->lease) &&
               get32(unpacker, &command->attachment);
    case CORE_BREAK:
        return get_name(unpacker, &command->name);
    case CORE_FLOOR:
        return get64(unpacker, HF_TOKEN_MAX, &command->token);
    case CORE_FINISH:
        return get_name(unpacker, &command->name) && get_lease(unpacker, &command->lease) &&
               get64(unpacker, HF_TOKEN_MAX, &command->token) &&
               get64(unpacker, HF_DURATION_MAX_MS, &command->keep_ms) &&
               get_result(unpacker, &command->result) && flags & CORE_ONCE;
    case CORE_IDENTITY:
        return get_result(unpacker, &command->result) && command->result.size == 16;
    default:
        return false;
    }
}

bool core_entry_header(const void *bytes, size_t size, struct core_entry_header *ret_header)
{
    struct unpacker unpacker = {.at = bytes, .end = (const unsigned char *)bytes + size};
    uint8_t version, flags;
    uint16_t elapsed;

    if (size % 8 || size > CORE_ENTRY_MAX || !get(&unpacker, &version, 1) ||
        !get(&unpacker, &flags, 1) || !get(&unpacker, &elapsed, sizeof elapsed) ||
        !get32(&unpacker, &ret_header->count) ||
        !get64(&unpacker, UINT64_MAX, &ret_header->origin) ||
        !get64(&unpacker, UINT64_MAX, &ret_header->sequence))
        return false;
    ret_header->elapsed_ms = le16toh(elapsed);
    ret_header->new_term = flags & FLAG_NEW_TERM;
    return version == ENTRY_VERSION && flags <= FLAG_NEW_TERM &&
           ret_header->elapsed_ms <= CORE_ELAPSED_MAX_MS;
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

int core_unpack_begin(struct unpacker *unpacker, const void *bytes, size_t size,
                      struct core_text *leases, struct core_entry_header *ret_header,
                      struct error_text *err)
{
    struct core_command command;

    if (!core_entry_header(bytes, size, ret_header))
        return error_set(err, HF_EREFUSED, "an entry of the log that this version does not know");
    *unpacker = (struct unpacker){.at = (const unsigned char *)bytes + HEADER_SIZE,
                                  .end = (const unsigned char *)bytes + size,
                                  .leases = leases};
    for (uint32_t i = 0; i < ret_header->count; i++)
        if (!core_unpack(unpacker, &command))
            return error_set(err, HF_EREFUSED, "command %u of an entry of the log is damaged", i);
    if (!only_padding(unpacker))
        return error_set(err, HF_EREFUSED, "an entry of the log has bytes behind its commands");
    unpacker->at = (const unsigned char *)bytes + HEADER_SIZE;
    return HF_OK;
}
