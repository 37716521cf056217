/* slab.h: records of one size, named by small numbers instead of pointers.
 *
 * The lowest free slot is always taken first. So which slot a record gets depends only on which are
 * in use, not on the past: a table that was restored from a snapshot goes on giving the same slots
 * as the one it was taken from. Records never move. */
#ifndef CORE_SLAB_H
#define CORE_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLAB_NONE UINT32_MAX
#define SLAB_SLOTS_MAX (1u << 26) /* names, ids and owners of one size may share a slab */
#define SLAB_PAGE_SLOTS 1024u
#define SLAB_WORD_SLOTS 64u
#define SLAB_LEVELS 5 /* 64 slots to a word, 64 words to a word above it, and so on */

struct slab {
    size_t record_size;
    uint32_t used;  /* slots in use */
    uint32_t low;   /* all slots of the words before this one are in use */
    uint32_t pages; /* room for so many pages; a page with nothing in use is NULL */
    unsigned char **page;
    uint16_t *page_used;
    /* A set bit: the slot, or all slots below that bit, are in use. */
    uint64_t *full[SLAB_LEVELS];
};

void slab_init(struct slab *slab, size_t record_size);
void slab_free(struct slab *slab);

/* The lowest free slot, its record zeroed. The caller keeps to limits below SLAB_SLOTS_MAX. */
uint32_t slab_take(struct slab *slab);
/* This slot, its record zeroed; false if it is in use. For restoring. */
bool slab_take_at(struct slab *slab, uint32_t slot);
void slab_give(struct slab *slab, uint32_t slot);
bool slab_is_used(const struct slab *slab, uint32_t slot);
/* The first slot in use from `slot` on, or SLAB_NONE. */
uint32_t slab_next(const struct slab *slab, uint32_t slot);
/* No slot from here on is in use: the end of the last page that has one; 0: none has. */
uint32_t slab_top(const struct slab *slab);
/* No slot from here on was ever used. */
static inline uint32_t slab_end(const struct slab *slab)
{
    return slab->pages * SLAB_PAGE_SLOTS;
}

static inline void *slab_at(const struct slab *slab, uint32_t slot)
{
    return slab->page[slot / SLAB_PAGE_SLOTS] + slot % SLAB_PAGE_SLOTS * slab->record_size;
}

/* Brings a line of memory nearer. Inlined at any price: a compiler that looks at it as a function finds that it has no effect
 * and leaves the call out. And the address is a value of its own first: some CPUs ignore a prefetch that has to add one up. */
__attribute__((always_inline)) static inline void fetch(const void *address)
{
    __asm__ volatile("" : "+r"(address));
    __builtin_prefetch(address);
}

/* This slot will be looked at, and perhaps given back, soon: the record, which mostly lies across two lines of memory, and the bit
 * that says that it is in use. */
__attribute__((always_inline)) static inline void slab_prefetch(const struct slab *slab,
                                                                uint32_t slot)
{
    const char *record = slab_at(slab, slot);

    fetch(record);
    fetch(record + slab->record_size - 1);
    fetch(&slab->full[0][slot / SLAB_WORD_SLOTS]);
}

/* Memory, or the end of the process (core.h says why). */
void *core_alloc(size_t size);
void *core_realloc(void *memory, size_t size);

#endif
