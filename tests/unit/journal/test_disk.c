/* What is asked of the disk, and in which order: that is what makes it durable. And a disk that fails. */
#include "disk.h"
#include "journal/snapshot_file.h"
#include "journal/term.h"
#include "tools.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct room room;
static struct log expected;
static struct files files;

static int set_up(void **state)
{
    (void)state;
    room_init(&room);
    expected.count = 0;
    room_must_open(&room);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&room);
    files_free(&files);
    return 0;
}

static struct snapshot_file snapshot_of(uint64_t index, const char *data)
{
    return (struct snapshot_file){.index = index,
                                  .term = 1,
                                  .configuration = {(void *)(uintptr_t) "who", 3},
                                  .data = {(void *)(uintptr_t)data, strlen(data)}};
}

static void assert_words(const char *words)
{
    assert_says(&room.err, words);
    assert_says(&room.err, room.path);
}

/* ---- in which order --------------------------------------------------------------------------- */

/* [J1] */
static void test_an_append_is_one_write(void **state)
{
    off_t end = 0;

    (void)state;
    for (uint64_t i = 1; i <= 6; i++) {
        room_make_spare(&room);
        disk_reset();
        room_append(&room, i, 1, SIZES(10, (size_t)i * 1000));
        if (i == 1) /* the first of a segment is marked afterwards */
            assert_int_equal(disk.count, 1 + disk_of_mark());
        else
            assert_int_equal(disk.count, 1);
        assert_int_equal(disk.calls[0].kind, DISK_WRITE);
        assert_true(disk.calls[0].durable);
        assert_string_equal(disk.calls[0].name, "log-1");
        assert_int_equal(disk.calls[0].offset, end);
        assert_int_equal(disk.calls[0].size % BLOCK_BYTES, 0);
        end += (off_t)disk.calls[0].size;
    }
}

/* It is all there, and its name, before it is used. */
static void test_a_spare_is_durable(void **state)
{
    off_t end = 0;

    (void)state;
    room.segment_bytes = 0;
    room_reopen(&room);
    disk_reset();
    room_make_spare(&room);
    assert_int_equal(disk.calls[disk.count - 3].kind, DISK_WRITE); /* the salt, last of all */
    assert_int_equal(disk.calls[disk.count - 3].offset, 0);
    assert_int_equal(disk.calls[disk.count - 3].size, BLOCK_BYTES);
    for (size_t i = 0; i < disk.count - 3; i++)
        if (disk.calls[i].kind == DISK_WRITE) {
            assert_int_equal(disk.calls[i].offset, end);
            assert_true(disk.calls[i].size <= 1 << 20); /* appends get their turn */
            end += (off_t)disk.calls[i].size;
        }
    assert_int_equal(end, JOURNAL_FIRST_BYTES);
    assert_int_equal(disk_find(DISK_SYNC, "log-1", 0), disk.count - 2);
    assert_int_equal(disk_find(DISK_SYNC, ".", 0), disk.count - 1);
}

static void test_a_term_is_durable(void **state)
{
    struct term term = {0};

    (void)state;
    disk_reset();
    assert_int_equal(term_store(&room.directory, &term, 1, 2, &room.err), HF_OK);
    assert_true(disk_find(DISK_SYNC, ".", 0) < disk_find(DISK_WRITE, "term", 0));
    disk_reset();
    assert_int_equal(term_store(&room.directory, &term, 3, 4, &room.err), HF_OK);
    assert_int_equal(disk_count(DISK_WRITE, NULL), 2);
    for (size_t copy = 0; copy < 2; copy++) {
        const struct disk_call *call = &disk.calls[disk_find(DISK_WRITE, "term", copy)];

        assert_true(call->durable); /* the first is, before the second is touched */
        assert_int_equal(call->offset, copy * BLOCK_BYTES);
        assert_int_equal(call->size, BLOCK_BYTES);
    }
}

