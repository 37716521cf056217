/* test_told.c: what the holdfast engine makes of what a server says, by a server that says what the test
 * wants: where to go, that it cannot serve, errors, silence, answers that never come. */
#include "fake.h"

#include <holdfast/holdfast.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TTL_MS 60000 /* nothing is renewed in these tests unless it is about that */

static hf_store *open_at(const char *format, ...) __attribute__((format(printf, 1, 2)));

static hf_store *open_at(const char *format, ...)
{
    hf_store *store = NULL;
    char url[512];
    va_list args;

    va_start(args, format);
    vsnprintf(url, sizeof url, format, args);
    va_end(args);
    if (hf_open(url, &store) != HF_OK)
        fail_msg("%s: %s", url, hf_error());
    return store;
}

static hf_options with_wait(int64_t wait_ms)
{
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = TTL_MS;
    options.wait_ms = wait_ms;
    return options;
}

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s (%s)", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

static void must_say(const char *words)
{
    if (!strstr(hf_error(), words))
        fail_msg("'%s' does not say '%s'", hf_error(), words);
}

static enum fake_verdict reply(char *ret_reply, const char *text)
{
    snprintf(ret_reply, FAKE_REPLY_MAX, "%s", text);
    return FAKE_ANSWERS;
}

static bool is(const struct fake_command *command, const char *word)
{
    return strcmp(command->words[0], word) == 0;
}

/* What a server that has nothing special to say says. */
static enum fake_verdict usual(const struct fake_command *command, char *ret_reply)
{
    if (is(command, "ACQUIRE"))
        return reply(ret_reply, ":7\r\n");
    if (is(command, "PING"))
        return reply(ret_reply, "+PONG\r\n");
    if (is(command, "OBSERVE"))
        return reply(ret_reply, "+OK\r\n");
    return reply(ret_reply, ":1\r\n");
}

static enum fake_verdict obliging(struct fake *fake, const struct fake_command *command,
                                  char *ret_reply)
{
    (void)fake;
    return usual(command, ret_reply);
}

/* The context is a list of texts, each said once to an ACQUIRE; then the usual. */
static enum fake_verdict by_list(struct fake *fake, const struct fake_command *command,
                                 char *ret_reply)
{
    const char ***next = fake->context;

    if (is(command, "ACQUIRE") && **next)
        return reply(ret_reply, *(*next)++);
    return usual(command, ret_reply);
}

/* ---- where to go ----------------------------------------------------------------------------- */

