/* test_sim_disk.c: the disk in memory itself: it keeps what it has promised, and everything else may be lost. */
#include "life.h"

#include <errno.h>

#define SEEDS 400
#define SECTORS 8

static struct sim_disk *disk;
static const struct disk *table;
static int directory;

static void begin(uint64_t seed)
{
    disk = sim_disk_new(seed);
    table = sim_disk_table(disk);
    assert_int_equal(table->make_directory(table, "d", 0700), 0);
    assert_int_equal(table->sync_parent(table, "d"), 0);
    assert_int_equal(table->open_directory(table, "d", &directory), 0);
}

static void end(void)
{
    sim_disk_free(disk);
}

static int open_as(const char *name, enum disk_open how)
{
    int file;

    assert_int_equal(table->open(table, directory, name, how, &file), 0);
    return file;
}

/* Sectors of one letter. */
static void put(int file, char letter, size_t sector, size_t count, bool durable)
{
    char bytes[SECTORS * SIM_DISK_SECTOR];

    memset(bytes, letter, sizeof bytes);
    assert_int_equal(table->write(table, file, bytes, count * SIM_DISK_SECTOR,
                                  sector * SIM_DISK_SECTOR, durable),
                     0);
}

static void crash(void)
{
    sim_disk_crash(disk);
    assert_int_equal(table->open_directory(table, "d", &directory), 0);
}

/* A letter for each sector, '.' for zeros; a sector is of one kind. "-": there is no such file. */
static const char *look(const char *name)
{
    static char text[SECTORS + 1];
    char bytes[SECTORS * SIM_DISK_SECTOR];
    size_t size, i;
    int file;

    if (table->open(table, directory, name, DISK_FOR_READING, &file) == ENOENT)
        return "-";
    assert_int_equal(table->read(table, file, bytes, sizeof bytes, 0, &size), 0);
    assert_int_equal(size % SIM_DISK_SECTOR, 0);
    for (i = 0; i < size / SIM_DISK_SECTOR; i++) {
        const char *sector = bytes + i * SIM_DISK_SECTOR;

        assert_int_equal(memcmp(sector, sector + 1, SIM_DISK_SECTOR - 1), 0);
        text[i] = sector[0] ? sector[0] : '.';
    }
    text[i] = '\0';
    table->close(table, file);
    return text;
}

static void test_what_was_durable_is_kept(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int file;

        begin(seed);
        file = open_as("f", DISK_EMPTIED);
        put(file, 'a', 0, 2, true);
        assert_int_equal(table->sync_directory(table, directory), 0);
        put(file, 'b', 2, 2, false);
        assert_int_equal(table->sync(table, file), 0);
        put(file, 'c', 4, 4, false); /* not this one */
        put(file, 'd', 0, 1, true);
        crash();
        assert_int_equal(strncmp(look("f"), "dabb", 4), 0);
        end();
    }
}

/* Whatever can come of it does, and nothing else. */
static void test_what_was_not_may_be_lost(void **state)
{
    static const char *const wanted[] = {"aaaaaaaa", "abbbbbba", "abbbaaaa", "aaaaccaa",
                                         "abbbccba", "abaaaaaa", "ababbaba"};
    size_t seen[sizeof wanted / sizeof *wanted] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 40 * SEEDS; seed++) {
        const char *text;
        int file;

        begin(seed);
        file = open_as("f", DISK_EMPTIED);
        put(file, 'a', 0, SECTORS, true);
        assert_int_equal(table->sync_directory(table, directory), 0);
        put(file, 'b', 1, 6, false);
        put(file, 'c', 4, 2, false);
        assert_string_equal(look("f"), "abbbccba");
        crash();
        text = look("f");
        assert_int_equal(strlen(text), SECTORS);
        for (size_t i = 0; i < SECTORS; i++)
            assert_true(text[i] == 'a' || (text[i] == 'b' && i >= 1 && i < 7) ||
                        (text[i] == 'c' && i >= 4 && i < 6));
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            seen[i] += strcmp(text, wanted[i]) == 0;
        end();
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!seen[i])
            fail_msg("'%s' did not happen", wanted[i]);
}

