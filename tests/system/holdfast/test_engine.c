/* test_engine.c: the holdfast engine on a real holdfastd, where the conformance suite does not look: what
 * happens to queues when the server dies, how many connections there are, lost answers, passwords,
 * prefixes. */
#include "tools.h"
#include "watching.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROMPT_MS 4000 /* less than any look of a client that was not told */

static struct holdfastd server;

static int start_server(void **state)
{
    (void)state;
    return holdfastd_start(&server, NULL);
}

static int stop_server(void **state)
{
    (void)state;
    holdfastd_stop(&server);
    return 0;
}

/* ---- tools ----------------------------------------------------------------------------------- */

static long info(const char *key)
{
    return info_of(&server, key);
}

static void await_info(const char *key, long wanted, int64_t patience_ms)
{
    await_info_of(&server, key, wanted, patience_ms);
}

static void hold_aside(const char *name)
{
    assert_int_equal(0, HOLDFASTD_DO(&server, NULL, 0, "ACQUIRE", name, "aside", "TTL", "3600000"));
}

static void let_go_aside(const char *name)
{
    char reply[64];

    assert_int_equal(0, HOLDFASTD_DO(&server, reply, sizeof reply, "RELEASE", name, "aside"));
    assert_string_equal("1", reply);
}

/* ---- told of a loss --------------------------------------------------------------------------- */

#define LONG_TTL_MS 60000 /* it is renewed after 20 s */

static void note_loss(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_store((_Atomic int *)arg, 1);
}

/* quiet_ms: how long the holder has done nothing before. */
static void be_broken(int64_t quiet_ms, const char *grace)
{
    hf_store *store = open_at("holdfast://127.0.0.1:%d", server.port);
    hf_options options = with_wait(0);
    _Atomic int told = 0;
    struct pollfd lost;
    hf_lock *lock, *other;

    options.ttl_ms = LONG_TTL_MS;
    options.on_lost = note_loss;
    options.arg = (void *)&told;
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    must(HF_OK, hf_acquire(store, "other", &options, &other));
    lost = (struct pollfd){.fd = hf_lock_lost_fd(lock), .events = POLLIN};
    assert_int_equal(0, poll(&lost, 1, (int)quiet_ms));
    assert_int_equal(0, HOLDFASTD_DO(&server, NULL, 0, "BREAK", "one", grace));
    assert_int_equal(1, poll(&lost, 1, PROMPT_MS));
    assert_int_equal(0, hf_lock_left_ms(lock));
    must(HF_ELOST, hf_release(lock));
    assert_true(hf_lock_left_ms(other) > 0);
    must(HF_OK, hf_release(other));
    hf_close(store);
}

static void a_broken_holder_is_told_before_its_next_renewal(void **state)
{
    (void)state;
    be_broken(0, "NOW");
    be_broken(500, "NOW");
    be_broken(500, NULL);
}

/* ---- many who wait --------------------------------------------------------------------------- */

#define QUEUE 12

/* Two handles, in turn, so that order is not that of one connection. */
static void the_queue_keeps_its_order_when_the_server_is_killed(void **state)
{
    struct line line = LINE_INIT;
    hf_store *stores[2] = {open_at("holdfast://127.0.0.1:%d?prefix=p/", server.port),
                           open_at("holdfast://127.0.0.1:%d?prefix=p/", server.port)};
    hf_options options = with_wait(HF_FOREVER);
    struct place places[QUEUE];

    (void)state;
    hold_aside("p/one");
    for (int i = 0; i < QUEUE; i++) {
        places[i] = (struct place){&line, i};
        must(HF_OK, hf_acquire_start(stores[i % 2], "one", &options, came_in, &places[i], NULL));
        await_info("waiting", i + 1, PATIENCE_MS);
    }
    for (int times = 0; times < 2; times++) {
        assert_int_equal(0, holdfastd_restart(&server));
        assert_int_equal(QUEUE, info("waiting")); /* places are kept by their leases, */
        /* and everybody comes back to his own, to be told. */
        await_info("waiting_places", QUEUE, PROMPT_MS);
        assert_int_equal(QUEUE, info("waiting"));
    }
    let_go_aside("p/one");
    await_line(&line, QUEUE);
    for (int i = 0; i < QUEUE; i++)
        assert_int_equal(i, line.order[i]);
    hf_close(stores[0]);
    hf_close(stores[1]);
}

