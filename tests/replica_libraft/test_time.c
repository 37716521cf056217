/* The cluster's clock: what time the entries bring, and when an entry is sent for nothing but that.
 * The node's own clock is the test's. */
#include "tools.h"

static struct rig rig;

static int set_up(void **state)
{
    (void)state;
    rig_init(&rig, 1);
    rig_serve(&rig);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_free(&rig);
    return 0;
}

static void submit_read(size_t number)
{
    struct core_command command = read_now();

    assert_int_equal(replica_submit(rig.replica, &command, request(number)), HF_OK);
}

static uint32_t elapsed_of_last(void)
{
    return rig_header(&rig, rig_last(&rig)).elapsed_ms;
}

static uint32_t leases(void)
{
    struct core_counts counts;

    core_count(replica_table(rig.replica), &counts);
    return counts.leases;
}

static void test_an_entry_brings_the_time_since_the_last(void **state)
{
    (void)state;
    rig.witness.now_us += 7 * MS;
    submit_read(1);
    rig_settle(&rig);
    assert_int_equal(elapsed_of_last(), 7);
    submit_read(2);
    rig_settle(&rig);
    assert_int_equal(elapsed_of_last(), 0);
}

static void test_parts_of_a_millisecond_are_not_lost(void **state)
{
    int64_t before = core_now(replica_table(rig.replica));

    (void)state;
    for (size_t i = 1; i <= 100; i++) {
        rig.witness.now_us += 1370;
        submit_read(i);
        rig_settle(&rig);
        assert_in_range(elapsed_of_last(), 1, 2);
    }
    assert_int_equal(core_now(replica_table(rig.replica)) - before, 137);
}

/* [R3] What is above the limit is gone: it must not come with later entries, either. */
static void test_no_entry_brings_more_than_a_second(void **state)
{
    (void)state;
    rig.witness.now_us += INT64_C(3600) * 1000 * MS;
    submit_read(1);
    rig_settle(&rig);
    assert_int_equal(elapsed_of_last(), CORE_ELAPSED_MAX_MS);
    rig.witness.now_us += 2 * MS;
    submit_read(2);
    rig_settle(&rig);
    assert_int_equal(elapsed_of_last(), 2);
    rig.witness.now_us += CORE_ELAPSED_MAX_MS * MS;
    submit_read(3);
    rig_settle(&rig);
    assert_int_equal(elapsed_of_last(), CORE_ELAPSED_MAX_MS);
}

/* Nobody counted while it was away. */
static void test_the_first_entry_of_a_term_brings_none(void **state)
{
    struct core_entry_header header;

    (void)state;
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    rig.witness.now_us += INT64_C(3600) * 1000 * MS;
    rig_reopen(&rig);
    rig.witness.now_us += 5 * MS;
    rig_settle(&rig);
    header = rig_header(&rig, rig_last(&rig));
    assert_true(header.new_term);
    assert_int_equal(header.elapsed_ms, 0);
    rig.witness.now_us += 3 * MS;
    submit_read(2);
    rig_settle(&rig);
    header = rig_header(&rig, rig_last(&rig));
    assert_false(header.new_term);
    assert_int_equal(header.elapsed_ms, 3);
}

static void test_time_is_counted_when_the_entry_goes(void **state)
{
    (void)state;
    rig.memory.hold_appends = true;
    submit_read(1);
    rig_settle(&rig);
    submit_read(2);
    rig.witness.now_us += 40 * MS; /* the disk takes its time */
    rig.memory.hold_appends = false;
    rig_settle(&rig);
    assert_int_equal(elapsed_of_last(), 40);
}

static void test_a_lease_ends_in_time(void **state)
{
    struct replica_status before, after;

    (void)state;
    submit_numbered(rig.replica, 1, 1100);
    rig_settle(&rig);
    assert_int_equal(rig.witness.heard[1].answer, ANSWER_TOKEN);
    replica_status(rig.replica, &before);
    rig_pass(&rig, 1099 * MS);
    assert_int_equal(leases(), 1);
    rig_pass(&rig, 1 * MS);
    assert_int_equal(leases(), 0);
    assert_int_equal(rig.witness.why, WHY_EXPIRED);
    replica_status(rig.replica, &after);
    assert_int_equal(after.ticks - before.ticks, 5); /* four of 250 ms, and the end */
}