static void a_server_that_does_not_lead_says_who_does(void **state)
{
    struct fake leader = {.script = obliging}, follower = {.script = by_list};
    char moved[64];
    const char *list[] = {moved, NULL}, **next = list;
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&leader);
    snprintf(moved, sizeof moved, "-MOVED 0 127.0.0.1:%d\r\n", leader.port);
    follower.context = &next;
    fake_start(&follower);
    store = open_at("holdfast://127.0.0.1:%d", follower.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_int_equal(7, hf_lock_token(lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_count(&follower, "ACQUIRE"));
    assert_int_equal(1, fake_count(&leader, "ACQUIRE"));
    assert_int_equal(1, fake_count(&leader, "RELEASE")); /* it stays with the one that serves */
    assert_int_equal(0, fake_count(&leader, "END"));     /* nothing was lost on the way */
    assert_string_equal(fake_command(&follower, "ACQUIRE", 0).words[2],
                        fake_command(&leader, "ACQUIRE", 0).words[2]);
    hf_close(store);
    fake_stop(&follower);
    fake_stop(&leader);
}

static void two_servers_that_send_us_to_each_other_end_in_time(void **state)
{
    struct fake one = {.script = by_list}, two = {.script = by_list};
    char to_one[64], to_two[64];
    const char *at_one[4096], *at_two[4096], **next_one = at_one, **next_two = at_two;
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    one.context = &next_one;
    two.context = &next_two;
    for (int i = 0; i < 4095; i++)
        at_one[i] = to_two, at_two[i] = to_one;
    at_one[4095] = at_two[4095] = NULL;
    fake_start(&one);
    fake_start(&two);
    snprintf(to_one, sizeof to_one, "-MOVED 0 127.0.0.1:%d\r\n", one.port);
    snprintf(to_two, sizeof to_two, "-MOVED 0 127.0.0.1:%d\r\n", two.port);
    store = open_at("holdfast://127.0.0.1:%d?timeout=300ms", one.port);
    must(HF_EUNREACH, hf_try(store, "one", &options, &lock));
    must_say("does not lead");
    /* With pauses that grow, and not as fast as they can. */
    assert_true(fake_count(&one, "ACQUIRE") + fake_count(&two, "ACQUIRE") < 400);
    hf_close(store);
    fake_stop(&one);
    fake_stop(&two);
}

static void a_server_that_cannot_serve_yet_is_asked_again(void **state)
{
    const char *list[] = {"-TRYAGAIN there is no leader at the moment\r\n",
                          "-TRYAGAIN there is no leader at the moment\r\n",
                          "-STOPPED its disk is full\r\n", NULL};
    const char **next = list;
    struct fake fake = {.script = by_list, .context = &next};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_int_equal(4, fake_count(&fake, "ACQUIRE"));
    must(HF_OK, hf_release(lock));
    assert_int_equal(0,
                     fake_count(&fake, "END")); /* nothing was done, so nothing to make sure of */
    hf_close(store);
    fake_stop(&fake);
}

static enum fake_verdict never_leads(struct fake *fake, const struct fake_command *command,
                                     char *ret_reply)
{
    (void)fake;
    (void)command;
    return reply(ret_reply, "-STOPPED its disk is full\r\n");
}

static void a_server_that_never_serves_says_why(void **state)
{
    struct fake fake = {.script = never_leads};
    hf_options options = with_wait(0);
    hf_report *report;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d?timeout=200ms", fake.port);
    must(HF_EUNREACH, hf_try(store, "one", &options, &lock));
    must_say("its disk is full");
    must(HF_EUNREACH, hf_show(store, "one", &report));
    must_say("its disk is full");
    hf_close(store);
    fake_stop(&fake);
}

static void the_next_address_is_tried(void **state)
{
    struct fake good = {.script = obliging}, stuck = {.script = never_leads},
                deaf = {.script = obliging, .deaf = true};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&good);
    fake_start(&stuck);
    fake_start(&deaf);
    /* Nobody there, one that says nothing, one that does not serve, one that does. */
    store = open_at("holdfast://127.0.0.1:1,127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?timeout=500ms",
                    deaf.port, stuck.port, good.port);
    options.wait_ms = 10000;
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    assert_int_equal(1, fake_accepted(&deaf));
    assert_int_equal(1, fake_count(&stuck, "ACQUIRE"));
    assert_int_equal(1, fake_count(&good, "ACQUIRE"));
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_accepted(&good)); /* and it stays there */
    hf_close(store);
    fake_stop(&good);
    fake_stop(&stuck);
    fake_stop(&deaf);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void errors_come_with_the_words_of_the_server(void **state)
{
    static const struct {
        const char *says;
        int means;
        const char *words;
    } errors[] = {
        {"-MODE the name is in use with PERMITS 3\r\n", HF_EMODE, "in use with PERMITS 3"},
        {"-LIMIT the queue of this name is full\r\n", HF_EREFUSED,
         "the queue of this name is full"},
        {"-NOAUTH Authentication required.\r\n", HF_EREFUSED, "HOLDFAST_PASSWORD"},
        {"-ERR something odd\r\n", HF_EREFUSED, "something odd"},
        {"-NEWWORD of a later version\r\n", HF_EREFUSED, "of a later version"},
        {"-\r\n", HF_EREFUSED, "refuses"},
        {"+WHAT\r\n", HF_EINTERNAL, "ACQUIRE"},
        {":-5\r\n", HF_EINTERNAL, "ACQUIRE"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        const char *list[] = {errors[i].says, NULL}, **next = list;
        struct fake fake = {.script = by_list, .context = &next};
        hf_options options = with_wait(0);
        hf_store *store;
        hf_lock *lock;

        fake_start(&fake);
        store = open_at("holdfast://127.0.0.1:%d", fake.port);
        must(errors[i].means, hf_try(store, "one", &options, &lock));
        must_say(errors[i].words);
        hf_close(store);
        fake_stop(&fake);
    }
}

/* A lease that ran out in the queue is replaced by another, and never used again. */
static void a_lease_that_is_over_is_replaced(void **state)
{
    const char *list[] = {"-ENDED this lease is over: take another\r\n", NULL}, **next = list;
    struct fake fake = {.script = by_list, .context = &next};
    hf_options options = with_wait(5000);
    struct fake_command first, second, end;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    first = fake_command(&fake, "ACQUIRE", 0);
    second = fake_command(&fake, "ACQUIRE", 1);
    end = fake_command(&fake, "END", 0);
    assert_string_not_equal(first.words[2], second.words[2]);
    assert_string_equal(first.words[2], end.words[1]);
    assert_string_equal("TTL", end.words[2]);
    assert_string_equal("60000", end.words[3]);
    assert_string_equal(second.words[2], hf_lock_lease(lock));
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_count(&fake, "END"));
    hf_close(store);
    fake_stop(&fake);
}

/* "May or may not": asked again with the same lease, and ended for good in the end. */
static void an_unknown_outcome_is_asked_about_and_ended(void **state)
{
    const char *list[] = {"-UNKNOWN it may or may not have taken effect\r\n", NULL}, **next = list;
    struct fake fake = {.script = by_list, .context = &next};
    hf_options options = with_wait(5000);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    assert_string_equal(fake_command(&fake, "ACQUIRE", 0).words[2],
                        fake_command(&fake, "ACQUIRE", 1).words[2]);
    must(HF_OK, hf_release(lock));
    assert_string_equal("7", fake_command(&fake, "RELEASE", 0).words[4]);
    assert_string_equal(fake_command(&fake, "ACQUIRE", 0).words[2],
                        fake_command(&fake, "END", 0).words[1]);
    hf_close(store);
    fake_stop(&fake);
}

