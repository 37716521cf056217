#include "base/sha1.h"

#include <stdint.h>
#include <string.h>

static uint32_t rotate_left(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

/* Section 4.1.1 and 4.2.1: what a round mixes in, and its constant. */
static uint32_t mix(int t, uint32_t b, uint32_t c, uint32_t d)
{
    if (t < 20)
        return ((b & c) ^ (~b & d)) + 0x5a827999;
    if (t < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (t < 60)
        return ((b & c) ^ (b & d) ^ (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void absorb(uint32_t state[5], const unsigned char block[64])
{
    uint32_t w[80], v[5];

    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (int t = 16; t < 80; t++)
        w[t] = rotate_left(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    memcpy(v, state, sizeof v);
    for (int t = 0; t < 80; t++) {
        uint32_t next = rotate_left(v[0], 5) + mix(t, v[1], v[2], v[3]) + v[4] + w[t];

        memmove(v + 1, v, 4 * sizeof *v);
        v[2] = rotate_left(v[2], 30);
        v[0] = next;
    }
    for (int i = 0; i < 5; i++)
        state[i] += v[i];
}

/* The 64 bytes at `at` of the padded message: the message, a one bit, zeros, its length in bits. */
static void padded_block(const unsigned char *bytes, size_t size, size_t at,
                         unsigned char ret_block[64])
{
    size_t left = at < size ? size - at : 0;

    memset(ret_block, 0, 64);
    if (left > 0)
        memcpy(ret_block, bytes + at, left < 64 ? left : 64);
    if (size >= at && left < 64)
        ret_block[left] = 0x80;
    if (left < 56)
        for (int i = 0; i < 8; i++)
            ret_block[63 - i] = (unsigned char)((uint64_t)size * 8 >> (8 * i));
}

void sha1(const void *bytes, size_t size, unsigned char ret_digest[SHA1_SIZE])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    unsigned char block[64];

    /* The padding takes at least nine bytes, so the last block begins no later than size + 8. */
    for (size_t at = 0; at <= size + 8; at += 64) {
        padded_block(bytes, size, at, block);
        absorb(state, block);
    }
    for (int i = 0; i < SHA1_SIZE; i++)
        ret_digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}
