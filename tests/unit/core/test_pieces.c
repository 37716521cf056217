/* test_pieces.c: what the table is built of: slabs and the index. The timers have
 * a file of their own, test_timers.c. */
#include "core/index.h"
#include "core/slab.h"
#include "tools.h"

/* ---- slabs ------------------------------------------------------------------------------------ */

#define SLOTS (5 * SLAB_PAGE_SLOTS)

struct item {
    struct index_link link;
    uint32_t key;
    uint32_t timer;
};

/* The slots in use are exactly those of the list. */
static void compare_slab(const struct slab *slab, const bool *used, uint32_t count)
{
    uint32_t slot = slab_next(slab, 0), total = 0;

    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(used[i], slab_is_used(slab, i));
        if (!used[i])
            continue;
        assert_int_equal(i, slot);
        slot = slab_next(slab, slot + 1);
        total++;
    }
    assert_int_equal(SLAB_NONE, slot);
    assert_int_equal(total, slab->used);
}

static uint32_t lowest_free(const bool *used)
{
    uint32_t slot = 0;

    while (used[slot])
        slot++;
    return slot;
}

static void the_lowest_free_slot_is_taken_first(void **state)
{
    static bool used[SLOTS + 1];
    uint64_t seed = 5;
    struct slab slab;

    (void)state;
    slab_init(&slab, sizeof(struct item));
    for (int round = 0; round < 60000; round++) {
        /* It fills up, and empties, and fills up again. */
        bool take = below(&seed, 100) < (round / 10000 % 2 ? 30u : 70u);
        uint32_t slot = below(&seed, SLOTS);

        if (take && slab.used < SLOTS) {
            struct item *item;

            slot = slab_take(&slab);
            assert_int_equal(lowest_free(used), slot);
            item = slab_at(&slab, slot);
            assert_true(item->key == 0 && item->timer == 0);
            item->key = slot + 1;
            item->timer = 77;
            used[slot] = true;
        } else if (used[slot]) {
            assert_int_equal(slot + 1, ((struct item *)slab_at(&slab, slot))->key);
            slab_give(&slab, slot);
            used[slot] = false;
        }
        if (round % 1000 == 0)
            compare_slab(&slab, used, SLOTS);
    }
    slab_free(&slab);
}

static void empty_pages_are_given_back(void **state)
{
    struct slab slab;
    const void *first, *last;

    (void)state;
    slab_init(&slab, 100);
    for (uint32_t i = 0; i < 4 * SLAB_PAGE_SLOTS; i++)
        assert_int_equal(i, slab_take(&slab));
    first = slab_at(&slab, 0);
    last = slab_at(&slab, 4 * SLAB_PAGE_SLOTS - 1);
    for (uint32_t i = SLAB_PAGE_SLOTS; i < 3 * SLAB_PAGE_SLOTS; i++)
        slab_give(&slab, i);
    assert_true(slab.page[0] && !slab.page[1] && !slab.page[2] && slab.page[3]);
    assert_int_equal(3 * SLAB_PAGE_SLOTS, slab_next(&slab, SLAB_PAGE_SLOTS));
    assert_false(slab_is_used(&slab, SLAB_PAGE_SLOTS));
    assert_int_equal(SLAB_PAGE_SLOTS, slab_take(&slab));
    assert_true(slab.page[1] && !slab.page[2]);
    /* Records never move. */
    assert_ptr_equal(first, slab_at(&slab, 0));
    assert_ptr_equal(last, slab_at(&slab, 4 * SLAB_PAGE_SLOTS - 1));
    /* The first page stays. */
    for (uint32_t i = 0; i < 4 * SLAB_PAGE_SLOTS; i++)
        if (slab_is_used(&slab, i))
            slab_give(&slab, i);
    assert_int_equal(0, slab.used);
    assert_true(slab.page[0] && !slab.page[1] && !slab.page[3]);
    assert_int_equal(SLAB_NONE, slab_next(&slab, 0));
    assert_int_equal(0, slab_take(&slab));
    slab_free(&slab);
}

