#include "disk.h"
#include "tools.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct watched_disk disk;

void disk_reset(void)
{
    disk = (struct watched_disk){.direct_is_unknown = disk.direct_is_unknown,
                                 .direct_fails = disk.direct_fails,
                                 .dsync_fails = disk.dsync_fails};
}

void disk_fail_in(int calls, int failure)
{
    disk_reset();
    disk.fail_in = calls;
    disk.failure = failure;
}

void disk_die_in(int calls)
{
    disk_fail_in(calls, EIO);
    disk.fail_on = true;
}

size_t disk_count(enum disk_kind kind, const char *name)
{
    size_t count = 0;

    for (size_t i = 0; i < disk.count; i++)
        count += disk.calls[i].kind == kind && (!name || strcmp(disk.calls[i].name, name) == 0);
    return count;
}

size_t disk_find(enum disk_kind kind, const char *name, size_t nth)
{
    for (size_t i = 0; i < disk.count; i++)
        if (disk.calls[i].kind == kind && strcmp(disk.calls[i].name, name) == 0 && nth-- == 0)
            return i;
    fail_msg("it was not asked for: kind %d of %s", (int)kind, name);
    return 0;
}

/* ---- what the room calls ---------------------------------------------------------------------- */

static bool fails(void)
{
    if (disk.fail_in == 0)
        return false;
    if (disk.fail_in > 1) {
        disk.fail_in--;
        return false;
    }
    disk.fail_in = disk.fail_on ? 1 : 0;
    errno = disk.failure;
    return true;
}

static struct disk_call *remember(enum disk_kind kind, const char *name)
{
    static struct disk_call too_many;
    struct disk_call *call = disk.count < DISK_CALLS_MAX ? &disk.calls[disk.count++] : &too_many;

    *call = (struct disk_call){.kind = kind};
    snprintf(call->name, sizeof call->name, "%s", name);
    return call;
}

static struct disk_call *remember_fd(enum disk_kind kind, int fd)
{
    char link[64], path[PATH_MAX] = "";
    struct stat info;
    const char *slash;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_true(readlink(link, path, sizeof path - 1) > 0);
    assert_int_equal(fstat(fd, &info), 0);
    slash = strrchr(path, '/');
    return remember(kind, S_ISDIR(info.st_mode) ? "." : slash ? slash + 1 : path);
}

/* By another name, for it has a fixed number of arguments here: the mode is there if a file may be made. With
 * offsets of 64 bits openat is openat64. */
int disk_openat(int fd, const char *name, int flags, mode_t mode) __asm__("openat64");

int disk_openat(int fd, const char *name, int flags, mode_t mode)
{
    int result;

    if (disk.direct_is_unknown && (flags & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    if (fails())
        return -1;
    result = (int)syscall(SYS_openat, fd, name, flags, mode);
    if (result >= 0)
        remember(DISK_OPEN, name);
    return result;
}

static ssize_t write_past_us(int fd, const void *bytes, size_t size, off_t offset)
{
    if (disk.direct_fails && (fcntl(fd, F_GETFL) & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

/* The room's if a write that is durable in itself is not known, else a test's own. */
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    struct disk_call *call;
    ssize_t result;

    if (!disk.dsync_fails && !disk.direct_fails)
        return syscall(SYS_pwrite64, fd, bytes, size, offset);
    if (fails())
        return -1;
    if (disk.write_at_most > 0 && size > disk.write_at_most)
        size = disk.write_at_most;
    result = write_past_us(fd, bytes, size, offset);
    if (result < 0)
        return result;
    call = remember_fd(DISK_WRITE, fd);
    call->offset = offset;
    call->size = (size_t)result;
    return result;
}

int fdatasync(int fd)
{
    if (fails())
        return -1;
    remember_fd(DISK_SYNC, fd)->durable = true;
    return 0;
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    struct disk_call *call;
    size_t size = pieces[0].iov_len;
    ssize_t result;

    assert_int_equal(count, 1);
    if (disk.interruptions > 0) {
        disk.interruptions--;
        errno = EINTR;
        return -1;
    }
    if (disk.dsync_fails && (flags & RWF_DSYNC)) {
        errno = disk.dsync_fails;
        return -1;
    }
    if (fails())
        return -1;
    if (disk.takes_nothing)
        return 0;
    if (disk.write_at_most > 0 && size > disk.write_at_most)
        size = disk.write_at_most;
    result = write_past_us(fd, pieces[0].iov_base, size, offset);
    if (result < 0)
        return result;
    call = remember_fd(DISK_WRITE, fd);
    call->offset = offset;
    call->size = (size_t)result;
    call->durable = flags & RWF_DSYNC;
    return result;
}

ssize_t pread(int fd, void *bytes, size_t size, off_t offset)
{
    if (disk.interruptions > 0) {
        disk.interruptions--;
        errno = EINTR;
        return -1;
    }
    if (fails())
        return -1;
    if (disk.read_at_most > 0 && size > disk.read_at_most)
        size = disk.read_at_most;
    return syscall(SYS_pread64, fd, bytes, size, offset);
}

int fsync(int fd)
{
    if (fails())
        return -1;
    remember_fd(DISK_SYNC, fd);
    return 0;
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    if (fails())
        return -1;
    remember(DISK_RENAME, to);
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int unlinkat(int fd, const char *name, int flags)
{
    if (fails())
        return -1;
    remember(DISK_REMOVE, name);
    return (int)syscall(SYS_unlinkat, fd, name, flags);
}

int ftruncate(int fd, off_t size)
{
    if (fails())
        return -1;
    remember_fd(DISK_SHORTEN, fd)->offset = size;
    return (int)syscall(SYS_ftruncate, fd, size);
}

size_t disk_of_mark(void)
{
    size_t count = 0;

    for (size_t i = 0; i < disk.count && i < DISK_CALLS_MAX; i++)
        count += strncmp(disk.calls[i].name, "log-", 4) != 0;
    assert_true(count > 0);
    return count;
}
