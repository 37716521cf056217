#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

#define UNKNOWN \
    (-1.0) /* of a round in which that did not happen: it is none of those of which the median is taken */

const char *bench_work_name(enum bench_work work)
{
    static const char *const names[] = {"spread", "hot", "mix"};

    return names[work];
}

void bench_tally_merge(struct bench_tally *into, const struct bench_tally *from)
{
    bench_histogram_merge(&into->acquire, &from->acquire);
    bench_histogram_merge(&into->handover, &from->handover);
    into->cycles += from->cycles;
    into->failures += from->failures;
    into->unknowns += from->unknowns;
    into->lost += from->lost;
    into->unfinished += from->unfinished;
    if (from->unfinished_ns > into->unfinished_ns)
        into->unfinished_ns = from->unfinished_ns;
    if (from->words[0])
        snprintf(into->words, sizeof into->words, "%s", from->words);
}

static double figure_at(const struct bench_histogram *histogram, double part)
{
    return histogram->count > 0 ? (double)bench_histogram_at(histogram, part) : UNKNOWN;
}

void bench_point_add(struct bench_point *point, const struct bench_round *round)
{
    const struct bench_tally *tally = &round->tally;
    bool has_cycles = tally->cycles > 0;
    struct bench_figures *figures;

    bench_tally_merge(&point->total, tally);
    if (point->round_count == BENCH_ROUNDS_MAX)
        return;
    figures = &point->rounds[point->round_count++];
    figures->cycles_per_s = (double)tally->cycles * 1e9 / (double)round->took_ns;
    figures->p50_ns = figure_at(&tally->acquire, 0.5);
    figures->p99_ns = figure_at(&tally->acquire, 0.99);
    figures->p999_ns = figure_at(&tally->acquire, 0.999);
    figures->handover_p50_ns = figure_at(&tally->handover, 0.5);
    figures->handover_p99_ns = figure_at(&tally->handover, 0.99);
    figures->handover_p999_ns = figure_at(&tally->handover, 0.999);
    figures->jain = has_cycles ? round->fairness.jain : UNKNOWN;
    figures->share_least = has_cycles ? round->fairness.least : UNKNOWN;
    figures->share_most = has_cycles ? round->fairness.most : UNKNOWN;
    figures->cpu_ns = has_cycles ? (double)round->cpu_ns / (double)tally->cycles : UNKNOWN;
}

void bench_point_note(struct bench_point *point, const struct bench_tally *tally)
{
    point->total.failures += tally->failures;
    point->total.unknowns += tally->unknowns;
    point->total.lost += tally->lost;
    if (tally->words[0])
        snprintf(point->total.words, sizeof point->total.words, "%s", tally->words);
}

/* Of the field that is so many bytes into the figures of a round. 0: no round has it. */
static double median_of(const struct bench_point *point, size_t offset)
{
    double values[BENCH_ROUNDS_MAX], value;
    size_t count = 0;

    for (size_t i = 0; i < point->round_count; i++) {
        memcpy(&value, (const char *)&point->rounds[i] + offset, sizeof value);
        if (value >= 0)
            values[count++] = value;
    }
    return bench_median(values, count);
}

#define MEDIAN(point, field) median_of(point, offsetof(struct bench_figures, field))

struct bench_medians bench_point_medians(const struct bench_point *point)
{
    struct bench_medians medians = {
        .cycles_per_s = MEDIAN(point, cycles_per_s),
        .p50_ns = MEDIAN(point, p50_ns),
        .p99_ns = MEDIAN(point, p99_ns),
        .p999_ns = MEDIAN(point, p999_ns),
        .handover_p50_ns = MEDIAN(point, handover_p50_ns),
        .handover_p99_ns = MEDIAN(point, handover_p99_ns),
        .handover_p999_ns = MEDIAN(point, handover_p999_ns),
        .jain = MEDIAN(point, jain),
        .share_least = MEDIAN(point, share_least),
        .share_most = MEDIAN(point, share_most),
        .cpu_ns = MEDIAN(point, cpu_ns),
        .max_ns = point->total.acquire.max_ns,
        .handover_max_ns = point->total.handover.max_ns,
    };

    for (size_t i = 0; i < point->round_count; i++) {
        double one = point->rounds[i].cycles_per_s;

        medians.cycles_least = i == 0 || one < medians.cycles_least ? one : medians.cycles_least;
        medians.cycles_most = one > medians.cycles_most ? one : medians.cycles_most;
    }
    medians.max_is_least = point->total.unfinished_ns > medians.max_ns;
    if (medians.max_is_least)
        medians.max_ns = point->total.unfinished_ns;
    return medians;
}

uint64_t bench_point_failed(const struct bench_point *point)
{
    return point->total.failures + point->total.unknowns + point->total.lost;
}
