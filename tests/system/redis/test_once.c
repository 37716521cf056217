/* test_once.c: once-records on Redis, by the engine's own functions, over real servers and a relay that loses
 * answers: what is in the keys, TTLs that run out, crashes. HF_SOAK=1 crashes more often. */
#include "driver.h"
#include "servers.h"

#include "base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/once.h>

#define CALLERS 20
#define PROMPT_MS 2000 /* less than any look of a waiter that was not told */
#define SHORT_MS 200   /* a lease, or a time, that shall run out */
#define CRASHES 10
#define CRASHES_SOAK 200

static struct redis_server server;
static struct relay relay;
static struct driver driver, other; /* the first through the relay */
static char url[128];               /* straight to the server */

/* ---- helpers --------------------------------------------------------------------------------- */

static int start_with(const char *const *extra_args)
{
    char through[128];

    server = (struct redis_server){0};
    relay = (struct relay){0};
    if (redis_start(&server, extra_args) < 0 || relay_start(&relay, server.port) < 0)
        return -1;
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", server.port);
    snprintf(through, sizeof through, "redis://127.0.0.1:%d", relay.port);
    driver_open(&driver, through);
    driver_open(&other, url);
    return 0;
}

static int start(void **state)
{
    (void)state;
    return start_with(NULL);
}

static int start_durable(void **state)
{
    (void)state;
    return start_with(
        (const char *const[]){"--appendonly", "yes", "--appendfsync", "always", NULL});
}

static int stop(void **state)
{
    (void)state;
    driver_close(&driver);
    driver_close(&other);
    relay_stop(&relay);
    redis_stop(&server);
    return 0;
}

static long ask_number(const char *command, const char *key)
{
    char reply[128];

    assert_int_equal(0, REDIS_DO(&server, reply, sizeof reply, command, key));
    return strtol(reply, NULL, 10);
}

static void assert_keys(const char *wanted)
{
    char reply[512];

    assert_int_equal(0, REDIS_DO(&server, reply, sizeof reply, "KEYS", "*"));
    assert_string_equal(wanted, reply);
}

static int look(const char *key, struct engine_record *ret_record, int64_t *ret_left_ms)
{
    *ret_record = (struct engine_record){.age_ms = -1};
    *ret_left_ms = -1;
    return other.engine->once_read(other.store, key, ret_record, ret_left_ms,
                                   clock_after(clock_boot_ms(), PATIENCE_MS), &other.err);
}

static int outcome_of(const char *key, bool no_heir)
{
    uint64_t token;

    return ask_once(&other, key, no_heir, &token);
}

/* A claim whose lease runs out while nobody renews it. */
static void begin_short(struct claimant *claimant, const char *key, int64_t death_ms)
{
    claimant_begin(claimant, &driver, key);
    claimant->claim.ttl_ms = SHORT_MS;
    claimant->claim.death_ms = death_ms;
    assert_int_equal(ENGINE_HELD, claimant_try(claimant));
}

static void await_gone(const char *key)
{
    EVENTUALLY(ask_number("EXISTS", key) == 0);
}

/* ---- one run --------------------------------------------------------------------------------- */

static void many_callers_get_one_result(void **state)
{
    struct waiter waiters[CALLERS];
    struct claimant runner;
    int64_t finished_ms;

    (void)state;
    claimant_begin(&runner, &driver, "rebuild");
    assert_int_equal(ENGINE_HELD, claimant_try(&runner));
    assert_int_equal(ENGINE_HELD, claimant_try(&runner));
    for (int i = 0; i < CALLERS; i++)
        waiter_start(&waiters[i], i % 2 ? &driver : &other, "rebuild", false);
    EVENTUALLY(ask_number("ZCARD", "holdfast.wait:holdfast.once:holdfast:rebuild") == CALLERS);
    assert_int_equal(ENGINE_BUSY, outcome_of("rebuild", false));
    assert_int_equal(HF_OK, claimant_finish(&runner, "built", 5, KEEP_MS));
    finished_ms = test_now_ms();
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(ENGINE_DONE, waiter_outcome(&waiters[i]));
        assert_done(&waiters[i].claimant, runner.claim.token, "built", 5);
        claimant_end(&waiters[i].claimant);
    }
    assert_true(test_now_ms() - finished_ms < PROMPT_MS); /* told, all of them */
    claimant_end(&runner);
    assert_int_equal(0, ask_number("ZCARD", "holdfast.wait:holdfast.once:holdfast:rebuild"));
}

