/* test_file_store.c: what is special about the file store, through the public API. What it shares
 * with every store is in tests/conformance. */
#include "store_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/holdfast.h>

#define DRAWERS 50
#define CHILDREN 100
#define HANG_S 30
#define DRAWS 40
#define INOTIFY_MAX 4096

/* ---- helpers --------------------------------------------------------------------------------- */

static uint64_t draw(hf_store *store, const char *name)
{
    hf_lock *lock;
    uint64_t token;

    if (hf_acquire(store, name, NULL, &lock) != HF_OK)
        fail_msg("%s", hf_error());
    token = hf_lock_token(lock);
    assert_int_equal(hf_release(lock), HF_OK);
    return token;
}

static void path_in_store(char *ret_path, size_t size, const char *file)
{
    snprintf(ret_path, size, "%s/%s", dir, file);
}

static int compare_tokens(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void draw_many(int out)
{
    hf_store *store = open_store();
    uint64_t last = 0;
    char name[32];

    snprintf(name, sizeof name, "of-%d", (int)getpid() % 7);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t token = draw(store, name);

        if (token <= last || write(out, &token, sizeof token) != (ssize_t)sizeof token)
            _exit(1);
        last = token;
    }
    hf_close(store);
    _exit(0);
}

static void fifty_processes_draw_different_tokens(void **state)
{
    static uint64_t tokens[DRAWERS * DRAWS];
    size_t size = 0;
    int pipes[2], status;
    ssize_t got;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    for (int i = 0; i < DRAWERS; i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            close(pipes[0]);
            draw_many(pipes[1]);
        }
    }
    close(pipes[1]);
    while ((got = read(pipes[0], (char *)tokens + size, sizeof tokens - size)) > 0)
        size += (size_t)got;
    close(pipes[0]);
    while (wait(&status) > 0)
        assert_int_equal(status, 0);
    assert_int_equal(size, sizeof tokens);
    qsort(tokens, DRAWERS * DRAWS, sizeof *tokens, compare_tokens);
    for (int i = 1; i < DRAWERS * DRAWS; i++)
        assert_true(tokens[i] > tokens[i - 1]);
}

static void tokens_outlive_the_store_and_grow_over_all_names(void **state)
{
    hf_store *store = open_store();
    uint64_t first = draw(store, "one"), second;

    (void)state;
    hf_close(store);
    store = open_store();
    second = draw(store, "another");
    assert_true(second > first);
    hf_close(store);
}

static void a_damaged_token_file_is_refused_not_restarted(void **state)
{
    hf_store *store = open_store();
    char path[4400];
    hf_lock *lock;

    (void)state;
    draw(store, "x");
    hf_close(store);
    path_in_store(path, sizeof path, "holdfast-state");
    assert_int_equal(truncate(path, 100), 0);
    store = open_store();
    assert_int_equal(hf_try(store, "x", NULL, &lock), HF_EIO);
    assert_non_null(strstr(hf_error(), "damaged"));
    hf_close(store);
}

/* ---- lock files ------------------------------------------------------------------------------ */

static void an_emptied_lock_file_is_mended(void **state)
{
    hf_store *store = open_store();
    hf_list_options all = HF_LIST_OPTIONS_INIT;
    hf_report *report;
    char path[4400];

    (void)state;
    draw(store, "mended");
    hf_close(store);
    path_in_store(path, sizeof path, "locks/mended");
    assert_int_equal(truncate(path, 0), 0); /* as a crash of the machine may leave it */
    store = open_store();
    draw(store, "mended");
    all.all = 1;
    assert_int_equal(hf_list(store, &all, &report), HF_OK);
    assert_int_equal(hf_report_count(report), 1);
    assert_string_equal(hf_report_entry(report, 0)->name, "mended");
    hf_report_free(report);
    hf_close(store);
}

