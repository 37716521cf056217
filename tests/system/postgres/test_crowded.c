/* test_crowded.c: a hold is renewed whatever else its process waits for.
 *
 * Somebody has the rows of many names locked, as a forgotten transaction of an operator would. All statements about these hang, with as many
 * connections as the store makes for them, those for giving up included. A hold of another name goes on. */
#include "postgres.h"

#include <holdfast/once.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TTL_MS 2000
#define LOCKED_S "4" /* longer than the TTL, and shorter than a release is tried for */
#define WANTED 12    /* more than there are connections for all, */
#define GIVEN_UP 6   /* and than there are for those who give up */
#define WAIT_MS 60000
#define KEEP_MS 8000
#define CONNECTIONS 8  /* PG_POOL_MAX */
#define PROMPT_MS 2000 /* before anybody else's time is up, which gives a connection back */

static struct postgres server;
static _Atomic int done;

static void *lock_rows(void *arg)
{
    char reply[64];

    (void)arg;
    if (postgres_do(&server,
                    "SELECT pg_sleep(" LOCKED_S ") FROM (SELECT count(*) FROM (SELECT FROM "
                    "holdfast_locks WHERE name <> 'kept' FOR UPDATE) AS l) AS n",
                    reply, sizeof reply) < 0)
        fprintf(stderr, "the rows could not be locked: %s\n", reply);
    atomic_store(&done, 1);
    return NULL;
}

static int rows_are_locked(void)
{
    char reply[64] = "";

    assert_int_equal(0, postgres_do(&server,
                                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = "
                                    "'PgSleep'",
                                    reply, sizeof reply));
    return strcmp(reply, "0") != 0;
}

static void note(hf_op *op, int result, void *arg)
{
    (void)op;
    *(int *)arg = result;
}

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("%s: %s", hf_result_name(result), hf_error());
}

static void renewals_have_a_connection_of_their_own(void **state)
{
    int wanted[WANTED], given_up[GIVEN_UP];
    hf_options options = HF_OPTIONS_INIT, brief = HF_OPTIONS_INIT;
    hf_lock *kept, *locks[GIVEN_UP], *other;
    struct pollfd ready = {.events = POLLIN};
    char url[256], name[16];
    hf_store *store;
    pthread_t thread;
    hf_op *op;

    (void)state;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres", server.port);
    must(HF_OK, hf_open(url, &store));
    ready.fd = hf_fd(store);
    assert_true(ready.fd >= 0);
    options.ttl_ms = WAIT_MS;
    options.wait_ms = WAIT_MS;
    brief = options;
    brief.ttl_ms = TTL_MS;
    for (int i = 0; i < WANTED; i++) {
        snprintf(name, sizeof name, "wanted%d", i);
        must(HF_OK, hf_acquire(store, name, &options, &other));
        must(HF_OK, hf_release(other));
        wanted[i] = 1;
    }
    for (int i = 0; i < GIVEN_UP; i++) {
        snprintf(name, sizeof name, "given%d", i);
        must(HF_OK, hf_acquire(store, name, &options, &locks[i]));
        given_up[i] = 1;
    }
    must(HF_OK, hf_acquire(store, "kept", &brief, &kept));
    assert_int_equal(0, pthread_create(&thread, NULL, lock_rows, NULL));
    while (!rows_are_locked() && !atomic_load(&done))
        ;
    for (int i = 0; i < WANTED; i++) {
        snprintf(name, sizeof name, "wanted%d", i);
        must(HF_OK, hf_acquire_start(store, name, &options, note, &wanted[i], &op));
    }
    for (int i = 0; i < GIVEN_UP; i++)
        must(HF_OK, hf_release_start(locks[i], note, &given_up[i], &op));
    for (int left = 1; left;) {
        poll(&ready, 1, WAIT_MS);
        assert_true(hf_dispatch(store) >= 0);
        left = 0;
        for (int i = 0; i < WANTED; i++)
            left += wanted[i] == 1;
        for (int i = 0; i < GIVEN_UP; i++)
            left += given_up[i] == 1;
        assert_true(hf_lock_left_ms(kept) > 0);
    }
    assert_int_equal(0, rows_are_locked()); /* it was over before they were done */
    must(HF_OK, hf_release(kept));
    for (int i = 0; i < WANTED; i++)
        must(HF_OK, wanted[i]);
    for (int i = 0; i < GIVEN_UP; i++) /* on a machine that is slower than that it is not known */
        assert_true(given_up[i] == HF_OK || given_up[i] == HF_EUNKNOWN);
    pthread_join(thread, NULL);
    hf_close(store);
}

