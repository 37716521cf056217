/* test_cluster.c: the holdfast engine on a cluster of three, while its leader is killed, or stopped in the
 * middle of whatever it does, or told to go. */
#include "tools.h"
#include "watching.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_MS 4000 /* an election, and less than any look of a client that was not told (5 s) */
#define URL_SIZE 256

static struct cluster cluster;

static int start_cluster(void **state)
{
    (void)state;
    return cluster_start(&cluster);
}

static int stop_cluster(void **state)
{
    (void)state;
    cluster_stop(&cluster);
    return 0;
}

/* Before each test: all nodes run, whatever the one before has done to them. */
static int mend(void **state)
{
    (void)state;
    for (int i = 0; i < CLUSTER_NODES; i++) {
        struct holdfastd *node = &cluster.nodes[i];

        if (node->paused ? holdfastd_resume(node) < 0
                         : node->pid <= 0 && holdfastd_begin_again(node) < 0)
            return -1;
    }
    return cluster_await(&cluster);
}

/* ---- tools ----------------------------------------------------------------------------------- */

enum fall { KILLED, PAUSED, TOLD_TO_GO };
static const char *const fall_words[] = {"killed", "paused", "told to go"};

static void fall(int node, enum fall how)
{
    if (how == KILLED)
        holdfastd_kill9(&cluster.nodes[node]);
    else if (how == PAUSED)
        assert_int_equal(0, holdfastd_pause(&cluster.nodes[node]));
    else
        assert_int_equal(0, holdfastd_terminate(&cluster.nodes[node]));
}

static int leader(void)
{
    int found = cluster_await_leader(&cluster);

    assert_true(found >= 0);
    return found;
}

static int after(int node)
{
    return (node + 1) % CLUSTER_NODES;
}

static hf_store *open_all(int first)
{
    char url[URL_SIZE];

    cluster_url(&cluster, first, url, sizeof url);
    return open_at("%s", url);
}

/* By name, which is looked up again for each connection; the servers send us on by number. */
static hf_store *open_by_name(int first)
{
    return open_at("holdfast://localhost:%d,localhost:%d,localhost:%d", cluster.nodes[first].port,
                   cluster.nodes[after(first)].port, cluster.nodes[after(after(first))].port);
}

static hf_lock *must_hold(hf_store *store, const char *name, int64_t ttl_ms)
{
    hf_options options = with_wait(PATIENCE_MS);
    hf_lock *lock;

    options.ttl_ms = ttl_ms;
    must(HF_OK, hf_acquire(store, name, &options, &lock));
    return lock;
}

/* ---- queues ---------------------------------------------------------------------------------- */

#define QUEUE 8

/* Two handles, in turn, so that order is not that of one connection. */
static void keep_the_order(enum fall how, hf_store *(*open)(int first))
{
    struct line line = LINE_INIT;
    hf_store *stores[2] = {open(0), open(1)};
    hf_options options = with_wait(HF_FOREVER);
    struct place places[QUEUE];
    int first = leader(), next;
    int64_t fell_ms;
    char reply[64];

    assert_int_equal(0, HOLDFASTD_DO(&cluster.nodes[first], NULL, 0, "ACQUIRE", "queue", "aside",
                                     "TTL", "3600000"));
    for (int i = 0; i < QUEUE; i++) {
        places[i] = (struct place){&line, i};
        must(HF_OK, hf_acquire_start(stores[i % 2], "queue", &options, came_in, &places[i], NULL));
        await_info_of(&cluster.nodes[first], "waiting", i + 1, PATIENCE_MS);
    }
    fell_ms = now_ms();
    fall(first, how);
    next = leader();
    assert_int_not_equal(first, next);
    /* Places are kept by their leases, and everybody comes back to his own, to be told. */
    assert_int_equal(QUEUE, info_of(&cluster.nodes[next], "waiting"));
    await_info_of(&cluster.nodes[next], "waiting_places", QUEUE, fell_ms + PROMPT_MS - now_ms());
    assert_int_equal(QUEUE, info_of(&cluster.nodes[next], "waiting"));
    assert_int_equal(
        0, HOLDFASTD_DO(&cluster.nodes[next], reply, sizeof reply, "RELEASE", "queue", "aside"));
    assert_string_equal("1", reply);
    await_line(&line, QUEUE);
    for (int i = 0; i < QUEUE; i++)
        assert_int_equal(i, line.order[i]);
    hf_close(stores[0]);
    hf_close(stores[1]);
}

