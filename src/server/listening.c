/* listening.c: the sockets that clients come to. */
#include "server/listening.h"
#include "server/activation.h"
#include "server/connection.h"
#include "server/log.h"
#include "server/server.h"
#include "server/tls.h"
#include "session/protocol.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024
#define ACCEPT_PAUSE_MS 100 /* when there are no descriptors left; of TLS, too many handshakes */
#define KEEPALIVE_PROBES 3

/* ---- clients ----------------------------------------------------------------------------------- */

static void address_of(int fd, char *ret_text, size_t size)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN + 1], port[8];

    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
        address.ss_family != AF_UNIX &&
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(ret_text, size, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    else
        snprintf(ret_text, size, "unix");
}

/* A client whose machine has vanished would otherwise wait at its place for ever. */
static void keep_alive(int fd, int64_t after_ms)
{
    int on = 1, seconds = (int)((after_ms + 999) / 1000), probes = KEEPALIVE_PROBES;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (after_ms <= 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void refuse_client(const struct listener *listener, int fd)
{
    struct server *server = listener->server;
    struct resp_writer words = {0};

    server->refused++;
    log_limited(LOG_LEVEL_WARNING, 3, "refused a client: there are too many",
                log_number("max_clients", (int64_t)server->config->max_clients));
    if (!listener->endpoint.tls) { /* it would take them for something else */
        listener->protocol->refuse(&words, "LIMIT there are too many clients (--max-clients)");
        (void)!send(fd, words.bytes, words.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        resp_writer_free(&words);
    }
    close(fd);
}

static void welcome(const struct listener *listener, int fd)
{
    struct server *server = listener->server;
    char address[ENDPOINT_TEXT_MAX];

    if (!connections_make_room(server)) {
        refuse_client(listener, fd);
        return;
    }
    address_of(fd, address, sizeof address);
    keep_alive(fd, server->config->keepalive_ms);
    if (!connection_new(server, fd, address, listener->protocol, listener->endpoint.tls))
        close(fd);
    else
        server->accepted++;
}

static void on_incoming(uv_poll_t *handle, int status, int events);

static void on_accept_again(uv_timer_t *timer)
{
    struct server *server = timer->data;

    for (int i = 0; i < server->listener_count; i++)
        uv_poll_start(&server->listeners[i].poll, UV_READABLE, on_incoming);
}

/* So that nobody is shut out for somebody who is not there. */
static bool is_waited_at(int fd)
{
    struct pollfd at = {.fd = fd, .events = POLLIN};

    return poll(&at, 1, 0) == 1;
}

static void on_incoming(uv_poll_t *handle, int status, int events)
{
    struct listener *listener = handle->data;
    struct server *server = listener->server;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        bool full = false;
        int fd;

        if (listener->endpoint.tls && tls_is_full(server)) {
            if (!is_waited_at(listener->fd))
                return;
            full = !tls_make_room(server);
        }
        if (full) {
            uv_poll_stop(handle);
            uv_timer_start(&server->accept_again, on_accept_again, ACCEPT_PAUSE_MS, 0);
            return;
        }
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            welcome(listener, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_limited(LOG_LEVEL_WARNING, 3, "cannot take another client",
                        log_text("why", strerror(errno)));
            for (int k = 0; k < server->listener_count; k++)
                uv_poll_stop(&server->listeners[k].poll);
            uv_timer_start(&server->accept_again, on_accept_again, ACCEPT_PAUSE_MS, 0);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* ---- sockets ----------------------------------------------------------------------------------- */

/* One that somebody listens at is left alone; one that nobody does is a dead server's. */
static int remove_dead_socket(const char *path, struct error_text *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), result, failure;
    struct stat status;

    memcpy(address.sun_path, path, strlen(path) + 1);
    result = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&address, sizeof address);
    failure = errno;
    if (fd >= 0)
        close(fd);
    if (result == 0)
        return error_set(err, HF_EBUSY, "somebody listens at unix:%s already", path);
    if (lstat(path, &status) == 0) {
        if (!S_ISSOCK(status.st_mode))
            return error_set(err, HF_EREFUSED, "%s is there, and not a socket", path);
        if (failure != ECONNREFUSED)
            return error_set_errno(err, HF_EREFUSED, failure,
                                   "cannot tell whether somebody listens at unix:%s", path);
        unlink(path);
    }
    return HF_OK;
}

static int open_unix(const struct endpoint *endpoint, uint32_t mode, int *ret_fd,
                     struct error_text *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int result = remove_dead_socket(endpoint->path, err);
    mode_t before;
    int fd;

    if (result != HF_OK)
        return result;
    memcpy(address.sun_path, endpoint->path, strlen(endpoint->path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    before = umask((mode_t)(~mode & 0777));
    result = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (result != 0 || listen(fd, BACKLOG) != 0) {
        result = error_set_errno(err, HF_EIO, errno, "cannot listen at %s", endpoint->shown);
        if (fd >= 0)
            close(fd);
        return result;
    }
    *ret_fd = fd;
    return HF_OK;
}

static int bind_one(const struct addrinfo *address)
{
    int on = 1, fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    on = errno;
    close(fd);
    errno = on;
    return -1;
}

/* Port 0 became a real one. */
static void note_port(struct endpoint *endpoint, int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.v6 = {0}};
    socklen_t length = sizeof address;

    if (endpoint->port != 0 || getsockname(fd, &address.any, &length) != 0)
        return;
    endpoint_set_port(endpoint, ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port
                                                                        : address.v4.sin_port));
}

int listening_tcp(struct endpoint *endpoint, int *ret_fd, struct error_text *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char port[8];
    int result, fd;

    snprintf(port, sizeof port, "%u", endpoint->port);
    result = getaddrinfo(endpoint->host, port, &hints, &found);
    if (result != 0)
        return error_set(err, HF_EIO, "cannot listen at %s: %s", endpoint->shown,
                         gai_strerror(result));
    fd = bind_one(found);
    freeaddrinfo(found);
    if (fd < 0 && errno == EADDRINUSE)
        return error_set(err, HF_EBUSY,
                         "cannot listen at %s: somebody does already (another holdfastd? "
                         "--listen takes another port)",
                         endpoint->shown);
    if (fd < 0)
        return error_set_errno(err, HF_EIO, errno, "cannot listen at %s", endpoint->shown);
    note_port(endpoint, fd);
    *ret_fd = fd;
    return HF_OK;
}

static int open_one(struct listener *listener, struct activation *handed_on, uint32_t unix_mode,
                    struct error_text *err)
{
    struct endpoint *endpoint = &listener->endpoint;

    listener->fd = activation_take(handed_on, endpoint);
    listener->is_ours = listener->fd < 0;
    if (!listener->is_ours)
        return HF_OK;
    return endpoint->path[0] ? open_unix(endpoint, unix_mode, &listener->fd, err)
                             : listening_tcp(endpoint, &listener->fd, err);
}

static int open_all(struct server *server, struct activation *handed_on, struct error_text *err)
{
    const struct config *config = server->config;

    for (int i = 0; i < config->listen.count; i++) {
        struct listener *listener = &server->listeners[i];
        int result;

        listener->server = server;
        listener->endpoint = config->listen.at[i];
        listener->protocol = &resp_protocol;
        result = open_one(listener, handed_on, config->unix_socket_mode, err);
        if (result != HF_OK)
            return result;
        uv_poll_init(server->loop, &listener->poll, listener->fd);
        listener->poll.data = listener;
        server->listener_count++;
    }
    return activation_check_taken(handed_on, err);
}

void listening_shown(const struct server *server, char *ret_text, size_t size)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (int i = 0; i < server->listener_count && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s", i ? "," : "",
                                 server->listeners[i].endpoint.shown);
}

int listening_open(struct server *server, struct error_text *err)
{
    struct activation handed_on;
    int result = activation_read(&handed_on, err);

    uv_timer_init(server->loop, &server->accept_again);
    server->accept_again.data = server;
    if (result == HF_OK)
        result = open_all(server, &handed_on, err);
    if (result == HF_OK)
        on_accept_again(&server->accept_again);
    return result;
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    close(listener->fd);
}

void listening_close(struct server *server)
{
    for (int i = 0; i < server->listener_count; i++) {
        struct listener *listener = &server->listeners[i];

        if (listener->is_ours && listener->endpoint.path[0])
            unlink(listener->endpoint.path);
        uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
    }
    server->listener_count = 0;
    if (server->accept_again.data)
        uv_close((uv_handle_t *)&server->accept_again, NULL);
    server->accept_again.data = NULL;
}