/* ---- a server that says nothing ---------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct caller {
    pthread_t thread;
    hf_store *store;
    char name[16];
    hf_cancel *cancel; /* or NULL */
    int result;
    int64_t ended_ms;
};

static void *call(void *arg)
{
    struct caller *caller = arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *lock = NULL;

    options.wait_ms = WAIT_MS;
    options.cancel = caller->cancel;
    caller->result = hf_acquire(caller->store, caller->name, &options, &lock);
    caller->ended_ms = now_ms();
    if (caller->result == HF_OK)
        hf_release(lock);
    return NULL;
}

/* The others have all connections there are, and wait for their answers. The pause is only for those who are cancelled to be where they wait:
 * whoever is late is cancelled before. */
static void cancel_without_a_connection(const char *mode)
{
    struct timespec span = {.tv_nsec = 300000000};
    struct caller callers[WANTED];
    char url[256];
    hf_store *store;
    hf_lock *lock;
    hf_cancel *cancel;
    int64_t fired_ms;

    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?%s", server.port, mode);
    must(HF_OK, hf_open(url, &store));
    must(HF_OK, hf_acquire(store, "kept", NULL, &lock));
    must(HF_OK, hf_release(lock));
    must(HF_OK, hf_cancel_new(&cancel));
    assert_int_equal(0, postgres_pause(&server));
    for (int i = 0; i < WANTED; i++) {
        callers[i] = (struct caller){.store = store, .cancel = i < CONNECTIONS ? NULL : cancel};
        snprintf(callers[i].name, sizeof callers[i].name, "wanted%d", i);
        if (i == CONNECTIONS)
            nanosleep(&span, NULL);
        assert_int_equal(0, pthread_create(&callers[i].thread, NULL, call, &callers[i]));
    }
    nanosleep(&span, NULL);
    fired_ms = now_ms();
    hf_cancel_fire(cancel);
    for (int i = CONNECTIONS; i < WANTED; i++)
        pthread_join(callers[i].thread, NULL);
    assert_int_equal(0, postgres_resume(&server));
    for (int i = 0; i < CONNECTIONS; i++)
        pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < WANTED; i++) {
        must(i < CONNECTIONS ? HF_OK : HF_ECANCELED, callers[i].result);
        assert_true(i < CONNECTIONS || callers[i].ended_ms - fired_ms < PROMPT_MS);
    }
    hf_cancel_free(cancel);
    hf_close(store);
}

static void a_cancel_is_heard_without_a_connection(void **state)
{
    (void)state;
    cancel_without_a_connection("table=silent");
    cancel_without_a_connection("mode=row&table=by_row");
}

