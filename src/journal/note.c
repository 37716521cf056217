#include "journal/note.h"
#include "base/crc32c.h"
#include "journal/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
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

#define CHECKSUM "checksum "
#define CHECKSUM_LINE CHECKSUM "%08" PRIx32 "\n"
#define CHECKSUM_SIZE (sizeof CHECKSUM + 8) /* of that line */

/* Takes the checksum away. False: it is wrong. */
static bool is_whole(char *text)
{
    char line[CHECKSUM_SIZE + 1];
    size_t size = strlen(text), rest = size >= CHECKSUM_SIZE ? size - CHECKSUM_SIZE : 0;

    if (size < CHECKSUM_SIZE || strncmp(text + rest, CHECKSUM, strlen(CHECKSUM)) != 0)
        return true;
    snprintf(line, sizeof line, CHECKSUM_LINE, crc32c(0, text, rest));
    if (strcmp(text + rest, line) != 0)
        return false;
    text[rest] = '\0';
    return true;
}

int note_read_checked(const struct directory *directory, const char *name,
                      char ret_text[NOTE_MAX + 1], struct error_text *err)
{
    int result = note_read(directory, name, ret_text, err);

    if (result == HF_OK && !is_whole(ret_text))
        return error_set(err, HF_EIO, "%s/%s is damaged: restore it from a backup", directory->path,
                         name);
    return result;
}

int note_write_checked(const struct directory *directory, const char *name, const char *text,
                       struct error_text *err)
{
    char whole[NOTE_MAX + 1];
    int size =
        snprintf(whole, sizeof whole, "%s" CHECKSUM_LINE, text, crc32c(0, text, strlen(text)));

    if (size < 0 || (size_t)size >= sizeof whole)
        return error_set(err, HF_EINVAL, "%s/%s would have more than %d bytes", directory->path,
                         name, NOTE_MAX);
    return note_write(directory, name, whole, err);
}
