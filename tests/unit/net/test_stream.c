/* test_stream.c: streams without TLS. */
#include "base/clock.h"
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FULL_MAX 16 /* connections in a queue, at most */
#define TURN_MS 250 /* stream.c's */
#define TURN_AGAIN_MS 1200

static char directory[] = "/tmp/holdfast-stream-XXXXXX";

/* ---- streams --------------------------------------------------------------------------------- */

static const struct access plain;

static void talk(struct peer *peer, struct stream *stream)
{
    struct error_text err = {""};
    char bytes[16];

    assert_int_equal(5, stream_write(stream, "hello", 5, &err));
    wait_for(peer->fd, POLLIN);
    assert_int_equal(5, recv(peer->fd, bytes, sizeof bytes, 0));
    assert_memory_equal("hello", bytes, 5);
    assert_int_equal(0, stream_read(stream, bytes, sizeof bytes, &err));
    assert_int_equal(0, stream_write(stream, bytes, 0, &err));
    assert_int_equal(7, send(peer->fd, "goodbye", 7, 0));
    wait_for(stream_fd(stream), POLLIN);
    assert_int_equal(0, stream_read(stream, bytes, 0, &err)); /* and not the end of the stream */
    assert_int_equal(4, read_all(stream, bytes, 4, &err));
    assert_int_equal(3, read_all(stream, bytes + 4, 3, &err));
    assert_memory_equal("goodbye", bytes, 7);
    assert_int_equal(POLLIN, stream_events(stream, false));
    assert_int_equal(POLLIN | POLLOUT, stream_events(stream, true));
}

static void talk_at(const char *host)
{
    struct error_text err = {""};
    struct stream *stream;
    struct peer peer;

    if (!peer_listen(host, &peer))
        skip();
    assert_int_equal(HF_OK, peer_dial(&peer, &plain, &stream, &err));
    talk(&peer, stream);
    stream_close(stream);
    peer_close(&peer);
}

static void bytes_go_over_tcp(void **state)
{
    (void)state;
    talk_at("127.0.0.1");
}

static void bytes_go_over_ipv6(void **state)
{
    (void)state;
    talk_at("[::1]");
}

static void bytes_go_over_a_unix_socket(void **state)
{
    char path[96];

    (void)state;
    snprintf(path, sizeof path, "%s/socket", directory);
    talk_at(path);
    unlink(path);
}

static int option_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;

    assert_return_code(getsockopt(fd, level, name, &value, &size), errno);
    return value;
}

static void sockets_are_set_up(void **state)
{
    struct error_text err = {""};
    struct stream *stream;
    struct peer peer;
    int fd;

    (void)state;
    assert_true(peer_listen("127.0.0.1", &peer));
    assert_int_equal(HF_OK, peer_dial(&peer, &plain, &stream, &err));
    fd = stream_fd(stream);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_not_equal(0, option_of(fd, IPPROTO_TCP, TCP_NODELAY));
    assert_int_not_equal(0, option_of(fd, SOL_SOCKET, SO_KEEPALIVE));
    assert_int_equal(15, option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE));
    assert_int_equal(5, option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL));
    assert_int_equal(3, option_of(fd, IPPROTO_TCP, TCP_KEEPCNT));
    assert_int_equal(30000, option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT));
    stream_close(stream);
    assert_int_equal(-1, fcntl(fd, F_GETFD));
    peer_close(&peer);
    stream_close(NULL);
}

static void a_refused_port_is_named(void **state)
{
    struct error_text err = {""};
    char expected[128];
    struct stream *stream;
    struct peer peer;

    (void)state;
    assert_true(peer_listen("127.0.0.1", &peer));
    peer_deafen(&peer);
    assert_int_equal(HF_EUNREACH, peer_dial(&peer, &plain, &stream, &err));
    snprintf(expected, sizeof expected,
             "127.0.0.1:%s: Connection refused; is the server running there?", peer.address.port);
    assert_string_equal(expected, err.text);
    peer_close(&peer);
}

