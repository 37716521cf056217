/* timers.c: see timers.h. */
#include "core/timers.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define CHILDREN 4u
#define CAPACITY_MIN 64u
#define MANY_MIN 16u
#define SPARSE 8u           /* less than this part of a list in use: it shrinks */
#define SCRATCH_KEPT 65536u /* items; more is given back at once */
#define RADIX_MIN 48u       /* fewer are put in order by insertion */
#define HASH_MOMENT 5u

void timers_init(struct timers *timers, const unsigned char seed[16])
{
    memset(timers, 0, sizeof *timers);
    memcpy(timers->seed, seed, sizeof timers->seed);
    slab_init(&timers->moments, sizeof(struct moment));
    index_init(&timers->index, &timers->moments);
}

static struct moment *moment_at(const struct timers *timers, uint32_t slot)
{
    return slab_at(&timers->moments, slot);
}

static uint32_t *list_of(struct moment *moment)
{
    return moment->capacity ? moment->many : moment->few;
}

void timers_free(struct timers *timers)
{
    for (uint32_t i = slab_next(&timers->moments, 0); i != SLAB_NONE;
         i = slab_next(&timers->moments, i + 1))
        if (moment_at(timers, i)->capacity)
            free(moment_at(timers, i)->many);
    index_free(&timers->index);
    slab_free(&timers->moments);
    free(timers->heap);
    free(timers->scratch);
    timers->heap = NULL;
    timers->scratch = NULL;
    timers->count = timers->capacity = timers->scratch_capacity = timers->recent = 0;
}

void timers_moved(struct timers *timers, void *context)
{
    timers->index.slab = &timers->moments;
    timers->context = context;
}

/* ---- the heap --------------------------------------------------------------------------------- */

/* Children of node n: 4n-2 … 4n+1, since counting begins with 1. */
static uint32_t first_child(uint32_t node)
{
    return CHILDREN * node - (CHILDREN - 2);
}

static uint32_t parent(uint32_t node)
{
    return (node + CHILDREN - 2) / CHILDREN;
}

static void put(struct timers *timers, uint32_t at, struct due due)
{
    timers->heap[at] = due;
    moment_at(timers, due.moment)->at = at;
}

static void rise(struct timers *timers, uint32_t at, struct due due)
{
    while (at > 1 && due.deadline_ms < timers->heap[parent(at)].deadline_ms) {
        put(timers, at, timers->heap[parent(at)]);
        at = parent(at);
    }
    put(timers, at, due);
}

static void sink(struct timers *timers, uint32_t at, struct due due)
{
    for (;;) {
        uint32_t child = first_child(at), least = child;

        if (child > timers->count)
            break;
        for (uint32_t i = child + 1; i < child + CHILDREN && i <= timers->count; i++)
            if (timers->heap[i].deadline_ms < timers->heap[least].deadline_ms)
                least = i;
        if (timers->heap[least].deadline_ms >= due.deadline_ms)
            break;
        put(timers, at, timers->heap[least]);
        at = least;
    }
    put(timers, at, due);
}

static void heap_add(struct timers *timers, struct due due)
{
    if (timers->count + 2 > timers->capacity) {
        timers->capacity = timers->capacity ? 2 * timers->capacity : CAPACITY_MIN;
        timers->heap = core_realloc(timers->heap, timers->capacity * sizeof *timers->heap);
    }
    rise(timers, ++timers->count, due);
}

static void heap_remove(struct timers *timers, uint32_t at)
{
    struct due last = timers->heap[timers->count--];

    if (at <= timers->count) {
        if (at > 1 && last.deadline_ms < timers->heap[parent(at)].deadline_ms)
            rise(timers, at, last);
        else
            sink(timers, at, last);
    }
    if (timers->capacity > CAPACITY_MIN && timers->count < timers->capacity / 4) {
        timers->capacity /= 2;
        timers->heap = core_realloc(timers->heap, timers->capacity * sizeof *timers->heap);
    }
}

/* ---- moments ---------------------------------------------------------------------------------- */

