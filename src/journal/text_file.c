#include "journal/text_file.h"
#include "base/crc32c.h"
#include "base/switches.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define UNFINISHED \
    ".new" /* behind the name: two of them may be written at the same time, by two threads */

int text_file_read(const struct directory *directory, const char *name,
                   char ret_text[TEXT_FILE_MAX + 1], struct error_text *err)
{
    const struct disk *disk = directory->disk;
    size_t size = 0;
    int file, failure = disk->open(disk, directory->handle, name, DISK_FOR_READING, &file);

    ret_text[0] = '\0';
    if (failure == ENOENT)
        return HF_OK;
    if (!failure) {
        failure = disk->read(disk, file, ret_text, TEXT_FILE_MAX + 1, 0, &size);
        disk->close(disk, file);
    }
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/%s", directory->path, name);
    if (size > TEXT_FILE_MAX)
        return error_set(err, HF_EIO, "%s/%s has more than %d bytes", directory->path, name,
                         TEXT_FILE_MAX);
    if (memchr(ret_text, '\0', size)) /* what is behind it would not be seen */
        return error_set(err, HF_EIO, "%s/%s is damaged: restore the directory from a backup",
                         directory->path, name);
    ret_text[size] = '\0';
    return HF_OK;
}

static int write_file(const struct directory *directory, const char *name, const char *text)
{
    const struct disk *disk = directory->disk;
    int file, failure = disk->open(disk, directory->handle, name, DISK_EMPTIED, &file), closing;

    if (failure)
        return failure;
    failure = disk->write(disk, file, text, strlen(text), 0, true);
    if (!failure)
        failure = disk->sync(disk, file);
    closing = disk->close(disk, file);
    return failure ? failure : closing;
}

int text_file_write(const struct directory *directory, const char *name, const char *text,
                    struct error_text *err)
{
    const struct disk *disk = directory->disk;
    char unfinished[TEXT_FILE_NAME_MAX + sizeof UNFINISHED];
    int failure;

    if (strlen(name) > TEXT_FILE_NAME_MAX)
        return error_set(err, HF_EINVAL, "'%s' is too long for the name of a file", name);
    snprintf(unfinished, sizeof unfinished, "%s" UNFINISHED, name);
    failure = write_file(directory, unfinished, text);
    if (!failure)
        failure = disk->rename(disk, directory->handle, unfinished, name);
    if (!failure && !SWITCHED(SWITCH_MARK_UNNAMED))
        failure = disk->sync_directory(disk, directory->handle);
    if (!failure)
        return HF_OK;
    disk->remove(disk, directory->handle, unfinished, false);
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

int text_file_read_checked(const struct directory *directory, const char *name,
                           char ret_text[TEXT_FILE_MAX + 1], struct error_text *err)
{
    int result = text_file_read(directory, name, ret_text, err);

    if (result == HF_OK && !is_whole(ret_text))
        return error_set(err, HF_EIO, "%s/%s is damaged: restore it from a backup", directory->path,
                         name);
    return result;
}

int text_file_write_checked(const struct directory *directory, const char *name, const char *text,
                            struct error_text *err)
{
    char whole[TEXT_FILE_MAX + 1];
    int size =
        snprintf(whole, sizeof whole, "%s" CHECKSUM_LINE, text, crc32c(0, text, strlen(text)));

    if (size < 0 || (size_t)size >= sizeof whole)
        return error_set(err, HF_EINVAL, "%s/%s would have more than %d bytes", directory->path,
                         name, TEXT_FILE_MAX);
    return text_file_write(directory, name, whole, err);
}
