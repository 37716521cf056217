/* test_timers.c: deadlines end in the order of their time, kind and slot, whatever was set, moved and cleared
 * before; and the moments that they share are what timers.h says. */
#include "timed.h"

/* ---- against a list --------------------------------------------------------------------------- */

#define TIMED 700u

/* The first of all, by looking at every one. */
static uint32_t least(int64_t *ret_deadline)
{
    uint32_t first = TIMER_NONE;

    *ret_deadline = INT64_MAX;
    for (uint32_t kind = TIMER_LEASE; kind <= TIMER_LOCK; kind++) {
        for (uint32_t number = 0; number < TIMED; number++) {
            int64_t deadline = deadlines[kind][number];

            if (deadline >= 0 && deadline < *ret_deadline) {
                *ret_deadline = deadline;
                first = what((enum timer_kind)kind, number);
            }
        }
    }
    return first;
}

/* The first is due when its time has come, and not before. */
static uint32_t compare_first(struct timers *timers)
{
    int64_t deadline;
    uint32_t first = least(&deadline);

    assert_int_equal(first ? deadline : -1, timers_next_ms(timers));
    assert_int_equal(TIMER_NONE, timers_due(timers, first ? deadline - 1 : INT64_MAX));
    if (!first)
        return TIMER_NONE;
    assert_int_equal(first, timers_due(timers, deadline));
    assert_int_equal(first, timers_due(timers, INT64_MAX));
    assert_int_equal(first, timers_ahead(timers, 0));
    return first;
}

static void end_first(struct timers *timers)
{
    uint32_t first = compare_first(timers);

    if (first)
        clear(timers, timer_kind(first), timer_slot(first) / STRIDE);
}

/* One change: mostly to set, or mostly to clear and to end. */
static void change(struct timers *timers, uint64_t *seed, bool filling, uint32_t times)
{
    enum timer_kind kind = (enum timer_kind)(1 + below(seed, KINDS));
    uint32_t number = below(seed, TIMED), dice = below(seed, 100);

    if (dice < (filling ? 80u : 20u))
        set(timers, kind, number, below(seed, times));
    else if (dice < (filling ? 90u : 70u))
        clear(timers, kind, number);
    else
        end_first(timers);
}

/* With few values, so that many are equal; and with many, so that there are many moments. */
static void random_changes(uint32_t times, uint64_t seed)
{
    struct timers both[2], *timers = &both[0];

    timed_begin(timers);
    for (int round = 0; round < (SLOW ? 12000 : 30000); round++) {
        change(timers, &seed, round / 4000 % 2 == 0, times); /* it fills, and empties again */
        if (round % 8 == 0)
            compare_first(timers);
        if (round % 500 == 0)
            verify(timers);
        if (round % 3000 == 2999) {
            struct timers *other = timers == &both[0] ? &both[1] : &both[0];

            timed_move(timers, other);
            timers = other;
        }
    }
    while (open_deadlines > 0)
        end_first(timers);
    assert_in_range(timers->capacity, 1, 64); /* it gave its memory back */
    finish_empty(timers);
}

static void deadlines_end_in_order(void **state)
{
    (void)state;
    random_changes(300, 3);
    random_changes(4, 4);
    random_changes(100000, 5);
}

/* ---- moments ---------------------------------------------------------------------------------- */

static void equal_deadlines_end_by_kind_and_slot(void **state)
{
    static const struct {
        enum timer_kind kind;
        uint32_t number;
    } order[] = {{TIMER_LEASE, 2}, {TIMER_LEASE, 9}, {TIMER_CLAIM, 0},
                 {TIMER_CLAIM, 5}, {TIMER_LOCK, 1},  {TIMER_LOCK, 3}};
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (size_t i = 0; i < COUNT(order); i++) {
        size_t mixed = i * 5 % COUNT(order);

        set(&timers, order[mixed].kind, order[mixed].number, 1000);
    }
    for (size_t i = 0; i < COUNT(order); i++) {
        ends(&timers, 1000, order[i].kind, order[i].number);
        clear(&timers, order[i].kind, order[i].number); /* harmless */
    }
    finish_empty(&timers);
}

