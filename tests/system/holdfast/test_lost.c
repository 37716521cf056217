/* test_lost.c: answers that never come, connections that die, and what is told in between: one connection for
 * everybody, by a server that does what the test wants. */
#include "fake.h"
#include "tools.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- answers that do not come ---------------------------------------------------------------- */

static void a_lost_answer_to_an_acquisition_ends_its_lease(void **state)
{
    struct fake fake = {.script = fake_hangs_up_once, .context = "ACQUIRE"};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_int_equal(2, fake_accepted(&fake));
    assert_string_equal(fake_command(&fake, "ACQUIRE", 0).words[2],
                        fake_command(&fake, "ACQUIRE", 1).words[2]);
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_count(&fake, "RELEASE"));
    assert_int_equal(1, fake_count(&fake, "END"));
    must(HF_OK, hf_try(store, "one", &options, &lock)); /* another, which lost nothing */
    must(HF_OK, hf_release(lock));
    assert_int_equal(2, fake_count(&fake, "RELEASE"));
    assert_int_equal(1, fake_count(&fake, "END"));
    hf_close(store);
    fake_stop(&fake);
}

static enum fake_verdict is_busy_later(struct fake *fake, const struct fake_command *command,
                                       char *ret_reply)
{
    if (fake_is(command, "ACQUIRE") && !fake->context)
        return fake_reply(ret_reply, "_\r\n");
    return fake_hangs_up_once(fake, command, ret_reply);
}

/* That it is busy now says nothing of the question whose answer was lost, and which may still arrive. */
static void a_lost_answer_followed_by_no_ends_its_lease(void **state)
{
    struct fake fake = {.script = is_busy_later, .context = "ACQUIRE"};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_EBUSY, hf_try(store, "one", &options, &lock));
    assert_string_equal(fake_command(&fake, "ACQUIRE", 0).words[2],
                        fake_command(&fake, "END", 0).words[1]);
    must(HF_EBUSY, hf_try(store, "one", &options, &lock)); /* another, which lost nothing */
    assert_int_equal(1, fake_count(&fake, "END"));
    hf_close(store);
    fake_stop(&fake);
}

/* Takes a floor or an acquisition, and is never heard of again. */
static enum fake_verdict dies(struct fake *fake, const struct fake_command *command,
                              char *ret_reply)
{
    fake->deaf = fake_is(command, "FLOOR") || fake_is(command, "ACQUIRE");
    return fake->deaf ? FAKE_HANGS_UP : fake_usual(command, ret_reply);
}

/* It was to be asked again and could not be: that is still not the same as not asked. */
static void what_was_asked_once_is_not_unreachable(void **state)
{
    hf_options options = with_wait(0);

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fake fake = {.script = dies};
        hf_store *store;
        hf_lock *lock;

        fake_start(&fake);
        store = open_at("holdfast://127.0.0.1:%d?timeout=200ms", fake.port);
        must(HF_EUNKNOWN, i ? hf_floor(store, 9) : hf_try(store, "one", &options, &lock));
        assert_int_equal(1, fake_count(&fake, i ? "FLOOR" : "ACQUIRE"));
        must(HF_EUNREACH, hf_floor(store, 9)); /* this one was not asked at all */
        hf_close(store);
        fake_stop(&fake);
    }
}

static enum fake_verdict has_no_room(struct fake *fake, const struct fake_command *command,
                                     char *ret_reply)
{
    if (fake_is(command, "END"))
        return fake_reply(ret_reply, "-LIMIT there are too many leases\r\n");
    return fake_hangs_up_once(fake, command, ret_reply);
}

/* It was released: that the lease cannot be remembered as well does not change that. */
static void a_server_without_room_to_remember_releases(void **state)
{
    struct fake fake = {.script = has_no_room, .context = "ACQUIRE"};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_count(&fake, "END"));
    hf_close(store);
    fake_stop(&fake);
}

/* The first ACQUIRE is lost; then, of the first RELEASE and END, only one is served. */
struct half {
    const char *refused;
    bool acquired, released;
};