static uint32_t moment_make(struct timers *timers, int64_t deadline_ms, uint32_t hash)
{
    uint32_t slot = slab_take(&timers->moments);

    moment_at(timers, slot)->deadline_ms = deadline_ms;
    index_add(&timers->index, slot, hash);
    heap_add(timers, (struct due){deadline_ms, slot});
    return slot;
}

static uint32_t moment_of(struct timers *timers, int64_t deadline_ms)
{
    uint32_t slot, hash;

    if (timers->recent && moment_at(timers, timers->recent - 1)->deadline_ms == deadline_ms)
        return timers->recent - 1;
    hash = index_hash(timers->seed, &deadline_ms, sizeof deadline_ms, HASH_MOMENT);
    slot = index_first(&timers->index, hash);
    while (slot != SLAB_NONE && moment_at(timers, slot)->deadline_ms != deadline_ms)
        slot = index_next(&timers->index, slot);
    if (slot == SLAB_NONE)
        slot = moment_make(timers, deadline_ms, hash);
    timers->recent = slot + 1;
    return slot;
}

static void moment_end(struct timers *timers, uint32_t slot)
{
    struct moment *moment = moment_at(timers, slot);

    heap_remove(timers, moment->at);
    index_remove(&timers->index, slot);
    if (moment->capacity)
        free(moment->many);
    if (timers->recent == slot + 1)
        timers->recent = 0;
    slab_give(&timers->moments, slot);
}

static void close_gaps(const struct timers *timers, struct moment *moment)
{
    uint32_t *list = list_of(moment), count = 0;

    for (uint32_t i = moment->first; i < moment->count; i++) {
        if (!list[i])
            continue;
        list[count] = list[i];
        timers->of(timers->context, timer_kind(list[i]), timer_slot(list[i]))->at = count++;
    }
    moment->count = count;
    moment->first = 0;
}

/* The list is full: half of it are gaps, or it grows. */
static void make_room(struct timers *timers, struct moment *moment)
{
    uint32_t *many;

    if (moment->capacity && moment->open <= moment->count / 2) {
        close_gaps(timers, moment);
        return;
    }
    if (moment->capacity) {
        moment->capacity *= 2;
        moment->many = core_realloc(moment->many, moment->capacity * sizeof *many);
        return;
    }
    many = core_realloc(NULL, MANY_MIN * sizeof *many);
    memcpy(many, moment->few, sizeof moment->few);
    moment->many = many;
    moment->capacity = MANY_MIN;
}

/* Most of what was in it has gone elsewhere, as leases do that are renewed: what stays is not to hold their memory. */
static void shrink(struct timers *timers, struct moment *moment)
{
    close_gaps(timers, moment);
    moment->capacity = moment->capacity / 4 > MANY_MIN ? moment->capacity / 4 : MANY_MIN;
    moment->many = core_realloc(moment->many, moment->capacity * sizeof *moment->many);
}

static void add(struct timers *timers, uint32_t slot, uint32_t what, struct timer *timer)
{
    struct moment *moment = moment_at(timers, slot);
    uint32_t *list;

    if (moment->count == (moment->capacity ? moment->capacity : MOMENT_FEW))
        make_room(timers, moment);
    list = list_of(moment);
    if (what > moment->highest)
        moment->highest = what;
    else
        moment->unordered = true;
    *timer = (struct timer){slot + 1, moment->count};
    list[moment->count++] = what;
    moment->open++;
}

static void take_out(struct timers *timers, struct timer *timer)
{
    struct moment *moment = moment_at(timers, timer->moment - 1);

    list_of(moment)[timer->at] = 0;
    if (--moment->open == 0)
        moment_end(timers, timer->moment - 1);
    else if (moment->capacity > MANY_MIN && moment->open < moment->capacity / SPARSE)
        shrink(timers, moment);
    timer->moment = TIMER_NONE;
}

