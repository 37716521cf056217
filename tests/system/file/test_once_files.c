/* test_once_files.c: the files of once-records: sweeping, damage, full disks, and processes that are killed
 * at any moment. HF_SOAK=1 kills more of them. */
#include "once_folder.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/once.h>

#define SWEPT 200
#define SWEEP_FILES 32 /* looked at by one who finishes */
#define ROUNDS (getenv("HF_SOAK") ? 2000 : 60)
#define STOPS (getenv("HF_SOAK") ? 5000 : 300)
#define KILLS 100
#define KILLS_SOAK 2000

/* ---- sweeping -------------------------------------------------------------------------------- */

/* Of names that do not begin with a dot. */
static int count_files(void)
{
    DIR *files = opendir(path_of(""));
    struct dirent *entry;
    int count = 0;

    assert_non_null(files);
    while ((entry = readdir(files)))
        count += entry->d_name[0] != '.';
    closedir(files);
    return count;
}

static void a_folder_of_old_records_is_swept(void **state)
{
    char key[32];
    int most;

    (void)state;
    for (int i = 0; i < SWEPT; i++) {
        snprintf(key, sizeof key, "old %d", i);
        run_once(&driver, key, key, strlen(key), i % 10 ? KEEP_MS : 2 * KEEP_MS);
    }
    assert_int_equal(2 * SWEPT, count_files()); /* a lock's and a record's */
    most = 2 * SWEPT / 10;                      /* those that are still kept */
    clock_test_shift_ms(KEEP_MS);
    /* Each leaves two files and looks at SWEEP_FILES: once around, and a half, is enough. */
    for (int i = 0; i < 3 * SWEPT / SWEEP_FILES + 1; i++) {
        snprintf(key, sizeof key, "new %d", i);
        run_once(i % 2 ? &driver : &other, key, "", 0, KEEP_MS);
        most += 2;
    }
    assert_true(count_files() <= most);
    for (int i = 0; i < SWEPT; i++) {
        snprintf(key, sizeof key, "old %d", i);
        assert_int_equal(i % 10 ? ENGINE_HELD : ENGINE_DONE, outcome_of(key, false));
    }
}

/* Whose time begins with that, if nobody has asked for it before. */
static void sweeping_finds_the_dead(void **state)
{
    struct runner runner;

    (void)state;
    runner_start(&runner, url, "dead", 0, 5000);
    run_once(&driver, "first", "", 0, KEEP_MS); /* it lives: this begins nothing */
    runner_kill(&runner);
    clock_test_shift_ms(6000);
    run_once(&driver, "second", "", 0, KEEP_MS);
    clock_test_shift_ms(10000);
    assert_int_equal(ENGINE_DIED, outcome_of("dead", true));
    clock_test_shift_ms(12000);
    assert_int_equal(ENGINE_HELD, outcome_of("dead", true));
}

/* Some claim and finish the same few keys again and again, whose records are over at once and whose files
 * are swept all the time: no key is in two hands at once, nobody is taken for dead, and everybody gets on. What
 * is to be kept is kept. */
static pid_t sweeper;
static _Atomic int inside[4];
static _Atomic uint64_t newest[4];

static void run_to_keep(struct driver *on, int number)
{
    struct claimant claimant;
    char key[32];

    snprintf(key, sizeof key, "kept %d", number);
    claimant_begin(&claimant, on, key);
    claimant.claim.death_ms = 0; /* no record until it is done */
    assert_int_equal(ENGINE_HELD, claimant_wait(&claimant));
    assert_int_equal(HF_OK, claimant_finish(&claimant, key, strlen(key), KEEP_MS));
    claimant_end(&claimant);
}

static _Atomic int keepers;

