/* What a follower acknowledges. Raft paper, section 5.3 and figure 2, "AppendEntries RPC".
 *
 * A leader counts what followers acknowledge, and answers clients for it [R1]. So a follower must acknowledge
 * nothing but what is on its disk and like the leader's: its log may go on after that with entries of a deposed
 * leader, and these must neither be counted nor be committed. Debian 12's libraft 0.15 acknowledges all that it
 * has. */
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

/* Node 2, which leads in term 2, sends entries up to this one; up to 2^2 they are committed. */
static void follow_up_to(raft_index last)
{
    hear_append(&subject, (struct append){.from = 2,
                                          .term = 2,
                                          .prev = 1,
                                          .prev_term = 1,
                                          .commit = 2,
                                          .count = (unsigned)last - 1,
                                          .terms = {2, 2, 2, 2}});
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), last);
    assert_string_equal(subject.state, "2^2");
}

static const struct raft_append_entries_result *last_result(raft_id to)
{
    const struct told *told = told_last(&subject, RAFT_APPEND_ENTRIES_RESULT, to);

    assert_non_null(told);
    return &told->message.append_entries_result;
}

/* From here on 3 leads, in term 3. 4^2 and 5^2 are what it does not have. */

static void test_a_heartbeat_is_acknowledged_as_far_as_it_checked(void **state)
{
    (void)state;
    follow_up_to(5);
    hear_append(&subject,
                (struct append){.from = 3, .term = 3, .prev = 3, .prev_term = 2, .commit = 5});
    subject_turn(&subject);
    assert_int_equal(last_result(3)->rejected, 0);
    assert_int_equal(told_acknowledged(&subject, 3), 3);
    assert_int_equal(raft_commit_index(&subject.raft), 3);
    assert_string_equal(subject.state, "2^2 3^2");
    subject_pass(&subject, 5 * HEARTBEAT_MS);
    assert_int_equal(told_acknowledged(&subject, 3), 3);
    assert_string_equal(subject.state, "2^2 3^2");
}

static void test_entries_that_it_has_are_acknowledged_and_no_more(void **state)
{
    (void)state;
    follow_up_to(5);
    hear_append(&subject, (struct append){.from = 3,
                                          .term = 3,
                                          .prev = 2,
                                          .prev_term = 2,
                                          .commit = 5,
                                          .count = 1,
                                          .terms = {2}});
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 3), 3);
    assert_string_equal(subject.state, "2^2 3^2");
}

static void test_what_conflicts_is_replaced_and_all_that_follows_it(void **state)
{
    (void)state;
    follow_up_to(5);
    hear_append(&subject, (struct append){.from = 3,
                                          .term = 3,
                                          .prev = 2,
                                          .prev_term = 2,
                                          .commit = 5,
                                          .count = 2,
                                          .terms = {2, 3}});
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 3), 4);
    assert_int_equal(raft_last_index(&subject.raft), 4);
    assert_int_equal(memory_io_last(&subject.memory), 4);
    assert_int_equal(memory_io_entry(&subject.memory, 3)->term, 2);
    assert_int_equal(memory_io_entry(&subject.memory, 4)->term, 3);
    assert_string_equal(subject.state, "2^2 3^2 4^3");
}

/* The same, while 4^2 and 5^2 are on their way to the disk: their arrival is no news for 3. */
static void test_a_write_that_ends_late_is_acknowledged_as_far_as_was_checked(void **state)
{
    (void)state;
    follow_up_to(3);
    subject.memory.hold_appends = true;
    hear_append(&subject,
                (struct append){
                    .from = 2, .term = 2, .prev = 3, .prev_term = 2, .count = 2, .terms = {2, 2}});
    hear_append(&subject,
                (struct append){.from = 3, .term = 3, .prev = 3, .prev_term = 2, .commit = 5});
    assert_int_equal(told_acknowledged(&subject, 3), 3);
    subject.memory.hold_appends = false;
    subject_turn(&subject);
    assert_int_equal(memory_io_last(&subject.memory), 5);
    assert_int_equal(told_acknowledged(&subject, 3), 3);
    assert_int_equal(told_acknowledged(&subject, 2), 3);
    assert_string_equal(subject.state, "2^2 3^2");
}

