/* test_flip_store.c: a bit of a file store changes while nobody uses it. Each file, each byte: whoever opens it then, in the same boot or the
 * next, is refused in words, or nothing is wrong: no token comes again, and no key is told what is not so. */
#include "driver.h"
#include "kept.h"
#include "playground.h"
#include "recorder.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NEXT_BOOT "00000000-1111-2222-3333-444444444444"
#define DONE_KEY "done"
#define DIED_KEY "died"
#define FREE_KEY "free"
#define SHORT_STEP 1601 /* bits */
#define STATE_STEP 7    /* of the token file: no checksum keeps its first page */
#define RESULT "what came out of it"

static struct playground playground;
static struct kept kept;
static uint64_t top, done_token, died_token;
static uint64_t refused, harmless;
static char where[PATH_MAX + 64];

static int set_up(void **state)
{
    (void)state;
    playground_init(&playground, "flip");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kept_free(&kept);
    playground_free(&playground);
    return 0;
}

/* ---- a store ---------------------------------------------------------------------------------- */

static void open_store(struct driver *driver, const char *below)
{
    char url[PATH_MAX + 32];

    snprintf(url, sizeof url, "file:%s/store?allow=tmpfs", below);
    driver_open(driver, url);
}

static int try_lock(struct driver *driver, const char *name, int mode, uint64_t *ret_token)
{
    struct claimant claimant;
    int outcome;

    claimant_begin(&claimant, driver, name);
    claimant.claim.once = false;
    claimant.claim.death_ms = 0;
    claimant.claim.mode = mode;
    claimant.claim.permits = mode == HF_PERMIT ? 2 : 0;
    outcome = claimant_try(&claimant);
    *ret_token = claimant.claim.token;
    if (outcome == ENGINE_HELD)
        assert_int_equal(claimant_release(&claimant), HF_OK);
    claimant_end(&claimant);
    return outcome;
}

/* In a process of its own, which ends without finishing. */
static uint64_t die_over(const char *key)
{
    uint64_t token = 0;
    int ends[2], status;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct driver driver;
        struct claimant claimant;

        open_store(&driver, playground.disk);
        claimant_begin(&claimant, &driver, key);
        if (claimant_try(&claimant) != ENGINE_HELD ||
            write(ends[1], &claimant.claim.token, sizeof token) != sizeof token)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &token, sizeof token), sizeof token);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ends[0]);
    close(ends[1]);
    return token;
}

static void make_store(void)
{
    struct driver driver;
    uint64_t token;

    open_store(&driver, playground.disk);
    done_token = run_once(&driver, DONE_KEY, RESULT, sizeof RESULT, KEEP_MS);
    died_token = die_over(DIED_KEY);
    assert_int_equal(ask_once(&driver, DIED_KEY, true, &token), ENGINE_DIED);
    assert_int_equal(ask_once(&driver, FREE_KEY, false, &token), ENGINE_HELD);
    assert_int_equal(try_lock(&driver, "lock", HF_PERMIT, &token), ENGINE_HELD);
    assert_int_equal(try_lock(&driver, "other", HF_EXCLUSIVE, &token), ENGINE_HELD);
    for (int i = 0; i < 300; i++) /* a lower bit of the counter must not be able to hide */
        assert_int_equal(try_lock(&driver, "other", HF_SHARED, &top), ENGINE_HELD);
    driver_close(&driver);
    kept_take(&kept, playground.disk);
}

/* ---- judging ---------------------------------------------------------------------------------- */

static void count(struct driver *driver, int outcome)
{
    if (outcome < 0 && !driver->err.text[0])
        fail_msg("%s: refused with %d, and no word", where, outcome);
    refused += outcome < 0;
    harmless += outcome >= 0;
}

static void judge_token(uint64_t token, uint64_t *last)
{
    if (token <= *last)
        fail_msg("%s: token %ju after %ju", where, (uintmax_t)token, (uintmax_t)*last);
    *last = token;
}

static void judge_lock(struct driver *driver, const char *name, int mode, uint64_t *last)
{
    uint64_t token;
    int outcome = try_lock(driver, name, mode, &token);

    count(driver, outcome);
    if (outcome == ENGINE_HELD)
        judge_token(token, last);
    else if (outcome >= 0)
        fail_msg("%s: nobody holds '%s', and it is not to be had", where, name);
}

/* right: what is to be told of it. */
static void judge_key(struct driver *driver, const char *key, int right, uint64_t right_token,
                      uint64_t *last)
{
    struct claimant asker;
    int outcome;

    claimant_begin(&asker, driver, key);
    asker.claim.no_heir = true;
    outcome = claimant_try(&asker);
    count(driver, outcome);
    if (outcome >= 0 && outcome != right)
        fail_msg("%s: key '%s': %d", where, key, outcome);
    if (outcome == ENGINE_HELD) {
        judge_token(asker.claim.token, last);
        assert_int_equal(claimant_release(&asker), HF_OK);
    } else if (outcome >= 0 && asker.claim.record.token != right_token) {
        fail_msg("%s: key '%s' has token %ju", where, key, (uintmax_t)asker.claim.record.token);
    }
    if (outcome == ENGINE_DONE)
        assert_done(&asker, right_token, RESULT, sizeof RESULT);
    claimant_end(&asker);
}

static void judge(void)
{
    struct driver driver;
    uint64_t last = top;

    open_store(&driver, playground.image);
    judge_lock(&driver, "lock", HF_EXCLUSIVE, &last);
    judge_lock(&driver, "lock", HF_PERMIT, &last);
    judge_lock(&driver, "other", HF_SHARED, &last);
    judge_lock(&driver, "new", HF_EXCLUSIVE, &last);
    judge_key(&driver, DONE_KEY, ENGINE_DONE, done_token, &last);
    judge_key(&driver, DIED_KEY, ENGINE_DIED, died_token, &last);
    judge_key(&driver, FREE_KEY, ENGINE_HELD, 0, &last);
    driver_close(&driver);
}

static void flip_all(const char *boot)
{
    uint64_t flips = 0;

    refused = harmless = 0;
    recorder_set_boot_id(boot);
    for (size_t i = 0; i < kept.count; i++) {
        const struct kept_file *file = &kept.files[i];
        unsigned step = strstr(file->path, "holdfast-state") ? STATE_STEP : SHORT_STEP;

        if (playground_in_full())
            step = 0;
        for (uint64_t bit = kept_next_bit(file, 0, step); bit != UINT64_MAX;
             bit = kept_next_bit(file, bit + 1, step)) {
            snprintf(where, sizeof where, "bit %ju of byte %ju of %s", (uintmax_t)(bit % 8),
                     (uintmax_t)(bit / 8), file->path);
            kept_put(&kept, playground.image, (int)i, bit);
            judge();
            playground_empty(playground.image);
            flips++;
        }
    }
    recorder_set_boot_id(NULL);
    print_message("%ju bits flipped: %ju answers refused, %ju harmless\n", (uintmax_t)flips,
                  (uintmax_t)refused, (uintmax_t)harmless);
    assert_true(refused > 0 && harmless > 1000);
}

static void test_in_this_boot(void **state)
{
    (void)state;
    recorder_skip_syncs(true);
    make_store();
    flip_all(NULL);
}

static void test_in_the_next_boot(void **state)
{
    (void)state;
    recorder_skip_syncs(true);
    make_store();
    flip_all(NEXT_BOOT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_this_boot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_in_the_next_boot, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
