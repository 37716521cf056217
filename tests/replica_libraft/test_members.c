/* Members come and go, and let each other lead. */
#include "cluster.h"

static int other_than(int lead)
{
    return lead == 0 ? 1 : 0;
}

static struct replica_seen seen_by(int i, uint64_t id)
{
    struct replica_seen seen[REPLICA_MEMBERS_MAX];
    unsigned count = replica_members(members[i].replica, seen, REPLICA_MEMBERS_MAX);

    for (unsigned k = 0; k < count; k++)
        if (seen[k].id == id)
            return seen[k];
    return (struct replica_seen){0};
}

static int add(int to, uint64_t id, const char *address, void *of, struct error_text *err)
{
    const struct replica_member member = {.id = id, .address = address};

    return replica_add(members[to].replica, &member, of, err);
}

static void add_fourth(size_t request_number)
{
    int lead = leader();
    struct error_text err = {""};

    members[lead].witness.changes_told = 0;
    if (add(lead, 4, members[3].address, request(request_number), &err) != HF_OK)
        fail_msg("%s", err.text);
    UNTIL(members[lead].witness.changes_told == 1);
    assert_int_equal(members[lead].witness.change, REPLICA_CHANGED);
    assert_ptr_equal(members[lead].witness.changed, request(request_number));
}

static void test_a_new_node_gets_everything_and_votes(void **state)
{
    (void)state;
    UNTIL(leader() >= 0);
    answer_some(1, 50);
    start(3);
    add_fourth(99);
    UNTIL(seen_by(leader(), 4).votes);
    UNTIL(all_alike());
    answer_some(51, 1);
    UNTIL(all_alike());
    assert_string_equal(seen_by(3, 4).address, members[3].address);
    stop(leader()); /* with one of four gone, its vote is needed */
    UNTIL(leader() >= 0);
    answer_some(60, 5);
}

/* What the others have forgotten it gets as a snapshot, which is taken for it. */
static void test_a_new_node_gets_what_is_not_in_memory(void **state)
{
    struct replica_status status;

    (void)state;
    UNTIL(leader() >= 0);
    memory_bytes = 2000;
    restart_founders();
    answer_some(1, 200);
    start(3);
    add_fourth(99);
    UNTIL(seen_by(leader(), 4).votes);
    UNTIL(all_alike());
    replica_status(members[leader()].replica, &status);
    assert_int_equal(status.snapshots, 1);
    stop(3); /* and has it on its disk */
    start(3);
    answer_some(201, 1);
    UNTIL(all_alike());
}

/* One that is not there holds up nobody, and is taken further when it comes, whoever leads by then. */
static void test_a_new_node_may_come_later(void **state)
{
    int lead;

    (void)state;
    UNTIL(leader() >= 0);
    add_fourth(99);
    answer_some(1, 20);
    lead = leader();
    assert_false(seen_by(lead, 4).votes);
    assert_int_equal(seen_by(lead, 4).silent_ms, -1);
    stop(lead);
    UNTIL(leader() >= 0);
    answer_some(21, 20);
    start(3);
    UNTIL(seen_by(leader(), 4).votes);
    start(lead);
    UNTIL(all_alike());
}

static void hand_over_to(int next)
{
    struct error_text err = {""};
    int lead = leader();

    members[lead].witness.changes_told = 0;
    UNTIL(replica_transfer(members[lead].replica, (uint64_t)next + 1, request(7), &err) == HF_OK);
    UNTIL(leader() == next);
}

/* It gets the changes in the middle of a long message, not one by one as they were made. */
static void test_who_missed_a_change_knows_it_and_makes_the_next(void **state)
{
    struct error_text err = {""};
    int lead, away;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    away = other_than(lead);
    answer_some(1, 10);
    stop(away);
    answer_some(11, 10);
    start(3);
    add_fourth(99);
    UNTIL(seen_by(leader(), 4).votes);
    answer_some(21, 10);
    start(away);
    UNTIL(all_alike());
    assert_true(seen_by(away, 4).votes);
    hand_over_to(away);
    answer_some(31, 1);
    members[away].witness.changes_told = 0;
    if (replica_remove(members[away].replica, 4, request(8), &err) != HF_OK)
        fail_msg("%s", err.text);
    UNTIL(members[away].witness.changes_told == 1);
    assert_int_equal(members[away].witness.change, REPLICA_CHANGED);
    assert_int_equal(seen_by(away, 4).id, 0);
}

/* Somebody mistook its address, say. */
static void test_a_new_node_that_never_comes_can_be_removed(void **state)
{
    struct error_text err = {""};
    int lead;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    add_fourth(99);
    answer_some(1, 200); /* by then it would be asked to catch up */
    members[lead].witness.changes_told = 0;
    UNTIL(replica_remove(members[lead].replica, 4, request(7), &err) == HF_OK);
    UNTIL(members[lead].witness.changes_told == 1);
    assert_int_equal(seen_by(lead, 4).id, 0);
}

