/* test_check.c: core_check sees every invariant of core.h that is broken, and names it. The other
 * tests, and restoring, rely on that. */
#include "core/inside.h"
#include "tools.h"

/* A table with claims of all kinds, whose slots are known. */
enum { EXCLUSIVE, SHARED, PERMITS, KEY }; /* locks */
enum {
    HOLDER,
    KEPT,
    WAITER,
    READER,
    PERMITTED
}; /* leases; each has its first claim in that slot */

static struct core *table(void)
{
    static const struct core_command commands[] = {
        {.op = CORE_ACQUIRE, .name = {"e", 1}, .lease = {"HOLDER", 6}, .ttl_ms = 5000},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS | CORE_KEPT,
         .name = {"e", 1},
         .lease = {"KEPT", 4},
         .ttl_ms = 5000,
         .wait_ms = CORE_FOREVER},
        {.op = CORE_ACQUIRE,
         .flags = CORE_WAITS,
         .name = {"e", 1},
         .lease = {"WAITER", 6},
         .ttl_ms = 5000,
         .wait_ms = 5000},
        {.op = CORE_ACQUIRE,
         .name = {"s", 1},
         .lease = {"READER", 6},
         .mode = HF_SHARED,
         .ttl_ms = 5000},
        {.op = CORE_ACQUIRE,
         .name = {"p", 1},
         .lease = {"PERMITTED", 9},
         .mode = HF_PERMIT,
         .permits = 2,
         .ttl_ms = 5000},
        {.op = CORE_ACQUIRE,
         .name = {"s", 1},
         .lease = {"PERMITTED", 9},
         .mode = HF_SHARED,
         .ttl_ms = 5000},
        {.op = CORE_ACQUIRE,
         .flags = CORE_ONCE,
         .name = {"k", 1},
         .lease = {"L", 1},
         .ttl_ms = 5000},
        {.op = CORE_FINISH,
         .flags = CORE_ONCE,
         .name = {"k", 1},
         .lease = {"L", 1},
         .token = 5,
         .keep_ms = 5000,
         .result = {"r", 1}},
        {.op = CORE_END, .lease = {"ENDED", 5}, .ttl_ms = 5000},
    };
    struct core *core = table_new(1);

    for (size_t i = 0; i < COUNT(commands); i++)
        table_do(core, &commands[i], NULL);
    table_check(core);
    assert_int_equal(READER, claim_at(core, READER)->lease);
    assert_true(lock_at(core, KEY)->record != 0);
    return core;
}

/* What core_check says begins so. The table is broken for good: it is left as it is, and freed. */
static void finds(struct core *core, const char *words)
{
    struct error_text err = {""};

    assert_int_equal(HF_EIO, core_check(core, &err));
    if (strncmp(err.text, words, strlen(words)) != 0)
        fail_msg("\"%s\" instead of %s", err.text, words);
    core_free(core);
}

static void conflicting_holds(void **state)
{
    struct core *core = table();

    (void)state;
    claim_at(core, READER)->mode = HF_EXCLUSIVE;
    finds(core, "[C1]");
    core = table();
    lock_at(core, PERMITS)->permits = 0;
    finds(core, "[C1]");
    core = table();
    lock_at(core, SHARED)->permits = 2;
    finds(core, "[C1]");
    core = table();
    claim_at(core, KEPT)->mode = HF_PERMIT;
    finds(core, "[C1]");
    core = table();
    lock_at(core, SHARED)->holds++;
    finds(core, "[C1]");
    core = table();
    lock_at(core, KEY)->permits = 2;
    finds(core, "[C1]");
    core = table();
    lock_at(core, SHARED)->once = true;
    finds(core, "[C1]");
}

static void a_place_that_could_be_granted(void **state)
{
    struct core *core = table();
    uint32_t reader = claim_at(core, READER)->lock_next; /* the other one, last in its list */
    struct claim *claim = claim_at(core, reader);

    (void)state;
    /* It waits although only readers hold the name. */
    claim_delist(core, reader);
    claim->state = CORE_PLACE;
    claim->number = ++core->last_ticket;
    extra_make(core, reader)->deadline_ms = INT64_MAX;
    claim_enlist(core, reader);
    finds(core, "[C2]");
}

static void numbers_out_of_order(void **state)
{
    struct core *core = table();

    (void)state;
    claim_at(core, READER)->number = 1000;
    finds(core, "[C3]");
    core = table();
    claim_at(core, claim_at(core, READER)->lock_next)->number = 1;
    finds(core, "[C3]");
    core = table();
    claim_at(core, WAITER)->number = 1000;
    finds(core, "[C4]");
    core = table();
    claim_at(core, KEPT)->number = claim_at(core, WAITER)->number;
    finds(core, "[C4]");
    core = table();
    lock_at(core, EXCLUSIVE)->places++;
    finds(core, "[C4]");
}

