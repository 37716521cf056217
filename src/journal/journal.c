#include "journal/journal.h"
#include "base/crc32c.h"
#include "base/switches.h"
#include "journal/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void segment_name(uint64_t number, char ret_name[SEGMENT_NAME_SIZE])
{
    snprintf(ret_name, SEGMENT_NAME_SIZE, SEGMENT_PREFIX "%" PRIu64, number);
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

void journal_close_segment(struct journal *journal)
{
    const struct disk *disk = journal->directory->disk;

    if (journal->file >= 0)
        disk->close(disk, journal->file);
    journal->file = -1;
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
    put_u64(at + 40, record->chain);
    put_u64(at + 48, record->commit);
    put_u32(at + 56, (uint32_t)left);
    at[60] = record->type;
    put_u32(at + 60, record->type | header_checksum(at) << 8);
    if (record->size > 0)
        memcpy(at + RECORD_HEADER, record->bytes, record->size);
    memset(at + RECORD_HEADER + record->size, 0, whole - RECORD_HEADER - record->size);
    put_u32(at, crc32c(0, at + 4, RECORD_HEADER - 4 + record->size));
    return get_u32(at);
}

/* The spare segment becomes the one that is written. */
static int rotate_segment(struct journal *journal, uint64_t first, struct error_text *err)
{
    int result = journal_add_segment(journal, journal->spare.number, first, err);

    if (result != HF_OK)
        return result;
    journal_close_segment(journal);
    journal->file = journal->spare.file;
    journal->spare.file = -1;
    journal->at = 0;
    journal->room = journal->spare.bytes;
    journal->salt = journal->spare.salt;
    return HF_OK;
}

int journal_mark_end(struct journal *journal, bool open, struct error_text *err)
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

    (void)journal_mark_end(journal, true, &err);
}

/* They are durable: from now on they can be read. */
static void note_places(struct journal *journal, const struct journal_record *records, size_t count,
                        size_t at)
{
    struct place place = {.segment = journal->segments[journal->count - 1].number,
                          .salt = journal->salt};

    for (size_t i = 0; i < count; i++) {
        place.index = records[i].index;
        place.at = at;
        places_add(&journal->places, &place);
        at += record_size(&records[i]);
    }
}

/* May it be appended, and is there memory for it? */
static int check_group(struct journal *journal, const struct journal_record *records, size_t count,
                       size_t size, struct error_text *err)
{
    int result;

    if (journal->resetting)
        return error_set(err, HF_EIO, "the log in %s is being reset", journal->directory->path);
    if (count == 0)
        return error_set(err, HF_EINVAL, "there is nothing to append");
    for (size_t i = 0; i < count; i++)
        if (records[i].size > JOURNAL_RECORD_MAX)
            return error_set(err, HF_EINVAL, "a record of %zu bytes is too large", records[i].size);
    result = reserve_group(journal, BLOCK + size, err);
    return result == HF_OK ? places_reserve(&journal->places, size, err) : result;
}

/* Goes on in another segment if this one has no room; a group larger than a segment has one to itself, which grows. Its header is
 * then the beginning of what is written. */
static int find_room(struct journal *journal, uint64_t first, size_t size, size_t *ret_used,
                     struct error_text *err)
{
    int result;

    *ret_used = 0;
    if (journal->file >= 0 && (journal->at <= BLOCK || journal->at + size <= journal->room))
        return HF_OK;
    if (journal->spare.file < 0)
        return error_set(err, HF_EBUSY, "%s",
                         journal->spare.failure.text[0] ? journal->spare.failure.text
                                                        : "the next segment is not ready");
    result = rotate_segment(journal, first, err);
    if (result != HF_OK)
        return result;
    write_segment_header(journal, journal->group, first);
    *ret_used = BLOCK;
    return HF_OK;
}

int journal_append(struct journal *journal, const struct journal_record *records, size_t count,
                   struct error_text *err)
{
    const struct disk *disk = journal->directory->disk;
    size_t size = journal_size_of(records, count), begin, used;
    uint32_t checksum = 0;
    int result = check_group(journal, records, count, size, err), failure;

    if (result == HF_OK)
        result = find_room(journal, records[0].index, size, &begin, err);
    if (result != HF_OK)
        return result;
    journal->group_number++;
    used = begin;
    for (size_t i = 0; i < count; i++) {
        checksum = write_record(journal, journal->group + used, &records[i], count - 1 - i);
        used += record_size(&records[i]);
    }
    memset(journal->group + used, 0, round_up(used, BLOCK) - used);
    used = round_up(used, BLOCK);
    failure = disk->write(disk, journal->file, journal->group, used, journal->at,
                          !SWITCHED(SWITCH_LOG_NOT_SYNCED));
    if (failure) {
        journal->failed = true;
        return error_set_errno(err, HF_EIO, failure, "cannot write to the log in %s",
                               journal->directory->path);
    }
    note_places(journal, records, count, journal->at + begin);
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
    places_init(&journal->places);
    journal->next_number = 1;
    journal->file = journal->spare.file = -1;
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
    const struct disk *disk = journal->directory->disk;
    char name[SEGMENT_NAME_SIZE];
    int file, failure;

    if (leftover->end == 0)
        return segment_remove(journal->directory, leftover->number, false, err);
    segment_name(leftover->number, name);
    failure = disk->open(disk, journal->directory->handle, name, DISK_FOR_WRITING, &file);
    if (!failure) {
        failure = disk->truncate(disk, file, leftover->end);
        disk->close(disk, file);
    }
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot shorten %s/%s",
                               journal->directory->path, name);
    return HF_OK;
}

bool journal_syncs_apart(void)
{
    return disk_system_syncs_apart;
}

struct journal_torn journal_torn(const struct journal *journal)
{
    return journal->torn;
}

int journal_begin(struct journal *journal, struct error_text *err)
{
    /* First: what is shorter than it was made has a mark. Also if it has one already: its name may not be on
     * disk yet. */
    int result = journal_mark_end(journal, false, err);

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
    return journal_mark_end(journal, false, err);
}

/* A spare segment stays: it is left over when the journal is opened again. */
void journal_close(struct journal *journal)
{
    const struct disk *disk = journal->directory->disk;

    journal_close_segment(journal);
    if (journal->spare.file >= 0)
        disk->close(disk, journal->spare.file);
    places_free(&journal->places);
    free(journal->segments);
    free(journal->leftovers);
    free(journal->group);
    free(journal);
}