#ifdef __SANITIZE_THREAD__
#define CROWD 100 /* it has no memory for the traces of more threads */
#else
#define CROWD 1000
#endif

static void count_ends(hf_op *op, int result, void *arg)
{
    (void)op;
    (void)result;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void a_thousand_wait_on_one_connection(void **state)
{
    hf_store *store = open_at("holdfast://127.0.0.1:%d", server.port);
    hf_options options = with_wait(HF_FOREVER);
    _Atomic int ends = 0;
    char name[16];

    (void)state;
    hold_aside("n0");
    hold_aside("n1");
    for (int i = 0; i < CROWD; i++) {
        snprintf(name, sizeof name, "n%d", i % 2);
        must(HF_OK, hf_acquire_start(store, name, &options, count_ends, (void *)&ends, NULL));
    }
    await_info("waiting_places", CROWD, PATIENCE_MS);
    assert_int_equal(CROWD, info("waiting"));
    assert_int_equal(2, info("connected_clients")); /* and the one that asks */
    hf_close(store);
    assert_int_equal(0, info("waiting")); /* nothing stays behind */
    assert_int_equal(2, info("holds"));
}

/* ---- observers ------------------------------------------------------------------------------- */

static void note_holder(hf_observer *observer, const hf_report *now, void *arg)
{
    const hf_entry *first = hf_report_entry(now, 0);

    (void)observer;
    atomic_store((_Atomic uint64_t *)arg, first ? first->token : 0);
}

static void await_token(_Atomic uint64_t *token, bool held)
{
    int64_t deadline_ms = now_ms() + PROMPT_MS;

    while ((atomic_load(token) > 0) != held) {
        if (now_ms() > deadline_ms)
            fail_msg("the observer was not told in time");
        usleep(5000);
    }
}

static void an_observer_is_told_across_a_restart(void **state)
{
    hf_store *store = open_at("holdfast://127.0.0.1:%d?prefix=p/", server.port);
    _Atomic uint64_t token = 0;
    hf_observer *first, *second;

    (void)state;
    must(HF_OK, hf_observe(store, "led", note_holder, (void *)&token, &first));
    must(HF_OK, hf_observe(store, "led", note_holder, (void *)&token, &second));
    await_info("observed_names", 1, PATIENCE_MS);
    hold_aside("p/led");
    await_token(&token, true);
    assert_int_equal(0, holdfastd_restart(&server));
    await_info("observed_names", 1, PROMPT_MS);
    let_go_aside("p/led");
    await_token(&token, false);
    hf_observer_stop(first);
    hold_aside("p/led");
    await_token(&token, true); /* the second one still hears */
    hf_observer_stop(second);
    await_info("observed_names", 0, PATIENCE_MS);
    hf_close(store);
}

/* ---- what is lost on the way ----------------------------------------------------------------- */

static void a_lost_answer_is_settled(void **state)
{
    struct relay relay;
    hf_options options = with_wait(0);
    hf_report *report;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    assert_int_equal(0, relay_start(&relay, server.port));
    store = open_at("holdfast://127.0.0.1:%d", relay.port);
    must(HF_ELOST, hf_check(store, "one", 1)); /* connected */
    assert_int_equal(0, relay_say(&relay, "drop down 1"));
    must(HF_OK, hf_try(store, "one", &options, &lock)); /* granted, not heard of, asked again */
    must(HF_OK, hf_show(store, "one", &report));
    assert_int_equal(1, hf_report_count(report));
    assert_true(hf_report_entry(report, 0)->token == hf_lock_token(lock));
    hf_report_free(report);
    assert_int_equal(1, info("granted"));
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, info("leases_remembered")); /* what may still come finds it over */
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, info("leases_remembered")); /* and this one lost nothing */
    assert_int_equal(0, info("holds"));
    hf_close(store);
    relay_stop(&relay);
}

#define ADOPTED 100
#define ADOPTED_TTL_MS 9000

