/* Whose directory is it? Real ones; nobody runs in them. What a log would have for members is said instead. */
#include "base/text.h"
#include "lone.h"
#include "node/files.h"
#include "node/identity.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static struct lone lone; /* for its home */
static struct directory directory;
static struct error_text err;
static struct identity settled;
static struct replica_config there; /* the members in the log; count 0: there is none */
static uint64_t own;

#define CLUSTER "0123456789abcdef0123456789abcdef"
#define FOUNDERS "1=a:1/0000000000000001,2=b:1/0000000000000002,3=c:1/0000000000000003"

static const struct replica_member three[] = {
    {.id = 1, .address = "a:1"}, {.id = 2, .address = "b:1"}, {.id = 3, .address = "c:1"}};
static const struct replica_member others[] = {
    {.id = 1, .address = "a:1"}, {.id = 2, .address = "b:1"}, {.id = 4, .address = "d:1"}};
static const struct replica_member only[] = {{.id = 1, .address = "a:1"}};
static const struct replica_member moved[] = {{.id = 1, .address = "z:1"}};
static const struct replica_member alone[] = {{.id = 1, .address = ""}};

static int settle_as(uint64_t id, const struct replica_member *members, int count)
{
    static uint64_t lives = 0x1234;
    struct identity_wanted wanted = {
        .id = id, .members = members, .member_count = count, .incarnation = ++lives};
    uint64_t incarnation = 0;
    bool file_there = directory_has(&directory, FILES_NODE);
    int result;

    own = id;
    err.text[0] = '\0';
    result = identity_read(&directory, &wanted, &incarnation, &err);
    assert_int_equal(directory_has(&directory, FILES_NODE), file_there); /* it was read only */
    if (result != HF_OK)
        return result;
    result = identity_settle(&directory, &wanted, &there, &settled, &err);
    if (result == HF_OK)
        assert_int_equal(settled.incarnation, incarnation);
    return result;
}

static void begin_log_as(const struct replica_member *members, int count, uint64_t incarnation)
{
    there = (struct replica_config){.index = 1, .count = count};
    for (int i = 0; i < count; i++) {
        there.at[i] = members[i];
        there.at[i].votes = true;
        there.at[i].incarnation = members[i].id == own ? incarnation : 0xabc;
    }
}

static void begin_log(const struct replica_member *members, int count)
{
    begin_log_as(members, count, settled.incarnation);
}

static void found(const struct replica_member *members, int count)
{
    assert_int_equal(identity_bootstrap(&directory, CLUSTER, FOUNDERS, &err), HF_OK);
    begin_log(members, count);
}

static void remove_file(const char *name)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", lone.path, name);
    assert_int_equal(unlink(path), 0);
}

static int set_up(void **state)
{
    (void)state;
    lone_init(&lone);
    there.count = 0;
    assert_int_equal(directory_open(lone.path, &directory, &err), HF_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    directory_close(&directory);
    lone_free(&lone);
    return 0;
}

static void test_it_may_say_the_same_again(void **state)
{
    struct identity first;
    char hex[32];

    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    first = settled;
    assert_int_equal(first.state, IDENTITY_WAITS);
    assert_true(first.begins);
    assert_string_equal(first.cluster, "");
    snprintf(hex, sizeof hex, "%016" PRIx64, first.incarnation);
    assert_string_equal(first.incarnation_text, hex);
    assert_int_equal(settle_as(2, three, 3), HF_OK); /* it goes on waiting, as the same one */
    assert_int_equal(settled.state, IDENTITY_WAITS);
    assert_false(settled.begins);
    assert_int_equal(settled.incarnation, first.incarnation);
    found(three, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settled.state, IDENTITY_TAKES_PART);
    assert_int_equal(settled.incarnation, first.incarnation);
    assert_string_equal(settled.incarnation_text, first.incarnation_text);
    assert_string_equal(settled.cluster, CLUSTER);
    assert_false(settled.moves);
}

/* Nobody depends on it yet. */
static void test_one_that_waits_may_change_its_mind(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settle_as(1, others, 3), HF_OK);
    assert_int_equal(settled.state, IDENTITY_WAITS);
    assert_int_equal(settle_as(1, NULL, 0), HF_OK); /* alone, it founds itself */
    assert_int_equal(settled.state, IDENTITY_TAKES_PART);
    assert_int_equal(strlen(settled.cluster), CLUSTER_ID_DIGITS);
    assert_int_equal(settle_as(1, others, 3), HF_EREFUSED); /* and that may have been said */
    assert_non_null(strstr(err.text, "belongs to a node alone, whose log has not begun"));
}

