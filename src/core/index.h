/* index.h: finding records of a slab by a hash of their key.
 *
 * Cells of (hash, slot) in one array, probed one after the other, so that a name that is not there
 * costs one look into memory, and one that is there two. No single command pays for growing: a new array
 * is filled from the old one a few cells at a time, by whoever adds or removes meanwhile. Keys are
 * compared by the caller. */
#ifndef CORE_INDEX_H
#define CORE_INDEX_H

#include "core/slab.h"

#include <stdint.h>

/* What a record has to begin with. */
struct index_link {
    uint32_t hash;
};

struct index_cell {
    uint32_t hash;
    uint32_t slot; /* plus 1; 0: free, and nothing was ever put behind it */
};

struct index_cells {
    struct index_cell *at;
    uint32_t capacity; /* a power of two */
};

struct index {
    struct slab *slab; /* of the records */
    struct index_cells cells;
    struct index_cells old; /* its cells from `moved` on are not in `cells` yet */
    uint32_t moved;
    uint32_t count;
};

void index_init(struct index *index, struct slab *slab);
void index_free(struct index *index);
void index_add(struct index *index, uint32_t slot, uint32_t hash);
void index_remove(struct index *index, uint32_t slot);

/* for (slot = index_first(i, h); slot != SLAB_NONE; slot = index_next(i, slot)): records that have
 * this hash. */
uint32_t index_first(const struct index *index, uint32_t hash);
uint32_t index_next(const struct index *index, uint32_t slot);
/* This hash will be looked for soon. */
__attribute__((always_inline)) static inline void index_prefetch(const struct index *index,
                                                                 uint32_t hash)
{
    fetch(&index->cells.at[hash & (index->cells.capacity - 1)]);
    if (index->old.at)
        fetch(&index->old.at[hash & (index->old.capacity - 1)]);
}

/* SipHash-1-3 of the bytes under a key of 16 bytes: quick, and nobody without the key can make
 * names collide. */
uint32_t index_hash(const unsigned char key[16], const void *bytes, size_t size, uint32_t kind);

#endif