static hf_lock *adopt_aside(hf_store *store, const char *name)
{
    hf_options options = with_wait(0);
    char reply[64];
    hf_lock *lock;

    assert_int_equal(
        0, HOLDFASTD_DO(&server, reply, sizeof reply, "ACQUIRE", name, name, "TTL", "60000"));
    options.ttl_ms = ADOPTED_TTL_MS;
    must(HF_OK, hf_adopt(store, name, name, strtoull(reply, NULL, 10), &options, &lock));
    return lock;
}

/* Each by itself would take a round trip, and all that while nothing else would be renewed. */
static void adopted_holds_are_renewed_together(void **state)
{
    struct relay_counts before, after;
    hf_lock *locks[ADOPTED];
    struct relay relay;
    hf_store *store;
    int64_t adopted_ms;
    char name[16];

    (void)state;
    assert_int_equal(0, relay_start(&relay, server.port));
    store = open_at("holdfast://127.0.0.1:%d", relay.port);
    for (int i = 0; i < ADOPTED; i++) {
        snprintf(name, sizeof name, "adopted %d", i);
        locks[i] = adopt_aside(store, name);
    }
    adopted_ms = now_ms();
    assert_int_equal(0, relay_count(&relay, &before));
    for (int i = 0; i < ADOPTED; i++)
        while (now_ms() + hf_lock_left_ms(locks[i]) <= adopted_ms + ADOPTED_TTL_MS) {
            assert_true(hf_lock_left_ms(locks[i]) > 0);
            usleep(5000);
        }
    assert_int_equal(0, relay_count(&relay, &after));
    assert_true(after.up_chunks - before.up_chunks < ADOPTED);
    for (int i = 0; i < ADOPTED; i++)
        must(HF_OK, hf_release(locks[i]));
    hf_close(store);
    relay_stop(&relay);
}

/* Nothing is sent into a connection that has died while nobody used it, so nothing is lost there. */
static void a_dead_connection_is_seen_before_it_is_used(void **state)
{
    hf_store *store = open_at("holdfast://127.0.0.1:%d", server.port);
    hf_options options = with_wait(0);
    hf_lock *lock;

    (void)state;
    must(HF_ELOST, hf_check(store, "one", 1));
    assert_int_equal(0, holdfastd_restart(&server));
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(0, info("leases_remembered"));
    hf_close(store);
}

/* A server that hangs and comes back: the answer is late, and still the right one. */
static void a_paused_server_is_waited_for(void **state)
{
    hf_store *store = open_at("holdfast://127.0.0.1:%d", server.port);
    hf_options options = with_wait(PATIENCE_MS);
    hf_lock *lock, *other;

    (void)state;
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    assert_int_equal(0, holdfastd_pause(&server));
    options.wait_ms = 100; /* a request has a second at least */
    must(HF_EUNKNOWN, hf_acquire(store, "two", &options, &other));
    assert_int_equal(0, holdfastd_resume(&server));
    must(HF_OK, hf_release(lock));
    /* What was given up as unknown was asked for, and taken back behind it. */
    await_info("leases_remembered", 1, PATIENCE_MS);
    assert_int_equal(0, info("holds"));
    hf_close(store);
}

/* ---- passwords ------------------------------------------------------------------------------- */

static void write_password(char ret_path[256], const char *dir, const char *password)
{
    FILE *file;

    snprintf(ret_path, 256, "%s/password", dir);
    file = fopen(ret_path, "we");
    assert_non_null(file);
    assert_int_equal(0, fchmod(fileno(file), 0600));
    fprintf(file, "%s\n", password);
    assert_int_equal(0, fclose(file));
}

