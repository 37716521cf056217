/* The journal when nothing goes wrong: what was appended is told again, in its order; and the files that
 * it takes for that. */
#include "base/crc32c.h"
#include "tools.h"

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

static void reopen_with(size_t segment_bytes)
{
    room.segment_bytes = segment_bytes;
    room_reopen(&room);
}

static void assert_told_again(void)
{
    for (int i = 0; i < 2; i++) {
        room_reopen(&room);
        assert_same_log(&room.log, &expected);
    }
}

/* ---- appending -------------------------------------------------------------------------------- */

static void test_nothing(void **state)
{
    (void)state;
    assert_int_equal(room.log.count, 0);
    assert_told_again();
    files_keep(room.path, &files);
    assert_int_equal(files.count, 0);
}

static void test_one_record(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 7, SIZES(100));
    assert_told_again();
}

static void test_a_group(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(1, 2, 3, 4, 5, 6, 7, 8, 9, 250, 1000));
    assert_told_again();
}

static void test_an_empty_record(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(0));
    room_log(&room, &expected, 2, 1, SIZES(0, 0, 5, 0));
    assert_told_again();
}

/* Around a block's size, alone and with others. */
static void test_records_as_large_as_a_block(void **state)
{
    const size_t full = BLOCK_BYTES - RECORD_HEAD;

    (void)state;
    for (size_t size = full - 9; size <= full + 9; size++) {
        room_log(&room, &expected, expected.count + 1, 2, SIZES(size));
        room_log(&room, &expected, expected.count + 1, 2, SIZES(size, 0, 3, size));
    }
    assert_told_again();
}

static void test_records_larger_than_a_block(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(5000));
    room_log(&room, &expected, 2, 1, SIZES(9000, 20000, 1));
    room_log(&room, &expected, 5, 1, SIZES(8));
    assert_told_again();
}

static void test_groups_larger_than_a_segment(void **state)
{
    (void)state;
    reopen_with(2 * BLOCK_BYTES);
    room_log(&room, &expected, 1, 1, SIZES(50000));
    room_log(&room, &expected, 2, 1, SIZES(10));
    room_log(&room, &expected, 3, 1, SIZES(3000, 3000, 3000, 3000, 3000));
    room_log(&room, &expected, 8, 1, SIZES(300000, 3000));
    room_log(&room, &expected, 10, 1, SIZES(10));
    assert_told_again();
}

static void test_many_segments(void **state)
{
    (void)state;
    reopen_with(3 * BLOCK_BYTES);
    for (uint64_t i = 1; i <= 200; i++) /* two in each */
        room_log(&room, &expected, i, i / 10, SIZES((size_t)i));
    files_keep(room.path, &files);
    assert_int_equal(files.count, 100);
    assert_told_again();
}

static void test_numbers_at_their_limits(void **state)
{
    struct log *log = &expected;

    (void)state;
    log->told[log->count++] = (struct told){UINT64_MAX - 1, UINT64_MAX, 255, 3};
    room_append_told(&room, log->told, 1);
    assert_told_again();
}

