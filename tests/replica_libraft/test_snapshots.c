/* Snapshots: when, in slices, beside commands, and what becomes of one that is interrupted. */
#include "tools.h"

#define MANY 20000u /* names: a table of more than one slice */

static struct rig rig;

/* What the second half of the names takes in the log. */
static size_t size_of_half(void)
{
    struct core_packer packer = {0};
    struct core_command command;
    char name[32], lease[32];
    size_t size;

    for (size_t i = MANY / 2 + 1; i <= MANY; i++) {
        command = numbered(i, 3600000, name, lease);
        core_pack(&packer, &command);
    }
    size = core_packed_size(&packer);
    core_packer_free(&packer);
    return size;
}

static int set_up(void **state)
{
    (void)state;
    rig_init(&rig, 1);
    rig.options.snapshot_bytes = size_of_half() + 2000; /* both halves are enough, one is not */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_free(&rig);
    return 0;
}

static struct replica_status status(void)
{
    struct replica_status now;

    replica_status(rig.replica, &now);
    return now;
}

/* A large table, and the limit is passed: the next event begins a snapshot. */
static void fill(void)
{
    rig_serve(&rig);
    for (size_t i = 1; i <= MANY; i++) {
        submit_numbered(rig.replica, i, 3600000);
        if (i % (MANY / 2) == 0) {
            replica_pump(rig.replica, 0);
            memory_io_settle(&rig.memory);
        }
    }
    assert_int_equal(rig.witness.answers, MANY);
    assert_int_equal(status().snapshots, 0);
    memory_io_tick(&rig.memory, 100);
    assert_true(status().snapshotting);
}

static void test_taken_in_slices_beside_commands(void **state)
{
    uint64_t hash;
    size_t slices = 0;

    (void)state;
    fill();
    while (rig.memory.put_calls == 0) { /* a slice with each pump, and a command between them */
        submit_numbered(rig.replica, MANY + ++slices, 3600000);
        assert_int_equal(replica_pump(rig.replica, 0), rig.memory.put_calls ? -1 : 0);
        rig.memory.hold_puts = true;
        memory_io_settle(&rig.memory);
        assert_int_equal(rig.witness.heard[MANY + slices].answers, 1);
    }
    assert_in_range(slices, 3, 20);
    assert_true(status().snapshotting);
    rig.memory.hold_puts = false;
    rig_settle(&rig);
    assert_int_equal(rig.memory.put_calls, 1);
    assert_int_equal(status().snapshots, 1);
    assert_false(status().snapshotting);
    assert_true(rig.memory.snapshot_bytes.len > 500000);
    assert_int_equal(status().snapshot_bytes, rig.memory.snapshot_bytes.len);
    assert_int_equal(rig_last(&rig) - rig.memory.snapshot.index, slices);

    hash = core_hash(replica_table(rig.replica));
    rig_reopen(&rig);
    assert_int_equal(core_hash(replica_table(rig.replica)), hash);
}

/* Only what came after it is replayed. */
static void test_the_log_before_it_is_not_needed(void **state)
{
    uint64_t hash, bytes;

    (void)state;
    rig.options.snapshot_trailing = 1;
    fill();
    rig_settle(&rig);
    assert_int_equal(rig.memory.first, rig.memory.snapshot.index);
    submit_numbered(rig.replica, MANY + 1, 3600000);
    rig_settle(&rig);
    hash = core_hash(replica_table(rig.replica));
    bytes = status().log_bytes;
    assert_in_range(bytes, 1, 200);
    rig_reopen(&rig);
    assert_int_equal(core_hash(replica_table(rig.replica)), hash);
    assert_int_equal(status().log_bytes, bytes);
    assert_true(status().snapshot_bytes > 500000);
}

static void test_closed_while_taking(void **state)
{
    uint64_t hash;

    (void)state;
    fill();
    assert_int_equal(replica_pump(rig.replica, 0), 0);
    assert_int_equal(rig.memory.put_calls, 0);
    memory_io_settle(&rig.memory);
    hash = core_hash(replica_table(rig.replica));
    rig_reopen(&rig);
    assert_int_equal(rig.memory.snapshot.index, 0);
    assert_int_equal(core_hash(replica_table(rig.replica)), hash);
    rig_settle(&rig); /* and takes it now: the limit is still passed */
    memory_io_tick(&rig.memory, 100);
    rig_settle(&rig);
    assert_int_equal(status().snapshots, 1);
}