static void a_missing_unix_socket_is_named(void **state)
{
    struct error_text err = {""};
    struct stream *stream = NULL;
    struct address address;

    (void)state;
    assert_int_equal(HF_OK, address_parse("/nowhere/socket", 15, "1", &address, &err));
    assert_int_equal(HF_EUNREACH, stream_open(&address, &plain, NULL, &stream, &err));
    assert_string_equal("/nowhere/socket: No such file or directory; is the server running there?",
                        err.text);
    assert_null(stream);
}

static void a_host_that_is_not_there_is_named(void **state)
{
    struct error_text err = {""};
    struct stream *stream = NULL;
    struct address address;
    int result;

    (void)state;
    /* Too long for a label: the resolver says so itself and asks nobody. */
    static const char name[] = "a123456789012345678901234567890123456789012345678901234567890123.x";

    /* No URL can have it. */
    assert_int_equal(HF_OK, address_parse("localhost", 9, "6379", &address, &err));
    snprintf(address.host, sizeof address.host, "%s", name);
    snprintf(address.shown, sizeof address.shown, "%s:6379", name);
    assert_int_equal(HF_OK, stream_open(&address, &plain, NULL, &stream, &err));
    while ((result = stream_connect(stream, &err)) == STREAM_AGAIN) {
        struct pollfd over = {.fd = stream_fd(stream), .events = stream_events(stream, false)};

        assert_int_equal(1, poll(&over, 1, PATIENCE_MS));
    }
    assert_int_equal(HF_EUNREACH, result);
    assert_int_equal(0, strncmp(err.text, address.shown, strlen(address.shown)));
    assert_null(strstr(err.text, "Success"));
    stream_close(stream);
}

static int count_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* The first address fails at once, or only after a while: the second one is tried. */
static void every_address_of_a_host_is_tried(void **state)
{
    static const char *const first[] = {"127.0.0.2", "255.255.255.255"};

    (void)state;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        struct error_text err = {""};
        struct stream *stream;
        struct peer peer;
        int before = count_descriptors();

        two_test_first = first[i];
        assert_true(peer_listen("127.0.0.1", &peer));
        peer_rename(&peer, "two.test");
        assert_int_equal(HF_OK, peer_dial(&peer, &plain, &stream, &err));
        talk(&peer, stream);
        stream_close(stream);
        /* All refused: the answer is about the host, once. */
        peer_deafen(&peer);
        assert_int_equal(HF_EUNREACH, peer_dial(&peer, &plain, &stream, &err));
        assert_int_equal(0, strncmp("two.test:", err.text, 9));
        assert_says(&err, ": Connection refused");
        peer_close(&peer);
        assert_int_equal(before, count_descriptors());
    }
}

/* Fills the queue of connections that nobody accepts: from then on nothing is answered. Returns how many there are. */
static int fill_up(int listener, const char *host, const char *port, int fds[FULL_MAX])
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
    int count = 0;

    assert_int_equal(1, inet_pton(AF_INET, host, &address.sin_addr));
    assert_return_code(listen(listener, 0), errno);
    while (count < FULL_MAX) {
        struct pollfd connected = {.events = POLLOUT};

        connected.fd = fds[count++] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(connected.fd, (const struct sockaddr *)&address, sizeof address);
        if (poll(&connected, 1, 0) == 0)
            return count;
    }
    fail_msg("the queue is never full");
    return count;
}

/* Until the stream is connected, or it has failed. */
static int connect_in_turns(struct stream *stream, struct error_text *err)
{
    int result;

    while ((result = stream_connect(stream, err)) == STREAM_AGAIN) {
        struct pollfd pollfd = {.fd = stream_fd(stream), .events = stream_events(stream, false)};
        int64_t until_ms = stream_turn_until(stream);

        /* What has come is looked at first, however late we are. */
        if (poll(&pollfd, 1, until_ms == CLOCK_NEVER ? PATIENCE_MS : TURN_MS / 5) == 0 &&
            clock_boot_ms() >= until_ms)
            assert_int_equal(HF_OK, stream_pass_on(stream, err));
    }
    return result;
}

