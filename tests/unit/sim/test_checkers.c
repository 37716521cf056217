/* test_checkers.c: each checker of the simulator complains of what it is there for, and of nothing that may be. */
#include "sim/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_right(struct verdict *verdict)
{
    assert_string_equal(verdict->words, "");
}

/* And forgets it. */
static void assert_wrong(struct verdict *verdict, const char *words)
{
    if (!strstr(verdict->words, words))
        fail_msg("\"%s\" was expected, not \"%s\"", words, verdict->words);
    verdict->words[0] = '\0';
}

/* ---- holders ---------------------------------------------------------------------------------- */

static void begin(struct check_holders *holders, struct verdict *verdict, int64_t now_us,
                  int client, enum check_mode mode, uint32_t permits, int64_t until_us)
{
    struct holder holder = {.name = 1,
                            .mode = mode,
                            .permits = permits,
                            .token = (uint64_t)client + 1,
                            .until_us = until_us};

    holders_begin(holders, verdict, now_us, client, &holder);
}

static void two_holders_are_seen(void **state)
{
    struct check_holders holders = {0};
    struct verdict verdict = {""};

    (void)state;
    begin(&holders, &verdict, 0, 0, CHECK_EXCLUSIVE, 0, 100);
    assert_right(&verdict);
    begin(&holders, &verdict, 99, 1, CHECK_EXCLUSIVE, 0, 200);
    assert_wrong(&verdict, "two holders: client 1");
    holders_end(&holders, 0);
    holders_end(&holders, 1);
    begin(&holders, &verdict, 100, 0, CHECK_EXCLUSIVE, 0, 200);
    holders_extend(&holders, 0, 300);
    assert_true(holders_believes(&holders, 0, 299));
    begin(&holders, &verdict, 250, 2, CHECK_SHARED, 0, 400);
    assert_wrong(&verdict, "two holders: client 2");
}

static void who_knows_that_it_is_over_is_no_holder(void **state)
{
    struct check_holders holders = {0};
    struct verdict verdict = {""};

    (void)state;
    begin(&holders, &verdict, 0, 0, CHECK_EXCLUSIVE, 0, 100);
    begin(&holders, &verdict, 100, 1, CHECK_EXCLUSIVE, 0, 200);
    holders_end(&holders, 1);
    begin(&holders, &verdict, 150, 2, CHECK_EXCLUSIVE, 0, 300);
    assert_right(&verdict);
}

static void shared_holders_and_permits_are_counted(void **state)
{
    struct check_holders holders = {0};
    struct verdict verdict = {""};

    (void)state;
    for (int i = 0; i < 5; i++)
        begin(&holders, &verdict, 0, i, CHECK_SHARED, 0, 100);
    assert_right(&verdict);
    begin(&holders, &verdict, 50, 5, CHECK_EXCLUSIVE, 0, 100);
    assert_wrong(&verdict, "two holders: client 5");
    for (int i = 0; i < 3; i++)
        begin(&holders, &verdict, 200, i, CHECK_PERMIT, 3, 300);
    assert_right(&verdict);
    begin(&holders, &verdict, 200, 3, CHECK_PERMIT, 3, 300);
    assert_wrong(&verdict, "two holders: client 3");
}

static void who_is_broken_with_now_may_be_passed(void **state)
{
    struct check_holders holders = {0};
    struct holder later = {
        .name = 1, .mode = CHECK_EXCLUSIVE, .token = 9, .until_us = 900, .asked_us = 260};
    struct verdict verdict = {""};

    (void)state;
    begin(&holders, &verdict, 100, 1, CHECK_EXCLUSIVE, 0, 900);
    holders_now_asked(&holders, 1);
    begin(&holders, &verdict, 200, 2, CHECK_EXCLUSIVE, 0, 900);
    holders_now_closed(&holders, 1, 250);
    holders_begin(&holders, &verdict, 270, 3, &later); /* the others asked before it was over */
    assert_right(&verdict);
    holders_begin(&holders, &verdict, 280, 4, &later);
    assert_wrong(&verdict, "two holders: client 4");
}

/* ---- tokens, leases, queue, guard ------------------------------------------------------------- */

