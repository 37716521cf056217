#include "journal/journal.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "journal/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define REMOVING_PAUSE_MAX_NS 200000000
#define ZEROS_AT_ONCE ((size_t)256 << 10) /* so that appends get their turn meanwhile */

void segment_name(uint64_t number, char ret_name[SEGMENT_NAME_SIZE])
{
    snprintf(ret_name, SEGMENT_NAME_SIZE, SEGMENT_PREFIX "%" PRIu64, number);
}

int segment_remove(const struct directory *directory, uint64_t number, struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];

    segment_name(number, name);
    if (unlinkat(directory->fd, name, 0) < 0 && errno != ENOENT)
        return error_set_errno(err, HF_EIO, errno, "cannot remove %s/%s", directory->path, name);
    return HF_OK;
}

int journal_add_segment(struct journal *journal, uint64_t number, uint64_t first,
                        struct error_text *err)
{
    if (journal->count == journal->capacity) {
        size_t capacity = journal->capacity ? journal->capacity * 2 : 16;
        struct segment *larger = realloc(journal->segments, capacity * sizeof *larger);

        if (!larger)
            return error_set(err, HF_ENOMEM, "out of memory");
        journal->segments = larger;
        journal->capacity = capacity;
    }
    journal->segments[journal->count++] = (struct segment){number, first};
    return HF_OK;
}

/* ---- spare segments --------------------------------------------------------------------------- */

bool journal_wants_spare(const struct journal *journal)
{
    return journal->spare.fd < 0 && !journal->making;
}

/* A young log has small ones: to fill them is most of what a new node writes. */
static size_t bytes_of(const struct journal *journal, uint64_t number)
{
    size_t bytes = JOURNAL_FIRST_BYTES;

    for (uint64_t i = 1; i < number && bytes < journal->segment_bytes; i++)
        bytes *= 2;
    return bytes < journal->segment_bytes ? bytes : journal->segment_bytes;
}

struct journal_spare journal_spare_begin(struct journal *journal)
{
    uint64_t number = journal->next_number++;

    journal->making = true;
    return (struct journal_spare){.directory = journal->directory,
                                  .number = number,
                                  .bytes = bytes_of(journal, number),
                                  .fd = -1};
}

void salt_write(unsigned char *block, uint64_t salt, uint64_t number, uint64_t made)
{
    put_u64(block + SALT_AT, salt);
    put_u64(block + SALT_AT + 8, number);
    put_u64(block + SALT_AT + 16, made);
    put_u32(block + SALT_AT + SALT_SUMMED, crc32c(0, block + SALT_AT, SALT_SUMMED));
}

/* With zeros, but for the salt. */
static int fill(int fd, size_t bytes, uint64_t salt, uint64_t number)
{
    unsigned char *zeros = blocks_new(ZEROS_AT_ONCE);
    int failure = zeros ? posix_fallocate(fd, 0, (off_t)bytes) : ENOMEM;

    for (size_t at = 0; at < bytes && !failure; at += ZEROS_AT_ONCE)
        failure = write_durably(fd, zeros, bytes - at < ZEROS_AT_ONCE ? bytes - at : ZEROS_AT_ONCE,
                                (off_t)at);
    if (!failure) {
        salt_write(zeros, salt, number, bytes);
        failure = write_durably(fd, zeros, BLOCK, 0);
    }
    free(zeros);
    return failure;
}

void journal_spare_make(struct journal_spare *spare)
{
    char name[SEGMENT_NAME_SIZE];
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int failure;

    segment_name(spare->number, name);
    spare->fd = openat(spare->directory->fd, name, flags | O_DIRECT, 0600);
    if (spare->fd < 0 && errno == EINVAL) /* a file system without it: through the cache, then */
        spare->fd = openat(spare->directory->fd, name, flags, 0600);
    random_fill(&spare->salt, sizeof spare->salt);
    failure = spare->fd < 0 ? errno : fill(spare->fd, spare->bytes, spare->salt, spare->number);
    if (!failure && (fsync(spare->fd) < 0 || fsync(spare->directory->fd) < 0))
        failure = errno;
    if (!failure)
        return;
    if (spare->fd >= 0) {
        close(spare->fd);
        spare->fd = -1;
        unlinkat(spare->directory->fd, name, 0);
    }
    error_set_errno(&spare->failure, HF_EIO, failure, "no room for %zu bytes in %s", spare->bytes,
                    spare->directory->path);
}

void journal_spare_end(struct journal *journal, struct journal_spare *spare)
{
    journal->making = false;
    journal->spare = *spare;
}

/* ---- appending -------------------------------------------------------------------------------- */

static size_t record_size(const struct journal_record *record)
{
    return round_up(RECORD_HEADER + record->size, RECORD_STEP);
}

size_t journal_size_of(const struct journal_record *records, size_t count)
{
    size_t size = 0;

    for (size_t i = 0; i < count; i++)
        size += record_size(&records[i]);
    return round_up(size, BLOCK);
}