/* The note is there, and the log is not: it begins with the members of the note, and no others. */
static void test_a_crash_between_the_note_and_the_log(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(identity_bootstrap(&directory, CLUSTER, FOUNDERS, &err), HF_OK);
    assert_int_equal(settle_as(2, others, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_int_equal(settle_as(2, NULL, 0), HF_EREFUSED);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settled.state, IDENTITY_TAKES_PART);
    assert_string_equal(settled.cluster, CLUSTER);
    assert_string_equal(settled.initial_members, FOUNDERS);
    begin_log(three, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_string_equal(settled.initial_members, ""); /* it has begun */
}

/* The log names directories, not machines: with the file of another one it is none of this node's. */
static void test_the_log_of_another_life(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(identity_bootstrap(&directory, CLUSTER, FOUNDERS, &err), HF_OK);
    begin_log_as(three, 3, 0xff);
    assert_int_equal(settle_as(2, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "the log of a node 2 with other data"));
}

static void test_one_that_was_added_takes_part_in_that_cluster(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(identity_join(&directory, CLUSTER, &err), HF_OK);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(settled.state, IDENTITY_TAKES_PART);
    assert_string_equal(settled.cluster, CLUSTER);
    assert_string_equal(settled.initial_members, "");
    assert_int_equal(settle_as(2, others, 3), HF_OK); /* its leader knows them better */
    begin_log(others, 3);
    assert_int_equal(settle_as(2, others, 3), HF_OK);
    assert_int_equal(settled.state, IDENTITY_TAKES_PART);
}

/* It would be a second cluster with the id of the first. */
static void test_one_that_was_added_does_not_found_itself(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(identity_join(&directory, CLUSTER, &err), HF_OK);
    assert_int_equal(settle_as(2, NULL, 0), HF_EREFUSED);
    assert_non_null(strstr(err.text, "to which it was added"));
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_string_equal(settled.cluster, CLUSTER);
}

/* Not the whole directory is lost: with the same incarnation it would be counted. */
static void test_a_log_that_is_gone_is_noticed(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    found(three, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    there.count = 0;
    assert_int_equal(settle_as(2, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "has lost its log"));
}

/* The same, of one that was not started since it has begun. */
static void test_a_log_is_known_before_the_next_start(void **state)
{
    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    assert_int_equal(identity_bootstrap(&directory, CLUSTER, FOUNDERS, &err), HF_OK);
    assert_int_equal(identity_has_log(&directory, &err), HF_OK);
    assert_int_equal(settle_as(2, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "has lost its log"));
}

static void test_what_does_not_fit_is_refused(void **state)
{
    uint64_t sum;

    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    found(three, 3);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    sum = sum_of_directory(lone.path);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_non_null(
        strstr(err.text, "belongs to node 2, and this is node 1: set id to this node's own"));
    assert_int_equal(settle_as(2, others, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(2, three, 2), HF_EREFUSED);
    assert_int_equal(settle_as(2, NULL, 0), HF_EREFUSED);
    assert_non_null(strstr(err.text, "of a cluster: start it with cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(sum_of_directory(lone.path), sum);
    assert_int_equal(settle_as(2, three, 3), HF_OK);
}

/* The others have made room for node 4. Both what was asked for at first and what is true now is right. */
static void test_members_may_have_changed(void **state)
{
    const struct replica_member as_they_came[] = {others[2], others[1], others[0]};

    (void)state;
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    found(as_they_came, 3);
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    assert_int_equal(settle_as(1, others, 3), HF_OK);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED); /* that was before */
    assert_int_equal(settle_as(1, others, 3), HF_OK);
}

/* Its cluster's id is that of the log which it will begin. */
static void test_a_node_alone_knows_its_cluster(void **state)
{
    char hex[CLUSTER_ID_DIGITS + 1];

    (void)state;
    assert_int_equal(settle_as(1, three, 3), HF_OK); /* its incarnation is not of today */
    assert_int_equal(settle_as(1, NULL, 0), HF_OK);
    directory_close(&directory);
    lone.options.incarnation = settled.incarnation;
    lone_serve(&lone);
    text_hex(replica_cluster(lone.replica), REPLICA_CLUSTER, hex);
    assert_string_equal(settled.cluster, hex);
    lone_close(&lone);
    assert_int_equal(directory_open(lone.path, &directory, &err), HF_OK);
}

static void test_a_node_alone_becomes_a_cluster_of_one(void **state)
{
    char cluster[CLUSTER_ID_DIGITS + 1];

    (void)state;
    assert_int_equal(settle_as(1, NULL, 0), HF_OK);
    begin_log(alone, 1);
    memcpy(cluster, settled.cluster, sizeof cluster);
    assert_int_equal(settle_as(1, NULL, 0), HF_OK);
    assert_false(settled.moves);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "holdfast cluster add"));
    for (int start = 0; start < 2; start++) { /* until it is in the log */
        assert_int_equal(settle_as(1, only, 1), HF_OK);
        assert_true(settled.moves);
        assert_string_equal(settled.cluster, cluster);
    }
    begin_log(only, 1);
    assert_int_equal(settle_as(1, only, 1), HF_OK);
    assert_false(settled.moves);
    assert_string_equal(settled.cluster, cluster);
    assert_int_equal(settle_as(1, NULL, 0), HF_EREFUSED);
    assert_int_equal(settle_as(1, moved, 1), HF_OK);
    assert_true(settled.moves);
}

/* One of several is where the others know it. */
static void test_one_of_several_does_not_move(void **state)
{
    const struct replica_member away[] = {moved[0], three[1], three[2]};

    (void)state;
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    found(three, 3);
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    assert_false(settled.moves);
    assert_int_equal(settle_as(1, away, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "the address of node 1 is a:1, and no restart changes that"));
    assert_non_null(strstr(err.text, "start this one with cluster = 1=a:1,2=b:1,3=c:1"));
    assert_int_equal(settle_as(1, moved, 1), HF_EREFUSED);
    assert_non_null(strstr(err.text, "has the data of node 1 of a cluster: if it was removed"));
}

/* The others go on without it, and it has heard of that. */
static void test_one_that_was_removed_is_told(void **state)
{
    static const struct replica_member itself[] = {{.id = 3, .address = "c:1"}};

    (void)state;
    assert_int_equal(settle_as(3, three, 3), HF_OK);
    found(three, 2);
    assert_int_equal(settle_as(3, three, 3), HF_OK); /* what it was started with before */
    assert_int_equal(settle_as(3, itself, 1), HF_EREFUSED);
    assert_non_null(strstr(err.text, "node 3, which was removed from its cluster: empty it"));
    assert_non_null(strstr(err.text, "cluster = 1=a:1,2=b:1,3=c:1 as before"));
}

/* No crash leaves a log without it. Beside other members it is theirs to take another node in; alone, the log is all there is. */
static void test_a_log_without_the_file(void **state)
{
    (void)state;
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    found(three, 3);
    remove_file(FILES_NODE);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "file 'node', which says whose it is, is missing: remove this "
                                     "node with 'holdfast cluster remove', and add it again"));
    assert_false(has_file(lone.path, FILES_NODE));

    there.count = 0;
    assert_int_equal(settle_as(1, NULL, 0), HF_OK);
    begin_log(alone, 1);
    remove_file(FILES_NODE);
    assert_int_equal(settle_as(1, NULL, 0), HF_EREFUSED);
    assert_non_null(
        strstr(err.text, "is missing: restore it from a backup, or make another store"));
    assert_null(strstr(err.text, "cluster remove"));
    assert_false(has_file(lone.path, FILES_NODE));
}

static void test_a_file_that_names_no_cluster(void **state)
{
    (void)state;
    assert_int_equal(settle_as(1, three, 3), HF_OK);
    begin_log(three, 3);
    assert_int_equal(settle_as(1, three, 3), HF_EREFUSED);
    assert_non_null(strstr(err.text, "which says whose it is, does not name a cluster"));
}

static void test_a_damaged_file_is_told(void **state)
{
    static const char *const texts[] = {"node\n",
                                        "node 2\n",
                                        "node 2\nlife 12\n",
                                        "node 2\nlife 0000000000000000\n",
                                        "node 2\nlife 0123456789abcdef0\n",
                                        "node x\nlife 0123456789abcdef\n",
                                        "node 2\nlife 0123456789abcdef\nfounded 12\n",
                                        "node 2\nlife 0123456789abcdef\nwhat else\n",
                                        "node 2\nlife 0123456789abcdef\nchecksum 00000000\n",
                                        "node 2\nlife 0123456789abcdef"};

    (void)state;
    assert_int_equal(settle_as(2, three, 3), HF_OK);
    found(three, 3);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct identity_wanted wanted = {
            .id = 2, .members = three, .member_count = 3, .incarnation = 5};

        put_file(lone.path, FILES_NODE, texts[i]);
        assert_int_equal(settle_as(2, three, 3), HF_EIO);
        assert_non_null(strstr(err.text, "/node is damaged"));
        assert_int_equal(identity_settle(&directory, &wanted, &there, &settled, &err), HF_EIO);
        assert_int_equal(identity_has_log(&directory, &err), HF_EIO);
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
        TEST(test_one_that_was_added_takes_part_in_that_cluster),
        TEST(test_one_that_was_added_does_not_found_itself),
        TEST(test_a_log_that_is_gone_is_noticed),
        TEST(test_a_log_is_known_before_the_next_start),
        TEST(test_what_does_not_fit_is_refused),
        TEST(test_members_may_have_changed),
        TEST(test_a_node_alone_knows_its_cluster),
        TEST(test_a_node_alone_becomes_a_cluster_of_one),
        TEST(test_one_of_several_does_not_move),
        TEST(test_one_that_was_removed_is_told),
        TEST(test_a_log_without_the_file),
        TEST(test_a_file_that_names_no_cluster),
        TEST(test_a_damaged_file_is_told),
    };

    return cmocka_run_group_tests_name("node: founding", tests, NULL, NULL);
}