static void *claim_and_sweep(void *arg)
{
    char key[16];

    for (int i = 0; i < ROUNDS; i++) {
        struct claimant claimant;
        int which = i % 4, outcome;

        snprintf(key, sizeof key, "swept %d", which);
        claimant_begin(&claimant, arg, key);
        claimant.claim.death_ms = i % 3 ? DEATH_MS : 0;
        claimant.claim.no_heir = i % 7 < 3;
        do
            outcome = claimant_wait(&claimant);
        while (outcome == ENGINE_DONE);
        if (outcome != ENGINE_HELD || atomic_fetch_add(&inside[which], 1) != 0 ||
            claimant.claim.token <= atomic_load(&newest[which]))
            return (void *)1;
        atomic_store(&newest[which], claimant.claim.token);
        atomic_fetch_sub(&inside[which], 1);
        if (i % 5 == 0 ? claimant_release(&claimant) != HF_OK
                       : claimant_finish(&claimant, "", 0, 1) != HF_OK)
            return (void *)2;
        claimant_end(&claimant);
        if (i % 4 == 0)
            run_to_keep(arg, atomic_fetch_add(&keepers, 1));
    }
    return NULL;
}

static void sweeping_is_in_nobodys_way(void **state)
{
    pthread_t threads[8];
    void *outcome, *worst = NULL;
    char key[32];

    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(
            0, pthread_create(&threads[i], NULL, claim_and_sweep, i % 2 ? &driver : &other));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(0, pthread_join(threads[i], &outcome));
        worst = outcome ? outcome : worst;
    }
    assert_null(worst);
    for (int i = 0; i < atomic_load(&keepers); i++) {
        snprintf(key, sizeof key, "kept %d", i);
        assert_int_equal(ENGINE_DONE, outcome_of(key, false));
    }
}

/* Finishes another key, until nothing is left of this one but its record, if that. */
static void sweep_until_gone(const char *file)
{
    for (int i = 0; i < 100 && is_there(file); i++) {
        run_once(&other, "sweeper", "", 0, 1);
        clock_test_shift_ms(1000 * (i + 1));
    }
    assert_false(is_there(file));
}

/* Who has the file of a key open, that was removed since, has nothing. */
static void a_lock_on_a_file_that_was_swept_is_none(void **state)
{
    struct claimant first, second, third;

    (void)state;
    claimant_begin(&first, &driver, "moved");
    assert_int_equal(ENGINE_HELD, claimant_try(&first));
    claimant_begin(&second, &driver, "moved");
    assert_int_equal(ENGINE_BUSY, claimant_try(&second));
    assert_int_equal(HF_OK, claimant_release(&first));
    sweep_until_gone("moved");
    claimant_begin(&third, &driver, "moved");
    assert_int_equal(ENGINE_HELD, claimant_try(&third));
    assert_int_equal(ENGINE_BUSY, claimant_try(&second));
    assert_int_equal(HF_OK, claimant_finish(&third, "it", 2, KEEP_MS));
    assert_int_equal(ENGINE_DONE, claimant_try(&second));
    claimant_end(&first);
    claimant_end(&second);
    claimant_end(&third);
}

/* Sweeps as fast as it can, until it is killed. Without syncs, which would take up all its time. */
static pid_t start_sweeper(const char *on)
{
    pid_t parent = getpid(), pid;
    struct driver own;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    driver_open(&own, on);
    for (;;) {
        struct claimant claimant;

        claimant_begin(&claimant, &own, "sweeper");
        claimant.claim.death_ms = 0;
        if (claimant_wait(&claimant) == ENGINE_HELD)
            claimant_finish(&claimant, "", 0, 1);
        claimant_end(&claimant);
    }
}

/* Finishes others until somebody has swept the file away. */
static void sweep_away(struct driver *on, const char *path)
{
    static int number;
    char key[32];

    for (int i = 0; i < 50 && access(path, F_OK) == 0; i++) {
        snprintf(key, sizeof key, "aside %d", number++); /* what is stopped may have the last one */
        run_once(on, key, "", 0, 1);
    }
    assert_int_not_equal(0, access(path, F_OK));
}