static void tokens_that_do_not_grow_are_seen(void **state)
{
    struct check_tokens tokens = {0};
    struct verdict verdict = {""};
    uint64_t floor;

    (void)state;
    tokens_told(&tokens, &verdict, 7, 10, 0);
    tokens_told(&tokens, &verdict, 7, 10, 0);
    tokens_told(&tokens, &verdict, 8, 9, 0); /* asked before anybody was told of 10 */
    assert_right(&verdict);
    floor = tokens_floor(&tokens);
    tokens_told(&tokens, &verdict, 9, 5, floor);
    assert_wrong(&verdict, "tokens do not grow");
    tokens_told(&tokens, &verdict, 7, 11, 0);
    assert_wrong(&verdict, "same lease, other token");
    tokens_told(&tokens, &verdict, 12, 9, 0);
    assert_wrong(&verdict, "token 9 went to lease 8");
    tokens_told(&tokens, &verdict, 13, 0, 0);
    assert_wrong(&verdict, "without a token");
    tokens_raised(&tokens, &verdict, 50, 60);
    assert_right(&verdict);
    tokens_told(&tokens, &verdict, 15, 60, tokens_floor(&tokens));
    assert_wrong(&verdict, "tokens do not grow");
    tokens_raised(&tokens, &verdict, 70, 69);
    assert_wrong(&verdict, "the floor is 69, and was to be 70");
    tokens_ended(&tokens, 14);
    tokens_told(&tokens, &verdict, 14, 100, 0);
    assert_wrong(&verdict, "lease 14 has ended");
    tokens_free(&tokens);
}

static void leases_that_end_early_are_seen(void **state)
{
    struct verdict verdict = {""};

    (void)state;
    leases_gone(&verdict, 100, 1, 100);
    assert_right(&verdict);
    leases_gone(&verdict, 99, 1, 100);
    assert_wrong(&verdict, "lease 1 is gone 1 us before");
}

static void leases_of_blocked_clients_are_kept(void **state)
{
    struct verdict verdict = {""};

    (void)state;
    leases_blocked(&verdict, 3, 2); /* its time may have begun between the two */
    assert_right(&verdict);
    leases_blocked(&verdict, 3, 1);
    assert_wrong(&verdict, "lease 3 has run out while its client was blocked");
}

static void who_passes_others_in_the_queue_is_seen(void **state)
{
    static struct check_queue queue;
    struct verdict verdict = {""};

    (void)state;
    queue_told(&queue, 0, 1, 5, 100);
    queue_told(&queue, 0, 1, 5, 900); /* the same place again */
    queue_granted(&queue, &verdict, 1, 0, 2, 20, 90);
    queue_granted(&queue, &verdict, 0, 0, 1, 21, 50);
    assert_right(&verdict);
    queue_told(&queue, 0, 3, 6, 100);
    queue_granted(&queue, &verdict, 1, 0, 4, 22, 101);
    queue_granted(&queue, &verdict, 0, 0, 3, 23, 50);
    assert_wrong(&verdict, "not in order: client 0 had place 6");
    queue_told(&queue, 0, 5, 7, 100);
    queue_left(&queue, 0);
    queue_granted(&queue, &verdict, 1, 0, 6, 24, 101);
    queue_granted(&queue, &verdict, 0, 0, 5, 25, 50);
    queue_told(&queue, 0, 7, 8, 200);
    queue_granted(&queue, &verdict, 1, 1, 8, 26, 201); /* another name */
    queue_granted(&queue, &verdict, 0, 0, 7, 27, 50);
    assert_right(&verdict);
}

static void stale_tokens_at_the_guard_are_seen(void **state)
{
    struct check_guard guard = {0};
    struct verdict verdict = {""};

    (void)state;
    assert_true(guard_write(&guard, &verdict, 0, 1, 10, true));
    assert_true(guard_write(&guard, &verdict, 0, 1, 10, true));
    assert_true(guard_write(&guard, &verdict, 0, 2, 11, true));
    assert_false(guard_write(&guard, &verdict, 0, 1, 10, false));
    assert_true(guard_write(&guard, &verdict, 1, 3, 5, true));
    assert_right(&verdict);
    assert_false(guard_write(&guard, &verdict, 0, 1, 10, true));
    assert_wrong(&verdict, "refuses its holder's 10");
    guard_write(&guard, &verdict, 0, 4, 11, false);
    assert_wrong(&verdict, "a stale token passes");
}

