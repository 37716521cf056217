#include "node/backup.h"
#include "node/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)1 << 20)

/* ---- the backup ------------------------------------------------------------------------------- */

/* A server that runs writes while we read; and half a copy is none. */
static int check_source(int source, const char *path, struct error_text *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool busy;
    int fd;

    if (faccessat(source, FILES_RESTORING, F_OK, 0) == 0)
        return error_set(err, HF_EREFUSED, "%s is itself a restore that did not come to its end",
                         path);
    fd = openat(source, DIRECTORY_LOCK, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return HF_OK;
    busy = fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    close(fd);
    if (!busy)
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s is in use by a server: stop that, or restore from a copy", path);
}

int backup_open(const char *path, struct directory *ret_source, struct error_text *err)
{
    int result;

    *ret_source = (struct directory){.disk = disk_system(), .lock = -1};
    snprintf(ret_source->path, sizeof ret_source->path, "%s", path);
    ret_source->handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret_source->handle < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "cannot open the backup %s", path);
    result = check_source(ret_source->handle, path, err);
    if (result != HF_OK)
        directory_close(ret_source);
    return result;
}

/* It may not be there yet: then where it would be made. */
static bool find_real(const char *path, char ret_real[PATH_MAX])
{
    char parent[PATH_MAX + 4];
    size_t size = strlen(path);

    if (realpath(path, ret_real))
        return true;
    while (size > 0 && path[size - 1] == '/')
        size--;
    while (size > 0 && path[size - 1] != '/')
        size--;
    snprintf(parent, sizeof parent, "%.*s", size > 0 ? (int)size : 1, size > 0 ? path : ".");
    return realpath(parent, ret_real) != NULL;
}

/* A backup that is written to is none any more. */
int backup_check_apart(const char *backup, const char *path, struct error_text *err)
{
    char source[PATH_MAX], target[PATH_MAX];
    size_t size;

    if (!realpath(backup, source) || !find_real(path, target))
        return HF_OK; /* then it cannot be opened, or not be made */
    size = strlen(source);
    if (strncmp(source, target, size) != 0 || (target[size] && target[size] != '/'))
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s is in the backup %s, which is not to be written to: restore it to another "
                     "place",
                     path, backup);
}

/* ---- copying: on the system's disk, whose handles are descriptors ------------------------------ */

/* 0, or an errno. */
static int copy_bytes(int from, int to)
{
    char *bytes = malloc(COPY_BYTES);
    int failure = bytes ? 0 : ENOMEM;
    ssize_t got = 0;

    while (!failure && (got = read(from, bytes, COPY_BYTES)) != 0) {
        if (got < 0 && errno != EINTR)
            failure = errno;
        for (ssize_t at = 0; at < got && !failure;) {
            ssize_t put = write(to, bytes + at, (size_t)(got - at));

            if (put < 0 && errno != EINTR)
                failure = errno;
            at += put > 0 ? put : 0;
        }
    }
    free(bytes);
    return failure ? failure : fsync(to) < 0 ? errno : 0;
}

struct copying {
    int source;
    const char *path;
    const struct directory *target;
    unsigned files;
};

static int copy_file(void *context, const char *name, struct error_text *err)
{
    struct copying *copying = context;
    struct stat info;
    int from, to, failure = 0;

    if (!files_is_data(name))
        return HF_OK;
    from = openat(copying->source, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0 || fstat(from, &info) != 0)
        failure = errno;
    else if (!S_ISREG(info.st_mode))
        failure = EINVAL;
    to = failure
             ? -1
             : openat(copying->target->handle, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (!failure)
        failure = to < 0 ? errno : copy_bytes(from, to);
    if (from >= 0)
        close(from);
    if (to >= 0 && close(to) != 0 && !failure)
        failure = errno;
    copying->files++;
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot copy %s/%s to %s", copying->path, name,
                               copying->target->path);
    return HF_OK;
}

int backup_copy(const struct directory *source, const struct directory *target,
                struct error_text *err)
{
    struct copying copying = {.source = source->handle, .path = source->path, .target = target};
    int result = directory_each(source, copy_file, &copying, err);

    if (result == HF_OK && copying.files == 0)
        result =
            error_set(err, HF_EREFUSED, "%s is no copy of a data directory: there is no log in it",
                      source->path);
    return result == HF_OK ? directory_sync(target, err) : result;
}
