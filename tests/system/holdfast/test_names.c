/* test_names.c: a name server that does not answer costs nobody anything who has another server to ask, and neither does one of several addresses
 * behind a name that is silent. The resolver is the test's. */
#include "fake.h"
#include "tools.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROMPT_MS 2000 /* before any timeout is over */
#define PATIENCE_MS 30000
#define FDS_MAX 1024
#define SPAN_MS 400 /* in which the others are asked: DOUBT_MS is 100 */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool lets_go;
static int begun, ended;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found);

static int find_two(const char *port, const struct addrinfo *hints, struct addrinfo **ret_found)
{
    struct addrinfo *second = NULL;
    int result = __real_getaddrinfo("127.0.0.1", port, hints, &second);

    if (result == 0)
        result = __real_getaddrinfo("127.0.0.2", port, hints, ret_found);
    if (result == 0) /* glibc frees such a list entry by entry */
        (*ret_found)->ai_next = second;
    return result;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_found)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, port, hints, ret_found);
    if (strcmp(host, "two.test") == 0)
        return find_two(port, hints, ret_found);
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

/* What is stopped: the kernel still takes connections for it, at the first address of two.test. */
static int listen_silently(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(0, bind(fd, (const struct sockaddr *)&address, sizeof address));
    assert_int_equal(0, listen(fd, 64));
    return fd;
}

/* How many have come since the last time, each of whom has left by now. */
static int await_left(int silent)
{
    char bytes[256];
    int fd, count = 0;

    for (; (fd = accept(silent, NULL, NULL)) >= 0; count++) {
        struct pollfd heard = {.fd = fd, .events = POLLIN};

        do
            assert_int_equal(1, poll(&heard, 1, PATIENCE_MS));
        while (recv(fd, bytes, sizeof bytes, 0) > 0);
        close(fd);
    }
    return count;
}

static void a_silent_address_keeps_nobody_from_the_next(void **state)
{
    struct fake fake = {.script = fake_hangs_up_once, .role = "master"};
    hf_options options = with_wait(0);
    int64_t began_ms;
    hf_store *store;
    hf_lock *lock;
    int silent;

    (void)state;
    fake_start(&fake);
    silent = listen_silently(fake.port);
    store = open_at("holdfast://two.test:%d", fake.port);
    began_ms = now_ms();
    must(HF_OK, hf_try(store, "one", &options, &lock));
    assert_true(now_ms() - began_ms < PROMPT_MS);
    assert_true(await_left(silent) > 0);
    pthread_mutex_lock(&fake.mutex);
    fake.context = "CHECK";
    pthread_mutex_unlock(&fake.mutex);
    must(HF_OK, hf_check(store, "one", 7));
    assert_int_equal(2, fake_count(&fake, "CHECK"));
    assert_int_equal(0, await_left(silent)); /* the one that has answered comes first */
    must(HF_OK, hf_release(lock));
    close_promptly(store);
    close(silent);
    fake_stop(&fake);
}

/* It needs longer than a first turn, and a connection ends before it would have had a second one: whoever was served before gets there with the next. */
static void a_slow_server_behind_a_silent_address_is_found_again(void **state)
{
    struct fake fake = {.script = fake_hangs_up_once, .role = "master"};
    hf_options options = with_wait(PATIENCE_MS);
    hf_store *store;
    hf_lock *lock, *second;
    int silent;

    (void)state;
    fake_start(&fake);
    store = open_at("holdfast://two.test:%d?timeout=1s", fake.port);
    must(HF_OK, hf_acquire(store, "one", &options, &lock));
    silent = listen_silently(fake.port);
    pthread_mutex_lock(&fake.mutex);
    fake.slow_ms = SPAN_MS;
    fake.context = "ACQUIRE";
    pthread_mutex_unlock(&fake.mutex);
    must(HF_OK, hf_acquire(store, "two", &options, &second));
    must(HF_OK, hf_release(second));
    must(HF_OK, hf_release(lock));
    close_promptly(store);
    close(silent);
    fake_stop(&fake);
}

