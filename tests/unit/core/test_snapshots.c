/* test_snapshots.c: a snapshot says how the table was when it was begun, however long it took; what
 * is damaged is refused; nothing is left in memory. And looking at the table. */
#include "core/snapshot.h"
#include "tools.h"

#define KEY "once"

/* Some of everything: holds, places, ghosts, permits, readers, records, ended leases, a kept place. */
static struct core *rich_table(unsigned char seed)
{
    static const struct core_command commands[] = {
        {.op = CORE_IDENTITY, .result = {"0123456789abcdef", 16}},
        {.op = CORE_MEMBER, .token = 2, .result = {"db2:7420", 8}},
        {.op = CORE_MEMBER, .token = 1, .result = {"db1:7420", 8}},
        {.op = CORE_ACQUIRE, .name = {"a", 1}, .lease = {"A", 1}, .ttl_ms = 5000, .delay_ms = 700},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS | CORE_KEPT,
         .name = {"a", 1},
         .lease = {"B", 1},
         .ttl_ms = 30000,
         .wait_ms = CORE_FOREVER,
         .owner = {"somebody", 8}},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS,
         .name = {"a", 1},
         .lease = {"C", 1},
         .ttl_ms = 30000,
         .wait_ms = 20000},
        {.op = CORE_ACQUIRE, .name = {"r", 1}, .lease = {"C", 1}, .mode = HF_SHARED, .ttl_ms = 100},
        {.op = CORE_ACQUIRE,
         .name = {"r", 1},
         .lease = {"D", 1},
         .mode = HF_SHARED,
         .ttl_ms = 9000},
        {.op = CORE_ACQUIRE,
         .name = {"p", 1},
         .lease = {"a lease of another size", 23},
         .mode = HF_PERMIT,
         .permits = 3,
         .ttl_ms = 30000},
        {.op = CORE_ACQUIRE, .name = {"b", 1}, .lease = {"B", 1}, .ttl_ms = 30000},
        {.op = CORE_BREAK, .name = {"a", 1}},
        {.op = CORE_ACQUIRE,
         .flags = CORE_ONCE,
         .name = {KEY, 4},
         .lease = {"E", 1},
         .ttl_ms = 3000,
         .delay_ms = 60000},
        {.op = CORE_FINISH,
         .flags = CORE_ONCE,
         .name = {KEY, 4},
         .lease = {"E", 1},
         .token = 6,
         .keep_ms = 60000,
         .result = {"the result", 10}},
        {.op = CORE_ACQUIRE,
         .flags = CORE_ONCE,
         .name = {"dies", 4},
         .lease = {"F", 1},
         .ttl_ms = 100,
         .delay_ms = 60000},
        {.op = CORE_END, .lease = {"G", 1}, .ttl_ms = 86400000},
    };
    struct core *core = table_new(seed);
    struct core_counts counts;

    for (size_t i = 0; i < COUNT(commands); i++)
        table_do(core, &commands[i], NULL);
    table_pass(core, 200);
    table_check(core);
    core_count(core, &counts);
    assert_true(counts.holds == 4 && counts.places == 2 && counts.ghosts == 1);
    assert_true(counts.records == 2 && counts.ended == 2 && counts.identified);
    return core;
}

/* ---- snapshots -------------------------------------------------------------------------------- */

static void equal_tables_have_equal_snapshots(void **state)
{
    struct core *core = rich_table(1), *twin = rich_table(2);
    size_t size = 0, twin_size = 0;
    void *bytes = snapshot_whole(core, &size), *twin_bytes = snapshot_whole(twin, &twin_size);

    (void)state;
    assert_true(core_hash(core) == core_hash(twin));
    assert_int_equal(size, twin_size);
    assert_memory_equal(bytes, twin_bytes, size);
    free(twin_bytes);
    twin = table_reborn(twin, 9);
    twin_bytes = snapshot_whole(twin, &twin_size);
    assert_int_equal(size, twin_size);
    assert_memory_equal(bytes, twin_bytes, size);
    free(bytes);
    free(twin_bytes);
    core_free(core);
    core_free(twin);
}