static void another_server_is_not_taken_for_ours(void **state)
{
    struct fake fake = {.script = obliging, .hello = "redis"};
    hf_options options = with_wait(0);
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_EREFUSED, hf_try(store, "one", &options, &lock));
    must_say("is not a holdfastd: it calls itself 'redis'");
    assert_int_equal(0, fake_count(&fake, "ACQUIRE"));
    hf_close(store);
    fake_stop(&fake);
}

/* ---- answers that do not come ---------------------------------------------------------------- */

/* Hangs up instead of answering the first command that begins like the context. */
static enum fake_verdict hangs_up_once(struct fake *fake, const struct fake_command *command,
                                       char *ret_reply)
{
    if (fake->context && is(command, fake->context)) {
        fake->context = NULL;
        return FAKE_HANGS_UP;
    }
    return usual(command, ret_reply);
}

static void a_lost_answer_to_an_acquisition_ends_its_lease(void **state)
{
    struct fake fake = {.script = hangs_up_once, .context = "ACQUIRE"};
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

static enum fake_verdict has_no_room(struct fake *fake, const struct fake_command *command,
                                     char *ret_reply)
{
    if (is(command, "END"))
        return reply(ret_reply, "-LIMIT there are too many leases\r\n");
    return hangs_up_once(fake, command, ret_reply);
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

static void a_question_whose_answer_was_lost_is_asked_again(void **state)
{
    struct fake fake = {.script = hangs_up_once, .context = "CHECK"};
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

    if (is(command, "BREAK"))
        return FAKE_HANGS_UP;
    if (is(command, "SHOW"))
        return reply(ret_reply,
                     breaking->shows++ > 0 && breaking->takes_effect ? SHOWN_FREE : SHOWN_HELD);
    return usual(command, ret_reply);
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
    return is(command, "CHECK") && fake->accepted == 1 ? FAKE_IS_SILENT : usual(command, ret_reply);
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
    if (is(command, "PING") && fake->accepted == 1)
        return FAKE_IS_SILENT;
    return is(command, "SHOW") ? reply(ret_reply, SHOWN_FREE) : usual(command, ret_reply);
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

/* ---- one connection, many who ask ------------------------------------------------------------ */

#define ASKERS 8
#define QUESTIONS 300

static enum fake_verdict parity(struct fake *fake, const struct fake_command *command,
                                char *ret_reply)
{
    int number = command->words[2][0] ? command->words[2][strlen(command->words[2]) - 1] - '0' : 0;

    (void)fake;
    return reply(ret_reply, number % 2 ? ":1\r\n" : ":0\r\n");
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

    if (is(command, "ACQUIRE") && strcmp(command->words[2], granted) != 0)
        return reply(ret_reply, "+QUEUED\r\n");
    return usual(command, ret_reply);
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
    if (!is(command, "RENEW"))
        return usual(command, ret_reply);
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

/* With nobody there, whoever cancels is not made to wait until the server would have had its time. The
 * first attempt takes 3 s and is not for cancelling on any store; the second would end after 6 s. */
static void a_cancelled_wait_does_not_wait_for_a_server(void **state)
{
    hf_store *store = open_at("holdfast://127.0.0.1:1?timeout=3s");
    hf_options options = with_wait(HF_FOREVER);
    struct timespec from, to;
    hf_cancel *cancel;
    pthread_t thread;
    hf_lock *lock;

    (void)state;
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
        cmocka_unit_test(a_server_that_does_not_lead_says_who_does),
        cmocka_unit_test(two_servers_that_send_us_to_each_other_end_in_time),
        cmocka_unit_test(a_server_that_cannot_serve_yet_is_asked_again),
        cmocka_unit_test(a_server_that_never_serves_says_why),
        cmocka_unit_test(the_next_address_is_tried),
        cmocka_unit_test(errors_come_with_the_words_of_the_server),
        cmocka_unit_test(a_lease_that_is_over_is_replaced),
        cmocka_unit_test(an_unknown_outcome_is_asked_about_and_ended),
        cmocka_unit_test(another_server_is_not_taken_for_ours),
        cmocka_unit_test(a_lost_answer_to_an_acquisition_ends_its_lease),
        cmocka_unit_test(a_server_without_room_to_remember_releases),
        cmocka_unit_test(a_question_whose_answer_was_lost_is_asked_again),
        cmocka_unit_test(a_break_whose_answer_was_lost_is_looked_for_and_not_repeated),
        cmocka_unit_test(a_server_that_has_gone_quiet_is_left),
        cmocka_unit_test(a_quiet_connection_is_asked_whether_it_is_there),
        cmocka_unit_test(everybody_gets_the_answer_to_his_own_question),
        cmocka_unit_test(a_push_wakes_the_one_whom_it_concerns),
        cmocka_unit_test(all_leases_are_renewed_in_one_command),
        cmocka_unit_test(a_cancelled_wait_does_not_wait_for_a_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
