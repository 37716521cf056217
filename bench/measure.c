#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int broken;

int64_t measure_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void series_add(struct series *series, double value)
{
    if (series->count < SERIES_MAX)
        series->values[series->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double series_median(struct series *series)
{
    qsort(series->values, (size_t)series->count, sizeof *series->values, compare);
    return series->count ? series->values[series->count / 2] : 0;
}

static void verdict(double value, double bound)
{
    bool kept = value <= bound;

    broken += !kept;
    printf("  at most %-6.2f %s\n", bound, kept ? "kept" : "BROKEN");
    fflush(stdout);
}

void report_ratio(const char *what, double ours, double floor, const char *unit, double bound)
{
    printf("%-44s %9.2f %-3s floor %9.2f  ratio %5.2f", what, ours, unit, floor, ours / floor);
    verdict(ours / floor, bound);
}

void report_limit(const char *what, double ours, const char *unit, double bound)
{
    printf("%-44s %9.2f %-3s %28s", what, ours, unit, "");
    verdict(ours, bound);
}

int report_broken(void)
{
    return broken;
}
