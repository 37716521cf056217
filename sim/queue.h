/* queue.h: what is going to happen, by time, and at one time in the order in which it was planned. */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_type {
    EVENT_ROUND = 1, /* node: the end of its loop's round */
    EVENT_WAKE,      /* node: the time that its replica asked for */
    EVENT_MESSAGE,   /* node: data is a struct packet */
    EVENT_LINK_DOWN, /* node: its connection with node `number` has ended */
    EVENT_WRITE,     /* node: the first of its disk's writes is done */
    EVENT_READ,      /* node: the same for reads and snapshots */
    EVENT_REQUEST,   /* node: data is a struct request */
    EVENT_HANGUP,    /* node: a client's connection has ended: number */
    EVENT_RESTART,   /* node */
    EVENT_CLOCK,     /* node: its clock ticks otherwise from now on */
    EVENT_ANSWER,    /* client `number`: data is a struct answer */
    EVENT_CLIENT,    /* client `number` wanted to be woken */
    EVENT_FAULT,     /* number: of enum fault */
    EVENT_OPERATOR,  /* looks at the cluster */
    EVENT_CHECK      /* looks at the whole */
};

struct event {
    int64_t at_us;
    uint64_t order;
    uint8_t type; /* of enum event_type */
    uint8_t node;
    uint32_t life; /* of the process it is meant for */
    uint64_t number;
    void *data; /* one block of malloc, or NULL; owned */
};

/* Its place in the order of all; what it is stays where it is while places change. */
struct planned {
    int64_t at_us;
    uint64_t order;
    uint32_t slot;
};

struct queue {
    struct planned *heap;
    struct event *events;
    uint32_t *free_slots;
    size_t count, capacity; /* of each of these; free: capacity - count */
    uint64_t order;
};

void queue_push(struct queue *queue, const struct event *event);
/* One that was taken out, for a later time: it keeps its place in the order. */
void queue_postpone(struct queue *queue, const struct event *event, int64_t at_us);
/* False: it is empty. */
bool queue_pop(struct queue *queue, struct event *ret_event);
void queue_free(struct queue *queue);

#endif
