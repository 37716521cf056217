#include "base/futex.h"
#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, which stands still during a suspend, so
 * a sleep is cut into pieces of at most this much: after a resume a deadline is noticed that late.
 */
#define FUTEX_NAP_MAX_MS 1000

bool futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t mask, int64_t deadline_ms)
{
    struct timespec until;
    int64_t left_ms = deadline_ms - clock_boot_ms();

    if (left_ms <= 0)
        return false;
    if (left_ms > FUTEX_NAP_MAX_MS)
        left_ms = FUTEX_NAP_MAX_MS;
    until = clock_monotonic_in(left_ms);
    return syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_BITSET, seen, &until, NULL, mask) == 0;
}

int futex_wake(_Atomic uint32_t *word, uint32_t mask, int count)
{
    long woken = syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_BITSET, count, NULL, NULL, mask);

    return woken > 0 ? (int)woken : 0;
}