/* Whoever has the deleted one open is told that his lock is lost, and gets nothing more there. */
static void a_directory_made_anew_is_another_store(void **state)
{
    char dead[HF_SEQUENCER_MAX], fresh[HF_SEQUENCER_MAX];
    hf_store *old = open_store(), *new;
    hf_lock *held, *lock, *none;
    struct pollfd lost = {.events = POLLIN};

    assert_int_equal(HF_OK, hf_acquire(old, "one", NULL, &held));
    assert_int_equal(HF_OK, hf_lock_sequencer(held, dead, sizeof dead));
    assert_int_equal(0, remove_directory(state));
    assert_int_equal(0, mkdir(dir, 0700));
    lost.fd = hf_lock_lost_fd(held);
    assert_int_equal(1, poll(&lost, 1, 10000));
    new = open_store();
    assert_int_equal(HF_OK, hf_acquire(new, "one", NULL, &lock));
    assert_int_equal(HF_OK, hf_lock_sequencer(lock, fresh, sizeof fresh));
    assert_int_equal(HF_ELOST, hf_check_sequencer(old, dead));
    assert_int_equal(HF_ESTORE, hf_check_sequencer(old, fresh));
    assert_int_equal(HF_ESTORE, hf_check_sequencer(new, dead));
    assert_int_equal(HF_EREFUSED, hf_acquire(old, "two", NULL, &none));
    assert_int_equal(HF_ELOST, hf_release(held));
    assert_int_equal(HF_OK, hf_release(lock));
    hf_close(old);
    hf_close(new);
}

static void a_link_in_the_place_of_a_lock_file_is_refused(void **state)
{
    hf_store *store = open_store();
    char path[4400], target[4400];
    struct stat st;
    hf_lock *lock;

    (void)state;
    path_in_store(path, sizeof path, "locks/trap");
    path_in_store(target, sizeof target, "victim");
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(hf_try(store, "trap", NULL, &lock), HF_EREFUSED);
    assert_int_equal(stat(target, &st), -1);
    hf_close(store);
}

static void another_locks_file_is_not_shared(void **state)
{
    hf_store *store = open_store();
    char from[4400], to[4400];
    hf_lock *lock;

    (void)state;
    draw(store, "here");
    path_in_store(from, sizeof from, "locks/here");
    path_in_store(to, sizeof to, "locks/there");
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(hf_try(store, "there", NULL, &lock), HF_EREFUSED);
    hf_close(store);
}

static void the_lease_is_in_no_file(void **state)
{
    hf_store *store = open_store();
    char command[9000];
    hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire(store, "secret", NULL, &lock), HF_OK);
    snprintf(command, sizeof command, "grep -rqF secret '%s/locks'", dir);
    assert_int_equal(WEXITSTATUS(system(command)), 0); /* it would be found */
    snprintf(command, sizeof command, "grep -rqF %s '%s'", hf_lock_lease(lock), dir);
    assert_int_equal(WEXITSTATUS(system(command)), 1);
    hf_close(store);
}

/* ---- directories ----------------------------------------------------------------------------- */

static void expect_open(const char *what, int result, const char *words)
{
    hf_store *store;
    int got = hf_open(what, &store);

    assert_int_equal(got, result);
    if (got == HF_OK)
        hf_close(store);
    else if (!strstr(hf_error(), words))
        fail_msg("'%s' does not say '%s'", hf_error(), words);
}

static void a_directory_others_can_write_to_is_refused(void **state)
{
    char allowed[4400];

    (void)state;
    assert_int_equal(chmod(dir, 0777), 0);
    expect_open(url, HF_EREFUSED, "others can write");
    assert_int_equal(chmod(dir, 0770), 0);
    expect_open(url, HF_EREFUSED, "others can write");
    snprintf(allowed, sizeof allowed, "%s?allow=writable", url);
    expect_open(allowed, HF_OK, "");
    assert_int_equal(chmod(dir, 0700), 0);
    expect_open(url, HF_OK, "");
}

static void a_shared_directory_makes_shared_files(void **state)
{
    hf_store *store;
    char shared_url[4400], path[4400];
    struct stat st;

    (void)state;
    assert_int_equal(chmod(dir, 0770), 0);
    snprintf(shared_url, sizeof shared_url, "%s?allow=writable", url);
    assert_int_equal(hf_open(shared_url, &store), HF_OK);
    draw(store, "x");
    path_in_store(path, sizeof path, "locks/x");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    path_in_store(path, sizeof path, "locks");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0770);
    hf_close(store);
}

