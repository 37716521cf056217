/* test_fence_faults.c: a fence whose files are removed or replaced under it, whose disk is full or read-only, and
 * whose table of readers is full of the dead. */
#include "fence_tools.h"

#include <fcntl.h>
#include <lmdb.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define READERS_MAX 2048 /* as in src/guard/fence/lmdb.h */

/* ---- files that are not those any more -------------------------------------------------------- */

static void assert_nobody_gets_in(const char *words)
{
    hf_fence_entry *entry = NULL;
    uint64_t mark;
    int count = 0;

    assert_int_equal(admit("k", 5), HF_EREFUSED); /* which would only read */
    assert_says(words);
    assert_int_equal(admit("k", 6), HF_EREFUSED);
    assert_int_equal(hf_fence_begin(fence, "k", 5, HF_NOT_OLDER, 0, &entry, NULL), HF_EREFUSED);
    assert_null(entry);
    assert_int_equal(hf_fence_mark(fence, "k", &mark), HF_EREFUSED);
    assert_int_equal(hf_fence_each(fence, count_keys, &count), HF_EREFUSED);
    assert_int_equal(hf_fence_reset(fence, "k", 1, NULL, &mark), HF_EREFUSED);
}

static void test_files_that_are_moved_away_let_nobody_in(void **state)
{
    static const char *const names[] = {"data.mdb", "lock.mdb"};

    (void)state;
    MUST(admit("k", 5));
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rename(fence_file(names[i]), fence_file("aside")), 0);
        assert_nobody_gets_in("removed or replaced");
        assert_int_equal(rename(fence_file("aside"), fence_file(names[i])), 0);
        MUST(admit("k", 5)); /* it was not for ever */
    }
    MUST(admit("k", 6));
    assert_int_equal(mark_of("k"), 6);
}

/* As when a copy is put back while somebody still uses what it replaces. */
static void test_a_copy_put_back_under_it_lets_nobody_in(void **state)
{
    char command[9000];

    (void)state;
    MUST(admit("k", 5));
    snprintf(command, sizeof command, "cd '%s' && cp data.mdb copy && mv copy data.mdb", dir);
    assert_int_equal(system(command), 0);
    assert_nobody_gets_in("removed or replaced");
    hf_fence_close(fence);
    fence = fence_open_with(NULL);
    assert_int_equal(mark_of("k"), 5);
    MUST(admit("k", 6));
}

static uint64_t open_and_admit_one(void *arg)
{
    hf_fence *own;
    int result = hf_fence_open(dir, NULL, &own);

    (void)arg;
    return (uint64_t) -
           (result == HF_OK ? hf_fence_admit(own, "k", 1, HF_NOT_OLDER, NULL) : result);
}

static void test_a_directory_that_is_removed_lets_nobody_in(void **state)
{
    (void)state;
    MUST(admit("k", 5));
    assert_int_equal(fence_remove(dir), 0);
    assert_nobody_gets_in(dir);
    /* A new one in its place has new marks, of which this fence knows nothing. */
    assert_int_equal(in_child(open_and_admit_one, NULL), HF_OK);
    assert_nobody_gets_in(dir);
}

/* ---- files that must not be made again ------------------------------------------------------- */

static uint64_t open_and_enter(void *arg)
{
    hf_fence_entry *entry;
    hf_fence *own;
    int result = hf_fence_open(dir, NULL, &own);

    if (result == HF_OK)
        result = hf_fence_begin(own, arg, 100, HF_NOT_OLDER, 0, &entry, NULL);
    return (uint64_t)-result;
}

static void test_without_its_locks_a_fence_is_not_opened(void **state)
{
    static const char *const names[] = {"keys", "lock.mdb"};
    char key[] = "k";
    hf_fence_entry *entry;

    (void)state;
    entry = enter("k", 5);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rename(fence_file(names[i]), fence_file("aside")), 0);
        /* Made anew, it would not know that somebody is inside. */
        assert_int_equal(in_child(open_and_enter, key), (uint64_t)-HF_EREFUSED);
        assert_int_equal(access(fence_file(names[i]), F_OK), -1);
        assert_int_equal(rename(fence_file("aside"), fence_file(names[i])), 0);
        assert_int_equal(in_child(open_and_enter, key), (uint64_t)-HF_EBUSY);
    }
    hf_fence_end(entry);
}

/* ---- disks, in a mount of our own ------------------------------------------------------------- */

#define CANNOT_MOUNT 1000

static bool mount_small(const char *path)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mkdir(path, 0700) == 0 && mount("none", path, "tmpfs", 0, "size=512k,mode=0700") == 0;
}

static int write_ballast(const char *path)
{
    char bytes[4096] = {1};
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return -1;
    for (int i = 0; i < 64; i++)
        if (write(fd, bytes, sizeof bytes) < 0)
            break;
    return close(fd);
}

static void nth_key(uint64_t n, char ret_key[HF_KEY_MAX + 1])
{
    snprintf(ret_key, HF_KEY_MAX + 1, "%0*llu", HF_KEY_MAX, (unsigned long long)n);
}