static void a_password_is_asked_for_in_words(void **state)
{
    struct holdfastd guarded;
    char path[256], dir[] = "/tmp/hf-engine.XXXXXX";
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    assert_non_null(mkdtemp(dir));
    write_password(path, dir, "open sesame");
    assert_int_equal(
        0, holdfastd_start(&guarded, (const char *const[]){"--password-file", path, NULL}));
    store = open_at("holdfast://127.0.0.1:%d", guarded.port);
    must(HF_EREFUSED, hf_try(store, "one", &options, &lock));
    must_say("needs a password");
    hf_close(store);
    store = open_at("holdfast://default:close%%20sesame@127.0.0.1:%d", guarded.port);
    must(HF_EREFUSED, hf_try(store, "one", &options, &lock));
    must_say("does not accept this password");
    assert_null(strstr(hf_error(), "sesame"));
    assert_null(strstr(hf_info(store)->url, "sesame"));
    hf_close(store);
    store = open_at("holdfast://default:open%%20sesame@127.0.0.1:%d", guarded.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    hf_close(store);
    store = open_at("holdfast://127.0.0.1:%d?password-file=%s", guarded.port, path);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    hf_close(store);
    setenv("HOLDFAST_PASSWORD", "open sesame", 1);
    store = open_at("holdfast://127.0.0.1:%d", guarded.port);
    unsetenv("HOLDFAST_PASSWORD");
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    hf_close(store);
    holdfastd_stop(&guarded);
    remove(path);
    rmdir(dir);
}

/* ---- URLs ------------------------------------------------------------------------------------ */

/* Its data were lost, and it was started again at the same address. */
static void a_handle_learns_that_the_server_lost_its_data(void **state)
{
    char from[256], to[256], dead[HF_SEQUENCER_MAX], fresh[HF_SEQUENCER_MAX], own[HF_SEQUENCER_MAX];
    hf_store *old = open_at("holdfast://127.0.0.1:%d", server.port), *new;
    hf_options options = with_wait(PATIENCE_MS);
    hf_lock *held, *lock, *mine;

    (void)state;
    must(HF_OK, hf_acquire(old, "held", &options, &held));
    must(HF_OK, hf_lock_sequencer(held, dead, sizeof dead));
    must(HF_OK, hf_check_sequencer(old, dead));
    holdfastd_kill9(&server);
    snprintf(from, sizeof from, "%s/data", server.dir);
    snprintf(to, sizeof to, "%s/lost", server.dir);
    assert_int_equal(0, rename(from, to));
    assert_int_equal(0, holdfastd_restart(&server));
    new = open_at("holdfast://127.0.0.1:%d", server.port);
    must(HF_OK, hf_acquire(new, "held", &options, &lock));
    must(HF_OK, hf_lock_sequencer(lock, fresh, sizeof fresh));
    must(HF_ESTORE, hf_check_sequencer(old, dead));
    must(HF_OK, hf_check_sequencer(old, fresh));
    assert_int_equal(0, hf_lock_left_ms(held)); /* long before it would have been renewed */
    must(HF_OK, hf_acquire(old, "mine", &options, &mine));
    must(HF_OK, hf_lock_sequencer(mine, own, sizeof own));
    must(HF_OK, hf_check_sequencer(new, own));
    must(HF_ELOST, hf_release(held));
    must(HF_OK, hf_release(lock));
    must(HF_OK, hf_release(mine));
    hf_close(old);
    hf_close(new);
}

static void a_prefix_makes_a_store_of_its_own(void **state)
{
    hf_store *a = open_at("holdfast://127.0.0.1:%d?prefix=a%%2a/", server.port);
    hf_store *b = open_at("holdfast://127.0.0.1:%d?prefix=ab/", server.port);
    hf_options options = with_wait(0);
    char text[HF_SEQUENCER_MAX], name[HF_NAME_MAX + 1], stars[301];
    hf_lock *of_a, *of_b, *other;
    hf_report *report;
    hf_store *starry;

    (void)state;
    memset(stars, '*', sizeof stars - 1);
    stars[sizeof stars - 1] = '\0';
    starry = open_at("holdfast://127.0.0.1:%d?prefix=%s", server.port, stars);
    must(HF_OK, hf_try(a, "one", &options, &of_a));
    must(HF_OK, hf_try(b, "one", &options, &of_b));
    must(HF_EBUSY, hf_try(a, "one", &options, &other));
    must(HF_OK, hf_list(a, NULL, &report));
    assert_int_equal(1, hf_report_count(report));
    assert_string_equal("one", hf_report_entry(report, 0)->name);
    assert_true(hf_report_entry(report, 0)->token == hf_lock_token(of_a));
    hf_report_free(report);
    must(HF_OK, hf_lock_sequencer(of_a, text, sizeof text));
    must(HF_OK, hf_check_sequencer(a, text));
    must(HF_ESTORE, hf_check_sequencer(b, text));
    memset(name, 'n', HF_NAME_MAX);
    name[HF_NAME_MAX] = '\0';
    must(HF_EINVAL, hf_try(a, name, &options, &other));
    must_say("prefix");
    name[HF_NAME_MAX - 3] = '\0';
    must(HF_OK, hf_try(a, name, &options, &other));
    /* A prefix too long for a pattern: all names are looked at, and none of them is shown. */
    must(HF_OK, hf_list(starry, NULL, &report));
    assert_int_equal(0, hf_report_count(report));
    hf_report_free(report);
    must(HF_OK, hf_release(other));
    must(HF_OK, hf_release(of_a));
    must(HF_OK, hf_release(of_b));
    hf_close(starry);
    hf_close(a);
    hf_close(b);
}

static void a_unix_socket_will_do(void **state)
{
    hf_store *stores[] = {open_at("holdfast+unix://%s", server.socket),
                          open_at("holdfast+unix:%s?ttl=5s", server.socket)};
    hf_options options = HF_OPTIONS_INIT;

    (void)state;
    for (int i = 0; i < 2; i++) {
        hf_lock *lock;

        must(HF_OK, hf_try(stores[i], "one", &options, &lock));
        assert_true(hf_lock_left_ms(lock) <= (i ? 5000 : 30000));
        assert_non_null(strstr(hf_info(stores[i])->where, server.socket));
        must(HF_OK, hf_release(lock));
        hf_close(stores[i]);
    }
}

static void urls_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *url, *words;
    } wrong[] = {
        {"holdfast://127.0.0.1?ca-file=/etc/ca.pem", "TLS"},
        {"holdfast://127.0.0.1/0", "prefix"},
        {"holdfast://u:p/w@127.0.0.1", "%2F"},
        {"holdfast://127.0.0.1,", "host is missing"},
        {"holdfast://,127.0.0.1", "host is missing"},
        {"holdfast://127.0.0.1:0", "port"},
        {"holdfast:127.0.0.1", "//host"},
        {"holdfast+unix:relative", "path"},
        {"holdfast://127.0.0.1?timeout=1ms", "timeout"},
        {"holdfast://127.0.0.1?db=1", "db"},
        {"holdfast://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hf_store *store = NULL;

        must(HF_EINVAL, hf_open(wrong[i].url, &store));
        must_say(wrong[i].words);
        assert_null(store);
    }
}

