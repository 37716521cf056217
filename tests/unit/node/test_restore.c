/* A directory from a copy of another: it is another store, of another cluster, and gives no token twice. */
#include "base/random.h"
#include "base/text.h"
#include "lone.h"
#include "node/files.h"
#include "node/identity.h"
#include "node/restore.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static struct lone lone;
static char copy[PATH_MAX], target[PATH_MAX];
static const char *address;
static struct error_text err;
static struct restore_result found;
static struct identity settled;

static int set_up(void **state)
{
    (void)state;
    lone_init(&lone);
    snprintf(copy, sizeof copy, "%s", lone.path);
    snprintf(target, sizeof target, "%s/other", lone.home);
    address = "";
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lone_free(&lone);
    return 0;
}

static void fill(void *bytes, unsigned size)
{
    random_fill(bytes, size);
}

static int restore_at(uint64_t clock)
{
    struct restore_options options = {.source = copy,
                                      .target = target,
                                      .id = 1,
                                      .address = address,
                                      .when = "yesterday",
                                      .clock = clock,
                                      .random = fill};

    err.text[0] = '\0';
    return restore_directory(&options, &found, &err);
}

static int restore(void)
{
    return restore_at(0);
}

static void identify(void)
{
    static const char id[16] = "0123456789abcde";
    struct core_command identity = {.op = CORE_IDENTITY, .result = {id, sizeof id}};

    assert_int_equal(replica_submit(lone.replica, &identity, &lone, lone.now_us), HF_OK);
    lone_settle(&lone);
    assert_true(lone_counts(&lone).identified);
}

/* One that has been in use, and was stopped. */
static struct core_counts leave_copy(unsigned holds)
{
    struct core_counts counts;

    lone_serve(&lone);
    identify();
    for (unsigned i = 1; i <= holds; i++)
        lone_hold(&lone, i);
    counts = lone_counts(&lone);
    lone_close(&lone);
    return counts;
}

/* As the node would, before it starts. */
static int settle(void)
{
    struct identity_wanted wanted = {.id = 1, .incarnation = 99};
    struct replica_member itself = {.id = 1};
    struct replica_config there;
    int result;

    snprintf(itself.address, sizeof itself.address, "%s", address);
    if (address[0]) {
        wanted.members = &itself;
        wanted.member_count = 1;
    }
    snprintf(lone.path, sizeof lone.path, "%s", target);
    result = recovery_open(&lone.recovery, disk_system(), target, &err);
    if (result == HF_OK)
        result = identity_read(&lone.recovery.directory, &wanted, &lone.options.incarnation, &err);
    recovery_close(&lone.recovery);
    if (result == HF_OK)
        result = lone_load(&lone, &err);
    if (result != HF_OK)
        return result;
    replica_members_found(lone.replica, &there);
    result = identity_settle(&lone.recovery.directory, &wanted, &there, &settled, &err);
    lone_crash(&lone);
    return result;
}

/* Starts what was restored. */
static struct core_counts serve_restored(void)
{
    if (settle() != HF_OK)
        fail_msg("cannot settle: %s", err.text);
    lone_serve(&lone);
    return lone_counts(&lone);
}

static void test_tokens_are_raised_once_and_only_once(void **state)
{
    struct core_counts before = leave_copy(2), after;
    uint64_t sum = sum_of_directory(copy);

    (void)state;
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(found.token, before.last_token);
    assert_int_equal(found.holds, 2);
    assert_int_equal(sum_of_directory(copy), sum);
    for (int start = 0; start < 3; start++) {
        after = serve_restored();
        assert_int_equal(after.last_token, before.last_token + CORE_RESTORE_JUMP);
        assert_int_equal(after.last_token, found.next);
        assert_int_equal(after.holds, 2);
        assert_string_not_equal(after.id, before.id);
        lone_close(&lone);
    }
    assert_false(has_file(target, FILES_RESTORING));
    assert_int_equal(restore(), HF_EREFUSED); /* once */
    assert_non_null(strstr(err.text, "is not empty"));
}

/* A clock that is ahead of the copy's tokens; two restores of one copy do not give the same. */
static void test_tokens_are_above_the_clock(void **state)
{
    struct core_counts before = leave_copy(1), after;
    const uint64_t clock = before.last_token + 1000000;

    (void)state;
    assert_int_equal(restore_at(clock), HF_OK);
    after = serve_restored();
    assert_int_equal(after.last_token, clock + CORE_RESTORE_JUMP);
    lone_close(&lone);
    remove_directory(target);
    assert_int_equal(restore_at(clock + 1), HF_OK);
    assert_int_equal(found.next, clock + 1 + CORE_RESTORE_JUMP);
}

