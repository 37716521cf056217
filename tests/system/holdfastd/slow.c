/* slow.c: a slow disk, for a server that loads this before the C library ($LD_PRELOAD). Its write number
 * $HF_SLOW_AT to a log takes $HF_SLOW_MS longer. As long as there is a file $HF_HANG with a number in it, writes
 * to a log from that number on hang, if they have $HF_HANG_BYTES at least; the file $HF_HANG.hit says that one does. With $HF_NO_DSYNC a write that is
 * durable in itself is not known, as in gVisor. Room for a segment is found, or not, $HF_SLOW_ROOM_MS later. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define LARGE_BYTES 65536 /* segments are filled with zeros by larger writes */
#define HANG_POLL_US 2000

static bool is_log(int fd)
{
    char link[32], path[PATH_MAX] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/log-");
}

static bool hangs(const char *path, int number)
{
    FILE *file = fopen(path, "re");
    char text[16] = "";
    bool known;

    if (!file)
        return false;
    known = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    return known && number >= strtol(text, NULL, 10);
}

static bool is_large_enough(const struct iovec *pieces, int count)
{
    const char *least = getenv("HF_HANG_BYTES");
    size_t size = 0;

    for (int i = 0; i < count; i++)
        size += pieces[i].iov_len;
    return !least || size >= strtoul(least, NULL, 10);
}

static void await(const char *path, int number)
{
    char hit[PATH_MAX];

    snprintf(hit, sizeof hit, "%s.hit", path);
    for (int fd = -1; hangs(path, number); usleep(HANG_POLL_US))
        if (fd < 0 && (fd = open(hit, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) >= 0)
            close(fd);
}

__attribute__((visibility("default"))) ssize_t slow_write(int fd, const struct iovec *pieces,
                                                          int count, off_t offset,
                                                          int flags) __asm__("pwritev64v2");

ssize_t slow_write(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    static ssize_t (*next)(int, const struct iovec *, int, off_t, int);
    static atomic_int writes;
    const char *at = getenv("HF_SLOW_AT"), *ms = getenv("HF_SLOW_MS"), *hang = getenv("HF_HANG");
    int number;

    if (getenv("HF_NO_DSYNC") && flags) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pwritev64v2");
    if ((pieces->iov_len >= LARGE_BYTES && !getenv("HF_HANG_BYTES")) || !is_log(fd))
        return next(fd, pieces, count, offset, flags);
    number = ++writes;
    if (at && ms && number == strtol(at, NULL, 10))
        usleep((useconds_t)strtoul(ms, NULL, 10) * 1000);
    if (hang && is_large_enough(pieces, count))
        await(hang, number);
    return next(fd, pieces, count, offset, flags);
}

__attribute__((visibility("default"))) int slow_room(int fd, off_t offset,
                                                     off_t size) __asm__("posix_fallocate64");

int slow_room(int fd, off_t offset, off_t size)
{
    static int (*next)(int, off_t, off_t);
    const char *ms = getenv("HF_SLOW_ROOM_MS");

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "posix_fallocate64");
    if (ms)
        usleep((useconds_t)strtoul(ms, NULL, 10) * 1000);
    return next(fd, offset, size);
}