/* A first contact is over before such a server has answered, and nobody looks for it between two tries: what is known of its addresses is kept all the same. */
static void each_try_goes_on_where_the_last_has_ended(void **state)
{
    struct fake fake = {.script = fake_obliging, .role = "master", .slow_ms = SPAN_MS};
    hf_options options = with_wait(0);
    int64_t began_ms = now_ms();
    hf_store *store;
    hf_lock *lock;
    int silent, result;

    (void)state;
    fake_start(&fake);
    silent = listen_silently(fake.port);
    store = open_at("holdfast://two.test:%d", fake.port);
    while ((result = hf_try(store, "one", &options, &lock)) == HF_EUNREACH &&
           now_ms() - began_ms < PATIENCE_MS) {
        await_left(silent);
        fake_await_left(&fake);
    }
    must(HF_OK, result);
    must(HF_OK, hf_release(lock));
    close_promptly(store);
    close(silent);
    fake_stop(&fake);
}

/* ---- in the child of a fork ------------------------------------------------------------------ */

struct descriptors {
    int eventfds;
    int connections; /* to that port */
};

static struct descriptors count_descriptors(uint16_t port)
{
    struct descriptors found = {0};

    for (int fd = 0; fd < FDS_MAX; fd++) {
        struct sockaddr_in peer = {0};
        socklen_t size = sizeof peer;
        char path[32], what[64] = "";

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, what, sizeof what - 1) < 0)
            continue;
        found.eventfds += strstr(what, "eventfd") != NULL;
        found.connections += getpeername(fd, (struct sockaddr *)&peer, &size) == 0 &&
                             peer.sin_family == AF_INET && peer.sin_port == port;
    }
    return found;
}

static void *try_in_vain(void *arg)
{
    hf_options options = with_wait(0);
    hf_lock *lock;

    assert_int_not_equal(HF_OK, hf_try(arg, "one", &options, &lock));
    return NULL;
}

/* While a name is looked up, and a server that says nothing is waited for. */
static void a_search_stays_with_the_parent(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status = 0;
    struct pollfd came = {.fd = silent, .events = POLLIN};
    struct descriptors before;
    pthread_t thread;
    hf_store *store;
    pid_t child;

    (void)state;
    assert_int_equal(0, bind(silent, (const struct sockaddr *)&address, size));
    assert_int_equal(0, listen(silent, 64));
    assert_int_equal(0, getsockname(silent, (struct sockaddr *)&address, &size));
    store = open_at("holdfast://db8.test,127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(0, pthread_create(&thread, NULL, try_in_vain, store));
    assert_int_equal(1, poll(&came, 1, PATIENCE_MS));
    came.fd = accept(silent, NULL, NULL);
    assert_int_equal(1,
                     poll(&came, 1, PATIENCE_MS)); /* it has greeted: the search knows the link */
    pthread_mutex_lock(&mutex);
    while (begun == ended)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    before = count_descriptors(address.sin_port);
    assert_int_equal(1, before.connections);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct descriptors now = count_descriptors(address.sin_port);

        _exit((now.connections != 0 ? 1 : 0) + (now.eventfds != before.eventfds - 1 ? 2 : 0));
    }
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_int_equal(0, status);
    pthread_join(thread, NULL);
    close_promptly(store);
    close(came.fd);
    close(silent);
}

static _Atomic bool forks; /* as soon as a socket is connected */
static _Atomic int kept;   /* by the child, of that; -1: there was none yet */

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    int status = -1;
    pid_t child;

    if (atomic_exchange(&forks, false)) {
        child = fork();
        if (child == 0)
            _exit(fcntl(fd, F_GETFD) >= 0);
        if (child > 0 && waitpid(child, &status, 0) == child)
            atomic_store(&kept, status);
    }
    return __real_connect(fd, address, size);
}

/* Of the moment that its connection begins. Nobody listens there. */
static void a_socket_stays_with_the_parent_from_the_first(void **state)
{
    static const char *const schemes[] = {"holdfast", "redis"};

    (void)state;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        hf_store *store = open_at("%s://127.0.0.1:1", schemes[i]);

        atomic_store(&kept, -1);
        atomic_store(&forks, true);
        try_in_vain(store);
        assert_int_equal(0, atomic_load(&kept));
        close_promptly(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_name_that_nobody_finds_holds_nobody_up, let_go),
        cmocka_unit_test_teardown(a_slow_leader_is_heard_while_a_name_is_looked_up, let_go),
        cmocka_unit_test_teardown(a_silent_address_keeps_nobody_from_the_next, let_go),
        cmocka_unit_test_teardown(a_slow_server_behind_a_silent_address_is_found_again, let_go),
        cmocka_unit_test_teardown(each_try_goes_on_where_the_last_has_ended, let_go),
        cmocka_unit_test_teardown(a_search_stays_with_the_parent, let_go),
        cmocka_unit_test(a_socket_stays_with_the_parent_from_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
