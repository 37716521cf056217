/* test_cancel.c: whoever cancels is heard while the first attempt is under way, too: at a server that takes the connection and says nothing. */
#include <errno.h>
#include <holdfast/holdfast.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
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

#define PROMPT_MS 1900 /* before the first contact is given up by itself, after 2 s */
#define PATIENCE_MS 30000
#define HANGS_S 60 /* then the test is ended from outside */

static const char *const urls[] = {
    "holdfast://127.0.0.1:%d",
    "redis://127.0.0.1:%d",
    "redlock://127.0.0.1:%d,127.0.0.1:1,127.0.0.1:2?timeout=1900ms",
    "etcd://127.0.0.1:%d",
    "postgres://127.0.0.1:%d/test",
    "postgres://127.0.0.1:%d/test?mode=row",
    "zookeeper://127.0.0.1:%d",
};

#define URL_COUNT (sizeof urls / sizeof *urls)

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int listen_silently(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_return_code(bind(fd, (const struct sockaddr *)&address, size), errno);
    assert_return_code(listen(fd, 64), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&address, &size), errno);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

struct firing {
    hf_cancel *cancel;
    int listener;
    int64_t fired_ms;
};

/* As soon as somebody has come. */
static void *fire(void *arg)
{
    struct firing *firing = arg;
    struct pollfd came = {.fd = firing->listener, .events = POLLIN};

    poll(&came, 1, PATIENCE_MS);
    firing->fired_ms = now_ms();
    hf_cancel_fire(firing->cancel);
    return NULL;
}

static int try_it(hf_store *store, const hf_options *options, hf_lock **ret_lock)
{
    return hf_try(store, "one", options, ret_lock);
}

static int acquire_it(hf_store *store, const hf_options *options, hf_lock **ret_lock)
{
    return hf_acquire(store, "one", options, ret_lock);
}

static void cancel_at(const char *format, int (*call)(hf_store *, const hf_options *, hf_lock **))
{
    hf_options options = HF_OPTIONS_INIT;
    struct firing firing;
    char url[256];
    pthread_t thread;
    hf_store *store;
    hf_lock *lock;
    int port, result;

    firing.listener = listen_silently(&port);
    snprintf(url, sizeof url, format, port);
    result = hf_open(url, &store);
    if (result == HF_EMODULE) { /* not in this build */
        close(firing.listener);
        return;
    }
    assert_int_equal(HF_OK, result);
    assert_int_equal(HF_OK, hf_cancel_new(&firing.cancel));
    options.cancel = firing.cancel;
    alarm(HANGS_S);
    assert_int_equal(0, pthread_create(&thread, NULL, fire, &firing));
    result = call(store, &options, &lock);
    pthread_join(thread, NULL);
    if (result != HF_ECANCELED || now_ms() - firing.fired_ms > PROMPT_MS)
        fail_msg("%s: %s, %d ms after it was cancelled (%s)", url, hf_result_name(result),
                 (int)(now_ms() - firing.fired_ms), hf_error());
    hf_close(store);
    alarm(0);
    hf_cancel_free(firing.cancel);
    close(firing.listener);
}

static void the_first_attempt_of_a_wait_is_cancelled(void **state)
{
    (void)state;
    for (size_t i = 0; i < URL_COUNT; i++)
        cancel_at(urls[i], acquire_it);
}

static void a_call_that_does_not_wait_is_cancelled(void **state)
{
    (void)state;
    for (size_t i = 0; i < URL_COUNT; i++)
        cancel_at(urls[i], try_it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_attempt_of_a_wait_is_cancelled),
        cmocka_unit_test(a_call_that_does_not_wait_is_cancelled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
