/* The small files: term and vote, snapshots; and what they stand on: checksums, names, the directory. */
#include "base/crc32c.h"
#include "disk.h"
#include "journal/snapshot_file.h"
#include "journal/term.h"
#include "tools.h"

#include <sys/stat.h>

#define TERM_BYTES 36 /* of a copy: what counts in it */

static struct room room;
static struct files files;

static int set_up(void **state)
{
    (void)state;
    room_init(&room);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&room);
    files_free(&files);
    return 0;
}

static void keep(void)
{
    files_free(&files);
    files_keep(room.path, &files);
}

static void put_number(unsigned char *at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(number >> 8 * i);
}

/* ---- checksums and names ---------------------------------------------------------------------- */

typedef uint32_t sum_fn(uint32_t sum, const void *bytes, size_t size);

static void check_sums(sum_fn *sum_of)
{
    unsigned char bytes[67];
    uint64_t seed = 1;
    uint32_t whole;

    assert_int_equal(sum_of(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sum_of(0, NULL, 0), 0);
    memset(bytes, 0, 32); /* these three are from RFC 3720 */
    assert_int_equal(sum_of(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(sum_of(0, bytes, 32), 0x62a8ab43);
    for (unsigned char i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(sum_of(0, bytes, 32), 0x46dd794e);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)draw(&seed, 256);
    whole = crc32c(0, bytes, sizeof bytes);
    for (size_t i = 0; i <= sizeof bytes; i++)
        for (size_t j = i; j <= sizeof bytes; j++) {
            uint32_t sum = sum_of(sum_of(0, bytes, i), bytes + i, j - i);

            assert_int_equal(sum_of(sum, bytes + j, sizeof bytes - j), whole);
        }
}

static void test_crc32c(void **state)
{
    (void)state;
    check_sums(crc32c_with_table);
    check_sums(crc32c);
}

static void test_numbers_in_names(void **state)
{
    static const char *const none[] = {"log-",
                                       "log",
                                       "log-x",
                                       "log-1x",
                                       "log- 1",
                                       "log-+1",
                                       "log--1",
                                       "log-1 ",
                                       "Log-1",
                                       "log1",
                                       "",
                                       "xlog-1",
                                       "log-18446744073709551616",
                                       "log-0x10",
                                       "log-017",
                                       "log-00"};
    uint64_t number = 0;

    (void)state;
    assert_true(directory_number_in("log-17", "log-", &number));
    assert_int_equal(number, 17);
    assert_true(directory_number_in("log-0", "log-", &number));
    assert_int_equal(number, 0);
    assert_true(directory_number_in("log-18446744073709551615", "log-", &number));
    assert_true(number == UINT64_MAX);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (directory_number_in(none[i], "log-", &number))
            fail_msg("'%s' has a number", none[i]);
}

static int count_three(void *context, const char *name, struct error_text *err)
{
    int *count = context;

    if (name[0] != 'f')
        return HF_OK;
    return ++*count == 3 ? error_set(err, HF_EREFUSED, "enough") : HF_OK;
}

static void test_each_file(void **state)
{
    int count = 0;

    (void)state;
    file_put(room.path, "f1", "", 0);
    file_put(room.path, "f2", "", 0);
    assert_int_equal(directory_each(&room.directory, count_three, &count, &room.err), HF_OK);
    assert_int_equal(count, 2);
    file_put(room.path, "f3", "", 0);
    file_put(room.path, "f4", "", 0);
    count = 0;
    assert_int_equal(directory_each(&room.directory, count_three, &count, &room.err), HF_EREFUSED);
    assert_int_equal(count, 3);
    assert_says(&room.err, "enough");
}

/* ---- the term --------------------------------------------------------------------------------- */

static void assert_term(uint64_t number, uint64_t vote)
{
    struct term term;

    assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
    assert_true(term.known);
    assert_int_equal(term.number, number);
    assert_int_equal(term.vote, vote);
}

static void assert_no_term(void)
{
    struct term term = {.known = true, .number = 7};

    assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
    assert_false(term.known);
    assert_int_equal(term.number, 0);
    assert_int_equal(term.version, 0);
}

static void store(struct term *term, uint64_t number, uint64_t vote)
{
    assert_int_equal(term_store(&room.directory, term, number, vote, &room.err), HF_OK);
    assert_true(term->known);
    assert_int_equal(term->number, number);
    assert_int_equal(term->vote, vote);
}

static void test_terms(void **state)
{
    struct term term;

    (void)state;
    assert_no_term();
    assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
    for (uint64_t i = 1; i <= 10; i++) {
        store(&term, i, i * 3);
        assert_term(i, i * 3);
        if (i == 5) /* another process */
            assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
    }
    store(&term, UINT64_MAX, UINT64_MAX);
    assert_term(UINT64_MAX, UINT64_MAX);
    store(&term, 3, 0); /* what comes later counts, not what is larger */
    assert_term(3, 0);
}

/* Both hold the same: one of them is enough. */
static void test_one_copy_is_damaged(void **state)
{
    struct term term = {0};

    (void)state;
    store(&term, 8, 9);
    keep();
    assert_int_equal(files.file[0].size, 2 * BLOCK_BYTES);
    for (size_t copy = 0; copy < 2; copy++)
        for (size_t i = 0; i < TERM_BYTES; i++) {
            file_flip(room.path, "term", copy * BLOCK_BYTES + i);
            assert_term(8, 9);
            file_flip(room.path, "term", (1 - copy) * BLOCK_BYTES + (i * 7) % TERM_BYTES);
            assert_no_term(); /* both */
            files_restore(room.path, &files);
        }
}

/* The write of one copy ends at every byte; the other is of before, or of now. */
static void test_a_torn_term(void **state)
{
    struct term term = {0};
    unsigned char bytes[2 * BLOCK_BYTES];
    const unsigned char *old, *new;
    static struct files before;

    (void)state;
    store(&term, UINT64_C(0x1111111111111111), 1);
    files_keep(room.path, &before);
    store(&term, UINT64_C(0x2222222222222222), 2);
    keep();
    old = before.file[0].bytes;
    new = files.file[0].bytes;
    for (size_t cut = 0; cut <= 2 * BLOCK_BYTES; cut += cut % BLOCK_BYTES > 60 ? 509 : 1) {
        bool first = cut >= TERM_BYTES;

        memcpy(bytes, new, cut);
        memcpy(bytes + cut, old + cut, sizeof bytes - cut);
        file_put(room.path, "term", bytes, sizeof bytes);
        assert_term(UINT64_C(0x1111111111111111) * (first ? 2 : 1), first ? 2 : 1);
        memset(bytes + cut, 0, sizeof bytes - cut); /* the first of all: on nothing */
        file_put(room.path, "term", bytes, sizeof bytes);
        if (first)
            assert_term(UINT64_C(0x2222222222222222), 2);
        else
            assert_no_term();
        file_put(room.path, "term", new, cut);
        if (first) /* the rest of its block does not matter */
            assert_term(UINT64_C(0x2222222222222222), 2);
        else
            assert_no_term();
    }
    files_free(&before);
}

/* The newer one counts, wherever it is, and what is stored next is newer still. */
static void test_the_newer_copy_counts(void **state)
{
    struct term term = {0};
    unsigned char old[BLOCK_BYTES];

    (void)state;
    store(&term, 1, 1);
    keep();
    memcpy(old, files.file[0].bytes, sizeof old);
    store(&term, 2, 2);
    keep();
    for (size_t copy = 0; copy < 2; copy++) {
        unsigned char bytes[2 * BLOCK_BYTES];

        memcpy(bytes, files.file[0].bytes, sizeof bytes);
        memcpy(bytes + copy * BLOCK_BYTES, old, sizeof old);
        file_put(room.path, "term", bytes, sizeof bytes);
        assert_term(2, 2);
        assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
        store(&term, 1, 7);
        assert_term(1, 7);
        file_flip(room.path, "term", (1 - copy) * BLOCK_BYTES + 3);
        assert_term(1, 7);
    }
}

/* The newer may have been acted on since: the other is the one that a write may spoil. */
static void test_the_older_copy_is_written_first(void **state)
{
    struct term term = {0};

    (void)state;
    store(&term, 2, 2);
    for (size_t copy = 0; copy < 2; copy++) {
        file_flip(room.path, "term", copy * BLOCK_BYTES + 3);
        assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
        disk_reset();
        store(&term, 3 + copy, 3);
        assert_int_equal(disk.calls[disk_find(DISK_WRITE, "term", 0)].offset, copy * BLOCK_BYTES);
        assert_int_equal(disk.calls[disk_find(DISK_WRITE, "term", 1)].offset,
                         (1 - copy) * BLOCK_BYTES);
        assert_term(3 + copy, 3);
    }
}

/* A write was cut short after its first copy, or a block is damaged. When that was mended, either block may be lost. */
static void test_a_term_that_is_there_once_is_mended(void **state)
{
    struct term term = {0};
    unsigned char old[BLOCK_BYTES];

    (void)state;
    store(&term, 1, 1);
    keep();
    memcpy(old, files.file[0].bytes, sizeof old);
    store(&term, 2, 2);
    keep();
    for (size_t copy = 0; copy < 2; copy++)
        for (size_t lost = 0; lost < 2; lost++)
            for (size_t damaged = 0; damaged < 2; damaged++) {
                unsigned char bytes[2 * BLOCK_BYTES];

                memcpy(bytes, files.file[0].bytes, sizeof bytes);
                memcpy(bytes + copy * BLOCK_BYTES, old, sizeof old);
                bytes[copy * BLOCK_BYTES + 20] ^= (unsigned char)damaged;
                file_put(room.path, "term", bytes, sizeof bytes);
                assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
                assert_int_equal(term_mend(&room.directory, &term, &room.err), HF_OK);
                assert_term(2, 2);
                file_flip(room.path, "term", lost * BLOCK_BYTES + 20);
                assert_term(2, 2);
            }
}

/* Nothing is written where both hold it, nor where there is none. */
static void test_a_term_that_is_there_twice_stays(void **state)
{
    struct term term = {0};

    (void)state;
    disk_reset();
    assert_int_equal(term_mend(&room.directory, &term, &room.err), HF_OK);
    assert_no_term();
    store(&term, 2, 2);
    disk_reset();
    assert_int_equal(term_mend(&room.directory, &term, &room.err), HF_OK);
    assert_int_equal(term_load(&room.directory, &term, &room.err), HF_OK);
    assert_int_equal(term_mend(&room.directory, &term, &room.err), HF_OK);
    for (size_t i = 0; i < disk.count; i++)
        assert_int_not_equal(disk.calls[i].kind, DISK_WRITE);
}

static void test_a_term_of_something_else(void **state)
{
    struct term term = {0};
    unsigned char *bytes;

    (void)state;
    store(&term, 1, 1);
    keep();
    bytes = files.file[0].bytes;
    for (size_t copy = 0; copy < 2; copy++) {
        bytes[copy * BLOCK_BYTES + 7] = '2'; /* magic */
        put_number(bytes + copy * BLOCK_BYTES + 32, crc32c(0, bytes + copy * BLOCK_BYTES, 32), 4);
    }
    file_put(room.path, "term", bytes, files.file[0].size);
    assert_no_term();
    file_put(room.path, "term", "", 0);
    assert_no_term();
}

/* ---- snapshots -------------------------------------------------------------------------------- */

static struct snapshot_file snapshot_of(uint64_t index, size_t configuration, size_t data)
{
    static unsigned char bytes[1 << 20];
    uint64_t seed = index;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)draw(&seed, 256);
    return (struct snapshot_file){.index = index,
                                  .term = index * 3,
                                  .configuration_index = index - 1,
                                  .configuration = {bytes + 1, configuration},
                                  .data = {bytes + 7, data}};
}

static void write_snapshot(const struct snapshot_file *snapshot)
{
    assert_int_equal(snapshot_file_write(&room.directory, snapshot, &room.err), HF_OK);
}

static void assert_snapshot(const struct snapshot_file *snapshot)
{
    struct snapshot_file loaded;

    assert_int_equal(snapshot_file_load(&room.directory, &loaded, &room.err), HF_OK);
    assert_int_equal(loaded.index, snapshot->index);
    assert_int_equal(loaded.term, snapshot->term);
    assert_int_equal(loaded.configuration_index, snapshot->configuration_index);
    assert_int_equal(loaded.configuration.iov_len, snapshot->configuration.iov_len);
    assert_int_equal(loaded.data.iov_len, snapshot->data.iov_len);
    assert_memory_equal(loaded.configuration.iov_base, snapshot->configuration.iov_base,
                        snapshot->configuration.iov_len);
    assert_memory_equal(loaded.data.iov_base, snapshot->data.iov_base, snapshot->data.iov_len);
    snapshot_file_free(&loaded);
    assert_null(loaded.data.iov_base);
}

static void assert_damaged(void)
{
    struct snapshot_file loaded = {.index = 1};

    room.err.text[0] = '\0';
    assert_int_equal(snapshot_file_load(&room.directory, &loaded, &room.err), HF_EIO);
    assert_says(&room.err, "snapshot-5 is damaged: restore");
    assert_int_equal(loaded.index, 0);
    assert_null(loaded.configuration.iov_base);
    assert_null(loaded.data.iov_base);
}

static void test_snapshots(void **state)
{
    static const size_t sizes[] = {0, 1, 700, 256 << 10, (256 << 10) + 1, 900000};
    struct snapshot_file snapshot, none;

    (void)state;
    assert_int_equal(snapshot_file_load(&room.directory, &none, &room.err), HF_OK);
    assert_int_equal(none.index, 0);
    for (uint64_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snapshot = snapshot_of(9 + i, sizes[i] / 10, sizes[i]); /* 9, 10: not by the alphabet */
        write_snapshot(&snapshot);
        assert_snapshot(&snapshot);
        keep();
        assert_int_equal(files.count, 1); /* the older one is gone */
    }
    snapshot = snapshot_of(14, 5, 5); /* once more, another content */
    write_snapshot(&snapshot);
    assert_snapshot(&snapshot);
}

/* A file is written in blocks and in pieces, and is as long as it was meant to be. */
static void test_snapshots_that_end_at_a_border(void **state)
{
    static const size_t totals[] = {
        4095, 4096, 4097, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 512 << 10};
    const size_t header = 60;

    (void)state;
    for (uint64_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        struct snapshot_file snapshot = snapshot_of(i + 1, 0, totals[i] - header);

        write_snapshot(&snapshot);
        assert_snapshot(&snapshot);
        keep();
        assert_int_equal(files.count, 1);
        assert_int_equal(files.file[0].size, totals[i]);
    }
}

static void test_what_an_interrupted_write_leaves(void **state)
{
    struct snapshot_file snapshot = snapshot_of(5, 10, 10), newer = snapshot_of(9, 10, 300000);

    (void)state;
    for (int step = 2; step <= 9; step++) { /* the machine dies at each */
        write_snapshot(&snapshot);
        disk_die_in(step);
        assert_int_equal(snapshot_file_write(&room.directory, &newer, &room.err), HF_EIO);
        disk_reset();
        keep();
        assert_snapshot(files_find(&files, "snapshot-9") ? &newer : &snapshot);
        assert_true((files_find(&files, "snapshot-9") != NULL) == (step > 6));
        assert_int_equal(
            snapshot_file_clean(&room.directory, step > 6 ? &newer : &snapshot, &room.err), HF_OK);
        keep();
        assert_int_equal(files.count, 1);
        file_remove(room.path, files.file[0].name);
    }
}

static void test_files_of_others(void **state)
{
    static const char *const names[] = {"log-1", "snapshot", "snapshot-", "snapshot-1x", "term"};
    struct snapshot_file snapshot = snapshot_of(5, 10, 10);

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        file_put(room.path, names[i], "mine", 4);
    write_snapshot(&snapshot);
    assert_snapshot(&snapshot);
    keep();
    assert_int_equal(files.count, 1 + sizeof names / sizeof *names);
}

static void test_a_damaged_snapshot(void **state)
{
    struct snapshot_file snapshot = snapshot_of(5, 30, 90);
    size_t size;

    (void)state;
    write_snapshot(&snapshot);
    keep();
    assert_int_equal(files.count, 1);
    size = files.file[0].size;
    for (size_t i = 0; i < size; i++) {
        file_flip(room.path, "snapshot-5", i);
        assert_damaged();
        file_flip(room.path, "snapshot-5", i);
    }
    for (size_t shorter = 0; shorter < size; shorter++) {
        file_put(room.path, "snapshot-5", files.file[0].bytes, shorter);
        assert_damaged();
    }
    files.file[0].bytes[size] = '\0'; /* there is room for one more */
    file_put(room.path, "snapshot-5", files.file[0].bytes, size + 1);
    assert_damaged();
    file_put(room.path, "snapshot-5", files.file[0].bytes, size);
    assert_snapshot(&snapshot);
}

/* The checksum of the header is right; what it says cannot be. */
static void test_a_snapshot_that_lies(void **state)
{
    static const struct {
        size_t at;
        uint64_t number;
    } lies[] = {{0, 1},       {8, 6},    {32, UINT64_MAX - 60},
                {32, 120},    {32, 200}, {40, UINT64_MAX - 89},
                {40, 1 << 20}};
    struct snapshot_file snapshot = snapshot_of(5, 30, 90);

    (void)state;
    write_snapshot(&snapshot);
    keep();
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        unsigned char bytes[180];

        assert_int_equal(files.file[0].size, sizeof bytes);
        memcpy(bytes, files.file[0].bytes, sizeof bytes);
        put_number(bytes + lies[i].at, lies[i].number, 8);
        if (lies[i].at == 32) /* so that together they are what the file has */
            put_number(bytes + 40, sizeof bytes - 60 - lies[i].number, 8);
        put_number(bytes + 56, crc32c(0, bytes, 56), 4);
        file_put(room.path, "snapshot-5", bytes, sizeof bytes);
        assert_damaged();
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_crc32c),
        TEST(test_numbers_in_names),
        TEST(test_each_file),
        TEST(test_terms),
        TEST(test_one_copy_is_damaged),
        TEST(test_a_torn_term),
        TEST(test_the_newer_copy_counts),
        TEST(test_the_older_copy_is_written_first),
        TEST(test_a_term_that_is_there_once_is_mended),
        TEST(test_a_term_that_is_there_twice_stays),
        TEST(test_a_term_of_something_else),
        TEST(test_snapshots),
        TEST(test_snapshots_that_end_at_a_border),
        TEST(test_what_an_interrupted_write_leaves),
        TEST(test_files_of_others),
        TEST(test_a_damaged_snapshot),
        TEST(test_a_snapshot_that_lies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
