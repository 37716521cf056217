/* What outlives the process. Raft paper, figure 2, "persistent state on all servers: updated on stable storage
 * before responding to RPCs"; section 5.2 for one vote per term.
 *
 * libraft stores term and vote before it sends what follows from them, and acknowledges an entry when the raft_io
 * says that it is stored; our raft_io, src/replica_libraft/storage.h, says so when it is true. Here both work together:
 * the data directory is copied at the very moment when the message leaves, and a node begins with the copy, as
 * after a kill. */
#include "contract.h"

static struct subject subject;

static int set_up(void **state)
{
    (void)state;
    subject_init_on_disk(&subject, 3);
    subject_start(&subject);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    subject_free(&subject);
    return 0;
}

static void test_a_vote_that_was_given_is_not_given_again(void **state)
{
    struct vote_request request = {.from = 2, .term = 5, .last = 1, .last_term = 1};

    (void)state;
    subject.keep_at = RAFT_REQUEST_VOTE_RESULT;
    assert_true(hear_vote_request(&subject, request));
    subject_crash(&subject);
    assert_int_equal(raft_current_term(&subject.raft), 5);
    request.from = 3;
    assert_false(hear_vote_request(&subject, request));
    request.from = 2; /* its answer may have been lost */
    assert_true(hear_vote_request(&subject, request));
    request.from = 3;
    request.term = 6;
    assert_true(hear_vote_request(&subject, request));
}

static int (*store_vote)(struct raft_io *io, raft_id id);

/* Killed between the two things that libraft stores with each vote that it gives. */
static int keep_before_vote(struct raft_io *io, raft_id id)
{
    subject_keep(&subject);
    return store_vote(io, id);
}

/* libraft stores the term again, and then the vote. */
static void test_nor_is_it_lost_when_it_is_asked_for_again(void **state)
{
    struct vote_request request = {.from = 2, .term = 5, .last = 1, .last_term = 1};

    (void)state;
    assert_true(hear_vote_request(&subject, request));
    store_vote = subject.io->set_vote;
    subject.io->set_vote = keep_before_vote;
    assert_true(hear_vote_request(&subject, request));
    subject_crash(&subject);
    request.from = 3;
    assert_false(hear_vote_request(&subject, request));
}

static void test_nor_is_one_that_it_gave_to_itself(void **state)
{
    struct vote_request request = {.from = 3, .term = 2, .last = 1, .last_term = 1};

    (void)state;
    subject_stand(&subject);
    subject.keep_at = RAFT_REQUEST_VOTE;
    hear_vote(&subject, 2, 2, true); /* a pre-vote: now it asks for the vote itself */
    assert_false(told_last(&subject, RAFT_REQUEST_VOTE, 3)->message.request_vote.pre_vote);
    subject_crash(&subject);
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_false(hear_vote_request(&subject, request));
    request.term = 3;
    assert_true(hear_vote_request(&subject, request));
}

static void test_a_term_that_was_seen_is_not_forgotten(void **state)
{
    struct vote_request request = {.from = 3, .term = 7, .last = 1, .last_term = 1};

    (void)state;
    subject.keep_at = RAFT_APPEND_ENTRIES_RESULT;
    hear_append(&subject, (struct append){.from = 2, .term = 8, .prev = 1, .prev_term = 1});
    subject_crash(&subject);
    assert_int_equal(raft_current_term(&subject.raft), 8);
    assert_false(hear_vote_request(&subject, request));
    hear_append(&subject, (struct append){.from = 3,
                                          .term = 7,
                                          .prev = 1,
                                          .prev_term = 1,
                                          .commit = 2,
                                          .count = 1,
                                          .terms = {7}});
    assert_int_equal(raft_last_index(&subject.raft), 1);
}

static void test_what_was_acknowledged_is_there(void **state)
{
    (void)state;
    subject.keep_at = RAFT_APPEND_ENTRIES_RESULT;
    hear_append(
        &subject,
        (struct append){
            .from = 2, .term = 2, .prev = 1, .prev_term = 1, .count = 3, .terms = {2, 2, 2}});
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 2) == 4);
    subject_crash(&subject);
    assert_int_equal(raft_current_term(&subject.raft), 2);
    assert_int_equal(raft_last_index(&subject.raft), 4);
    assert_string_equal(subject.state, ""); /* what is committed it has to be told */
    hear_append(&subject,
                (struct append){.from = 2, .term = 2, .prev = 4, .prev_term = 2, .commit = 4});
    assert_int_equal(told_acknowledged(&subject, 2), 4);
    assert_string_equal(subject.state, "2^2 3^2 4^2");
}

static void test_what_was_replaced_does_not_come_back(void **state)
{
    struct vote_request request = {.from = 2, .term = 4, .last = 5, .last_term = 2};

    (void)state;
    hear_append(
        &subject,
        (struct append){
            .from = 2, .term = 2, .prev = 1, .prev_term = 1, .count = 4, .terms = {2, 2, 2, 2}});
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 2) == 5);
    subject.keep_at = RAFT_APPEND_ENTRIES_RESULT;
    hear_append(
        &subject,
        (struct append){.from = 3, .term = 3, .prev = 3, .prev_term = 2, .count = 1, .terms = {3}});
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 3) == 4);
    subject_crash(&subject);
    assert_int_equal(raft_last_index(&subject.raft), 4);
    assert_false(hear_vote_request(&subject, request)); /* ends with 5^2, and ours with 4^3 */
    hear_append(&subject,
                (struct append){.from = 3, .term = 4, .prev = 4, .prev_term = 3, .commit = 5});
    assert_string_equal(subject.state, "2^2 3^2 4^3");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_vote_that_was_given_is_not_given_again),
        TEST(test_nor_is_it_lost_when_it_is_asked_for_again),
        TEST(test_nor_is_one_that_it_gave_to_itself),
        TEST(test_a_term_that_was_seen_is_not_forgotten),
        TEST(test_what_was_acknowledged_is_there),
        TEST(test_what_was_replaced_does_not_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
