/* removing.c: what is not needed any more goes. */
#include "base/switches.h"
#include "journal/inside.h"

#include <errno.h>
#include <string.h>

int segment_remove(const struct directory *directory, uint64_t number, bool gently,
                   struct error_text *err)
{
    char name[SEGMENT_NAME_SIZE];
    int failure;

    segment_name(number, name);
    failure = directory->disk->remove(directory->disk, directory->handle, name, gently);
    if (failure && failure != ENOENT)
        return error_set_errno(err, HF_EIO, failure, "cannot remove %s/%s", directory->path, name);
    return HF_OK;
}

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

/* One after the other, and each durably before the next: a crash leaves an end of the log, and no gap in it. */
int journal_remove(const struct directory *directory, uint64_t needed, struct error_text *err)
{
    for (;;) {
        struct removing removing = {.oldest = needed};
        int result = directory_each(directory, look_for_oldest, &removing, err);

        if (result != HF_OK || removing.oldest == needed)
            return result;
        result = segment_remove(directory, removing.oldest, true, err);
        if (result == HF_OK && !SWITCHED(SWITCH_REMOVED_AT_ONCE))
            result = directory_sync(directory, err);
        if (result != HF_OK)
            return result;
    }
}

void journal_removed(struct journal *journal, uint64_t needed)
{
    size_t gone = 0;

    while (gone < journal->count && journal->segments[gone].number < needed)
        gone++;
    places_remove(&journal->places, needed);
    journal->count -= gone;
    if (gone > 0)
        memmove(journal->segments, journal->segments + gone,
                journal->count * sizeof *journal->segments);
}

/* All of it is void as soon as the mark says so: which of the files a crash leaves does not matter. */
int journal_reset(struct journal *journal, struct error_text *err)
{
    int result;

    journal->end =
        (struct end){.segment = journal->count > 0 ? journal->segments[journal->count - 1].number
                                                   : journal->end.segment};
    journal->resetting = true;
    places_clear(&journal->places);
    result = journal_mark_end(journal, false, err);
    if (result != HF_OK)
        return result;
    journal->resetting = false;
    journal_close_segment(journal);
    journal->fresh = true;
    journal->group_number = 0;
    while (journal->count > 0 && result == HF_OK) {
        result = segment_remove(journal->directory, journal->segments[journal->count - 1].number,
                                false, err);
        if (result == HF_OK)
            journal->count--;
    }
    return result;
}
