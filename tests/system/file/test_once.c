/* test_once.c: once-records on the file store, by the engine's own functions: who runs a key, what the
 * others get, and for how long. test_once_files.c looks at its files. */
#include "once_folder.h"

#include "base/clock.h"
#include "base/hash.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/once.h>

#define CALLERS 20

/* ---- helpers --------------------------------------------------------------------------------- */

/* The word of a lock file that says that somebody may wait. */
static bool is_waited_for(const char *file)
{
    int fd = open(path_of(file), O_RDONLY);
    uint32_t attention = 0;

    assert_true(fd >= 0);
    assert_int_equal(sizeof attention, pread(fd, &attention, sizeof attention, 20));
    close(fd);
    return attention != 0;
}

/* What once_read says. */
static int look(const char *key, struct engine_record *ret_record, int64_t *ret_left_ms)
{
    *ret_record = (struct engine_record){.age_ms = -1};
    *ret_left_ms = -1;
    return driver.engine->once_read(driver.store, key, ret_record, ret_left_ms, 0, &driver.err);
}

/* ---- one run --------------------------------------------------------------------------------- */

static void many_callers_get_one_result(void **state)
{
    struct waiter waiters[CALLERS];
    struct claimant runner;

    (void)state;
    claimant_begin(&runner, &driver, "rebuild");
    assert_int_equal(ENGINE_HELD, claimant_try(&runner));
    assert_int_equal(ENGINE_HELD, claimant_try(&runner)); /* the same lease, the same answer */
    for (int i = 0; i < CALLERS; i++)
        waiter_start(&waiters[i], i % 2 ? &driver : &other, "rebuild", false);
    EVENTUALLY(is_waited_for("rebuild"));
    assert_int_equal(ENGINE_BUSY, outcome_of("rebuild", false));
    for (int i = 0; i < CALLERS; i++)
        assert_false(atomic_load(&waiters[i].over));
    assert_int_equal(HF_OK, claimant_finish(&runner, "built", 5, KEEP_MS));
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(ENGINE_DONE, waiter_outcome(&waiters[i]));
        assert_done(&waiters[i].claimant, runner.claim.token, "built", 5);
        claimant_end(&waiters[i].claimant);
    }
    claimant_end(&runner);
}

static _Atomic int runs;

static void *call_and_run(void *arg)
{
    struct claimant claimant;
    int outcome;

    claimant_begin(&claimant, arg, "race");
    outcome = claimant_wait(&claimant);
    if (outcome == ENGINE_HELD) {
        atomic_fetch_add(&runs, 1);
        outcome = claimant_finish(&claimant, "x", 1, KEEP_MS);
    }
    claimant_end(&claimant);
    return (void *)(intptr_t)outcome;
}

static void callers_who_race_run_it_once(void **state)
{
    pthread_t threads[CALLERS];
    void *outcome;
    int done = 0;

    (void)state;
    atomic_store(&runs, 0);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(0,
                         pthread_create(&threads[i], NULL, call_and_run, i % 2 ? &driver : &other));
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(0, pthread_join(threads[i], &outcome));
        done += (intptr_t)outcome == ENGINE_DONE;
    }
    assert_int_equal(1, atomic_load(&runs));
    assert_int_equal(CALLERS - 1, done);
}

static void results_come_back_byte_for_byte(void **state)
{
    static const size_t sizes[] = {0, 1, 7, HF_ONCE_RESULT_MAX};
    static unsigned char bytes[HF_ONCE_RESULT_MAX];
    char key[32];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256); /* begins with a NUL, and has every byte */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct claimant claimant;
        uint64_t token;

        snprintf(key, sizeof key, "of %zu bytes", sizes[i]);
        token = run_once(&driver, key, bytes, sizes[i], KEEP_MS);
        claimant_begin(&claimant, &other, key);
        assert_int_equal(ENGINE_DONE, claimant_try(&claimant));
        assert_done(&claimant, token, bytes, sizes[i]);
        claimant_end(&claimant);
    }
}

static void a_result_that_cannot_be_is_refused(void **state)
{
    struct claimant claimant;

    (void)state;
    claimant_begin(&claimant, &driver, "large");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(HF_EINVAL,
                     claimant_finish(&claimant, &claimant, HF_ONCE_RESULT_MAX + 1, KEEP_MS));
    assert_int_equal(HF_EINVAL, claimant_finish(&claimant, "", 0, 0));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "", 0, 1));
    claimant_end(&claimant);
}

