/* replace_file.c: see replace_file.h. */
#include "cli/replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int replace_file_failed(const char *what, const char *path, int errno_value, struct error_text *err)
{
    bool is_the_disk = errno_value == EIO || errno_value == ENOSPC || errno_value == EDQUOT ||
                       errno_value == EFBIG || errno_value == EPIPE;
    bool is_this_machine = errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOMEM;

    return error_set_errno(err,
                           is_the_disk       ? HF_EIO
                           : is_this_machine ? HF_ENOMEM
                                             : HF_EREFUSED,
                           errno_value, "%s %s", what, path);
}

int replace_file_resolve(const char *what, const char *path, char ret_path[PATH_MAX],
                         bool *ret_is_new, struct error_text *err)
{
    char copy[PATH_MAX], directory[PATH_MAX];
    const char *name = strrchr(path, '/');
    struct stat status;
    int size;

    *ret_is_new = false;
    if (realpath(path, ret_path))
        return HF_OK;
    if (errno != ENOENT)
        return replace_file_failed(what, path, errno, err);
    if (lstat(path, &status) == 0)
        return error_set(err, HF_EREFUSED, "%s %s: a symbolic link that leads nowhere", what, path);
    name = name ? name + 1 : path;
    size = snprintf(copy, sizeof copy, "%.*s.", (int)(name - path), path);
    if (!*name || size < 0 || (size_t)size >= sizeof copy)
        return error_set(err, HF_EREFUSED, "%s %s: not the path of a file", what, path);
    if (!realpath(copy, directory) && errno == ENOENT)
        return error_set(
            err, HF_EREFUSED,
            "%s %s: the directory it would be in is not there: make it with 'mkdir -p'", what,
            path);
    if (!realpath(copy, directory))
        return replace_file_failed(what, path, errno, err);
    size = snprintf(ret_path, PATH_MAX, "%s/%s", directory[1] ? directory : "", name);
    if (size < 0 || size >= PATH_MAX)
        return replace_file_failed(what, path, ENAMETOOLONG, err);
    *ret_is_new = true;
    return HF_OK;
}

int replace_file_sync_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX];
    int fd, failure = 0;

    snprintf(directory, sizeof directory, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        failure = errno;
    if (fd >= 0)
        close(fd);
    return failure;
}