/* Under a sanitizer this is where the server's own leaks would show. It ends with work left over: a hold,
 * and somebody in the queue. */
static void after_its_work_the_server_ends_in_order(void **state)
{
    hf_store *store = open_at("holdfast://127.0.0.1:%d", server.port);
    hf_options options = with_wait(HF_FOREVER);
    _Atomic int ends = 0;
    hf_lock *lock;

    (void)state;
    for (int i = 0; i < 100; i++) {
        must(HF_OK, hf_acquire(store, "often", NULL, &lock));
        must(HF_OK, hf_release(lock));
    }
    hold_aside("held");
    must(HF_OK, hf_acquire_start(store, "held", &options, count_ends, (void *)&ends, NULL));
    await_info("waiting_places", 1, PATIENCE_MS);
    assert_int_equal(0, holdfastd_terminate(&server));
    hf_close(store);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, start_server, stop_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_queue_keeps_its_order_when_the_server_is_killed),
        TEST(a_thousand_wait_on_one_connection),
        TEST(an_observer_is_told_across_a_restart),
        TEST(a_lost_answer_is_settled),
        TEST(adopted_holds_are_renewed_together),
        TEST(a_dead_connection_is_seen_before_it_is_used),
        TEST(a_paused_server_is_waited_for),
        TEST(a_broken_holder_is_told_before_its_next_renewal),
        cmocka_unit_test(a_password_is_asked_for_in_words),
        TEST(a_handle_learns_that_the_server_lost_its_data),
        TEST(a_prefix_makes_a_store_of_its_own),
        TEST(a_unix_socket_will_do),
        TEST(after_its_work_the_server_ends_in_order),
        cmocka_unit_test(urls_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
