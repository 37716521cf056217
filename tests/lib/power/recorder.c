/* recorder.c: stands before the C library. What it does itself goes to the kernel directly, by syscall(). */
#undef _FILE_OFFSET_BITS /* open and open64 are two names here, and the same */

#include "recorder.h"
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL __attribute__((visibility("default")))
#define MAPPINGS_MAX 512
#define PAGE 4096
#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"

struct mapping {
    const unsigned char *at; /* NULL: this place is free */
    size_t size;
    uint64_t inode, offset;
    unsigned char known[PAGE]; /* as it was written down */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static char below[PATH_MAX];
static uint64_t *last_number; /* shared with children */
static uint64_t dies_at;      /* 0: never */
static struct mapping mappings[MAPPINGS_MAX];
static bool skips_syncs;
static const char *boot_id;
static uint64_t random_seed; /* 0: the kernel's own */

/* ---- what is written down --------------------------------------------------------------------- */

/* With the mutex. Whoever cannot write it down must not go on: what is missing in a trace proves nothing. */
static uint64_t put(struct trace_record *record, const void *bytes, size_t size)
{
    static const char padding[8];
    struct iovec pieces[3] = {{record, sizeof *record},
                              {(void *)(uintptr_t)bytes, size},
                              {(void *)(uintptr_t)padding, (8 - size % 8) % 8}};
    ssize_t all = (ssize_t)(pieces[0].iov_len + pieces[1].iov_len + pieces[2].iov_len);

    record->number = ++*last_number;
    record->size = (uint32_t)size;
    if (syscall(SYS_writev, trace, pieces, 3) != all)
        abort();
    return record->number;
}

static void put_stores(struct mapping *mapping)
{
    for (size_t at = 0; at < mapping->size; at += 8) {
        size_t end = at;

        while (end < mapping->size && end / 512 == at / 512 &&
               memcmp(mapping->at + end, mapping->known + end, 8) != 0)
            end += 8;
        if (end == at)
            continue;
        memcpy(mapping->known + at, mapping->at + at, end - at);
        put(&(struct trace_record){.kind = TRACE_STORED,
                                   .inode = mapping->inode,
                                   .offset = mapping->offset + at},
            mapping->known + at, end - at);
        at = end - 8;
    }
}

static void look_at_mappings(void)
{
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (mappings[i].at)
            put_stores(&mappings[i]);
}

static uint64_t note(struct trace_record record, const void *bytes, size_t size)
{
    int kept = errno;
    uint64_t number = 0;

    pthread_mutex_lock(&mutex);
    if (trace >= 0) {
        look_at_mappings();
        number = put(&record, bytes, size);
        if (dies_at && number >= dies_at)
            raise(SIGKILL);
    }
    pthread_mutex_unlock(&mutex);
    errno = kept;
    return number;
}

/* 0: it is not ours to watch. */
static uint64_t inode_of(int fd)
{
    char link[64], path[PATH_MAX];
    int kept = errno;
    struct stat info;
    ssize_t length;

    if (trace < 0 || fd < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    if (strncmp(path, below, strlen(below)) != 0 || fstat(fd, &info) < 0)
        info.st_ino = 0;
    errno = kept;
    return info.st_ino;
}

/* The directory that a path is in, its inode, and the name there; 0: not ours. */
static uint64_t place_of(int dirfd, const char *path, char ret_name[NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX] = ".";
    int kept = errno, fd;
    uint64_t inode;

    if (trace < 0)
        return 0;
    if (slash)
        snprintf(parent, sizeof parent, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    snprintf(ret_name, NAME_MAX + 1, "%s", slash ? slash + 1 : path);
    fd = (int)syscall(SYS_openat, dirfd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    inode = inode_of(fd);
    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = kept;
    return inode;
}

/* Of what has that name now; 0: nothing. */
static uint64_t inode_at(int dirfd, const char *path)
{
    struct stat info;
    int kept = errno;
    bool there = trace >= 0 && fstatat(dirfd, path, &info, AT_SYMLINK_NOFOLLOW) == 0;

    errno = kept;
    return there ? info.st_ino : 0;
}

/* ---- for whoever has it linked in ------------------------------------------------------------- */

static void begin(const char *path, const char *directory, int flags)
{
    snprintf(below, sizeof below, "%s", directory);
    if (!last_number)
        last_number = (void *)syscall(SYS_mmap, NULL, PAGE, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    trace = (int)syscall(SYS_openat, AT_FDCWD, path,
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0600);
    /* Those of a process that comes after another one are higher: each record has more than one byte. */
    *last_number = (uint64_t)lseek(trace, 0, SEEK_END);
    if (trace < 0)
        abort();
}

void recorder_begin(const char *path, const char *directory)
{
    begin(path, directory, O_TRUNC);
}

void recorder_end(void)
{
    pthread_mutex_lock(&mutex);
    look_at_mappings();
    syscall(SYS_close, trace);
    trace = -1;
    pthread_mutex_unlock(&mutex);
}

void recorder_mark(uint64_t number)
{
    note((struct trace_record){.kind = TRACE_MARK, .offset = number}, NULL, 0);
}

void recorder_die_after(uint64_t calls)
{
    dies_at = calls ? *last_number + calls : 0;
}

void recorder_skip_syncs(bool skip)
{
    skips_syncs = skip;
}

void recorder_set_boot_id(const char *id)
{
    boot_id = id;
}

void recorder_seed(uint64_t seed)
{
    random_seed = seed;
}

REAL ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
    unsigned char *at = bytes;

    if (!random_seed)
        return syscall(SYS_getrandom, bytes, size, flags);
    for (size_t i = 0; i < size; i++) {
        random_seed = random_seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        at[i] = (unsigned char)(random_seed >> 56);
    }
    return (ssize_t)size;
}

__attribute__((constructor)) static void begin_by_environment(void)
{
    const char *path = getenv("HF_RECORD"), *directory = getenv("HF_RECORD_BELOW");

    if (path && directory)
        begin(path, directory, 0);
}

/* ---- opening ---------------------------------------------------------------------------------- */

static int open_boot_id(void)
{
    int fd = (int)syscall(SYS_memfd_create, "boot_id", 1);

    if (fd >= 0 && syscall(SYS_write, fd, boot_id, strlen(boot_id)) > 0)
        syscall(SYS_lseek, fd, 0, SEEK_SET);
    return fd;
}

static int open_any(int dirfd, const char *path, int flags, mode_t mode)
{
    char name[NAME_MAX + 1];
    bool changes = trace >= 0 && (flags & (O_CREAT | O_TRUNC));
    uint64_t directory = changes ? place_of(dirfd, path, name) : 0;
    uint64_t before = directory ? inode_at(dirfd, path) : 0;
    struct stat info = {0};
    int fd;

    if (boot_id && strcmp(path, BOOT_ID_PATH) == 0)
        return open_boot_id();
    if (directory && before)
        fstatat(dirfd, path, &info, 0);
    fd = (int)syscall(SYS_openat, dirfd, path, flags, mode);
    if (fd < 0 || !directory)
        return fd;
    if (before && (flags & O_TRUNC) && info.st_size > 0)
        note((struct trace_record){.kind = TRACE_SIZE, .inode = inode_of(fd)}, NULL, 0);
    if (!before) {
        struct trace_record record = {
            .kind = TRACE_CREATE, .inode = inode_of(fd), .directory = directory};

        memcpy(record.name, name, sizeof name);
        note(record, NULL, 0);
    }
    return fd;
}

#define OPEN(function, dirfd, ...)                 \
    REAL int function(__VA_ARGS__, ...)            \
    {                                              \
        va_list arguments;                         \
        mode_t mode = 0;                           \
                                                   \
        va_start(arguments, flags);                \
        if (flags & (O_CREAT | __O_TMPFILE))       \
            mode = (mode_t)va_arg(arguments, int); \
        va_end(arguments);                         \
        return open_any(dirfd, path, flags, mode); \
    }

OPEN(open, AT_FDCWD, const char *path, int flags)
OPEN(open64, AT_FDCWD, const char *path, int flags)
OPEN(openat, dir, int dir, const char *path, int flags)
OPEN(openat64, dir, int dir, const char *path, int flags)

/* ---- names ------------------------------------------------------------------------------------ */

REAL int mkdirat(int dirfd, const char *path, mode_t mode)
{
    struct trace_record record = {.kind = TRACE_CREATE, .is_directory = 1};

    record.directory = place_of(dirfd, path, record.name);
    if (syscall(SYS_mkdirat, dirfd, path, mode) < 0)
        return -1;
    record.inode = inode_at(dirfd, path);
    if (record.directory)
        note(record, NULL, 0);
    return 0;
}

REAL int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

REAL int linkat(int from, const char *path, int to, const char *other, int flags)
{
    struct trace_record record = {.kind = TRACE_LINK};

    record.directory = place_of(to, other, record.name);
    if (syscall(SYS_linkat, from, path, to, other, flags) < 0)
        return -1;
    record.inode = inode_at(to, other);
    if (record.directory)
        note(record, NULL, 0);
    return 0;
}

REAL int link(const char *path, const char *other)
{
    return linkat(AT_FDCWD, path, AT_FDCWD, other, 0);
}

REAL int unlinkat(int dirfd, const char *path, int flags)
{
    struct trace_record record = {.kind = TRACE_UNLINK};

    record.directory = place_of(dirfd, path, record.name);
    if (syscall(SYS_unlinkat, dirfd, path, flags) < 0)
        return -1;
    if (record.directory)
        note(record, NULL, 0);
    return 0;
}

REAL int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

REAL int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

REAL int renameat(int from, const char *path, int to, const char *other)
{
    struct trace_record record = {.kind = TRACE_RENAME};

    record.directory = place_of(from, path, record.name);
    record.other_directory = place_of(to, other, record.other_name);
    if (syscall(SYS_renameat2, from, path, to, other, 0) < 0)
        return -1;
    record.inode = inode_at(to, other);
    if (record.directory || record.other_directory)
        note(record, NULL, 0);
    return 0;
}

REAL int rename(const char *path, const char *other)
{
    return renameat(AT_FDCWD, path, AT_FDCWD, other);
}

/* ---- content ---------------------------------------------------------------------------------- */

static void note_write(int fd, const struct iovec *pieces, int count, ssize_t written, off_t offset,
                       bool durable)
{
    uint64_t inode = written > 0 ? inode_of(fd) : 0;

    for (int i = 0; i < count && written > 0 && inode; i++) {
        size_t size = pieces[i].iov_len < (size_t)written ? pieces[i].iov_len : (size_t)written;

        note((struct trace_record){.kind = TRACE_WRITE, .inode = inode, .offset = (uint64_t)offset},
             pieces[i].iov_base, size);
        if (durable)
            note((struct trace_record){.kind = TRACE_DURABLE, .inode = inode}, NULL, 0);
        offset += (off_t)size;
        written -= (ssize_t)size;
    }
}

static ssize_t write_at(int fd, const void *bytes, size_t size, off_t offset)
{
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, size, offset);

    note_write(fd, &(struct iovec){(void *)(uintptr_t)bytes, size}, 1, written, offset, false);
    return written;
}

REAL ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return write_at(fd, bytes, size, offset);
}

REAL ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t offset)
{
    return write_at(fd, bytes, size, offset);
}

static ssize_t write_pieces(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    ssize_t written = syscall(SYS_pwritev2, fd, pieces, count, offset, 0, flags);

    note_write(fd, pieces, count, written, offset, flags & RWF_DSYNC);
    return written;
}

REAL ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    return write_pieces(fd, pieces, count, offset, flags);
}

