/* sim.h: a whole cluster with its clients in one thread, in which time is a number.
 *
 *     clients ──RESP──▶ service: sessions ──▶ replica (core, raft) ──▶ store     one for each node; the product's: session, replica
 *        ▲                  │                     ▲  │
 *        └─────answers──────┘                     └──┴── network ── other nodes
 *
 * swarm.c draws from the seed what may go wrong, faults.c and operator.c make it happen, check_*.c look at what clients are told
 * and at what nodes do. Nothing here knows the time, an address or a hash of one: the same seed gives the same trace. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "replica/replica.h"
#include "sim/chance.h"
#include "sim/check.h"
#include "sim/clients.h"
#include "sim/network.h"
#include "sim/operator.h"
#include "sim/queue.h"
#include "sim/run.h"
#include "sim/service.h"
#include "sim/store.h"
#include "sim/swarm.h"
#include "sim/trace.h"

#define SIM_NODES 8 /* ids are from 1 on */
#define SIM_ELECTION_MS 500
#define SIM_HEARTBEAT_MS 50
#define SIM_DRIFT_PPM 4500 /* of any clock: two of them differ by less than the client allows for */

/* Ticks at `ppm` more than a million in a true second, from `true_us` on. */
struct sim_clock {
    int64_t true_us, local_us;
    int64_t ppm; /* -1,000,000: it stands still */
};

/* What ends a process. */
enum ending { ENDING_KILL, ENDING_POWER, ENDING_STOPPED };

struct node {
    uint64_t id, incarnation;
    bool exists; /* it has a directory */
    bool up;
    bool dying;            /* its process ends as soon as the replica's code has returned */
    bool removed;          /* the operator does not start it again */
    bool lost;             /* it has stopped for good: an operator replaces it */
    uint32_t version;      /* of the formats, that its process reads; 0: as it comes */
    bool ran_next;         /* once it was the next one */
    bool disk_bad;         /* writes fail */
    bool reads_fail;       /* the next one, or when a process starts */
    bool damaged;          /* bits of its disk have changed */
    int64_t full_until_us; /* its disk has no room; 0: it has */
    int64_t disk_slower;   /* so many times */
    uint32_t life;         /* of its processes, counted */
    int64_t paused_until_us;
    uint64_t candidate; /* the term in which it voted for itself last */
    struct sim_clock clock;
    struct replica *replica;
    enum replica_role role;
    bool round_due;
    int64_t wake_us; /* of the wake-up that is planned */
    uint64_t rounds;
    struct store store;
    struct service service;
    struct check_node seen;
};

struct sim_counts {
    uint64_t events, requests, grants, crashes, pauses, cuts, breaks, disk_faults, wipes, clocks,
        changes, transfers, old_copies, old_copies_found, installs, snapshots, elections, commits,
        client_faults, flips;
};

struct versions { /* versions.c */
    struct chance chance;
    bool in_effect; /* the next one, as far as anybody knows */
};

struct sim {
    uint64_t seed;
    int64_t now_us, faults_until_us, healed_us;
    bool healing;
    bool outside; /* only the checkers judge */
    struct queue queue;
    struct trace trace;
    struct swarm swarm;
    struct chance chance;
    struct node nodes[SIM_NODES];
    uint64_t incarnations;
    struct replica_config initial; /* the members that the cluster was founded with */
    struct network network;
    struct operator operator;
    struct versions versions;
    struct clients clients;
    struct check check;
    struct sim_counts counts;
    char wrong[512]; /* "": nothing */
};

/* ---- world.c */

/* Runs it to its end. False: `wrong` says what is. */
bool sim_run(struct sim *sim, uint64_t seed, const struct run *run);
void sim_free(struct sim *sim);
/* The first one counts. */
void sim_wrong(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_at(struct sim *sim, int64_t at_us, enum event_type type, const struct node *node,
            uint64_t number, void *data);
static inline struct node *sim_node(struct sim *sim, uint64_t id)
{
    return id >= 1 && id <= SIM_NODES ? &sim->nodes[id - 1] : NULL;
}
/* The one that leads in the latest term and serves, or NULL. */
struct node *sim_leader(struct sim *sim);
int64_t clock_local_us(const struct sim_clock *clock, int64_t true_us);
/* INT64_MAX: never, as it stands still. */
int64_t clock_true_us(const struct sim_clock *clock, int64_t local_us);
void clock_change(struct sim_clock *clock, int64_t true_us, int64_t ppm);

/* ---- node.c */

int64_t node_now_us(const struct sim *sim, const struct node *node);
/* A new directory. */
void node_make(struct sim *sim, struct node *node);
/* Starts its process with what its disk has. */
void node_start(struct sim *sim, struct node *node);
void node_end(struct sim *sim, struct node *node, enum ending ending);
void node_event(struct sim *sim, struct node *node, const struct event *event);
/* Something was fed to its replica: a round is due. */
void node_fed(struct sim *sim, struct node *node);
/* What is planned as its next wake-up follows its clock, which ticks otherwise now. */
void node_clock_changed(struct sim *sim, struct node *node);

/* ---- versions.c */

void versions_begin(struct sim *sim);
/* A process is to be started: what it reads. */
uint32_t versions_choose(struct sim *sim, struct node *node);
/* It stops, or does not start, because it is too old, and may. */
bool versions_may_stop(struct sim *sim, const struct node *node, const char *why);
void versions_see(struct sim *sim, const struct node *node);
/* What all members read is in effect. */
bool versions_are_settled(struct sim *sim, const struct node *leader);

/* ---- damage.c */

/* A bit of some member's disk changes, if that is legal now. */
void damage_flip(struct sim *sim);
/* A node with a damaged disk does not start, or has stopped, and says why. Its process is over. */
void damage_found(struct sim *sim, struct node *node, const char *words);

/* ---- faults.c */

void faults_begin(struct sim *sim);
void faults_event(struct sim *sim, uint64_t number);
/* Somebody crashes soon, perhaps this one. */
void faults_crash_soon(struct sim *sim, struct node *node);
/* This one leads from now on, though nobody knows it yet: perhaps it crashes. */
void faults_elected(struct sim *sim, struct node *node);
/* This one has voted for somebody else: the same. */
void faults_voted(struct sim *sim, struct node *node);
/* The operator replaces it then, unless that has happened before. */
void faults_replace_soon(struct sim *sim, struct node *node, int64_t after_us);
/* All of them end, and who is down starts. */
void faults_end(struct sim *sim);

#endif
