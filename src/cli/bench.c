/* bench.c: holdfast bench [--on URL]... */
#include "cli/bench.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/bench_work.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_DEFAULT 8
#define ROUNDS_DEFAULT 3
#define NAMES_DEFAULT 256
#define THREADS_DEFAULT 2
#define WHOLE_MS 12000 /* all rounds, with their warm-up, unless told how long */
#define ROUND_MIN_MS 10
#define ROUND_DEFAULT_MIN_MS 200
#define ROUND_DEFAULT_MAX_MS 2000
#define ROUND_MAX_MS 3600000
#define WARM_PART 5 /* of a round */
#define WARM_MAX_MS 500

enum {
    OPT_QUIET = 'q',
    OPT_WORK = 256,
    OPT_CLIENTS,
    OPT_SECONDS,
    OPT_ROUNDS,
    OPT_NAMES,
    OPT_HOLD,
    OPT_THREADS,
    OPT_BLOCKING,
    OPT_REPORT
};

static const struct option_spec options[] = {
    {OPT_WORK, "work", "WORK", "spread, hot, mix, or several: spread,hot (all)"},
    {OPT_CLIENTS, "clients", "N[,N...]", "at the same time (8; with --report 1,8,64)"},
    {OPT_SECONDS, "seconds", "DUR", "of a round (as many as make 12 s in all)"},
    {OPT_ROUNDS, "rounds", "N", "of each; their median counts (3)"},
    {OPT_NAMES, "names", "N", "that are spread over the clients (256; at least one for each)"},
    {OPT_HOLD, "hold", "DUR", "hold each lock for so long (0)"},
    {OPT_THREADS, "threads", "N", "that drive the clients, each with a handle of its own (2)"},
    {OPT_BLOCKING, "blocking", NULL,
     "each client is a thread that calls and waits; they share the handles"},
    {OPT_REPORT, "report", "FILE", "write a page with plots: HTML, all in one file"},
    {OPT_QUIET, "quiet", NULL, "no live line, nor warnings"},
    {0},
};

/* ---- options --------------------------------------------------------------------------------- */

static bool has_work(const struct bench_plan *plan, enum bench_work work)
{
    for (size_t i = 0; i < plan->work_count; i++)
        if (plan->works[i] == work)
            return true;
    return false;
}

/* BENCH_WORKS: there is no such work. */
static enum bench_work work_named(const char *name, size_t length)
{
    unsigned work = 0;

    while (work < BENCH_WORKS &&
           (strlen(bench_work_name((enum bench_work)work)) != length ||
            memcmp(bench_work_name((enum bench_work)work), name, length) != 0))
        work++;
    return (enum bench_work)work;
}