static enum fake_verdict serves_half(struct fake *fake, const struct fake_command *command,
                                     char *ret_reply)
{
    struct half *half = fake->context;

    if (fake_is(command, "ACQUIRE") && !half->acquired) {
        half->acquired = true;
        return FAKE_HANGS_UP;
    }
    if (half->refused && fake_is(command, half->refused)) {
        half->refused = NULL;
        return fake_reply(ret_reply, "-TRYAGAIN there is no leader at the moment\r\n");
    }
    if (fake_is(command, "RELEASE") && half->released)
        return fake_reply(ret_reply, ":0\r\n");
    half->released = half->released || fake_is(command, "RELEASE") || fake_is(command, "END");
    return fake_usual(command, ret_reply);
}

/* Whoever leads may change between two commands: what came of both together is not known then, and is
 * asked about, and not taken for a lock that was lost before. */
static void a_release_that_was_done_by_half_is_asked_about(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct half half = {.refused = i ? "RELEASE" : "END"};
        struct fake fake = {.script = serves_half, .context = &half};
        hf_options options = with_wait(0);
        hf_store *store;
        hf_lock *lock;

        fake_start(&fake);
        store = open_at("holdfast://127.0.0.1:%d", fake.port);
        must(HF_OK, hf_try(store, "one", &options, &lock));
        must(HF_OK, hf_release(lock));
        assert_int_equal(2, fake_count(&fake, "RELEASE"));
        assert_int_equal(2, fake_count(&fake, "END"));
        hf_close(store);
        fake_stop(&fake);
    }
}

static void a_question_whose_answer_was_lost_is_asked_again(void **state)
{
    struct fake fake = {.script = fake_hangs_up_once, .context = "CHECK"};
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_check(store, "one", 7));
    assert_int_equal(2, fake_count(&fake, "CHECK"));
    assert_int_equal(2, fake_accepted(&fake));
    hf_close(store);
    fake_stop(&fake);
}

/* SHOW as a server gives it: held with token 5, or by nobody. */
#define SHOWN_HELD                                                                        \
    "%3\r\n$4\r\nname\r\n$3\r\none\r\n$5\r\nholds\r\n:1\r\n$7\r\nholders\r\n*1\r\n%2\r\n" \
    "$5\r\nstate\r\n$5\r\nholds\r\n$5\r\ntoken\r\n:5\r\n"
#define SHOWN_FREE "%3\r\n$4\r\nname\r\n$3\r\none\r\n$5\r\nholds\r\n:0\r\n$7\r\nholders\r\n*0\r\n"

struct breaking {
    bool takes_effect;
    int shows;
};

static enum fake_verdict loses_the_break(struct fake *fake, const struct fake_command *command,
                                         char *ret_reply)
{
    struct breaking *breaking = fake->context;

    if (fake_is(command, "BREAK"))
        return FAKE_HANGS_UP;
    if (fake_is(command, "SHOW"))
        return fake_reply(ret_reply, breaking->shows++ > 0 && breaking->takes_effect ? SHOWN_FREE
                                                                                     : SHOWN_HELD);
    return fake_usual(command, ret_reply);
}

static void a_break_whose_answer_was_lost_is_looked_for_and_not_repeated(void **state)
{
    (void)state;
    for (int effect = 0; effect < 2; effect++) {
        struct breaking breaking = {.takes_effect = effect};
        struct fake fake = {.script = loses_the_break, .context = &breaking};
        uint32_t broken = 9;
        hf_store *store;

        fake_start(&fake);
        store = open_at("holdfast://127.0.0.1:%d", fake.port);
        must(effect ? HF_OK : HF_EUNKNOWN, hf_break(store, "one", 0, &broken));
        assert_int_equal(effect ? 1 : 9, broken);
        assert_int_equal(1, fake_count(&fake, "BREAK"));
        hf_close(store);
        fake_stop(&fake);
    }
}

static enum fake_verdict forgets_checks(struct fake *fake, const struct fake_command *command,
                                        char *ret_reply)
{
    return fake_is(command, "CHECK") && fake->accepted == 1 ? FAKE_IS_SILENT
                                                            : fake_usual(command, ret_reply);
}

