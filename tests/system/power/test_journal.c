/* test_journal.c: a life of a journal, a term and snapshots (tests/unit/journal/life.h) on a real disk, recorded call by call; then all
 * that the disk may hold when the power fails behind any of these calls is opened. What was acknowledged must be there, and nothing
 * else; and the log goes on from there. */
#include "../../unit/journal/life.h"
#include "playground.h"
#include "recorder.h"

#define SEED 20261118
#define STEPS_MAX 60
#define LIFE_STEPS_MAX 20 /* of a random one */
#define LIVES 4
#define LIVES_IN_FULL 150
#define GO_ON_EVERY 8 /* images: so many are only opened for one that goes on */

/* What was known when the power failed with so many marks passed. */
struct known {
    struct model acked, tried[LIFE_CANDIDATES];
    size_t tried_count;
};

static struct playground playground;
static struct life life, found;
static struct known known[STEPS_MAX + 1];
static struct images all; /* the sums */
static uint64_t opened;

static int set_up(void **state)
{
    (void)state;
    playground_init(&playground, "journal");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    life_end(&found);
    life_end(&life);
    playground_free(&playground);
    return 0;
}

/* ---- recording -------------------------------------------------------------------------------- */

static void step(enum life_step step_kind, uint64_t *marks)
{
    struct known *now = &known[*marks];

    assert_true(*marks < STEPS_MAX);
    assert_true(life_step(&life, step_kind));
    memcpy(now->tried, life.maybe, sizeof now->tried);
    now->tried_count = life.tried;
    known[++*marks] = (struct known){.acked = life.acked};
    recorder_mark(*marks);
}

static void record(const enum life_step *steps, size_t count, uint64_t seed)
{
    static char path[PATH_MAX + 8];
    uint64_t marks = 0;

    memset(known, 0, sizeof known);
    snprintf(path, sizeof path, "%s/data", playground.disk);
    recorder_seed(seed);
    playground_record(&playground);
    life_begin_at(&life, seed, path);
    known[0].acked = life.acked;
    assert_true(life_recover(&life));
    for (size_t i = 0; i < count; i++)
        step(steps[i], &marks);
    life_close(&life);
    playground_recorded(&playground);
}

/* ---- judging ---------------------------------------------------------------------------------- */

static const enum life_step afterwards[] = {LIFE_TERM,   LIFE_APPEND, LIFE_SNAPSHOT,
                                            LIFE_REMOVE, LIFE_STOP,   LIFE_APPEND};

static void judge(void *context, const struct playground *ground, uint64_t marks, uint64_t mark)
{
    static char path[PATH_MAX + 8];
    const struct known *now = &known[marks];

    (void)context;
    assert_int_equal(mark, marks);
    snprintf(path, sizeof path, "%s/data", ground->image);
    life_begin_at(&found, SEED + marks, path);
    snprintf(found.where, sizeof found.where, "power fails behind mark %ju", (uintmax_t)marks);
    found.segment_bytes = life.segment_bytes;
    found.stamp = 1000000; /* no term of before */
    found.acked = now->acked;
    memcpy(found.maybe, now->tried, sizeof found.maybe);
    found.maybe_count = now->tried_count;
    assert_true(life_recover(&found));
    for (size_t i = 0; i < sizeof afterwards / sizeof *afterwards && opened % GO_ON_EVERY == 0; i++)
        assert_true(life_step(&found, afterwards[i]));
    opened++;
    assert_true(life_step(&found, LIFE_REOPEN));
    life_end(&found);
}

static void judge_all(struct images_options options)
{
    struct images images = {.options = options};

    playground_judge(&playground, &images, judge, NULL);
    all.judged += images.judged;
    all.built += images.built;
    all.cuts += images.cuts;
    images_free(&images);
}

static void print_all(void)
{
    print_message("%ju images judged of %ju built, at %ju places\n", (uintmax_t)all.judged,
                  (uintmax_t)all.built, (uintmax_t)all.cuts);
}

/* ---- the lives -------------------------------------------------------------------------------- */

/* All that a journal does. */
static const enum life_step script[] = {
    LIFE_SPARE,  LIFE_APPEND,   LIFE_APPEND, LIFE_TERM,   LIFE_APPEND,  LIFE_LARGE,  LIFE_APPEND,
    LIFE_APPEND, LIFE_SNAPSHOT, LIFE_APPEND, LIFE_APPEND, LIFE_REPLACE, LIFE_REMOVE, LIFE_APPEND,
    LIFE_TERM,   LIFE_REOPEN,   LIFE_APPEND, LIFE_RESET,  LIFE_APPEND,  LIFE_APPEND, LIFE_SNAPSHOT,
    LIFE_STOP,   LIFE_APPEND,   LIFE_SPARE,  LIFE_APPEND, LIFE_REPLACE, LIFE_REMOVE, LIFE_RESET,
    LIFE_REOPEN, LIFE_TERM,     LIFE_APPEND};
#define COUNT(steps) (sizeof(steps) / sizeof *(steps))

static enum life_step random_step(uint64_t *seed)
{
    static const enum life_step often[] = {LIFE_APPEND, LIFE_LARGE, LIFE_REPLACE, LIFE_TERM,
                                           LIFE_SPARE,  LIFE_TERM,  LIFE_REMOVE};

    return life_draw(seed, 3) ? often[life_draw(seed, COUNT(often))]
                              : (enum life_step)life_draw(seed, LIFE_STEPS);
}

static void test_every_call_is_cut(void **state)
{
    (void)state;
    record(script, COUNT(script), SEED);
    judge_all((struct images_options){
        .seed = SEED, .all_of = 6, .last = 16, .at_random = playground_in_full() ? 100 : 8});
    print_all();
    assert_true(all.judged > 400);
}

/* So quickly that many can be recorded: the kernel is asked the same, and does not sync. */
static void test_random_lives(void **state)
{
    const uint64_t lives = playground_in_full() ? LIVES_IN_FULL : LIVES;

    (void)state;
    memset(&all, 0, sizeof all);
    for (uint64_t seed = 1; seed <= lives; seed++) {
        enum life_step steps[LIFE_STEPS_MAX];
        uint64_t chance = seed;

        for (size_t i = 0; i < COUNT(steps); i++)
            steps[i] = random_step(&chance);
        recorder_skip_syncs(true);
        record(steps, COUNT(steps), SEED + seed);
        judge_all((struct images_options){
            .seed = seed, .all_of = 6, .last = 16, .at_random = playground_in_full() ? 12 : 3});
    }
    print_all();
    assert_true(all.judged > 150 * lives);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_call_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_lives, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