/* When somebody last swept, in ns: each notes where he stopped. path: of any file there. */
static int64_t swept_at(const char *path)
{
    char cursor[256];
    struct stat st;

    snprintf(cursor, sizeof cursor, "%.*s/.sweep", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(0, stat(cursor, &st));
    return st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
}

/* Behind its back, while it is stopped, what it has just looked at is finished; or swept by somebody else
 * and claimed anew. Either must be as it was when it goes on. */
static void change_behind_its_back(struct driver *on, const char *key, const char *path,
                                   bool finish)
{
    struct claimant claimant, next;
    uint64_t token;
    int64_t last;
    int outcome;

    claimant_begin(&claimant, on, key);
    claimant.claim.death_ms = 0;
    assert_int_equal(ENGINE_HELD, claimant_wait(&claimant));
    test_pause_ms(1); /* it meets the lock's file, without a record, again and again */
    kill(sweeper, SIGSTOP);
    assert_int_equal(0, waitid(P_PID, (id_t)sweeper, &(siginfo_t){0}, WSTOPPED | WNOWAIT));
    claimant_begin(&next, on, key);
    if (finish) {
        assert_int_equal(HF_OK, claimant_finish(&claimant, "it", 2, 60000));
    } else {
        assert_int_equal(HF_OK, claimant_release(&claimant));
        sweep_away(on, path);
        assert_int_equal(ENGINE_HELD, claimant_try(&next));
    }
    last = swept_at(path);
    kill(sweeper, SIGCONT);
    for (int i = 0; i < 2; i++, last = swept_at(path))
        EVENTUALLY(swept_at(path) != last);
    outcome = ask_once(on, key, true, &token);
    assert_int_equal(finish ? ENGINE_DONE : ENGINE_BUSY, outcome);
    if (!finish)
        assert_int_equal(HF_OK, claimant_finish(&next, "it", 2, 1));
    claimant_end(&claimant);
    claimant_end(&next);
}

static void a_sweeper_that_was_stopped_does_no_harm(void **state)
{
    char place[] = "/dev/shm/holdfast-once-XXXXXX", on[64], key[32], path[128], command[64];
    struct driver quick;

    (void)state;
    if (!mkdtemp(place))
        skip();
    snprintf(on, sizeof on, "file:%s?allow=tmpfs", place);
    driver_open(&quick, on);
    sweeper = start_sweeper(on);
    for (int i = 0; i < STOPS; i++) {
        snprintf(key, sizeof key, "s%d", i);
        snprintf(path, sizeof path, "%s/once/%s", place, key);
        change_behind_its_back(&quick, key, path, i % 2);
        snprintf(path, sizeof path, "%s/once/%s~record", place, key);
        unlink(path); /* so that there is always little to sweep */
    }
    kill(sweeper, SIGKILL);
    waitpid(sweeper, NULL, 0);
    driver_close(&quick);
    snprintf(command, sizeof command, "rm -rf %s", place);
    assert_int_equal(0, system(command));
}

/* ---- damage and full disks ------------------------------------------------------------------- */

static void assert_refused_and_left_alone(const char *key, const char *file)
{
    struct stat before, after;
    char aside[5000];

    assert_int_equal(0, lstat(path_of(file), &before));
    assert_int_equal(HF_EIO, outcome_of(key, false));
    assert_non_null(strstr(driver.err.text, file));
    assert_null(strchr(driver.err.text, '\n'));
    assert_int_equal(0, lstat(path_of(file), &after));
    assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
    snprintf(aside, sizeof aside, "%s/aside-%ld", dir, (long)before.st_ino);
    assert_int_equal(0, rename(path_of(file), aside)); /* what the message says to do */
    assert_int_equal(ENGINE_HELD, outcome_of(key, false));
}

static void a_damaged_record_is_refused(void **state)
{
    static const off_t bytes_at[] = {0, 64, 68, 72, 80, 88, 92, 96, 104, 615, 616, 619};

    (void)state;
    for (size_t i = 0; i < sizeof bytes_at / sizeof *bytes_at; i++) {
        run_once(&driver, "hurt", "four", 4, KEEP_MS);
        damage("hurt~record", bytes_at[i]);
        assert_refused_and_left_alone("hurt", "hurt~record");
    }
    run_once(&driver, "cut", "four", 4, KEEP_MS);
    assert_int_equal(0, truncate(path_of("cut~record"), 619));
    assert_refused_and_left_alone("cut", "cut~record");
    run_once(&driver, "empty", "four", 4, KEEP_MS);
    assert_int_equal(0, truncate(path_of("empty~record"), 0));
    assert_refused_and_left_alone("empty", "empty~record");
    run_once(&driver, "longer", "four", 4, KEEP_MS);
    overwrite("longer~record", 620, "x", 1);
    assert_refused_and_left_alone("longer", "longer~record");
    assert_int_equal(0, symlink("hurt~record", path_of("link~record")));
    assert_refused_and_left_alone("link", "link~record");
    assert_int_equal(0, mkdir(path_of("folder~record"), 0700));
    assert_refused_and_left_alone("folder", "folder~record");
    assert_int_equal(0, mkfifo(path_of("pipe~record"), 0600));
    assert_refused_and_left_alone("pipe", "pipe~record");
}

static void anothers_record_is_refused(void **state)
{
    char from[5000];

    (void)state;
    run_once(&driver, "mine", "it", 2, KEEP_MS);
    snprintf(from, sizeof from, "%s", path_of("mine~record"));
    assert_int_equal(0, rename(from, path_of("yours~record")));
    assert_int_equal(HF_EREFUSED, outcome_of("yours", false));
    assert_non_null(strstr(driver.err.text, "'mine'"));
    assert_true(is_there("yours~record"));
}

static void sweeping_leaves_damaged_files_alone(void **state)
{
    (void)state;
    run_once(&driver, "sick", "it", 2, 1);
    damage("sick~record", 70);
    assert_int_equal(0, mkdir(path_of("strange"), 0700));
    clock_test_shift_ms(1000);
    for (int i = 0; i < 5; i++)
        run_once(&driver, "well", "", 0, 1), clock_test_shift_ms(2000 + i * 1000);
    assert_true(is_there("sick~record"));
    assert_true(is_there("strange"));
}

static void fill(const char *path)
{
    static const char block[1024];
    int fd = open(path, O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) > 0)
        ;
    assert_int_equal(ENOSPC, errno);
    close(fd);
}

