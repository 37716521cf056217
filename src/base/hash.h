/* hash.h: a quick 64-bit hash (FNV-1a over words, then mixed). For tables and for telling torn
 * bytes from whole ones; not against an adversary. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *bytes, size_t size);

#endif
