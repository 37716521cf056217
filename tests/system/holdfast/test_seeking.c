/* test_seeking.c: how the holdfast engine finds the server that leads, by servers that say what the test wants:
 * one that says nothing, one that sends us on, one that has no leader. */
#include "fake.h"
#include "tools.h"

#include <holdfast/cluster.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define PROMPT_MS 2000 /* before timeout=, after which any silent server is left */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- scripts --------------------------------------------------------------------------------- */

/* Sends everybody to the port in its context. */
static enum fake_verdict sends_on(struct fake *fake, const struct fake_command *command,
                                  char *ret_reply)
{
    (void)command;
    snprintf(ret_reply, FAKE_REPLY_MAX, "-MOVED 0 127.0.0.1:%d\r\n", *(const int *)fake->context);
    return FAKE_ANSWERS;
}

/* Takes acquisitions and says nothing. */
static enum fake_verdict swallows(struct fake *fake, const struct fake_command *command,
                                  char *ret_reply)
{
    (void)fake;
    return fake_is(command, "ACQUIRE") ? FAKE_IS_SILENT : fake_usual(command, ret_reply);
}

static enum fake_verdict swallows_releases(struct fake *fake, const struct fake_command *command,
                                           char *ret_reply)
{
    (void)fake;
    return fake_is(command, "RELEASE") ? FAKE_IS_SILENT : fake_usual(command, ret_reply);
}

/* The context counts down the questions until which it has no leader; then it leads itself. */
static enum fake_verdict leads_later(struct fake *fake, const struct fake_command *command,
                                     char *ret_reply)
{
    int *left = fake->context;

    if (*left > 0) {
        (*left)--;
        return fake_reply(ret_reply, "-TRYAGAIN there is no leader at the moment\r\n");
    }
    return fake_usual(command, ret_reply);
}

/* ---- a search -------------------------------------------------------------------------------- */

/* A server that says in its greeting that it does not lead is not asked for locks. */
static void only_the_leader_is_asked(void **state)
{
    struct fake leader = {.script = fake_obliging, .role = "master"};
    struct fake follower = {.script = sends_on, .role = "replica", .context = &leader.port};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&leader);
    fake_start(&follower);
    store = open_at("holdfast://127.0.0.1:%d", follower.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(0, fake_count(&follower, "ACQUIRE"));
    assert_int_equal(1, fake_count(&leader, "ACQUIRE"));
    assert_int_equal(0, fake_count(&leader, "END"));
    fake_await_left(&follower); /* and is not kept waiting on the line */
    assert_int_equal(1, fake_accepted(&leader));
    hf_close(store);
    fake_stop(&follower);
    fake_stop(&leader);
}

/* A server that takes connections and says nothing is not waited for: nobody stands behind it. */
static void a_deaf_server_holds_nobody_up(void **state)
{
    struct fake deaf = {.script = fake_obliging, .deaf = true}, good = {.script = fake_obliging};
    hf_options options = with_wait(0);
    int64_t began_ms = now_ms();
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&deaf);
    fake_start(&good);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", deaf.port, good.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_true(now_ms() - began_ms < PROMPT_MS);
    must(HF_OK, hf_release(lock));
    fake_await_left(&deaf);
    hf_close(store);
    fake_stop(&deaf);
    fake_stop(&good);
}

/* Sent to somebody who is not there, we go back to those whom we know, and ask again. */
static void a_wrong_direction_is_no_dead_end(void **state)
{
    int nobody = 1, left = 3;
    struct fake lost = {.script = sends_on, .role = "replica", .context = &nobody};
    struct fake next = {.script = leads_later, .role = "replica", .context = &left};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&lost);
    fake_start(&next);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", lost.port, next.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_count(&next, "ACQUIRE"));
    assert_int_equal(1, fake_accepted(&next)); /* the same connection, asked again and again */
    assert_int_equal(4, fake_count(&next, "CHECK"));
    hf_close(store);
    fake_stop(&lost);
    fake_stop(&next);
}

/* One node whose password is another does not spoil the rest; if there is no rest, it is said at once. */
static void a_refusal_counts_when_nobody_serves(void **state)
{
    struct fake stranger = {.script = fake_obliging, .hello = "redis"};
    struct fake good = {.script = fake_obliging};
    hf_options options = with_wait(0);
    int64_t began_ms = now_ms();
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&stranger);
    fake_start(&good);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", stranger.port, good.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    hf_close(store);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:1", stranger.port);
    must(HF_EREFUSED, hf_try(store, "one", &options, &lock));
    must_say("calls itself 'redis'");
    assert_true(now_ms() - began_ms < PROMPT_MS);
    hf_close(store);
    fake_stop(&stranger);
    fake_stop(&good);
}

