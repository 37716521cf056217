/* How much of the log libraft keeps in memory, and that nobody misses the rest. */
#include "tools.h"

#define ENOUGH 2000u /* bytes of log in memory: some twenty entries of one command */
#define SOME 200u

static struct rig rig;

static int set_up(void **state)
{
    (void)state;
    rig_init(&rig, 3);
    rig.options.memory_bytes = ENOUGH;
    rig.options.snapshot_trailing = 4;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_free(&rig);
    return 0;
}

static struct replica_status status(void)
{
    struct replica_status now;

    replica_status(rig.replica, &now);
    return now;
}

/* Node 2 leads. */
static void follow(size_t count)
{
    for (size_t i = 1; i <= count; i++) {
        rig_follow(&rig, i, 1, i);
        rig_settle(&rig);
    }
    assert_int_equal(rig_last(&rig), count + 1);
}

static void become_leader(void)
{
    rig.memory.peers_answer = rig.options.member_count > 1;
    rig_settle(&rig);
    for (int i = 0; i < 40 && witness_role(&rig.witness) != REPLICA_LEADING; i++) {
        memory_io_tick(&rig.memory, 100);
        rig_settle(&rig);
    }
    assert_int_equal(witness_role(&rig.witness), REPLICA_LEADING);
}

/* Each in an entry of its own. */
static void submit_some(size_t from)
{
    for (size_t i = from; i < from + SOME; i++) {
        submit_numbered(rig.replica, i, 3600000);
        rig_settle(&rig);
        assert_int_equal(rig.witness.heard[i].answers, 1);
    }
}

static void tick_some(void)
{
    for (int i = 0; i < 5; i++) {
        memory_io_tick(&rig.memory, 100);
        rig_settle(&rig);
    }
}

static void test_a_node_alone_forgets(void **state)
{
    uint64_t hash;

    (void)state;
    rig.options.member_count = 1;
    rig_serve(&rig);
    submit_some(1);
    assert_true(status().log_bytes > 5 * ENOUGH);
    assert_in_range(status().memory_bytes, 1, 2 * ENOUGH);
    assert_int_equal(status().snapshots, 0);
    assert_int_equal(rig.memory.put_calls, 0);

    hash = core_hash(replica_table(rig.replica));
    rig_reopen(&rig); /* from the disk, where all of it is */
    assert_int_equal(core_hash(replica_table(rig.replica)), hash);
    assert_in_range(status().memory_bytes, 5 * ENOUGH, status().log_bytes);
    become_leader();
    submit_some(SOME + 1);
    assert_in_range(status().memory_bytes, 1, 2 * ENOUGH);
}

/* Of what `follow` has brought. */
static void all_committed(void)
{
    memory_io_receive_entry(&rig.memory, 2, 2, SOME + 1, 2, SOME + 1, NULL, 0);
    rig_settle(&rig);
    assert_int_equal(status().applied_index, SOME + 1);
}

static void test_a_follower_forgets(void **state)
{
    uint64_t hash;

    (void)state;
    rig_open(&rig);
    follow(SOME);
    assert_true(status().log_bytes > 5 * ENOUGH);
    assert_in_range(status().memory_bytes, 1, 2 * ENOUGH);
    assert_int_equal(rig.memory.put_calls, 0);
    all_committed();
    hash = core_hash(replica_table(rig.replica));
    rig_reopen(&rig);
    all_committed();
    assert_int_equal(core_hash(replica_table(rig.replica)), hash);
}

/* The others have it, and it is applied. libraft looks for each entry when it is written: one that it had forgotten would never be
 * acknowledged, nor any behind it. */
static void test_a_follower_keeps_what_is_not_on_its_disk(void **state)
{
    (void)state;
    rig_open(&rig);
    rig.memory.hold_appends = true;
    for (size_t i = 1; i <= SOME; i++) {
        rig_follow(&rig, i, 1, i + 1);
        for (int turn = 0; turn < 4; turn++) {
            memory_io_settle(&rig.memory);
            replica_pump(rig.replica, 0);
        }
    }
    assert_int_equal(status().applied_index, SOME + 1);
    assert_int_equal(memory_io_last(&rig.memory), 1);
    rig.memory.hold_appends = false;
    rig_settle(&rig);
    assert_int_equal(rig.memory.told.rejected, 0);
    assert_int_equal(rig.memory.told.last_log_index, SOME + 1);
    rig_follow(&rig, SOME + 1, 1, SOME + 1); /* and with the next one, it may */
    rig_settle(&rig);
    assert_int_equal(rig.memory.told.last_log_index, SOME + 2);
    assert_in_range(status().memory_bytes, 1, 2 * ENOUGH);
}

