/* test_anyone.c: what any server answers, leader or not, is asked on the connection of a handle that wants locks, too: by servers that say what
 * the test wants. */
#include "fake.h"
#include "tools.h"

#include <holdfast/cluster.h>
#include <pthread.h>
#include <stdatomic.h>

#define WAIT_MS 3000
#define THREADS 8

/* CLUSTER STATUS of one node that has no leader. */
#define STATUS_OF_ONE                                                                           \
    "%4\r\n$2\r\nid\r\n:1\r\n$6\r\nleader\r\n:0\r\n$4\r\nterm\r\n:3\r\n$7\r\nmembers\r\n*1\r\n" \
    "%2\r\n$2\r\nid\r\n:1\r\n$4\r\npeer\r\n$11\r\n127.0.0.1:1\r\n"

static void must_know_one(hf_store *store)
{
    hf_cluster *cluster;

    must(HF_OK, hf_cluster_status(store, 0, &cluster));
    assert_int_equal(1, hf_cluster_about(cluster)->member_count);
    hf_cluster_free(cluster);
}

struct asking {
    hf_store *store;
    int result;
    atomic_bool over;
};

static void *acquire(void *arg)
{
    struct asking *asking = arg;
    hf_options options = with_wait(WAIT_MS);
    hf_lock *lock;

    asking->result = hf_acquire(asking->store, "job", &options, &lock);
    if (asking->result == HF_OK)
        hf_release(lock);
    atomic_store(&asking->over, true);
    return NULL;
}

static void *check(void *arg)
{
    struct asking *asking = arg;

    asking->result = hf_check(asking->store, "one", 7);
    return NULL;
}

/* ---- a server of no cluster ------------------------------------------------------------------ */

/* It is founded as soon as it has been greeted, and then it leads. */
static enum fake_verdict leads_by_now(struct fake *fake, const struct fake_command *command,
                                      char *ret_reply)
{
    (void)fake;
    return fake_is(command, "CLUSTER") ? fake_reply(ret_reply, STATUS_OF_ONE)
                                       : fake_usual(command, ret_reply);
}

/* What it leads is another cluster, perhaps: it is asked for its status, and never for a lock. */
static void a_server_that_was_of_no_cluster_gives_no_lock(void **state)
{
    struct fake ours = {.script = fake_obliging, .role = "master"};
    struct fake other = {.script = leads_by_now, .role = "replica", .cluster = ""};
    struct asking asking = {.result = HF_OK};
    hf_options options = with_wait(0);
    pthread_t thread;
    hf_lock *lock;

    (void)state;
    fake_start(&ours);
    fake_start(&other);
    asking.store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", ours.port, other.port);
    must(HF_OK, hf_try(asking.store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    fake_stop(&ours);
    assert_int_equal(0, pthread_create(&thread, NULL, acquire, &asking));
    while (!atomic_load(&asking.over))
        must_know_one(asking.store);
    pthread_join(thread, NULL);
    assert_int_not_equal(HF_OK, asking.result);
    assert_int_equal(0, fake_count(&other, "ACQUIRE"));
    assert_true(fake_count(&other, "CLUSTER") > 0);
    hf_close(asking.store);
    fake_stop(&other);
}

/* ---- status beside locks --------------------------------------------------------------------- */

static enum fake_verdict has_no_leader(struct fake *fake, const struct fake_command *command,
                                       char *ret_reply)
{
    (void)fake;
    return fake_reply(ret_reply, fake_is(command, "CLUSTER")
                                     ? STATUS_OF_ONE
                                     : "-TRYAGAIN there is no leader at the moment\r\n");
}

static void those_who_wait_for_a_leader_keep_nobody_from_asking_why(void **state)
{
    struct fake fake = {.script = has_no_leader, .role = "replica"};
    struct asking askings[THREADS];
    pthread_t threads[THREADS];
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    for (int i = 0; i < THREADS; i++) {
        askings[i] = (struct asking){.store = store};
        assert_int_equal(0, pthread_create(&threads[i], NULL, acquire, &askings[i]));
    }
    while (!atomic_load(&askings[0].over))
        must_know_one(store);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(0, fake_count(&fake, "ACQUIRE"));
    hf_close(store);
    fake_stop(&fake);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void ignore_change(hf_observer *observer, const hf_report *now, void *arg)
{
    (void)observer;
    (void)now;
    (void)arg;
}

/* Its answer to a question comes together with what it is told next, and says that it leads no more; the next connection is served. */
static enum fake_verdict leads_no_more(struct fake *fake, const struct fake_command *command,
                                       char *ret_reply)
{
    if (fake->accepted > 1)
        return fake_usual(command, ret_reply);
    if (fake_is(command, "UNOBSERVE"))
        return fake_reply(ret_reply, "-TRYAGAIN there is no leader at the moment\r\n");
    if (fake_is(command, "CHECK") && *(atomic_bool *)fake->context)
        return FAKE_IS_SILENT;
    return fake_usual(command, ret_reply);
}

/* Nobody waits for the answer to UNOBSERVE, so nobody would read it. */
static void a_server_that_leads_no_more_is_left_though_it_owes_an_answer(void **state)
{
    atomic_bool over = false;
    struct fake fake = {.script = leads_no_more, .role = "master", .context = &over};
    struct asking asking = {.result = HF_OK};
    hf_observer *observer;
    pthread_t thread;

    (void)state;
    fake_start(&fake);
    asking.store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_check(asking.store, "one", 7));
    must(HF_OK, hf_observe(asking.store, "two", ignore_change, NULL, &observer));
    fake_await(&fake, "SHOW", 1);
    atomic_store(&over, true);
    assert_int_equal(0, pthread_create(&thread, NULL, check, &asking));
    fake_await(&fake, "CHECK", 2);
    hf_observer_stop(observer);
    pthread_join(thread, NULL);
    assert_int_equal(HF_OK, asking.result);
    must(HF_OK, hf_check(asking.store, "one", 7));
    hf_close(asking.store);
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_was_of_no_cluster_gives_no_lock),
        cmocka_unit_test(those_who_wait_for_a_leader_keep_nobody_from_asking_why),
        cmocka_unit_test(a_server_that_leads_no_more_is_left_though_it_owes_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
