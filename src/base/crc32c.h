/* crc32c.h: the checksum of what lies on disk (Castagnoli's polynomial, as in iSCSI and ext4). */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Begins with 0; of several pieces, each goes on with the sum of those before. */
uint32_t crc32c(uint32_t sum, const void *bytes, size_t size);
/* The same as on a processor that has no instruction for it. */
uint32_t crc32c_with_table(uint32_t sum, const void *bytes, size_t size);

#endif