static void keys_may_have_any_name(void **state)
{
    char longest[HF_NAME_MAX + 1];
    const char *keys[] = {".",     "..",     "a/b",         "~",    "x~record",
                          "x~new", ".sweep", "\xff\x01 \n", longest};

    (void)state;
    memset(longest, '/', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint64_t token = run_once(&driver, keys[i], keys[i], strlen(keys[i]), KEEP_MS);
        struct claimant claimant;

        claimant_begin(&claimant, &other, keys[i]);
        assert_int_equal(ENGINE_DONE, claimant_try(&claimant));
        assert_done(&claimant, token, keys[i], strlen(keys[i]));
        claimant_end(&claimant);
    }
    assert_int_equal(ENGINE_HELD, outcome_of("x", false));
}

static int count_entry(void *context, const hf_entry *entry)
{
    (void)entry;
    ++*(int *)context;
    return HF_OK;
}

static void a_lock_and_a_key_of_one_name_do_not_meet(void **state)
{
    struct claimant lock, key;
    int entries = 0;
    struct engine_sink sink = {&entries, count_entry};

    (void)state;
    for (int i = 0; i < 3; i++) { /* the files of locks are kept for the next use */
        uint64_t last;

        claimant_begin(&lock, &driver, "same");
        lock.claim.once = false;
        claimant_begin(&key, &driver, "same");
        assert_int_equal(ENGINE_HELD, claimant_try(&lock));
        assert_int_equal(ENGINE_HELD, claimant_try(&key));
        assert_true(key.claim.token > lock.claim.token); /* one counter for both */
        last = key.claim.token;
        driver.engine->process(driver.store);
        assert_int_equal(0, atomic_load(&driver.losses));
        assert_int_equal(HF_OK, claimant_release(&lock));
        assert_int_equal(HF_OK, driver.engine->list(driver.store, NULL, false, &sink, 0, NULL));
        assert_int_equal(0, entries);
        assert_int_equal(HF_OK, claimant_release(&key));
        claimant_end(&lock);
        claimant_end(&key);
        assert_true(run_once(&driver, "another", "", 0, 1) > last);
        clock_test_shift_ms((i + 1) * 1000);
    }
    assert_int_equal(HF_OK, driver.engine->list(driver.store, NULL, true, &sink, 0, NULL));
    assert_int_equal(1, entries);
}

/* ---- ends without a result ------------------------------------------------------------------- */

static void released_is_free_again(void **state)
{
    struct claimant claimant;
    struct waiter waiter;

    (void)state;
    claimant_begin(&claimant, &driver, "freed");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    waiter_start(&waiter, &other, "freed", true);
    EVENTUALLY(is_waited_for("freed"));
    assert_int_equal(HF_OK, claimant_release(&claimant));
    assert_int_equal(ENGINE_HELD, waiter_outcome(&waiter)); /* nobody has died */
    assert_true(waiter.claimant.claim.token > claimant.claim.token);
    assert_int_equal(HF_OK, claimant_release(&waiter.claimant));
    assert_int_equal(HF_ELOST, claimant_release(&claimant));
    assert_int_equal(HF_ESTALE, claimant_finish(&claimant, "late", 4, KEEP_MS));
    assert_false(is_there("freed~record"));
    claimant_end(&claimant);
    claimant_end(&waiter.claimant);
}

static void a_killed_runner_is_replaced(void **state)
{
    struct runner runner;
    struct waiter waiter;

    (void)state;
    runner_start(&runner, url, "heir", 0, DEATH_MS);
    waiter_start(&waiter, &driver, "heir", false);
    EVENTUALLY(is_waited_for("heir"));
    assert_false(atomic_load(&waiter.over));
    runner_kill(&runner);
    assert_int_equal(ENGINE_HELD, waiter_outcome(&waiter));
    assert_true(waiter.claimant.claim.token > runner.token);
    assert_int_equal(ENGINE_BUSY, outcome_of("heir", true)); /* a death that was made good */
    assert_int_equal(HF_OK, claimant_finish(&waiter.claimant, "mine", 4, KEEP_MS));
    assert_int_equal(ENGINE_DONE, outcome_of("heir", true));
    claimant_end(&waiter.claimant);
}

