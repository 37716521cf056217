/* range.c: reading some of the log while it is being written, for a follower that is behind what its leader has in memory. */
#include "journal/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define READ_AT_ONCE \
    (PLACES_STRIDE + ((size_t)16 << 10)) /* bytes: a stretch, and its last record */

struct range {
    const struct journal *journal;
    uint64_t next, to;
    size_t left; /* bytes that may still be given */
    bool any;    /* something was given */
    bool full;
    uint64_t cuts;
    int file; /* of that segment; -1: none is open */
    uint64_t segment;
    struct found window; /* what was read of it, */
    size_t window_at;    /* from here on */
    size_t capacity;
    journal_record_fn *fn;
    void *context;
};

static int refuse(const struct range *range, uint64_t index, int failure, struct error_text *err)
{
    const char *path = range->journal->directory->path;
    char name[SEGMENT_NAME_SIZE];

    segment_name(range->segment, name);
    if (failure)
        return error_set_errno(err, HF_EIO, failure, "cannot read %s/%s", path, name);
    return error_set(err, HF_EIO,
                     "%s/%s is damaged at entry %" PRIu64 ", which had been acknowledged: restore "
                     "the directory from a backup",
                     path, name, index);
}

static int gone(const struct range *range, struct error_text *err)
{
    return error_set(err, JOURNAL_GONE, "entry %" PRIu64 " is not in the log in %s any more",
                     range->next, range->journal->directory->path);
}

static void close_file(struct range *range)
{
    const struct disk *disk = range->journal->directory->disk;

    if (range->file >= 0)
        disk->close(disk, range->file);
    range->file = -1;
    range->window.size = 0;
}

static int open_file(struct range *range, const struct place *place, struct error_text *err)
{
    const struct directory *directory = range->journal->directory;
    char name[SEGMENT_NAME_SIZE];
    int failure;

    if (range->file >= 0 && range->segment == place->segment)
        return HF_OK;
    close_file(range);
    range->segment = place->segment;
    range->window.salted = true;
    range->window.salt = place->salt;
    segment_name(place->segment, name);
    failure = directory->disk->open(directory->disk, directory->handle, name, DISK_FOR_READING,
                                    &range->file);
    if (failure == ENOENT)
        return gone(range, err);
    return failure ? refuse(range, place->index, failure, err) : HF_OK;
}

/* From there on, at least so many bytes if the file has them. */
static int load(struct range *range, size_t at, size_t size, struct error_text *err)
{
    const struct disk *disk = range->journal->directory->disk;
    struct found *window = &range->window;
    int failure;

    if (size < READ_AT_ONCE)
        size = READ_AT_ONCE;
    if (size > range->capacity) {
        free(window->bytes);
        window->bytes = malloc(size);
        range->capacity = window->bytes ? size : 0;
        window->size = 0;
    }
    if (!window->bytes)
        return error_set(err, HF_ENOMEM, "out of memory");
    failure = disk->read(disk, range->file, window->bytes, size, at, &window->size);
    range->window_at = at;
    return failure ? refuse(range, range->next, failure, err) : HF_OK;
}

static bool has_loaded(const struct range *range, size_t at, size_t size)
{
    return at >= range->window_at && at + size <= range->window_at + range->window.size;
}

static int read_record(struct range *range, size_t at, uint64_t index, struct placed *ret_placed,
                       struct error_text *err)
{
    struct found *window = &range->window;
    size_t size;
    int result = HF_OK;

    if (!has_loaded(range, at, RECORD_HEADER))
        result = load(range, at, RECORD_HEADER, err);
    if (result != HF_OK)
        return result;
    if (!has_loaded(range, at, RECORD_HEADER))
        return refuse(range, index, 0, err);
    size = RECORD_HEADER + get_u32(window->bytes + (at - range->window_at) + 4);
    if (size <= RECORD_HEADER + JOURNAL_RECORD_MAX && !has_loaded(range, at, size))
        result = load(range, at, size, err);
    if (result != HF_OK)
        return result;
    if (!segment_record_at(window, at - range->window_at, ret_placed) ||
        ret_placed->record.index != index)
        return refuse(range, index, 0, err);
    return HF_OK;
}

static int give(struct range *range, const struct journal_record *record, struct error_text *err)
{
    size_t size = RECORD_HEADER + record->size;

    if (range->any && size > range->left) {
        range->full = true;
        return HF_OK;
    }
    range->any = true;
    range->left -= size < range->left ? size : range->left;
    range->next++;
    return range->fn(range->context, record, err);
}

static int read_stretch(struct range *range, const struct stretch *stretch, struct error_text *err)
{
    uint64_t end = stretch->end <= range->to ? stretch->end : range->to + 1;
    size_t at = stretch->place.at;
    int result = open_file(range, &stretch->place, err);

    for (uint64_t index = stretch->place.index; result == HF_OK && index < end && !range->full;
         index++) {
        struct placed placed;

        result = read_record(range, at, index, &placed, err);
        if (result != HF_OK)
            break;
        at += round_up(RECORD_HEADER + placed.record.size, RECORD_STEP);
        if (placed.left == 0)
            at = round_up(at, BLOCK);
        if (index >= range->next)
            result = give(range, &placed.record, err);
    }
    return result;
}

/* What was given is what was in effect together: after a cut no more is added to it. */
static int read_stretches(struct range *range, struct places *places, struct error_text *err)
{
    int result = HF_OK;

    while (result == HF_OK && range->next <= range->to && !range->full) {
        struct stretch stretch;
        enum places_found found = places_find(places, range->next, &stretch);

        if (found == PLACES_BEHIND || (range->any && found == PLACES_BELOW))
            break;
        if (found == PLACES_BELOW)
            return gone(range, err);
        if (range->any && stretch.cuts != range->cuts)
            break;
        range->cuts = stretch.cuts;
        result = read_stretch(range, &stretch, err);
        if (result == JOURNAL_GONE && range->any)
            return HF_OK;
    }
    return result;
}

int journal_read_range(struct journal *journal, uint64_t from, uint64_t to, size_t bytes_max,
                       journal_record_fn *fn, void *context, struct error_text *err)
{
    struct range range = {.journal = journal,
                          .next = from,
                          .to = to < UINT64_MAX ? to : UINT64_MAX - 1,
                          .left = bytes_max,
                          .file = -1,
                          .fn = fn,
                          .context = context};
    int result = read_stretches(&range, &journal->places, err);

    close_file(&range);
    free(range.window.bytes);
    return result;
}