static void other_results_and_second_runs_are_seen(void **state)
{
    struct check_once once = {0};
    struct verdict verdict = {""};

    (void)state;
    once_granted(&once, &verdict, 0, 10, 11);
    once_granted(&once, &verdict, 0, 20, 21); /* the first has died */
    once_told(&once, &verdict, 0, 7, 22, 30, CHECK_FOREVER);
    once_told(&once, &verdict, 0, 7, 31, 40, CHECK_FOREVER);
    once_granted(&once, &verdict, 0, 30, 41); /* asked before anybody knew */
    once_told(&once, &verdict, 1, 8, 31, 40, CHECK_FOREVER);
    assert_right(&verdict);
    once_granted(&once, &verdict, 0, 31, 50);
    assert_wrong(&verdict, "key 0 runs again");
    once_told(&once, &verdict, 0, 8, 20, 50, CHECK_FOREVER);
    assert_wrong(&verdict, "key 0 has two results: 7, and now 8");
    once_free(&once);
}

static void a_result_counts_as_long_as_it_is_kept(void **state)
{
    struct check_once once = {0};
    struct verdict verdict = {""};

    (void)state;
    once_told(&once, &verdict, 0, 7, 5, 10, 100);
    once_told(&once, &verdict, 0, 7, 20, 30, 0); /* he does not know for how long */
    once_granted(&once, &verdict, 0, 20, 100);
    assert_right(&verdict);
    once_granted(&once, &verdict, 0, 20, 99);
    assert_wrong(&verdict, "key 0 runs again");
    once_told(&once, &verdict, 0, 8, 20, 99, 0);
    assert_wrong(&verdict, "two results: 7, and now 8");
    once_told(&once, &verdict, 0, 9, 120, 130, 200); /* another run */
    once_told(&once, &verdict, 0, 8, 110, 140, 0);   /* asked before that */
    assert_right(&verdict);
    once_free(&once);
}

/* ---- ends and reads --------------------------------------------------------------------------- */

static void what_was_ended_is_not_alive(void **state)
{
    struct check_ends ends = {0};
    struct verdict verdict = {""};

    (void)state;
    ends_told(&ends, 7, 100);
    ends_told(&ends, 7, 200); /* the first counts */
    ends_alive(&ends, &verdict, 7, 100);
    ends_alive(&ends, &verdict, 8, 300);
    assert_right(&verdict);
    ends_alive(&ends, &verdict, 7, 101);
    assert_wrong(&verdict, "token 7 is alive, though its end was acknowledged 1 us before");
    ends_free(&ends);
}

static void who_was_broken_holds_no_more(void **state)
{
    struct check_holders holders = {0};
    struct check_ends ends = {0};
    struct verdict verdict = {""};

    (void)state;
    begin(&holders, &verdict, 10, 0, CHECK_SHARED, 0, 1000);
    begin(&holders, &verdict, 20, 1, CHECK_SHARED, 0, 1000);
    assert_false(breaks_excuse(&ends, 1, 5));
    breaks_asked(&ends, 1);
    assert_true(breaks_excuse(&ends, 1, 50)); /* it may come about at any time */
    assert_false(breaks_excuse(&ends, 2, 50));
    breaks_told(&ends, &holders, 1, 15, 60);
    assert_true(breaks_excuse(&ends, 1, 50));
    assert_false(breaks_excuse(&ends, 1, 60)); /* asked after it was over */
    ends_alive(&ends, &verdict, 1, 60);
    ends_alive(&ends, &verdict, 2, 70); /* told after the break was sent */
    assert_right(&verdict);
    ends_alive(&ends, &verdict, 1, 61);
    assert_wrong(&verdict, "token 1 is alive");
    ends_free(&ends);
}

