/* dying.c: what becomes of a lock when its process is killed, forks, or closes the store. */
#include "forked.h"
#include "suite.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct checked {
    hf_store *store;
    uint64_t token;
};

static bool is_over(void *arg)
{
    const struct checked *checked = arg;

    return hf_check(checked->store, "one", checked->token) == HF_ELOST;
}

static void a_killed_holder_is_followed(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "ttl=600", &helper);
    hf_lock *lock;

    must(HF_OK, hf_check(context->store, "one", token));
    helper_kill(helper);
    if (context->features & HF_HAS_PASS_FD) /* at once: the kernel let go when it died */
        must(HF_ELOST, hf_check(context->store, "one", token));
    else if (!(context->features &
               HF_HAS_TTL)) /* when a server has seen the end of its connection */
        eventually(is_over, &(struct checked){context->store, token}, "the end of its hold");
    lock = must_acquire(context->store, "one", &options);
    assert_true(hf_lock_token(lock) > token);
    must(HF_ELOST, hf_check(context->store, "one", token));
    must(HF_OK, hf_release(lock));
}

static void a_waiter_follows_a_killed_holder(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    struct helper *helper;
    uint64_t token = helper_hold(context, "one", "ttl=600", &helper);
    struct waiter waiter;

    waiter_start(&waiter, context->store, "one", &options);
    await_waiters(context, "one", 1);
    helper_kill(helper);
    must(HF_OK, waiter_join(&waiter));
    assert_true(hf_lock_token(waiter.lock) > token);
    must(HF_OK, hf_release(waiter.lock));
}

/* Redisson 3004, 1104: a dead waiter stalls a fair queue. */
static void a_killed_waiter_does_not_stall_the_rest(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    struct helper *helper = helper_start(context, "one", "ttl=600");
    struct waiter waiter;

    await_waiters(context, "one", 1);
    waiter_start(&waiter, context->store, "one", &options);
    await_waiters(context, "one", 2);
    helper_kill(helper);
    must(HF_OK, hf_release(lock));
    must(HF_OK, waiter_join(&waiter));
    must(HF_OK, hf_release(waiter.lock));
}

static void closing_releases(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *another = open_another(context);
    hf_lock *one = must_acquire(another, "one", &options), *lock;
    struct waiter waiter;

    must_acquire(another, "two", &options);
    must_be_busy(context, context->store, "one", &options);
    waiter_start(&waiter, context->store, "two", &options);
    await_waiters(context, "two", 1);
    (void)one;
    hf_close(another);
    must(HF_OK, waiter_join(&waiter));
    must(HF_OK, try_free(context->store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    must(HF_OK, hf_release(waiter.lock));
    hf_close(NULL);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* What the child finds wrong, as its exit status; 0 is well. */
static int look_around_as_a_child(hf_store *store, hf_lock *lock)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_report *report;
    hf_lock *other;
    char text[HF_SEQUENCER_MAX];

    if (hf_try(store, "two", &options, &other) != HF_EFORK)
        return 1;
    if (hf_acquire(store, "two", &options, &other) != HF_EFORK)
        return 2;
    if (hf_show(store, "one", &report) != HF_EFORK || hf_list(store, NULL, &report) != HF_EFORK)
        return 3;
    if (hf_check(store, "one", 1) != HF_EFORK)
        return 4;
    if (hf_renew(lock) != HF_EFORK)
        return 5;
    if (hf_info(store) != NULL)
        return 6;
    if (hf_fd(store) != HF_EFORK || hf_dispatch(store) != HF_EFORK)
        return 7;
    if (hf_lock_left_ms(lock) > 0)
        return 8;
    (void)hf_lock_sequencer(lock, text, sizeof text);
    if (strlen(hf_error()) == 0)
        return 9;
    (void)hf_release(lock); /* only frees memory */
    hf_close(store);
    return 0;
}

static void a_forked_child_can_use_nothing_and_harms_nothing(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *holding = open_another(context);
    hf_lock *lock = must_acquire(holding, "one", &options), *other;
    pid_t child;
    int status = -1;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm((unsigned)PATIENCE_MS / 1000);
        _exit(look_around_as_a_child(holding, lock));
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status));
    assert_int_equal(0, WEXITSTATUS(status));
    must_be_busy(context, context->store, "one", &options);
    must(HF_OK, hf_check(context->store, "one", hf_lock_token(lock)));
    assert_true(hf_lock_left_ms(lock) > 0);
    must(HF_OK, hf_release(lock));
    must(HF_OK, try_free(context->store, "one", &options, &other));
    must(HF_OK, hf_release(other));
    hf_close(holding);
}

