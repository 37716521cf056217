/* test_descriptors.c: which descriptors of the program are the library's, and what is done to them: connections to a server
 * that has stopped are ended, all are close-on-exec, and those of the program itself are left alone. */
#include "servers.h"
#include "zookeeper.h"

#include "base/clock.h"

#include <holdfast/holdfast.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 20000
#define TTL_MS 4000
#define LONG_TTL_MS 10000
#define HOLDERS 8
#define HANDLES 40
#define COMING 1000   /* threads of the program's, */
#define COMING_MS 100 /* and for how long the last one is there */
#define OPENINGS 40
#define QUEUED 4 /* connections that a listener has no room for */
#define RESETS 3
#define FDS_MAX 1024 /* more than are used here */

static struct ensemble ensemble;

/* ---- tools ----------------------------------------------------------------------------------- */

static int start(void **state)
{
    (void)state;
    return ensemble_start(&ensemble);
}

static int stop(void **state)
{
    (void)state;
    ensemble_stop(&ensemble);
    return 0;
}

static void must(int expected, int result)
{
    if (result != expected)
        fail_msg("expected %s, got %s (%s)", hf_result_name(expected), hf_result_name(result),
                 hf_error());
}

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

struct holder {
    hf_store *store;
    hf_lock *lock;
    char name[16];
    int64_t ttl_ms;
    int result;
};

static void *hold(void *arg)
{
    struct holder *holder = arg;
    hf_options options = HF_OPTIONS_INIT;

    options.ttl_ms = holder->ttl_ms;
    options.wait_ms = PATIENCE_MS;
    holder->result = hf_acquire(holder->store, holder->name, &options, &holder->lock);
    return NULL;
}

/* All at once. */
static void hold_all(struct holder *holders, int count)
{
    pthread_t threads[HANDLES];

    for (int i = 0; i < count; i++) {
        snprintf(holders[i].name, sizeof holders[i].name, "%d", i);
        assert_int_equal(0, pthread_create(&threads[i], NULL, hold, &holders[i]));
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        must(HF_OK, holders[i].result);
    }
}

/* One server stops for longer than a hold lasts that is not renewed. A majority is left: no hold is lost. */
static void stop_one_and_keep_all(struct holder *holders, int count)
{
    int stopped = ensemble_leader(&ensemble) == 0 ? 1 : 0, lost_count = 0;
    int64_t until_ms = clock_boot_ms() + 2 * TTL_MS;

    assert_int_equal(0, zookeeper_pause(&ensemble.nodes[stopped]));
    for (int i = 0; i < count; i++) {
        struct pollfd lost = {.fd = hf_lock_lost_fd(holders[i].lock), .events = POLLIN};
        int64_t left_ms = until_ms - clock_boot_ms();

        if (poll(&lost, 1, left_ms > 0 ? (int)left_ms : 0) != 0 && ++lost_count == 1)
            print_message("%d: %s\n", i, hf_lock_lost_why(holders[i].lock));
    }
    assert_int_equal(0, zookeeper_resume(&ensemble.nodes[stopped]));
    assert_int_equal(0, ensemble_await_whole(&ensemble));
    assert_int_equal(0, lost_count);
    for (int i = 0; i < count; i++)
        must(HF_OK, hf_release(holders[i].lock));
}

/* Connections to these ports that a program which is run would inherit. */
static int inherited_connections(const int ports[ZOOKEEPER_NODES])
{
    int count = 0;

    for (int fd = 3; fd < FDS_MAX; fd++) {
        struct sockaddr_in address = {0};
        socklen_t size = sizeof address;

        if (fcntl(fd, F_GETFD) != 0 || getpeername(fd, (struct sockaddr *)&address, &size) != 0)
            continue;
        for (int i = 0; i < ZOOKEEPER_NODES; i++)
            count += address.sin_port == htons((uint16_t)ports[i]);
    }
    return count;
}

static void await_inherited(const int ports[ZOOKEEPER_NODES], int count)
{
    int64_t deadline_ms = clock_boot_ms() + PATIENCE_MS;

    while (inherited_connections(ports) != count) {
        if (clock_boot_ms() > deadline_ms)
            fail_msg("%d connections would be inherited, not %d", inherited_connections(ports),
                     count);
        pause_a_moment();
    }
}

/* ---- a server that stops --------------------------------------------------------------------- */