/* So many end at once, in order, and are put in order only once. */
static void many_at_once(uint32_t count)
{
    struct timers timers;
    const struct moment *moment;
    uint32_t before = 0;

    timed_begin(&timers);
    for (uint32_t i = 0; i < count; i++) {
        /* A prime, so that each is met once. */
        uint32_t mixed = (uint32_t)((uint64_t)i * 7919 % count);

        set(&timers, (enum timer_kind)(1 + mixed % KINDS), RECORDS - 1 - mixed / KINDS, 1000);
    }
    verify(&timers);
    moment = moment_of(&timers, TIMER_LEASE, RECORDS - 1);
    assert_true(moment->unordered);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = timers_due(&timers, 1000);

        assert_true(first > before);
        before = first;
        if (i == 0) {
            assert_false(moment->unordered);
            assert_int_equal(2 * count > SCRATCH_KEPT, !timers.scratch);
            verify(&timers);
        }
        clear(&timers, timer_kind(first), timer_slot(first) / STRIDE);
    }
    finish_empty(&timers);
}

static void many_that_end_at_once_end_in_order(void **state)
{
    static const uint32_t counts[] = {3,  4,  15,  16,    17,    46,    47,
                                      48, 49, 300, 70000, 32768, 32769, KINDS * RECORDS};

    (void)state;
    for (size_t i = 0; i < COUNT(counts); i++)
        many_at_once(counts[i]);
}

/* Around the number from which on another way to put them in order is taken. The slots differ in the lower two bytes,
 * in the upper two, or in all three: a byte in which all are the same is left out. */
static void bytes_that_do_not_differ_are_left_out(void **state)
{
    static const uint32_t steps[] = {1, 256, 563};
    struct timers timers;

    (void)state;
    for (size_t i = 0; i < COUNT(steps); i++) {
        for (uint32_t count = 40; count < 53; count++) {
            timed_begin(&timers);
            for (uint32_t j = count; j > 0; j--)
                set(&timers, TIMER_CLAIM, j * steps[i], 7);
            for (uint32_t j = 1; j <= count; j++)
                ends(&timers, 7, TIMER_CLAIM, j * steps[i]);
            finish_empty(&timers);
        }
    }
}

/* What was set in order needs not be put in order. */
static void what_comes_in_order_stays(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 0; i < 100; i++)
        set(&timers, TIMER_LEASE, i, 5);
    clear(&timers, TIMER_LEASE, 50);
    for (uint32_t i = 0; i < 100; i++)
        set(&timers, TIMER_LOCK, i, 5);
    clear(&timers, TIMER_LEASE, 0);
    for (uint32_t i = 1; i < 100; i++)
        if (i != 50)
            ends(&timers, 5, TIMER_LEASE, i);
    for (uint32_t i = 0; i < 100; i++)
        ends(&timers, 5, TIMER_LOCK, i);
    assert_null(timers.scratch);
    finish_empty(&timers);
}

static void the_third_of_a_moment_needs_an_array(void **state)
{
    struct timers timers;

    (void)state;
    for (int gap = 0; gap < 2; gap++) {
        timed_begin(&timers);
        set(&timers, TIMER_LEASE, 3, 5);
        set(&timers, TIMER_LOCK, 2, 5);
        assert_int_equal(0, moment_of(&timers, TIMER_LOCK, 2)->capacity);
        verify(&timers);
        if (gap)
            clear(&timers, TIMER_LEASE, 3);
        set(&timers, TIMER_CLAIM, 1, 5);
        verify(&timers);
        assert_int_not_equal(0, moment_of(&timers, TIMER_LOCK, 2)->capacity);
        if (!gap)
            ends(&timers, 5, TIMER_LEASE, 3);
        ends(&timers, 5, TIMER_CLAIM, 1);
        ends(&timers, 5, TIMER_LOCK, 2);
        finish_empty(&timers);
    }
}

