/* heap.h: things in the order of a number, the least of them first. Each knows where it is, so that its number can change and it
 * can leave.
 *
 * Four children to a node, in one line of the cache, where whoever looks for the least of them finds them.
 * The things themselves, which may be large and far apart, are not touched when others change places: what is where is noted in
 * an array beside the heap, by their slots. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of the thing. Begin with {0}. */
struct heap_node {
    uint32_t slot; /* plus 1; 0: it is not in a heap */
};

struct heap_entry {
    int64_t key;
    uint32_t slot;
};

/* Begin with {0}. */
struct heap {
    struct heap_entry *entries;
    uint32_t *places; /* by slot: where in entries; of a free one, the next that is free, plus 1 */
    struct heap_node **nodes; /* by slot */
    uint32_t count, capacity;
    uint32_t used; /* slots from here on were never used */
    uint32_t free; /* the first free one of those before, plus 1; 0: none is */
};

void heap_free(struct heap *heap);
/* Room for so many altogether. False: out of memory, and nothing has changed. */
bool heap_reserve(struct heap *heap, uint32_t count);
/* Puts it in, for which there must be room, or changes its key. */
void heap_set(struct heap *heap, struct heap_node *node, int64_t key);
/* Harmless if it is not there. */
void heap_remove(struct heap *heap, struct heap_node *node);

/* Takes out the first, of one that is not empty, and does not touch it: heap_popped is to be called for it before anything else is done
 * with it. So whoever takes many out need not wait for the memory of one after the other. */
struct heap_node *heap_pop(struct heap *heap);

static inline void heap_popped(struct heap_node *node)
{
    node->slot = 0;
}

static inline bool heap_has(const struct heap_node *node)
{
    return node->slot != 0;
}

/* NULL: it is empty. */
static inline struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count > 0 ? heap->nodes[heap->entries[0].slot] : NULL;
}

/* The least of all; INT64_MAX: it is empty. */
static inline int64_t heap_first_key(const struct heap *heap)
{
    return heap->count > 0 ? heap->entries[0].key : INT64_MAX;
}

#endif
