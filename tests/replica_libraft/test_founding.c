/* Whose directory is it? Real ones; nobody runs in them. */
#include "replica_libraft/founding.h"
#include "tools.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <raft.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

static char home[4096];
static uv_loop_t loop;
static struct storage *storage;
static struct error_text err;
static struct founding_result settled;
static uint64_t own;

#define CLUSTER "0123456789abcdef0123456789abcdef"
#define FOUNDERS "1=a:1/0000000000000001,2=b:1/0000000000000002,3=c:1/0000000000000003"

static const struct replica_member three[] = {{1, "a:1"}, {2, "b:1"}, {3, "c:1"}};
static const struct replica_member others[] = {{1, "a:1"}, {2, "b:1"}, {4, "d:1"}};
static const struct replica_member only[] = {{1, "a:1"}};

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static void shut(void)
{
    bool closed = false;

    if (!storage)
        return;
    storage_close(storage, on_closed, &closed);
    while (!closed)
        uv_run(&loop, UV_RUN_ONCE);
    storage = NULL;
}

static int settle_as(uint64_t id, const struct replica_member *members, int count)
{
    static uint64_t lives = 0x1234;
    struct storage_options options = {.path = home, .segment_bytes = 1 << 20};
    struct founding founding = {
        .id = id, .members = members, .member_count = count, .life = ++lives};

    shut();
    own = id;
    err.text[0] = '\0';
    assert_int_equal(storage_open(&loop, &options, &storage, &err), HF_OK);
    snprintf(founding.cluster, sizeof founding.cluster, "%032" PRIx64, lives);
    return founding_settle(storage, &founding, &settled, &err);
}

/* As replica_begin would. */
static void begin_log_as(const struct replica_member *members, int count, const char *life)
{
    struct raft_configuration configuration;
    char identity[64];

    raft_configuration_init(&configuration);
    for (int i = 0; i < count; i++) {
        snprintf(identity, sizeof identity, "%s%s%s", members[i].address, life[0] ? "/" : "",
                 members[i].id == own ? life
                 : life[0]            ? "0000000000000abc"
                                      : "");
        assert_int_equal(
            raft_configuration_add(&configuration, members[i].id, identity, RAFT_VOTER), 0);
    }
    assert_int_equal(storage_io(storage)->bootstrap(storage_io(storage), &configuration), 0);
    raft_configuration_close(&configuration);
}

static void begin_log(const struct replica_member *members, int count)
{
    begin_log_as(members, count, settled.life);
}

static void found(const struct replica_member *members, int count)
{
    assert_int_equal(founding_found(storage, CLUSTER, FOUNDERS, &err), HF_OK);
    begin_log(members, count);
}

static struct raft_configuration members_on_disk(void)
{
    struct storage_options options = {.path = home, .segment_bytes = 1 << 20};
    struct raft_io *io;
    struct raft_configuration configuration;
    struct raft_snapshot *snapshot;
    struct raft_entry *entries;
    raft_term term;
    raft_id vote;
    raft_index start;
    size_t count;

    shut();
    assert_int_equal(storage_open(&loop, &options, &storage, &err), HF_OK);
    io = storage_io(storage);
    assert_int_equal(io->load(io, &term, &vote, &snapshot, &start, &entries, &count), 0);
    assert_true(count > 0 && entries[count - 1].type == RAFT_CHANGE);
    assert_true(term > 0 && entries[count - 1].term == term);
    assert_int_equal(raft_configuration_decode(&entries[count - 1].buf, &configuration), 0);
    for (size_t i = 0; i < count; i++)
        if (i + 1 == count || entries[i + 1].batch != entries[i].batch)
            raft_free(entries[i].batch);
    raft_free(entries);
    return configuration;
}

