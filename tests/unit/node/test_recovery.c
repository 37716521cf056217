/* The data directory: made, locked, and refused when what is in it is not whole, or not ours. */
#include "journal/snapshot_file.h"
#include "lone.h"
#include "node/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct lone lone;
static struct error_text err;

static int set_up(void **state)
{
    (void)state;
    lone_init(&lone);
    err.text[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lone_free(&lone);
    return 0;
}

static void assert_says(const char *words)
{
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

/* Twice: the first time has not changed anything. */
static void assert_refused(int code, const char *words)
{
    uint64_t sum = sum_of_directory(lone.path);

    for (int i = 0; i < 2; i++) {
        assert_int_equal(lone_load(&lone, &err), code);
        assert_says(words);
        assert_int_equal(sum_of_directory(lone.path), sum);
    }
}

/* ---- having it -------------------------------------------------------------------------------- */

static void test_it_is_made(void **state)
{
    struct stat info;

    (void)state;
    lone_serve(&lone);
    assert_int_equal(stat(lone.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
}

static void test_only_in_a_directory(void **state)
{
    (void)state;
    snprintf(lone.path, sizeof lone.path, "%s/not/there", lone.home);
    assert_int_equal(lone_load(&lone, &err), HF_EIO);
    assert_says("not/there");
    put_file(lone.home, "file", "x");
    snprintf(lone.path, sizeof lone.path, "%s/file", lone.home);
    assert_int_equal(lone_load(&lone, &err), HF_EIO);
    assert_says("Not a directory");
}

/* Root may write everywhere, hence as somebody else. */
static void test_it_must_be_writable(void **state)
{
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(chmod(lone.home, 0755), 0);
    assert_int_equal(mkdir(lone.path, 0555), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) < 0)
            _exit(1);
        _exit(lone_load(&lone, &err) == HF_EREFUSED && err.text[0] ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_one_process_at_a_time(void **state)
{
    char words[64], byte;
    int ready[2], leave[2];
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(leave), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(leave[1]);
        lone_serve(&lone);
        if (write(ready[1], "r", 1) != 1 || read(leave[0], &byte, 1) != 0)
            _exit(1);
        _exit(0); /* as if killed: nothing is given back */
    }
    close(ready[1]);
    close(leave[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(lone_load(&lone, &err), HF_EBUSY);
    snprintf(words, sizeof words, "in use by process %d", (int)child);
    assert_says(words);
    close(leave[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ready[0]);
    lone_serve(&lone); /* the lock went with the process */
}

/* ---- whose files ------------------------------------------------------------------------------ */

static void test_files_of_somebody_else(void **state)
{
    (void)state;
    assert_int_equal(mkdir(lone.path, 0700), 0);
    put_file(lone.path, "letters", "x");
    assert_refused(HF_EREFUSED,
                   "is no data directory of holdfastd, and not empty (there is letters)");
    assert_false(has_file(lone.path, DIRECTORY_LOCK));
    put_file(lone.path, FILES_NODE, "node 1\n"); /* somebody has put them there later */
    assert_int_equal(lone_load(&lone, &err), HF_OK);
}

static void test_files_that_are_nothing(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    assert_int_equal(mkdir(lone.path, 0700), 0);
    snprintf(path, sizeof path, "%s/lost+found", lone.path);
    assert_int_equal(mkdir(path, 0700), 0);
    put_file(lone.path, "node.new", "x");
    assert_int_equal(lone_load(&lone, &err), HF_OK);
}

static void test_half_a_restore(void **state)
{
    (void)state;
    lone_serve(&lone);
    lone_close(&lone);
    put_file(lone.path, FILES_RESTORING, "x\n");
    assert_refused(HF_EREFUSED, "did not come to its end: run 'holdfastd --restore-from' again");
}

/* ---- of an earlier version: a log without chains, and other words for the members --------------- */

static const unsigned char members_then[24] = {1, 1, 0, 0, 0, 0, 0, 0, 0, 1};

static void open_then(struct directory *ret_directory)
{
    struct term term = {0};

    assert_int_equal(directory_open(lone.path, ret_directory, &err), HF_OK);
    assert_int_equal(term_store(ret_directory, &term, 1, 0, &err), HF_OK);
}

static int on_record(void *context, const struct journal_record *record, struct error_text *error)
{
    (void)context;
    (void)record;
    (void)error;
    return HF_OK;
}

static void test_a_log_of_an_earlier_version(void **state)
{
    const struct journal_record record = {
        .index = 1, .term = 1, .type = 3, .bytes = members_then, .size = sizeof members_then};
    struct directory directory;
    struct journal *journal;
    struct journal_spare spare;

    (void)state;
    open_then(&directory);
    assert_int_equal(journal_open(&directory, 0, on_record, NULL, &journal, &err), HF_OK);
    assert_int_equal(journal_begin(journal, &err), HF_OK);
    spare = journal_spare_begin(journal);
    journal_spare_make(&spare);
    journal_spare_end(journal, &spare);
    assert_int_equal(journal_append(journal, &record, 1, &err), HF_OK);
    assert_int_equal(journal_stop(journal, &err), HF_OK);
    journal_close(journal);
    directory_close(&directory);
    assert_refused(HF_EREFUSED, "/data was written by an earlier version of holdfastd");
    assert_says("start that version on it, or this one with an empty directory");
}

static void test_a_snapshot_of_an_earlier_version(void **state)
{
    const struct snapshot_file snapshot = {
        .index = 5,
        .term = 1,
        .configuration_index = 1,
        .configuration = {(void *)(uintptr_t)members_then, sizeof members_then},
        .data = {(void *)(uintptr_t) "table", 5}};
    struct directory directory;

    (void)state;
    open_then(&directory);
    assert_int_equal(snapshot_file_write(&directory, &snapshot, &err), HF_OK);
    directory_close(&directory);
    assert_refused(HF_EREFUSED, "/data was written by an earlier version of holdfastd");
}

/* ---- between loading and beginning -------------------------------------------------------------- */

static void test_members_are_found(void **state)
{
    struct replica_config members;

    (void)state;
    assert_int_equal(lone_load(&lone, &err), HF_OK);
    replica_members_found(lone.replica, &members);
    assert_int_equal(members.count, 0);
    lone_crash(&lone);
    lone.options.snapshot_bytes = 1000;
    lone.options.snapshot_trailing = 1;
    for (int round = 0; round < 2; round++) { /* in the log, and in the snapshot */
        char path[2 * PATH_MAX];

        lone_serve(&lone);
        for (unsigned i = 1; round > 0 && !lone_find_file(&lone, "snapshot-", path); i++)
            lone_hold(&lone, i);
        lone_crash(&lone);
        assert_int_equal(lone_load(&lone, &err), HF_OK);
        replica_members_found(lone.replica, &members);
        assert_int_equal(members.count, 1);
        assert_int_equal(members.index, 1);
        assert_int_equal(members.at[0].id, 1);
        assert_int_equal(members.at[0].incarnation, lone.options.incarnation);
        assert_true(members.at[0].votes);
        lone_crash(&lone);
    }
}

/* Nothing was written after it that would say so. */
static void test_members_that_may_not_be_committed(void **state)
{
    const struct replica_member other = {.id = 2, .incarnation = 9, .address = "b:1"};
    struct replica_config members;

    (void)state;
    lone_serve(&lone);
    assert_int_equal(replica_add(lone.replica, &other, NULL, lone.now_us, &err), HF_OK);
    lone_settle(&lone);
    lone_crash(&lone);
    assert_int_equal(lone_load(&lone, &err), HF_OK);
    replica_members_found(lone.replica, &members);
    assert_int_equal(members.count, 2);
    assert_true(members.index > 1);
    assert_string_equal(members.at[1].address, "b:1");
}

/* The last sector of what was written is not there. */
static void tear_last_write(const char *path)
{
    static unsigned char content[2 << 20];
    const size_t sector = 512;
    FILE *file = fopen(path, "r+b");
    size_t end;

    assert_non_null(file);
    end = fread(content, 1, sizeof content, file);
    while (end > 0 && content[end - 1] == 0)
        end--;
    end = (end - 1) / sector * sector;
    assert_true(end % LONE_BLOCK != 0);
    memset(content, 0, sector);
    assert_int_equal(fseek(file, (long)end, SEEK_SET), 0);
    assert_int_equal(fwrite(content, 1, sector, file), sector);
    fclose(file);
}

static void test_a_torn_write_is_known_and_there(void **state)
{
    char path[2 * PATH_MAX];
    uint64_t sum;

    (void)state;
    lone_serve(&lone);
    lone_hold(&lone, 1);
    lone_hold_many(&lone, 2, 20);
    lone_crash(&lone);
    snprintf(path, sizeof path, "%s/log-1", lone.path);
    tear_last_write(path);
    put_file(lone.path, "snapshot.new", "what a crash has left");
    sum = sum_of_directory(lone.path);
    for (int i = 0; i < 2; i++) {
        struct journal_torn torn;

        assert_int_equal(lone_load(&lone, &err), HF_OK);
        torn = journal_torn(lone.recovery.journal);
        assert_int_equal(torn.segment, 1);
        assert_true(torn.bytes > 0);
        lone_crash(&lone);
        assert_int_equal(sum_of_directory(lone.path), sum);
    }
    lone_serve(&lone);
    assert_int_equal(lone_counts(&lone).holds, 1);
    assert_int_not_equal(sum_of_directory(lone.path), sum);
    assert_false(has_file(lone.path, "snapshot.new"));
}

/* ---- what is in it ---------------------------------------------------------------------------- */

static void test_damage_before_what_was_answered(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    lone_serve(&lone);
    for (unsigned i = 1; i <= 10; i++)
        lone_hold(&lone, i);
    lone_crash(&lone);
    snprintf(path, sizeof path, "%s/log-1", lone.path);
    for (long at = LONE_BLOCK; at < 10 * LONE_BLOCK; at += LONE_BLOCK + 3) {
        flip_byte(path, at); /* checksums, headers, data */
        assert_refused(HF_EIO, "log-1 is damaged at entry");
        flip_byte(path, at);
    }
    lone_serve(&lone);
    assert_int_equal(lone_counts(&lone).holds, 10);
}

static void test_a_missing_segment(void **state)
{
    char path[2 * PATH_MAX], aside[PATH_MAX];

    (void)state;
    for (unsigned i = 1; i <= 3; i++) {
        lone_serve(&lone);
        lone_hold(&lone, i);
        lone_close(&lone);
    }
    snprintf(path, sizeof path, "%s/log-1", lone.path);
    snprintf(aside, sizeof aside, "%s/aside", lone.home);
    assert_int_equal(rename(path, aside), 0);
    assert_refused(HF_EIO, "are missing");
    assert_int_equal(rename(aside, path), 0);
    lone_serve(&lone);
    assert_int_equal(lone_counts(&lone).holds, 3);
}

static void test_a_damaged_snapshot(void **state)
{
    char path[2 * PATH_MAX];
    struct stat info;

    (void)state;
    lone.options.snapshot_bytes = 1000;
    lone.options.snapshot_trailing = 1;
    lone_serve(&lone);
    for (unsigned i = 1; !lone_find_file(&lone, "snapshot-", path); i++)
        lone_hold(&lone, i);
    lone_close(&lone);
    assert_int_equal(stat(path, &info), 0);
    for (long at = 0; at < info.st_size; at += 7) {
        flip_byte(path, at);
        assert_refused(HF_EIO, "snapshot");
        flip_byte(path, at);
    }
    lone_serve(&lone);
}

static void test_a_lost_term(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    lone_serve(&lone);
    lone_hold(&lone, 1);
    lone_close(&lone);
    snprintf(path, sizeof path, "%s/term", lone.path);
    flip_byte(path, 17);
    flip_byte(path, LONE_BLOCK + 17);
    assert_refused(HF_EIO, "'term' is lost or damaged");
    flip_byte(path, 17); /* one copy will do */
    lone_serve(&lone);
    lone_close(&lone);
    assert_int_equal(unlink(path), 0);
    assert_refused(HF_EIO, "'term' is lost or damaged");
}

/* Before this node does anything in its term, that is there twice again: the copy that was left may go, too. */
static void test_a_term_that_is_there_once(void **state)
{
    char path[PATH_MAX + 8];

    (void)state;
    lone_serve(&lone);
    lone_hold(&lone, 1);
    lone_close(&lone);
    snprintf(path, sizeof path, "%s/term", lone.path);
    for (int lost = 0; lost < 2; lost++) {
        flip_byte(path, lost * LONE_BLOCK + 17);
        assert_int_equal(lone_load(&lone, &err), HF_OK);
        assert_int_equal(lone_begin(&lone, &err), HF_OK);
        lone_crash(&lone);
        flip_byte(path, (1 - lost) * LONE_BLOCK + 17);
        if (lone_load(&lone, &err) != HF_OK)
            fail_msg("without copy %d: %s", 1 - lost, err.text);
        assert_int_equal(lone_begin(&lone, &err), HF_OK);
        lone_crash(&lone);
    }
}

/* Term 1 is stored, the first entry is not. */
static void test_an_interrupted_founding(void **state)
{
    struct directory directory;

    (void)state;
    open_then(&directory);
    directory_close(&directory);
    lone_serve(&lone);
    lone_hold(&lone, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_is_made),
        TEST(test_only_in_a_directory),
        TEST(test_it_must_be_writable),
        TEST(test_one_process_at_a_time),
        TEST(test_files_of_somebody_else),
        TEST(test_files_that_are_nothing),
        TEST(test_half_a_restore),
        TEST(test_a_log_of_an_earlier_version),
        TEST(test_a_snapshot_of_an_earlier_version),
        TEST(test_members_are_found),
        TEST(test_members_that_may_not_be_committed),
        TEST(test_a_torn_write_is_known_and_there),
        TEST(test_damage_before_what_was_answered),
        TEST(test_a_missing_segment),
        TEST(test_a_damaged_snapshot),
        TEST(test_a_lost_term),
        TEST(test_a_term_that_is_there_once),
        TEST(test_an_interrupted_founding),
    };

    return cmocka_run_group_tests_name("node: recovery", tests, NULL, NULL);
}
