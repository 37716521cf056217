/* test_tokens.c: the counter on a disk that crashes.
 *
 * The disk keeps what was synced and what was only written apart. Each round runs a few "processes"
 * one after the other; each is stopped at a random operation. A process that is killed leaves the
 * page cache as it is. A machine that crashes loses, keeps or tears each write that was not synced,
 * and comes back under another boot id. Whatever happens: a token given away is greater than every
 * one before it [T1-T4]. */
#include "engines/file/tokens.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PENDING_MAX 64
#define FIRST UINT64_C(1794842243059666) /* what a new store begins above */

struct write {
    off_t offset;
    size_t size;
    unsigned char bytes[128];
};

static struct disk {
    unsigned char synced[TOKENS_FILE_SIZE];
    unsigned char cached[TOKENS_FILE_SIZE];
    struct write pending[PENDING_MAX];
    int pending_count;
    bool directory_synced;
    bool locked;
    int operations_left; /* until the process stops; -1: never */
    bool full;
    bool taken; /* the lock, by another process that is stopped */
} disk;

static uint32_t seed;

static uint32_t dice(uint32_t sides)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % sides;
}

/* True when this is the operation at which the process stops. */
static bool stops_now(void)
{
    return disk.operations_left >= 0 && disk.operations_left-- == 0;
}

static int fake_read(void *context, void *bytes, size_t size, off_t offset)
{
    (void)context;
    memcpy(bytes, disk.cached + offset, size);
    return 0;
}

static int fake_write(void *context, const void *bytes, size_t size, off_t offset)
{
    struct write *write;
    bool stop = stops_now();

    (void)context;
    assert_true(disk.locked);
    if (disk.full)
        return ENOSPC;
    assert_true(disk.pending_count < PENDING_MAX && size <= sizeof write->bytes);
    if (stop)
        size = dice((uint32_t)size + 1); /* the kernel got this far */
    write = &disk.pending[disk.pending_count++];
    write->offset = offset;
    write->size = size;
    memcpy(write->bytes, bytes, size);
    memcpy(disk.cached + offset, bytes, size);
    return stop ? EINTR : 0;
}

static int fake_sync(void *context)
{
    (void)context;
    if (stops_now())
        return EINTR;
    memcpy(disk.synced, disk.cached, sizeof disk.synced);
    disk.pending_count = 0;
    return 0;
}

static int fake_sync_directory(void *context)
{
    (void)context;
    if (stops_now())
        return EINTR;
    disk.directory_synced = true;
    return 0;
}

static int fake_lock(void *context)
{
    (void)context;
    if (disk.taken)
        return EAGAIN;
    assert_false(disk.locked);
    disk.locked = true;
    return 0;
}

static void fake_unlock(void *context)
{
    (void)context;
    assert_true(disk.locked);
    disk.locked = false;
}

static const struct tokens_disk fake = {
    NULL, fake_read, fake_write, fake_sync, fake_sync_directory, fake_lock, fake_unlock};

static void start_disk(void)
{
    memset(&disk, 0, sizeof disk);
    tokens_format("teststore", FIRST, disk.synced);
    memcpy(disk.cached, disk.synced, sizeof disk.cached);
    disk.operations_left = -1;
}

/* Loses, keeps or tears every write that was not synced. False: the file itself is gone. */
static bool crash_machine(void)
{
    if (!disk.directory_synced && dice(2))
        return false;
    for (int i = 0; i < disk.pending_count; i++) {
        const struct write *write = &disk.pending[i];
        size_t from = 0, to = write->size;

        switch (dice(4)) {
        case 0:
            to = 0;
            break;
        case 1:
            to = dice((uint32_t)write->size + 1);
            break;
        case 2:
            from = dice((uint32_t)write->size + 1);
            break;
        }
        if (to > from)
            memcpy(disk.synced + write->offset + from, write->bytes + from, to - from);
    }
    if (dice(2)) /* page 0 is written back whenever the kernel likes */
        memcpy(disk.synced, disk.cached, TOKENS_PAGE);
    memcpy(disk.cached, disk.synced, sizeof disk.cached);
    disk.pending_count = 0;
    disk.locked = false;
    return true;
}

/* One process: draws, and jumps ahead to cross ceilings, until stopped. Returns the newest token
 * given. */