static void a_living_child_does_not_keep_the_lock(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *holding = open_another(context);
    hf_lock *lock = must_acquire(holding, "one", &options), *other;
    int stay[2], status;
    pid_t child;
    char byte;

    assert_int_equal(0, pipe(stay));
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(stay[1]);
        _exit((int)read(stay[0], &byte, 1)); /* until the parent closes its end */
    }
    close(stay[0]);
    must(HF_OK, hf_release(lock));
    must(HF_OK, try_free(context->store, "one", &options, &other));
    must(HF_OK, hf_release(other));
    close(stay[1]);
    assert_int_equal(child, waitpid(child, &status, 0));
    hf_close(holding);
}

static void a_child_may_open_the_store_anew(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_lock *lock = must_acquire(context->store, "one", &options);
    int status = -1;
    pid_t child;

#ifdef __SANITIZE_THREAD__
    print_message("not run: a_child_may_open_the_store_anew (ThreadSanitizer cannot follow a child "
                  "that starts threads)\n");
    must(HF_OK, hf_release(lock));
    return;
#endif
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hf_store *own = NULL;
        hf_lock *other = NULL;
        bool well;

        alarm((unsigned)PATIENCE_MS / 1000);
        well = hf_open(context->url, &own) == HF_OK &&
               hf_try(own, "one", &options, &other) == HF_EBUSY &&
               hf_try(own, "two", &options, &other) == HF_OK && hf_release(other) == HF_OK;
        hf_close(own);
        _exit(well ? 0 : 1);
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must(HF_OK, hf_release(lock));
}

#define BUSY_THREADS 5
#define FORKS 200

struct busy {
    hf_store *store;
    int number;
    _Atomic bool *stop;
    _Atomic int *rounds;
    pthread_t thread;
};

/* Half of them wait for each other, the others have a name of their own. Also of use: what is asked, not only locked. */
static void *be_busy(void *arg)
{
    struct busy *busy = arg;
    hf_options options = HF_OPTIONS_INIT;
    char name[16] = "all";

    options.wait_ms = PATIENCE_MS;
    if (busy->number % 2)
        snprintf(name, sizeof name, "own %d", busy->number);
    while (!atomic_load(busy->stop)) {
        hf_report *report = NULL;
        hf_lock *lock = NULL;

        if (hf_acquire(busy->store, name, &options, &lock) == HF_OK)
            hf_release(lock);
        if (hf_show(busy->store, name, &report) == HF_OK)
            hf_report_free(report);
        atomic_fetch_add(busy->rounds, 1);
    }
    return NULL;
}

static void ignore_change(hf_observer *observer, const hf_report *now, void *arg)
{
    (void)observer;
    (void)now;
    (void)arg;
}