static void a_server_that_has_gone_quiet_is_left(void **state)
{
    struct fake fake = {.script = forgets_checks};
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d?timeout=200ms", fake.port);
    must(HF_OK, hf_check(store, "one", 7)); /* on the second connection */
    assert_int_equal(2, fake_accepted(&fake));
    hf_close(store);
    fake_stop(&fake);
}

static enum fake_verdict forgets_pings(struct fake *fake, const struct fake_command *command,
                                       char *ret_reply)
{
    if (fake_is(command, "PING") && fake->accepted == 1)
        return FAKE_IS_SILENT;
    return fake_is(command, "SHOW") ? fake_reply(ret_reply, SHOWN_FREE)
                                    : fake_usual(command, ret_reply);
}

static void ignore_change(hf_observer *observer, const hf_report *now, void *arg)
{
    (void)observer;
    (void)now;
    (void)arg;
}

/* Nobody asks anything, and a push that never comes would not be missed. */
static void a_quiet_connection_is_asked_whether_it_is_there(void **state)
{
    struct fake fake = {.script = forgets_pings};
    hf_observer *observer;
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d?timeout=200ms", fake.port);
    must(HF_OK, hf_check(store, "one", 7)); /* connected */
    must(HF_OK, hf_observe(store, "one", ignore_change, NULL, &observer));
    fake_await(&fake, "SHOW", 1);
    fake_await(&fake, "PING", 1);
    fake_await(&fake, "OBSERVE", 2); /* on the next connection */
    assert_int_equal(2, fake_accepted(&fake));
    fake_await(&fake, "SHOW", 2); /* something may have been missed */
    hf_observer_stop(observer);
    hf_close(store);
    fake_stop(&fake);
}

/* Each connection finds another store; its leases live on, as in one that was restored. */
static enum fake_verdict was_restored(struct fake *fake, const struct fake_command *command,
                                      char *ret_reply)
{
    char info[96];

    if (fake_is(command, "CHECK") && fake->accepted == 1)
        return FAKE_HANGS_UP;
    if (fake_is(command, "RENEW"))
        return fake_reply(ret_reply, "*1\r\n:60000\r\n");
    if (!fake_is(command, "INFO"))
        return fake_usual(command, ret_reply);
    snprintf(info, sizeof info, "$52\r\n# Locks\r\nstore_id:%032d\r\n\r\n", fake->accepted);
    return fake_reply(ret_reply, info);
}

/* What another store holds for us is not what we were granted: its tokens count from elsewhere. */
static void a_hold_is_lost_with_the_store_that_granted_it(void **state)
{
    struct fake fake = {.script = was_restored};
    hf_options options = with_wait(0);
    char before[HF_SEQUENCER_MAX], after[HF_SEQUENCER_MAX];
    hf_lock *lock, *other;
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    must(HF_OK, hf_lock_sequencer(lock, before, sizeof before));
    must(HF_OK, hf_renew(lock));
    must(HF_OK, hf_check(store, "one", 7)); /* on the second connection */
    assert_int_equal(2, fake_accepted(&fake));
    assert_int_equal(0, hf_lock_left_ms(lock));
    must(HF_ELOST, hf_renew(lock));
    must_say("another");
    must(HF_ELOST, hf_lock_sequencer(lock, after, sizeof after));
    must(HF_ESTORE, hf_check_sequencer(store, before));
    must(HF_OK, hf_try(store, "two", &options, &other));
    must(HF_OK, hf_lock_sequencer(other, after, sizeof after));
    must(HF_OK, hf_check_sequencer(store, after));
    must(HF_OK, hf_release(other));
    must(HF_ELOST, hf_release(lock));
    hf_close(store);
    fake_stop(&fake);
}

/* ---- one connection, many who ask ------------------------------------------------------------ */

#define ASKERS 8
#define QUESTIONS 300

static enum fake_verdict parity(struct fake *fake, const struct fake_command *command,
                                char *ret_reply)
{
    int number = command->words[2][0] ? command->words[2][strlen(command->words[2]) - 1] - '0' : 0;

    (void)fake;
    return fake_reply(ret_reply, number % 2 ? "$9\r\nexclusive\r\n" : "_\r\n");
}

struct asker {
    hf_store *store;
    int from, wrong;
};

