/* test_fence_inside.c: one at a time inside a key: threads, processes, forks, deaths. */
#include "base/clock.h"
#include "fence_tools.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTERERS 8
#define ENTRIES 50
#define HAND_OVERS 20
#define PLACE_OF_ACCOUNT_7 INT64_C(4355628102564509959) /* 62 bits of its SHA-256 */

/* ---- inside ---------------------------------------------------------------------------------- */

static void test_one_at_a_time_is_inside(void **state)
{
    hf_fence_entry *first = enter("k", 1), *second = NULL, *other;

    (void)state;
    assert_int_equal(hf_fence_begin(fence, "k", 2, HF_NOT_OLDER, 0, &second, NULL), HF_EBUSY);
    assert_says("'k'");
    assert_null(second);
    assert_int_equal(mark_of("k"), 1); /* who does not get in raises nothing */
    other = enter("l", 1);
    hf_fence_end(first);
    second = enter("k", 2);
    hf_fence_end(second);
    hf_fence_end(other);
    assert_false(is_held("k"));
}

static void test_a_wait_ends_in_time(void **state)
{
    hf_fence_entry *entry = enter("k", 1), *second = NULL;
    int64_t began_ms = clock_boot_ms();

    (void)state;
    assert_int_equal(hf_fence_begin(fence, "k", 2, HF_NOT_OLDER, 120, &second, NULL), HF_EBUSY);
    assert_true(clock_boot_ms() - began_ms >= 120);
    assert_true(clock_boot_ms() - began_ms < PATIENCE_MS);
    assert_says("120 ms");
    hf_fence_end(entry);
}

static void *enter_when_free(void *arg)
{
    hf_fence_entry *entry = NULL;
    int *result = arg;

    *result = hf_fence_begin(fence, "account:7", 2, HF_NOT_OLDER, HF_FOREVER, &entry, NULL);
    hf_fence_end(entry);
    return NULL;
}

/* Waits until somebody listens for the leaving: then the bell of the key's place is odd. */
static void await_listener(void)
{
    int fd = open(fence_file("waiting"), O_RDONLY | O_CLOEXEC);
    int64_t until_ms = clock_boot_ms() + PATIENCE_MS;
    uint32_t bell = 0;

    assert_true(fd >= 0);
    while (!(bell & 1) && clock_boot_ms() < until_ms) {
        assert_int_equal(pread(fd, &bell, sizeof bell, PLACE_OF_ACCOUNT_7 % 1024 * 4), 4);
        sched_yield();
    }
    assert_true(bell & 1);
    close(fd);
}

static void test_who_waits_enters_when_the_other_leaves(void **state)
{
    hf_fence_entry *entry = enter("account:7", 1);
    int result = 1;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, enter_when_free, &result), 0);
    await_listener();
    assert_int_equal(mark_of("account:7"), 1);
    hf_fence_end(entry);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result, HF_OK);
    assert_int_equal(mark_of("account:7"), 2);
}

/* A waiter that nobody wakes looks by itself after 50 ms. */
static void test_leaving_wakes_who_waits(void **state)
{
    int quick = 0;

    (void)state;
    for (int i = 0; i < HAND_OVERS; i++) {
        hf_fence_entry *entry = enter("account:7", 2);
        int64_t left_ms;
        int result = 1;
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, enter_when_free, &result), 0);
        await_listener();
        usleep(2000); /* it has tried once more by now, and sleeps */
        hf_fence_end(entry);
        left_ms = clock_boot_ms();
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(result, HF_OK);
        quick += clock_boot_ms() - left_ms < 25;
    }
    assert_true(quick >= HAND_OVERS / 2);
}

static int shared_number, inside_now;