static bool take_works(struct bench_plan *plan, const struct args *args)
{
    const char *at = args->value;

    plan->work_count = 0;
    while (*at) {
        size_t length = strcspn(at, ",");
        enum bench_work work = work_named(at, length);

        if (work == BENCH_WORKS)
            break;
        if (!has_work(plan, work))
            plan->works[plan->work_count++] = work;
        at += length + (at[length] == ',');
    }
    if (!*at && plan->work_count > 0)
        return true;
    args_complain(args, "--work '%s' is not spread, hot, mix, or several of them with commas",
                  printable(args->value));
    return false;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static bool take_clients(struct bench_plan *plan, const struct args *args)
{
    const char *at = args->value;
    bool fine = *at != '\0';

    plan->client_count = 0;
    while (fine && *at) {
        size_t length = strcspn(at, ",");
        char part[16];
        uint64_t number = 0;

        snprintf(part, sizeof part, "%.*s", (int)length, at);
        fine = plan->client_count < BENCH_SERIES_MAX &&
               text_to_u64(part, BENCH_CLIENTS_MAX, &number) && number > 0;
        if (fine)
            plan->clients[plan->client_count++] = (uint32_t)number;
        at += length + (at[length] == ',');
    }
    if (!fine) {
        args_complain(args, "--clients '%s' is not a number from 1 to %u, or up to %d with commas",
                      printable(args->value), BENCH_CLIENTS_MAX, BENCH_SERIES_MAX);
        return false;
    }
    qsort(plan->clients, plan->client_count, sizeof *plan->clients, compare);
    return true;
}

static bool take_u32(const struct args *args, const char *option, uint32_t max, uint32_t *ret_value)
{
    uint64_t value;

    if (!args_number(args, option, 1, max, &value))
        return false;
    *ret_value = (uint32_t)value;
    return true;
}

static bool take_option(struct bench_plan *plan, const struct args *args, int id)
{
    switch (id) {
    case OPT_WORK:
        return take_works(plan, args);
    case OPT_CLIENTS:
        return take_clients(plan, args);
    case OPT_SECONDS:
        return args_duration(args, "--seconds", ROUND_MIN_MS, ROUND_MAX_MS, &plan->round_ms);
    case OPT_ROUNDS:
        return take_u32(args, "--rounds", BENCH_ROUNDS_MAX, &plan->rounds);
    case OPT_NAMES:
        return args_number(args, "--names", 1, BENCH_NAMES_MAX, &plan->names);
    case OPT_HOLD:
        return args_duration(args, "--hold", 0, ROUND_MAX_MS, &plan->hold_ms);
    default:
        return take_u32(args, "--threads", BENCH_THREADS_MAX, &plan->threads);
    }
}

/* Returns an exit status, or -1. */
static int parse(struct bench_plan *plan, struct cli *cli, struct args *args,
                 const char **ret_report)
{
    bool fine = true;
    int id;

    while (fine && (id = args_next(args)) != ARGS_END) {
        if (id == OPT_QUIET)
            cli->quiet = true;
        else if (id == OPT_BLOCKING)
            plan->is_blocking = true;
        else if (id == OPT_REPORT)
            *ret_report = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "takes no words, but '%s' is one", printable(args->value));
        else if (id < 0)
            return args_status(id);
        else
            fine = take_option(plan, args, id);
    }
    if (fine && cli->url_count > BENCH_TARGETS_MAX)
        return args_complain(args, "at most %u stores at a time", BENCH_TARGETS_MAX);
    if (fine && plan->is_blocking && plan->client_count > 0 &&
        plan->clients[plan->client_count - 1] > BENCH_BLOCKING_MAX)
        return args_complain(args, "at most %u clients with --blocking: each is a thread",
                             BENCH_BLOCKING_MAX);
    return fine ? -1 : EXIT_USAGE;
}

/* What was not said. */
static void complete(struct bench *bench, bool has_report)
{
    static const uint32_t series[] = {1, 8, 64};
    struct bench_plan *plan = &bench->plan;
    uint32_t most, needed;

    if (plan->work_count == 0)
        for (plan->work_count = 0; plan->work_count < BENCH_WORKS; plan->work_count++)
            plan->works[plan->work_count] = (enum bench_work)plan->work_count;
    if (plan->client_count == 0 && has_report) {
        plan->client_count = sizeof series / sizeof *series;
        memcpy(plan->clients, series, sizeof series);
    } else if (plan->client_count == 0) {
        plan->client_count = 1;
        plan->clients[0] = CLIENTS_DEFAULT;
    }
    bench->point_count = plan->work_count * plan->client_count * bench->target_count;
    if (plan->round_ms == 0) {
        plan->round_ms =
            WHOLE_MS / (int64_t)(plan->rounds * bench->point_count) * WARM_PART / (WARM_PART + 1);
        if (plan->round_ms < ROUND_DEFAULT_MIN_MS)
            plan->round_ms = ROUND_DEFAULT_MIN_MS;
        if (plan->round_ms > ROUND_DEFAULT_MAX_MS)
            plan->round_ms = ROUND_DEFAULT_MAX_MS;
    }
    plan->warm_ms = plan->round_ms / WARM_PART;
    if (plan->warm_ms > WARM_MAX_MS)
        plan->warm_ms = WARM_MAX_MS;
    most = plan->clients[plan->client_count - 1];
    if (plan->names < most)
        plan->names = most;
    needed = (most + BENCH_THREAD_CLIENTS_MAX - 1) / BENCH_THREAD_CLIENTS_MAX;
    if (!plan->is_blocking && plan->threads < needed)
        plan->threads = needed;
}