static void leases_and_claims_that_do_not_know_each_other(void **state)
{
    struct core *core = table();

    (void)state;
    claim_at(core, HOLDER)->lease = NONE;
    finds(core, "[C5]");
    core = table();
    claim_at(core, HOLDER)->state = CORE_GHOST; /* with a lease */
    finds(core, "[C5]");
    core = table();
    claim_at(core, HOLDER)->lease = READER;
    finds(core, "[C5]");
    core = table();
    lease_at(core, HOLDER)->ended = true;
    finds(core, "[C5]");
    core = table();
    lease_at(core, HOLDER)->claims = 0;
    finds(core, "[C5]");
    core = table();
    lease_at(core, HOLDER)->ttl_ms = 99;
    finds(core, "[C5]");
    core = table();
    claim_make(core, EXCLUSIVE, text("")); /* in no list */
    finds(core, "[C5]");
}

static void names_that_nobody_uses(void **state)
{
    struct core *core = table();

    (void)state;
    lock_make(core, text("new"), false);
    finds(core, "[C6]");
    core = table();
    lock_at(core, KEY)->once = false;
    finds(core, "[C6]");
    core = table();
    record_set(core, EXCLUSIVE, text("result"), 1, 1000);
    finds(core, "[C6]");
}

static void deadlines_that_are_not_in_the_timers(void **state)
{
    struct core *core = table();

    (void)state;
    timers_clear(&core->timers, TIMER_LOCK, KEY);
    finds(core, "[C7] a record without a deadline");
    core = table();
    timers_clear(&core->timers, TIMER_CLAIM, WAITER);
    finds(core, "[C7] a place's WAIT");
    core = table();
    extra_make(core, HOLDER)->delay_ms = 1;
    timers_set(&core->timers, TIMER_CLAIM, HOLDER, 1000);
    finds(core, "[C7] a ghost without a deadline, or a hold with one");
}

/* In either: the timers moved it, or the record changed. */
static void deadlines_that_are_others_in_the_timers(void **state)
{
    static const char words[] = "[C7] a deadline in the timers is another than in its record";
    struct core *core = table();

    (void)state;
    timers_set(&core->timers, TIMER_CLAIM, WAITER, 1);
    finds(core, words);
    core = table();
    timers_set(&core->timers, TIMER_LOCK, KEY, 1);
    finds(core, words);
    core = table();
    extra_of(core, claim_at(core, WAITER))->deadline_ms--;
    finds(core, words);
    core = table();
    record_of(core, lock_at(core, KEY))->deadline_ms++;
    finds(core, words);
}

/* Everything in the table ends in the same millisecond, but what is set for another. */
static struct moment *moment_of_all(const struct core *core)
{
    assert_int_equal(1, core->timers.count);
    return slab_at(&core->timers.moments, core->timers.heap[1].moment);
}

/* In the moment, without its knowing. */
static void list(const struct core *core, enum timer_kind kind, uint32_t slot)
{
    struct moment *moment = moment_of_all(core);

    assert_true(moment->count < moment->capacity);
    moment->many[moment->count++] = (uint32_t)kind << 24 | slot;
    moment->open++;
}

static void deadlines_that_do_not_know_their_place(void **state)
{
    static const char words[] = "[C7] a deadline does not know its place";
    struct core *core = table();
    struct moment *moment;

    (void)state;
    lease_at(core, HOLDER)->timer.at++;
    finds(core, words);
    core = table();
    lease_at(core, HOLDER)->timer.moment++;
    finds(core, words);
    core = table();
    extra_of(core, claim_at(core, WAITER))->timer.at = lease_at(core, HOLDER)->timer.at;
    finds(core, words);
    core = table();
    moment = moment_of_all(core);
    assert_true(moment->count < moment->capacity);
    moment->many[moment->count++] = moment->many[0]; /* twice */
    moment->open++;
    finds(core, words);
    core = table();
    list(core, TIMER_LOCK, EXCLUSIVE); /* which has no record */
    finds(core, words);
    core = table();
    list(core, TIMER_LEASE, KEPT);
    finds(core, words);
    core = table();
    list(core, TIMER_CLAIM, HOLDER); /* which has no extra */
    finds(core, words);
}

