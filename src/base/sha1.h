/* sha1.h: FIPS 180-4. It names Lua scripts for Redis' EVALSHA, which wants this digest and no
 * other. It protects nothing: collisions can be made. What needs protection takes sha256.h. */
#ifndef BASE_SHA1_H
#define BASE_SHA1_H

#include <stddef.h>

#define SHA1_SIZE 20

void sha1(const void *bytes, size_t size, unsigned char ret_digest[SHA1_SIZE]);

#endif