/* The first address answers nothing at all, as behind a firewall that drops what it does not like. */
static void a_silent_address_is_passed_over(void **state)
{
    struct error_text err = {""};
    struct stream *stream;
    struct peer peer;
    int silent, fds[FULL_MAX], count;

    (void)state;
    two_test_first = "127.0.0.2";
    assert_true(peer_listen("127.0.0.1", &peer));
    silent = listen_silently(two_test_first, peer.address.port);
    count = fill_up(silent, two_test_first, peer.address.port, fds);
    peer_rename(&peer, "two.test");
    assert_int_equal(HF_OK, stream_open(&peer.address, &plain, NULL, &stream, &err));
    assert_int_equal(HF_OK, connect_in_turns(stream, &err));
    assert_int_equal(HF_OK, peer_meet(&peer, stream, &err));
    talk(&peer, stream);
    stream_close(stream);
    while (count > 0)
        close(fds[--count]);
    close(silent);
    peer_close(&peer);
}

/* The second one is refused, which says nothing about the first: it has another turn, and a longer one. */
static void a_slow_address_has_another_turn(void **state)
{
    struct error_text err = {""};
    struct stream *stream;
    struct peer peer;
    int silent, fds[FULL_MAX], count;
    int64_t first_ms = 0, second_ms;

    (void)state;
    two_test_first = "127.0.0.2";
    assert_true(peer_listen("127.0.0.1", &peer));
    silent = listen_silently(two_test_first, peer.address.port);
    count = fill_up(silent, two_test_first, peer.address.port, fds);
    peer_deafen(&peer);
    peer_rename(&peer, "two.test");
    assert_int_equal(HF_OK, stream_open(&peer.address, &plain, NULL, &stream, &err));
    while (first_ms == 0) { /* the name is looked up */
        assert_int_equal(STREAM_AGAIN, stream_connect(stream, &err));
        if (stream_turn_until(stream) != CLOCK_NEVER)
            first_ms = stream_turn_until(stream) - clock_boot_ms();
        else
            wait_for(stream_fd(stream), stream_events(stream, false));
    }
    assert_true(first_ms <= TURN_MS);
    assert_int_equal(HF_OK, stream_pass_on(stream, &err));
    assert_int_equal(STREAM_AGAIN, stream_connect(stream, &err)); /* refused, and begun anew */
    second_ms = stream_turn_until(stream) - clock_boot_ms();
    assert_true(second_ms > TURN_AGAIN_MS / 2 && second_ms <= TURN_AGAIN_MS);
    while (count > 0)
        close(fds[--count]);
    while ((fds[0] = accept(silent, NULL, NULL)) >= 0)
        close(fds[0]); /* it has room again */
    assert_int_equal(HF_OK, connect_in_turns(stream, &err));
    stream_close(stream);
    close(silent);
    peer_close(&peer);
}

static void connect_with(const struct address *address, struct turns *turns,
                         struct stream **ret_stream)
{
    struct error_text err = {""};

    assert_int_equal(HF_OK, stream_open(address, &plain, turns, ret_stream, &err));
    while (stream_connect(*ret_stream, &err) == STREAM_AGAIN)
        wait_for(stream_fd(*ret_stream), stream_events(*ret_stream, false));
}

