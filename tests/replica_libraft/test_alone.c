/* A node alone on a real disk: it opens, serves, is closed or killed, and everything that it answered
 * is there again. */
#include "node.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct node node;

static int set_up(void **state)
{
    (void)state;
    node_init(&node);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    node_free(&node);
    return 0;
}

static void acquire_numbered(size_t number, uint32_t ttl_ms)
{
    submit_numbered(node.replica, number, ttl_ms);
    NODE_UNTIL(&node, node.witness.heard[number].answers == 1);
    assert_int_equal(node.witness.heard[number].answer, ANSWER_TOKEN);
}

static void test_what_it_answered_is_there_again(void **state)
{
    struct core_counts counts;
    uint64_t hash, token = 0;
    char id[33];

    (void)state;
    node_serve(&node);
    core_count(replica_table(node.replica), &counts);
    memcpy(id, counts.id, sizeof id);
    for (int round = 1; round <= 3; round++) {
        acquire_numbered((size_t)round, 3600000);
        assert_true(node.witness.heard[round].number > token);
        token = node.witness.heard[round].number;
        hash = node_hash(&node);
        node_close(&node);
        witness_init(&node.witness);
        node.witness.now_us = 0;
        node_serve(&node);
        core_count(replica_table(node.replica), &counts);
        assert_int_equal(counts.holds, round);
        assert_int_equal(counts.last_token, token);
        assert_string_equal(counts.id, id);
        assert_int_equal(node_hash(&node), hash); /* the first entry of a term changes nothing */
    }
}

static uint64_t term_of(const struct node *of)
{
    struct replica_status status;

    replica_status(of->replica, &status);
    return status.term;
}

/* A node that is being added may have an entry that this one lost in its crash: another in its place is of another term. */
static void test_each_start_is_another_term(void **state)
{
    uint64_t term = 0;

    (void)state;
    for (size_t round = 1; round <= 3; round++) {
        node_serve(&node);
        assert_true(term_of(&node) > term);
        term = term_of(&node);
        acquire_numbered(round, 3600000);
        node_close(&node);
        witness_init(&node.witness);
        node.witness.now_us = 0;
    }
}

/* With its first entry, and never again, whatever the clock shows. */
static void test_the_first_tokens_are_the_clocks(void **state)
{
    const int64_t then = INT64_C(1794842243059666);
    struct core_counts counts;

    (void)state;
    node.witness.wall_us = then;
    node_serve(&node);
    core_count(replica_table(node.replica), &counts);
    assert_int_equal(counts.last_token, then);
    acquire_numbered(1, 3600000);
    for (int i = 0; i < 2; i++) {
        node.witness.wall_us = i ? 1 : then + 1000000;
        node_reopen(&node);
        core_count(replica_table(node.replica), &counts);
        assert_int_equal(counts.last_token, then + 1);
        assert_int_equal(node.witness.notes, 0);
    }
}

static void test_a_wall_clock_that_is_wrong_is_told_of(void **state)
{
    static const int64_t wrong[] = {1, CLOCK_WALL_MIN_US - 1, CLOCK_WALL_MAX_US, INT64_MAX};
    struct core_counts counts;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        node.witness.wall_us = wrong[i];
        node_serve(&node);
        core_count(replica_table(node.replica), &counts);
        assert_int_equal(counts.last_token, 0);
        assert_int_equal(node.witness.notes, 1);
        assert_non_null(strstr(node.witness.noted, "wall clock"));
        node_free(&node);
        node_init(&node);
    }
}

/* A node alone elects itself: it does not wait out an election timeout. */
static void test_it_leads_at_once(void **state)
{
    struct error_text err;
    int64_t start;

    (void)state;
    node.options.election_ms = 20000;
    node.options.heartbeat_ms = 5000;
    start = clock_boot_ms();
    assert_int_equal(node_open(&node, &err), HF_OK);
    NODE_UNTIL(&node, witness_role(&node.witness) == REPLICA_LEADING);
    assert_true(clock_boot_ms() - start < 5000);
}

static void test_many_at_once_are_one_entry(void **state)
{
    struct replica_status before, after;

    (void)state;
    node_serve(&node);
    before = node_status(&node);
    for (size_t i = 1; i <= 1000; i++)
        submit_numbered(node.replica, i, 3600000);
    NODE_UNTIL(&node, node.witness.answers == 1000);
    after = node_status(&node);
    assert_int_equal(after.commands - before.commands, 1000);
    assert_true(after.entries - before.entries - (after.ticks - before.ticks) == 1);
}