static void results_come_back_byte_for_byte(void **state)
{
    static const size_t sizes[] = {0, 1, 7, HF_ONCE_RESULT_MAX};
    static unsigned char bytes[HF_ONCE_RESULT_MAX];
    struct engine_record record;
    int64_t left_ms;
    char key[32];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    bytes[1] = ' ';
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct claimant claimant;
        uint64_t token;

        snprintf(key, sizeof key, "of %zu bytes", sizes[i]);
        token = run_once(&driver, key, bytes, sizes[i], KEEP_MS);
        claimant_begin(&claimant, &other, key);
        assert_int_equal(ENGINE_DONE, claimant_try(&claimant));
        assert_done(&claimant, token, bytes, sizes[i]);
        claimant_end(&claimant);
        assert_int_equal(ENGINE_DONE, look(key, &record, &left_ms));
        assert_int_equal(sizes[i], record.size);
        if (record.size > 0)
            assert_memory_equal(bytes, record.bytes, record.size);
        free(record.bytes);
        assert_true(left_ms > 0 && left_ms <= KEEP_MS);
    }
}

static void a_result_that_cannot_be_is_refused(void **state)
{
    static char large[HF_ONCE_RESULT_MAX + 1];
    struct claimant claimant;

    (void)state;
    claimant_begin(&claimant, &driver, "large");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(HF_EINVAL, claimant_finish(&claimant, large, sizeof large, KEEP_MS));
    assert_int_equal(HF_EINVAL, claimant_finish(&claimant, "", 0, 0));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "", 0, 1));
    claimant_end(&claimant);
}

static int count_entry(void *context, const hf_entry *entry)
{
    (void)entry;
    ++*(int *)context;
    return HF_OK;
}

static void a_lock_and_a_key_of_one_name_do_not_meet(void **state)
{
    int64_t soon_ms = clock_after(clock_boot_ms(), PATIENCE_MS);
    struct claimant lock, key;
    int entries = 0;
    struct engine_sink sink = {&entries, count_entry};

    (void)state;
    claimant_begin(&lock, &driver, "same");
    lock.claim.once = false;
    claimant_begin(&key, &driver, "same");
    assert_int_equal(ENGINE_HELD, claimant_try(&lock));
    assert_int_equal(ENGINE_HELD, claimant_try(&key));
    assert_true(key.claim.token > lock.claim.token); /* one counter for both */
    assert_int_equal(HF_OK, claimant_release(&lock));
    assert_int_equal(HF_OK, claimant_try(&lock));
    assert_true(lock.claim.token > key.claim.token);
    assert_int_equal(HF_OK, claimant_release(&lock));
    assert_int_equal(HF_OK, driver.engine->list(driver.store, NULL, true, &sink, soon_ms, NULL));
    assert_int_equal(0, entries);
    assert_int_equal(HF_OK, claimant_release(&key));
    claimant_end(&lock);
    claimant_end(&key);
    assert_keys("holdfast.token:holdfast:"); /* nothing else stays */
}

static void a_prefix_makes_a_store_of_its_own(void **state)
{
    char with_prefix[sizeof url + 16];
    struct driver prefixed;
    uint64_t token;

    (void)state;
    snprintf(with_prefix, sizeof with_prefix, "%s?prefix=h", url);
    driver_open(&prefixed, with_prefix);
    run_once(&other, "oldfast.x", "one", 3, KEEP_MS);
    assert_int_equal(ENGINE_HELD, ask_once(&prefixed, "oldfast.x", false, &token));
    run_once(&prefixed, "oldfast.x", "two", 3, KEEP_MS); /* what no lock may be called here */
    assert_int_equal(ENGINE_DONE, ask_once(&prefixed, "oldfast.x", false, &token));
    assert_int_equal(1, ask_number("EXISTS", "holdfast.record:holdfast.once:holdfast.x"));
    driver_close(&prefixed);
}

