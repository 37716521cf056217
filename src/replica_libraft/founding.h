/* founding.h: does the data directory belong to this node, and of which cluster is it? Asked once, between storage_open and
 * replica_open, before anything is said to anybody.
 *
 * A file 'node' in the directory says whose it is, for people too:
 *
 *     node 2
 *     life 91f0c4a7e2d35b68
 *     cluster 1=db1:7431,2=db2:7431,3=db3:7431
 *     founded 3c5f0d1b9a7e42688f01c2d3e4b5a697
 *     founders 1=db1:7431/0c4a7e2d35b6891f,2=db2:7431/91f0c4a7e2d35b68,3=db3:7431/e2d35b6891f0c4a7
 *     restored 2026-03-01T04:05:06Z, after token 812
 *
 * life: drawn when the directory was made; the log of the cluster knows this node by it (identity.h). cluster: what was asked for when it was last started. It may say again what it said before,
 * though members have come and gone since, and it may say what is true by now; all else is a mistake. founded: the id of the
 * cluster, whose log begins with the founders; 'joined' instead: it was added to that cluster; 'member': one of both, and it
 * has had a log, so that it must have one now. None of these: it belongs to no cluster.
 *
 *           ┌── a node alone: at once ─────────────────────────┐
 *           │                                                  ▼
 *     WAITS ┼── CLUSTER INIT, see server/bootstrap.h ──────▶ FOUNDED ──▶ there is a log: RUNS
 *           └── a leader sends ──▶ JOINED ───────────────────────────────▶      "
 *
 * The note is durable before the log begins. A crash between the two leaves a directory that is FOUNDED, and whose log
 * begins at the next start with the founders in its note; or JOINED, and it takes part with an empty log, in that cluster only: it may have voted. */
#ifndef REPLICA_FOUNDING_H
#define REPLICA_FOUNDING_H

#include "replica_libraft/replica.h"
#include "replica_libraft/storage.h"

#define FOUNDING_LIFE 16      /* characters: lower-case hex */
#define FOUNDING_CLUSTER 32   /* characters of a cluster's id: lower-case hex */
#define FOUNDING_ABOUT 127    /* characters of a remark */
#define FOUNDING_MEMBERS 3071 /* characters: nine of the longest, with their ids and lives */

struct founding {
    uint64_t id;
    const struct replica_member *members; /* by their ids; none: a node alone */
    int member_count;
    uint64_t life;                      /* for a new directory: random */
    char cluster[FOUNDING_CLUSTER + 1]; /* for a node alone that founds itself: random */
};

enum founding_state {
    FOUNDING_WAITS, /* the log is empty: it takes no part until it is founded or added */
    FOUNDING_FOUNDED /* it takes part; if the log is empty, it begins with the founders, or with what a leader sends */
};

struct founding_result {
    enum founding_state state;
    bool begins; /* the directory was empty */
    char life[FOUNDING_LIFE + 1];
    char cluster[FOUNDING_CLUSTER + 1]; /* "": none */
    char founders[FOUNDING_MEMBERS +
                  1]; /* what its log is to begin with; "": it has, or the node is alone */
    char restored[FOUNDING_ABOUT + 1]; /* when, and what was known then; "": it is no backup's */
};

/* HF_EREFUSED: it does not belong to this node, in words. Nothing has been changed then. HF_EIO: the directory cannot be used. */
int founding_settle(struct storage *storage, const struct founding *founding,
                    struct founding_result *ret_result, struct error_text *err);
/* Durably, of a directory that waits: from now on it is of this cluster, founded with these, "1=db1:7431/LIFE,2=..."; or added. */
int founding_found(struct storage *storage, const char *cluster, const char *founders,
                   struct error_text *err);
int founding_join(struct storage *storage, const char *cluster, struct error_text *err);
/* Durably: there is a log now. A start that finds none will know that it was lost. */
int founding_has_log(struct storage *storage, struct error_text *err);
/* "1=db1:7431,2=db2:7431": members as people write them, and as they are compared. */
void founding_members_text(const struct replica_member *members, int count,
                           char ret_text[FOUNDING_MEMBERS + 1]);

#endif
