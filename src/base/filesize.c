#include "base/filesize.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void signal_alone(sigset_t *ret_set)
{
    sigemptyset(ret_set);
    sigaddset(ret_set, SIGXFSZ);
}

void filesize_enter(struct filesize_guard *guard)
{
    struct rlimit limit;
    sigset_t set;
    int kept = errno;

    guard->blocked = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (guard->blocked) {
        signal_alone(&set);
        pthread_sigmask(SIG_BLOCK, &set, &guard->before);
        guard->pending = sigpending(&set) == 0 && sigismember(&set, SIGXFSZ) == 1;
    }
    errno = kept;
}

void filesize_leave(const struct filesize_guard *guard)
{
    struct timespec at_once = {0, 0};
    sigset_t set;
    int kept = errno;

    if (guard->blocked) {
        signal_alone(&set);
        if (!guard->pending)
            (void)sigtimedwait(&set, NULL, &at_once);
        pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    }
    errno = kept;
}

/* A write that was cut short is gone on with: only the next one says why. */
static int write_rest(int fd, const char *at, size_t size, off_t offset)
{
    while (size > 0) {
        ssize_t written = pwrite(fd, at, size, offset);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        if (written == 0)
            return ENOSPC;
        at += written;
        offset += written;
        size -= (size_t)written;
    }
    return 0;
}

int filesize_write(int fd, const void *bytes, size_t size, off_t offset)
{
    struct filesize_guard guard;
    int failure;

    filesize_enter(&guard);
    failure = write_rest(fd, bytes, size, offset);
    filesize_leave(&guard);
    return failure;
}