static void reading_says_what_is_known(void **state)
{
    struct engine_record record;
    struct claimant claimant;
    int64_t left_ms;

    (void)state;
    assert_int_equal(ENGINE_BUSY, look("read", &record, &left_ms));
    claimant_begin(&claimant, &driver, "read");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(ENGINE_HELD, look("read", &record, &left_ms));
    assert_int_equal(claimant.claim.token, record.token);
    assert_string_equal("somebody", record.owner);
    assert_true(record.age_ms >= 0 && record.age_ms < PATIENCE_MS);
    assert_true(left_ms > 0 && left_ms <= TTL_MS);
    free(record.owner);
    assert_int_equal(HF_OK, claimant_finish(&claimant, "it", 2, KEEP_MS));
    assert_int_equal(ENGINE_DONE, look("read", &record, &left_ms));
    assert_int_equal(claimant.claim.token, record.token);
    free(record.bytes);
    claimant_end(&claimant);
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
    EVENTUALLY(ask_number("ZCARD", "holdfast.wait:holdfast.once:holdfast:freed") == 1);
    assert_int_equal(HF_OK, claimant_release(&claimant));
    assert_int_equal(ENGINE_HELD, waiter_outcome(&waiter)); /* nobody has died */
    assert_true(waiter.claimant.claim.token > claimant.claim.token);
    assert_int_equal(HF_ELOST, claimant_release(&claimant));
    assert_int_equal(HF_ESTALE, claimant_finish(&claimant, "late", 4, KEEP_MS));
    assert_int_equal(HF_OK, claimant_release(&waiter.claimant));
    claimant_end(&claimant);
    claimant_end(&waiter.claimant);
    assert_keys("holdfast.token:holdfast:");
}

static void a_runner_whose_lease_ran_out_is_replaced(void **state)
{
    struct claimant first, reader;
    struct waiter waiter;

    (void)state;
    begin_short(&first, "heir", DEATH_MS);
    waiter_start(&waiter, &other, "heir", false);
    assert_int_equal(ENGINE_HELD, waiter_outcome(&waiter));
    assert_true(waiter.claimant.claim.token > first.claim.token);
    assert_int_equal(HF_ESTALE, claimant_finish(&first, "late", 4, KEEP_MS));
    assert_non_null(strstr(driver.err.text, "heir"));
    assert_int_equal(HF_ELOST, claimant_release(&first));
    assert_int_equal(ENGINE_BUSY, outcome_of("heir", true)); /* a death that was made good */
    assert_int_equal(HF_OK, claimant_finish(&waiter.claimant, "mine", 4, KEEP_MS));
    assert_int_equal(HF_ESTALE, claimant_finish(&first, "late", 4, KEEP_MS));
    claimant_begin(&reader, &other, "heir");
    assert_int_equal(ENGINE_DONE, claimant_try(&reader));
    assert_done(&reader, waiter.claimant.claim.token, "mine", 4);
    claimant_end(&reader);
    claimant_end(&waiter.claimant);
    claimant_end(&first);
}

/* Also when nobody came after it. */
static void whoever_is_too_late_stores_nothing(void **state)
{
    struct claimant first;
    uint64_t token;

    (void)state;
    begin_short(&first, "too late", 0);
    await_gone("holdfast.once:holdfast:too late");
    assert_int_equal(HF_ESTALE, claimant_finish(&first, "late", 4, KEEP_MS));
    assert_int_equal(ENGINE_HELD, outcome_of("too late", true)); /* and its death is not known */
    claimant_end(&first);
    begin_short(&first, "too late", 0);
    token = first.claim.token;
    await_gone("holdfast.once:holdfast:too late");
    assert_int_equal(ENGINE_HELD, claimant_try(&first)); /* the same lease, another grant */
    assert_true(first.claim.token > token);
    first.claim.token = token;
    assert_int_equal(HF_ESTALE, claimant_finish(&first, "late", 4, KEEP_MS));
    claimant_end(&first);
}

