/* test_node.c: the data directory of a node that is alone, with all that is in it: whose it is, term, log, mark, snapshots. It is recorded
 * call by call while it gives tokens, writes snapshots, is stopped and starts again; then the power fails behind any of these calls. And a
 * bit changes in the directory of one that was stopped. It starts, and knows all that was acknowledged, or it is refused in words; a power
 * cut alone is no reason for that. */
#include "../../unit/node/lone.h"
#include "inside.h"
#include "kept.h"
#include "node/identity.h"
#include "playground.h"
#include "recorder.h"

#include <sys/stat.h>

#define SEED 20261118
#define STEPS_MAX 64
#define HOLDS_AT_ONCE 9
#define SEGMENT ((size_t)6 * LONE_BLOCK)
#define SNAPSHOT_BYTES 6000
#define HOLDS_OF_SERVER 12
#define SHORT_STEP 211 /* bits */

struct known { /* acknowledged */
    uint64_t holds, token, term;
};

static struct playground playground;
static struct lone lone;
static struct known known[STEPS_MAX + 1];
static uint64_t marks;
static struct kept kept;
static char where[PATH_MAX + 64];

static int set_up(void **state)
{
    (void)state;
    playground_init(&playground, "node");
    lone_init(&lone);
    memset(known, 0, sizeof known);
    marks = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kept_free(&kept);
    lone_free(&lone);
    playground_free(&playground);
    return 0;
}

/* ---- a node ----------------------------------------------------------------------------------- */

static void prepare(const char *below, uint64_t incarnation)
{
    lone.role = 0;
    lone.answers = 0;
    lone.stopped[0] = '\0';
    lone.options = (struct replica_options){
        .id = 1, .incarnation = incarnation, .seed = 3, .snapshot_bytes = SNAPSHOT_BYTES};
    lone.segment_bytes = SEGMENT;
    snprintf(lone.path, sizeof lone.path, "%s/data", below);
}

/* As node_open does it. */
static int start(struct error_text *err)
{
    struct identity_wanted wanted = {.id = 1, .incarnation = lone.options.incarnation};
    struct replica_config there;
    struct identity identity;
    uint64_t incarnation;
    int result = lone_load(&lone, err);

    if (result != HF_OK)
        return result;
    result = identity_read(&lone.recovery.directory, &wanted, &incarnation, err);
    replica_members_found(lone.replica, &there);
    if (result == HF_OK)
        result = identity_settle(&lone.recovery.directory, &wanted, &there, &identity, err);
    if (result == HF_OK && incarnation != lone.options.incarnation)
        fail_msg("%s: another life than it had: %ju", where, (uintmax_t)incarnation);
    if (result != HF_OK) {
        lone_crash(&lone);
        return result;
    }
    result = lone_begin(&lone, err);
    for (int i = 0; i < 100 && result == HF_OK && lone.role != REPLICA_LEADING; i++) {
        lone.now_us += 100000;
        lone_settle(&lone);
    }
    if (result == HF_OK)
        assert_int_equal(lone.role, REPLICA_LEADING);
    return result;
}

static void must_start(void)
{
    struct error_text err = {""};

    if (start(&err) != HF_OK)
        fail_msg("%s: refused: %s", where, err.text);
}

static void acknowledge(void)
{
    assert_true(marks < STEPS_MAX);
    known[++marks] = (struct known){
        .holds = lone_counts(&lone).holds, .token = lone.token, .term = lone.recovery.term.number};
    recorder_mark(marks);
}

static void hold(unsigned *number, unsigned count)
{
    lone_hold_many(&lone, *number, count);
    *number += count;
    acknowledge();
}

/* Its log is there: the file 'node' says so from then on. */
static void note_log(void)
{
    struct error_text err = {""};

    if (identity_has_log(&lone.recovery.directory, &err) != HF_OK)
        fail_msg("%s", err.text);
}

