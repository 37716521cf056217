/* Damage to what was acknowledged [J2]: the journal is refused, in words, and not a byte of it is changed.
 * And what may look like damage, and is none. */
#include "base/crc32c.h"
#include "disk.h"
#include "tools.h"

#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 36 /* of a segment: what counts in it */

static struct room room;
static struct log expected;
static struct files files, damaged;

static int set_up(void **state)
{
    (void)state;
    room_init(&room);
    disk.direct_is_unknown = true;
    room.segment_bytes = 8 * BLOCK_BYTES;
    expected.count = 0;
    room_must_open(&room);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&room);
    files_free(&files);
    files_free(&damaged);
    return 0;
}

/* The journal is closed, and as it is now it will be kept. */
static void keep(void)
{
    if (room.journal)
        room_close(&room);
    files_free(&files);
    files_keep(room.path, &files);
}

static void assert_refused(void)
{
    files_free(&damaged);
    files_keep(room.path, &damaged);
    assert_int_equal(room_open(&room), HF_EIO);
    assert_says(&room.err, room.path);
    assert_says(&room.err, "log-");
    assert_says(&room.err, "restore the directory from a backup");
    assert_files(room.path, &damaged);
}

/* Told are the first so many. */
static void assert_tells(size_t count)
{
    static struct log log;

    log = expected;
    log.count = count;
    room_must_open(&room);
    assert_same_log(&room.log, &log);
    room_close(&room);
}

static void assert_tells_after_restoring(void)
{
    files_restore(room.path, &files);
    assert_tells(expected.count);
}

static void put_number(unsigned char *at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(number >> 8 * i);
}

/* ---- one byte --------------------------------------------------------------------------------- */

static const size_t first_group[] = {100, SIZE_MAX}, second_group[] = {10, 20, 0, 33, SIZE_MAX},
                    third_group[] = {4200, SIZE_MAX}, fourth_group[] = {11, 12, SIZE_MAX};

/* In log-1 the first three, in log-2 the fourth and then the third once more. */
static void append_five(void)
{
    room_log(&room, &expected, 1, 1, first_group);
    room_log(&room, &expected, 2, 1, second_group);
    room_log(&room, &expected, 6, 2, third_group);
    room_reopen(&room);
    room_log(&room, &expected, 7, 3, fourth_group);
    room_log(&room, &expected, 9, 3, third_group);
    room_reopen(&room); /* it is shortened */
    keep();
    assert_int_equal(files.count, 2);
}

static bool in_a_record(size_t offset, const size_t *sizes)
{
    for (size_t i = 0; sizes[i] != SIZE_MAX; i++)
        if (offset >= record_begin(sizes, i) &&
            offset < record_begin(sizes, i) + RECORD_HEAD + sizes[i])
            return true;
    return false;
}

/* Every byte of a group in turn; what lies between its records does not matter. */
static void flip_group(const char *name, size_t at, const size_t *sizes)
{
    size_t end = (record_begin(sizes, sizes_count(sizes)) + BLOCK_BYTES - 1) / BLOCK_BYTES;

    for (size_t i = 0; i < end * BLOCK_BYTES; i++) {
        bool matters = in_a_record(i, sizes);

        if (!matters && i % 61 > 0 && i % 8 > 0)
            continue; /* some will do */
        file_flip(room.path, name, at + i);
        if (matters)
            assert_refused();
        else
            assert_tells(expected.count);
        file_flip(room.path, name, at + i);
    }
}

static void test_any_byte_of_an_earlier_group(void **state)
{
    (void)state;
    append_five();
    flip_group("log-1", BLOCK_BYTES, first_group);
    flip_group("log-1", 2 * BLOCK_BYTES, second_group);
    flip_group("log-1", 3 * BLOCK_BYTES, third_group);
    flip_group("log-2", BLOCK_BYTES, fourth_group);
    assert_files(room.path, &files);
    assert_tells(expected.count);
}