static void assert_only_member(const char *address)
{
    struct raft_configuration configuration = members_on_disk();
    char identity[64];

    snprintf(identity, sizeof identity, "%s/%s", address, settled.life);
    assert_int_equal(configuration.n, 1);
    assert_int_equal(configuration.servers[0].id, 1);
    assert_int_equal(configuration.servers[0].role, RAFT_VOTER);
    assert_string_equal(configuration.servers[0].address, identity);
    raft_configuration_close(&configuration);
}

static int set_up(void **state)
{
    const char *below = getenv("HOLDFAST_TEST_DIR");

    (void)state;
    snprintf(home, sizeof home, "%s/founding-XXXXXX", below ? below : "/var/tmp");
    assert_non_null(mkdtemp(home));
    assert_int_equal(uv_loop_init(&loop), 0);
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    shut();
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static void test_it_may_say_the_same_again(void **state)
{
    struct founding_result first;

    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    first = settled;
    assert_int_equal(first.state, FOUNDING_WAITS);
    assert_string_equal(first.cluster, "");
    assert_int_equal(strlen(first.life), FOUNDING_LIFE);
    assert_int_equal(settle_as(2, three, 3), HF_OK); /* it goes on waiting, with the same life */
    assert_int_equal(settled.state, FOUNDING_WAITS);
    assert_string_equal(settled.life, first.life);
    found(three, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settled.state, FOUNDING_FOUNDED);
    assert_string_equal(settled.life, first.life);
    assert_string_equal(settled.cluster, CLUSTER);
}

/* Nobody depends on it yet. */
static void test_one_that_waits_may_change_its_mind(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settle_as(1, others, 3), HF_OK);
    assert_int_equal(settled.state, FOUNDING_WAITS);
    assert_int_equal(settle_as(1, NULL, 0), HF_OK); /* alone, it founds itself */
    assert_int_equal(settled.state, FOUNDING_FOUNDED);
    assert_int_equal(strlen(settled.cluster), FOUNDING_CLUSTER);
}

/* The note is there, and the log is not: it begins with the members of the note, and no others. */
static void test_a_crash_between_the_note_and_the_log(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(founding_found(storage, CLUSTER, FOUNDERS, &err), HF_OK);
    assert_int_equal(settle_as(2, others, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_int_equal(settle_as(2, NULL, 0), HF_EREFUSED);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settled.state, FOUNDING_FOUNDED);
    assert_string_equal(settled.cluster, CLUSTER);
    assert_string_equal(settled.founders, FOUNDERS);
    begin_log(three, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_string_equal(settled.founders, ""); /* it has begun */
}

/* The log names directories, not machines: with the file of another one it is none of this node's. */
static void test_the_log_of_another_life(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(founding_found(storage, CLUSTER, FOUNDERS, &err), HF_OK);
    begin_log_as(three, 3, "00000000000000ff");
    assert_int_equal(settle_as(2, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "the log of a node 2 with other data"));
}

static void test_members_that_have_no_lives(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(founding_found(storage, CLUSTER, FOUNDERS, &err), HF_OK);
    begin_log_as(three, 3, "");
    assert_int_equal(settle_as(2, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "is of an earlier version"));
    assert_non_null(strstr(err.text, "--restore-from"));
}

static void test_one_that_was_added_takes_part_in_that_cluster(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(founding_join(storage, CLUSTER, &err), HF_OK);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settled.state, FOUNDING_FOUNDED);
    assert_string_equal(settled.cluster, CLUSTER);
    assert_string_equal(settled.founders, "");
    begin_log(others, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settled.state, FOUNDING_FOUNDED);
}

/* Not the whole directory is lost: with the same life it would be counted. */
static void test_a_log_that_is_gone_is_noticed(void **state)
{
    char path[sizeof home + 8];

    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    found(three, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    shut();
    snprintf(path, sizeof path, "%s/log-1", home);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/end", home); /* or it is noticed by that */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(settle_as(2, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "has lost its log"));
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    found(three, 3);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "belongs to node 2, and this is node 1"));
    assert_int_equal(settle_as(2, others, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(2, three, 2), HF_EREFUSED);
    assert_int_equal(settle_as(2, NULL, 0), HF_EREFUSED);
    assert_non_null(strstr(err.text, "of a cluster: start it with cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(2, three, 3), HF_OK); /* and nothing has changed */
}

/* The others have made room for node 4. Both what was asked for at first and what is true now is right. */
static void test_members_may_have_changed(void **state)
{
    (void)state;
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    found(others, 3);
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    assert_int_equal(settle_as(1, others, 3), HF_OK);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED); /* that was before */
    assert_int_equal(settle_as(1, others, 3), HF_OK);
}

static void test_a_node_alone_becomes_a_cluster_of_one(void **state)
{
    static const struct replica_member alone[] = {{1, ""}};
    char cluster[FOUNDING_CLUSTER + 1];

    (void)state;
    assert_int_equal(settle_as(1, NULL, 0), HF_OK);
    begin_log(alone, 1);
    memcpy(cluster, settled.cluster, sizeof cluster);
    assert_int_equal(strlen(cluster), FOUNDING_CLUSTER);
    assert_int_equal(settle_as(1, NULL, 0), HF_OK);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "holdfast cluster add"));
    assert_int_equal(settle_as(1, only, 1), HF_OK);
    assert_only_member("a:1");
    assert_int_equal(settle_as(1, only, 1), HF_OK);
    assert_string_equal(settled.cluster, cluster);
    assert_only_member("a:1");
    assert_int_equal(settle_as(1, NULL, 0), HF_EREFUSED);
}

