/* test_sim_lives.c: random lives of a journal on a disk that loses its power in the middle of any write, again and again, also
 * while it recovers.
 *
 * Everything follows from the seed, which is named when something fails; HOLDFAST_TEST_SEED: that life alone. */
#include "life.h"

#define LIVES 2000
#define STEPS 40
#define WRITES_MAX 60 /* until the power fails */

static struct life life;

static enum life_step random_step(void)
{
    static const enum life_step often[] = {LIFE_APPEND, LIFE_APPEND, LIFE_APPEND, LIFE_REPLACE,
                                           LIFE_SPARE,  LIFE_TERM,   LIFE_REMOVE};

    return life_draw(&life.seed, 3) ? often[life_draw(&life.seed, sizeof often / sizeof *often)]
                                    : (enum life_step)life_draw(&life.seed, LIFE_STEPS);
}

static void live(uint64_t seed)
{
    bool running = false;

    life_begin(&life, seed);
    for (int step = 0; step < STEPS || !running; step++) {
        if (!running) {
            sim_disk_stop_at(life.disk, step < STEPS ? 1 + life_draw(&life.seed, WRITES_MAX) : 0);
            running = life_recover(&life);
        } else {
            running = life_step(&life, random_step()) &&
                      !sim_disk_stopped(life.disk); /* a mark that fails is not told of */
        }
        if (running)
            life_read_some(&life);
        else
            life_crash(&life);
    }
    sim_disk_stop_at(life.disk, 0);
    assert_true(life_step(&life, LIFE_APPEND));
    assert_true(life_step(&life, LIFE_STOP));
    assert_true(life_step(&life, LIFE_APPEND));
    life_crash(&life); /* between two writes */
    assert_true(life_recover(&life));
    life_end(&life);
}

static void test_random_lives(void **state)
{
    const char *one = getenv("HOLDFAST_TEST_SEED");
    uint64_t crashes = 0;

    (void)state;
    if (one) {
        live(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= life_count(LIVES); seed++) {
        live(seed);
        crashes += life.crashes;
    }
    print_message("%ju crashes\n", (uintmax_t)crashes);
    assert_true(crashes > 2 * LIVES);
}

/* The same seed, the same life, to the last byte. */
static void add_up(void *context, const char *name, const unsigned char *bytes, size_t size)
{
    uint64_t *sum = context;

    for (size_t i = 0; name[i]; i++)
        *sum = *sum * 31 + (unsigned char)name[i];
    for (size_t i = 0; i < size; i++)
        *sum = *sum * 31 + bytes[i];
}

static void test_a_seed_is_a_life(void **state)
{
    uint64_t sums[3] = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        life_begin(&life, i < 2 ? 7 : 8);
        assert_true(life_recover(&life));
        for (int step = 0; step < 30; step++)
            assert_true(life_step(&life, random_step()));
        sim_disk_stop_at(life.disk, 3);
        while (life_step(&life, LIFE_APPEND))
            ;
        life_crash(&life);
        sim_disk_each(life.disk, LIFE_PATH, add_up, &sums[i]);
        life_end(&life);
    }
    assert_true(sums[0] == sums[1] && sums[0] != sums[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lives),
        cmocka_unit_test(test_a_seed_is_a_life),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
