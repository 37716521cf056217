/* test_pool.c: what a handle knows by its connections, when some of them are slow or dead.
 *
 * Between the handle and the server is a relay, in a thread of this process, that treats each connection by its number: hf-relay treats all of
 * them the same. Some are stalled: they stay open and nothing moves, as behind a NAT that forgot them. Of one, what the server answers to
 * its first statement (it says which incarnation is there) comes late. */
#include "postgres.h"

#include <holdfast/holdfast.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TTL_MS 20000
#define LONG_TTL_MS 60000 /* where no renewal is waited for */
#define WAIT_MS 30000
#define TICK_MS 10
#define CONNECTIONS 8 /* PG_POOL_MAX */
#define PAIRS_MAX 64

/* ---- the relay ----------------------------------------------------------------------------------- */

enum end { CLIENT, SERVER, ENDS };

struct pair {
    int fds[ENDS]; /* -1: it has ended */
    bool asked;    /* the statement whose answer may come late is on its way */
};

static struct postgres server;
/* The thread's own, while it runs. */
static struct pair pairs[PAIRS_MAX];
static int pair_count, listener = -1;
static pthread_t relay_thread;
static int relay_port;
/* By number, in the order in which they came. */
static atomic_int taken_on;      /* so many */
static atomic_int stalled_below; /* these are */
static atomic_int late;          /* of this one; -1: of none */
static atomic_int late_is_here;  /* the relay could pass it on, and does not */
static atomic_bool relay_ends;

static void take_on(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pair *pair = &pairs[pair_count];

    pair->fds[CLIENT] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    pair->fds[SERVER] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair->asked = false;
    if (connect(pair->fds[SERVER], (struct sockaddr *)&address, sizeof address) < 0)
        perror("connect");
    atomic_store(&taken_on, ++pair_count);
}

static void end_pair(struct pair *pair)
{
    for (int i = 0; i < ENDS; i++) {
        if (pair->fds[i] >= 0)
            close(pair->fds[i]);
        pair->fds[i] = -1;
    }
}

static void pass_on(int number, enum end from)
{
    struct pair *pair = &pairs[number];
    bool is_late = atomic_load(&late) == number;
    char bytes[16384];
    ssize_t size;

    if (is_late && pair->asked && from == SERVER) {
        atomic_store(&late_is_here, 1);
        return;
    }
    size = recv(pair->fds[from], bytes, sizeof bytes, 0);
    if (is_late && size > 0 && memmem(bytes, (size_t)size, "_incarnation", strlen("_incarnation")))
        pair->asked = true;
    if (size <= 0 || send(pair->fds[!from], bytes, (size_t)size, MSG_NOSIGNAL) != size)
        end_pair(pair);
}

static bool is_stalled(int number)
{
    return number < atomic_load(&stalled_below) ||
           (number == atomic_load(&late) && atomic_load(&late_is_here));
}

static void *relay(void *arg)
{
    (void)arg;
    while (!atomic_load(&relay_ends)) {
        struct pollfd ready[1 + PAIRS_MAX * ENDS] = {{.fd = listener, .events = POLLIN}};
        int count = pair_count * ENDS;

        if (pair_count == PAIRS_MAX)
            ready[0].fd = -1;
        for (int i = 0; i < count; i++) {
            int fd = is_stalled(i / ENDS) ? -1 : pairs[i / ENDS].fds[i % ENDS];

            ready[1 + i] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
        if (poll(ready, 1 + (nfds_t)count, TICK_MS) <= 0)
            continue;
        for (int i = 0; i < count; i++)
            if (ready[1 + i].revents && pairs[i / ENDS].fds[0] >= 0 && !is_stalled(i / ENDS))
                pass_on(i / ENDS, i % ENDS == CLIENT ? CLIENT : SERVER);
        if (ready[0].revents)
            take_on();
    }
    return NULL;
}

static int start_relay(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    (void)state;
    pair_count = 0;
    atomic_store(&taken_on, 0);
    atomic_store(&stalled_below, 0);
    atomic_store(&late, -1);
    atomic_store(&late_is_here, 0);
    atomic_store(&relay_ends, false);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 ||
        listen(listener, PAIRS_MAX) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        return -1;
    relay_port = ntohs(address.sin_port);
    return pthread_create(&relay_thread, NULL, relay, NULL);
}

static int stop_relay(void **state)
{
    (void)state;
    atomic_store(&relay_ends, true);
    pthread_join(relay_thread, NULL);
    for (int i = 0; i < pair_count; i++)
        end_pair(&pairs[i]);
    close(listener);
    return 0;
}

/* ---- the handle ---------------------------------------------------------------------------------- */

static hf_store *store;
static atomic_int calls_done, losses;

struct caller {
    pthread_t thread;
    char name[16];
    int result;
};

static struct caller callers[CONNECTIONS];

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("%s: %s", hf_result_name(result), hf_error());
}

