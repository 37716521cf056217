#include "journal/directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 20

/* ---- what is in it ---------------------------------------------------------------------------- */

struct each {
    directory_file_fn *fn;
    void *context;
    struct error_text *err;
    int result;
};

static bool visit(void *context, const char *name)
{
    struct each *each = context;

    each->result = each->fn(each->context, name, each->err);
    return each->result == HF_OK;
}

int directory_each(const struct directory *directory, directory_file_fn *fn, void *context,
                   struct error_text *err)
{
    const struct disk *disk = directory->disk;
    struct each each = {fn, context, err, HF_OK};
    int failure = disk->list(disk, directory->handle, visit, &each);

    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot list %s", directory->path);
    return each.result;
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

bool directory_has(const struct directory *directory, const char *name)
{
    return directory->disk->look(directory->disk, directory->handle, name) == 0;
}

int directory_remove(const struct directory *directory, const char *name, struct error_text *err)
{
    int failure = directory->disk->remove(directory->disk, directory->handle, name, false);

    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot remove %s/%s", directory->path, name);
    return HF_OK;
}

int directory_sync(const struct directory *directory, struct error_text *err)
{
    int failure = directory->disk->sync_directory(directory->disk, directory->handle);

    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot write to %s", directory->path);
    return HF_OK;
}

/* ---- having it -------------------------------------------------------------------------------- */

/* A directory whose name is not on disk would take all that is in it along when the power fails. */
static int sync_parent(const struct disk *disk, const char *path, struct error_text *err)
{
    int failure = disk->sync_parent(disk, path);

    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot make the name of %s durable", path);
    return HF_OK;
}

int directory_make_parents(const char *path, unsigned mode, struct error_text *err)
{
    const struct disk *disk = disk_system();
    char part[PATH_MAX];
    int result = HF_OK;

    for (size_t i = 1; i < sizeof part && path[i] && result == HF_OK; i++) {
        if (path[i] != '/')
            continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (disk->make_directory(disk, part, mode) == 0)
            result = sync_parent(disk, part, err);
    }
    return result; /* what could not be made is told by whoever needs it */
}

static int make(const struct disk *disk, const char *path, struct error_text *err)
{
    int failure = disk->make_directory(disk, path, 0700);

    if (failure == 0)
        return sync_parent(disk, path, err);
    if (failure == EEXIST)
        return HF_OK;
    if (failure == ENOENT)
        return error_set(err, HF_EIO,
                         "cannot make the data directory %s: the directory it would be in is not "
                         "there: make it with 'mkdir -p'",
                         path);
    return error_set_errno(err, failure == EACCES || failure == EPERM ? HF_EREFUSED : HF_EIO,
                           failure, "cannot make the data directory %s", path);
}

static int in_use(const struct directory *directory, struct error_text *err)
{
    const struct disk *disk = directory->disk;
    char holder[DIGITS_MAX + 4] = "";
    size_t size = 0;
    int failure = disk->read(disk, directory->lock, holder, sizeof holder - 1, 0, &size);
    long number = failure ? 0 : strtol(holder, NULL, 10);

    if (number > 0)
        return error_set(err, HF_EBUSY, "%s is in use by process %ld", directory->path, number);
    return error_set(err, HF_EBUSY, "%s is in use by another process", directory->path);
}

static int lock(struct directory *directory, struct error_text *err)
{
    const struct disk *disk = directory->disk;
    int failure;

    directory->lock_is_new = disk->look(disk, directory->handle, DIRECTORY_LOCK) != 0;
    failure =
        disk->open(disk, directory->handle, DIRECTORY_LOCK, DISK_MADE_IF_MISSING, &directory->lock);
    if (failure)
        return error_set_errno(err, failure == EACCES || failure == EPERM ? HF_EREFUSED : HF_EIO,
                               failure, "cannot write to %s", directory->path);
    failure = disk->lock(disk, directory->lock);
    if (failure == EAGAIN || failure == EACCES)
        return in_use(directory, err);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot lock %s", directory->path);
    return HF_OK;
}

static int enter(const char *path, struct directory *directory, struct error_text *err)
{
    const struct disk *disk = directory->disk;
    int failure = disk->real_path(disk, path, directory->path);

    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot find %s", path);
    failure = disk->open_directory(disk, directory->path, &directory->handle);
    if (failure)
        return error_set_errno(err, failure == EACCES ? HF_EREFUSED : HF_EIO, failure,
                               "cannot open %s", path);
    return HF_OK;
}

int directory_open_on(const struct disk *disk, const char *path, struct directory *ret_directory,
                      struct error_text *err)
{
    struct directory directory = {.disk = disk, .handle = -1, .lock = -1};
    int result = make(disk, path, err);

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

int directory_open(const char *path, struct directory *ret_directory, struct error_text *err)
{
    return directory_open_on(disk_system(), path, ret_directory, err);
}

void directory_leave_alone(struct directory *directory)
{
    if (directory->lock_is_new)
        directory->disk->remove(directory->disk, directory->handle, DIRECTORY_LOCK, false);
}

void directory_close(struct directory *directory)
{
    const struct disk *disk = directory->disk;

    if (directory->lock >= 0)
        disk->close(disk, directory->lock);
    if (directory->handle >= 0)
        disk->close(disk, directory->handle);
    directory->handle = directory->lock = -1;
}
