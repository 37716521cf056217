/* A last write that was cut short [J1][J2][J3]: wherever that happened, what was acknowledged before is
 * told, then as many of the last group's records as are whole, and nothing else; the rest is told of, once;
 * and the journal goes on from there. After a clean stop the same states are damage [J6], and so is after any
 * other what no disk leaves that writes its sectors whole [J5]. */
#include "base/crc32c.h"
#include "disk.h"
#include "tools.h"

#include <unistd.h>

#define HEADER_BYTES 36 /* of a segment: what counts in it */
#define SECTOR_BYTES ((size_t)512)

/* A journal before and after its last append. */
struct scene {
    const size_t *sizes; /* of the last group */
    struct log acknowledged;
    struct files before, after;
    struct files stopped;    /* the mark of a clean stop */
    struct file *old, *new;  /* the file that was written */
    size_t from, to;         /* and where */
    size_t records_at;       /* there, without the segment's header */
    unsigned char *composed; /* what a crash left of it: as large as the new one */
};

static struct room room;
static struct scene scene;

static int set_up(void **state)
{
    (void)state;
    room_init(&room);
    disk.direct_is_unknown = true;
    room.segment_bytes = 8 * BLOCK_BYTES;
    memset(&scene, 0, sizeof scene);
    room_must_open(&room);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&room);
    files_free(&scene.before);
    files_free(&scene.after);
    files_free(&scene.stopped);
    free(scene.composed);
    return 0;
}

/* ---- the scene -------------------------------------------------------------------------------- */

static void acknowledge_some(void)
{
    room_log(&room, &scene.acknowledged, 1, 1, SIZES(100));
    room_log(&room, &scene.acknowledged, 2, 1, SIZES(10, 20, 0, 30));
    room_log(&room, &scene.acknowledged, 6, 2, SIZES(5000));
}

static uint64_t next_index(const struct log *log)
{
    return log->count > 0 ? log->told[log->count - 1].index + 1 : 1;
}

static void append_last(uint64_t first, const size_t *sizes)
{
    const struct disk_call *write = NULL;

    room_make_spare(&room);
    files_keep(room.path, &scene.before);
    disk_reset();
    room_append(&room, first, 3, sizes);
    files_keep(room.path, &scene.after);
    room_stop(&room);
    files_keep(room.path, &scene.stopped);
    disk.count--; /* the last thing that is of importance here */
    while (disk.calls[disk.count - 1].kind != DISK_WRITE ||
           strncmp(disk.calls[disk.count - 1].name, "log-", 4) != 0)
        disk.count--;
    assert_int_equal(disk_count(DISK_WRITE, NULL), 1); /* it is one write */
    write = &disk.calls[disk.count - 1];
    scene.sizes = sizes;
    scene.from = (size_t)write->offset;
    scene.to = scene.from + write->size;
    scene.records_at = scene.from + (scene.from == 0 ? BLOCK_BYTES : 0);
    scene.old = files_find(&scene.before, write->name);
    scene.new = files_find(&scene.after, write->name);
    assert_true(scene.old && scene.new);
    if (scene.new->size > scene.old->size) { /* the file grew: it had nothing there */
        scene.old->bytes = realloc(scene.old->bytes, scene.new->size);
        assert_non_null(scene.old->bytes);
        memset(scene.old->bytes + scene.old->size, 0, scene.new->size - scene.old->size);
    }
    scene.composed = malloc(scene.new->size);
    assert_non_null(scene.composed);
    memcpy(scene.composed, scene.new->bytes, scene.new->size);
}

/* ---- what must be told ------------------------------------------------------------------------ */

static bool intact(size_t from, size_t size)
{
    return memcmp(scene.composed + from, scene.new->bytes + from, size) == 0;
}