static void a_death_is_told_to_those_who_ask(void **state)
{
    struct runner runner;
    struct waiter waiter;
    struct engine_record record;
    uint64_t token;
    int64_t left_ms;

    (void)state;
    runner_start(&runner, url, "died", 0, 5000);
    waiter_start(&waiter, &driver, "died", true);
    EVENTUALLY(is_waited_for("died"));
    assert_false(atomic_load(&waiter.over));
    runner_kill(&runner);
    assert_int_equal(ENGINE_DIED, waiter_outcome(&waiter));
    assert_int_equal(runner.token, waiter.claimant.claim.record.token);
    claimant_end(&waiter.claimant);
    assert_int_equal(ENGINE_DIED, ask_once(&other, "died", true, &token));
    assert_int_equal(runner.token, token);
    assert_int_equal(ENGINE_DIED, look("died", &record, &left_ms));
    assert_int_equal(runner.token, record.token);
    assert_true(left_ms > 0 && left_ms <= 5000);
    clock_test_shift_ms(left_ms - 1000);
    assert_int_equal(ENGINE_DIED, outcome_of("died", true));
    clock_test_shift_ms(left_ms + 1); /* for as long as the one who died has said */
    assert_int_equal(ENGINE_BUSY, look("died", &record, &left_ms));
    assert_int_equal(ENGINE_HELD, outcome_of("died", true));
}

static void a_death_is_known_from_when_it_is_found(void **state)
{
    struct runner runner;
    struct engine_record record;
    int64_t left_ms;

    (void)state;
    runner_start(&runner, url, "unseen", 0, 5000);
    runner_kill(&runner);
    clock_test_shift_ms(3600000);
    assert_int_equal(ENGINE_DIED, look("unseen", &record, &left_ms));
    assert_int_equal(5000, left_ms);
    assert_int_equal(ENGINE_DIED, outcome_of("unseen", true));
    clock_test_shift_ms(3600000 + 5001);
    assert_int_equal(ENGINE_HELD, outcome_of("unseen", true));
}

static void a_death_that_nobody_shall_know_of(void **state)
{
    struct runner runner;

    (void)state;
    run_once(&driver, "unknown", "old", 3, 1000);
    clock_test_shift_ms(2000);
    runner_start(&runner, url, "unknown", 0, 0); /* and takes away what was there before it */
    assert_false(is_there("unknown~record"));
    runner_kill(&runner);
    assert_int_equal(ENGINE_HELD, outcome_of("unknown", true));
}

static void only_an_heir_runs_what_somebody_died_over(void **state)
{
    struct claimant heir;
    struct runner runner;

    (void)state;
    for (int i = 0; i < 2; i++) { /* twice: the heir dies, too */
        runner_start(&runner, url, "again", 0, DEATH_MS);
        runner_kill(&runner);
        assert_int_equal(ENGINE_DIED, outcome_of("again", true));
    }
    claimant_begin(&heir, &driver, "again");
    assert_int_equal(ENGINE_HELD, claimant_try(&heir));
    assert_true(heir.claim.token > runner.token);
    assert_int_equal(HF_OK, claimant_release(&heir));
    assert_int_equal(ENGINE_HELD, outcome_of("again", true)); /* it was given up on purpose */
    claimant_end(&heir);
}

static pthread_barrier_t together;

static void *ask_about_death(void *arg)
{
    pthread_barrier_wait(&together);
    return (void *)(intptr_t)outcome_of(arg, true);
}

/* Who does not wait is not told that it is busy, because another one is looking just now. */
static void two_who_look_at_a_death_both_see_it(void **state)
{
    (void)state;
    assert_int_equal(0, pthread_barrier_init(&together, NULL, 4));
    for (int i = 0; i < 50; i++) {
        struct runner runner;
        pthread_t threads[4];
        void *outcome;
        char key[16];

        snprintf(key, sizeof key, "look %d", i);
        runner_start(&runner, url, key, 0, DEATH_MS);
        runner_kill(&runner);
        for (int j = 0; j < 4; j++)
            assert_int_equal(0, pthread_create(&threads[j], NULL, ask_about_death, key));
        for (int j = 0; j < 4; j++) {
            assert_int_equal(0, pthread_join(threads[j], &outcome));
            assert_int_equal(ENGINE_DIED, (intptr_t)outcome);
        }
    }
    pthread_barrier_destroy(&together);
}

