#include "cli/bench.h"
#include "cli/json.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ROTATING 8
#define FAIR_MIN_CLIENTS 2u /* one client is always fair to itself */

const char *bench_time(double ns)
{
    static char buffers[ROTATING][32];
    static unsigned turn;
    char *out = buffers[turn++ % ROTATING];
    static const struct {
        double of_ns;
        const char *name;
    } units[] = {{1e3, "us"}, {1e6, "ms"}, {1e9, "s"}};
    size_t unit = ns < 999.5e3 ? 0 : ns < 999.5e6 ? 1 : 2;
    double value = ns / units[unit].of_ns;

    if (ns <= 0)
        return "-";
    snprintf(out, sizeof buffers[0], "%.*f %s",
             value < 10    ? 2
             : value < 100 ? 1
                           : 0,
             value, units[unit].name);
    return out;
}

const char *bench_number(double value)
{
    static char buffers[ROTATING][32];
    static unsigned turn;
    char *out = buffers[turn++ % ROTATING], plain[32];
    size_t used = 0, size;

    size = (size_t)snprintf(plain, sizeof plain, "%.*f", value < 100 && value > 0 ? 1 : 0, value);
    for (size_t i = 0; i < size && used + 2 < sizeof buffers[0]; i++) {
        size_t left = size - i;

        if (i > 0 && left % 3 == 0 && !memchr(plain, '.', size))
            out[used++] = ',';
        out[used++] = plain[i];
    }
    out[used] = '\0';
    return out;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void cell(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void cell(struct table *table, const char *format, ...)
{
    char text[BENCH_LABEL_MAX];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    table_cell(table, text);
}

static void row(struct table *table, const struct bench *bench, const struct bench_point *point)
{
    struct bench_medians medians = bench_point_medians(point);

    table_cell(table, bench_work_name(point->work));
    cell(table, "%" PRIu32, point->clients);
    table_cell(table, bench_number(medians.cycles_per_s));
    table_cell(table, bench_time(medians.p50_ns));
    table_cell(table, bench_time(medians.p99_ns));
    table_cell(table, bench_time(medians.p999_ns));
    cell(table, "%s%s", medians.max_is_least ? ">" : "", bench_time((double)medians.max_ns));
    if (point->total.handover.count > 0)
        cell(table, "%s / %s", bench_time(medians.handover_p50_ns),
             bench_time(medians.handover_p99_ns));
    else
        table_cell(table, "-");
    if (point->clients >= FAIR_MIN_CLIENTS && point->total.cycles > 0)
        cell(table, "%.3f", medians.jain);
    else
        table_cell(table, "-");
    cell(table, "%" PRIu64, bench_point_failed(point) + point->violations);
    table_cell(table, bench_time(medians.cpu_ns));
    table_cell(table, printable(bench->targets[point->target].label));
}

int bench_print_table(const struct bench *bench)
{
    static const char *const titles[] = {"WORK",     "CLIENTS", "CYCLES/S",  "P50",
                                         "P99",      "P99.9",   "MAX",       "HAND-OVER P50/P99",
                                         "FAIRNESS", "FAILED",  "CPU/CYCLE", "STORE"};
    struct table table;
    int status;

    table_begin(&table, (int)(sizeof titles / sizeof *titles));
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        table_cell(&table, titles[i]);
    for (size_t i = 0; i < bench->point_count; i++)
        if (bench->points[i].round_count > 0)
            row(&table, bench, &bench->points[i]);
    status = table_end(&table);
    printf(
        "\nmedians of %u round%s of %.3g s%s; times are of acquiring; %s of the CPU per cycle are "
        "the bench's own\n",
        (unsigned)bench->plan.rounds, bench->plan.rounds == 1 ? "" : "s",
        (double)bench->plan.round_ms / 1000,
        bench->interrupted ? ", interrupted before all were run" : "", bench_time(bench->loop_ns));
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void times(struct json *json, const char *key, const struct bench_histogram *histogram,
                  double p50_ns, double p99_ns, double p999_ns, int64_t max_ns)
{
    if (histogram->count == 0) {
        json_string(json, key, NULL);
        return;
    }
    json_object(json, key);
    json_u64(json, "count", histogram->count);
    json_real(json, "p50_us", p50_ns / 1e3, 3);
    json_real(json, "p99_us", p99_ns / 1e3, 3);
    json_real(json, "p999_us", p999_ns / 1e3, 3);
    json_real(json, "max_us", (double)max_ns / 1e3, 3);
    json_close(json, '}');
}

static void settings(struct json *json, const struct bench *bench, const struct bench_point *point)
{
    const struct bench_target *target = &bench->targets[point->target];
    const struct bench_plan *plan = &bench->plan;

    json_string(json, "store", target->label);
    json_string(json, "work", bench_work_name(point->work));
    json_u64(json, "clients", point->clients);
    json_bool(json, "blocking", plan->is_blocking);
    json_u64(json, "threads",
             plan->is_blocking || point->clients < target->handle_count ? point->clients
                                                                        : target->handle_count);
    json_u64(json, "names", plan->names);
    json_ms(json, "hold_ms", plan->hold_ms);
    json_ms(json, "round_ms", plan->round_ms);
}

static void went_wrong(struct json *json, const struct bench_point *point)
{
    const struct bench_tally *total = &point->total;

    json_u64(json, "violations", point->violations);
    json_u64(json, "failures", total->failures);
    json_u64(json, "unknown", total->unknowns);
    json_u64(json, "lost", total->lost);
    json_string(json, "last_failure", total->words[0] ? total->words : NULL);
    json_u64(json, "unfinished", total->unfinished);
    json_real(json, "unfinished_max_us", (double)total->unfinished_ns / 1e3, 3);
}

static void per_cycle(struct json *json, const struct bench_medians *medians, bool has_cycles)
{
    if (!has_cycles) {
        json_string(json, "fairness", NULL);
        json_string(json, "cpu_us_per_cycle", NULL);
        return;
    }
    json_object(json, "fairness");
    json_real(json, "jain", medians->jain, 4);
    json_real(json, "least", medians->share_least, 4);
    json_real(json, "most", medians->share_most, 4);
    json_close(json, '}');
    json_real(json, "cpu_us_per_cycle", medians->cpu_ns / 1e3, 3);
}

static void print_point(const struct bench *bench, const struct bench_point *point)
{
    struct bench_medians medians = bench_point_medians(point);
    const struct bench_tally *total = &point->total;
    struct json json;

    json_begin(&json);
    settings(&json, bench, point);
    json_u64(&json, "rounds", point->round_count);
    json_u64(&json, "cycles", total->cycles);
    json_real(&json, "cycles_per_s", medians.cycles_per_s, 1);
    json_array(&json, "cycles_per_s_rounds");
    for (size_t i = 0; i < point->round_count; i++)
        json_real(&json, NULL, point->rounds[i].cycles_per_s, 1);
    json_close(&json, ']');
    times(&json, "acquire", &total->acquire, medians.p50_ns, medians.p99_ns, medians.p999_ns,
          total->acquire.max_ns);
    times(&json, "handover", &total->handover, medians.handover_p50_ns, medians.handover_p99_ns,
          medians.handover_p999_ns, medians.handover_max_ns);
    per_cycle(&json, &medians, total->cycles > 0);
    json_real(&json, "bench_us_per_cycle", bench->loop_ns / 1e3, 3);
    went_wrong(&json, point);
    json_end(&json);
}

void bench_print_json(const struct bench *bench)
{
    for (size_t i = 0; i < bench->point_count; i++)
        if (bench->points[i].round_count > 0 || bench_point_failed(&bench->points[i]) > 0 ||
            bench->points[i].violations > 0)
            print_point(bench, &bench->points[i]);
}