/* ---- the stores ------------------------------------------------------------------------------ */

static int out_of_memory(void)
{
    say("out of memory");
    return EXIT_UNAVAILABLE;
}

static void name_target(struct bench *bench, struct bench_target *target)
{
    const char *url = hf_info(target->handles[0])->url;
    unsigned same = 1;

    for (size_t i = 0; &bench->targets[i] != target; i++)
        same += strcmp(hf_info(bench->targets[i].handles[0])->url, url) == 0;
    if (same > 1)
        snprintf(target->label, sizeof target->label, "%.*s #%u", BENCH_LABEL_MAX - 16, url, same);
    else
        snprintf(target->label, sizeof target->label, "%.*s", BENCH_LABEL_MAX - 16, url);
}

/* The same store twice has names of its own each time: its rounds disturb each other no more than those of two stores. */
static int open_target(struct bench *bench, size_t index, const char *url)
{
    struct bench_target *target = &bench->targets[index];
    char prefix[BENCH_NAME_MAX - 24];

    while (target->handle_count < bench->plan.threads) {
        int result = hf_open(url, &target->handles[target->handle_count]);

        if (result != HF_OK)
            return say_result(result);
        target->handle_count++;
    }
    name_target(bench, target);
    snprintf(prefix, sizeof prefix, "%s/%zu", bench->prefix, index);
    return bench_names_begin(&target->names, prefix, (size_t)bench->plan.names) ? 0
                                                                                : out_of_memory();
}

static int open_targets(struct bench *bench, const struct cli *cli)
{
    int status = 0;

    for (size_t i = 0; i < bench->target_count && status == 0; i++)
        status = open_target(bench, i, cli->url_count > 0 ? cli->urls[i] : NULL);
    return status;
}

static void close_targets(struct bench *bench)
{
    for (size_t i = 0; i < bench->target_count; i++) {
        for (uint32_t k = 0; k < bench->targets[i].handle_count; k++)
            hf_close(bench->targets[i].handles[k]);
        bench_names_end(&bench->targets[i].names);
    }
}