/* It was there when the journal was opened, so it is marked. */
static void test_any_byte_of_the_last_group(void **state)
{
    (void)state;
    append_five();
    for (size_t i = 0; i < RECORD_HEAD + 4200; i++) {
        file_flip(room.path, "log-2", 2 * BLOCK_BYTES + i);
        assert_refused();
        file_flip(room.path, "log-2", 2 * BLOCK_BYTES + i);
    }
    assert_tells(expected.count);
}

static void flip_every_bit(const char *name, size_t from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = files_find(&files, name)->bytes[from + i];

        for (unsigned bit = 1; bit < 256; bit *= 2) {
            file_set(room.path, name, from + i, (unsigned char)(byte ^ bit));
            assert_refused();
        }
        file_set(room.path, name, from + i, byte);
    }
    assert_files(room.path, &files);
}

/* [J6] A clean stop marks the end: whatever becomes of the last record, it is missed. */
static void test_any_bit_of_the_last_record_after_a_stop(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, first_group);
    room_log(&room, &expected, 2, 1, SIZES(10, 77));
    room_stop(&room);
    keep();
    flip_every_bit("log-1", 2 * BLOCK_BYTES + record_begin(SIZES(10, 77), 1), RECORD_HEAD + 77);
    assert_tells(expected.count);
}

/* [J5] And after any other end: all of its sectors are there, so no write was cut short. */
static void test_any_bit_of_the_last_record_after_a_crash(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, first_group);
    room_log(&room, &expected, 2, 1,
             SIZES(16, 72, 900)); /* multiples of 8: nothing is between them */
    keep();
    flip_every_bit("log-1", 2 * BLOCK_BYTES, record_begin(SIZES(16, 72, 900), 2) + RECORD_HEAD);
    for (size_t i = 0; i < 900; i++) {
        file_flip(room.path, "log-1",
                  2 * BLOCK_BYTES + record_begin(SIZES(16, 72, 900), 2) + RECORD_HEAD + i);
        assert_refused();
        files_restore(room.path, &files);
    }
    assert_tells(expected.count);
}

/* The first record of all, with the header of its segment. */
static void test_any_bit_of_the_first_record_after_a_crash(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    keep();
    flip_every_bit("log-1", 0, HEADER_BYTES);
    flip_every_bit("log-1", 2048, 28);
    flip_every_bit("log-1", BLOCK_BYTES, RECORD_HEAD + 10);
    assert_tells(1);
}

/* A stray bit where nothing was written is no write that was cut short either. */
static void test_a_bit_behind_the_last_record(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    keep();
    flip_every_bit("log-1", 2 * BLOCK_BYTES, 1);
    flip_every_bit("log-1", 2 * BLOCK_BYTES + 300, 1);
    assert_tells(1);
}

/* A crash, a start, another crash: what was read at that start is marked. */
static void test_what_was_read_once_is_marked(void **state)
{
    static unsigned char zeros[BLOCK_BYTES];
    struct file *file;

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_log(&room, &expected, 2, 1, SIZES(10));
    keep();
    file = files_find(&files, "log-1");
    memcpy(file->bytes + 2 * BLOCK_BYTES, zeros, BLOCK_BYTES);
    file_put(room.path, "log-1", file->bytes, file->size);
    assert_tells(1); /* it may have been the last write, and not one sector of it is there */
    room_must_open(&room);
    room_log(&room, &expected, 2, 1, SIZES(10));
    expected.count = 2;
    room_reopen(&room);
    keep();
    file_put(room.path, "log-2", zeros, BLOCK_BYTES);
    assert_refused();
    file_remove(room.path, "log-2");
    assert_refused();
}

/* After a crash, in the first life of a journal or a later one: what a segment had taken is missed, though nothing behind it says so. */
static void test_the_last_segment_is_gone_after_a_crash(void **state)
{
    static const char zeros[BLOCK_BYTES];

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    keep();
    file_remove(room.path, "log-1");
    assert_refused();
    file_put(room.path, "log-1", zeros, 0);
    assert_refused();
    file_put(room.path, "log-1", zeros, sizeof zeros);
    assert_refused();
    assert_tells_after_restoring();
    room_must_open(&room);
    for (uint64_t i = 2; i < 12; i++) /* into log-3 */
        room_log(&room, &expected, i, 1, SIZES(5000));
    keep();
    assert_true(files.count >= 3);
    file_remove(room.path, files.file[files.count - 1].name);
    if (room_open(&room) == HF_OK) { /* it was a spare */
        room_close(&room);
        files_restore(room.path, &files);
        file_remove(room.path, files.file[files.count - 2].name);
        assert_refused();
    }
}