static void live(const char *below)
{
    unsigned number = 0;

    prepare(below, 7);
    must_start();
    hold(&number, 1);
    note_log();
    for (int i = 0; i < 10; i++)
        hold(&number, i % 3 == 0 ? HOLDS_AT_ONCE : 1);
    lone_close(&lone);
    must_start();
    for (int i = 0; i < 10; i++)
        hold(&number, i % 4 == 0 ? HOLDS_AT_ONCE : 1);
    lone_crash(&lone); /* the process is killed */
    must_start();
    hold(&number, 1);
    hold(&number, HOLDS_AT_ONCE);
    lone_close(&lone);
}

/* It has started: what does it know? */
static void judge_started(const struct known *right, bool exactly)
{
    uint64_t holds = lone_counts(&lone).holds;

    if (holds < right->holds || (exactly && holds != right->holds))
        fail_msg("%s: %ju holds, and not %ju", where, (uintmax_t)holds, (uintmax_t)right->holds);
    if (lone.recovery.term.number < right->term)
        fail_msg("%s: term %ju after %ju", where, (uintmax_t)lone.recovery.term.number,
                 (uintmax_t)right->term);
    lone_hold(&lone, 900000);
    if (lone.token <= right->token)
        fail_msg("%s: token %ju after %ju", where, (uintmax_t)lone.token, (uintmax_t)right->token);
}

/* ---- the power fails -------------------------------------------------------------------------- */

static void judge(void *context, const struct playground *ground, uint64_t passed, uint64_t mark)
{
    (void)context;
    assert_int_equal(passed, mark);
    snprintf(where, sizeof where, "power fails behind mark %ju", (uintmax_t)mark);
    prepare(ground->image, 7);
    must_start();
    judge_started(&known[mark], false);
    lone_crash(&lone);
    must_start();
    judge_started(&known[mark], false);
    lone_close(&lone);
}

static void test_every_call_is_cut(void **state)
{
    const bool in_full = playground_in_full();
    struct images images = {.options = {.seed = SEED,
                                        .all_of = in_full ? 7 : 4,
                                        .last = in_full ? 16 : 3,
                                        .at_random = in_full ? 60 : 1}};

    (void)state;
    recorder_seed(SEED);
    playground_record(&playground);
    live(playground.disk);
    playground_recorded(&playground);
    playground_judge(&playground, &images, judge, NULL);
    print_message("%ju images judged of %ju built, at %ju places\n", (uintmax_t)images.judged,
                  (uintmax_t)images.built, (uintmax_t)images.cuts);
    assert_true(images.judged > 300);
    images_free(&images);
}

/* ---- a real server ---------------------------------------------------------------------------- */

static struct holdfastd server;

static int stop_server(void **state)
{
    unsetenv("LD_PRELOAD");
    holdfastd_stop(&server);
    return tear_down(state);
}

/* The recorder is in the server from now on. */
static void start_server(const char *recorder)
{
    char data[SERVER_DIR_MAX + 16];

    assert_int_equal(holdfastd_prepare(&server, NULL), 0);
    server.port = free_port();
    assert_true(server.port > 0);
    snprintf(data, sizeof data, "%s/data", server.dir);
    assert_int_equal(mkdir(data, 0700), 0);
    assert_non_null(realpath(data, playground.disk));
    setenv("HF_RECORD", playground.trace, 1);
    setenv("HF_RECORD_BELOW", playground.disk, 1);
    setenv("LD_PRELOAD", recorder, 1);
    assert_int_equal(holdfastd_restart(&server), 0);
}

static void hold_on_server(unsigned number)
{
    char name[32], lease[40], reply[256];

    snprintf(name, sizeof name, "name-%u", number);
    snprintf(lease, sizeof lease, "%032u", number);
    assert_true(
        HOLDFASTD_DO(&server, reply, sizeof reply, "ACQUIRE", name, lease, "TTL", "3600000") >= 0);
    known[++marks] = (struct known){.holds = number, .token = strtoull(reply, NULL, 10)};
    assert_true(known[marks].token > known[marks - 1].token);
    playground_mark(&playground, marks);
}