static uint64_t run_process(const char *boot_id, uint64_t newest)
{
    struct error_text err = {""};
    struct tokens tokens;

    disk.locked = false; /* the kernel lets go of a dead process's locks */
    disk.operations_left = (int)dice(12);
    tokens_init(&tokens, &fake, disk.cached, boot_id);
    for (int i = 0; i < 8; i++) {
        uint64_t token;
        int result;

        if (dice(3) == 0)
            result = tokens_raise(&tokens, newest + dice((uint32_t)TOKENS_STEP), CLOCK_NEVER, &err);
        else {
            result = tokens_draw(&tokens, CLOCK_NEVER, &token, &err);
            if (result == HF_OK) {
                if (token <= newest)
                    fail_msg("token %llu after %llu", (unsigned long long)token,
                             (unsigned long long)newest);
                newest = token;
            }
        }
        if (result != HF_OK) {
            assert_null(strstr(err.text, "damaged")); /* [T2] one slot is always whole */
            break;
        }
    }
    disk.operations_left = -1;
    return newest;
}

static void a_new_file_begins_above_what_it_is_given(void **state)
{
    static const uint64_t firsts[] = {0, FIRST};
    struct tokens tokens;
    uint64_t token;

    (void)state;
    for (int i = 0; i < 2; i++) {
        start_disk();
        tokens_format("teststore", firsts[i], disk.synced);
        memcpy(disk.cached, disk.synced, sizeof disk.cached);
        tokens_init(&tokens, &fake, disk.cached, "boot");
        for (uint64_t n = 1; n <= 3; n++) {
            assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &token, NULL), HF_OK);
            assert_true(token == firsts[i] + n);
        }
    }
}

static void tokens_grow_through_crashes_and_kills(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 40000; round++) {
        uint64_t newest = 0;
        char boot_id[32];
        int boot = 0;

        seed = round * 2654435761u + 1;
        start_disk();
        for (int step = 0; step < 10; step++) {
            snprintf(boot_id, sizeof boot_id, "boot-%u-%d", round, boot);
            newest = run_process(boot_id, newest);
            if (dice(2))
                continue; /* killed: same boot, same page cache */
            if (!crash_machine()) {
                assert_int_equal(newest, 0); /* [T4] nothing was given away yet */
                break;
            }
            boot++;
        }
    }
}

static void every_single_crash_point_is_survived(void **state)
{
    (void)state;
    /* Not by chance: the first boot stopped at each of its operations, in each way a write can end.
     */
    for (int stop = 0; stop < 12; stop++) {
        for (uint32_t way = 0; way < 300; way++) {
            struct tokens tokens;
            uint64_t before = 0, after = 0;

            seed = way * 7919u + (uint32_t)stop;
            start_disk();
            tokens_init(&tokens, &fake, disk.cached, "first");
            disk.operations_left = stop;
            if (tokens_draw(&tokens, CLOCK_NEVER, &before, NULL) == HF_OK &&
                tokens_raise(&tokens, before + TOKENS_STEP, CLOCK_NEVER, NULL) == HF_OK)
                tokens_draw(&tokens, CLOCK_NEVER, &before, NULL);
            disk.operations_left = -1;
            if (!crash_machine()) {
                assert_int_equal(before, 0);
                continue;
            }
            tokens_init(&tokens, &fake, disk.cached, "second");
            assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &after, NULL), HF_OK);
            assert_true(after > before);
        }
    }
}

static void a_full_disk_gives_nothing_and_loses_nothing(void **state)
{
    struct error_text err;
    struct tokens tokens;
    uint64_t before, after;

    (void)state;
    start_disk();
    tokens_init(&tokens, &fake, disk.cached, "boot");
    assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &before, &err), HF_OK);
    assert_int_equal(tokens_raise(&tokens, before + TOKENS_STEP - 2, CLOCK_NEVER, &err), HF_OK);
    disk.full = true;
    while (tokens_draw(&tokens, CLOCK_NEVER, &after, &err) == HF_OK)
        before = after;
    assert_non_null(strstr(err.text, "full"));
    disk.full = false;
    assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &after, &err), HF_OK);
    assert_true(after > before);
}

