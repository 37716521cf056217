#include "journal/image.h"
#include "base/crc32c.h"
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

static void write_header(unsigned char header[HEADER_SIZE], const struct image *image)
{
    put_u64(header, MAGIC);
    put_u64(header + 8, image->index);
    put_u64(header + 16, image->term);
    put_u64(header + 24, image->configuration_index);
    put_u64(header + 32, image->configuration.iov_len);
    put_u64(header + 40, image->data.iov_len);
    put_u32(header + SUMS_AT,
            crc32c(0, image->configuration.iov_base, image->configuration.iov_len));
    put_u32(header + SUMS_AT + 4, crc32c(0, image->data.iov_base, image->data.iov_len));
    put_u32(header + HEADER_SUM_AT, crc32c(0, header, HEADER_SUM_AT));
}

/* ---- writing ---------------------------------------------------------------------------------- */

/* Past the system's cache: nobody reads it soon, and memory for it would have to be found first. */
struct stream {
    const struct disk *disk;
    int file;
    unsigned char *piece; /* PIECE bytes */
    size_t used;
    uint64_t offset;
};

static int stream_flush(struct stream *stream)
{
    size_t size = round_up(stream->used, BLOCK);
    int failure;

    memset(stream->piece + stream->used, 0, size - stream->used);
    failure =
        stream->disk->write(stream->disk, stream->file, stream->piece, size, stream->offset, true);
    stream->offset += stream->used;
    stream->used = 0;
    return failure;
}

static int stream_put(struct stream *stream, struct iovec bytes)
{
    const unsigned char *from = bytes.iov_base;
    int failure = 0;

    for (size_t left = bytes.iov_len; left > 0 && !failure;) {
        size_t size = left < PIECE - stream->used ? left : PIECE - stream->used;

        memcpy(stream->piece + stream->used, from, size);
        stream->used += size;
        from += size;
        left -= size;
        if (stream->used == PIECE)
            failure = stream_flush(stream);
    }
    return failure;
}

static int write_pieces(const struct disk *disk, int file, const struct image *image)
{
    unsigned char header[HEADER_SIZE];
    struct stream stream = {.disk = disk, .file = file, .piece = blocks_new(PIECE)};
    int failure = stream.piece ? 0 : ENOMEM;

    write_header(header, image);
    if (!failure)
        failure = stream_put(&stream, (struct iovec){header, sizeof header});
    if (!failure)
        failure = stream_put(&stream, image->configuration);
    if (!failure)
        failure = stream_put(&stream, image->data);
    if (!failure && stream.used > 0)
        failure = stream_flush(&stream);
    if (!failure)
        failure = disk->truncate(disk, file, stream.offset);
    if (!failure)
        failure = disk->sync(disk, file);
    free(stream.piece);
    return failure;
}

static int write_file(const struct directory *directory, const struct image *image)
{
    const struct disk *disk = directory->disk;
    int file, closing;
    int failure = disk->open(disk, directory->handle, UNFINISHED, DISK_EMPTIED_DIRECT, &file);

    if (failure)
        return failure;
    failure = write_pieces(disk, file, image);
    closing = disk->close(disk, file);
    return failure ? failure : closing;
}

int image_write(const struct directory *directory, const struct image *image,
                struct error_text *err)
{
    const struct disk *disk = directory->disk;
    char name[NAME_SIZE];
    int failure;

    if (image->configuration.iov_len > CONFIGURATION_MAX)
        return error_set(err, HF_EINVAL, "a configuration of %zu bytes is too large",
                         image->configuration.iov_len);
    snprintf(name, sizeof name, PREFIX "%" PRIu64, image->index);
    failure = write_file(directory, image);
    if (!failure)
        failure = disk->rename(disk, directory->handle, UNFINISHED, name);
    if (!failure)
        failure = disk->sync_directory(disk, directory->handle);
    if (failure) {
        disk->remove(disk, directory->handle, UNFINISHED, false); /* a full disk needs the room */
        return error_set_errno(err, HF_EIO, failure, "cannot write %s/%s", directory->path, name);
    }
    return image_clean(directory, image, err);
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

int image_clean(const struct directory *directory, const struct image *newest,
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

static int read_file(const struct source *source, struct image *image, struct error_text *err)
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
        get_u64(header + 8) != image->index || configuration_size > CONFIGURATION_MAX ||
        data_size > SIZE_MAX / 2 || HEADER_SIZE + configuration_size + data_size != size)
        return error_set(err, HF_EIO, "%s is damaged: restore the directory from a backup", name);
    image->term = get_u64(header + 16);
    image->configuration_index = get_u64(header + 24);
    result = read_piece(source, &image->configuration, configuration_size, HEADER_SIZE,
                        get_u32(header + SUMS_AT), err);
    if (result != HF_OK)
        return result;
    return read_piece(source, &image->data, data_size, HEADER_SIZE + configuration_size,
                      get_u32(header + SUMS_AT + 4), err);
}

int image_load(const struct directory *directory, struct image *ret_image, struct error_text *err)
{
    struct image image = {0};
    char name[NAME_SIZE];
    struct source source = {.disk = directory->disk, .name = name};
    int result = directory_each(directory, look_for_newest, &image.index, err), failure;

    *ret_image = (struct image){0};
    if (result != HF_OK || image.index == 0)
        return result;
    snprintf(name, sizeof name, PREFIX "%" PRIu64, image.index);
    failure =
        source.disk->open(source.disk, directory->handle, name, DISK_FOR_READING, &source.file);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s", name);
    result = read_file(&source, &image, err);
    source.disk->close(source.disk, source.file);
    if (result != HF_OK) {
        image_free(&image);
        return result;
    }
    *ret_image = image;
    return HF_OK;
}

void image_free(struct image *image)
{
    free(image->configuration.iov_base);
    free(image->data.iov_base);
    *image = (struct image){0};
}
