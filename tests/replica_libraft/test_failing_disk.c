/* Disks that are full or fail. What the journal asks of the kernel goes through functions of this file,
 * which can say no: it writes with pwritev2, and reserves room with posix_fallocate. */
#include "node.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fail_writes;  /* an errno: every write to the log ends with it */
static int fail_reserve; /* an errno: no room for segments and snapshots */
static int reserved;     /* segments for which there was room */

#define EXPORTED __attribute__((visibility("default")))

ssize_t interposed_write(int fd, const struct iovec *pieces, int count, off_t offset,
                         int flags) __asm__("pwritev2");
ssize_t interposed_write64(int fd, const struct iovec *pieces, int count, off_t offset,
                           int flags) __asm__("pwritev64v2");

static bool is_of_snapshot(int fd)
{
    char link[32], path[PATH_MAX] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/snapshot.new");
}

static ssize_t write_or_fail(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    static ssize_t (*next)(int, const struct iovec *, int, off_t, int);
    const int *fail = is_of_snapshot(fd) ? &fail_reserve : &fail_writes;

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pwritev64v2");
    errno = __atomic_load_n(fail, __ATOMIC_SEQ_CST);
    return errno ? -1 : next(fd, pieces, count, offset, flags);
}

EXPORTED ssize_t interposed_write(int fd, const struct iovec *pieces, int count, off_t offset,
                                  int flags)
{
    return write_or_fail(fd, pieces, count, offset, flags);
}

EXPORTED ssize_t interposed_write64(int fd, const struct iovec *pieces, int count, off_t offset,
                                    int flags)
{
    return write_or_fail(fd, pieces, count, offset, flags);
}

int interposed_reserve(int fd, off_t offset, off_t size) __asm__("posix_fallocate");
int interposed_reserve64(int fd, off_t offset, off_t size) __asm__("posix_fallocate64");

static int reserve(int fd, off_t offset, off_t size, const char *name)
{
    int (*next)(int, off_t, off_t);
    int failure = __atomic_load_n(&fail_reserve, __ATOMIC_SEQ_CST);

    *(void **)&next = dlsym(RTLD_NEXT, name);
    if (!failure)
        failure = next(fd, offset, size);
    if (!failure)
        __atomic_add_fetch(&reserved, 1, __ATOMIC_SEQ_CST);
    return failure;
}

EXPORTED int interposed_reserve(int fd, off_t offset, off_t size)
{
    return reserve(fd, offset, size, "posix_fallocate");
}

EXPORTED int interposed_reserve64(int fd, off_t offset, off_t size)
{
    return reserve(fd, offset, size, "posix_fallocate64");
}

static struct node node;

static void nothing_fails(void)
{
    __atomic_store_n(&fail_writes, 0, __ATOMIC_SEQ_CST); /* libraft's threads look at them */
    __atomic_store_n(&fail_reserve, 0, __ATOMIC_SEQ_CST);
}

static int set_up(void **state)
{
    (void)state;
    nothing_fails();
    __atomic_store_n(&reserved, 0, __ATOMIC_SEQ_CST);
    node_init(&node);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nothing_fails();
    node_free(&node);
    return 0;
}

static void assert_stopped(const char *words)
{
    assert_int_equal(node.witness.stops, 1);
    if (!strstr(node.witness.stopped, words))
        fail_msg("'%s' does not say '%s'", node.witness.stopped, words);
    assert_int_equal(witness_role(&node.witness), REPLICA_STOPPED);
}

/* Everything answered is there; what failed may be. */
static void assert_nothing_lost(uint32_t answered, uint64_t token)
{
    struct core_counts counts;

    nothing_fails();
    node_reopen(&node);
    core_count(replica_table(node.replica), &counts);
    assert_true(counts.holds >= answered);
    assert_true(counts.last_token >= token);
}

static void test_a_write_fails(void **state)
{
    struct core_command command = read_now();

    (void)state;
    node_serve(&node);
    submit_numbered(node.replica, 1, 3600000);
    NODE_UNTIL(&node, node.witness.answers == 1);
    __atomic_store_n(&fail_writes, EIO, __ATOMIC_SEQ_CST);
    submit_numbered(node.replica, 2, 3600000);
    NODE_UNTIL(&node, node.witness.stops == 1);
    assert_stopped("cannot write to the log in");
    assert_stopped("Input/output error");
    assert_int_equal(node.witness.heard[2].answers, 0);
    assert_int_equal(node.witness.heard[2].failure, REPLICA_UNKNOWN);
    assert_int_equal(replica_submit(node.replica, &command, request(3)), HF_EUNREACH);
    assert_nothing_lost(1, node.witness.heard[1].number);
}

static void test_the_first_write_fails(void **state)
{
    struct error_text err;

    (void)state;
    assert_int_equal(node_open(&node, &err), HF_OK);
    __atomic_store_n(&fail_writes, ENOSPC, __ATOMIC_SEQ_CST);
    NODE_UNTIL(&node, node.witness.stops == 1);
    assert_stopped("No space left on device");
    assert_int_equal(node.witness.role_count, 1); /* it never served */
    assert_nothing_lost(0, 0);
}