static int reserve_group(struct journal *journal, size_t size, struct error_text *err)
{
    if (size <= journal->group_capacity)
        return HF_OK;
    free(journal->group);
    journal->group_capacity = 0;
    journal->group = blocks_new(size * 2);
    if (!journal->group)
        return error_set(err, HF_ENOMEM, "out of memory");
    journal->group_capacity = size * 2;
    return HF_OK;
}

static void write_segment_header(const struct journal *journal, unsigned char *block,
                                 uint64_t first)
{
    memset(block, 0, BLOCK);
    put_u64(block, SEGMENT_MAGIC);
    put_u64(block + 8, first);
    put_u64(block + 16, journal->fresh ? SEGMENT_FRESH : 0);
    put_u64(block + 24, journal->group_number + 1);
    put_u32(block + SEGMENT_SUMMED, crc32c(0, block, SEGMENT_SUMMED));
    salt_write(block, journal->salt, journal->segments[journal->count - 1].number, journal->room);
}

/* Returns its checksum. */
static uint32_t write_record(const struct journal *journal, unsigned char *at,
                             const struct journal_record *record, size_t left)
{
    size_t whole = record_size(record);

    put_u32(at + 4, (uint32_t)record->size);
    put_u64(at + 8, record->index);
    put_u64(at + 16, record->term);
    put_u64(at + 24, journal->group_number);
    put_u64(at + 32, journal->salt);
    put_u32(at + 40, (uint32_t)left);
    at[44] = record->type;
    put_u32(at + 44, record->type | header_checksum(at) << 8);
    if (record->size > 0)
        memcpy(at + RECORD_HEADER, record->bytes, record->size);
    memset(at + RECORD_HEADER + record->size, 0, whole - RECORD_HEADER - record->size);
    put_u32(at, crc32c(0, at + 4, RECORD_HEADER - 4 + record->size));
    return get_u32(at);
}

/* The spare segment becomes the one that is written. */
static int turn_page(struct journal *journal, uint64_t first, struct error_text *err)
{
    int result = journal_add_segment(journal, journal->spare.number, first, err);

    if (result != HF_OK)
        return result;
    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = journal->spare.fd;
    journal->spare.fd = -1;
    journal->at = 0;
    journal->room = journal->spare.bytes;
    journal->salt = journal->spare.salt;
    return HF_OK;
}

static int mark_end(struct journal *journal, bool open, struct error_text *err)
{
    struct end mark = journal->end;
    int result;

    mark.open = open;
    result = end_store(journal->directory, &mark, err);
    if (result == HF_OK) {
        journal->marked = mark;
        journal->marked.known = true;
    }
    return result;
}

/* The first group of a segment is there: if the file is lost from now on, it is missed. On a disk without room the mark stays where
 * it was, which is no less true. */
static void mark_segment(struct journal *journal)
{
    struct error_text err;

    (void)mark_end(journal, true, &err);
}

int journal_append(struct journal *journal, const struct journal_record *records, size_t count,
                   struct error_text *err)
{
    size_t size = journal_size_of(records, count), used = 0;
    uint32_t checksum = 0;
    int result = reserve_group(journal, BLOCK + size, err), failure;

    if (result == HF_OK && count == 0)
        result = error_set(err, HF_EINVAL, "there is nothing to append");
    for (size_t i = 0; i < count && result == HF_OK; i++)
        if (records[i].size > JOURNAL_RECORD_MAX)
            result =
                error_set(err, HF_EINVAL, "a record of %zu bytes is too large", records[i].size);
    if (result != HF_OK)
        return result;
    /* A group larger than a segment has one to itself, which grows. */
    if (journal->fd < 0 || (journal->at > BLOCK && journal->at + size > journal->room)) {
        if (journal->spare.fd < 0)
            return error_set(err, HF_EBUSY, "%s",
                             journal->spare.failure.text[0] ? journal->spare.failure.text
                                                            : "the next segment is not ready");
        result = turn_page(journal, records[0].index, err);
        if (result != HF_OK)
            return result;
        write_segment_header(journal, journal->group, records[0].index);
        used = BLOCK;
    }
    journal->group_number++;
    for (size_t i = 0; i < count; i++) {
        checksum = write_record(journal, journal->group + used, &records[i], count - 1 - i);
        used += record_size(&records[i]);
    }
    memset(journal->group + used, 0, round_up(used, BLOCK) - used);
    used = round_up(used, BLOCK);
    failure = write_durably(journal->fd, journal->group, used, (off_t)journal->at);
    if (failure) {
        journal->failed = true;
        return error_set_errno(err, HF_EIO, failure, "cannot write to the log in %s",
                               journal->directory->path);
    }
    journal->fresh = false;
    journal->at += used;
    journal->end = (struct end){.segment = journal->segments[journal->count - 1].number,
                                .group = journal->group_number,
                                .index = records[count - 1].index,
                                .checksum = checksum};
    if (journal->marked.segment != journal->end.segment)
        mark_segment(journal);
    return HF_OK;
}

/* ---- removing --------------------------------------------------------------------------------- */