static void test_a_member_that_is_removed_is_not_counted(void **state)
{
    struct error_text err = {""};
    int lead, gone;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    gone = other_than(lead);
    stop(gone);
    assert_int_equal(replica_remove(members[lead].replica, (uint64_t)gone + 1, request(7), &err),
                     HF_OK);
    UNTIL(members[lead].witness.changes_told == 1);
    assert_int_equal(members[lead].witness.change, REPLICA_CHANGED);
    assert_int_equal(seen_by(lead, (uint64_t)gone + 1).id, 0);
    answer_some(1, 5);
    assert_int_equal(replica_remove(members[lead].replica, (uint64_t)gone + 1, request(8), &err),
                     HF_EINVAL);
    assert_string_equal(err.text, gone == 0 ? "node 1 is no member" : "node 2 is no member");
}

static void test_what_cannot_be_is_refused(void **state)
{
    struct error_text err = {""};
    int lead, other;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    other = other_than(lead);
    assert_int_equal(add(other, 4, "127.0.0.1:1", NULL, &err), HF_EUNREACH);
    assert_int_equal(replica_transfer(members[other].replica, 0, NULL, &err), HF_EUNREACH);
    assert_int_equal(replica_remove(members[other].replica, 1, NULL, &err), HF_EUNREACH);
    assert_int_equal(add(lead, (uint64_t)other + 1, "127.0.0.1:1", NULL, &err),
                     HF_EINVAL); /* it is somewhere else */
    assert_int_equal(add(lead, 4, members[other].address, NULL, &err),
                     HF_EINVAL); /* somebody else is there */
    assert_int_equal(replica_remove(members[lead].replica, (uint64_t)lead + 1, NULL, &err),
                     HF_EINVAL);
    assert_int_equal(replica_transfer(members[lead].replica, 4, NULL, &err), HF_EINVAL);
    assert_int_equal(members[lead].witness.changes_told, 0);
    assert_int_equal(add(lead, 4, members[3].address, request(1), &err), HF_OK);
    assert_int_equal(replica_remove(members[lead].replica, (uint64_t)other + 1, NULL, &err),
                     HF_EBUSY); /* one at a time */
    UNTIL(members[lead].witness.changes_told == 1);
    assert_int_equal(add(lead, 4, members[3].address, request(2), &err), HF_OK); /* again */
    assert_int_equal(members[lead].witness.changes_told, 2);
}

/* Each of them in turn, and nothing is lost or refused without need. */
static void test_leadership_is_handed_over(void **state)
{
    size_t number = 1;

    (void)state;
    UNTIL(leader() >= 0);
    for (int round = 0; round < 6; round++) {
        struct error_text err = {""};
        int lead = leader(), next = (lead + 1) % FOUNDERS;
        struct witness *witness = &members[lead].witness;

        answer_some(number, 5);
        number += 5;
        witness->changes_told = 0;
        assert_int_equal(
            replica_transfer(members[lead].replica, (uint64_t)next + 1, request(7), &err), HF_OK);
        submit_numbered(members[lead].replica, number, 3600000);
        UNTIL(witness->changes_told == 1);
        assert_int_equal(witness->change, REPLICA_CHANGED);
        assert_int_equal(replica_leader(members[lead].replica), next + 1);
        assert_int_equal(witness->heard[number].failure, REPLICA_NOT_LEADING);
        number++;
        UNTIL(leader() == next);
    }
}

/* The heir that is chosen is one that is alive, though the other has all of the log, too. */
static void test_a_dead_node_is_not_chosen_to_lead(void **state)
{
    struct error_text err = {""};
    int lead, dead;
    int64_t began;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    answer_some(1, 5);
    UNTIL(all_alike());
    dead = lead == 1 ? 2 : 1;
    stop(dead);
    began = clock_boot_ms();
    UNTIL(clock_boot_ms() - began > 400); /* ten heartbeats, and some */
    if (replica_transfer(members[lead].replica, 0, request(7), &err) != HF_OK)
        fail_msg("%s", err.text);
    UNTIL(members[lead].witness.changes_told == 1);
    assert_int_equal(members[lead].witness.change, REPLICA_CHANGED);
    assert_int_equal(replica_leader(members[lead].replica), FOUNDERS - lead - dead + 1);
}

/* Everybody knows where clients find the one that leads. */
static void test_the_leader_says_where_it_is(void **state)
{
    int lead;

    (void)state;
    UNTIL(leader() >= 0);
    lead = leader();
    UNTIL(all_alike());
    for (int i = 0; i < FOUNDERS; i++) {
        struct core_text about = core_member(replica_table(members[i].replica), (uint64_t)lead + 1);

        assert_int_equal(about.size, strlen(members[lead].address));
        assert_memory_equal(about.bytes, members[lead].address, about.size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_new_node_gets_everything_and_votes),
        TEST(test_a_new_node_gets_what_is_not_in_memory),
        TEST(test_a_new_node_may_come_later),
        TEST(test_who_missed_a_change_knows_it_and_makes_the_next),
        TEST(test_a_new_node_that_never_comes_can_be_removed),
        TEST(test_a_member_that_is_removed_is_not_counted),
        TEST(test_what_cannot_be_is_refused),
        TEST(test_leadership_is_handed_over),
        TEST(test_a_dead_node_is_not_chosen_to_lead),
        TEST(test_the_leader_says_where_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