static void submit_bulk(size_t number)
{
    static char result[CORE_RESULT_MAX];
    struct core_command command = {.op = CORE_FINISH,
                                   .flags = CORE_ONCE,
                                   .name = {"key", 3},
                                   .lease = {"lease", 5},
                                   .token = 1,
                                   .result = {result, sizeof result}};

    if (node.witness.stops == 0 && witness_role(&node.witness) == REPLICA_LEADING)
        assert_int_equal(replica_submit(node.replica, &command, request(number)), HF_OK);
}

/* Fills the segments that are there already, until the next one cannot be made. Returns how many
 * names were granted. */
static uint32_t fill_the_disk(uint64_t *ret_token)
{
    size_t number = 0;

    while (node.witness.stops == 0) {
        number++;
        assert_true(number < 1000);
        submit_numbered(node.replica, number, 3600000);
        submit_bulk(number + 1000);
        NODE_UNTIL(&node, node.witness.stops || node.witness.heard[number].answers == 1);
    }
    assert_int_equal(node.witness.heard[number].failure, REPLICA_UNKNOWN);
    *ret_token = node.witness.heard[number - 1].number;
    return (uint32_t)number - 1;
}

static void test_no_room_for_a_segment(void **state)
{
    uint64_t token;
    uint32_t answered;

    (void)state;
    node.options.snapshot_bytes = UINT64_C(1) << 40;
    node_serve(&node);
    NODE_UNTIL(&node, __atomic_load_n(&reserved, __ATOMIC_SEQ_CST) == 2);
    __atomic_store_n(&fail_reserve, ENOSPC, __ATOMIC_SEQ_CST);
    answered = fill_the_disk(&token);
    assert_true(answered > 10); /* as much as two segments hold */
    assert_stopped("No space left on device");
    assert_nothing_lost(answered, token);
}

/* A full disk alone does no harm as long as nothing new is needed. */
static void test_room_comes_back(void **state)
{
    (void)state;
    node.options.snapshot_bytes = UINT64_C(1) << 40;
    node_serve(&node);
    __atomic_store_n(&fail_reserve, ENOSPC, __ATOMIC_SEQ_CST);
    for (size_t i = 1; i <= 100; i++) {
        submit_numbered(node.replica, i, 3600000);
        NODE_UNTIL(&node, node.witness.heard[i].answers == 1);
    }
    assert_int_equal(node.witness.stops, 0);
    assert_nothing_lost(100, node.witness.heard[100].number);
}

/* Closed while it waits to be tried once more. */
static void test_no_room_for_a_snapshot(void **state)
{
    uint64_t hash;

    (void)state;
    node.options.snapshot_bytes = 100000;
    node_serve(&node);
    __atomic_store_n(&fail_reserve, ENOSPC, __ATOMIC_SEQ_CST);
    for (size_t i = 1; i <= 5000; i++)
        submit_numbered(node.replica, i, 3600000);
    NODE_UNTIL(&node, node.witness.answers == 5000);
    NODE_UNTIL(&node, node_status(&node).snapshotting);
    for (size_t i = 5001; i <= 5100; i++) { /* and it serves on */
        submit_numbered(node.replica, i, 3600000);
        NODE_UNTIL(&node, node.witness.heard[i].answers == 1);
    }
    assert_true(node_status(&node).snapshotting);
    assert_int_equal(node_status(&node).snapshots, 0);
    hash = node_hash(&node);
    node_close(&node);
    __atomic_store_n(&fail_reserve, 0, __ATOMIC_SEQ_CST);
    witness_init(&node.witness);
    node.witness.now_us = 0;
    node_serve(&node);
    assert_int_equal(node_hash(&node), hash);
}

static void test_no_room_to_begin(void **state)
{
    struct error_text err = {""};

    (void)state;
    __atomic_store_n(&fail_reserve, ENOSPC, __ATOMIC_SEQ_CST);
    assert_int_equal(node_open(&node, &err), HF_EIO);
    if (!strstr(err.text, "No space left on device"))
        fail_msg("'%s'", err.text);
    __atomic_store_n(&fail_reserve, 0, __ATOMIC_SEQ_CST);
    node_serve(&node);
}

/* The same without tricks, on a disk of 20 MB. Needs the right to mount. */
static void test_a_small_disk(void **state)
{
    uint64_t token;
    uint32_t answered;

    (void)state;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", node.home, "tmpfs", 0, "size=20m") < 0)
        skip();
    node.options.snapshot_bytes = UINT64_C(1) << 40;
    node_serve(&node);
    answered = fill_the_disk(&token);
    assert_stopped("No space left on device");
    node_close(&node);
    assert_int_equal(mount("tmpfs", node.home, "tmpfs", MS_REMOUNT, "size=100m"), 0);
    witness_init(&node.witness);
    node.witness.now_us = 0;
    node_serve(&node);
    assert_nothing_lost(answered, token);
    node_close(&node);
    assert_int_equal(umount(node.home), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_write_fails),          TEST(test_the_first_write_fails),
        TEST(test_no_room_for_a_segment),  TEST(test_room_comes_back),
        TEST(test_no_room_for_a_snapshot), TEST(test_no_room_to_begin),
        TEST(test_a_small_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
