/* started.c: operations that are started, and observers. Each has a memory of its own which knows whether it may still be called
 * back. */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { KIND_ACQUIRE, KIND_RELEASE, KIND_ONCE, KIND_FINISH, KIND_ASK };

struct job {
    struct job *next, **at; /* of those that are under way */
    hf_store *store;
    struct worker *worker;
    enum kind kind;
    struct hold *hold; /* or NULL */
    pthread_mutex_t mutex;
    hf_op *op; /* as long as it can be cancelled */
    bool begun, done, over;
};

static pthread_mutex_t jobs_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct job *jobs;

static struct job *job_new(struct worker *worker, hf_store *store, enum kind kind,
                           struct hold *hold)
{
    struct job *job = allocate(sizeof *job);

    job->store = store;
    job->worker = worker;
    job->kind = kind;
    job->hold = hold;
    pthread_mutex_init(&job->mutex, NULL);
    pthread_mutex_lock(&jobs_mutex);
    job->next = jobs;
    job->at = &jobs;
    if (jobs)
        jobs->at = &job->next;
    jobs = job;
    pthread_mutex_unlock(&jobs_mutex);
    atomic_fetch_add(&worker->started, 1);
    count(COUNT_STARTED);
    return job;
}

/* With the mutex of all jobs held. */
static void unlink_job(struct job *job)
{
    *job->at = job->next;
    if (job->next)
        job->next->at = job->at;
    atomic_fetch_sub(&job->worker->started, 1);
}

static void job_over(struct job *job)
{
    pthread_mutex_lock(&jobs_mutex);
    unlink_job(job);
    pthread_mutex_unlock(&jobs_mutex);
    bury(job);
}

/* Another worker's store may be where this one was. */
void started_closed(const struct worker *worker, const hf_store *store)
{
    pthread_mutex_lock(&jobs_mutex);
    for (struct job *job = jobs, *next; job; job = next) {
        next = job->next;
        if (job->store != store || (worker && job->worker != worker))
            continue;
        unlink_job(job);
        pthread_mutex_lock(&job->mutex);
        job->over = true;
        pthread_mutex_unlock(&job->mutex);
        if (job->hold)
            hold_over(job->hold);
        bury(job);
    }
    pthread_mutex_unlock(&jobs_mutex);
}

/* ---- what comes of them ---------------------------------------------------------------------------- */

static hf_done_fn on_done;

static void release_started(struct worker *worker, hf_store *store, struct hold *hold)
{
    struct job *job = job_new(worker, store, KIND_RELEASE, NULL);
    int result = hf_release_start(hold->lock, on_done, job, NULL);

    if (result != HF_OK) { /* the lock is still ours: the store is being closed */
        expect("hf_release_start", result, hf_error());
        job_over(job);
        expect("hf_release", hf_release(hold->lock), hf_error());
    }
    hold_over(hold);
}

void give_up(struct worker *worker, hf_store *store, struct hold *hold)
{
    if (below(worker, 3) == 0) {
        doing(worker, "hf_release_start");
        release_started(worker, store, hold);
        return;
    }
    doing(worker, "hf_release");
    expect("hf_release", hf_release(hold->lock), hf_error());
    hold_over(hold);
}

static void granted(struct job *job, hf_op *op)
{
    struct hold *hold = job->hold;
    hf_lock *lock = hf_op_take_lock(op);

    if (!lock)
        violated("an acquisition that succeeded brings no lock");
    hold_enter(hold, lock);
    usleep(200);
    hold_leave(hold);
    if (hold->token % 4 == 0) {
        expect("hf_release in done", hf_release(lock), hf_error());
        hold_over(hold);
    } else {
        release_started(job->worker, job->store, hold);
    }
}

static void to_run(struct job *job, hf_op *op)
{
    hf_once *once = hf_op_take_once(op);
    struct job *finishing;
    char text[TEXT_MAX];
    int result;

    if (!once)
        violated("a once-record that could be begun is not there");
    snprintf(text, sizeof text, "result of %llu", (unsigned long long)hf_once_token(once));
    if (!hf_once_runs(once)) {
        hf_once_free(once);
        return;
    }
    finishing = job_new(job->worker, job->store, KIND_FINISH, NULL);
    result = hf_once_token(once) % 3 == 0
                 ? hf_once_release_start(once, on_done, finishing, NULL)
                 : hf_once_finish_start(once, text, strlen(text), 50, on_done, finishing, NULL);
    if (result != HF_OK) {
        expect("the start of the end of a once-record", result, hf_error());
        job_over(finishing);
    }
}

static void on_done(hf_op *op, int result, void *arg)
{
    struct job *job = arg;

    pthread_mutex_lock(&job->mutex);
    if (job->over || job->done)
        violated("done was called %s (operation %d, result %d)",
                 job->over ? "after the store was closed" : "twice", (int)job->kind, result);
    job->done = true;
    job->op = NULL;
    pthread_mutex_unlock(&job->mutex);
    count(COUNT_DONE);
    if (result != HF_OK)
        expect("a started operation", result, hf_op_error(op));
    if (result == HF_OK && job->kind == KIND_ACQUIRE)
        granted(job, op);
    else if (result == HF_OK && job->kind == KIND_ONCE)
        to_run(job, op);
    else if (result == HF_OK && job->kind == KIND_ASK)
        hf_report_free(hf_op_take_report(op));
    else if (job->hold)
        hold_over(job->hold);
    job_over(job);
}

/* ---- starting ------------------------------------------------------------------------------------------ */