/* Beyond 64 words of 64, one more level of the tree of bits comes into use. */
static void many_pages_are_like_few(void **state)
{
    const uint32_t count = 70 * SLAB_PAGE_SLOTS;
    static const uint32_t holes[] = {69999, 4095, 4096, 65535, 65536, 65537, 1, 63, 64, 0};
    struct slab slab;

    (void)state;
    slab_init(&slab, 1);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(i, slab_take(&slab));
    for (size_t i = 0; i < COUNT(holes); i++) {
        slab_give(&slab, holes[i]);
        assert_int_equal(holes[i], slab_take(&slab));
    }
    for (size_t i = 0; i < COUNT(holes); i++)
        slab_give(&slab, holes[i]);
    assert_int_equal(0, slab_take(&slab));
    assert_int_equal(1, slab_take(&slab));
    assert_int_equal(63, slab_take(&slab));
    assert_int_equal(64, slab_take(&slab));
    assert_int_equal(4095, slab_take(&slab));
    assert_int_equal(4096, slab_take(&slab));
    assert_int_equal(65535, slab_take(&slab));
    assert_int_equal(65536, slab_take(&slab));
    assert_int_equal(65537, slab_take(&slab));
    assert_int_equal(69999, slab_take(&slab));
    assert_int_equal(count, slab_take(&slab));
    slab_free(&slab);
}

static void a_slot_can_be_asked_for(void **state)
{
    struct slab slab;

    (void)state;
    slab_init(&slab, 8);
    assert_true(slab_take_at(&slab, 100000));
    assert_false(slab_take_at(&slab, 100000));
    assert_true(slab_take_at(&slab, 1));
    assert_int_equal(2, slab.used);
    assert_int_equal(0, slab_take(&slab));
    assert_int_equal(2, slab_take(&slab));
    assert_int_equal(100000, slab_next(&slab, 3));
    assert_false(slab_is_used(&slab, SLAB_SLOTS_MAX));
    assert_true(slab_take_at(&slab, SLAB_SLOTS_MAX - 1));
    assert_int_equal(SLAB_SLOTS_MAX - 1, slab_next(&slab, 100001));
    assert_int_equal(SLAB_NONE, slab_next(&slab, SLAB_SLOTS_MAX));
    assert_int_equal(3, slab_take(&slab));
    slab_free(&slab);
}

/* ---- the index -------------------------------------------------------------------------------- */

#define RECORDS 20000u

struct indexed {
    struct slab slab;
    struct index index;
    uint32_t hashes[RECORDS]; /* of the slot of that number */
    bool in[RECORDS];
};

static void indexed_init(struct indexed *indexed)
{
    memset(indexed, 0, sizeof *indexed);
    slab_init(&indexed->slab, sizeof(struct item));
    index_init(&indexed->index, &indexed->slab);
    for (uint32_t i = 0; i < RECORDS; i++)
        assert_int_equal(i, slab_take(&indexed->slab));
}

static void indexed_free(struct indexed *indexed)
{
    index_free(&indexed->index);
    slab_free(&indexed->slab);
}

/* All records with this hash, each once, and no others. Is this slot among them? */
static bool finds(const struct indexed *indexed, uint32_t hash, uint32_t wanted)
{
    const struct index *index = &indexed->index;
    uint32_t met = 0, steps = 0;

    for (uint32_t i = index_first(index, hash); i != SLAB_NONE; i = index_next(index, i)) {
        assert_true(indexed->in[i] && indexed->hashes[i] == hash);
        met += i == wanted;
        assert_true(++steps <= index->count);
    }
    assert_in_range(met, 0, 1);
    return met == 1;
}

static void indexed_change(struct indexed *indexed, uint32_t slot)
{
    struct index *index = &indexed->index;
    const void *old = index->old.at;
    uint32_t moved = index->moved, capacity = index->cells.capacity;

    if (indexed->in[slot])
        index_remove(index, slot);
    else
        index_add(index, slot, indexed->hashes[slot]);
    indexed->in[slot] = !indexed->in[slot];
    /* Nobody pays for moving everything. */
    if (old && index->old.at == old)
        assert_in_range(index->moved, moved, moved + 8);
    if (index->cells.capacity != capacity && capacity > 1024)
        assert_true(index->old.at && index->moved <= 8);
    assert_true(index->count <= index->cells.capacity / 4 * 3);
}