/* Each test has tables of its own. Only connections of the pool are to be numbered, so nobody listens. */
static void open_through_relay(const char *table)
{
    char url[256];

    snprintf(url, sizeof url,
             "postgres://postgres@127.0.0.1:%d/postgres?listen=off&timeout=30s&table=%s",
             relay_port, table);
    atomic_store(&losses, 0);
    must(HF_OK, hf_open(url, &store));
}

static void note_loss(hf_lock *lock, void *arg)
{
    (void)lock;
    (void)arg;
    atomic_fetch_add(&losses, 1);
}

static int acquire(const char *name, int64_t ttl_ms, hf_lock **ret_lock)
{
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = ttl_ms;
    options.wait_ms = WAIT_MS;
    options.on_lost = note_loss;
    return hf_acquire(store, name, &options, ret_lock);
}

static void *call(void *arg)
{
    struct caller *caller = arg;
    hf_lock *lock;

    caller->result = acquire(caller->name, LONG_TTL_MS, &lock);
    if (caller->result == HF_OK)
        caller->result = hf_release(lock);
    if (caller->result != HF_OK)
        fprintf(stderr, "%s: %s\n", caller->name, hf_error());
    atomic_fetch_add(&calls_done, 1);
    return NULL;
}

static void start_calls(int count)
{
    atomic_store(&calls_done, 0);
    for (int i = 0; i < count; i++) {
        snprintf(callers[i].name, sizeof callers[i].name, "caller%d", i);
        assert_int_equal(0, pthread_create(&callers[i].thread, NULL, call, &callers[i]));
    }
}

static void end_calls(int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < count; i++)
        assert_int_equal(HF_OK, callers[i].result);
}

static bool tick(int *left_ms)
{
    struct timespec span = {.tv_nsec = TICK_MS * 1000000};

    nanosleep(&span, NULL);
    *left_ms -= TICK_MS;
    return *left_ms > 0;
}

static void await_number(const atomic_int *number, int least)
{
    int left_ms = WAIT_MS;

    while (atomic_load(number) < least)
        assert_true(tick(&left_ms));
}

/* ---- what must be true --------------------------------------------------------------------------- */

/* The pool has CONNECTIONS of them, and each that is asked in vain costs a part of the TTL. */
static void a_hold_survives_that_idle_connections_are_swallowed(void **state)
{
    int64_t before_ms = INT64_MAX, now_ms;
    hf_lock *kept;
    int old, left_ms = WAIT_MS;

    (void)state;
    open_through_relay("swallowed");
    must(HF_OK, acquire("kept", TTL_MS, &kept));
    atomic_store(&stalled_below, PAIRS_MAX); /* so that each caller needs one of its own */
    start_calls(CONNECTIONS);
    await_number(&taken_on, CONNECTIONS);
    atomic_store(&stalled_below, 0);
    end_calls(CONNECTIONS);

    old = atomic_load(&taken_on);
    atomic_store(&stalled_below, old);
    for (;;) { /* until it is renewed over a new one */
        bool anew = atomic_load(&taken_on) > old;

        now_ms = hf_lock_left_ms(kept);
        assert_true(now_ms > 0);
        if (anew && now_ms > before_ms)
            break;
        before_ms = now_ms;
        assert_true(tick(&left_ms));
    }
    assert_int_equal(0, atomic_load(&losses));
    must(HF_OK, hf_release(kept));
    hf_close(store);
}