static void *enter_often(void *arg)
{
    hf_fence *own = arg;

    for (int i = 0; i < ENTRIES; i++) {
        hf_fence_entry *entry;
        int seen;

        if (hf_fence_begin(own, "number", 1, HF_NOT_OLDER, HF_FOREVER, &entry, NULL) != HF_OK)
            return (void *)1;
        /* On purpose not atomic with respect to each other: only the key keeps them apart. */
        if (__atomic_add_fetch(&inside_now, 1, __ATOMIC_SEQ_CST) != 1)
            return (void *)2;
        seen = __atomic_load_n(&shared_number, __ATOMIC_SEQ_CST);
        sched_yield();
        __atomic_store_n(&shared_number, seen + 1, __ATOMIC_SEQ_CST);
        __atomic_sub_fetch(&inside_now, 1, __ATOMIC_SEQ_CST);
        hf_fence_end(entry);
    }
    return NULL;
}

static void test_threads_exclude_each_other(void **state)
{
    hf_fence *second = fence_open_with(NULL);
    pthread_t threads[ENTERERS];
    void *answer;

    (void)state;
    shared_number = inside_now = 0;
    for (int i = 0; i < ENTERERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, enter_often, i % 2 ? second : fence), 0);
    for (int i = 0; i < ENTERERS; i++) {
        assert_int_equal(pthread_join(threads[i], &answer), 0);
        assert_null(answer);
    }
    assert_int_equal(shared_number, ENTERERS * ENTRIES);
    hf_fence_close(second);
}

static void test_closing_ends_what_is_left(void **state)
{
    hf_fence *second = fence_open_with(NULL);
    hf_fence_entry *entry;

    (void)state;
    MUST(hf_fence_begin(second, "k", 1, HF_NOT_OLDER, 0, &entry, NULL));
    assert_true(is_held("k"));
    hf_fence_close(second);
    assert_false(is_held("k"));
}

/* Versions of holdfast that run at the same time must agree on where a key is locked. */
static void test_the_place_of_a_key_stays_what_it_was(void **state)
{
    hf_fence_entry *entry = enter("account:7", 1);
    struct flock range = {.l_type = F_WRLCK, .l_len = 1, .l_start = PLACE_OF_ACCOUNT_7};
    int fd = open(fence_file("keys"), O_RDWR | O_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_GETLK, &range), 0);
    assert_int_equal(range.l_type, F_WRLCK);
    hf_fence_end(entry);
    range = (struct flock){.l_type = F_WRLCK}; /* nothing is locked at all */
    assert_int_equal(fcntl(fd, F_OFD_GETLK, &range), 0);
    assert_int_equal(range.l_type, F_UNLCK);
    close(fd);
}

/* ---- processes ------------------------------------------------------------------------------- */

static uint64_t child_token = 5;

static void enter_in_child(void)
{
    hf_fence *own;
    hf_fence_entry *entry;

    if (hf_fence_open(dir, NULL, &own) != HF_OK ||
        hf_fence_begin(own, "k", child_token, HF_NOT_OLDER, 0, &entry, NULL) != HF_OK)
        _exit(1);
}

static void test_a_killed_process_is_not_inside(void **state)
{
    hf_fence_entry *entry = NULL;
    pid_t child = start_child(enter_in_child);

    (void)state;
    assert_int_equal(hf_fence_begin(fence, "k", 6, HF_NOT_OLDER, 0, &entry, NULL), HF_EBUSY);
    kill_child(child);
    MUST(hf_fence_begin(fence, "k", 6, HF_NOT_OLDER, 0, &entry, NULL));
    hf_fence_end(entry);
}

static _Atomic int64_t killed_ms;

static void *kill_soon(void *arg)
{
    usleep(20000);
    atomic_store(&killed_ms, clock_boot_ms());
    kill(*(pid_t *)arg, SIGKILL);
    return NULL;
}

