/* random.h: bytes nobody can guess (leases) and numbers that spread retries (jitter). */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* From the kernel. Aborts if the kernel has none, which it promises not to happen after boot. */
void random_fill(void *bytes, size_t size);
/* 0 to limit-1, near enough to even for jitter; 0 when limit is 0. */
uint64_t random_below(uint64_t limit);

#endif