static bool is_called(int listener)
{
    int fd = accept(listener, NULL, NULL);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Streams that end without an answer, whatever the reason: each begins at another address, and when all have been tried, they are waited for longer. One
 * that has answered is the first one from then on. */
static void turns_go_on_with_the_next_stream(void **state)
{
    static const bool first[] = {true, false, true, false, false, false};
    static const bool longer[] = {false, false, true, true, false, false};
    struct turns turns = {0};
    struct peer peer;
    int silent;

    (void)state;
    two_test_first = "127.0.0.2";
    assert_true(peer_listen("127.0.0.1", &peer));
    silent = listen_silently(two_test_first, peer.address.port);
    peer_rename(&peer, "two.test");
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        struct stream *stream;
        int64_t began_ms = clock_boot_ms(), until_ms;

        connect_with(&peer.address, &turns, &stream);
        until_ms = stream_turn_until(stream);
        assert_int_equal(longer[i], until_ms >= began_ms + TURN_AGAIN_MS);
        assert_int_equal(first[i], is_called(silent));
        assert_int_equal(!first[i], is_called(peer.listener));
        if (i >= 3)
            stream_answered(stream);
        stream_close(stream);
    }
    close(silent);
    peer_close(&peer);
}

/* Another stream has had an answer meanwhile: that counts. */
static void an_answer_counts_more_than_silence(void **state)
{
    struct turns turns = {0};
    struct stream *stream, *other;
    struct peer peer;
    int silent;

    (void)state;
    two_test_first = "127.0.0.2";
    assert_true(peer_listen("127.0.0.1", &peer));
    silent = listen_silently(two_test_first, peer.address.port);
    peer_rename(&peer, "two.test");
    connect_with(&peer.address, &turns, &stream);
    assert_true(is_called(silent));
    stream_close(stream);
    connect_with(&peer.address, &turns, &stream);
    connect_with(&peer.address, &turns, &other);
    stream_answered(other);
    stream_close(other);
    stream_close(stream);
    assert_true(is_called(peer.listener) && is_called(peer.listener));
    connect_with(&peer.address, &turns, &stream);
    assert_true(is_called(peer.listener));
    stream_close(stream);
    connect_with(&peer.address, &turns, &stream);
    assert_true(is_called(silent));
    stream_close(stream);
    turns_shorten(&turns); /* after two in vain */
    connect_with(&peer.address, &turns, &stream);
    assert_true(is_called(peer.listener));
    assert_true(stream_turn_until(stream) < clock_boot_ms() + TURN_AGAIN_MS / 2);
    stream_close(stream);
    close(silent);
    peer_close(&peer);
}

/* As long as only one address is known there is no other. */
static void the_only_address_is_waited_for(void **state)
{
    struct error_text err = {""};
    struct stream *stream;
    struct peer peer;

    (void)state;
    assert_true(peer_listen("127.0.0.1", &peer));
    assert_int_equal(HF_OK, peer_dial(&peer, &plain, &stream, &err));
    assert_true(stream_turn_until(stream) == CLOCK_NEVER);
    stream_close(stream);
    peer_close(&peer);
}

static void a_closed_connection_is_noticed(void **state)
{
    struct error_text err = {""};
    char expected[64], bytes[8];
    struct stream *stream;
    struct peer peer;
    ssize_t sent;

    (void)state;
    assert_true(peer_listen("127.0.0.1", &peer));
    assert_int_equal(HF_OK, peer_dial(&peer, &plain, &stream, &err));
    assert_int_equal(3, send(peer.fd, "bye", 3, 0));
    peer_hang_up(&peer);
    assert_int_equal(3, read_all(stream, bytes, 3, &err)); /* the last words first */
    snprintf(expected, sizeof expected, "127.0.0.1:%s: the server closed the connection",
             peer.address.port);
    assert_int_equal(HF_EUNREACH, read_all(stream, bytes, 1, &err));
    assert_string_equal(expected, err.text);
    /* SIGPIPE would end this program. */
    do {
        err.text[0] = '\0';
        sent = stream_write(stream, "anybody?", 8, &err);
    } while (sent > 0);
    assert_int_equal(HF_EUNREACH, sent);
    assert_int_equal(0, strncmp("127.0.0.1:", err.text, 10));
    assert_int_equal(HF_EUNREACH, stream_write(stream, "anybody?", 8, &err));
    assert_string_equal(expected, err.text);
    stream_close(stream);
    peer_close(&peer);
}

