#include "sim/run.h"

#include "sim/sim.h"

#include <inttypes.h>
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
#define WRONG_SHOWN 5      /* then only the seeds are counted */
#define PROGRESS_SECONDS 5 /* between two lines */

/* What the processes share. */
struct shared {
    atomic_uint_fast64_t next, done, wrong, shown;
    atomic_uint_fast64_t simulated_us, cpu_us, commands, commits, faults, elections, grants,
        changes, wipes, installs;
    atomic_uint_fast64_t seed[RUN_JOBS_MAX]; /* that each is at */
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

static void count(struct shared *shared, const struct sim *sim)
{
    const struct sim_counts *counts = &sim->counts;

    atomic_fetch_add(&shared->done, 1);
    atomic_fetch_add(&shared->simulated_us, (uint64_t)sim->now_us - 1000000);
    atomic_fetch_add(&shared->commands, counts->requests);
    atomic_fetch_add(&shared->commits, counts->commits);
    atomic_fetch_add(&shared->faults, counts->crashes + counts->pauses + counts->cuts +
                                          counts->breaks + counts->disk_faults + counts->wipes +
                                          counts->clocks + counts->client_faults);
    atomic_fetch_add(&shared->elections, counts->elections);
    atomic_fetch_add(&shared->grants, counts->grants);
    atomic_fetch_add(&shared->changes, counts->changes);
    atomic_fetch_add(&shared->wipes, counts->wipes);
    atomic_fetch_add(&shared->installs, counts->installs);
}

static void run_seed(const struct run *run, struct shared *shared, struct sim *sim, uint64_t seed)
{
    clock_t before = clock();

    running = sim;
    if (!sim_run(sim, seed, run))
        tell_wrong(run, shared, sim);
    if (run->hash) {
        printf("seed %" PRIu64 ": %016" PRIx64 "\n", seed, sim->trace.hash);
        fflush(stdout);
    }
    count(shared, sim);
    sim_free(sim);
    running = NULL;
    atomic_fetch_add(&shared->cpu_us, (uint64_t)(clock() - before) * 1000000 / CLOCKS_PER_SEC);
}

static void work(const struct run *run, struct shared *shared, int job)
{
    struct sim *sim = calloc(1, sizeof *sim);
    uint64_t number;

    INVARIANT(sim != NULL);
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    while ((number = atomic_fetch_add(&shared->next, 1)) < run->count) {
        atomic_store(&shared->seed[job], run->first + number);
        run_seed(run, shared, sim, run->first + number);
    }
    free(sim);
}

/* ---- all of them ------------------------------------------------------------------------------ */

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_progress(const struct shared *shared, double since)
{
    double passed = seconds() - since, simulated = (double)shared->simulated_us / 1e6;
    double cpu = (double)shared->cpu_us / 1e6;

    printf("%" PRIu64 " seeds, %.1f/s; %.0f s simulated, %.0fx real time per core; %" PRIu64
           " requests, %" PRIu64 " grants, %" PRIu64 " entries, %" PRIu64 " elections, %" PRIu64
           " changes, %" PRIu64 " wiped, %" PRIu64 " installed; %" PRIu64 " faults; %" PRIu64
           " WRONG\n",
           shared->done, (double)shared->done / passed, simulated, cpu > 0 ? simulated / cpu : 0,
           shared->commands, shared->grants, shared->commits, shared->elections, shared->changes,
           shared->wipes, shared->installs, shared->faults, shared->wrong);
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
            print_progress(shared, since);
        }
    }
    print_progress(shared, since);
    right = shared->wrong == 0;
    munmap(shared, sizeof *shared);
    return right;
}