/* And replaced while they are on their way: it is the new 4 that counts. */
static void test_a_write_that_was_replaced_is_not_acknowledged(void **state)
{
    (void)state;
    follow_up_to(3);
    subject.memory.hold_appends = true;
    hear_append(&subject,
                (struct append){
                    .from = 2, .term = 2, .prev = 3, .prev_term = 2, .count = 2, .terms = {2, 2}});
    hear_append(
        &subject,
        (struct append){.from = 3, .term = 3, .prev = 3, .prev_term = 2, .count = 1, .terms = {3}});
    assert_int_equal(told_acknowledged(&subject, 3), 0);
    subject.memory.hold_appends = false;
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 3), 4);
    for (unsigned i = 0; i < subject.told_count; i++)
        if (subject.told[i].message.server_id == 3)
            assert_int_equal(subject.told[i].stored_term, 3);
    assert_int_equal(memory_io_last(&subject.memory), 4);
    assert_int_equal(memory_io_entry(&subject.memory, 4)->term, 3);
}

/* It knows that 3 leads, and nothing about the log of 3. */
static void test_nothing_is_acknowledged_before_anything_was_checked(void **state)
{
    (void)state;
    follow_up_to(3);
    subject.memory.hold_appends = true;
    hear_append(&subject,
                (struct append){
                    .from = 2, .term = 2, .prev = 3, .prev_term = 2, .count = 2, .terms = {2, 2}});
    hear_append(&subject,
                (struct append){.from = 3, .term = 3, .prev = 7, .prev_term = 3, .commit = 7});
    assert_int_equal(last_result(3)->rejected, 7);
    subject.memory.hold_appends = false;
    subject_turn(&subject);
    assert_int_equal(memory_io_last(&subject.memory), 5);
    assert_int_equal(told_acknowledged(&subject, 3), 0);
    assert_string_equal(subject.state, "2^2");
}

static void test_another_entry_before_them_is_rejected(void **state)
{
    (void)state;
    follow_up_to(5);
    hear_append(&subject, (struct append){.from = 3,
                                          .term = 3,
                                          .prev = 5,
                                          .prev_term = 3,
                                          .commit = 6,
                                          .count = 1,
                                          .terms = {3}});
    subject_turn(&subject);
    assert_int_equal(last_result(3)->rejected, 5);
    assert_true(last_result(3)->last_log_index < 5); /* where it should try next */
    assert_int_equal(told_acknowledged(&subject, 3), 0);
    assert_int_equal(memory_io_last(&subject.memory), 5);
    assert_string_equal(subject.state, "2^2");
}

static void test_nothing_is_acknowledged_before_the_disk_has_it(void **state)
{
    struct append append = {
        .from = 2, .term = 2, .prev = 1, .prev_term = 1, .count = 2, .terms = {2, 2}};

    (void)state;
    subject.memory.hold_appends = true;
    hear_append(&subject, append);
    assert_int_equal(told_count(&subject, RAFT_APPEND_ENTRIES_RESULT, 2), 0);
    hear_append(&subject, append); /* once more, as after a lost connection */
    append.prev = 3;
    append.prev_term = 2;
    append.count = 0;
    hear_append(&subject, append); /* a heartbeat that checks both */
    assert_true(told_acknowledged(&subject, 2) <= 1);
    subject.memory.hold_appends = false;
    subject_turn(&subject);
    assert_int_equal(told_acknowledged(&subject, 2), 3);
}

static void test_a_leader_of_an_older_term_is_refused(void **state)
{
    (void)state;
    follow_up_to(3);
    hear_append(&subject, (struct append){.from = 3, .term = 3, .prev = 3, .prev_term = 2});
    told_forget(&subject);
    hear_append(&subject, (struct append){.from = 2,
                                          .term = 2,
                                          .prev = 3,
                                          .prev_term = 2,
                                          .commit = 4,
                                          .count = 1,
                                          .terms = {2}});
    subject_turn(&subject);
    assert_int_equal(last_result(2)->term, 3);
    assert_int_equal(last_result(2)->rejected, 3);
    assert_int_equal(memory_io_last(&subject.memory), 3);
    assert_string_equal(subject.state, "2^2");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_heartbeat_is_acknowledged_as_far_as_it_checked),
        TEST(test_entries_that_it_has_are_acknowledged_and_no_more),
        TEST(test_what_conflicts_is_replaced_and_all_that_follows_it),
        TEST(test_a_write_that_ends_late_is_acknowledged_as_far_as_was_checked),
        TEST(test_a_write_that_was_replaced_is_not_acknowledged),
        TEST(test_nothing_is_acknowledged_before_anything_was_checked),
        TEST(test_another_entry_before_them_is_rejected),
        TEST(test_nothing_is_acknowledged_before_the_disk_has_it),
        TEST(test_a_leader_of_an_older_term_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
