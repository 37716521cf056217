/* histogram.h: how long something took, counted in buckets that are always the same. Nothing is allocated, and to add costs some nanoseconds. */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BOUNDS 18

/* In microseconds, rising: a bucket has what took as long as its bound at most; the last bucket, which has none, all else. */
extern const uint32_t histogram_bounds_us[HISTOGRAM_BOUNDS];

struct histogram {
    uint64_t buckets[HISTOGRAM_BOUNDS + 1]; /* not cumulative */
    uint64_t sum_us;
};

/* What took less than nothing, by a clock that was looked at in another round, took no time. */
static inline void histogram_add(struct histogram *histogram, int64_t took_us)
{
    uint64_t us = took_us > 0 ? (uint64_t)took_us : 0;
    unsigned i = 0;

    while (i < HISTOGRAM_BOUNDS && us > histogram_bounds_us[i])
        i++;
    histogram->buckets[i]++;
    histogram->sum_us += us;
}

static inline uint64_t histogram_count(const struct histogram *histogram)
{
    uint64_t total = 0;

    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++)
        total += histogram->buckets[i];
    return total;
}

#endif
