/* test_told.c: what the holdfast engine makes of what a server tells it, by a server that says what the test
 * wants: where to go, that it cannot serve, what is wrong. */
#include "fake.h"
#include "tools.h"

#include <stdio.h>
#include <string.h>

/* The context is a list of texts, each said once to an ACQUIRE; then the usual. */
static enum fake_verdict by_list(struct fake *fake, const struct fake_command *command,
                                 char *ret_reply)
{
    const char ***next = fake->context;

    if (fake_is(command, "ACQUIRE") && **next)
        return fake_reply(ret_reply, *(*next)++);
    return fake_usual(command, ret_reply);
}

/* ---- where to go ----------------------------------------------------------------------------- */

static void a_server_that_does_not_lead_says_who_does(void **state)
{
    struct fake leader = {.script = fake_obliging}, follower = {.script = by_list};
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
    int result, tries = 0;
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
    do /* its time may be up while an answer is on its way: that is another story, told below */
        result = hf_try(store, "one", &options, &lock);
    while (++tries < 5 && result == HF_EBUSY && strstr(hf_error(), "answers were lost"));
    must(HF_EUNREACH, result);
    must_say("does not lead");
    /* With pauses that grow, and not as fast as they can. */
    assert_true(fake_count(&one, "ACQUIRE") + fake_count(&two, "ACQUIRE") < tries * 400);
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
    return fake_reply(ret_reply, "-STOPPED its disk is full\r\n");
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
    /* An answer that takes longer than that is lost, and the outcome unknown. */
    store = open_at("holdfast://127.0.0.1:%d?timeout=1s", fake.port);
    must(HF_EUNREACH, hf_try(store, "one", &options, &lock));
    must_say("its disk is full");
    must(HF_EUNREACH, hf_show(store, "one", &report));
    must_say("its disk is full");
    hf_close(store);
    fake_stop(&fake);
}

static enum fake_verdict says_nothing(struct fake *fake, const struct fake_command *command,
                                      char *ret_reply)
{
    (void)fake;
    (void)command;
    (void)ret_reply;
    return FAKE_IS_SILENT;
}

/* A question changes nothing, so nothing is in doubt when its answer does not come. */
static void a_question_has_no_unknown_outcome(void **state)
{
    struct fake fake = {.script = says_nothing};
    hf_report *report;
    hf_store *store;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port); /* which has more than a question */
    must(HF_EUNREACH, hf_show(store, "one", &report));
    must_say("did not answer in time");
    hf_close(store);
    fake_stop(&fake);
}

static void the_next_address_is_tried(void **state)
{
    struct fake good = {.script = fake_obliging}, stuck = {.script = never_leads},
                deaf = {.script = fake_obliging, .deaf = true};
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
    struct fake fake = {.script = fake_obliging, .hello = "redis"};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_does_not_lead_says_who_does),
        cmocka_unit_test(two_servers_that_send_us_to_each_other_end_in_time),
        cmocka_unit_test(a_server_that_cannot_serve_yet_is_asked_again),
        cmocka_unit_test(a_server_that_never_serves_says_why),
        cmocka_unit_test(a_question_has_no_unknown_outcome),
        cmocka_unit_test(the_next_address_is_tried),
        cmocka_unit_test(errors_come_with_the_words_of_the_server),
        cmocka_unit_test(a_lease_that_is_over_is_replaced),
        cmocka_unit_test(an_unknown_outcome_is_asked_about_and_ended),
        cmocka_unit_test(another_server_is_not_taken_for_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