static void each_difference_is_another_hash(void **state)
{
    struct core *core = rich_table(1);
    static const struct core_command changes[] = {
        {.op = CORE_FLOOR, .token = 1000},
        {.op = CORE_MEMBER, .token = 1, .result = {"db1:7421", 8}},
        {.op = CORE_MEMBER, .token = 3, .result = {"db1:7420", 8}},
        {.op = CORE_MEMBER, .token = 2},
        {.op = CORE_IDENTITY, .flags = CORE_FORCE, .result = {"fedcba9876543210", 16}},
        {.op = CORE_RELEASE, .name = {"p", 1}, .lease = {"a lease of another size", 23}},
        {.op = CORE_END, .lease = {"new", 3}},
        {.op = CORE_BREAK, .flags = CORE_ONCE | CORE_NOW, .name = {"r", 1}},
        {.op = CORE_BREAK, .name = {"r", 1}},
    };
    uint64_t seen[COUNT(changes) + 2];
    size_t count = 0;

    (void)state;
    seen[count++] = core_hash(core);
    for (size_t i = 0; i < COUNT(changes); i++) {
        table_do(core, &changes[i], NULL);
        if (changes[i].flags & CORE_ONCE) { /* there is no such key */
            assert_true(core_hash(core) == seen[count - 1]);
            continue;
        }
        seen[count++] = core_hash(core);
    }
    table_pass(core, 1);
    seen[count++] = core_hash(core);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(seen[i] != seen[k]);
    core_free(core);
}

/* After so many steps everything changes, and most of it goes. False: it has not so many. */
static bool interrupted_after(size_t steps)
{
    struct core *core = rich_table(1);
    uint64_t hash = core_hash(core);
    size_t size = 0, taken = 0;
    void *bytes;

    core_snapshot_begin(core);
    while (taken < steps && !core_snapshot_step(core, 0))
        taken++;
    table_hold(core, "comes meanwhile", "H", 1000);
    table_pass(core, 100000);
    table_hold(core, "comes later", "I", 1000);
    while (!core_snapshot_step(core, 0))
        continue;
    bytes = core_snapshot_end(core, &size);
    assert_non_null(bytes);
    assert_true(hash == restored_hash(bytes, size));
    assert_true(hash != core_hash(core));
    table_check(core);
    free(bytes);
    core_free(core);
    return taken == steps;
}

static void a_snapshot_in_steps_is_of_its_beginning(void **state)
{
    size_t steps = 0;

    (void)state;
    while (interrupted_after(steps))
        steps++;
    assert_true(steps > 10); /* at most a record in each */
}

/* Records carry the number of the snapshot they were written to, which goes round. */
static void a_thousand_snapshots_are_like_the_first(void **state)
{
    struct core *core = rich_table(1);

    (void)state;
    for (int i = 0; i < 1000; i++) {
        char name[16];
        uint64_t hash;
        size_t size = 0;
        void *bytes;

        snprintf(name, sizeof name, "name %d", i % 7);
        table_hold(core, name, name, 86400000);
        hash = core_hash(core);
        core_snapshot_begin(core);
        for (int step = 0; step < i % 30; step++)
            core_snapshot_step(core, 0);
        table_pass(core, 1);
        if (i % 5 == 4) { /* given up */
            if (!core_snapshot_step(core, 0))
                assert_null(core_snapshot_end(core, &size));
            else
                free(core_snapshot_end(core, &size));
            continue;
        }
        assert_true(core_snapshot_step(core, SIZE_MAX / 2));
        bytes = core_snapshot_end(core, &size);
        assert_true(hash == restored_hash(bytes, size));
        free(bytes);
    }
    core_free(core);
}