static void test_closed_while_writing(void **state)
{
    (void)state;
    fill();
    rig.memory.hold_puts = true;
    rig_settle(&rig);
    assert_int_equal(rig.memory.put_calls, 1);
    assert_true(status().snapshotting);
    rig_close(&rig);
    assert_int_equal(rig.memory.snapshot.index, 0);
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    fill();
    rig.memory.hold_puts = true;
    rig_settle(&rig);
    for (size_t i = 1; i <= 1000; i++)
        submit_numbered(rig.replica, i, 3600000);
    rig_settle(&rig);
    memory_io_tick(&rig.memory, 100);
    rig_settle(&rig);
    assert_int_equal(rig.memory.put_calls, 1);
    rig.memory.hold_puts = false;
    rig_settle(&rig);
    assert_int_equal(status().snapshots, 1);
}

/* The larger the table, the more log it takes to make a snapshot worth while. */
static void test_not_before_as_much_log_as_the_last(void **state)
{
    uint64_t size, bytes = 0;
    size_t number = 1;

    (void)state;
    rig.options.snapshot_bytes = 1; /* each entry would be enough */
    rig_serve(&rig);
    for (; number <= 1000; number++)
        submit_numbered(rig.replica, number, 3600000);
    rig_settle(&rig);
    memory_io_tick(&rig.memory, 100);
    rig_settle(&rig);
    size = status().snapshot_bytes;
    assert_true(size > 40000);
    rig.memory.put_calls = 0;
    while (rig.memory.put_calls == 0) {
        bytes = status().log_bytes;
        assert_true(bytes < size);
        submit_numbered(rig.replica, number++, 3600000);
        rig_settle(&rig);
        memory_io_tick(&rig.memory, 100);
        rig_settle(&rig);
    }
    assert_true(bytes > size - 200);
}

static void test_taken_when_there_is_time(void **state)
{
    static char result[CORE_RESULT_MAX];
    struct core_command command = {.op = CORE_FINISH,
                                   .flags = CORE_ONCE,
                                   .name = {"key", 3},
                                   .lease = {"lease", 5},
                                   .token = 1,
                                   .result = {result, sizeof result}};

    (void)state;
    rig.options.snapshot_bytes = UINT64_C(64) << 20;
    rig_serve(&rig);
    submit_numbered(rig.replica, 1, 3600000); /* so that it ticks */
    for (size_t i = 2; i < 30; i++) {
        if (replica_submit(rig.replica, &command, request(i)) == HF_EBUSY)
            rig_settle(&rig);
    }
    rig_settle(&rig);
    assert_true(status().log_bytes > UINT64_C(1) << 20);
    rig_pass(&rig, 9800 * MS);
    assert_int_equal(status().snapshots, 0);
    rig_pass(&rig, 400 * MS);
    assert_int_equal(status().snapshots, 1);
    rig_pass(&rig, 60000 * MS); /* and not again for nothing but ticks */
    assert_int_equal(status().snapshots, 1);
}

static void test_taken_after_very_many_entries(void **state)
{
    struct core_command command = read_now();

    (void)state;
    rig.options.snapshot_bytes = UINT64_C(1) << 40;
    rig.options.snapshot_trailing = 10;
    rig_serve(&rig);
    while (status().entries <= 100000) {
        assert_int_equal(status().snapshots, 0);
        assert_int_equal(replica_submit(rig.replica, &command, request(1)), HF_OK);
        replica_pump(rig.replica, 0);
        memory_io_settle(&rig.memory);
    }
    memory_io_tick(&rig.memory, 100);
    rig_settle(&rig);
    assert_int_equal(status().snapshots, 1);
    assert_int_equal(status().log_bytes, 0);
    assert_int_equal(rig_last(&rig) - rig.memory.first + 1, 10);
}

static void test_a_failed_one_stops_the_node(void **state)
{
    (void)state;
    fill();
    rig.memory.spoil_put = RAFT_IOERR;
    rig_settle(&rig);
    assert_int_equal(rig.witness.stops, 1);
    assert_non_null(strstr(rig.witness.stopped, "snapshot"));
    assert_int_equal(witness_role(&rig.witness), REPLICA_STOPPED);
}

static void test_a_refused_one_stops_the_node(void **state)
{
    (void)state;
    fill();
    rig.memory.fail_put = RAFT_NOMEM;
    rig_settle(&rig);
    assert_int_equal(rig.witness.stops, 1);
    assert_non_null(strstr(rig.witness.stopped, "out of memory"));
}

