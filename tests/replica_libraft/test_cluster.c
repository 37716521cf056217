/* Three nodes: what was answered stays, whoever leads. */
#include "cluster.h"

static void test_all_have_what_was_answered(void **state)
{
    struct core_counts counts;

    (void)state;
    UNTIL(leader() >= 0);
    answer_some(1, 50);
    UNTIL(all_alike());
    core_count(replica_table(members[0].replica), &counts);
    assert_int_equal(counts.holds, 50);
}

/* Alone, a node would not wait for more than half. */
static void test_three_wait_for_three_quarters(void **state)
{
    const uint32_t enough = REPLICA_MANY * 3 / 4;
    struct replica *serving;

    (void)state;
    UNTIL(leader() >= 0);
    serving = members[leader()].replica;
    UNTIL(!replica_flying(serving));
    for (size_t i = 1; i < enough; i++)
        submit_numbered(serving, i, 3600000);
    assert_int_equal(replica_pump(serving, REPLICA_MANY), REPLICA_GATHER_MAX_US);
    assert_false(replica_flying(serving));
    submit_numbered(serving, enough, 3600000);
    replica_pump(serving, REPLICA_MANY);
    assert_true(replica_flying(serving));
    UNTIL(!replica_flying(serving));
    assert_int_equal(members[leader()].witness.heard[enough].answers, 1);
}

static void test_another_takes_over(void **state)
{
    struct core_counts counts;
    size_t number = 1;

    (void)state;
    for (int round = 0; round < 6; round++) {
        int lead;

        UNTIL(leader() >= 0);
        answer_some(number, 20);
        number += 20;
        lead = leader();
        stop(lead);
        UNTIL(leader() >= 0);
        core_count(replica_table(members[leader()].replica), &counts);
        assert_int_equal(counts.holds, number - 1); /* nothing is lost */
        answer_some(number, 20);
        number += 20;
        start(lead);
        UNTIL(all_alike());
    }
}

/* Entries that are written by a thread. */
static void test_large_entries(void **state)
{
    struct core_counts counts;
    size_t number = 1;

    (void)state;
    for (int round = 0; round < 6; round++) {
        int lead;

        UNTIL(leader() >= 0);
        lead = leader();
        for (size_t i = 0; i < 500; i++)
            submit_numbered(members[lead].replica, number + i, 3600000);
        UNTIL(members[lead].witness.heard[number + 499].answers == 1);
        number += 500;
        for (size_t i = 0; i < 500; i++)
            submit_numbered(members[lead].replica, 10000 + number + i, 3600000);
        if (round % 2 == 0)
            turn(); /* it is being written when the node is closed, or not even that */
        stop(lead);
        UNTIL(leader() >= 0);
        core_count(replica_table(members[leader()].replica), &counts);
        assert_true(counts.holds >= number - 1);
        start(lead);
        UNTIL(all_alike());
    }
}

static uint64_t snapshots_of(int i)
{
    struct replica_status status;

    replica_status(members[i].replica, &status);
    return status.snapshots;
}

/* A follower applies what is committed a little later than libraft believes. Its snapshots must not miss it. */
static void test_snapshots_of_followers_are_whole(void **state)
{
    size_t number = 1;

    (void)state;
    UNTIL(leader() >= 0);
    snapshot_bytes = 2000;
    restart_founders();
    for (int follower = 0; follower < FOUNDERS; follower++) {
        if (follower == leader())
            continue;
        while (snapshots_of(follower) < 3) {
            answer_some(number, 10);
            number += 10;
        }
        stop(follower);
        start(follower);
        UNTIL(leader() >= 0);
        answer_some(number++, 1);
        UNTIL(all_alike());
    }
}

/* One that was away for longer than the log is kept gets the leader's snapshot. */
static void test_who_was_away_for_long_gets_a_snapshot(void **state)
{
    size_t number = 1;
    int away;

    (void)state;
    UNTIL(leader() >= 0);
    snapshot_bytes = 2000;
    restart_founders();
    away = leader() == 0 ? 1 : 0;
    stop(away);
    UNTIL(leader() >= 0);
    for (uint64_t before = snapshots_of(leader()); snapshots_of(leader()) < before + 3;
         number += 10)
        answer_some(number, 10);
    start(away);
    UNTIL(all_alike());
    stop(away); /* and has it on its disk */
    start(away);
    answer_some(number, 1);
    UNTIL(all_alike());
}

static uint64_t in_memory(int i)
{
    struct replica_status status;

    replica_status(members[i].replica, &status);
    return status.memory_bytes;
}

/* The leader keeps for it what it would forget otherwise. */
static void test_who_was_away_gets_the_log(void **state)
{
    int away, lead;

    (void)state;
    UNTIL(leader() >= 0);
    memory_bytes = 2000;
    restart_founders();
    lead = leader();
    away = lead == 0 ? 1 : 0;
    answer_some(1, 100);
    assert_true(in_memory(lead) < 4000 && in_memory(away) < 4000);
    stop(away);
    answer_some(101, 200);
    assert_int_equal(leader(), lead);
    assert_true(in_memory(lead) > 6000);
    start(away);
    UNTIL(all_alike());
    answer_some(301, 100);
    assert_true(in_memory(lead) < 4000);
    assert_int_equal(snapshots_of(lead), 0);
}

static void test_alone_nobody_serves(void **state)
{
    int lead, other;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    answer_some(1, 5);
    for (int i = 0; i < FOUNDERS; i++)
        if (i != lead)
            stop(i);
    submit_numbered(members[lead].replica, 6, 3600000);
    UNTIL(leader() < 0); /* it finds out that it is alone */
    assert_int_equal(members[lead].witness.heard[6].answers, 0);
    assert_int_equal(members[lead].witness.heard[6].failure, REPLICA_UNKNOWN);
    other = lead == 0 ? 1 : 0;
    start(other);
    UNTIL(leader() >= 0);
    answer_some(7, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_have_what_was_answered),
        TEST(test_three_wait_for_three_quarters),
        TEST(test_another_takes_over),
        TEST(test_large_entries),
        TEST(test_snapshots_of_followers_are_whole),
        TEST(test_who_was_away_for_long_gets_a_snapshot),
        TEST(test_who_was_away_gets_the_log),
        TEST(test_alone_nobody_serves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
