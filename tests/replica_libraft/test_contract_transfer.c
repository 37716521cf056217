/* Handing over leadership: raft_transfer. Raft dissertation, section 3.10.
 *
 * A leader that is about to stop hands over, so that nobody has to wait for an election timeout. Meanwhile it
 * must not accept what it may not be able to commit, and if the other does not take over it must go on by
 * itself: replica.c takes RAFT_NOTLEADER from a leader for exactly that, and tries again. */
#include "contract.h"

static struct subject subject;
static struct raft_transfer transfer;

static int set_up(void **state)
{
    (void)state;
    subject_init(&subject, 3);
    subject_start(&subject);
    memset(&transfer, 0, sizeof transfer);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    subject_free(&subject);
    return 0;
}

/* It leads in term 2; 2^2 is everywhere. */
static void lead(void)
{
    subject_lead(&subject);
    assert_int_equal(subject_propose(&subject), 0);
    subject_turn(&subject);
    hear_acknowledged(&subject, 2, 2);
    hear_acknowledged(&subject, 3, 2);
    assert_string_equal(subject.state, "2^2");
    told_forget(&subject);
}

static void assert_told_to_take_over(raft_id id, raft_index last)
{
    const struct told *told = told_last(&subject, RAFT_TIMEOUT_NOW, id);

    assert_non_null(told);
    assert_int_equal(told_count(&subject, RAFT_TIMEOUT_NOW, id), 1);
    assert_int_equal(told->message.timeout_now.term, 2);
    assert_int_equal(told->message.timeout_now.last_log_index, last);
    assert_int_equal(told->message.timeout_now.last_log_term, 2);
}

/* ---- the leader ------------------------------------------------------------------------------- */

static void test_nothing_is_accepted_while_it_hands_over(void **state)
{
    struct raft_transfer another = {0};

    (void)state;
    lead();
    assert_int_equal(raft_transfer(&subject.raft, &transfer, 2, NULL), 0);
    assert_int_equal(raft_transferee(&subject.raft), 2);
    assert_int_equal(subject_propose(&subject), RAFT_NOTLEADER);
    assert_int_equal(raft_transfer(&subject.raft, &another, 3, NULL), RAFT_NOTLEADER);
    assert_int_equal(raft_last_index(&subject.raft), 2);
    assert_int_equal(raft_state(&subject.raft), RAFT_LEADER);
    assert_told_to_take_over(2, 2);
    assert_int_equal(told_count(&subject, RAFT_TIMEOUT_NOW, 3), 0);
}

static void test_the_other_is_told_when_it_has_the_whole_log(void **state)
{
    (void)state;
    lead();
    assert_int_equal(subject_propose(&subject), 0);
    subject_turn(&subject);
    hear_acknowledged(&subject, 3, 3);
    assert_string_equal(subject.state, "2^2 3^2");
    assert_int_equal(raft_transfer(&subject.raft, &transfer, 2, NULL), 0);
    for (int i = 0; i < 3; i++) {
        hear_acknowledged(&subject, 2, 2); /* nothing new */
        hear_acknowledged(&subject, 3, 3); /* not the one that is meant */
        subject_pass(&subject, HEARTBEAT_MS);
        assert_int_equal(told_count(&subject, RAFT_TIMEOUT_NOW, 2), 0);
        assert_int_equal(subject_propose(&subject), RAFT_NOTLEADER);
    }
    hear_acknowledged(&subject, 2, 3);
    assert_told_to_take_over(2, 3);
    assert_int_equal(told_count(&subject, RAFT_TIMEOUT_NOW, 3), 0);
}

static void test_it_goes_on_if_the_other_does_not_take_over(void **state)
{
    (void)state;
    lead();
    assert_int_equal(raft_transfer(&subject.raft, &transfer, 2, NULL), 0);
    for (unsigned passed = HEARTBEAT_MS; passed < ELECTION_MS; passed += HEARTBEAT_MS) {
        subject_pass(&subject, HEARTBEAT_MS);
        hear_acknowledged(&subject, 2, 2);
        hear_acknowledged(&subject, 3, 2);
        assert_int_equal(subject_propose(&subject), RAFT_NOTLEADER);
    }
    subject_pass(&subject, HEARTBEAT_MS);
    assert_int_equal(raft_state(&subject.raft), RAFT_LEADER);
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_int_equal(raft_transferee(&subject.raft), 0);
    assert_int_equal(subject_propose(&subject), 0);
    subject_turn(&subject);
    hear_acknowledged(&subject, 3, 3);
    assert_string_equal(subject.state, "2^2 3^2");
}