static void the_queue_keeps_its_order_when_the_leader_is_killed(void **state)
{
    (void)state;
    keep_the_order(KILLED, open_all);
}

static void the_queue_keeps_its_order_by_name(void **state)
{
    (void)state;
    keep_the_order(PAUSED, open_by_name);
}

static void the_queue_keeps_its_order_when_the_leader_is_paused(void **state)
{
    (void)state;
    keep_the_order(PAUSED, open_all);
}

static void the_queue_keeps_its_order_when_the_leader_goes(void **state)
{
    (void)state;
    keep_the_order(TOLD_TO_GO, open_all);
}

/* ---- holds ----------------------------------------------------------------------------------- */

#define KEPT_TTL_MS 6000

/* A leader that takes a renewal and says nothing: it is renewed at the next one, long before its end. */
static void a_hold_outlives_a_paused_leader(void **state)
{
    hf_store *store = open_all(0), *another;
    hf_lock *lock = must_hold(store, "kept", KEPT_TTL_MS);
    struct pollfd lost = {.fd = hf_lock_lost_fd(lock), .events = POLLIN};
    int64_t until_ms = now_ms() + KEPT_TTL_MS + 1000;
    int paused = leader(), next, idle;

    (void)state;
    fall(paused, PAUSED);
    while (now_ms() < until_ms) {
        assert_int_equal(0, poll(&lost, 1, 20));
        assert_true(hf_lock_left_ms(lock) > KEPT_TTL_MS / 3);
    }
    next = leader();
    another = open_all(next);
    must(HF_OK, hf_check(another, "kept", hf_lock_token(lock)));
    idle = CLUSTER_NODES - paused - next; /* 0 + 1 + 2 */
    await_info_of(&cluster.nodes[idle], "connected_clients", 1,
                  PATIENCE_MS); /* the one that asks */
    must(HF_OK, hf_release(lock));
    hf_close(another);
    hf_close(store);
}

#define SHORT_TTL_MS 2000
#define CALLED_LATE_MS 1000 /* on a busy machine, by a thread that has to get its turn */

static void note_time(hf_lock *lock, void *arg)
{
    (void)lock;
    atomic_store((_Atomic int64_t *)arg, now_ms());
}

/* One node without the others, whether it led or not: what was held is lost in time, whoever looks then, and nothing is
 * given, also not while it believes that it leads. */
static void be_alone(bool led)
{
    hf_store *store = open_all(0), *another = open_all(1);
    hf_options holding = with_wait(PATIENCE_MS), options = with_wait(0);
    int left = led ? leader() : after(leader()), result;
    hf_lock *lock, *other = NULL;
    _Atomic int64_t lost_ms = 0;
    int64_t alone_ms;

    holding.ttl_ms = options.ttl_ms = SHORT_TTL_MS;
    holding.on_lost = note_time;
    holding.arg = (void *)&lost_ms;
    must(HF_ELOST, hf_check(another, "connected", 1));
    must(HF_OK, hf_acquire(store, "alone", &holding, &lock));
    fall(after(left), PAUSED);
    fall(after(after(left)), PAUSED);
    alone_ms = now_ms();
    result = hf_try(another, "nobody has it", &options, &other);
    assert_true(result == HF_EUNREACH || result == HF_EUNKNOWN);
    assert_null(other);
    while (now_ms() <= alone_ms + SHORT_TTL_MS)
        poll(NULL, 0, 10);
    assert_int_equal(0, hf_lock_left_ms(lock));
    assert_int_equal(
        1, poll(&(struct pollfd){.fd = hf_lock_lost_fd(lock), .events = POLLIN}, 1, PATIENCE_MS));
    must(HF_ELOST, hf_release(lock)); /* when it returns, on_lost has run */
    assert_true(lost_ms != 0 && lost_ms - alone_ms <= SHORT_TTL_MS + CALLED_LATE_MS);
    assert_int_equal(0, mend(NULL));
    /* What is unknown may come true now, and ends with its TTL. */
    must(HF_OK, hf_release(must_hold(another, "nobody has it", TTL_MS)));
    hf_close(another);
    hf_close(store);
}

