/* tail.c: what is behind the last record of a journal: nothing, a write that was cut short, or damage.
 *
 * [J5] A sector that is not all zeros was written, as it was meant to be. One that is may not have been. */
#include "base/crc32c.h"
#include "journal/inside.h"

static bool is_blank(const struct found *found, size_t from, size_t to)
{
    const unsigned char *bytes = found->bytes + from;

    if (to > found->size)
        to = found->size;
    return from >= to || (!bytes[0] && memcmp(bytes, bytes + 1, to - from - 1) == 0);
}

/* All sectors that these bytes are in. One behind the end of the file was not: files are made large enough,
 * and only a group larger than that makes one grow. */
static bool was_written(const struct found *found, size_t from, size_t to)
{
    for (size_t at = from / SECTOR * SECTOR; at < to; at += SECTOR)
        if (at + SECTOR > found->size || is_blank(found, at, at + SECTOR))
            return false;
    return true;
}

uint32_t header_checksum(const unsigned char *header)
{
    return crc32c(0, header + 4, HEADER_SUMMED) >> 8;
}

/* Of a record that may follow the last one. */
static bool is_right_header(const struct found *found, size_t at, const struct placed *last)
{
    const unsigned char *header = found->bytes + at;
    uint64_t group = get_u64(header + 24);
    uint32_t left = get_u32(header + 56);

    if (get_u32(header + 60) >> 8 != header_checksum(header) ||
        get_u64(header + 32) != found->salt || get_u32(header + 4) > JOURNAL_RECORD_MAX)
        return false;
    return last->left > 0 ? group == last->group && left == last->left - 1
                          : group == last->group + 1;
}

enum tail tail_judge(const struct found *found, size_t at, const struct placed *last)
{
    if (last->left == 0 && is_blank(found, at, found->size))
        return TAIL_EMPTY;
    if (!was_written(found, at, at + RECORD_HEADER))
        return TAIL_TORN;
    if (!is_right_header(found, at, last))
        return TAIL_DAMAGED;
    return was_written(found, at, at + RECORD_HEADER + get_u32(found->bytes + at + 4))
               ? TAIL_DAMAGED
               : TAIL_TORN;
}

/* The salt was there before anything else, the header came with the first group. */
enum tail tail_judge_unbegun(const struct found *found)
{
    bool header = !is_blank(found, 0, SECTOR), records = !is_blank(found, BLOCK, found->size);

    if (header || (records && !found->salted))
        return TAIL_DAMAGED;
    return records ? TAIL_TORN : TAIL_EMPTY;
}

size_t tail_bytes(const struct found *found, size_t at)
{
    size_t end = found->size;

    while (end > at && !found->bytes[end - 1])
        end--;
    return end > at ? round_up(end, SECTOR) - at : 0;
}