static void test_it_votes_for_the_other_and_follows(void **state)
{
    (void)state;
    lead();
    assert_int_equal(raft_transfer(&subject.raft, &transfer, 2, NULL), 0);
    assert_true(hear_vote_request(
        &subject,
        (struct vote_request){.from = 2, .term = 3, .last = 2, .last_term = 2, .disrupt = true}));
    assert_int_equal(raft_state(&subject.raft), RAFT_FOLLOWER);
    assert_int_equal(raft_current_term(&subject.raft), 3);
    hear_append(&subject, (struct append){.from = 2, .term = 3, .prev = 2, .prev_term = 2});
    assert_int_equal(told_acknowledged(&subject, 2), 2);
}

/* ---- the others ------------------------------------------------------------------------------- */

/* Node 2 leads in term 2, and sends 2^2 and 3^2. */
static void follow(void)
{
    hear_append(&subject, (struct append){.from = 2,
                                          .term = 2,
                                          .prev = 1,
                                          .prev_term = 1,
                                          .commit = 2,
                                          .count = 2,
                                          .terms = {2, 2}});
}

static void test_the_other_stands_at_once(void **state)
{
    const struct raft_request_vote *request;

    (void)state;
    follow();
    subject_turn(&subject);
    hear_timeout_now(&subject, 2, 2, 3, 2);
    assert_int_equal(raft_state(&subject.raft), RAFT_CANDIDATE);
    request = &told_last(&subject, RAFT_REQUEST_VOTE, 3)->message.request_vote;
    assert_int_equal(request->term, 3);
    assert_false(request->pre_vote);
    assert_true(request->disrupt_leader); /* 3 hears a leader, and is to vote all the same */
    assert_int_equal(subject.memory.voted_for, 1);
    hear_vote(&subject, 3, 3, false);
    assert_int_equal(raft_state(&subject.raft), RAFT_LEADER);
}

/* The leader may have sent it too early: 0.22.1 does so as soon as the other acknowledges anything new. */
static void test_one_that_does_not_have_the_whole_log_does_not_stand(void **state)
{
    (void)state;
    subject.memory.hold_appends = true;
    follow();
    hear_timeout_now(&subject, 2, 2, 3, 2); /* its disk does not have it yet */
    assert_int_equal(raft_state(&subject.raft), RAFT_FOLLOWER);
    subject.memory.hold_appends = false;
    subject_turn(&subject);
    hear_timeout_now(&subject, 2, 2, 4, 2);
    assert_int_equal(raft_state(&subject.raft), RAFT_FOLLOWER);
    hear_timeout_now(&subject, 3, 2, 3, 2); /* not its leader */
    assert_int_equal(raft_state(&subject.raft), RAFT_FOLLOWER);
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_null(told_last(&subject, RAFT_REQUEST_VOTE, 3));
}

static void test_the_third_votes_though_it_hears_a_leader(void **state)
{
    struct vote_request request = {
        .from = 3, .term = 3, .last = 2, .last_term = 2, .disrupt = true};

    (void)state;
    follow();
    subject_turn(&subject);
    assert_false(hear_vote_request(&subject, request)); /* not for a shorter log */
    request.term = 4;
    request.last = 3;
    assert_true(hear_vote_request(&subject, request));
    assert_int_equal(subject.memory.term, 4);
    assert_int_equal(subject.memory.voted_for, 3);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_is_accepted_while_it_hands_over),
        TEST(test_the_other_is_told_when_it_has_the_whole_log),
        TEST(test_it_goes_on_if_the_other_does_not_take_over),
        TEST(test_it_votes_for_the_other_and_follows),
        TEST(test_the_other_stands_at_once),
        TEST(test_one_that_does_not_have_the_whole_log_does_not_stand),
        TEST(test_the_third_votes_though_it_hears_a_leader),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
