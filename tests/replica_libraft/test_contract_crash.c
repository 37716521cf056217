/* A crash between a snapshot and the log that it replaces. Raft paper, section 7 and figure 13: "discard the
 * entire log", "reset state machine using snapshot contents".
 *
 * Storing a snapshot and removing the log are two steps, and libraft sees one, raft_io.snapshot_put. What is
 * between them our raft_io has to put right when it begins again (src/replica_libraft/loading.c), and libraft has to make
 * sense of what it is given then: a snapshot with the log from before it, or without any. */
#include "contract.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#define ENTRIES_PER_SEGMENT 3 /* each in a block of its own */

static struct subject subject;
static char before[PATH_MAX]; /* the directory as it was before there was a snapshot */

static const struct install ten = {
    .from = 3, .term = 3, .index = 10, .last_term = 3, .members = 3, .state = "up to 10^3"};

static int set_up(void **state)
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

/* Entries of term 2 up to this one, one after the other, and all but the last `uncommitted` are committed. */
static void follow_up_to(raft_index last, raft_index uncommitted)
{
    for (raft_index index = 2; index <= last; index++) {
        hear_append(&subject, (struct append){.from = 2,
                                              .term = 2,
                                              .prev = index - 1,
                                              .prev_term = index == 2 ? 1 : 2,
                                              .commit = index == last ? last - uncommitted : 1,
                                              .count = 1,
                                              .terms = {2}});
        SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 2) == index);
    }
    assert_true(count_files(subject.path, "log-") >= last / ENTRIES_PER_SEGMENT);
}

static void keep_before(void)
{
    subject_keep(&subject);
    snprintf(before, sizeof before, "%s", subject.kept);
}

/* Node 3 leads in term 3 and sends its snapshot. What is on disk when it is acknowledged is kept. */
static void install_ten(void)
{
    subject.keep_at = RAFT_APPEND_ENTRIES_RESULT;
    hear_install(&subject, ten);
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 3) == 10);
    subject.keep_at = 0;
}

/* The snapshot, and nothing else; and it can go on. */
static void assert_ten(void)
{
    assert_int_equal(subject.restores, 1);
    assert_string_equal(subject.state, ten.state);
    assert_int_equal(raft_commit_index(&subject.raft), 10);
    assert_int_equal(raft_last_index(&subject.raft), 10);
    hear_append(&subject, (struct append){.from = 3,
                                          .term = 3,
                                          .prev = 10,
                                          .prev_term = 3,
                                          .commit = 11,
                                          .count = 1,
                                          .terms = {3}});
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 3) == 11);
    assert_string_equal(subject.state, "up to 10^3 11^3");
}

static void assert_eleven(void)
{
    assert_string_equal(subject.state, ten.state);
    assert_int_equal(raft_last_index(&subject.raft), 11);
    hear_append(&subject,
                (struct append){.from = 3, .term = 3, .prev = 11, .prev_term = 3, .commit = 11});
    assert_string_equal(subject.state, "up to 10^3 11^3");
}

/* ---- from the leader: it takes the place of the whole log ------------------------------------- */

static void crash_with_old_log(const char *begins)
{
    keep_before();
    install_ten();
    copy_files(before, subject.kept, begins); /* the crash came before these were removed */
    subject_crash(&subject);
    assert_ten();
    subject_keep(&subject);
    subject_crash(&subject);
    assert_eleven();
}

static void test_a_shorter_log_that_is_still_there_is_not_resurrected(void **state)
{
    (void)state;
    follow_up_to(5, 0);
    crash_with_old_log("log-");
}

/* 10^2 is not 10^3, which is in the snapshot: nor are 11^2 and 12^2 what comes after it. */
static void test_a_longer_log_that_is_still_there_is_not_resurrected(void **state)
{
    (void)state;
    follow_up_to(12, 9);
    crash_with_old_log("log-");
}

static void test_nor_is_the_part_of_it_that_is_left(void **state)
{
    (void)state;
    follow_up_to(12, 9);
    crash_with_old_log("log-1");
}

/* The names of the segments were removed, but not on the disk, and meanwhile there are new ones. */
static void test_nor_is_one_that_is_there_again(void **state)
{
    (void)state;
    follow_up_to(12, 9);
    keep_before();
    install_ten();
    assert_ten();
    subject_keep(&subject);
    copy_files(before, subject.kept, "log-");
    subject_crash(&subject);
    assert_eleven();
}

/* ---- its own: what comes after it stays ------------------------------------------------------- */

static void take_snapshot(raft_index index, unsigned trailing)
{
    char name[32];

    snprintf(name, sizeof name, "snapshot-%u", (unsigned)index);
    raft_set_snapshot_trailing(&subject.raft, trailing);
    raft_set_snapshot_threshold(&subject.raft, 1);
    subject_pass(&subject, HEARTBEAT_MS);
    raft_set_snapshot_threshold(&subject.raft, UINT_MAX);
    SUBJECT_UNTIL(&subject, !subject.raft.legacy.snapshot_taking);
    assert_int_equal(count_files(subject.path, name), 1);
    assert_int_equal(count_files(subject.path, "log-1"), 0);
}

