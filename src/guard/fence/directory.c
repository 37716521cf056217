#include "guard/fence/directory.h"
#include "base/filesize.h"
#include "base/filesystem.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/guard.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- refusing -------------------------------------------------------------------------------- */

/* Before anything is made. */
static int check_filesystem(const struct fence_directory *directory, int allow,
                            struct error_text *err)
{
    enum filesystem_kind kind;
    const char *name;
    int result = filesystem_look(directory->path, &kind, &name, err);

    if (result != HF_OK)
        return result;
    if (kind == FILESYSTEM_IN_MEMORY && !(allow & HF_ALLOW_TMPFS))
        return error_set(err, HF_EREFUSED,
                         "%s is on %s, which forgets the marks at a reboot; use a directory on "
                         "disk, or allow tmpfs to accept that",
                         directory->path, name);
    if (kind == FILESYSTEM_ON_NETWORK && !(allow & HF_ALLOW_NETWORK))
        return error_set(err, HF_EREFUSED,
                         "%s is on %s, where other machines may not see our locks; use a local "
                         "directory, or allow network if only this machine uses it",
                         directory->path, name);
    return HF_OK;
}

static int check_permissions(struct fence_directory *directory, int allow, struct error_text *err)
{
    uid_t self = geteuid();
    struct stat st;

    if (fstat(directory->fd, &st) < 0)
        return error_set_errno(err, HF_EIO, errno, "cannot look at %s", directory->path);
    if (!(allow & HF_ALLOW_WRITABLE) && (st.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(err, HF_EREFUSED,
                         "others can write to %s (mode %04o), and so could change marks; chmod "
                         "go-w it, or allow writable to share it on purpose",
                         directory->path, (unsigned)(st.st_mode & 07777));
    if (!(allow & HF_ALLOW_WRITABLE) && self != 0 && st.st_uid != self && st.st_uid != 0)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to another user; use a directory of your own, or allow "
                         "writable to share it on purpose",
                         directory->path);
    directory->file_mode = (st.st_mode & 0666) | 0600;
    directory->owner = st.st_uid;
    directory->group = st.st_gid;
    return HF_OK;
}

int fence_directory_explain(const struct fence_directory *directory, int errno_value,
                            const char *doing, struct error_text *err)
{
    const char *path = directory->path;

    switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
        return error_set(err, HF_EIO, "cannot %s: the disk of %s is full", doing, path);
    case EROFS:
        return error_set(err, HF_EREFUSED, "cannot %s: the disk of %s is read-only", doing, path);
    case EACCES:
    case EPERM:
        return error_set(err, HF_EREFUSED, "cannot %s: you may not write to %s", doing, path);
    case EFBIG:
        return error_set(err, HF_EIO,
                         "cannot %s in %s: the file size limit of this process is in the way "
                         "(ulimit -f)",
                         doing, path);
    case ELOOP:
    case EISDIR:
    case ENXIO:
        return error_set(err, HF_EREFUSED, "cannot %s in %s: what is there is not a regular file",
                         doing, path);
    case ENOENT:
    case ENOTDIR:
        return error_set_errno(err, HF_EREFUSED, errno_value, "cannot %s in %s", doing, path);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOLCK:
        return error_set_errno(err, HF_ENOMEM, errno_value, "cannot %s in %s", doing, path);
    default:
        return error_set_errno(err, HF_EIO, errno_value, "cannot %s in %s", doing, path);
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

static void sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* mkdir -p, private to us. A directory that somebody made before us is as good. */
static int make_path(const char *path, struct error_text *err)
{
    char part[FENCE_PATH_MAX + 1];
    size_t length = strlen(path);

    for (size_t i = 1; i <= length; i++) {
        char *slash;

        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) < 0) {
            /* Where we may not write it is fine if it exists: open will tell. */
            if (errno == EEXIST || errno == EISDIR || errno == EROFS || errno == EACCES)
                continue;
            return error_set_errno(err, errno == ENOSPC ? HF_EIO : HF_EREFUSED, errno,
                                   "cannot make the fence's directory %s", part);
        }
        slash = strrchr(part, '/');
        if (slash)
            slash[slash == part] = '\0';
        sync_path(slash ? part : ".");
    }
    return HF_OK;
}