/* A copy whose tokens are ahead of the clock, restored once a month, for a year. */
static void test_tokens_grow_where_a_copy_is_ahead_of_the_clock(void **state)
{
    const uint64_t last = HF_TOKEN_MAX / 2, month_us = UINT64_C(2592000) * 1000000;
    uint64_t before = last;

    (void)state;
    for (uint64_t month = 1; month <= 12; month++) {
        uint64_t next = core_restored_token(last, month * month_us);

        assert_true(next > before);
        before = next;
    }
}

static void test_a_copy_with_the_last_tokens_is_refused(void **state)
{
    struct core_counts before = leave_copy(1);

    (void)state;
    assert_int_equal(restore_at(HF_TOKEN_MAX - 1), HF_EREFUSED);
    assert_non_null(strstr(err.text, "found a store anew"));
    remove_directory(target);
    assert_int_equal(restore_at(before.last_token), HF_OK);
}

/* A backup is restored; then a backup of that; then the first one again, since the second was no good. */
static void test_tokens_grow_from_one_restore_to_the_next(void **state)
{
    struct core_counts before = leave_copy(1), first, second;
    const uint64_t clock = before.last_token + 1000000;
    char original[sizeof copy], restored[sizeof target];

    (void)state;
    memcpy(original, copy, sizeof original);
    memcpy(restored, target, sizeof restored);
    assert_int_equal(restore_at(clock), HF_OK);
    first = serve_restored();
    lone_close(&lone);
    memcpy(copy, restored, sizeof copy);
    snprintf(target, sizeof target, "%.*s-2", PATH_MAX - 8, restored);
    assert_int_equal(restore_at(clock + 1000), HF_OK);
    second = serve_restored();
    lone_close(&lone);
    assert_true(second.last_token > first.last_token);
    assert_true(second.last_token < first.last_token + CORE_RESTORE_JUMP);
    memcpy(copy, original, sizeof copy);
    snprintf(target, sizeof target, "%.*s-3", PATH_MAX - 8, restored);
    assert_int_equal(restore_at(clock + 2000), HF_OK);
    assert_true(found.next > second.last_token);
}

/* Nothing of the copy's own log is left, and the file says the rest. */
static void test_what_is_in_the_directory(void **state)
{
    char path[2 * PATH_MAX], text[512] = "";
    FILE *file;

    (void)state;
    leave_copy(1);
    address = "b:1";
    assert_int_equal(restore(), HF_OK);
    snprintf(lone.path, sizeof lone.path, "%s", target);
    assert_false(lone_find_file(&lone, "log-", path));
    assert_true(lone_find_file(&lone, "snapshot-", path));
    snprintf(path, sizeof path, "%s/" FILES_NODE, target);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "node 1\nlife "));
    assert_non_null(strstr(text, "\ncluster 1=b:1\nmember "));
    assert_non_null(strstr(text, "\nrestored yesterday, after token "));
}

/* It is another one, in a term and at an index above all that the copy had. */
static void test_it_is_another_node_of_another_cluster(void **state)
{
    struct replica_status before, after;
    char cluster[CLUSTER_ID_DIGITS + 1], again[CLUSTER_ID_DIGITS + 1];
    const struct replica_config *members;

    (void)state;
    lone_serve(&lone);
    lone_hold(&lone, 1);
    replica_status(lone.replica, &before);
    text_hex(replica_cluster(lone.replica), REPLICA_CLUSTER, cluster);
    lone_close(&lone);
    address = "b:1";
    assert_int_equal(restore(), HF_OK);
    serve_restored();
    assert_int_equal(settled.state, IDENTITY_TAKES_PART);
    assert_false(settled.begins);
    assert_false(settled.moves);
    assert_int_not_equal(settled.incarnation, 7); /* as the copy's was */
    assert_string_not_equal(settled.cluster, cluster);
    assert_non_null(strstr(settled.restored, "yesterday, after token "));
    text_hex(replica_cluster(lone.replica), REPLICA_CLUSTER, again);
    assert_string_equal(settled.cluster, again);
    replica_status(lone.replica, &after);
    assert_int_equal(after.term, before.term + 2); /* it was raised, and then it was elected */
    members = replica_members(lone.replica);
    assert_int_equal(members->count, 1);
    assert_int_equal(members->index, before.last_index + 1);
    assert_int_equal(members->at[0].incarnation, settled.incarnation);
    assert_string_equal(members->at[0].address, "b:1");
    lone_crash(&lone);
    remove_directory(target);
    assert_int_equal(restore(), HF_OK); /* and each restore makes another */
    serve_restored();
    assert_string_not_equal(settled.cluster, again);
}

