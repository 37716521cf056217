#include "server/activation.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_FD 3 /* behind standard input, output and error */
#define ADVICE "see holdfastd.socket"

/* ---- what was handed on ------------------------------------------------------------------------ */

static int socket_option(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof value;

    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

/* Whoever starts us may have anything there. */
static int check_socket(int fd, struct error_text *err)
{
    int domain = socket_option(fd, SO_DOMAIN), flags = fcntl(fd, F_GETFL);

    if (domain < 0 || flags < 0)
        return error_set(err, HF_EINVAL,
                         "LISTEN_FDS: descriptor %d is no socket that is open (" ADVICE ")", fd);
    if ((domain != AF_INET && domain != AF_INET6 && domain != AF_UNIX) ||
        socket_option(fd, SO_TYPE) != SOCK_STREAM || socket_option(fd, SO_ACCEPTCONN) != 1)
        return error_set(err, HF_EINVAL,
                         "LISTEN_FDS: descriptor %d is no socket that listens for streams: in a "
                         "socket unit that is ListenStream= with Accept=no (" ADVICE ")",
                         fd);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set_errno(err, HF_EIO, errno, "LISTEN_FDS: cannot use descriptor %d", fd);
    return HF_OK;
}

/* Inherited from somebody that it was meant for? */
static bool is_for_us(void)
{
    const char *pid = getenv("LISTEN_PID");
    uint64_t meant;

    return pid && text_to_u64(pid, INT32_MAX, &meant) && meant == (uint64_t)getpid();
}

int activation_read(struct activation *ret_sockets, struct error_text *err)
{
    struct activation sockets = {.count = 0};
    const char *text = getenv("LISTEN_FDS");
    uint64_t count = 0;

    if (text && is_for_us() && (!text_to_u64(text, CONFIG_LISTEN_MAX, &count)))
        return error_set(err, HF_EINVAL, "LISTEN_FDS is not a number up to %d: '%.20s'",
                         CONFIG_LISTEN_MAX, text);
    for (int i = 0; i < (int)count; i++) {
        int result = check_socket(FIRST_FD + i, err);

        if (result != HF_OK)
            return result;
        sockets.at[sockets.count++].fd = FIRST_FD + i;
    }
    *ret_sockets = sockets;
    return HF_OK;
}

/* ---- which of them is where -------------------------------------------------------------------- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage room;
};

/* Zeros behind what the kernel has written end a path, too. */
static bool address_of(int fd, union address *ret_address)
{
    socklen_t size = sizeof *ret_address;

    memset(ret_address, 0, sizeof *ret_address);
    return getsockname(fd, &ret_address->any, &size) == 0;
}

static bool is_same(const union address *at, const struct sockaddr *other)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)other;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)other;

    if (at->any.sa_family != other->sa_family)
        return false;
    if (other->sa_family == AF_INET)
        return at->v4.sin_port == v4->sin_port && at->v4.sin_addr.s_addr == v4->sin_addr.s_addr;
    return other->sa_family == AF_INET6 && at->v6.sin6_port == v6->sin6_port &&
           at->v6.sin6_scope_id == v6->sin6_scope_id &&
           memcmp(&at->v6.sin6_addr, &v6->sin6_addr, sizeof v6->sin6_addr) == 0;
}

static bool is_at(int fd, const struct endpoint *endpoint, const struct addrinfo *found)
{
    union address at;

    if (!address_of(fd, &at))
        return false;
    if (endpoint->path[0])
        return at.any.sa_family == AF_UNIX && strcmp(at.local.sun_path, endpoint->path) == 0;
    for (; found; found = found->ai_next)
        if (is_same(&at, found->ai_addr))
            return true;
    return false;
}

int activation_take(struct activation *sockets, const struct endpoint *endpoint)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[8];
    int fd = -1;

    if (sockets->count == 0)
        return -1;
    snprintf(port, sizeof port, "%u", endpoint->port);
    if (!endpoint->path[0] && getaddrinfo(endpoint->host, port, &hints, &found) != 0)
        return -1; /* then it cannot be opened either, which says why */
    for (int i = 0; i < sockets->count && fd < 0; i++) {
        struct handed_on *one = &sockets->at[i];

        if (!one->taken && is_at(one->fd, endpoint, found)) {
            one->taken = true;
            fd = one->fd;
        }
    }
    if (found)
        freeaddrinfo(found);
    return fd;
}

static void show(int fd, char *ret_text, size_t size)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    union address at;

    if (!address_of(fd, &at))
        snprintf(ret_text, size, "an address that the kernel does not tell");
    else if (at.any.sa_family == AF_UNIX)
        snprintf(ret_text, size, "unix:%s", at.local.sun_path);
    else if (getnameinfo(&at.any, sizeof at, host, sizeof host, port, sizeof port,
                         NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(ret_text, size, at.any.sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

int activation_check_taken(const struct activation *sockets, struct error_text *err)
{
    for (int i = 0; i < sockets->count; i++) {
        char text[ENDPOINT_TEXT_MAX] = "?";

        if (sockets->at[i].taken)
            continue;
        show(sockets->at[i].fd, text, sizeof text);
        return error_set(err, HF_EINVAL,
                         "systemd has opened a socket at %s, which is not in 'listen': name it "
                         "there, or take it out of holdfastd.socket",
                         text);
    }
    return HF_OK;
}
