/* What is committed. Raft paper, section 5.4.2 and figure 8; 5.4.1 for the votes that go with it.
 *
 * replica_submit's answer is given when libraft applies an entry, and an answer is never taken back [R1]. An
 * entry of an older term that is on a majority may still be replaced by another leader (figure 8, d), so it
 * counts only together with one of the leader's own term. Debian 12's libraft 0.15 counts it by itself. */
#include "contract.h"

static struct subject subject;

static int set_up(void **state)
{
    (void)state;
    subject_init(&subject, 5);
    subject_start(&subject);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    subject_free(&subject);
    return 0;
}

/* Up to (c) of the figure: S1 leads for the second time, in term 4; 2^2 is on S1 and S2, and 3^4 is its own. */
static void come_to_figure_8(void)
{
    subject_lead(&subject);
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_int_equal(subject_propose(&subject), 0);
    subject_turn(&subject);
    hear_acknowledged(&subject, 2, 2);
    hear_append(&subject, (struct append){.from = 5, .term = 3, .prev = 1, .prev_term = 1});
    assert_int_equal(raft_state(&subject.raft), RAFT_FOLLOWER);
    subject_lead(&subject);
    assert_int_equal(raft_current_term(&subject.raft), 4);
    assert_int_equal(raft_last_index(&subject.raft), 3);
    subject_turn(&subject);
    assert_string_equal(subject.state, "");
}

static void test_an_entry_of_an_older_term_is_not_committed_by_counting(void **state)
{
    (void)state;
    come_to_figure_8();
    for (raft_id id = 2; id <= 5; id++) { /* not even if it is everywhere */
        hear_acknowledged(&subject, id, 2);
        subject_pass(&subject, HEARTBEAT_MS);
        assert_int_equal(raft_commit_index(&subject.raft), 1);
        assert_string_equal(subject.state, "");
    }
    assert_int_equal(
        told_last(&subject, RAFT_APPEND_ENTRIES, 3)->message.append_entries.leader_commit, 1);
}

static void test_it_is_committed_with_one_of_the_leaders_own_term(void **state)
{
    (void)state;
    come_to_figure_8();
    hear_acknowledged(&subject, 2, 3);
    assert_string_equal(subject.state, ""); /* two of five */
    hear_acknowledged(&subject, 3, 3);
    assert_int_equal(raft_commit_index(&subject.raft), 3);
    assert_string_equal(subject.state, "2^2");
}

/* (d) of the figure: this is what would be broken. */
static void test_until_then_another_leader_may_replace_it(void **state)
{
    (void)state;
    come_to_figure_8();
    hear_acknowledged(&subject, 2, 2);
    hear_acknowledged(&subject, 3, 2);
    hear_append(&subject, (struct append){.from = 5,
                                          .term = 5,
                                          .prev = 1,
                                          .prev_term = 1,
                                          .commit = 2,
                                          .count = 1,
                                          .terms = {3}});
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 5), 2);
    assert_int_equal(raft_last_index(&subject.raft), 2);
    assert_string_equal(subject.state, "2^3");
}

/* [R1] Durable on a majority: the leader is one of them only when its own disk has it. */
static void test_the_leader_counts_itself_when_its_disk_has_it(void **state)
{
    (void)state;
    subject_lead(&subject);
    subject.memory.hold_appends = true;
    assert_int_equal(subject_propose(&subject), 0);
    hear_acknowledged(&subject, 2, 2);
    hear_acknowledged(&subject, 3, 2);
    subject_pass(&subject, HEARTBEAT_MS);
    assert_string_equal(subject.state, "");
    subject.memory.hold_appends = false;
    subject_turn(&subject);
    assert_string_equal(subject.state, "2^2");
}

/* What is committed is on a majority; a leader must be one that has it. */
static void test_a_candidate_with_an_older_log_gets_no_vote(void **state)
{
    (void)state;
    hear_append(
        &subject,
        (struct append){
            .from = 2, .term = 3, .prev = 1, .prev_term = 1, .count = 3, .terms = {2, 2, 3}});
    subject_turn(&subject);
    subject_stand(&subject); /* 2 is not heard any more */
    for (int pre = 1; pre >= 0; pre--) {
        struct vote_request request = {.from = 3, .term = 5, .pre = pre};

        request.last = 3;
        request.last_term = 3;
        assert_false(hear_vote_request(&subject, request)); /* shorter */
        request.last = 9;
        request.last_term = 2;
        assert_false(hear_vote_request(&subject, request)); /* longer, but of an older term */
        request.last = 4;
        request.last_term = 3;
        assert_true(hear_vote_request(&subject, request));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_entry_of_an_older_term_is_not_committed_by_counting),
        TEST(test_it_is_committed_with_one_of_the_leaders_own_term),
        TEST(test_until_then_another_leader_may_replace_it),
        TEST(test_the_leader_counts_itself_when_its_disk_has_it),
        TEST(test_a_candidate_with_an_older_log_gets_no_vote),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