static void moments_that_miscount(void **state)
{
    static const char words[] = "[C7] the number of deadlines in a moment is wrong";
    struct core *core = table();

    (void)state;
    moment_of_all(core)->open++;
    finds(core, words);
    core = table();
    moment_of_all(core)->open--;
    finds(core, words);
    core = table();
    moment_of_all(core)->count--;
    finds(core, words);
    core = table();
    moment_of_all(core)->many[lease_at(core, HOLDER)->timer.at] = 0;
    finds(core, words);
    core = table(); /* nothing but gaps: it should be gone */
    moment_of_all(core)->count = moment_of_all(core)->open = 0;
    finds(core, words);
}

static void moments_that_do_not_know_their_place(void **state)
{
    static const char words[] = "[C7] a moment does not know its place";
    struct core *core = table();

    (void)state;
    moment_of_all(core)->at++;
    finds(core, words);
    core = table();
    moment_of_all(core)->deadline_ms++;
    finds(core, words);
    core = table();
    core->timers.heap[1].deadline_ms--;
    finds(core, words);
    core = table();
    table_hold(core, "another", "later", 6000);
    assert_int_equal(2, core->timers.count);
    core->timers.heap[2] = core->timers.heap[1];
    finds(core, words);
}

static void deadlines_in_the_wrong_place(void **state)
{
    static const char words[] = "[C7] a deadline is in the wrong place";
    struct core *core = table();
    struct moment *moment = moment_of_all(core);

    (void)state;
    moment->first = 1; /* it would be passed over */
    finds(core, words);
    core = table();
    moment = moment_of_all(core);
    assert_true(moment->unordered);
    moment->unordered = false; /* copies would end them in another order */
    finds(core, words);
}

static void deadlines_that_believe_to_be_in_the_timers(void **state)
{
    static const char words[] = "[C7] a deadline is not in the timers";
    struct core *core = table();
    struct moment *moment = moment_of_all(core);

    (void)state;
    moment->many[lease_at(core, HOLDER)->timer.at] = 0;
    moment->open--;
    finds(core, words);
    core = table();
    table_hold(core, "another", "later", 6000);
    core->timers.count--;
    finds(core, words);
}

static void moments_out_of_order(void **state)
{
    struct core *core = table();
    struct timers *timers = &core->timers;
    struct due first;

    (void)state;
    table_hold(core, "another", "later", 6000);
    first = timers->heap[1];
    timers->heap[1] = timers->heap[2];
    timers->heap[2] = first;
    for (uint32_t i = 1; i <= 2; i++)
        ((struct moment *)slab_at(&timers->moments, timers->heap[i].moment))->at = i;
    finds(core, "[C7] the moment that comes first is not the first");
}

static void moments_that_are_not_found(void **state)
{
    struct core *core = table();

    (void)state;
    index_remove(&core->timers.index, core->timers.heap[1].moment);
    finds(core, "[C7] a moment does not know its place");
    core = table();
    core->timers.recent = 1 + 40;
    finds(core, "[C7] the moment that was used last is gone");
}

static void leases_that_live_for_ever(void **state)
{
    struct core *core = table();

    (void)state;
    timers_clear(&core->timers, TIMER_LEASE, HOLDER);
    finds(core, "[C8]");
    core = table();
    lease_at(core, WAITER)->kept = 1;
    finds(core, "[C8]");
    core = table();
    claim_at(core, HOLDER)->flags |= CLAIM_KEPT;
    finds(core, "[C8]");
    core = table();
    claim_at(core, KEPT)->flags ^= CLAIM_KEPT;
    finds(core, "[C8]");
}

static void kept_leases_with_an_impossible_end(void **state)
{
    static const char words[] = "[C8] a kept lease would end when none can";
    struct core *core = table();

    (void)state;
    lease_set_deadline(core, KEPT, -1);
    finds(core, words);
    core = table();
    lease_set_deadline(core, KEPT, deadline_max(core));
    table_check(core);
    lease_set_deadline(core, KEPT, deadline_max(core) + 1);
    finds(core, words);
}

/* A ghost that is HOLDER's, whose lease is gone with it; the places behind it wait on. */
static struct core *haunted_table(void)
{
    static const struct core_command break_it = {.op = CORE_BREAK, .name = {"e", 1}};
    struct core *core = table();

    table_do(core, &break_it, NULL);
    table_check(core);
    assert_int_equal(CORE_GHOST, claim_at(core, HOLDER)->state);
    return core;
}