/* A full list of 16, of which so many are gaps; then comes another. */
static struct moment *full_with_gaps(struct timers *timers, uint32_t gaps)
{
    struct moment *moment;

    timed_begin(timers);
    for (uint32_t i = 0; i < 16; i++)
        set(timers, TIMER_CLAIM, i, 5);
    moment = moment_of(timers, TIMER_CLAIM, 15);
    assert_int_equal(16, moment->capacity);
    assert_int_equal(16, moment->count);
    for (uint32_t i = 0; i < gaps; i++)
        clear(timers, TIMER_CLAIM, 2 * i);
    assert_int_equal(16, moment->count);
    set(timers, TIMER_LEASE, 77, 5);
    verify(timers);
    return moment;
}

static void gaps_are_closed_when_they_are_half(void **state)
{
    struct timers timers;
    struct moment *moment = full_with_gaps(&timers, 8);

    (void)state;
    assert_int_equal(16, moment->capacity);
    assert_int_equal(9, moment->count);
    ends(&timers, 5, TIMER_LEASE, 77);
    for (uint32_t i = 1; i < 16; i += 2)
        ends(&timers, 5, TIMER_CLAIM, i);
    finish_empty(&timers);
    moment = full_with_gaps(&timers, 7);
    assert_int_equal(32, moment->capacity);
    assert_int_equal(17, moment->count);
    ends(&timers, 5, TIMER_LEASE, 77);
    finish(&timers);
}

/* Cleared and set for the same time again and again, beside another: the list does not grow for ever. */
static void gaps_do_not_add_up(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    set(&timers, TIMER_LOCK, 1, 5);
    for (uint32_t i = 0; i < 1000; i++) {
        set(&timers, TIMER_CLAIM, 9, 5);
        clear(&timers, TIMER_CLAIM, 9);
    }
    assert_int_equal(16, moment_of(&timers, TIMER_LOCK, 1)->capacity);
    ends(&timers, 5, TIMER_LOCK, 1);
    finish_empty(&timers);
}

/* To put so many in order takes more scratch than is kept. */
static void much_scratch_is_given_back(void **state)
{
    struct timers timers;
    const struct moment *moment;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 0; i < KINDS * RECORDS; i++)
        set(&timers, (enum timer_kind)(1 + i / RECORDS), i % RECORDS, 5);
    moment = moment_of(&timers, TIMER_LEASE, 0);
    for (uint32_t i = 0; moment->count < 4 * SCRATCH_KEPT; i++) {
        clear(&timers, TIMER_CLAIM, i % RECORDS);
        set(&timers, TIMER_CLAIM, i % RECORDS, 5);
    }
    assert_int_equal(4 * SCRATCH_KEPT, moment->capacity);
    clear(&timers, TIMER_CLAIM, 0);
    set(&timers, TIMER_CLAIM, 0, 5);
    assert_int_equal(4 * SCRATCH_KEPT, moment->capacity);
    assert_int_equal(KINDS * RECORDS, moment->count);
    assert_int_equal(what(TIMER_LEASE, 0), timers_due(&timers, 5));
    assert_null(timers.scratch);
    finish(&timers);
}

/* As when leases are renewed: what stays does not keep the memory of those that went elsewhere. */
static void what_stays_needs_little_room(void **state)
{
    struct timers timers;
    struct moment *moment;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 0; i < 1000; i++)
        set(&timers, TIMER_LEASE, 999 - i, 5);
    moment = moment_of(&timers, TIMER_LEASE, 0);
    assert_int_equal(1024, moment->capacity);
    for (uint32_t i = 0; i < 872; i++)
        set(&timers, TIMER_LEASE, i, 6);
    assert_int_equal(1024, moment->capacity); /* an eighth is in use */
    set(&timers, TIMER_LEASE, 872, 6);
    assert_int_equal(256, moment->capacity);
    assert_int_equal(127, moment->count);
    verify(&timers);
    for (uint32_t i = 873; i < 999; i++)
        set(&timers, TIMER_LEASE, i, 6);
    assert_int_equal(16, moment->capacity);
    ends(&timers, 6, TIMER_LEASE, 999);
    for (uint32_t i = 0; i < 999; i++)
        ends(&timers, 6, TIMER_LEASE, i);
    finish_empty(&timers);
}

