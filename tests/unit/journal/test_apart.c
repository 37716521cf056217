/* A system that does not know a write which is durable in itself, or a file system that takes none past the cache
 * although it opened a file for it: what is written is synced before it counts. */
#include "disk.h"
#include "tools.h"

#include <errno.h>

static struct room room;
static struct log expected;

static int set_up(void **state)
{
    (void)state;
    expected.count = 0;
    disk_system_syncs_apart = false;
    room_init(&room);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    room_free(&room);
    return 0;
}

/* Each append is written, and then synced, and nothing else. */
static void append_and_look(void)
{
    room_must_open(&room);
    room_make_spare(&room);
    for (uint64_t i = 1; i <= 5; i += 2) {
        disk_reset();
        room_log(&room, &expected, i, 1, SIZES(10, 5000));
        assert_int_equal(disk.count, i == 1 ? 2 + disk_of_mark() : 2); /* the segment is marked */
        assert_int_equal(disk.calls[0].kind, DISK_WRITE);
        assert_false(disk.calls[0].durable);
        assert_int_equal(disk.calls[1].kind, DISK_SYNC);
        assert_true(disk.calls[1].durable);
        assert_string_equal(disk.calls[0].name, "log-1");
        assert_string_equal(disk.calls[1].name, "log-1");
    }
    assert_true(journal_syncs_apart());
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

static void test_dsync_is_unknown(void **state)
{
    static const int answers[] = {EOPNOTSUPP, ENOSYS, EINVAL};

    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        assert_false(journal_syncs_apart());
        disk.dsync_fails = answers[i];
        append_and_look();
        tear_down(NULL);
        set_up(NULL);
    }
}

static void test_direct_writes_fail(void **state)
{
    (void)state;
    disk.direct_fails = true;
    append_and_look();
}

static void test_both(void **state)
{
    (void)state;
    disk.direct_fails = true;
    disk.dsync_fails = EOPNOTSUPP;
    append_and_look();
}

/* Every other failure is one: nothing is tried in another way. */
static void test_what_fails_otherwise(void **state)
{
    static const int answers[] = {EIO, ENOSPC, EDQUOT, EFBIG};
    struct told told = {1, 1, 1, 10};

    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        room_must_open(&room);
        room_make_spare(&room);
        disk_reset();
        disk.dsync_fails = answers[i];
        assert_int_equal(room_try_append(&room, &told, 1), HF_EIO);
        assert_int_equal(disk.count, 0);
        assert_false(journal_syncs_apart());
        disk.dsync_fails = 0;
        room_close(&room);
    }
}

/* What was written, and could not be synced, does not count. */
static void test_a_sync_fails(void **state)
{
    struct told told = {1, 1, 1, 10};

    (void)state;
    disk.dsync_fails = EOPNOTSUPP;
    room_must_open(&room);
    room_make_spare(&room);
    disk_fail_in(2, EIO);
    assert_int_equal(room_try_append(&room, &told, 1), HF_EIO);
    assert_says(&room.err, "Input/output error");
}

/* In pieces: synced once, behind the last. */
static void test_short_writes(void **state)
{
    (void)state;
    disk.dsync_fails = EOPNOTSUPP;
    room_must_open(&room);
    room_make_spare(&room);
    disk_reset();
    disk.write_at_most = BLOCK_BYTES;
    room_log(&room, &expected, 1, 1, SIZES(10, 9000));
    assert_true(disk.count > 3);
    assert_int_equal(disk_count(DISK_SYNC, "log-1"), 1);
    assert_int_equal(disk.calls[disk.count - 1 - disk_of_mark()].kind, DISK_SYNC);
    disk.write_at_most = 0;
    room_reopen(&room);
    assert_same_log(&room.log, &expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_dsync_is_unknown),     TEST(test_direct_writes_fail), TEST(test_both),
        TEST(test_what_fails_otherwise), TEST(test_a_sync_fails),       TEST(test_short_writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
