/* Whose directory is it? Real ones; nobody runs in them. */
#include "replica/founding.h"
#include "tools.h"

#include <fcntl.h>
#include <ftw.h>
#include <raft.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

static char home[4096];
static uv_loop_t loop;
static struct storage *storage;
static struct error_text err;
static char life[FOUNDING_LIFE + 1];

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

static int settle_as(uint64_t id, const struct replica_member *members, int count, bool restored)
{
    static uint64_t lives = 0x1234;
    struct storage_options options = {.path = home, .segment_bytes = 1 << 20};
    struct founding founding = {
        .id = id, .members = members, .member_count = count, .restored = restored, .life = ++lives};

    shut();
    err.text[0] = '\0';
    assert_int_equal(storage_open(&loop, &options, &storage, &err), HF_OK);
    return founding_settle(storage, &founding, life, &err);
}

/* As replica_open would. */
static void found(const struct replica_member *members, int count)
{
    struct raft_configuration configuration;

    raft_configuration_init(&configuration);
    for (int i = 0; i < count; i++)
        assert_int_equal(
            raft_configuration_add(&configuration, members[i].id, members[i].address, RAFT_VOTER),
            0);
    assert_int_equal(storage_io(storage)->bootstrap(storage_io(storage), &configuration), 0);
    raft_configuration_close(&configuration);
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

    assert_int_equal(configuration.n, 1);
    assert_int_equal(configuration.servers[0].id, 1);
    assert_int_equal(configuration.servers[0].role, RAFT_VOTER);
    assert_string_equal(configuration.servers[0].address, address);
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
    char first[sizeof life];

    (void)state;
    assert_int_equal(settle_as(2, three, 3, false), HF_OK);
    memcpy(first, life, sizeof first);
    assert_int_equal(strlen(first), FOUNDING_LIFE);
    found(three, 3);
    assert_int_equal(settle_as(2, three, 3, false), HF_OK);
    assert_string_equal(life, first);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3, false), HF_OK);
    found(three, 3);
    assert_int_equal(settle_as(1, three, 3, false), HF_EREFUSED);
    assert_non_null(strstr(err.text, "belongs to node 2, and this is node 1"));
    assert_int_equal(settle_as(2, others, 3, false), HF_EREFUSED);
    assert_non_null(strstr(err.text, "cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(2, three, 2, false), HF_EREFUSED);
    assert_int_equal(settle_as(2, NULL, 0, false), HF_EREFUSED);
    assert_non_null(strstr(err.text, "of a cluster: start it with cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(2, three, 3, false), HF_OK); /* and nothing has changed */
}

/* The others have made room for node 4. Both what was asked for at first and what is true now is right. */
static void test_members_may_have_changed(void **state)
{
    (void)state;
    assert_int_equal(settle_as(1, three, 3, false), HF_OK);
    found(others, 3);
    assert_int_equal(settle_as(1, three, 3, false), HF_OK);
    assert_int_equal(settle_as(1, others, 3, false), HF_OK);
    assert_int_equal(settle_as(1, three, 3, false), HF_EREFUSED); /* that was before */
    assert_int_equal(settle_as(1, others, 3, false), HF_OK);
}

static void test_a_node_alone_becomes_a_cluster_of_one(void **state)
{
    static const struct replica_member alone[] = {{1, ""}};

    (void)state;
    assert_int_equal(settle_as(1, NULL, 0, false), HF_OK);
    found(alone, 1);
    assert_int_equal(settle_as(1, NULL, 0, false), HF_OK);
    assert_int_equal(settle_as(1, three, 3, false), HF_EREFUSED);
    assert_non_null(strstr(err.text, "holdfast cluster add"));
    assert_int_equal(settle_as(1, only, 1, false), HF_OK);
    assert_only_member("a:1");
    assert_int_equal(settle_as(1, only, 1, false), HF_OK);
    assert_only_member("a:1");
    assert_int_equal(settle_as(1, NULL, 0, false), HF_EREFUSED);
}

static void test_a_backup_begins_alone(void **state)
{
    char first[sizeof life];

    (void)state;
    assert_int_equal(settle_as(1, only, 1, true), HF_EREFUSED);
    assert_non_null(strstr(err.text, "no data"));
    assert_int_equal(settle_as(1, three, 3, false), HF_OK);
    memcpy(first, life, sizeof first);
    found(three, 3);
    assert_int_equal(settle_as(1, three, 3, true), HF_EREFUSED);
    assert_non_null(strstr(err.text, "begins alone"));
    assert_int_equal(settle_as(1, only, 1, true), HF_OK);
    assert_string_not_equal(life, first); /* it is another one now */
    assert_only_member("a:1");
    assert_int_equal(settle_as(1, NULL, 0, true), HF_OK); /* or without any peers */
    assert_only_member("");
}

/* From before there was such a file. */
static void test_a_directory_without_the_file(void **state)
{
    char path[sizeof home + 8];

    (void)state;
    assert_int_equal(settle_as(2, three, 3, false), HF_OK);
    found(three, 3);
    snprintf(path, sizeof path, "%s/node", home);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(settle_as(2, others, 3, false), HF_EREFUSED);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(settle_as(2, three, 3, false), HF_OK);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_a_damaged_file_is_told(void **state)
{
    static const char *const texts[] = {"node\n", "node 2\nlife 12\n",
                                        "node x\nlife 0123456789abcdef\n"};
    char path[sizeof home + 8];

    (void)state;
    assert_int_equal(settle_as(2, three, 3, false), HF_OK);
    found(three, 3);
    snprintf(path, sizeof path, "%s/node", home);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

        assert_int_equal(write(fd, texts[i], strlen(texts[i])), (ssize_t)strlen(texts[i]));
        close(fd);
        assert_int_equal(settle_as(2, three, 3, false), HF_EIO);
        assert_non_null(strstr(err.text, "/node is damaged"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_may_say_the_same_again), TEST(test_what_does_not_fit_is_refused),
        TEST(test_members_may_have_changed),  TEST(test_a_node_alone_becomes_a_cluster_of_one),
        TEST(test_a_backup_begins_alone),     TEST(test_a_directory_without_the_file),
        TEST(test_a_damaged_file_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