static void a_moment_is_gone_with_its_last_deadline(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t count = round < 2 ? round + 1 : 20; /* with an array, and without */

        for (uint32_t i = 0; i < count; i++)
            set(&timers, TIMER_LEASE, i, 100);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(1, timers.count);
            assert_int_equal(100, timers_next_ms(&timers));
            clear(&timers, TIMER_LEASE, i);
        }
        assert_int_equal(0, timers.count);
        assert_int_equal(0, timers.moments.used);
        assert_int_equal(0, timers.index.count);
        assert_int_equal(-1, timers_next_ms(&timers));
    }
    finish_empty(&timers);
}

/* The one that was used last goes: whoever is next for that time, or in its slot, does not take it for the same. */
static void a_moment_that_is_gone_is_not_used(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    set(&timers, TIMER_LEASE, 1, 100);
    clear(&timers, TIMER_LEASE, 1);
    set(&timers, TIMER_LEASE, 2, 100);
    verify(&timers);
    clear(&timers, TIMER_LEASE, 2);
    set(&timers, TIMER_LEASE, 3, 200); /* in the slot that was for 100 */
    assert_int_equal(1, timed.timers[TIMER_LEASE][3].moment);
    set(&timers, TIMER_LEASE, 4, 100);
    verify(&timers);
    /* Another goes than the one that was used last, which is still known. */
    clear(&timers, TIMER_LEASE, 3);
    assert_int_equal(timed.timers[TIMER_LEASE][4].moment, timers.recent);
    set(&timers, TIMER_LEASE, 5, 100);
    assert_ptr_equal(moment_of(&timers, TIMER_LEASE, 4), moment_of(&timers, TIMER_LEASE, 5));
    set(&timers, TIMER_LEASE, 5, 300); /* moved: from the last one to one in a slot that is free */
    verify(&timers);
    ends(&timers, 300, TIMER_LEASE, 4);
    ends(&timers, 300, TIMER_LEASE, 5);
    finish_empty(&timers);
}

/* It moves to the time that it had, and nothing else was there: the moment goes, and comes again. */
static void a_deadline_moves_there_and_back(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 0; i < 10; i++) {
        set(&timers, TIMER_LOCK, 0, i % 2 ? 100 : 200);
        verify(&timers);
        assert_int_equal(1, timers.count);
        assert_int_equal(i % 2 ? 100 : 200, timers_next_ms(&timers));
    }
    set(&timers, TIMER_LEASE, 0, 200);
    set(&timers, TIMER_LEASE, 0, 100); /* to a moment that is there */
    assert_int_equal(1, timers.count);
    ends(&timers, 100, TIMER_LEASE, 0);
    ends(&timers, 100, TIMER_LOCK, 0);
    finish_empty(&timers);
}

/* Beside many that come later or earlier, so that the moment is found again when it was not used last. */
static void what_ends_together_shares_a_moment(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 0; i < 6000; i++)
        set(&timers, (enum timer_kind)(1 + i / 2000), i % 2000, 7000 - i % 2000);
    assert_int_equal(2000, timers.count);
    verify(&timers);
    for (uint32_t i = 2000; i-- > 0;) {
        ends(&timers, 7000, TIMER_LEASE, i);
        ends(&timers, 7000, TIMER_CLAIM, i);
        ends(&timers, 7000, TIMER_LOCK, i);
    }
    finish_empty(&timers);
}

