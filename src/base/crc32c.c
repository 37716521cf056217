#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* with its lowest bit first */
#define SLICES 8               /* bytes that are looked up at once */

static uint32_t table[SLICES][256];

static void make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;

        for (int bit = 0; bit < 8; bit++)
            sum = (sum >> 1) ^ (sum & 1 ? POLYNOMIAL : 0);
        table[0][byte] = sum;
    }
    for (int slice = 1; slice < SLICES; slice++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t sum = table[slice - 1][byte];

            table[slice][byte] = (sum >> 8) ^ table[0][sum & 0xff];
        }
}

static uint32_t read_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t crc32c(uint32_t sum, const void *bytes, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const unsigned char *at = bytes;

    pthread_once(&once, make_table);
    sum = ~sum;
    for (; size >= SLICES; size -= SLICES, at += SLICES) {
        uint32_t low = sum ^ read_u32(at), high = read_u32(at + 4);

        sum = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
              table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
    }
    for (; size > 0; size--, at++)
        sum = (sum >> 8) ^ table[0][(sum ^ *at) & 0xff];
    return ~sum;
}
