#include "peers/peers.h"
#include "base/clock.h"
#include "peers/inside.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 64
#define KEEPALIVE_S 2
#define REPEAT_MS 60000
#define DEAD_AFTER_MS 10000 /* unacknowledged for so long: the connection is given up */

void peers_note(const struct peers *peers, const struct note *note)
{
    peers->host.note(peers->host.context, note);
}

bool peers_may_repeat(struct noted slots[PEERS_NOTED_MAX], uint64_t whom)
{
    int64_t now_ms = clock_boot_ms();
    struct noted *slot = slots; /* its own, or the oldest */

    for (struct noted *at = slot; at < slots + PEERS_NOTED_MAX; at++)
        if (at->whom == whom || (slot->whom != whom && at->ms < slot->ms))
            slot = at;
    if (slot->whom == whom && slot->ms != 0 && now_ms - slot->ms < REPEAT_MS)
        return false;
    *slot = (struct noted){whom, now_ms};
    return true;
}

void peers_note_elsewhere(struct peers *peers, uint64_t id, const char *address,
                          const char *cluster)
{
    char text[ERROR_TEXT_MAX];

    if (!peers_may_repeat(peers->elsewhere, id))
        return;
    snprintf(text, sizeof text,
             "node %llu belongs to another cluster, %.8s..., and this one to %.8s...: they do "
             "not hear each "
             "other. One of the two has an old or restored copy of its data, or a wrong address",
             (unsigned long long)id, cluster, peers->cluster);
    peers_note(peers, &(struct note){.level = 1, .words = text, .node = id, .peer = address});
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
    explicit_bzero(peers->other, sizeof peers->other);
    free(peers);
    done(context);
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
        peers_note(peers, &(struct note){.level = 2,
                                         .words = "cannot take a connection from another node",
                                         .why = uv_strerror(status)});
}

static void on_handle_closed(uv_handle_t *handle)
{
    peers_release(handle->data);
}

