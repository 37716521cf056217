/* The data directory: made, locked, and refused when what is in it is not whole. */
#include "node.h"

#include "journal/term.h"

#include "base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct node node;

static int set_up(void **state)
{
    (void)state;
    node_init(&node);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    node_free(&node);
    return 0;
}

static void assert_says(const struct error_text *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("'%s' does not say '%s'", err->text, words);
}

/* ---- files ------------------------------------------------------------------------------------ */

static void flip_byte(const char *path, off_t offset)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static uint64_t sum_of_file(const char *path, uint64_t sum)
{
    static uint64_t words[8192];
    FILE *file = fopen(path, "rb");
    size_t got;

    assert_non_null(file);
    while (memset(words, 0, sizeof words), (got = fread(words, 1, sizeof words, file)) > 0)
        for (size_t i = 0; i < (got + 7) / 8; i++)
            sum = (sum ^ words[i]) * UINT64_C(1099511628211);
    fclose(file);
    return sum;
}

/* Of the names and contents of all files but the lock's. */
static uint64_t sum_of_directory(void)
{
    struct dirent **names;
    int count = scandir(node.path, &names, NULL, alphasort);
    uint64_t sum = UINT64_C(14695981039346656037);

    for (int i = 0; i < count; i++) {
        char path[2 * PATH_MAX];

        snprintf(path, sizeof path, "%s/%s", node.path, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && strcmp(names[i]->d_name, "lock") != 0) {
            for (const char *at = names[i]->d_name; *at; at++)
                sum = (sum ^ (uint64_t)*at) * UINT64_C(1099511628211);
            sum = sum_of_file(path, sum);
        }
        free(names[i]);
    }
    free(names);
    return sum;
}

static void answer_some(size_t count)
{
    for (size_t i = 1; i <= count; i++) {
        submit_numbered(node.replica, i, 3600000);
        NODE_UNTIL(&node, node.witness.heard[i].answers == 1);
    }
}

/* Answers some, takes a snapshot twice, closes. */
static void leave_snapshots(uint32_t trailing)
{
    node.options.snapshot_bytes = 2000;
    node.options.snapshot_trailing = trailing;
    node_serve(&node);
    for (size_t number = 1; node_status(&node).snapshots < 2; number++) {
        submit_numbered(node.replica, number, 3600000);
        NODE_UNTIL(&node, node.witness.heard[number].answers == 1);
        NODE_UNTIL(&node, !node_status(&node).snapshotting);
    }
    node_close(&node);
}

static void assert_refused_untouched(const char *words)
{
    uint64_t sum = sum_of_directory();
    struct error_text err = {""};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(node_open(&node, &err), HF_EIO);
        assert_says(&err, words);
        assert_int_equal(sum_of_directory(), sum);
    }
}

/* ---- having it -------------------------------------------------------------------------------- */

