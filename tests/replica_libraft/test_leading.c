/* Three members, two of them played by the raft_io: leadership won and lost, and what becomes of
 * what was under way. */
#include "tools.h"

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

/* One command in flight that nobody acknowledges, one in the batch: requests 1 and 2. */
static void serve_and_stall(void)
{
    rig_serve(&rig);
    rig.memory.peers_answer = false;
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    submit_numbered(rig.replica, 2, 60000);
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, 0);
    assert_int_equal(rig.witness.failures, 0);
}

static void assert_deposed(void)
{
    struct core_command command = read_now();

    assert_int_equal(witness_role(&rig.witness), REPLICA_FOLLOWING);
    assert_int_equal(replica_submit(rig.replica, &command, request(9)), HF_EUNREACH);
    assert_int_equal(rig.witness.heard[1].failures, 1);
    assert_int_equal(rig.witness.heard[1].failure, REPLICA_UNKNOWN);
    assert_int_equal(rig.witness.heard[2].failures, 1);
    assert_int_equal(rig.witness.heard[2].failure, REPLICA_NOT_LEADING);
    assert_int_equal(rig.witness.answers, 0);
}

static raft_term term(void)
{
    struct replica_status status;

    replica_status(rig.replica, &status);
    return status.term;
}

static void test_follows_until_it_is_elected(void **state)
{
    struct replica_status status;

    (void)state;
    rig_open(&rig);
    rig_settle(&rig);
    for (int i = 0; i < 30; i++) { /* nobody answers */
        memory_io_tick(&rig.memory, 100);
        rig_settle(&rig);
    }
    assert_int_equal(rig.witness.role_count, 0);
    replica_status(rig.replica, &status);
    assert_int_equal(status.term, 1); /* pre-vote: it disturbs nobody */
    assert_int_equal(status.leader_id, 0);

    rig.memory.peers_answer = true;
    for (int i = 0; i < 30; i++) {
        memory_io_tick(&rig.memory, 100);
        rig_settle(&rig);
    }
    assert_int_equal(rig.witness.role_count, 1);
    assert_int_equal(rig.witness.roles[0], REPLICA_LEADING);
    assert_true(rig_header(&rig, rig_last(&rig)).new_term);
}

/* [R2] Elected, but the first entry is not committed. */
static void test_elected_is_not_yet_serving(void **state)
{
    struct core_command command = read_now();

    (void)state;
    rig_open(&rig);
    rig.memory.peers_answer = true;
    for (int i = 0; i < 40 && rig.memory.append_calls == 0; i++) {
        memory_io_tick(&rig.memory, 100);
        memory_io_settle(&rig.memory);
        rig.memory.peers_answer = raft_state(rig.memory.io.data) != RAFT_LEADER;
        replica_pump(rig.replica, 1);
    }
    rig_settle(&rig);
    assert_int_equal(rig.memory.append_calls, 1);
    assert_int_equal(rig.witness.role_count, 0);
    assert_int_equal(replica_submit(rig.replica, &command, request(1)), HF_EUNREACH);
}

static void test_a_higher_term_deposes(void **state)
{
    (void)state;
    serve_and_stall();
    memory_io_receive_entry(&rig.memory, 2, term() + 1, 2, term(), 0, NULL, 0);
    assert_deposed();
}

static void test_silence_deposes(void **state)
{
    (void)state;
    serve_and_stall();
    for (int i = 0; i < 11; i++)
        memory_io_tick(&rig.memory, 100);
    assert_deposed();
}

/* The new leader had the entry, and says in one message that it leads and that it is committed. */
static void test_committed_by_the_message_that_deposes(void **state)
{
    raft_term led;

    (void)state;
    serve_and_stall();
    led = term();
    memory_io_receive_entry(&rig.memory, 2, led + 1, rig_last(&rig), led, rig_last(&rig), NULL, 0);
    assert_int_equal(rig.witness.heard[1].answers, 1);
    assert_int_equal(rig.witness.heard[1].failures, 0);
    assert_int_equal(rig.witness.heard[2].failure, REPLICA_NOT_LEADING);
    assert_int_equal(witness_role(&rig.witness), REPLICA_FOLLOWING);
}

/* Said to be unknown, and then it took effect: nobody is told twice. */
static void test_committed_after_it_was_deposed(void **state)
{
    struct core_counts counts;
    raft_term led;

    (void)state;
    serve_and_stall();
    led = term();
    memory_io_receive_entry(&rig.memory, 2, led + 1, rig_last(&rig), led, 0, NULL, 0);
    assert_deposed();
    assert_int_equal(rig.witness.changes, 0);
    memory_io_receive_entry(&rig.memory, 2, led + 1, rig_last(&rig), led, rig_last(&rig), NULL, 0);
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, 0);
    assert_int_equal(rig.witness.failures, 2);
    assert_int_equal(rig.witness.changes, 1);
    core_count(replica_table(rig.replica), &counts);
    assert_int_equal(counts.holds, 1);
}

/* Said to be unknown, and the new leader put something else in its place. */
static void test_replaced_after_it_was_deposed(void **state)
{
    struct core_packer packer = {0};
    struct core_command command = acquire("theirs", "their lease", 60000);
    struct core_counts counts;
    struct core_lock_view view;
    raft_index last;
    raft_term led;
    size_t size;
    void *bytes;

    (void)state;
    serve_and_stall();
    led = term();
    last = rig_last(&rig);
    core_pack(&packer, &command);
    core_packer_finish(&packer, 0, true, 99, 1);
    bytes = core_packer_take(&packer, &size);
    memory_io_receive_entry(&rig.memory, 2, led + 1, last - 1, led, last, bytes, size);
    free(bytes);
    rig_settle(&rig);
    assert_deposed();
    core_count(replica_table(rig.replica), &counts);
    assert_int_equal(counts.holds, 1);
    assert_true(core_find(replica_table(rig.replica), text("theirs"), false, &view));
    assert_false(core_find(replica_table(rig.replica), text("jobs/1"), false, &view));
}