static void *ask_many(void *arg)
{
    struct asker *asker = arg;

    for (int i = 0; i < QUESTIONS; i++) {
        uint64_t token = (uint64_t)(1 + (asker->from + i * 7) % 1000);
        int expected = token % 2 ? HF_OK : HF_ELOST;

        asker->wrong += hf_check(asker->store, "one", token) != expected;
    }
    return NULL;
}

static void everybody_gets_the_answer_to_his_own_question(void **state)
{
    struct fake fake = {.script = parity};
    struct asker askers[ASKERS];
    pthread_t threads[ASKERS];
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    for (int i = 0; i < ASKERS; i++) {
        askers[i] = (struct asker){store, i, 0};
        assert_int_equal(0, pthread_create(&threads[i], NULL, ask_many, &askers[i]));
    }
    for (int i = 0; i < ASKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(0, askers[i].wrong);
    }
    assert_int_equal(1, fake_accepted(&fake));
    assert_int_equal(ASKERS * QUESTIONS, fake_count(&fake, "CHECK"));
    hf_close(store);
    fake_stop(&fake);
}

/* ---- pushes ---------------------------------------------------------------------------------- */

#define WAITERS 20

/* Everybody waits, until the lease in the context has been granted it. */
static enum fake_verdict lets_wait(struct fake *fake, const struct fake_command *command,
                                   char *ret_reply)
{
    const char *granted = fake->context;

    if (fake_is(command, "ACQUIRE") && strcmp(command->words[2], granted) != 0)
        return fake_reply(ret_reply, "+QUEUED\r\n");
    return fake_usual(command, ret_reply);
}

struct outcome {
    _Atomic int done, held;
    _Atomic uint64_t token;
};

static void note(hf_op *op, int result, void *arg)
{
    struct outcome *outcome = arg;
    hf_lock *lock = hf_op_take_lock(op);

    if (result == HF_OK) {
        atomic_store(&outcome->token, hf_lock_token(lock));
        atomic_fetch_add(&outcome->held, 1);
        hf_release(lock);
    }
    atomic_fetch_add(&outcome->done, 1);
}

static int count_asked(struct fake *fake, const char *lease)
{
    int count = 0;

    for (int i = 0; i < fake_count(fake, "ACQUIRE"); i++)
        count += strcmp(fake_command(fake, "ACQUIRE", i).words[2], lease) == 0;
    return count;
}

static void a_push_wakes_the_one_whom_it_concerns(void **state)
{
    char granted[FAKE_WORD_MAX] = "nobody", push[512], leases[WAITERS][FAKE_WORD_MAX];
    struct fake fake = {.script = lets_wait, .context = granted};
    hf_options options = with_wait(HF_FOREVER);
    struct outcome outcome = {0};
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    for (int i = 0; i < WAITERS; i++)
        must(HF_OK, hf_acquire_start(store, "one", &options, note, &outcome, NULL));
    fake_await(&fake, "ACQUIRE", WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        struct fake_command command = fake_command(&fake, "ACQUIRE", i);

        assert_true(fake_has(&command, "PUSH"));
        memcpy(leases[i], command.words[2], FAKE_WORD_MAX);
    }
    pthread_mutex_lock(&fake.mutex);
    memcpy(granted, leases[7], sizeof granted);
    pthread_mutex_unlock(&fake.mutex);
    /* Another name, another lease, something unheard of: nobody's business. */
    fake_say(&fake, ">4\r\n$7\r\ngranted\r\n$3\r\ntwo\r\n$3\r\nxyz\r\n:9\r\n"
                    ">2\r\n$5\r\nother\r\n:1\r\n>1\r\n$7\r\ngranted\r\n");
    snprintf(push, sizeof push, ">4\r\n$7\r\ngranted\r\n$3\r\none\r\n$%zu\r\n%s\r\n:7\r\n",
             strlen(granted), granted);
    fake_say(&fake, push);
    fake_await(&fake, "RELEASE", 1); /* it held it, and has let go */
    assert_int_equal(1, atomic_load(&outcome.held));
    assert_int_equal(7, atomic_load(&outcome.token));
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(i == 7 ? 2 : 1, count_asked(&fake, leases[i]));
    assert_int_equal(1, fake_accepted(&fake));
    hf_close(store);
    assert_int_equal(WAITERS - 1, fake_count(&fake, "END")); /* the others have given up for good */
    fake_stop(&fake);
}

