/* What is committed and waits to be applied: a busy leader's entry for the next one to take off, a follower's for the disk.
 * Requests 1 to MANY are of the entry that arrives, those above it of the next. */
#include "tools.h"

#define MANY REPLICA_ENOUGH /* clients, and commands of an entry */

static struct rig rig;

static int set_up(void **state)
{
    (void)state;
    rig_init(&rig, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_free(&rig);
    return 0;
}

static void submit(size_t from, size_t count)
{
    for (size_t i = from; i < from + count; i++)
        submit_numbered(rig.replica, i, 3600000);
}

/* Committed, and nobody has heard of it. */
static void arrive(void)
{
    rig_serve(&rig);
    submit(1, MANY);
    replica_pump(rig.replica, MANY);
    assert_true(replica_flying(rig.replica));
    assert_false(replica_arrived(rig.replica));
    memory_io_settle(&rig.memory);
    assert_false(replica_flying(rig.replica));
    assert_true(replica_arrived(rig.replica));
    assert_int_equal(rig.witness.answers, 0);
}

static void assert_answered(uint32_t count)
{
    assert_int_equal(rig.witness.answers, count);
    for (size_t i = 1; i <= count; i++) {
        assert_int_equal(rig.witness.heard[i].answers, 1);
        assert_int_equal(rig.witness.heard[i].number, i); /* its token */
    }
    assert_int_equal(rig.witness.failures, 0);
}

static void test_the_next_takes_off_first(void **state)
{
    (void)state;
    arrive();
    submit(MANY + 1, MANY);
    assert_int_equal(replica_pump(rig.replica, MANY), 0); /* it wants to be called again */
    assert_true(replica_flying(rig.replica));
    assert_true(replica_arrived(rig.replica));
    assert_answered(0);
    replica_pump(rig.replica, MANY);
    assert_answered(MANY);
    assert_true(replica_flying(rig.replica));
    assert_false(replica_arrived(rig.replica));
    rig_settle(&rig);
    assert_answered(2 * MANY);
}

/* Others are faster than this node. */
static void test_the_next_arrives_before_it_is_applied(void **state)
{
    (void)state;
    arrive();
    submit(MANY + 1, MANY);
    replica_pump(rig.replica, MANY);
    memory_io_settle(&rig.memory);
    assert_false(replica_flying(rig.replica));
    assert_answered(MANY);
    assert_true(replica_arrived(rig.replica));
    replica_pump(rig.replica, MANY);
    assert_answered(2 * MANY);
}

static void test_it_does_not_wait_for_nothing(void **state)
{
    (void)state;
    arrive();
    replica_pump(rig.replica, MANY);
    assert_answered(MANY);
    assert_false(replica_flying(rig.replica));
}

/* Whoever is answered may be one of those that the batch waits for. */
static void test_it_does_not_wait_for_a_batch_to_fill(void **state)
{
    (void)state;
    arrive();
    submit(MANY + 1, 1);
    assert_in_range(replica_pump(rig.replica, MANY), 1, REPLICA_GATHER_MAX_US);
    assert_answered(MANY);
    assert_false(replica_flying(rig.replica));
}

static void test_few_clients_are_answered_at_once(void **state)
{
    (void)state;
    rig_serve(&rig);
    submit(1, 1);
    replica_pump(rig.replica, 1);
    memory_io_settle(&rig.memory);
    assert_false(replica_arrived(rig.replica));
    assert_answered(1);
}

static void test_alone_it_is_answered_at_once(void **state)
{
    (void)state;
    rig.options.member_count = 1;
    rig_serve(&rig);
    submit(1, MANY);
    assert_false(replica_has_enough(rig.replica)); /* nobody else writes meanwhile */
    replica_pump(rig.replica, MANY);
    memory_io_settle(&rig.memory);
    assert_answered(MANY);
}

/* It is committed, whoever leads now. */
static void test_a_deposed_leader_answers_what_has_arrived(void **state)
{
    struct replica_status status;

    (void)state;
    arrive();
    submit(MANY + 1, 1);
    replica_status(rig.replica, &status);
    memory_io_receive_entry(&rig.memory, 2, status.term + 1, 2, status.term, 0, NULL, 0);
    assert_int_equal(witness_role(&rig.witness), REPLICA_FOLLOWING);
    assert_int_equal(rig.witness.answers, MANY);
    assert_int_equal(rig.witness.failures, 1);
    assert_int_equal(rig.witness.heard[MANY + 1].failure, REPLICA_NOT_LEADING);
}

static void test_closing_answers_what_has_arrived(void **state)
{
    (void)state;
    arrive();
    rig_close(&rig);
    assert_answered(MANY);
}

/* The disk refuses the next one, before this one is applied. */
static void test_in_trouble_nobody_knows(void **state)
{
    (void)state;
    arrive();
    submit(MANY + 1, MANY);
    rig.memory.peers_answer = false;
    rig.memory.spoil_append = RAFT_NOSPACE;
    replica_pump(rig.replica, MANY);
    memory_io_settle(&rig.memory);
    replica_pump(rig.replica, MANY);
    assert_int_equal(rig.witness.stops, 1);
    assert_int_equal(rig.witness.answers, 0);
    assert_int_equal(rig.witness.failures, 2 * MANY);
    assert_int_equal(rig.witness.heard[1].failure, REPLICA_UNKNOWN);
    assert_int_equal(rig.witness.heard[MANY + 1].failure, REPLICA_UNKNOWN);
}

static void test_when_it_has_enough(void **state)
{
    (void)state;
    rig_serve(&rig);
    replica_pump(rig.replica, 2 * MANY + 2);
    submit(1, MANY);
    assert_false(replica_has_enough(rig.replica)); /* less than half of what may come */
    submit(MANY + 1, 1);
    assert_true(replica_has_enough(rig.replica));

    replica_pump(rig.replica, 2);
    assert_true(replica_flying(rig.replica));
    submit(MANY + 2, MANY);
    assert_false(replica_has_enough(rig.replica)); /* more may come while it flies */
    memory_io_settle(&rig.memory);
    assert_true(replica_has_enough(rig.replica));

    rig_settle(&rig);
    replica_pump(rig.replica, 2);
    submit(2 * MANY + 2, MANY - 1);
    assert_false(replica_has_enough(rig.replica)); /* an entry costs more than that */
    submit(3 * MANY + 1, 1);
    assert_true(replica_has_enough(rig.replica));
}

/* ---- a follower ------------------------------------------------------------------------------- */

static uint32_t holds(void)
{
    struct core_counts counts;

    core_count(replica_table(rig.replica), &counts);
    return counts.holds;
}

static void test_a_follower_applies_one_after_the_other(void **state)
{
    (void)state;
    rig_open(&rig);
    for (size_t i = 1; i <= 3; i++)
        rig_follow(&rig, i, 1, 1);
    memory_io_settle(&rig.memory);
    memory_io_receive_entry(&rig.memory, 2, 2, 4, 2, 4, NULL, 0); /* all are committed */
    assert_int_equal(holds(), 0);
    assert_int_equal(replica_pump(rig.replica, 0), 0);
    assert_int_equal(holds(), 1);
    assert_int_equal(replica_pump(rig.replica, 0), 0);
    assert_int_equal(holds(), 2);
    assert_int_equal(replica_pump(rig.replica, 0), -1);
    assert_int_equal(holds(), 3);
}

static void test_a_follower_writes_first(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_follow(&rig, 1, 1, 1);
    memory_io_settle(&rig.memory);
    rig_follow(&rig, 2, 1, 2); /* and the first is committed */
    replica_pump(rig.replica, 0);
    assert_int_equal(holds(), 0);
    memory_io_settle(&rig.memory);
    replica_pump(rig.replica, 0);
    assert_int_equal(holds(), 1);
}

/* An entry for which others may go first is one of many commands. */
static void test_a_follower_yields_if_it_takes_long(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_follow(&rig, 1, 1, 1);
    rig_follow(&rig, 2, 2 * MANY, 2);
    memory_io_settle(&rig.memory);
    assert_false(replica_yields(rig.replica));
    memory_io_receive_entry(&rig.memory, 2, 2, 3, 2, 3, NULL, 0);
    replica_pump(rig.replica, 0);
    assert_int_equal(holds(), 1);
    assert_true(replica_yields(rig.replica));
    replica_pump(rig.replica, 0);
    assert_false(replica_yields(rig.replica));
    assert_int_equal(holds(), 1 + 2 * MANY);
}

static void test_a_leader_does_not_yield(void **state)
{
    (void)state;
    rig_serve(&rig);
    submit(1, 2 * MANY);
    replica_pump(rig.replica, MANY);
    memory_io_settle(&rig.memory);
    assert_true(replica_arrived(rig.replica));
    assert_false(replica_yields(rig.replica));
}

static void test_a_follower_does_not_stay_behind(void **state)
{
    (void)state;
    rig_open(&rig);
    for (size_t i = 1; i <= 100; i++)
        rig_follow(&rig, i, 1, i); /* the disk is never idle */
    assert_in_range(holds(), 80, 98);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_next_takes_off_first),
        TEST(test_the_next_arrives_before_it_is_applied),
        TEST(test_it_does_not_wait_for_nothing),
        TEST(test_it_does_not_wait_for_a_batch_to_fill),
        TEST(test_few_clients_are_answered_at_once),
        TEST(test_alone_it_is_answered_at_once),
        TEST(test_a_deposed_leader_answers_what_has_arrived),
        TEST(test_closing_answers_what_has_arrived),
        TEST(test_in_trouble_nobody_knows),
        TEST(test_when_it_has_enough),
        TEST(test_a_follower_applies_one_after_the_other),
        TEST(test_a_follower_writes_first),
        TEST(test_a_follower_yields_if_it_takes_long),
        TEST(test_a_leader_does_not_yield),
        TEST(test_a_follower_does_not_stay_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
