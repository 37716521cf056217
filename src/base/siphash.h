/* siphash.h: SipHash-1-3 (Aumasson and Bernstein). For tables whose keys come from outside: nobody who does not know the
 * secret seed can make keys collide. */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIPHASH_SEED 16 /* bytes, random */

static inline uint64_t siphash_load(const unsigned char *bytes, size_t size)
{
    uint64_t word = 0;

    memcpy(&word, bytes, size);
    return word;
}

static inline uint64_t siphash_rotate(uint64_t word, int by)
{
    return word << by | word >> (64 - by);
}

static inline void siphash_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = siphash_rotate(v[1], 13) ^ v[0];
    v[3] = siphash_rotate(v[3], 16) ^ v[2];
    v[0] = siphash_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = siphash_rotate(v[1], 17) ^ v[2];
    v[3] = siphash_rotate(v[3], 21) ^ v[0];
    v[2] = siphash_rotate(v[2], 32);
}

/* kind: keys of different kinds have different hashes under the same seed. */
static inline uint64_t siphash(const unsigned char seed[SIPHASH_SEED], uint64_t kind,
                               const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t k0 = siphash_load(seed, 8), k1 = siphash_load(seed + 8, 8) ^ kind, word;
    uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                     k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    size_t left = size;

    for (; left >= 8; left -= 8, at += 8) {
        word = siphash_load(at, 8);
        v[3] ^= word;
        siphash_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)size << 56 | siphash_load(at, left);
    v[3] ^= word;
    siphash_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