/* The leader has not heard yet that it came. */
static void test_a_follower_keeps_what_may_be_sent_again(void **state)
{
    (void)state;
    rig_open(&rig);
    follow(SOME);
    for (int turn = 0; turn < 2; turn++) {
        rig_follow_many(&rig, SOME + 1, SOME, 2 * SOME + 1);
        rig_settle(&rig);
        assert_int_equal(status().applied_index, 2 * SOME + 1);
        assert_int_equal(rig.memory.told.rejected, 0);
        assert_int_equal(rig.memory.told.last_log_index, 2 * SOME + 1);
    }
    for (size_t i = 2 * SOME + 1; i < 2 * SOME + 4; i++) { /* now it has */
        rig_follow(&rig, i, 1, i + 1);
        rig_settle(&rig);
    }
    assert_in_range(status().memory_bytes, 1, 2 * ENOUGH);
}

static void test_a_leader_forgets_what_all_have(void **state)
{
    (void)state;
    rig_serve(&rig);
    submit_some(1);
    assert_true(status().log_bytes > 5 * ENOUGH);
    assert_in_range(status().memory_bytes, 1, 2 * ENOUGH);
    assert_int_equal(rig.memory.put_calls, 0);
}

static void test_a_leader_keeps_what_one_lacks(void **state)
{
    uint64_t kept;

    (void)state;
    rig_serve(&rig);
    submit_some(1);
    rig.memory.silent = 3;
    kept = status().log_bytes;
    submit_some(SOME + 1);
    kept = status().log_bytes - kept;
    assert_true(status().memory_bytes >= kept);

    rig.memory.silent = 0; /* and it gets it */
    tick_some();
    submit_some(2 * SOME + 1);
    assert_in_range(status().memory_bytes, 1, 2 * ENOUGH);
    assert_int_equal(rig.memory.put_calls, 0);
    assert_int_equal(rig.memory.installs, 0);
}

/* This node has forgotten it while another one led, and could not know. The snapshot is a later one than libraft wanted
 * to send, and of a later term. */
static void test_a_snapshot_is_taken_for_who_needs_it(void **state)
{
    (void)state;
    rig_open(&rig);
    follow(SOME);
    rig.memory.empty = 3;
    become_leader();
    tick_some();
    assert_int_equal(rig.memory.put_calls, 1);
    assert_int_equal(status().snapshots, 1);
    assert_int_equal(rig.memory.installs, 1);
    assert_true(rig.memory.install_index > SOME + 1);
    assert_int_equal(rig.memory.install_index, rig.memory.snapshot.index);
    assert_true(rig.memory.snapshot.term > 2);
    assert_int_equal(rig.memory.install_term, rig.memory.snapshot.term);
    submit_some(SOME + 1); /* which all but node 3 acknowledge */
}

static void test_the_last_snapshot_is_good_enough(void **state)
{
    (void)state;
    rig.options.memory_bytes = 0;
    rig.options.snapshot_bytes = 1; /* as soon as the log is as long as the last one */
    rig_open(&rig);
    follow(SOME);
    assert_true(rig.memory.snapshot.index > 10);
    rig.options.snapshot_bytes = 0;
    rig_reopen(&rig);
    rig.memory.put_calls = 0;
    rig.memory.empty = 3;
    become_leader();
    tick_some();
    assert_int_equal(rig.memory.put_calls, 0);
    assert_true(rig.memory.installs > 0);
    assert_int_equal(rig.memory.install_index, rig.memory.snapshot.index);
}

/* Node 3 refuses what it is told while the snapshot is not there yet, which libraft takes for a reason to ask again. */
static void test_it_is_read_once(void **state)
{
    (void)state;
    rig.options.memory_bytes = 0;
    rig.options.snapshot_bytes = 1;
    rig_open(&rig);
    follow(SOME);
    rig.options.snapshot_bytes = 0;
    rig_reopen(&rig);
    rig.memory.empty = 3;
    rig.memory.hold_gets = true;
    become_leader();
    for (int i = 0; i < 4; i++)
        tick_some();
    assert_int_equal(rig.memory.get_calls, 1);
    rig.memory.hold_gets = false;
    rig.memory.empty = 0;
    rig_settle(&rig);
    assert_int_equal(rig.memory.installs, 1);
}

