/* reading.c: what is in a journal when it is opened, and whether all of it is there. */
#include "base/crc32c.h"
#include "journal/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A segment that was found. */
struct found {
    uint64_t number;
    bool begun;     /* it has a header that is whole */
    uint64_t first; /* index, */
    bool fresh;     /* as its header says, */
    uint64_t group; /* and the number of its first group */
    bool salted;    /* its salt is whole: */
    uint64_t salt;
    unsigned char *bytes; /* all of it, while it is being read */
    size_t size;
    size_t end; /* up to here it is whole */
};

struct reading {
    struct journal *journal;
    struct found *found; /* by number */
    size_t count, capacity;
    bool any;
    uint64_t next;  /* index that must come, at most */
    uint64_t group; /* number of the last that was seen */
    journal_record_fn *fn;
    void *context;
};

static int refuse(const struct reading *reading, const struct found *found, uint64_t index,
                  struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];

    segment_name(found->number, name);
    return error_set(err, HF_EIO,
                     "%s/%s is damaged at entry %" PRIu64 ", and what follows it was acknowledged: "
                     "restore the directory from a backup",
                     reading->journal->directory->path, name, index);
}

static int gap(const struct reading *reading, const struct found *found, struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];

    segment_name(found->number, name);
    return error_set(err, HF_EIO,
                     "entries from %" PRIu64
                     " on are missing before %s/%s: restore the directory from a backup",
                     reading->next, reading->journal->directory->path, name);
}

/* ---- which segments there are ----------------------------------------------------------------- */

static int note_segment(void *context, const char *name, struct error_text *err)
{
    struct reading *reading = context;
    uint64_t number;

    if (!directory_number_in(name, SEGMENT_PREFIX, &number))
        return HF_OK;
    if (reading->count == reading->capacity) {
        size_t capacity = reading->capacity ? reading->capacity * 2 : 16;
        struct found *larger = realloc(reading->found, capacity * sizeof *larger);

        if (!larger)
            return error_set(err, HF_ENOMEM, "out of memory");
        reading->found = larger;
        reading->capacity = capacity;
    }
    reading->found[reading->count++] = (struct found){.number = number};
    return HF_OK;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct found *)a)->number, y = ((const struct found *)b)->number;

    return x < y ? -1 : x > y;
}

static int load_segment(const struct reading *reading, struct found *found, bool only_header,
                        struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];
    struct stat info = {0};
    int fd, failure = 0;

    segment_name(found->number, name);
    fd = openat(reading->journal->directory->fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) < 0)
        failure = errno;
    found->size = only_header && info.st_size > (off_t)BLOCK ? BLOCK : (size_t)info.st_size;
    found->bytes = malloc(found->size + 1);
    if (!failure && !found->bytes)
        failure = ENOMEM;
    if (!failure)
        failure = read_whole(fd, found->bytes, found->size, 0, &found->size);
    if (fd >= 0)
        close(fd);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/%s",
                               reading->journal->directory->path, name);
    return HF_OK;
}

static void unload_segment(struct found *found)
{
    free(found->bytes);
    found->bytes = NULL;
}

static int read_header(const struct reading *reading, struct found *found, struct error_text *err)
{
    int result = load_segment(reading, found, true, err);
    const unsigned char *block = found->bytes;

    if (result == HF_OK && found->size >= BLOCK && get_u64(block) == SEGMENT_MAGIC &&
        crc32c(0, block, SEGMENT_SUMMED) == get_u32(block + SEGMENT_SUMMED)) {
        found->begun = true;
        found->first = get_u64(block + 8);
        found->fresh = get_u64(block + 16) & SEGMENT_FRESH;
        found->group = get_u64(block + 24);
    }
    if (result == HF_OK && found->size >= BLOCK &&
        crc32c(0, block + SALT_AT, SALT_SUMMED) == get_u32(block + SALT_AT + SALT_SUMMED)) {
        found->salted = true;
        found->salt = get_u64(block + SALT_AT);
        if (get_u64(block + SALT_AT + 8) != found->number)
            result = refuse(reading, found, 0, err);
    }
    found->begun = found->begun && found->salted;
    unload_segment(found);
    return result;
}

/* ---- records ---------------------------------------------------------------------------------- */

struct placed { /* a record in its group */
    struct journal_record record;
    uint64_t group; /* its number, */
    uint32_t left;  /* and how many records of it are still to come */
};

/* Is there a whole one at that place? */
static bool read_record(const struct found *found, size_t at, struct placed *ret_placed)
{
    const unsigned char *header = found->bytes + at;
    size_t size;

    if (found->size < at + RECORD_HEADER)
        return false;
    size = get_u32(header + 4);
    if (size > JOURNAL_RECORD_MAX || size > found->size - at - RECORD_HEADER)
        return false;
    if (crc32c(0, header + 4, RECORD_HEADER - 4 + size) != get_u32(header))
        return false;
    ret_placed->record = (struct journal_record){.index = get_u64(header + 8),
                                                 .term = get_u64(header + 16),
                                                 .type = header[44],
                                                 .bytes = header + RECORD_HEADER,
                                                 .size = size};
    ret_placed->group = get_u64(header + 24);
    ret_placed->left = get_u32(header + 40);
    return ret_placed->record.index > 0 && (!found->salted || get_u64(header + 32) == found->salt);
}

