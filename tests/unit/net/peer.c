#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- names ----------------------------------------------------------------------------------- */

const char *two_test_first;

/* The linker (--wrap) puts this in the place of getaddrinfo, so that names mean the same on every
 * machine. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_list);
int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_list);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret_list)
{
    size_t length = strlen(host);
    struct addrinfo *second;
    int result;

    if (length > 0 && host[length - 1] == '.')
        length--;
    if (length < 5 || strncasecmp(host + length - 5, ".test", 5) != 0)
        return __real_getaddrinfo(host, port, hints, ret_list);
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    if (strcmp(host, "two.test") != 0)
        return __real_getaddrinfo("127.0.0.1", port, hints, ret_list);
    result = __real_getaddrinfo("127.0.0.1", port, hints, &second);
    if (result == 0) {
        result = __real_getaddrinfo(two_test_first, port, hints, ret_list);
        if (result == 0) /* glibc frees such a list entry by entry */
            (*ret_list)->ai_next = second;
        else
            freeaddrinfo(second);
    }
    return result;
}

/* ---- listening ------------------------------------------------------------------------------- */

static int listen_at(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, address, size) < 0 || listen(fd, 8) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    return listen_at((const struct sockaddr *)&address, sizeof address);
}

static int listen_tcp(const char *host, uint16_t *ret_port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    struct sockaddr_in four = {.sin_family = AF_INET};
    bool is_six = host[0] == '[';
    socklen_t size = is_six ? sizeof six : sizeof four;
    struct sockaddr *address = is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    int fd;

    if (!is_six)
        assert_int_equal(1, inet_pton(AF_INET, host, &four.sin_addr));
    fd = listen_at(address, size);
    if (fd >= 0)
        assert_return_code(getsockname(fd, address, &size), errno);
    *ret_port = ntohs(is_six ? six.sin6_port : four.sin_port);
    return fd;
}

int listen_silently(const char *host, const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtol(port, NULL, 10))};
    int fd;

    assert_int_equal(1, inet_pton(AF_INET, host, &address.sin_addr));
    fd = listen_at((const struct sockaddr *)&address, sizeof address);
    assert_return_code(fd, errno);
    return fd;
}

bool peer_listen(const char *host, struct peer *ret_peer)
{
    struct error_text err;
    char text[ADDRESS_TEXT_MAX], port_text[6];
    uint16_t port = 0;
    int fd = host[0] == '/' ? listen_unix(host) : listen_tcp(host, &port);

    if (fd < 0)
        return false;
    *ret_peer = (struct peer){.listener = fd, .fd = -1};
    snprintf(port_text, sizeof port_text, "%u", (unsigned)port);
    snprintf(text, sizeof text, host[0] == '/' ? "%s" : "%s:%s", host, port_text);
    assert_int_equal(HF_OK, address_parse(text, strlen(text), "1", &ret_peer->address, &err));
    return true;
}

void peer_rename(struct peer *peer, const char *host)
{
    struct error_text err;
    char port[6];

    memcpy(port, peer->address.port, sizeof port);
    assert_int_equal(HF_OK, address_parse(host, strlen(host), port, &peer->address, &err));
}

void peer_hang_up(struct peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
}

/* The port stays ours: one that was shut down is given to the next program that asks for any, and that one listens. */
void peer_deafen(struct peer *peer)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    int one = 1;

    peer_hang_up(peer);
    assert_return_code(getsockname(peer->listener, (struct sockaddr *)&address, &size), errno);
    close(peer->listener);
    peer->listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_return_code(setsockopt(peer->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one),
                       errno);
    assert_return_code(bind(peer->listener, (struct sockaddr *)&address, size), errno);
}

void peer_close(struct peer *peer)
{
    peer_hang_up(peer);
    if (peer->listener >= 0)
        close(peer->listener);
    peer->listener = -1;
}

/* ---- playing both sides ---------------------------------------------------------------------- */

static int peer_step(struct peer *peer)
{
    int one = 1;

    if (peer->fd < 0 && peer->listener >= 0) {
        peer->fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        /* What is sent is there, and not kept back until something before it was acknowledged. On a
         * unix socket this fails, and is not needed. */
        if (peer->fd >= 0)
            (void)setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (peer->fd < 0)
        return STREAM_AGAIN;
    return peer->greet ? peer->greet(peer) : HF_OK;
}

int peer_meet(struct peer *peer, struct stream *stream, struct error_text *err)
{
    int result = STREAM_AGAIN;

    peer->greeted = STREAM_AGAIN;
    for (;;) {
        struct pollfd fds[2];

        if (result == STREAM_AGAIN)
            result = stream_connect(stream, err);
        if (peer->greeted == STREAM_AGAIN)
            peer->greeted = peer_step(peer);
        /* Who is refused leaves, and the other side hears nothing more. */
        if (result < 0 || (result == HF_OK && peer->greeted != STREAM_AGAIN))
            return result;
        fds[0] = (struct pollfd){.fd = stream_fd(stream), .events = stream_events(stream, false)};
        fds[1] = (struct pollfd){.fd = peer->fd >= 0 ? peer->fd : peer->listener, .events = POLLIN};
        if (result == HF_OK)
            fds[0].fd = -1;
        if (peer->greeted != STREAM_AGAIN)
            fds[1].fd = -1;
        assert_true(poll(fds, 2, PATIENCE_MS) > 0);
    }
}

int peer_dial(struct peer *peer, const struct access *access, struct stream **ret_stream,
              struct error_text *err)
{
    struct stream *stream = NULL;
    int result = stream_open(&peer->address, access, NULL, &stream, err);

    *ret_stream = NULL;
    if (result == HF_OK)
        result = peer_meet(peer, stream, err);
    if (result == HF_OK)
        *ret_stream = stream;
    else
        stream_close(stream);
    return result;
}

void assert_says(const struct error_text *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("\"%s\" does not say \"%s\"", err->text, words);
}

void wait_for(int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};

    assert_int_equal(1, poll(&poll_fd, 1, PATIENCE_MS));
}

ssize_t read_all(struct stream *stream, void *bytes, size_t size, struct error_text *err)
{
    size_t have = 0;

    while (have < size) {
        ssize_t n = stream_read(stream, (char *)bytes + have, size - have, err);

        if (n < 0)
            return n;
        if (n == 0)
            wait_for(stream_fd(stream), stream_events(stream, false));
        have += (size_t)n;
    }
    return (ssize_t)have;
}
