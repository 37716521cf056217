/* cluster.h: the actions of "holdfast cluster", which share one command line: status, add and backup in files of their own, the short ones in
 * cluster.c.
 *
 * They reach the nodes by <holdfast/cluster.h>, like any program. Behind that the holdfast engine has two
 * functions beside those for locks, and asks over the same connection: what the URL means, where the
 * password comes from, which servers are tried and who is sent where (MOVED) is written once, there.
 * Only a store whose engine has them has a cluster; the others say so. */
#ifndef CLI_CLUSTER_H
#define CLI_CLUSTER_H

#include "cli/cli.h"

#include <holdfast/cluster.h>

#define CLUSTER_WORDS_MAX 2
#define CLUSTER_NOTHING_CHANGED "nothing was changed"
#define CLUSTER_TEXT_MAX 2048 /* of a sentence that names members */

/* What the command line asks for. */
struct cluster_request {
    const char *words[CLUSTER_WORDS_MAX]; /* after the action */
    int count;
    uint64_t id; /* words[0], where there is one */
    int64_t wait_ms;
    int64_t began_ms;
    bool waits_so_long; /* --wait was given: nothing takes longer */
    bool no_wait;
    bool health; /* status: for monitoring */
};

/* Each returns the exit status, and has said why it is not 0. */
int cluster_status(struct cli *cli, const struct cluster_request *request);
int cluster_add(struct cli *cli, const struct cluster_request *request);
int cluster_backup(struct cli *cli, const struct cluster_request *request);

/* ---- cluster_status.c ------------------------------------------------------------------------ */

/* Nothing was heard of it for long. */
bool cluster_is_silent(const hf_cluster_info *about, const hf_member *member);
/* It is there, and has its data: its vote can be had. */
bool cluster_is_reachable(const hf_cluster_info *about, const hf_member *member);

struct cluster_votes {
    unsigned voters, reachable; /* of the voters */
    unsigned lost;              /* of the voters: without their data */
    unsigned majority;          /* of them that must be there */
    unsigned spare;             /* reachable ones that may be lost; 0: none */
};
/* As if the member `without` were gone; 0: all of them. */
struct cluster_votes cluster_count_votes(const hf_cluster *cluster, uint64_t without);
/* Adds to a text that may be too long for its room: then it is cut. */
void cluster_append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Why nobody leads and what to do about it, as far as it can be seen from the node that answered. */
void cluster_describe_leaderless(const hf_cluster *cluster, char *ret_text, size_t size);
/* No leader answered: says why that is so. Returns the exit status. */
int cluster_say_why(const hf_cluster *cluster);

/* ---- cluster_health.c ------------------------------------------------------------------------ */

/* status --health: one line or object for monitoring, and an exit status of its own. */
int cluster_health(struct cli *cli, const struct cluster_request *request);

/* ---- cluster.c ------------------------------------------------------------------------------- */

/* What the leader sees. NULL: there is none; it has said why, and what that leaves us with, and
 * *ret_status is the exit status. Servers that are not there are found out soon, not after all of
 * --wait. */
hf_cluster *cluster_ask_leader(struct cli *cli, const struct cluster_request *request,
                               const char *so_far, int *ret_status);
/* A change that failed: says so, and returns the exit status. */
int cluster_say_change(const struct cluster_request *request, int result);

#endif
