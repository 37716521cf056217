/* hmac.h: HMAC-SHA-256 (RFC 2104): who has the key can make it, and nobody else. */
#ifndef BASE_HMAC_H
#define BASE_HMAC_H

#include "base/sha256.h"

#include <stdbool.h>

void hmac_sha256(const void *key, size_t key_size, const void *bytes, size_t size,
                 unsigned char ret_digest[SHA256_SIZE]);
/* How long it takes says nothing about where they differ. */
bool digests_match(const unsigned char a[SHA256_SIZE], const unsigned char b[SHA256_SIZE]);

#endif
