/* test_records.c: what a lease, a claim and a lock have, and where. Most of them are to have little: what few
 * need lies elsewhere, comes when it is needed and goes again, and nobody outside sees the difference. */
#include "core/inside.h"
#include "tools.h"

#include <endian.h>

static void acquire(struct core *core, const char *name, const char *lease, uint32_t ttl_ms,
                    uint64_t delay_ms, uint32_t flags)
{
    struct core_command command = {.op = CORE_ACQUIRE,
                                   .flags = flags,
                                   .name = text(name),
                                   .lease = text(lease),
                                   .ttl_ms = ttl_ms,
                                   .delay_ms = delay_ms};

    if (flags & CORE_WAITS)
        command.wait_ms = CORE_FOREVER;
    table_do(core, &command, NULL);
    table_check(core);
}

static void release(struct core *core, const char *name, const char *lease)
{
    struct core_command command = {.op = CORE_RELEASE, .name = text(name), .lease = text(lease)};

    table_do(core, &command, NULL);
    table_check(core);
}

static void pass(struct core *core, uint32_t ms)
{
    table_pass(core, ms);
    table_check(core);
}

static const struct claim *claim_of(const struct core *core, const char *name, const char *lease)
{
    uint32_t slot =
        claim_find(core, lock_find(core, text(name), false), lease_find(core, text(lease)));

    assert_int_not_equal(NONE, slot);
    return claim_at(core, slot);
}

static const struct lease *lease_of(const struct core *core, const char *lease)
{
    uint32_t slot = lease_find(core, text(lease));

    assert_int_not_equal(NONE, slot);
    return lease_at(core, slot);
}

/* From now on. */
static int64_t ends_in(const struct core *core, const char *lease)
{
    return lease_deadline(core, lease_of(core, lease)) - core->now_ms;
}

/* ---- extras ----------------------------------------------------------------------------------- */

static void a_plain_hold_has_no_extra(void **state)
{
    struct core *core = table_new(1);

    (void)state;
    acquire(core, "n", "A", 1000, 0, 0);
    acquire(core, "m", "A", 1000, 0, CORE_WAITS); /* it would wait, and needs not */
    assert_int_equal(0, core->extras.used);
    assert_int_equal(0, claim_delay(core, claim_of(core, "n", "A")));
    assert_int_equal(0, claim_deadline(core, claim_of(core, "n", "A")));
    assert_int_equal(0, claim_attachment(core, claim_of(core, "n", "A")));
    core_free(core);
}

static void a_place_that_is_granted_gives_its_extra_back(void **state)
{
    struct core *core = table_new(1);

    (void)state;
    acquire(core, "n", "A", 60000, 0, 0);
    acquire(core, "n", "B", 60000, 0, CORE_WAITS);
    acquire(core, "n", "B", 60000, 0, CORE_WAITS); /* again: the same place */
    acquire(core, "n", "C", 60000, 0, CORE_WAITS | CORE_KEPT);
    assert_int_equal(2, core->extras.used);
    assert_int_equal(2, claim_attachment(core, claim_of(core, "n", "B")));
    release(core, "n", "A");
    assert_int_equal(CORE_HOLD, claim_of(core, "n", "B")->state);
    assert_int_equal(1, core->extras.used);
    assert_int_equal(2, claim_attachment(core, claim_of(core, "n", "B"))); /* snapshots tell it */
    release(core, "n", "C"); /* a place that is given up */
    assert_int_equal(0, core->extras.used);
    core_free(core);
}

static void a_delay_stays_with_its_hold_and_its_ghost(void **state)
{
    struct core *core = table_new(1);

    (void)state;
    acquire(core, "n", "A", 60000, 700, 0);
    assert_int_equal(700, claim_delay(core, claim_of(core, "n", "A")));
    acquire(core, "n", "B", 1000, 5000, CORE_WAITS | CORE_KEPT);
    release(core, "n", "A");
    assert_int_equal(1, core->extras.used);
    assert_int_equal(5000, claim_delay(core, claim_of(core, "n", "B")));
    assert_int_equal(0, claim_deadline(core, claim_of(core, "n", "B")));
    assert_int_equal(1, claim_attachment(core, claim_of(core, "n", "B")));
    pass(core, 1000);
    assert_int_equal(1, core->ghosts);
    assert_int_equal(1, core->extras.used);
    pass(core, 4999);
    assert_int_equal(1, core->ghosts);
    pass(core, 1);
    assert_int_equal(0, core->ghosts);
    assert_int_equal(0, core->extras.used);
    core_free(core);
}