/* 64 MB, and no byte more. */
static void test_the_largest_record(void **state)
{
    struct told too_large = {2, 1, 1, JOURNAL_RECORD_MAX + 1};

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    files_keep(room.path, &files);
    assert_int_equal(room_try_append(&room, &too_large, 1), HF_EINVAL);
    assert_says(&room.err, "too large");
    assert_files(room.path, &files);
    room_log(&room, &expected, 2, 1, SIZES(JOURNAL_RECORD_MAX));
    room_log(&room, &expected, 3, 1, SIZES(10));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

static void test_size_of(void **state)
{
    struct journal_record records[3] = {{.size = BLOCK_BYTES - RECORD_HEAD}, {0}, {.size = 1}};

    (void)state;
    assert_int_equal(journal_size_of(records, 1), BLOCK_BYTES);
    assert_int_equal(journal_size_of(records, 2), 2 * BLOCK_BYTES);
    assert_int_equal(journal_size_of(records + 1, 1), BLOCK_BYTES);
    records[0].size = BLOCK_BYTES - 64 - 64 - 72; /* to the last byte, */
    assert_int_equal(journal_size_of(records, 3), BLOCK_BYTES);
    records[2].size = 9; /* and eight more */
    assert_int_equal(journal_size_of(records, 3), 2 * BLOCK_BYTES);
}

/* ---- replacing [J4] --------------------------------------------------------------------------- */

static void test_replacing(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10, 20, 30, 40));
    room_log(&room, &expected, 3, 2, SIZES(50));
    room_log(&room, &expected, 3, 3, SIZES(60, 70));
    room_log(&room, &expected, 1, 4, SIZES(80));
    room_log(&room, &expected, 2, 4, SIZES(90));
    assert_told_again();
}

static void test_replacing_across_segments(void **state)
{
    (void)state;
    reopen_with(2 * BLOCK_BYTES); /* one group in each */
    for (uint64_t first = 1; first <= 9; first += 2)
        room_log(&room, &expected, first, 1, SIZES(10, 20));
    room_log(&room, &expected, 4, 2, SIZES(30));
    room_log(&room, &expected, 5, 2, SIZES(40, 50, 60));
    room_log(&room, &expected, 1, 3, SIZES(70));
    assert_told_again();
    room_log(&room, &expected, 1, 4, SIZES(80, 90)); /* and after a restart */
    assert_told_again();
}

/* ---- spare segments --------------------------------------------------------------------------- */

static void test_without_a_spare(void **state)
{
    struct told told = {1, 1, 1, 10};

    (void)state;
    files_keep(room.path, &files);
    assert_int_equal(room_try_append(&room, &told, 1), HF_EBUSY);
    assert_says(&room.err, "not ready");
    assert_files(room.path, &files);

    reopen_with(2 * BLOCK_BYTES);
    room_log(&room, &expected, 1, 1, SIZES(10));
    files_free(&files);
    files_keep(room.path, &files);
    told.index = 2;
    for (int i = 0; i < 3; i++)
        assert_int_equal(room_try_append(&room, &told, 1), HF_EBUSY);
    assert_files(room.path, &files);
    room_log(&room, &expected, 2, 1, SIZES(10)); /* it gets one now */
    assert_told_again();
}

static void test_when_a_spare_is_wanted(void **state)
{
    struct journal_spare spare;

    (void)state;
    assert_true(journal_wants_spare(room.journal));
    spare = journal_spare_begin(room.journal);
    assert_false(journal_wants_spare(room.journal));
    journal_spare_make(&spare);
    assert_false(journal_wants_spare(room.journal));
    journal_spare_end(room.journal, &spare);
    assert_false(journal_wants_spare(room.journal));
    room_log(&room, &expected, 1, 1, SIZES(10));
    assert_true(journal_wants_spare(room.journal));
}

/* What the bytes of a spare were before does not matter; its size is a whole number of blocks. */
static void test_a_spare_is_zeros(void **state)
{
    static const size_t wanted[][2] = {{0, JOURNAL_FIRST_BYTES},
                                       {1, BLOCK_BYTES},
                                       {5000, 2 * BLOCK_BYTES},
                                       {(256 << 10) + 1, (256 << 10) + BLOCK_BYTES}};
    unsigned char *zeros = calloc(1, JOURNAL_SEGMENT_BYTES);
    unsigned char *full = malloc(JOURNAL_SEGMENT_BYTES + 9);
    char name[16];

    (void)state;
    assert_true(zeros && full);
    memset(full, 'x', JOURNAL_SEGMENT_BYTES + 9);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        reopen_with(wanted[i][0]);
        snprintf(name, sizeof name, "log-%zu", i + 1);
        file_put(room.path, name, full, wanted[i][1] + 9);
        room_make_spare(&room);
        files_free(&files);
        files_keep(room.path, &files);
        assert_int_equal(files.count, 1);
        assert_string_equal(files.file[0].name, name);
        assert_int_equal(files.file[0].size, wanted[i][1]);
        memset(files.file[0].bytes + 2048, 0,
               28); /* its salt, number, bytes: see test_the_format */
        assert_memory_equal(files.file[0].bytes, zeros, wanted[i][1]);
    }
    free(zeros);
    free(full);
}