/* CLUSTER STATUS of one node that has no leader. */
#define STATUS_ALONE                                                                            \
    "%4\r\n$2\r\nid\r\n:1\r\n$6\r\nleader\r\n:0\r\n$4\r\nterm\r\n:3\r\n$7\r\nmembers\r\n*1\r\n" \
    "%2\r\n$2\r\nid\r\n:1\r\n$4\r\npeer\r\n$11\r\n127.0.0.1:1\r\n"

static enum fake_verdict has_no_leader(struct fake *fake, const struct fake_command *command,
                                       char *ret_reply)
{
    (void)fake;
    return fake_reply(ret_reply, fake_is(command, "CLUSTER")
                                     ? STATUS_ALONE
                                     : "-TRYAGAIN there is no leader at the moment\r\n");
}

static enum fake_verdict hangs_up(struct fake *fake, const struct fake_command *command,
                                  char *ret_reply)
{
    (void)fake;
    (void)command;
    (void)ret_reply;
    return FAKE_HANGS_UP;
}

/* What a server has to say is worth more than that another one cannot be reached. */
static void the_word_of_a_server_is_passed_on(void **state)
{
    struct fake speaks = {.script = has_no_leader, .role = "replica"};
    struct fake mute = {.script = hangs_up, .role = "replica"};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&speaks);
    fake_start(&mute);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d?timeout=500ms", speaks.port, mute.port);
    must(HF_EUNREACH, hf_try(store, "one", &options, &lock));
    must_say("there is no leader");
    hf_close(store);
    fake_stop(&speaks);
    fake_stop(&mute);
}

/* What anybody may answer is answered by somebody who does not lead, when nobody does. */
static void without_a_leader_anyone_may_be_asked(void **state)
{
    struct fake fake = {.script = has_no_leader, .role = "replica"};
    hf_options options = with_wait(0);
    hf_cluster *cluster;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d?timeout=500ms", fake.port);
    must(HF_OK, hf_cluster_status(store, 0, &cluster));
    assert_int_equal(0, hf_cluster_about(cluster)->leader);
    assert_int_equal(1, hf_cluster_about(cluster)->member_count);
    hf_cluster_free(cluster);
    must(HF_EUNREACH, hf_try(store, "one", &options, &lock));
    must_say("there is no leader");
    hf_close(store);
    fake_stop(&fake);
}

/* ---- doubt ----------------------------------------------------------------------------------- */

/* The old leader has stopped in the middle of a request; the others have a new one, which is not in the URL. */
static void a_silent_server_is_left_for_the_leader(void **state)
{
    struct fake old = {.script = swallows, .role = "master"};
    struct fake leader = {.script = fake_obliging, .role = "master"};
    struct fake follower = {.script = sends_on, .role = "replica", .context = &leader.port};
    hf_options options = with_wait(0);
    int64_t began_ms = now_ms();
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&old);
    fake_start(&leader);
    fake_start(&follower);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", old.port, follower.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_true(now_ms() - began_ms < PROMPT_MS);
    assert_string_equal(fake_command(&old, "ACQUIRE", 0).words[2],
                        fake_command(&leader, "ACQUIRE", 0).words[2]);
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_count(&leader, "END")); /* the first one may still be carried out */
    fake_await_left(&old);
    hf_close(store);
    fake_stop(&old);
    fake_stop(&leader);
    fake_stop(&follower);
}

struct late {
    struct fake *fake;
    const char *word, *answer;
};

static void *answer_late(void *arg)
{
    const struct late *late = arg;
    struct timespec span = {.tv_nsec = 600000000};

    fake_await(late->fake, late->word, 1);
    nanosleep(&span, NULL);
    fake_say(late->fake, late->answer);
    return NULL;
}

/* Slow is not dead: while the others say that it leads, its answer is waited for, and nothing is lost. What
 * is asked meanwhile waits too: another server might have to be asked instead. */
