#include "journal/snapshot_file.h"
#include "base/crc32c.h"
#include "base/switches.h"
#include "journal/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The file: magic, index, term, index of the configuration, size of the configuration, size of the data:
 * numbers of 8 bytes; checksums of configuration and data, and of all these: numbers of 4 bytes. Then the
 * configuration, then the data. */
#define PREFIX "snapshot-"
#define UNFINISHED "snapshot.new"
#define MAGIC UINT64_C(0x317065656b734648) /* "HFskeep1" */
#define SUMS_AT 48
#define HEADER_SUM_AT (SUMS_AT + 8)
#define HEADER_SIZE (HEADER_SUM_AT + 4)
#define CONFIGURATION_MAX ((uint64_t)1 << 20)
#define PIECE \
    ((size_t)256 << 10) /* written and synced at a time: the log wants the disk meanwhile */
#define NAME_SIZE 32

static void write_header(unsigned char header[HEADER_SIZE], const struct snapshot_file *snapshot)
{
    put_u64(header, MAGIC);
    put_u64(header + 8, snapshot->index);
    put_u64(header + 16, snapshot->term);
    put_u64(header + 24, snapshot->configuration_index);
    put_u64(header + 32, snapshot->configuration.iov_len);
    put_u64(header + 40, snapshot->data.iov_len);
    put_u32(header + SUMS_AT,
            crc32c(0, snapshot->configuration.iov_base, snapshot->configuration.iov_len));
    put_u32(header + SUMS_AT + 4, crc32c(0, snapshot->data.iov_base, snapshot->data.iov_len));
    put_u32(header + HEADER_SUM_AT, crc32c(0, header, HEADER_SUM_AT));
}

/* ---- writing ---------------------------------------------------------------------------------- */

/* Past the system's cache: nobody reads it soon, and memory for it would have to be found first. */
struct stream {
    const struct disk *disk;
    int file;
    unsigned char *piece;
    size_t room, used; /* of it */
    uint64_t offset;
};

static int stream_flush(struct stream *stream)
{
    size_t size = round_up(stream->used, BLOCK);
    int failure;

    memset(stream->piece + stream->used, 0, size - stream->used);
    failure = stream->disk->write(stream->disk, stream->file, stream->piece, size, stream->offset,
                                  !SWITCHED(SWITCH_SNAPSHOT_NOT_SYNCED));
    stream->offset += stream->used;
    stream->used = 0;
    return failure;
}

static int stream_put(struct stream *stream, struct iovec bytes)
{
    const unsigned char *from = bytes.iov_base;
    int failure = 0;

    for (size_t left = bytes.iov_len; left > 0 && !failure;) {
        size_t size = left < stream->room - stream->used ? left : stream->room - stream->used;

        memcpy(stream->piece + stream->used, from, size);
        stream->used += size;
        from += size;
        left -= size;
        if (stream->used == stream->room)
            failure = stream_flush(stream);
    }
    return failure;
}

static int write_pieces(const struct disk *disk, int file, const struct snapshot_file *snapshot)
{
    unsigned char header[HEADER_SIZE];
    uint64_t whole = HEADER_SIZE + snapshot->configuration.iov_len + snapshot->data.iov_len;
    struct stream stream = {
        .disk = disk, .file = file, .room = whole < PIECE ? round_up(whole, BLOCK) : PIECE};
    int failure;

    stream.piece = blocks_new(stream.room);
    failure = stream.piece ? 0 : ENOMEM;
    write_header(header, snapshot);
    if (!failure)
        failure = stream_put(&stream, (struct iovec){header, sizeof header});
    if (!failure)
        failure = stream_put(&stream, snapshot->configuration);
    if (!failure)
        failure = stream_put(&stream, snapshot->data);
    if (!failure && stream.used > 0)
        failure = stream_flush(&stream);
    if (!failure)
        failure = disk->truncate(disk, file, stream.offset);
    if (!failure && !SWITCHED(SWITCH_SNAPSHOT_NOT_SYNCED))
        failure = disk->sync(disk, file);
    free(stream.piece);
    return failure;
}

static int write_file(const struct directory *directory, const struct snapshot_file *snapshot)
{
    const struct disk *disk = directory->disk;
    int file, closing;
    int failure = disk->open(disk, directory->handle, UNFINISHED, DISK_EMPTIED_DIRECT, &file);

    if (failure)
        return failure;
    failure = write_pieces(disk, file, snapshot);
    closing = disk->close(disk, file);
    return failure ? failure : closing;
}

int snapshot_file_write(const struct directory *directory, const struct snapshot_file *snapshot,
                        struct error_text *err)
{
    const struct disk *disk = directory->disk;
    char name[NAME_SIZE];
    int failure;

