/* service.h: a node's side of its clients: the product's sessions (src/session), on connections that are events of the simulator. A request is
 * written as RESP and read by the session; what the session has written is read as RESP, and becomes an answer. */
#ifndef SIM_SERVICE_H
#define SIM_SERVICE_H

#include "replica/replica.h"
#include "session/rights.h"
#include "session/session.h"
#include "sim/check.h"

#include <stdbool.h>
#include <stdint.h>

#define SERVICE_CLIENTS 64
#define SERVICE_USERS 3
#define RENEW_OTHERS 2 /* leases that are renewed along with the first */

struct sim;
struct node;

enum ask {
    ASK_ACQUIRE = 1,
    ASK_RELEASE,
    ASK_RENEW,
    ASK_END,
    ASK_CHECK,
    ASK_FINISH,
    ASK_BREAK,
    ASK_FLOOR,
    ASK_SHOW, /* who holds a name */
    ASK_LOCKS /* which names somebody holds */
};

enum say {
    SAY_TOKEN = 1,
    SAY_BUSY,
    SAY_QUEUED, /* by PUSH: the end of the wait comes as SAY_TOKEN, SAY_DONE, SAY_BUSY or SAY_ENDED to the same request */
    SAY_DONE,   /* of a once-record: value is its token, ticket its result */
    SAY_NUMBER,
    SAY_ENDED,
    SAY_REFUSED,
    SAY_MOVED,  /* number: who leads, or 0. Nothing happened */
    SAY_LIST,   /* to SHOW and LOCKS */
    SAY_LOST,   /* value: a lease that has ended though nobody asked for that. To no request */
    SAY_UNKNOWN /* it may or may not have happened; also: the connection is gone */
};

struct request {
    enum ask ask;
    int client;
    uint64_t connection, number;
    int name, mode;
    uint64_t lease, token; /* token: of FLOOR, too */
    uint64_t others[RENEW_OTHERS];
    uint32_t other_count;
    uint32_t permits, ttl_ms;
    uint64_t wait_ms, delay_ms;
    bool waits, push;
    bool now;         /* of BREAK */
    bool once;        /* the name is the key of a once-record, */
    uint64_t result;  /* and FINISH brings its result, */
    uint64_t keep_ms; /* to be kept so long */
};

struct answer {
    enum say say;
    uint64_t connection, number;
    uint64_t value, ticket;
    int64_t others[RENEW_OTHERS]; /* of RENEW: as value */
    struct check_read read;       /* of SHOW and LOCKS */
};

struct service {
    struct sim *sim;
    struct node *node;
    bool is_open;
    struct sessions sessions;
    struct list ready;                /* connections whose next command may begin */
    struct list dirty;                /* connections with something to say */
    struct resp_writer words;         /* a request, as it is sent */
    struct resp_reader *answers;      /* of what sessions have written */
    struct resp_spare spare;          /* what readers that rest leave to each other */
    void *read_here;                  /* a read that is answered without the log: a known fault */
    struct user users[SERVICE_USERS]; /* with limits, if there are any */
    uint64_t closed[SERVICE_CLIENTS]; /* the last connection of each that has ended */
};

/* A process begins. */
void service_open(struct sim *sim, struct node *node);
/* Its replica is no more. Whether or not it was opened. */
void service_free(struct node *node);
void service_request(struct sim *sim, struct node *node, const struct request *request);
/* This client's connection has ended. */
void service_hangup(struct sim *sim, struct node *node, int client, uint64_t connection);
/* Before a pump. Returns how many commands are under way. */
uint32_t service_round(struct sim *sim, struct node *node);
/* What there is to say is said. */
void service_flush(struct sim *sim, struct node *node);
void service_role(struct sim *sim, struct node *node, enum replica_role role);
/* As in struct replica_host. */
void service_effect(void *context, void *request, const struct core_effect *effect);
void service_failed(void *context, void *request, enum replica_failure failure);

#endif