/* As a program has that speaks to ZooKeeper itself. */
static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(0, connect(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

/* Each TTL has a session of its own, and all of them connect at once, beside what the program itself is connected to. Which
 * connection is whose must be known for each, to leave a server that has stopped. */
static void a_stopped_server_costs_no_hold_whoever_else_is_connected(void **state)
{
    struct holder holders[HOLDERS] = {0};
    int own[ZOOKEEPER_NODES], ports[ZOOKEEPER_NODES];
    hf_store *store;
    char url[256];

    (void)state;
    ensemble_url(&ensemble, url, sizeof url);
    must(HF_OK, hf_open(url, &store));
    for (int i = 0; i < ZOOKEEPER_NODES; i++) {
        ports[i] = ensemble.nodes[i].port;
        own[i] = connect_to(ports[i]);
    }
    for (int i = 0; i < HOLDERS; i++) {
        holders[i].store = store;
        holders[i].ttl_ms = TTL_MS + i;
    }
    hold_all(holders, HOLDERS);
    await_inherited(ports, ZOOKEEPER_NODES); /* the program's own */
    stop_one_and_keep_all(holders, HOLDERS);
    for (int i = 0; i < ZOOKEEPER_NODES; i++) {
        assert_int_equal(0, fcntl(own[i], F_GETFD));
        assert_true(send(own[i], "", 0, MSG_NOSIGNAL) == 0); /* nobody has shut it down here */
        close(own[i]);
    }
    hf_close(store);
}

/* Its connection was broken, and there is another one. */
static void await_renewed(hf_lock *lock)
{
    int64_t deadline_ms = clock_boot_ms() + PATIENCE_MS;
    int result;

    do
        result = hf_renew(lock);
    while ((result == HF_EUNKNOWN || result == HF_EUNREACH) && clock_boot_ms() < deadline_ms);
    must(HF_OK, result);
}

/* A switch that restarts breaks the connections of all handles at once, and all of them connect again together. */
static void handles_that_reconnect_together_survive_a_stopped_server(void **state)
{
    static struct holder holders[HANDLES];
    struct relay relays[ZOOKEEPER_NODES] = {0};
    int ports[ZOOKEEPER_NODES];
    char url[256];

    (void)state;
    for (int i = 0; i < ZOOKEEPER_NODES; i++) {
        assert_int_equal(0, relay_start(&relays[i], ensemble.nodes[i].port));
        ports[i] = relays[i].port;
    }
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/together",
             ports[0], ports[1], ports[2]);
    for (int i = 0; i < HANDLES; i++) {
        must(HF_OK, hf_open(url, &holders[i].store));
        holders[i].ttl_ms = TTL_MS;
    }
    hold_all(holders, HANDLES);
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        assert_int_equal(0, relay_say(&relays[i], "reset"));
    for (int i = 0; i < HANDLES; i++)
        await_renewed(holders[i].lock);
    await_inherited(ports, 0);
    stop_one_and_keep_all(holders, HANDLES);
    for (int i = 0; i < HANDLES; i++)
        hf_close(holders[i].store);
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        relay_stop(&relays[i]);
}

/* A machine that is gone answers nothing, not even that there is nobody: like a listener whose queue is full. */
struct vanished {
    int listener, port, queued[QUEUED];
};

static void vanish(struct vanished *ret)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    ret->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(0, bind(ret->listener, (struct sockaddr *)&address, size));
    assert_int_equal(0, listen(ret->listener, 0));
    assert_int_equal(0, getsockname(ret->listener, (struct sockaddr *)&address, &size));
    ret->port = ntohs(address.sin_port);
    for (int i = 0; i < QUEUED; i++) {
        ret->queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(connect(ret->queued[i], (struct sockaddr *)&address, size) == 0 ||
                    errno == EINPROGRESS);
    }
}

static void appear(struct vanished *vanished)
{
    for (int i = 0; i < QUEUED; i++)
        close(vanished->queued[i]);
    close(vanished->listener);
}