static void a_death_is_told_to_those_who_ask(void **state)
{
    struct engine_record record;
    struct claimant first;
    struct waiter waiter;
    uint64_t token;
    int64_t left_ms;

    (void)state;
    begin_short(&first, "died", 3000);
    waiter_start(&waiter, &other, "died", true);
    assert_int_equal(ENGINE_DIED, waiter_outcome(&waiter));
    assert_int_equal(first.claim.token, waiter.claimant.claim.record.token);
    claimant_end(&waiter.claimant);
    assert_int_equal(0, ask_number("ZCARD", "holdfast.wait:holdfast.once:holdfast:died"));
    assert_int_equal(ENGINE_DIED, ask_once(&other, "died", true, &token));
    assert_int_equal(first.claim.token, token);
    assert_int_equal(ENGINE_DIED, look("died", &record, &left_ms));
    assert_int_equal(first.claim.token, record.token);
    assert_true(left_ms > 0 && left_ms <= 3000);
    await_gone("holdfast.runner:holdfast.once:holdfast:died");
    assert_int_equal(ENGINE_BUSY, look("died", &record, &left_ms));
    assert_int_equal(ENGINE_HELD, outcome_of("died", true));
    claimant_end(&first);
}

static void only_an_heir_runs_what_somebody_died_over(void **state)
{
    struct claimant first, heir;
    struct waiter waiters[2];
    uint64_t token;

    (void)state;
    begin_short(&first, "again", DEATH_MS);
    waiter_start(&waiters[0], &other, "again", true);
    assert_int_equal(ENGINE_DIED, waiter_outcome(&waiters[0]));
    waiter_start(&waiters[1], &other, "again", false);
    assert_int_equal(ENGINE_HELD, waiter_outcome(&waiters[1]));
    token = waiters[1].claimant.claim.token;
    assert_true(token > first.claim.token);
    assert_int_equal(HF_OK, claimant_release(&waiters[1].claimant));
    assert_int_equal(ENGINE_HELD, outcome_of("again", true)); /* it was given up on purpose */
    claimant_end(&waiters[0].claimant);
    claimant_end(&waiters[1].claimant);
    claimant_end(&first);
    begin_short(&first, "again", DEATH_MS);
    await_gone("holdfast.once:holdfast:again");
    claimant_begin(&heir, &driver, "again");
    heir.claim.death_ms =
        0; /* nobody shall know of this one's death, nor of the other's before it */
    assert_int_equal(ENGINE_HELD, claimant_try(&heir));
    assert_int_equal(0, ask_number("EXISTS", "holdfast.runner:holdfast.once:holdfast:again"));
    claimant_end(&heir);
    claimant_end(&first);
}

/* A death is known for so long after the end of the lease, however often that was renewed. */
static void a_renewed_lease_puts_its_death_off(void **state)
{
    static const char mark[] = "holdfast.runner:holdfast.once:holdfast:renewed";
    struct engine_claim *claims[1];
    struct claimant claimant;
    int64_t left_ms = 0, soon_ms = clock_after(clock_boot_ms(), PATIENCE_MS);

    (void)state;
    claimant_begin(&claimant, &driver, "renewed");
    claimant.claim.ttl_ms = 20000;
    claimant.claim.death_ms = 5000;
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(0, REDIS_DO(&server, NULL, 0, "PEXPIRE", mark, "6000"));
    claims[0] = &claimant.claim;
    assert_int_equal(HF_OK,
                     driver.engine->renew(driver.store, claims, 1, &left_ms, soon_ms, &driver.err));
    assert_true(left_ms > 10000 && left_ms <= 20000);
    assert_true(ask_number("PTTL", mark) > 15000);
    assert_int_equal(0, REDIS_DO(&server, NULL, 0, "DEL", mark)); /* lost: it comes back */
    assert_int_equal(HF_OK,
                     driver.engine->renew(driver.store, claims, 1, &left_ms, soon_ms, &driver.err));
    assert_true(ask_number("PTTL", mark) > 15000);
    assert_int_equal(HF_OK, claimant_release(&claimant));
    assert_int_equal(HF_OK,
                     driver.engine->renew(driver.store, claims, 1, &left_ms, soon_ms, &driver.err));
    assert_true(left_ms < 0);
    claimant_end(&claimant);
    assert_keys("holdfast.token:holdfast:");
}

