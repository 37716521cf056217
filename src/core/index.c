/* index.c: see index.h. */
#include "core/index.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define CHAINS_MIN 64u

static struct index_link *link_at(const struct index *index, uint32_t slot)
{
    return slab_at(index->slab, slot);
}

void index_init(struct index *index, struct slab *slab)
{
    memset(index, 0, sizeof *index);
    index->slab = slab;
    index->capacity = index->chains = CHAINS_MIN;
    index->chain = core_realloc(NULL, CHAINS_MIN * sizeof *index->chain);
    memset(index->chain, 0xff, CHAINS_MIN * sizeof *index->chain);
}

void index_free(struct index *index)
{
    free(index->chain);
    memset(index, 0, sizeof *index);
}

/* Chains below `chains` minus the largest power of two in it have been split already. */
static uint32_t chain_of(const struct index *index, uint32_t hash)
{
    uint32_t power = 1u << (31 - __builtin_clz(index->chains));
    uint32_t chain = hash & (2 * power - 1);

    return chain < index->chains ? chain : hash & (power - 1);
}

static void prepend(struct index *index, uint32_t slot)
{
    uint32_t *head = &index->chain[chain_of(index, link_at(index, slot)->hash)];

    link_at(index, slot)->next = *head;
    *head = slot;
}

/* Takes all records of a chain and puts each where it belongs now. */
static void redistribute(struct index *index, uint32_t chain)
{
    uint32_t slot = index->chain[chain];

    index->chain[chain] = SLAB_NONE;
    while (slot != SLAB_NONE) {
        uint32_t next = link_at(index, slot)->next;

        prepend(index, slot);
        slot = next;
    }
}

static void split_one(struct index *index)
{
    uint32_t power = 1u << (31 - __builtin_clz(index->chains));

    if (index->chains == index->capacity) {
        index->capacity *= 2;
        index->chain = core_realloc(index->chain, index->capacity * sizeof *index->chain);
    }
    index->chain[index->chains++] = SLAB_NONE;
    redistribute(index, index->chains - 1 - power);
}

static void join_one(struct index *index)
{
    uint32_t last = index->chains - 1, slot = index->chain[last];

    index->chains--;
    while (slot != SLAB_NONE) {
        uint32_t next = link_at(index, slot)->next;

        prepend(index, slot);
        slot = next;
    }
    if (index->capacity / 4 >= index->chains && index->capacity > CHAINS_MIN) {
        index->capacity /= 2;
        index->chain = core_realloc(index->chain, index->capacity * sizeof *index->chain);
    }
}

void index_add(struct index *index, uint32_t slot, uint32_t hash)
{
    link_at(index, slot)->hash = hash;
    prepend(index, slot);
    index->count++;
    if (index->count > index->chains)
        split_one(index);
}

void index_remove(struct index *index, uint32_t slot)
{
    uint32_t *from = &index->chain[chain_of(index, link_at(index, slot)->hash)];

    while (*from != slot) {
        INVARIANT(*from != SLAB_NONE);
        from = &link_at(index, *from)->next;
    }
    *from = link_at(index, slot)->next;
    index->count--;
    if (index->count < index->chains / 4 && index->chains > CHAINS_MIN)
        join_one(index);
}

static uint32_t skip_others(const struct index *index, uint32_t slot, uint32_t hash)
{
    while (slot != SLAB_NONE && link_at(index, slot)->hash != hash)
        slot = link_at(index, slot)->next;
    return slot;
}

uint32_t index_first(const struct index *index, uint32_t hash)
{
    return skip_others(index, index->chain[chain_of(index, hash)], hash);
}

uint32_t index_next(const struct index *index, uint32_t slot)
{
    return skip_others(index, link_at(index, slot)->next, link_at(index, slot)->hash);
}

/* ---- SipHash-1-3 (Aumasson and Bernstein) ------------------------------------------------------ */

static uint64_t load64(const unsigned char *bytes, size_t size)
{
    uint64_t word = 0;

    memcpy(&word, bytes, size);
    return word;
}

static uint64_t rotate(uint64_t word, int by)
{
    return word << by | word >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

uint32_t index_hash(const unsigned char key[16], const void *bytes, size_t size, uint32_t kind)
{
    const unsigned char *at = bytes;
    uint64_t k0 = load64(key, 8), k1 = load64(key + 8, 8) ^ kind, word;
    uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                     k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    size_t left = size;

    for (; left >= 8; left -= 8, at += 8) {
        word = load64(at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)size << 56 | load64(at, left);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    word = v[0] ^ v[1] ^ v[2] ^ v[3];
    return (uint32_t)(word ^ word >> 32);
}