static void test_a_snapshot_is_restored_too(void **state)
{
    struct core_counts before, after;
    unsigned number = 0;

    (void)state;
    lone.options.snapshot_bytes = 1000;
    lone.options.snapshot_trailing = 1;
    for (int start = 0; start < 3; start++) { /* each begins a segment */
        lone_serve(&lone);
        for (int i = 0; i < 20; i++)
            lone_hold(&lone, ++number);
        before = lone_counts(&lone);
        lone_close(&lone);
    }
    assert_false(has_file(copy, "log-1")); /* the log alone would not do */
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(found.token, before.last_token);
    after = serve_restored();
    assert_int_equal(after.last_token, before.last_token + CORE_RESTORE_JUMP);
    assert_int_equal(after.holds, before.holds);
}

/* Its log does not say that all of it is committed. */
static void test_what_was_not_committed_is_restored_too(void **state)
{
    struct core_counts after;

    (void)state;
    lone_serve(&lone);
    lone_hold(&lone, 1);
    lone_hold(&lone, 2); /* nothing was written behind it */
    lone_crash(&lone);
    assert_int_equal(lone_load(&lone, &err), HF_OK);
    assert_int_equal(lone_counts(&lone).holds, 1);
    lone_crash(&lone);
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(found.holds, 2);
    after = serve_restored();
    assert_int_equal(after.holds, 2);
}

/* A crash in the middle leaves the mark: nobody starts in it, and the next try begins again. */
static void test_what_was_interrupted_is_begun_again(void **state)
{
    struct core_counts before = leave_copy(1), after;

    (void)state;
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(settle(), HF_OK);
    put_file(target, FILES_RESTORING, "x\n"); /* as if the last step had not been done */
    assert_int_equal(settle(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "did not come to its end"));
    assert_int_equal(restore(), HF_OK);
    after = serve_restored();
    assert_int_equal(after.last_token, before.last_token + CORE_RESTORE_JUMP); /* not twice */
}

static void test_what_cannot_be_restored(void **state)
{
    (void)state;
    assert_int_equal(restore(), HF_EREFUSED); /* there is nothing */
    assert_int_equal(mkdir(copy, 0700), 0);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is no copy of a data directory"));
    assert_int_equal(access(target, F_OK), -1);
    lone_serve(&lone);
    lone_hold(&lone, 1);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is in use by a server"));
    lone_close(&lone);
    assert_int_equal(mkdir(target, 0700), 0);
    put_file(target, "something", "x\n");
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is not empty (there is something)"));
    assert_true(has_file(target, "something") && !has_file(target, DIRECTORY_LOCK));
}

static void test_a_copy_of_one_that_waits(void **state)
{
    struct directory directory;
    struct term term = {0};

    (void)state;
    assert_int_equal(directory_open(copy, &directory, &err), HF_OK);
    assert_int_equal(term_store(&directory, &term, 3, 2, &err), HF_OK);
    directory_close(&directory);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "there is no data in"));
    assert_non_null(strstr(err.text, copy));
    assert_int_equal(access(target, F_OK), -1);
}

/* It is not opened as if it were whole: that is for the log to notice. */
static void test_damage_in_the_copy_is_told_and_nothing_left_behind(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    leave_copy(1);
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
    leave_copy(1);
    snprintf(target, sizeof target, "%.*s/sub", PATH_MAX - 8, copy);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is not to be written to"));
    assert_false(has_file(copy, "sub"));
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_false(has_file(target, DIRECTORY_LOCK));
    snprintf(target, sizeof target, "%.*s-2", PATH_MAX - 8, copy); /* its name begins the same */
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(restore(), HF_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tokens_are_raised_once_and_only_once),
        TEST(test_tokens_are_above_the_clock),
        TEST(test_tokens_grow_where_a_copy_is_ahead_of_the_clock),
        TEST(test_a_copy_with_the_last_tokens_is_refused),
        TEST(test_tokens_grow_from_one_restore_to_the_next),
        TEST(test_what_is_in_the_directory),
        TEST(test_it_is_another_node_of_another_cluster),
        TEST(test_a_snapshot_is_restored_too),
        TEST(test_what_was_not_committed_is_restored_too),
        TEST(test_what_was_interrupted_is_begun_again),
        TEST(test_what_cannot_be_restored),
        TEST(test_a_copy_of_one_that_waits),
        TEST(test_damage_in_the_copy_is_told_and_nothing_left_behind),
        TEST(test_a_backup_is_not_written_to),
    };

    return cmocka_run_group_tests_name("node: restore", tests, NULL, NULL);
}
