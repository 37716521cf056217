/* backup_output.c: see backup_output.h. */
#include "cli/backup_output.h"
#include "base/backup_file.h"
#include "base/filesize.h"
#include "base/random.h"
#include "cli/replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- which file ------------------------------------------------------------------------------------ */

/* Only what this command has written is replaced: a name that was mistyped costs nobody another file. */
static int check_old(const char *path, struct error_text *err)
{
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char magic[BACKUP_FILE_MAGIC_SIZE];
    struct stat status;
    ssize_t got = -1;
    bool is_file;

    if (fd < 0)
        return replace_file_failed("cannot look whether it is a backup:", path, errno, err);
    is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    if (is_file)
        got = read(fd, magic, sizeof magic);
    close(fd);
    /* Nobody should remove a device or a directory because we say so. */
    if (!is_file)
        return error_set(err, HF_EREFUSED,
                         "%s is there, and is no file: name a file, or - for the standard output",
                         path);
    if (got == 0 ||
        (got == (ssize_t)sizeof magic && memcmp(magic, BACKUP_FILE_MAGIC, sizeof magic) == 0))
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "%s is there, and is no backup: it is left alone; remove it, or name another "
                     "file",
                     path);
}

/* A file without a name is gone with us, however we end. Not every file system has them, and its name it gets by /proc. */
static void open_nameless(struct backup_output *output)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(output->path, '/');

    snprintf(directory, sizeof directory, "%.*s",
             slash == output->path ? 1 : (int)(slash - output->path), output->path);
    if (access("/proc/self/fd", X_OK) == 0)
        output->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

static void open_beside(struct backup_output *output)
{
    snprintf(output->beside, sizeof output->beside, "%s.XXXXXX", output->path);
    output->fd = mkostemp(output->beside, O_CLOEXEC); /* with mode 0600 */
    if (output->fd < 0)
        output->beside[0] = '\0';
}

/* Whoever has closed it gets none of what we open in its place: main sees to that. */
static bool stdout_takes_bytes(void)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);

    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

int backup_output_open(struct backup_output *output, const char *path, struct error_text *err)
{
    int result;

    *output = (struct backup_output){.fd = -1};
    if (strcmp(path, "-") == 0) {
        if (isatty(STDOUT_FILENO))
            return error_set(err, HF_EREFUSED,
                             "a backup is nothing for a terminal: name a file, or lead the "
                             "standard output somewhere");
        if (!stdout_takes_bytes())
            return error_set(err, HF_EIO, "the standard output is closed");
        output->is_stdout = true;
        output->fd = STDOUT_FILENO;
        return HF_OK;
    }
    result = replace_file_resolve("cannot write", path, output->path, &output->is_new, err);
    if (result == HF_OK && !output->is_new)
        result = check_old(output->path, err);
    if (result != HF_OK)
        return result;
    open_nameless(output);
    if (output->fd < 0)
        open_beside(output);
    return output->fd < 0 ? replace_file_failed("cannot write beside", output->path, errno, err)
                          : HF_OK;
}

/* ---- its bytes ------------------------------------------------------------------------------------- */

static int write_to_stdout(uint64_t offset, const char *bytes, size_t size, struct error_text *err)
{
    static uint64_t written;

    if (offset != written)
        return error_set(err, HF_EIO,
                         "another node leads since the backup was begun, and what went to the "
                         "standard output cannot be taken back: it is no backup; take another");
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, bytes, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return replace_file_failed("cannot write to", "the standard output", errno, err);
        bytes += n;
        size -= (size_t)n;
        written += (uint64_t)n;
    }
    return HF_OK;
}

int backup_output_write(struct backup_output *output, uint64_t offset, const void *bytes,
                        size_t size, struct error_text *err)
{
    int failure = 0;

    if (output->is_stdout)
        return write_to_stdout(offset, bytes, size, err);
    if (offset == 0 && ftruncate(output->fd, 0) != 0)
        failure = errno;
    if (!failure)
        failure = filesize_write(output->fd, bytes, size, (off_t)offset);
    return failure ? replace_file_failed("cannot write", output->path, failure, err) : HF_OK;
}

/* ---- its name -------------------------------------------------------------------------------------- */

static bool name_it(const struct backup_output *output, const char *name)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", output->fd);
    return linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

/* A name that nobody has, from which it can be renamed. */
static bool name_beside(struct backup_output *output)
{
    uint32_t number;
    bool named;

    do {
        random_fill(&number, sizeof number);
        snprintf(output->beside, sizeof output->beside, "%s.%08" PRIx32, output->path, number);
        named = name_it(output, output->beside);
    } while (!named && errno == EEXIST);
    if (!named)
        output->beside[0] = '\0';
    return named;
}

/* Somebody may have made a file with that name meanwhile. Not every file system has links. */
static int take_name(struct backup_output *output, struct error_text *err)
{
    bool nameless = !output->beside[0];

    if (output->is_new &&
        (nameless ? name_it(output, output->path) : link(output->beside, output->path) == 0)) {
        if (!nameless)
            unlink(output->beside);
        return HF_OK;
    }
    if (output->is_new && errno == EEXIST)
        return error_set(err, HF_EREFUSED,
                         "%s was made by somebody else meanwhile, and is left alone", output->path);
    if (nameless && (output->is_new || !name_beside(output)))
        return replace_file_failed("cannot write", output->path, errno, err);
    return rename(output->beside, output->path) == 0
               ? HF_OK
               : replace_file_failed("cannot write", output->path, errno, err);
}

int backup_output_finish(struct backup_output *output, struct error_text *err)
{
    int result, failure;

    if (output->is_stdout)
        return HF_OK;
    if (fsync(output->fd) != 0)
        return replace_file_failed("cannot write", output->path, errno, err);
    result = take_name(output, err);
    if (result != HF_OK)
        return result;
    output->beside[0] = '\0';
    failure = replace_file_sync_name(output->path);
    return failure ? error_set_errno(err, HF_EIO, failure,
                                     "%s is written, and may be gone after a power failure",
                                     output->path)
                   : HF_OK;
}

void backup_output_close(struct backup_output *output)
{
    if (output->is_stdout)
        return;
    if (output->fd >= 0) {
        close(output->fd);
        if (output->beside[0])
            unlink(output->beside);
    }
    output->fd = -1;
}