/* Two times may have the same hash: here the first gets that of the second. */
static void moments_with_one_hash_are_not_confused(void **state)
{
    struct timers timers;
    const struct moment *second;
    uint32_t hash;

    (void)state;
    timed_begin(&timers);
    set(&timers, TIMER_LEASE, 1, 100);
    set(&timers, TIMER_LEASE, 2, 200);
    hash = moment_of(&timers, TIMER_LEASE, 2)->link.hash;
    clear(&timers, TIMER_LEASE, 2);
    index_remove(&timers.index, timed.timers[TIMER_LEASE][1].moment - 1);
    index_add(&timers.index, timed.timers[TIMER_LEASE][1].moment - 1, hash);
    set(&timers, TIMER_LEASE, 2, 200);
    second = moment_of(&timers, TIMER_LEASE, 2);
    assert_int_equal(hash, second->link.hash);
    assert_ptr_not_equal(second, moment_of(&timers, TIMER_LEASE, 1));
    set(&timers, TIMER_LEASE, 3, 300); /* so that neither was used last */
    set(&timers, TIMER_LEASE, 4, 200);
    assert_ptr_equal(second, moment_of(&timers, TIMER_LEASE, 4));
    ends(&timers, 300, TIMER_LEASE, 1);
    ends(&timers, 300, TIMER_LEASE, 2);
    ends(&timers, 300, TIMER_LEASE, 4);
    ends(&timers, 300, TIMER_LEASE, 3);
    finish_empty(&timers);
}

/* Whoever chooses deadlines cannot make them collide without knowing the seed. */
static void the_seed_matters_to_the_hash(void **state)
{
    static const unsigned char seeds[2][16] = {"one", "another"};
    uint32_t hashes[2];

    (void)state;
    for (size_t i = 0; i < COUNT(seeds); i++) {
        struct timers timers;

        timed_begin_with(&timers, seeds[i]);
        set(&timers, TIMER_LEASE, 1, 100);
        hashes[i] = moment_of(&timers, TIMER_LEASE, 1)->link.hash;
        finish(&timers);
    }
    assert_int_not_equal(hashes[0], hashes[1]);
}

static void to_set_the_same_again_does_nothing(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 0; i < 5; i++)
        set(&timers, TIMER_CLAIM, i, 100);
    for (uint32_t i = 0; i < 5; i++) {
        set(&timers, TIMER_CLAIM, i, 100);
        assert_int_equal(i, timed.timers[TIMER_CLAIM][i].at);
    }
    assert_int_equal(5, moment_of(&timers, TIMER_CLAIM, 0)->count);
    assert_false(moment_of(&timers, TIMER_CLAIM, 0)->unordered);
    finish(&timers);
}

/* ---- what is due ------------------------------------------------------------------------------ */

static void what_is_ahead_can_be_seen(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 6; i-- > 0;)
        set(&timers, TIMER_LEASE, i, 100);
    set(&timers, TIMER_LEASE, 9, 101); /* in another moment: never ahead */
    assert_int_equal(what(TIMER_LEASE, 0), timers_due(&timers, 200));
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(what(TIMER_LEASE, i), timers_ahead(&timers, i));
    assert_int_equal(TIMER_NONE, timers_ahead(&timers, 6));
    assert_int_equal(TIMER_NONE, timers_ahead(&timers, 16));
    assert_int_equal(TIMER_NONE, timers_ahead(&timers, UINT32_MAX));
    clear(&timers, TIMER_LEASE, 3);
    assert_int_equal(TIMER_NONE, timers_ahead(&timers, 3));
    assert_int_equal(what(TIMER_LEASE, 4), timers_ahead(&timers, 4));
    ends(&timers, 200, TIMER_LEASE, 0);
    ends(&timers, 200, TIMER_LEASE, 1);
    /* From the first on that is left. */
    assert_int_equal(what(TIMER_LEASE, 2), timers_due(&timers, 200));
    assert_int_equal(what(TIMER_LEASE, 2), timers_ahead(&timers, 0));
    assert_int_equal(TIMER_NONE, timers_ahead(&timers, 1));
    assert_int_equal(what(TIMER_LEASE, 5), timers_ahead(&timers, 3));
    assert_int_equal(TIMER_NONE, timers_ahead(&timers, 4));
    assert_int_equal(TIMER_NONE, timers_ahead(&timers, UINT32_MAX - 1));
    finish(&timers);
}