/* ---- the mark --------------------------------------------------------------------------------- */

static void assert_mark_refused(void)
{
    assert_int_equal(room_open(&room), HF_EIO);
    assert_says(&room.err, room.path);
    assert_says(&room.err, "/end");
    assert_says(&room.err, "restore the directory from a backup");
}

static void test_any_bit_of_the_mark(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_stop(&room);
    keep();
    for (size_t i = 0; i < files.mark.size; i++)
        for (unsigned bit = 1; bit < 256; bit *= 2) {
            file_set(room.path, "end", i, (unsigned char)(files.mark.bytes[i] ^ bit));
            assert_mark_refused();
            file_set(room.path, "end", i, files.mark.bytes[i]);
        }
    for (size_t size = 0; size < files.mark.size; size++) {
        file_put(room.path, "end", files.mark.bytes, size);
        assert_mark_refused();
    }
    assert_tells_after_restoring();
}

/* One of an older copy is kept by the log that goes on from there, also when that has been shortened since. */
static void test_an_older_mark(void **state)
{
    static struct files old;

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_stop(&room);
    files_keep(room.path, &old);
    room_must_open(&room);
    for (uint64_t i = 2; i < 20; i++) /* log-2 and log-3 */
        room_log(&room, &expected, i, 1, SIZES(5000));
    room_stop(&room);
    files_keep(room.path, &files);
    file_put(room.path, "end", old.mark.bytes, old.mark.size);
    room_must_open(&room);
    assert_same_log(&room.log, &expected);
    room_close(&room);
    files_restore(room.path, &files);
    file_remove(room.path, "log-1");
    file_put(room.path, "end", old.mark.bytes, old.mark.size);
    room_must_open(&room);
    assert_int_equal(room.log.told[0].index, 2);
    assert_int_equal(room.log.count, expected.count - 1);
    files_free(&old);
}

/* After a reset there is nothing that could be missed. */
static void test_the_mark_after_a_reset(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_reopen(&room);
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    room_close(&room);
    assert_tells(0);
    room_must_open(&room);
    expected.count = 0;
    room_log(&room, &expected, 50, 1, SIZES(10));
    room_stop(&room);
    assert_tells(1);
}

/* ---- headers of segments ---------------------------------------------------------------------- */

static void test_the_header_before_two_groups(void **state)
{
    (void)state;
    append_five();
    for (size_t i = 0; i < HEADER_BYTES; i++) {
        file_flip(room.path, "log-1", i);
        assert_refused();
        file_flip(room.path, "log-1", i);
        file_flip(room.path, "log-2", i);
        assert_refused();
        file_flip(room.path, "log-2", i);
    }
    file_flip(room.path, "log-2", HEADER_BYTES); /* nothing is there */
    assert_tells(expected.count);
}

/* It was written with the group, and is not torn: its sector holds something. */
static void test_the_header_before_one_group(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, second_group);
    room_log(&room, &expected, 5, 1, first_group);
    room_reopen(&room);
    room_log(&room, &expected, 6, 1, second_group);
    room_reopen(&room);
    keep();
    for (size_t i = 0; i < HEADER_BYTES; i++) {
        file_flip(room.path, "log-2", i);
        assert_refused();
        file_flip(room.path, "log-2", i);
    }
    room_must_open(&room); /* not the last any more */
    room_log(&room, &expected, 10, 1, first_group);
    keep();
    for (size_t i = 0; i < HEADER_BYTES; i++) {
        file_flip(room.path, "log-2", i);
        assert_refused();
        file_flip(room.path, "log-2", i);
    }
}