static void test_a_slow_one_is_noted(void **state)
{
    (void)state;
    fill();
    rig.memory.hold_puts = true;
    rig_pass(&rig, 29000 * MS);
    assert_int_equal(rig.witness.notes, 0);
    rig_pass(&rig, 2000 * MS);
    assert_int_equal(rig.witness.notes, 1);
    assert_non_null(strstr(rig.witness.noted, "snapshot"));
    rig_pass(&rig, 60000 * MS);
    assert_int_equal(rig.witness.notes, 1);
    assert_int_equal(witness_role(&rig.witness), REPLICA_LEADING);
}

static void test_a_damaged_one_is_refused(void **state)
{
    struct replica_host host = witness_host(&rig.witness);
    struct error_text err = {""};
    unsigned char *bytes;

    (void)state;
    fill();
    rig_settle(&rig);
    rig_close(&rig);
    bytes = rig.memory.snapshot_bytes.base;
    bytes[rig.memory.snapshot_bytes.len / 2] ^= 1;
    assert_int_equal(replica_open(&rig.options, &rig.memory.io, &host, &rig.replica, &err), HF_EIO);
    assert_non_null(strstr(err.text, "snapshot"));
    memory_io_settle(&rig.memory);
    assert_null(rig.replica);
}

/* ---- from another leader ---------------------------------------------------------------------- */

static void receive_snapshot(raft_index index, raft_term term)
{
    struct raft_message message = {
        .type = RAFT_INSTALL_SNAPSHOT, .server_id = 2, .server_address = "two"};
    struct raft_install_snapshot *install = &message.install_snapshot;
    unsigned char seed[16] = {0};
    struct core *table = core_new(seed);

    *install = (struct raft_install_snapshot){
        .term = term, .last_index = index, .last_term = term, .conf_index = 1};
    raft_configuration_init(&install->conf);
    for (int i = 0; i < 3; i++)
        raft_configuration_add(&install->conf, rig.options.members[i].id,
                               rig.options.members[i].address, RAFT_VOTER);
    core_snapshot_begin(table);
    while (!core_snapshot_step(table, 1 << 20))
        ;
    install->data.base = core_snapshot_end(table, &install->data.len);
    core_free(table);
    memory_io_receive(&rig.memory, &message);
}

static void test_one_from_the_leader_waits_for_our_own(void **state)
{
    struct core_counts counts;
    raft_index last;
    raft_term term;

    (void)state;
    rig.options.member_count = 3;
    fill();
    last = rig_last(&rig);
    term = status().term;
    memory_io_receive_entry(&rig.memory, 2, term + 1, last, term, last, NULL, 0);
    assert_int_equal(witness_role(&rig.witness), REPLICA_FOLLOWING);
    receive_snapshot(last + 1000, term + 1); /* dropped */
    rig_settle(&rig);
    assert_int_equal(rig.memory.put_calls, 1);
    assert_int_equal(status().snapshots, 1);
    core_count(replica_table(rig.replica), &counts);
    assert_int_equal(counts.holds, MANY);

    receive_snapshot(last + 1000, term + 1); /* sent again */
    rig_settle(&rig);
    assert_int_equal(rig.memory.put_calls, 2);
    assert_int_equal(rig.memory.snapshot.index, last + 1000);
    assert_int_equal(status().applied_index, last + 1000);
    core_count(replica_table(rig.replica), &counts);
    assert_int_equal(counts.holds, 0);
    assert_int_equal(status().log_bytes, 0);
    assert_int_equal(status().memory_bytes, 0);
}

static void test_one_from_the_leader_that_cannot_be_stored(void **state)
{
    raft_index last;

    (void)state;
    rig.options.member_count = 3;
    rig.options.snapshot_bytes = 0;
    rig_serve(&rig);
    last = rig_last(&rig);
    memory_io_receive_entry(&rig.memory, 2, status().term + 1, last, status().term, last, NULL, 0);
    rig.memory.spoil_put = RAFT_NOSPACE;
    receive_snapshot(last + 1000, status().term);
    rig_settle(&rig);
    assert_int_equal(rig.witness.stops, 1);
    assert_non_null(strstr(rig.witness.stopped, "snapshot"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_taken_in_slices_beside_commands),
        TEST(test_the_log_before_it_is_not_needed),
        TEST(test_closed_while_taking),
        TEST(test_closed_while_writing),
        TEST(test_one_at_a_time),
        TEST(test_not_before_as_much_log_as_the_last),
        TEST(test_taken_when_there_is_time),
        TEST(test_taken_after_very_many_entries),
        TEST(test_a_failed_one_stops_the_node),
        TEST(test_a_refused_one_stops_the_node),
        TEST(test_a_slow_one_is_noted),
        TEST(test_a_damaged_one_is_refused),
        TEST(test_one_from_the_leader_waits_for_our_own),
        TEST(test_one_from_the_leader_that_cannot_be_stored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
