/* index.c: see index.h. */
#include "core/index.h"

#include "base/error.h"
#include "base/siphash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CELLS_MIN 64u
#define MOVES 8u /* cells of the old array that are dealt with by each change: more than it grows */
/* In the old array: not here any more, but others may be behind it. */
#define MOVED UINT32_MAX
#define HUGE_BYTES \
    ((size_t)4 << 20)              /* arrays from this size on have huge pages, if there are any */
#define SMALL_PAGE ((size_t)65536) /* the largest that a machine has, or a multiple of it */

static uint32_t hash_of(const struct index *index, uint32_t slot)
{
    return ((struct index_link *)slab_at(index->slab, slot))->hash;
}

/* calloc: large arrays come as zero pages, and cost nothing until they are used. They are used all over, so
 * that with small pages each look would find neither its page nor where that is. */
static struct index_cells cells_new(uint32_t capacity)
{
    size_t size = capacity * sizeof(struct index_cell);
    char *cells = core_alloc(size);

    if (size >= HUGE_BYTES) {
        size_t before = -(uintptr_t)cells % SMALL_PAGE;

        madvise(cells + before, (size - before) / SMALL_PAGE * SMALL_PAGE, MADV_HUGEPAGE);
    }
    return (struct index_cells){(struct index_cell *)(void *)cells, capacity};
}

void index_init(struct index *index, struct slab *slab)
{
    memset(index, 0, sizeof *index);
    index->slab = slab;
    index->cells = cells_new(CELLS_MIN);
}

void index_free(struct index *index)
{
    free(index->cells.at);
    free(index->old.at);
    memset(index, 0, sizeof *index);
}

static uint32_t after(const struct index_cells *cells, uint32_t position)
{
    return (position + 1) & (cells->capacity - 1);
}

static void put(struct index_cells *cells, struct index_cell cell)
{
    uint32_t position = cell.hash & (cells->capacity - 1);

    while (cells->at[position].slot != 0)
        position = after(cells, position);
    cells->at[position] = cell;
}

/* Moves a few cells from the old array to the new one. */
static void move_some(struct index *index)
{
    struct index_cells *old = &index->old;

    if (!old->at)
        return;
    for (uint32_t i = 0; i < MOVES && index->moved < old->capacity; i++, index->moved++) {
        struct index_cell *cell = &old->at[index->moved];

        if (cell->slot == 0 || cell->slot == MOVED)
            continue;
        put(&index->cells, *cell);
        cell->slot = MOVED;
    }
    if (index->moved == old->capacity) {
        free(old->at);
        *old = (struct index_cells){NULL, 0};
    }
}

static void resize(struct index *index, uint32_t capacity)
{
    while (index->old.at) /* hardly ever: the last resizing is long over */
        move_some(index);
    index->old = index->cells;
    index->moved = 0;
    index->cells = cells_new(capacity);
}

void index_add(struct index *index, uint32_t slot, uint32_t hash)
{
    ((struct index_link *)slab_at(index->slab, slot))->hash = hash;
    if (++index->count > index->cells.capacity / 4 * 3) /* fuller, and probing takes long */
        resize(index, 2 * index->cells.capacity);
    move_some(index);
    put(&index->cells, (struct index_cell){hash, slot + 1});
}

/* Where the slot is, or the capacity. */
static uint32_t position_of(const struct index_cells *cells, uint32_t slot, uint32_t hash)
{
    uint32_t position = hash & (cells->capacity - 1);

    if (!cells->at)
        return 0;
    for (; cells->at[position].slot != 0; position = after(cells, position))
        if (cells->at[position].slot == slot + 1)
            return position;
    return cells->capacity;
}

/* Closes the gap: whoever stands behind it and was pushed away from it by others comes nearer. */
static void take_out(struct index_cells *cells, uint32_t gap)
{
    uint32_t mask = cells->capacity - 1;

    for (uint32_t i = after(cells, gap); cells->at[i].slot != 0; i = after(cells, i)) {
        uint32_t home = cells->at[i].hash & mask;

        /* How far it is from home, and how far the gap is: round the end of the array, too. */
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            cells->at[gap] = cells->at[i];
            gap = i;
        }
    }
    cells->at[gap].slot = 0;
}

void index_remove(struct index *index, uint32_t slot)
{
    uint32_t hash = hash_of(index, slot), position;

    move_some(index);
    position = position_of(&index->cells, slot, hash);
    if (position < index->cells.capacity) {
        take_out(&index->cells, position);
    } else {
        position = position_of(&index->old, slot, hash);
        INVARIANT(position < index->old.capacity);
        index->old.at[position].slot = MOVED;
    }
    index->count--;
    if (index->count < index->cells.capacity / 8 && index->cells.capacity > CELLS_MIN &&
        !index->old.at)
        resize(index, index->cells.capacity / 2);
}

static uint32_t probe(const struct index_cells *cells, uint32_t position, uint32_t hash)
{
    if (!cells->at)
        return SLAB_NONE;
    for (; cells->at[position].slot != 0; position = after(cells, position))
        if (cells->at[position].hash == hash && cells->at[position].slot != MOVED)
            return cells->at[position].slot - 1;
    return SLAB_NONE;
}

static uint32_t probe_first(const struct index_cells *cells, uint32_t hash)
{
    return probe(cells, hash & (cells->capacity - 1), hash);
}

uint32_t index_first(const struct index *index, uint32_t hash)
{
    uint32_t slot = probe_first(&index->cells, hash);

    return slot != SLAB_NONE ? slot : probe_first(&index->old, hash);
}

uint32_t index_next(const struct index *index, uint32_t slot)
{
    uint32_t hash = hash_of(index, slot);
    uint32_t position = position_of(&index->cells, slot, hash), next;

    if (position == index->cells.capacity) {
        position = position_of(&index->old, slot, hash);
        return probe(&index->old, after(&index->old, position), hash);
    }
    next = probe(&index->cells, after(&index->cells, position), hash);
    return next != SLAB_NONE ? next : probe_first(&index->old, hash);
}

uint32_t index_hash(const unsigned char key[16], const void *bytes, size_t size, uint32_t kind)
{
    uint64_t word = siphash(key, kind, bytes, size);

    return (uint32_t)(word ^ word >> 32);
}