/* The hold had no extra, the ghost needs one; and what the hold knew stays known. */
static void a_hold_without_a_delay_may_become_a_ghost(void **state)
{
    static const struct core_command break_it = {.op = CORE_BREAK, .name = {"n", 1}};
    struct core *core = table_new(1);
    const struct claim *claim;

    (void)state;
    acquire(core, "n", "A", 60000, 0, 0);
    acquire(core, "n", "B", 60000, 0, CORE_WAITS);
    release(core, "n", "A");
    claim = claim_of(core, "n", "B");
    assert_int_equal(0, core->extras.used);
    table_do(core, &break_it, NULL);
    table_check(core);
    assert_int_equal(CORE_GHOST, claim->state);
    assert_int_equal(1, core->extras.used);
    assert_int_equal(core->now_ms + 60000, claim_deadline(core, claim));
    assert_int_equal(1, claim_attachment(core, claim));
    pass(core, 60000);
    assert_int_equal(0, core->extras.used);
    core_free(core);
}

/* ---- deadlines of leases ---------------------------------------------------------------------- */

/* While it is kept its deadline is elsewhere, and moves on there. */
static void a_kept_lease_remembers_its_deadline(void **state)
{
    static const struct core_text lease = {"B", 1};
    static const struct core_command renew = {
        .op = CORE_RENEW, .leases = &lease, .lease_count = 1, .ttl_ms = 2000};
    struct core *core = table_new(1);

    (void)state;
    acquire(core, "n", "A", 86400000, 0, 0);
    acquire(core, "n", "B", 5000, 0, CORE_WAITS | CORE_KEPT);
    assert_int_equal(5000, ends_in(core, "B"));
    assert_int_equal(1, lease_of(core, "B")->kept);
    pass(core, 1000);
    assert_int_equal(4000, ends_in(core, "B"));
    table_do(core, &renew, NULL);
    assert_int_equal(4000, ends_in(core, "B")); /* never sooner than it was */
    pass(core, 3000);
    table_do(core, &renew, NULL);
    assert_int_equal(2000, ends_in(core, "B"));
    pass(core, 30000);
    assert_int_equal(-28000, ends_in(core, "B"));
    core = table_reborn(core, 2);
    assert_int_equal(-28000, ends_in(core, "B"));
    release(core, "n", "A");
    assert_int_equal(2000, ends_in(core, "B")); /* its time begins with the grant */
    pass(core, 1999);
    assert_int_equal(1, ends_in(core, "B"));
    pass(core, 1);
    assert_int_equal(0, core->leases.used);
    core_free(core);
}

/* The deadline stays where it is until the last one goes, and comes back then, as late as it was. */
static void a_lease_may_be_kept_twice(void **state)
{
    struct core *core = table_new(1);

    (void)state;
    acquire(core, "n", "A", 86400000, 0, 0);
    acquire(core, "m", "A", 86400000, 0, 0);
    acquire(core, "n", "B", 70000, 0, CORE_WAITS | CORE_KEPT);
    acquire(core, "m", "B", 1000, 0, CORE_WAITS | CORE_KEPT);
    assert_int_equal(70000, ends_in(core, "B"));
    core = table_reborn(core, 2);
    assert_int_equal(2, lease_of(core, "B")->kept);
    assert_int_equal(70000, ends_in(core, "B"));
    pass(core, 100);
    release(core, "n", "B");
    assert_int_equal(1, lease_of(core, "B")->kept);
    assert_int_equal(69900, ends_in(core, "B"));
    acquire(core, "m", "B", 1000, 0, CORE_WAITS); /* not kept any more */
    assert_int_equal(0, lease_of(core, "B")->kept);
    assert_int_equal(70000, ends_in(core, "B"));
    pass(core, 69999);
    assert_int_equal(1, ends_in(core, "B"));
    pass(core, 1);
    assert_int_equal(NONE, lease_find(core, text("B")));
    core_free(core);
}

