/* identity.h: does the data directory belong to this node, and of which cluster is it? Asked once, before anything is said to anybody:
 *
 *     recovery_open ──▶ identity_read ──▶ recovery_load ──▶ identity_settle ──▶ recovery_begin
 *                     (its incarnation)   (its members)      (whether it may)
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
 * life: the incarnation, drawn when the directory was made; the log of the cluster knows this node by it (raft.h, R20). cluster: what
 * was asked for when it was last started. It may say again what it said before, though members have come and gone since, and it may
 * say what is true by now; all else is a mistake. founded: the id of the cluster, which is a function of the members that its log
 * begins with (replica_cluster_id), the initial members; 'joined' instead: it was added to that cluster; 'member': one of both, and it has
 * had a log, so that it must have one now. None of these: it belongs to no cluster. A store that was restored from a backup is a
 * member of a cluster whose id was drawn.
 *
 *           ┌── a node alone: at once ─────────────────────────┐
 *           │                                                  ▼
 *     WAITS ┼── CLUSTER INIT ──────────────────────────────▶ FOUNDED ──▶ there is a log: RUNS
 *           └── a leader sends ──▶ JOINED ───────────────────────────────▶      "
 *
 * The note is durable before the log begins. A crash between the two leaves a directory that is FOUNDED, and whose log
 * begins at the next start with the initial members in its note; or JOINED, and it takes part with an empty log, in that cluster only: it may have voted. */
#ifndef NODE_IDENTITY_H
#define NODE_IDENTITY_H

#include "journal/directory.h"
#include "replica/replica.h"

#define INCARNATION_DIGITS 16   /* characters: lower-case hex */
#define CLUSTER_ID_DIGITS 32    /* characters of a cluster's id: lower-case hex */
#define IDENTITY_REMARK_MAX 127 /* characters of a remark */
#define MEMBERS_TEXT_MAX 3071   /* characters: nine of the longest, with their ids and lives */

struct identity_wanted {
    uint64_t id;
    const struct replica_member *members; /* by their ids; none: a node alone. Ids and addresses */
    int member_count;
    uint64_t incarnation;                /* the incarnation of a new directory: random */
    char cluster[CLUSTER_ID_DIGITS + 1]; /* is not looked at: who founds itself knows its id */
};

enum identity_state {
    IDENTITY_WAITS,     /* the log is empty: it takes no part until it is founded or added */
    IDENTITY_TAKES_PART /* it takes part; if the log is empty, it begins with the initial members, or with what a leader sends */
};

struct identity {
    enum identity_state state;
    bool begins; /* the directory was empty */
    uint64_t incarnation;
    char incarnation_text[INCARNATION_DIGITS + 1]; /* the same in hex */
    char cluster[CLUSTER_ID_DIGITS + 1];           /* "": none */
    char initial_members[MEMBERS_TEXT_MAX +
                         1]; /* what its log is to begin with; "": it has, or the node is alone */
    char restored[IDENTITY_REMARK_MAX +
                  1]; /* when, and what was known then; "": it is no backup's */
    /* This node is the only member, and its address is another one now than in the log: the node has that agreed on when it
     * leads. Until then it is said at each start. */
    bool moves;
};

/* The incarnation in the file, or the new one if there is no file. Nothing is written. HF_EIO: it cannot be read. */
int identity_read(const struct directory *directory, const struct identity_wanted *wanted,
                  uint64_t *ret_incarnation, struct error_text *err);
/* there: the last members that the log and the snapshot have (replica_members_found); count 0: there is no log. HF_EREFUSED: it does
 * not belong to this node, in words. Nothing has been changed then. HF_EIO: the directory cannot be used. */
int identity_settle(const struct directory *directory, const struct identity_wanted *wanted,
                    const struct replica_config *there, struct identity *ret_result,
                    struct error_text *err);
/* Durably, of a directory that waits: from now on it is of this cluster, founded with these, "1=db1:7431/LIFE,2=..."; or added. */
int identity_bootstrap(const struct directory *directory, const char *cluster,
                       const char *initial_members, struct error_text *err);
int identity_join(const struct directory *directory, const char *cluster, struct error_text *err);
/* Durably: there is a log now. A start that finds none will know that it was lost. */
int identity_has_log(const struct directory *directory, struct error_text *err);
/* An incarnation from its hex digits, with which the text begins; 0: there are none. */
uint64_t incarnation_parse(const char *text);
/* "1=db1:7431,2=db2:7431": members as people write them, and as they are compared. */
void members_text(const struct replica_member *members, int count,
                  char ret_text[MEMBERS_TEXT_MAX + 1]);

#endif
