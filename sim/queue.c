#include "sim/queue.h"

#include "base/error.h"

#include <stdlib.h>

static bool before(const struct event *a, const struct event *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

static void put(struct queue *queue, const struct event *event)
{
    size_t at = queue->count++;
    struct event added = *event;

    if (queue->count > queue->capacity) {
        queue->capacity = queue->capacity ? 2 * queue->capacity : 256;
        queue->heap = realloc(queue->heap, queue->capacity * sizeof *queue->heap);
        INVARIANT(queue->heap != NULL);
    }
    while (at > 0 && before(&added, &queue->heap[(at - 1) / 2])) {
        queue->heap[at] = queue->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue->heap[at] = added;
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
    struct event last;
    size_t at = 0;

    if (queue->count == 0)
        return false;
    *ret_event = queue->heap[0];
    last = queue->heap[--queue->count];
    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= queue->count)
            break;
        if (child + 1 < queue->count && before(&queue->heap[child + 1], &queue->heap[child]))
            child++;
        if (!before(&queue->heap[child], &last))
            break;
        queue->heap[at] = queue->heap[child];
        at = child;
    }
    if (queue->count > 0)
        queue->heap[at] = last;
    return true;
}

void queue_free(struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        free(queue->heap[i].data);
    free(queue->heap);
}
