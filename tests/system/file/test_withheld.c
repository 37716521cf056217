/* test_withheld.c: a name that was broken, by one who was killed, while its old holder has not let go. Whoever looks
 * at it has no descriptors left: that is no reason to believe that it is over. */
#include "store_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/holdfast.h>

#define GRACE_MS 600000
#define LOOKS_MS 2500 /* whoever waits looks about twice a second */
#define FEW_DESCRIPTORS 64

/* ---- helpers --------------------------------------------------------------------------------- */

static void expect_byte(int fd)
{
    char byte;

    assert_int_equal(1, read(fd, &byte, 1));
}

/* A process that holds "x", says so, says that it was told of the break, and does not let go before it is told to. */
static void hold(int said, int orders)
{
    hf_store *store;
    hf_lock *lock;

    if (hf_open(url, &store) != HF_OK || hf_acquire(store, "x", NULL, &lock) != HF_OK ||
        write(said, "h", 1) != 1)
        _exit(1);
    while (hf_lock_left_ms(lock) > 0)
        select(0, NULL, NULL, NULL, &(struct timeval){.tv_usec = 10000});
    if (write(said, "l", 1) != 1 || read(orders, &(char){0}, 1) != 1)
        _exit(1);
    hf_release(lock);
    _exit(0);
}

static void break_it(void)
{
    hf_store *store;
    uint32_t broken;

    if (hf_open(url, &store) == HF_OK)
        hf_break(store, "x", GRACE_MS, &broken);
    _exit(1);
}

struct old_holder {
    pid_t pid;
    int orders;
};

/* Leaves "x" withheld, and nobody but the old holder alive. */
static struct old_holder leave_withheld(void)
{
    int said[2], orders[2];
    struct old_holder old;
    pid_t breaker;

    assert_int_equal(0, pipe(said));
    assert_int_equal(0, pipe(orders));
    old.pid = fork();
    if (old.pid == 0) {
        close(orders[1]);
        hold(said[1], orders[0]);
    }
    old.orders = orders[1];
    close(orders[0]);
    close(said[1]);
    expect_byte(said[0]);
    breaker = fork();
    if (breaker == 0)
        break_it();
    expect_byte(said[0]);
    close(said[0]);
    kill(breaker, SIGKILL);
    assert_int_equal(breaker, waitpid(breaker, NULL, 0));
    return old;
}

static void let_go(const struct old_holder *old)
{
    int status;

    assert_int_equal(1, write(old->orders, "g", 1));
    assert_int_equal(old->pid, waitpid(old->pid, &status, 0));
    assert_int_equal(0, status);
    close(old->orders);
}

/* Uses up all descriptors until give_descriptors_back. */
static int taken[FEW_DESCRIPTORS];
static size_t taken_count;
static struct rlimit limit_before;

static void take_descriptors(void)
{
    struct rlimit few;
    int fd;

    assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &limit_before));
    few = limit_before;
    few.rlim_cur = FEW_DESCRIPTORS;
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &few));
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        taken[taken_count++] = fd;
    assert_int_equal(EMFILE, errno);
}

static void give_descriptors_back(void)
{
    while (taken_count > 0)
        close(taken[--taken_count]);
    assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &limit_before));
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void without_descriptors_a_withheld_name_stays_so(void **state)
{
    hf_options options = HF_OPTIONS_INIT;
    struct old_holder old = leave_withheld();
    hf_store *store = open_store();
    hf_lock *lock = NULL;
    int result;

    (void)state;
    options.wait_ms = LOOKS_MS;
    assert_int_equal(HF_EBUSY, hf_try(store, "x", NULL, &lock)); /* and it keeps the file open */
    take_descriptors();
    assert_int_not_equal(HF_OK, hf_try(store, "x", NULL, &lock));
    result = hf_acquire(store, "x", &options, &lock);
    assert_int_not_equal(HF_OK, result);
    give_descriptors_back();
    assert_int_equal(HF_EBUSY, hf_try(store, "x", NULL, &lock)); /* nobody has lifted it */
    let_go(&old);
    assert_int_equal(HF_OK, hf_try(store, "x", NULL, &lock));
    hf_release(lock);
    hf_close(store);
}

/* What is wrong is said, not what might be. */
static void a_lack_of_descriptors_is_called_that(void **state)
{
    hf_store *store = open_store();
    hf_lock *lock = NULL;

    (void)state;
    take_descriptors();
    assert_int_equal(HF_ENOMEM, hf_try(store, "y", NULL, &lock));
    assert_non_null(strstr(hf_error(), "Too many open files"));
    give_descriptors_back();
    hf_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_descriptors_a_withheld_name_stays_so,
                                        make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(a_lack_of_descriptors_is_called_that, make_directory,
                                        remove_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