/* The salt and the number are there before anything else is: no write that was cut short can harm them. */
static void test_the_salt(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, second_group);
    room_reopen(&room);
    keep();
    for (size_t i = 2048; i < 2048 + 28; i++) {
        file_flip(room.path, "log-1", i);
        assert_refused();
        file_flip(room.path, "log-1", i);
    }
    file_flip(room.path, "log-1", 2048 + 28); /* nothing is there */
    assert_tells(expected.count);
}

/* A disk may write the right bytes to the wrong place. */
static void test_the_first_block_of_another_segment(void **state)
{
    const struct file *file;

    (void)state;
    append_five();
    file = files_find(&files, "log-1");
    for (size_t i = 0; i < BLOCK_BYTES; i++)
        file_set(room.path, "log-2", i, file->bytes[i]);
    assert_refused();
}

/* Its checksum is right, it is of something else. */
static void test_the_header_of_something_else(void **state)
{
    unsigned char header[HEADER_BYTES];

    (void)state;
    append_five();
    for (int other = 0; other < 3; other++) {
        static unsigned char bytes[8 * BLOCK_BYTES];
        struct file *file = files_find(&files, "log-2");

        memcpy(bytes, file->bytes, file->size);
        memcpy(header, bytes, sizeof header);
        if (other == 0)
            header[7] = '9'; /* magic */
        else if (other == 1)
            put_number(header + 8, 6, 8); /* index of the first record */
        else
            put_number(header + 24, 5, 8); /* number of the first group: one too high */
        put_number(header + 32, crc32c(0, header, 32), 4);
        memcpy(bytes, header, sizeof header);
        file_put(room.path, "log-2", bytes, file->size);
        assert_refused();
        file_put(room.path, "log-2", bytes, 2 * BLOCK_BYTES); /* only one group */
        assert_refused();
        files_restore(room.path, &files);
    }
}

/* ---- segments --------------------------------------------------------------------------------- */

static void append_segments(int count)
{
    for (int i = 0; i < count; i++) {
        room_log(&room, &expected, 2 * (uint64_t)i + 1, 1, SIZES(10));
        room_log(&room, &expected, 2 * (uint64_t)i + 2, 1, SIZES(10));
        room_reopen(&room);
    }
    keep();
}

static void test_a_missing_segment(void **state)
{
    (void)state;
    append_segments(4);
    for (int i = 2; i <= 3; i++) {
        char name[16];

        snprintf(name, sizeof name, "log-%d", i);
        file_remove(room.path, name);
        assert_refused();
        snprintf(name, sizeof name, "log-%d", i + 1);
        assert_says(&room.err, name);
        files_restore(room.path, &files);
    }
    file_remove(room.path, "log-4"); /* the mark knows of it */
    assert_refused();
    assert_says(&room.err, "log-4");
    file_remove(room.path, "end"); /* nor does it help to take away the mark */
    assert_int_equal(room_open(&room), HF_EIO);
    assert_says(&room.err, "/end, which says how far the log goes, is missing beside a log");
}

/* With a last group that is damaged, and without: no crash leaves a log without its mark. */
static void test_the_mark_is_missing(void **state)
{
    (void)state;
    append_segments(2);
    file_remove(room.path, "end");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(room_open(&room), HF_EIO);
        assert_says(&room.err, "/end, which says how far the log goes, is missing beside a log");
        file_flip(room.path, "log-2", 2 * BLOCK_BYTES);
    }
}

/* Where the log begins the caller knows. */
static void test_the_first_segment_is_missing(void **state)
{
    (void)state;
    append_segments(3);
    file_remove(room.path, "log-1");
    memmove(expected.told, expected.told + 2, 4 * sizeof *expected.told);
    assert_tells(4);
}

static void test_a_damaged_one_that_is_not_the_last(void **state)
{
    (void)state;
    append_segments(3);
    for (size_t i = 0; i < RECORD_HEAD + 10; i++) {
        file_flip(room.path, "log-2", 2 * BLOCK_BYTES + i); /* its last group */
        assert_refused();
        file_flip(room.path, "log-2", 2 * BLOCK_BYTES + i);
    }
}

