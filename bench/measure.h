/* measure.h: medians of interleaved rounds, and a table of ratios against a floor. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#define SERIES_MAX 256

int64_t measure_now_ns(void);

struct series {
    int count;
    double values[SERIES_MAX];
};

void series_add(struct series *series, double value);
double series_median(struct series *series);

/* One line: what, ours, the floor, their ratio, the bound, and whether it was kept. */
void report_ratio(const char *what, double ours, double floor, const char *unit, double bound);
void report_limit(const char *what, double ours, const char *unit, double bound);
/* How many bounds were not kept. */
int report_broken(void);

#endif