static void a_slow_leader_is_not_left(void **state)
{
    struct fake slow = {.script = swallows, .role = "master"};
    struct fake follower = {.script = sends_on, .role = "replica", .context = &slow.port};
    struct late late = {&slow, "ACQUIRE", ":7\r\n"};
    hf_options options = with_wait(0);
    pthread_t thread;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&slow);
    fake_start(&follower);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", slow.port, follower.port);
    assert_int_equal(0, pthread_create(&thread, NULL, answer_late, &late));
    must(HF_OK, hf_try(store, "one", &options, &lock));
    pthread_join(thread, NULL);
    assert_true(fake_count(&follower, "CHECK") >= 2); /* asked, and asked again */
    assert_int_equal(1, fake_count(&slow, "ACQUIRE"));
    assert_int_equal(1, fake_accepted(&slow));
    assert_int_equal(1, fake_accepted(&follower));
    fake_await_left(&follower);
    must(HF_OK, hf_release(lock));
    assert_int_equal(0, fake_count(&slow, "END"));
    hf_close(store);
    fake_stop(&slow);
    fake_stop(&follower);
}

/* The URL has its name, and we were sent there by its number: it is the same server all the same. */
static void a_slow_leader_is_not_left_for_itself_by_another_name(void **state)
{
    struct fake slow = {.script = swallows_releases, .role = "master"};
    struct fake follower = {.script = sends_on, .role = "replica", .context = &slow.port};
    struct late late = {&slow, "RELEASE", ":1\r\n"};
    hf_options options = with_wait(0);
    pthread_t thread;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&slow);
    fake_start(&follower);
    store = open_at("holdfast://localhost:%d,localhost:%d", follower.port, slow.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_int_equal(0, pthread_create(&thread, NULL, answer_late, &late));
    must(HF_OK, hf_release(lock));
    pthread_join(thread, NULL);
    assert_int_equal(
        1, fake_count(&slow, "RELEASE")); /* nothing was lost, so it was not asked twice */
    hf_close(store);
    fake_stop(&slow);
    fake_stop(&follower);
}

static void ignore_change(hf_observer *observer, const hf_report *now, void *arg)
{
    (void)observer;
    (void)now;
    (void)arg;
}

static enum fake_verdict shows_and_swallows(struct fake *fake, const struct fake_command *command,
                                            char *ret_reply)
{
    if (fake_is(command, "SHOW"))
        return fake_reply(ret_reply, "%1\r\n$4\r\nname\r\n$3\r\none\r\n");
    return swallows(fake, command, ret_reply);
}

/* How long it takes until a silent server is left by a handle that listens to it for another reason. */
static int64_t leave_while_listening(void)
{
    struct fake old = {.script = shows_and_swallows, .role = "master"};
    struct fake leader = {.script = fake_obliging, .role = "master"};
    hf_options options = with_wait(0);
    hf_observer *observer;
    int64_t began_ms;
    hf_store *store;
    hf_lock *lock;

    fake_start(&old);
    fake_start(&leader);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", old.port, leader.port);
    must(HF_OK, hf_observe(store, "one", ignore_change, NULL, &observer));
    fake_await(&old, "SHOW", 1);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* until it sleeps, unseen */
    began_ms = now_ms();
    must(HF_OK, hf_try(store, "two", &options, &lock));
    began_ms = now_ms() - began_ms;
    must(HF_OK, hf_release(lock));
    hf_observer_stop(observer);
    hf_close(store);
    fake_stop(&old);
    fake_stop(&leader);
    return began_ms;
}

/* Whoever listens has gone to sleep before the question was asked, for up to a second. */
static void who_listens_does_not_hold_up_who_asks(void **state)
{
    int64_t best_ms = INT64_MAX;

    (void)state;
    for (int i = 0; i < 3; i++) {
        int64_t span_ms = leave_while_listening();

        best_ms = span_ms < best_ms ? span_ms : best_ms;
    }
    assert_true(best_ms < 600);
}

static void *try_once(void *arg)
{
    hf_options options = with_wait(0);
    hf_lock *lock;

    if (hf_try(arg, "one", &options, &lock) == HF_OK)
        hf_release(lock);
    return NULL;
}

/* What is asked of a server that owes an answer would be lost with it. */
static void nothing_more_is_asked_of_a_silent_server(void **state)
{
    int left = 8;
    struct fake old = {.script = swallows, .role = "master"};
    struct fake next = {.script = leads_later, .role = "replica", .context = &left};
    pthread_t thread;
    hf_store *store;

    (void)state;
    fake_start(&old);
    fake_start(&next);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", old.port, next.port);
    assert_int_equal(0, pthread_create(&thread, NULL, try_once, store));
    fake_await(&next, "CHECK", 1); /* in doubt */
    must(HF_OK, hf_check(store, "two", 7));
    pthread_join(thread, NULL);
    assert_int_equal(0, fake_count(&old, "CHECK"));
    hf_close(store);
    fake_stop(&old);
    fake_stop(&next);
}