/* `holdfast once` hands the descriptor to its job: while that lives, nobody died. */
static void a_job_that_has_the_descriptor_keeps_the_key(void **state)
{
    struct claimant claimant;
    int fd = -1;

    (void)state;
    claimant_begin(&claimant, &driver, "job");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(HF_OK, driver.engine->pass_fd(driver.store, &claimant.claim, &fd, NULL));
    claimant_end(&claimant); /* as if it had been killed */
    assert_int_equal(ENGINE_BUSY, outcome_of("job", true));
    close(fd);
    assert_int_equal(ENGINE_DIED, outcome_of("job", true));

    claimant_begin(&claimant, &driver, "job");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(HF_OK, driver.engine->pass_fd(driver.store, &claimant.claim, &fd, NULL));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "out", 3, KEEP_MS));
    assert_int_equal(ENGINE_DONE, outcome_of("job", true)); /* although the lock is still held */
    close(fd);
    claimant_end(&claimant);
}

/* ---- finishing ------------------------------------------------------------------------------- */

static void finished_twice_is_finished_once(void **state)
{
    struct claimant claimant, reader;

    (void)state;
    claimant_begin(&claimant, &driver, "twice");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "first", 5, KEEP_MS));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "second", 6, KEEP_MS));
    claimant_begin(&reader, &other, "twice");
    assert_int_equal(ENGINE_DONE, claimant_try(&reader));
    assert_done(&reader, claimant.claim.token, "first", 5);
    claimant_end(&reader);
    claimant_end(&claimant);
}

/* Only by hand: while its process lives, a runner here is not replaced. */
static void who_was_replaced_finishes_too_late(void **state)
{
    struct claimant first, second, reader;

    (void)state;
    claimant_begin(&first, &driver, "late");
    assert_int_equal(ENGINE_HELD, claimant_try(&first));
    assert_int_equal(0, unlink(path_of("late")));
    claimant_begin(&second, &other, "late");
    assert_int_equal(ENGINE_HELD, claimant_try(&second));
    assert_true(second.claim.token > first.claim.token);
    assert_int_equal(HF_ESTALE, claimant_finish(&first, "old", 3, KEEP_MS));
    assert_non_null(strstr(driver.err.text, "late"));
    assert_int_equal(ENGINE_BUSY, outcome_of("late", false));
    assert_int_equal(HF_OK, claimant_finish(&second, "new", 3, KEEP_MS));
    assert_int_equal(HF_ESTALE, claimant_finish(&first, "old", 3, KEEP_MS));
    assert_int_equal(HF_OK, claimant_release(&first)); /* which takes nothing away */
    claimant_begin(&reader, &other, "late");
    assert_int_equal(ENGINE_DONE, claimant_try(&reader));
    assert_done(&reader, second.claim.token, "new", 3);
    claimant_end(&reader);
    claimant_end(&second);
    claimant_end(&first);
}