uint64_t journal_needed(const struct journal *journal, uint64_t index)
{
    size_t i = 0;

    /* What is left of a segment ends where the next one begins. */
    while (i + 1 < journal->count && journal->segments[i + 1].first <= index)
        i++;
    return i < journal->count ? journal->segments[i].number : 0;
}

struct removing {
    uint64_t oldest;
};

static int look_for_oldest(void *context, const char *name, struct error_text *err)
{
    struct removing *removing = context;
    uint64_t number;

    (void)err;
    if (directory_number_in(name, SEGMENT_PREFIX, &number) && number < removing->oldest)
        removing->oldest = number;
    return HF_OK;
}

/* Some file systems take milliseconds to remove a file, and let nobody write meanwhile: after each one they have
 * twice that time for others. */
static int remove_slowly(const struct directory *directory, uint64_t number, struct error_text *err)
{
    int64_t begin_ns = clock_boot_ns(), pause_ns;
    int result = segment_remove(directory, number, err);

    pause_ns = 2 * (clock_boot_ns() - begin_ns);
    if (pause_ns > REMOVING_PAUSE_MAX_NS)
        pause_ns = REMOVING_PAUSE_MAX_NS;
    nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    return result;
}

/* One after the other: a crash leaves an end of the log, and no gap in it. */
int journal_remove(const struct directory *directory, uint64_t needed, struct error_text *err)
{
    for (;;) {
        struct removing removing = {.oldest = needed};
        int result = directory_each(directory, look_for_oldest, &removing, err);

        if (result != HF_OK || removing.oldest == needed)
            return result;
        result = remove_slowly(directory, removing.oldest, err);
        if (result != HF_OK)
            return result;
    }
}

void journal_removed(struct journal *journal, uint64_t needed)
{
    size_t gone = 0;

    while (gone < journal->count && journal->segments[gone].number < needed)
        gone++;
    journal->count -= gone;
    if (gone > 0)
        memmove(journal->segments, journal->segments + gone,
                journal->count * sizeof *journal->segments);
}

/* The newest first: a crash leaves a beginning of the log, and no gap in it. */
int journal_reset(struct journal *journal, struct error_text *err)
{
    int result;

    journal->end = (struct end){0};
    result = mark_end(journal, false, err);
    if (result != HF_OK)
        return result;
    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = -1;
    journal->fresh = true;
    journal->group_number = 0;
    while (journal->count > 0 && result == HF_OK) {
        result =
            segment_remove(journal->directory, journal->segments[journal->count - 1].number, err);
        if (result == HF_OK)
            journal->count--;
    }
    return result;
}

/* ---- opening and closing ---------------------------------------------------------------------- */

int journal_open(const struct directory *directory, size_t segment_bytes, journal_record_fn *fn,
                 void *context, struct journal **ret_journal, struct error_text *err)
{
    struct journal *journal = calloc(1, sizeof *journal);
    int result;

    if (!journal)
        return error_set(err, HF_ENOMEM, "out of memory");
    journal->directory = directory;
    journal->segment_bytes = round_up(segment_bytes ? segment_bytes : JOURNAL_SEGMENT_BYTES, BLOCK);
    journal->next_number = 1;
    journal->fd = journal->spare.fd = -1;
    result = journal_read(journal, fn, context, err);
    if (result != HF_OK) {
        journal_close(journal);
        return result;
    }
    *ret_journal = journal;
    return HF_OK;
}

static int remove_leftover(const struct journal *journal, const struct leftover *leftover,
                           struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];
    int fd, failure = 0;

    if (leftover->end == 0)
        return segment_remove(journal->directory, leftover->number, err);
    segment_name(leftover->number, name);
    fd = openat(journal->directory->fd, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)leftover->end) < 0)
        failure = errno;
    if (fd >= 0)
        close(fd);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot shorten %s/%s",
                               journal->directory->path, name);
    return HF_OK;
}

struct journal_torn journal_torn(const struct journal *journal)
{
    return journal->torn;
}

int journal_begin(struct journal *journal, struct error_text *err)
{
    /* First: what is shorter than it was made has a mark. Also if it has one already: its name may not be on
     * disk yet. */
    int result = mark_end(journal, false, err);

    for (size_t i = 0; i < journal->leftover_count && result == HF_OK; i++)
        result = remove_leftover(journal, &journal->leftovers[i], err);
    journal->leftover_count = 0;
    return result;
}

/* What a write that failed has left behind the last record is to be looked at when it is opened again: then the
 * mark stays where it is. */
int journal_stop(struct journal *journal, struct error_text *err)
{
    if (journal->failed)
        return HF_OK;
    if (journal->marked.known && !journal->marked.open &&
        end_is_same(&journal->marked, &journal->end))
        return HF_OK;
    return mark_end(journal, false, err);
}

/* A spare segment stays: it is left over when the journal is opened again. */
void journal_close(struct journal *journal)
{
    if (journal->fd >= 0)
        close(journal->fd);
    if (journal->spare.fd >= 0)
        close(journal->spare.fd);
    free(journal->segments);
    free(journal->leftovers);
    free(journal->group);
    free(journal);
}