static void a_lease_that_was_ended_is_remembered_for_the_longer_time(void **state)
{
    struct core_command end = {.op = CORE_END, .lease = text("B"), .ttl_ms = 9000};
    struct core *core = table_new(1);

    (void)state;
    acquire(core, "n", "A", 86400000, 0, 0);
    acquire(core, "n", "B", 5000, 0, CORE_WAITS | CORE_KEPT);
    table_do(core, &end, NULL); /* while it is kept */
    table_check(core);
    assert_int_equal(9000, ends_in(core, "B"));
    end.ttl_ms = 7000;
    table_do(core, &end, NULL);
    assert_int_equal(9000, ends_in(core, "B"));
    end.ttl_ms = 9500;
    table_do(core, &end, NULL);
    assert_int_equal(9500, ends_in(core, "B"));
    pass(core, 9499);
    assert_int_equal(1, core->ended);
    pass(core, 1);
    assert_int_equal(0, core->ended);
    core_free(core);
}

/* ---- snapshots -------------------------------------------------------------------------------- */

/* Claims that have been something else, of which the snapshot tells what it always told: nodes of another
 * version compare it, and read it. */
static void snapshots_are_what_they_were(void **state)
{
    static const struct core_command break_it = {.op = CORE_BREAK, .name = {"broken", 6}};
    struct core *core = table_new(1);
    size_t size = 0;
    unsigned char *bytes;
    uint64_t sum;

    (void)state;
    for (int i = 0; i < 2; i++) { /* a place becomes a hold, with a delay and without */
        const char *name = i ? "delayed" : "plain";

        acquire(core, name, "A", 60000, 0, 0);
        acquire(core, name, "B", 5000, i ? 300 : 0, CORE_WAITS | CORE_KEPT);
        acquire(core, name, "C", 50000, 0, CORE_WAITS | CORE_KEPT);
        release(core, name, "A");
    }
    acquire(core, "broken", "A", 60000, 0, 0);
    acquire(core, "broken", "D", 7000, 0, CORE_WAITS);
    release(core, "broken", "A");
    table_do(core, &break_it, NULL);
    acquire(core, "key", "E", 100, 60000, CORE_ONCE);
    acquire(core, "key", "F", 5000, 10000, CORE_ONCE | CORE_WAITS);
    acquire(core, "other key", "E", 100, 60000, CORE_ONCE);
    pass(core, 1000);
    bytes = snapshot_whole(core, &size);
    memcpy(&sum, bytes + size - sizeof sum, sizeof sum);
    assert_int_equal(224, size);
    assert_true(le64toh(sum) == UINT64_C(0x5712e7ef4d16f3bf));
    free(bytes);
    core_free(core);
}

/* To keep a lease is a change like others: what it was is written first. */
static void a_lease_is_written_before_it_is_kept(void **state)
{
    struct core *core = table_new(1);
    uint64_t hash;
    uint32_t lease;
    size_t size = 0;
    void *bytes;

    (void)state;
    acquire(core, "n", "A", 5000, 0, 0);
    lease = lease_find(core, text("A"));
    hash = core_hash(core);
    core_snapshot_begin(core);
    lease_keep(core, lease);
    lease_unkeep(core, lease, core->now_ms + 7000);
    table_check(core);
    while (!core_snapshot_step(core, 0))
        continue;
    bytes = core_snapshot_end(core, &size);
    assert_true(hash == restored_hash(bytes, size));
    assert_true(hash != core_hash(core));
    free(bytes);
    core_free(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_hold_has_no_extra),
        cmocka_unit_test(a_place_that_is_granted_gives_its_extra_back),
        cmocka_unit_test(a_delay_stays_with_its_hold_and_its_ghost),
        cmocka_unit_test(a_hold_without_a_delay_may_become_a_ghost),
        cmocka_unit_test(a_kept_lease_remembers_its_deadline),
        cmocka_unit_test(a_lease_may_be_kept_twice),
        cmocka_unit_test(a_lease_that_was_ended_is_remembered_for_the_longer_time),
        cmocka_unit_test(snapshots_are_what_they_were),
        cmocka_unit_test(a_lease_is_written_before_it_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