static void reads_that_are_too_old_are_seen(void **state)
{
    struct check_holders holders = {0};
    struct check_ends ends = {0};
    struct verdict verdict = {""};
    struct check_read nothing = {.asked_us = 11},
                      both = {.asked_us = 11, .tokens = {1, 2}, .count = 2, .names = 2};
    struct check_read early = {.asked_us = 10};

    (void)state;
    begin(&holders, &verdict, 10, 0, CHECK_SHARED, 0, 100);
    reads_holders(&holders, &ends, &verdict, 50, 1, &both);
    reads_names(&holders, &ends, &verdict, 50, &both);
    reads_holders(&holders, &ends, &verdict, 50, 1, &early); /* it had not been told yet */
    reads_names(&holders, &ends, &verdict, 50, &early);
    reads_holders(&holders, &ends, &verdict, 50, 2, &nothing);
    reads_holders(&holders, &ends, &verdict, 100, 1, &nothing); /* he knows that it is over */
    reads_names(&holders, &ends, &verdict, 100, &nothing);
    assert_right(&verdict);
    reads_holders(&holders, &ends, &verdict, 99, 1, &nothing);
    assert_wrong(&verdict, "a read of name 1 does not show token 1 of client 0");
    reads_names(&holders, &ends, &verdict, 99, &nothing);
    assert_wrong(&verdict, "does not show name 1, which client 0 holds");
    breaks_asked(&ends, 1);
    reads_holders(&holders, &ends, &verdict, 99, 1, &nothing);
    reads_names(&holders, &ends, &verdict, 99, &nothing);
    assert_right(&verdict);
    ends_told(&ends, 2, 5);
    reads_holders(&holders, &ends, &verdict, 50, 1, &both);
    assert_wrong(&verdict, "token 2 is alive");
    ends_free(&ends);
}

/* ---- the log ---------------------------------------------------------------------------------- */

static void give(struct check_node *node, uint64_t index, const char *text)
{
    check_given(node, index, 1, 1, text, strlen(text));
}

static void other_entries_are_seen(void **state)
{
    struct check_log log = {0};
    struct check_node one = {0}, two = {0};
    struct verdict verdict = {""};

    (void)state;
    give(&one, 1, "a");
    give(&one, 2, "b");
    give(&two, 1, "a");
    give(&two, 2, "an entry of nine bytes and more");
    check_applied(&log, &one, &verdict, 1, 2, 2, 0);
    check_applied(&log, &two, &verdict, 2, 2, 1, 0);
    assert_right(&verdict);
    check_applied(&log, &two, &verdict, 2, 2, 2, 0);
    assert_wrong(&verdict, "node 2 applies another entry at index 2");
    check_applied(&log, &one, &verdict, 1, 1, 2, 0);
    assert_wrong(&verdict, "goes back from 2 to 1");
    check_applied(&log, &two, &verdict, 2, 5, 6, 0);
    assert_wrong(&verdict, "has applied 6 after 2, commit 5");
    check_wiped(&one);
    check_wiped(&two);
    check_log_free(&log);
}

static void other_tables_and_members_are_seen(void **state)
{
    struct check_log log = {0};
    struct verdict verdict = {""};
    struct check_digest digest = {.table = 1, .chain = 2, .members = 3, .members_index = 4};

    (void)state;
    check_agrees(&log, &verdict, 1, 9, &digest);
    check_agrees(&log, &verdict, 2, 9, &digest);
    assert_right(&verdict);
    digest.table = 5;
    check_agrees(&log, &verdict, 3, 10, &digest);
    check_agrees(&log, &verdict, 3, 9, &digest);
    assert_wrong(&verdict, "another table");
    digest = (struct check_digest){.table = 1, .chain = 5, .members = 3, .members_index = 4};
    check_agrees(&log, &verdict, 3, 9, &digest);
    assert_wrong(&verdict, "another log");
    digest = (struct check_digest){.table = 1, .chain = 2, .members = 3, .members_index = 5};
    check_agrees(&log, &verdict, 3, 9, &digest);
    assert_wrong(&verdict, "other members");
    digest = (struct check_digest){
        .table = 1, .chain = 2, .members = 3, .members_index = 4, .version = 2};
    check_agrees(&log, &verdict, 3, 9, &digest);
    assert_wrong(&verdict, "uses version 2");
    check_log_free(&log);
}

static void votes_leaders_and_terms_are_seen(void **state)
{
    struct check_log log = {0};
    struct check_node node = {0};
    struct verdict verdict = {""};

    (void)state;
    check_voted(&node, &verdict, 1, 3, 0);
    check_voted(&node, &verdict, 1, 3, 2);
    check_voted(&node, &verdict, 1, 3, 2);
    check_leads(&log, &verdict, 2, 3);
    check_leads(&log, &verdict, 2, 3);
    assert_right(&verdict);
    check_voted(&node, &verdict, 1, 3, 1);
    assert_wrong(&verdict, "votes for 2 and 1 in term 3");
    check_voted(&node, &verdict, 1, 2, 0);
    assert_wrong(&verdict, "goes back from term 3 to 2");
    check_leads(&log, &verdict, 1, 3);
    assert_wrong(&verdict, "nodes 2 and 1 lead in term 3");
    check_wiped(&node);
    check_log_free(&log);
}

