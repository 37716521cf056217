#include "peers/peers.h"
#include "peers/inside.h"

#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BACKLOG 64
#define KEEPALIVE_S 2
#define DEAD_AFTER_MS 10000 /* unacknowledged for so long: the connection is given up */

void peers_note(const struct peers *peers, int level, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    peers->host.note(peers->host.context, level, text);
}

void peers_hold(struct peers *peers)
{
    peers->handles++;
}

void peers_release(struct peers *peers)
{
    void (*done)(void *) = peers->done;
    void *context = peers->done_context;

    if (--peers->handles > 0)
        return;
    explicit_bzero(peers->secret, sizeof peers->secret);
    free(peers);
    done(context);
}

/* Numbers only: a name may take the resolver seconds, and a node's address does not change. */
int peers_resolve(const char *address, struct sockaddr_storage *ret_address, struct error_text *err)
{
    char host[ADDRESS_MAX + 1];
    const char *colon = strrchr(address, ':');
    size_t size = colon ? (size_t)(colon - address) : 0;
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;

    memset(ret_address, 0, sizeof *ret_address);
    if (!colon || size == 0 || size >= sizeof host || colon[1] < '0' || colon[1] > '9' || *end ||
        port > 65535)
        return error_set(err, HF_EINVAL, "'%s' is no address of a node: it is HOST:PORT", address);
    if (address[0] == '[' && address[size - 1] == ']') {
        address++;
        size -= 2;
    }
    memcpy(host, address, size);
    host[size] = '\0';
    if (uv_ip4_addr(host, (int)port, (struct sockaddr_in *)ret_address) == 0 ||
        uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)ret_address) == 0)
        return HF_OK;
    return error_set(err, HF_EINVAL, "'%s' is no address of a node: its host must be a number",
                     host);
}

void peers_tune(uv_tcp_t *tcp)
{
    const int dead_after = DEAD_AFTER_MS;
    uv_os_fd_t fd;

    uv_tcp_nodelay(tcp, 1);
    uv_tcp_keepalive(tcp, 1, KEEPALIVE_S);
    if (uv_fileno((uv_handle_t *)tcp, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_after, sizeof dead_after);
}

/* ---- opening and closing ---------------------------------------------------------------------- */

static void on_connection(uv_stream_t *listener, int status)
{
    struct peers *peers = listener->data;

    if (status == 0)
        incoming_accept(peers);
    else
        peers_note(peers, 2, "cannot take a connection from another node: %s", uv_strerror(status));
}

static void on_listener_closed(uv_handle_t *listener)
{
    peers_release(listener->data);
}

static int begin_listening(struct peers *peers, const char *address, struct error_text *err)
{
    struct sockaddr_storage at;
    int result = peers_resolve(address, &at, err), failure;

    if (result != HF_OK)
        return result;
    failure = uv_tcp_bind(&peers->listener, (const struct sockaddr *)&at, 0);
    if (failure == 0)
        failure = uv_listen((uv_stream_t *)&peers->listener, BACKLOG, on_connection);
    if (failure != 0)
        return error_set(err, HF_EIO, "cannot listen at %s for other nodes: %s", address,
                         uv_strerror(failure));
    return HF_OK;
}

static void nobody_waits(void *context)
{
    (void)context;
}

int peers_open(struct uv_loop_s *loop, const struct peers_options *options,
               const struct peers_host *host, struct peers **ret_peers, struct error_text *err)
{
    struct peers *peers = calloc(1, sizeof *peers);
    int result;

    if (!peers)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (options->secret_size > sizeof peers->secret ||
        strlen(options->address) >= sizeof peers->address) {
        free(peers);
        return error_set(err, HF_EINVAL, "the cluster's secret or this node's address is too long");
    }
    memcpy(peers->address, options->address, strlen(options->address));
    peers->loop = loop;
    peers->host = *host;
    peers->id = options->id;
    peers->secret_size = options->secret_size;
    if (options->secret_size > 0)
        memcpy(peers->secret, options->secret, options->secret_size);
    list_init(&peers->outgoing);
    list_init(&peers->incoming);
    uv_tcp_init(loop, &peers->listener);
    peers->listener.data = peers;
    peers_hold(peers);
    result = begin_listening(peers, options->listen, err);
    if (result != HF_OK) {
        peers_close(peers, nobody_waits, NULL);
        return result;
    }
    *ret_peers = peers;
    return HF_OK;
}

uint16_t peers_port(const struct peers *peers)
{
    struct sockaddr_storage at = {0};
    int size = sizeof at;

    uv_tcp_getsockname(&peers->listener, (struct sockaddr *)&at, &size);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

void peers_close(struct peers *peers, void (*done)(void *context), void *context)
{
    peers->closing = true;
    peers->done = done;
    peers->done_context = context;
    outgoing_close_all(peers);
    incoming_close_all(peers);
    uv_close((uv_handle_t *)&peers->listener, on_listener_closed);
}