static void test_closing_with_a_spare_in_the_making(void **state)
{
    struct journal_spare spare;

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    spare = journal_spare_begin(room.journal);
    room_close(&room);
    journal_spare_make(&spare); /* it is ready too late, and never given */
    assert_string_equal(spare.failure.text, "");
    close(spare.file);
    room_must_open(&room);
    assert_same_log(&room.log, &expected);
    files_keep(room.path, &files);
    assert_int_equal(files.count, 1);
    assert_null(files_find(&files, "log-2"));
    room_log(&room, &expected, 2, 1, SIZES(10));
    assert_told_again();
}

/* To the last block, and not beyond it. */
static void test_a_full_segment(void **state)
{
    (void)state;
    reopen_with(4 * BLOCK_BYTES);
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_log(&room, &expected, 2, 1, SIZES(5000)); /* blocks 2 and 3 */
    room_log(&room, &expected, 3, 1, SIZES(10));
    room_log(&room, &expected, 4, 1, SIZES(10));
    room_log(&room, &expected, 5, 1, SIZES(5000)); /* there is one block left */
    files_keep(room.path, &files);
    assert_int_equal(files.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(files.file[i].size, 4 * BLOCK_BYTES);
    assert_told_again();
}

/* What a new node writes is mostly zeros. */
static void test_a_young_log_has_small_segments(void **state)
{
    static const size_t wanted[] = {JOURNAL_FIRST_BYTES, 2 * JOURNAL_FIRST_BYTES,
                                    4 * JOURNAL_FIRST_BYTES, JOURNAL_SEGMENT_BYTES,
                                    JOURNAL_SEGMENT_BYTES};
    const size_t each = (256 << 10) - 1000; /* so that one does not fit beside the first block */
    uint64_t index = 1;

    (void)state;
    reopen_with(0);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (size_t at = 0; at + (256 << 10) < wanted[i]; at += 256 << 10)
            room_log(&room, &expected, index++, 1, SIZES(each));
    files_keep(room.path, &files);
    assert_int_equal(files.count, sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < files.count; i++)
        assert_int_equal(files.file[i].size, wanted[i]);
    assert_told_again();
}

/* ---- files ------------------------------------------------------------------------------------ */

static void put_sum(unsigned char *at, const unsigned char *bytes, size_t size)
{
    uint32_t sum = crc32c(0, bytes, size);

    for (size_t i = 0; i < 4; i++)
        at[i] = (unsigned char)(sum >> 8 * i);
}

/* The bytes as they are on disk: a journal must be readable by later versions. */
static void test_the_format(void **state)
{
    unsigned char header[BLOCK_BYTES] = {'H', 'F', 'f', 'd',      'l',        'o',
                                         'g', '2', 9,   [24] = 1, [2056] = 1, [2066] = 1};
    unsigned char records[136] = {
        [4] = 3,   [8] = 9,  [16] = 5, [24] = 1,   [40] = 2,   [47] = 1,
        [48] = 7,  [56] = 1, [60] = 2, [64] = 'a', [65] = 'b', [66] = 'c',
        [80] = 10, [88] = 5, [96] = 1, [112] = 3,  [121] = 1,  [132] = 255};
    const unsigned char *salt;
    unsigned char sums[4];
    struct journal_record record[] = {{9, 5, UINT64_C(0x0100000000000002), 7, 2, "abc", 3},
                                      {10, 5, 3, 256, 255, NULL, 0}};

    (void)state;
    room_make_spare(&room);
    assert_int_equal(journal_append(room.journal, record, 2, &room.err), HF_OK);
    files_keep(room.path, &files);
    assert_string_equal(files.file[0].name, "log-1");
    salt = files.file[0].bytes + 2048; /* nobody knows it before */
    memcpy(header + 2048, salt, 8);
    memcpy(records + 32, salt, 8);
    memcpy(records + 104, salt, 8);
    put_sum(header + 32, header, 32);
    put_sum(header + 2072, header + 2048, 24);
    put_sum(sums, records + 4, 57);
    memcpy(records + 61, sums + 1, 3);
    put_sum(sums, records + 76, 57);
    memcpy(records + 133, sums + 1, 3);
    put_sum(records, records + 4, 63);
    put_sum(records + 72, records + 76, 60);
    assert_memory_equal(files.file[0].bytes, header, sizeof header);
    assert_memory_equal(files.file[0].bytes + BLOCK_BYTES, records, sizeof records);
    for (size_t i = 0; i < files.file[0].size; i++)
        if ((i >= sizeof header && i < BLOCK_BYTES) || i >= BLOCK_BYTES + sizeof records)
            assert_int_equal(files.file[0].bytes[i], 0);
}

/* Nobody may take it for damage, or for nothing. */
static void test_a_segment_of_the_first_format(void **state)
{
    unsigned char header[BLOCK_BYTES] = {'H', 'F', 'f', 'd', 'l', 'o', 'g', '1', 9, [24] = 1};

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_stop(&room);
    put_sum(header + 32, header, 32);
    for (size_t i = 0; i < 36; i++)
        file_set(room.path, "log-1", i, header[i]);
    files_keep(room.path, &files);
    assert_int_equal(room_read(&room), HF_EIO);
    assert_says(&room.err, "/log-1 was written by a holdfastd from before 0.1.0 (log format 1");
    assert_says(&room.err, "start that version on it, or this one with an empty directory");
    assert_files(room.path, &files);
}

static void test_the_format_of_the_mark(void **state)
{
    static const char nothing[] = "log-0\ngroup 0\nentry 0\nchecksum 00000000\nclosed\n";
    char text[200];
    int used;

    (void)state;
    files_keep(room.path, &files); /* it was opened, and there was nothing */
    used =
        snprintf(text, sizeof text, "%smark %08x\n", nothing, crc32c(0, nothing, strlen(nothing)));
    assert_int_equal(files.mark.size, used);
    assert_memory_equal(files.mark.bytes, text, files.mark.size);
    files_free(&files);
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_log(&room, &expected, 2, 1, SIZES(10, 0));
    room_stop(&room);
    files_keep(room.path, &files);
    used = snprintf(
        text, sizeof text, "log-1\ngroup 2\nentry 3\nchecksum %02x%02x%02x%02x\nclosed\n",
        files.file[0].bytes[2 * BLOCK_BYTES + 80 + 3],
        files.file[0].bytes[2 * BLOCK_BYTES + 80 + 2],
        files.file[0].bytes[2 * BLOCK_BYTES + 80 + 1], files.file[0].bytes[2 * BLOCK_BYTES + 80]);
    snprintf(text + used, sizeof text - (size_t)used, "mark %08x\n", crc32c(0, text, (size_t)used));
    assert_int_equal(files.mark.size, strlen(text));
    assert_memory_equal(files.mark.bytes, text, files.mark.size);
    room_must_open(&room);
    assert_same_log(&room.log, &expected);
}

/* What was written before is not written again as the rest of a block, or between records. */
static void test_the_rest_of_a_block_is_zeros(void **state)
{
    const unsigned char *at;

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10000));
    room_log(&room, &expected, 2, 1, SIZES(10000));
    room_log(&room, &expected, 3, 1, SIZES(1, 9));
    files_keep(room.path, &files);
    at = files.file[0].bytes + 7 * BLOCK_BYTES;
    assert_int_equal(at[4], 1); /* here it is: 64 and 1, then 64 and 9 */
    for (size_t i = 65; i < BLOCK_BYTES; i++)
        if (i < 72 || i >= 72 + 73)
            assert_int_equal(at[i], 0);
}