static void test_sizes(void **state)
{
    bool seen[4] = {false};

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int file;
        size_t size;

        begin(seed);
        file = open_as("f", DISK_EMPTIED);
        put(file, 'a', 0, 4, true);
        assert_int_equal(table->sync_directory(table, directory), 0);
        assert_int_equal(table->truncate(table, file, 2 * SIM_DISK_SECTOR), 0);
        assert_int_equal(table->make_room(table, file, 3 * SIM_DISK_SECTOR), 0);
        assert_string_equal(look("f"), "aa.");
        crash();
        size = strlen(look("f"));
        assert_true(size >= 2 && size <= 4);
        if (size == 3) /* zeros if it was shorter before */
            assert_true(look("f")[2] == '.' || look("f")[2] == 'a');
        seen[size - 1] = true;
        end();
    }
    assert_true(seen[1] && seen[2] && seen[3]);
}

/* Each name by itself: what was made, renamed, removed. */
static void test_names(void **state)
{
    bool seen[2][2][2] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        bool made, renamed, removed;

        begin(seed);
        put(open_as("old", DISK_EMPTIED), 'o', 0, 1, true);
        put(open_as("from", DISK_EMPTIED), 'f', 0, 1, true);
        put(open_as("to", DISK_EMPTIED), 't', 0, 1, true);
        assert_int_equal(table->sync_directory(table, directory), 0);
        put(open_as("new", DISK_MADE_IF_MISSING), 'n', 0, 1, true);
        assert_int_equal(table->rename(table, directory, "from", "to"), 0);
        assert_int_equal(table->remove(table, directory, "old", false), 0);
        assert_string_equal(look("to"), "f");
        assert_string_equal(look("old"), "-");
        crash();
        made = strcmp(look("new"), "n") == 0;
        renamed = strcmp(look("to"), "f") == 0;
        removed = strcmp(look("old"), "-") == 0;
        assert_true(made || strcmp(look("new"), "-") == 0);
        assert_string_equal(look("from"), renamed ? "-" : "f");
        assert_true(removed || strcmp(look("old"), "o") == 0);
        seen[made][renamed][removed] = true;
        crash(); /* nothing is lost any more */
        assert_true(made == (strcmp(look("new"), "n") == 0));
        end();
    }
    for (int i = 0; i < 8; i++)
        assert_true(seen[i / 4][i / 2 % 2][i % 2]);
}

static void test_synced_names_are_kept(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        put(open_as("from", DISK_EMPTIED), 'f', 0, 1, true);
        put(open_as("gone", DISK_EMPTIED), 'g', 0, 1, true);
        assert_int_equal(table->rename(table, directory, "from", "to"), 0);
        assert_int_equal(table->remove(table, directory, "gone", true), 0);
        assert_int_equal(table->sync_directory(table, directory), 0);
        crash();
        assert_string_equal(look("to"), "f");
        assert_string_equal(look("from"), "-");
        assert_string_equal(look("gone"), "-");
        end();
    }
}

static void test_a_directory_that_was_not_synced(void **state)
{
    bool seen[2] = {false};

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int other;

        begin(seed);
        assert_int_equal(table->make_directory(table, "e", 0700), 0);
        assert_int_equal(table->make_directory(table, "e", 0700), EEXIST);
        crash();
        seen[table->open_directory(table, "e", &other) == 0] = true;
        end();
    }
    assert_true(seen[0] && seen[1]);
}

/* From the n-th write on nothing works, until the power is back. */
static void test_stopping(void **state)
{
    bool lost = false, kept = false;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        char byte = 'x';
        size_t size;
        int file, other;

        begin(seed);
        file = open_as("f", DISK_EMPTIED);
        assert_int_equal(table->sync_directory(table, directory), 0);
        sim_disk_stop_at(disk, 2);
        put(file, 'a', 0, 1, true);
        assert_false(sim_disk_stopped(disk));
        assert_int_equal(table->write(table, file, &byte, 1, SIM_DISK_SECTOR, true), EIO);
        assert_true(sim_disk_stopped(disk));
        assert_int_equal(table->sync(table, file), EIO);
        assert_int_equal(table->read(table, file, &byte, 1, 0, &size), EIO);
        assert_int_equal(table->open(table, directory, "f", DISK_FOR_READING, &other), EIO);
        assert_int_equal(table->list(table, directory, NULL, NULL), EIO);
        crash();
        file = open_as("f", DISK_FOR_READING);
        assert_int_equal(table->read(table, file, &byte, 1, SIM_DISK_SECTOR, &size), 0);
        lost = lost || size == 0;
        kept = kept || (size == 1 && byte == 'x');
        end();
    }
    assert_true(lost && kept);
}