    if (snapshot->configuration.iov_len > CONFIGURATION_MAX)
        return error_set(err, HF_EINVAL, "a configuration of %zu bytes is too large",
                         snapshot->configuration.iov_len);
    snprintf(name, sizeof name, PREFIX "%" PRIu64, snapshot->index);
    failure = write_file(directory, snapshot);
    if (!failure)
        failure = disk->rename(disk, directory->handle, UNFINISHED, name);
    if (!failure)
        failure = disk->sync_directory(disk, directory->handle);
    if (failure) {
        disk->remove(disk, directory->handle, UNFINISHED, false); /* a full disk needs the room */
        return error_set_errno(err, HF_EIO, failure, "cannot write %s/%s", directory->path, name);
    }
    return snapshot_file_clean(directory, snapshot, err);
}

struct cleaning {
    const struct directory *directory;
    uint64_t newest;
};

static int clean_one(void *context, const char *name, struct error_text *err)
{
    const struct cleaning *cleaning = context;
    const struct disk *disk = cleaning->directory->disk;
    uint64_t index;
    int failure;

    if (strcmp(name, UNFINISHED) != 0 &&
        (!directory_number_in(name, PREFIX, &index) || index >= cleaning->newest))
        return HF_OK;
    failure = disk->remove(disk, cleaning->directory->handle, name, false);
    if (failure && failure != ENOENT)
        return error_set_errno(err, HF_EIO, failure, "cannot remove %s/%s",
                               cleaning->directory->path, name);
    return HF_OK;
}

int snapshot_file_clean(const struct directory *directory, const struct snapshot_file *newest,
                        struct error_text *err)
{
    struct cleaning cleaning = {directory, newest->index};

    return directory_each(directory, clean_one, &cleaning, err);
}

/* ---- reading ---------------------------------------------------------------------------------- */

static int look_for_newest(void *context, const char *name, struct error_text *err)
{
    uint64_t *newest = context, index;

    (void)err;
    if (directory_number_in(name, PREFIX, &index) && index > *newest)
        *newest = index;
    return HF_OK;
}

struct source {
    const struct disk *disk;
    int file;
    const char *name;
};

static int read_piece(const struct source *source, struct iovec *ret_bytes, uint64_t size,
                      uint64_t offset, uint32_t sum, struct error_text *err)
{
    const char *name = source->name;
    size_t count = 0;
    int failure;

    *ret_bytes = (struct iovec){malloc(size ? size : 1), size};
    if (!ret_bytes->iov_base)
        return error_set(err, HF_ENOMEM, "no memory for the %" PRIu64 " bytes of %s", size, name);
    failure =
        source->disk->read(source->disk, source->file, ret_bytes->iov_base, size, offset, &count);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s", name);
    if (count != size || crc32c(0, ret_bytes->iov_base, size) != sum)
        return error_set(err, HF_EIO, "%s is damaged: restore the directory from a backup", name);
    return HF_OK;
}

static int read_file(const struct source *source, struct snapshot_file *snapshot,
                     struct error_text *err)
{
    const struct disk *disk = source->disk;
    const char *name = source->name;
    unsigned char header[HEADER_SIZE];
    uint64_t configuration_size, data_size, size;
    size_t count = 0;
    int failure = disk->size(disk, source->file, &size), result;

    if (!failure)
        failure = disk->read(disk, source->file, header, sizeof header, 0, &count);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s", name);
    configuration_size = count == sizeof header ? get_u64(header + 32) : 0;
    data_size = count == sizeof header ? get_u64(header + 40) : 0;
    if (count != sizeof header || get_u64(header) != MAGIC ||
        crc32c(0, header, HEADER_SUM_AT) != get_u32(header + HEADER_SUM_AT) ||
        get_u64(header + 8) != snapshot->index || configuration_size > CONFIGURATION_MAX ||
        data_size > SIZE_MAX / 2 || HEADER_SIZE + configuration_size + data_size != size)
        return error_set(err, HF_EIO, "%s is damaged: restore the directory from a backup", name);
    snapshot->term = get_u64(header + 16);
    snapshot->configuration_index = get_u64(header + 24);
    result = read_piece(source, &snapshot->configuration, configuration_size, HEADER_SIZE,
                        get_u32(header + SUMS_AT), err);
    if (result != HF_OK)
        return result;
    return read_piece(source, &snapshot->data, data_size, HEADER_SIZE + configuration_size,
                      get_u32(header + SUMS_AT + 4), err);
}

int snapshot_file_load(const struct directory *directory, struct snapshot_file *ret_snapshot,
                       struct error_text *err)
{
    struct snapshot_file snapshot = {0};
    char name[NAME_SIZE];
    struct source source = {.disk = directory->disk, .name = name};
    int result = directory_each(directory, look_for_newest, &snapshot.index, err), failure;

