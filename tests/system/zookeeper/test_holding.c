/* test_holding.c: what befalls those who hold or wait on three real ZooKeeper servers. Through the public API. */
#include "servers.h"
#include "zookeeper.h"

#include "base/clock.h"

#include <holdfast/holdfast.h>

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PATIENCE_MS 20000
#define TTL_MS 2000
#define LONG_TTL_MS 20000
#define WAITERS 50
#define LOST_ANSWERS 5
#define LIST_TRIES 10
#define LIST_DELAY_MS "300" /* less than after what a silent connection is given up */
/* What one change of holder may cost at the servers, for the one who goes and the one who comes: delete, list, proof, watch
 * of its own, and their answers. Where each release wakes all, it would be twice WAITERS / 2 and more. */
#define PACKETS_EACH_MAX 16

static struct ensemble ensemble;

/* ---- tools ----------------------------------------------------------------------------------- */

static int start(void **state)
{
    (void)state;
    return ensemble_start(&ensemble);
}

static int stop(void **state)
{
    (void)state;
    ensemble_stop(&ensemble);
    return 0;
}

static hf_store *open_url(const char *url)
{
    hf_store *store = NULL;

    if (hf_open(url, &store) != HF_OK)
        fail_msg("%s: %s", url, hf_error());
    return store;
}

static hf_store *open_root(const char *root)
{
    char url[256];

    ensemble_url(&ensemble, url, sizeof url);
    snprintf(url + strlen(url), sizeof url - strlen(url), "/%s", root);
    return open_url(url);
}

static hf_options options_of(int64_t ttl_ms)
{
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = ttl_ms;
    options.wait_ms = PATIENCE_MS;
    return options;
}

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s (%s)", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

static int entries(hf_store *store, const char *name)
{
    hf_report *report;
    int count;

    must(HF_OK, hf_show(store, name, &report));
    count = (int)hf_report_count(report);
    hf_report_free(report);
    return count;
}

