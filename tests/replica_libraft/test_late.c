/* Who of the others gets an entry at once, and who later. Node 2 is prompt at first, node 3 late. */
#include "tools.h"

#define MANY_CLIENTS 100u

static struct rig rig;
static size_t number;

static int set_up(void **state)
{
    (void)state;
    rig_init(&rig, 3);
    rig_serve(&rig);
    number = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_free(&rig);
    return 0;
}

/* Entries on their way to a node, and in how many messages. */
static unsigned on_their_way(raft_id id, unsigned *ret_messages)
{
    unsigned entries = 0, messages = 0;

    for (unsigned i = 0; i < rig.memory.sent_count; i++) {
        const struct raft_message *message = &rig.memory.sent[i].message;

        if (message->server_id != id || message->type != RAFT_APPEND_ENTRIES)
            continue;
        entries += message->append_entries.n_entries;
        messages++;
    }
    *ret_messages = messages;
    return entries;
}

static void assert_on_their_way(raft_id id, unsigned entries, unsigned messages)
{
    unsigned came;

    assert_int_equal(on_their_way(id, &came), entries);
    assert_int_equal(came, messages);
}

/* An entry takes off, with enough commands not to wait for more. */
static void take_off(void)
{
    for (unsigned i = 0; i < MANY_CLIENTS; i++)
        submit_numbered(rig.replica, ++number, 3600000);
    replica_pump(rig.replica, MANY_CLIENTS);
    assert_true(replica_flying(rig.replica));
}

static void land(void)
{
    memory_io_settle(&rig.memory);
    assert_false(replica_flying(rig.replica));
    assert_int_equal(rig.witness.heard[number].answers, 1);
}

static void test_some_together(void **state)
{
    const struct raft_append_entries *joined;

    (void)state;
    for (int i = 0; i < 3; i++) {
        take_off();
        replica_rest(rig.replica);
        assert_on_their_way(2, 1, 1);
        assert_on_their_way(3, 0, 0);
        land();
    }
    take_off();
    assert_on_their_way(3, 0, 0);
    replica_rest(rig.replica);
    assert_on_their_way(2, 1, 1);
    assert_on_their_way(3, 4, 1);
    joined = &rig.memory.sent[rig.memory.sent_count - 1].message.append_entries;
    assert_int_equal(joined->leader_commit, joined->prev_log_index + 3); /* as the last one says */
    land();
    rig_settle(&rig); /* and it has them */
    take_off();
    replica_rest(rig.replica);
    assert_on_their_way(3, 0, 0);
    land();
}

static void test_it_has_what_the_others_have(void **state)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    struct replica_status status;

    (void)state;
    for (int i = 0; i < 10; i++) {
        take_off();
        replica_rest(rig.replica);
        land();
    }
    rig.witness.now_us += 2 * MS;
    replica_rest(rig.replica);
    memory_io_settle(&rig.memory);
    replica_status(rig.replica, &status);
    assert_int_equal(replica_members(rig.replica, seen, REPLICA_MEMBERS_MAX), 3);
    assert_int_equal(seen[2].id, 3);
    assert_int_equal(seen[2].match_index, status.last_index);
}

static void test_not_for_long(void **state)
{
    (void)state;
    take_off();
    replica_rest(rig.replica);
    land();
    assert_in_range(replica_pump(rig.replica, MANY_CLIENTS), 1, 2 * MS); /* it wants to be called */
    rig.witness.now_us += 2 * MS - 1;
    replica_rest(rig.replica);
    assert_on_their_way(3, 0, 0);
    rig.witness.now_us += 1;
    replica_rest(rig.replica);
    assert_on_their_way(3, 1, 1);
}

static void test_with_few_clients_all_at_once(void **state)
{
    (void)state;
    submit_numbered(rig.replica, 1, 3600000);
    replica_pump(rig.replica, 1);
    assert_on_their_way(2, 1, 1);
    assert_on_their_way(3, 1, 1);
}

/* Nothing overtakes anything. */
static void test_a_heartbeat_takes_it_along(void **state)
{
    (void)state;
    take_off();
    replica_rest(rig.replica);
    land();
    take_off();
    replica_rest(rig.replica);
    land();
    memory_io_tick(&rig.memory, 100);
    assert_on_their_way(3, 2, 2);
    assert_int_equal(rig.memory.sent[0].message.append_entries.n_entries +
                         rig.memory.sent[1].message.append_entries.n_entries,
                     2); /* before the heartbeats */
}

static void test_another_is_prompt_if_need_be(void **state)
{
    (void)state;
    rig.memory.silent = 2;
    take_off();
    memory_io_settle(&rig.memory);
    assert_true(replica_flying(rig.replica));
    rig.witness.now_us += 1 * MS - 1;
    replica_rest(rig.replica);
    assert_on_their_way(3, 0, 0);
    rig.witness.now_us += 1;
    replica_rest(rig.replica);
    assert_on_their_way(3, 1, 1);
    land();
    take_off(); /* the next one does not wait */
    assert_on_their_way(3, 1, 1);
    replica_rest(rig.replica);
    land();
}

/* Nobody answers for a while: each has its turn, once for an entry. */
static void test_a_slow_entry(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        rig.memory.peers_answer = false;
        take_off();
        for (int ms = 0; ms < 4; ms++) {
            rig.witness.now_us += 1 * MS;
            replica_rest(rig.replica);
            memory_io_settle(&rig.memory);
        }
        assert_true(replica_flying(rig.replica));
        rig.memory.peers_answer = true;
        memory_io_tick(&rig.memory, 100);
        land();
    }
    take_off(); /* three turns: node 3 is prompt now */
    replica_rest(rig.replica);
    assert_on_their_way(2, 0, 0);
    assert_on_their_way(3, 1, 1);
    land();
}

static void test_closed_while_something_waits(void **state)
{
    (void)state;
    take_off();
    replica_rest(rig.replica);
    rig_close(&rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_some_together),
        TEST(test_it_has_what_the_others_have),
        TEST(test_not_for_long),
        TEST(test_with_few_clients_all_at_once),
        TEST(test_a_heartbeat_takes_it_along),
        TEST(test_another_is_prompt_if_need_be),
        TEST(test_a_slow_entry),
        TEST(test_closed_while_something_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
