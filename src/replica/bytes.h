/* bytes.h: numbers in messages and snapshots, the lowest byte first, and a reader that never reads too far. */
#ifndef REPLICA_BYTES_H
#define REPLICA_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes_writer {
    uint8_t *at;
};

static inline void write_u8(struct bytes_writer *writer, uint8_t value)
{
    *writer->at++ = value;
}

static inline void write_u32(struct bytes_writer *writer, uint32_t value)
{
    value = htole32(value);
    memcpy(writer->at, &value, sizeof value);
    writer->at += sizeof value;
}

static inline void write_u64(struct bytes_writer *writer, uint64_t value)
{
    value = htole64(value);
    memcpy(writer->at, &value, sizeof value);
    writer->at += sizeof value;
}

static inline void write_bytes(struct bytes_writer *writer, const void *bytes, size_t size)
{
    if (size > 0)
        memcpy(writer->at, bytes, size);
    writer->at += size;
}

/* What is not there reads as 0, and short is said at the end. */
struct bytes_reader {
    const uint8_t *at, *end;
    bool wrong;
};

static inline size_t bytes_left(const struct bytes_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}

static inline const uint8_t *read_bytes(struct bytes_reader *reader, size_t size)
{
    const uint8_t *at = reader->at;

    if (size > bytes_left(reader)) {
        reader->wrong = true;
        reader->at = reader->end;
        return NULL;
    }
    reader->at += size;
    return at;
}

static inline uint8_t read_u8(struct bytes_reader *reader)
{
    const uint8_t *at = read_bytes(reader, 1);

    return at ? *at : 0;
}

static inline bool read_bool(struct bytes_reader *reader)
{
    uint8_t value = read_u8(reader);

    reader->wrong = reader->wrong || value > 1;
    return value == 1;
}

static inline uint32_t read_u32(struct bytes_reader *reader)
{
    const uint8_t *at = read_bytes(reader, 4);
    uint32_t value = 0;

    if (at)
        memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline uint64_t read_u64(struct bytes_reader *reader)
{
    const uint8_t *at = read_bytes(reader, 8);
    uint64_t value = 0;

    if (at)
        memcpy(&value, at, sizeof value);
    return le64toh(value);
}

/* All was there, and nothing is left. */
static inline bool bytes_read(const struct bytes_reader *reader)
{
    return !reader->wrong && reader->at == reader->end;
}

#endif
