/* segments.c: looking through open segments. A segment is, all numbers with the lowest byte first,
 *
 *     8 bytes   format, 1; in one that was never written to, 0
 *     batches   4 bytes   checksum of the header
 *               4 bytes   checksum of the data
 *               header    8 bytes how many entries, then for each 8 bytes term, 1 type, 3 unused,
 *                         4 bytes size
 *               data      of the entries, one after the other; sizes are multiples of 8
 *     zeros     up to the size that was reserved
 *
 * The checksum is CRC-32 with the highest bit first, from 0, not inverted. */
#include "replica/segments.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT 1
#define SEGMENTS_MAX 64             /* open ones; there are three at most */
#define SEGMENT_BYTES_MAX (1 << 30) /* of one of them */
#define LOST_ENTRIES_MAX 64u        /* in a batch that is looked for behind damage */

struct segment {
    uint64_t number; /* of its name: they were written in this order */
    unsigned char *bytes;
    size_t size;
};

static uint32_t checksum(const unsigned char *bytes, size_t size)
{
    static uint32_t table[256];
    uint32_t sum = 0;

    if (!table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i << 24;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] << 1 ^ (table[i] >> 31 ? 0x04c11db7u : 0);
        }
    }
    for (size_t i = 0; i < size; i++)
        sum = sum << 8 ^ table[(sum >> 24 ^ bytes[i]) & 0xff];
    return sum;
}

static uint32_t get32(const unsigned char *bytes)
{
    uint32_t number;

    memcpy(&number, bytes, sizeof number);
    return le32toh(number);
}

static uint64_t get64(const unsigned char *bytes)
{
    uint64_t number;

    memcpy(&number, bytes, sizeof number);
    return le64toh(number);
}

/* The size of the batch that begins here, or 0 if none does. */
static size_t batch_at(const unsigned char *bytes, size_t size, uint64_t entries_max,
                       uint64_t *ret_entries)
{
    uint64_t entries, header, data = 0;

    if (size < 16)
        return 0;
    entries = get64(bytes + 8);
    if (entries == 0 || entries > entries_max || entries > size / 16)
        return 0;
    header = 8 + 16 * entries;
    if (header > size - 8 || checksum(bytes + 8, (size_t)header) != get32(bytes))
        return 0;
    for (uint64_t i = 0; i < entries; i++)
        data += get32(bytes + 16 + 16 * i + 12);
    if (data > size - 8 - header || checksum(bytes + 8 + header, (size_t)data) != get32(bytes + 4))
        return 0;
    *ret_entries = entries;
    return (size_t)(8 + header + data);
}

/* Where the batches end. */
static size_t end_of_batches(const struct segment *segment)
{
    size_t at = 8, size;
    uint64_t entries;

    while (at < segment->size &&
           (size = batch_at(segment->bytes + at, segment->size - at, UINT64_MAX, &entries)) > 0)
        at += size;
    return at;
}

/* Whole entries from here on, wherever they begin. */
static uint64_t entries_after(const struct segment *segment, size_t at)
{
    uint64_t count = 0, entries;

    while (at < segment->size) {
        size_t size = batch_at(segment->bytes + at, segment->size - at, LOST_ENTRIES_MAX, &entries);

        count += size ? entries : 0;
        at += size ? size : 8;
    }
    return count;
}

static int compare(const void *a, const void *b)
{
    const struct segment *left = a, *right = b;

    return left->number < right->number ? -1 : left->number > right->number;
}

static int list(int fd, const char *path, struct segment *segments, size_t *ret_count,
                struct error_text *err)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = own >= 0 ? fdopendir(own) : NULL;
    const struct dirent *entry;
    size_t count = 0;

    if (!listing) {
        if (own >= 0)
            close(own);
        return error_set_errno(err, HF_EIO, errno, "cannot list %s", path);
    }
    while ((entry = readdir(listing)) != NULL && count < SEGMENTS_MAX) {
        char *end = NULL;

        if (strncmp(entry->d_name, "open-", 5) != 0)
            continue;
        segments[count].number = strtoull(entry->d_name + 5, &end, 10);
        count += end != entry->d_name + 5 && *end == '\0';
    }
    closedir(listing);
    qsort(segments, count, sizeof *segments, compare);
    *ret_count = count;
    return HF_OK;
}

static int read_whole(int fd, unsigned char *bytes, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t got = read(fd, bytes + done, size - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : EIO;
        done += (size_t)got;
    }
    return 0;
}

static int load(int directory, const char *path, struct segment *segment, struct error_text *err)
{
    char name[32];
    struct stat info = {0};
    int fd, failure = 0;

    snprintf(name, sizeof name, "open-%" PRIu64, segment->number);
    fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) < 0)
        failure = errno;
    else if (info.st_size > SEGMENT_BYTES_MAX)
        failure = EFBIG;
    if (!failure && info.st_size > 0) {
        segment->size = (size_t)info.st_size;
        segment->bytes = malloc(segment->size);
        failure = segment->bytes ? read_whole(fd, segment->bytes, segment->size) : ENOMEM;
    }
    if (fd >= 0)
        close(fd);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/%s", path, name);
    return HF_OK;
}

static bool only_zeros(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

/* The segments are looked at in turn; the first whose batches end in something else than zeros is
 * `damaged`, and from then on nothing may follow. */
struct search {
    uint64_t torn_max, lost;
    bool damaged;
    uint64_t number; /* of the damaged segment, */
    size_t at;       /* and where */
};

static bool is_lossy(struct search *search, const struct segment *segment)
{
    bool later = search->damaged;
    size_t end = 8;

    if (segment->size < 8 || get64(segment->bytes) != FORMAT)
        return false; /* never written to, or libraft refuses it itself */
    if (!later) {
        end = end_of_batches(segment);
        search->number = segment->number;
        search->at = end;
        search->damaged = !only_zeros(segment->bytes + end, segment->size - end);
    }
    search->lost += entries_after(segment, end);
    return later ? search->lost > 0 : search->lost > search->torn_max;
}

int segments_check(int fd, const char *path, uint64_t torn_max, struct error_text *err)
{
    struct segment segments[SEGMENTS_MAX] = {0};
    struct search search = {.torn_max = torn_max};
    size_t count = 0;
    int result = list(fd, path, segments, &count, err);

    for (size_t i = 0; result == HF_OK && i < count; i++) {
        result = load(fd, path, &segments[i], err);
        if (result == HF_OK && is_lossy(&search, &segments[i]))
            result = error_set(err, HF_EIO,
                               "%s/open-%" PRIu64 " is damaged at byte %zu, and entries of the log "
                               "follow: restore the directory from a backup",
                               path, search.number, search.at);
        free(segments[i].bytes);
    }
    return result;
}
