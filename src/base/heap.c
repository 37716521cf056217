#include "base/heap.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define CHILDREN 4
#define CACHE_LINE 64 /* of so many bytes, which is what four entries have */
#define BEFORE 3      /* entries that are not used before the first */
#define CAPACITY_LEAST 16
#define CAPACITY_MAX (UINT32_C(1) << 30)

_Static_assert(CHILDREN * sizeof(struct heap_entry) == CACHE_LINE, "four entries to a line");

static void free_entries(struct heap_entry *entries)
{
    if (entries)
        free(entries - BEFORE);
}

void heap_free(struct heap *heap)
{
    free_entries(heap->entries);
    free(heap->places);
    free(heap->nodes);
    *heap = (struct heap){0};
}

/* The first is not at the beginning of a line, so that its children, and all others', are. */
static struct heap_entry *make_entries(size_t capacity)
{
    struct heap_entry *memory =
        aligned_alloc(CACHE_LINE, (capacity + CHILDREN) * sizeof(struct heap_entry));

    /* cppcheck-suppress memleak ; free_entries knows where it begins */
    return memory ? memory + BEFORE : NULL;
}

/* Part of it may have grown when another cannot: that does no harm. */
static bool grow(struct heap *heap, size_t capacity)
{
    uint32_t *places = realloc(heap->places, capacity * sizeof *places);
    struct heap_node **nodes = realloc(heap->nodes, capacity * sizeof(struct heap_node *));
    struct heap_entry *entries = places && nodes ? make_entries(capacity) : NULL;

    if (places)
        heap->places = places;
    if (nodes)
        heap->nodes = nodes;
    if (!entries)
        return false;
    if (heap->count > 0)
        memcpy(entries, heap->entries, heap->count * sizeof *entries);
    free_entries(heap->entries);
    heap->entries = entries;
    return true;
}

bool heap_reserve(struct heap *heap, uint32_t count)
{
    uint32_t capacity = heap->capacity > 0 ? heap->capacity : CAPACITY_LEAST;

    if (count <= heap->capacity)
        return true;
    if (count > CAPACITY_MAX)
        return false;
    while (capacity < count)
        capacity *= 2;
    if (!grow(heap, capacity))
        return false;
    heap->capacity = capacity;
    return true;
}

static void put(struct heap *heap, uint32_t at, struct heap_entry entry)
{
    heap->entries[at] = entry;
    heap->places[entry.slot] = at;
}

/* From its place at `at`, which is free, towards the first. */
static void rise(struct heap *heap, uint32_t at, struct heap_entry entry)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / CHILDREN;

        if (heap->entries[parent].key <= entry.key)
            break;
        put(heap, at, heap->entries[parent]);
        at = parent;
    }
    put(heap, at, entry);
}

/* Of a full house without a branch: nobody could guess which way it goes. */
static uint32_t least_child(const struct heap *heap, uint32_t first)
{
    const struct heap_entry *of = heap->entries + first;
    uint32_t left = heap->count - first, least = 0, other = 2;

    if (left >= CHILDREN) {
        least += of[1].key < of[0].key;
        other += of[3].key < of[2].key;
        return first + (of[other].key < of[least].key ? other : least);
    }
    for (uint32_t i = 1; i < left; i++)
        if (of[i].key < of[least].key)
            least = i;
    return first + least;
}

static void sink(struct heap *heap, uint32_t at, struct heap_entry entry)
{
    for (;;) {
        uint32_t child = at * CHILDREN + 1;

        if (child >= heap->count)
            break;
        child = least_child(heap, child);
        if (heap->entries[child].key >= entry.key)
            break;
        put(heap, at, heap->entries[child]);
        at = child;
    }
    put(heap, at, entry);
}

static void settle(struct heap *heap, uint32_t at, struct heap_entry entry)
{
    if (at > 0 && heap->entries[(at - 1) / CHILDREN].key > entry.key)
        rise(heap, at, entry);
    else
        sink(heap, at, entry);
}

static uint32_t take_slot(struct heap *heap)
{
    uint32_t slot = heap->free - 1;

    if (heap->free == 0)
        return heap->used++;
    heap->free = heap->places[slot];
    return slot;
}

void heap_set(struct heap *heap, struct heap_node *node, int64_t key)
{
    uint32_t slot, at;

    if (!heap_has(node)) {
        INVARIANT(heap->count < heap->capacity);
        slot = take_slot(heap);
        heap->nodes[slot] = node;
        node->slot = slot + 1;
        rise(heap, heap->count++, (struct heap_entry){key, slot});
        return;
    }
    slot = node->slot - 1;
    at = heap->places[slot];
    if (heap->entries[at].key != key)
        settle(heap, at, (struct heap_entry){key, slot});
}

/* The slot's own is out of its place. */
static void leave(struct heap *heap, uint32_t slot)
{
    uint32_t at = heap->places[slot];

    heap->places[slot] = heap->free;
    heap->free = slot + 1;
    if (--heap->count > at)
        settle(heap, at, heap->entries[heap->count]);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    uint32_t slot = node->slot - 1;

    if (!heap_has(node))
        return;
    INVARIANT(slot < heap->used && heap->nodes[slot] == node);
    leave(heap, slot);
    node->slot = 0;
}

struct heap_node *heap_pop(struct heap *heap)
{
    uint32_t slot;

    INVARIANT(heap->count > 0);
    slot = heap->entries[0].slot;
    leave(heap, slot);
    return heap->nodes[slot];
}
