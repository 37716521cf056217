/* test_range.c: reading some of a log while it is open. Random lives do it after each of their steps, too. */
#include "journal/inside.h"
#include "life.h"

#include <ftw.h>
#include <pthread.h>

static struct life life;

static int set_up(void **state)
{
    (void)state;
    life_begin(&life, 3);
    life.segment_bytes = 4 * BLOCK; /* one group after the other needs another segment */
    assert_true(life_recover(&life));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    life_end(&life);
    return 0;
}

static void take(enum life_step step, int times)
{
    for (int i = 0; i < times; i++)
        assert_true(life_step(&life, step));
}

/* All of it, and every part of it. */
static void read_everything(void)
{
    const uint64_t first = life.acked.first, next = life.acked.next;

    assert_int_equal(life_read_range(&life, first, next - 1, SIZE_MAX), next - first);
    assert_int_equal(life_read_range(&life, first, UINT64_MAX, SIZE_MAX), next - first);
    for (uint64_t from = first; from < next; from++) {
        for (uint64_t to = from; to < next; to++)
            assert_int_equal(life_read_range(&life, from, to, SIZE_MAX), to - from + 1);
        assert_int_equal(life_read_range(&life, from, next, 0), 1);
        for (size_t bytes = 1; bytes < 20000; bytes += 997)
            life_read_range(&life, from, next, bytes);
    }
    assert_int_equal(life_read_range(&life, next, next, SIZE_MAX), 0); /* not yet */
    assert_int_equal(life_read_range(&life, next + 9, UINT64_MAX, SIZE_MAX), 0);
}

static int never(void *context, const struct journal_record *record, struct error_text *err)
{
    (void)context;
    (void)err;
    fail_msg("entry %ju was given", (uintmax_t)record->index);
    return HF_OK;
}

static void assert_gone(uint64_t from)
{
    struct error_text err;

    assert_int_equal(
        journal_read_range(life.journal, from, UINT64_MAX, SIZE_MAX, never, NULL, &err),
        JOURNAL_GONE);
    assert_non_null(strstr(err.text, "is not in the log in data any more"));
}

static void test_across_segments(void **state)
{
    (void)state;
    take(LIFE_APPEND, 12);
    take(LIFE_LARGE, 1);
    take(LIFE_APPEND, 3);
    assert_true(life.journal->count > 3);
    read_everything();
}

/* [J4] */
static void test_what_was_replaced(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        take(LIFE_APPEND, 2);
        take(LIFE_REPLACE, 1);
        read_everything();
    }
}

static void test_after_a_restart(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        take(LIFE_APPEND, 3);
        take(LIFE_REPLACE, 2);
        take(i % 2 ? LIFE_STOP : LIFE_REOPEN, 1);
        read_everything();
    }
}

static void test_after_a_reset(void **state)
{
    (void)state;
    assert_gone(1); /* there is nothing yet */
    take(LIFE_APPEND, 5);
    take(LIFE_RESET, 1);
    assert_gone(1);
    assert_gone(life.acked.next);
    take(LIFE_APPEND, 5);
    read_everything();
    assert_gone(life.acked.first - 1);
    take(LIFE_REOPEN, 1);
    read_everything();
    assert_gone(0);
}

static void test_after_a_removal(void **state)
{
    uint64_t oldest;

    (void)state;
    take(LIFE_APPEND, 25);
    while (life.acked.kept < life.acked.next / 2)
        take(LIFE_REMOVE, 1);
    oldest = life.journal->segments[0].first;
    assert_true(oldest > 1);
    assert_int_equal(life.journal->places.places[0].index, oldest); /* the others took memory */
    assert_gone(oldest - 1);
    assert_gone(1);
    assert_true(life_read_range(&life, oldest, UINT64_MAX, SIZE_MAX) > 0);
    take(LIFE_REOPEN, 1);
    assert_int_equal(life.acked.first, oldest);
    assert_gone(oldest - 1);
    read_everything();
}

