/* clients.h: who locks. They follow the client's rules of time: a lease counts from before the request was sent that was acknowledged last, on the client's own
 * clock, less the drift allowance; a request without an answer is repeated with the same lease; a grant that comes late is renewed before it
 * is believed.
 *
 *     IDLE ──▶ ACQUIRING ──▶ QUEUED ──▶ CONFIRMING ──▶ HOLDING ──▶ RELEASING ──▶ IDLE
 *                  │            │                         │
 *                  └────────────┴──────▶ ENDING ──▶ IDLE  └──lost──▶ IDLE           anywhere: DEAD, and then somebody new
 *     IDLE ──▶ BESIDE ──▶ IDLE */
#ifndef SIM_CLIENTS_H
#define SIM_CLIENTS_H

#include "sim/chance.h"
#include "sim/check.h"
#include "sim/service.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_CLIENTS 24

struct sim;
struct node;
struct event;

enum client_state {
    CLIENT_IDLE,
    CLIENT_ACQUIRING,
    CLIENT_QUEUED,
    CLIENT_CONFIRMING,
    CLIENT_HOLDING,
    CLIENT_RELEASING,
    CLIENT_ENDING,
    CLIENT_BESIDE, /* asks for something else than a lock */
    CLIENT_DEAD
};

struct client {
    int id;
    enum client_state state;
    int64_t clock_ppm, clock_offset_us; /* it ticks evenly */
    int64_t paused_until_us;
    uint64_t node;               /* that it is connected with */
    uint64_t connection, broken; /* broken: nothing comes through on that one any more */
    uint64_t wakes;
    int64_t wake_us; /* true time of the one that is planned */
    int64_t last_us; /* when the last answer on this connection arrives */

    /* The lock it is about. */
    struct request lock;
    uint64_t token, floor;
    int64_t asked_us; /* true time: sent for the first time, */
    uint32_t asked;   /* and so many times */
    int64_t base_us;  /* the request that was acknowledged last was sent then, */
    bool careless, cancels, pauses, dies;
    bool ends;                       /* its lease, and not the hold alone */
    int64_t finished_us;             /* true time: the result was sent for the first time */
    uint64_t last_lease, last_token; /* of the hold before, whose end was acknowledged */
    enum ask beside;
    int64_t until_us; /* when the present state is to end, */
    int64_t renew_us; /* and when to renew */

    /* The request that is under way. */
    bool asking;
    struct request request;
    int64_t sent_us, timeout_us, sent_true_us;
    bool repeated;    /* the same was asked before, and may have taken effect */
    int64_t again_us; /* nothing is sent before */
};

struct clients {
    struct chance chance;
    struct client at[SIM_CLIENTS];
    int count;
    uint64_t leases, requests;
    bool drain;    /* no new locks */
    uint64_t keys; /* of once-records, claimed so far */
};

void clients_begin(struct sim *sim);
void clients_event(struct sim *sim, const struct event *event);
/* From a node's service. */
void clients_say(struct sim *sim, const struct node *node, int client, const struct answer *answer);
/* There is a place in the table for this lease, which the client has asked for. */
void clients_place(struct sim *sim, int client, uint64_t lease, uint64_t ticket);
/* Their connections with a process that has ended. */
void clients_node_ended(struct sim *sim, const struct node *node, bool at_once);
/* Has everybody finished? */
bool clients_are_idle(const struct sim *sim);
void clients_heal(struct sim *sim);

#endif