static size_t whole_records(void)
{
    size_t count = 0;

    if (scene.from == 0 && !intact(0, HEADER_BYTES))
        return 0;
    while (scene.sizes[count] != SIZE_MAX &&
           intact(scene.records_at + record_begin(scene.sizes, count),
                  RECORD_HEAD + scene.sizes[count]))
        count++;
    return count;
}

/* The last group begins with its index one above what was acknowledged, unless a test says otherwise. */
static const struct log *expected_log(uint64_t first)
{
    static struct log log, last;
    size_t count = whole_records();

    last.count = 0;
    log_add(&last, first, 3, scene.sizes);
    log = scene.acknowledged;
    memcpy(log.told + log.count, last.told, count * sizeof *last.told);
    log.count += count;
    return &log;
}

/* What is told of: nothing, if nothing of the write is left that could be dropped. */
static void assert_tells_of_torn(void)
{
    struct journal_torn torn = journal_torn(room.journal);
    size_t whole = whole_records(), at, end = scene.new->size;
    char name[32];

    at = scene.records_at + record_begin(scene.sizes, whole);
    while (end > at && !scene.composed[end - 1])
        end--;
    if (scene.sizes[whole] == SIZE_MAX || (whole == 0 && end == at)) {
        assert_int_equal(torn.segment, 0);
        return;
    }
    snprintf(name, sizeof name, "log-%ju", (uintmax_t)torn.segment);
    assert_string_equal(name, scene.new->name);
    assert_int_equal(torn.at, at);
    assert_int_equal(torn.bytes,
                     end > at ? (end + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES - at : 0);
}

static void assert_reads(uint64_t first)
{
    int result = room_read(&room);

    if (result != HF_OK)
        fail_msg("refused: %s", room.err.text);
    assert_same_log(&room.log, expected_log(first));
    assert_tells_of_torn();
    room_close(&room);
}

/* As the crash left it. */
static void put_scene(void)
{
    files_restore(room.path, &scene.before);
    file_put(room.path, scene.new->name, scene.composed, scene.new->size);
}

static void assert_told_once(const struct log *log)
{
    room_must_open(&room);
    assert_tells_of_torn();
    room_reopen(&room);
    assert_same_log(&room.log, log);
    assert_int_equal(journal_torn(room.journal).segment, 0);
    room_close(&room);
}

/* [J6] */
static void assert_missed_after_a_stop(void)
{
    bool whole = scene.sizes[whole_records()] == SIZE_MAX;

    file_put(room.path, "end", scene.stopped.mark.bytes, scene.stopped.mark.size);
    assert_int_equal(room_read(&room), whole ? HF_OK : HF_EIO);
    if (whole)
        room_close(&room);
    else
        assert_says(&room.err, room.path);
    file_put(room.path, "end", scene.before.mark.bytes, scene.before.mark.size);
}

/* After the restart more is appended, and there is another restart; and one at which what had been cut
 * off is there again. */
static void assert_goes_on(uint64_t first)
{
    static struct log log;

    put_scene();
    assert_missed_after_a_stop();
    log = *expected_log(first);
    assert_told_once(&log);
    put_scene();
    room_must_open(&room);
    assert_same_log(&room.log, &log);
    if (scene.from == 0 && whole_records() == 0) /* nothing of the segment is left */
        assert_int_equal(directory_has(&room.directory, scene.new->name), false);
    room_log(&room, &log, next_index(&log), 8, SIZES(10));
    room_log(&room, &log, next_index(&log), 8, SIZES(3000, 0, 3000));
    room_log(&room, &log, next_index(&log) - 1, 9, SIZES(77));
    room_reopen(&room);
    assert_same_log(&room.log, &log);
    assert_int_equal(journal_torn(room.journal).segment, 0);
    room_close(&room);
    file_put(room.path, scene.new->name, scene.composed, scene.new->size);
    room_must_open(&room);
    assert_same_log(&room.log, &log);
    room_close(&room);
}

/* ---- every way in which it is torn ------------------------------------------------------------ */

static void compose(size_t at, size_t size, bool written)
{
    const struct file *from = written ? scene.new : scene.old;

    memcpy(scene.composed + at, from->bytes + at, size);
}

/* From the end to the beginning, sector by sector: less and less was written. Then each one alone is missing. */
static void cut_at_sectors(uint64_t first)
{
    for (int alone = 0; alone <= 1; alone++) {
        compose(scene.from, scene.to - scene.from, true);
        for (size_t at = scene.to; at > scene.from; at -= SECTOR_BYTES) {
            compose(at - SECTOR_BYTES, SECTOR_BYTES, false);
            put_scene();
            assert_missed_after_a_stop();
            assert_reads(first);
            compose(at - SECTOR_BYTES, SECTOR_BYTES, alone);
        }
    }
}

/* [J5] All sectors were written, one of them in part: that was no disk. */
static void cut_within_sectors(void)
{
    uint64_t seed = scene.to;

    for (size_t at = scene.from; at < scene.to; at += SECTOR_BYTES) {
        size_t end = at + SECTOR_BYTES, cut;

        while (end > at && !scene.new->bytes[end - 1])
            end--;
        if (end - at < 2)
            continue; /* the rest of a block, and too little of a record */
        compose(scene.from, scene.to - scene.from, true);
        cut = at + 1 + draw(&seed, end - at - 1);
        if (draw(&seed, 2))
            memset(scene.composed + cut, 0, end - cut);
        else
            memset(scene.composed + at, 0, cut - at);
        if (intact(at, SECTOR_BYTES))
            continue; /* zeros, by chance */
        put_scene();
        assert_int_equal(room_read(&room), HF_EIO);
        assert_says(&room.err, scene.new->name);
    }
}

/* The first so many blocks were written, or were not. */
static void cut_at_blocks(uint64_t first, bool written)
{
    for (size_t cut = scene.from; cut <= scene.to; cut += BLOCK_BYTES) {
        compose(scene.from, cut - scene.from, written);
        compose(cut, scene.to - cut, !written);
        assert_goes_on(first);
    }
}

/* Any of its blocks, or of the disk's sectors, were written. */
static void lose_some(uint64_t first, size_t unit, int rounds)
{
    uint64_t seed = unit + scene.to;

    for (int round = 0; round < rounds; round++) {
        for (size_t at = scene.from; at < scene.to; at += unit)
            compose(at, unit, draw(&seed, 4) > 0);
        assert_goes_on(first);
    }
}

/* The file had grown by the write, and its new size did not reach the disk, or did so only in part. */
static void cut_the_file(uint64_t first)
{
    size_t least = scene.from > scene.old->size ? scene.from : scene.old->size;

    for (size_t size = scene.to; size > least; size -= size > least + 100 ? 100 : 1) {
        size_t kept = scene.new->size;

        compose(scene.from, scene.to - scene.from, true);
        memset(scene.composed + size, 0, scene.new->size - size);
        files_restore(room.path, &scene.before);
        file_put(room.path, scene.new->name, scene.composed, size);
        scene.new->size = size;
        assert_reads(first);
        scene.new->size = kept;
    }
}

static void tear(uint64_t first, const size_t *sizes)
{
    append_last(first, sizes);
    cut_at_sectors(first);
    cut_within_sectors();
    cut_at_blocks(first, true);
    cut_at_blocks(first, false);
    lose_some(first, BLOCK_BYTES, 30);
    lose_some(first, SECTOR_BYTES, 60);
    if (scene.old->size < scene.to)
        cut_the_file(first);
}

static void test_one_small_record(void **state)
{
    (void)state;
    acknowledge_some();
    tear(7, SIZES(90));
}

static void test_one_large_record(void **state)
{
    (void)state;
    acknowledge_some();
    tear(7, SIZES(9000));
}

static void test_many_records(void **state)
{
    (void)state;
    acknowledge_some();
    tear(7, SIZES(10, 2000, 0, 4200, 1, 40));
}

/* Each begins at a block's border, where a group might begin. */
static void test_records_of_one_block_each(void **state)
{
    const size_t full = BLOCK_BYTES - RECORD_HEAD;

    (void)state;
    room_log(&room, &scene.acknowledged, 1, 1, SIZES(100));
    tear(2, SIZES(full, full, full, full));
}

static void test_records_that_replace(void **state)
{
    (void)state;
    acknowledge_some();
    tear(3, SIZES(10, 4200, 30));
}

/* The header of the segment is a part of that write. */
static void test_the_first_group_of_a_segment(void **state)
{
    (void)state;
    acknowledge_some();
    room_reopen(&room);
    tear(7, SIZES(10, 2000, 0, 4200, 1, 40));
}

static void test_the_first_write_of_all(void **state)
{
    (void)state;
    tear(1, SIZES(10, 4200, 30));
}

static void test_a_group_larger_than_a_segment(void **state)
{
    (void)state;
    room.segment_bytes = 2 * BLOCK_BYTES;
    room_reopen(&room);
    acknowledge_some();
    tear(7, SIZES(10, 6000, 0, 6000));
}

/* A fresh segment that is torn: what the reset removed may be there again, or may not; its header counts
 * if it is whole. */
static void test_the_first_write_after_a_reset(void **state)
{
    (void)state;
    room.segment_bytes = 2 * BLOCK_BYTES;
    room_reopen(&room);
    room_append(&room, 1, 1, SIZES(10));
    assert_int_equal(journal_reset(room.journal, &room.err), HF_OK);
    tear(500, SIZES(10, 2000, 30));
}

/* ---- what looks like records ------------------------------------------------------------------ */

static void put_number(unsigned char *at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(number >> 8 * i);
}

/* A client's bytes are anything, a later group's record at a block's border too: that a write which holds
 * it was torn is no reason to refuse the journal. */
static void tear_what_looks_like_a_record(const char *name, size_t lost)
{
    static unsigned char bytes[2 * BLOCK_BYTES];
    unsigned char *inner = bytes + BLOCK_BYTES - RECORD_HEAD;
    struct journal_record record = {.index = 7, .term = 1, .bytes = bytes, .size = sizeof bytes};
    static struct files before;

    put_number(inner + 8, 8, 8);
    put_number(inner + 24, 1000, 8);
    put_number(inner, crc32c(0, inner + 4, RECORD_HEAD - 4), 4);
    files_keep(room.path, &before);
    disk_reset();
    assert_int_equal(journal_append(room.journal, &record, 1, &room.err), HF_OK);
    assert_string_equal(disk.calls[0].name, name);
    room_close(&room);
    file_put(room.path, "end", before.mark.bytes, before.mark.size); /* it did not come to that */
    files_free(&before);
    for (size_t i = 0; i < SECTOR_BYTES; i++) /* it was not written */
        file_set(room.path, name, (size_t)disk.calls[0].offset + lost + i, 0);
    room_must_open(&room);
    assert_same_log(&room.log, &scene.acknowledged);
}

static void test_what_a_record_holds_is_no_record(void **state)
{
    (void)state;
    acknowledge_some();
    tear_what_looks_like_a_record("log-1", 0);
}

static void test_what_it_holds_behind_a_torn_header(void **state)
{
    (void)state;
    acknowledge_some();
    room_reopen(&room);
    room_make_spare(&room);
    tear_what_looks_like_a_record("log-2", 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_small_record),
        TEST(test_one_large_record),
        TEST(test_many_records),
        TEST(test_records_of_one_block_each),
        TEST(test_records_that_replace),
        TEST(test_the_first_group_of_a_segment),
        TEST(test_the_first_write_of_all),
        TEST(test_a_group_larger_than_a_segment),
        TEST(test_the_first_write_after_a_reset),
        TEST(test_what_a_record_holds_is_no_record),
        TEST(test_what_it_holds_behind_a_torn_header),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
