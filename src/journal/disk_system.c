/* disk_system.c: the disk of this machine. The only file of the room with system calls in it. */
#include "base/clock.h"
#include "base/random.h"
#include "journal/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE \
    ((size_t)1 << 30) /* of bytes: a write of 2 GB and more is cut short by the kernel */
#define REMOVING_PAUSE_MAX_NS 200000000

static int errno_if(bool failed)
{
    return failed ? errno : 0;
}

/* ---- directories ------------------------------------------------------------------------------ */

static int make_directory(const struct disk *disk, const char *path, unsigned mode)
{
    (void)disk;
    return errno_if(mkdir(path, (mode_t)mode) < 0);
}

static int sync_parent(const struct disk *disk, const char *path)
{
    char parent[PATH_MAX + 4];
    int fd, failure;

    (void)disk;
    snprintf(parent, sizeof parent, "%s/..", path);
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    failure = errno_if(fd < 0 || fsync(fd) < 0);
    if (fd >= 0)
        close(fd);
    return failure;
}

static int real_path(const struct disk *disk, const char *path, char ret_path[PATH_MAX])
{
    (void)disk;
    return errno_if(!realpath(path, ret_path));
}

static int open_directory(const struct disk *disk, const char *path, int *ret_directory)
{
    (void)disk;
    *ret_directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return errno_if(*ret_directory < 0);
}

static int list(const struct disk *disk, int directory, disk_name_fn *fn, void *context)
{
    int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = own >= 0 ? fdopendir(own) : NULL;
    struct dirent *entry;
    bool more = true;
    int failure;

    (void)disk;
    if (!listing) {
        failure = errno;
        if (own >= 0)
            close(own);
        return failure;
    }
    while (errno = 0, more && (entry = readdir(listing)) != NULL)
        more = fn(context, entry->d_name);
    failure = more ? errno : 0;
    closedir(listing);
    return failure;
}

static int look(const struct disk *disk, int directory, const char *name)
{
    (void)disk;
    return errno_if(faccessat(directory, name, F_OK, 0) < 0);
}

static int rename_file(const struct disk *disk, int directory, const char *from, const char *to)
{
    (void)disk;
    return errno_if(renameat(directory, from, directory, to) < 0);
}

/* Gently: after each one the others have twice the time that it took. */
static int remove_file(const struct disk *disk, int directory, const char *name, bool gently)
{
    int64_t begin_ns = gently ? clock_boot_ns() : 0, pause_ns;
    int failure = errno_if(unlinkat(directory, name, 0) < 0);

    (void)disk;
    if (!gently)
        return failure;
    pause_ns = 2 * (clock_boot_ns() - begin_ns);
    if (pause_ns > REMOVING_PAUSE_MAX_NS)
        pause_ns = REMOVING_PAUSE_MAX_NS;
    nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    return failure;
}

/* ---- files ------------------------------------------------------------------------------------ */

static int open_file(const struct disk *disk, int directory, const char *name, enum disk_open how,
                     int *ret_file)
{
    static const int flags[] = {
        [DISK_FOR_READING] = O_RDONLY | O_CLOEXEC,
        [DISK_FOR_WRITING] = O_WRONLY | O_CLOEXEC,
        [DISK_MADE_IF_MISSING] = O_RDWR | O_CREAT | O_CLOEXEC,
        [DISK_EMPTIED] = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
        [DISK_EMPTIED_DIRECT] = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT,
    };

    (void)disk;
    *ret_file = openat(directory, name, flags[how], 0600);
    if (*ret_file < 0 && errno == EINVAL && how == DISK_EMPTIED_DIRECT)
        *ret_file = openat(directory, name, flags[DISK_EMPTIED],
                           0600); /* a file system without it: through the cache, then */
    return errno_if(*ret_file < 0);
}

static int close_handle(const struct disk *disk, int handle)
{
    (void)disk;
    return errno_if(close(handle) < 0);
}

