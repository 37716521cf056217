/* test_stream.c: streams without TLS. */
#include "peer.h"

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
    assert_int_equal(HF_EUNREACH, stream_open(&address, &plain, &stream, &err));
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
    assert_int_equal(HF_OK, stream_open(&address, &plain, &stream, &err));
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
        assert_int_equal(HF_OK, stream_open(&peer.address, &plain, &streams[count], &err));
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
        cmocka_unit_test(a_closed_connection_is_noticed),
        cmocka_unit_test(a_reset_connection_is_noticed),
        cmocka_unit_test(a_full_socket_takes_the_rest_later),
        cmocka_unit_test(connecting_does_not_wait),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
