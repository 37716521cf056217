/* hf_disk.c: a disk that goes wrong on command, for a server that loads this before the C library ($LD_PRELOAD). Of the files below the
 * directory $HF_DISK_OF, and as long as there is a file $HF_DISK with one of these words in it:
 *
 *     full       nothing gets longer than it is: ENOSPC
 *     failing    every write fails: EIO
 *     torn       of every write half is done, the rest fails: EIO
 *     unsynced   writes are done, and cannot be synced: EIO
 *     short      of every write half is done, and said so: who goes on with the rest has it on the disk in the end
 *     slow MS    every sync takes so much longer
 *
 * The word is looked for at each call: it comes and goes while the server runs. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK 4096 /* a file that is written past the cache takes whole ones only */
#define EXPORTED __attribute__((visibility("default")))

enum ill { WELL, FULL, FAILING, TORN, UNSYNCED, SHORT, SLOW };

static bool is_ours(int fd)
{
    const char *of = getenv("HF_DISK_OF");
    char link[32], path[PATH_MAX] = "";

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return of && readlink(link, path, sizeof path - 1) > 0 && strncmp(path, of, strlen(of)) == 0;
}

/* What is wrong with the disk that this file is on. errno stays. */
static enum ill ill(int fd, useconds_t *ret_late_us)
{
    static const char *const words[] = {"well",     "full",  "failing", "torn",
                                        "unsynced", "short", "slow"};
    const char *path = getenv("HF_DISK");
    char text[32] = "";
    int before = errno, file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    long late_ms = 0;
    enum ill found = WELL;

    if (file >= 0) {
        size_t length = read(file, text, sizeof text - 1) > 0 ? strcspn(text, " \n") : 0;

        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (length == strlen(words[i]) && memcmp(text, words[i], length) == 0 && is_ours(fd))
                found = (enum ill)i;
        late_ms = found == SLOW ? strtol(text + length, NULL, 10) : 0;
        close(file);
    }
    *ret_late_us = late_ms > 0 && late_ms < 10000 ? (useconds_t)late_ms * 1000 : 0;
    errno = before;
    return found;
}

static int fails(int error)
{
    errno = error;
    return -1;
}

/* How much of a write is done; 0: nothing, and errno says why. */
static size_t done_of(enum ill is, int fd, size_t size, off_t offset)
{
    struct stat status;

    switch (is) {
    case FULL:
        if (fstat(fd, &status) == 0 && offset + (off_t)size <= status.st_size)
            return size;
        fails(ENOSPC);
        return 0;
    case FAILING:
        fails(EIO);
        return 0;
    case TORN:
        if (size / 2 < BLOCK)
            fails(EIO);
        return size / 2 / BLOCK * BLOCK;
    case SHORT:
        return size / 2 < BLOCK ? size : size / 2 / BLOCK * BLOCK;
    default:
        return size;
    }
}

EXPORTED ssize_t disk_write(int fd, const void *bytes, size_t size,
                            off_t offset) __asm__("pwrite64");

ssize_t disk_write(int fd, const void *bytes, size_t size, off_t offset)
{
    static ssize_t (*next)(int, const void *, size_t, off_t);
    useconds_t late_us;
    enum ill is = ill(fd, &late_us);
    size_t part = done_of(is, fd, size, offset);
    ssize_t done;

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pwrite64");
    if (part == 0 && size > 0)
        return -1;
    done = next(fd, bytes, part, offset);
    return is == TORN ? fails(EIO) : done;
}

EXPORTED ssize_t disk_write_synced(int fd, const struct iovec *pieces, int count, off_t offset,
                                   int flags) __asm__("pwritev64v2");

/* As the journal does it: in one piece. */
ssize_t disk_write_synced(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    static ssize_t (*next)(int, const struct iovec *, int, off_t, int);
    useconds_t late_us;
    enum ill is = ill(fd, &late_us);
    struct iovec piece = pieces[0];
    ssize_t done;

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pwritev64v2");
    if (is == WELL || count != 1)
        return next(fd, pieces, count, offset, flags);
    piece.iov_len = done_of(is, fd, piece.iov_len, offset);
    if (piece.iov_len == 0 && pieces[0].iov_len > 0)
        return -1;
    if (late_us)
        usleep(late_us);
    done = next(fd, &piece, 1, offset, flags);
    return is == TORN || (is == UNSYNCED && flags) ? fails(EIO) : done;
}

static int synced(int fd, const char *name)
{
    int (*next)(int);
    useconds_t late_us;
    enum ill is = ill(fd, &late_us);

    *(void **)&next = dlsym(RTLD_NEXT, name);
    if (is == FAILING || is == UNSYNCED)
        return fails(EIO);
    if (late_us)
        usleep(late_us);
    return next(fd);
}

EXPORTED int disk_sync(int fd) __asm__("fsync");
EXPORTED int disk_sync_data(int fd) __asm__("fdatasync");

int disk_sync(int fd)
{
    return synced(fd, "fsync");
}

int disk_sync_data(int fd)
{
    return synced(fd, "fdatasync");
}

EXPORTED int disk_room(int fd, off_t offset, off_t size) __asm__("posix_fallocate64");

int disk_room(int fd, off_t offset, off_t size)
{
    static int (*next)(int, off_t, off_t);
    useconds_t late_us;
    enum ill is = ill(fd, &late_us);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "posix_fallocate64");
    return is == FULL ? ENOSPC : is == FAILING ? EIO : next(fd, offset, size);
}