/* Whoever loses its connection tries that one first, as often as not. */
static void a_server_that_has_vanished_costs_no_hold(void **state)
{
    struct holder holder = {.name = "vanished", .ttl_ms = LONG_TTL_MS};
    struct relay relay = {0};
    struct vanished vanished;
    char url[256];

    (void)state;
    vanish(&vanished);
    assert_int_equal(0, relay_start(&relay, ensemble.nodes[0].port));
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d,127.0.0.1:%d/vanished", vanished.port,
             relay.port);
    must(HF_OK, hf_open(url, &holder.store));
    hold(&holder);
    must(HF_OK, holder.result);
    for (int i = 0; i < RESETS; i++) {
        assert_int_equal(0, relay_say(&relay, "reset"));
        await_renewed(holder.lock);
    }
    must(HF_OK, hf_release(holder.lock));
    hf_close(holder.store);
    relay_stop(&relay);
    appear(&vanished);
}

/* ---- threads of the program ------------------------------------------------------------------- */

/* Lives for a few moments. */
static void *come_and_go(void *arg)
{
    for (intptr_t i = 0; i < (intptr_t)arg; i++)
        pause_a_moment();
    return NULL;
}

/* While one ends, the kernel's list of them leaves out younger ones. */
static void threads_that_come_and_go_hide_none_of_the_library_s(void **state)
{
    static struct holder holders[HANDLES];
    int ports[ZOOKEEPER_NODES];
    pthread_t threads[COMING];
    char url[256];

    (void)state;
    ensemble_url(&ensemble, url, sizeof url);
    for (int i = 0; i < ZOOKEEPER_NODES; i++)
        ports[i] = ensemble.nodes[i].port;
    for (int i = 0; i < HANDLES; i++) {
        must(HF_OK, hf_open(url, &holders[i].store));
        holders[i].ttl_ms = LONG_TTL_MS;
    }
    for (int i = 0; i < COMING; i++)
        assert_int_equal(
            0, pthread_create(&threads[i], NULL, come_and_go, (void *)(intptr_t)(i % COMING_MS)));
    hold_all(holders, HANDLES);
    for (int i = 0; i < COMING; i++)
        pthread_join(threads[i], NULL);
    await_inherited(ports, 0);
    for (int i = 0; i < HANDLES; i++) {
        must(HF_OK, hf_release(holders[i].lock));
        hf_close(holders[i].store);
    }
}

/* ---- pipes ----------------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic int pipes_made, pipes_changed;

static bool is_inherited(int fd)
{
    return fcntl(fd, F_GETFD) == 0;
}

/* The program's own, as like the library's as can be. */
static void *make_pipes(void *arg)
{
    while (!atomic_load(&over)) {
        int ends[2];

        if (pipe2(ends, O_NONBLOCK) != 0)
            continue;
        pause_a_moment();
        atomic_fetch_add(&pipes_made, 1);
        if (!is_inherited(ends[0]) || !is_inherited(ends[1]))
            atomic_fetch_add(&pipes_changed, 1);
        close(ends[0]);
        close(ends[1]);
    }
    return arg;
}

static int inherited_pipes(void)
{
    int count = 0;

    for (int fd = 3; fd < FDS_MAX; fd++) {
        struct stat about;

        count += is_inherited(fd) && fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode);
    }
    return count;
}

static void the_pipes_of_the_program_are_left_alone_and_the_others_not(void **state)
{
    struct holder holder = {.name = "pipes", .ttl_ms = TTL_MS};
    int before = inherited_pipes();
    pthread_t thread;
    char url[256];

    (void)state;
    ensemble_url(&ensemble, url, sizeof url);
    assert_int_equal(0, pthread_create(&thread, NULL, make_pipes, NULL));
    for (int i = 0; i < OPENINGS; i++) {
        must(HF_OK, hf_open(url, &holder.store));
        hold(&holder);
        must(HF_OK, holder.result);
        if (i == OPENINGS - 1) {
            atomic_store(&over, true);
            pthread_join(thread, NULL);
            assert_int_equal(before, inherited_pipes());
        }
        must(HF_OK, hf_release(holder.lock));
        hf_close(holder.store);
    }
    print_message("             %d pipes of the program's\n", atomic_load(&pipes_made));
    assert_int_equal(0, atomic_load(&pipes_changed));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_server_costs_no_hold_whoever_else_is_connected),
        cmocka_unit_test(handles_that_reconnect_together_survive_a_stopped_server),
        cmocka_unit_test(a_server_that_has_vanished_costs_no_hold),
        cmocka_unit_test(threads_that_come_and_go_hide_none_of_the_library_s),
        cmocka_unit_test(the_pipes_of_the_program_are_left_alone_and_the_others_not),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, start, stop);
}