/* ---- renewing -------------------------------------------------------------------------------- */

#define KEPT 10

static enum fake_verdict renews_all(struct fake *fake, const struct fake_command *command,
                                    char *ret_reply)
{
    int used;

    (void)fake;
    if (!fake_is(command, "RENEW"))
        return fake_usual(command, ret_reply);
    used = snprintf(ret_reply, FAKE_REPLY_MAX, "*%d\r\n", command->count - 1);
    for (int i = 1; i < command->count; i++)
        used += snprintf(ret_reply + used, (size_t)(FAKE_REPLY_MAX - used), ":600\r\n");
    return FAKE_ANSWERS;
}

static void all_leases_are_renewed_in_one_command(void **state)
{
    struct fake fake = {.script = renews_all};
    hf_options options = with_wait(0);
    hf_lock *locks[KEPT];
    struct fake_command renewal;
    hf_store *store;
    char name[16];

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK,
         hf_check(store, "one", 7)); /* connected: the first lock is not much older than the rest */
    options.ttl_ms = 600;
    for (int i = 0; i < KEPT; i++) {
        snprintf(name, sizeof name, "n%d", i);
        must(HF_OK, hf_try(store, name, &options, &locks[i]));
    }
    fake_await(&fake, "RENEW", 2); /* the first may have gone out before all were there */
    renewal = fake_command(&fake, "RENEW", 1);
    assert_int_equal(1 + KEPT, renewal.count);
    for (int i = 0; i < KEPT; i++)
        assert_true(fake_has(&renewal, hf_lock_lease(locks[i])));
    for (int i = 0; i < KEPT; i++)
        must(HF_OK, hf_release(locks[i]));
    hf_close(store);
    fake_stop(&fake);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static void *fire_later(void *arg)
{
    sleep(4);
    hf_cancel_fire(arg);
    return NULL;
}

/* With nobody there any more, whoever cancels is not made to wait until the server would have had its time. The
 * first attempt takes 3 s and is not for cancelling on any store; the second would end after 6 s. */
static void a_cancelled_wait_does_not_wait_for_a_server(void **state)
{
    struct fake fake = {.script = fake_hangs_up_once};
    hf_options options = with_wait(HF_FOREVER);
    struct timespec from, to;
    hf_cancel *cancel;
    pthread_t thread;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d?timeout=3s", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock)); /* who never reached it would not wait */
    must(HF_OK, hf_release(lock));
    fake_stop(&fake);
    must(HF_OK, hf_cancel_new(&cancel));
    options.cancel = cancel;
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(0, pthread_create(&thread, NULL, fire_later, cancel));
    must(HF_ECANCELED, hf_acquire(store, "one", &options, &lock));
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_true((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 5700);
    pthread_join(thread, NULL);
    hf_cancel_free(cancel);
    hf_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_answer_to_an_acquisition_ends_its_lease),
        cmocka_unit_test(a_lost_answer_followed_by_no_ends_its_lease),
        cmocka_unit_test(what_was_asked_once_is_not_unreachable),
        cmocka_unit_test(a_server_without_room_to_remember_releases),
        cmocka_unit_test(a_release_that_was_done_by_half_is_asked_about),
        cmocka_unit_test(a_question_whose_answer_was_lost_is_asked_again),
        cmocka_unit_test(a_break_whose_answer_was_lost_is_looked_for_and_not_repeated),
        cmocka_unit_test(a_server_that_has_gone_quiet_is_left),
        cmocka_unit_test(a_quiet_connection_is_asked_whether_it_is_there),
        cmocka_unit_test(a_hold_is_lost_with_the_store_that_granted_it),
        cmocka_unit_test(everybody_gets_the_answer_to_his_own_question),
        cmocka_unit_test(a_push_wakes_the_one_whom_it_concerns),
        cmocka_unit_test(all_leases_are_renewed_in_one_command),
        cmocka_unit_test(a_cancelled_wait_does_not_wait_for_a_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
