/* [R4] A disk that refuses, or says nothing: the node says why, fails what is under way, and takes no
 * part any more. */
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

/* One command in flight, one in the batch. */
static void put_under_way(void)
{
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    submit_numbered(rig.replica, 2, 60000);
}

static void assert_stopped(const char *because)
{
    struct core_command command = read_now();
    struct replica_status status;

    assert_int_equal(rig.witness.stops, 1);
    if (!strstr(rig.witness.stopped, because))
        fail_msg("'%s' does not say '%s'", rig.witness.stopped, because);
    assert_int_equal(witness_role(&rig.witness), REPLICA_STOPPED);
    assert_int_equal(replica_submit(rig.replica, &command, request(9)), HF_EUNREACH);
    assert_int_equal(replica_pump(rig.replica, 1), -1);
    replica_status(rig.replica, &status);
    assert_int_equal(status.role, REPLICA_STOPPED);
    assert_int_equal(status.leader_id, 0);
    assert_false(rig.memory.running); /* libraft is closed, whatever the host does */
    memory_io_settle(&rig.memory);
    assert_int_equal(rig.witness.stops, 1);
}

static void assert_failed_under_way(void)
{
    assert_int_equal(rig.witness.answers, 0);
    assert_int_equal(rig.witness.heard[1].failures, 1);
    assert_int_equal(rig.witness.heard[1].failure, REPLICA_UNKNOWN);
    assert_int_equal(rig.witness.heard[2].failures, 1);
    assert_int_equal(rig.witness.heard[2].failure, REPLICA_NOT_LEADING);
}

/* libraft has freed the buffer when the append is refused, and its log is no longer the disk's. */
static void test_an_append_refused_at_once(void **state)
{
    (void)state;
    rig_serve(&rig);
    submit_numbered(rig.replica, 1, 60000);
    rig.memory.fail_append = RAFT_IOERR;
    assert_int_equal(replica_pump(rig.replica, 1), -1);
    assert_stopped("the log cannot be written: I/O error");
    assert_int_equal(rig.witness.heard[1].failure, REPLICA_UNKNOWN);
    assert_int_equal(rig.witness.failures, 1);
}

static void test_an_append_that_fails(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.hold_appends = true;
    put_under_way();
    rig.memory.hold_appends = false;
    rig.memory.spoil_append = RAFT_NOSPACE;
    memory_io_settle(&rig.memory);
    assert_int_equal(rig.witness.stops, 0); /* libraft may be on the stack */
    rig_settle(&rig);
    assert_stopped("Not enough disk space");
    assert_failed_under_way();
}

static void test_words_without_an_append_are_no_trouble(void **state)
{
    (void)state;
    rig_serve(&rig);
    snprintf(rig.memory.io.errmsg, sizeof rig.memory.io.errmsg, "somebody could not be reached");
    memory_io_tick(&rig.memory, 100);
    rig_settle(&rig);
    assert_int_equal(rig.witness.stops, 0);
}

static void test_a_slow_disk_is_noted_and_waited_for(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.hold_appends = true;
    put_under_way();
    rig_pass(&rig, (REPLICA_STALL_MS + 500) * MS);
    assert_int_equal(rig.witness.notes, 1);
    assert_non_null(strstr(rig.witness.noted, "5 s"));
    rig_pass(&rig, 20000 * MS);
    assert_int_equal(rig.witness.notes, 1);
    rig.memory.hold_appends = false;
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, 2);

    rig.memory.hold_appends = true; /* a wait of its own */
    submit_numbered(rig.replica, 3, 60000);
    rig_pass(&rig, (REPLICA_STALL_MS + 500) * MS);
    assert_int_equal(rig.witness.stops, 0);
    assert_int_equal(rig.witness.notes, 2);
}

static void test_but_not_for_ever(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.hold_appends = true;
    put_under_way();
    rig_pass(&rig, (REPLICA_STALL_MAX_MS - 500) * MS);
    assert_int_equal(rig.witness.stops, 0);
    rig_pass(&rig, 1000 * MS);
    assert_stopped("30 s");
    assert_failed_under_way();
}

/* The machine was suspended for an hour with an append under way. */
static void test_sleep_is_no_stall(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig.memory.hold_appends = true;
    put_under_way();
    rig_pass(&rig, 1000 * MS);
    rig.witness.now_us += INT64_C(3600) * 1000 * MS;
    rig_pass(&rig, 1000 * MS);
    assert_int_equal(rig.witness.stops, 0);
    rig.memory.hold_appends = false;
    rig_settle(&rig);
    assert_int_equal(rig.witness.answers, 2);
}

static void test_a_term_that_cannot_be_stored(void **state)
{
    struct replica_status status;

    (void)state;
    rig.options.member_count = 3;
    rig_serve(&rig);
    replica_status(rig.replica, &status);
    rig.memory.fail_set_term = RAFT_IOERR;
    rig.memory.sent_count = 0;
    memory_io_receive_entry(&rig.memory, 2, status.term + 5, status.last_index, status.term, 0,
                            NULL, 0);
    assert_int_equal(rig.memory.sent_count, 0); /* libraft believes it; nobody may hear of it */
    memory_io_tick(&rig.memory, 100);
    assert_stopped("the term cannot be stored: I/O error");
    assert_int_equal(rig.memory.sent_count, 0);
}

