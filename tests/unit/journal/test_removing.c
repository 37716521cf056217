/* What goes from a journal: old segments, and all of them at once; also when that is interrupted. */
#include "disk.h"
#include "tools.h"

#define MARK_STEPS 5 /* to store the mark: open, write, sync, rename, sync */

static struct room room;
static struct log expected;
static struct files files, older;

static int set_up(void **state)
{
    (void)state;
    room_init(&room);
    expected.count = 0;
    room.segment_bytes = 2 * BLOCK_BYTES; /* one group in each */
    room_must_open(&room);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&room);
    files_free(&files);
    files_free(&older);
    return 0;
}

/* Groups of three in segments from log-1 on: indexes 1 to 3, 4 to 6, and so on. */
static void append_threes(uint64_t segments)
{
    for (uint64_t i = 0; i < segments; i++)
        room_log(&room, &expected, 3 * i + 1, 1, SIZES(10, 20, 30));
}

static void expect_without(size_t records)
{
    expected.count -= records;
    memmove(expected.told, expected.told + records, expected.count * sizeof *expected.told);
}

static bool there_is(const char *name)
{
    bool is;

    files_free(&files);
    files_keep(room.path, &files);
    is = files_find(&files, name) != NULL;
    files_free(&files);
    return is;
}

/* ---- old ones --------------------------------------------------------------------------------- */

static void test_which_are_needed(void **state)
{
    (void)state;
    assert_int_equal(journal_needed(room.journal, 5), 0);
    append_threes(4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(journal_needed(room.journal, 0), 1);
        assert_int_equal(journal_needed(room.journal, 1), 1);
        assert_int_equal(journal_needed(room.journal, 3), 1);
        assert_int_equal(journal_needed(room.journal, 4), 2);
        assert_int_equal(journal_needed(room.journal, 9), 3);
        assert_int_equal(journal_needed(room.journal, 10), 4);
        assert_int_equal(journal_needed(room.journal, 1000), 4);
        room_reopen(&room);
    }
}

/* Segments 1 to 4: from 1, 4, 7 and again 4. */
static void test_which_are_needed_after_replacing(void **state)
{
    (void)state;
    append_threes(3);
    room_log(&room, &expected, 4, 2, SIZES(10, 20, 30, 40, 50, 60));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(journal_needed(room.journal, 3), 1);
        assert_int_equal(journal_needed(room.journal, 9), 4);
        assert_true(journal_needed(room.journal, 5) == 2 || journal_needed(room.journal, 5) == 4);
        room_reopen(&room);
    }
}

static void test_removing_old_ones(void **state)
{
    (void)state;
    append_threes(5);
    assert_int_equal(journal_remove(&room.directory, journal_needed(room.journal, 8), &room.err),
                     HF_OK);
    assert_false(there_is("log-1"));
    assert_false(there_is("log-2"));
    assert_true(there_is("log-3"));
    assert_int_equal(journal_needed(room.journal, 1), 1); /* it has not been said */
    journal_removed(room.journal, 3);
    assert_int_equal(journal_needed(room.journal, 1), 3);
    assert_int_equal(journal_needed(room.journal, 10), 4);
    expect_without(6);
    room_log(&room, &expected, 16, 1, SIZES(10));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
    assert_int_equal(journal_needed(room.journal, 1), 3);
}

