/* test_cancel.c: whoever cancels while the server has the question, and says nothing, is heard at once, and leaves nothing behind. */
#include "fake.h"
#include "tools.h"

#include <pthread.h>
#include <time.h>

#define PROMPT_MS 2500 /* before timeout= has passed, after which any silent server is left, */
#define TRY_MS 900     /* or one attempt of a call that does not wait */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Takes acquisitions and says nothing; the first answer after one is its own, late. */
static enum fake_verdict is_late(struct fake *fake, const struct fake_command *command,
                                 char *ret_reply)
{
    (void)fake;
    if (fake_is(command, "ACQUIRE"))
        return FAKE_IS_SILENT;
    if (fake_is(command, "END"))
        return fake_reply(ret_reply, ":7\r\n:1\r\n");
    return fake_usual(command, ret_reply);
}

struct firing {
    struct fake *fake;
    hf_cancel *cancel;
};

static void *fire(void *arg)
{
    struct firing *firing = arg;

    fake_await(firing->fake, "ACQUIRE", 1);
    hf_cancel_fire(firing->cancel);
    return NULL;
}

/* A claim that waits has the I/O thread read its answers; one that does not reads them itself. */
static void cancel_what_was_sent(int64_t wait_ms, int64_t prompt_ms)
{
    struct fake fake = {.script = is_late, .role = "master"};
    struct firing firing = {.fake = &fake};
    hf_options options = with_wait(wait_ms);
    hf_store *store;
    int64_t began_ms;
    hf_lock *lock;
    pthread_t thread;

    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d", fake.port);
    must(HF_OK, hf_check(store, "one", 7)); /* from now on a wait is a wait */
    must(HF_OK, hf_cancel_new(&firing.cancel));
    options.cancel = firing.cancel;
    assert_int_equal(0, pthread_create(&thread, NULL, fire, &firing));
    began_ms = now_ms();
    must(HF_ECANCELED, hf_acquire(store, "one", &options, &lock));
    assert_true(now_ms() - began_ms < prompt_ms);
    pthread_join(thread, NULL);
    assert_int_equal(1, fake_count(&fake, "ACQUIRE"));
    assert_int_equal(1, fake_count(&fake, "END"));
    must(HF_OK, hf_check(store, "one", 7)); /* and its late answer is nobody else's */
    assert_int_equal(0, hf_outage_ms(store));
    hf_close(store);
    hf_cancel_free(firing.cancel);
    fake_stop(&fake);
}

static void what_was_sent_is_cancelled(void **state)
{
    (void)state;
    cancel_what_was_sent(HF_FOREVER, PROMPT_MS);
}

static void what_was_sent_is_cancelled_by_whoever_does_not_wait(void **state)
{
    (void)state;
    cancel_what_was_sent(0, TRY_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sent_is_cancelled),
        cmocka_unit_test(what_was_sent_is_cancelled_by_whoever_does_not_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
