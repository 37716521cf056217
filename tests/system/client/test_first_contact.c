/* test_first_contact.c: a program whose store was never there. Nobody listens at port 1. And one whose server accepts
 * connections, and says nothing. */
#include <arpa/inet.h>
#include <holdfast/holdfast.h>
#include <holdfast/once.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define AT_ONCE_MS \
    8000           /* on a machine with other things to do: the search for a server takes two */
#define HANGS_S 60 /* then the test is ended from outside */

static const char *const urls[] = {
    "redis://127.0.0.1:1",
    "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "holdfast://127.0.0.1:1",
    "holdfast://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
};

#define URL_COUNT (sizeof urls / sizeof *urls)

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s: %s", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

/* Each with a handle of its own. */
static void at_once(int (*call)(hf_store *store))
{
    for (size_t i = 0; i < URL_COUNT; i++) {
        int64_t began_ms = now_ms();
        hf_store *store;

        alarm(HANGS_S);
        must(HF_OK, hf_open(urls[i], &store));
        must(HF_EUNREACH, call(store));
        assert_non_null(strstr(hf_error(), "127.0.0.1"));
        assert_true(now_ms() - began_ms < AT_ONCE_MS);
        assert_int_equal(0, hf_outage_ms(store)); /* nothing waits for its end */
        hf_close(store);
        alarm(0);
    }
}

static int acquire(hf_store *store)
{
    hf_lock *lock;

    return hf_acquire(store, "one", NULL, &lock);
}

static int acquire_within_an_hour(hf_store *store)
{
    hf_options options = HF_OPTIONS_INIT;
    hf_lock *lock;

    options.wait_ms = 3600000;
    return hf_acquire(store, "one", &options, &lock);
}

static int campaign(hf_store *store)
{
    hf_lock *mandate;

    return hf_campaign(store, "one", NULL, &mandate);
}

static void note_result(hf_op *op, int result, void *arg)
{
    (void)op;
    *(int *)arg = result;
}

static int acquire_started(hf_store *store)
{
    int result = 1, fd = hf_fd(store);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    hf_op *op;

    must(HF_OK, hf_acquire_start(store, "one", NULL, note_result, &result, &op));
    while (result == 1) {
        poll(&ready, 1, -1);
        assert_true(hf_dispatch(store) >= 0);
    }
    return result;
}

static void never_called(hf_observer *observer, const hf_report *now, void *arg)
{
    (void)observer;
    (void)now;
    (void)arg;
    fail();
}

static int observe(hf_store *store)
{
    hf_observer *observer;

    return hf_observe(store, "one", never_called, NULL, &observer);
}

static void an_acquisition_ends(void **state)
{
    (void)state;
    at_once(acquire);
}

static void a_long_wait_ends(void **state)
{
    (void)state;
    at_once(acquire_within_an_hour);
}

static void a_campaign_ends(void **state)
{
    (void)state;
    at_once(campaign);
}

static void a_started_one_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < URL_COUNT; i++) {
        int64_t began_ms = now_ms();
        hf_store *store;

        alarm(HANGS_S);
        must(HF_OK, hf_open(urls[i], &store));
        assert_int_equal(HF_EUNREACH, acquire_started(store));
        assert_true(now_ms() - began_ms < AT_ONCE_MS);
        hf_close(store);
        alarm(0);
    }
}

static void an_observer_is_refused(void **state)
{
    (void)state;
    at_once(observe);
}

/* ---- a server that says nothing -------------------------------------------------------------- */

static int listen_silently(int *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(0, bind(fd, (struct sockaddr *)&at, size));
    assert_int_equal(0, listen(fd, 100));
    assert_int_equal(0, getsockname(fd, (struct sockaddr *)&at, &size));
    *ret_port = ntohs(at.sin_port);
    return fd;
}

static int try_once(hf_store *store)
{
    hf_lock *lock;

    return hf_try(store, "one", NULL, &lock);
}

static int look(hf_store *store)
{
    hf_report *report;

    return hf_show(store, "one", &report);
}

/* How long it takes until a call gives up. */
static int64_t patience_ms(const char *scheme, int port, const char *options,
                           int (*call)(hf_store *store))
{
    int64_t began_ms;
    hf_store *store;
    char url[128];

    snprintf(url, sizeof url, "%s://127.0.0.1:%d%s", scheme, port, options);
    alarm(HANGS_S);
    must(HF_OK, hf_open(url, &store));
    began_ms = now_ms();
    must(HF_EUNREACH, call(store));
    began_ms = now_ms() - began_ms;
    hf_close(store);
    alarm(0);
    return began_ms;
}

/* A first contact lasts 2 s, and `timeout=` makes it longer. Shorter it makes none: there may be several servers. */
static void a_url_says_for_how_long(void **state)
{
    static int (*const calls[])(hf_store * store) = {acquire, try_once, observe, look};
    int port, fd = listen_silently(&port);

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        assert_true(patience_ms("holdfast", port, "?timeout=4500ms", calls[i]) >= 4500);
        assert_true(patience_ms("holdfast", port, "", calls[i]) < 4500);
    }
    assert_true(patience_ms("holdfast", port, "?timeout=8s", acquire) >=
                8000); /* above ATTEMPT_MS */
    assert_true(patience_ms("holdfast", port, "?timeout=1500ms", acquire) < 4500);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_acquisition_ends),    cmocka_unit_test(a_long_wait_ends),
        cmocka_unit_test(a_campaign_ends),        cmocka_unit_test(a_started_one_ends),
        cmocka_unit_test(an_observer_is_refused), cmocka_unit_test(a_url_says_for_how_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