static void test_removing_all_but_the_last(void **state)
{
    (void)state;
    append_threes(40); /* more than are kept in mind at first */
    assert_int_equal(journal_remove(&room.directory, journal_needed(room.journal, 1000), &room.err),
                     HF_OK);
    journal_removed(room.journal, 40);
    room_log(&room, &expected, 121, 1, SIZES(10));
    assert_int_equal(journal_needed(room.journal, 121), 41);
    expect_without(39 * 3);
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

static void test_removing_from_nothing(void **state)
{
    (void)state;
    assert_int_equal(journal_remove(&room.directory, 0, &room.err), HF_OK);
    journal_removed(room.journal, 0);
    journal_removed(room.journal, 1000);
    append_threes(1);
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

/* A machine that dies at any step of it leaves a log without a gap. */
static void test_removing_is_interrupted(void **state)
{
    (void)state;
    append_threes(20);
    room_make_spare(&room);
    room_close(&room);
    files_keep(room.path, &older);
    for (int step = 1, result = HF_EIO; result != HF_OK; step++) {
        disk_die_in(step);
        result = journal_remove(&room.directory, 19, &room.err);
        assert_true(result == HF_OK ? step > 18 : result == HF_EIO);
        if (result != HF_OK)
            assert_says(&room.err, room.path);
        disk_reset();
        room_must_open(&room);
        assert_true(room.log.count >= 6);
        for (size_t i = 0; i < room.log.count; i++)
            assert_int_equal(room.log.told[i].index, 60 - room.log.count + 1 + i);
        room_close(&room);
        files_restore(room.path, &older);
    }
}

/* ---- all -------------------------------------------------------------------------------------- */

static void test_reset(void **state)
{
    (void)state;
    append_threes(3);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    assert_int_equal(journal_needed(room.journal, 5), 0);
    files_keep(room.path, &files);
    assert_int_equal(files.count, 0);
    expected.count = 0;
    room_log(&room, &expected, 1000, 3, SIZES(10));
    room_log(&room, &expected, 1001, 3, SIZES(10));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
    assert_int_equal(journal_needed(room.journal, 1001), 5);
}

static void test_reset_of_nothing(void **state)
{
    (void)state;
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    append_threes(1);
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    room_reopen(&room);
    assert_int_equal(room.log.count, 0);
    expected.count = 0;
    room_log(&room, &expected, 77, 1, SIZES(10));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

/* The spare that was there, or in the making, is used after it. */
static void test_reset_with_a_spare(void **state)
{
    struct journal_spare spare;

    (void)state;
    append_threes(2);
    room_make_spare(&room);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    assert_false(journal_wants_spare(room.journal));
    expected.count = 0;
    room_log(&room, &expected, 50, 1, SIZES(10));

    spare = journal_spare_begin(room.journal);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    journal_spare_make(&spare);
    journal_spare_end(room.journal, &spare);
    expected.count = 0;
    room_log(&room, &expected, 70, 1, SIZES(10));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

/* Their removal had not reached the disk when the machine died. */
static void put_back(const struct files *back)
{
    for (size_t i = 0; i < back->count; i++)
        file_put(room.path, back->file[i].name, back->file[i].bytes, back->file[i].size);
}

static void test_removed_ones_come_back(void **state)
{
    (void)state;
    append_threes(3);
    files_keep(room.path, &older);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    expected.count = 0;
    room_log(&room, &expected, 2, 9, SIZES(10, 20));
    room_log(&room, &expected, 4, 9, SIZES(10));
    room_close(&room);
    put_back(&older);
    for (int i = 0; i < 2; i++) {
        room_must_open(&room);
        assert_same_log(&room.log, &expected);
        assert_int_equal(journal_needed(room.journal, 0), 4);
        assert_false(there_is("log-1"));
        assert_false(there_is("log-3"));
        room_close(&room);
    }
}

/* Damaged or not, they no longer matter. */
static void test_damaged_ones_come_back(void **state)
{
    (void)state;
    room.segment_bytes = 8 * BLOCK_BYTES;
    room_reopen(&room);
    append_threes(3);
    files_keep(room.path, &older);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    expected.count = 0;
    room_log(&room, &expected, 200, 9, SIZES(10));
    room_close(&room);
    file_put(room.path, "log-1", older.file[0].bytes, older.file[0].size);
    file_flip(room.path, "log-1", BLOCK_BYTES + 1);
    room_must_open(&room);
    assert_same_log(&room.log, &expected);
    assert_false(there_is("log-1"));
}

/* Only the first segment after it voids the ones before. */
static void test_reset_twice(void **state)
{
    (void)state;
    append_threes(2);
    files_keep(room.path, &files);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    room_append(&room, 100, 2, SIZES(10));
    room_append(&room, 101, 2, SIZES(10));
    put_back(&files);
    files_keep(room.path, &older);
    assert_int_equal(older.count, 4);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    expected.count = 0;
    room_log(&room, &expected, 50, 3, SIZES(10));
    room_log(&room, &expected, 51, 3, SIZES(10));
    room_log(&room, &expected, 52, 3, SIZES(10));
    room_close(&room);
    put_back(&older);
    for (int i = 0; i < 2; i++) {
        room_must_open(&room);
        assert_same_log(&room.log, &expected);
        room_close(&room);
    }
    room_must_open(&room);
}

/* A crash in the midst of it leaves all of the log, or nothing: the mark decides, whatever files there are. */
static void test_reset_is_interrupted(void **state)
{
    struct told told = {19, 1, 1, 10};

    (void)state;
    append_threes(6);
    files_keep(room.path, &older);
    for (int step = 1; step <= MARK_STEPS; step++) { /* the mark goes first */
        room_reopen(&room);
        disk_die_in(step);
        assert_int_equal(journal_reset(room.journal, &room.err), HF_EIO);
        assert_says(&room.err, "/end");
        disk_reset();
        assert_int_equal(room_try_append(&room, &told, 1), HF_EIO); /* it would be void */
        assert_says(&room.err, "is being reset");
        if (step == MARK_STEPS) /* its name could not be synced: it is there */
            expected.count = 0;
        room_reopen(&room);
        assert_same_log(&room.log, &expected);
    }
    for (size_t step = 1; step <= 6; step++) {
        files_restore(room.path, &older);
        room_reopen(&room);
        disk_die_in(MARK_STEPS + (int)step);
        assert_int_equal(journal_reset(room.journal, &room.err), HF_EIO);
        assert_says(&room.err, "log-");
        assert_true(journal_needed(room.journal, 1000) == 7 - step);
        disk_reset();
        room_reopen(&room);
        assert_same_log(&room.log, &expected);
        files_free(&files);
        files_keep(room.path, &files);
        assert_int_equal(files.count, 0);
    }
}

/* A segment that was shortened when it was opened again is left behind by a reset that does not come to its end. */
static void test_reset_leaves_a_short_segment(void **state)
{
    (void)state;
    room.segment_bytes = 8 * BLOCK_BYTES;
    room_reopen(&room);
    append_threes(1);
    room_reopen(&room);
    append_threes(1);
    disk_die_in(MARK_STEPS + 2); /* the second is gone, the first is not */
    assert_int_equal(journal_reset(room.journal, &room.err), HF_EIO);
    disk_reset();
    room_reopen(&room);
    assert_int_equal(room.log.count, 0);
}

static void test_what_is_gone_already(void **state)
{
    (void)state;
    append_threes(3);
    file_remove(room.path, "log-2");
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    files_keep(room.path, &files);
    assert_int_equal(files.count, 0);
}

static void test_reset_is_tried_again(void **state)
{
    (void)state;
    append_threes(4);
    disk_die_in(3);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_EIO);
    disk_reset();
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    expected.count = 0;
    room_log(&room, &expected, 500, 1, SIZES(10));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_which_are_needed),
        TEST(test_which_are_needed_after_replacing),
        TEST(test_removing_old_ones),
        TEST(test_removing_all_but_the_last),
        TEST(test_removing_from_nothing),
        TEST(test_removing_is_interrupted),
        TEST(test_reset),
        TEST(test_reset_of_nothing),
        TEST(test_reset_with_a_spare),
        TEST(test_removed_ones_come_back),
        TEST(test_damaged_ones_come_back),
        TEST(test_reset_twice),
        TEST(test_reset_is_interrupted),
        TEST(test_reset_leaves_a_short_segment),
        TEST(test_what_is_gone_already),
        TEST(test_reset_is_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