REAL ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    return write_pieces(fd, pieces, count, offset, flags);
}

REAL ssize_t write(int fd, const void *bytes, size_t size)
{
    off_t offset = trace >= 0 && inode_of(fd) ? lseek(fd, 0, SEEK_CUR) : -1;
    ssize_t written = syscall(SYS_write, fd, bytes, size);

    if (offset >= 0)
        note_write(fd, &(struct iovec){(void *)(uintptr_t)bytes, size}, 1, written, offset, false);
    return written;
}

/* The C library's own calls of write do not come by here. */
REAL int dprintf(int fd, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return size < 0 || (size_t)size >= sizeof text ? -1 : (int)write(fd, text, (size_t)size);
}

static int resize(int fd, off_t size)
{
    uint64_t inode = inode_of(fd);

    if (syscall(SYS_ftruncate, fd, size) < 0)
        return -1;
    if (inode)
        note((struct trace_record){.kind = TRACE_SIZE, .inode = inode, .offset = (uint64_t)size},
             NULL, 0);
    return 0;
}

REAL int ftruncate(int fd, off_t size)
{
    return resize(fd, size);
}

REAL int ftruncate64(int fd, off_t size)
{
    return resize(fd, size);
}

/* What a file system without it is given instead by the C library, a write of each block, is not needed here. */
static int make_room(int fd, off_t offset, off_t size)
{
    int kept = errno, failure = 0;
    uint64_t inode = inode_of(fd);

    if (syscall(SYS_fallocate, fd, 0, offset, size) < 0)
        failure = errno;
    errno = kept;
    if (!failure && inode)
        note((struct trace_record){.kind = TRACE_ROOM,
                                   .inode = inode,
                                   .offset = (uint64_t)(offset + size)},
             NULL, 0);
    return failure;
}

