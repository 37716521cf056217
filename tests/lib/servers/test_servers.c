/* test_servers.c: the servers that other tests lean on do what servers.h says. */
#include "servers.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_S 10
#define TIME_MAX_S 55

static struct redis_server redis;
static struct relay relay;

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int start(void **state)
{
    (void)state;
    return redis_start(&redis, NULL) < 0 || relay_start(&relay, redis.port) < 0 ? -1 : 0;
}

static int stop(void **state)
{
    (void)state;
    relay_stop(&relay);
    redis_stop(&redis);
    return 0;
}

static void assert_says(const char *expected, const char *const argv[])
{
    char reply[4096];

    assert_true(redis_do(&redis, reply, sizeof reply, argv) >= 0);
    assert_string_equal(expected, reply);
}

#define ASSERT_SAYS(expected, ...) assert_says(expected, (const char *const[]){__VA_ARGS__, NULL})

/* ---- a client of the relay ------------------------------------------------------------------- */

static int dial(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(0, connect(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

static void tell(int fd, const char *text)
{
    assert_int_equal(strlen(text), send(fd, text, strlen(text), MSG_NOSIGNAL));
}

static void hear(int fd, const char *expected)
{
    char text[256] = "";
    size_t size = strlen(expected);

    assert_int_equal(size, recv(fd, text, size, MSG_WAITALL));
    assert_string_equal(expected, text);
}

static void hear_nothing(int fd)
{
    char byte;

    assert_int_equal(-1, recv(fd, &byte, 1, MSG_DONTWAIT));
    assert_int_equal(EAGAIN, errno);
}

static void hear_the_end(int fd)
{
    char byte;

    assert_int_equal(0, recv(fd, &byte, 1, 0));
}

/* Until so much has come from the server: it is in the relay, or was delivered. */
static void await_down(uint64_t chunks, uint64_t bytes)
{
    struct relay_counts counts;
    int64_t deadline_us = now_us() + PATIENCE_S * 1000000;

    do {
        assert_int_equal(0, relay_count(&relay, &counts));
        assert_true(now_us() < deadline_us);
    } while (counts.down_chunks < chunks || counts.down_bytes < bytes);
}

/* ---- Redis ----------------------------------------------------------------------------------- */

static void replies_become_text(void **state)
{
    char reply[256], small[8];

    (void)state;
    ASSERT_SAYS("PONG", "PING");
    ASSERT_SAYS("OK", "SET", "a key", "two\r\nlines");
    ASSERT_SAYS("two\r\nlines", "GET", "a key");
    ASSERT_SAYS("", "GET", "nothing");
    ASSERT_SAYS("2", "RPUSH", "list", "one", "");
    ASSERT_SAYS("one\n", "LRANGE", "list", "0", "-1");
    ASSERT_SAYS("", "LRANGE", "nothing", "0", "-1");
    ASSERT_SAYS("1\n\n2\n3", "EVAL", "return {1, false, {2, {3}}}", "0");
    ASSERT_SAYS("2", "DBSIZE");
    assert_int_equal(1, REDIS_DO(&redis, reply, sizeof reply, "INCR"));
    assert_non_null(strstr(reply, "ERR wrong number"));
    assert_int_equal(-1, REDIS_DO(&redis, small, sizeof small, "GET", "a key"));
    assert_int_equal(0, REDIS_DO(&redis, NULL, 0, "GET", "a key"));
}

static void extra_arguments(void **state)
{
    struct redis_server other = {0};
    char reply[256];

    (void)state;
    assert_int_equal(0,
                     redis_start(&other, (const char *const[]){"--requirepass", "secret", NULL}));
    assert_int_not_equal(redis.port, other.port);
    assert_int_equal(1, REDIS_DO(&other, reply, sizeof reply, "DBSIZE"));
    assert_non_null(strstr(reply, "NOAUTH"));
    assert_int_equal(0, redis_restart(&other, false));
    assert_int_equal(1, REDIS_DO(&other, reply, sizeof reply, "DBSIZE"));
    redis_stop(&other);
}

static void wrong_arguments(void **state)
{
    struct redis_server other = {0};

    (void)state;
    assert_int_equal(-1, redis_start(&other, (const char *const[]){"--no-such-option", "1", NULL}));
    assert_int_equal(0, other.pid);
}

static void stops_and_leaves_nothing(void **state)
{
    struct redis_server other = {0};
    struct stat st;
    char dir[SERVER_DIR_MAX];
    int64_t begin_us;
    pid_t pid;

    (void)state;
    assert_int_equal(0, redis_start(&other, NULL));
    snprintf(dir, sizeof dir, "%s", other.dir);
    pid = other.pid;
    assert_int_equal(0, redis_pause(&other));
    begin_us = now_us();
    redis_stop(&other);
    assert_true(now_us() - begin_us < 4000000); /* it was not killed for want of patience */
    assert_int_equal(-1, kill(pid, 0));
    assert_int_equal(ESRCH, errno);
    assert_int_equal(-1, stat(dir, &st));
    redis_stop(&other);
}

static void restarts(void **state)
{
    int port = redis.port;

    (void)state;
    ASSERT_SAYS("OK", "SET", "k", "v");
    assert_int_equal(0, redis_restart(&redis, true));
    assert_int_equal(port, redis.port);
    ASSERT_SAYS("v", "GET", "k");
    redis_kill9(&redis);
    assert_int_equal(-1, REDIS_DO(&redis, NULL, 0, "PING"));
    assert_int_equal(0, redis_restart(&redis, false));
    assert_int_equal(port, redis.port);
    ASSERT_SAYS("0", "DBSIZE");
}

static void pauses(void **state)
{
    int fd = dial(redis.port);

    (void)state;
    assert_int_equal(0, redis_pause(&redis));
    tell(fd, "PING\r\n");
    usleep(20000); /* there is no event for what does not happen */
    hear_nothing(fd);
    assert_int_equal(0, redis_resume(&redis));
    hear(fd, "+PONG\r\n");
    close(fd);
}

static void dies_with_its_parent(void **state)
{
    struct redis_server other = {0};
    int ends[2];
    pid_t pid;
    char byte;

    (void)state;
    assert_int_equal(0, pipe(ends)); /* inherited: it ends when the server has ended, too */
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (redis_start(&other, NULL) < 0 || write(ends[1], &other, sizeof other) < 0)
            _exit(1);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(sizeof other, read(ends[0], &other, sizeof other));
    assert_int_equal(0, read(ends[0], &byte, 1));
    waitpid(pid, NULL, 0);
    close(ends[0]);
    other.pid = 0;
    redis_stop(&other);
}

/* ---- the relay ------------------------------------------------------------------------------- */

static void relays(void **state)
{
    struct relay_counts counts;
    int fd = dial(relay.port);

    (void)state;
    tell(fd, "PING\r\n");
    hear(fd, "+PONG\r\n");
    assert_int_equal(0, relay_count(&relay, &counts));
    assert_int_equal(1, counts.connections);
    assert_int_equal(6, counts.up_bytes);
    assert_int_equal(7, counts.down_bytes);
    assert_int_equal(1, counts.up_chunks);
    assert_int_equal(1, counts.down_chunks);
    tell(fd, "QUIT\r\n");
    hear(fd, "+OK\r\n");
    hear_the_end(fd);
    close(fd);
}

static int64_t round_trip_us(int fd)
{
    int64_t begin_us = now_us();

    tell(fd, "PING\r\n");
    hear(fd, "+PONG\r\n");
    return now_us() - begin_us;
}

static void delays_each_way(void **state)
{
    int fd = dial(relay.port);

    (void)state;
    assert_int_equal(0, relay_say(&relay, "delay 100 0"));
    assert_true(round_trip_us(fd) >= 100000);
    assert_int_equal(0, relay_say(&relay, "delay 0 100"));
    assert_true(round_trip_us(fd) >= 100000);
    assert_int_equal(0, relay_say(&relay, "delay 70 70"));
    assert_true(round_trip_us(fd) >= 140000);
    assert_int_equal(0, relay_say(&relay, "delay 0.5 0.25"));
    assert_true(round_trip_us(fd) >= 750);
    close(fd);
}

/* 200 round trips of 20 ms, all on their way at once: in order, and nowhere near 200 times 20 ms. */
static void delay_costs_no_throughput(void **state)
{
    int64_t begin_us = now_us();
    int fd = dial(relay.port);
    char reply[32];

    (void)state;
    assert_int_equal(0, relay_say(&relay, "delay 10 10"));
    for (int i = 0; i < 200; i++)
        tell(fd, "INCR n\r\n");
    for (int i = 1; i <= 200; i++) {
        snprintf(reply, sizeof reply, ":%d\r\n", i);
        hear(fd, reply);
    }
    assert_true(now_us() - begin_us < 2000000);
    close(fd);
}

static void cut_and_heal(void **state)
{
    struct relay_counts counts;
    int fd = dial(relay.port), later;

    (void)state;
    assert_true(round_trip_us(fd) > 0);
    assert_int_equal(0, relay_say(&relay, "cut down"));
    tell(fd, "SET k v\r\n");
    await_down(2, 0);
    hear_nothing(fd);
    ASSERT_SAYS("v", "GET", "k");
    assert_int_equal(0, relay_say(&relay, "heal"));
    hear(fd, "+OK\r\n");

    assert_int_equal(0, relay_say(&relay, "cut both"));
    tell(fd, "DEL k\r\n");
    later = dial(relay.port);
    tell(later, "PING\r\n");
    usleep(20000); /* there is no event for what does not happen */
    ASSERT_SAYS("v", "GET", "k");
    hear_nothing(later);
    assert_int_equal(0, relay_count(&relay, &counts));
    assert_int_equal(1, counts.connections);
    assert_int_equal(0, relay_say(&relay, "heal"));
    hear(fd, ":1\r\n");
    hear(later, "+PONG\r\n");
    ASSERT_SAYS("", "GET", "k");
    close(fd);
    close(later);
}

static void loses_replies_and_requests(void **state)
{
    int fds[3] = {dial(relay.port), dial(relay.port), dial(relay.port)};

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_true(round_trip_us(fds[i]) > 0);
    assert_int_equal(0, relay_say(&relay, "drop down 1"));
    tell(fds[0], "SET k v\r\n");
    hear_the_end(fds[0]);
    ASSERT_SAYS("v", "GET", "k");
    assert_int_equal(0, relay_say(&relay, "drop up 1"));
    tell(fds[1], "SET k w\r\n");
    hear_the_end(fds[1]);
    ASSERT_SAYS("v", "GET", "k");
    assert_true(round_trip_us(fds[2]) > 0);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

/* What came before a lost chunk is delivered. */
static void loses_only_what_it_should(void **state)
{
    int fd = dial(relay.port);

    (void)state;
    assert_int_equal(0, relay_say(&relay, "delay 0 50"));
    tell(fd, "PING\r\n");
    await_down(1, 0);
    assert_int_equal(0, relay_say(&relay, "drop down 1"));
    tell(fd, "PING\r\n");
    hear(fd, "+PONG\r\n");
    hear_the_end(fd);
    close(fd);
}

static void resets(void **state)
{
    int fd = dial(relay.port);
    char byte;

    (void)state;
    assert_true(round_trip_us(fd) > 0);
    assert_int_equal(0, relay_say(&relay, "reset"));
    assert_int_equal(-1, recv(fd, &byte, 1, 0));
    assert_int_equal(ECONNRESET, errno);
    close(fd);
}

static void a_dead_server_ends_connections(void **state)
{
    int fd = dial(relay.port), later;
    char byte;

    (void)state;
    assert_true(round_trip_us(fd) > 0);
    redis_kill9(&redis);
    hear_the_end(fd);
    later = dial(relay.port);
    assert_true(recv(later, &byte, 1, 0) <= 0);
    close(fd);
    close(later);
}

/* More than the relay holds: it stops reading, and nothing is lost, whichever side is the slow one. */
static void large_values(void **state)
{
    enum { SIZE = 8 << 20, HELD = 1 << 20 };
    struct relay_counts counts;
    char *value = malloc(SIZE), head[64];
    int fd = dial(relay.port);
    size_t at = 0;

    (void)state;
    assert_non_null(value);
    ASSERT_SAYS("8388608", "SETRANGE", "big", "8388607", "x");
    assert_int_equal(0, relay_say(&relay, "cut down"));
    tell(fd, "GET big\r\n");
    await_down(0, HELD / 2);
    usleep(50000); /* there is no event for what does not happen */
    assert_int_equal(0, relay_count(&relay, &counts));
    assert_true(counts.down_bytes < 2 * HELD);
    assert_int_equal(0, relay_say(&relay, "heal"));
    await_down(0, 3 * HELD / 2); /* now the buffers of the kernel are full */
    hear(fd, "$8388608\r\n");
    assert_int_equal(SIZE, recv(fd, value, SIZE, MSG_WAITALL));
    while (at < SIZE - 1 && value[at] == '\0')
        at++;
    assert_int_equal(SIZE - 1, at);
    assert_int_equal('x', value[at]);
    hear(fd, "\r\n");
    snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n", SIZE);
    tell(fd, head);
    memset(value, 'y', SIZE);
    for (at = 0; at < SIZE;) {
        ssize_t sent = send(fd, value + at, SIZE - at, MSG_NOSIGNAL);

        assert_true(sent > 0);
        at += (size_t)sent;
    }
    tell(fd, "\r\n");
    hear(fd, "+OK\r\n");
    ASSERT_SAYS("yyy", "GETRANGE", "big", "8388605", "-1");
    close(fd);
    free(value);
}

static void refuses_what_it_does_not_know(void **state)
{
    static const char *const wrong[] = {
        "",         "delay",     "delay 1", "delay -1 1",  "delay 1 1 1", "delay x 1", "cut",
        "cut left", "cut up up", "drop up", "drop both 1", "drop up -1",  "heal now",  "bend"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (relay_say(&relay, wrong[i]) != -1)
            fail_msg("the relay took '%s'", wrong[i]);
    assert_int_equal(0, relay_say(&relay, "heal"));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(replies_become_text),
        TEST(extra_arguments),
        TEST(wrong_arguments),
        TEST(stops_and_leaves_nothing),
        TEST(restarts),
        TEST(pauses),
        TEST(dies_with_its_parent),
        TEST(relays),
        TEST(delays_each_way),
        TEST(delay_costs_no_throughput),
        TEST(cut_and_heal),
        TEST(loses_replies_and_requests),
        TEST(loses_only_what_it_should),
        TEST(resets),
        TEST(a_dead_server_ends_connections),
        TEST(large_values),
        TEST(refuses_what_it_does_not_know),
    };

    alarm(TIME_MAX_S);
    return cmocka_run_group_tests_name("servers", tests, NULL, NULL);
}