/* Each millisecond would be an entry, on all nodes' disks. */
static void test_leases_that_end_one_by_one_end_together(void **state)
{
    struct replica_status before, after;
    uint32_t count = 50;

    (void)state;
    for (size_t i = 1; i <= count; i++) {
        submit_numbered(rig.replica, i, 1000);
        rig_settle(&rig);
        rig.witness.now_us += 2 * MS;
    }
    replica_status(rig.replica, &before);
    rig_pass(&rig, 899 * MS);
    assert_int_equal(leases(), count); /* the first one ends in 1 ms, the next 2 ms later */
    for (uint32_t ms = 1; ms <= 2 * count + REPLICA_TICK_MIN_MS; ms++) {
        uint32_t over = (ms + 1) / 2,
                 long_over = ms < REPLICA_TICK_MIN_MS ? 0 : (ms - REPLICA_TICK_MIN_MS + 1) / 2;

        rig_pass(&rig, 1 * MS);
        assert_true(leases() + over >= count);      /* none too early, */
        assert_true(leases() + long_over <= count); /* and none much too late */
    }
    assert_int_equal(leases(), 0);
    replica_status(rig.replica, &after);
    assert_in_range(after.ticks - before.ticks, 4 + 9, 4 + 11); /* four of 250 ms before */
}

static void test_nothing_ticks_when_nothing_is_open(void **state)
{
    raft_index last = rig_last(&rig);

    (void)state;
    assert_int_equal(replica_pump(rig.replica, 1), -1);
    rig_pass(&rig, INT64_C(60) * 1000 * MS);
    assert_int_equal(rig_last(&rig), last);
    submit_numbered(rig.replica, 1, 500);
    rig_pass(&rig, INT64_C(2000) * MS);
    last = rig_last(&rig);
    rig_pass(&rig, INT64_C(60) * 1000 * MS);
    assert_int_equal(rig_last(&rig), last);
    assert_int_equal(replica_pump(rig.replica, 1), -1);
}

static void test_no_tick_after_another_entry(void **state)
{
    struct replica_status status;

    (void)state;
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    for (size_t i = 2; i <= 11; i++) {
        rig_pass(&rig, 200 * MS);
        submit_read(i);
        rig_settle(&rig);
    }
    replica_status(rig.replica, &status);
    assert_int_equal(status.ticks, 0);
    assert_int_equal(replica_pump(rig.replica, 1), REPLICA_TICK_MAX_MS * MS);
}

static void test_it_asks_to_be_called_when_the_next_is_due(void **state)
{
    (void)state;
    submit_numbered(rig.replica, 1, 120);
    rig_settle(&rig);
    assert_int_equal(replica_pump(rig.replica, 1), 120 * MS);
    rig.witness.now_us += 20 * MS;
    assert_int_equal(replica_pump(rig.replica, 1), 100 * MS);
    rig.witness.now_us += 300; /* of a microsecond, it asks for the rest */
    assert_int_equal(replica_pump(rig.replica, 1), 100 * MS - 300);
}

/* A batch that waits for more goes when a tick is due. */
static void test_a_due_tick_takes_the_batch_along(void **state)
{
    (void)state;
    submit_numbered(rig.replica, 1, 120);
    rig_settle(&rig);
    rig.witness.now_us += 120 * MS - 100;
    submit_read(2);
    assert_int_equal(replica_pump(rig.replica, 1000), 100);
    rig.witness.now_us += 100;
    replica_pump(rig.replica, 1000);
    memory_io_settle(&rig.memory);
    assert_int_equal(rig.witness.heard[2].answers, 1);
    assert_int_equal(leases(), 0);
}

static void test_what_does_not_end_in_one_entry_ends_in_the_next(void **state)
{
    uint32_t count = 2 * CORE_ENDINGS_MAX + 10;

    (void)state;
    for (size_t i = 1; i <= count; i++)
        submit_numbered(rig.replica, i, 200);
    rig_settle(&rig);
    assert_int_equal(leases(), count);
    rig.witness.now_us += 200 * MS;
    replica_pump(rig.replica, 1);
    memory_io_settle(&rig.memory);
    assert_int_equal(leases(), count - CORE_ENDINGS_MAX);
    rig_settle(&rig); /* without any more time */
    assert_int_equal(leases(), 0);
    assert_int_equal(elapsed_of_last(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_entry_brings_the_time_since_the_last),
        TEST(test_parts_of_a_millisecond_are_not_lost),
        TEST(test_no_entry_brings_more_than_a_second),
        TEST(test_the_first_entry_of_a_term_brings_none),
        TEST(test_time_is_counted_when_the_entry_goes),
        TEST(test_a_lease_ends_in_time),
        TEST(test_leases_that_end_one_by_one_end_together),
        TEST(test_nothing_ticks_when_nothing_is_open),
        TEST(test_no_tick_after_another_entry),
        TEST(test_it_asks_to_be_called_when_the_next_is_due),
        TEST(test_a_due_tick_takes_the_batch_along),
        TEST(test_what_does_not_end_in_one_entry_ends_in_the_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