static void test_a_snapshot_is_durable(void **state)
{
    struct snapshot_file snapshot = snapshot_of(5, "old"), newer = snapshot_of(9, "new");

    (void)state;
    assert_int_equal(snapshot_file_write(&room.directory, &snapshot, &room.err), HF_OK);
    disk_reset();
    assert_int_equal(snapshot_file_write(&room.directory, &newer, &room.err), HF_OK);
    assert_int_equal(disk_count(DISK_WRITE, "snapshot.new"), 1);
    assert_true(disk_find(DISK_WRITE, "snapshot.new", 0) < disk_find(DISK_SYNC, "snapshot.new", 0));
    assert_true(disk_find(DISK_SYNC, "snapshot.new", 0) < disk_find(DISK_RENAME, "snapshot-9", 0));
    assert_true(disk_find(DISK_RENAME, "snapshot-9", 0) < disk_find(DISK_SYNC, ".", 0));
    assert_true(disk_find(DISK_SYNC, ".", 0) < disk_find(DISK_REMOVE, "snapshot-5", 0));
}

/* The log wants the disk meanwhile. */
static void test_a_large_snapshot_is_written_in_pieces(void **state)
{
    struct snapshot_file snapshot = snapshot_of(5, "");

    (void)state;
    snapshot.data = (struct iovec){calloc(1, 3 << 20), 3 << 20};
    disk_reset();
    assert_int_equal(snapshot_file_write(&room.directory, &snapshot, &room.err), HF_OK);
    for (size_t i = 0; i < disk.count; i++)
        if (disk.calls[i].kind == DISK_WRITE) {
            assert_true(disk.calls[i].size <= 1 << 20);
            assert_true(disk.calls[i].durable);
        }
    free(snapshot.data.iov_base);
}

static void test_a_new_directory_is_durable(void **state)
{
    struct directory other;
    char path[PATH_MAX + 16];

    (void)state;
    snprintf(path, sizeof path, "%s/other", room.home);
    for (size_t time = 0; time < 2; time++) {
        disk_reset();
        assert_int_equal(directory_open(path, &other, &room.err), HF_OK);
        assert_int_equal(disk_count(DISK_SYNC, "."), time == 0 ? 1 : 0);
        directory_close(&other);
    }
}

/* ---- a disk that does it in pieces ------------------------------------------------------------ */

static void test_short_and_interrupted(void **state)
{
    static unsigned char bytes[3 * BLOCK_BYTES];
    struct snapshot_file snapshot = snapshot_of(5, "what it holds"), loaded;

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    snapshot.data = (struct iovec){bytes, sizeof bytes};
    room_make_spare(&room);
    disk.write_at_most = BLOCK_BYTES;
    disk.read_at_most = 7;
    disk.interruptions = 3;
    room_log(&room, &expected, 1, 1, SIZES(10, 9000, 20));
    assert_int_equal(disk.interruptions, 0);
    assert_true(disk_count(DISK_WRITE, "log-1") > 2);
    disk.interruptions = 3;
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
    for (int direct = 1; direct >= 0;
         direct--) { /* past the cache it takes blocks, else what it likes */
        disk.direct_is_unknown = !direct;
        disk.write_at_most = direct ? BLOCK_BYTES : 5;
        disk.interruptions = 3;
        snapshot.index++;
        assert_int_equal(snapshot_file_write(&room.directory, &snapshot, &room.err), HF_OK);
        assert_int_equal(disk.interruptions, 0);
        assert_int_equal(snapshot_file_load(&room.directory, &loaded, &room.err), HF_OK);
        assert_int_equal(loaded.data.iov_len, sizeof bytes);
        assert_memory_equal(loaded.data.iov_base, bytes, sizeof bytes);
        snapshot_file_free(&loaded);
    }
}

static void test_a_disk_that_takes_nothing(void **state)
{
    struct told told = {1, 1, 1, 10};

    (void)state;
    room_make_spare(&room);
    disk.takes_nothing = true;
    assert_int_equal(room_try_append(&room, &told, 1), HF_EIO);
    assert_words("cannot write to the log");
}

