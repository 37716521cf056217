#include "sim/run.h"

#include "sim/sim.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TAIL_LINES 60
#define WRONG_SHOWN 5 /* then only the seeds are counted */
#define KEPT_BYTES (256 << 20)
/* How fast it is to be, is said for clusters of so many nodes with so many requests in a simulated second, or more. */
#define BUSY_NODES 3
#define BUSY_RATE 50
#define PROGRESS_SECONDS 5 /* between two lines */

/* What the processes share. */
struct shared {
    atomic_uint_fast64_t next, done, wrong, shown;
    atomic_uint_fast64_t simulated_us, cpu_us, commands, commits, faults, elections, grants,
        changes, wipes, old_copies, old_copies_found, installs, flips;
    atomic_uint_fast64_t busy_us, busy_cpu_us; /* of seeds like BUSY_NODES and BUSY_RATE say */
    atomic_uint_fast64_t seed[RUN_JOBS_MAX];   /* that each is at */
};

static struct sim *running; /* in a process that does, for what its last signal prints */

/* ---- one seed --------------------------------------------------------------------------------- */

static void print_command(const struct run *run, uint64_t seed)
{
    printf("    %s --seed %" PRIu64 "%s%s%s --trace\n", run->program, seed,
           run->switch_name ? " --switch " : "", run->switch_name ? run->switch_name : "",
           run->outside ? " --outside" : "");
}

/* NOLINTBEGIN(bugprone-signal-handler,cert-sig30-c): the process is lost anyway, and what it can still print is worth more */
static void on_signal(int number)
{
    if (running) {
        trace_tail(&running->trace, TAIL_LINES, stdout);
        printf("seed %" PRIu64 ": ended by signal %d at %.6f s\n", running->seed, number,
               (double)running->now_us / 1e6);
        fflush(stdout);
    }
    signal(number, SIG_DFL);
    raise(number);
}
/* NOLINTEND(bugprone-signal-handler,cert-sig30-c) */

static void tell_wrong(const struct run *run, struct shared *shared, struct sim *sim)
{
    atomic_fetch_add(&shared->wrong, 1);
    if (atomic_fetch_add(&shared->shown, 1) >= WRONG_SHOWN) {
        printf("seed %" PRIu64 ": %s\n", sim->seed, sim->wrong);
        fflush(stdout);
        return;
    }
    if (!run->trace)
        trace_tail(&sim->trace, TAIL_LINES, stdout);
    printf("seed %" PRIu64 ": WRONG after %.3f s: %s\n", sim->seed, (double)sim->now_us / 1e6,
           sim->wrong);
    print_command(run, sim->seed);
    fflush(stdout);
}

static void count(struct shared *shared, const struct sim *sim, uint64_t cpu_us)
{
    const struct sim_counts *counts = &sim->counts;
    uint64_t simulated_us = (uint64_t)sim->now_us - 1000000;

    atomic_fetch_add(&shared->done, 1);
    atomic_fetch_add(&shared->simulated_us, simulated_us);
    atomic_fetch_add(&shared->cpu_us, cpu_us);
    if (sim->swarm.nodes == BUSY_NODES && counts->requests * 1000000 >= BUSY_RATE * simulated_us) {
        atomic_fetch_add(&shared->busy_us, simulated_us);
        atomic_fetch_add(&shared->busy_cpu_us, cpu_us);
    }
    atomic_fetch_add(&shared->commands, counts->requests);
    atomic_fetch_add(&shared->commits, counts->commits);
    atomic_fetch_add(&shared->faults, counts->crashes + counts->pauses + counts->cuts +
                                          counts->breaks + counts->disk_faults + counts->wipes +
                                          counts->clocks + counts->client_faults);
    atomic_fetch_add(&shared->elections, counts->elections);
    atomic_fetch_add(&shared->grants, counts->grants);
    atomic_fetch_add(&shared->changes, counts->changes);
    atomic_fetch_add(&shared->wipes, counts->wipes);
    atomic_fetch_add(&shared->old_copies, counts->old_copies);
    atomic_fetch_add(&shared->old_copies_found, counts->old_copies_found);
    atomic_fetch_add(&shared->flips, counts->flips);
    atomic_fetch_add(&shared->installs, counts->installs);
}

static uint64_t cpu_now_us(void)
{
    return (uint64_t)clock() * 1000000 / CLOCKS_PER_SEC;
}

/* The same seed once more, with memory at other addresses. */
static void run_again(const struct run *run, struct shared *shared, struct sim *sim, uint64_t seed,
                      uint64_t hash)
{
    sim_run(sim, seed, run);
    if (sim->trace.hash != hash) {
        snprintf(sim->wrong, sizeof sim->wrong,
                 "the same seed gives another trace: %016" PRIx64 ", and then %016" PRIx64, hash,
                 sim->trace.hash);
        tell_wrong(run, shared, sim);
    }
    sim_free(sim);
}

