/* A follower and changes of members: which ones it takes from its leader, when, and what a snapshot says of them. The leaders are
 * played by hand. What replica_members_version says is the index of the newest change that the follower knows. */
#include "tools.h"

#define ENTRIES_MAX 8
#define COMMAND 0u /* among what is appended: else a change, to members 1 up to that number */

static struct rig rig;
static size_t next_command;
static int own_role; /* of this node, 1, in changes */

static int set_up(void **state)
{
    (void)state;
    rig_init(&rig, 3);
    rig.options.snapshot_trailing = 1;
    next_command = 1;
    own_role = RAFT_VOTER;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_free(&rig);
    return 0;
}

static struct raft_buffer members_up_to(unsigned last)
{
    struct raft_configuration configuration;
    struct raft_buffer buffer;

    raft_configuration_init(&configuration);
    for (unsigned id = 1; id <= last; id++) {
        char address[16];

        snprintf(address, sizeof address, "node%u", id);
        assert_int_equal(
            raft_configuration_add(&configuration, id, address, id == 1 ? own_role : RAFT_VOTER),
            0);
    }
    assert_int_equal(raft_configuration_encode(&configuration, &buffer), 0);
    raft_configuration_close(&configuration);
    return buffer;
}

struct said { /* AppendEntries, all entries of the leader's own term */
    raft_id from;
    raft_term term;
    raft_index prev;
    raft_term prev_term;
    raft_index commit;
    unsigned count, what[ENTRIES_MAX];
};

static void hear(struct said said)
{
    struct raft_message message = {
        .type = RAFT_APPEND_ENTRIES, .server_id = said.from, .server_address = "leader"};
    struct raft_append_entries *append = &message.append_entries;
    struct raft_buffer buffers[ENTRIES_MAX];
    size_t size = 0;
    char *batch;

    *append = (struct raft_append_entries){.term = said.term,
                                           .prev_log_index = said.prev,
                                           .prev_log_term = said.prev_term,
                                           .leader_commit = said.commit,
                                           .n_entries = said.count};
    for (unsigned i = 0; i < said.count; i++) {
        buffers[i] = said.what[i] == COMMAND ? numbered_entry(next_command++, 1)
                                             : members_up_to(said.what[i]);
        size += buffers[i].len;
    }
    append->entries = said.count ? raft_malloc(said.count * sizeof *append->entries) : NULL;
    batch = said.count ? raft_malloc(size) : NULL;
    size = 0;
    for (unsigned i = 0; i < said.count; i++) {
        append->entries[i] =
            (struct raft_entry){.term = said.term,
                                .type = said.what[i] == COMMAND ? RAFT_COMMAND : RAFT_CHANGE,
                                .buf = {batch + size, buffers[i].len},
                                .batch = batch};
        memcpy(batch + size, buffers[i].base, buffers[i].len);
        size += buffers[i].len;
        raft_free(buffers[i].base);
    }
    memory_io_receive(&rig.memory, &message);
    rig_settle(&rig);
}

static unsigned member_count(void)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];

    return replica_members(rig.replica, seen, REPLICA_MEMBERS_MAX);
}

static void assert_members(unsigned count, raft_index index)
{
    assert_int_equal(member_count(), count);
    assert_int_equal(replica_members_version(rig.replica), index);
}

/* It is the third entry, and the first two are commands. */
static void test_a_change_behind_others_is_noted_under_its_index(void **state)
{
    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 1, 4, {COMMAND, COMMAND, 4, COMMAND}});
    assert_int_equal(rig_last(&rig), 5);
    assert_int_equal(rig.memory.told.last_log_index, 5);
    assert_members(4, 4);
    hear((struct said){2, 2, 5, 2, 5, 0, {0}}); /* it is committed, */
    rig_reopen(&rig);
    hear((struct said){3, 3, 4, 2, 4, 1, {COMMAND}}); /* and stays when what came after it goes */
    assert_members(4, 4);
}

/* As to a node that was away: of the first the message says that it is committed. */
static void test_two_changes_in_one_message(void **state)
{
    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 4, 6, {COMMAND, 4, COMMAND, COMMAND, 5, COMMAND}});
    assert_int_equal(rig_last(&rig), 7);
    assert_members(5, 6);
    hear((struct said){3, 3, 5, 2, 5, 1, {COMMAND}}); /* only the second goes */
    assert_members(4, 3);
}

/* Some of them it has: then the first that is new counts for libraft. */
static void test_one_that_is_sent_again_is_noted_once(void **state)
{
    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 1, 1, {COMMAND}});
    hear((struct said){2, 2, 2, 2, 1, 1, {4}});
    assert_members(4, 3);
    next_command--; /* the same again */
    hear((struct said){2, 2, 1, 1, 1, 3, {COMMAND, 4, COMMAND}});
    hear((struct said){2, 2, 2, 2, 3, 2, {4, COMMAND}});
    assert_members(4, 3);
    assert_int_equal(rig_last(&rig), 4);
}