/* What was damaged had replaced records: those must not come back. */
static void test_damage_to_what_replaced(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10, 10, 10));
    room_log(&room, &expected, 2, 2, SIZES(20));
    room_reopen(&room);
    room_log(&room, &expected, 3, 2, SIZES(30));
    keep();
    file_flip(room.path, "log-1", 2 * BLOCK_BYTES + 3);
    assert_refused();
}

static void test_a_missing_segment_that_replaced(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10, 10, 10));
    room_reopen(&room);
    room_log(&room, &expected, 2, 2, SIZES(20));
    room_reopen(&room);
    room_log(&room, &expected, 3, 2, SIZES(30));
    keep();
    file_remove(room.path, "log-2");
    assert_refused();
}

/* What was whole of a torn group has been told, and others built on it. */
static void tear_last_and_go_on(uint64_t first, uint64_t term, size_t whole)
{
    const size_t full = BLOCK_BYTES - RECORD_HEAD, two[] = {full, full, SIZE_MAX};

    room_append(&room, first, term, SIZES(full, full, full)); /* blocks 2, 3 and 4 */
    room_close(&room);
    for (size_t i = 0; i < 512; i++) /* a sector of it was not written */
        file_set(room.path, "log-1", (2 + whole) * BLOCK_BYTES + 512 + i, 0);
    room_must_open(&room);
    log_add(&expected, first, term, two + 2 - whole);
    assert_same_log(&room.log, &expected);
    room_log(&room, &expected, first + whole, term, SIZES(20));
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
    keep();
}

static void test_damage_to_what_was_left_of_a_torn_group(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    tear_last_and_go_on(2, 1, 2);
    file_flip(room.path, "log-1", 3 * BLOCK_BYTES + 60);
    assert_refused();
}

static void test_damage_to_a_torn_group_that_replaced(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10, 10, 10));
    tear_last_and_go_on(2, 2, 1);
    file_flip(room.path, "log-1", 2 * BLOCK_BYTES + 60);
    assert_refused();
}

static void test_truncated_files(void **state)
{
    size_t whole = 2 * BLOCK_BYTES + RECORD_HEAD + 10; /* up to the end of its last record */

    (void)state;
    append_segments(3);
    for (size_t size = 0; size <= 3 * BLOCK_BYTES; size += size % BLOCK_BYTES > 60 ? 31 : 1) {
        file_put(room.path, "log-2", files.file[1].bytes, size);
        if (size < whole)
            assert_refused();
        else
            assert_tells(6);
        file_put(room.path, "log-2", files.file[1].bytes, files.file[1].size);
        file_put(room.path, "log-3", files.file[2].bytes, size);
        if (size < whole)
            assert_refused();
        else
            assert_tells(6);
        files_restore(room.path, &files);
    }
}

/* Not a byte is missing of it; but the file was made larger, and no crash makes it shorter. */
static void test_truncated_after_an_empty_record(void **state)
{
    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(0));
    keep();
    for (size_t size = BLOCK_BYTES + RECORD_HEAD - 1; size < files.file[0].size; size += 100) {
        file_put(room.path, "log-1", files.file[0].bytes, size);
        assert_refused();
    }
}

