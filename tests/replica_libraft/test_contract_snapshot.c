/* A snapshot from the leader. Raft paper, section 7 and figure 13.
 *
 * A node that was away for long, or is new, gets the table instead of the log. We rely on libraft to hand exactly
 * these bytes to fsm.restore, to go on from there, and to acknowledge it only when the raft_io has stored it: the
 * leader counts it, and removes what it was made of. On disk, the members go with it. */
#include "contract.h"

static struct subject subject;

static const struct install ten = {
    .from = 2, .term = 3, .index = 10, .last_term = 3, .members = 3, .state = "up to 10^3"};

static int set_up(void **state)
{
    (void)state;
    subject_init(&subject, 3);
    subject_start(&subject);
    return 0;
}

static int set_up_on_disk(void **state)
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

/* 2^2 to 5^2, all of them committed. */
static void follow(void)
{
    hear_append(&subject, (struct append){.from = 2,
                                          .term = 2,
                                          .prev = 1,
                                          .prev_term = 1,
                                          .commit = 5,
                                          .count = 4,
                                          .terms = {2, 2, 2, 2}});
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 2) == 5);
    assert_string_equal(subject.state, "2^2 3^2 4^2 5^2");
    told_forget(&subject);
}

/* And 2 sends the entries after the snapshot. */
static void go_on(void)
{
    hear_append(&subject, (struct append){.from = 2,
                                          .term = 3,
                                          .prev = 10,
                                          .prev_term = 3,
                                          .commit = 11,
                                          .count = 2,
                                          .terms = {3, 3}});
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 2) == 12);
    assert_int_equal(raft_last_index(&subject.raft), 12);
    assert_string_equal(subject.state, "up to 10^3 11^3");
    if (!subject.home[0]) {
        assert_int_equal(subject.memory.first, 11);
        assert_int_equal(memory_io_last(&subject.memory), 12);
    }
}

static void test_it_is_acknowledged_when_it_is_durable(void **state)
{
    (void)state;
    subject.memory.hold_puts = true;
    hear_install(&subject, ten);
    subject_pass(&subject, HEARTBEAT_MS);
    assert_int_equal(subject.memory.put_count, 1);
    assert_int_equal(told_count(&subject, RAFT_APPEND_ENTRIES_RESULT, 2), 0);
    assert_int_equal(subject.restores, 0);
    hear_append(&subject, /* heartbeats come meanwhile */
                (struct append){.from = 2, .term = 3, .prev = 10, .prev_term = 3, .commit = 12});
    assert_true(told_acknowledged(&subject, 2) < 10);
    assert_string_equal(subject.state, "");
    subject.memory.hold_puts = false;
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 10);
    assert_int_equal(subject.restores, 1);
    assert_string_equal(subject.state, ten.state);
}

static void test_it_is_restored_and_the_log_goes_on_from_there(void **state)
{
    (void)state;
    hear_install(&subject, ten);
    subject_turn(&subject);
    assert_int_equal(subject.memory.put_calls, 1);
    assert_int_equal(subject.restores, 1);
    assert_string_equal(subject.state, ten.state);
    assert_int_equal(raft_commit_index(&subject.raft), 10);
    assert_int_equal(raft_last_index(&subject.raft), 10);
    go_on();
}

static void test_it_takes_the_place_of_a_shorter_log(void **state)
{
    (void)state;
    follow();
    hear_install(&subject, ten);
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 10);
    assert_int_equal(raft_last_index(&subject.raft), 10);
    assert_int_equal(subject.memory.count, 0);
    go_on();
}

/* 6^2 to 12^2 never were committed, and are not what is in it. */
static void test_it_takes_the_place_of_a_longer_log_that_is_another(void **state)
{
    (void)state;
    follow();
    hear_append(&subject, (struct append){.from = 2,
                                          .term = 2,
                                          .prev = 5,
                                          .prev_term = 2,
                                          .commit = 5,
                                          .count = 7,
                                          .terms = {2, 2, 2, 2, 2, 2, 2}});
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 12);
    told_forget(&subject);
    hear_install(&subject, ten);
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 10);
    assert_int_equal(raft_last_index(&subject.raft), 10);
    assert_int_equal(subject.memory.count, 0);
    go_on();
}

/* libraft 0.22.1 takes such a message, and frees neither its members nor its bytes: whoever looks for leaks is
 * not to find them here. */
__attribute__((noinline)) static void hear_in_vain(struct install install)
{
    hear_install(&subject, install);
}

__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:hear_in_vain\n";
}

static void test_entries_that_come_before_it_is_stored_are_not_acknowledged(void **state)
{
    struct install newer = ten;

    (void)state;
    newer.index = 12;
    newer.state = "up to 12^3";
    subject.memory.hold_puts = true;
    hear_install(&subject, ten);
    hear_append(&subject,
                (struct append){
                    .from = 2, .term = 3, .prev = 10, .prev_term = 3, .count = 1, .terms = {3}});
    hear_in_vain(ten);   /* sent again: once is enough */
    hear_in_vain(newer); /* one after the other */
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 0);
    subject.memory.hold_puts = false;
    subject_turn(&subject);
    assert_int_equal(subject.memory.put_calls, 1);
    assert_int_equal(told_acknowledged(&subject, 2), 10);
    go_on();
}