/* Another thread has removed the files already, and the journal was not told yet. */
static void test_during_a_removal(void **state)
{
    struct error_text err;
    uint64_t needed;

    (void)state;
    take(LIFE_APPEND, 25);
    needed = journal_needed(life.journal, life.acked.next - 1);
    assert_true(needed > 2);
    assert_int_equal(journal_remove(&life.directory, needed, &err), HF_OK);
    assert_gone(1);
    journal_removed(life.journal, needed);
    assert_gone(1);
    assert_int_equal(life_read_range(&life, life.acked.next - 1, life.acked.next - 1, SIZE_MAX), 1);
}

static int stop_at_third(void *context, const struct journal_record *record, struct error_text *err)
{
    int *count = context;

    (void)record;
    return ++*count == 3 ? error_set(err, HF_ECANCELED, "enough") : HF_OK;
}

static void test_the_reader_stops(void **state)
{
    struct error_text err;
    int count = 0;

    (void)state;
    take(LIFE_APPEND, 9);
    assert_int_equal(journal_read_range(life.journal, 1, 9, SIZE_MAX, stop_at_third, &count, &err),
                     HF_ECANCELED);
    assert_int_equal(count, 3);
}

struct cutting {
    uint64_t given, term; /* how many, and the term of the last that was there before */
};

/* With the first that is given all from the second on is replaced. */
static int cut_meanwhile(void *context, const struct journal_record *record, struct error_text *err)
{
    struct cutting *cutting = context;

    (void)err;
    if (cutting->given++ == 0) {
        life.acked.next = 2;
        take(LIFE_APPEND, 12);
    }
    assert_true(record->term <= cutting->term);
    return HF_OK;
}

/* Nobody is given a beginning of what was replaced, and then the rest of what replaced it. */
static void test_a_cut_meanwhile(void **state)
{
    struct cutting cutting;
    struct error_text err;

    (void)state;
    take(LIFE_APPEND, 10);
    cutting = (struct cutting){.term = life.stamp};
    assert_int_equal(
        journal_read_range(life.journal, 1, UINT64_MAX, SIZE_MAX, cut_meanwhile, &cutting, &err),
        HF_OK);
    assert_true(cutting.given > 1);
    read_everything();
}

/* ---- damage ----------------------------------------------------------------------------------- */

/* A bit of what was acknowledged flips while it is open: it is refused, or was not in what was read. */
static void test_a_flipped_bit(void **state)
{
    uint64_t refused = 0;

    (void)state;
    take(LIFE_APPEND, 6);
    for (uint64_t bit = 8 * BLOCK; bit < 8 * 3 * BLOCK; bit += 5) {
        struct error_text err;
        int count = 0, result;

        assert_true(sim_disk_flip(life.disk, LIFE_PATH, "log-1", bit));
        result = journal_read_range(life.journal, 1, 99, SIZE_MAX, stop_at_third, &count, &err);
        if (result == HF_EIO) {
            assert_non_null(strstr(err.text, "data/log-1 is damaged at entry"));
            refused++;
        }
        assert_true(sim_disk_flip(life.disk, LIFE_PATH, "log-1", bit));
        if (result != HF_EIO)
            assert_true(count == 3);
    }
    assert_true(refused > 100);
    read_everything();
}

static void test_a_disk_that_fails(void **state)
{
    int fails = 0;

    (void)state;
    take(LIFE_APPEND, 9);
    for (uint64_t at = 1;; at++) {
        struct error_text err;
        int count = 0;

        sim_disk_fail_at(life.disk, at);
        if (journal_read_range(life.journal, 1, 3, SIZE_MAX, stop_at_third, &count, &err) ==
            HF_ECANCELED)
            break;
        assert_non_null(strstr(err.text, "cannot read data/log-1: Input/output error"));
        fails++;
    }
    sim_disk_fail_at(life.disk, 0);
    assert_true(fails >= 2); /* to open it, to read it */
    read_everything();
}

/* ---- what it costs ---------------------------------------------------------------------------- */