static void reading_says_what_is_known(void **state)
{
    struct claimant claimant;
    struct engine_record record;
    int64_t left_ms;

    (void)state;
    assert_int_equal(ENGINE_BUSY, look("read", &record, &left_ms));
    assert_int_not_equal(0, access(path_of(""), F_OK)); /* asking makes nothing */
    claimant_begin(&claimant, &driver, "read");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(ENGINE_HELD, look("read", &record, &left_ms));
    assert_int_equal(claimant.claim.token, record.token);
    assert_string_equal("somebody", record.owner);
    assert_true(record.age_ms >= 0 && record.age_ms < PATIENCE_MS);
    assert_int_equal(-1, left_ms);
    free(record.owner);
    assert_int_equal(HF_OK, claimant_finish(&claimant, "it", 2, 60000));
    assert_int_equal(ENGINE_DONE, look("read", &record, &left_ms));
    assert_int_equal(claimant.claim.token, record.token);
    assert_int_equal(2, record.size);
    assert_memory_equal("it", record.bytes, 2);
    assert_true(left_ms > 0 && left_ms <= 60000);
    free(record.bytes);
    assert_int_equal(ENGINE_BUSY, look("another", &record, &left_ms));
    claimant_end(&claimant);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void kept_for_as_long_as_was_said(void **state)
{
    uint64_t first = run_once(&driver, "kept", "old", 3, 10000), second;
    struct engine_record record;
    int64_t left_ms;

    (void)state;
    assert_int_equal(ENGINE_DONE, look("kept", &record, &left_ms));
    free(record.bytes);
    clock_test_shift_ms(left_ms - 1000);
    assert_int_equal(ENGINE_DONE, outcome_of("kept", false));
    clock_test_shift_ms(left_ms + 1);
    assert_int_equal(ENGINE_BUSY, look("kept", &record, &left_ms));
    second = run_once(&driver, "kept", "new", 3, 10000);
    assert_true(second > first);
    assert_int_equal(ENGINE_DONE, outcome_of("kept", false));
}

struct span_start { /* as in a record */
    char boot_id[40];
    int64_t boot_ms;
    uint64_t check;
};

/* A record whose time is as here is kept as if it had just been made, and that is noted. */
static void assert_begins_anew(const char *key, const char *file, const struct span_start *start)
{
    struct engine_record record;
    struct span_start noted;
    int64_t left_ms;
    int fd;

    run_once(&driver, key, "it", 2, 10000);
    overwrite(file, 8, start, sizeof *start);
    assert_int_equal(ENGINE_DONE, look(key, &record, &left_ms));
    free(record.bytes);
    assert_true(left_ms <= 10000 &&
                left_ms > 9000); /* some of it has passed since the note was made */
    fd = open(path_of(file), O_RDONLY);
    assert_int_equal(sizeof noted, pread(fd, &noted, sizeof noted, 8));
    close(fd);
    assert_true(noted.check == hash_bytes(&noted, 48));
    assert_true(noted.boot_ms + 10000 > clock_boot_ms());
    clock_test_shift_ms(9000);
    assert_int_equal(ENGINE_DONE, outcome_of(key, false));
    clock_test_shift_ms(20000);
    assert_int_equal(ENGINE_HELD, outcome_of(key, false));
    clock_test_shift_ms(0);
}

/* As after a reboot, or when the bytes of the time were torn by a crash. */
static void under_another_boot_it_is_kept_for_longer(void **state)
{
    struct span_start start = {"11111111-2222-3333-4444-555555555555", 1, 0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    (void)state;
    start.check = hash_bytes(&start, 48);
    assert_begins_anew("reboot", "reboot~record", &start);
    assert_non_null(file);
    assert_int_equal(1, fread(start.boot_id, 36, 1, file));
    fclose(file);
    assert_begins_anew("torn", "torn~record", &start);
    start.boot_ms = clock_boot_ms() + 3600000; /* which cannot be */
    start.check = hash_bytes(&start, 48);
    assert_begins_anew("future", "future~record", &start);
    start = (struct span_start){""};
    assert_begins_anew("lost", "lost~record", &start);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, folder_start, folder_stop)

/* An argument chooses tests by their names: '*died*'. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(many_callers_get_one_result),
        TEST(callers_who_race_run_it_once),
        TEST(results_come_back_byte_for_byte),
        TEST(a_result_that_cannot_be_is_refused),
        TEST(keys_may_have_any_name),
        TEST(a_lock_and_a_key_of_one_name_do_not_meet),
        TEST(released_is_free_again),
        TEST(a_killed_runner_is_replaced),
        TEST(a_death_is_told_to_those_who_ask),
        TEST(a_death_is_known_from_when_it_is_found),
        TEST(a_death_that_nobody_shall_know_of),
        TEST(only_an_heir_runs_what_somebody_died_over),
        TEST(two_who_look_at_a_death_both_see_it),
        TEST(a_job_that_has_the_descriptor_keeps_the_key),
        TEST(finished_twice_is_finished_once),
        TEST(who_was_replaced_finishes_too_late),
        TEST(reading_says_what_is_known),
        TEST(kept_for_as_long_as_was_said),
        TEST(under_another_boot_it_is_kept_for_longer),
    };

    signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
