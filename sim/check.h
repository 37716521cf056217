/* check.h: what must never happen, judged by what clients are told and what nodes do. Nothing here is made of the product's code: each
 * checker has a model of its own, takes plain numbers, and says in words what is wrong, the first time. */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "sim/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECK_NAMES 16
#define CHECK_CLIENTS 64
#define CHECK_NODES 8
#define CHECK_GRANTS 512 /* of a name that are remembered, for the order of the queue */

struct verdict {
    char words[400]; /* "": nothing is wrong */
};

void verdict_wrong(struct verdict *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- check_holders.c: who may believe that he holds a name ------------------------------------ */

enum check_mode { CHECK_EXCLUSIVE = 1, CHECK_SHARED, CHECK_PERMIT };

struct holder {
    bool holds;
    int name;
    enum check_mode mode;
    uint32_t permits;
    uint64_t token;
    int64_t until_us; /* in true time: then his own clock tells him that it is over */
    int64_t asked_us; /* sent for the first time, */
    int64_t since_us; /* and told: holders_begin sets it */
};

struct check_holders {
    struct holder of[CHECK_CLIENTS];
    uint32_t now_open[CHECK_NAMES];     /* breaks with NOW whose outcome is not known, */
    int64_t now_closed_us[CHECK_NAMES]; /* and when the last of the others was over */
};

/* From now on this client believes that he holds, until then at the most. */
void holders_begin(struct check_holders *holders, struct verdict *verdict, int64_t now_us,
                   int client, const struct holder *holder);
void holders_extend(struct check_holders *holders, int client, int64_t until_us);
void holders_end(struct check_holders *holders, int client);
/* A break with NOW is asked for: who says that vouches for whoever asked for the lock before it is over. */
void holders_now_asked(struct check_holders *holders, int name);
void holders_now_closed(struct check_holders *holders, int name, int64_t now_us);
/* Somebody vouches for who asked for the lock then: he may be passed by others. */
bool holders_now_excuses(const struct check_holders *holders, int name, int64_t asked_us);
bool holders_believes(const struct check_holders *holders, int client, int64_t now_us);

/* ---- check_tokens.c: tokens are unique and grow, over all names and for all time -------------- */

struct check_tokens {
    uint64_t highest;    /* that anybody was told */
    struct map of_lease; /* lease: token */
    struct map lease_of; /* token: lease */
    struct map ended;    /* lease: 1, if its end was acknowledged */
};

/* What a request that is sent now must be above. */
uint64_t tokens_floor(const struct check_tokens *tokens);
void tokens_told(struct check_tokens *tokens, struct verdict *verdict, uint64_t lease,
                 uint64_t token, uint64_t floor);
/* A floor was asked for, and this was answered: all that is asked for from now on is above it. */
void tokens_raised(struct check_tokens *tokens, struct verdict *verdict, uint64_t asked,
                   uint64_t told);
/* The end of this lease was acknowledged: it never gets anything again. */
void tokens_ended(struct check_tokens *tokens, uint64_t lease);
void tokens_free(struct check_tokens *tokens);

/* ---- check_leases.c: none ends early. That none lives for ever is seen at the end: world.c ----- */

/* The store says that a lease is gone which its client counts as alive until then. */
void leases_gone(struct verdict *verdict, int64_t now_us, uint64_t lease, int64_t until_us);
/* It says so to a client that waits on its connection, and has asked so often with this lease: a place that is waited at ends with its lease
 * only after that connection. */
void leases_blocked(struct verdict *verdict, uint64_t lease, uint32_t asked);

/* ---- check_queue.c: who came first gets it first ---------------------------------------------- */

struct grant {
    uint64_t token;
    int64_t asked_us; /* when its request was sent for the first time */
};

struct place {
    uint64_t lease, ticket;
    int64_t told_us; /* since when this place is known to be there */
};

struct check_queue {
    struct grant grants[CHECK_NAMES][CHECK_GRANTS];
    uint32_t count[CHECK_NAMES];
    struct place places[CHECK_CLIENTS]; /* of the client's present lease */
};

void queue_told(struct check_queue *queue, int client, uint64_t lease, uint64_t ticket,
                int64_t now_us);
/* Its place may be lost: it does not count from now on. */
void queue_left(struct check_queue *queue, int client);
void queue_granted(struct check_queue *queue, struct verdict *verdict, int client, int name,
                   uint64_t lease, uint64_t token, int64_t asked_us);

/* ---- check_guard.c: a resource that keeps the highest token it has seen ----------------------- */

struct check_guard {
    uint64_t highest[CHECK_NAMES], lease[CHECK_NAMES];
    uint64_t writes, refused;
};

/* A write; holds: by his clock, this client holds the name. True: it is accepted. */
bool guard_write(struct check_guard *guard, struct verdict *verdict, int name, uint64_t lease,
                 uint64_t token, bool holds);

/* ---- check_ends.c: what was ended is over ----------------------------------------------------- */

struct check_ends {
    struct map since_us;            /* token: since when its end is acknowledged, and 1 */
    uint32_t open[CHECK_NAMES];     /* breaks that may still come about */
    int64_t closed_us[CHECK_NAMES]; /* the last of the others was over then */
};

/* A release, an end or a break of this token was acknowledged. */
void ends_told(struct check_ends *ends, uint64_t token, int64_t now_us);
/* Somebody who asked then is told that it is alive. */
void ends_alive(const struct check_ends *ends, struct verdict *verdict, uint64_t token,
                int64_t asked_us);
/* A break of a name is sent; it is over without effect; or it was acknowledged: whoever had been told of his grant before it was sent
 * holds no more. */
void breaks_asked(struct check_ends *ends, int name);
void breaks_closed(struct check_ends *ends, int name, int64_t now_us);
void breaks_told(struct check_ends *ends, const struct check_holders *holders, int name,
                 int64_t asked_us, int64_t now_us);
/* May whoever asked for the name then have lost it by a break? */
bool breaks_excuse(const struct check_ends *ends, int name, int64_t asked_us);
void ends_free(struct check_ends *ends);

/* ---- check_reads.c: reads are not older than what was acknowledged before ---------------------- */

#define CHECK_READ 24 /* holders in one answer, at the most */

struct check_read {
    int64_t asked_us;
    uint64_t tokens[CHECK_READ]; /* of those that hold the name */
    int count;                   /* CHECK_READ: there may be more */
    uint64_t names;              /* a bit for each that somebody holds */
};

void reads_holders(const struct check_holders *holders, const struct check_ends *ends,
                   struct verdict *verdict, int64_t now_us, int name,
                   const struct check_read *read);
void reads_names(const struct check_holders *holders, const struct check_ends *ends,
                 struct verdict *verdict, int64_t now_us, const struct check_read *read);

/* ---- check_once.c: a key has one result, and does not run again while that is kept ------------- */

#define CHECK_FOREVER INT64_MAX

struct check_once {
    struct map results;  /* key + 1: result */
    struct map told_us;  /* key + 1: since when somebody knows of it */
    struct map until_us; /* key + 1: so long it is certainly kept */
};

/* Somebody who asked then is told this result of a key, or that his own was stored. Results are not 0. until_us: it is certainly kept
 * until then; 0: he does not know. */
void once_told(struct check_once *once, struct verdict *verdict, int key, uint64_t result,
               int64_t asked_us, int64_t now_us, int64_t until_us);
/* Somebody who asked then may run it. */
void once_granted(struct check_once *once, struct verdict *verdict, int key, int64_t asked_us,
                  int64_t now_us);
void once_free(struct check_once *once);

/* ---- check_log.c: one log, one table, one leader ---------------------------------------------- */

/* What is known of a node, through all of its processes. */
struct check_node {
    uint64_t term, commit, applied, installs;
    /* The log as its disk has acknowledged it: from the snapshot on, up to `durable_last`; from `unsure_from` on it may be otherwise, as
     * a write that was not acknowledged began there. */
    uint64_t *durable;
    size_t durable_capacity;
    uint64_t durable_last, unsure_from;
    uint64_t recovered_last; /* while a process starts */
    uint64_t written_commit; /* the highest commit index in what its disk has acknowledged */
    uint64_t *entries;       /* a hash of each that it was given, by index */
    size_t entries_capacity;
    struct map votes; /* term: whom */
    bool term_unsure; /* a write of term and vote has begun, and was not acknowledged */
    bool disk_failed; /* so that it may stop */
};

struct check_digest {
    uint64_t table, chain, members, members_index, version;
    bool known;
};

struct check_log {
    uint64_t *committed; /* the hash of the entry, by index; 0: not known */
    struct check_digest *digests;
    size_t capacity, digests_capacity;
    uint64_t last;      /* index that anybody has applied */
    struct map leaders; /* term: node */
};

void check_given(struct check_node *node, uint64_t index, uint64_t term, uint8_t type,
                 const void *bytes, size_t size);
/* These are being written, from that index on; and then each of them is there. */
void check_writing(struct check_node *node, uint64_t first);
void check_written(struct check_node *node, uint64_t index, uint64_t term, uint8_t type,
                   const void *bytes, size_t size, uint64_t commit);
/* The whole log is dropped. */
void check_reset(struct check_node *node);
/* A process starts with this snapshot, and these entries in its log; and then that was all. */
void check_recovering(struct check_node *node, uint64_t snapshot);
void check_recovered(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t index,
                     uint64_t term, uint8_t type, const void *bytes, size_t size);
void check_recovered_all(struct check_node *node, struct verdict *verdict, uint64_t id);
void check_voted(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t term,
                 uint64_t vote);
/* Term and vote are being written; check_voted: they are there. */
void check_voting(struct check_node *node);
/* A process starts with these. */
void check_found_vote(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t term,
                      uint64_t vote);
void check_leads(struct check_log *log, struct verdict *verdict, uint64_t id, uint64_t term);
/* A process has started with this commit index, and a snapshot of `snapshot`. */
void check_started(struct check_node *node, struct verdict *verdict, uint64_t id, uint64_t term,
                   uint64_t snapshot, uint64_t commit, uint64_t last);
/* It has come so far. installs: how many snapshots this process has installed. */
void check_applied(struct check_log *log, struct check_node *node, struct verdict *verdict,
                   uint64_t id, uint64_t commit, uint64_t applied, uint64_t installs);
void check_agrees(struct check_log *log, struct verdict *verdict, uint64_t id, uint64_t index,
                  const struct check_digest *digest);
void check_wiped(struct check_node *node);
void check_log_free(struct check_log *log);

struct check {
    struct verdict verdict;
    struct check_holders holders;
    struct check_tokens tokens;
    struct check_queue queue;
    struct check_guard guard;
    struct check_ends ends;
    struct check_once once;
    struct check_log log;
};

#endif