static void tmpfs_is_refused(void **state)
{
    struct statfs fs;
    struct stat st;

    (void)state;
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC)
        skip();
    expect_open("file:/dev/shm/holdfast-test/a/b", HF_EREFUSED, "allow=tmpfs");
    assert_int_equal(stat("/dev/shm/holdfast-test", &st), -1); /* and nothing was made there */
}

static void odd_urls_are_refused(void **state)
{
    char text[4400];

    (void)state;
    snprintf(text, sizeof text, "%s?allow=everything", url);
    expect_open(text, HF_EINVAL, "allow=");
    snprintf(text, sizeof text, "%s/new?colour=red", url);
    expect_open(text, HF_EINVAL, "colour");
    snprintf(text, sizeof text, "%s/new", dir);
    assert_int_equal(access(text, F_OK), -1); /* and nothing was made */
    snprintf(text, sizeof text, "%s?ttl=30s", url);
    expect_open(text, HF_ENOTSUP, "TTL");
    expect_open("file://elsewhere/dir", HF_EINVAL, "on this machine");
    expect_open("file:/proc/self/nothing", HF_EREFUSED, "");
    expect_open("nosuch:thing", HF_EINVAL, "nosuch");
    expect_open("just-a-name", HF_EINVAL, "scheme");
}

