/* reading.c: what is in a journal when it is opened, and whether all of it is there. */
#include "base/crc32c.h"
#include "base/switches.h"
#include "journal/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct reading {
    struct journal *journal;
    struct found *found; /* by number */
    size_t count, capacity;
    bool any;
    uint64_t next;  /* index that must come, at most */
    uint64_t group; /* number of the last that was seen */
    size_t last;    /* the last segment that was begun: from here on tails are judged */
    struct end mark, end;
    uint64_t segment; /* the first with a record */
    bool reached;     /* the mark's record was seen */
    journal_record_fn *fn;
    void *context;
};

static int refuse(const struct reading *reading, const struct found *found, uint64_t index,
                  struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];

    segment_name(found->number, name);
    return error_set(err, HF_EIO,
                     "%s/%s is damaged at entry %" PRIu64
                     ", and not by a write that was cut short: "
                     "restore the directory from a backup",
                     reading->journal->directory->path, name, index);
}

/* The mark's record is not there, or somebody has cut the file. */
static int refuse_end(const struct reading *reading, uint64_t number, uint64_t index,
                      struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];

    segment_name(number, name);
    return error_set(err, HF_EIO,
                     "%s/%s is damaged or missing from entry %" PRIu64 " on, which had been "
                     "acknowledged: restore the directory from a backup",
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

/* The mark is durable before the first segment is made, and never removed: no crash leaves a log without it. */
static int refuse_unmarked(const struct reading *reading, struct error_text *err)
{
    return error_set(err, HF_EIO,
                     "%s/" END_FILE ", which says how far the log goes, is missing beside a log: "
                     "restore the directory from a backup",
                     reading->journal->directory->path);
}

static int refuse_old(const struct reading *reading, const struct found *found,
                      struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];

    segment_name(found->number, name);
    return error_set(err, HF_EIO,
                     "%s/%s was written by a holdfastd from before 0.1.0 (log format 1; this is "
                     "2): start that version on it, or this one with an empty directory",
                     reading->journal->directory->path, name);
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
    const struct directory *directory = reading->journal->directory;
    const struct disk *disk = directory->disk;
    char name[SEGMENT_NAME_SIZE];
    uint64_t size = 0;
    int file = -1, failure;

    segment_name(found->number, name);
    failure = disk->open(disk, directory->handle, name, DISK_FOR_READING, &file);
    if (!failure)
        failure = disk->size(disk, file, &size);
    found->size = only_header && size > BLOCK ? BLOCK : (size_t)size;
    found->bytes = malloc(found->size + 1);
    if (!failure && !found->bytes)
        failure = ENOMEM;
    if (!failure)
        failure = disk->read(disk, file, found->bytes, found->size, 0, &found->size);
    if (file >= 0)
        disk->close(disk, file);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/%s", directory->path, name);
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
    bool whole = result == HF_OK && found->size >= BLOCK &&
                 crc32c(0, block, SEGMENT_SUMMED) == get_u32(block + SEGMENT_SUMMED);

    if (whole && get_u64(block) == SEGMENT_MAGIC_OLD)
        result = refuse_old(reading, found, err);
    if (whole && get_u64(block) == SEGMENT_MAGIC) {
        found->begun = true;
        found->first = get_u64(block + 8);
        found->fresh = get_u64(block + 16) & SEGMENT_FRESH;
        found->group = get_u64(block + 24);
    }
    if (result == HF_OK && found->size >= BLOCK &&
        crc32c(0, block + SALT_AT, SALT_SUMMED) == get_u32(block + SALT_AT + SALT_SUMMED)) {
        found->salted = true;
        found->salt = get_u64(block + SALT_AT);
        found->made = get_u64(block + SALT_AT + 16);
        if (get_u64(block + SALT_AT + 8) != found->number)
            result = refuse(reading, found, 0, err);
    }
    found->begun = found->begun && found->salted;
    unload_segment(found);
    return result;
}

/* ---- records ---------------------------------------------------------------------------------- */

