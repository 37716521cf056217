/* test_fence_trouble.c: a fence that is full, grows, is damaged, has a stopped writer, or is in a place
 * where marks would not be safe. */
#include "fence_tools.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BATCH 64

/* ---- trouble --------------------------------------------------------------------------------- */

/* The n-th key of a fence that is to be filled: as long as can be. */
static void long_key(uint64_t n, char ret_key[HF_KEY_MAX + 1])
{
    snprintf(ret_key, HF_KEY_MAX + 1, "%0*" PRIu64, HF_KEY_MAX, n);
}

/* Many at a time, because a disk may be slow. */
static int fill(hf_fence *into, uint64_t keys, uint64_t *ret_done)
{
    static char texts[BATCH][HF_KEY_MAX + 1];
    hf_fence_item items[BATCH];
    int result = HF_OK;

    for (*ret_done = 0; *ret_done < keys && result == HF_OK;) {
        for (uint64_t i = 0; i < BATCH; i++) {
            long_key(*ret_done + i, texts[i]);
            items[i] = (hf_fence_item){texts[i], *ret_done + i + 1, 1, 99};
        }
        result = hf_fence_admit_many(into, items, BATCH, HF_NOT_OLDER);
        if (result == HF_OK)
            *ret_done += BATCH;
        else if (items[0].result != 1 || items[0].mark != 99)
            return HF_EINTERNAL; /* a failure leaves the outputs alone */
    }
    return result;
}

static void reopen_small(void)
{
    hf_fence_options small = HF_FENCE_OPTIONS_INIT;

    small.bytes_max = HF_FENCE_BYTES_MIN;
    hf_fence_close(fence);
    fence = NULL;
    assert_int_equal(fence_remove(dir), 0);
    fence = fence_open_with(&small);
}

static void test_a_full_fence_says_so_and_loses_nothing(void **state)
{
    hf_fence_options more = HF_FENCE_OPTIONS_INIT;
    char key[HF_KEY_MAX + 1];
    hf_fence *second;
    uint64_t done = 0, again = 0;
    int count = 0;

    (void)state;
    reopen_small();
    MUST(admit("first", 42));
    assert_int_equal(fill(fence, 100000, &done), HF_EIO);
    assert_says("bytes_max");
    assert_in_range(done, 500, 5000);
    long_key(done, key);
    assert_int_equal(mark_of(key), 0);
    assert_int_equal(mark_of("first"), 42);
    MUST(admit("first", 42));
    assert_int_equal(admit("first", 41), HF_ESTALE);
    MUST(hf_fence_each(fence, count_keys, &count));
    assert_int_equal(count, done + 1);
    more.bytes_max = 8 * HF_FENCE_BYTES_MIN;
    second = fence_open_with(&more);
    MUST(fill(fence, 2 * done, &again)); /* counts for all */
    assert_int_equal(again, 2 * done);
    hf_fence_close(second);
}

static uint64_t fill_much(void *arg)
{
    hf_fence_options more = HF_FENCE_OPTIONS_INIT;
    hf_fence *own;
    uint64_t done = 0;

    (void)arg;
    more.bytes_max = 32 * HF_FENCE_BYTES_MIN;
    if (hf_fence_open(dir, &more, &own) != HF_OK || fill(own, 64 * BATCH, &done) != HF_OK)
        return 0;
    hf_fence_close(own);
    return done;
}

/* The kernel would end this program by SIGXFSZ. */
static void test_a_limit_of_file_sizes_is_said_and_kills_nobody(void **state)
{
    struct rlimit limit, before;
    hf_fence *another = NULL;
    sigset_t pending;
    struct stat st;
    uint64_t done;

    (void)state;
    assert_int_equal(stat(fence_file("data.mdb"), &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)st.st_size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(fill(fence, 1000, &done), HF_EIO);
    assert_non_null(strstr(hf_error(), "file size limit"));
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGXFSZ), 0);
    assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &pending), 0);
    assert_int_equal(sigismember(&pending, SIGXFSZ), 0); /* as before: not blocked */
    limit.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)hf_fence_open(fence_file("another"), NULL, &another);
    assert_null(another);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(fill(fence, 1000, &done), HF_OK);
}

static void test_another_process_may_make_it_larger(void **state)
{
    hf_fence_entry *entry;
    int count = 0;

    (void)state;
    reopen_small();
    MUST(admit("mine", 1));
    entry = enter("inside", 1);
    assert_int_equal(in_child(fill_much, NULL), 64 * BATCH);
    assert_int_equal(mark_of("mine"), 1);
    MUST(admit("mine", 2));
    MUST(hf_fence_each(fence, count_keys, &count));
    assert_int_equal(count, 64 * BATCH + 2);
    hf_fence_end(entry);
}

/* A process that is stopped in the middle of a write holds this place. */
static void test_a_stopped_writer_stops_nobody_for_ever(void **state)
{
    struct flock range = {.l_type = F_WRLCK, .l_len = 1};
    hf_fence_options hasty = HF_FENCE_OPTIONS_INIT;
    hf_fence_entry *entry = NULL;
    uint64_t mark;
    int fd;

    (void)state;
    MUST(admit("k", 5));
    hf_fence_close(fence);
    hasty.patience_ms = 100;
    fence = fence_open_with(&hasty);
    fd = open(fence_file("keys"), O_RDWR | O_CLOEXEC);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &range), 0);
    assert_int_equal(admit("k", 6), HF_EBUSY);
    assert_says("100 ms");
    assert_int_equal(hf_fence_begin(fence, "l", 6, HF_NOT_OLDER, 0, &entry, NULL), HF_EBUSY);
    assert_null(entry);
    assert_int_equal(hf_fence_reset(fence, "k", 1, NULL, &mark), HF_EBUSY);
    MUST(admit("k", 5)); /* who only reads waits for nobody */
    assert_int_equal(admit("k", 4), HF_ESTALE);
    assert_int_equal(mark_of("k"), 5);
    close(fd);
    assert_false(is_held("l"));
    MUST(admit("k", 6));
}

