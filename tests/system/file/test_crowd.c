/* test_crowd.c: thousands who wait for one name, in several processes: each gets its turn, or its wait ends in time. */
#include <holdfast/holdfast.h>

#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PROCESSES 10
#define THREADS 500
#define THREADS_SOAK 1000
#define THREADS_SANITIZED 20 /* a thread costs much there, and none of this is about memory */
#define STACK_BYTES 262144
#define HOLD_MS 1500 /* long enough for those who wait to have looked again, and to listen */
#define BRIEF_MS 1000
#define PATIENCE_MS INT64_C(60000)

struct shared {
    _Atomic int ready, got, timed_out, wrong, inside;
};

static struct shared *shared;
static char dir[512], url[600];
static int64_t wait_ms;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int make_store(void **state)
{
    const char *place = getenv("HOLDFAST_TEST_DIR");

    (void)state;
    snprintf(dir, sizeof dir, "%s/crowd-XXXXXX", place ? place : ".");
    if (!mkdtemp(dir))
        return -1;
    snprintf(url, sizeof url, "file:%s/locks", dir);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int remove_store(void **state)
{
    (void)state;
    munmap(shared, sizeof *shared);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int threads_of_a_process(void)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer does not know threads that a forked child begins */
#endif
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
    return THREADS_SANITIZED;
#else
    return getenv("HF_SOAK") ? THREADS_SOAK : THREADS;
#endif
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void sleep_ms(int64_t ms)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000},
        NULL);
}

static void *wait_for_it(void *store)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *lock;
    int result;

    options.wait_ms = wait_ms;
    atomic_fetch_add(&shared->ready, 1);
    result = hf_acquire(store, "one", &options, &lock);
    if (result == HF_EBUSY) {
        atomic_fetch_add(&shared->timed_out, 1);
        return NULL;
    }
    if (result != HF_OK || atomic_fetch_add(&shared->inside, 1) != 0) {
        fprintf(stderr, "%s: %s\n", hf_result_name(result), hf_error());
        atomic_fetch_add(&shared->wrong, 1);
        return NULL;
    }
    atomic_fetch_sub(&shared->inside, 1);
    hf_release(lock);
    atomic_fetch_add(&shared->got, 1);
    return NULL;
}

/* In a process of its own. */
static int send_threads(int count)
{
    static pthread_t threads[THREADS_SOAK];
    pthread_attr_t attributes;
    hf_store *store;
    int started = 0;

    if (hf_open(url, &store) != HF_OK)
        return 1;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (started < count &&
           pthread_create(&threads[started], &attributes, wait_for_it, store) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    hf_close(store);
    return started == count ? 0 : 2;
}

/* The name is held for hold_ms after all have come. */
static void send_the_crowd(int count, int64_t hold_ms)
{
    int64_t deadline_ms = now_ms() + PATIENCE_MS;
    hf_store *store;
    hf_lock *lock;
    int status;

    assert_int_equal(HF_OK, hf_open(url, &store));
    assert_int_equal(HF_OK, hf_acquire(store, "one", NULL, &lock));
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            alarm((unsigned)(2 * PATIENCE_MS / 1000));
            _exit(send_threads(count));
        }
    }
    while (atomic_load(&shared->ready) < PROCESSES * count && now_ms() < deadline_ms)
        sleep_ms(10);
    assert_int_equal(PROCESSES * count, atomic_load(&shared->ready));
    sleep_ms(hold_ms);
    assert_int_equal(HF_OK, hf_release(lock));
    while (wait(&status) > 0)
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    hf_close(store);
    assert_int_equal(0, atomic_load(&shared->wrong));
}

/* Before, 138 of 5,000 had their turn within two minutes. */
static void thousands_wait_for_one_name_and_get_it(void **state)
{
    int count = threads_of_a_process();

    (void)state;
    wait_ms = PATIENCE_MS;
    send_the_crowd(count, HOLD_MS);
    assert_int_equal(PROCESSES * count, atomic_load(&shared->got));
}

static void thousands_whose_waits_run_out_leave_nothing(void **state)
{
    int count = threads_of_a_process();
    hf_report *report;
    hf_store *store;

    (void)state;
    wait_ms = BRIEF_MS;
    send_the_crowd(count, 0);
    assert_int_equal(PROCESSES * count,
                     atomic_load(&shared->timed_out) + atomic_load(&shared->got));
    assert_int_equal(HF_OK, hf_open(url, &store));
    assert_int_equal(HF_OK, hf_show(store, "one", &report));
    assert_int_equal(0, hf_report_count(report));
    hf_report_free(report);
    hf_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_store, remove_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(thousands_wait_for_one_name_and_get_it),
        TEST(thousands_whose_waits_run_out_leave_nothing),
    };
    struct rlimit limit;

    alarm(170);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