void timers_set(struct timers *timers, enum timer_kind kind, uint32_t slot, int64_t deadline_ms)
{
    struct timer *timer = timers->of(timers->context, kind, slot);

    INVARIANT(timer);
    if (timer->moment) {
        if (moment_at(timers, timer->moment - 1)->deadline_ms == deadline_ms)
            return;
        take_out(timers, timer);
    }
    add(timers, moment_of(timers, deadline_ms), (uint32_t)kind << 24 | slot, timer);
}

void timers_clear(struct timers *timers, enum timer_kind kind, uint32_t slot)
{
    struct timer *timer = timers->of(timers->context, kind, slot);

    if (timer && timer->moment)
        take_out(timers, timer);
}

/* ---- what is due ------------------------------------------------------------------------------ */

static void insertion_sort(uint32_t *items, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t item = items[i], at = i;

        for (; at > 0 && items[at - 1] > item; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

/* By one byte of the items. False: they all have the same, and nothing was done. */
static bool radix_pass(const uint32_t *from, uint32_t *to, uint32_t count, unsigned shift)
{
    uint32_t starts[256] = {0}, sum = 0;

    for (uint32_t i = 0; i < count; i++)
        starts[from[i] >> shift & 0xff]++;
    if (starts[from[0] >> shift & 0xff] == count)
        return false;
    for (int i = 0; i < 256; i++) {
        uint32_t items = starts[i];

        starts[i] = sum;
        sum += items;
    }
    for (uint32_t i = 0; i < count; i++)
        to[starts[from[i] >> shift & 0xff]++] = from[i];
    return true;
}

static void reserve_scratch(struct timers *timers, uint32_t items)
{
    if (items <= timers->scratch_capacity)
        return;
    timers->scratch_capacity = items > CAPACITY_MIN ? items : CAPACITY_MIN;
    timers->scratch =
        core_realloc(timers->scratch, timers->scratch_capacity * sizeof *timers->scratch);
}

static void trim_scratch(struct timers *timers)
{
    if (timers->scratch_capacity <= SCRATCH_KEPT)
        return;
    free(timers->scratch);
    timers->scratch = NULL;
    timers->scratch_capacity = 0;
}

/* What is not a gap, in scratch. */
static void gather(const struct timers *timers, const struct moment *moment)
{
    const uint32_t *list = moment_list(moment);
    uint32_t count = 0;

    for (uint32_t i = moment->first; i < moment->count; i++)
        if (list[i])
            timers->scratch[count++] = list[i];
    INVARIANT(count == moment->open);
}

/* Without gaps; its records know their new places. */
static void rewrite(struct timers *timers, struct moment *moment, const uint32_t *whats)
{
    uint32_t *list = list_of(moment);

    for (uint32_t i = 0; i < moment->open; i++) {
        list[i] = whats[i];
        timers->of(timers->context, timer_kind(whats[i]), timer_slot(whats[i]))->at = i;
    }
    moment->count = moment->open;
    moment->first = 0;
}

/* A million at once must not take long: in linear time. */
static void put_in_order(struct timers *timers, struct moment *moment)
{
    uint32_t *items, *other, count = moment->open;

    reserve_scratch(timers, 2 * count);
    gather(timers, moment);
    items = timers->scratch;
    other = items + count;
    if (count < RADIX_MIN) {
        insertion_sort(items, count);
    } else {
        for (unsigned shift = 0; shift < 32; shift += 8) {
            if (radix_pass(items, other, count, shift)) {
                uint32_t *sorted = other;

                other = items;
                items = sorted;
            }
        }
    }
    rewrite(timers, moment, items);
    moment->unordered = false;
    trim_scratch(timers);
}

int64_t timers_next_ms(const struct timers *timers)
{
    return timers->count ? timers->heap[1].deadline_ms : -1;
}

uint32_t timers_due(struct timers *timers, int64_t now_ms)
{
    struct moment *moment;

    if (timers->count == 0 || timers->heap[1].deadline_ms > now_ms)
        return TIMER_NONE;
    moment = moment_at(timers, timers->heap[1].moment);
    if (moment->unordered)
        put_in_order(timers, moment);
    while (list_of(moment)[moment->first] == 0) /* none is open: the moment would be gone */
        moment->first++;
    return list_of(moment)[moment->first];
}