/* [J3] */
static void test_a_restart_begins_a_segment(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_reopen(&room);
    files_keep(room.path, &files);
    room_log(&room, &expected, 2, 1, SIZES(10));
    assert_told_again();
    file_remove(room.path, "log-2");
    file_put(room.path, "end", files.mark.bytes, files.mark.size);
    assert_files(room.path, &files);
}

static void test_reopening_does_not_add_up(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_log(&room, &expected, 2, 1, SIZES(5000));
    for (int i = 0; i < 50; i++) {
        room_make_spare(&room);
        room_reopen(&room);
        assert_same_log(&room.log, &expected);
    }
    files_keep(room.path, &files);
    assert_int_equal(files.count, 1);
    assert_int_equal(files_bytes(&files), 4 * BLOCK_BYTES);
    for (uint64_t i = 3; i <= 30; i++) {
        room_log(&room, &expected, i, 1, SIZES(10));
        room_reopen(&room);
    }
    files_free(&files);
    files_keep(room.path, &files);
    assert_int_equal(files_bytes(&files), 4 * BLOCK_BYTES + 28 * 2 * BLOCK_BYTES);
}

/* Who reads it may refuse it, and then it stays as it is. */
static void test_nothing_changes_before_it_begins(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10, 20));
    room_make_spare(&room);
    room_close(&room);
    files_keep(room.path, &files);
    room.stop_after = 2;
    assert_int_equal(room_open(&room), HF_EREFUSED);
    assert_string_equal(room.err.text, "not this one");
    assert_int_equal(room.log.count, 2);
    assert_files(room.path, &files);

    room.stop_after = 0;
    assert_int_equal(room_read(&room), HF_OK);
    assert_same_log(&room.log, &expected);
    room_close(&room);
    assert_files(room.path, &files);

    room_must_open(&room);
    files_free(&files);
    files_keep(room.path, &files);
    assert_int_equal(files.count, 1);
    assert_int_equal(files.file[0].size, 2 * BLOCK_BYTES);
}