static void run_seed(const struct run *run, struct shared *shared, struct sim *sim, uint64_t seed)
{
    uint64_t before_us = cpu_now_us(), hash;

    running = sim;
    if (!sim_run(sim, seed, run))
        tell_wrong(run, shared, sim);
    hash = sim->trace.hash;
    if (run->hash) {
        printf("seed %" PRIu64 ": %016" PRIx64 "\n", seed, hash);
        fflush(stdout);
    }
    count(shared, sim, cpu_now_us() - before_us);
    sim_free(sim);
    if (run->again)
        run_again(run, shared, sim, seed, hash);
    running = NULL;
}

static void work(const struct run *run, struct shared *shared, int job)
{
    struct sim *sim = calloc(1, sizeof *sim);
    uint64_t number;

    INVARIANT(sim != NULL);
    /* Each seed asks for the same memory again: it is not given back in between. */
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    while (!(run->stop && shared->wrong) &&
           (number = atomic_fetch_add(&shared->next, 1)) < run->count) {
        atomic_store(&shared->seed[job], run->first + number);
        run_seed(run, shared, sim, run->first + number);
    }
    atomic_store(&shared->seed[job], UINT64_MAX);
    free(sim);
}

/* ---- all of them ------------------------------------------------------------------------------ */

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double times(uint64_t simulated_us, uint64_t cpu_us)
{
    return cpu_us > 0 ? (double)simulated_us / (double)cpu_us : 0;
}

/* All before this seed are done: so a campaign that is interrupted goes on there. */
static uint64_t done_before(const struct run *run, const struct shared *shared)
{
    uint64_t least = run->first + (shared->next < run->count ? shared->next : run->count);

    for (int job = 0; job < run->jobs; job++)
        if (shared->seed[job] < least)
            least = shared->seed[job];
    return least;
}

static void print_progress(const struct run *run, const struct shared *shared, double since)
{
    double passed = seconds() - since, rate = (double)shared->done / passed;

    printf("%" PRIu64 " of %" PRIu64 " seeds, all before %" PRIu64
           ", %.1f/s, %.0f s left; %.0fx real time per core; %" PRIu64 " WRONG\n",
           shared->done, run->count, done_before(run, shared), rate,
           rate > 0 ? (double)(run->count - shared->done) / rate : 0,
           times(shared->simulated_us, shared->cpu_us), shared->wrong);
    fflush(stdout);
}

static void print_end(const struct shared *shared, double since)
{
    double passed = seconds() - since;

    printf("%" PRIu64 " seeds in %.1f s, %.1f/s; %" PRIu64 " s simulated: %" PRIu64
           " requests, %" PRIu64 " grants, %" PRIu64 " entries, %" PRIu64 " elections, %" PRIu64
           " changes, %" PRIu64 " wiped, %" PRIu64 " old copies (%" PRIu64 " found), %" PRIu64
           " installed, %" PRIu64 " bits flipped, %" PRIu64 " faults in all\n",
           shared->done, passed, (double)shared->done / passed, shared->simulated_us / 1000000,
           shared->commands, shared->grants, shared->commits, shared->elections, shared->changes,
           shared->wipes, shared->old_copies, shared->old_copies_found, shared->installs,
           shared->flips, shared->faults);
    printf("simulated seconds in a second of one core: %.0f; of %d nodes with %d requests/s or "
           "more: %.0f\n",
           times(shared->simulated_us, shared->cpu_us), BUSY_NODES, BUSY_RATE,
           times(shared->busy_us, shared->busy_cpu_us));
    printf("%" PRIu64 " WRONG\n", shared->wrong);
    fflush(stdout);
}

static pid_t fork_job(const struct run *run, struct shared *shared, int job)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        work(run, shared, job);
        exit(0); /* and not _exit: leaks are looked for */
    }
    return pid;
}

/* A process has ended. True: another one took its place. */
static bool replace(const struct run *run, struct shared *shared, pid_t *pids, pid_t ended,
                    int status)
{
    for (int job = 0; job < run->jobs; job++) {
        if (pids[job] != ended)
            continue;
        pids[job] = -1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return false;
        atomic_fetch_add(&shared->wrong, 1);
        printf("seed %" PRIu64 ": its process has died\n", shared->seed[job]);
        print_command(run, shared->seed[job]);
        pids[job] = fork_job(run, shared, job);
        return true;
    }
    return false;
}

bool run_all(const struct run *run)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[RUN_JOBS_MAX], ended;
    double since = seconds(), printed = since;
    int left = run->jobs, status;
    bool right;

    INVARIANT(shared != MAP_FAILED);
    for (int job = 0; job < run->jobs; job++)
        shared->seed[job] = run->first;
    for (int job = 0; job < run->jobs; job++)
        pids[job] = fork_job(run, shared, job);
    while (left > 0) {
        ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            left -= !replace(run, shared, pids, ended, status);
            continue;
        }
        usleep(20000);
        if (seconds() - printed > PROGRESS_SECONDS) {
            printed = seconds();
            print_progress(run, shared, since);
        }
    }
    print_end(shared, since);
    right = shared->wrong == 0;
    munmap(shared, sizeof *shared);
    return right;
}