static void snapshots_that_are_given_up_leave_nothing_out(void **state)
{
    struct core *core = rich_table(1);
    uint64_t hash = core_hash(core);

    (void)state;
    for (int given_up = 250; given_up < 260; given_up++) {
        size_t size = 0;
        void *bytes;

        for (int i = 0; i < given_up; i++) {
            core_snapshot_begin(core);
            assert_null(core_snapshot_end(core, &size));
        }
        bytes = snapshot_whole(core, &size);
        assert_true(hash == restored_hash(bytes, size));
        free(bytes);
    }
    core_free(core);
}

/* Several blocks of the checksum, and a result of the largest size. */
static void a_large_table_is_restored(void **state)
{
    struct core *core = table_new(1);
    char *result = calloc(1, CORE_RESULT_MAX);
    struct core_command finish = {.op = CORE_FINISH,
                                  .flags = CORE_ONCE,
                                  .name = text(KEY),
                                  .lease = text("L"),
                                  .token = 1,
                                  .keep_ms = 1000,
                                  .result = {result, CORE_RESULT_MAX}};
    struct core_command claim = {.op = CORE_ACQUIRE,
                                 .flags = CORE_ONCE,
                                 .name = text(KEY),
                                 .lease = text("L"),
                                 .ttl_ms = 1000};
    struct core_lock_view view;

    (void)state;
    assert_non_null(result);
    memset(result, 'r', CORE_RESULT_MAX);
    table_do(core, &claim, NULL);
    table_do(core, &finish, NULL);
    for (int i = 0; i < 5000; i++) {
        char name[32];

        snprintf(name, sizeof name, "name %d", i);
        table_hold(core, name, name, 1000);
    }
    core = table_reborn(core, 2);
    assert_true(core_find(core, text(KEY), true, &view));
    assert_true(view.done && view.result_token == 1 && view.result_left_ms == 1000);
    assert_int_equal(CORE_RESULT_MAX, view.result.size);
    assert_memory_equal(result, view.result.bytes, CORE_RESULT_MAX);
    core = table_reborn(core, 3);
    table_pass(core, 1000);
    table_pass(core, 0);
    assert_false(core_find(core, text(KEY), true, &view));
    table_check(core);
    core_free(core);
    free(result);
}

static void refuses(struct core *core, const unsigned char *bytes, size_t size)
{
    struct error_text err = {""};
    uint64_t before = core_hash(core);

    assert_int_equal(HF_EREFUSED, core_restore(core, bytes, size, &err));
    assert_true(strstr(err.text, "snapshot") != NULL);
    assert_true(before == core_hash(core));
}

static void a_damaged_snapshot_is_refused(void **state)
{
    struct core *core = rich_table(1), *other = table_new(2);
    size_t size = 0;
    unsigned char *bytes = snapshot_whole(core, &size);

    (void)state;
    table_hold(other, "of its own", "L", 1000);
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *short_of = malloc(cut + 1);

        assert_non_null(short_of);
        memcpy(short_of, bytes, cut);
        refuses(other, short_of, cut);
        free(short_of);
    }
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (unsigned char)(1 << bit);
            refuses(other, bytes, size);
            bytes[at] ^= (unsigned char)(1 << bit);
        }
    }
    table_check(other);
    assert_int_equal(HF_OK, core_restore(other, bytes, size, NULL));
    assert_true(core_hash(core) == core_hash(other));
    free(bytes);
    core_free(core);
    core_free(other);
}

struct owners {
    char ids[16];
    int count;
};

/* The leases of the table have one letter, but for one. */
static bool nobody_twice(void *context, const struct core_claim_view *view)
{
    struct owners *owners = context;

    if (view->lease.size != 1)
        return true;
    assert_true(owners->count < (int)sizeof owners->ids);
    for (int i = 0; i < owners->count; i++)
        assert_int_not_equal(owners->ids[i], view->lease.bytes[0]);
    owners->ids[owners->count++] = view->lease.bytes[0];
    return true;
}

