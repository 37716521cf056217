#include "base/hmac.h"
#include "base/error.h"

#include <stdint.h>
#include <string.h>

#define BLOCK 64
#define MESSAGE_MAX 512 /* what is proved here is short */

void hmac_sha256(const void *key, size_t key_size, const void *bytes, size_t size,
                 unsigned char ret_digest[SHA256_SIZE])
{
    unsigned char inner[BLOCK + MESSAGE_MAX], outer[BLOCK + SHA256_SIZE], padded[BLOCK] = {0};

    INVARIANT(size <= MESSAGE_MAX);
    if (key_size > BLOCK)
        sha256(key, key_size, padded);
    else if (key_size > 0)
        memcpy(padded, key, key_size);
    for (size_t i = 0; i < BLOCK; i++) {
        inner[i] = padded[i] ^ 0x36;
        outer[i] = padded[i] ^ 0x5c;
    }
    memcpy(inner + BLOCK, bytes, size);
    sha256(inner, BLOCK + size, outer + BLOCK);
    sha256(outer, sizeof outer, ret_digest);
    explicit_bzero(padded, sizeof padded);
    explicit_bzero(inner, sizeof inner);
    explicit_bzero(outer, sizeof outer);
}

bool digests_match(const unsigned char a[SHA256_SIZE], const unsigned char b[SHA256_SIZE])
{
    volatile unsigned char differences = 0; /* volatile: no way out before the last byte */

    for (size_t i = 0; i < SHA256_SIZE; i++)
        differences |= (unsigned char)(a[i] ^ b[i]);
    return differences == 0;
}