static void test_its_own_snapshot_and_all_of_the_log(void **state)
{
    const char *whole = "2^2 3^2 4^2 5^2 6^2";

    (void)state;
    follow_up_to(8, 2);
    assert_string_equal(subject.state, whole);
    keep_before();
    take_snapshot(6, 1);
    subject_keep(&subject);
    copy_files(before, subject.kept, "log-");
    subject_crash(&subject);
    assert_int_equal(subject.restores, 1);
    assert_string_equal(subject.state, whole);
    assert_int_equal(raft_last_index(&subject.raft), 8); /* these were acknowledged */
    hear_append(&subject,
                (struct append){.from = 2, .term = 2, .prev = 8, .prev_term = 2, .commit = 8});
    assert_string_equal(subject.state, "2^2 3^2 4^2 5^2 6^2 7^2 8^2"); /* each of them once */
}

static void test_a_snapshot_that_was_not_finished_is_nothing(void **state)
{
    char name[2 * PATH_MAX];
    int fd;

    (void)state;
    follow_up_to(5, 0);
    subject_keep(&subject);
    snprintf(name, sizeof name, "%s/snapshot.new", subject.kept);
    fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "up to", 5), 5);
    close(fd);
    subject_crash(&subject);
    assert_int_equal(subject.restores, 0);
    assert_int_equal(raft_last_index(&subject.raft), 5);
    assert_int_equal(count_files(subject.path, "snapshot"), 0);
}

/* ---- the order, as the file system saw it ----------------------------------------------------- */

static int watch(void)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    assert_true(fd >= 0);
    assert_true(inotify_add_watch(fd, subject.path, IN_MOVED_TO | IN_DELETE) >= 0);
    return fd;
}

/* No segment was removed before the snapshot had its name, and some were afterwards. */
static void assert_snapshot_came_first(int fd, const char *snapshot)
{
    static char bytes[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t got = read(fd, bytes, sizeof bytes);
    bool there = false, removed = false;

    assert_true(got > 0);
    for (ssize_t at = 0; at < got;) {
        const struct inotify_event *event =
            (const struct inotify_event *)(const void *)(bytes + at);

        there = there || (event->mask & IN_MOVED_TO && strcmp(event->name, snapshot) == 0);
        if (event->mask & IN_DELETE && strncmp(event->name, "log-", 4) == 0) {
            assert_true(there);
            removed = true;
        }
        at += (ssize_t)sizeof *event + event->len;
    }
    assert_true(removed);
    close(fd);
}

static void test_the_log_goes_after_its_own_snapshot_is_there(void **state)
{
    int fd;

    (void)state;
    follow_up_to(8, 0);
    fd = watch();
    take_snapshot(8, 1);
    assert_snapshot_came_first(fd, "snapshot-8");
}

static void test_the_log_goes_after_the_leaders_snapshot_is_there(void **state)
{
    int fd;

    (void)state;
    follow_up_to(8, 0);
    fd = watch();
    install_ten();
    assert_snapshot_came_first(fd, "snapshot-10");
}

/* AppendEntries and InstallSnapshot in one round of the loop (or: the append waits for a spare segment):
 * it must not be written behind the snapshot. */
static void test_an_append_that_waits_when_a_snapshot_comes(void **state)
{
    (void)state;
    hear_append(&subject,
                (struct append){
                    .from = 3, .term = 3, .prev = 1, .prev_term = 1, .count = 2, .terms = {2, 2}});
    hear_install(&subject, ten);
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 3) == 10);
    for (int i = 0; i < 50; i++)
        subject_turn(&subject);
    subject.keep_at = RAFT_APPEND_ENTRIES_RESULT;
    hear_append(&subject, (struct append){.from = 3,
                                          .term = 3,
                                          .prev = 10,
                                          .prev_term = 3,
                                          .commit = 11,
                                          .count = 1,
                                          .terms = {3}});
    SUBJECT_UNTIL(&subject, told_acknowledged(&subject, 3) == 11);
    subject_crash(&subject);
    assert_string_equal(subject.state, ten.state);
    assert_int_equal(raft_last_index(&subject.raft), 11);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_shorter_log_that_is_still_there_is_not_resurrected),
        TEST(test_a_longer_log_that_is_still_there_is_not_resurrected),
        TEST(test_nor_is_the_part_of_it_that_is_left),
        TEST(test_nor_is_one_that_is_there_again),
        TEST(test_its_own_snapshot_and_all_of_the_log),
        TEST(test_a_snapshot_that_was_not_finished_is_nothing),
        TEST(test_the_log_goes_after_its_own_snapshot_is_there),
        TEST(test_the_log_goes_after_the_leaders_snapshot_is_there),
        TEST(test_an_append_that_waits_when_a_snapshot_comes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
