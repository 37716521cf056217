/* timers.h: deadlines in order. What is due in the same millisecond of the cluster's clock shares a *moment*, which
 * lists it; the moments are a heap with four children to a node.
 *
 * Most leases live equally long, so that what one entry brings ends together: to set a deadline mostly adds to the
 * moment that was used last, to clear one leaves a gap in its moment's list, and neither looks at other records
 * unless a list grows or shrinks.
 *
 * A moment's list is put in the order of kind and slot when its time has come, so that all copies of the
 * table end it in one order. */
#ifndef CORE_TIMERS_H
#define CORE_TIMERS_H

#include "core/index.h"

#include <stdbool.h>

#define TIMER_NONE 0
#define MOMENT_FEW 2u

enum timer_kind {
    TIMER_LEASE = 1, /* a living lease expires, a remembered one is forgotten */
    TIMER_CLAIM,     /* a place's WAIT is over, a ghost vanishes */
    TIMER_LOCK       /* a once-record is forgotten */
};

/* Where a record's deadline is, for the record to keep. */
struct timer {
    uint32_t moment; /* its slot plus 1; TIMER_NONE: it has none */
    uint32_t at;     /* in the moment's list */
};

struct moment {
    struct index_link link;
    uint32_t at; /* in the heap */
    int64_t deadline_ms;
    uint32_t count;    /* listed, gaps included */
    uint32_t open;     /* without gaps */
    uint32_t first;    /* only gaps before it */
    uint32_t capacity; /* 0: they are in `few` */
    uint32_t highest;  /* that was ever added */
    bool unordered;
    union {
        uint32_t few[MOMENT_FEW]; /* kind in the upper byte, slot below; 0: a gap */
        uint32_t *many;
    };
};

struct due {
    int64_t deadline_ms;
    uint32_t moment;
};

struct timers {
    struct slab moments;
    struct index index; /* of the moments, by deadline */
    struct due *heap;   /* from 1 on */
    uint32_t count, capacity;
    uint32_t recent; /* the moment used last, plus 1; 0: it is gone */
    uint32_t *scratch;
    uint32_t scratch_capacity;
    unsigned char seed[16];
    void *context;
    /* NULL: it has none, and no room for one. */
    struct timer *(*of)(void *context, enum timer_kind kind, uint32_t slot);
};

void timers_init(struct timers *timers, const unsigned char seed[16]);
void timers_free(struct timers *timers);
/* They are at another address now. */
void timers_moved(struct timers *timers, void *context);
/* Sets or moves a deadline. */
void timers_set(struct timers *timers, enum timer_kind kind, uint32_t slot, int64_t deadline_ms);
/* Harmless if there is none. */
void timers_clear(struct timers *timers, enum timer_kind kind, uint32_t slot);
/* The earliest deadline, or -1. */
int64_t timers_next_ms(const struct timers *timers);
/* What ends first of what is due by then, or TIMER_NONE. */
uint32_t timers_due(struct timers *timers, int64_t now_ms);

/* When it ends; 0: it has no deadline. */
static inline int64_t timers_deadline(const struct timers *timers, const struct timer *timer)
{
    const struct moment *moment;

    if (timer->moment == TIMER_NONE)
        return 0;
    moment = slab_at(&timers->moments, timer->moment - 1);
    return moment->deadline_ms;
}

static inline const uint32_t *moment_list(const struct moment *moment)
{
    return moment->capacity ? moment->many : moment->few;
}

/* After timers_due has named one: what ends so many places later in the same moment, or TIMER_NONE if that is a gap or beyond
 * the end. */
static inline uint32_t timers_ahead(const struct timers *timers, uint32_t places)
{
    const struct moment *moment = slab_at(&timers->moments, timers->heap[1].moment);

    return places < moment->count - moment->first ? moment_list(moment)[moment->first + places]
                                                  : TIMER_NONE;
}

static inline enum timer_kind timer_kind(uint32_t what)
{
    return (enum timer_kind)(what >> 24);
}

static inline uint32_t timer_slot(uint32_t what)
{
    return what & 0xffffffu;
}

#endif