static void test_it_is_made(void **state)
{
    struct stat info;

    (void)state;
    node_serve(&node);
    assert_int_equal(stat(node.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
}

static void test_only_in_a_directory(void **state)
{
    char path[2 * PATH_MAX];
    struct error_text err = {""};

    (void)state;
    snprintf(path, sizeof path, "%s/not/there", node.home);
    node.storage_options.path = path;
    assert_int_equal(node_open(&node, &err), HF_EIO);
    assert_says(&err, "not/there");

    snprintf(path, sizeof path, "%s/file", node.home);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(node_open(&node, &err), HF_EIO);
    assert_says(&err, "Not a directory");
}

/* Root may write everywhere, hence as somebody else. */
static void test_it_must_be_writable(void **state)
{
    struct error_text err = {""};
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(mkdir(node.path, 0500), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) < 0)
            _exit(1);
        _exit(node_open(&node, &err) == HF_EREFUSED && err.text[0] ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_one_process_at_a_time(void **state)
{
    struct error_text err = {""};
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
        node_serve(&node);
        if (write(ready[1], "r", 1) != 1 || read(leave[0], &byte, 1) != 0)
            _exit(1);
        _exit(0); /* as if killed: nothing is given back */
    }
    close(ready[1]);
    close(leave[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(node_open(&node, &err), HF_EBUSY);
    snprintf(words, sizeof words, "in use by process %d", child);
    assert_says(&err, words);

    close(leave[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ready[0]);
    node_serve(&node); /* the lock went with the process */
}

/* ---- after a crash ---------------------------------------------------------------------------- */

#define BLOCK \
    4096 /* of the log: each of these entries has one to itself, the founding one the first */

/* A child that answered so many, and was gone before it could close anything. ret_path: the segment
 * that it wrote. */
static void leave_open_segment(size_t count, char ret_path[2 * PATH_MAX])
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        node_serve(&node);
        answer_some(count);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    snprintf(ret_path, 2 * PATH_MAX, "%s/log-1", node.path);
}

/* The block in which the last entry begins. */
static off_t last_block(const char *path)
{
    static char content[9 << 20];
    FILE *file = fopen(path, "rb");
    size_t end;

    assert_non_null(file);
    end = fread(content, 1, sizeof content, file);
    fclose(file);
    while (end > 0 && content[end - 1] == 0)
        end--;
    return (off_t)((end - 1) / BLOCK * BLOCK);
}

static uint32_t holds(void)
{
    struct core_counts counts;

    core_count(replica_table(node.replica), &counts);
    return counts.holds;
}

static void test_damage_before_what_was_answered(void **state)
{
    char path[2 * PATH_MAX];
    off_t last;

    (void)state;
    leave_open_segment(20, path);
    last = last_block(path);
    assert_true(last > 20 * BLOCK);
    for (off_t at = BLOCK; at < last; at += BLOCK + 3) { /* checksums, headers, data */
        flip_byte(path, at);
        assert_refused_untouched("log-1 is damaged at entry");
        flip_byte(path, at);
    }
    node_serve(&node);
    assert_int_equal(holds(), 20);
}

/* No write that is interrupted leaves this: what there is of it is right. */
static void test_damage_at_the_end(void **state)
{
    char path[2 * PATH_MAX];
    off_t at;

    (void)state;
    leave_open_segment(20, path);
    at = last_block(path) + 20;
    flip_byte(path, at);
    assert_refused_untouched("log-1 is damaged at entry");
    flip_byte(path, at);
    node_serve(&node);
    assert_int_equal(holds(), 20);
}

/* The last write did not reach the disk, as far as anybody can tell. */
static void test_the_end_is_missing(void **state)
{
    char path[2 * PATH_MAX], zeros[BLOCK] = {0};
    int fd;

    (void)state;
    leave_open_segment(20, path);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, zeros, sizeof zeros, last_block(path)), sizeof zeros);
    close(fd);
    node_serve(&node);
    assert_int_equal(holds(), 19);
}

static void test_nothing_is_damaged(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    leave_open_segment(20, path);
    node_serve(&node);
    assert_int_equal(holds(), 20);
}

/* ---- what is in it ---------------------------------------------------------------------------- */

static void test_a_damaged_segment(void **state)
{
    char path[2 * PATH_MAX];
    uint64_t hash;

    (void)state;
    node_serve(&node);
    answer_some(20);
    hash = node_hash(&node);
    node_reopen(&node);
    node_close(&node);
    snprintf(path, sizeof path, "%s/log-1", node.path);
    flip_byte(path, last_block(path) + 20); /* there is more of it in the next */
    assert_refused_untouched("are missing before");
    flip_byte(path, last_block(path) + 20);
    witness_init(&node.witness);
    node.witness.now_us = 0;
    node_serve(&node); /* nothing else was wrong with it */
    assert_int_equal(node_hash(&node), hash);
}

static void leave_segments(int count)
{
    for (int i = 0; i < count; i++) {
        node_serve(&node);
        node_close(&node);
        witness_init(&node.witness);
        node.witness.now_us = 0;
    }
}

static void test_a_missing_segment(void **state)
{
    struct {
        uint64_t number;
        const char *words;
    } missing[] = {{1, "entries 1 to"}, {0, "are missing before"}};
    char path[2 * PATH_MAX], aside[2 * PATH_MAX + 8];
    uint64_t number = 2;

    (void)state;
    leave_segments(4);
    /* Spare segments have numbers, too: the second one with something in it. */
    do
        snprintf(path, sizeof path, "%s/log-%d", node.path, (int)number);
    while (access(path, F_OK) < 0 && number++ < 20);
    missing[1].number = number;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/log-%d", node.path, (int)missing[i].number);
        snprintf(aside, sizeof aside, "%s/aside", node.home);
        assert_int_equal(rename(path, aside), 0);
        assert_refused_untouched(missing[i].words);
        assert_int_equal(rename(aside, path), 0);
    }
    node_serve(&node);
}

static void assert_needed(const char *path)
{
    struct stat info;

    assert_int_equal(stat(path, &info), 0);
    flip_byte(path, info.st_size / 2);
    assert_refused_untouched("snapshot");
    flip_byte(path, info.st_size / 2);
}

static void damage_snapshots(uint32_t trailing)
{
    char path[2 * PATH_MAX];

    leave_snapshots(trailing);
    assert_true(node_find_file(&node, "snapshot-", "", path));
    assert_needed(path);
    witness_init(&node.witness);
    node.witness.now_us = 0;
    node_serve(&node);
}

static void test_a_damaged_snapshot(void **state)
{
    (void)state;
    damage_snapshots(1);
}

/* The log from before it may be there still, in part or as a whole: nobody knows. */
static void test_a_damaged_snapshot_before_a_long_log(void **state)
{
    (void)state;
    damage_snapshots(100000);
}

static void test_a_lost_term(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    node_serve(&node);
    answer_some(3);
    node_close(&node);
    assert_true(node_find_file(&node, "term", "", path));
    flip_byte(path, 17);
    flip_byte(path, BLOCK + 17);
    assert_refused_untouched("'term' is lost or damaged");
    flip_byte(path, 17); /* one copy will do */
    node_serve(&node);
    node_close(&node);
    assert_int_equal(unlink(path), 0);
    assert_refused_untouched("'term' is lost or damaged");
}

/* Term 1 is stored, the first entry is not. */
static void test_an_interrupted_founding(void **state)
{
    char path[2 * PATH_MAX];
    struct directory directory;
    struct term term = {0};
    struct error_text err = {""};

    (void)state;
    node_serve(&node);
    node_close(&node);
    while (node_find_file(&node, "log-", "", path))
        assert_int_equal(unlink(path), 0);
    assert_true(node_find_file(&node, "end", "", path));
    assert_int_equal(unlink(path), 0);
    assert_true(node_find_file(&node, "term", "", path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(directory_open(node.path, &directory, &err), HF_OK);
    assert_int_equal(term_store(&directory, &term, 1, 0, &err), HF_OK);
    directory_close(&directory);
    witness_init(&node.witness);
    node.witness.now_us = 0;
    node_serve(&node);
    answer_some(1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_is_made),          TEST(test_only_in_a_directory),
        TEST(test_it_must_be_writable), TEST(test_one_process_at_a_time),
        TEST(test_nothing_is_damaged),  TEST(test_damage_before_what_was_answered),
        TEST(test_damage_at_the_end),   TEST(test_the_end_is_missing),
        TEST(test_a_damaged_segment),   TEST(test_a_missing_segment),
        TEST(test_a_damaged_snapshot),  TEST(test_a_damaged_snapshot_before_a_long_log),
        TEST(test_a_lost_term),         TEST(test_an_interrupted_founding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
