#include "base/clock.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t test_shift_ns;

static int64_t read_ns(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_boot_ns(void)
{
    return read_ns(CLOCK_BOOTTIME) + atomic_load_explicit(&test_shift_ns, memory_order_relaxed);
}

int64_t clock_boot_ms(void)
{
    return clock_boot_ns() / 1000000;
}

int64_t clock_wall_ms(void)
{
    return read_ns(CLOCK_REALTIME) / 1000000;
}

int64_t clock_wall_us(void)
{
    return read_ns(CLOCK_REALTIME) / 1000;
}

uint64_t clock_first_token(int64_t wall_us)
{
    return wall_us >= CLOCK_WALL_MIN_US && wall_us < CLOCK_WALL_MAX_US ? (uint64_t)wall_us : 0;
}

int64_t clock_after(int64_t from_ms, int64_t span_ms)
{
    if (span_ms >= CLOCK_NEVER - from_ms)
        return CLOCK_NEVER;
    return from_ms + span_ms;
}

struct timespec clock_monotonic_in(int64_t span_ms)
{
    int64_t then_ns = read_ns(CLOCK_MONOTONIC) + span_ms * 1000000;

    return (struct timespec){.tv_sec = (time_t)(then_ns / 1000000000),
                             .tv_nsec = (long)(then_ns % 1000000000)};
}

void clock_test_shift_ms(int64_t shift_ms)
{
    atomic_store(&test_shift_ns, shift_ms * 1000000);
}
