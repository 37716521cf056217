/* bytes.h: numbers and blocks on disk, for the files of this room. */
#ifndef JOURNAL_BYTES_H
#define JOURNAL_BYTES_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What is written at once begins and ends at such a border: disks do not write less, and O_DIRECT does
 * not either. */
#define BLOCK ((size_t)4096)

static inline size_t round_up(size_t size, size_t step)
{
    return (size + step - 1) / step * step;
}

/* On disk the lowest byte comes first. */
static inline void put_u32(unsigned char *at, uint32_t number)
{
    number = htole32(number);
    memcpy(at, &number, sizeof number);
}

static inline void put_u64(unsigned char *at, uint64_t number)
{
    number = htole64(number);
    memcpy(at, &number, sizeof number);
}

static inline uint32_t get_u32(const unsigned char *at)
{
    uint32_t number;

    memcpy(&number, at, sizeof number);
    return le32toh(number);
}

static inline uint64_t get_u64(const unsigned char *at)
{
    uint64_t number;

    memcpy(&number, at, sizeof number);
    return le64toh(number);
}

/* Zeroed memory that begins at a border. NULL: there is none. */
void *blocks_new(size_t size);

#endif
