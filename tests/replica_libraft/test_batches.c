/* What is submitted, in which entry it goes, and who hears of it. */
#include "tools.h"

static struct rig rig;

static int set_up(void **state)
{
    (void)state;
    rig_init(&rig, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_free(&rig);
    return 0;
}

/* [R2] A node alone waits for nobody, but for its disk it does. */
static void test_serves_after_its_first_entry(void **state)
{
    struct core_command command = read_now();
    struct core_entry_header header;
    struct core_counts counts;

    (void)state;
    rig_open(&rig);
    assert_int_equal(replica_submit(rig.replica, &command, request(1)), HF_EUNREACH);
    assert_int_equal(replica_pump(rig.replica, 1), -1);
    assert_int_equal(rig.memory.append_count, 1);
    assert_int_equal(replica_submit(rig.replica, &command, request(1)), HF_EUNREACH);
    assert_int_equal(rig.witness.role_count, 0);

    memory_io_settle(&rig.memory);
    assert_int_equal(rig.witness.role_count, 1);
    assert_int_equal(rig.witness.roles[0], REPLICA_LEADING);
    assert_int_equal(rig_last(&rig), 2); /* the first is the founding */
    header = rig_header(&rig, 2);
    assert_true(header.new_term);
    assert_int_equal(header.elapsed_ms, 0);
    core_count(replica_table(rig.replica), &counts);
    assert_true(counts.identified);
    assert_int_equal(rig.witness.answers, 0); /* nobody asked for an identity */
    assert_int_equal(replica_submit(rig.replica, &command, request(1)), HF_OK);
}

static void test_identity_is_given_once(void **state)
{
    struct core_counts before, after;

    (void)state;
    rig_serve(&rig);
    core_count(replica_table(rig.replica), &before);
    rig_reopen(&rig);
    rig_settle(&rig);
    assert_int_equal(rig_header(&rig, rig_last(&rig)).count, 0);
    core_count(replica_table(rig.replica), &after);
    assert_string_equal(after.id, before.id);
}

static void test_one_round_is_one_entry(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.append_calls = 0;
    for (size_t i = 1; i <= 100; i++)
        submit_numbered(rig.replica, i, 60000);
    assert_int_equal(rig.memory.append_calls, 0);
    replica_pump(rig.replica, 1);
    assert_int_equal(rig.witness.answers, 0); /* [R1] */
    rig_settle(&rig);
    assert_int_equal(rig.memory.append_calls, 1);
    assert_int_equal(rig_header(&rig, rig_last(&rig)).count, 100);
    for (size_t i = 1; i <= 100; i++) {
        assert_int_equal(rig.witness.heard[i].answers, 1);
        assert_int_equal(rig.witness.heard[i].answer, ANSWER_TOKEN);
        assert_int_equal(rig.witness.heard[i].number, rig.witness.heard[1].number + i - 1);
    }
}

static void test_what_comes_meanwhile_goes_into_the_next(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.hold_appends = true;
    rig.memory.append_calls = 0;
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    submit_numbered(rig.replica, 2, 60000);
    rig_settle(&rig);
    submit_numbered(rig.replica, 3, 60000);
    rig_settle(&rig);
    assert_int_equal(rig.memory.append_calls, 1);
    assert_int_equal(rig.witness.answers, 0);

    rig.memory.hold_appends = false;
    memory_io_settle(&rig.memory);
    assert_int_equal(rig.witness.heard[1].answers, 1);
    assert_int_equal(rig.witness.answers, 1);
    rig_settle(&rig);
    assert_int_equal(rig.memory.append_calls, 2);
    assert_int_equal(rig_header(&rig, rig_last(&rig)).count, 2);
    assert_int_equal(rig.witness.answers, 3);
}

static void submit_another(struct witness *witness, size_t number)
{
    (void)witness;
    if (number < 10)
        submit_numbered(rig.replica, number + 1, 60000);
}

static void test_an_answer_may_submit(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.witness.on_answer = submit_another;
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, 10);
    assert_int_equal(rig_header(&rig, rig_last(&rig)).count, 1);
}

