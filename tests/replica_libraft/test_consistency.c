/* A leader whose log contradicts what is committed here: the node says so and stops. It does not crash, and it does not
 * follow. */
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

/* Entries 2 to 4 are of term 2, by node 2. The first is the members, of term 1. */
static void follow(raft_index commit)
{
    rig_open(&rig);
    for (size_t number = 1; number <= 3; number++) {
        rig_follow(&rig, number, 1, commit);
        rig_settle(&rig);
    }
    assert_int_equal(rig_last(&rig), 4);
}

/* Node 3 leads in term 3, and has so many entries of it behind this one. */
static void append_of_another(raft_index prev, raft_term prev_term, unsigned entries)
{
    static const uint64_t bytes[4];
    struct raft_buffer buffers[4];

    for (unsigned i = 0; i < entries; i++)
        buffers[i] = (struct raft_buffer){(void *)(uintptr_t)bytes, sizeof bytes};
    memory_io_receive_entries(&rig.memory, 3, 3, prev, prev_term, 2, buffers, entries);
    rig_settle(&rig);
}

static void assert_stopped(const char *because)
{
    assert_int_equal(rig.witness.stops, 1);
    if (!strstr(rig.witness.stopped, because))
        fail_msg("'%s' does not say '%s'", rig.witness.stopped, because);
    assert_int_equal(witness_role(&rig.witness), REPLICA_STOPPED);
    assert_int_equal(rig_last(&rig), 4);
    assert_int_equal(memory_io_entry(&rig.memory, 4)->term, 2);
}

static void test_an_append_behind_another_entry_than_the_committed_one(void **state)
{
    (void)state;
    follow(4);
    append_of_another(3, 3, 2);
    assert_stopped("node 3 leads with another log: its entry 3 is of term 3, and the one that is "
                   "committed here is of term 2");
}

static void test_a_heartbeat_behind_another_entry(void **state)
{
    (void)state;
    follow(4);
    append_of_another(4, 3, 0);
    assert_stopped("its entry 4 is of term 3");
}

static void test_an_append_in_place_of_a_committed_entry(void **state)
{
    (void)state;
    follow(4);
    append_of_another(2, 2, 2);
    assert_stopped("its entry 3 is of term 3");
}

/* That is what a follower is told every day. */
static void test_what_is_not_committed_may_be_replaced(void **state)
{
    (void)state;
    follow(2);
    append_of_another(2, 2, 2);
    assert_int_equal(rig.witness.stops, 0);
    assert_int_equal(memory_io_entry(&rig.memory, 3)->term, 3);
    assert_int_equal(memory_io_entry(&rig.memory, 4)->term, 3);
}

/* Of a term that is over: it is answered, and no trouble. */
static void test_an_old_leader_is_no_trouble(void **state)
{
    struct raft_buffer none;

    (void)state;
    follow(4);
    memory_io_receive_entries(&rig.memory, 3, 1, 3, 1, 4, &none, 0);
    rig_settle(&rig);
    assert_int_equal(rig.witness.stops, 0);
}

static void test_two_leaders_of_one_term(void **state)
{
    struct raft_buffer none;
    struct replica_status status;

    (void)state;
    rig_serve(&rig);
    replica_status(rig.replica, &status);
    memory_io_receive_entries(&rig.memory, 3, status.term, 1, 1, 1, &none, 0);
    rig_settle(&rig);
    assert_int_equal(rig.witness.stops, 1);
    assert_non_null(strstr(rig.witness.stopped, "in which this node was elected"));
}

static struct raft_message snapshot_of_another(raft_index index, raft_term term)
{
    struct raft_message message = {
        .type = RAFT_INSTALL_SNAPSHOT,
        .server_id = 3,
        .server_address = "three",
        .install_snapshot = {.term = 3, .last_index = index, .last_term = term, .conf_index = 1}};
    struct raft_configuration *members = &message.install_snapshot.conf;

    raft_configuration_init(members);
    assert_int_equal(raft_configuration_add(members, 1, "one", RAFT_VOTER), 0);
    message.install_snapshot.data.base = raft_malloc(8);
    message.install_snapshot.data.len = 8;
    return message;
}

static void test_a_snapshot_of_another_log(void **state)
{
    struct raft_message message;

    (void)state;
    follow(4);
    message = snapshot_of_another(3, 3);
    memory_io_receive(&rig.memory, &message);
    rig_settle(&rig);
    assert_stopped("its entry 3 is of term 3");
}

/* libraft would take them for a broken invariant of its own. */
static void test_impossible_numbers_are_dropped(void **state)
{
    struct raft_message message;
    struct raft_buffer none;

    (void)state;
    follow(4);
    message = snapshot_of_another(0, 3);
    memory_io_receive(&rig.memory, &message);
    memory_io_receive_entries(&rig.memory, 3, 3, 0, 3, 4, &none, 0);
    memory_io_receive_entries(&rig.memory, 3, 3, 3, 0, 4, &none, 0);
    rig_settle(&rig);
    assert_int_equal(rig.witness.stops, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_append_behind_another_entry_than_the_committed_one),
        TEST(test_a_heartbeat_behind_another_entry),
        TEST(test_an_append_in_place_of_a_committed_entry),
        TEST(test_what_is_not_committed_may_be_replaced),
        TEST(test_an_old_leader_is_no_trouble),
        TEST(test_two_leaders_of_one_term),
        TEST(test_a_snapshot_of_another_log),
        TEST(test_impossible_numbers_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
