/* pending.c: what a server owes us, in the order in which its answers come: a ring that grows. */
#include "base/clock.h"
#include "engines/holdfast/store.h"

#include <stdlib.h>

#define PENDING_MIN 16u /* a power of two, as are all capacities of the ring */

struct pending *pending_at(const struct pendings *pending, size_t index)
{
    return &pending->at[(pending->first + index) & (pending->capacity - 1)];
}

bool pending_room(struct pendings *pending)
{
    size_t capacity = pending->capacity ? 2 * pending->capacity : PENDING_MIN;
    struct pending *grown;

    if (pending->count < pending->capacity)
        return true;
    grown = malloc(capacity * sizeof *grown);
    if (!grown)
        return false;
    for (size_t i = 0; i < pending->count; i++)
        grown[i] = *pending_at(pending, i);
    free(pending->at);
    *pending = (struct pendings){.at = grown, .count = pending->count, .capacity = capacity};
    return true;
}

void pending_add(struct pendings *pending, struct call *call, int replies)
{
    pending->count++;
    *pending_at(pending, pending->count - 1) =
        (struct pending){.call = call, .left = replies, .sent_ms = clock_boot_ms()};
}

void pending_remove_first(struct pendings *pending)
{
    pending->first = (pending->first + 1) & (pending->capacity - 1);
    pending->count--;
}

void pending_leave(struct pendings *pending, const struct call *call, struct call *other)
{
    for (size_t i = 0; i < pending->count; i++)
        if (pending_at(pending, i)->call == call)
            pending_at(pending, i)->call = other;
}

bool pending_awaited(const struct pendings *pending)
{
    for (size_t i = 0; i < pending->count; i++) {
        const struct call *call = pending_at(pending, i)->call;

        if (call && !call->aside && !call->over)
            return true;
    }
    return false;
}

void pendings_free(struct pendings *pending)
{
    for (size_t i = 0; i < pending->count; i++) {
        struct call *call = pending_at(pending, i)->call;

        if (call && call->over)
            call->over(call);
    }
    free(pending->at);
    *pending = (struct pendings){0};
}

bool call_is_interrupted(const struct call *call)
{
    return call->interrupted && atomic_load(call->interrupted);
}
