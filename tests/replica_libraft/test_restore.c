/* A directory from a copy of another: it is another store, of another cluster, and gives no token twice. */
#include "base/clock.h"
#include "base/random.h"
#include "node.h"
#include "replica_libraft/founding.h"
#include "replica_libraft/restore.h"

#include <fcntl.h>
#include <raft.h>
#include <sys/stat.h>
#include <unistd.h>

static struct node node;
static char copy[PATH_MAX], target[PATH_MAX];
static struct error_text err;
static struct restore_result found;

static int set_up(void **state)
{
    (void)state;
    node_init(&node);
    snprintf(copy, sizeof copy, "%s", node.path);
    snprintf(target, sizeof target, "%s/other", node.home);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    node_free(&node);
    return 0;
}

static void fill(void *bytes, unsigned size)
{
    random_fill(bytes, size);
}

static int restore(void)
{
    struct restore_options options = {.source = copy,
                                      .target = target,
                                      .id = 1,
                                      .address = "",
                                      .when = "yesterday",
                                      .random = fill};

    err.text[0] = '\0';
    return restore_directory(&options, &found, &err);
}

static void hold(size_t number)
{
    uint32_t before = node.witness.answers;

    submit_numbered(node.replica, number, 3600000);
    NODE_UNTIL(&node, node.witness.answers > before);
}

static bool has(const char *directory, const char *name)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static void put(const char *directory, const char *name)
{
    char path[2 * PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, "x\n", 2) == 2);
    close(fd);
}

/* Starts what was restored. */
static struct core_counts serve_restored(void)
{
    struct core_counts counts;

    snprintf(node.path, sizeof node.path, "%s", target);
    node_serve(&node);
    core_count(replica_table(node.replica), &counts);
    return counts;
}

static void test_tokens_are_raised_once_and_only_once(void **state)
{
    struct core_counts before, after;

    (void)state;
    node_serve(&node);
    hold(1);
    hold(2);
    core_count(replica_table(node.replica), &before);
    node_close(&node);
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(found.token, before.last_token);
    assert_int_equal(found.holds, 2);
    for (int start = 0; start < 3; start++) {
        after = serve_restored();
        assert_int_equal(after.last_token, before.last_token + CORE_RESTORE_JUMP);
        assert_int_equal(after.holds, 2);
        assert_string_not_equal(after.id, before.id);
        node_close(&node);
    }
    assert_false(has(target, RESTORE_MARK));
    assert_int_equal(restore(), HF_EREFUSED); /* once */
    assert_non_null(strstr(err.text, "is not empty"));
}

static void test_a_snapshot_is_restored_too(void **state)
{
    struct core_counts before, after;
    char path[2 * PATH_MAX];
    size_t number = 1;

    (void)state;
    node.options.snapshot_bytes = 4096;
    node_serve(&node);
    while (!node_find_file(&node, "snapshot-", "", path)) {
        assert_true(number < 2000);
        hold(number++);
    }
    core_count(replica_table(node.replica), &before);
    node_close(&node);
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(found.token, before.last_token);
    after = serve_restored();
    assert_int_equal(after.last_token, before.last_token + CORE_RESTORE_JUMP);
    assert_int_equal(after.holds, before.holds);
    node_close(&node);
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

/* As the server would, before it starts. */
static int settle(void)
{
    struct storage_options options = {.path = target};
    struct founding founding = {.id = 1, .life = 7, .cluster = "0123456789abcdef0123456789abcdef"};
    struct founding_result settled;
    struct storage *storage;
    bool closed = false;
    uv_loop_t loop;
    int result;

    assert_int_equal(uv_loop_init(&loop), 0);
    result = storage_open(&loop, &options, &storage, &err);
    if (result == HF_OK) {
        result = founding_settle(storage, &founding, &settled, &err);
        storage_close(storage, on_closed, &closed);
        while (!closed)
            uv_run(&loop, UV_RUN_ONCE);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    return result;
}

/* A crash in the middle leaves the mark: nobody starts in it, and the next try begins again. */
static void test_what_was_interrupted_is_begun_again(void **state)
{
    struct core_counts before, after;

    (void)state;
    node_serve(&node);
    hold(1);
    core_count(replica_table(node.replica), &before);
    node_close(&node);
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(settle(), HF_OK);
    put(target, RESTORE_MARK); /* as if the last step had not been done */
    assert_int_equal(settle(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "did not come to its end"));
    assert_int_equal(restore(), HF_OK);
    after = serve_restored();
    assert_int_equal(after.last_token, before.last_token + CORE_RESTORE_JUMP); /* not twice */
    node_close(&node);
}

static void test_what_cannot_be_restored(void **state)
{
    (void)state;
    assert_int_equal(restore(), HF_EREFUSED); /* there is nothing */
    assert_int_equal(mkdir(copy, 0700), 0);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is no copy of a data directory"));
    assert_int_equal(access(target, F_OK), -1);
    node_serve(&node);
    hold(1);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is in use by a server"));
    node_close(&node);
    assert_int_equal(mkdir(target, 0700), 0);
    put(target, "something");
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is not empty (there is something)"));
    assert_true(has(target, "something") && !has(target, "lock"));
}

/* It is not opened as if it were whole: that is for the log to notice. */
static void test_damage_in_the_copy_is_told_and_nothing_left_behind(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    node_serve(&node);
    hold(1);
    node_close(&node);
    snprintf(path, sizeof path, "%s/term", copy);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(restore(), HF_EIO);
    assert_non_null(strstr(err.text, copy));
    assert_non_null(strstr(err.text, "'term' is lost or damaged: take another backup"));
    assert_null(strstr(err.text, target));
    assert_int_equal(access(target, F_OK), -1);
    assert_int_equal(mkdir(target, 0700), 0); /* ours: it stays, and nothing is in it */
    assert_int_equal(restore(), HF_EIO);
    assert_int_equal(rmdir(target), 0);
}

static void test_a_backup_is_not_written_to(void **state)
{
    (void)state;
    node_serve(&node);
    hold(1);
    node_close(&node);
    snprintf(target, sizeof target, "%.*s/sub", PATH_MAX - 8, copy);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is not to be written to"));
    assert_false(has(copy, "sub"));
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_false(has(target, "lock"));
    snprintf(target, sizeof target, "%.*s-2", PATH_MAX - 8, copy); /* its name begins the same */
    assert_int_equal(restore(), HF_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tokens_are_raised_once_and_only_once),
        TEST(test_a_snapshot_is_restored_too),
        TEST(test_what_was_interrupted_is_begun_again),
        TEST(test_what_cannot_be_restored),
        TEST(test_damage_in_the_copy_is_told_and_nothing_left_behind),
        TEST(test_a_backup_is_not_written_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