static void await_entries(hf_store *store, const char *name, int count)
{
    int64_t deadline_ms = clock_boot_ms() + PATIENCE_MS;

    while (entries(store, name) != count) {
        if (clock_boot_ms() > deadline_ms)
            fail_msg("there are never %d in the queue of %s", count, name);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

/* ---- a majority ------------------------------------------------------------------------------ */

/* A server without a majority still answers pings and reads: only a write proves a hold alive. */
static void without_a_majority_a_hold_is_lost_in_time_and_nobody_gets_it(void **state)
{
    hf_store *store = open_root("majority"), *another = open_root("majority");
    hf_options options = options_of(TTL_MS);
    int64_t began_ms, lost_ms;
    struct pollfd lost;
    hf_lock *lock, *other;
    int result;

    (void)state;
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    lost = (struct pollfd){.fd = hf_lock_lost_fd(lock), .events = POLLIN};
    began_ms = clock_boot_ms();
    for (int i = 0; i < 2; i++)
        assert_int_equal(0,
                         zookeeper_pause(&ensemble.nodes[(ensemble.nodes[0].paused ? 1 : 0) + i]));
    assert_int_equal(1, poll(&lost, 1, PATIENCE_MS));
    lost_ms = clock_boot_ms();
    /* It may have been renewed just before they stopped. */
    assert_true(lost_ms - began_ms <= 2 * TTL_MS);
    result = hf_try(another, "one", &options, &other);
    assert_true(result == HF_EUNREACH || result == HF_EUNKNOWN);
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        if (ensemble.nodes[i].paused)
            assert_int_equal(0, zookeeper_resume(&ensemble.nodes[i]));
    assert_int_equal(0, ensemble_await_whole(&ensemble));
    hf_release(lock);
    must(HF_OK, hf_acquire(another, "one", &options, &other));
    assert_int_equal(1, entries(store, "one")); /* nothing of all that was left behind */
    must(HF_OK, hf_release(other));
    hf_close(another);
    hf_close(store);
}

/* ---- lost answers ---------------------------------------------------------------------------- */

/* ZooKeeper did it, and the answer did not arrive: CURATOR-79, kazoo's prefix. Never a second node. */
static void a_create_whose_answer_was_lost_is_found_again(void **state)
{
    struct relay relay = {0};
    hf_store *store, *another = open_root("answers");
    hf_options options = options_of(LONG_TTL_MS);
    hf_lock *lock;
    char url[64];

    (void)state;
    assert_int_equal(0, relay_start(&relay, ensemble.nodes[0].port));
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/answers", relay.port);
    store = open_url(url);
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    for (int i = 0; i < LOST_ANSWERS; i++) {
        assert_int_equal(0, relay_say(&relay, "drop down 1"));
        must(HF_OK, hf_acquire(store, "one", &options, &lock));
        assert_int_equal(1, entries(another, "one"));
        must(HF_OK, hf_check(another, "one", hf_lock_token(lock)));
        must(HF_OK, hf_release(lock));
        assert_int_equal(0, entries(another, "one"));
    }
    hf_close(store);
    hf_close(another);
    relay_stop(&relay);
}

/* Whoever gives up leaves nothing behind, however long its session lives (kazoo PR 760). */
static void giving_up_without_a_connection_leaves_nothing_behind(void **state)
{
    struct relay relay = {0};
    hf_store *store, *another = open_root("orphans");
    hf_options options = options_of(LONG_TTL_MS), brief = options_of(LONG_TTL_MS);
    hf_lock *first, *lock;
    char url[64];
    int result;

    (void)state;
    assert_int_equal(0, relay_start(&relay, ensemble.nodes[0].port));
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/orphans", relay.port);
    store = open_url(url);
    must(HF_OK, hf_acquire(store, "one", &options, &lock)); /* so that its parent is there */
    must(HF_OK, hf_release(lock));
    must(HF_OK, hf_acquire(store, "other", &options, &first)); /* so that the session stays */
    assert_int_equal(0, relay_say(&relay, "cut down"));
    brief.wait_ms = 100;
    result = hf_acquire(store, "one", &brief, &lock);
    if (result != HF_EUNKNOWN)
        fail_msg("%s (%s)", hf_result_name(result), hf_error());
    assert_int_equal(0, relay_say(&relay, "heal"));
    await_entries(another, "one", 0);
    must(HF_OK, hf_release(first));
    hf_close(store);
    hf_close(another);
    relay_stop(&relay);
}

/* ---- a list that is old ---------------------------------------------------------------------- */

struct waiter {
    hf_store *store;
    hf_lock *lock;
    int result;
};

static void *wait_for_one(void *arg)
{
    struct waiter *waiter = arg;
    hf_options options = options_of(LONG_TTL_MS);

    waiter->result = hf_acquire(waiter->store, "one", &options, &waiter->lock);
    return NULL;
}

/* Until so many chunks have come down, which are then on their way for LIST_DELAY_MS. */
static struct relay_counts await_down(struct relay *relay, uint64_t chunks)
{
    int64_t deadline_ms = clock_boot_ms() + PATIENCE_MS;
    struct relay_counts counts;

    do {
        assert_int_equal(0, relay_count(relay, &counts));
        assert_true(clock_boot_ms() < deadline_ms);
    } while (counts.down_chunks < chunks);
    return counts;
}

/* The waiter has sent the list's request, and nothing since: its answer is held back. By the time it arrives, the node that
 * it shows in the first place has been deleted. False: that came too late, and nothing was tried. */
static bool break_behind_the_list(struct relay *relay, hf_store *store, hf_lock *first)
{
    struct relay_counts before, now;
    uint32_t broken = 0;
    bool in_time;

    assert_int_equal(0, relay_count(relay, &before));
    must(HF_OK, hf_release(first));
    await_down(relay, before.down_chunks + 2); /* the watch, and the answer */
    assert_int_equal(0, relay_say(relay, "cut down"));
    assert_int_equal(0, relay_count(relay, &now));
    in_time = now.up_chunks == before.up_chunks + 1;
    if (in_time) {
        must(HF_OK, hf_break(store, "one", 0, &broken));
        assert_int_equal(1, broken);
    }
    assert_int_equal(0, relay_say(relay, "heal"));
    return in_time;
}

/* A list is what some server knew then. Only a write proves that its first node is still there (CURATOR-604). */
static void a_node_that_was_deleted_behind_the_list_holds_nothing(void **state)
{
    struct relay relay = {0};
    struct waiter waiter = {0};
    hf_store *store = open_root("list");
    hf_options options = options_of(LONG_TTL_MS);
    hf_lock *first;
    bool tried = false;
    char url[64];

    (void)state;
    assert_int_equal(0, relay_start(&relay, ensemble.nodes[0].port));
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/list", relay.port);
    waiter.store = open_url(url);
    for (int i = 0; i < LIST_TRIES && !tried; i++) {
        pthread_t thread;

        must(HF_OK, hf_acquire(store, "one", &options, &first));
        assert_int_equal(0, pthread_create(&thread, NULL, wait_for_one, &waiter));
        await_entries(store, "one", 2);
        assert_int_equal(0, relay_say(&relay, "delay 0 " LIST_DELAY_MS));
        tried = break_behind_the_list(&relay, store, first);
        assert_int_equal(0, relay_say(&relay, "delay 0 0"));
        pthread_join(thread, NULL);
        must(HF_OK, waiter.result);
        must(HF_OK, hf_check(store, "one", hf_lock_token(waiter.lock)));
        must(HF_OK, hf_release(waiter.lock));
    }
    assert_true(tried);
    hf_close(waiter.store);
    hf_close(store);
    relay_stop(&relay);
}

/* ---- many who wait --------------------------------------------------------------------------- */

static int64_t packets(void)
{
    int64_t sum = 0;

    for (int i = 0; i < ZOOKEEPER_NODES; i++) {
        char reply[8192];
        const char *at;

        assert_int_equal(0, zookeeper_ask(&ensemble.nodes[i], "mntr", reply, sizeof reply));
        at = strstr(reply, "zk_packets_sent\t");
        assert_non_null(at);
        sum += strtoll(at + strlen("zk_packets_sent\t"), NULL, 10);
    }
    return sum;
}

static hf_store *waiters_store;
static _Atomic int inside;

static void *wait_and_let_go(void *arg)
{
    hf_options options = options_of(LONG_TTL_MS);
    hf_lock *lock;

    (void)arg;
    options.wait_ms = 3 * PATIENCE_MS;
    if (hf_acquire(waiters_store, "many", &options, &lock) != HF_OK)
        return (void *)1;
    if (atomic_fetch_add(&inside, 1) != 0)
        return (void *)2;
    atomic_fetch_sub(&inside, 1);
    return hf_release(lock) == HF_OK ? NULL : (void *)3;
}

static void each_release_wakes_one_of_many(void **state)
{
    hf_options options = options_of(LONG_TTL_MS);
    pthread_t threads[WAITERS];
    int64_t before;
    hf_lock *lock;

    (void)state;
    waiters_store = open_root("many");
    must(HF_OK, hf_acquire(waiters_store, "many", &options, &lock));
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, wait_and_let_go, NULL));
    await_entries(waiters_store, "many", 1 + WAITERS);
    before = packets();
    must(HF_OK, hf_release(lock));
    for (int i = 0; i < WAITERS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    print_message("             %d packets for each change of holder\n",
                  (int)((packets() - before) / (WAITERS + 1)));
    assert_true(packets() - before <= PACKETS_EACH_MAX * (WAITERS + 1));
    hf_close(waiters_store);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_majority_a_hold_is_lost_in_time_and_nobody_gets_it),
        cmocka_unit_test(a_create_whose_answer_was_lost_is_found_again),
        cmocka_unit_test(giving_up_without_a_connection_leaves_nothing_behind),
        cmocka_unit_test(a_node_that_was_deleted_behind_the_list_holds_nothing),
        cmocka_unit_test(each_release_wakes_one_of_many),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, start, stop);
}
