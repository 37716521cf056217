/* slow.c: a disk that is slow once, for a server that loads this before the C library ($LD_PRELOAD). Its
 * write number $HF_SLOW_AT to a log takes $HF_SLOW_MS longer. */
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static bool is_log(int fd)
{
    char link[32], path[PATH_MAX] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/log-");
}

__attribute__((visibility("default"))) ssize_t slow_write(int fd, const struct iovec *pieces,
                                                          int count, off_t offset,
                                                          int flags) __asm__("pwritev64v2");

ssize_t slow_write(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    static ssize_t (*next)(int, const struct iovec *, int, off_t, int);
    static atomic_int writes;
    const char *at = getenv("HF_SLOW_AT"), *ms = getenv("HF_SLOW_MS");

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pwritev64v2");
    if (at && ms && pieces->iov_len < 65536 && is_log(fd) && ++writes == strtol(at, NULL, 10))
        usleep((useconds_t)strtoul(ms, NULL, 10) * 1000);
    return next(fd, pieces, count, offset, flags);
}
