/* test_sim_crashes.c: one life of a journal, with everything in it that it does. The power fails in the middle of each of its
 * writes, one after the other; then in the middle of each write of the recovery and of what comes after it. And a bit flips. */
#include "life.h"

#define SEED 20240607
#define CRASHES 4 /* of each cut: what of it is there is chance */

static const enum life_step script[] = {
    LIFE_SPARE,  LIFE_APPEND,   LIFE_APPEND, LIFE_TERM,   LIFE_APPEND,  LIFE_LARGE,  LIFE_APPEND,
    LIFE_APPEND, LIFE_SNAPSHOT, LIFE_APPEND, LIFE_APPEND, LIFE_REPLACE, LIFE_REMOVE, LIFE_APPEND,
    LIFE_TERM,   LIFE_REOPEN,   LIFE_APPEND, LIFE_RESET,  LIFE_APPEND,  LIFE_APPEND, LIFE_SNAPSHOT,
    LIFE_STOP,   LIFE_APPEND,   LIFE_SPARE,  LIFE_APPEND, LIFE_REPLACE, LIFE_REMOVE, LIFE_RESET,
    LIFE_REOPEN, LIFE_TERM,     LIFE_APPEND};
static const enum life_step afterwards[] = {LIFE_TERM,   LIFE_APPEND, LIFE_SNAPSHOT,
                                            LIFE_REMOVE, LIFE_STOP,   LIFE_APPEND};
#define COUNT(steps) (sizeof steps / sizeof *(steps))

static struct life life, crashed, again;

/* False: the power has failed. */
static bool run(struct life *one, const enum life_step *steps, size_t count)
{
    bool running = life_recover(one);

    for (size_t i = 0; i < count && running; i++)
        running = life_step(one, steps[i]) && !sim_disk_stopped(one->disk);
    return running;
}

/* The other, as it is at this moment; what is open is not open there. */
static void take_over(struct life *one, const struct life *other, uint64_t seed)
{
    *one = *other;
    one->disk = sim_disk_copy(other->disk, seed);
    one->journal = NULL;
    one->entered = false;
}

/* Recovers, and goes on; it does not lose power any more. */
static void must_go_on(struct life *one)
{
    if (!run(one, afterwards, COUNT(afterwards)))
        fail_msg("%s: the power is on", one->where);
    assert_true(life_step(one, LIFE_REOPEN));
}

static uint64_t crash_again(void)
{
    bool finished = false;
    uint64_t cut = 0;

    while (!finished) {
        take_over(&again, &crashed, ++cut);
        snprintf(again.where, sizeof again.where, "%.60s, again at %ju", crashed.where,
                 (uintmax_t)cut);
        sim_disk_stop_at(again.disk, cut);
        finished = run(&again, afterwards, COUNT(afterwards));
        life_crash(&again);
        must_go_on(&again);
        life_end(&again);
    }
    return cut;
}

static void test_every_write_is_cut(void **state)
{
    bool finished = false;
    uint64_t cut = 0, twice = 0;

    (void)state;
    while (!finished) {
        life_begin(&life, SEED);
        sim_disk_stop_at(life.disk, ++cut);
        finished = run(&life, script, COUNT(script));
        for (uint64_t chance = 0; chance < CRASHES; chance++) {
            take_over(&crashed, &life, cut * CRASHES + chance);
            snprintf(crashed.where, sizeof crashed.where, "cut %ju, chance %ju", (uintmax_t)cut,
                     (uintmax_t)chance);
            life_crash(&crashed);
            if (chance == 0)
                twice += crash_again();
            must_go_on(&crashed);
            life_end(&crashed);
        }
        life_end(&life);
    }
    print_message("%ju writes cut, %ju a second time\n", (uintmax_t)cut, (uintmax_t)twice);
    assert_true(cut > 100 && twice > 20 * cut);
}

/* ---- a bit flips ------------------------------------------------------------------------------ */

