/* timers.h: deadlines in order. A heap with four children to a node, of what is due when; each
 * record knows its position, so that a deadline can be moved or taken out again.
 *
 * Equal deadlines are in the order of kind and slot, so that all copies end them in one order. */
#ifndef CORE_TIMERS_H
#define CORE_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

#define TIMER_NONE 0 /* the position of a record that has no deadline; others count from 1 */

enum timer_kind {
    TIMER_LEASE = 1, /* a living lease expires, a remembered one is forgotten */
    TIMER_CLAIM,     /* a place's WAIT is over, a ghost vanishes */
    TIMER_LOCK       /* a once-record is forgotten */
};

struct timer {
    int64_t deadline_ms;
    uint32_t what; /* kind in the upper byte, slot below */
};

struct timers {
    struct timer *heap; /* from 1 on */
    uint32_t count, capacity;
    void *context;
    /* Where the record keeps its position. */
    uint32_t *(*position)(void *context, enum timer_kind kind, uint32_t slot);
};

void timers_free(struct timers *timers);
/* Sets or moves a deadline. */
void timers_set(struct timers *timers, enum timer_kind kind, uint32_t slot, int64_t deadline_ms);
/* Harmless if there is none. */
void timers_clear(struct timers *timers, enum timer_kind kind, uint32_t slot);
/* The first, or NULL. */
const struct timer *timers_first(const struct timers *timers);

static inline enum timer_kind timer_kind(const struct timer *timer)
{
    return (enum timer_kind)(timer->what >> 24);
}

static inline uint32_t timer_slot(const struct timer *timer)
{
    return timer->what & 0xffffffu;
}

#endif
