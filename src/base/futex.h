/* futex.h: sleeping until a word changes, between threads or, through a shared mapping, processes.
 */
#ifndef BASE_FUTEX_H
#define BASE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sleeps while *word == seen, at most until deadline_ms (clock_boot_ms), or until a wake whose mask
 * shares a bit with ours: then, and only then, true. May return early; the caller looks again. */
bool futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t mask, int64_t deadline_ms);
/* Wakes at most `count` sleepers whose mask shares a bit; returns how many. */
int futex_wake(_Atomic uint32_t *word, uint32_t mask, int count);

#define FUTEX_MASK_ALL UINT32_MAX

#endif
