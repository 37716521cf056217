/* calls.c: what asks the kernel stands here in front of the C library's, by the names that programs with offsets of 64 bits use. Each
 * has the errnos that its page of the manual has for such a use, as far as they make a difference. Nothing is synced, nor
 * written past the cache: what fails is what counts, not what a disk keeps. */
#include "inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

static const int ways_of_opening[] = {EMFILE, ENFILE, EIO, ENOMEM, 0};
static const int ways_of_making[] = {EMFILE, ENFILE, ENOSPC, EIO, 0};
static const int ways_of_looking[] = {EIO, ENOMEM, 0};
static const int ways_of_reading[] = {EIO, EINTR, FAILING_SHORT, 0};
static const int ways_of_writing[] = {ENOSPC, EIO, EINTR, FAILING_SHORT, 0};
static const int ways_of_syncing[] = {EIO, ENOSPC, 0};
static const int ways_of_naming[] = {EIO, ENOSPC, 0};
static const int ways_of_locking[] = {ENOLCK, EINTR, 0};
static const int ways_of_copying[] = {EMFILE, 0};
static const int ways_of_closing[] = {EIO, 0};
static const int ways_of_mapping[] = {ENOMEM, ENFILE, 0};
static const int ways_of_descriptors[] = {EMFILE, ENOMEM, 0};
static const int ways_of_watching[] = {ENOSPC, ENOMEM, 0};
static const int ways_of_threads[] = {EAGAIN, 0};
static const int ways_of_sockets[] = {EMFILE, ENOBUFS, 0};
static const int ways_of_options[] = {ENOBUFS, 0};
static const int ways_of_connecting[] = {ECONNREFUSED, ENETUNREACH, EAGAIN, 0};
static const int ways_of_sending[] = {ECONNRESET, EPIPE, EAGAIN, EINTR, FAILING_SHORT, 0};
static const int ways_of_receiving[] = {ECONNRESET, EAGAIN, EINTR, FAILING_SHORT, 0};
static const int ways_of_waiting[] = {EINTR, 0};
static const int ways_of_polling[] = {EINTR, ENOMEM, 0};
static const int ways_of_users[] = {EMFILE, EIO, 0};

#define FAILS(name, ways) (failing_strike(FAILING_CALLS, name, ways) != 0)

