#include "cli/bench_stats.h"

#include <stdlib.h>

/* Below 64 ns each has its own; above, the five bits after the highest say which of its power of two. */
static size_t bucket_of(int64_t took_ns)
{
    uint64_t ns = took_ns > 0 ? (uint64_t)took_ns : 0;
    unsigned exponent;

    if (ns < 2 * BENCH_BUCKETS_EACH)
        return (size_t)ns;
    exponent = 63u - (unsigned)__builtin_clzll(ns);
    if (exponent >= BENCH_EXPONENT_MAX)
        return BENCH_BUCKETS - 1;
    return 2 * BENCH_BUCKETS_EACH + (exponent - 6) * BENCH_BUCKETS_EACH +
           (size_t)(ns >> (exponent - 5) & (BENCH_BUCKETS_EACH - 1));
}

/* The most that a bucket has. */
static int64_t bound_of(size_t bucket)
{
    size_t above, exponent;

    if (bucket < 2 * BENCH_BUCKETS_EACH)
        return (int64_t)bucket;
    above = bucket - 2 * BENCH_BUCKETS_EACH;
    exponent = 6 + above / BENCH_BUCKETS_EACH;
    return ((int64_t)(BENCH_BUCKETS_EACH + above % BENCH_BUCKETS_EACH + 1) << (exponent - 5)) - 1;
}

void bench_histogram_add(struct bench_histogram *histogram, int64_t took_ns)
{
    histogram->buckets[bucket_of(took_ns)]++;
    histogram->count++;
    if (took_ns > histogram->max_ns)
        histogram->max_ns = took_ns;
}

void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from)
{
    for (size_t i = 0; i < BENCH_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    if (from->max_ns > into->max_ns)
        into->max_ns = from->max_ns;
}

int64_t bench_histogram_at(const struct bench_histogram *histogram, double part)
{
    double wanted = part * (double)histogram->count;
    uint64_t seen = 0;

    for (size_t i = 0; i + 1 < BENCH_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return bound_of(i) < histogram->max_ns ? bound_of(i) : histogram->max_ns;
    }
    return histogram->max_ns;
}

struct bench_fairness bench_fairness_of(const uint64_t *cycles, size_t count)
{
    struct bench_fairness fairness = {1, 1, 1};
    double sum = 0, squares = 0, least = 0, most = 0, mean;

    for (size_t i = 0; i < count; i++) {
        double one = (double)cycles[i];

        sum += one;
        squares += one * one;
        least = i == 0 || one < least ? one : least;
        most = one > most ? one : most;
    }
    if (sum <= 0)
        return fairness;
    mean = sum / (double)count;
    fairness.jain = sum * sum / ((double)count * squares);
    fairness.least = least / mean;
    fairness.most = most / mean;
    return fairness;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
