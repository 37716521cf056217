/* explore.h: every way in which a few nodes can be moved, within bounds. explore.c goes through them, breadth first. */
#ifndef TESTS_RAFT_EXPLORE_H
#define TESTS_RAFT_EXPLORE_H

#include "cluster.h"

#define EXPLORE_STEPS_MAX 256 /* from one state */

enum explore_kind {
    STEP_DELIVER = 1,
    STEP_EXCHANGE, /* an append, and what is replied to it, in one step; for links of one message */
    STEP_AGAIN,
    STEP_DROP,
    STEP_WRITTEN,
    STEP_RESTART, /* crash and start: what is sent to a node that is down is lost, which may happen anyhow */
    STEP_WIPE,
    STEP_CAMPAIGN, /* without pre-vote, and nobody is sticky: more than can happen */
    STEP_ELECT,    /* the same, with the replies of some, in one step */
    STEP_TIME,
    STEP_PROPOSE,
    STEP_ADD,
    STEP_PROMOTE,
    STEP_REMOVE,
    STEP_TRANSFER,
    STEP_DOWN, /* a leader's connection with a follower ends: it sends again */
    STEP_SNAPSHOT,
    STEP_KINDS
};

struct explore_step {
    uint8_t kind, node, other, number;
};

/* What may happen. The script is how it begins. */
struct explore_run {
    const char *name, *script, *bounds;
    uint64_t terms;           /* nobody campaigns in a later one */
    uint64_t log;             /* nobody proposes behind this index */
    uint8_t most[STEP_KINDS]; /* of each kind, so many in all; 255: any number */
    bool symmetric;           /* the first to campaign is A */
    uint64_t states;          /* in the short form */
};

#define EXPLORE_ANY 255

struct explore_state {
    uint8_t done[STEP_KINDS];
    struct cluster cluster;
};

extern const struct explore_run explore_runs[];
extern const int explore_run_count;

int explore_steps(const struct explore_run *run, struct explore_state *state,
                  struct explore_step ret_steps[EXPLORE_STEPS_MAX]);
void explore_apply(struct explore_state *state, const struct explore_step *step,
                   const struct explore_run *run);
/* In the words of scripts; before it is applied. */
void explore_words(FILE *out, struct explore_state *state, const struct explore_step *step);
void explore_copy(struct explore_state *to, const struct explore_state *from);
uint64_t explore_fingerprint(const struct explore_state *state);
/* All faults end: is something new committed? */
bool explore_heals(const struct explore_state *state, struct explore_state *scratch);

#endif
