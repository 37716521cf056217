/* timers.c: see timers.h. */
#include "core/timers.h"

#include "base/error.h"
#include "core/slab.h"

#include <stdlib.h>
#include <string.h>

#define CHILDREN 4u
#define CAPACITY_MIN 64u

void timers_free(struct timers *timers)
{
    free(timers->heap);
    timers->heap = NULL;
    timers->count = timers->capacity = 0;
}

static bool before(const struct timer *a, const struct timer *b)
{
    return a->deadline_ms != b->deadline_ms ? a->deadline_ms < b->deadline_ms : a->what < b->what;
}

/* Children of node n: 4n-2 … 4n+1, since counting begins with 1. */
static uint32_t first_child(uint32_t node)
{
    return CHILDREN * node - (CHILDREN - 2);
}

static uint32_t parent(uint32_t node)
{
    return (node + CHILDREN - 2) / CHILDREN;
}

static void put(struct timers *timers, uint32_t at, struct timer timer)
{
    timers->heap[at] = timer;
    *timers->position(timers->context, timer_kind(&timer), timer_slot(&timer)) = at;
}

static void rise(struct timers *timers, uint32_t at, struct timer timer)
{
    while (at > 1 && before(&timer, &timers->heap[parent(at)])) {
        put(timers, at, timers->heap[parent(at)]);
        at = parent(at);
    }
    put(timers, at, timer);
}

static void sink(struct timers *timers, uint32_t at, struct timer timer)
{
    for (;;) {
        uint32_t child = first_child(at), least = child;

        if (child > timers->count)
            break;
        for (uint32_t i = child + 1; i < child + CHILDREN && i <= timers->count; i++)
            if (before(&timers->heap[i], &timers->heap[least]))
                least = i;
        if (!before(&timers->heap[least], &timer))
            break;
        put(timers, at, timers->heap[least]);
        at = least;
    }
    put(timers, at, timer);
}

/* `timer` belongs at `at`, or above, or below it. */
static void settle(struct timers *timers, uint32_t at, struct timer timer)
{
    if (at > 1 && before(&timer, &timers->heap[parent(at)]))
        rise(timers, at, timer);
    else
        sink(timers, at, timer);
}

void timers_set(struct timers *timers, enum timer_kind kind, uint32_t slot, int64_t deadline_ms)
{
    uint32_t at = *timers->position(timers->context, kind, slot);
    struct timer timer = {.deadline_ms = deadline_ms, .what = (uint32_t)kind << 24 | slot};

    if (at != TIMER_NONE) {
        settle(timers, at, timer);
        return;
    }
    if (timers->count + 2 > timers->capacity) {
        timers->capacity = timers->capacity ? 2 * timers->capacity : CAPACITY_MIN;
        timers->heap = core_realloc(timers->heap, timers->capacity * sizeof *timers->heap);
    }
    rise(timers, ++timers->count, timer);
}

void timers_clear(struct timers *timers, enum timer_kind kind, uint32_t slot)
{
    uint32_t *position = timers->position(timers->context, kind, slot);
    uint32_t at = *position;
    struct timer last;

    if (at == TIMER_NONE)
        return;
    *position = TIMER_NONE;
    last = timers->heap[timers->count--];
    if (at <= timers->count)
        settle(timers, at, last);
    if (timers->capacity > CAPACITY_MIN && timers->count < timers->capacity / 4) {
        timers->capacity /= 2;
        timers->heap = core_realloc(timers->heap, timers->capacity * sizeof *timers->heap);
    }
}

const struct timer *timers_first(const struct timers *timers)
{
    return timers->count ? &timers->heap[1] : NULL;
}
