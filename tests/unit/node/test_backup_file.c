/* A directory from a file of 'holdfast cluster backup': the same as from a copy, and not one byte of the file may be another, or missing. */
#include "base/backup_file.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "lone.h"
#include "node/backup_image.h"
#include "node/files.h"
#include "node/node_file.h"
#include "node/restore.h"

#include <sys/stat.h>
#include <unistd.h>

static struct lone lone;
static char file[PATH_MAX], target[PATH_MAX];
static struct error_text err;
static struct restore_result found;
static unsigned char *bytes;
static size_t size;

static int set_up(void **state)
{
    (void)state;
    lone_init(&lone);
    snprintf(file, sizeof file, "%s/backup", lone.home);
    snprintf(target, sizeof target, "%s/other", lone.home);
    bytes = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(bytes);
    lone_free(&lone);
    return 0;
}

static void fill(void *at, unsigned count)
{
    random_fill(at, count);
}

static void write_file(const void *content, size_t count)
{
    FILE *out = fopen(file, "w");

    assert_non_null(out);
    assert_int_equal(fwrite(content, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
}

static int restore(void)
{
    struct restore_options options = {.source = file,
                                      .target = target,
                                      .id = 1,
                                      .address = "",
                                      .when = "yesterday",
                                      .random = fill};

    err.text[0] = '\0';
    return restore_directory(&options, &found, &err);
}

/* As client and server make it together. */
static void wrap(const unsigned char *snapshot, size_t snapshot_size,
                 const struct backup_file *about)
{
    size = BACKUP_FILE_HEAD + snapshot_size + BACKUP_FILE_END;
    bytes = realloc(bytes, size);
    assert_non_null(bytes);
    backup_file_write_head(about, bytes);
    memcpy(bytes + BACKUP_FILE_HEAD, snapshot, snapshot_size);
    backup_file_write_end(crc32c(0, bytes, size - BACKUP_FILE_END), bytes + size - BACKUP_FILE_END);
}

static struct backup_file describe(const unsigned char *snapshot, size_t snapshot_size)
{
    struct replica_snapshot decoded;
    struct backup_file about = {.made_s = 1790000000, .size = snapshot_size};

    assert_true(replica_snapshot_decode(snapshot, snapshot_size, &decoded));
    memcpy(about.cluster, decoded.cluster, sizeof about.cluster);
    about.index = decoded.id.index;
    about.term = decoded.id.term;
    return about;
}

/* Of a node that has been in use; its log goes on behind the snapshot. */
static struct core_counts make_backup(unsigned holds)
{
    unsigned char *snapshot = NULL;
    struct core_counts counts;
    struct replica_status status;
    struct backup_file about;
    size_t snapshot_size = 0;

    lone_serve(&lone);
    for (unsigned i = 1; i <= holds; i++)
        lone_hold(&lone, i);
    counts = lone_counts(&lone);
    replica_status(lone.replica, &status);
    replica_want_snapshot(lone.replica, status.applied_index);
    lone_settle(&lone);
    lone_hold(&lone, holds + 1); /* and this is not in it */
    lone_close(&lone);
    assert_int_equal(recovery_open(&lone.recovery, disk_system(), lone.path, &err), HF_OK);
    assert_int_equal(recovery_load_snapshot(&lone.recovery, &snapshot, &snapshot_size, &err),
                     HF_OK);
    recovery_close(&lone.recovery);
    assert_non_null(snapshot);
    about = describe(snapshot, snapshot_size);
    assert_true(about.index >= status.applied_index);
    wrap(snapshot, snapshot_size, &about);
    free(snapshot);
    write_file(bytes, size);
    return counts;
}

static void test_a_file_is_restored(void **state)
{
    struct core_counts before = make_backup(3), after;
    struct directory directory;
    struct node_file node;

    (void)state;
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(found.token, before.last_token);
    assert_int_equal(found.holds, 3);
    assert_int_equal(found.id, 0); /* which node it was of, nobody knows */
    assert_false(has_file(target, FILES_RESTORING));
    assert_false(has_file(target, "log-1"));
    assert_int_equal(directory_open(target, &directory, &err), HF_OK);
    assert_int_equal(node_file_read(&directory, &node, &err), HF_OK);
    directory_close(&directory);
    assert_true(node.there && node.how == NODE_MEMBER);
    assert_non_null(strstr(node.restored, "yesterday, after token "));
    snprintf(lone.path, sizeof lone.path, "%s", target);
    lone.options.incarnation = node.incarnation;
    lone_serve(&lone);
    after = lone_counts(&lone);
    assert_int_equal(after.last_token, before.last_token + CORE_RESTORE_JUMP);
    assert_int_equal(after.holds, 3);
    assert_string_not_equal(after.id, before.id);
    lone_close(&lone);
}

/* A crash in the middle leaves the mark, and the same file is restored again. */
static void test_what_was_interrupted_is_begun_again(void **state)
{
    struct core_counts before = make_backup(1);

    (void)state;
    assert_int_equal(restore(), HF_OK);
    put_file(target, FILES_RESTORING, "x\n");
    assert_int_equal(restore(), HF_OK);
    assert_int_equal(found.token, before.last_token);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is not empty"));
}

static int parse(const unsigned char *content, size_t count)
{
    struct backup_image image;

    err.text[0] = '\0';
    return backup_image_parse(content, count, "it", &image, &err);
}

static void test_each_byte_counts(void **state)
{
    (void)state;
    make_backup(2);
    assert_int_equal(parse(bytes, size), HF_OK);
    for (size_t at = 0; at < size; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (unsigned char)(1u << bit);
            assert_int_equal(parse(bytes, size),
                             at < BACKUP_FILE_MAGIC_SIZE ? HF_EREFUSED : HF_EIO);
            assert_true(err.text[0]);
            bytes[at] ^= (unsigned char)(1u << bit);
        }
    assert_int_equal(parse(bytes, size), HF_OK);
}

/* In memory of just that size, so that a sanitizer sees who reads on. */
static void test_whatever_is_cut_off(void **state)
{
    (void)state;
    make_backup(2);
    for (size_t count = 0; count < size; count++) {
        unsigned char *cut = malloc(count ? count : 1);

        assert_non_null(cut);
        memcpy(cut, bytes, count);
        assert_int_equal(parse(cut, count), count == 0 ? HF_EREFUSED : HF_EIO);
        assert_non_null(strstr(err.text, count == 0 ? "is no backup" : "is cut off"));
        free(cut);
    }
}

static void test_a_byte_too_many(void **state)
{
    (void)state;
    make_backup(1);
    bytes = realloc(bytes, size + 1);
    assert_non_null(bytes);
    bytes[size] = 0;
    assert_int_equal(parse(bytes, size + 1), HF_EIO);
    assert_non_null(strstr(err.text, "is damaged: take another backup"));
}

/* All sums are right, and what the head says is of another backup. */
static void test_the_head_says_what_is_in_it(void **state)
{
    struct backup_file right, wrong;
    unsigned char *snapshot;
    size_t count;

    (void)state;
    make_backup(1);
    count = size - BACKUP_FILE_HEAD - BACKUP_FILE_END;
    snapshot = malloc(count);
    assert_non_null(snapshot);
    memcpy(snapshot, bytes + BACKUP_FILE_HEAD, count);
    right = describe(snapshot, count);
    for (int which = 0; which < 3; which++) {
        wrong = right;
        wrong.index += which == 0;
        wrong.term += which == 1;
        wrong.cluster[0] ^= which == 2;
        wrap(snapshot, count, &wrong);
        assert_int_equal(parse(bytes, size), HF_EIO);
    }
    wrap(snapshot, count, &right);
    assert_int_equal(parse(bytes, size), HF_OK);
    free(snapshot);
}

/* It is sound as a file, and its table is none. */
static void test_a_table_that_cannot_be(void **state)
{
    static const unsigned char table[] = "HFSNAP1\nno table at all, whatever its sum says";
    unsigned char snapshot[REPLICA_SNAPSHOT_HEAD_MAX + sizeof table];
    struct replica_snapshot decoded;
    struct backup_file about;
    size_t head;

    (void)state;
    make_backup(1);
    assert_true(replica_snapshot_decode(bytes + BACKUP_FILE_HEAD,
                                        size - BACKUP_FILE_HEAD - BACKUP_FILE_END, &decoded));
    decoded.table = table;
    decoded.table_size = sizeof table;
    head = replica_snapshot_encode(&decoded, snapshot);
    memcpy(snapshot + head, table, sizeof table);
    about = describe(snapshot, head + sizeof table);
    wrap(snapshot, head + sizeof table, &about);
    assert_int_equal(parse(bytes, size), HF_OK);
    write_file(bytes, size);
    assert_int_equal(restore(), HF_EIO);
    assert_int_equal(access(target, F_OK), -1);
}

static void test_what_is_no_backup_leaves_nothing_behind(void **state)
{
    char path[PATH_MAX + 8];

    (void)state;
    make_backup(1);
    write_file(bytes, size - 1);
    assert_int_equal(restore(), HF_EIO);
    assert_non_null(strstr(err.text, file));
    assert_int_equal(access(target, F_OK), -1);
    write_file("key = value\n", 12);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is no backup"));
    write_file("", 0);
    assert_int_equal(restore(), HF_EREFUSED);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(restore(), HF_EREFUSED); /* and not waited for */
    assert_int_equal(access(target, F_OK), -1);
    assert_int_equal(mkdir(target, 0700), 0); /* ours: it stays, and nothing is in it */
    assert_int_equal(restore(), HF_EREFUSED);
    snprintf(path, sizeof path, "%s", target);
    assert_int_equal(rmdir(path), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_file_is_restored),     TEST(test_what_was_interrupted_is_begun_again),
        TEST(test_each_byte_counts),       TEST(test_whatever_is_cut_off),
        TEST(test_a_byte_too_many),        TEST(test_the_head_says_what_is_in_it),
        TEST(test_a_table_that_cannot_be), TEST(test_what_is_no_backup_leaves_nothing_behind),
    };

    return cmocka_run_group_tests_name("node: backup file", tests, NULL, NULL);
}