/* As core_check, which may look at invariants only. */
static void table_check_all(struct core *core)
{
    static const char *const names[] = {"a", "b", "r", "p"};

    table_check(core);
    for (size_t i = 0; i < COUNT(names); i++) {
        struct owners owners = {{0}, 0};

        core_each_hold(core, text(names[i]), false, nobody_twice, &owners);
        core_each_place(core, text(names[i]), false, nobody_twice, &owners);
    }
}

/* Each byte of the content is tried with some values, and a right checksum, as somebody who means
 * harm would send it: refused, or sound. */
static void try_flips(struct core *core, unsigned *taken, unsigned *refused)
{
    static const unsigned char flips[] = {1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xff, 0x7f};
    struct core *other = table_new(2);
    size_t size = 0, inside;
    unsigned char *bytes = snapshot_whole(core, &size);

    inside = size - SNAPSHOT_SUM_SIZE;
    for (size_t at = SNAPSHOT_MAGIC_SIZE; at < inside; at++) {
        for (size_t i = 0; i < COUNT(flips); i++) {
            uint64_t sum;

            bytes[at] ^= flips[i];
            sum = snapshot_sum(0, bytes, inside);
            memcpy(bytes + inside, &sum, sizeof sum);
            if (core_restore(other, bytes, size, NULL) == HF_OK) {
                table_check_all(other);
                table_pass(other, 1000);
                table_check(other);
                ++*taken;
            } else {
                ++*refused;
            }
            bytes[at] ^= flips[i];
        }
    }
    free(bytes);
    core_free(other);
}