REAL int posix_fallocate(int fd, off_t offset, off_t size)
{
    return make_room(fd, offset, size);
}

REAL int posix_fallocate64(int fd, off_t offset, off_t size)
{
    return make_room(fd, offset, size);
}

/* ---- syncing ---------------------------------------------------------------------------------- */

static int sync_file(int fd, long call)
{
    uint64_t inode = inode_of(fd), begun = 0;
    int result = 0;

    if (inode)
        begun = note((struct trace_record){.kind = TRACE_SYNC_BEGIN, .inode = inode}, NULL, 0);
    if (!skips_syncs)
        result = (int)syscall(call, fd);
    if (result == 0 && inode)
        note((struct trace_record){.kind = TRACE_SYNC_END, .inode = inode, .offset = begun}, NULL,
             0);
    return result;
}

REAL int fsync(int fd)
{
    return sync_file(fd, SYS_fsync);
}

REAL int fdatasync(int fd)
{
    return sync_file(fd, SYS_fdatasync);
}

/* ---- mapping ---------------------------------------------------------------------------------- */

static void watch(void *at, size_t size, uint64_t inode, off_t offset)
{
    int i = 0;

    pthread_mutex_lock(&mutex);
    while (i < MAPPINGS_MAX && mappings[i].at)
        i++;
    if (i == MAPPINGS_MAX || size > PAGE)
        abort();
    mappings[i].at = at;
    mappings[i].size = size;
    mappings[i].inode = inode;
    mappings[i].offset = (uint64_t)offset;
    memcpy(mappings[i].known, at, size);
    pthread_mutex_unlock(&mutex);
}

static void *map(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *mapped = (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
    uint64_t inode = mapped != MAP_FAILED && (flags & MAP_SHARED) && (protection & PROT_WRITE)
                         ? inode_of(fd)
                         : 0;

    if (inode)
        watch(mapped, size, inode, offset);
    return mapped;
}

REAL void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return map(at, size, protection, flags, fd, offset);
}

REAL void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return map(at, size, protection, flags, fd, offset);
}

REAL int munmap(void *at, size_t size)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAPPINGS_MAX; i++)
        if (mappings[i].at == at && at) {
            if (trace >= 0)
                put_stores(&mappings[i]);
            mappings[i].at = NULL;
        }
    pthread_mutex_unlock(&mutex);
    return (int)syscall(SYS_munmap, at, size);
}