static void test_small_batches_wait_for_more(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.append_calls = 0;
    submit_numbered(rig.replica, 1, 60000);
    assert_int_equal(replica_pump(rig.replica, 10), REPLICA_GATHER_MAX_US);
    rig.witness.now_us += 100;
    submit_numbered(rig.replica, 2, 60000);
    assert_int_equal(replica_pump(rig.replica, 10), REPLICA_GATHER_MAX_US - 100);
    assert_int_equal(rig.memory.append_calls, 0);
    for (size_t i = 3; i <= 5; i++)
        submit_numbered(rig.replica, i, 60000);
    replica_pump(rig.replica, 10); /* half of them have spoken */
    assert_int_equal(rig.memory.append_calls, 1);
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, 5);
}

static void test_but_not_for_long(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.append_calls = 0;
    submit_numbered(rig.replica, 1, 60000);
    replica_pump(rig.replica, 1000);
    rig.witness.now_us += REPLICA_GATHER_MAX_US - 1;
    assert_int_equal(replica_pump(rig.replica, 1000), 1);
    assert_int_equal(rig.memory.append_calls, 0);
    rig.witness.now_us += 1;
    replica_pump(rig.replica, 1000);
    assert_int_equal(rig.memory.append_calls, 1);
    rig_settle(&rig);

    /* The next one's wait begins when there is nothing in flight. */
    submit_numbered(rig.replica, 2, 60000);
    assert_int_equal(replica_pump(rig.replica, 1000), REPLICA_GATHER_MAX_US);
}

static void test_nor_when_there_are_enough(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.append_calls = 0;
    for (size_t i = 1; i < REPLICA_ENOUGH; i++)
        submit_numbered(rig.replica, i, 60000);
    assert_int_equal(replica_pump(rig.replica, 10000), REPLICA_GATHER_MAX_US);
    assert_int_equal(rig.memory.append_calls, 0);
    submit_numbered(rig.replica, REPLICA_ENOUGH, 60000);
    replica_pump(rig.replica, 10000);
    assert_int_equal(rig.memory.append_calls, 1);
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, REPLICA_ENOUGH);
}

static void test_in_flight_until_it_is_written(void **state)
{
    (void)state;
    rig_serve(&rig);
    assert_false(replica_flying(rig.replica));
    rig.memory.hold_appends = true;
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    assert_true(replica_flying(rig.replica));
    rig.memory.hold_appends = false;
    rig_settle(&rig);
    assert_false(replica_flying(rig.replica));
    assert_int_equal(rig.witness.answers, 1);
}

static void test_a_lone_client_never_waits(void **state)
{
    (void)state;
    rig_serve(&rig);
    for (uint32_t expected = 0; expected <= 2; expected++) {
        rig.memory.append_calls = 0;
        submit_numbered(rig.replica, expected + 1, 60000);
        replica_pump(rig.replica, expected);
        assert_int_equal(rig.memory.append_calls, 1);
        rig_settle(&rig);
    }
}

static void test_a_batch_is_full_at_its_count(void **state)
{
    struct core_command command = read_now();
    uint32_t count = 0;

    (void)state;
    rig_serve(&rig);
    while (replica_submit(rig.replica, &command, request(count + 1)) == HF_OK)
        count++;
    assert_int_equal(count, REPLICA_BATCH_MAX_COUNT);
    assert_int_equal(replica_submit(rig.replica, &command, request(1)), HF_EBUSY);
    assert_int_equal(replica_pump(rig.replica, 1000000), -1); /* waits for nobody */
    assert_int_equal(replica_submit(rig.replica, &command, request(count + 1)), HF_OK);
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, count + 1);
    assert_int_equal(rig.witness.heard[1].kind, EFFECT_READ);
    assert_int_equal(rig.witness.heard[count].answers, 1);
}

static void test_a_batch_is_full_at_its_bytes(void **state)
{
    static char result[CORE_RESULT_MAX];
    struct core_command command = {.op = CORE_FINISH,
                                   .flags = CORE_ONCE,
                                   .name = {"key", 3},
                                   .lease = {"lease", 5},
                                   .token = 1,
                                   .result = {result, sizeof result}};
    size_t count = 0;

    (void)state;
    rig_serve(&rig);
    while (replica_submit(rig.replica, &command, request(count + 1)) == HF_OK)
        count++;
    assert_in_range(count, REPLICA_BATCH_MAX_BYTES / CORE_RESULT_MAX - 1,
                    REPLICA_BATCH_MAX_BYTES / CORE_RESULT_MAX + 1);
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, count);
}