static void test_without_direct_writes(void **state)
{
    (void)state;
    disk.direct_is_unknown = true;
    room_log(&room, &expected, 1, 1, SIZES(10, 9000));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

/* ---- a disk that fails ------------------------------------------------------------------------ */

static void test_a_spare_fails(void **state)
{
    struct told told = {1, 1, 1, 10};

    (void)state;
    for (int step = 1; step <= 4; step++) { /* open, write, sync, sync */
        struct journal_spare spare = journal_spare_begin(room.journal);

        disk_fail_in(step, ENOSPC);
        journal_spare_make(&spare);
        assert_true(spare.file < 0);
        assert_says(&spare.failure, "no room for 65536 bytes in ");
        assert_says(&spare.failure, room.path);
        assert_says(&spare.failure, "No space left");
        journal_spare_end(room.journal, &spare);
        assert_true(journal_wants_spare(room.journal));
        assert_int_equal(room_try_append(&room, &told, 1), HF_EBUSY);
        assert_string_equal(room.err.text, spare.failure.text);
        files_keep(room.path, &files); /* the room it took is free again */
        assert_int_equal(files.count, 0);
        files_free(&files);
    }
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

static void test_an_append_fails(void **state)
{
    struct told told = {2, 1, 1, 10};

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    disk_fail_in(1, EIO);
    assert_int_equal(room_try_append(&room, &told, 1), HF_EIO);
    assert_words("cannot write to the log");
    assert_words("Input/output error");
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

/* It has written a part, and the journal is stopped: that part is told of when it is opened again. */
static void test_stopped_after_an_append_failed(void **state)
{
    struct told told = {2, 1, 1, 9000};

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    disk.write_at_most = BLOCK_BYTES;
    disk.fail_in = 2;
    disk.failure = EIO;
    assert_int_equal(room_try_append(&room, &told, 1), HF_EIO);
    disk_reset();
    room_stop(&room);
    room_must_open(&room);
    assert_same_log(&room.log, &expected);
    assert_int_equal(journal_torn(room.journal).segment, 1);
    assert_int_equal(journal_torn(room.journal).at, 2 * BLOCK_BYTES);
    assert_int_equal(journal_torn(room.journal).bytes, BLOCK_BYTES);
}

static void test_opening_fails(void **state)
{
    int step = 1, result;

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_reopen(&room);
    room_log(&room, &expected, 2, 1, SIZES(10));
    room_make_spare(&room);
    room_close(&room);
    files_keep(room.path, &files);
    for (;; step++) {
        disk_fail_in(step, EIO);
        result = room_read(&room);
        disk_reset();
        assert_files(room.path, &files);
        if (result == HF_OK)
            break;
        assert_int_equal(result, HF_EIO);
        assert_words(step == 4 ? "cannot list " : "cannot read ");
    }
    /* The mark, read up to its end; the list; open and read, header and all of it, of three. */
    assert_int_equal(step, 3 + 1 + 3 * 2 * 2 + 1);
}

static void test_beginning_fails(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_make_spare(&room);
    room_close(&room);
    files_keep(room.path, &files);
    for (int step = 1; step <= 8; step++) { /* the mark; open and shorten one, remove the other */
        files_restore(room.path, &files);
        assert_int_equal(room_read(&room), HF_OK);
        disk_fail_in(step, EIO);
        assert_int_equal(journal_begin(room.journal, &room.err), HF_EIO);
        assert_words(step <= 5   ? "cannot write "
                     : step <= 7 ? "cannot shorten "
                                 : "cannot remove ");
        disk_reset();
        room_close(&room);
    }
    room_must_open(&room);
    assert_same_log(&room.log, &expected);
}

static void test_a_term_fails(void **state)
{
    struct term term = {0}, loaded;

    (void)state;
    for (int step = 1; step <= 6; step++) { /* open, make, sync, sync, write, write */
        disk_fail_in(step, EACCES);
        assert_int_equal(term_store(&room.directory, &term, 5, 6, &room.err), HF_EIO);
        assert_words("/term");
        assert_false(term.known);
        disk_reset();
        if (step > 2)
            file_remove(room.path, "term");
    }
    assert_int_equal(term_store(&room.directory, &term, 5, 6, &room.err), HF_OK);
    assert_int_equal(term_load(&room.directory, &loaded, &room.err), HF_OK);
    for (int step = 1; step <= 2; step++) { /* open, read */
        disk_fail_in(step, EIO);
        assert_int_equal(term_load(&room.directory, &loaded, &room.err), HF_EIO);
        assert_words("cannot read ");
        assert_false(loaded.known);
    }
}

static void test_a_snapshot_fails(void **state)
{
    struct snapshot_file snapshot = snapshot_of(5, "old"), newer = snapshot_of(9, "new"), loaded;

    (void)state;
    for (int step = 1; step <= 8;
         step++) { /* open, write, shorten, sync, rename, sync; list, remove */
        assert_int_equal(snapshot_file_write(&room.directory, &snapshot, &room.err), HF_OK);
        disk_fail_in(step, EIO);
        assert_int_equal(snapshot_file_write(&room.directory, &newer, &room.err), HF_EIO);
        assert_words(step <= 6 ? "cannot write " : step == 7 ? "cannot list " : "cannot remove ");
        disk_reset();
        assert_int_equal(snapshot_file_load(&room.directory, &loaded, &room.err), HF_OK);
        assert_int_equal(loaded.index, step <= 5 ? 5 : 9);
        snapshot_file_free(&loaded);
        files_free(&files);
        files_keep(room.path, &files);
        assert_null(files_find(&files, "snapshot.new")); /* a full disk needs the room */
        if (step > 5)
            file_remove(room.path, "snapshot-9");
    }
}

static void test_loading_a_snapshot_fails(void **state)
{
    struct snapshot_file snapshot = snapshot_of(5, "old"), loaded;

    (void)state;
    assert_int_equal(snapshot_file_write(&room.directory, &snapshot, &room.err), HF_OK);
    for (int step = 1; step <= 5; step++) { /* list, open, 3 reads */
        disk_fail_in(step, EIO);
        assert_int_equal(snapshot_file_load(&room.directory, &loaded, &room.err), HF_EIO);
        assert_says(&room.err, step == 1 ? "cannot list " : "cannot read ");
        assert_int_equal(loaded.index, 0);
        assert_null(loaded.data.iov_base);
    }
}

/* ---- a real one ------------------------------------------------------------------------------- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_files_may_not_be_so_large(void **state)
{
    struct journal_spare spare;
    struct told told = {2, 1, 1, 100000};
    int result;

    (void)state;
    room.segment_bytes = 2 * BLOCK_BYTES;
    room_reopen(&room);
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_make_spare(&room);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    limit_files(12 * BLOCK_BYTES);
    result = room_try_append(&room, &told, 1); /* which makes the file grow */
    limit_files(BLOCK_BYTES);
    spare = journal_spare_begin(room.journal);
    journal_spare_make(&spare);
    limit_files(RLIM_INFINITY);
    journal_spare_end(room.journal, &spare);
    assert_int_equal(result, HF_EIO);
    assert_words("File too large");
    assert_says(&spare.failure, "File too large");
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

static void test_the_directory_is_gone(void **state)
{
    struct journal_spare spare = journal_spare_begin(room.journal);
    struct term term = {0};
    struct snapshot_file snapshot = snapshot_of(1, "");

    (void)state;
    file_remove(room.path, "lock");
    file_remove(room.path, "end");
    assert_int_equal(rmdir(room.path), 0);
    journal_spare_make(&spare);
    assert_says(&spare.failure, "No such file or directory");
    assert_int_equal(term_store(&room.directory, &term, 1, 1, &room.err), HF_EIO);
    assert_words("No such file or directory");
    assert_int_equal(snapshot_file_write(&room.directory, &snapshot, &room.err), HF_EIO);
    assert_words("No such file or directory");
    journal_spare_end(room.journal, &spare);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_append_is_one_write),
        TEST(test_a_spare_is_durable),
        TEST(test_a_term_is_durable),
        TEST(test_a_snapshot_is_durable),
        TEST(test_a_large_snapshot_is_written_in_pieces),
        TEST(test_a_new_directory_is_durable),
        TEST(test_short_and_interrupted),
        TEST(test_a_disk_that_takes_nothing),
        TEST(test_without_direct_writes),
        TEST(test_a_spare_fails),
        TEST(test_an_append_fails),
        TEST(test_stopped_after_an_append_failed),
        TEST(test_opening_fails),
        TEST(test_beginning_fails),
        TEST(test_a_term_fails),
        TEST(test_a_snapshot_fails),
        TEST(test_loading_a_snapshot_fails),
        TEST(test_files_may_not_be_so_large),
        TEST(test_the_directory_is_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
