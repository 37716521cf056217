/* sha256.h: FIPS 180-4. For digests of leases and for file names of long lock names. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>

#define SHA256_SIZE 32

void sha256(const void *bytes, size_t size, unsigned char ret_digest[SHA256_SIZE]);

#endif
