/* descriptors.c: the library's descriptors are not for the programs that the process runs.
 *
 * libzookeeper makes them without FD_CLOEXEC, and tells nobody which they are: a pipe of each session, found as what is
 * there after it was made and was not before; and its connection, found by who is at the other end. Whatever else might fit
 * is a pipe or a connection to the same server, made by another thread at that moment without FD_CLOEXEC.
 *
 * Of the connection we keep a descriptor of our own, by which it can be ended when its server has stopped. If several
 * connections might be the one, none of them is kept. A connection to a stopped server, which the kernel makes and nobody
 * answers, is known to nobody but the library: it is one of our servers at the other end of a descriptor that nobody has
 * marked yet. It is ended if there are as many of them as sessions that want one, and left alone if there are more, which
 * may be somebody else's.
 *
 * libzookeeper_st, without threads of its own, would tell its descriptor. But it has the same symbols as libzookeeper_mt:
 * in a program that uses that one itself, we would get that one's functions. */
#include "engines/zookeeper/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Calls fn for each descriptor of this process. */
static void each_descriptor(void (*fn)(int fd, void *arg), void *arg)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && strtol(entry->d_name, NULL, 10) != dirfd(dir))
            fn((int)strtol(entry->d_name, NULL, 10), arg);
    closedir(dir);
}

static void note(int fd, void *arg)
{
    struct descriptors *before = arg;

    if (fd < ZK_DESCRIPTORS_MAX)
        before->there[fd / 8] |= (unsigned char)(1u << fd % 8);
}

void descriptors_before(struct descriptors *ret_before)
{
    memset(ret_before, 0, sizeof *ret_before);
    each_descriptor(note, ret_before);
}

static void close_pipe_on_exec(int fd, void *arg)
{
    const struct descriptors *before = arg;
    char path[32], kind[8] = "";

    if (fd >= ZK_DESCRIPTORS_MAX || before->there[fd / 8] & 1u << fd % 8)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, kind, sizeof kind - 1) > 0 && strncmp(kind, "pipe:", 5) == 0 &&
        fcntl(fd, F_GETFL) & O_NONBLOCK)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void descriptors_after(const struct descriptors *before)
{
    each_descriptor(close_pipe_on_exec, (void *)(uintptr_t)before);
}

struct peer {
    struct sockaddr_storage address;
    socklen_t size;
    int found, count;
};

static void close_peer_on_exec(int fd, void *arg)
{
    struct peer *peer = arg;
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;

    if (fcntl(fd, F_GETFD) & FD_CLOEXEC ||
        getpeername(fd, (struct sockaddr *)&address, &size) != 0 || size != peer->size ||
        memcmp(&address, &peer->address, size) != 0)
        return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    peer->found = fd;
    peer->count++;
}

int descriptors_connected(zhandle_t *handle)
{
    struct peer peer = {.size = sizeof peer.address};

    if (zookeeper_get_connected_host(handle, (struct sockaddr *)&peer.address, &peer.size))
        each_descriptor(close_peer_on_exec, &peer);
    return peer.count == 1 ? fcntl(peer.found, F_DUPFD_CLOEXEC, 0) : -1;
}

struct pending {
    const struct engine_store *store;
    int found[ZK_PENDING_MAX];
    int count;
};

static bool is_ours(const struct engine_store *store, const struct sockaddr_storage *address,
                    socklen_t size)
{
    for (int i = 0; i < store->peer_count; i++)
        if (store->peers[i].size == size && memcmp(&store->peers[i].address, address, size) == 0)
            return true;
    return false;
}

static void note_pending(int fd, void *arg)
{
    struct pending *pending = arg;
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;

    if (fcntl(fd, F_GETFD) & FD_CLOEXEC ||
        getpeername(fd, (struct sockaddr *)&address, &size) != 0 ||
        !is_ours(pending->store, &address, size))
        return;
    if (pending->count < ZK_PENDING_MAX)
        pending->found[pending->count] = fd;
    pending->count++;
}

void descriptors_end_pending(const struct engine_store *store, int expected)
{
    struct pending pending = {.store = store};

    each_descriptor(note_pending, &pending);
    for (int i = 0; pending.count <= expected && i < pending.count && i < ZK_PENDING_MAX; i++)
        shutdown(pending.found[i], SHUT_RDWR);
}

void descriptors_resolve(struct engine_store *store)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;

    for (int i = 0; i < store->address_count; i++) {
        if (getaddrinfo(store->addresses[i].host, store->addresses[i].port, &hints, &found) != 0)
            continue;
        for (struct addrinfo *at = found; at && store->peer_count < ZK_PEERS_MAX;
             at = at->ai_next) {
            struct zk_peer *peer = &store->peers[store->peer_count];

            memset(peer, 0, sizeof *peer);
            memcpy(&peer->address, at->ai_addr, at->ai_addrlen);
            peer->size = at->ai_addrlen;
            store->peer_count += !is_ours(store, &peer->address, peer->size);
        }
        freeaddrinfo(found);
    }
}
