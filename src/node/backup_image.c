/* backup_image.c: see backup_image.h. */
#include "node/backup_image.h"
#include "base/backup_file.h"
#include "base/crc32c.h"
#include "base/switches.h"
#include "journal/snapshot_file.h"
#include "journal/term.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 20)

bool backup_image_is_file(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

/* ---- what it says ------------------------------------------------------------------------------- */

static int damaged(const char *path, struct error_text *err)
{
    return error_set(err, HF_EIO, "%s is damaged: take another backup", path);
}

/* It may be another file altogether, or have ended in its first bytes. */
static int read_head(const unsigned char *bytes, size_t size, const char *path,
                     struct backup_file *ret_about, struct error_text *err)
{
    size_t magic = size < BACKUP_FILE_MAGIC_SIZE ? size : BACKUP_FILE_MAGIC_SIZE;

    if (size == 0 || memcmp(bytes, BACKUP_FILE_MAGIC, magic) != 0)
        return error_set(err, HF_EREFUSED,
                         "%s is no backup: that is a file of 'holdfast cluster backup', or a copy "
                         "of a data directory",
                         path);
    if (size < BACKUP_FILE_HEAD)
        return error_set(err, HF_EIO, "%s is cut off after %zu bytes: take another backup", path,
                         size);
    return backup_file_read_head(bytes, ret_about) ? HF_OK : damaged(path, err);
}

int backup_image_parse(const unsigned char *bytes, size_t size, const char *path,
                       struct backup_image *ret_image, struct error_text *err)
{
    struct backup_image image = {.bytes = NULL};
    const struct replica_snapshot *snapshot = &image.snapshot;
    struct backup_file about;
    uint64_t whole;
    int result = read_head(bytes, size, path, &about, err);

    if (result != HF_OK)
        return result;
    image.head = bytes + BACKUP_FILE_HEAD;
    whole = BACKUP_FILE_HEAD + about.size + BACKUP_FILE_END;
    if (size < whole)
        return error_set(err, HF_EIO,
                         "%s is cut off: it has %zu of its %" PRIu64 " bytes; take another backup",
                         path, size, whole);
    if (size != whole ||
        (!backup_file_end_is(crc32c(0, bytes, size - BACKUP_FILE_END),
                             bytes + size - BACKUP_FILE_END) &&
         !SWITCHED(SWITCH_BACKUP_END_UNCHECKED)) ||
        !replica_snapshot_decode(image.head, (size_t)about.size, &image.snapshot) ||
        memcmp(about.cluster, snapshot->cluster, sizeof about.cluster) != 0 ||
        about.index != snapshot->id.index || about.term != snapshot->id.term)
        return damaged(path, err);
    image.head_size = (size_t)about.size - snapshot->table_size;
    *ret_image = image;
    return HF_OK;
}

_Static_assert(BACKUP_FILE_CLUSTER == REPLICA_CLUSTER, "a cluster has one id");

/* ---- the file ----------------------------------------------------------------------------------- */

static int read_all(int fd, unsigned char *bytes, size_t size, const char *path,
                    struct error_text *err)
{
    for (size_t have = 0; have < size;) {
        size_t most = size - have < PIECE_BYTES ? size - have : PIECE_BYTES;
        ssize_t got = read(fd, bytes + have, most);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, HF_EIO, errno, "cannot read %s", path);
        if (got == 0)
            return error_set(err, HF_EIO, "%s became shorter while it was read", path);
        have += (size_t)got;
    }
    return HF_OK;
}

/* What is far too large is no backup, and not read to find that out. */
static int load(int fd, const char *path, struct backup_image *ret_image, struct error_text *err)
{
    struct backup_image image;
    unsigned char *bytes;
    struct stat status;
    int result;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        (uint64_t)status.st_size > BACKUP_FILE_SNAPSHOT_MAX)
        return error_set(err, HF_EREFUSED, "%s is no backup: it is no file, or too large", path);
    bytes = malloc((size_t)status.st_size + 1);
    if (!bytes)
        return error_set(err, HF_ENOMEM, "no memory for the %lld bytes of %s",
                         (long long)status.st_size, path);
    result = read_all(fd, bytes, (size_t)status.st_size, path, err);
    if (result == HF_OK)
        result = backup_image_parse(bytes, (size_t)status.st_size, path, &image, err);
    if (result != HF_OK) {
        free(bytes);
        return result;
    }
    image.bytes = bytes;
    *ret_image = image;
    return HF_OK;
}

int backup_image_load(const char *path, struct backup_image *ret_image, struct error_text *err)
{
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), result;

    *ret_image = (struct backup_image){.bytes = NULL};
    if (fd < 0)
        return error_set_errno(err, HF_EREFUSED, errno, "cannot open the backup %s", path);
    result = load(fd, path, ret_image, err);
    close(fd);
    return result;
}

void backup_image_free(struct backup_image *image)
{
    free(image->bytes);
    image->bytes = NULL;
}

/* ---- a data directory ------------------------------------------------------------------------------ */

int backup_image_unpack(const struct backup_image *image, const struct directory *target,
                        struct error_text *err)
{
    const struct replica_snapshot *snapshot = &image->snapshot;
    const struct snapshot_file file = {
        .index = snapshot->id.index,
        .term = snapshot->id.term,
        .configuration_index = snapshot->config.index,
        .configuration = {(void *)(uintptr_t)image->head, image->head_size},
        .data = {(void *)(uintptr_t)snapshot->table, snapshot->table_size}};
    struct term term = {.known = false};
    int result = term_store(target, &term, snapshot->id.term, 0, err);

    return result == HF_OK ? snapshot_file_write(target, &file, err) : result;
}