/* And a waiter may wait for longer than its own. */
static void a_place_is_renewed(void **state)
{
    static const char due[] = "holdfast.due:holdfast.once:holdfast:place";
    int64_t left_ms = 0, soon_ms = clock_after(clock_boot_ms(), PATIENCE_MS);
    struct engine_claim *claims[1];
    struct claimant runner, waiting;

    (void)state;
    claimant_begin(&runner, &driver, "place");
    assert_int_equal(ENGINE_HELD, claimant_try(&runner));
    claimant_begin(&waiting, &driver, "place");
    waiting.claim.will_wait = true;
    assert_int_equal(ENGINE_QUEUED, claimant_try(&waiting));
    claims[0] = &waiting.claim;
    assert_int_equal(0, REDIS_DO(&server, NULL, 0, "PEXPIRE", due, "1000"));
    assert_int_equal(HF_OK,
                     driver.engine->renew(driver.store, claims, 1, &left_ms, soon_ms, &driver.err));
    assert_int_equal(TTL_MS, left_ms);
    assert_true(ask_number("PTTL", due) > 1000);
    assert_int_equal(HF_OK,
                     driver.engine->abandon(driver.store, &waiting.claim, soon_ms, &driver.err));
    assert_int_equal(0, ask_number("EXISTS", due));
    assert_int_equal(HF_OK, claimant_release(&runner));
    claimant_end(&waiting);
    claimant_end(&runner);
}

/* ---- finishing, and answers that are lost ---------------------------------------------------- */

static void kept_for_as_long_as_was_said(void **state)
{
    uint64_t first = run_once(&driver, "kept", "old", 3, 1500), second;
    long left_ms = ask_number("PTTL", "holdfast.record:holdfast.once:holdfast:kept");

    (void)state;
    assert_true(left_ms > 0 && left_ms <= 1500);
    assert_int_equal(0, ask_number("EXISTS", "holdfast.runner:holdfast.once:holdfast:kept"));
    await_gone("holdfast.record:holdfast.once:holdfast:kept");
    assert_int_equal(ENGINE_HELD, outcome_of("kept", true)); /* nobody has died */
    second = run_once(&driver, "kept", "new", 3, KEEP_MS);
    assert_true(second > first);
    assert_int_equal(ENGINE_DONE, outcome_of("kept", false));
}

static void the_next_answer_is_lost(void)
{
    assert_int_equal(0, relay_say(&relay, "drop down 1"));
}

static void lost_answers_are_asked_for_again(void **state)
{
    struct claimant claimant, reader;
    char token[32];

    (void)state;
    claimant_begin(&claimant, &driver, "other"); /* the server knows the scripts */
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "", 0, KEEP_MS));
    claimant_end(&claimant);

    claimant_begin(&claimant, &driver, "asked");
    the_next_answer_is_lost();
    assert_int_equal(HF_EUNKNOWN, claimant_try(&claimant));
    assert_int_equal(0, REDIS_DO(&server, token, sizeof token, "GET", "holdfast.token:holdfast:"));
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(strtoull(token, NULL, 10), claimant.claim.token); /* the same grant */
    the_next_answer_is_lost();
    assert_int_equal(HF_EUNKNOWN, claimant_finish(&claimant, "first", 5, KEEP_MS));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "second", 6, KEEP_MS));
    assert_int_equal(HF_OK, claimant_finish(&claimant, "third", 5, KEEP_MS));
    claimant_begin(&reader, &other, "asked");
    assert_int_equal(ENGINE_DONE, claimant_try(&reader));
    assert_done(&reader, claimant.claim.token, "first", 5);
    claimant_end(&reader);
    claimant_end(&claimant);
}