static int count_bytes(void *context, const struct journal_record *record, struct error_text *err)
{
    (void)err;
    *(size_t *)context += record->size;
    return HF_OK;
}

static void append_many(uint64_t first, uint64_t groups, size_t size)
{
    static unsigned char bytes[4096];
    struct error_text err;

    memset(bytes, 'x', sizeof bytes);
    for (uint64_t i = 0; i < groups; i++) {
        struct journal_record records[10] = {0};
        int result;

        for (uint64_t k = 0; k < 10; k++)
            records[k] = (struct journal_record){
                .index = first + 10 * i + k, .term = 1, .bytes = bytes, .size = size};
        result = journal_append(life.journal, records, 10, &err);
        if (result == HF_EBUSY) {
            struct journal_spare spare = journal_spare_begin(life.journal);

            journal_spare_make(&spare);
            journal_spare_end(life.journal, &spare);
            result = journal_append(life.journal, records, 10, &err);
        }
        assert_int_equal(result, HF_OK);
    }
}

/* One record out of a log of ten times the size is not read for more, and the index grows with the bytes, not the records. */
static void test_it_does_not_cost_more_in_a_longer_log(void **state)
{
    struct error_text err;

    (void)state;
    life_close(&life);
    life.segment_bytes = 1 << 20;
    assert_true(life_recover(&life));
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t last = 10 * (i + 1) * 400, before;

        append_many(i * 4000 + 1, 400, 300);
        assert_true(life.journal->places.count <
                    (size_t)(i + 1) * 400 * BLOCK / PLACES_STRIDE + 20);
        for (uint64_t from = 1; from <= last; from += 97) {
            size_t bytes = 0;

            before = sim_disk_read(life.disk);
            assert_int_equal(
                journal_read_range(life.journal, from, UINT64_MAX, 1, count_bytes, &bytes, &err),
                HF_OK);
            assert_int_equal(bytes, 300);
            assert_true(sim_disk_read(life.disk) - before <= 3 * PLACES_STRIDE);
        }
    }
}

/* Replaced again and again: places of what is not in effect are not kept. */
static void test_places_of_what_was_replaced(void **state)
{
    size_t before;

    (void)state;
    append_many(1, 50, 300);
    before = life.journal->places.count;
    for (int i = 0; i < 200; i++)
        append_many(401, 10, 300);
    assert_true(life.journal->places.count <= before + 10);
}

/* A stretch is read in as many pieces as it takes, and so is one large record. */
static void test_large_records(void **state)
{
    size_t bytes = 0;
    struct error_text err;

    (void)state;
    append_many(1, 30, 4000);
    assert_int_equal(
        journal_read_range(life.journal, 1, UINT64_MAX, SIZE_MAX, count_bytes, &bytes, &err),
        HF_OK);
    assert_int_equal(bytes, 300 * 4000);
    take(LIFE_RESET, 1);
    {
        unsigned char *large = calloc(1, 300000);
        struct journal_record records[] = {{.index = 5, .term = 1, .bytes = large, .size = 300000},
                                           {.index = 6, .term = 1, .bytes = large, .size = 200000}};

        take(LIFE_SPARE, 1);
        assert_int_equal(journal_append(life.journal, records, 2, &err), HF_OK);
        for (uint64_t from = 5; from <= 6; from++) {
            bytes = 0;
            assert_int_equal(
                journal_read_range(life.journal, from, 6, 1, count_bytes, &bytes, &err), HF_OK);
            assert_int_equal(bytes, from == 5 ? 300000 : 200000);
        }
        free(large);
    }
}

/* ---- two threads, on a real disk -------------------------------------------------------------- */

#define WRITTEN 1000

struct shared {
    struct journal *journal;
    struct directory directory;
    atomic_ulong written, floor;
    atomic_bool done;
    char path[PATH_MAX];
};

static int check_shared(void *context, const struct journal_record *record, struct error_text *err)
{
    uint64_t *next = context;

    if (record->index != *next || record->chain != 3 * record->index + record->term ||
        record->size != 100 + record->index % 900)
        return error_set(err, HF_EINTERNAL, "entry %ju and not %ju", (uintmax_t)record->index,
                         (uintmax_t)*next);
    ++*next;
    return HF_OK;
}