bool segment_record_at(const struct found *found, size_t at, struct placed *ret_placed)
{
    const unsigned char *header = found->bytes + at;
    size_t size;

    if (found->size < at + RECORD_HEADER)
        return false;
    size = get_u32(header + 4);
    if (size > JOURNAL_RECORD_MAX || size > found->size - at - RECORD_HEADER)
        return false;
    if (crc32c(0, header + 4, RECORD_HEADER - 4 + size) != get_u32(header) &&
        !SWITCHED(SWITCH_TORN_RECORD))
        return false;
    ret_placed->record = (struct journal_record){.index = get_u64(header + 8),
                                                 .term = get_u64(header + 16),
                                                 .chain = get_u64(header + 40),
                                                 .commit = get_u64(header + 48),
                                                 .type = header[60],
                                                 .bytes = header + RECORD_HEADER,
                                                 .size = size};
    ret_placed->group = get_u64(header + 24);
    ret_placed->left = get_u32(header + 56);
    ret_placed->checksum = get_u32(header);
    return ret_placed->record.index > 0 && (!found->salted || get_u64(header + 32) == found->salt);
}

/* Behind what is damaged, a record of a group that was begun after it; [J2]. */
static bool has_later_group(const struct found *found, size_t at, uint64_t damaged)
{
    struct placed placed;

    for (at = round_up(at, BLOCK); at < found->size; at += BLOCK)
        if (segment_record_at(found, at, &placed) && placed.group > damaged)
            return true;
    return false;
}

static int tell(struct reading *reading, const struct found *found, const struct placed *placed,
                size_t at, struct error_text *err)
{
    const struct journal_record *record = &placed->record;
    struct places *places = &reading->journal->places;
    const struct place place = {record->index, found->number, found->salt, at};
    int result = places_reserve(places, 0, err);

    if (result != HF_OK)
        return result;
    if (reading->any && record->index > reading->next)
        return refuse(reading, found, reading->next, err);
    if (!reading->any)
        reading->segment = found->number;
    reading->any = true;
    reading->next = record->index + 1;
    reading->end = (struct end){.segment = found->number,
                                .group = placed->group,
                                .index = record->index,
                                .checksum = placed->checksum};
    if (reading->mark.known && end_is_same(&reading->end, &reading->mark))
        reading->reached = true;
    places_add(places, &place);
    return reading->fn(reading->context, record, err);
}

/* Those that belong together. Afterwards last is the last of them, and ret_at the place behind it. */
static int read_groups(struct reading *reading, struct found *found, struct placed *last,
                       size_t *ret_at, struct error_text *err)
{
    struct placed placed;
    size_t at = BLOCK;
    int result = HF_OK;

    found->end = BLOCK;
    while (result == HF_OK && segment_record_at(found, at, &placed)) {
        if (last->left > 0 ? placed.group != last->group || placed.left != last->left - 1
                           : placed.group != last->group + 1)
            break;
        if (at == BLOCK && placed.record.index != found->first)
            break;
        result = tell(reading, found, &placed, at, err);
        *last = placed;
        at += round_up(RECORD_HEADER + placed.record.size, RECORD_STEP);
        found->end = round_up(at, BLOCK);
        if (last->left == 0)
            at = found->end;
    }
    *ret_at = at;
    return result;
}

/* Behind a mark that is not open nothing was written any more: what is there was dropped, and told of, before. */
static bool is_marked(const struct reading *reading, const struct found *found)
{
    return reading->mark.known && !reading->mark.open && reading->mark.segment == found->number &&
           end_is_same(&reading->end, &reading->mark);
}

static int judge(struct reading *reading, const struct found *found, enum tail tail, size_t at,
                 struct error_text *err)
{
    if (tail == TAIL_DAMAGED)
        return refuse(reading, found, reading->any ? reading->next : 1, err);
    if (tail == TAIL_TORN)
        reading->journal->torn = (struct journal_torn){found->number, at, tail_bytes(found, at)};
    return HF_OK;
}