static void test_a_vote_that_cannot_be_stored(void **state)
{
    struct raft_message message = {
        .type = RAFT_REQUEST_VOTE, .server_id = 2, .server_address = "two"};

    (void)state;
    rig.options.member_count = 3;
    rig_open(&rig);
    rig_settle(&rig);
    rig.memory.fail_set_vote = RAFT_NOSPACE;
    message.request_vote = (struct raft_request_vote){
        .version = 2, .term = 7, .candidate_id = 2, .last_log_index = 1000, .last_log_term = 6};
    memory_io_receive(&rig.memory, &message);
    assert_int_equal(rig.memory.sent_count, 0);
    memory_io_receive(&rig.memory, &message); /* and not when it is asked again, either */
    assert_int_equal(rig.memory.sent_count, 0);
    rig_settle(&rig);
    assert_stopped("the vote cannot be stored: Not enough disk space");
}

/* What comes while it waits to be stopped is freed, and changes nothing. */
static void test_messages_after_trouble(void **state)
{
    struct replica_status status;

    (void)state;
    rig.options.member_count = 3;
    rig_serve(&rig);
    replica_status(rig.replica, &status);
    rig.memory.fail_set_term = RAFT_IOERR;
    memory_io_receive_entry(&rig.memory, 2, status.term + 5, status.last_index, status.term, 0,
                            NULL, 0);
    rig.memory.append_calls = 0;
    memory_io_receive_entry(&rig.memory, 2, status.term + 5, status.last_index, status.term, 0,
                            "12345678", 8);
    memory_io_receive_entry(&rig.memory, 2, status.term + 9, status.last_index, status.term, 0,
                            NULL, 0);
    assert_int_equal(rig.memory.append_calls, 0);
    assert_int_equal(raft_current_term(rig.memory.io.data), status.term + 5);
    rig_settle(&rig);
    assert_stopped("the term");
}

/* One message says that another leads, which cannot be stored, and that the entry in flight is
 * committed. */
static void test_nothing_is_applied_after_trouble(void **state)
{
    struct replica_status status;

    (void)state;
    rig.options.member_count = 3;
    rig_serve(&rig);
    rig.memory.peers_answer = false;
    put_under_way();
    replica_status(rig.replica, &status);
    rig.memory.fail_set_term = RAFT_IOERR;
    memory_io_receive_entry(&rig.memory, 2, status.term + 1, status.last_index, status.term,
                            status.last_index, NULL, 0);
    assert_int_equal(rig.witness.answers, 0);
    rig_settle(&rig);
    assert_stopped("the term");
    assert_failed_under_way();
}

/* A peer's entry that this version does not know. */
static void test_an_entry_that_cannot_be_applied(void **state)
{
    struct replica_status status;

    (void)state;
    rig.options.member_count = 3;
    rig_serve(&rig);
    replica_status(rig.replica, &status);
    memory_io_receive_entry(&rig.memory, 2, status.term + 1, status.last_index, status.term,
                            status.last_index + 1, "12345678", 8);
    rig_settle(&rig);
    assert_stopped("cannot be applied");
}

static void test_a_log_that_cannot_be_applied(void **state)
{
    struct replica_host host = witness_host(&rig.witness);
    struct error_text err = {""};
    unsigned char *bytes;

    (void)state;
    rig_serve(&rig);
    submit_numbered(rig.replica, 1, 60000);
    rig_settle(&rig);
    rig_close(&rig);
    bytes = rig.memory.entries[rig.memory.count - 1].buf.base;
    bytes[0] = 0xff;
    rig.witness.role_count = 0;
    assert_int_equal(replica_open(&rig.options, &rig.memory.io, &host, &rig.replica, &err), HF_EIO);
    assert_non_null(strstr(err.text, "entry 3 of the log cannot be applied"));
    memory_io_settle(&rig.memory);
    assert_null(rig.replica);
    assert_int_equal(rig.witness.role_count, 0);
    bytes[0] = 1; /* it was the only thing wrong with it */
    rig_open(&rig);
}

static void test_a_founding_that_fails(void **state)
{
    static const struct replica_member twice[] = {{1, "one"}, {1, "two"}};
    struct replica_host host = witness_host(&rig.witness);
    struct error_text err = {""};

    (void)state;
    rig.options.members = twice;
    rig.options.member_count = 2;
    assert_int_equal(replica_open(&rig.options, &rig.memory.io, &host, &rig.replica, &err), HF_EIO);
    assert_non_null(strstr(err.text, "cannot be founded"));
    memory_io_settle(&rig.memory);
    assert_int_equal(rig.memory.term, 0);
}

static void test_a_stranger_is_noted(void **state)
{
    (void)state;
    rig_serve(&rig);
    rig_close(&rig);
    rig.options.id = 8;
    rig_open(&rig);
    assert_int_equal(rig.witness.notes, 1);
    assert_non_null(strstr(rig.witness.noted, "not a member"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_append_refused_at_once),
        TEST(test_an_append_that_fails),
        TEST(test_words_without_an_append_are_no_trouble),
        TEST(test_a_slow_disk_is_noted_and_waited_for),
        TEST(test_but_not_for_ever),
        TEST(test_sleep_is_no_stall),
        TEST(test_a_term_that_cannot_be_stored),
        TEST(test_a_vote_that_cannot_be_stored),
        TEST(test_messages_after_trouble),
        TEST(test_nothing_is_applied_after_trouble),
        TEST(test_an_entry_that_cannot_be_applied),
        TEST(test_a_log_that_cannot_be_applied),
        TEST(test_a_founding_that_fails),
        TEST(test_a_stranger_is_noted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
