/* test_stopped.c: a process that is stopped while it raises the tokens' ceiling, or breaks a lock, holds up nobody for long; and one that
 * waits for a lock which is broken meanwhile does not get that.
 *
 * The processes are real. fdatasync of this program stops the process that has asked for it, once, just where
 * a Ctrl-Z, a debugger or a frozen container may. */
#include "store_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/holdfast.h>

#define STUCK_S 30 /* whoever has not come back by then hangs */
#define BRIEF_MS 1500
#define SOON_MS 10000 /* far above what it takes, far below STUCK_S */

static _Atomic bool stop_in_sync;

int fdatasync(int fd)
{
    int result = (int)syscall(SYS_fdatasync, fd);

    if (atomic_exchange(&stop_in_sync, false))
        raise(SIGSTOP);
    return result;
}

/* ---- helpers --------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The first to draw a token in this directory, stopped in the middle of it. */
static pid_t stop_a_drawer(void)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        hf_store *store;
        hf_lock *lock;

        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that failed leaves nobody behind */
        atomic_store(&stop_in_sync, true);
        _exit(hf_open(url, &store) == HF_OK && hf_acquire(store, "a", NULL, &lock) == HF_OK ? 0
                                                                                            : 1);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    return pid;
}

/* Runs `act` in a process of its own, which is killed if it hangs. */
static void in_a_child(void (*act)(void))
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka would go on with the next test, in here */
        alarm(STUCK_S);
        act();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("it %s: killed by signal %d", WTERMSIG(status) == SIGALRM ? "hung" : "crashed",
                 WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void expect(bool is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "not so: %s (%s)\n", what, hf_error());
    _exit(1);
}

static void end_stopped(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- drawing tokens -------------------------------------------------------------------------- */

static void try_and_wait_briefly(void)
{
    hf_options brief = HF_OPTIONS_INIT;
    int64_t began_ms = now_ms();
    hf_store *store;
    hf_lock *lock;

    expect(hf_open(url, &store) == HF_OK, "the store opens");
    expect(hf_try(store, "other", NULL, &lock) == HF_EUNREACH, "a try ends");
    expect(strstr(hf_error(), "stopped") != NULL, "it says why");
    brief.wait_ms = BRIEF_MS;
    expect(hf_acquire(store, "other", &brief, &lock) == HF_EUNREACH, "a wait ends");
    expect(hf_floor(store, 7) == HF_EUNREACH, "raising the floor ends");
    expect(now_ms() - began_ms < 2 * SOON_MS, "all that soon");
    hf_close(store);
}

static void whoever_comes_is_told(void **state)
{
    pid_t drawer = stop_a_drawer();

    (void)state;
    in_a_child(try_and_wait_briefly);
    end_stopped(drawer);
}

static void *acquire_patiently(void *store)
{
    hf_lock *lock;

    return (void *)(intptr_t)hf_acquire(store, "other", NULL, &lock);
}

static void fork_and_cancel(void)
{
    int64_t began_ms = now_ms();
    pthread_t thread;
    hf_store *store;
    void *result;

    expect(hf_open(url, &store) == HF_OK, "the store opens");
    expect(pthread_create(&thread, NULL, acquire_patiently, store) == 0, "a thread starts");
    /* While it waits: whichever moment a fork falls on, it returns. */
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(0);
        expect(pid > 0 && waitpid(pid, NULL, 0) == pid, "a fork returns");
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    hf_close(store); /* ends the wait */
    expect(pthread_join(thread, &result) == 0, "the thread ends");
    expect((intptr_t)result != HF_OK, "nothing was granted");
    expect(now_ms() - began_ms < SOON_MS, "all that soon");
}

static void a_host_can_fork_and_close_meanwhile(void **state)
{
    pid_t drawer = stop_a_drawer();

    (void)state;
    in_a_child(fork_and_cancel);
    end_stopped(drawer);
}

/* Until somebody has something locked in this lock file. */
static void await_locked(const char *name)
{
    char path[4200];
    struct flock range;
    int fd = -1;

    snprintf(path, sizeof path, "%s/locks/%s", dir, name);
    do {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (fd < 0)
            fd = open(path, O_RDONLY | O_CLOEXEC);
        range = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    } while (fd < 0 || fcntl(fd, F_OFD_GETLK, &range) < 0 || range.l_type == F_UNLCK);
    close(fd);
}

static void close_at_once(void)
{
    pthread_t thread;
    hf_store *store;
    void *result;

    expect(hf_open(url, &store) == HF_OK, "the store opens");
    expect(pthread_create(&thread, NULL, acquire_patiently, store) == 0, "a thread starts");
    await_locked("other"); /* it is in its first attempt, which may take a second */
    hf_close(store);
    expect(pthread_join(thread, &result) == 0, "the thread ends");
    expect((intptr_t)result == HF_ECANCELED, "it was cancelled");
}

static void a_close_waits_for_a_first_attempt(void **state)
{
    pid_t drawer = stop_a_drawer();

    (void)state;
    in_a_child(close_at_once);
    end_stopped(drawer);
}

static void a_wait_outlasts_it(void **state)
{
    pid_t drawer = stop_a_drawer();
    pthread_t thread;
    hf_store *store;
    void *result;

    (void)state;
    alarm(STUCK_S);
    assert_int_equal(hf_open(url, &store), HF_OK);
    assert_int_equal(pthread_create(&thread, NULL, acquire_patiently, store), 0);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
    end_stopped(drawer);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((intptr_t)result, HF_OK);
    hf_close(store);
    alarm(0);
}

/* ---- breaking -------------------------------------------------------------------------------- */

static void break_it(void)
{
    uint32_t broken;
    hf_store *store;

    expect(hf_open(url, &store) == HF_OK, "the store opens");
    expect(hf_break(store, "a", 0, &broken) == HF_EUNREACH, "a break ends");
    expect(strstr(hf_error(), "stopped") != NULL, "it says why");
    hf_close(store);
}

/* Somebody has the lock that makes breaks one at a time, and does not go on. */
static void a_break_does_not_wait_for_another_forever(void **state)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
    char path[4200];
    hf_store *store;
    hf_lock *lock;
    int fd;

    (void)state;
    assert_int_equal(hf_open(url, &store), HF_OK);
    assert_int_equal(hf_acquire(store, "a", NULL, &lock), HF_OK);
    snprintf(path, sizeof path, "%s/holdfast-state", dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &range), 0);
    in_a_child(break_it);
    close(fd);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_close(store);
}