static int read_records(struct reading *reading, struct found *found, bool is_last,
                        struct error_text *err)
{
    struct placed last = {.group = found->group - 1};
    size_t at;
    int result;

    if (reading->any && found->group != reading->group + 1)
        return gap(reading, found, err);
    result = read_groups(reading, found, &last, &at, err);
    if (result != HF_OK)
        return result;
    reading->group = last.group;
    if (has_later_group(found, at, last.left > 0 ? last.group : last.group + 1))
        return refuse(reading, found, reading->any ? reading->next : found->first, err);
    if (!is_last || is_marked(reading, found))
        return HF_OK;
    /* What we shorten is marked before, and the mark not open. */
    if (reading->mark.known && reading->mark.segment <= found->number && found->size < found->made)
        return refuse_end(reading, found->number, reading->any ? reading->next : found->first, err);
    return judge(reading, found, tail_judge(found, at, &last), at, err);
}

/* The header is not whole: it was written together with the first group, so there must be no second. The salt
 * was there before: without it, there must be none at all. */
static int read_unbegun(struct reading *reading, const struct found *found, bool is_last,
                        struct error_text *err)
{
    uint64_t first = reading->any ? reading->group + 1 : 1;

    if (has_later_group(found, BLOCK, found->salted ? first : 0))
        return refuse(reading, found, reading->any ? reading->next : 1, err);
    return is_last ? judge(reading, found, tail_judge_unbegun(found), BLOCK, err) : HF_OK;
}

/* The last segment of a journal that is not empty is never removed, but by a reset. */
static int check_mark(const struct reading *reading, struct error_text *err)
{
    const struct end *mark = &reading->mark;

    if (!mark->known || mark->group == 0 || reading->reached || SWITCHED(SWITCH_END_UNCHECKED) ||
        (reading->any && reading->segment > mark->segment))
        return HF_OK;
    return refuse_end(reading, mark->segment,
                      reading->any && reading->next < mark->index ? reading->next : mark->index,
                      err);
}

/* ---- all of it -------------------------------------------------------------------------------- */

static int read_segments(struct reading *reading, size_t from, struct error_text *err)
{
    int result = HF_OK;

    for (size_t i = from; i < reading->count && result == HF_OK; i++) {
        struct found *found = &reading->found[i];

        result = load_segment(reading, found, false, err);
        if (result == HF_OK)
            result = found->begun ? read_records(reading, found, i >= reading->last, err)
                                  : read_unbegun(reading, found, i >= reading->last, err);
        unload_segment(found);
    }
    return result == HF_OK ? check_mark(reading, err) : result;
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
    int result = end_load(journal->directory, &reading.mark, err);

    if (result == HF_OK)
        result = directory_each(journal->directory, note_segment, &reading, err);
    if (result == HF_OK && reading.count > 0 && !reading.mark.known)
        result = refuse_unmarked(&reading, err);
    if (reading.count > 0)
        qsort(reading.found, reading.count, sizeof *reading.found, compare);
    for (size_t i = 0; i < reading.count && result == HF_OK; i++) {
        result = read_header(&reading, &reading.found[i], err);
        if (reading.found[i].begun && reading.found[i].fresh)
            from = i;
        if (reading.mark.group == 0 && reading.found[i].number <= reading.mark.segment)
            from = i + 1;
        if (reading.found[i].begun)
            reading.last = i;
        journal->next_number = reading.found[i].number + 1;
    }
    if (result == HF_OK)
        result = read_segments(&reading, from, err);
    if (result == HF_OK)
        result = sort_out(&reading, from, err);
    journal->group_number = reading.group;
    journal->end = reading.end;
    if (journal->next_number <= reading.mark.segment) /* a crash may bring back what was void */
        journal->next_number = reading.mark.segment + 1;
    if (!reading.any) /* whatever there is goes */
        journal->end.segment = journal->next_number - 1;
    journal->marked = reading.mark;
    free(reading.found);
    return result;
}