static uint64_t put_garbage(void *arg)
{
    MDB_val key = {3, "bad"}, value = {5, "short"};
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;

    (void)arg;
    if (mdb_env_create(&env) || mdb_env_open(env, dir, 0, 0600) ||
        mdb_txn_begin(env, NULL, 0, &txn) || mdb_dbi_open(txn, NULL, 0, &dbi) ||
        mdb_put(txn, dbi, &key, &value, 0) || mdb_txn_commit(txn))
        return 1;
    mdb_env_close(env);
    return 0;
}

static void test_bytes_that_are_no_mark_let_nobody_in(void **state)
{
    hf_fence_entry *entry = NULL;
    int count = 0;

    (void)state;
    assert_int_equal(in_child(put_garbage, NULL), 0);
    assert_int_equal(admit("bad", 5), HF_EIO);
    assert_says("no mark");
    assert_int_equal(hf_fence_begin(fence, "bad", HF_TOKEN_MAX, HF_NOT_OLDER, 0, &entry, NULL),
                     HF_EIO);
    assert_null(entry);
    assert_int_equal(hf_fence_each(fence, count_keys, &count), HF_EIO);
    MUST(admit("good", 5));
}

static void test_a_damaged_file_is_not_opened(void **state)
{
    hf_fence *none = NULL;
    int fd;

    (void)state;
    hf_fence_close(fence);
    fence = NULL;
    fd = open(fence_file("data.mdb"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "damage damage damage damage", 27, 8), 27);
    close(fd);
    assert_int_equal(hf_fence_open(dir, NULL, &none), HF_EIO);
    assert_says("damaged");
    assert_null(none);
}

/* ---- where a fence may be -------------------------------------------------------------------- */

static void test_unsafe_places_are_refused(void **state)
{
    hf_fence_options options = HF_FENCE_OPTIONS_INIT;
    hf_fence *opened = NULL;
    int fd;

    (void)state;
    assert_int_equal(chmod(dir, 0770), 0);
    assert_int_equal(hf_fence_open(dir, NULL, &opened), HF_EREFUSED);
    assert_says("others can write");
    options.allow = HF_ALLOW_WRITABLE;
    MUST(hf_fence_open(dir, &options, &opened));
    hf_fence_close(opened);
    assert_int_equal(chmod(dir, 0700), 0);
    opened = NULL;
    options = (hf_fence_options)HF_FENCE_OPTIONS_INIT;
    options.existing = 1;
    assert_int_equal(hf_fence_open(fence_file("none"), &options, &opened), HF_EREFUSED);
    assert_says("there is no fence");
    assert_int_equal(access(fence_file("none"), F_OK), -1);
    assert_int_equal(mkdir(fence_file("none"), 0700), 0);
    assert_int_equal(hf_fence_open(fence_file("none"), &options, &opened), HF_EREFUSED);
    fd = open(fence_file("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(hf_fence_open(fence_file("file"), NULL, &opened), HF_EREFUSED);
    assert_null(opened);
}

static void test_a_directory_is_made_for_us_alone(void **state)
{
    static const char *const names[] = {"a/b/data.mdb", "a/b/lock.mdb", "a/b/keys", "a/b/waiting"};
    mode_t before = umask(0);
    hf_fence *opened = NULL;
    struct stat st;

    (void)state;
    MUST(hf_fence_open(fence_file("a/b"), NULL, &opened));
    hf_fence_close(opened);
    umask(before);
    assert_int_equal(stat(fence_file("a/b"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(stat(fence_file(names[i]), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void test_tmpfs_is_refused(void **state)
{
    hf_fence_options options = HF_FENCE_OPTIONS_INIT;
    char path[] = "/dev/shm/fence-XXXXXX";
    hf_fence *opened = NULL;
    struct statfs fs;

    (void)state;
    if (statfs("/dev/shm", &fs) < 0 || fs.f_type != TMPFS_MAGIC || !mkdtemp(path))
        skip();
    assert_int_equal(hf_fence_open(path, NULL, &opened), HF_EREFUSED);
    assert_says("tmpfs");
    options.allow = HF_ALLOW_TMPFS;
    MUST(hf_fence_open(path, &options, &opened));
    hf_fence_close(opened);
    fence_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FENCE_TEST(test_a_full_fence_says_so_and_loses_nothing),
        FENCE_TEST(test_a_limit_of_file_sizes_is_said_and_kills_nobody),
        FENCE_TEST(test_another_process_may_make_it_larger),
        FENCE_TEST(test_a_stopped_writer_stops_nobody_for_ever),
        FENCE_TEST(test_bytes_that_are_no_mark_let_nobody_in),
        FENCE_TEST(test_a_damaged_file_is_not_opened),
        FENCE_TEST(test_unsafe_places_are_refused),
        FENCE_TEST(test_a_directory_is_made_for_us_alone),
        FENCE_TEST(test_tmpfs_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