/* A kernel may know IPv6 and have it switched off. */
static bool has_ip6(void)
{
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

/* Where a name leads is for others to know: it may be the address of something in front of this machine. But
 * who says "localhost" does not mean to be reached from elsewhere. libuv opens [::] for IPv4 as well. */
static void choose_number(struct peer_address *address)
{
    struct sockaddr_in *ip4 = (struct sockaddr_in *)&address->number;
    struct sockaddr_in6 *ip6 = (struct sockaddr_in6 *)&address->number;

    if (address->is_loopback)
        uv_ip4_addr("127.0.0.1", address->port_number, ip4);
    else if (has_ip6())
        uv_ip6_addr("::", address->port_number, ip6);
    else
        uv_ip4_addr("0.0.0.0", address->port_number, ip4);
}

static int begin_listening(struct peers *peers, const char *text, struct error_text *err)
{
    struct peer_address address;
    int failure;

    if (!peer_address_parse(text, &address))
        return error_set(err, HF_EINVAL, "'%s' is no address of a node: it is HOST:PORT", text);
    if (!address.is_number)
        choose_number(&address);
    failure = uv_tcp_bind(&peers->listener, (const struct sockaddr *)&address.number, 0);
    if (failure == 0)
        failure = uv_listen((uv_stream_t *)&peers->listener, BACKLOG, on_connection);
    if (failure != 0)
        return error_set(err, HF_EIO, "cannot listen at %s for other nodes: %s%s", text,
                         uv_strerror(failure),
                         failure == UV_EADDRINUSE || failure == UV_EADDRNOTAVAIL
                             ? " (is id this node's own, and no other holdfastd there? "
                               "--peer-listen takes another address)"
                             : "");
    return HF_OK;
}

static void nobody_waits(void *context)
{
    (void)context;
}

static int check_size(size_t size, struct error_text *err)
{
    return size <= SECRET_MAX
               ? HF_OK
               : error_set(err, HF_EINVAL, "the cluster's secret is too long: %zu bytes, not %d",
                           size, SECRET_MAX);
}

static int check(const struct peers_options *options, struct error_text *err)
{
    if (!handshake_text_ok(options->address))
        return error_set(err, HF_EINVAL, "'%s' is no address of a node: it is HOST:PORT",
                         options->address);
    if (options->about && !handshake_text_ok(options->about))
        return error_set(err, HF_EINVAL,
                         "'%s' cannot be told to other nodes: it is too long, or not visible ASCII",
                         options->about);
    if (options->cluster && options->cluster[0] && !handshake_cluster_ok(options->cluster))
        return error_set(err, HF_EINVAL, "'%.40s' is no id of a cluster", options->cluster);
    return HF_OK;
}

void peers_ended(const struct peers *peers, uint64_t id)
{
    if (peers->host.ended && !peers->stopped && !peers->closing)
        peers->host.ended(peers->host.context, id);
}

int peers_open(struct uv_loop_s *loop, const struct peers_options *options,
               const struct peers_host *host, struct peers **ret_peers, struct error_text *err)
{
    struct peers *peers;
    int result = check(options, err);

    if (result != HF_OK)
        return result;
    peers = calloc(1, sizeof *peers);
    if (!peers)
        return error_set(err, HF_ENOMEM, "out of memory");
    memcpy(peers->address, options->address, strlen(options->address));
    if (options->about)
        memcpy(peers->about, options->about, strlen(options->about));
    peers->loop = loop;
    peers->host = *host;
    peers->id = options->id;
    if (options->cluster)
        memcpy(peers->cluster, options->cluster, strlen(options->cluster));
    peers->own = (struct handshake_own){.id = options->id,
                                        .address = peers->address,
                                        .about = peers->about,
                                        .cluster = peers->cluster};
    result = peers_set_secrets(peers, options->secret, options->secret_size, options->other,
                               options->other_size, err);
    if (result != HF_OK) {
        free(peers);
        return result;
    }
    list_init(&peers->outgoing);
    list_init(&peers->incoming);
    list_init(&peers->searches);
    list_init(&peers->steps);
    peers->tls = options->tls;
    uv_idle_init(loop, &peers->idle);
    peers->idle.data = peers;
    peers_hold(peers);
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

int peers_set_secrets(struct peers *peers, const void *secret, size_t secret_size,
                      const void *other, size_t other_size, struct error_text *err)
{
    if (check_size(secret_size, err) != HF_OK || check_size(other_size, err) != HF_OK)
        return HF_EINVAL;
    if (secret_size > 0)
        memcpy(peers->secret, secret, secret_size);
    if (other_size > 0)
        memcpy(peers->other, other, other_size);
    peers->own.secret = peers->secret;
    peers->own.secret_size = secret_size;
    peers->own.other = other ? peers->other : NULL;
    peers->own.other_size = other_size;
    return HF_OK;
}

void peers_set_tls(struct peers *peers, struct tls_context *context)
{
    peers->tls.context = context;
}

uint16_t peers_port(const struct peers *peers)
{
    struct sockaddr_storage at = {0};
    int size = sizeof at;

    uv_tcp_getsockname(&peers->listener, (struct sockaddr *)&at, &size);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

void peers_set_cluster(struct peers *peers, const char *cluster)
{
    INVARIANT(handshake_cluster_ok(cluster));
    memcpy(peers->cluster, cluster, HANDSHAKE_CLUSTER + 1);
    outgoing_handshake_again(peers);
    incoming_close_elsewhere(peers);
}

void peers_hang_up(struct peers *peers)
{
    peers->stopped = true;
    outgoing_close_all(peers);
}

void peers_close(struct peers *peers, void (*done)(void *context), void *context)
{
    peers->closing = true;
    peers->done = done;
    peers->done_context = context;
    peers_hang_up(peers);
    incoming_close_all(peers);
    uv_close((uv_handle_t *)&peers->listener, on_handle_closed);
    uv_close((uv_handle_t *)&peers->idle, on_handle_closed);
}