static uint32_t random_hash(uint64_t *seed, uint32_t i, const uint32_t *hashes)
{
    uint32_t hash = (uint32_t)next_random(seed);

    if (i % 16 == 15)
        return hashes[i - 1]; /* some collide in full */
    if (i % 16 == 1)
        return hash & 0xffff0000u;              /* some in what says where they belong */
    return i % 16 == 2 ? hash | 0xffffu : hash; /* and some belong at the end of the array */
}

static void the_index_finds_what_is_in_it(void **state)
{
    static struct indexed indexed;
    uint64_t seed = 11;
    uint32_t most = 0;

    (void)state;
    indexed_init(&indexed);
    for (uint32_t i = 0; i < RECORDS; i++)
        indexed.hashes[i] = random_hash(&seed, i, indexed.hashes);
    /* It fills, and empties, and fills again, and all the while it finds what is in it. */
    for (int round = 0; round < 120000; round++) {
        uint32_t slot = below(&seed, RECORDS), other = below(&seed, RECORDS);
        bool filling = round / 20000 % 2 == 0;

        if (indexed.in[slot] != filling || below(&seed, 8) == 0)
            indexed_change(&indexed, slot);
        if (indexed.index.count > most)
            most = indexed.index.count;
        assert_int_equal(indexed.in[slot], finds(&indexed, indexed.hashes[slot], slot));
        assert_int_equal(indexed.in[other], finds(&indexed, indexed.hashes[other], other));
    }
    assert_true(most > RECORDS / 2);
    for (uint32_t i = 0; i < RECORDS; i++)
        assert_int_equal(indexed.in[i], finds(&indexed, indexed.hashes[i], i));
    indexed_free(&indexed);
}

static void the_index_gives_its_memory_back(void **state)
{
    static struct indexed indexed;
    uint64_t seed = 12;

    (void)state;
    indexed_init(&indexed);
    assert_int_equal(SLAB_NONE, index_first(&indexed.index, 0));
    for (uint32_t i = 0; i < RECORDS; i++) {
        indexed.hashes[i] = (uint32_t)next_random(&seed);
        indexed_change(&indexed, i);
        assert_true(indexed.index.cells.capacity <= 64 || indexed.index.cells.capacity <= 4 * i);
    }
    assert_int_equal(RECORDS, indexed.index.count);
    for (uint32_t i = 0; i < RECORDS; i++)
        indexed_change(&indexed, i);
    assert_int_equal(0, indexed.index.count);
    for (uint32_t i = 0; i < RECORDS; i++) { /* with use it shrinks to what it was */
        indexed_change(&indexed, i);
        assert_true(finds(&indexed, indexed.hashes[i], i));
        indexed_change(&indexed, i);
        assert_int_equal(SLAB_NONE, index_first(&indexed.index, indexed.hashes[i]));
    }
    assert_int_equal(64, indexed.index.cells.capacity);
    assert_null(indexed.index.old.at);
    indexed_free(&indexed);
}

static void records_with_one_hash_are_all_found(void **state)
{
    static struct indexed indexed;

    (void)state;
    indexed_init(&indexed);
    for (uint32_t i = 0; i < 1000; i++) {
        indexed.hashes[i] = 7;
        indexed_change(&indexed, i);
    }
    for (uint32_t i = 0; i < 1000; i += 2)
        indexed_change(&indexed, i);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(i % 2, finds(&indexed, 7, i));
    assert_int_equal(SLAB_NONE, index_first(&indexed.index, 8));
    indexed_free(&indexed);
}