static void test_leads_again(void **state)
{
    struct core_entry_header header;

    (void)state;
    serve_and_stall();
    for (int i = 0; i < 11; i++)
        memory_io_tick(&rig.memory, 100);
    assert_deposed();
    rig.memory.peers_answer = true;
    rig.witness.now_us += 9000 * MS;
    for (int i = 0; i < 40 && witness_role(&rig.witness) != REPLICA_LEADING; i++) {
        memory_io_tick(&rig.memory, 100);
        rig_settle(&rig);
    }
    assert_int_equal(witness_role(&rig.witness), REPLICA_LEADING);
    assert_int_equal(rig.witness.role_count, 3);
    header = rig_header(&rig, rig_last(&rig));
    assert_true(header.new_term);
    assert_int_equal(header.elapsed_ms, 0);
    submit_numbered(rig.replica, 3, 60000);
    rig_settle(&rig);
    assert_int_equal(rig.witness.heard[3].answers, 1);
    assert_int_equal(rig.witness.answers,
                     1); /* the one that became committed after all is old news */
}

/* [R2] Its last entry of the term before is committed, its first one of this term is not yet. */
static void test_an_old_entry_is_not_the_first(void **state)
{
    struct core_command command = read_now();
    struct core_counts counts;

    (void)state;
    serve_and_stall();
    for (int i = 0; i < 11; i++)
        memory_io_tick(&rig.memory, 100);
    assert_deposed();
    rig.memory.peers_answer = true;
    rig.memory.ack_max = rig_last(&rig);
    for (int i = 0; i < 40 && rig_last(&rig) < rig.memory.ack_max + 2; i++) {
        memory_io_tick(&rig.memory, 100);
        rig_settle(&rig);
    }
    rig.memory.ack_max++; /* libraft's own first entry */
    memory_io_tick(&rig.memory, 100);
    rig_settle(&rig);
    core_count(replica_table(rig.replica), &counts);
    assert_int_equal(counts.holds, 1);
    assert_true(rig_header(&rig, rig_last(&rig)).new_term);
    assert_int_equal(witness_role(&rig.witness), REPLICA_FOLLOWING);
    assert_int_equal(replica_submit(rig.replica, &command, request(3)), HF_EUNREACH);
    rig.memory.ack_max = 0;
    memory_io_tick(&rig.memory, 100);
    rig_settle(&rig);
    assert_int_equal(witness_role(&rig.witness), REPLICA_LEADING);
    assert_int_equal(rig.witness.answers, 0);
}

/* An entry of another process with the very number of the one in flight. */
static void test_only_its_own_entries_are_answered(void **state)
{
    struct core_packer packer = {0};
    struct core_command command = read_now();
    raft_index last;
    raft_term led;
    size_t size;
    void *bytes;

    (void)state;
    serve_and_stall();
    led = term();
    last = rig_last(&rig);
    core_pack(&packer, &command);
    core_packer_finish(&packer, 0, true, rig_header(&rig, last).origin + 1,
                       rig_header(&rig, last).sequence);
    bytes = core_packer_take(&packer, &size);
    memory_io_receive_entry(&rig.memory, 2, led + 1, last - 1, led, last, bytes, size);
    free(bytes);
    rig_settle(&rig);
    assert_deposed();
}

/* While leadership is handed over libraft takes no entries, and still says that it leads: what comes waits. */
static void test_nothing_is_proposed_while_handing_over(void **state)
{
    struct core_command command = read_now();
    struct error_text err = {""};

    (void)state;
    rig_serve(&rig);
    rig_pass(&rig, 300 * MS);
    assert_int_equal(replica_transfer(rig.replica, 0, request(9), &err), HF_OK);
    assert_int_equal(replica_submit(rig.replica, &command, request(1)), HF_OK);
    rig_settle(&rig);
    assert_int_equal(rig.witness.heard[1].failures + rig.witness.heard[1].answers, 0);
    assert_int_equal(rig.witness.changes_told, 0);
    assert_int_equal(witness_role(&rig.witness), REPLICA_LEADING);
    assert_int_equal(replica_transfer(rig.replica, 0, request(8), &err), HF_EBUSY);

    rig_pass(&rig, 2000 * MS); /* but the other does not want to */
    assert_int_equal(rig.witness.changes_told, 1);
    assert_ptr_equal(rig.witness.changed, request(9));
    assert_int_equal(rig.witness.change, REPLICA_UNCHANGED);
    assert_int_equal(witness_role(&rig.witness), REPLICA_LEADING);
    assert_int_equal(rig.witness.heard[1].answers, 1);
}

static void test_closing_as_a_candidate(void **state)
{
    (void)state;
    rig_open(&rig);
    for (int i = 0; i < 30; i++)
        memory_io_tick(&rig.memory, 100);
    assert_int_equal(raft_state(rig.memory.io.data), RAFT_CANDIDATE);
    rig_close(&rig);
    assert_int_equal(rig.witness.role_count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_follows_until_it_is_elected),
        TEST(test_elected_is_not_yet_serving),
        TEST(test_a_higher_term_deposes),
        TEST(test_silence_deposes),
        TEST(test_committed_by_the_message_that_deposes),
        TEST(test_committed_after_it_was_deposed),
        TEST(test_replaced_after_it_was_deposed),
        TEST(test_leads_again),
        TEST(test_an_old_entry_is_not_the_first),
        TEST(test_only_its_own_entries_are_answered),
        TEST(test_nothing_is_proposed_while_handing_over),
        TEST(test_closing_as_a_candidate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