static void a_reset_connection_is_noticed(void **state)
{
    struct linger at_once = {.l_onoff = 1};
    struct error_text err = {""};
    struct stream *stream;
    struct peer peer;
    char byte;

    (void)state;
    assert_true(peer_listen("127.0.0.1", &peer));
    assert_int_equal(HF_OK, peer_dial(&peer, &plain, &stream, &err));
    assert_return_code(setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), errno);
    peer_hang_up(&peer);
    assert_int_equal(HF_EUNREACH, read_all(stream, &byte, 1, &err));
    assert_says(&err, ": Connection reset by peer");
    stream_close(stream);
    peer_close(&peer);
}

/* A server that does not read: 0 comes back, and later the rest goes through, in order. */
static void a_full_socket_takes_the_rest_later(void **state)
{
    enum { SIZE = 8 << 20 };
    unsigned char *out = malloc(SIZE), *in = malloc(SIZE);
    size_t sent = 0, came = 0, refusals = 0;
    struct error_text err = {""};
    struct stream *stream;
    struct peer peer;

    (void)state;
    assert_non_null(out);
    assert_non_null(in);
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (unsigned char)(i * 31 + i / 251);
    assert_true(peer_listen("127.0.0.1", &peer));
    assert_int_equal(HF_OK, peer_dial(&peer, &plain, &stream, &err));
    while (came < SIZE) {
        ssize_t n = stream_write(stream, out + sent, SIZE - sent, &err);

        assert_true(n >= 0);
        sent += (size_t)n;
        if (n > 0)
            continue;
        refusals += sent < SIZE;
        wait_for(peer.fd, POLLIN);
        n = recv(peer.fd, in + came, SIZE - came, 0);
        assert_true(n > 0);
        came += (size_t)n;
    }
    assert_true(refusals > 0);
    assert_memory_equal(out, in, SIZE);
    stream_close(stream);
    peer_close(&peer);
    free(out);
    free(in);
}

/* Nobody accepts and the queue is full: the stream says "not yet" and does not wait. */
static void connecting_does_not_wait(void **state)
{
    struct error_text err = {""};
    struct stream *streams[64];
    struct peer peer;
    int count = 0, result = HF_OK;

    (void)state;
    assert_true(peer_listen("127.0.0.1", &peer));
    while (count < 64 && result == HF_OK) {
        assert_int_equal(HF_OK, stream_open(&peer.address, &plain, NULL, &streams[count], &err));
        result = stream_connect(streams[count++], &err);
    }
    assert_int_equal(STREAM_AGAIN, result);
    assert_int_equal(POLLOUT, stream_events(streams[count - 1], false));
    assert_int_equal(STREAM_AGAIN, stream_connect(streams[count - 1], &err));
    while (count > 0)
        stream_close(streams[--count]);
    peer_close(&peer);
}

static int make_directory(void **state)
{
    (void)state;
    unsetenv("HOLDFAST_PASSWORD");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    static const char *const names[] = {"socket"};
    char path[96];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_over_tcp),
        cmocka_unit_test(bytes_go_over_ipv6),
        cmocka_unit_test(bytes_go_over_a_unix_socket),
        cmocka_unit_test(sockets_are_set_up),
        cmocka_unit_test(a_refused_port_is_named),
        cmocka_unit_test(a_missing_unix_socket_is_named),
        cmocka_unit_test(a_host_that_is_not_there_is_named),
        cmocka_unit_test(every_address_of_a_host_is_tried),
        cmocka_unit_test(a_silent_address_is_passed_over),
        cmocka_unit_test(a_slow_address_has_another_turn),
        cmocka_unit_test(turns_go_on_with_the_next_stream),
        cmocka_unit_test(an_answer_counts_more_than_silence),
        cmocka_unit_test(the_only_address_is_waited_for),
        cmocka_unit_test(a_closed_connection_is_noticed),
        cmocka_unit_test(a_reset_connection_is_noticed),
        cmocka_unit_test(a_full_socket_takes_the_rest_later),
        cmocka_unit_test(connecting_does_not_wait),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