/* SipHash-1-3 with a key of zeros, folded to 32 bits, as another implementation has it. */
static void the_hash_is_siphash(void **state)
{
    static const struct {
        size_t size;
        const char *bytes;
        uint32_t hash;
    } known[] = {{1, "a", 0xf8ef50c1},
                 {7, "abcdefg", 0xfdc1dfa8},
                 {8, "abcdefgh", 0x34f5b176},
                 {9, "abcdefghi", 0x29858246},
                 {15, "xxxxxxxxxxxxxxx", 0x924b353a},
                 {16, "xxxxxxxxxxxxxxxx", 0x1504ab6b},
                 {19, "nightly/backup:4472", 0xec510f77}};
    unsigned char key[16] = {0}, bytes[255];

    (void)state;
    for (size_t i = 0; i < COUNT(known); i++)
        assert_int_equal(known[i].hash, index_hash(key, known[i].bytes, known[i].size, 0));
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(0xba48e8c2, index_hash(key, bytes, 64, 0));
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(0xfcf4127d, index_hash(key, bytes, sizeof bytes, 0));
    /* Another kind, and another key, hash otherwise: each byte of it counts. */
    assert_int_not_equal(index_hash(key, "a", 1, 1), index_hash(key, "a", 1, 2));
    for (size_t i = 0; i < sizeof key; i++) {
        memset(key, 0, sizeof key);
        key[i] = 1;
        assert_int_not_equal(0xf8ef50c1, index_hash(key, "a", 1, 0));
    }
}

/* ---- claims of one lease ------------------------------------------------------------------------ */

#define MANY_NAMES 200

static uint32_t counted(const struct core *core, bool waiting)
{
    struct core_counts counts;

    core_count(core, &counts);
    return waiting ? counts.places : counts.holds;
}

static struct core_command of_many(char name[16], int number, const char *lease, enum core_op op)
{
    snprintf(name, 16, "n%d", number);
    return (struct core_command){.op = op,
                                 .flags = op == CORE_ACQUIRE ? CORE_WAITS : 0,
                                 .name = text(name),
                                 .lease = text(lease),
                                 .ttl_ms = 60000,
                                 .wait_ms = CORE_FOREVER};
}

static void take_many(struct core *core)
{
    char name[16];

    for (int i = 0; i < MANY_NAMES; i++) {
        struct core_command holds = of_many(name, i, "holder", CORE_ACQUIRE), waits;

        table_do(core, &holds, NULL);
        waits = of_many(name, i, "waiter", CORE_ACQUIRE);
        table_do(core, &waits, NULL);
        table_do(core, &waits, NULL); /* again: it has its place already */
        assert_int_equal(counted(core, true), i + 1);
        table_check(core);
    }
}

/* The one who waits gets each of them, and lets go of it too. */
static void let_many_go(struct core *core)
{
    bool gone[MANY_NAMES] = {false};
    uint64_t seed = 11;
    char name[16];

    for (int left = MANY_NAMES; left > 0; left--) {
        int i = (int)below(&seed, MANY_NAMES);
        struct core_command release;

        while (gone[i])
            i = (i + 1) % MANY_NAMES;
        gone[i] = true;
        release = of_many(name, i, "holder", CORE_RELEASE);
        table_do(core, &release, NULL);
        assert_int_equal(counted(core, true), left - 1);
        table_check(core);
        release = of_many(name, i, "waiter", CORE_RELEASE);
        table_do(core, &release, NULL);
        assert_int_equal(counted(core, false), left - 1);
        table_check(core);
    }
}

/* From a list to the index and back, in any order: core_check looks for every claim each time. */
static void a_lease_with_many_claims_finds_each_of_them(void **state)
{
    struct core *core = table_new(7);

    (void)state;
    for (int round = 0; round < 2; round++) {
        take_many(core);
        core = table_reborn(core, 8);
        table_check(core);
        let_many_go(core);
    }
    core_free(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_free_slot_is_taken_first),
        cmocka_unit_test(empty_pages_are_given_back),
        cmocka_unit_test(many_pages_are_like_few),
        cmocka_unit_test(a_slot_can_be_asked_for),
        cmocka_unit_test(the_index_finds_what_is_in_it),
        cmocka_unit_test(the_index_gives_its_memory_back),
        cmocka_unit_test(records_with_one_hash_are_all_found),
        cmocka_unit_test(the_hash_is_siphash),
        cmocka_unit_test(a_lease_with_many_claims_finds_each_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
