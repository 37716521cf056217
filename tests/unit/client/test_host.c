/* test_host.c: what the library does to the program it is part of: nothing. */
#include "fixture.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIGNALS 64

static void not_called(hf_lock *lock, void *arg)
{
    (void)lock;
    (void)arg;
}

static void note_done(hf_op *op, int result, void *arg)
{
    (void)op;
    *(int *)arg = result == HF_OK ? 1 : -1;
}

/* The set of blocked signals of a thread of ours, as the kernel tells it. */
static uint64_t blocked_in(const char *thread)
{
    char path[300], line[256];
    uint64_t blocked = 0;
    FILE *status;

    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    status = fopen(path, "r");
    if (!status)
        return UINT64_MAX; /* it has ended since it was listed */
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "SigBlk:", 7) == 0)
            blocked = strtoull(line + 7, NULL, 16);
    fclose(status);
    return blocked;
}

static int count_other_threads_and_check_them(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    assert_non_null(tasks);
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == (long)getpid())
            continue;
        count++;
        for (int number = 1; number < 32; number++) {
            uint64_t bit = UINT64_C(1) << (number - 1);

            if (number != SIGKILL && number != SIGSTOP && !(blocked_in(entry->d_name) & bit))
                fail_msg("signal %d is not blocked in a thread of the library", number);
        }
    }
    closedir(tasks);
    return count;
}

static void signals_are_left_alone(void **state)
{
    struct fixture *fixture = *state;
    struct sigaction before[SIGNALS + 1], after;
    hf_options options = options_of(LONG_TTL_MS, PATIENCE_MS);
    sigset_t mask_before, mask_after;
    hf_lock *lock;
    int done = 0;
    hf_op *op;

    for (int number = 1; number <= SIGNALS; number++)
        sigaction(number, NULL, &before[number]);
    pthread_sigmask(SIG_BLOCK, NULL, &mask_before);
    options.on_lost = not_called;
    must(HF_OK, hf_acquire(fixture->store, "one", &options, &lock));
    assert_true(hf_fd(fixture->store) >= 0);
    must(HF_OK, hf_acquire_start(fixture->store, "two", &options, note_done, &done, &op));
    while (done == 0) {
        struct pollfd ready = {.fd = hf_fd(fixture->store), .events = POLLIN};

        assert_int_equal(1, poll(&ready, 1, PATIENCE_MS));
        assert_true(hf_dispatch(fixture->store) >= 0);
    }
    assert_int_equal(1, done);
    assert_true(count_other_threads_and_check_them() >= 2); /* watchdog and renewer, at least */
    for (int number = 1; number <= SIGNALS; number++)
        if (sigaction(number, NULL, &after) == 0)
            assert_true(after.sa_handler == before[number].sa_handler);
    pthread_sigmask(SIG_BLOCK, NULL, &mask_after);
    for (int number = 1; number <= SIGNALS; number++)
        assert_int_equal(sigismember(&mask_before, number), sigismember(&mask_after, number));
    must(HF_OK, hf_release(lock));
}

/* HF_TEST_LIBRARY: the shared library that was built. */
static void only_our_names_are_exported(void **state)
{
    char command[4200], line[512];
    int count = 0;
    FILE *names;

    (void)state;
    assert_non_null(getenv("HF_TEST_LIBRARY"));
    snprintf(command, sizeof command, "nm -D --defined-only --format=posix '%s'",
             getenv("HF_TEST_LIBRARY"));
    names = popen(command, "r");
    assert_non_null(names);
    while (fgets(line, sizeof line, names)) {
        if (strncmp(line, "hf_", 3) == 0)
            count++;
        else if (strstr(line, " A ") == NULL) /* A: the name of a version */
            fail_msg("exported: %s", line);
    }
    assert_int_equal(0, pclose(names));
    assert_true(count >= 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(signals_are_left_alone, fixture_open, fixture_close),
        cmocka_unit_test(only_our_names_are_exported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
