#include "sim/queue.h"

#include "base/error.h"

#include <stdlib.h>

/* Without a jump, which nobody could foretell. */
static bool before(const struct planned *a, const struct planned *b)
{
    return (a->at_us < b->at_us) | ((a->at_us == b->at_us) & (a->order < b->order));
}

static void grow(struct queue *queue)
{
    size_t had = queue->capacity, now = had ? 2 * had : 256;

    queue->heap = realloc(queue->heap, now * sizeof *queue->heap);
    queue->events = realloc(queue->events, now * sizeof *queue->events);
    queue->free_slots = realloc(queue->free_slots, now * sizeof *queue->free_slots);
    INVARIANT(queue->heap != NULL && queue->events != NULL && queue->free_slots != NULL);
    for (size_t i = 0; i < now - had; i++) /* all others are in use */
        queue->free_slots[i] = (uint32_t)(had + i);
    queue->capacity = now;
}

/* To its place, from there on upwards. */
static void rise(struct queue *queue, size_t at, const struct planned *planned)
{
    while (at > 0 && before(planned, &queue->heap[(at - 1) / 2])) {
        queue->heap[at] = queue->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue->heap[at] = *planned;
}

static void put(struct queue *queue, const struct event *event)
{
    struct planned added = {.at_us = event->at_us, .order = event->order};
    size_t at;

    if (queue->count == queue->capacity)
        grow(queue);
    added.slot = queue->free_slots[queue->capacity - queue->count - 1];
    queue->events[added.slot] = *event;
    at = queue->count++;
    rise(queue, at, &added);
}

void queue_push(struct queue *queue, const struct event *event)
{
    struct event added = *event;

    added.order = ++queue->order;
    put(queue, &added);
}

void queue_postpone(struct queue *queue, const struct event *event, int64_t at_us)
{
    struct event later = *event;

    later.at_us = at_us;
    put(queue, &later);
}

bool queue_pop(struct queue *queue, struct event *ret_event)
{
    struct planned last;
    uint32_t slot;
    size_t at = 0, child;

    if (queue->count == 0)
        return false;
    slot = queue->heap[0].slot;
    *ret_event = queue->events[slot];
    last = queue->heap[--queue->count];
    queue->free_slots[queue->capacity - queue->count - 1] = slot;
    /* The last one comes from the bottom, and most often goes back there: it is not asked for on the way. */
    for (child = 1; child < queue->count; child = 2 * at + 1) {
        if (child + 1 < queue->count)
            child += before(&queue->heap[child + 1], &queue->heap[child]);
        queue->heap[at] = queue->heap[child];
        at = child;
    }
    rise(queue, at, &last);
    return true;
}

void queue_free(struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        free(queue->events[queue->heap[i].slot].data);
    free(queue->heap);
    free(queue->events);
    free(queue->free_slots);
}
