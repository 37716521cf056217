/* test_holding.c: what befalls those who hold on real Redis servers, alone and several as a Redlock: a bad
 * neighbour, another store at the same address, adopted holds. Through the public API. */
#include "servers.h"

#include "base/clock.h"

#include <holdfast/holdfast.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PATIENCE_MS 20000
#define TTL_MS \
    2000 /* a disk and a machine that others use, too, must let a renewal pass in a third of it */
#define LONG_TTL_MS 60000
#define NODES 5

static struct redis_server nodes[NODES];

/* ---- tools ----------------------------------------------------------------------------------- */

static int start_some(int count)
{
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < count; i++)
        if (redis_start(&nodes[i], NULL) < 0)
            return -1;
    return 0;
}

static int start_one(void **state)
{
    (void)state;
    return start_some(1);
}

static int start_five(void **state)
{
    (void)state;
    return start_some(NODES);
}

static int stop_all(void **state)
{
    (void)state;
    for (int i = 0; i < NODES; i++)
        redis_stop(&nodes[i]);
    return 0;
}

static hf_store *open_redis(void)
{
    hf_store *store = NULL;
    char url[128];

    snprintf(url, sizeof url, "redis://127.0.0.1:%d", nodes[0].port);
    if (hf_open(url, &store) != HF_OK)
        fail_msg("%s: %s", url, hf_error());
    return store;
}

static hf_store *open_redlock(void)
{
    hf_store *store = NULL;
    char url[256] = "redlock://";

    for (int i = 0; i < NODES; i++)
        snprintf(url + strlen(url), sizeof url - strlen(url), "%s127.0.0.1:%d", i ? "," : "",
                 nodes[i].port);
    snprintf(url + strlen(url), sizeof url - strlen(url), "?timeout=1s");
    if (hf_open(url, &store) != HF_OK)
        fail_msg("%s: %s", url, hf_error());
    return store;
}

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s (%s)", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

static void count_loss(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static hf_options options_with(int64_t ttl_ms, _Atomic int *losses)
{
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = ttl_ms;
    options.wait_ms = PATIENCE_MS;
    options.on_lost = losses ? count_loss : NULL;
    options.arg = losses;
    return options;
}

static hf_lock *must_acquire(hf_store *store, const char *name, const hf_options *options)
{
    hf_lock *lock = NULL;

    must(HF_OK, hf_acquire(store, name, options, &lock));
    return lock;
}

static void sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void await_losses(_Atomic int *losses, int count)
{
    int64_t until_ms = clock_boot_ms() + PATIENCE_MS;

    while (atomic_load(losses) < count) {
        if (clock_boot_ms() >= until_ms)
            fail_msg("%d were lost, and %d should be", atomic_load(losses), count);
        sleep_ms(10);
    }
}

static void redis_says(int node, const char *command, const char *key)
{
    assert_int_equal(0, REDIS_DO(&nodes[node], NULL, 0, command, key));
}

/* ---- a bad neighbour --------------------------------------------------------------------------- */

#define MANY 200

/* One key was replaced by something that is no lock: whoever held that is told, and nobody else. */
static void one_bad_key_costs_nobody_else_his_lock(void **state)
{
    static hf_lock *locks[MANY];
    hf_store *store = open_redis();
    _Atomic int losses = 0;
    hf_options options = options_with(TTL_MS, &losses);
    char name[32];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "n%d", i);
        locks[i] = must_acquire(store, name, &options);
    }
    redis_says(0, "DEL", "holdfast:n17");
    assert_int_equal(0, REDIS_DO(&nodes[0], NULL, 0, "RPUSH", "holdfast:n17", "no", "lock"));
    await_losses(&losses, 1);
    assert_int_equal(0, hf_lock_left_ms(locks[17]));
    sleep_ms(2 * TTL_MS);
    assert_int_equal(1, atomic_load(&losses));
    for (int i = 0; i < MANY; i++) {
        assert_true(i == 17 || hf_lock_left_ms(locks[i]) > 0);
        must(i == 17 ? HF_ELOST : HF_OK, hf_release(locks[i]));
    }
    hf_close(store);
}