/* Above all tokens there are, a floor makes the next ones of all names the same. */
static void results_with_the_same_token_are_kept_apart(void **state)
{
    struct timespec span = {KEEP_MS / 1000 * 3 / 4, 0};
    static const char *const keys[] = {"one", "two", "two"};
    const uint64_t floor = 3000000000000000;
    char url[256];
    hf_store *store;

    (void)state;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?table=same", server.port);
    must(HF_OK, hf_open(url, &store));
    must(HF_OK, hf_floor(store, floor));
    for (int i = 0; i < 3; i++) {
        hf_once *once, *seen;

        must(HF_OK, hf_once_begin(store, keys[i], NULL, &once));
        assert_int_equal(floor + 1, hf_once_token(once));
        if (i < 2) {
            assert_true(hf_once_runs(once));
            must(HF_OK, hf_once_finish(once, "1", 1, KEEP_MS));
            must(HF_OK, hf_once_read(store, keys[i], &seen)); /* from here on it is counted */
            assert_int_equal(HF_ONCE_DONE, hf_once_state(seen));
            hf_once_free(seen);
        } else {
            assert_false(hf_once_runs(once)); /* the first is over by now, and this one is not */
            hf_once_free(once);
        }
        if (i < 2)
            nanosleep(&span, NULL);
    }
    hf_close(store);
}

/* ---- results that come and go ------------------------------------------------------------------ */

#define RUNNERS 24
#define RUNS_MS 3000

static hf_store *crowd;
static _Atomic int runs, failures;
static struct timespec crowd_until;

static bool is_over(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > crowd_until.tv_sec ||
           (now.tv_sec == crowd_until.tv_sec && now.tv_nsec >= crowd_until.tv_nsec);
}

static void *run_again_and_again(void *arg)
{
    (void)arg;
    while (!is_over()) {
        hf_once *once;

        if (hf_once_begin(crowd, "crowd", NULL, &once) != HF_OK) {
            fprintf(stderr, "%s\n", hf_error());
            failures++;
        } else if (hf_once_runs(once)) {
            runs++;
            failures += hf_once_finish(once, "x", 1, 1) != HF_OK;
        } else {
            hf_once_free(once);
        }
    }
    return NULL;
}

/* Whoever forgets a result finds the next one, and that is too old as well: again and again, and never a hold that nobody granted. */
static void results_that_are_over_at_once_are_no_holds(void **state)
{
    pthread_t threads[RUNNERS];
    char url[256];

    (void)state;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?table=crowd", server.port);
    must(HF_OK, hf_open(url, &crowd));
    clock_gettime(CLOCK_MONOTONIC, &crowd_until);
    crowd_until.tv_sec += RUNS_MS / 1000;
    for (int i = 0; i < RUNNERS; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, run_again_and_again, NULL));
    for (int i = 0; i < RUNNERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(0, atomic_load(&failures));
    assert_true(atomic_load(&runs) > 1);
    hf_close(crowd);
}

