#include "journal/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what is in it ---------------------------------------------------------------------------- */

int directory_each(const struct directory *directory, directory_file_fn *fn, void *context,
                   struct error_text *err)
{
    int own = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = own >= 0 ? fdopendir(own) : NULL;
    struct dirent *entry;
    int result = HF_OK, failure;

    if (!listing) {
        failure = errno;
        if (own >= 0)
            close(own);
        return error_set_errno(err, HF_EIO, failure, "cannot list %s", directory->path);
    }
    while (errno = 0, result == HF_OK && (entry = readdir(listing)) != NULL)
        result = fn(context, entry->d_name, err);
    failure = errno;
    closedir(listing);
    if (result == HF_OK && failure)
        return error_set_errno(err, HF_EIO, failure, "cannot list %s", directory->path);
    return result;
}

bool directory_number_in(const char *name, const char *prefix, uint64_t *ret_number)
{
    size_t length = strlen(prefix);
    char *end;

    if (strncmp(name, prefix, length) != 0 || name[length] < '0' || name[length] > '9')
        return false;
    if (name[length] == '0' && name[length + 1])
        return false; /* we would look for it under another name */
    errno = 0;
    *ret_number = strtoull(name + length, &end, 10);
    return errno == 0 && *end == '\0';
}

/* ---- having it -------------------------------------------------------------------------------- */

/* A directory whose name is not on disk would take all that is in it along when the power fails. */
static int sync_parent(const char *path, struct error_text *err)
{
    char parent[PATH_MAX + 4];
    int fd, failure = 0;

    snprintf(parent, sizeof parent, "%s/..", path);
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        failure = errno;
    if (fd >= 0)
        close(fd);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot make the name of %s durable", path);
    return HF_OK;
}

int directory_make_parents(const char *path, mode_t mode, struct error_text *err)
{
    char part[PATH_MAX];
    int result = HF_OK;

    for (size_t i = 1; i < sizeof part && path[i] && result == HF_OK; i++) {
        if (path[i] != '/')
            continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (mkdir(part, mode) == 0)
            result = sync_parent(part, err);
    }
    return result; /* what could not be made is told by whoever needs it */
}

static int make(const char *path, struct error_text *err)
{
    if (mkdir(path, 0700) == 0)
        return sync_parent(path, err);
    if (errno == EEXIST)
        return HF_OK;
    if (errno == ENOENT)
        return error_set(err, HF_EIO,
                         "cannot make the data directory %s: the directory it would be in is not "
                         "there: make it with 'mkdir -p'",
                         path);
    return error_set_errno(err, errno == EACCES || errno == EPERM ? HF_EREFUSED : HF_EIO, errno,
                           "cannot make the data directory %s", path);
}

static int in_use(const struct directory *directory, struct error_text *err)
{
    char holder[24] = "";
    ssize_t got = pread(directory->lock_fd, holder, sizeof holder - 1, 0);
    long number = got > 0 ? strtol(holder, NULL, 10) : 0;

    if (number > 0)
        return error_set(err, HF_EBUSY, "%s is in use by process %ld", directory->path, number);
    return error_set(err, HF_EBUSY, "%s is in use by another process", directory->path);
}

static int lock(struct directory *directory, struct error_text *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    directory->lock_is_new = faccessat(directory->fd, DIRECTORY_LOCK, F_OK, 0) != 0;
    directory->lock_fd = openat(directory->fd, DIRECTORY_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (directory->lock_fd < 0)
        return error_set_errno(err, errno == EACCES || errno == EPERM ? HF_EREFUSED : HF_EIO, errno,
                               "cannot write to %s", directory->path);
    if (fcntl(directory->lock_fd, F_OFD_SETLK, &whole) < 0) {
        if (errno == EAGAIN || errno == EACCES)
            return in_use(directory, err);
        return error_set_errno(err, HF_EIO, errno, "cannot lock %s", directory->path);
    }
    /* For people only; a disk too full for it is found out soon enough. */
    if (ftruncate(directory->lock_fd, 0) == 0)
        dprintf(directory->lock_fd, "%ld\n", (long)getpid());
    return HF_OK;
}

static int enter(const char *path, struct directory *directory, struct error_text *err)
{
    if (!realpath(path, directory->path))
        return error_set_errno(err, HF_EIO, errno, "cannot find %s", path);
    directory->fd = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->fd < 0)
        return error_set_errno(err, errno == EACCES ? HF_EREFUSED : HF_EIO, errno, "cannot open %s",
                               path);
    return HF_OK;
}

int directory_open(const char *path, struct directory *ret_directory, struct error_text *err)
{
    struct directory directory = {.fd = -1, .lock_fd = -1};
    int result = make(path, err);

    if (result == HF_OK)
        result = enter(path, &directory, err);
    if (result == HF_OK)
        result = lock(&directory, err);
    if (result != HF_OK) {
        directory_close(&directory);
        return result;
    }
    *ret_directory = directory;
    return HF_OK;
}

void directory_leave_alone(struct directory *directory)
{
    if (directory->lock_is_new)
        unlinkat(directory->fd, DIRECTORY_LOCK, 0);
}

void directory_close(struct directory *directory)
{
    if (directory->lock_fd >= 0)
        close(directory->lock_fd);
    if (directory->fd >= 0)
        close(directory->fd);
    directory->fd = directory->lock_fd = -1;
}
