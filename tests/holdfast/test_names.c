/* test_names.c: a name server that does not answer costs nobody anything who has another server to ask. The resolver is the test's. */
#include "fake.h"
#include "tools.h"

#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define PROMPT_MS 2000 /* before any timeout is over */
#define SPAN_MS 400    /* in which the others are asked: DOUBT_MS is 100 */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool lets_go;
static int begun, ended;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, ret_found);
    pthread_mutex_lock(&mutex);
    begun++;
    pthread_cond_broadcast(&changed);
    while (!lets_go)
        pthread_cond_wait(&changed, &mutex);
    ended++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return EAI_AGAIN;
}

static int let_go(void **state)
{
    (void)state;
    pthread_mutex_lock(&mutex);
    lets_go = true;
    pthread_cond_broadcast(&changed);
    while (ended < begun)
        pthread_cond_wait(&changed, &mutex);
    lets_go = false;
    pthread_mutex_unlock(&mutex);
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void close_promptly(hf_store *store)
{
    int64_t began_ms = now_ms();

    hf_close(store);
    assert_true(now_ms() - began_ms < PROMPT_MS);
}

static void a_name_that_nobody_finds_holds_nobody_up(void **state)
{
    struct fake fake = {.script = fake_obliging, .role = "master"};
    hf_options options = with_wait(0);
    int64_t began_ms = now_ms();
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://db9.test,127.0.0.1:%d", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_true(now_ms() - began_ms < PROMPT_MS);
    must(HF_OK, hf_release(lock));
    close_promptly(store);
    fake_stop(&fake);
}

static enum fake_verdict swallows_checks(struct fake *fake, const struct fake_command *command,
                                         char *ret_reply)
{
    (void)fake;
    return fake_is(command, "CHECK") ? FAKE_IS_SILENT : fake_usual(command, ret_reply);
}

static void *answer_late(void *arg)
{
    struct timespec span = {.tv_nsec = SPAN_MS * 1000000};

    fake_await(arg, "CHECK", 1);
    nanosleep(&span, NULL);
    fake_say(arg, "$9\r\nexclusive\r\n");
    return NULL;
}

/* It leads on, and is only slow: its connection is read while the others are looked for. */
static void a_slow_leader_is_heard_while_a_name_is_looked_up(void **state)
{
    struct fake fake = {.script = swallows_checks, .role = "master"};
    hf_options options = with_wait(0);
    pthread_t thread;
    int64_t began_ms;
    hf_store *store;
    hf_lock *lock;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://127.0.0.1:%d,db9.test", fake.port);
    must(HF_OK, hf_try(store, "one", &options, &lock));
    began_ms = now_ms();
    assert_int_equal(0, pthread_create(&thread, NULL, answer_late, &fake));
    must(HF_OK, hf_check(store, "one", 7));
    assert_true(now_ms() - began_ms < PROMPT_MS);
    pthread_join(thread, NULL);
    must(HF_OK, hf_release(lock));
    assert_int_equal(1, fake_accepted(&fake));
    close_promptly(store);
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_name_that_nobody_finds_holds_nobody_up, let_go),
        cmocka_unit_test_teardown(a_slow_leader_is_heard_while_a_name_is_looked_up, let_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
