#include "journal/image.h"
#include "base/crc32c.h"
#include "journal/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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
    int fd;
    unsigned char *piece; /* PIECE bytes */
    size_t used;
    off_t offset;
};

static int stream_flush(struct stream *stream)
{
    size_t size = round_up(stream->used, BLOCK);
    int failure;

    memset(stream->piece + stream->used, 0, size - stream->used);
    failure = write_durably(stream->fd, stream->piece, size, stream->offset);
    stream->offset += (off_t)stream->used;
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

static int write_file(int fd, const struct image *image)
{
    unsigned char header[HEADER_SIZE];
    struct stream stream = {.fd = fd, .piece = blocks_new(PIECE)};
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
    if (!failure && (ftruncate(fd, stream.offset) < 0 || fsync(fd) < 0))
        failure = errno;
    free(stream.piece);
    return failure;
}

static int create(const struct directory *directory)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int fd = openat(directory->fd, UNFINISHED, flags | O_DIRECT, 0600);

    if (fd < 0 && errno == EINVAL) /* a file system without it */
        fd = openat(directory->fd, UNFINISHED, flags, 0600);
    return fd;
}

int image_write(const struct directory *directory, const struct image *image,
                struct error_text *err)
{
    char name[NAME_SIZE];
    int fd, failure;

    if (image->configuration.iov_len > CONFIGURATION_MAX)
        return error_set(err, HF_EINVAL, "a configuration of %zu bytes is too large",
                         image->configuration.iov_len);
    fd = create(directory);
    failure = fd < 0 ? errno : write_file(fd, image);

    if (fd >= 0 && close(fd) < 0 && !failure)
        failure = errno;
    snprintf(name, sizeof name, PREFIX "%" PRIu64, image->index);
    if (!failure &&
        (renameat(directory->fd, UNFINISHED, directory->fd, name) < 0 || fsync(directory->fd) < 0))
        failure = errno;
    if (failure) {
        unlinkat(directory->fd, UNFINISHED, 0); /* a full disk needs the room */
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
    uint64_t index;

    if (strcmp(name, UNFINISHED) != 0 &&
        (!directory_number_in(name, PREFIX, &index) || index >= cleaning->newest))
        return HF_OK;
    if (unlinkat(cleaning->directory->fd, name, 0) < 0 && errno != ENOENT)
        return error_set_errno(err, HF_EIO, errno, "cannot remove %s/%s", cleaning->directory->path,
                               name);
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

static int read_piece(int fd, struct iovec *ret_bytes, uint64_t size, off_t offset, uint32_t sum,
                      const char *name, struct error_text *err)
{
    size_t count = 0;
    int failure;

    *ret_bytes = (struct iovec){malloc(size ? size : 1), size};
    if (!ret_bytes->iov_base)
        return error_set(err, HF_ENOMEM, "no memory for the %" PRIu64 " bytes of %s", size, name);
    failure = read_whole(fd, ret_bytes->iov_base, size, offset, &count);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s", name);
    if (count != size || crc32c(0, ret_bytes->iov_base, size) != sum)
        return error_set(err, HF_EIO, "%s is damaged: restore the directory from a backup", name);
    return HF_OK;
}

static int read_file(int fd, struct image *image, const char *name, struct error_text *err)
{
    unsigned char header[HEADER_SIZE];
    uint64_t configuration_size, data_size;
    struct stat info;
    size_t count = 0;
    int failure = fstat(fd, &info) < 0 ? errno : read_whole(fd, header, sizeof header, 0, &count);
    int result;

    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s", name);
    configuration_size = count == sizeof header ? get_u64(header + 32) : 0;
    data_size = count == sizeof header ? get_u64(header + 40) : 0;
    if (count != sizeof header || get_u64(header) != MAGIC ||
        crc32c(0, header, HEADER_SUM_AT) != get_u32(header + HEADER_SUM_AT) ||
        get_u64(header + 8) != image->index || configuration_size > CONFIGURATION_MAX ||
        data_size > SIZE_MAX / 2 ||
        HEADER_SIZE + configuration_size + data_size != (uint64_t)info.st_size)
        return error_set(err, HF_EIO, "%s is damaged: restore the directory from a backup", name);
    image->term = get_u64(header + 16);
    image->configuration_index = get_u64(header + 24);
    result = read_piece(fd, &image->configuration, configuration_size, HEADER_SIZE,
                        get_u32(header + SUMS_AT), name, err);
    if (result != HF_OK)
        return result;
    return read_piece(fd, &image->data, data_size, (off_t)(HEADER_SIZE + configuration_size),
                      get_u32(header + SUMS_AT + 4), name, err);
}

int image_load(const struct directory *directory, struct image *ret_image, struct error_text *err)
{
    struct image image = {0};
    char name[NAME_SIZE];
    int result = directory_each(directory, look_for_newest, &image.index, err);
    int fd;

    *ret_image = (struct image){0};
    if (result != HF_OK || image.index == 0)
        return result;
    snprintf(name, sizeof name, PREFIX "%" PRIu64, image.index);
    fd = openat(directory->fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, HF_EIO, errno, "cannot read %s", name);
    result = read_file(fd, &image, name, err);
    close(fd);
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
