/* slab.c: see slab.h. Free slots are found by a tree of bits, 64 to a word, whose top is one word. */
#include "core/slab.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

void *core_alloc(size_t size)
{
    void *memory = calloc(1, size);

    if (!memory)
        error_out_of_memory(size);
    return memory;
}

void *core_realloc(void *memory, size_t size)
{
    void *larger = realloc(memory, size);

    if (!larger)
        error_out_of_memory(size);
    return larger;
}

void slab_init(struct slab *slab, size_t record_size)
{
    memset(slab, 0, sizeof *slab);
    slab->record_size = record_size;
}

void slab_free(struct slab *slab)
{
    for (uint32_t i = 0; i < slab->pages; i++)
        free(slab->page[i]);
    free(slab->page);
    free(slab->page_used);
    for (int level = 0; level < SLAB_LEVELS; level++)
        free(slab->full[level]);
    slab_init(slab, slab->record_size);
}

/* Words of one level that cover so many slots. */
static size_t level_words(uint32_t slots, int level)
{
    size_t words = slots;

    for (int i = 0; i <= level; i++)
        words = (words + SLAB_WORD_SLOTS - 1) / SLAB_WORD_SLOTS;
    return words;
}

/* Room for the pages up to this slot's, and for as many again as there were: the arrays about pages
 * are copied seldom. The pages themselves are made when they are used. */
static void add_pages(struct slab *slab, uint32_t slot)
{
    uint32_t pages = slot / SLAB_PAGE_SLOTS + 1, before = slab_end(slab), after;

    if (pages < 2 * slab->pages)
        pages = 2 * slab->pages;
    if (pages > SLAB_SLOTS_MAX / SLAB_PAGE_SLOTS)
        pages = SLAB_SLOTS_MAX / SLAB_PAGE_SLOTS;
    after = pages * SLAB_PAGE_SLOTS;
    INVARIANT(slot < after);
    slab->page = core_realloc(slab->page, pages * sizeof *slab->page);
    slab->page_used = core_realloc(slab->page_used, pages * sizeof *slab->page_used);
    for (uint32_t i = slab->pages; i < pages; i++) {
        slab->page[i] = NULL;
        slab->page_used[i] = 0;
    }
    for (int level = 0; level < SLAB_LEVELS; level++) {
        size_t old = level_words(before, level), new = level_words(after, level);

        slab->full[level] = core_realloc(slab->full[level], new * sizeof(uint64_t));
        memset(slab->full[level] + old, 0, (new - old) * sizeof(uint64_t));
    }
    slab->pages = pages;
}

static uint32_t lowest_free(struct slab *slab)
{
    uint32_t slot = 0;

    if (slab->used == slab_end(slab))
        return slab_end(slab);
    if (slab->full[0][slab->low] != UINT64_MAX) /* mostly: the tree is for when it is not */
        return slab->low * SLAB_WORD_SLOTS + (uint32_t)__builtin_ctzll(~slab->full[0][slab->low]);
    for (int level = SLAB_LEVELS - 1; level >= 0; level--) {
        uint64_t word = slab->full[level][slot];

        slot = slot * SLAB_WORD_SLOTS + (uint32_t)__builtin_ctzll(~word);
    }
    slab->low = slot / SLAB_WORD_SLOTS;
    return slot;
}

static void mark_used(struct slab *slab, uint32_t slot)
{
    for (int level = 0; level < SLAB_LEVELS; level++) {
        uint64_t *word = &slab->full[level][slot / SLAB_WORD_SLOTS];

        *word |= UINT64_C(1) << slot % SLAB_WORD_SLOTS;
        if (*word != UINT64_MAX)
            return;
        slot /= SLAB_WORD_SLOTS;
    }
}

static void mark_free(struct slab *slab, uint32_t slot)
{
    for (int level = 0; level < SLAB_LEVELS; level++) {
        uint64_t *word = &slab->full[level][slot / SLAB_WORD_SLOTS];
        bool was_full = *word == UINT64_MAX;

        *word &= ~(UINT64_C(1) << slot % SLAB_WORD_SLOTS);
        if (!was_full) /* the levels above know */
            return;
        slot /= SLAB_WORD_SLOTS;
    }
}

static void take(struct slab *slab, uint32_t slot)
{
    uint32_t page = slot / SLAB_PAGE_SLOTS;

    if (!slab->page[page]) /* as it comes: each record is zeroed when it is taken */
        slab->page[page] = core_realloc(NULL, SLAB_PAGE_SLOTS * slab->record_size);
    slab->page_used[page]++;
    slab->used++;
    mark_used(slab, slot);
    memset(slab_at(slab, slot), 0, slab->record_size);
}

uint32_t slab_take(struct slab *slab)
{
    uint32_t slot = lowest_free(slab);

    if (slot >= slab_end(slab))
        add_pages(slab, slot);
    take(slab, slot);
    return slot;
}

bool slab_take_at(struct slab *slab, uint32_t slot)
{
    if (slot >= slab_end(slab))
        add_pages(slab, slot);
    if (slab_is_used(slab, slot))
        return false;
    take(slab, slot);
    return true;
}

void slab_give(struct slab *slab, uint32_t slot)
{
    uint32_t page = slot / SLAB_PAGE_SLOTS;

    INVARIANT(slab_is_used(slab, slot));
    mark_free(slab, slot);
    if (slot / SLAB_WORD_SLOTS < slab->low)
        slab->low = slot / SLAB_WORD_SLOTS;
    slab->used--;
    slab->page_used[page]--;
    /* The first page stays, so that a table with little in it does not go back and forth. */
    if (slab->page_used[page] == 0 && page > 0) {
        free(slab->page[page]);
        slab->page[page] = NULL;
    }
}

bool slab_is_used(const struct slab *slab, uint32_t slot)
{
    return slot < slab_end(slab) &&
           slab->full[0][slot / SLAB_WORD_SLOTS] >> slot % SLAB_WORD_SLOTS & UINT64_C(1);
}

uint32_t slab_next(const struct slab *slab, uint32_t slot)
{
    while (slot < slab_end(slab)) {
        uint64_t word = slab->full[0][slot / SLAB_WORD_SLOTS] >> slot % SLAB_WORD_SLOTS;

        if (word)
            return slot + (uint32_t)__builtin_ctzll(word);
        slot = (slot / SLAB_WORD_SLOTS + 1) * SLAB_WORD_SLOTS;
        if (slot < slab_end(slab) && slab->page_used[slot / SLAB_PAGE_SLOTS] == 0)
            slot = (slot / SLAB_PAGE_SLOTS + 1) * SLAB_PAGE_SLOTS;
    }
    return SLAB_NONE;
}

uint32_t slab_top(const struct slab *slab)
{
    uint32_t page = slab->pages;

    while (page > 0 && slab->page_used[page - 1] == 0)
        page--;
    return page * SLAB_PAGE_SLOTS;
}