/* Nobody rings, so who waits must look by itself, and soon: every 50 ms. */
static void test_who_waits_for_a_killed_process_enters(void **state)
{
    int quick = 0;

    (void)state;
    for (int i = 0; i < 5; i++) {
        hf_fence_entry *entry = NULL;
        pthread_t thread;
        pid_t child;

        child_token = 10 + 2 * (uint64_t)i;
        child = start_child(enter_in_child);
        assert_int_equal(pthread_create(&thread, NULL, kill_soon, &child), 0);
        MUST(hf_fence_begin(fence, "k", child_token + 1, HF_NOT_OLDER, PATIENCE_MS, &entry, NULL));
        quick += clock_boot_ms() - atomic_load(&killed_ms) < 500;
        hf_fence_end(entry);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_true(quick >= 1);
    child_token = 5;
}

static int leash[2];

/* One that holds, and has a child of its own that lives on until the leash is let go. */
static void enter_and_fork(void)
{
    int ready[2];
    char nothing;

    enter_in_child();
    close(leash[1]);
    if (pipe(ready) < 0)
        _exit(1);
    if (fork() == 0) {
        close(ready[1]);
        _exit(read(leash[0], &nothing, 1) == 0 ? 0 : 1);
    }
    close(ready[1]);
    if (read(ready[0], &nothing, 1) != 0) /* it runs */
        _exit(1);
}

static void test_a_grandchild_does_not_keep_the_key(void **state)
{
    pid_t child;

    (void)state;
    assert_int_equal(pipe(leash), 0);
    child = start_child(enter_and_fork);
    assert_true(is_held("k"));
    kill_child(child);
    assert_false(is_held("k"));
    close(leash[0]);
    close(leash[1]);
}

static uint64_t all_answer_efork(void *arg)
{
    hf_fence_entry *entry = NULL;
    hf_fence_item item = {"k", 9, 0, 0};
    uint64_t mark;

    (void)arg;
    return hf_fence_begin(fence, "k", 9, HF_NOT_OLDER, 0, &entry, NULL) == HF_EFORK &&
           admit("k", 9) == HF_EFORK && hf_fence_mark(fence, "k", &mark) == HF_EFORK &&
           hf_fence_admit_many(fence, &item, 1, HF_NOT_OLDER) == HF_EFORK &&
           hf_fence_reset(fence, "k", 0, NULL, NULL) == HF_EFORK;
}

static uint64_t ends_and_uses_its_own(void *arg)
{
    hf_fence *own;
    hf_fence_entry *entry;

    hf_fence_end(arg); /* the parent's: only frees memory */
    if (hf_fence_open(dir, NULL, &own) != HF_OK)
        return 1;
    if (hf_fence_begin(own, "k", 9, HF_NOT_OLDER, 0, &entry, NULL) != HF_EBUSY)
        return 2;
    hf_fence_close(fence);
    if (hf_fence_begin(own, "l", 9, HF_NOT_OLDER, 0, &entry, NULL) != HF_OK)
        return 3;
    hf_fence_end(entry);
    hf_fence_close(own);
    return 0;
}

static void test_a_forked_child_keeps_its_hands_off(void **state)
{
    hf_fence_entry *entry = enter("k", 5);

    (void)state;
    assert_int_equal(in_child(all_answer_efork, NULL), 1);
    assert_int_equal(in_child(ends_and_uses_its_own, entry), 0);
    assert_true(is_held("k"));
    assert_int_equal(mark_of("l"), 9);
    MUST(admit("k", 6));
    hf_fence_end(entry);
    assert_false(is_held("k"));
}

static uint64_t writes_in_child(void *arg)
{
    hf_fence *own;

    if (hf_fence_open(dir, NULL, &own) != HF_OK)
        return 1;
    if (hf_fence_admit(own, arg, 11, HF_NOT_OLDER, NULL) != HF_OK)
        return 2;
    hf_fence_close(own);
    return 0;
}

static uint64_t child_pid_is_locked(void *arg)
{
    struct flock range = {.l_type = F_WRLCK, .l_start = *(pid_t *)arg, .l_len = 1};
    int fd = open(fence_file("lock.mdb"), O_RDWR | O_CLOEXEC);

    return fd >= 0 && fcntl(fd, F_GETLK, &range) == 0 && range.l_type == F_WRLCK;
}

/* A process that reads has a byte of LMDB's lock file locked. One that went on with its parent's map
 * would have none, and be taken for dead. */
static void test_a_child_that_opens_it_has_a_map_of_its_own(void **state)
{
    pid_t child;

    (void)state;
    MUST(admit("k", 1));
    child = start_child(enter_in_child);
    assert_int_equal(in_child(child_pid_is_locked, &child), 1);
    kill_child(child);
    assert_int_equal(in_child(child_pid_is_locked, &child), 0);
    assert_int_equal(mark_of("k"), 5);
}

static void test_no_descriptor_survives_exec(void **state)
{
    hf_fence_entry *entry = enter("k", 1);
    DIR *open_files = opendir("/proc/self/fd");
    const struct dirent *row;
    int ours = 0;

    (void)state;
    assert_non_null(open_files);
    while ((row = readdir(open_files))) {
        char link[64], target[4096];
        ssize_t length;

        snprintf(link, sizeof link, "/proc/self/fd/%.20s", row->d_name);
        length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (!strstr(target, strrchr(dir, '/')))
            continue;
        ours++;
        assert_int_equal(fcntl((int)strtol(row->d_name, NULL, 10), F_GETFD), FD_CLOEXEC);
    }
    closedir(open_files);
    assert_true(ours >= 4); /* the directory, the key, LMDB's two */
    hf_fence_end(entry);
}

static void test_a_process_may_open_it_twice(void **state)
{
    hf_fence *second = fence_open_with(NULL);
    char other_name[4200];
    hf_fence *third = NULL;

    (void)state;
    MUST(hf_fence_admit(second, "k", 5, HF_NOT_OLDER, NULL));
    assert_int_equal(mark_of("k"), 5);
    snprintf(other_name, sizeof other_name, "%s/../%s/.", dir, strrchr(dir, '/') + 1);
    MUST(hf_fence_open(other_name, NULL, &third));
    hf_fence_close(second);
    hf_fence_close(third);
    MUST(admit("k", 6));
    /* Had closing given up LMDB's locks, this child would take itself for the only user. */
    assert_int_equal(in_child(writes_in_child, "k"), 0);
    MUST(admit("k", 12));
    assert_int_equal(in_child(writes_in_child, "l"), 0);
    assert_int_equal(mark_of("k"), 12);
    assert_int_equal(mark_of("l"), 11);
}

static void test_marks_survive_closing(void **state)
{
    (void)state;
    MUST(admit("k", 21));
    hf_fence_close(fence);
    fence = fence_open_with(NULL);
    assert_int_equal(mark_of("k"), 21);
    assert_int_equal(admit("k", 20), HF_ESTALE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FENCE_TEST(test_one_at_a_time_is_inside),
        FENCE_TEST(test_a_wait_ends_in_time),
        FENCE_TEST(test_who_waits_enters_when_the_other_leaves),
        FENCE_TEST(test_leaving_wakes_who_waits),
        FENCE_TEST(test_threads_exclude_each_other),
        FENCE_TEST(test_closing_ends_what_is_left),
        FENCE_TEST(test_the_place_of_a_key_stays_what_it_was),
        FENCE_TEST(test_a_killed_process_is_not_inside),
        FENCE_TEST(test_who_waits_for_a_killed_process_enters),
        FENCE_TEST(test_a_grandchild_does_not_keep_the_key),
        FENCE_TEST(test_a_forked_child_keeps_its_hands_off),
        FENCE_TEST(test_a_child_that_opens_it_has_a_map_of_its_own),
        FENCE_TEST(test_no_descriptor_survives_exec),
        FENCE_TEST(test_a_process_may_open_it_twice),
        FENCE_TEST(test_marks_survive_closing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
