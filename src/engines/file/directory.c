#include "engines/file/directory.h"
#include "base/filesystem.h"
#include "base/random.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LOCKS_FOLDER "locks"

struct allowances {
    bool tmpfs, network, writable;
};

static int parse_allow(struct url *url, struct allowances *ret_allow, struct error_text *err)
{
    const char *at = url_get(url, "allow");

    *ret_allow = (struct allowances){false, false, false};
    while (at && *at) {
        size_t length = strcspn(at, ",");

        if (length == 5 && strncmp(at, "tmpfs", length) == 0)
            ret_allow->tmpfs = true;
        else if (length == 7 && strncmp(at, "network", length) == 0)
            ret_allow->network = true;
        else if (length == 8 && strncmp(at, "writable", length) == 0)
            ret_allow->writable = true;
        else
            return error_set(err, HF_EINVAL,
                             "store URL: allow= takes tmpfs, network and writable, not '%.*s'",
                             (int)length, at);
        at += length;
        at += *at == ',';
    }
    return HF_OK;
}

/* /var/lib/holdfast for root, else the XDG state directory. */
static int default_path(char *ret_path, size_t size, struct error_text *err)
{
    const char *state = secure_getenv("XDG_STATE_HOME");
    const char *home = secure_getenv("HOME");
    int length;

    if (geteuid() == 0)
        length = snprintf(ret_path, size, "/var/lib/holdfast");
    else if (state && state[0] == '/')
        length = snprintf(ret_path, size, "%s/holdfast", state);
    else if (home && home[0] == '/')
        length = snprintf(ret_path, size, "%s/.local/state/holdfast", home);
    else
        return error_set(err, HF_EINVAL,
                         "no directory for the file store: HOME %s; name one with --on file:DIR",
                         home && home[0] ? "is not an absolute path" : "is not set");
    if (length < 0 || (size_t)length >= size)
        return error_set(err, HF_EINVAL, "the file store's directory has too long a path");
    return HF_OK;
}

static int find_path(const struct url *url, char *ret_path, size_t size, struct error_text *err)
{
    const char *rest = url->rest;
    char decoded[HF_URL_MAX + 1];

    if (!*rest)
        return default_path(ret_path, size, err);
    if (strncmp(rest, "//", 2) == 0) {
        if (rest[2] != '/')
            return error_set(err, HF_EINVAL,
                             "store URL: a file store is on this machine: write file:/DIR or "
                             "file:DIR");
        rest += 2;
    }
    if (rest[0] == '~')
        return error_set(err, HF_EINVAL,
                         "store URL: the shell does not expand '~' behind 'file:': write "
                         "file:$HOME/..., or file:./~ for a directory of that name");
    if (!text_percent_decode(rest, strlen(rest), decoded, sizeof decoded))
        return error_set(err, HF_EINVAL, "store URL: the directory is badly percent-encoded");
    if (decoded[0] == '/') {
        memcpy(ret_path, decoded, strlen(decoded) + 1);
    } else {
        size_t used;

        if (!getcwd(ret_path, size))
            return error_set_errno(err, HF_EREFUSED, errno, "cannot tell the current directory");
        used = strlen(ret_path);
        if (used + 1 + strlen(decoded) >= size)
            return error_set(err, HF_EINVAL, "the file store's directory has too long a path");
        ret_path[used] = '/';
        memcpy(ret_path + used + 1, decoded, strlen(decoded) + 1);
    }
    return HF_OK;
}

