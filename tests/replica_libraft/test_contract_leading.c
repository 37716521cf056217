/* Who leads, and for how long. Raft dissertation, sections 9.6 (pre-vote), 4.2.3 (a leader that is heard is not
 * disturbed) and 6.2 (a leader that hears from no majority steps down).
 *
 * A node that was cut off must not bring down the others' leader when it comes back: each election is a moment in
 * which no lock can be taken or renewed. And a leader that is cut off must find out: until it does, it takes
 * commands that it cannot commit, and clients wait with it instead of asking another. */
#include "contract.h"

static struct subject subject;

static int set_up(void **state)
{
    (void)state;
    subject_init(&subject, 3);
    subject_start(&subject);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    subject_free(&subject);
    return 0;
}

static const struct append heartbeat = {.from = 2, .term = 2, .prev = 1, .prev_term = 1};

/* From node 3, which was away: a log that is longer than all, and many elections that it has lost. */
static bool grants(raft_term term, bool pre)
{
    return hear_vote_request(
        &subject,
        (struct vote_request){.from = 3, .term = term, .last = 9, .last_term = 2, .pre = pre});
}

/* ---- one that comes back ---------------------------------------------------------------------- */

static void test_a_follower_that_hears_its_leader_refuses(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        hear_append(&subject, heartbeat);
        assert_false(grants(50, true));
        assert_false(grants(50, false));
        subject_pass(&subject, HEARTBEAT_MS);
    }
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_int_equal(subject.memory.term, 2);
    assert_int_equal(subject.memory.voted_for, 0);
    assert_int_equal(raft_state(&subject.raft), RAFT_FOLLOWER);
}

static void test_it_refuses_for_an_election_timeout_after_the_last_heartbeat(void **state)
{
    (void)state;
    hear_append(&subject, heartbeat);
    subject_pass(&subject, ELECTION_MS - HEARTBEAT_MS);
    assert_false(grants(50, true));
    assert_false(grants(50, false));
    assert_int_equal(raft_current_term(&subject.raft), 2);
    subject_stand(&subject); /* the leader is gone: now it wants another as well */
    assert_true(grants(50, true));
}

static void test_a_leader_refuses(void **state)
{
    (void)state;
    subject_lead(&subject);
    assert_false(grants(50, true));
    assert_false(grants(50, false));
    assert_int_equal(raft_state(&subject.raft), RAFT_LEADER);
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_int_equal(subject.memory.term, 2);
}

/* The other side: the subject is the one that was away. */
static void test_one_that_is_cut_off_stays_in_its_term(void **state)
{
    (void)state;
    hear_append(&subject, heartbeat);
    for (int i = 0; i < 20; i++) {
        told_forget(&subject);
        subject_pass(&subject, 2 * ELECTION_MS);
        assert_true(told_count(&subject, RAFT_REQUEST_VOTE, 2) > 0);
        for (unsigned j = 0; j < subject.told_count; j++) {
            assert_true(subject.told[j].message.request_vote.pre_vote);
            assert_int_equal(subject.told[j].message.request_vote.term, 3);
        }
    }
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_int_equal(subject.memory.term, 2);
    hear_append(&subject, heartbeat); /* and 2 still leads */
    assert_int_equal(raft_state(&subject.raft), RAFT_FOLLOWER);
    assert_int_equal(told_acknowledged(&subject, 2), 1);
}

static void test_a_pre_vote_binds_nobody(void **state)
{
    struct vote_request request = {.from = 2, .term = 5, .last = 1, .last_term = 1, .pre = true};

    (void)state;
    assert_true(hear_vote_request(&subject, request));
    assert_true(grants(5, true));
    assert_int_equal(raft_current_term(&subject.raft), 1);
    assert_int_equal(subject.memory.term, 1);
    assert_int_equal(subject.memory.voted_for, 0);
    request.pre = false;
    assert_true(hear_vote_request(&subject, request));
    assert_int_equal(subject.memory.voted_for, 2);
    assert_false(grants(5, false));
}

static void test_pre_votes_are_not_votes(void **state)
{
    (void)state;
    subject_stand(&subject);
    hear_vote(&subject, 2, 2, true);
    assert_int_equal(subject.memory.term, 2);
    assert_int_equal(subject.memory.voted_for, 1);
    hear_vote(&subject, 2, 2, true);
    hear_vote(&subject, 3, 2, true);
    assert_int_equal(raft_state(&subject.raft), RAFT_CANDIDATE);
    hear_vote(&subject, 3, 2, false);
    assert_int_equal(raft_state(&subject.raft), RAFT_LEADER);
}

/* ---- a leader that is cut off ----------------------------------------------------------------- */

static void assert_steps_down(void)
{
    subject_pass(&subject, ELECTION_MS - HEARTBEAT_MS);
    assert_int_equal(raft_state(&subject.raft), RAFT_LEADER);
    subject_pass(&subject, 2 * HEARTBEAT_MS);
    assert_int_not_equal(raft_state(&subject.raft), RAFT_LEADER);
    assert_int_equal(subject_propose(&subject), RAFT_NOTLEADER);
    assert_int_equal(raft_current_term(&subject.raft), 2);
}

static void test_a_leader_that_nobody_answers_steps_down(void **state)
{
    (void)state;
    subject_lead(&subject);
    assert_int_equal(subject_propose(&subject), 0);
    assert_steps_down();
    assert_string_equal(subject.state, "");
}

static void test_a_leader_that_a_majority_answers_goes_on(void **state)
{
    (void)state;
    subject_lead(&subject);
    for (int i = 0; i < 50; i++) {
        told_forget(&subject);
        subject_pass(&subject, HEARTBEAT_MS);
        assert_true(told_count(&subject, RAFT_APPEND_ENTRIES, 2) > 0);
        assert_true(told_count(&subject, RAFT_APPEND_ENTRIES, 3) > 0);
        hear_acknowledged(&subject, 3, 1);
        assert_int_equal(raft_state(&subject.raft), RAFT_LEADER);
    }
    assert_int_equal(subject_propose(&subject), 0);
    hear_acknowledged(&subject, 3, 1);
    assert_steps_down(); /* an election timeout after the last answer, as well */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_follower_that_hears_its_leader_refuses),
        TEST(test_it_refuses_for_an_election_timeout_after_the_last_heartbeat),
        TEST(test_a_leader_refuses),
        TEST(test_one_that_is_cut_off_stays_in_its_term),
        TEST(test_a_pre_vote_binds_nobody),
        TEST(test_pre_votes_are_not_votes),
        TEST(test_a_leader_that_nobody_answers_steps_down),
        TEST(test_a_leader_that_a_majority_answers_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
