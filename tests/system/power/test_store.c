/* test_store.c: a file store on a real disk, recorded call by call, with what it stores into mapped memory: locks, floors, keys that are
 * claimed, finished and given back, processes that are killed in the middle of it. Then all that the disk may hold when the power fails
 * behind any of these calls is opened by the next boot: no token comes twice, what is known of a key is still known. */
#include "driver.h"
#include "playground.h"
#include "recorder.h"

#include "base/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SEED 20261118
#define KEYS 6
#define NAMES 3
#define MARKS_MAX 400
#define STEPS 40
#define LIVES 2
#define LIVES_IN_FULL 12
#define DEATHS_EVERY 5 /* steps */
#define ONE_FLOOR 1    /* a seed: the floor is raised again and again */
#define ONE_KEY 0      /* a seed: one key after the other is claimed and finished */
#define CALLS_OF_A_KEY 64
#define CALLS_OF_A_FLOOR 14
#define CALLS_MAX 14 /* that a child makes before it is killed */
#define NEXT_BOOT "00000000-1111-2222-3333-444444444444"

enum known_of { NOTHING, RUNS, DONE };

struct key {
    enum known_of known;
    uint64_t token;
    unsigned result; /* its number */
};

/* What was acknowledged when so many marks had been passed, and what the step that followed was about to do. */
struct known {
    uint64_t top; /* the highest token that was given, or floor; 0: none */
    struct key keys[KEYS];
    int tried; /* this key may be as below instead; -1: none */
    struct key trial;
};

struct shared { /* with children that are killed */
    uint64_t marks;
    struct known known[MARKS_MAX + 1];
};

static struct playground playground;
static struct shared *shared;
static struct driver store;
static struct claimant runners[KEYS];
static bool runs_here[KEYS];
static struct images all;
static char first_id[65]; /* of the store that was recorded */

static int set_up(void **state)
{
    (void)state;
    playground_init(&playground, "store");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    playground_free(&playground);
    munmap(shared, sizeof *shared);
    return 0;
}

static uint64_t draw(uint64_t *seed, uint64_t limit)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % limit;
}

static const char *name_of(const char *kind, uint64_t i)
{
    static char name[64];

    snprintf(name, sizeof name, "%s/%ju", kind, (uintmax_t)i);
    return name;
}

/* Bytes of a result, which follow from its number. */
static size_t result_of(unsigned number, unsigned char bytes[8192])
{
    size_t size = number % 3 == 0 ? number % 7 : number * 977 % 5000;

    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(number * 31 + i * 7 + i / 256);
    return size;
}

/* ---- what it does, and what is acknowledged --------------------------------------------------- */

static struct known *now(void)
{
    return &shared->known[shared->marks];
}

static void try_key(int key, struct key trial)
{
    now()->tried = key;
    now()->trial = trial;
}

static void acknowledge(struct known next)
{
    assert_true(shared->marks < MARKS_MAX);
    next.tried = -1;
    shared->known[shared->marks + 1] = next;
    shared->marks++;
    recorder_mark(shared->marks);
}

static void acknowledge_key(int key, struct key state)
{
    struct known next = *now();

    next.keys[key] = state;
    if (state.token > next.top)
        next.top = state.token;
    acknowledge(next);
}

static void acknowledge_token(uint64_t token)
{
    struct known next = *now();

    assert_true(token > next.top);
    next.top = token;
    acknowledge(next);
}

static void lock_and_release(uint64_t *seed)
{
    static const int modes[] = {HF_EXCLUSIVE, HF_SHARED, HF_PERMIT};
    struct claimant claimant;

    claimant_begin(&claimant, &store, name_of("lock", draw(seed, NAMES)));
    claimant.claim.once = false;
    claimant.claim.death_ms = 0;
    claimant.claim.mode = modes[draw(seed, 3)];
    claimant.claim.permits = claimant.claim.mode == HF_PERMIT ? 3 : 0;
    assert_int_equal(claimant_try(&claimant), ENGINE_HELD);
    acknowledge_token(claimant.claim.token);
    if (draw(seed, 4) == 0) {
        uint32_t broken = 0;

        assert_int_equal(
            store.engine->break_name(store.store, claimant.claim.name, 0, &broken, &store.err),
            HF_OK);
        assert_int_equal(broken, 1);
    }
    claimant_release(&claimant);
    claimant_end(&claimant);
}

static void raise_floor(uint64_t by)
{
    struct engine_floor floor = {.at = 0};
    uint64_t to = now()->top + by;

    assert_int_equal(
        store.engine->floor(store.store, to, clock_boot_ms() + PATIENCE_MS, &floor, &store.err),
        HF_OK);
    acknowledge_token(to);
}

static void claim(int key)
{
    struct claimant *runner = &runners[key];
    static char names[KEYS][64];

    snprintf(names[key], sizeof names[key], "%s", name_of("key", (uint64_t)key));
    try_key(key, (struct key){RUNS, 0, 0});
    claimant_begin(runner, &store, names[key]);
    assert_int_equal(claimant_try(runner), ENGINE_HELD);
    runs_here[key] = true;
    acknowledge_key(key, (struct key){RUNS, runner->claim.token, 0});
}

