/* bench_stats.h: the arithmetic of `holdfast bench`: how long things took, how evenly clients were served, medians. Knows no locks. */
#ifndef CLI_BENCH_STATS_H
#define CLI_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Each power of two has 32 buckets, so a percentile is at most 3 % above the truth; base/histogram.h, whose bounds are a server's for
 * ever, has some three for each power of ten. */
#define BENCH_BUCKETS_EACH 32
#define BENCH_EXPONENT_MAX \
    41 /* 2^41 ns are 36 minutes: what took longer counts as that; its length is in max_ns */
#define BENCH_BUCKETS (2 * BENCH_BUCKETS_EACH + (BENCH_EXPONENT_MAX - 6) * BENCH_BUCKETS_EACH)

struct bench_histogram {
    uint64_t buckets[BENCH_BUCKETS];
    uint64_t count;
    int64_t max_ns;
};

void bench_histogram_add(struct bench_histogram *histogram, int64_t took_ns);
void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from);
/* part: 0.999 of p99.9. Never less than the truth; 0 of an empty one. */
int64_t bench_histogram_at(const struct bench_histogram *histogram, double part);

/* Of how many cycles each client had. */
struct bench_fairness {
    double jain; /* 1: all had the same; 1/n: one had everything */
    double least,
        most; /* shares of the one that had least and of the one that had most: 1 is the mean */
};
/* All ones if there was nothing to share. */
struct bench_fairness bench_fairness_of(const uint64_t *cycles, size_t count);

/* Sorts them. 0 of none. */
double bench_median(double *values, size_t count);

#endif
