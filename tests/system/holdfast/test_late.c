/* test_late.c: answers to renewals that come after the client has stopped waiting for them, from a server that holds them back
 * until the test lets them go. What such an answer says counts from when its question was sent. */
#include "fake.h"
#include "tools.h"

#include <holdfast/cluster.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LATE_TTL_MS 9000 /* renewed after 3 s; each question is given up after 1.8 s */
#define LATE "9000"      /* the same, as an answer */

/* The fake's context: what it owes, in order. */
struct owed {
    bool holds_back;
    const char *left; /* of a lease, that it says */
    char text[FAKE_REPLY_MAX];
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Renewals, changes of the cluster, and what comes behind them, are answered when the test says so, in the order in which it was
 * all asked. */
static enum fake_verdict answers_late(struct fake *fake, const struct fake_command *command,
                                      char *ret_reply)
{
    struct owed *owed = fake->context;
    size_t used = strlen(owed->text);
    char reply[FAKE_REPLY_MAX];
    bool waits = used > 0 || fake_is(command, "RENEW") || fake_is(command, "CLUSTER");

    if (fake_is(command, "RENEW"))
        snprintf(reply, sizeof reply, "*1\r\n:%s\r\n", owed->left);
    else
        fake_usual(command, reply);
    snprintf(owed->text + used, sizeof owed->text - used, "%s", reply);
    if (owed->holds_back && waits)
        return FAKE_IS_SILENT;
    fake_reply(ret_reply, owed->text);
    owed->text[0] = '\0';
    return FAKE_ANSWERS;
}

static void hold_back(struct fake *fake)
{
    struct owed *owed = fake->context;

    pthread_mutex_lock(&fake->mutex);
    owed->holds_back = true;
    pthread_mutex_unlock(&fake->mutex);
}

/* Nothing is held back any more. */
static void let_go(struct fake *fake)
{
    struct owed *owed = fake->context;
    char text[FAKE_REPLY_MAX];

    pthread_mutex_lock(&fake->mutex);
    owed->holds_back = false;
    snprintf(text, sizeof text, "%s", owed->text);
    owed->text[0] = '\0';
    pthread_mutex_unlock(&fake->mutex);
    fake_say(fake, text);
}

/* What is owed, but the answer to the last renewal. */
static void let_go_but_last(struct fake *fake)
{
    struct owed *owed = fake->context;
    char text[FAKE_REPLY_MAX];
    char *last;

    pthread_mutex_lock(&fake->mutex);
    snprintf(text, sizeof text, "%s", owed->text);
    last = strrchr(text, '*');
    assert_non_null(last);
    snprintf(owed->text, sizeof owed->text, "%s", last);
    *last = '\0';
    pthread_mutex_unlock(&fake->mutex);
    assert_true(text[0] != '\0');
    fake_say(fake, text);
}

static hf_store *open_patient(const struct fake *fake)
{
    return open_at("holdfast://127.0.0.1:%d?timeout=60s", fake->port);
}

static hf_lock *hold(hf_store *store, const char *name)
{
    hf_options options = with_wait(0);
    hf_lock *lock;

    options.ttl_ms = LATE_TTL_MS;
    must(HF_OK, hf_try(store, name, &options, &lock));
    return lock;
}

/* Until its end is later than what was granted by then, and so was renewed; and no later than a renewal that was sent by
 * sent_ms allows. */
static void must_be_renewed(hf_lock *lock, int64_t granted_ms, int64_t sent_ms)
{
    int64_t before_ms, left_ms;

    do {
        before_ms = now_ms();
        left_ms = hf_lock_left_ms(lock);
        pause_ms(5);
    } while (left_ms > 0 && before_ms + left_ms <= granted_ms + LATE_TTL_MS);
    if (left_ms == 0)
        fail_msg("lost: %s", hf_lock_lost_why(lock));
    assert_true(before_ms + left_ms <= sent_ms + LATE_TTL_MS);
}

static void *add_a_node(void *store)
{
    hf_cluster_add(store, 4, "127.0.0.1:1", 0);
    return NULL;
}

/* adds: meanwhile the handle adds a node to the cluster that does not answer, and the server answers nothing else before that. */
static void be_renewed_late(bool adds)
{
    struct owed owed = {.left = LATE};
    struct fake fake = {.script = answers_late, .context = &owed};
    int64_t granted_ms, sent_ms;
    pthread_t adder;
    hf_store *store;
    hf_lock *lock;

    fake_start(&fake);
    store = open_patient(&fake);
    lock = hold(store, "one");
    granted_ms = now_ms();
    hold_back(&fake);
    if (adds) {
        assert_int_equal(0, pthread_create(&adder, NULL, add_a_node, store));
        fake_await(&fake, "CLUSTER", 1);
    }
    fake_await(&fake, "RENEW", 1);
    sent_ms = now_ms();
    fake_await(&fake, "RENEW", 2); /* so the first was given up */
    let_go_but_last(&fake);
    must_be_renewed(lock, granted_ms, sent_ms);
    let_go(&fake);
    if (adds)
        pthread_join(adder, NULL);
    must(HF_OK, hf_release(lock));
    hf_close(store);
    fake_stop(&fake);
}

static void a_late_answer_counts_from_when_it_was_asked_for(void **state)
{
    (void)state;
    be_renewed_late(false);
}

static void a_lock_is_kept_while_a_silent_node_is_added(void **state)
{
    (void)state;
    be_renewed_late(true);
}

static void a_late_answer_says_that_it_is_over(void **state)
{
    struct owed owed = {.left = "-1"};
    struct fake fake = {.script = answers_late, .context = &owed};
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_patient(&fake);
    lock = hold(store, "one");
    hold_back(&fake);
    fake_await(&fake, "RENEW", 2);
    let_go_but_last(&fake);
    while (!hf_lock_lost_why(lock)[0])
        pause_ms(5);
    assert_string_equal("the store says that it has ended", hf_lock_lost_why(lock));
    let_go(&fake);
    hf_release(lock);
    hf_close(store);
    fake_stop(&fake);
}

/* It comes when the lock is given up, and its memory is another's. */
static void a_late_answer_for_nobody_harms_nobody(void **state)
{
    struct owed owed = {.left = LATE};
    struct fake fake = {.script = answers_late, .context = &owed};
    hf_store *store;
    hf_lock *lock, *other;

    (void)state;
    fake_start(&fake);
    store = open_patient(&fake);
    lock = hold(store, "one");
    hold_back(&fake);
    fake_await(&fake, "RENEW", 2);
    must(HF_EUNKNOWN, hf_release(lock)); /* held back as well */
    let_go(&fake);
    other = hold(store, "one");
    must(HF_OK, hf_renew(other));
    hold_back(&fake);
    fake_await(&fake, "RENEW", fake_count(&fake, "RENEW") + 2);
    hf_close(store); /* with answers that never came */
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_answer_counts_from_when_it_was_asked_for),
        cmocka_unit_test(a_lock_is_kept_while_a_silent_node_is_added),
        cmocka_unit_test(a_late_answer_says_that_it_is_over),
        cmocka_unit_test(a_late_answer_for_nobody_harms_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