/* Nobody has died over what was granted, never heard of, and then given up. */
static void a_grant_that_was_never_heard_of_is_no_death(void **state)
{
    int64_t soon_ms = clock_after(clock_boot_ms(), PATIENCE_MS);
    struct claimant claimant;

    (void)state;
    run_once(&driver, "other", "", 0, KEEP_MS);
    for (int ran_out = 0; ran_out < 2; ran_out++) {
        claimant_begin(&claimant, &driver, "unheard");
        claimant.claim.ttl_ms = ran_out ? SHORT_MS : TTL_MS;
        the_next_answer_is_lost();
        assert_int_equal(HF_EUNKNOWN, claimant_try(&claimant));
        if (ran_out) {
            await_gone("holdfast.once:holdfast:unheard");
            assert_int_equal(HF_ELOST, claimant_try(&claimant)); /* begin again with another */
        }
        assert_int_equal(ran_out ? ENGINE_DIED : ENGINE_BUSY, outcome_of("unheard", true));
        assert_int_equal(
            HF_OK, driver.engine->abandon(driver.store, &claimant.claim, soon_ms, &driver.err));
        assert_int_equal(HF_ELOST, claimant_try(&claimant)); /* it is over for good */
        assert_int_equal(ENGINE_HELD, outcome_of("unheard", true));
        claimant_end(&claimant);
    }
}

/* ---- trouble --------------------------------------------------------------------------------- */

static void a_full_server_stores_nothing_and_loses_nothing(void **state)
{
    static char large[30000];
    struct claimant claimant, reader;

    (void)state;
    claimant_begin(&claimant, &driver, "full");
    assert_int_equal(ENGINE_HELD, claimant_try(&claimant));
    assert_int_equal(0, REDIS_DO(&server, NULL, 0, "CONFIG", "SET", "maxmemory", "1"));
    assert_int_equal(HF_EREFUSED, claimant_finish(&claimant, large, sizeof large, KEEP_MS));
    assert_non_null(strstr(driver.err.text, "maxmemory"));
    assert_int_equal(0, REDIS_DO(&server, NULL, 0, "CONFIG", "SET", "maxmemory", "0"));
    assert_int_equal(ENGINE_BUSY, outcome_of("full", false)); /* it is still ours */
    assert_int_equal(HF_OK, claimant_finish(&claimant, large, sizeof large, KEEP_MS));
    claimant_begin(&reader, &other, "full");
    assert_int_equal(ENGINE_DONE, claimant_try(&reader));
    assert_done(&reader, claimant.claim.token, large, sizeof large);
    claimant_end(&reader);
    claimant_end(&claimant);
}

static void a_record_of_somebody_else_is_refused(void **state)
{
    static const char *const records[] = {"nonsense", "", "x y", "-1 y", "9007199254740992 y"};
    static const char key[] = "holdfast.record:holdfast.once:holdfast:strange";
    struct claimant claimant;

    (void)state;
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        assert_int_equal(0, REDIS_DO(&server, NULL, 0, "SET", key, records[i]));
        claimant_begin(&claimant, &driver, "strange");
        assert_true(claimant_try(&claimant) < 0);
        assert_true(driver.err.text[0] != '\0');
        claimant_end(&claimant);
        assert_int_equal(1, ask_number("EXISTS", key));
        assert_int_equal(0, ask_number("EXISTS", "holdfast.once:holdfast:strange"));
    }
    assert_int_equal(0, REDIS_DO(&server, NULL, 0, "DEL", key));
    assert_int_equal(ENGINE_HELD, outcome_of("strange", false));
}

/* What has been said to be stored is there after a crash, and what is there is whole; with `appendfsync
 * always`, as docs/redis-store.md asks for. */