static void sync_directory(int parent_fd, const char *path)
{
    int fd = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* Makes one directory, private to us. One that somebody made before us is as good. */
static int make_one(const char *path, bool *ret_made, struct error_text *err)
{
    char parent[HF_URL_MAX + 1];
    int failure;

    if (mkdir(path, 0700) < 0) {
        failure = errno;
        if (failure == EEXIST || failure == EISDIR)
            return HF_OK;
        if ((failure == EROFS || failure == EACCES) && access(path, F_OK) == 0)
            return HF_OK;
        return error_set_errno(err, failure == ENOSPC ? HF_EIO : HF_EREFUSED, failure,
                               "cannot make the file store's directory %s", path);
    }
    *ret_made = true;
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    sync_directory(AT_FDCWD, *parent ? parent : "/");
    return HF_OK;
}

/* The default place is made with all that is above it. One that somebody named is not: more likely it was mistyped,
 * and locks in a place of one's own exclude nobody. */
static int make_path(const char *path, bool is_default, bool *ret_made, struct error_text *err)
{
    char part[HF_URL_MAX + 1];
    size_t length = strlen(path), last;
    struct stat st;
    int result = HF_OK;

    while (length > 1 && path[length - 1] == '/')
        length--;
    last = length;
    while (last > 1 && path[last - 1] != '/')
        last--;
    if (!is_default) {
        memcpy(part, path, last);
        part[last] = '\0';
        if (stat(part, &st) < 0 && errno == ENOENT)
            return error_set(
                err, HF_EREFUSED,
                "there is no directory %.*s, so no file store is made in it: if this is "
                "not a typing error, mkdir -p %s",
                (int)(last > 1 ? last - 1 : last), part, path);
    }
    for (size_t i = is_default ? 1 : last; i <= length && result == HF_OK; i++) {
        bool made = false;

        if (i < length && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        result = make_one(part, &made, err);
        *ret_made = made;
    }
    return result;
}

/* Before anything is made. */
static int check_filesystem(const struct directory *directory, const struct allowances *allow,
                            struct error_text *err)
{
    enum filesystem_kind kind;
    const char *name;
    int result = filesystem_look(directory->path, &kind, &name, err);

    if (result != HF_OK)
        return result;
    if (kind == FILESYSTEM_IN_MEMORY && !allow->tmpfs)
        return error_set(err, HF_EREFUSED,
                         "%s is on %s, which forgets the fencing tokens at a reboot; use a "
                         "directory on disk, or add ?allow=tmpfs to accept that",
                         directory->path, name);
    if (kind == FILESYSTEM_ON_NETWORK && !allow->network)
        return error_set(err, HF_EREFUSED,
                         "%s is on %s, where other machines may not see our locks; use a local "
                         "directory, or add ?allow=network if only this machine uses it",
                         directory->path, name);
    return HF_OK;
}

static int check_permissions(struct directory *directory, const struct allowances *allow,
                             struct error_text *err)
{
    uid_t self = geteuid();
    struct stat st;

    if (fstat(directory->fd, &st) < 0)
        return error_set_errno(err, HF_EIO, errno, "cannot look at %s", directory->path);
    if (!allow->writable && (st.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(err, HF_EREFUSED,
                         "others can write to %s (mode %04o), and so could take or forge locks; "
                         "chmod go-w it, or add ?allow=writable to share it on purpose",
                         directory->path, (unsigned)(st.st_mode & 07777));
    if (!allow->writable && self != 0 && st.st_uid != self && st.st_uid != 0)
        return error_set(err, HF_EREFUSED,
                         "%s belongs to another user; use a directory of your own, or add "
                         "?allow=writable to share it on purpose",
                         directory->path);
    directory->file_mode = (st.st_mode & 0666) | 0600;
    directory->set_group = st.st_mode & S_ISGID;
    directory->owner = st.st_uid;
    directory->group = st.st_gid;
    return HF_OK;
}

/* Ours, or nobody's: hidden files, and what a file system has by itself. When the power fails in the first moment of a store, any of its
 * folders may be there without the others. */
static bool is_foreign(const char *name)
{
    static const char *const known[] = {LOCKS_FOLDER, ONCE_FOLDER, "lost+found"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return false;
    return name[0] != '.';
}

/* Of a directory that is no store yet. Somebody's documents are hardly where locks were meant to be. */
static int check_foreign(const struct directory *directory, struct error_text *err)
{
    struct dirent *entry;
    int result = HF_OK, fd;
    DIR *stream;

    if (directory->made || faccessat(directory->fd, LOCKS_FOLDER, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
        faccessat(directory->fd, FILE_STATE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return HF_OK;
    fd = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (!stream) {
        if (fd >= 0)
            close(fd);
        return directory_failure(directory, errno, "look into the store", err);
    }
    while (errno = 0, result == HF_OK && (entry = readdir(stream)))
        if (is_foreign(entry->d_name))
            result = error_set(err, HF_EREFUSED,
                               "%s is no file store, and not empty (there is %s): name an empty "
                               "directory, or one that is not there yet",
                               directory->path, entry->d_name);
    if (result == HF_OK && errno)
        result = directory_failure(directory, errno, "look into the store", err);
    closedir(stream);
    return result;
}

/* Of a folder that was made just now, and has not its permissions yet: it goes again, since nobody would set them later. */
static int unmake_folder(const struct directory *directory, const char *folder, const char *doing,
                         struct error_text *err)
{
    int failure = errno;

    unlinkat(directory->fd, folder, AT_REMOVEDIR);
    return directory_failure(directory, failure, doing, err);
}

/* DIR/FOLDER as the place of lock files, with DIR's own permissions if it has to be made. */
static int open_folder(struct directory *directory, const char *folder, struct error_text *err)
{
    bool made;
    int failure;

    snprintf(directory->locks_path, sizeof directory->locks_path, "%s/%s", directory->path, folder);
    made = mkdirat(directory->fd, folder, 0700) == 0;
    failure = made ? 0 : errno;
    directory->locks_fd =
        openat(directory->fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory->locks_fd < 0 && errno == ENOENT && failure)
        return directory_failure(directory, failure, "make the directory of locks", err);
    if (directory->locks_fd < 0 && made)
        return unmake_folder(directory, folder, "open the directory of locks", err);
    if (directory->locks_fd < 0)
        return directory_failure(directory, errno, "open the directory of locks", err);
    if (made) {
        mode_t mode = directory->file_mode | (directory->file_mode & 0444) >> 2;

        if (fchmod(directory->locks_fd, mode | directory->set_group) < 0 ||
            (geteuid() == 0 && fchown(directory->locks_fd, directory->owner, directory->group) < 0))
            return unmake_folder(directory, folder, "set the permissions of the locks", err);
    }
    return HF_OK;
}

int directory_open_folder(const struct directory *directory, const char *folder, bool make,
                          struct directory *ret_other, struct error_text *err)
{
    struct directory other = *directory;
    int result;

    if (!make && faccessat(directory->fd, folder, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return HF_OK;
    other.fd = fcntl(directory->fd, F_DUPFD_CLOEXEC, 3);
    other.locks_fd = -1;
    if (other.fd < 0)
        return directory_failure(directory, errno, "open the store", err);
    result = open_folder(&other, folder, err);
    if (result == HF_OK)
        *ret_other = other;
    else
        directory_close(&other);
    return result;
}

int directory_open(struct url *url, struct directory *ret_directory, struct error_text *err)
{
    struct directory *directory = ret_directory;
    struct allowances allow;
    int result;

    directory->fd = directory->locks_fd = -1;
    directory->made = false;
    directory->locks_path[0] = '\0';
    result = parse_allow(url, &allow, err);
    if (result == HF_OK)
        result = url_check_all_used(url, err); /* before anything is made */
    if (result == HF_OK)
        result = find_path(url, directory->path, sizeof directory->path, err);
    if (result == HF_OK)
        result = check_filesystem(directory, &allow, err);
    if (result == HF_OK)
        result = make_path(directory->path, !*url->rest, &directory->made, err);
    if (result != HF_OK)
        return result;
    directory->fd = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0)
        return directory_failure(directory, errno, "open the store", err);
    result = check_permissions(directory, &allow, err);
    if (result == HF_OK)
        result = check_foreign(directory, err);
    if (result == HF_OK)
        result = open_folder(directory, LOCKS_FOLDER, err);
    if (result != HF_OK)
        directory_close(directory);
    return result;
}

bool directory_is_unmade(struct url *url, char *ret_path)
{
    struct stat st;

    return find_path(url, ret_path, HF_URL_MAX + 1, NULL) == HF_OK && stat(ret_path, &st) < 0 &&
           errno == ENOENT;
}

void directory_close(struct directory *directory)
{
    if (directory->locks_fd >= 0)
        close(directory->locks_fd);
    if (directory->fd >= 0)
        close(directory->fd);
    directory->fd = directory->locks_fd = -1;
}

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

int directory_open_file(int dirfd, const char *name, int flags)
{
    int fd = openat(dirfd, name, flags | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    int failure = fd >= 0 && fstat(fd, &st) < 0 ? errno : 0;

    if (fd >= 0 && !failure && !S_ISREG(st.st_mode))
        failure = ELOOP;
    if (failure) {
        close(fd);
        errno = failure;
        return -1;
    }
    return fd;
}

int directory_read_file(int fd, void *bytes, size_t size, off_t offset)
{
    size_t got = 0;

    while (got < size) {
        ssize_t count = pread(fd, (char *)bytes + got, size - got, offset + (off_t)got);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        if (count == 0)
            return -1;
        got += (size_t)count;
    }
    return 0;
}

int directory_create_file(const struct directory *directory, int dirfd, const char *name,
                          int *ret_fd, struct error_text *err)
{
    int fd, failure;

    fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return directory_failure(directory, errno, "create a file", err);
    if (fchmod(fd, directory->file_mode) < 0 ||
        (geteuid() == 0 && fchown(fd, directory->owner, directory->group) < 0)) {
        failure = errno;
        unlinkat(dirfd, name, 0);
        close(fd);
        return directory_failure(directory, failure, "set a file's permissions", err);
    }
    *ret_fd = fd;
    return HF_OK;
}

int directory_temp_file(const struct directory *directory, int dirfd, char *ret_name, int *ret_fd,
                        struct error_text *err)
{
    unsigned char bytes[16];
    char hex[2 * sizeof bytes + 1];
    int result;

    random_fill(bytes, sizeof bytes);
    text_hex(bytes, sizeof bytes, hex);
    snprintf(ret_name, DIRECTORY_TEMP_MAX, ".new-%s", hex);
    result = directory_create_file(directory, dirfd, ret_name, ret_fd, err);
    if (result == HF_OK)
        ask_for_overwrite_in_place(*ret_fd);
    return result;
}

/* What of the store is closed to us: DIR, the folder of lock files or the token file; else some file in there. */
static const char *closed_path(const struct directory *directory, char *ret_path, size_t size)
{
    const int use = R_OK | W_OK, enter = use | X_OK;

    snprintf(ret_path, size, "%s", directory->path);
    if (faccessat(AT_FDCWD, ret_path, enter, AT_EACCESS) < 0)
        return ret_path;
    if (!directory->locks_path[0])
        return ret_path;
    snprintf(ret_path, size, "%s", directory->locks_path);
    if (faccessat(AT_FDCWD, ret_path, enter, AT_EACCESS) < 0)
        return ret_path;
    snprintf(ret_path, size, "%s/" FILE_STATE_NAME, directory->path);
    if (faccessat(AT_FDCWD, ret_path, use, AT_EACCESS) < 0 && errno == EACCES)
        return ret_path;
    snprintf(ret_path, size, "%s", directory->locks_path);
    return ret_path;
}

/* A file in a folder that is open to us belongs to whoever made it, so it is as if the folder did. */
static int not_allowed(const struct directory *directory, const char *doing, struct error_text *err)
{
    char path[sizeof directory->locks_path + sizeof FILE_STATE_NAME];
    struct stat st;

    closed_path(directory, path, sizeof path);
    if (stat(path, &st) == 0 && st.st_uid == geteuid())
        return error_set(err, HF_EREFUSED, "cannot %s: you may not write to %s (mode %04o)", doing,
                         path, (unsigned)(st.st_mode & 07777));
    return error_set(err, HF_EREFUSED,
                     "cannot %s: you may not write to %s; a store for several users is made for "
                     "their group before its first use (mkdir -m 2770 DIR && chgrp GROUP DIR), and "
                     "all of them add ?allow=writable to file:DIR",
                     doing, path);
}

int directory_failure(const struct directory *directory, int errno_value, const char *doing,
                      struct error_text *err)
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
        return not_allowed(directory, doing, err);
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