static void finish(int key)
{
    unsigned char bytes[8192];
    struct key done = {DONE, runners[key].claim.token, (unsigned)shared->marks + 1};
    size_t size = result_of(done.result, bytes);

    try_key(key, done);
    assert_int_equal(claimant_finish(&runners[key], bytes, size, KEEP_MS), HF_OK);
    acknowledge_key(key, done);
    claimant_end(&runners[key]);
    runs_here[key] = false;
}

static void give_back(int key)
{
    try_key(key, (struct key){NOTHING, 0, 0});
    assert_int_equal(claimant_release(&runners[key]), HF_OK);
    acknowledge_key(key, (struct key){NOTHING, 0, 0});
    claimant_end(&runners[key]);
    runs_here[key] = false;
}

static void take_step(uint64_t *seed)
{
    int key = (int)draw(seed, KEYS);

    switch (draw(seed, 8)) {
    case 0:
    case 1:
        lock_and_release(seed);
        break;
    case 2:
        raise_floor(1 + draw(seed, 50000));
        break;
    default:
        if (runs_here[key] && draw(seed, 3) == 0)
            give_back(key);
        else if (runs_here[key])
            finish(key);
        else if (now()->keys[key].known != DONE)
            claim(key);
        else
            lock_and_release(seed);
    }
}

/* ---- asking ----------------------------------------------------------------------------------- */

/* What an answer says; fails the test if it is none of the results. */
static struct key answer_of(struct claimant *asker, int outcome, unsigned result)
{
    unsigned char bytes[8192];
    size_t size = result_of(result, bytes);

    switch (outcome) {
    case ENGINE_HELD:
        assert_int_equal(claimant_release(asker), HF_OK);
        return (struct key){NOTHING, 0, 0};
    case ENGINE_DIED:
        return (struct key){RUNS, asker->claim.record.token, 0};
    case ENGINE_DONE:
        if (asker->claim.record.size != size ||
            (size > 0 && memcmp(asker->claim.record.bytes, bytes, size) != 0))
            fail_msg("key %s has a result that is not number %u", asker->claim.name, result);
        return (struct key){DONE, asker->claim.record.token, result};
    default:
        fail_msg("key %s: %d, %s", asker->claim.name, outcome, asker->driver->err.text);
        return (struct key){NOTHING, 0, 0};
    }
}

/* result: the number of the one that it may have. *ret_token: one that was drawn for it; 0: none was. */
static struct key ask(struct driver *driver, int key, unsigned result, uint64_t *ret_token)
{
    struct claimant asker;
    struct key found;
    int outcome;

    claimant_begin(&asker, driver, name_of("key", (uint64_t)key));
    asker.claim.no_heir = true;
    outcome = claimant_try(&asker);
    *ret_token = outcome == ENGINE_HELD ? asker.claim.token : 0;
    found = answer_of(&asker, outcome, result);
    claimant_end(&asker);
    return found;
}

static void open_store(void)
{
    char url[PATH_MAX + 16];

    snprintf(url, sizeof url, "file:%s/store", playground.disk);
    driver_open(&store, url);
}

/* ---- processes that are killed ---------------------------------------------------------------- */

static void live_and_die(uint64_t seed, uint64_t calls)
{
    recorder_seed(seed + 7); /* what its parent draws afterwards is something else */
    memset(runs_here, 0, sizeof runs_here);
    open_store();
    recorder_die_after(calls);
    for (int key = 0; key < KEYS && seed == ONE_KEY; key++) {
        claim(key);
        finish(key);
    }
    while (seed == ONE_FLOOR)
        raise_floor(40000);
    for (;;)
        take_step(&seed);
}

static bool runs_any(void)
{
    for (int key = 0; key < KEYS; key++)
        if (runs_here[key])
            return true;
    return false;
}

/* What it was about to do to a key may have been done: whoever asks is told, and what he was told is true from then on. */
static void look_after(int key, struct key trial)
{
    struct known next = *now();
    uint64_t token;

    try_key(key, trial);
    next.keys[key] = ask(&store, key, trial.result, &token);
    if (token > next.top)
        next.top = token;
    acknowledge(next);
}

/* calls: how many it makes; 0: chance says. */
static void bury(uint64_t seed, uint64_t calls)
{
    pid_t child = fork();
    struct known *last;
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        live_and_die(seed, calls ? calls : 1 + draw(&seed, CALLS_MAX));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    last = now();
    if (last->tried >= 0)
        look_after(last->tried, last->trial);
}

/* ---- recording -------------------------------------------------------------------------------- */

static void begin(void)
{
    memset(shared, 0, sizeof *shared);
    now()->tried = -1;
    playground_record(&playground);
    open_store();
}

static void end(void)
{
    assert_int_equal(
        store.engine->id(store.store, first_id, clock_boot_ms() + PATIENCE_MS, &store.err), HF_OK);
    driver_close(&store);
    playground_recorded(&playground);
}