static void started(struct job *job, int result)
{
    if (result == HF_OK)
        return;
    expect("a start", result, hf_error());
    if (job->hold)
        hold_over(job->hold);
    job_over(job);
}

static void start_acquiring(struct worker *worker, hf_store *store, bool cancels)
{
    struct hold *hold = hold_new((int)below(worker, NAMES));
    struct job *job = job_new(worker, store, KIND_ACQUIRE, hold);
    hf_options options;
    char name[TEXT_MAX];
    hf_op *op;
    int result;

    section_name(hold->section, name);
    hold_options(worker, hold, &options);
    options.wait_ms = cancels ? HF_FOREVER : options.wait_ms;
    doing(worker, "hf_acquire_start");
    pthread_mutex_lock(&job->mutex); /* done waits until we know which one it is */
    result = hf_acquire_start(store, name, &options, on_done, job, &op);
    if (result == HF_OK)
        job->op = op;
    pthread_mutex_unlock(&job->mutex);
    started(job, result);
    if (result != HF_OK || !cancels)
        return;
    nap(worker, 20000);
    doing(worker, "hf_op_cancel");
    pthread_mutex_lock(&job->mutex); /* it is buried at the earliest, and not yet freed */
    if (!job->done && !job->over)
        hf_op_cancel(job->op);
    pthread_mutex_unlock(&job->mutex);
}

static bool is_too_much(struct worker *worker)
{
    return atomic_load(&worker->started) > STARTED_MAX;
}

void do_start(struct worker *worker)
{
    if (!is_too_much(worker))
        start_acquiring(worker, some_store(worker), below(worker, 3) == 0);
}

static void start_once(struct worker *worker, hf_store *store)
{
    struct job *job = job_new(worker, store, KIND_ONCE, NULL);
    hf_once_options options = HF_ONCE_OPTIONS_INIT;
    char name[TEXT_MAX];

    section_name(NAMES + (int)below(worker, KEYS), name);
    options.wait_ms = (int64_t)below(worker, 300);
    options.ttl_ms = stress.has_ttl ? 150 + (int64_t)below(worker, 1500) : 0;
    options.death_ms = 100;
    doing(worker, "hf_once_begin_start");
    started(job, hf_once_begin_start(store, name, &options, on_done, job, NULL));
}

void do_start_once(struct worker *worker)
{
    if (!is_too_much(worker))
        start_once(worker, some_store(worker));
}

static void start_asking(struct worker *worker, hf_store *store)
{
    struct job *job = job_new(worker, store, KIND_ASK, NULL);
    char name[TEXT_MAX];

    section_name((int)below(worker, NAMES), name);
    doing(worker, "hf_show_start, hf_list_start or hf_check_start");
    switch (below(worker, 3)) {
    case 0:
        started(job, hf_show_start(store, name, on_done, job, NULL));
        break;
    case 1:
        started(job, hf_list_start(store, NULL, on_done, job, NULL));
        break;
    default:
        started(job, hf_check_start(store, name, 1, on_done, job, NULL));
        break;
    }
}

void do_start_asking(struct worker *worker)
{
    if (!is_too_much(worker))
        start_asking(worker, some_store(worker));
}

void start_some(struct worker *worker, hf_store *store)
{
    for (unsigned i = below(worker, 6); i > 0; i--) {
        switch (below(worker, 3)) {
        case 0:
            start_acquiring(worker, store, false);
            break;
        case 1:
            start_once(worker, store);
            break;
        default:
            start_asking(worker, store);
            break;
        }
    }
}

/* ---- observers ------------------------------------------------------------------------------------------ */

struct watcher {
    bool stops; /* itself, when it is told something for the first time */
    atomic_bool over, running;
};

static void on_change(hf_observer *observer, const hf_report *now, void *arg)
{
    struct watcher *watcher = arg;

    if (atomic_load(&watcher->over))
        violated("an observer that was stopped is told something");
    if (atomic_exchange(&watcher->running, true))
        violated("an observer is told two things at once");
    (void)hf_report_count(now);
    count(COUNT_OBSERVED);
    usleep(50);
    atomic_store(&watcher->running, false);
    if (watcher->stops) {
        hf_observer_stop(observer);
        atomic_store(&watcher->over, true); /* from now on its memory is not ours */
        return;
    }
    if (atomic_load(&watcher->over))
        violated("an observer was stopped while it was being told something");
}

struct watcher *watch(hf_store *store, const char *name, bool stops, hf_observer **ret_observer)
{
    struct watcher *watcher = allocate(sizeof *watcher);
    int result;

    watcher->stops = stops;
    result = hf_observe(store, name, on_change, watcher, ret_observer);
    if (result == HF_OK)
        return watcher;
    expect("hf_observe", result, hf_error());
    bury(watcher);
    return NULL;
}

void watch_over(struct watcher *watcher)
{
    if (!watcher)
        return;
    atomic_store(&watcher->over, true);
    bury(watcher);
}

void do_observe(struct worker *worker)
{
    hf_observer *observer = NULL;
    struct watcher *watcher;
    bool stops = below(worker, 4) == 0;
    char name[TEXT_MAX];

    section_name((int)below(worker, NAMES), name);
    doing(worker, "hf_observe");
    watcher = watch(some_store(worker), name, stops, &observer);
    if (!watcher)
        return;
    if (stops) {
        doing(worker, "an observer that stops itself");
        while (!atomic_load(&watcher->over))
            usleep(1000);
    } else {
        nap(worker, 30000);
        doing(worker, "hf_observer_stop");
        hf_observer_stop(observer);
    }
    watch_over(watcher);
}