static uint64_t incarnation_of_server(void)
{
    const struct identity_wanted wanted = {.id = 1, .incarnation = 1};
    struct error_text err = {""};
    struct directory directory;
    uint64_t incarnation = 0;

    assert_int_equal(directory_open(playground.disk, &directory, &err), HF_OK);
    assert_int_equal(identity_read(&directory, &wanted, &incarnation, &err), HF_OK);
    directory_close(&directory);
    return incarnation;
}

static void judge_server(void *context, const struct playground *ground, uint64_t passed,
                         uint64_t mark)
{
    const uint64_t *incarnation = context;

    assert_true(mark == passed);
    snprintf(where, sizeof where, "power of a server fails behind mark %ju", (uintmax_t)mark);
    prepare(ground->image, *incarnation);
    lone.segment_bytes = 0;
    lone.options.snapshot_bytes = 0;
    snprintf(lone.path, sizeof lone.path, "%s", ground->image);
    must_start();
    judge_started(&known[mark], false);
    lone_crash(&lone);
}

static void test_a_real_server(void **state)
{
    const char *recorder = getenv("HF_RECORDER"); /* a module */
    const bool in_full = playground_in_full();
    struct images images = {.options = {.seed = SEED,
                                        .all_of = in_full ? 6 : 1,
                                        .last = in_full ? 6 : 0,
                                        .at_random = in_full ? 20 : 0}};
    uint64_t incarnation;

    (void)state;
    if (!recorder || !getenv("HF_HOLDFASTD")) {
        skip();
        return; /* for the analyzer, which does not know that nobody gets here */
    }
    start_server(recorder);
    for (unsigned number = 1; number <= HOLDS_OF_SERVER; number++) {
        hold_on_server(number);
        if (number == HOLDS_OF_SERVER / 3)
            holdfastd_terminate(&server);
        if (number == HOLDS_OF_SERVER * 2 / 3)
            holdfastd_kill9(&server);
        if (!server.pid)
            assert_int_equal(holdfastd_restart(&server), 0);
    }
    holdfastd_kill9(&server);
    unsetenv("LD_PRELOAD");
    playground_recorded(&playground);
    incarnation = incarnation_of_server();
    playground_judge(&playground, &images, judge_server, &incarnation);
    print_message("%ju images judged of %ju built, at %ju places\n", (uintmax_t)images.judged,
                  (uintmax_t)images.built, (uintmax_t)images.cuts);
    assert_true(images.judged > 50);
    images_free(&images);
}

/* ---- a bit changes ---------------------------------------------------------------------------- */

static void test_every_bit(void **state)
{
    const unsigned step = playground_in_full() ? 0 : SHORT_STEP;
    uint64_t refused = 0, harmless = 0;

    (void)state;
    recorder_skip_syncs(true);
    live(playground.disk);
    kept_take(&kept, playground.disk);
    for (size_t i = 0; i < kept.count; i++)
        for (uint64_t bit = kept_next_bit(&kept.files[i], 0, step); bit != UINT64_MAX;
             bit = kept_next_bit(&kept.files[i], bit + 1, step)) {
            struct error_text err = {""};

            snprintf(where, sizeof where, "bit %ju of byte %ju of %s", (uintmax_t)(bit % 8),
                     (uintmax_t)(bit / 8), kept.files[i].path);
            kept_put(&kept, playground.image, (int)i, bit);
            prepare(playground.image, 7);
            if (start(&err) == HF_OK) {
                judge_started(&known[marks], true);
                lone_crash(&lone);
                harmless++;
            } else {
                assert_true(err.text[0] != '\0');
                refused++;
            }
            playground_empty(playground.image);
        }
    print_message("%ju bits flipped: %ju refused, %ju harmless\n", (uintmax_t)(refused + harmless),
                  (uintmax_t)refused, (uintmax_t)harmless);
    assert_true(refused > 20 && harmless > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_call_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_real_server, set_up, stop_server),
        cmocka_unit_test_setup_teardown(test_every_bit, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
