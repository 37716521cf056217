/* descriptors.c: the library's descriptors are not for the programs that the process runs.
 *
 * libzookeeper makes them without FD_CLOEXEC, and tells nobody which they are: a pipe of each session, found as what is
 * there after it was made and was not before; and its connection, found by who is at the other end. Whatever else might fit
 * is a pipe or a connection to the same server, made by another thread at that moment without FD_CLOEXEC. */
#include "engines/zookeeper/store.h"

#include <dirent.h>
#include <fcntl.h>
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
};

static void close_peer_on_exec(int fd, void *arg)
{
    const struct peer *peer = arg;
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;

    if (getpeername(fd, (struct sockaddr *)&address, &size) == 0 && size == peer->size &&
        memcmp(&address, &peer->address, size) == 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void descriptors_connected(zhandle_t *handle)
{
    struct peer peer = {.size = sizeof peer.address};

    if (zookeeper_get_connected_host(handle, (struct sockaddr *)&peer.address, &peer.size))
        each_descriptor(close_peer_on_exec, &peer);
}