static void a_full_disk_stores_nothing_and_loses_nothing(void **state)
{
    char mounted[4200], filler[4300], small_url[4300];
    static char result[30000];
    struct claimant claimant, fresh, reader;
    struct driver small, second;
    uint64_t token;

    (void)state;
    snprintf(mounted, sizeof mounted, "%s/small", dir);
    assert_int_equal(0, mkdir(mounted, 0700));
    if (mount("none", mounted, "tmpfs", 0, "size=128k,mode=0700") != 0)
        skip(); /* only root can make a small disk */
    snprintf(small_url, sizeof small_url, "file:%s/store?allow=tmpfs", mounted);
    snprintf(filler, sizeof filler, "%s/filler", mounted);
    driver_open(&small, small_url);
    driver_open(&second, small_url);
    claimant_begin(&claimant, &small, "paid");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(ENGINE_HELD, ask_once(&second, "used", false, &token));
    fill(filler);
    assert_int_equal(HF_EIO, ask_once(&second, "used", true, &token)); /* no room for a record */
    assert_int_equal(HF_EIO, claimant_finish(&claimant, result, sizeof result, KEEP_MS));
    assert_non_null(strstr(small.err.text, "full"));
    claimant_begin(&reader, &second, "paid");
    assert_int_equal(ENGINE_BUSY, claimant_try(&reader)); /* it is still ours */
    claimant_begin(&fresh, &second, "fresh");
    assert_int_equal(HF_EIO, claimant_try(&fresh)); /* nor for a lock's file */
    assert_int_equal(0, unlink(filler));
    assert_int_equal(ENGINE_HELD, ask_once(&second, "used", true, &token));
    assert_int_equal(HF_OK, claimant_finish(&claimant, result, sizeof result, KEEP_MS));
    assert_int_equal(ENGINE_DONE, claimant_try(&reader));
    assert_done(&reader, claimant.claim.token, result, sizeof result);
    assert_int_equal(ENGINE_HELD, claimant_try(&fresh));
    claimant_end(&claimant);
    claimant_end(&reader);
    claimant_end(&fresh);
    driver_close(&small);
    driver_close(&second);
    assert_int_equal(0, umount(mounted));
}

/* ---- killed at any moment -------------------------------------------------------------------- */

/* A result that nobody else would have written: as long as its token says, and full of it. */
static size_t result_of(uint64_t token, char *ret_bytes)
{
    size_t size = (size_t)(token * 2654435761u % 9000);

    memset(ret_bytes, (int)(token % 251), size);
    return size;
}