/* Entries that were on their way to the disk when it came are part of what it replaces. */
static void test_a_write_that_ends_after_it_came_is_not_acknowledged(void **state)
{
    (void)state;
    subject.memory.hold_appends = true;
    subject.memory.hold_puts = true;
    hear_append(&subject,
                (struct append){
                    .from = 2, .term = 3, .prev = 1, .prev_term = 1, .count = 2, .terms = {2, 2}});
    hear_install(&subject, ten);
    subject.memory.hold_appends = false;
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 0);
    subject.memory.hold_puts = false;
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 10);
    assert_string_equal(subject.state, ten.state);
}

static void test_an_older_one_changes_nothing(void **state)
{
    struct install older = ten;

    (void)state;
    follow();
    hear_install(&subject, ten);
    subject_turn(&subject);
    go_on();
    told_forget(&subject);
    older.index = 8; /* older than the snapshot */
    older.state = "up to 8^3";
    hear_install(&subject, older);
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 8);
    older.index = 12; /* newer, but it has the log up to there */
    older.state = "up to 12^3";
    hear_install(&subject, older);
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 12);
    assert_int_equal(subject.memory.put_calls, 1);
    assert_int_equal(subject.restores, 1);
    assert_int_equal(raft_last_index(&subject.raft), 12);
    assert_string_equal(subject.state, "up to 10^3 11^3");
}

static void test_one_from_a_deposed_leader_is_refused(void **state)
{
    struct install stale = ten;

    (void)state;
    hear_append(&subject, (struct append){.from = 3, .term = 4, .prev = 1, .prev_term = 1});
    stale.term = 3;
    hear_install(&subject, stale);
    subject_turn(&subject);
    assert_int_equal(
        told_last(&subject, RAFT_APPEND_ENTRIES_RESULT, 2)->message.append_entries_result.term, 4);
    assert_int_equal(subject.memory.put_calls, 0);
    assert_int_equal(subject.restores, 0);
    assert_int_equal(raft_last_index(&subject.raft), 1);
}

/* ---- on disk ---------------------------------------------------------------------------------- */

static void test_it_outlives_the_process(void **state)
{
    struct install with_four = ten;
    struct vote_request request = {.from = 4, .term = 4, .last = 9, .last_term = 3};

    (void)state;
    follow();
    with_four.members = 4;
    subject.keep_at = RAFT_APPEND_ENTRIES_RESULT;
    hear_install(&subject, with_four);
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 2) == 10);
    subject_crash(&subject);
    assert_int_equal(subject.restores, 1);
    assert_string_equal(subject.state, ten.state);
    assert_int_equal(raft_current_term(&subject.raft), 3);
    assert_int_equal(raft_commit_index(&subject.raft), 10);
    assert_int_equal(raft_last_index(&subject.raft), 10);
    assert_int_equal(subject.raft.configuration.n, 4);
    assert_int_equal(subject.raft.configuration.servers[3].id, 4);
    assert_string_equal(subject.raft.configuration.servers[3].address, "node 4");
    assert_int_equal(raft_role(&subject.raft), RAFT_VOTER);
    go_on();
    subject_stand(&subject);
    assert_false(hear_vote_request(&subject, request)); /* it knows what it had */
}

static void test_and_so_does_the_log_after_it(void **state)
{
    (void)state;
    follow();
    hear_install(&subject, ten);
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 2) == 10);
    subject.keep_at = RAFT_APPEND_ENTRIES_RESULT;
    go_on();
    for (int i = 0; i < 2; i++) {
        subject_crash(&subject);
        assert_string_equal(subject.state, ten.state);
        assert_int_equal(raft_last_index(&subject.raft), 12);
        hear_append(&subject, (struct append){
                                  .from = 2, .term = 3, .prev = 12, .prev_term = 3, .commit = 12});
        assert_string_equal(subject.state, "up to 10^3 11^3 12^3");
        subject_keep(&subject);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_ON_DISK(name) cmocka_unit_test_setup_teardown(name, set_up_on_disk, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_is_acknowledged_when_it_is_durable),
        TEST(test_it_is_restored_and_the_log_goes_on_from_there),
        TEST(test_it_takes_the_place_of_a_shorter_log),
        TEST(test_it_takes_the_place_of_a_longer_log_that_is_another),
        TEST(test_entries_that_come_before_it_is_stored_are_not_acknowledged),
        TEST(test_a_write_that_ends_after_it_came_is_not_acknowledged),
        TEST(test_an_older_one_changes_nothing),
        TEST(test_one_from_a_deposed_leader_is_refused),
        TEST_ON_DISK(test_it_outlives_the_process),
        TEST_ON_DISK(test_and_so_does_the_log_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