static void test_it_is_sent_once(void **state)
{
    (void)state;
    rig_open(&rig);
    follow(SOME);
    rig.memory.empty = 3;
    rig.memory.hold_puts = true;
    become_leader();
    for (int i = 0; i < 4; i++)
        tick_some();
    assert_int_equal(rig.memory.installs, 0);
    rig.memory.hold_puts = false;
    rig.memory.silent = 3;
    rig_settle(&rig);
    assert_int_equal(rig.memory.installs, 1);
    /* It did not arrive, and is sent again when libraft has waited long enough. */
    rig.memory.silent = 0;
    for (int i = 0; i < 100 && rig.memory.installs == 1; i++)
        tick_some();
    assert_int_equal(rig.memory.installs, 2);
    assert_int_equal(rig.memory.put_calls, 1);
}

/* Node 3 is behind a slow line, and node 4 needs one, too. None is sent twice at a time: memory_io looks. */
static void test_a_slow_one_keeps_nobody_out(void **state)
{
    (void)state;
    rig_free(&rig);
    rig_init(&rig, 5);
    rig.options.memory_bytes = ENOUGH;
    rig.options.snapshot_trailing = 4;
    rig_open(&rig);
    follow(SOME);
    rig.memory.empty = rig.memory.slow = 3;
    rig.memory.empty_too = 4;
    become_leader();
    for (int i = 0; i < 20 && rig.memory.installed != (1 << 3 | 1 << 4); i++)
        tick_some();
    assert_int_equal(rig.memory.installed, 1 << 3 | 1 << 4);
    assert_non_null(rig.memory.slow_sent.req);
    for (int i = 0; i < 100; i++)
        tick_some();
    rig.memory.slow = 0;
    rig_settle(&rig);
    assert_null(rig.memory.slow_sent.req);
}

static void test_closed_while_somebody_needs_one(void **state)
{
    (void)state;
    rig_open(&rig);
    follow(SOME);
    rig.memory.empty = 3;
    rig.memory.hold_puts = true;
    become_leader();
    tick_some();
    assert_int_equal(rig.memory.put_calls, 1);
    rig_close(&rig);
    assert_int_equal(rig.memory.installs, 0);
}

static void test_closed_while_it_forgets(void **state)
{
    size_t number = 1;

    (void)state;
    rig.options.member_count = 1;
    rig_serve(&rig);
    for (; !status().snapshotting; number++) {
        submit_numbered(rig.replica, number, 3600000);
        replica_pump(rig.replica, 0);
        memory_io_settle(&rig.memory);
    }
    rig_close(&rig);
    assert_int_equal(rig.memory.put_calls, 0);
}

static void test_one_that_cannot_be_read(void **state)
{
    (void)state;
    rig_open(&rig);
    follow(SOME);
    rig.memory.empty = 3;
    rig.memory.spoil_get = RAFT_IOERR;
    become_leader();
    tick_some();
    assert_int_equal(rig.memory.put_calls, 1);
    assert_int_equal(rig.memory.installs, 0);
    assert_int_equal(rig.witness.notes, 1);
    assert_non_null(strstr(rig.witness.noted, "cannot be read"));
    submit_some(SOME + 1);
    assert_int_equal(rig.witness.stops, 0);
    rig.memory.spoil_get = 0;
    for (int i = 0; i < 100 && rig.memory.installs == 0; i++)
        tick_some();
    assert_int_equal(rig.memory.installs, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_node_alone_forgets),
        TEST(test_a_follower_forgets),
        TEST(test_a_follower_keeps_what_is_not_on_its_disk),
        TEST(test_a_follower_keeps_what_may_be_sent_again),
        TEST(test_a_leader_forgets_what_all_have),
        TEST(test_a_leader_keeps_what_one_lacks),
        TEST(test_a_snapshot_is_taken_for_who_needs_it),
        TEST(test_the_last_snapshot_is_good_enough),
        TEST(test_it_is_read_once),
        TEST(test_it_is_sent_once),
        TEST(test_a_slow_one_keeps_nobody_out),
        TEST(test_closed_while_somebody_needs_one),
        TEST(test_closed_while_it_forgets),
        TEST(test_one_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