static void terms_and_votes_that_a_disk_has_changed_are_seen(void **state)
{
    struct check_node node = {0};
    struct verdict verdict = {""};

    (void)state;
    check_found_vote(&node, &verdict, 1, 0, 0);
    check_voting(&node);
    check_voted(&node, &verdict, 1, 3, 2);
    check_found_vote(&node, &verdict, 1, 3, 2);
    check_voting(&node); /* and the power goes */
    check_found_vote(&node, &verdict, 1, 4, 1);
    check_found_vote(&node, &verdict, 1, 4, 1);
    assert_right(&verdict);
    check_found_vote(&node, &verdict, 1, 5, 1);
    assert_wrong(&verdict, "starts in term 5, and its disk had 4");
    check_voting(&node);
    check_voted(&node, &verdict, 1, 6, 2);
    check_voting(&node);
    check_found_vote(&node, &verdict, 1, 6, 3);
    assert_wrong(&verdict, "starts with a vote for 3 in term 6, and not for 2");
    check_wiped(&node);
}

static void write_entry(struct check_node *node, uint64_t index, const char *text)
{
    check_writing(node, index);
    check_written(node, index, 1, 1, text, strlen(text), index - 1);
}

static void recover(struct check_node *node, struct verdict *verdict, uint64_t index,
                    const char *text)
{
    check_recovered(node, verdict, 1, index, 1, 1, text, strlen(text));
}

static void what_a_disk_has_lost_is_seen(void **state)
{
    struct check_node node = {0};
    struct verdict verdict = {""};

    (void)state;
    for (uint64_t i = 1; i <= 3; i++)
        write_entry(&node, i, "a");
    check_writing(&node, 3); /* not acknowledged */
    check_recovering(&node, 0);
    recover(&node, &verdict, 1, "a");
    recover(&node, &verdict, 2, "a");
    recover(&node, &verdict, 3, "b");
    check_recovered_all(&node, &verdict, 1);
    check_started(&node, &verdict, 1, 0, 0, 2, 3);
    assert_right(&verdict);
    check_recovering(&node, 0);
    recover(&node, &verdict, 1, "a");
    check_recovered_all(&node, &verdict, 1);
    assert_wrong(&verdict, "a log up to 1, and its disk had acknowledged 3");
    check_recovering(&node, 0);
    recover(&node, &verdict, 1, "c");
    assert_wrong(&verdict, "another entry 1");
    check_started(&node, &verdict, 1, 0, 0, 1, 3);
    assert_wrong(&verdict, "starts with commit index 1, and its disk knew of 2");
    check_reset(&node);
    check_recovering(&node, 7);
    check_recovered_all(&node, &verdict, 1);
    assert_right(&verdict);
    check_wiped(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_holders_are_seen),
        cmocka_unit_test(who_knows_that_it_is_over_is_no_holder),
        cmocka_unit_test(shared_holders_and_permits_are_counted),
        cmocka_unit_test(who_is_broken_with_now_may_be_passed),
        cmocka_unit_test(tokens_that_do_not_grow_are_seen),
        cmocka_unit_test(leases_that_end_early_are_seen),
        cmocka_unit_test(leases_of_blocked_clients_are_kept),
        cmocka_unit_test(who_passes_others_in_the_queue_is_seen),
        cmocka_unit_test(stale_tokens_at_the_guard_are_seen),
        cmocka_unit_test(other_results_and_second_runs_are_seen),
        cmocka_unit_test(a_result_counts_as_long_as_it_is_kept),
        cmocka_unit_test(what_was_ended_is_not_alive),
        cmocka_unit_test(who_was_broken_holds_no_more),
        cmocka_unit_test(reads_that_are_too_old_are_seen),
        cmocka_unit_test(other_entries_are_seen),
        cmocka_unit_test(other_tables_and_members_are_seen),
        cmocka_unit_test(votes_leaders_and_terms_are_seen),
        cmocka_unit_test(terms_and_votes_that_a_disk_has_changed_are_seen),
        cmocka_unit_test(what_a_disk_has_lost_is_seen),
    };

    return cmocka_run_group_tests_name("sim-checkers", tests, NULL, NULL);
}