    *ret_snapshot = (struct snapshot_file){0};
    if (result != HF_OK || snapshot.index == 0)
        return result;
    snprintf(name, sizeof name, PREFIX "%" PRIu64, snapshot.index);
    failure =
        source.disk->open(source.disk, directory->handle, name, DISK_FOR_READING, &source.file);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s", name);
    result = read_file(&source, &snapshot, err);
    source.disk->close(source.disk, source.file);
    if (result != HF_OK) {
        snapshot_file_free(&snapshot);
        return result;
    }
    *ret_snapshot = snapshot;
    return HF_OK;
}

void snapshot_file_free(struct snapshot_file *snapshot)
{
    free(snapshot->configuration.iov_base);
    free(snapshot->data.iov_base);
    *snapshot = (struct snapshot_file){0};
}

/* ---- piece by piece --------------------------------------------------------------------------- */

int snapshot_file_open(const struct directory *directory, uint64_t index,
                       struct open_snapshot *ret_file, struct error_text *err)
{
    struct open_snapshot opened = {.disk = directory->disk};
    char name[NAME_SIZE];
    uint64_t size;
    int failure;

    snprintf(name, sizeof name, PREFIX "%" PRIu64, index);
    failure =
        opened.disk->open(opened.disk, directory->handle, name, DISK_FOR_READING, &opened.file);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/%s", directory->path, name);
    failure = opened.disk->size(opened.disk, opened.file, &size);
    if (failure || size < HEADER_SIZE) {
        snapshot_file_close(&opened);
        return error_set_errno(err, HF_EIO, failure ? failure : EINVAL, "cannot read %s/%s",
                               directory->path, name);
    }
    opened.size = size - HEADER_SIZE;
    *ret_file = opened;
    return HF_OK;
}

int snapshot_file_read(const struct open_snapshot *file, uint64_t offset, void *bytes, size_t size,
                       size_t *ret_count, struct error_text *err)
{
    int failure =
        file->disk->read(file->disk, file->file, bytes, size, HEADER_SIZE + offset, ret_count);

    return failure ? error_set_errno(err, HF_EIO, failure, "cannot read a snapshot") : HF_OK;
}

/* The sums of so many bytes from the offset on: theirs alone, and going on with *sum. */
static int sum_up(const struct open_snapshot *file, uint64_t offset, uint64_t size,
                  unsigned char *piece, uint32_t *ret_own, uint32_t *sum, struct error_text *err)
{
    uint32_t own = 0;

    while (size > 0) {
        size_t want = size < PIECE ? (size_t)size : PIECE, count = 0;
        int result = snapshot_file_read(file, offset, piece, want, &count, err);

        if (result != HF_OK)
            return result;
        if (count != want)
            return error_set(err, HF_EIO, "a snapshot ends before its end");
        own = crc32c(own, piece, want);
        *sum = crc32c(*sum, piece, want);
        offset += want;
        size -= want;
    }
    *ret_own = own;
    return HF_OK;
}

static int verify(const struct open_snapshot *file, unsigned char *piece, uint32_t *ret_sum,
                  struct error_text *err)
{
    uint32_t configuration_sum = 0, data_sum = 0, sum = 0;
    unsigned char header[HEADER_SIZE];
    uint64_t configuration;
    size_t count = 0;
    int failure = file->disk->read(file->disk, file->file, header, sizeof header, 0, &count);
    int result;

    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read a snapshot");
    configuration = count == sizeof header ? get_u64(header + 32) : UINT64_MAX;
    if (configuration > CONFIGURATION_MAX || configuration > file->size ||
        crc32c(0, header, HEADER_SUM_AT) != get_u32(header + HEADER_SUM_AT))
        return error_set(err, HF_EIO, "a snapshot is damaged");
    result = sum_up(file, 0, configuration, piece, &configuration_sum, &sum, err);
    if (result == HF_OK)
        result =
            sum_up(file, configuration, file->size - configuration, piece, &data_sum, &sum, err);
    if (result != HF_OK)
        return result;
    if (configuration_sum != get_u32(header + SUMS_AT) || data_sum != get_u32(header + SUMS_AT + 4))
        return error_set(err, HF_EIO, "a snapshot is damaged");
    *ret_sum = sum;
    return HF_OK;
}

int snapshot_file_verify(const struct open_snapshot *file, uint32_t *ret_sum,
                         struct error_text *err)
{
    unsigned char *piece = malloc(PIECE);
    int result = piece ? verify(file, piece, ret_sum, err)
                       : error_set(err, HF_ENOMEM, "no memory to look at a snapshot");

    free(piece);
    return result;
}

void snapshot_file_close(struct open_snapshot *file)
{
    if (file->disk)
        file->disk->close(file->disk, file->file);
    file->disk = NULL;
}