/* It has the lock, and has not raised the ceiling. Others use up what is below, and nothing above. */
static void a_stopped_process_holds_nobody_up_below_the_ceiling(void **state)
{
    struct error_text err;
    struct tokens tokens;
    uint64_t first, token, drawn = 1;

    (void)state;
    start_disk();
    tokens_init(&tokens, &fake, disk.cached, "boot");
    assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &first, &err), HF_OK);
    /* Up to where the ceiling is raised ahead of need. */
    while (drawn < TOKENS_AHEAD - TOKENS_AHEAD_EVERY) {
        assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &token, &err), HF_OK);
        drawn++;
    }
    disk.taken = true;
    while (tokens_draw(&tokens, 0, &token, &err) == HF_OK)
        drawn++;
    assert_int_equal(drawn, TOKENS_STEP);
    assert_int_equal(tokens_draw(&tokens, 0, &token, &err), HF_EUNREACH);
    assert_non_null(strstr(err.text, "stopped"));
    disk.taken = false;
    assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &token, &err), HF_OK);
    assert_true(token > first + TOKENS_STEP);
}

/* Whoever finds half of it used up raises it, so that a process which is stopped later is not in the way. */
static void the_ceiling_is_raised_ahead_of_need(void **state)
{
    struct tokens tokens;
    uint64_t token;

    (void)state;
    start_disk();
    tokens_init(&tokens, &fake, disk.cached, "boot");
    for (uint64_t i = 0; i < TOKENS_AHEAD + TOKENS_AHEAD_EVERY; i++)
        assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &token, NULL), HF_OK);
    disk.taken = true;
    for (uint64_t i = 0; i < TOKENS_STEP; i++)
        assert_int_equal(tokens_draw(&tokens, 0, &token, NULL), HF_OK);
}

static void a_damaged_file_is_refused(void **state)
{
    struct error_text err;
    struct tokens tokens;
    uint64_t token;

    (void)state;
    start_disk();
    disk.cached[TOKENS_PAGE + 17] ^= 1;
    tokens_init(&tokens, &fake, disk.cached, "boot");
    assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &token, &err), HF_EIO);
    assert_non_null(strstr(err.text, "damaged"));
}

static void another_boot_id_never_lowers_the_counter(void **state)
{
    struct tokens one, other;
    uint64_t a, b;

    (void)state;
    /* Containers with a boot id each, drawing from one page in turn. */
    start_disk();
    tokens_init(&one, &fake, disk.cached, "one");
    tokens_init(&other, &fake, disk.cached, "other");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(tokens_draw(&one, CLOCK_NEVER, &a, NULL), HF_OK);
        if (i > 0)
            assert_true(a > b);
        assert_int_equal(tokens_draw(&other, CLOCK_NEVER, &b, NULL), HF_OK);
        assert_true(b > a);
    }
}

static void tokens_end_at_their_limit(void **state)
{
    struct error_text err;
    struct tokens tokens;
    uint64_t token;

    (void)state;
    start_disk();
    tokens_init(&tokens, &fake, disk.cached, "boot");
    assert_int_equal(tokens_raise(&tokens, HF_TOKEN_MAX - 3 * TOKENS_STEP, CLOCK_NEVER, &err),
                     HF_OK);
    assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &token, &err), HF_OK);
    assert_true(token > HF_TOKEN_MAX - 3 * TOKENS_STEP && token <= HF_TOKEN_MAX);
    assert_int_equal(tokens_raise(&tokens, HF_TOKEN_MAX, CLOCK_NEVER, &err), HF_EREFUSED);
    assert_int_equal(tokens_draw(&tokens, CLOCK_NEVER, &token, &err), HF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_begins_above_what_it_is_given),
        cmocka_unit_test(tokens_grow_through_crashes_and_kills),
        cmocka_unit_test(every_single_crash_point_is_survived),
        cmocka_unit_test(a_full_disk_gives_nothing_and_loses_nothing),
        cmocka_unit_test(a_stopped_process_holds_nobody_up_below_the_ceiling),
        cmocka_unit_test(the_ceiling_is_raised_ahead_of_need),
        cmocka_unit_test(a_damaged_file_is_refused),
        cmocka_unit_test(another_boot_id_never_lowers_the_counter),
        cmocka_unit_test(tokens_end_at_their_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