/* Behind what is damaged, a record of a group that was begun after it; [J2]. */
static bool has_later_group(const struct found *found, size_t at, uint64_t damaged)
{
    struct placed placed;

    for (at = round_up(at, BLOCK); at < found->size; at += BLOCK)
        if (read_record(found, at, &placed) && placed.group > damaged)
            return true;
    return false;
}

static int tell(struct reading *reading, const struct found *found,
                const struct journal_record *record, struct error_text *err)
{
    if (reading->any && record->index > reading->next)
        return refuse(reading, found, reading->next, err);
    reading->any = true;
    reading->next = record->index + 1;
    return reading->fn(reading->context, record, err);
}

static int read_records(struct reading *reading, struct found *found, struct error_text *err)
{
    struct placed last = {.group = found->group - 1}, placed;
    size_t at = BLOCK;

    if (reading->any && found->group != reading->group + 1)
        return gap(reading, found, err);
    found->end = BLOCK;
    while (read_record(found, at, &placed)) {
        int result;

        if (last.left > 0 ? placed.group != last.group || placed.left != last.left - 1
                          : placed.group != last.group + 1)
            break;
        if (at == BLOCK && placed.record.index != found->first)
            break;
        result = tell(reading, found, &placed.record, err);
        if (result != HF_OK)
            return result;
        last = placed;
        at += round_up(RECORD_HEADER + placed.record.size, RECORD_STEP);
        found->end = round_up(at, BLOCK);
        if (last.left == 0)
            at = found->end;
    }
    reading->group = last.group;
    if (has_later_group(found, at, last.left > 0 ? last.group : last.group + 1))
        return refuse(reading, found, reading->any ? reading->next : found->first, err);
    return HF_OK;
}

/* The header is not whole: it was written together with the first group, so there must be no second. The salt
 * was there before: without it, there must be none at all. */
static int read_unbegun(const struct reading *reading, const struct found *found,
                        struct error_text *err)
{
    uint64_t first = reading->any ? reading->group + 1 : 1;

    if (has_later_group(found, BLOCK, found->salted ? first : 0))
        return refuse(reading, found, reading->any ? reading->next : 1, err);
    return HF_OK;
}

/* ---- all of it -------------------------------------------------------------------------------- */

static int read_segments(struct reading *reading, size_t from, struct error_text *err)
{
    int result = HF_OK;

    for (size_t i = from; i < reading->count && result == HF_OK; i++) {
        struct found *found = &reading->found[i];

        result = load_segment(reading, found, false, err);
        if (result == HF_OK)
            result = found->begun ? read_records(reading, found, err)
                                  : read_unbegun(reading, found, err);
        unload_segment(found);
    }
    return result;
}

/* What has no record in it is left over, and what is behind the records of the others. */
static int sort_out(struct reading *reading, size_t from, struct error_text *err)
{
    struct journal *journal = reading->journal;
    int result = HF_OK;

    journal->leftovers = calloc(reading->count + 1, sizeof *journal->leftovers);
    if (!journal->leftovers)
        return error_set(err, HF_ENOMEM, "out of memory");
    for (size_t i = 0; i < reading->count && result == HF_OK; i++) {
        const struct found *found = &reading->found[i];
        bool empty = i < from || !found->begun || found->end == BLOCK;

        if (empty || found->size > found->end)
            journal->leftovers[journal->leftover_count++] =
                (struct leftover){found->number, empty ? 0 : found->end};
        if (!empty)
            result = journal_add_segment(journal, found->number, found->first, err);
    }
    return result;
}

int journal_read(struct journal *journal, journal_record_fn *fn, void *context,
                 struct error_text *err)
{
    struct reading reading = {.journal = journal, .fn = fn, .context = context};
    size_t from = 0;
    int result = directory_each(journal->directory, note_segment, &reading, err);

    if (reading.count > 0)
        qsort(reading.found, reading.count, sizeof *reading.found, compare);
    for (size_t i = 0; i < reading.count && result == HF_OK; i++) {
        result = read_header(&reading, &reading.found[i], err);
        if (reading.found[i].begun && reading.found[i].fresh)
            from = i;
        journal->next_number = reading.found[i].number + 1;
    }
    if (result == HF_OK)
        result = read_segments(&reading, from, err);
    if (result == HF_OK)
        result = sort_out(&reading, from, err);
    journal->group_number = reading.group;
    free(reading.found);
    return result;
}
