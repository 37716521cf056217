/* bench.h: what the parts of `holdfast bench` share.
 *
 *     bench.c            options, and the order of things
 *     bench_rounds.c     rounds, interleaved over all stores and works; the line that lives while they run
 *     bench_load.c       the load of one round: bench_client.c, bench_started.c, bench_blocking.c
 *     bench_names.c      what is held by whom, and what must never be
 *     bench_stats.c      arithmetic
 *     bench_points.c     what came of all rounds
 *     bench_table.c      as a table, and as JSON
 *     bench_report.c     as a page, with bench_chart.c; bench_output.c has its file */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "base/textbuf.h"
#include "cli/bench_names.h"
#include "cli/bench_stats.h"

#define BENCH_TARGETS_MAX CLI_URLS_MAX
#define BENCH_SERIES_MAX 8 /* numbers of clients in one run */
#define BENCH_CLIENTS_MAX 20000u
#define BENCH_THREADS_MAX 16u
#define BENCH_THREAD_CLIENTS_MAX (HF_OPS_MAX - 96) /* each has one operation under way */
#define BENCH_BLOCKING_MAX 4096u                   /* clients that are threads */
#define BENCH_NAMES_MAX 1000000
#define BENCH_ROUNDS_MAX 100u
#define BENCH_LABEL_MAX 256
#define BENCH_WORDS_MAX 256

enum bench_work {
    BENCH_SPREAD, /* each client has names of its own: nobody waits for anybody */
    BENCH_HOT,    /* one lock, from hand to hand */
    BENCH_MIX,    /* nine of ten cycles on names of its own, one on one of few hot ones */
    BENCH_WORKS
};

const char *bench_work_name(enum bench_work work);

struct bench_plan {
    enum bench_work works[BENCH_WORKS];
    size_t work_count;
    uint32_t clients[BENCH_SERIES_MAX]; /* rising */
    size_t client_count;
    uint32_t threads, rounds;
    bool
        is_blocking; /* each client is a thread that waits in its calls; `threads` are handles then */
    uint64_t names;
    int64_t round_ms, warm_ms, hold_ms;
};

/* One store. */
struct bench_target {
    char label[BENCH_LABEL_MAX]; /* its URL; "... #2" if it is there twice */
    hf_store *handles[BENCH_THREADS_MAX];
    uint32_t handle_count;
    struct bench_names names;
    bool is_away; /* it gave nothing for a whole round: no more of them */
};

/* What happened in a round, or in a part of it that one thread drove. */
struct bench_tally {
    struct bench_histogram acquire, handover;
    uint64_t cycles;                   /* acquired and released in the time that counts */
    uint64_t failures, unknowns, lost; /* in all of the round; without cycles */
    uint64_t unfinished;               /* still waited at the end */
    int64_t unfinished_ns;             /* the longest of these waits */
    char words[BENCH_WORDS_MAX];       /* of the last failure */
};

void bench_tally_merge(struct bench_tally *into, const struct bench_tally *from);

struct bench_round {
    struct bench_tally tally;
    struct bench_fairness fairness;
    int64_t took_ns;
    int64_t cpu_ns; /* of this process */
};

/* The medians of all rounds of one store, work, and number of clients. */
struct bench_medians {
    double cycles_per_s, cycles_least, cycles_most; /* the latter of the rounds */
    double p50_ns, p99_ns, p999_ns;
    double handover_p50_ns, handover_p99_ns, handover_p999_ns;
    double jain, share_least, share_most, cpu_ns;
    int64_t max_ns, handover_max_ns; /* of all rounds */
    bool max_is_least;               /* somebody still waited, for longer than anybody had */
};

struct bench_point {
    size_t target; /* index */
    enum bench_work work;
    uint32_t clients;
    size_t round_count;
    struct bench_figures {
        double cycles_per_s, p50_ns, p99_ns, p999_ns;
        double handover_p50_ns, handover_p99_ns, handover_p999_ns;
        double jain, share_least, share_most, cpu_ns;
    } rounds[BENCH_ROUNDS_MAX];
    struct bench_tally total;
    uint64_t violations;
};

void bench_point_add(struct bench_point *point, const struct bench_round *round);
/* Only what went wrong in it. */
void bench_point_note(struct bench_point *point, const struct bench_tally *tally);
struct bench_medians bench_point_medians(const struct bench_point *point);
/* Whether anything went wrong in it but violations: failures, unknown outcomes, holds that were lost. */
uint64_t bench_point_failed(const struct bench_point *point);

/* Everything that came of a run. */
struct bench {
    struct bench_plan plan;
    char prefix[16]; /* of all names: "bench/4b1f0c9e" */
    struct bench_target targets[BENCH_TARGETS_MAX];
    size_t target_count;
    struct bench_point *points; /* by work, then clients, then target */
    size_t point_count;
    double loop_ns;   /* a cycle of the bench itself, with a store that does nothing */
    int interrupted;  /* by this signal */
    double elapsed_s; /* all of it */
};

/* ---- bench_rounds.c -------------------------------------------------------------------------- */

/* Asks each store for a lock. Returns an exit status; 0: all of them gave it. */
int bench_contact(struct bench *bench, bool quiet);
/* Until all rounds were run, or a signal came. Returns an exit status that says only whether it could run. */
int bench_run(struct bench *bench, bool quiet);

/* ---- bench_table.c, bench_report.c, bench_output.c ----------------------------------------------------------- */

int bench_print_table(const struct bench *bench);
void bench_print_json(const struct bench *bench);
/* "850 us", "1.24 ms", "3.1 s": rotating buffers, as span() has. */
const char *bench_time(double ns);
/* "12,345" */
const char *bench_number(double value);

void bench_write_page(struct textbuf *page, const struct bench *bench);

/* The file is opened before anything is measured, and left as it is until the page is written. */
struct bench_output {
    const char *path;
    int fd;
    bool is_new;
};
int bench_report_open(struct bench_output *output, const char *path);
int bench_report_write(struct bench_output *output, const struct bench *bench);
/* Of nothing that was measured: takes a file that was not there away again. */
void bench_report_drop(struct bench_output *output);

#endif
