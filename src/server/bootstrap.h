/* bootstrap.h: founding a cluster: CLUSTER INIT.
 *
 * A node that is started with a list of members and an empty directory takes no part in anything: it waits, until somebody says
 * CLUSTER INIT to any one of them, or until it is added to a cluster that is there. The one whose id is the lowest in the list, the
 * founder, does the work; the others pass INIT on to it.
 *
 *     1. The founder asks all members, by the connections between nodes. Each says whether it is empty, its incarnation (the random number
 *        that its directory was given when it was made), and its own list.
 *     2. If all answer, are empty, and list the same, it makes the record of the founding: of each member its number, address and
 *        incarnation. The cluster's id is a hash of that (replica_cluster_id). The founder makes it durable for itself: this is the moment
 *        at which the cluster is founded. Otherwise it says who is in the way, and nothing has changed anywhere.
 *     3. It hands the record to the others. Each takes it if it is empty, has the incarnation that the record says, and lists the same; durably,
 *        before it takes part. The log of each begins with the same first entry, that of the members.
 *     4. Until somebody leads, each one that has the record hands it to the others, now and then. Afterwards whoever leads sends its log
 *        to those who do not have it yet, which begins with the same entry.
 *
 * Why there are never two clusters. Only the founder makes a record, and the same incarnations make the same one. Let it have lost its
 * directory after step 2, and make another, with its new incarnation: then all others have said that they are empty after the founder's new process had connected to them, which
 * ends the connections of the one before. So nobody has the old record, nor can get it: it is nowhere any more.
 *
 * Why nobody who forgot is counted. A record names directories, not machines. One that was lost is made anew with another incarnation, which
 * no record names: nobody hands it one that it takes, and to those who have the record it is one that came back without its data
 * (raft/raft.h, R20). So it waits, for ever, and a majority of such nodes waits together. What a majority has acknowledged can only be
 * forgotten with the directories of a majority.
 *
 * A crash at any point leaves each node empty or with the record, which it makes its log of at the next start (identity.h). INIT
 * again finishes what is not finished. */
#ifndef SERVER_BOOTSTRAP_H
#define SERVER_BOOTSTRAP_H

#include "node/node.h"
#include "server/config.h"
#include "session/commands.h"

#include <uv.h>

#define BOOTSTRAP_ASKERS_MAX 16 /* who may wait for one INIT */

struct record;
struct server;

enum bootstrap_answer {
    MEMBER_SILENT,    /* it has not answered */
    MEMBER_EMPTY,     /* it waits */
    MEMBER_JOINS,     /* it waits, and wants to be added */
    MEMBER_DIFFERS,   /* it lists others */
    MEMBER_LOST,      /* it waits, and had been a member */
    MEMBER_ELSEWHERE, /* it belongs to another cluster, */
    MEMBER_FOUNDED    /* or to this one */
};

struct bootstrap {
    char incarnation_text[INCARNATION_DIGITS + 1];
    char list[MEMBERS_TEXT_MAX + 1]; /* of members, as this node was started with */
    uv_timer_t timer;
    bool open; /* the timer is */
    enum bootstrap_phase {
        BOOTSTRAP_IDLE,
        BOOTSTRAP_ASKS,  /* the others, in step 1; or whether they have the record, in step 4 */
        BOOTSTRAP_TELLS, /* steps 3 and 4, and somebody waits for it */
        BOOTSTRAP_PASSES /* INIT on to the founder */
    } phase;
    uint64_t number; /* of the present INIT: answers to an earlier one are of no importance */
    bool asked;      /* INIT was passed on: it may be done, whatever becomes of the answer */
    bool founded;    /* by the present INIT, at least in part */
    int64_t until_ms, next_ms;
    struct bootstrap_member {
        enum bootstrap_answer answer;
        char incarnation_text[INCARNATION_DIGITS + 1];
        char list[MEMBERS_TEXT_MAX + 1];
    } members[CONFIG_MEMBERS_MAX];                /* in the order of the configuration */
    struct request *askers[BOOTSTRAP_ASKERS_MAX]; /* clients */
    unsigned asker_count;
    struct { /* other nodes */
        uint64_t id, number;
    } nodes[CONFIG_MEMBERS_MAX];
    unsigned node_count;
};

enum verdict command_cluster_init(struct session *, const struct resp_node *);
void bootstrap_open(struct server *server);
/* Answers those who wait. */
void bootstrap_close(struct server *server);
/* Another node has said something about founding. */
void bootstrap_heard(struct server *server, const struct node_words *words);

/* For founding.c. Is this the i-th of the members that are listed? */
bool bootstrap_is_own(const struct server *server, int i);
/* It belongs to no cluster yet. */
bool bootstrap_waits(const struct server *server);
/* False: there is no connection yet. */
bool bootstrap_say(struct server *server, uint64_t to, const char *address, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Hands the record of the founding to the i-th member. */
bool bootstrap_tell(struct server *server, const struct record *record, int i);
/* The timer looks now, and as often as the phase wants it. */
void bootstrap_wake(struct server *server);

#endif