static void test_one_that_cannot_be_read(void **state)
{
    char path[2 * PATH_MAX];

    (void)state;
    append_segments(2);
    snprintf(path, sizeof path, "%s/log-3", room.path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(room_open(&room), HF_EIO);
    assert_says(&room.err, path);
    assert_int_equal(rmdir(path), 0);
    assert_files(room.path, &files);
}

/* ---- records in the wrong place --------------------------------------------------------------- */

/* A group that the disk wrote to another's place is whole, and is not the one that must be there. */
static void test_a_misplaced_group(void **state)
{
    static unsigned char block[BLOCK_BYTES];
    unsigned char *bytes;

    (void)state;
    for (uint64_t term = 1; term <= 4; term++) /* each replaces */
        room_log(&room, &expected, 1, term, SIZES(10));
    keep();
    bytes = files.file[0].bytes;
    for (size_t from = 1; from <= 4; from++)
        for (size_t to = 1; to <= 3; to++) {
            if (from == to)
                continue;
            memcpy(block, bytes + to * BLOCK_BYTES, BLOCK_BYTES);
            memcpy(bytes + to * BLOCK_BYTES, bytes + from * BLOCK_BYTES, BLOCK_BYTES);
            file_put(room.path, "log-1", bytes, files.file[0].size);
            memcpy(bytes + to * BLOCK_BYTES, block, BLOCK_BYTES);
            assert_refused();
        }
}

/* The same within a group: the second record of the third one is at the place of the second's. */
static void test_a_record_of_another_group(void **state)
{
    const size_t full = BLOCK_BYTES - RECORD_HEAD;

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_log(&room, &expected, 2, 1, SIZES(full, full)); /* blocks 2 and 3 */
    room_log(&room, &expected, 2, 2, SIZES(full, full));
    keep();
    memcpy(files.file[0].bytes + 3 * BLOCK_BYTES, files.file[0].bytes + 5 * BLOCK_BYTES,
           BLOCK_BYTES);
    file_put(room.path, "log-1", files.file[0].bytes, files.file[0].size);
    assert_refused();
}

/* In the last group, too: no write that is cut short does that. */
static void test_a_misplaced_record(void **state)
{
    const size_t full = BLOCK_BYTES - RECORD_HEAD;
    static unsigned char bytes[8 * BLOCK_BYTES];

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_log(&room, &expected, 2, 1, SIZES(full, full, full, full));
    keep();
    for (size_t from = 2; from <= 5; from++)
        for (size_t to = 2; to <= 5; to++) {
            memcpy(bytes, files.file[0].bytes, files.file[0].size);
            memcpy(bytes + to * BLOCK_BYTES, files.file[0].bytes + from * BLOCK_BYTES, BLOCK_BYTES);
            file_put(room.path, "log-1", bytes, files.file[0].size);
            if (from != to)
                assert_refused();
            else
                assert_tells(5);
            files_restore(room.path, &files);
        }
}

static void test_index_zero_is_none(void **state)
{
    struct told none = {0, 1, 1, 10};

    (void)state;
    room_log(&room, &expected, 1, 1, SIZES(10));
    room_make_spare(&room);
    assert_int_equal(room_try_append(&room, &none, 1), HF_OK);
    room_close(&room);
    assert_refused();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_any_byte_of_an_earlier_group),
        TEST(test_any_byte_of_the_last_group),
        TEST(test_any_bit_of_the_last_record_after_a_stop),
        TEST(test_any_bit_of_the_last_record_after_a_crash),
        TEST(test_any_bit_of_the_first_record_after_a_crash),
        TEST(test_a_bit_behind_the_last_record),
        TEST(test_what_was_read_once_is_marked),
        TEST(test_the_last_segment_is_gone_after_a_crash),
        TEST(test_any_bit_of_the_mark),
        TEST(test_an_older_mark),
        TEST(test_the_mark_after_a_reset),
        TEST(test_the_header_before_two_groups),
        TEST(test_the_header_before_one_group),
        TEST(test_the_salt),
        TEST(test_the_first_block_of_another_segment),
        TEST(test_the_header_of_something_else),
        TEST(test_a_missing_segment),
        TEST(test_the_mark_is_missing),
        TEST(test_the_first_segment_is_missing),
        TEST(test_a_damaged_one_that_is_not_the_last),
        TEST(test_damage_to_what_replaced),
        TEST(test_a_missing_segment_that_replaced),
        TEST(test_damage_to_what_was_left_of_a_torn_group),
        TEST(test_damage_to_a_torn_group_that_replaced),
        TEST(test_truncated_files),
        TEST(test_truncated_after_an_empty_record),
        TEST(test_one_that_cannot_be_read),
        TEST(test_a_misplaced_group),
        TEST(test_a_record_of_another_group),
        TEST(test_a_misplaced_record),
        TEST(test_index_zero_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