static void test_files_of_others(void **state)
{
    static const char *const names[] = {"log", "log-", "log-1x", "log-x1", "snapshot-1", "xlog-1"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        file_put(room.path, names[i], "mine", 4);
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_make_spare(&room);
    assert_told_again();
    assert_int_equal(journal_remove(&room.directory, UINT64_MAX, &room.err), HF_OK);
    files_keep(room.path, &files);
    assert_int_equal(files.count, sizeof names / sizeof *names);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nothing),
        TEST(test_one_record),
        TEST(test_a_group),
        TEST(test_an_empty_record),
        TEST(test_records_as_large_as_a_block),
        TEST(test_records_larger_than_a_block),
        TEST(test_groups_larger_than_a_segment),
        TEST(test_many_segments),
        TEST(test_numbers_at_their_limits),
        TEST(test_the_largest_record),
        TEST(test_size_of),
        TEST(test_replacing),
        TEST(test_replacing_across_segments),
        TEST(test_without_a_spare),
        TEST(test_when_a_spare_is_wanted),
        TEST(test_a_spare_is_zeros),
        TEST(test_closing_with_a_spare_in_the_making),
        TEST(test_a_full_segment),
        TEST(test_a_young_log_has_small_segments),
        TEST(test_the_format),
        TEST(test_a_segment_of_the_first_format),
        TEST(test_the_format_of_the_mark),
        TEST(test_the_rest_of_a_block_is_zeros),
        TEST(test_a_restart_begins_a_segment),
        TEST(test_reopening_does_not_add_up),
        TEST(test_nothing_changes_before_it_begins),
        TEST(test_files_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