/* The connection that finds out is made for this very statement: who is there now is known before it is sent. */
static void the_first_hold_after_a_promotion_is_kept(void **state)
{
    hf_options options = HF_OPTIONS_INIT;
    char url[256];
    hf_store *store;
    hf_lock *lock;

    (void)state;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?table=promoted",
             server.port);
    must(HF_OK, hf_open(url, &store));
    options.ttl_ms = WAIT_MS;
    options.wait_ms = WAIT_MS;
    must(HF_OK, hf_acquire(store, "before", &options, &lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(0, postgres_do(&server,
                                    "UPDATE promoted_meta SET era = "
                                    "translate(era, '0123456789abcdef', "
                                    "'123456789abcdef0')",
                                    NULL, 0));
    assert_int_equal(
        0, postgres_do(&server,
                       "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> "
                       "pg_backend_pid() AND backend_type = 'client backend'",
                       NULL, 0));
    must(HF_OK, hf_acquire(store, "after", &options, &lock));
    must(HF_OK, hf_renew(lock));
    must(HF_OK, hf_release(lock));
    hf_close(store);
}

/* ---- what others left -------------------------------------------------------------------------- */

static void ask(const char *statement, char reply[64])
{
    assert_int_equal(0, postgres_do(&server, statement, reply, 64));
}

/* Holders, places, marks and watchers that died elsewhere, with names that nobody asks for again. Whoever uses the store finds them; who lives stays. */
static void what_died_on_another_host_goes(void **state)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *kept, *lock;
    char url[256], left[64] = "";
    hf_store *store;
    int64_t began_ms;

    (void)state;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?table=gone", server.port);
    must(HF_OK, hf_open(url, &store));
    options.ttl_ms = TTL_MS;
    must(HF_OK, hf_acquire(store, "kept", &options, &kept));
    ask("INSERT INTO gone_claims (name, lease, owner, mode, permits, token, ttl_ms, delay_ms, "
        "death_ms, beat, incarnation) SELECT convert_to('died' || n, 'UTF8'), "
        "sha256(int4send(n)), owner, v.mode::\"char\", 0, CASE WHEN v.holds THEN token END, 100, "
        "0, 0, CASE WHEN v.holds THEN beat ELSE -beat END, incarnation FROM gone_claims, "
        "generate_series(1, 3) AS n, (VALUES ('x', true), ('x', false), ('e', false), ('o', "
        "false)) AS v(mode, holds)",
        left);
    ask("INSERT INTO gone SELECT DISTINCT name, 1, '' FROM gone_claims WHERE name <> 'kept'", left);
    began_ms = now_ms();
    for (int i = 0; strcmp(left, "0") != 0 && now_ms() - began_ms < WAIT_MS; i++) {
        must(HF_OK, hf_acquire(store, "used", &options, &lock));
        must(HF_OK, hf_release(lock));
        if (i % 64 == 0) {
            ask("VACUUM gone_claims", left); /* what is deleted is more to look at */
            ask("SELECT count(*) FROM gone_claims WHERE name <> 'kept'", left);
        }
    }
    assert_string_equal("0", left);
    assert_true(hf_lock_left_ms(kept) > 0);
    must(HF_OK, hf_release(kept));
    hf_close(store);
}

#define RESULTS "5000"
#define FINISHED 40 /* one in four of those who finish looks around */

/* Whoever finishes looks for results that nobody asks for, and reads a page of them. */
static void whoever_finishes_does_not_read_all_results(void **state)
{
    char url[256], reply[64] = "f";
    hf_store *store;
    hf_once *once;

    (void)state;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?table=page", server.port);
    must(HF_OK, hf_open(url, &store));
    must(HF_OK, hf_once_begin(store, "first", NULL, &once));
    must(HF_OK, hf_once_finish(once, "1", 1, KEEP_MS));
    ask("INSERT INTO page_once (name, state, token, keep_ms, seen) SELECT int4send(n), 'd', 1, "
        "60000, '{}' FROM generate_series(1, " RESULTS ") AS n",
        reply);
    for (int i = 0; i < FINISHED; i++) {
        snprintf(reply, sizeof reply, "key%d", i);
        must(HF_OK, hf_once_begin(store, reply, NULL, &once));
        must(HF_OK, hf_once_finish(once, "1", 1, KEEP_MS));
    }
    hf_close(store);
    do /* what they have counted is there when they have gone */
        ask("SELECT n_tup_ins > " RESULTS " + 40 FROM pg_stat_user_tables WHERE relname = "
            "'page_once'",
            reply);
    while (strcmp(reply, "t") != 0);
    ask("SELECT seq_tup_read < " RESULTS " FROM pg_stat_user_tables WHERE relname = 'page_once'",
        reply);
    assert_string_equal("t", reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_finishes_does_not_read_all_results),
        cmocka_unit_test(what_died_on_another_host_goes),
        cmocka_unit_test(renewals_have_a_connection_of_their_own),
        cmocka_unit_test(the_first_hold_after_a_promotion_is_kept),
        cmocka_unit_test(a_cancel_is_heard_without_a_connection),
        cmocka_unit_test(results_with_the_same_token_are_kept_apart),
        cmocka_unit_test(results_that_are_over_at_once_are_no_holds),
    };
    int failed;

    if (postgres_start(&server, NULL) < 0)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_stop(&server);
    return failed != 0;
}