struct crasher {
    struct driver *driver;
    char key[32];
    char bytes[5000];
    _Atomic bool claimed;
    uint64_t token;
    int result;
};

static void *run_until_it_crashes(void *arg)
{
    struct crasher *crasher = arg;
    struct claimant claimant;

    claimant_begin(&claimant, crasher->driver, crasher->key);
    crasher->result = claimant_try(&claimant);
    crasher->token = claimant.claim.token;
    atomic_store(&crasher->claimed, true);
    if (crasher->result == ENGINE_HELD) {
        memset(crasher->bytes, (int)(crasher->token % 251), sizeof crasher->bytes);
        crasher->result =
            claimant_finish(&claimant, crasher->bytes, sizeof crasher->bytes, KEEP_MS);
    }
    claimant_end(&claimant);
    return NULL;
}

static void crashes_lose_no_result_that_was_acknowledged(void **state)
{
    int crashes = getenv("HF_SOAK") ? CRASHES_SOAK : CRASHES, kept = 0, known = 0;
    static struct crasher crasher;

    (void)state;
    for (int i = 0; i < crashes; i++) {
        struct engine_record record;
        pthread_t thread;
        int64_t left_ms;
        int outcome;

        run_once(&other, "warm", "", 0, 1); /* connections are made before */
        await_gone("holdfast.record:holdfast.once:holdfast:warm");
        crasher = (struct crasher){.driver = &other};
        snprintf(crasher.key, sizeof crasher.key, "crash %d", i);
        assert_int_equal(0, pthread_create(&thread, NULL, run_until_it_crashes, &crasher));
        while (!atomic_load(&crasher.claimed))
            ;
        nanosleep(&(struct timespec){0, i % 2 ? 0 : random() % 3000000}, NULL);
        redis_kill9(&server);
        assert_int_equal(0, pthread_join(thread, NULL));
        assert_int_equal(0, redis_restart(&server, true));
        do
            outcome = look(crasher.key, &record, &left_ms);
        while (outcome == HF_EUNKNOWN || outcome == HF_EUNREACH); /* the old connections */
        known += crasher.result == HF_OK;
        if (crasher.result == HF_OK)
            assert_int_equal(ENGINE_DONE, outcome);
        if (outcome == ENGINE_DONE) {
            assert_int_equal(crasher.token, record.token);
            assert_int_equal(sizeof crasher.bytes, record.size);
            assert_memory_equal(crasher.bytes, record.bytes, record.size);
            kept++;
        } else { /* the claim was acknowledged, so it is there, too */
            assert_int_equal(ENGINE_HELD, outcome);
            assert_int_equal(crasher.token, record.token);
        }
        free(record.bytes);
        free(record.owner);
    }
    print_message("%d crashes: %d results were acknowledged, %d are there\n", crashes, known, kept);
    assert_true(kept > 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, start, stop)

/* An argument chooses tests by their names: '*died*'. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(many_callers_get_one_result),
        TEST(results_come_back_byte_for_byte),
        TEST(a_result_that_cannot_be_is_refused),
        TEST(a_lock_and_a_key_of_one_name_do_not_meet),
        TEST(a_prefix_makes_a_store_of_its_own),
        TEST(reading_says_what_is_known),
        TEST(released_is_free_again),
        TEST(a_runner_whose_lease_ran_out_is_replaced),
        TEST(whoever_is_too_late_stores_nothing),
        TEST(a_death_is_told_to_those_who_ask),
        TEST(only_an_heir_runs_what_somebody_died_over),
        TEST(a_renewed_lease_puts_its_death_off),
        TEST(a_place_is_renewed),
        TEST(kept_for_as_long_as_was_said),
        TEST(lost_answers_are_asked_for_again),
        TEST(a_grant_that_was_never_heard_of_is_no_death),
        TEST(a_full_server_stores_nothing_and_loses_nothing),
        TEST(a_record_of_somebody_else_is_refused),
        cmocka_unit_test_setup_teardown(crashes_lose_no_result_that_was_acknowledged, start_durable,
                                        stop),
    };

    signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