static void a_leader_alone_gives_nothing(void **state)
{
    (void)state;
    be_alone(true);
}

static void a_follower_alone_gives_nothing(void **state)
{
    (void)state;
    be_alone(false);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void reach_without(enum fall how)
{
    int away = after(leader());
    hf_store *store;
    int64_t began_ms;

    fall(away, how);
    began_ms = now_ms();
    store = open_all(away);
    must(HF_OK, hf_release(must_hold(store, "reached", TTL_MS)));
    print_message("             (reached in %d ms)\n", (int)(now_ms() - began_ms));
    assert_true(now_ms() - began_ms < 2000); /* and not after timeout= */
    hf_close(store);
}

static void a_first_address_that_is_dead_costs_little(void **state)
{
    (void)state;
    reach_without(KILLED);
}

static void a_first_address_that_is_paused_costs_little(void **state)
{
    (void)state;
    reach_without(PAUSED);
}

/* It says who leads, and who leads then. */
static void one_follower_in_the_url_will_do(void **state)
{
    int first = leader(), follower = after(first);
    hf_store *store = open_at("holdfast://127.0.0.1:%d", cluster.nodes[follower].port);
    hf_lock *lock = must_hold(store, "from afar", TTL_MS);

    (void)state;
    fall(first, KILLED);
    must(HF_OK, hf_renew(lock));
    must(HF_OK, hf_release(lock));
    must(HF_OK, hf_release(must_hold(store, "from afar", TTL_MS)));
    hf_close(store);
}

/* ---- how long it takes ----------------------------------------------------------------------- */

/* Takes a lock and lets it go, over and over. */
struct busy {
    hf_store *store;
    _Atomic bool stop;
    _Atomic int grants, failures;
    _Atomic int64_t last_ms, worst_ms; /* the last grant, and the longest time without one */
};

static void *be_busy(void *arg)
{
    struct busy *busy = arg;
    hf_options options = with_wait(PATIENCE_MS);
    hf_lock *lock;

    while (!atomic_load(&busy->stop)) {
        int64_t without_ms;

        if (hf_acquire(busy->store, "busy", &options, &lock) != HF_OK) {
            atomic_fetch_add(&busy->failures, 1);
            continue;
        }
        without_ms = now_ms() - atomic_load(&busy->last_ms);
        if (without_ms > atomic_load(&busy->worst_ms))
            atomic_store(&busy->worst_ms, without_ms);
        atomic_store(&busy->last_ms, now_ms());
        atomic_fetch_add(&busy->grants, 1);
        if (hf_release(lock) != HF_OK)
            atomic_fetch_add(&busy->failures, 1);
    }
    return NULL;
}

static void await_grants(struct busy *busy, int more)
{
    int wanted = atomic_load(&busy->grants) + more;
    int64_t deadline_ms = now_ms() + PATIENCE_MS;

    while (atomic_load(&busy->grants) < wanted) {
        if (now_ms() > deadline_ms)
            fail_msg("nothing was granted any more");
        poll(NULL, 0, 1);
    }
}

static int compare(const void *a, const void *b)
{
    return (int)(*(const int64_t *)a - *(const int64_t *)b);
}

#define TIMES 7

/* Ends with a median that is far below what would do harm, and above what a busy machine makes of it. */
static void measure(enum fall how, int64_t most_ms)
{
    struct busy busy = {.store = open_all(0)};
    int64_t spans_ms[TIMES];
    pthread_t thread;

    assert_int_equal(0, pthread_create(&thread, NULL, be_busy, &busy));
    for (int i = 0; i < TIMES; i++) {
        await_grants(&busy, 10);
        atomic_store(&busy.worst_ms, 0);
        fall(leader(), how);
        leader();
        await_grants(&busy, 10);
        spans_ms[i] = atomic_load(&busy.worst_ms);
        assert_int_equal(0, mend(NULL));
    }
    atomic_store(&busy.stop, true);
    pthread_join(thread, NULL);
    hf_close(busy.store);
    qsort(spans_ms, TIMES, sizeof *spans_ms, compare);
    print_message(
        "             (leader %s: the longest time without a grant was %d ms, %d to %d)\n",
        fall_words[how], (int)spans_ms[TIMES / 2], (int)spans_ms[0], (int)spans_ms[TIMES - 1]);
    assert_int_equal(0, atomic_load(&busy.failures));
    assert_true(spans_ms[TIMES / 2] < most_ms);
}

static void a_killed_leader_is_missed_for_a_moment(void **state)
{
    (void)state;
    measure(KILLED, 5000);
}

static void a_paused_leader_is_missed_for_a_moment(void **state)
{
    (void)state;
    measure(PAUSED, 5000);
}

static void a_leader_that_goes_is_hardly_missed(void **state)
{
    (void)state;
    measure(TOLD_TO_GO, 600); /* without an election */
}

/* ---- told of a loss --------------------------------------------------------------------------- */

/* What the old leader knew of connections is gone with it; the next renewal tells the new one. */
static void a_broken_holder_is_told_by_the_next_leader(void **state)
{
    hf_store *store = open_all(0);
    hf_lock *lock = must_hold(store, "broken", TTL_MS);
    struct pollfd lost = {.fd = hf_lock_lost_fd(lock), .events = POLLIN};

    (void)state;
    fall(leader(), KILLED);
    must(HF_OK, hf_renew(lock));
    assert_int_equal(0, HOLDFASTD_DO(&cluster.nodes[leader()], NULL, 0, "BREAK", "broken", "NOW"));
    assert_int_equal(1, poll(&lost, 1, PROMPT_MS));
    must(HF_ELOST, hf_release(lock));
    hf_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_queue_keeps_its_order_when_the_leader_is_killed, mend),
        cmocka_unit_test_setup(the_queue_keeps_its_order_by_name, mend),
        cmocka_unit_test_setup(the_queue_keeps_its_order_when_the_leader_is_paused, mend),
        cmocka_unit_test_setup(the_queue_keeps_its_order_when_the_leader_goes, mend),
        cmocka_unit_test_setup(a_hold_outlives_a_paused_leader, mend),
        cmocka_unit_test_setup(a_leader_alone_gives_nothing, mend),
        cmocka_unit_test_setup(a_follower_alone_gives_nothing, mend),
        cmocka_unit_test_setup(a_first_address_that_is_dead_costs_little, mend),
        cmocka_unit_test_setup(a_first_address_that_is_paused_costs_little, mend),
        cmocka_unit_test_setup(one_follower_in_the_url_will_do, mend),
        cmocka_unit_test_setup(a_broken_holder_is_told_by_the_next_leader, mend),
        cmocka_unit_test_setup(a_killed_leader_is_missed_for_a_moment, mend),
        cmocka_unit_test_setup(a_paused_leader_is_missed_for_a_moment, mend),
        cmocka_unit_test_setup(a_leader_that_goes_is_hardly_missed, mend),
    };

    return cmocka_run_group_tests(tests, start_cluster, stop_cluster);
}