static int make_points(struct bench *bench)
{
    const struct bench_plan *plan = &bench->plan;
    struct bench_point *point;

    bench->points = point = calloc(bench->point_count, sizeof *bench->points);
    if (!point)
        return out_of_memory();
    for (size_t w = 0; w < plan->work_count; w++)
        for (size_t c = 0; c < plan->client_count; c++)
            for (size_t t = 0; t < bench->target_count; t++, point++) {
                point->work = plan->works[w];
                point->clients = plan->clients[c];
                point->target = t;
            }
    return 0;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* What went wrong, store by store. Returns the exit status. */
static int confess(const struct bench *bench)
{
    int status = EXIT_DONE;

    for (size_t t = 0; t < bench->target_count; t++) {
        uint64_t violations = 0, failures = 0, unknowns = 0, lost = 0;
        const char *label = printable(bench->targets[t].label), *words = "";

        for (size_t i = 0; i < bench->point_count; i++) {
            const struct bench_point *point = &bench->points[i];

            if (point->target != t)
                continue;
            violations += point->violations;
            failures += point->total.failures;
            unknowns += point->total.unknowns;
            lost += point->total.lost;
            words = point->total.words[0] ? point->total.words : words;
        }
        if (failures + unknowns + lost > 0)
            say("%s: %" PRIu64 " failed, %" PRIu64 " outcomes unknown, %" PRIu64
                " lost; the last: %s",
                label, failures, unknowns, lost, words);
        if (violations > 0)
            say("%s BROKE ITS PROMISE %" PRIu64 " times: two holders of one name, or a token that "
                "did not grow",
                label, violations);
        if (violations > 0)
            status = EXIT_NOT;
        else if (failures + unknowns + lost > 0 || bench->targets[t].is_away)
            status = status == EXIT_DONE ? EXIT_UNAVAILABLE : status;
    }
    return status;
}

static bool has_figures(const struct bench *bench)
{
    for (size_t i = 0; i < bench->point_count; i++)
        if (bench->points[i].round_count > 0)
            return true;
    return false;
}

static int show(const struct bench *bench, const struct cli *cli, struct bench_output *output)
{
    int status = EXIT_DONE, printed = EXIT_DONE;

    if (cli->json)
        bench_print_json(bench);
    else if (has_figures(bench))
        printed = bench_print_table(bench);
    if (output->path && has_figures(bench))
        status = bench_report_write(output, bench);
    else if (output->path)
        bench_report_drop(output);
    return status != EXIT_DONE ? status : finish_output(printed);
}

static int measure(struct bench *bench, const struct cli *cli, struct bench_output *output)
{
    int64_t began_ns = clock_boot_ns();
    int status, shown, confessed;

    status = open_targets(bench, cli);
    if (status == 0)
        status = bench_contact(bench, cli->quiet);
    if (status == 0)
        status = make_points(bench);
    if (status != 0 || bench->interrupted) {
        bench_report_drop(output);
        return status;
    }
    bench->loop_ns = bench_loop_cost_ns();
    status = bench_run(bench, cli->quiet);
    bench->elapsed_s = (double)(clock_boot_ns() - began_ns) / 1e9;
    shown = show(bench, cli, output);
    confessed = confess(bench);
    if (confessed == EXIT_NOT) /* nothing else is as bad */
        return confessed;
    return status != 0 ? status : shown != EXIT_DONE ? shown : confessed;
}

static int run(struct cli *cli, struct args *args)
{
    struct bench_output output = {.fd = -1};
    struct bench *bench = calloc(1, sizeof *bench);
    const char *report = NULL;
    int status, interrupted;

    if (!bench)
        return out_of_memory();
    bench->plan = (struct bench_plan){
        .threads = THREADS_DEFAULT, .rounds = ROUNDS_DEFAULT, .names = NAMES_DEFAULT};
    status = parse(&bench->plan, cli, args, &report);
    if (status < 0) {
        bench->target_count = cli->url_count > 0 ? cli->url_count : 1;
        complete(bench, report != NULL);
        snprintf(bench->prefix, sizeof bench->prefix, "bench/%08" PRIx32,
                 (uint32_t)random_below(UINT32_MAX));
        status = report ? bench_report_open(&output, report) : 0;
        if (status == 0)
            status = measure(bench, cli, &output);
    }
    close_targets(bench);
    interrupted = bench->interrupted;
    free(bench->points);
    free(bench);
    if (interrupted && status != EXIT_NOT) {
        finish_output(EXIT_DONE);
        signals_die(interrupted, false);
    }
    return status;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure a store, or compare several",
    .usage = "[--on URL]... [OPTION...]",
    .description =
        "Lets clients acquire and release locks, and says how many cycles a second that makes, "
        "how\n"
        "long acquiring takes, how long a lock that many want is on its way from one to the next, "
        "and\n"
        "how evenly they are served. With several --on, rounds take turns, so that all stores see "
        "the\n"
        "same noise. Meanwhile it checks that no lock has two holders and that tokens grow.\n"
        "Names are bench/RANDOM/...: it can run beside real locks, but it is a load like any "
        "other.",
    .options = options,
    .takes_json = true,
    .examples =
        "  holdfast bench\n"
        "  holdfast bench --on holdfast://10.0.0.1 --on redis://10.0.0.5 --report bench.html\n"
        "  holdfast bench --work hot --clients 1,8,64,512 --hold 1ms --json\n",
    .statuses = "  0 measured   1 two holders, or a token that did not grow   69 something failed, "
                "or the outcome\n  of something is not known   128+n interrupted; 77, 64, 70 as in "
                "'holdfast run --help'\n",
    .run = run,
};