/* What a connection says of the server may have been true before others said something else. */
static void a_late_answer_does_not_turn_the_incarnation_back(void **state)
{
    const uint64_t floor = 3000000000000000; /* above all tokens there are: a new era */
    int ended = 0;
    char url[256];
    hf_store *direct;
    hf_lock *kept;

    (void)state;
    snprintf(url, sizeof url, "postgres://postgres@127.0.0.1:%d/postgres?table=late", server.port);
    must(HF_OK, hf_open(url, &direct));
    open_through_relay("late");
    must(HF_OK, acquire("first", LONG_TTL_MS, &kept));
    must(HF_OK, hf_release(kept));
    assert_int_equal(1, atomic_load(&taken_on));
    atomic_store(&late, 1);
    atomic_store(&stalled_below, 1); /* one of two callers has the first, the other makes another */
    start_calls(2);
    await_number(&late_is_here, 1);
    atomic_store(&stalled_below, 0);
    await_number(&calls_done, 1);

    must(HF_OK, hf_floor_at(direct, floor, NULL, &ended));
    assert_int_equal(1, ended);
    must(HF_OK, acquire("kept", LONG_TTL_MS, &kept));
    assert_true(hf_lock_token(kept) > floor);
    if (atomic_load(&calls_done) > 1) /* after ATTEMPT_MS of the client */
        print_message("too slow: that connection has been given up, and says nothing any more\n");
    atomic_store(&late, -1);
    end_calls(2);
    must(HF_OK, hf_renew(kept));
    assert_true(hf_lock_left_ms(kept) > 0);
    assert_int_equal(0, atomic_load(&losses));
    must(HF_OK, hf_release(kept));
    hf_close(store);
    hf_close(direct);
}

/* ---- a fork -------------------------------------------------------------------------------------- */

#define OPENERS 4
#define FORKS 400
#define CHILD_S_MAX 20

static atomic_bool openers_end;

static void *open_and_close(void *arg)
{
    (void)arg;
    while (!atomic_load(&openers_end)) {
        hf_store *opened = NULL;

        if (hf_open("postgres://postgres@127.0.0.1/postgres", &opened) == HF_OK)
            hf_close(opened);
    }
    return NULL;
}

/* The lock that libpq has for reading its defaults may be held by a thread that the child does not have. */
static void a_child_opens_a_store_whatever_others_did_at_the_fork(void **state)
{
    pthread_t openers[OPENERS];
    hf_store *opened;
    int bad = 0;

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the sanitizer's own allocator has such locks */
#endif
    must(HF_OK, hf_open("postgres://postgres@127.0.0.1/postgres", &opened));
    hf_close(opened); /* the module has been loaded */
    atomic_store(&openers_end, false);
    for (int i = 0; i < OPENERS; i++)
        assert_int_equal(0, pthread_create(&openers[i], NULL, open_and_close, NULL));
    for (int i = 0; i < FORKS && bad == 0; i++) {
        pid_t child = fork();
        int status;

        if (child == 0) {
            alarm(CHILD_S_MAX);
            _exit(hf_open("postgres://postgres@127.0.0.1/postgres", &opened) != HF_OK);
        }
        assert_true(child > 0);
        assert_int_equal(child, waitpid(child, &status, 0));
        bad += status != 0;
    }
    atomic_store(&openers_end, true);
    for (int i = 0; i < OPENERS; i++)
        pthread_join(openers[i], NULL);
    assert_int_equal(0, bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_opens_a_store_whatever_others_did_at_the_fork),
        cmocka_unit_test_setup_teardown(a_hold_survives_that_idle_connections_are_swallowed,
                                        start_relay, stop_relay),
        cmocka_unit_test_setup_teardown(a_late_answer_does_not_turn_the_incarnation_back,
                                        start_relay, stop_relay),
    };
    int failed;

    if (postgres_start(&server, NULL) < 0)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    postgres_stop(&server);
    return failed != 0;
}
