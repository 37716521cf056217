/* index.h: finding records of a slab by a hash of their key.
 *
 * Linear hashing: with each record that comes, one chain is split, so no single command pays for
 * growing; with each that goes, two may be joined again. Keys are compared by the caller. */
#ifndef CORE_INDEX_H
#define CORE_INDEX_H

#include "core/slab.h"

#include <stdint.h>

/* What a record has to begin with. */
struct index_link {
    uint32_t hash;
    uint32_t next;
};

struct index {
    struct slab *slab; /* of the records */
    uint32_t *chain;   /* first record of each chain */
    uint32_t chains, capacity, count;
};

void index_init(struct index *index, struct slab *slab);
void index_free(struct index *index);
void index_add(struct index *index, uint32_t slot, uint32_t hash);
void index_remove(struct index *index, uint32_t slot);

/* for (slot = index_first(i, h); slot != SLAB_NONE; slot = index_next(i, slot)): records that have
 * this hash. */
uint32_t index_first(const struct index *index, uint32_t hash);
uint32_t index_next(const struct index *index, uint32_t slot);

/* SipHash-1-3 of the bytes under a key of 16 bytes: quick, and nobody without the key can make
 * names collide. */
uint32_t index_hash(const unsigned char key[16], const void *bytes, size_t size, uint32_t kind);

#endif
