/* test_clusters.c: a server that belongs to no cluster teaches nobody which cluster is his own, and lets nobody forget it: by servers that say
 * what the test wants. */
#include "fake.h"
#include "tools.h"

#include <pthread.h>
#include <stdio.h>

#define WAIT_MS 2000 /* several rounds of a search */
#define ANOTHER_CLUSTER "ffffffffffffffffffffffffffffffff"
#define NO_LEADER "-TRYAGAIN there is no leader at the moment\r\n"

struct asking {
    hf_store *store;
    const char *name;
    int result;
};

static void *acquire(void *arg)
{
    struct asking *asking = arg;
    hf_options options = with_wait(WAIT_MS);
    hf_lock *lock;

    asking->result = hf_acquire(asking->store, asking->name, &options, &lock);
    if (asking->result == HF_OK)
        hf_release(lock);
    return NULL;
}

static enum fake_verdict send_on(const struct fake *fake, char *ret_reply)
{
    snprintf(ret_reply, FAKE_REPLY_MAX, "-MOVED 0 127.0.0.1:%d\r\n", *(const int *)fake->context);
    return FAKE_ANSWERS;
}

/* It is founded as soon as it has been greeted, and its leader, whom the context has, is at the address of another cluster. */
static enum fake_verdict is_founded_and_sends_on(struct fake *fake,
                                                 const struct fake_command *command,
                                                 char *ret_reply)
{
    (void)command;
    fake->cluster = NULL;
    return send_on(fake, ret_reply);
}

/* others: of the URL. */
static int ask_a_newcomer(const char *leads_cluster, const char *others, int *ret_asked)
{
    struct fake leader = {.script = fake_obliging, .role = "master", .cluster = leads_cluster};
    struct fake newcomer = {.script = is_founded_and_sends_on,
                            .role = "replica",
                            .cluster = "",
                            .context = &leader.port};
    struct asking asking = {.name = "job"};

    fake_start(&leader);
    fake_start(&newcomer);
    asking.store = open_at("holdfast://127.0.0.1:%d%s", newcomer.port, others);
    acquire(&asking);
    *ret_asked = fake_count(&leader, "ACQUIRE");
    hf_close(asking.store);
    fake_stop(&newcomer);
    fake_stop(&leader);
    return asking.result;
}

static const char alone[] = "", with_one_that_is_away[] = ",127.0.0.1:1";

static void a_server_that_was_of_no_cluster_sends_nobody_into_another(void **state)
{
    int asked;

    (void)state;
    assert_int_not_equal(HF_OK, ask_a_newcomer(ANOTHER_CLUSTER, alone, &asked));
    assert_int_equal(0, asked);
    assert_int_not_equal(HF_OK, ask_a_newcomer(ANOTHER_CLUSTER, with_one_that_is_away, &asked));
    assert_int_equal(0, asked);
}

static void a_server_that_was_of_no_cluster_sends_us_to_its_leader(void **state)
{
    int asked;

    (void)state;
    assert_int_equal(HF_OK, ask_a_newcomer(NULL, alone, &asked));
    assert_int_equal(HF_OK, ask_a_newcomer(NULL, with_one_that_is_away, &asked));
}

/* ---- comes back empty ------------------------------------------------------------------------ */

static enum fake_verdict follows(struct fake *fake, const struct fake_command *command,
                                 char *ret_reply)
{
    (void)command;
    if (fake->cluster)
        return fake_reply(ret_reply, NO_LEADER);
    return send_on(fake, ret_reply);
}

/* What it is asked for by this name it answers when the test says so. */
static enum fake_verdict is_slow_with_two(struct fake *fake, const struct fake_command *command,
                                          char *ret_reply)
{
    (void)fake;
    if (fake_is(command, "ACQUIRE") && fake_has(command, "two"))
        return FAKE_IS_SILENT;
    return fake_usual(command, ret_reply);
}

/* The only server of the URL, asked whether its leader still is one, has lost its disk. Then that leader sends us on, to where a server of another cluster
 * is by now. */
static void a_server_that_comes_back_empty_makes_nobody_forget_his_cluster(void **state)
{
    struct fake stranger = {.script = fake_obliging, .role = "master", .cluster = ANOTHER_CLUSTER};
    struct fake leader = {.script = is_slow_with_two, .role = "master"};
    struct fake only = {.script = follows, .role = "replica", .context = &leader.port};
    struct asking asking = {.name = "one"};
    char moved[64];
    pthread_t thread;
    int checks;

    (void)state;
    fake_start(&stranger);
    fake_start(&leader);
    fake_start(&only);
    asking.store = open_at("holdfast://127.0.0.1:%d", only.port);
    acquire(&asking);
    must(HF_OK, asking.result);
    checks = fake_count(&only, "CHECK");
    pthread_mutex_lock(&only.mutex);
    only.cluster = "";
    pthread_mutex_unlock(&only.mutex);
    asking.name = "two";
    assert_int_equal(0, pthread_create(&thread, NULL, acquire, &asking));
    fake_await(&leader, "ACQUIRE", 2);
    fake_await(&only, "CHECK", checks + 1);
    snprintf(moved, sizeof moved, "-MOVED 0 127.0.0.1:%d\r\n", stranger.port);
    fake_say(&leader, moved);
    pthread_join(thread, NULL);
    assert_int_not_equal(HF_OK, asking.result);
    assert_true(fake_accepted(&stranger) > 0);
    assert_int_equal(0, fake_count(&stranger, "ACQUIRE"));
    hf_close(asking.store);
    fake_stop(&only);
    fake_stop(&leader);
    fake_stop(&stranger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_was_of_no_cluster_sends_nobody_into_another),
        cmocka_unit_test(a_server_that_was_of_no_cluster_sends_us_to_its_leader),
        cmocka_unit_test(a_server_that_comes_back_empty_makes_nobody_forget_his_cluster),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