static void test_a_lease_ends_by_itself(void **state)
{
    struct replica_status before, after;
    int64_t sent;

    (void)state;
    node_serve(&node);
    sent = clock_boot_ms();
    acquire_numbered(1, 300);
    NODE_UNTIL(&node, node.witness.why == WHY_EXPIRED);
    assert_true(clock_boot_ms() - sent >= 299);
    NODE_UNTIL(&node, core_next_deadline(replica_table(node.replica)) < 0); /* its memory, too */
    before = node_status(&node);
    sent = clock_boot_ms();
    NODE_UNTIL(&node, clock_boot_ms() - sent > 600);
    after = node_status(&node);
    assert_int_equal(after.entries, before.entries); /* nothing is open: nothing is written */
}

/* The child says what it was answered; then it is killed, in the middle of whatever it does. */
static void serve_until_killed(size_t number, int out)
{
    node_serve(&node);
    for (;; number++) {
        uint64_t token;

        acquire_numbered(number, 3600000);
        token = node.witness.heard[number].number;
        if (write(out, &token, sizeof token) != sizeof token)
            _exit(1);
    }
}

static void test_killed(void **state)
{
    struct core_counts counts;
    uint64_t token, answered = 0, last = 0;
    int pipes[2];
    pid_t child;

    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(pipe(pipes), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(pipes[0]);
            serve_until_killed((size_t)round * 10000 + 1, pipes[1]);
        }
        close(pipes[1]);
        for (int i = 0; i < 50 && read(pipes[0], &token, sizeof token) == sizeof token; i++)
            last = token;
        kill(child, SIGKILL);
        while (read(pipes[0], &token, sizeof token) == sizeof token)
            last = token;
        close(pipes[0]);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_true(last > answered);
        answered = last;
    }
    node_serve(&node);
    core_count(replica_table(node.replica), &counts);
    assert_true(counts.last_token >= answered);
    assert_true(counts.holds >= 150);
}

/* ---- snapshots -------------------------------------------------------------------------------- */

/* A snapshot is under way, of a table of `count` names. */
static void begin_snapshot(size_t count)
{
    uint32_t answered = node.witness.answers;

    for (size_t i = 1; i <= count; i++) {
        while (node.witness.answers + 10000 < answered + i)
            node_turn(&node);
        submit_numbered(node.replica, i, 3600000);
    }
    NODE_UNTIL(&node, node.witness.answers == answered + count);
    NODE_UNTIL(&node, node_status(&node).snapshotting || node_status(&node).snapshots > 0);
}

static void test_snapshots(void **state)
{
    char path[2 * PATH_MAX];
    uint64_t hash, entries;

    (void)state;
    node.options.snapshot_bytes = 100000;
    node_serve(&node);
    node.witness.now_us = START_US; /* no ticks */
    begin_snapshot(30000);
    for (size_t i = 30001; !node_status(&node).snapshots; i++) /* commands go on beside it */
        acquire_numbered(i, 3600000);
    NODE_UNTIL(&node, !node_status(&node).snapshotting);
    assert_true(node_find_file(&node, "snapshot-", "", path));
    acquire_numbered(39000, 3600000);
    NODE_UNTIL(&node, !node_status(&node).snapshotting);
    hash = node_hash(&node);
    entries = node_status(&node).last_index;
    for (int round = 0; round < 2; round++) {
        node_reopen(&node);
        assert_int_equal(node_hash(&node), hash);
        assert_true(node_status(&node).snapshot_bytes > 1000000);
        assert_true(node_status(&node).log_bytes < 1000000);
        assert_int_equal(node_status(&node).last_index, ++entries);
    }
}

/* Closed after any number of turns: in the middle of the slices, of the writing, of the end. The clock
 * stands still, or a tick that is on disk and not yet applied makes a difference. */
static void test_closed_in_the_middle_of_a_snapshot(void **state)
{
    bool interrupted = false, finished = false;

    (void)state;
    node.options.snapshot_bytes = 100000;
    for (int turns = 0; turns < 24; turns += turns < 16 ? 1 : 4) {
        uint64_t hash;

        node_serve(&node);
        node.witness.now_us = START_US;
        begin_snapshot(10000);
        for (int i = 0; i < turns; i++)
            node_turn(&node);
        if (turns >= 20)
            NODE_UNTIL(&node, node_status(&node).snapshots > 0);
        interrupted = interrupted || node_status(&node).snapshotting;
        finished = finished || node_status(&node).snapshots > 0;
        hash = node_hash(&node);
        node_close(&node);
        witness_init(&node.witness);
        node_serve(&node);
        assert_int_equal(node_hash(&node), hash);
        node_free(&node);
        node_init(&node);
        node.options.snapshot_bytes = 100000;
    }
    assert_true(interrupted && finished);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_it_answered_is_there_again),
        TEST(test_each_start_is_another_term),
        TEST(test_the_first_tokens_are_the_clocks),
        TEST(test_a_wall_clock_that_is_wrong_is_told_of),
        TEST(test_it_leads_at_once),
        TEST(test_many_at_once_are_one_entry),
        TEST(test_a_lease_ends_by_itself),
        TEST(test_killed),
        TEST(test_snapshots),
        TEST(test_closed_in_the_middle_of_a_snapshot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