static int count_waiters(hf_store *store)
{
    hf_report *report;
    int count = 0;

    assert_int_equal(hf_show(store, "a", &report), HF_OK);
    for (size_t i = 0; i < hf_report_count(report); i++)
        count += hf_report_entry(report, i)->kind == HF_ENTRY_WAITER;
    hf_report_free(report);
    return count;
}

/* Waits for "a", and is stopped meanwhile. Exit status 0 if it does not get it. */
static pid_t stop_a_waiter(hf_store *store)
{
    pid_t pid = fork();
    int64_t end_ms = now_ms() + SOON_MS;
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        hf_options brief = HF_OPTIONS_INIT;
        hf_store *own;
        hf_lock *lock;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        brief.wait_ms = BRIEF_MS;
        _exit(hf_open(url, &own) == HF_OK && hf_acquire(own, "a", &brief, &lock) == HF_EBUSY ? 0
                                                                                             : 1);
    }
    while (count_waiters(store) == 0)
        assert_true(now_ms() < end_ms);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    return pid;
}

/* It wakes up with the file that is not the name's any more, and that nobody holds. */
static void a_waiter_does_not_get_what_was_broken(void **state)
{
    hf_store *store, *another;
    hf_lock *lock, *newer;
    uint32_t broken;
    pid_t waiter;

    (void)state;
    assert_int_equal(hf_open(url, &store), HF_OK);
    assert_int_equal(hf_open(url, &another), HF_OK);
    assert_int_equal(hf_acquire(store, "a", NULL, &lock), HF_OK);
    waiter = stop_a_waiter(store);
    assert_int_equal(hf_break(another, "a", 0, &broken), HF_OK);
    assert_int_equal(hf_release(lock), HF_ELOST);
    assert_int_equal(hf_try(another, "a", NULL, &newer), HF_OK);
    end_stopped(waiter);
    assert_int_equal(hf_release(newer), HF_OK);
    hf_close(another);
    hf_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whoever_comes_is_told),
        TEST(a_host_can_fork_and_close_meanwhile),
        TEST(a_close_waits_for_a_first_attempt),
        TEST(a_wait_outlasts_it),
        TEST(a_break_does_not_wait_for_another_forever),
        TEST(a_waiter_does_not_get_what_was_broken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