static void *read_meanwhile(void *context)
{
    struct shared *shared = context;
    uint64_t seed = 5, reads = 0;
    struct error_text err;

    while (!shared->done) {
        uint64_t last = shared->written, floor = shared->floor, from, next;
        int result;

        if (last <= floor)
            continue;
        next = from = floor + 1 + life_draw(&seed, last - floor);
        result = journal_read_range(shared->journal, from, last, 20000, check_shared, &next, &err);
        if (result == JOURNAL_GONE) /* it was removed since we looked */
            assert_true(from <= shared->floor);
        else if (result != HF_OK)
            fail_msg("%d: %s", result, err.text);
        reads++;
    }
    return (void *)(uintptr_t)reads;
}

static void append_shared(struct shared *shared, uint64_t index, uint64_t term)
{
    static unsigned char bytes[1000];
    struct journal_record record = {.index = index,
                                    .term = term,
                                    .chain = 3 * index + term,
                                    .bytes = bytes,
                                    .size = 100 + index % 900};
    struct error_text err;
    int result = journal_append(shared->journal, &record, 1, &err);

    if (result == HF_EBUSY) {
        struct journal_spare spare = journal_spare_begin(shared->journal);

        journal_spare_make(&spare);
        journal_spare_end(shared->journal, &spare);
        result = journal_append(shared->journal, &record, 1, &err);
    }
    assert_int_equal(result, HF_OK);
}

static int nothing(void *context, const struct journal_record *record, struct error_text *err)
{
    (void)context;
    (void)record;
    (void)err;
    return HF_OK;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Appends go on, some of them replace, and old segments are removed. */
static void test_while_appends_go_on(void **state)
{
    static struct shared shared;
    const char *below = getenv("HOLDFAST_TEST_DIR");
    struct error_text err;
    pthread_t thread;
    void *reads;

    (void)state;
    snprintf(shared.path, sizeof shared.path, "%s/range-XXXXXX", below ? below : "/var/tmp");
    assert_non_null(mkdtemp(shared.path));
    assert_int_equal(directory_open(shared.path, &shared.directory, &err), HF_OK);
    assert_int_equal(
        journal_open(&shared.directory, 64 * BLOCK, nothing, NULL, &shared.journal, &err), HF_OK);
    assert_int_equal(journal_begin(shared.journal, &err), HF_OK);
    assert_int_equal(pthread_create(&thread, NULL, read_meanwhile, &shared), 0);
    for (uint64_t i = 1, index = 1; i <= WRITTEN; i++) {
        if (i % 50 == 0 && index > shared.floor + 10) {
            index -= 5;
            shared.written = index - 1;
        }
        append_shared(&shared, index, i);
        shared.written = index++;
        if (i % 150 == 0) {
            uint64_t needed = journal_needed(shared.journal, index - 20);

            shared.floor = index - 21;
            assert_int_equal(journal_remove(&shared.directory, needed, &err), HF_OK);
            journal_removed(shared.journal, needed);
        }
    }
    shared.done = true;
    assert_int_equal(pthread_join(thread, &reads), 0);
    print_message("%ju reads\n", (uintmax_t)(uintptr_t)reads);
    journal_close(shared.journal);
    directory_close(&shared.directory);
    nftw(shared.path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_across_segments),
        TEST(test_what_was_replaced),
        TEST(test_after_a_restart),
        TEST(test_after_a_reset),
        TEST(test_after_a_removal),
        TEST(test_during_a_removal),
        TEST(test_the_reader_stops),
        TEST(test_a_cut_meanwhile),
        TEST(test_a_flipped_bit),
        TEST(test_a_disk_that_fails),
        TEST(test_it_does_not_cost_more_in_a_longer_log),
        TEST(test_places_of_what_was_replaced),
        TEST(test_large_records),
        cmocka_unit_test(test_while_appends_go_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