static void a_wrong_snapshot_with_a_right_checksum_does_no_harm(void **state)
{
    static const struct core_command end = {.op = CORE_END, .lease = {"L", 1}, .ttl_ms = 1000};
    struct core *rich = rich_table(1), *poor = table_new(1);
    unsigned taken = 0, refused = 0;

    (void)state;
    try_flips(rich, &taken, &refused);
    assert_true(taken > 100 && refused > 100);
    table_do(poor, &end, NULL); /* a text near the end: behind it is nothing that one could read */
    try_flips(poor, &taken, &refused);
    core_free(rich);
    core_free(poor);
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* asan says if anything is left. */
static void a_table_may_be_freed_at_any_time(void **state)
{
    struct core *core = rich_table(1);

    (void)state;
    core_snapshot_begin(core);
    core_snapshot_step(core, 0);
    core_free(core);
    core = rich_table(1);
    core_snapshot_begin(core);
    core_snapshot_step(core, SIZE_MAX / 2);
    core_free(core);
    core_free(rich_table(3));
    core_free(table_new(0));
    core_free(NULL);
}

static void memory_is_given_back(void **state)
{
    struct core *core = table_new(1);
    const struct slab *slabs[] = {&core->leases, &core->locks, &core->claims, &core->texts[1]};

    (void)state;
    for (uint32_t i = 0; i < 3000; i++) {
        char name[HF_NAME_MAX + 1], lease[32];
        struct core_command command = {.op = CORE_ACQUIRE,
                                       .flags = i % 2 ? CORE_ONCE : 0,
                                       .lease = {lease, 0},
                                       .ttl_ms = 100,
                                       .delay_ms = i % 3 ? 0 : 100,
                                       .owner = {name, i % (HF_OWNER_MAX + 1)}};

        /* Names of all sizes; leases of one, which is in the second class of texts. */
        snprintf(name, sizeof name, "%0*u", (int)(5 + i % (HF_NAME_MAX - 4)), i);
        command.name = text(name);
        command.lease.size = (size_t)snprintf(lease, sizeof lease, "lease %u", 1000 + i);
        table_do(core, &command, NULL);
    }
    for (size_t i = 0; i < COUNT(slabs); i++)
        assert_true(slabs[i]->page[2] != NULL);
    for (size_t i = 0; i < TEXT_CLASSES; i++)
        assert_true(core->texts[i].used > 0);
    for (int i = 0; i < 4; i++)
        table_pass(core, 100);
    for (size_t i = 0; i < COUNT(slabs); i++) {
        assert_int_equal(0, slabs[i]->used);
        assert_true(slabs[i]->page[1] == NULL && slabs[i]->page[2] == NULL);
    }
    for (size_t i = 0; i < TEXT_CLASSES; i++)
        assert_int_equal(0, core->texts[i].used);
    assert_int_equal(0, core->timers.count);
    table_check(core);
    core_free(core);
}

/* ---- looking ---------------------------------------------------------------------------------- */

#define LISTED 3000

struct listing {
    unsigned char met[LISTED];
    uint32_t count;
    uint32_t stop_after; /* 0: never */
};

static bool meet(void *context, const struct core_lock_view *view)
{
    struct listing *listing = context;
    char name[32];

    snprintf(name, sizeof name, "%.*s", (int)view->name.size, view->name.bytes);
    if (strncmp(name, "name ", 5) == 0) {
        int number = 0;

        for (const char *digit = name + 5; *digit; digit++)
            number = number * 10 + (*digit - '0');
        assert_in_range(number, 0, LISTED - 1);
        listing->met[number]++;
    }
    assert_int_equal(1, view->holds);
    return ++listing->count != listing->stop_after;
}

static void a_name_is_listed_exactly_once(void **state)
{
    struct core *core = table_new(1);
    struct listing listing = {{0}, 0, 0};
    uint32_t cursor = 0;
    int pages = 0;

    (void)state;
    for (int i = 0; i < LISTED; i++) {
        char name[32];

        snprintf(name, sizeof name, "name %d", i);
        table_hold(core, name, name, i % 2 ? 86400000 : 100);
    }
    do {
        char name[32];

        cursor = core_list(core, cursor, 10, meet, &listing);
        /* Others come and go. */
        snprintf(name, sizeof name, "other %d", pages++);
        table_hold(core, name, name, 100 + (uint32_t)pages);
        if (pages == 50)
            table_pass(core, 100);
    } while (cursor != 0);
    assert_true(pages > 100);
    for (int i = 0; i < LISTED; i++)
        if (i % 2)
            assert_int_equal(1, listing.met[i]);
        else
            assert_in_range(listing.met[i], 0, 1);
    /* It stops where it is told to, and goes on from there. */
    memset(&listing, 0, sizeof listing);
    listing.stop_after = 5;
    cursor = core_list(core, 0, 1000, meet, &listing);
    assert_int_equal(5, listing.count);
    listing.stop_after = 0;
    while (cursor != 0)
        cursor = core_list(core, cursor, 1000000, meet, &listing);
    assert_int_equal(core->locks.used, listing.count);
    core_free(core);
}

static bool stop_at_once(void *context, const struct core_claim_view *view)
{
    (void)view;
    ++*(int *)context;
    return false;
}

static void looking_can_be_stopped(void **state)
{
    struct core *core = rich_table(1);
    int met = 0;

    (void)state;
    core_each_place(core, text("a"), false, stop_at_once, &met);
    assert_int_equal(1, met);
    core_each_hold(core, text("r"), false, stop_at_once, &met);
    assert_int_equal(2, met);
    core_each_hold(core, text("nobody"), false, stop_at_once, &met);
    core_each_hold(core, text("a"), true, stop_at_once, &met);
    assert_int_equal(2, met);
    core_free(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_tables_have_equal_snapshots),
        cmocka_unit_test(each_difference_is_another_hash),
        cmocka_unit_test(a_snapshot_in_steps_is_of_its_beginning),
        cmocka_unit_test(a_thousand_snapshots_are_like_the_first),
        cmocka_unit_test(snapshots_that_are_given_up_leave_nothing_out),
        cmocka_unit_test(a_large_table_is_restored),
        cmocka_unit_test(a_damaged_snapshot_is_refused),
        cmocka_unit_test(a_wrong_snapshot_with_a_right_checksum_does_no_harm),
        cmocka_unit_test(a_table_may_be_freed_at_any_time),
        cmocka_unit_test(memory_is_given_back),
        cmocka_unit_test(a_name_is_listed_exactly_once),
        cmocka_unit_test(looking_can_be_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