static int lock(const struct disk *disk, int file)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    (void)disk;
    if (fcntl(file, F_OFD_SETLK, &whole) < 0)
        return errno;
    /* For people only; a disk too full for it is found out soon enough. */
    if (ftruncate(file, 0) == 0)
        dprintf(file, "%ld\n", (long)getpid());
    return 0;
}

static int file_size(const struct disk *disk, int file, uint64_t *ret_size)
{
    struct stat info = {0};
    int failure = errno_if(fstat(file, &info) < 0);

    (void)disk;
    *ret_size = (uint64_t)info.st_size;
    return failure;
}

static int make_room(const struct disk *disk, int file, uint64_t size)
{
    (void)disk;
    return posix_fallocate(file, 0, (off_t)size);
}

static int truncate_file(const struct disk *disk, int file, uint64_t size)
{
    (void)disk;
    return errno_if(ftruncate(file, (off_t)size) < 0);
}

static int sync_handle(const struct disk *disk, int handle)
{
    (void)disk;
    return errno_if(fsync(handle) < 0);
}

/* ---- reading and writing ---------------------------------------------------------------------- */

/* A write that is durable in itself is not known everywhere: gVisor and emulators answer EOPNOTSUPP, old
 * kernels ENOSYS or EINVAL. Then it is written, and then synced. */
atomic_bool disk_system_syncs_apart;

static bool is_unknown(int failure)
{
    return failure == EOPNOTSUPP || failure == ENOSYS || failure == EINVAL;
}

/* A file system may open a file for writing past the cache and then refuse to. */
static bool can_go_through_cache(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static ssize_t write_piece(int fd, const void *bytes, size_t size, off_t offset, bool durable)
{
    struct iovec piece = {(void *)(uintptr_t)bytes, size};
    ssize_t count;

    if (durable && !disk_system_syncs_apart) {
        count = pwritev2(fd, &piece, 1, offset, RWF_DSYNC);
        if (count >= 0 || !is_unknown(errno))
            return count;
    }
    count = pwrite(fd, bytes, size, offset);
    if (count < 0 && errno == EINVAL && can_go_through_cache(fd))
        count = pwrite(fd, bytes, size, offset);
    if (durable && count > 0)
        disk_system_syncs_apart = true;
    return count;
}

static int sync_data(int fd)
{
    while (fdatasync(fd) < 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

static int write_all(const struct disk *disk, int file, const void *bytes, size_t size,
                     uint64_t offset, bool durable)
{
    const char *at = bytes;

    (void)disk;
    while (size > 0) {
        ssize_t count =
            write_piece(file, at, size < AT_ONCE ? size : AT_ONCE, (off_t)offset, durable);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? errno : EIO;
        at += count;
        offset += (uint64_t)count;
        size -= (size_t)count;
    }
    return durable && disk_system_syncs_apart ? sync_data(file) : 0;
}

static int read_whole(const struct disk *disk, int file, void *bytes, size_t size, uint64_t offset,
                      size_t *ret_count)
{
    size_t got = 0;

    (void)disk;
    while (got < size) {
        size_t piece = size - got < AT_ONCE ? size - got : AT_ONCE;
        ssize_t count = pread(file, (char *)bytes + got, piece, (off_t)(offset + got));

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        if (count == 0)
            break;
        got += (size_t)count;
    }
    *ret_count = got;
    return 0;
}

static void randomize(const struct disk *disk, void *bytes, size_t size)
{
    (void)disk;
    random_fill(bytes, size);
}

const struct disk *disk_system(void)
{
    static const struct disk system_disk = {
        .make_directory = make_directory,
        .sync_parent = sync_parent,
        .real_path = real_path,
        .open_directory = open_directory,
        .list = list,
        .look = look,
        .rename = rename_file,
        .remove = remove_file,
        .sync_directory = sync_handle,
        .open = open_file,
        .close = close_handle,
        .lock = lock,
        .size = file_size,
        .read = read_whole,
        .write = write_all,
        .make_room = make_room,
        .truncate = truncate_file,
        .sync = sync_handle,
        .random = randomize,
    };

    return &system_disk;
}