static enum fake_verdict swallows_changes(struct fake *fake, const struct fake_command *command,
                                          char *ret_reply)
{
    (void)fake;
    return fake_is(command, "CLUSTER") ? FAKE_IS_SILENT : fake_usual(command, ret_reply);
}

/* A hand-over takes its time, and another one leads before it is answered: no reason to leave. */
static void an_operators_change_is_waited_for(void **state)
{
    struct fake old = {.script = swallows_changes, .role = "master"};
    struct fake next = {.script = fake_obliging, .role = "master"};
    struct late late = {&old, "CLUSTER", "+OK\r\n"};
    pthread_t thread;
    hf_store *store;

    (void)state;
    fake_start(&old);
    fake_start(&next);
    store = open_at("holdfast://127.0.0.1:%d,127.0.0.1:%d", old.port, next.port);
    assert_int_equal(0, pthread_create(&thread, NULL, answer_late, &late));
    must(HF_OK, hf_cluster_transfer(store, 2, 5000));
    pthread_join(thread, NULL);
    assert_int_equal(0, fake_accepted(&next));
    hf_close(store);
    fake_stop(&old);
    fake_stop(&next);
}

/* ---- what was lost --------------------------------------------------------------------------- */

/* The context is how often it says so. */
static enum fake_verdict knows_not(struct fake *fake, const struct fake_command *command,
                                   char *ret_reply)
{
    int *left = fake->context;

    if (fake_is(command, "RENEW") && *left == 0)
        return fake_reply(ret_reply, "*1\r\n:60000\r\n");
    if (fake_is(command, "ACQUIRE") || fake_is(command, "INFO") || *left == 0)
        return fake_usual(command, ret_reply);
    (*left)--;
    return fake_reply(ret_reply, "-UNKNOWN it may or may not have taken effect\r\n");
}

static void an_unknown_answer_to_a_question_is_asked_for_again(void **state)
{
    int left = 0;
    struct fake fake = {.script = knows_not, .context = &left};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    left = 2;
    must(HF_OK, hf_check(store, "one", 7));
    assert_int_equal(3, fake_count(&fake, "CHECK"));
    must(HF_OK, hf_try(store, "one", &options, &lock));
    left = 2;
    must(HF_OK, hf_renew(lock));
    assert_int_equal(3, fake_count(&fake, "RENEW"));
    left = 1;
    must(HF_OK, hf_release(lock));
    assert_int_equal(2, fake_count(&fake, "RELEASE"));
    hf_close(store);
    fake_stop(&fake);
}

/* Loses its lead with the first acquisition, and has it again some time later. */
#define AWAY_MS 1300

static enum fake_verdict is_away(struct fake *fake, const struct fake_command *command,
                                 char *ret_reply)
{
    int64_t *lost_ms = fake->context;

    if (*lost_ms == 0 && fake_is(command, "ACQUIRE")) {
        *lost_ms = now_ms();
        return FAKE_HANGS_UP;
    }
    if (*lost_ms != 0 && now_ms() < *lost_ms + AWAY_MS)
        return fake_reply(ret_reply, "-TRYAGAIN there is no leader at the moment\r\n");
    return fake_usual(command, ret_reply);
}

/* A try has two seconds, and an answer lost at their beginning does not take one of them away. */
static void a_try_outlasts_an_election(void **state)
{
    int64_t lost_ms = 0;
    struct fake fake = {.script = is_away, .role = "replica", .context = &lost_ms};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_int_equal(2, fake_count(&fake, "ACQUIRE"));
    assert_in_range(fake_count(&fake, "CHECK"), 10,
                    400); /* asked soon, and not as fast as it can */
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_count(&fake, "END"));
    hf_close(store);
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_leader_is_asked),
        cmocka_unit_test(a_deaf_server_holds_nobody_up),
        cmocka_unit_test(a_wrong_direction_is_no_dead_end),
        cmocka_unit_test(a_refusal_counts_when_nobody_serves),
        cmocka_unit_test(the_word_of_a_server_is_passed_on),
        cmocka_unit_test(without_a_leader_anyone_may_be_asked),
        cmocka_unit_test(a_silent_server_is_left_for_the_leader),
        cmocka_unit_test(a_slow_leader_is_not_left),
        cmocka_unit_test(a_slow_leader_is_not_left_for_itself_by_another_name),
        cmocka_unit_test(who_listens_does_not_hold_up_who_asks),
        cmocka_unit_test(nothing_more_is_asked_of_a_silent_server),
        cmocka_unit_test(an_operators_change_is_waited_for),
        cmocka_unit_test(an_unknown_answer_to_a_question_is_asked_for_again),
        cmocka_unit_test(a_try_outlasts_an_election),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