/* A leader that was restarted knows no more how far all was committed. That it made the second says it of the first. */
static void test_the_second_says_that_the_first_is_committed(void **state)
{
    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 1, 2, {4, COMMAND}});
    assert_members(4, 2);
    hear((struct said){2, 2, 3, 2, 1, 2, {5, COMMAND}});
    assert_members(5, 4);
    assert_int_equal(rig.memory.told.last_log_index, 5);
    /* Another leader, which has never heard of the second: only that goes. */
    hear((struct said){3, 3, 3, 2, 3, 1, {COMMAND}});
    assert_members(4, 2);
}

static void test_the_second_says_it_in_the_same_message(void **state)
{
    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 1, 4, {4, COMMAND, 5, COMMAND}});
    assert_members(5, 4);
    hear((struct said){3, 3, 3, 2, 3, 1, {COMMAND}});
    assert_members(4, 2);
}

/* Its log goes another way before the second: of this node's first it says nothing. */
static void test_the_second_of_another_log_says_nothing(void **state)
{
    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 1, 2, {4, COMMAND}});
    hear((struct said){3, 3, 3, 3, 1, 1, {5}});
    assert_members(4, 2);
    assert_int_equal(rig_last(&rig), 3);
    hear((struct said){3, 3, 1, 1, 1, 1, {5}}); /* and the first goes, as it may */
    assert_members(5, 2);
}

/* The one before it is of a leader that has failed: it goes, and nobody has to wait for it. */
static void test_one_that_replaces_another_does_not_wait(void **state)
{
    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 1, 1, {4}});
    assert_members(4, 2);
    hear((struct said){3, 3, 1, 1, 1, 1, {5}});
    assert_members(5, 2);
    hear((struct said){3, 3, 2, 3, 2, 1, {COMMAND}});
    assert_members(5, 2);
}

/* More than a follower puts off: so it counts some of it, and a snapshot is due, while libraft hands it the rest. */
#define MANY 24u

/* It learns that all of it is committed at once, and libraft thinks of a snapshot between the two changes. */
static void test_a_snapshot_after_a_restart_has_the_newest_members(void **state)
{
    raft_index last = 1;

    (void)state;
    rig_open(&rig);
    hear((struct said){2, 2, last, 1, 1, 1, {COMMAND}});
    for (last = 2; last <= MANY; last++)
        hear((struct said){2, 2, last, 2, 1, 1, {COMMAND}});
    hear((struct said){2, 2, last, 2, 1, 1, {4}});
    hear((struct said){2, 2, last + 1, 2, last + 1, 0, {0}});
    hear((struct said){2, 2, last + 1, 2, last + 1, 1, {5}});
    assert_members(5, last + 2);
    rig.options.snapshot_bytes = 1;
    rig_reopen(&rig);
    assert_members(5, last + 2);
    hear((struct said){2, 2, last + 2, 2, last + 2, 0, {0}});
    rig_pass(&rig, 300 * MS);
    assert_int_equal(rig.memory.snapshot.index, last + 2);
    assert_int_equal(rig.memory.snapshot.configuration.n, 5);
    assert_int_equal(rig.memory.snapshot.configuration_index, last + 2);
}

static bool grants(raft_term term, raft_index last, raft_term last_term)
{
    struct raft_message message = {.type = RAFT_REQUEST_VOTE,
                                   .server_id = 2,
                                   .server_address = "candidate",
                                   .request_vote = {.version = 2,
                                                    .term = term,
                                                    .candidate_id = 2,
                                                    .last_log_index = last,
                                                    .last_log_term = last_term,
                                                    .disrupt_leader = true}};

    memory_io_receive(&rig.memory, &message);
    rig_settle(&rig);
    assert_int_equal(rig.memory.voted.term, term);
    return rig.memory.voted.vote_granted;
}

/* That it votes stands in an entry which only the candidate has. Without this vote nobody could lead. */
static void test_who_does_not_know_that_it_votes_is_no_obstacle(void **state)
{
    (void)state;
    own_role = RAFT_STANDBY;
    rig_open(&rig);
    hear((struct said){2, 2, 1, 1, 1, 1, {2}});
    assert_members(2, 2);
    assert_false(grants(3, 1, 1)); /* its log is shorter */
    assert_true(grants(4, 3, 2));
    assert_false(grants(4, 1, 1));
    rig_reopen(&rig); /* and remembers it */
    assert_int_equal(rig.memory.voted_for, 2);
    assert_members(2, 2);
    rig_pass(&rig, 5000 * MS); /* of its own accord it does not stand for election */
    assert_int_equal(rig.memory.term, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_change_behind_others_is_noted_under_its_index),
        TEST(test_two_changes_in_one_message),
        TEST(test_one_that_is_sent_again_is_noted_once),
        TEST(test_the_second_says_that_the_first_is_committed),
        TEST(test_the_second_says_it_in_the_same_message),
        TEST(test_the_second_of_another_log_says_nothing),
        TEST(test_one_that_replaces_another_does_not_wait),
        TEST(test_who_does_not_know_that_it_votes_is_no_obstacle),
        TEST(test_a_snapshot_after_a_restart_has_the_newest_members),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