static void claims_without_what_they_need(void **state)
{
    static const char words[] = "[C9] a place or a ghost has no extra";
    struct core *core = table();

    (void)state;
    extra_drop(core, WAITER);
    finds(core, words);
    core = table();
    extra_drop(core, KEPT);
    finds(core, words);
    core = haunted_table();
    extra_drop(core, HOLDER);
    finds(core, words);
}

static void holds_with_more_than_they_need(void **state)
{
    struct core *core = table();

    (void)state;
    extra_make(core, HOLDER);
    finds(core, "[C9] a hold has an extra without need");
    core = table();
    extra_make(core, HOLDER)->delay_ms = 1;
    table_check(core);
    extra_of(core, claim_at(core, HOLDER))->deadline_ms = INT64_MAX;
    finds(core, "[C9] a hold has the deadline of the place that it was");
}

static void extras_that_are_not_of_one_claim(void **state)
{
    struct core *core = table();

    (void)state;
    slab_take(&core->extras);
    finds(core, "[C9] an extra that no claim has");
    core = table();
    claim_at(core, KEPT)->extra = claim_at(core, WAITER)->extra;
    finds(core, "[C9] a claim has an extra that is not its own");
    core = table();
    slab_give(&core->extras, claim_at(core, WAITER)->extra);
    finds(core, "[C9] a claim has an extra that is not its own");
    core = table();
    claim_at(core, KEPT)->extra = UINT32_MAX;
    finds(core, "[C9] a claim has an extra that is not its own");
}

#define SLOTS 128u
#define PARTS 8u /* of a table with one page of each kind */

/* In which of the parts they differ, as bits. */
static unsigned parts_that_differ(const struct core *a, const struct core *b)
{
    unsigned parts = 0;

    for (unsigned i = 0; i < PARTS; i++) {
        assert_true(core_hash_part(a, i, SLOTS) == core_hash_part(a, i + PARTS, SLOTS));
        parts |= (unsigned)(core_hash_part(a, i, SLOTS) != core_hash_part(b, i, SLOTS)) << i;
    }
    return parts;
}

/* Each kind of record is in one of the parts, and the counters are in all. */
static void parts_of_the_hash(void **state)
{
    struct core *core = table(), *other = table_reborn(table(), 9);

    (void)state;
    assert_int_equal(0, parts_that_differ(core, other));
    lease_at(other, HOLDER)->ttl_ms++;
    assert_int_equal(1, parts_that_differ(core, other));
    lease_at(other, HOLDER)->ttl_ms--;
    lock_at(other, PERMITS)->permits++;
    assert_int_equal(1, parts_that_differ(core, other));
    lock_at(other, PERMITS)->permits--;
    claim_at(other, WAITER)->number++;
    assert_int_equal(1, parts_that_differ(core, other));
    claim_at(other, WAITER)->number--;
    other->last_token++;
    assert_int_equal((1u << PARTS) - 1, parts_that_differ(core, other));
    other->last_token--;
    for (int i = 0; i < 300; i++) {
        char name[16], lease[16];

        snprintf(name, sizeof name, "n%d", i);
        snprintf(lease, sizeof lease, "l%d", i);
        table_hold(core, name, lease, 5000);
        table_hold(other, name, lease, 5000);
    }
    assert_int_equal(0, parts_that_differ(core, other));
    lock_at(other, 2 * SLOTS + 1)->permits++;
    assert_int_equal(1u << 2, parts_that_differ(core, other));
    core_free(core);
    core_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conflicting_holds),
        cmocka_unit_test(a_place_that_could_be_granted),
        cmocka_unit_test(numbers_out_of_order),
        cmocka_unit_test(leases_and_claims_that_do_not_know_each_other),
        cmocka_unit_test(names_that_nobody_uses),
        cmocka_unit_test(deadlines_that_are_not_in_the_timers),
        cmocka_unit_test(deadlines_that_are_others_in_the_timers),
        cmocka_unit_test(deadlines_that_do_not_know_their_place),
        cmocka_unit_test(moments_that_miscount),
        cmocka_unit_test(moments_that_do_not_know_their_place),
        cmocka_unit_test(deadlines_in_the_wrong_place),
        cmocka_unit_test(deadlines_that_believe_to_be_in_the_timers),
        cmocka_unit_test(moments_out_of_order),
        cmocka_unit_test(moments_that_are_not_found),
        cmocka_unit_test(leases_that_live_for_ever),
        cmocka_unit_test(kept_leases_with_an_impossible_end),
        cmocka_unit_test(claims_without_what_they_need),
        cmocka_unit_test(holds_with_more_than_they_need),
        cmocka_unit_test(extras_that_are_not_of_one_claim),
        cmocka_unit_test(parts_of_the_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