/* No crash leaves a log without it. Beside other members it is theirs to take another node in; alone, the log is all there is. */
static void test_a_log_without_the_file(void **state)
{
    static const struct replica_member alone[] = {{2, ""}};
    char path[sizeof home + 8];

    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    found(three, 3);
    snprintf(path, sizeof path, "%s/node", home);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(settle_as(2, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "file 'node', which says whose it is, is missing: remove this "
                                     "node with 'holdfast cluster remove', and add it again"));
    assert_int_equal(access(path, F_OK), -1);

    shut();
    nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(home, 0700), 0);
    assert_int_equal(settle_as(2, NULL, 0), HF_OK);
    begin_log(alone, 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(settle_as(2, NULL, 0), HF_EREFUSED);
    assert_non_null(
        strstr(err.text, "is missing: restore it from a backup, or make another store"));
    assert_null(strstr(err.text, "cluster remove"));
    assert_int_equal(access(path, F_OK), -1);
}

static void test_a_damaged_file_is_told(void **state)
{
    static const char *const texts[] = {"node\n",
                                        "node 2\nlife 12\n",
                                        "node x\nlife 0123456789abcdef\n",
                                        "node 2\nlife 0123456789abcdef\nfounded 12\n",
                                        "node 2\nlife 0123456789abcdef\nwhat else\n",
                                        "node 2\nlife 0123456789abcdef"};
    char path[sizeof home + 8];

    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    found(three, 3);
    snprintf(path, sizeof path, "%s/node", home);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

        assert_int_equal(write(fd, texts[i], strlen(texts[i])), (ssize_t)strlen(texts[i]));
        close(fd);
        assert_int_equal(settle_as(2, three, 3), HF_EIO);
        assert_non_null(strstr(err.text, "/node is damaged"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_may_say_the_same_again),
        TEST(test_one_that_waits_may_change_its_mind),
        TEST(test_a_crash_between_the_note_and_the_log),
        TEST(test_the_log_of_another_life),
        TEST(test_members_that_have_no_lives),
        TEST(test_one_that_was_added_takes_part_in_that_cluster),
        TEST(test_a_log_that_is_gone_is_noticed),
        TEST(test_what_does_not_fit_is_refused),
        TEST(test_members_may_have_changed),
        TEST(test_a_node_alone_becomes_a_cluster_of_one),
        TEST(test_a_log_without_the_file),
        TEST(test_a_damaged_file_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
