/* users_store.c: see users_store.h. */
#include "cli/users_store.h"
#include "cli/replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define FORBIDDEN_MODE (S_IWGRP | S_IRWXO) /* as the server has it */

/* ---- reading --------------------------------------------------------------------------------------- */

static int check(const struct users_store *store, bool to_change, struct error_text *err)
{
    const struct stat *status = &store->status;

    if (!S_ISREG(status->st_mode))
        return error_set(err, HF_EREFUSED, "users file %s is not a regular file", store->path);
    if (status->st_mode & FORBIDDEN_MODE)
        return error_set(err, HF_EREFUSED,
                         "users file %s: others can use it (mode %04o), and holdfastd refuses "
                         "that: chmod g-w,o-rwx it, and give its users new passwords if others may "
                         "have read it",
                         store->path, (unsigned)(status->st_mode & 07777));
    if (to_change && status->st_nlink > 1)
        return error_set(err, HF_EREFUSED,
                         "users file %s has other names (hard links), which would keep what it "
                         "says now: remove them first",
                         store->path);
    return HF_OK;
}

static int read_all(struct users_store *store, struct error_text *err)
{
    char *bytes = malloc(USERS_FILE_MAX + 1);
    size_t used = 0;

    if (!bytes)
        return error_set(err, HF_ENOMEM, "out of memory");
    store->bytes = bytes;
    while (used <= USERS_FILE_MAX) {
        ssize_t n = read(store->fd, bytes + used, USERS_FILE_MAX + 1 - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return replace_file_failed("cannot read", store->path, errno, err);
        if (n == 0)
            break;
        used += (size_t)n;
    }
    if (used > USERS_FILE_MAX)
        return error_set(err, HF_EINVAL, "%s has more than %u bytes", store->path, USERS_FILE_MAX);
    store->size = used;
    return HF_OK;
}

/* Whoever had the lock before may have put another file in its place. Positive: so it is. */
static int lock(struct users_store *store, struct error_text *err)
{
    struct stat there;
    int result;

    do
        result = flock(store->fd, LOCK_EX);
    while (result != 0 && errno == EINTR);
    if (result != 0)
        return replace_file_failed("cannot lock", store->path, errno, err);
    if (stat(store->path, &there) != 0 || there.st_ino != store->status.st_ino ||
        there.st_dev != store->status.st_dev)
        return 1;
    return HF_OK;
}

static int open_once(struct users_store *store, bool to_change, bool may_be_absent,
                     struct error_text *err)
{
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int flags = (to_change ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, result;

    store->fd = open(store->path, flags);
    if (store->fd < 0 && errno == ENOENT && may_be_absent)
        return HF_OK;
    if (store->fd < 0 && errno == ENOENT)
        return error_set(err, HF_EREFUSED,
                         "there is no users file %s: 'holdfast user add' makes one, --file names "
                         "another",
                         store->path);
    if (store->fd < 0)
        return replace_file_failed("users file", store->path, errno, err);
    if (fstat(store->fd, &store->status) != 0)
        return replace_file_failed("users file", store->path, errno, err);
    result = check(store, to_change, err);
    if (result == HF_OK && to_change)
        result = lock(store, err);
    return result == HF_OK ? read_all(store, err) : result;
}

int users_store_open(struct users_store *store, const char *path, bool to_change,
                     bool may_be_absent, struct error_text *err)
{
    bool is_new;
    int result;

    *store = (struct users_store){.fd = -1};
    result = replace_file_resolve("users file", path, store->path, &is_new, err);
    if (result != HF_OK)
        return result;
    while ((result = open_once(store, to_change, may_be_absent, err)) > 0)
        users_store_close(store);
    if (result != HF_OK)
        users_store_close(store);
    return result;
}

void users_store_close(struct users_store *store)
{
    if (store->fd >= 0)
        close(store->fd);
    free(store->bytes);
    store->fd = -1;
    store->bytes = NULL;
    store->size = 0;
}

/* ---- writing --------------------------------------------------------------------------------------- */

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

/* The new file, as the old one's owner and mode have it. */
static int fill(const struct users_store *store, int fd, const char *bytes, size_t size,
                struct error_text *err)
{
    const struct stat *was = &store->status;
    struct stat now;

    if (fstat(fd, &now) != 0)
        return replace_file_failed("cannot write beside", store->path, errno, err);
    if (store->fd >= 0) {
        if ((now.st_uid != was->st_uid || now.st_gid != was->st_gid) &&
            fchown(fd, was->st_uid, was->st_gid) != 0)
            return error_set_errno(err, HF_EREFUSED, errno,
                                   "users file %s would not stay its owner's: change it as that "
                                   "user, or as root",
                                   store->path);
        if (fchmod(fd, was->st_mode & 07777) != 0)
            return replace_file_failed("cannot write beside", store->path, errno, err);
    }
    if (!write_all(fd, bytes, size) || fsync(fd) != 0)
        return replace_file_failed("cannot write beside", store->path, errno, err);
    return HF_OK;
}

/* Somebody may have made it while a password was being typed. */
static int take_name(const struct users_store *store, const char *from, struct error_text *err)
{
    if (store->fd >= 0)
        return rename(from, store->path) == 0
                   ? HF_OK
                   : replace_file_failed("cannot write", store->path, errno, err);
    if (link(from, store->path) == 0) {
        unlink(from);
        return HF_OK;
    }
    if (errno != EEXIST)
        return replace_file_failed("cannot make", store->path, errno, err);
    return error_set(err, HF_EREFUSED,
                     "users file %s was made by somebody else just now: try again", store->path);
}

static int sync_name(const char *path, struct error_text *err)
{
    int failure = replace_file_sync_name(path);

    return failure
               ? error_set_errno(err, HF_EIO, failure,
                                 "%s is written, and may be as before after a power failure", path)
               : HF_OK;
}

int users_store_write(struct users_store *store, const char *bytes, size_t size,
                      struct error_text *err)
{
    char beside[PATH_MAX + 16];
    int fd, result;

    snprintf(beside, sizeof beside, "%s.XXXXXX", store->path);
    fd = mkostemp(beside, O_CLOEXEC); /* with mode 0600 */
    if (fd < 0)
        return replace_file_failed("cannot write beside", store->path, errno, err);
    result = fill(store, fd, bytes, size, err);
    close(fd);
    if (result == HF_OK)
        result = take_name(store, beside, err);
    if (result == HF_OK)
        return sync_name(store->path, err);
    unlink(beside);
    return result;
}