/* Whatever a thread of the parent has its hands on at that moment: the child's copy of it is half done, and left alone. */
static void children_of_a_busy_parent_can_close(void **state)
{
    struct context *context = *state;
    hf_store *store = open_another(context);
    struct busy busy[BUSY_THREADS];
    _Atomic bool stop = false;
    _Atomic int rounds = 0;
    hf_observer *observer;
    int status = 0;

    must(HF_OK, hf_observe(store, "all", ignore_change, NULL, &observer));
    for (int i = 0; i < BUSY_THREADS; i++) {
        busy[i] = (struct busy){.store = store, .number = i, .stop = &stop, .rounds = &rounds};
        assert_int_equal(0, pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]));
    }
    fflush(NULL);
    for (int i = 0; i < FORKS && !status; i++) {
        int before = atomic_load(&rounds);
        pid_t child = fork();

        if (child == 0) {
            forked_end_after((unsigned)PATIENCE_MS / 1000);
            forked_step("hf_close");
            hf_close(store);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            status = -1;
        while (atomic_load(&rounds) == before) /* they are in the middle of something again */
            sched_yield();
    }
    atomic_store(&stop, true);
    for (int i = 0; i < BUSY_THREADS; i++)
        assert_int_equal(0, pthread_join(busy[i].thread, NULL));
    hf_observer_stop(observer);
    hf_close(store);
    assert_int_equal(0, status); /* only now: the threads have what is on this stack */
    assert_int_equal(0, count_entries(context->store, "all", HF_ENTRY_HOLDER));
}

/* ---- handing over and running out ------------------------------------------------------------ */

static void a_passed_descriptor_keeps_the_hold(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context);
    hf_store *holding = open_another(context);
    hf_lock *lock = must_acquire(holding, "one", &options), *other;
    uint64_t token = hf_lock_token(lock);
    int fd = -1;

    must(HF_OK, hf_lock_pass_fd(lock, &fd));
    assert_true(fd >= 0);
    (void)hf_release(lock);
    must(HF_EBUSY, hf_try(context->store, "one", &options, &other));
    close(fd);
    other = must_acquire(context->store, "one", &options);
    assert_true(hf_lock_token(other) > token);
    must(HF_OK, hf_release(other));
    hf_close(holding);
}

static void note_time(hf_lock *lock, void *arg)
{
    (void)lock;
    *(_Atomic int64_t *)arg = now_ms();
}

static void a_maximum_hold_is_lost_in_time(void **state)
{
    struct context *context = *state;
    hf_options options = options_of(context), others = options_of(context);
    hf_store *another = open_another(context);
    _Atomic int64_t lost_ms = 0;
    int64_t began_ms = now_ms();
    struct waiter waiter;
    hf_lock *lock;
    uint64_t token;

    options.max_hold_ms = 400;
    options.on_lost = note_time;
    options.arg = (void *)&lost_ms;
    lock = must_acquire(context->store, "one", &options);
    token = hf_lock_token(lock);
    assert_true(hf_lock_left_ms(lock) <= 400);
    waiter_start(&waiter, another, "one", &others);
    await_lost(lock);
    assert_true(now_ms() - began_ms >= 300); /* not before its time, less the drift allowance */
    must(HF_OK, waiter_join(&waiter));
    assert_true(lost_ms != 0 && lost_ms <= waiter.ended_ms);
    assert_true(hf_lock_token(waiter.lock) > token);
    must(HF_ELOST, hf_renew(lock));
    must(HF_ELOST, hf_release(lock));
    must(HF_OK, hf_check(another, "one", hf_lock_token(waiter.lock)));
    must(HF_OK, hf_release(waiter.lock));
    hf_close(another);
}

const struct suite_test dying_tests[] = {
    SUITE_TEST(a_killed_holder_is_followed),
    SUITE_TEST(a_waiter_follows_a_killed_holder, .brief = true),
    SUITE_TEST(a_killed_waiter_does_not_stall_the_rest),
    SUITE_TEST(closing_releases, .brief = true),
    SUITE_TEST(a_forked_child_can_use_nothing_and_harms_nothing, .brief = true),
    SUITE_TEST(children_of_a_busy_parent_can_close),
    SUITE_TEST(a_living_child_does_not_keep_the_lock),
    SUITE_TEST(a_child_may_open_the_store_anew),
    SUITE_TEST(a_passed_descriptor_keeps_the_hold, .needs = HF_HAS_PASS_FD),
    SUITE_TEST(a_maximum_hold_is_lost_in_time),
    {0},
};