static int check_there_is_a_fence(const struct fence_directory *directory, struct error_text *err)
{
    if (faccessat(directory->fd, "data.mdb", F_OK, 0) == 0)
        return HF_OK;
    return error_set(err, HF_EREFUSED, "there is no fence in %s", directory->path);
}

int fence_directory_open(const char *path, int allow, bool existing,
                         struct fence_directory *ret_directory, struct error_text *err)
{
    struct fence_directory *directory = ret_directory;
    int result;

    directory->fd = -1;
    if (!path || !*path || strlen(path) > FENCE_PATH_MAX)
        return error_set(err, HF_EINVAL, "the path of a fence has 1 to %d bytes", FENCE_PATH_MAX);
    memcpy(directory->path, path, strlen(path) + 1);
    result = check_filesystem(directory, allow, err);
    if (result == HF_OK && !existing)
        result = make_path(directory->path, err);
    if (result != HF_OK)
        return result;
    directory->fd = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0 && errno == ENOENT)
        return error_set(err, HF_EREFUSED, "there is no fence in %s", directory->path);
    if (directory->fd < 0)
        return fence_directory_explain(directory, errno, "open the fence", err);
    result = check_permissions(directory, allow, err);
    if (result == HF_OK && existing)
        result = check_there_is_a_fence(directory, err);
    if (result != HF_OK)
        fence_directory_close(directory);
    return result;
}

void fence_directory_close(struct fence_directory *directory)
{
    if (directory->fd >= 0)
        close(directory->fd);
    directory->fd = -1;
}

int fence_directory_sync(const struct fence_directory *directory, struct error_text *err)
{
    if (fsync(directory->fd) < 0)
        return fence_directory_explain(directory, errno, "sync the fence", err);
    return HF_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* On a copy-on-write filesystem each overwrite needs new space, and a store into a mapped page of a
 * full disk would be a SIGBUS. Asked for in place, it is not. Elsewhere the request fails,
 * harmlessly. */
static void ask_for_overwrite_in_place(int fd)
{
    int flags;

    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_NOCOW_FL)) {
        flags |= FS_NOCOW_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    }
}

/* 0, or an errno. EEXIST: it is there. */
static int make_file(const struct fence_directory *directory, const char *name)
{
    if (mknodat(directory->fd, name, S_IFREG | 0600, 0) < 0)
        return errno;
    if (geteuid() == 0 &&
        fchownat(directory->fd, name, directory->owner, directory->group, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    return fchmodat(directory->fd, name, directory->file_mode, 0) < 0 ? errno : 0;
}

int fence_directory_make(const struct fence_directory *directory, const char *name,
                         struct error_text *err)
{
    int failure = make_file(directory, name);

    if (failure && failure != EEXIST)
        return fence_directory_explain(directory, failure, "make a file", err);
    return HF_OK;
}

int fence_directory_check_locks(const struct fence_directory *directory, struct error_text *err)
{
    static const char *const names[] = {"keys", "lock.mdb"}; /* made before data.mdb has a byte */
    struct stat st;

    if (fstatat(directory->fd, "data.mdb", &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size == 0)
        return HF_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (faccessat(directory->fd, names[i], F_OK, 0) < 0)
            return error_set(err, HF_EREFUSED,
                             "the fence in %s has lost its file '%s', and nobody can tell who is "
                             "inside; when no program uses it, make an empty one",
                             directory->path, names[i]);
    return HF_OK;
}

int fence_directory_file(const struct fence_directory *directory, const char *name, size_t size,
                         int *ret_fd, struct error_text *err)
{
    int fd, failure = 0, result = fence_directory_make(directory, name, err);
    struct filesize_guard guard;
    struct stat st;

    if (result != HF_OK)
        return result;
    fd = openat(directory->fd, name,
                O_RDWR | O_APPEND | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fence_directory_explain(directory, errno, "open a file", err);
    if (fstat(fd, &st) < 0)
        failure = errno;
    else if (!S_ISREG(st.st_mode))
        failure = ELOOP;
    else if ((size_t)st.st_size < size) {
        ask_for_overwrite_in_place(fd);
        filesize_enter(&guard);
        failure = posix_fallocate(fd, 0, (off_t)size); /* a full disk says so here */
        filesize_leave(&guard);
    }
    if (failure) {
        close(fd);
        return fence_directory_explain(directory, failure, "open a file", err);
    }
    *ret_fd = fd;
    return HF_OK;
}