static void test_a_full_disk(void **state)
{
    char bytes[3 * SIM_DISK_SECTOR] = {0};
    int file;

    (void)state;
    begin(1);
    sim_disk_limit(disk, 4 * SIM_DISK_SECTOR);
    file = open_as("f", DISK_EMPTIED);
    put(file, 'a', 0, 2, true);
    assert_int_equal(table->write(table, file, bytes, sizeof bytes, 1024, true), ENOSPC);
    assert_int_equal(table->make_room(table, file, 5 * SIM_DISK_SECTOR), ENOSPC);
    assert_string_equal(look("f"), "aa");
    put(file, 'b', 0, 4, true);
    assert_int_equal(table->close(table, file), 0);
    assert_int_equal(table->remove(table, directory, "f", false), 0);
    assert_int_equal(table->sync_directory(table, directory), 0);
    put(open_as("g", DISK_EMPTIED), 'c', 0, 4, true);
    end();
}

static void test_one_operation_fails(void **state)
{
    int file;

    (void)state;
    begin(1);
    file = open_as("f", DISK_EMPTIED);
    sim_disk_fail_at(disk, 2);
    put(file, 'a', 0, 1, true);
    assert_int_equal(table->truncate(table, file, 0), EIO);
    assert_string_equal(look("f"), "a");
    assert_int_equal(table->truncate(table, file, 0), 0);
    end();
}

static void test_a_bit(void **state)
{
    char byte;
    size_t size;
    int file;

    (void)state;
    begin(1);
    file = open_as("f", DISK_EMPTIED);
    put(file, 'a', 0, 1, true);
    assert_int_equal(table->sync_directory(table, directory), 0);
    assert_true(sim_disk_flip(disk, "d", "f", 8 * 7 + 1));
    assert_false(sim_disk_flip(disk, "d", "f", 8 * SIM_DISK_SECTOR));
    assert_false(sim_disk_flip(disk, "d", "g", 0));
    assert_false(sim_disk_flip(disk, "e", "f", 0));
    crash();
    file = open_as("f", DISK_FOR_READING);
    assert_int_equal(table->read(table, file, &byte, 1, 7, &size), 0);
    assert_int_equal(byte, 'a' ^ 2);
    end();
}

/* What is done to one of them the other does not see; what was not durable is not there either. */
static void test_a_copy(void **state)
{
    bool lost = false, kept = false;

    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct sim_disk *first;
        int file;

        begin(1);
        file = open_as("f", DISK_EMPTIED);
        put(file, 'a', 0, 1, true);
        assert_int_equal(table->sync_directory(table, directory), 0);
        put(file, 'b', 0, 1, false);
        assert_int_equal(table->rename(table, directory, "f", "g"), 0);
        first = disk;
        disk = sim_disk_copy(first, seed);
        put(file, 'c', 0, 1, true);
        sim_disk_free(first);
        table = sim_disk_table(disk);
        crash();
        kept = kept || strcmp(look("g"), "b") == 0;
        lost = lost || strcmp(look("f"), "a") == 0;
        assert_true(strcmp(look("g"), "c") != 0 && strcmp(look("f"), "c") != 0);
        end();
    }
    assert_true(lost && kept);
}

static void test_a_lock(void **state)
{
    int one, other;

    (void)state;
    begin(1);
    one = open_as("lock", DISK_MADE_IF_MISSING);
    other = open_as("lock", DISK_MADE_IF_MISSING);
    assert_int_equal(table->sync_directory(table, directory), 0);
    assert_int_equal(table->lock(table, one), 0);
    assert_int_equal(table->lock(table, other), EAGAIN);
    assert_int_equal(table->close(table, one), 0);
    assert_int_equal(table->lock(table, other), 0);
    crash();
    assert_int_equal(table->lock(table, other), EBADF); /* handles of before are nobody's */
    assert_int_equal(table->close(table, other), EBADF);
    assert_int_equal(table->lock(table, open_as("lock", DISK_FOR_WRITING)), 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_durable_is_kept),
        cmocka_unit_test(test_what_was_not_may_be_lost),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_synced_names_are_kept),
        cmocka_unit_test(test_a_directory_that_was_not_synced),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_a_full_disk),
        cmocka_unit_test(test_one_operation_fails),
        cmocka_unit_test(test_a_bit),
        cmocka_unit_test(test_a_copy),
        cmocka_unit_test(test_a_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
