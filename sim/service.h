/* service.h: a node's side of its clients: what holdfastd does below its sockets. A request becomes a command, its effect an answer; who waits is kept
 * until it is granted, and told when this node leads no more. */
#ifndef SIM_SERVICE_H
#define SIM_SERVICE_H

#include "replica/replica.h"

#include <stdbool.h>
#include <stdint.h>

#define SERVICE_CLIENTS 64

struct sim;
struct node;

enum ask { ASK_ACQUIRE = 1, ASK_RELEASE, ASK_RENEW, ASK_END, ASK_CHECK, ASK_LEAVE, ASK_FINISH };

enum say {
    SAY_TOKEN = 1,
    SAY_BUSY,
    SAY_QUEUED, /* the end of the wait comes as SAY_TOKEN, SAY_BUSY or SAY_ENDED to the same request */
    SAY_DONE, /* of a once-record: value is its token, ticket its result */
    SAY_NUMBER,
    SAY_ENDED,
    SAY_REFUSED,
    SAY_MOVED,  /* number: who leads, or 0. Nothing happened */
    SAY_UNKNOWN /* it may or may not have happened; also: the connection is gone */
};

struct request {
    enum ask ask;
    int client;
    uint64_t connection, number;
    int name, mode;
    uint64_t lease, token;
    uint32_t permits, ttl_ms;
    uint64_t wait_ms, delay_ms;
    bool waits, push;
    bool once;           /* the name is the key of a once-record, */
    uint64_t result;     /* and FINISH brings its result */
    uint32_t attachment; /* of LEAVE */
};

struct answer {
    enum say say;
    uint64_t connection, number;
    uint64_t value, ticket;
};

struct pending;

struct service {
    struct pending *waiting;                /* they have places */
    struct pending *backlog, *backlog_last; /* not submitted: the batch was full */
    uint32_t under_way;
    uint64_t closed[SERVICE_CLIENTS]; /* the last connection of each that has ended */
};

/* The request is copied. */
void service_request(struct sim *sim, struct node *node, const struct request *request);
/* This client's connection has ended. */
void service_hangup(struct sim *sim, struct node *node, int client, uint64_t connection);
/* Before a pump. */
void service_backlog(struct sim *sim, struct node *node);
/* This node leads no more. */
void service_deposed(struct sim *sim, struct node *node);
void service_free(struct node *node);
/* As in struct replica_host. */
void service_effect(void *context, void *request, const struct core_effect *effect);
void service_failed(void *context, void *request, enum replica_failure failure);

#endif
