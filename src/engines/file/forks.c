#include "engines/file/forks.h"
#include "engines/file/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 65536 /* higher ones are refused */

/* Keeps a fork from falling between opening a file and noting it, or forgetting it and closing it: the
 * child would keep the file open, and what is locked in it locked. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t descriptors[DESCRIPTORS_MAX / 64];

static void before_fork(void)
{
    pthread_mutex_lock(&opening);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&opening);
}

static void after_fork_in_child(void)
{
    for (int word = 0; word < DESCRIPTORS_MAX / 64; word++) {
        uint64_t bits = atomic_exchange(&descriptors[word], 0);

        for (int bit = 0; bits; bit++, bits >>= 1)
            if (bits & 1)
                close(word * 64 + bit);
    }
    pthread_mutex_unlock(&opening);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int forks_open(int dirfd, const char *file_name, int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int fd;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&opening);
    fd = directory_open_file(dirfd, file_name, flags);
    if (fd >= DESCRIPTORS_MAX) {
        close(fd);
        fd = -1;
        errno = EMFILE;
    } else if (fd >= 0) {
        atomic_fetch_or(&descriptors[fd / 64], UINT64_C(1) << (fd % 64));
    }
    pthread_mutex_unlock(&opening);
    return fd;
}

void forks_close(int fd)
{
    pthread_mutex_lock(&opening);
    atomic_fetch_and(&descriptors[fd / 64], ~(UINT64_C(1) << (fd % 64)));
    close(fd);
    pthread_mutex_unlock(&opening);
}

void *forks_map(int fd, size_t size)
{
    char path[64];
    void *mapped;
    int other, failure;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    other = open(path, O_RDWR | O_CLOEXEC);
    if (other < 0)
        return NULL;
    mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
    failure = errno;
    close(other);
    errno = failure;
    return mapped == MAP_FAILED ? NULL : mapped;
}
