/* descriptors.c: which descriptors of the process are the library's.
 *
 * libzookeeper makes its own without FD_CLOEXEC, so that the programs that the process runs would inherit them, and tells
 * nobody which they are. Of a session's connection we keep a descriptor of our own, by which it can be ended when its
 * server has stopped: the library itself would wait for most of the session.
 *
 * The connection is found by proof. A question of MARK_BYTES and more is sent on the session, and answered: then whichever
 * socket to that server has sent as many bytes meanwhile, and no other has, is the one. If another has too, it is tried again.
 * Whatever else is connected to the same server, be it another session of ours or the host program's, is left alone.
 *
 * A connection to a stopped server, which the kernel makes and nobody answers, cannot be asked. It is one that has sent just
 * the library's first request and received nothing. Where the host program uses the library, too, it may be that one's: then
 * it goes on to another server a little earlier than it would.
 *
 * The library's pipes are what is there after a session was made and was not before: non-blocking pipes.
 *
 * libzookeeper_st, without threads of its own, would tell its descriptor. But it has the same symbols as libzookeeper_mt:
 * in a program that uses that one itself, we would get that one's functions. */
#include "engines/zookeeper/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK_BYTES 4000
#define MARK_STEP \
    600 /* those who search at the same time have marks of different sizes: the largest finds itself at once */
#define MARK_STEPS 8
#define FIRST_REQUEST_BYTES 49 /* the library's handshake */

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

/* ---- pipes ----------------------------------------------------------------------------------- */

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

/* ---- connections ----------------------------------------------------------------------------- */

/* A kernel before 4.19 does not count what was sent. */
static bool count_bytes(int fd, uint64_t *ret_sent, uint64_t *ret_received)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        size < offsetof(struct tcp_info, tcpi_bytes_sent) + sizeof info.tcpi_bytes_sent)
        return false;
    *ret_sent = info.tcpi_bytes_sent;
    *ret_received = info.tcpi_bytes_received;
    return true;
}

/* A socket that might be the library's, which marks none: with whom is it connected? */
static bool peer_of(int fd, struct sockaddr_storage *ret_address, socklen_t *ret_size)
{
    int flags = fcntl(fd, F_GETFD);

    memset(ret_address, 0, sizeof *ret_address);
    *ret_size = sizeof *ret_address;
    return flags >= 0 && !(flags & FD_CLOEXEC) &&
           getpeername(fd, (struct sockaddr *)ret_address, ret_size) == 0;
}

static void note_candidate(int fd, void *arg)
{
    struct search *search = arg;
    struct candidate *candidate = &search->at[search->count];
    struct sockaddr_storage address;
    struct stat about;
    uint64_t ignored;
    socklen_t size;

    if (!peer_of(fd, &address, &size) || size != search->size ||
        memcmp(&address, &search->address, size) != 0 || fstat(fd, &about) != 0)
        return;
    if (search->count == ZK_CANDIDATES_MAX) {
        search->overflows = true;
        return;
    }
    candidate->fd = fd;
    candidate->inode = about.st_ino;
    if (count_bytes(fd, &candidate->sent, &ignored))
        search->count++;
}

/* The only one that has sent the mark; -1: none, or several. */
static int find_marked(const struct search *search)
{
    int found = -1;

    for (int i = 0; i < search->count && !search->overflows; i++) {
        const struct candidate *candidate = &search->at[i];
        uint64_t sent = 0, ignored;
        struct stat about;

        if (fstat(candidate->fd, &about) != 0 || about.st_ino != candidate->inode ||
            !count_bytes(candidate->fd, &sent, &ignored) ||
            sent - candidate->sent < (uint64_t)search->mark)
            continue;
        if (found >= 0)
            return -1;
        found = candidate->fd;
    }
    return found;
}

static void on_marked(struct call *call)
{
    struct session *session = call->session;
    struct engine_store *store = session->store;
    bool answered = call->rc == ZOK || call->rc == ZNONODE;
    int found = answered ? find_marked(&session->search) : -1;
    int fd = found >= 0 ? fcntl(found, F_DUPFD_CLOEXEC, 0) : -1;

    if (fd >= 0)
        fcntl(found, F_SETFD, FD_CLOEXEC);
    pthread_mutex_lock(&store->mutex);
    session->search.busy = false;
    session->refs--;
    if (fd >= 0 && session->state == ZK_CONNECTED && session->fd < 0 &&
        session->connected_ms == session->search.connected_ms) {
        session->fd = fd;
        fd = -1;
    }
    pthread_mutex_unlock(&store->mutex);
    if (fd >= 0)
        close(fd);
    if (answered)
        descriptors_identify(session);
}

/* Is it worth searching, and nobody does? Then it has a reference more. */
static bool begin_search(struct session *session)
{
    struct engine_store *store = session->store;
    bool begins;

    pthread_mutex_lock(&store->mutex);
    begins = session->state == ZK_CONNECTED && session->fd < 0 && !session->search.busy &&
             session->searches < ZK_SEARCHES_MAX;
    if (begins) {
        session->searches++;
        session->refs++;
        session->search =
            (struct search){.busy = true,
                            .mark = MARK_BYTES + MARK_STEP * (int)(store->marks++ % MARK_STEPS),
                            .connected_ms = session->connected_ms,
                            .size = sizeof session->search.address};
    }
    pthread_mutex_unlock(&store->mutex);
    return begins;
}

void descriptors_identify(struct session *session)
{
    struct search *search = &session->search;
    struct engine_store *store = session->store;
    char path[ZK_ROOT_MAX + MARK_BYTES + MARK_STEP * MARK_STEPS + 2];
    struct call *call = NULL;
    int ignored;

    if (!begin_search(session))
        return;
    snprintf(path, sizeof path, "%s/%0*d", store->root, search->mark, 0);
    if (zookeeper_get_connected_host(session->handle, (struct sockaddr *)&search->address,
                                     &search->size)) {
        each_descriptor(note_candidate, search);
        call = call_exists(session, path, 0, &ignored, NULL);
    }
    if (call) {
        call_leave(call, on_marked, NULL);
        return;
    }
    pthread_mutex_lock(&store->mutex);
    search->busy = false;
    session->refs--;
    pthread_mutex_unlock(&store->mutex);
}

/* ---- connections that nobody answers --------------------------------------------------------- */

static bool is_ours(const struct engine_store *store, const struct sockaddr_storage *address,
                    socklen_t size)
{
    for (int i = 0; i < store->peer_count; i++)
        if (store->peers[i].size == size && memcmp(&store->peers[i].address, address, size) == 0)
            return true;
    return false;
}

static void end_pending(int fd, void *arg)
{
    struct sockaddr_storage address;
    uint64_t sent, received;
    socklen_t size;

    if (peer_of(fd, &address, &size) && is_ours(arg, &address, size) &&
        count_bytes(fd, &sent, &received) && sent == FIRST_REQUEST_BYTES && received == 0)
        shutdown(fd, SHUT_RDWR);
}

void descriptors_end_pending(struct engine_store *store)
{
    each_descriptor(end_pending, store);
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