/* Which step failed, or 0. */
static uint64_t check_marks(hf_fence *own, uint64_t count)
{
    char key[HF_KEY_MAX + 1];
    uint64_t mark;

    for (uint64_t i = 1; i <= count; i++) {
        nth_key(i, key);
        if (hf_fence_mark(own, key, &mark) != HF_OK || mark != i)
            return 1;
        if (i > 1 && hf_fence_admit(own, key, i - 1, HF_NOT_OLDER, NULL) != HF_ESTALE)
            return 2;
    }
    return 0;
}

static uint64_t fill_the_disk(void *arg)
{
    hf_fence_options options = HF_FENCE_OPTIONS_INIT;
    const char *path = arg;
    char ballast[4300], key[HF_KEY_MAX + 1];
    hf_fence *own;
    uint64_t count = 0, mark = 99;
    int result;

    options.allow = HF_ALLOW_TMPFS;
    snprintf(ballast, sizeof ballast, "%s/ballast", path);
    if (!mount_small(path))
        return CANNOT_MOUNT;
    if (hf_fence_open(path, &options, &own) != HF_OK || write_ballast(ballast) != 0)
        return 10;
    do {
        nth_key(++count, key);
        result = hf_fence_admit(own, key, count, HF_NOT_OLDER, NULL);
    } while (result == HF_OK && count < 100000);
    if (result != HF_EIO || !strstr(hf_error(), "disk is full"))
        return 11;
    if (hf_fence_mark(own, key, &mark) != HF_OK || mark != 0)
        return 12; /* what was refused was not done */
    if (check_marks(own, count - 1) != 0)
        return 13; /* what was admitted is there */
    if (hf_fence_reset(own, "k", 5, NULL, NULL) == HF_OK)
        return 14; /* it cannot be logged */
    if (unlink(ballast) != 0 || hf_fence_admit(own, key, count, HF_NOT_OLDER, NULL) != HF_OK)
        return 15;
    hf_fence_close(own);
    if (hf_fence_open(path, &options, &own) != HF_OK || check_marks(own, count) != 0)
        return 16;
    return 0;
}

static void test_a_full_disk_says_so_and_loses_nothing(void **state)
{
    char path[4200];
    uint64_t answer;

    (void)state;
    snprintf(path, sizeof path, "%s", fence_file("small"));
    answer = in_child(fill_the_disk, path);
    if (answer == CANNOT_MOUNT)
        skip();
    assert_int_equal(answer, 0);
}

static uint64_t use_read_only(void *arg)
{
    hf_fence_options options = HF_FENCE_OPTIONS_INIT;
    const char *path = arg;
    hf_fence *own = NULL;

    options.allow = HF_ALLOW_TMPFS;
    if (!mount_small(path))
        return CANNOT_MOUNT;
    if (hf_fence_open(path, &options, &own) != HF_OK ||
        hf_fence_admit(own, "k", 5, HF_NOT_OLDER, NULL) != HF_OK)
        return 10;
    hf_fence_close(own);
    own = NULL;
    if (mount("none", path, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return 11;
    if (hf_fence_open(path, &options, &own) != HF_EREFUSED || own)
        return 12;
    return 0;
}

static void test_a_read_only_disk_is_refused(void **state)
{
    char path[4200];
    uint64_t answer;

    (void)state;
    snprintf(path, sizeof path, "%s", fence_file("small"));
    answer = in_child(use_read_only, path);
    if (answer == CANNOT_MOUNT)
        skip();
    assert_int_equal(answer, 0);
}

/* ---- readers that are dead ------------------------------------------------------------------- */

static void read_with_every_slot(void)
{
    MDB_env *env;
    MDB_txn *txn;

    if (mdb_env_create(&env) || mdb_env_open(env, dir, MDB_NOTLS, 0600))
        _exit(1);
    for (int i = 0; i < READERS_MAX; i++)
        if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0)
            return; /* ours has one of them */
}

static void test_slots_of_killed_readers_are_used_again(void **state)
{
    pid_t pid;

    (void)state;
    pid = start_child(read_with_every_slot);
    assert_int_equal(admit("k", 1), HF_ENOMEM);
    assert_says("use fewer threads");
    kill_child(pid);
    MUST(admit("k", 1));
    MUST(admit("k", 2));
    assert_int_equal(admit("k", 1), HF_ESTALE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FENCE_TEST(test_files_that_are_moved_away_let_nobody_in),
        FENCE_TEST(test_a_copy_put_back_under_it_lets_nobody_in),
        FENCE_TEST(test_a_directory_that_is_removed_lets_nobody_in),
        FENCE_TEST(test_without_its_locks_a_fence_is_not_opened),
        FENCE_TEST(test_a_full_disk_says_so_and_loses_nothing),
        FENCE_TEST(test_a_read_only_disk_is_refused),
        FENCE_TEST(test_slots_of_killed_readers_are_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