/* Claims the key, says with which token, finishes, says so. */
static void run_until_killed(const char *key, int out)
{
    static char bytes[HF_ONCE_RESULT_MAX];
    struct claimant claimant;
    struct driver own;
    uint64_t said;

    driver_open(&own, url);
    claimant_begin(&claimant, &own, key);
    if (claimant_wait(&claimant) != ENGINE_HELD)
        _exit(1);
    said = claimant.claim.token;
    if (write(out, &said, sizeof said) < 0 ||
        claimant_finish(&claimant, bytes, result_of(said, bytes), KEEP_MS) != HF_OK ||
        write(out, &said, sizeof said) < 0)
        _exit(2);
    _exit(0);
}

/* Kills one who runs the key after so many microseconds. What it said: up to two tokens. */
static int kill_a_runner(const char *key, long after_us, uint64_t ret_said[2])
{
    int pipes[2], said = 0;
    pid_t pid;

    assert_int_equal(0, pipe2(pipes, O_CLOEXEC));
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        run_until_killed(key, pipes[1]);
    close(pipes[1]);
    nanosleep(&(struct timespec){0, after_us * 1000}, NULL);
    kill(pid, SIGKILL);
    assert_int_equal(pid, waitpid(pid, NULL, 0));
    while (said < 2 && read(pipes[0], &ret_said[said], sizeof *ret_said) == sizeof *ret_said)
        said++;
    close(pipes[0]);
    return said;
}

/* Whoever comes after it: DONE with its whole result, or runs the key with a greater token. */
static bool take_over(const char *key, const uint64_t said[2], int count)
{
    static char bytes[HF_ONCE_RESULT_MAX];
    struct claimant claimant;
    uint64_t token;
    bool was_done;
    int outcome;

    claimant_begin(&claimant, &driver, key);
    outcome = claimant_wait(&claimant);
    was_done = outcome == ENGINE_DONE;
    if (was_done) {
        token = claimant.claim.record.token;
        assert_true(count == 0 || said[0] == token);
        assert_done(&claimant, token, bytes, result_of(token, bytes));
    } else {
        assert_int_equal(ENGINE_HELD, outcome);
        assert_true(count < 2); /* what was said to be stored is stored */
        token = claimant.claim.token;
        assert_true(count == 0 || token > said[0]);
        assert_int_equal(HF_OK,
                         claimant_finish(&claimant, bytes, result_of(token, bytes), KEEP_MS));
    }
    claimant_end(&claimant);
    claimant_begin(&claimant, &other, key);
    assert_int_equal(ENGINE_DONE, claimant_try(&claimant));
    assert_done(&claimant, token, bytes, result_of(token, bytes));
    claimant_end(&claimant);
    return was_done;
}

static void killed_at_any_moment_there_is_one_result(void **state)
{
    int kills = getenv("HF_SOAK") ? KILLS_SOAK : KILLS, done = 0, claimed = 0, early = 0;
    long most_us = 2000;
    char key[32];

    (void)state;
    for (int i = 0; i < kills; i++) {
        uint64_t said[2];
        int count;

        snprintf(key, sizeof key, "killed %d", i);
        count = kill_a_runner(key, random() % most_us, said);
        early += count == 0;
        claimed += count == 1;
        done += take_over(key, said, count);
        /* A disk may be quick or slow: half of them shall get as far as a result. */
        most_us = done * 2 < i ? most_us * 11 / 10 : most_us * 10 / 11 + 100;
        if (most_us > 900000)
            most_us = 900000;
    }
    print_message("%d killed: %d before the claim, %d between claim and result, %d found done\n",
                  kills, early, claimed, done);
    assert_true(done > 0 && claimed > 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, folder_start, folder_stop)

/* An argument chooses tests by their names: '*swept*'. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_folder_of_old_records_is_swept),
        TEST(sweeping_finds_the_dead),
        TEST(sweeping_is_in_nobodys_way),
        TEST(a_lock_on_a_file_that_was_swept_is_none),
        TEST(a_sweeper_that_was_stopped_does_no_harm),
        TEST(a_damaged_record_is_refused),
        TEST(anothers_record_is_refused),
        TEST(sweeping_leaves_damaged_files_alone),
        TEST(a_full_disk_stores_nothing_and_loses_nothing),
        TEST(killed_at_any_moment_there_is_one_result),
    };

    signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
