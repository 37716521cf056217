#include "journal/note.h"
#include "journal/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define UNFINISHED \
    ".new" /* behind the name: two of them may be written at the same time, by two threads */

int note_read(const struct directory *directory, const char *name, char ret_text[NOTE_MAX + 1],
              struct error_text *err)
{
    int fd = openat(directory->fd, name, O_RDONLY | O_CLOEXEC), failure;
    size_t size = 0;

    ret_text[0] = '\0';
    if (fd < 0 && errno == ENOENT)
        return HF_OK;
    failure = fd < 0 ? errno : read_whole(fd, ret_text, NOTE_MAX + 1, 0, &size);
    if (fd >= 0)
        close(fd);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/%s", directory->path, name);
    if (size > NOTE_MAX)
        return error_set(err, HF_EIO, "%s/%s has more than %d bytes", directory->path, name,
                         NOTE_MAX);
    ret_text[size] = '\0';
    return HF_OK;
}

int note_write(const struct directory *directory, const char *name, const char *text,
               struct error_text *err)
{
    char unfinished[NOTE_NAME_MAX + sizeof UNFINISHED];
    int fd, failure;

    if (strlen(name) > NOTE_NAME_MAX)
        return error_set(err, HF_EINVAL, "'%s' is too long for the name of a file", name);
    snprintf(unfinished, sizeof unfinished, "%s" UNFINISHED, name);
    fd = openat(directory->fd, unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    failure = fd < 0 ? errno : write_durably(fd, text, strlen(text), 0);

    if (fd >= 0 && !failure && fsync(fd) < 0)
        failure = errno;
    if (fd >= 0 && close(fd) < 0 && !failure)
        failure = errno;
    if (!failure &&
        (renameat(directory->fd, unfinished, directory->fd, name) < 0 || fsync(directory->fd) < 0))
        failure = errno;
    if (!failure)
        return HF_OK;
    unlinkat(directory->fd, unfinished, 0);
    return error_set_errno(err, HF_EIO, failure, "cannot write %s/%s", directory->path, name);
}