/* Some have ended, and others of the same time come: they take their turn among those that are left. */
static void what_is_added_late_takes_its_turn(void **state)
{
    static const uint32_t counts[] = {3, 16, 100};
    struct timers timers;

    (void)state;
    for (size_t i = 0; i < COUNT(counts); i++) {
        uint32_t last = 10 * counts[i];

        timed_begin(&timers);
        for (uint32_t j = counts[i]; j > 0; j--)
            set(&timers, TIMER_CLAIM, 10 * j, 50);
        ends(&timers, 50, TIMER_CLAIM, 10);
        ends(&timers, 50, TIMER_CLAIM, 20);
        set(&timers, TIMER_LOCK, 0, 50);      /* last of all */
        set(&timers, TIMER_CLAIM, 15, 50);    /* next, though what was before it has ended */
        set(&timers, TIMER_CLAIM, last, 900); /* moves away, and comes back */
        set(&timers, TIMER_CLAIM, last, 50);
        ends(&timers, 50, TIMER_CLAIM, 15);
        set(&timers, TIMER_CLAIM, 10, 50); /* again */
        set(&timers, TIMER_LEASE, 5, 50);
        verify(&timers);
        ends(&timers, 50, TIMER_LEASE, 5);
        ends(&timers, 50, TIMER_CLAIM, 10);
        for (uint32_t j = 3; j <= counts[i]; j++)
            ends(&timers, 50, TIMER_CLAIM, 10 * j);
        ends(&timers, 50, TIMER_LOCK, 0);
        finish_empty(&timers);
    }
}

/* What is due before goes before, even if the other moment has been begun. */
static void an_earlier_moment_goes_first(void **state)
{
    struct timers timers;

    (void)state;
    timed_begin(&timers);
    for (uint32_t i = 5; i-- > 0;)
        set(&timers, TIMER_LEASE, i, 50);
    ends(&timers, 60, TIMER_LEASE, 0);
    set(&timers, TIMER_LOCK, 7, 49);
    assert_int_equal(TIMER_NONE, timers_due(&timers, 48));
    assert_int_equal(49, timers_next_ms(&timers));
    ends(&timers, 60, TIMER_LOCK, 7);
    assert_int_equal(TIMER_NONE, timers_due(&timers, 49));
    for (uint32_t i = 1; i < 5; i++)
        ends(&timers, 50, TIMER_LEASE, i);
    finish_empty(&timers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadlines_end_in_order),
        cmocka_unit_test(equal_deadlines_end_by_kind_and_slot),
        cmocka_unit_test(many_that_end_at_once_end_in_order),
        cmocka_unit_test(bytes_that_do_not_differ_are_left_out),
        cmocka_unit_test(what_comes_in_order_stays),
        cmocka_unit_test(the_third_of_a_moment_needs_an_array),
        cmocka_unit_test(gaps_are_closed_when_they_are_half),
        cmocka_unit_test(gaps_do_not_add_up),
        cmocka_unit_test(much_scratch_is_given_back),
        cmocka_unit_test(what_stays_needs_little_room),
        cmocka_unit_test(a_moment_is_gone_with_its_last_deadline),
        cmocka_unit_test(a_moment_that_is_gone_is_not_used),
        cmocka_unit_test(a_deadline_moves_there_and_back),
        cmocka_unit_test(what_ends_together_shares_a_moment),
        cmocka_unit_test(moments_with_one_hash_are_not_confused),
        cmocka_unit_test(the_seed_matters_to_the_hash),
        cmocka_unit_test(to_set_the_same_again_does_nothing),
        cmocka_unit_test(what_is_ahead_can_be_seen),
        cmocka_unit_test(what_is_added_late_takes_its_turn),
        cmocka_unit_test(an_earlier_moment_goes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