/* All but those with a variable number of arguments, and those that can be cut short. */
#define CALL(type, name, ways, failed, parameters, arguments)                 \
    type __real_##name parameters;                                            \
    type __wrap_##name parameters;                                            \
    type __wrap_##name parameters                                             \
    {                                                                         \
        return FAILS(#name, ways) ? (type)(failed) : __real_##name arguments; \
    }

/* ---- files ------------------------------------------------------------------------------------ */

int __real_open64(const char *path, int flags, ...);
int __real_openat64(int fd, const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_openat64(int fd, const char *path, int flags, ...);

static mode_t mode_in(int flags, va_list arguments)
{
    return flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = mode_in(flags, arguments);
    va_end(arguments);
    if (FAILS("open64", flags & O_CREAT ? ways_of_making : ways_of_opening))
        return -1;
    return __real_open64(path, flags, mode);
}

int __wrap_openat64(int fd, const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = mode_in(flags, arguments);
    va_end(arguments);
    if (FAILS("openat64", flags & O_CREAT ? ways_of_making : ways_of_opening))
        return -1;
    return __real_openat64(fd, path, flags & ~O_DIRECT, mode);
}

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);

int __wrap_fcntl64(int fd, int command, ...)
{
    va_list arguments;
    void *argument;
    bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
    bool locks = command == F_OFD_SETLK || command == F_OFD_GETLK;

    va_start(arguments, command);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    /* To unlock what one has locked cannot fail: the kernel has what it needs for it. */
    if (command == F_OFD_SETLK && ((const struct flock *)argument)->l_type == F_UNLCK)
        locks = false;
    if ((copies || locks) && FAILS(copies                   ? "fcntl F_DUPFD"
                                   : command == F_OFD_GETLK ? "fcntl F_OFD_GETLK"
                                                            : "fcntl F_OFD_SETLK",
                                   copies ? ways_of_copying : ways_of_locking))
        return -1;
    return __real_fcntl64(fd, command, argument);
}

int __real_close(int fd);
int __wrap_close(int fd);

/* The descriptor is gone, whatever it answers. */
int __wrap_close(int fd)
{
    int result = __real_close(fd);

    return FAILS("close", ways_of_closing) ? -1 : result;
}

CALL(int, mkdir, ways_of_naming, -1, (const char *path, mode_t mode), (path, mode))
CALL(int, mkdirat, ways_of_naming, -1, (int fd, const char *path, mode_t mode), (fd, path, mode))
CALL(int, renameat, ways_of_naming, -1, (int from, const char *old, int to, const char *new),
     (from, old, to, new))
CALL(int, linkat, ways_of_naming, -1,
     (int from, const char *old, int to, const char *new, int flags), (from, old, to, new, flags))
CALL(int, unlinkat, ways_of_looking, -1, (int fd, const char *name, int flags), (fd, name, flags))
CALL(int, fchmod, ways_of_looking, -1, (int fd, mode_t mode), (fd, mode))
CALL(int, fchown, ways_of_looking, -1, (int fd, uid_t user, gid_t group), (fd, user, group))
CALL(int, access, ways_of_looking, -1, (const char *path, int mode), (path, mode))
CALL(int, faccessat, ways_of_looking, -1, (int fd, const char *path, int mode, int flags),
     (fd, path, mode, flags))
CALL(int, stat64, ways_of_looking, -1, (const char *path, struct stat *info), (path, info))
CALL(int, lstat64, ways_of_looking, -1, (const char *path, struct stat *info), (path, info))
CALL(int, fstat64, ways_of_looking, -1, (int fd, struct stat *info), (fd, info))
CALL(int, fstatat64, ways_of_looking, -1, (int fd, const char *path, struct stat *info, int flags),
     (fd, path, info, flags))
CALL(int, statfs64, ways_of_looking, -1, (const char *path, struct statfs *info), (path, info))
CALL(ssize_t, readlink, ways_of_looking, -1, (const char *path, char *bytes, size_t size),
     (path, bytes, size))
CALL(char *, realpath, ways_of_looking, NULL, (const char *path, char *resolved), (path, resolved))
CALL(off_t, lseek64, ways_of_closing, -1, (int fd, off_t offset, int whence), (fd, offset, whence))
CALL(int, ftruncate64, ways_of_naming, -1, (int fd, off_t size), (fd, size))
CALL(int, posix_fallocate64, ways_of_naming, failing_errno(), (int fd, off_t from, off_t size),
     (fd, from, size))
CALL(DIR *, fdopendir, ways_of_looking, NULL, (int fd), (fd))
CALL(struct dirent *, readdir64, ways_of_closing, NULL, (DIR * names), (names))
CALL(void *, mmap64, ways_of_mapping, MAP_FAILED,
     (void *at, size_t size, int use, int flags, int fd, off_t offset),
     (at, size, use, flags, fd, offset))

int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fsync(int fd)
{
    (void)fd;
    return FAILS("fsync", ways_of_syncing) ? -1 : 0;
}

int __wrap_fdatasync(int fd)
{
    (void)fd;
    return FAILS("fdatasync", ways_of_syncing) ? -1 : 0;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* Those that can be cut short. */
#define TRANSFER(name, ways, parameters, arguments, size)         \
    ssize_t __real_##name parameters;                             \
    ssize_t __wrap_##name parameters;                             \
    ssize_t __wrap_##name parameters                              \
    {                                                             \
        int failure = failing_strike(FAILING_CALLS, #name, ways); \
                                                                  \
        if (failure > 0)                                          \
            return -1;                                            \
        if (failure == FAILING_SHORT && (size) > 1)               \
            (size) /= 2;                                          \
        return __real_##name arguments;                           \
    }

TRANSFER(read, ways_of_reading, (int fd, void *bytes, size_t size), (fd, bytes, size), size)
TRANSFER(pread64, ways_of_reading, (int fd, void *bytes, size_t size, off_t offset),
         (fd, bytes, size, offset), size)
TRANSFER(write, ways_of_writing, (int fd, const void *bytes, size_t size), (fd, bytes, size), size)
TRANSFER(pwrite64, ways_of_writing, (int fd, const void *bytes, size_t size, off_t offset),
         (fd, bytes, size, offset), size)
TRANSFER(send, ways_of_sending, (int fd, const void *bytes, size_t size, int flags),
         (fd, bytes, size, flags), size)
TRANSFER(recv, ways_of_receiving, (int fd, void *bytes, size_t size, int flags),
         (fd, bytes, size, flags), size)

ssize_t __real_pwritev64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);

/* Of one piece. Past the cache half of it has to be blocks, too. */
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    int failure = failing_strike(FAILING_CALLS, "pwritev64v2", ways_of_writing);
    struct iovec piece = pieces[0];

    if (failure > 0)
        return -1;
    if (failure == FAILING_SHORT && piece.iov_len >= 8192)
        piece.iov_len = piece.iov_len / 2 / 4096 * 4096;
    return __real_pwritev64v2(fd, &piece, count, offset, flags & ~RWF_DSYNC);
}

/* ---- threads, sockets and what is waited for -------------------------------------------------- */

CALL(int, pthread_create, ways_of_threads, failing_errno(),
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
     (thread, attributes, run, arg))
CALL(int, eventfd, ways_of_descriptors, -1, (unsigned count, int flags), (count, flags))
CALL(int, timerfd_create, ways_of_descriptors, -1, (int clock, int flags), (clock, flags))
CALL(int, inotify_init1, ways_of_descriptors, -1, (int flags), (flags))
CALL(int, inotify_add_watch, ways_of_watching, -1, (int fd, const char *path, uint32_t mask),
     (fd, path, mask))
CALL(int, poll, ways_of_polling, -1, (struct pollfd * fds, nfds_t count, int timeout),
     (fds, count, timeout))
CALL(int, nanosleep, ways_of_waiting, -1, (const struct timespec *span, struct timespec *left),
     (span, left))
CALL(int, socket, ways_of_sockets, -1, (int family, int type, int protocol),
     (family, type, protocol))
CALL(int, connect, ways_of_connecting, -1, (int fd, const struct sockaddr *address, socklen_t size),
     (fd, address, size))
CALL(int, setsockopt, ways_of_options, -1,
     (int fd, int level, int name, const void *value, socklen_t size),
     (fd, level, name, value, size))
CALL(int, getsockopt, ways_of_options, -1,
     (int fd, int level, int name, void *value, socklen_t *size), (fd, level, name, value, size))
CALL(int, getpeername, ways_of_options, -1, (int fd, struct sockaddr *address, socklen_t *size),
     (fd, address, size))
CALL(int, getpwuid_r, ways_of_users, failing_errno(),
     (uid_t user, struct passwd *entry, char *bytes, size_t size, struct passwd **ret_found),
     (user, entry, bytes, size, ret_found))