/* Runs fn as an ordinary user if we are root, because root may write anywhere. */
static void as_nobody(void (*fn)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(2);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void look_but_not_touch(void)
{
    hf_report *report;
    hf_store *store;
    hf_lock *lock;

    if (hf_open(url, &store) != HF_OK || hf_try(store, "held", NULL, &lock) != HF_EREFUSED ||
        hf_show(store, "held", &report) != HF_OK || hf_report_count(report) != 1 ||
        hf_check(store, "held", hf_report_entry(report, 0)->token) != HF_OK) {
        fprintf(stderr, "as nobody: %s\n", hf_error());
        _exit(1);
    }
    _exit(0);
}

static void whoever_may_only_read_can_look(void **state)
{
    hf_store *store = open_store();
    hf_lock *lock;
    char command[9000];

    (void)state;
    if (geteuid() != 0)
        skip(); /* the owner cannot take the right to write from itself */
    assert_int_equal(hf_acquire(store, "held", NULL, &lock), HF_OK);
    snprintf(command, sizeof command, "chmod -R a+rX '%s'", dir);
    assert_int_equal(system(command), 0);
    for (char *slash = dir + 1; (slash = strchr(slash, '/')); slash++) { /* the way there, too */
        struct stat st;

        *slash = '\0';
        bool open_to_all = stat(dir, &st) == 0 && (st.st_mode & 0001);
        *slash = '/';
        if (!open_to_all) {
            hf_close(store);
            skip();
        }
    }
    as_nobody(look_but_not_touch);
    hf_close(store);
}

/* ---- a full disk ----------------------------------------------------------------------------- */

static void a_full_disk_is_said_and_loses_nothing(void **state)
{
    char mounted[4200], filler[4400], small_url[4400], name[64] = "";
    hf_store *store;
    hf_lock *lock;
    uint64_t before, after;
    int fd, result = HF_OK;

    (void)state;
    snprintf(mounted, sizeof mounted, "%s/small", dir);
    assert_int_equal(mkdir(mounted, 0700), 0);
    if (mount("none", mounted, "tmpfs", 0, "size=128k,mode=0700") != 0)
        skip(); /* only root can make a small disk */
    snprintf(small_url, sizeof small_url, "file:%s/store?allow=tmpfs", mounted);
    assert_int_equal(hf_open(small_url, &store), HF_OK);
    before = draw(store, "first");
    snprintf(filler, sizeof filler, "%s/filler", mounted);
    fd = open(filler, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    while (write(fd, name, sizeof name) == (ssize_t)sizeof name)
        ;
    close(fd);
    for (int i = 0; i < 64 && result == HF_OK; i++) {
        snprintf(name, sizeof name, "name-%d", i);
        result = hf_try(store, name, NULL, &lock);
        if (result == HF_OK)
            hf_release(lock);
    }
    assert_int_equal(result, HF_EIO);
    assert_non_null(strstr(hf_error(), "full"));
    after = draw(store, "first"); /* what was there before goes on */
    assert_true(after > before);
    unlink(filler);
    assert_true(draw(store, name) > after);
    hf_close(store);
    assert_int_equal(umount(mounted), 0);
}

/* ---- without inotify ------------------------------------------------------------------------- */

static pid_t hold_in_a_child(const char *name)
{
    int ready[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        hf_lock *lock;

        if (hf_acquire(open_store(), name, NULL, &lock) != HF_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

/* The holder has forked a child that lives on. It is killed; the child must not keep the lock. */
static void a_child_does_not_keep_its_dead_parents_lock(void **state)
{
    hf_options patient = HF_OPTIONS_INIT;
    int ready[2], result;
    pid_t pids[2]; /* the holder's, its child's */
    hf_store *store;
    hf_lock *lock;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    pids[0] = fork();
    assert_true(pids[0] >= 0);
    if (pids[0] == 0) {
        pid_t child;

        if (hf_acquire(open_store(), "inherited", NULL, &lock) != HF_OK)
            _exit(1);
        child = fork();
        if (child == 0) {
            close(ready[1]);
            for (;;)
                pause();
        }
        if (write(ready[1], &child, sizeof child) != (ssize_t)sizeof child)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &pids[1], sizeof pids[1]), sizeof pids[1]);
    store = open_store();
    assert_int_equal(hf_try(store, "inherited", NULL, &lock), HF_EBUSY);
    kill(pids[0], SIGKILL);
    waitpid(pids[0], NULL, 0);
    patient.wait_ms = 10000;
    result = hf_acquire(store, "inherited", &patient, &lock);
    kill(pids[1], SIGKILL);
    assert_int_equal(result, HF_OK);
    hf_close(store);
    close(ready[0]);
    close(ready[1]);
}

static void deaths_are_noticed_without_inotify_too(void **state)
{
    static int instances[INOTIFY_MAX];
    int count = 0;
    pid_t holder;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    while (count < INOTIFY_MAX && (instances[count] = inotify_init1(IN_CLOEXEC)) >= 0)
        count++;
    if (count == INOTIFY_MAX) {
        while (count > 0)
            close(instances[--count]);
        skip(); /* no end to them here */
    }
    holder = hold_in_a_child("watched");
    store = open_store();
    assert_int_equal(hf_try(store, "watched", NULL, &lock), HF_EBUSY);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(hf_acquire(store, "watched", NULL, &lock), HF_OK);
    hf_close(store);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    while (count > 0)
        close(instances[--count]);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void ignore_warning(const hf_warning *warning, void *arg)
{
    (void)warning;
    (void)arg;
}

static void *set_the_handler(void *arg)
{
    _Atomic bool *over = arg;

    while (!*over)
        hf_set_warning_handler(ignore_warning, NULL);
    return NULL;
}

/* Whatever another thread of the parent is about to do with it: in the child it is free. */
static void a_childs_warnings_wait_for_no_thread_of_its_parent(void **state)
{
    _Atomic bool over = false;
    hf_store *store = open_store();
    pthread_t setters[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&setters[i], NULL, set_the_handler, &over), 0);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0) {
            alarm(HANG_S);
            hf_set_warning_handler(NULL, NULL);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    over = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(setters[i], NULL), 0);
    hf_set_warning_handler(NULL, NULL);
    hf_close(store);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        CASE(fifty_processes_draw_different_tokens),
        CASE(tokens_outlive_the_store_and_grow_over_all_names),
        CASE(a_damaged_token_file_is_refused_not_restarted),
        CASE(an_emptied_lock_file_is_mended),
        CASE(a_directory_made_anew_is_another_store),
        CASE(a_link_in_the_place_of_a_lock_file_is_refused),
        CASE(another_locks_file_is_not_shared),
        CASE(the_lease_is_in_no_file),
        CASE(a_directory_others_can_write_to_is_refused),
        CASE(a_shared_directory_makes_shared_files),
        CASE(tmpfs_is_refused),
        CASE(odd_urls_are_refused),
        CASE(whoever_may_only_read_can_look),
        CASE(a_full_disk_is_said_and_loses_nothing),
        CASE(a_child_does_not_keep_its_dead_parents_lock),
        CASE(deaths_are_noticed_without_inotify_too),
        CASE(a_childs_warnings_wait_for_no_thread_of_its_parent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