static void record(uint64_t seed)
{
    begin();
    for (int step = 0; step < STEPS; step++) {
        take_step(&seed);
        if (step % DEATHS_EVERY == DEATHS_EVERY - 1 && !runs_any())
            bury(seed + (uint64_t)step, 0);
    }
    for (int key = 0; key < KEYS; key++)
        if (runs_here[key])
            finish(key);
    end();
}

/* ---- judging ---------------------------------------------------------------------------------- */

static bool is_same(const struct key *found, const struct key *key)
{
    return found->known == key->known &&
           (found->known == NOTHING || key->token == 0 || found->token == key->token);
}

static void judge_key(struct driver *driver, const struct known *known, int key, uint64_t *last)
{
    const struct key *right = &known->keys[key],
                     *trial = key == known->tried ? &known->trial : right;
    uint64_t token;
    struct key found =
        ask(driver, key, right->known == DONE ? right->result : trial->result, &token);

    if (!is_same(&found, right) && !is_same(&found, trial))
        fail_msg("key %d: %d of token %ju, and not %d of %ju, or %d of %ju", key, (int)found.known,
                 (uintmax_t)found.token, (int)right->known, (uintmax_t)right->token,
                 (int)trial->known, (uintmax_t)trial->token);
    if (token && token <= *last)
        fail_msg("token %ju after %ju", (uintmax_t)token, (uintmax_t)*last);
    if (token)
        *last = token;
}

static void judge_lock(struct driver *driver, uint64_t i, uint64_t *last)
{
    struct claimant claimant;

    claimant_begin(&claimant, driver, name_of("lock", i));
    claimant.claim.once = false;
    claimant.claim.death_ms = 0;
    if (claimant_try(&claimant) != ENGINE_HELD)
        fail_msg("lock %ju is not to be had: %s", (uintmax_t)i, driver->err.text);
    if (claimant.claim.token <= *last)
        fail_msg("token %ju after %ju", (uintmax_t)claimant.claim.token, (uintmax_t)*last);
    *last = claimant.claim.token;
    claimant_release(&claimant);
    claimant_end(&claimant);
}

static void judge(void *context, const struct playground *ground, uint64_t marks, uint64_t mark)
{
    const struct known *known = &shared->known[marks];
    char url[PATH_MAX + 32], id[65];
    struct driver driver;
    uint64_t last = known->top;

    (void)context;
    assert_int_equal(mark, marks);
    snprintf(url, sizeof url, "file:%s/store?allow=tmpfs", ground->image);
    driver_open(&driver, url);
    for (uint64_t i = 0; i < NAMES; i++)
        judge_lock(&driver, i, &last);
    for (int key = 0; key < KEYS; key++)
        judge_key(&driver, known, key, &last);
    assert_int_equal(
        driver.engine->id(driver.store, id, clock_boot_ms() + PATIENCE_MS, &driver.err), HF_OK);
    if (known->top > 0) /* a new one would begin at the clock, and hide that the old one is lost */
        assert_string_equal(id, first_id);
    driver_close(&driver);
}

static void judge_all(struct images_options options)
{
    struct images images = {.options = options};

    recorder_set_boot_id(NEXT_BOOT);
    playground_judge(&playground, &images, judge, NULL);
    recorder_set_boot_id(NULL);
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

static void test_lives(void **state)
{
    const bool in_full = playground_in_full();
    const uint64_t lives = in_full ? LIVES_IN_FULL : LIVES;

    (void)state;
    memset(&all, 0, sizeof all);
    for (uint64_t seed = 1; seed <= lives; seed++) {
        recorder_seed(SEED + seed);
        recorder_skip_syncs(seed > 1); /* the kernel is asked the same */
        record(seed);
        judge_all((struct images_options){.seed = SEED + seed,
                                          .all_of = in_full ? 5 : 3,
                                          .last = in_full ? 6 : 2,
                                          .at_random = in_full ? 5 : 2});
    }
    print_all();
    assert_true(all.judged > 300 * lives);
}

static void judge_deaths(uint64_t seed, uint64_t calls_max, uint64_t step)
{
    const bool in_full = playground_in_full();
    uint64_t chance = SEED;

    for (uint64_t calls = 1; calls <= calls_max; calls += in_full ? 1 : step) {
        recorder_seed(SEED + calls);
        recorder_skip_syncs(true);
        begin();
        lock_and_release(&chance);
        bury(seed, calls);
        raise_floor(30000);
        end();
        judge_all((struct images_options){.seed = SEED + calls,
                                          .all_of = 3,
                                          .last = in_full ? 3 : 1,
                                          .at_random = in_full ? 9 : 1});
    }
}

/* Who is killed behind any of its calls, while it runs a key and finishes it, or raises the floor; who comes next is told what became
 * of that, and then the power fails. */
static void test_every_death(void **state)
{
    (void)state;
    memset(&all, 0, sizeof all);
    judge_deaths(ONE_KEY, CALLS_OF_A_KEY, 3);
    judge_deaths(ONE_FLOOR, CALLS_OF_A_FLOOR, 1);
    print_all();
    assert_true(all.judged > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_death, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