static void test_renewing_many_is_answered_for_each(void **state)
{
    struct core_text leases[3] = {{"lease-1", 7}, {"nobody", 6}, {"lease-2", 7}};
    struct core_command renew = {.op = CORE_RENEW, .leases = leases, .lease_count = 3};
    struct core_command command = read_now();

    (void)state;
    rig_serve(&rig);
    submit_numbered(rig.replica, 1, 60000);
    submit_numbered(rig.replica, 2, 60000);
    rig_settle(&rig);
    assert_int_equal(replica_submit(rig.replica, &renew, request(3)), HF_OK);
    assert_int_equal(replica_submit(rig.replica, &command, request(4)), HF_OK);
    rig_settle(&rig);
    assert_int_equal(rig.witness.heard[3].answers, 3);
    assert_int_equal(rig.witness.heard[3].number, 60000);
    assert_int_equal(rig.witness.heard[4].answers, 1);
}

static void test_closing_fails_what_is_under_way(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.hold_appends = true;
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    submit_numbered(rig.replica, 2, 60000);
    rig_close(&rig);
    assert_int_equal(rig.witness.answers, 0);
    assert_int_equal(rig.witness.failures, 2);
    assert_int_equal(rig.witness.heard[1].failure, REPLICA_UNKNOWN);
    assert_int_equal(rig.witness.heard[2].failure, REPLICA_NOT_LEADING);
}

static void test_what_was_answered_survives(void **state)
{
    uint64_t hash, token;

    (void)state;
    rig_serve(&rig);
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    hash = core_hash(replica_table(rig.replica));
    token = rig.witness.heard[1].number;
    rig.witness.changes = 0;
    rig_reopen(&rig);
    assert_int_equal(core_hash(replica_table(rig.replica)), hash);
    assert_int_equal(rig.witness.changes, 0); /* what is replayed is no news */
    rig_settle(&rig);
    submit_numbered(rig.replica, 1, 60000);
    submit_numbered(rig.replica, 2, 60000);
    rig_settle(&rig);
    assert_int_equal(rig.witness.heard[1].number, token);
    assert_true(rig.witness.heard[2].number > token);
}

static void test_status(void **state)
{
    struct replica_status status;

    (void)state;
    rig_serve(&rig);
    for (size_t i = 1; i <= 3; i++)
        submit_numbered(rig.replica, i, 60000);
    rig_settle(&rig);
    rig_pass(&rig, 600 * MS);
    replica_status(rig.replica, &status);
    assert_int_equal(status.role, REPLICA_LEADING);
    assert_int_equal(status.id, 1);
    assert_int_equal(status.leader_id, 1);
    assert_int_equal(status.term, 2); /* 1 is that of the founding */
    assert_int_equal(status.commands, 3);
    assert_int_equal(status.ticks, 2);
    assert_int_equal(status.entries, 4);
    assert_int_equal(status.last_index, 5);
    assert_int_equal(status.commit_index, 5);
    assert_int_equal(status.applied_index, 5);
    assert_true(status.log_bytes > 0);
    assert_false(status.snapshotting);
}

static void test_options_that_cannot_be(void **state)
{
    struct replica_host host = witness_host(&rig.witness);
    struct error_text err;

    (void)state;
    rig.options.heartbeat_ms = 1000;
    assert_int_equal(replica_open(&rig.options, &rig.memory.io, &host, &rig.replica, &err),
                     HF_EINVAL);
    rig.options.heartbeat_ms = 0;
    rig.options.id = 0;
    assert_int_equal(replica_open(&rig.options, &rig.memory.io, &host, &rig.replica, &err),
                     HF_EINVAL);
    assert_null(rig.replica);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_serves_after_its_first_entry),
        TEST(test_identity_is_given_once),
        TEST(test_one_round_is_one_entry),
        TEST(test_what_comes_meanwhile_goes_into_the_next),
        TEST(test_an_answer_may_submit),
        TEST(test_small_batches_wait_for_more),
        TEST(test_but_not_for_long),
        TEST(test_nor_when_there_are_enough),
        TEST(test_in_flight_until_it_is_written),
        TEST(test_a_lone_client_never_waits),
        TEST(test_a_batch_is_full_at_its_count),
        TEST(test_a_batch_is_full_at_its_bytes),
        TEST(test_renewing_many_is_answered_for_each),
        TEST(test_closing_fails_what_is_under_way),
        TEST(test_what_was_answered_survives),
        TEST(test_status),
        TEST(test_options_that_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