struct files {
    char names[32][64];
    size_t sizes[32];
    size_t count;
};

static void note_file(void *context, const char *name, const unsigned char *bytes, size_t size)
{
    struct files *files = context;

    (void)bytes;
    assert_true(files->count < 32);
    snprintf(files->names[files->count], 64, "%s", name);
    files->sizes[files->count++] = size;
}

/* Refused, or all is there: never something else. */
static void test_a_flipped_bit(void **state)
{
    static struct files files;
    uint64_t seed = SEED, refused = 0, harmless = 0;
    struct error_text err;

    (void)state;
    life_begin(&life, SEED);
    assert_true(run(&life, script, COUNT(script)));
    for (int i = 0; i < 8; i++)
        assert_true(life_step(&life, i == 4 ? LIFE_SNAPSHOT : LIFE_APPEND));
    assert_true(life_step(&life, LIFE_STOP));
    life_close(&life);
    sim_disk_each(life.disk, LIFE_PATH, note_file, &files);
    for (size_t i = 0; i < files.count; i++)
        for (uint64_t at = life_draw(&seed, 24); at < 8 * files.sizes[i];
             at += 1 + life_draw(&seed, 72)) {
            int result;

            assert_true(sim_disk_flip(life.disk, LIFE_PATH, files.names[i], at));
            result = life_open(&life, &err);
            life_close(&life);
            if (result != HF_EIO && (result != HF_OK || !life_has_seen(&life, &life.acked)))
                fail_msg("bit %ju of %s: %d", (uintmax_t)at, files.names[i], result);
            refused += result != HF_OK;
            harmless += result == HF_OK;
            assert_true(sim_disk_flip(life.disk, LIFE_PATH, files.names[i], at));
        }
    print_message("%ju refused, %ju harmless\n", (uintmax_t)refused, (uintmax_t)harmless);
    assert_true(refused > 500 && harmless > 500);
    assert_true(life_recover(&life));
    life_end(&life);
}

/* ---- a disk that fails, or is full ------------------------------------------------------------ */

/* Any operation fails once: what was acknowledged is there when it is opened again. */
static void test_any_operation_fails(void **state)
{
    struct error_text err;

    (void)state;
    for (uint64_t at = 1; at < 400; at++) {
        bool failed = false;

        life_begin(&life, SEED + at);
        snprintf(life.where, sizeof life.where, "operation %ju", (uintmax_t)at);
        life.may_fail = true;
        sim_disk_fail_at(life.disk, at);
        failed = life_open(&life, &err) != HF_OK || journal_begin(life.journal, &err) != HF_OK;
        for (size_t i = 0; i < COUNT(script) && !failed; i++)
            failed = !life_step(&life, script[i]);
        life.may_fail = false;
        sim_disk_fail_at(life.disk, 0);
        life_close(&life);
        if (at % 2)
            life_crash(&life);
        must_go_on(&life);
        life_end(&life);
    }
}

/* It becomes full after each block: nothing that was acknowledged is lost, and with room again it goes on. */
static void test_a_full_disk(void **state)
{
    struct error_text err;

    (void)state;
    for (uint64_t room = 0; room < 300000; room += 2048) {
        bool failed;

        life_begin(&life, SEED);
        snprintf(life.where, sizeof life.where, "room for %ju", (uintmax_t)room);
        life.may_fail = true;
        sim_disk_limit(life.disk, room);
        failed = life_open(&life, &err) != HF_OK || journal_begin(life.journal, &err) != HF_OK;
        for (size_t i = 0; i < COUNT(script) && !failed; i++)
            failed = !life_step(&life, script[i]);
        life.may_fail = false;
        sim_disk_limit(life.disk, UINT64_MAX);
        life_crash(&life);
        must_go_on(&life);
        life_end(&life);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_write_is_cut),
        cmocka_unit_test(test_a_flipped_bit),
        cmocka_unit_test(test_any_operation_fails),
        cmocka_unit_test(test_a_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