/* Two of five are away. What three renew is kept, though another one was deleted on one of them. */
static void what_a_majority_renews_is_kept_beside_what_it_does_not(void **state)
{
    hf_store *store = open_redlock();
    _Atomic int losses = 0, kept = 0;
    hf_options options = options_with(TTL_MS, &losses), other = options_with(TTL_MS, &kept);
    hf_lock *bad = must_acquire(store, "bad", &options),
            *good = must_acquire(store, "good", &other);

    (void)state;
    redis_kill9(&nodes[3]);
    redis_kill9(&nodes[4]);
    redis_says(0, "DEL", "holdfast:bad");
    await_losses(&losses, 1);
    sleep_ms(2 * TTL_MS);
    assert_int_equal(0, atomic_load(&kept));
    assert_true(hf_lock_left_ms(good) > 0);
    must(HF_OK, hf_renew(good));
    must(HF_ELOST, hf_release(bad));
    must(HF_OK, hf_release(good));
    hf_close(store);
}

/* ---- another store at the same address --------------------------------------------------------- */

static void restart_empty(int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(0, redis_restart(&nodes[i], false));
}

static void flush_all(int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(0, REDIS_DO(&nodes[i], NULL, 0, "FLUSHALL"));
}

static void sequencer_of(hf_lock *lock, char ret_text[HF_SEQUENCER_MAX])
{
    must(HF_OK, hf_lock_sequencer(lock, ret_text, HF_SEQUENCER_MAX));
}

/* Whoever has a handle from before, and knew the old store's id, knows the new one's: it believes no
 * sequencer of the old one and every one of the new one, and its own are right. */
static void check_replaced(hf_store *(*open)(void), void (*replace)(int count), int count)
{
    char dead[HF_SEQUENCER_MAX], fresh[HF_SEQUENCER_MAX], own[HF_SEQUENCER_MAX];
    _Atomic int losses = 0;
    hf_options options = options_with(TTL_MS, &losses), others = options_with(LONG_TTL_MS, NULL);
    hf_store *old = open(), *new;
    hf_lock *held = must_acquire(old, "held", &options), *lock, *mine;

    sequencer_of(held, dead);
    must(HF_OK, hf_check_sequencer(old, dead));
    replace(count);
    await_losses(&losses, 1);
    new = open();
    lock = must_acquire(new, "held", &others);
    sequencer_of(lock, fresh);
    must(HF_ESTORE, hf_check_sequencer(old, dead));
    must(HF_OK, hf_check_sequencer(old, fresh));
    mine = must_acquire(old, "mine", &others);
    sequencer_of(mine, own);
    must(HF_OK, hf_check_sequencer(new, own));
    must(HF_ELOST, hf_release(held));
    must(HF_OK, hf_release(lock));
    must(HF_OK, hf_release(mine));
    hf_close(old);
    hf_close(new);
}

static void a_handle_learns_that_redis_was_started_empty(void **state)
{
    (void)state;
    check_replaced(open_redis, restart_empty, 1);
}

static void a_handle_learns_that_redis_was_flushed(void **state)
{
    (void)state;
    check_replaced(open_redis, flush_all, 1);
}

static void a_handle_learns_that_all_servers_were_started_empty(void **state)
{
    (void)state;
    check_replaced(open_redlock, restart_empty, NODES);
}

/* Before anything was renewed: the first that is asked of the new one. */
static void a_sequencer_of_a_new_grant_is_of_the_store_that_gave_it(void **state)
{
    hf_options options = options_with(LONG_TTL_MS, NULL);
    hf_store *old = open_redis(), *new;
    char text[HF_SEQUENCER_MAX];
    hf_lock *held = must_acquire(old, "held", &options), *lock;

    (void)state;
    sequencer_of(held, text);
    restart_empty(1);
    lock = must_acquire(old, "other", &options);
    sequencer_of(lock, text);
    new = open_redis();
    must(HF_OK, hf_check_sequencer(new, text));
    must(HF_ELOST, hf_lock_sequencer(held, text, sizeof text)); /* whose store is no more */
    must(HF_ELOST, hf_release(held));
    must(HF_OK, hf_release(lock));
    hf_close(old);
    hf_close(new);
}

/* ---- all of them ------------------------------------------------------------------------------- */

#define ON_ONE(test) cmocka_unit_test_setup_teardown(test, start_one, stop_all)
#define ON_FIVE(test) cmocka_unit_test_setup_teardown(test, start_five, stop_all)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ON_ONE(one_bad_key_costs_nobody_else_his_lock),
        ON_FIVE(what_a_majority_renews_is_kept_beside_what_it_does_not),
        ON_ONE(a_handle_learns_that_redis_was_started_empty),
        ON_ONE(a_handle_learns_that_redis_was_flushed),
        ON_FIVE(a_handle_learns_that_all_servers_were_started_empty),
        ON_ONE(a_sequencer_of_a_new_grant_is_of_the_store_that_gave_it),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
