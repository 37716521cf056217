/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.h: the nodes behind a holdfast:// store, for operators and their programs. Whoever only
 * wants locks needs holdfast.h alone. Results, threads and fork are as it says there.
 *
 *     hf_cluster *cluster;
 *     if (hf_cluster_status(store, 5000, &cluster) != HF_OK) die(hf_error());
 *     printf("node %llu leads\n", (unsigned long long)hf_cluster_about(cluster)->leader);
 *     hf_cluster_free(cluster);
 *
 * Any other store answers HF_ENOTSUP.
 *
 * A change is made by the node that leads, which is found from any node of the URL. HF_EUNREACH:
 * nothing was changed; nobody led within wait_ms, or another change was under way. HF_EUNKNOWN: it
 * may or may not have happened, and hf_cluster_status shows what is. HF_EREFUSED: it cannot be.
 */
#ifndef HOLDFAST_CLUSTER_H
#define HOLDFAST_CLUSTER_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_NODE_MAX (UINT64_C(1) << 32) /* the greatest id of a node, from 1 */
#define HF_MEMBERS_MAX 32               /* of a cluster */
#define HF_ADDRESS_MAX 271              /* bytes of a node's address */

/* ---- looking --------------------------------------------------------------------------------- */

typedef struct hf_cluster hf_cluster; /* an answer of hf_cluster_status */

typedef struct hf_cluster_info {
    size_t size;
    uint64_t id;         /* of the node that answered */
    uint64_t leader;     /* the node that leads, as far as that one knows; 0: none */
    uint64_t term;       /* grows with every election */
    size_t member_count; /* 0: this node waits for a cluster to be founded, or to be added to one */
    const char *why;     /* why no leader answered, in words; NULL: the leader did */
    const char *cluster; /* its id; "": this node belongs to none, or does not say */
    /* Of the node that answered: "leader", "follower", "waiting", "stopped", "removed"; "": it does not say. */
    const char *role;
    const char
        *trouble; /* what keeps that node from taking part, in words; "": nothing that it knows */
    const char *advice; /* what an operator does about that, in words; "": it does not say */
} hf_cluster_info;

typedef struct hf_member {
    size_t size;
    uint64_t id;
    const char *peer;   /* where other nodes reach it; "" for a node alone */
    const char *client; /* where clients reach it; "" when that is not known yet */
    int votes;          /* 0: it was added, and is catching up */
    /* Entries of the log that it lacks; -1: not known. Only the leader knows, and only of those that are connected to it. */
    int64_t behind;
    int64_t silent_ms; /* since it said something to the node that answered; -1: never */
    int lost;          /* 1: it has come back without its data, and is not let in */
    uint64_t index;    /* of the last entry that it is known to have stored; 0: not known */
    /* Why it has stopped, in its own words; "": it has not, or did not say so. Asked if the URL names it, and it seems to be silent. */
    const char *stopped;
} hf_member;

/* Who belongs to the cluster, as the node that leads it sees it. If none can be found within
 * wait_ms, as another node sees it: about->why then says so. HF_EUNREACH: no node answers. */
HF_API int hf_cluster_status(hf_store *store, int64_t wait_ms, hf_cluster **ret_cluster);
/* These live as long as the answer. NULL past the end. */
HF_API const hf_cluster_info *hf_cluster_about(const hf_cluster *cluster);
HF_API const hf_member *hf_cluster_member(const hf_cluster *cluster, size_t index);
HF_API void hf_cluster_free(hf_cluster *cluster); /* NULL is fine */

/* ---- changing -------------------------------------------------------------------------------- */

/* Founds a cluster of nodes that were started with the same list of members and wait: once. Any of them
 * will do. HF_EUNREACH: some do not answer, and nothing was changed. HF_EREFUSED: some are not empty, or list others, and
 * nothing was changed; or it is founded already. To ask again does no harm. */
HF_API int hf_cluster_init(hf_store *store, int64_t wait_ms);
/* Adds a node, whose peers reach it at `address` ("host:port"): it runs there, and is empty. HF_EUNREACH:
 * it does not answer, and nothing was changed. HF_OK: it is a member, and votes as
 * soon as it has caught up, which hf_cluster_status shows. That may take long, and goes on without
 * us. HF_OK too if it was a member at that address before. */
HF_API int hf_cluster_add(hf_store *store, uint64_t id, const char *address, int64_t wait_ms);
/* Removes a node. HF_EREFUSED if it leads: hf_cluster_transfer first. */
HF_API int hf_cluster_remove(hf_store *store, uint64_t id, int64_t wait_ms);
/* Lets another node lead: this one, or with 0 the one that is nearest to it. HF_OK if it does
 * already. */
HF_API int hf_cluster_transfer(hf_store *store, uint64_t id, int64_t wait_ms);

/* ---- a backup -------------------------------------------------------------------------------- */

typedef struct hf_backup_info {
    size_t size;
    uint64_t total;      /* bytes of the file; 0: not known yet */
    uint64_t offset;     /* where in it these bytes belong; 0: from the beginning, or again */
    uint64_t index;      /* the last entry of the log that is in it, */
    uint64_t term;       /* and its term */
    const char *cluster; /* the id of the cluster */
} hf_backup_info;

/* The next bytes of the file. size 0: nothing has come, for those who want to break it off meanwhile; while total
 * is 0, hf_error() says what is in the way, if anything is. Returns HF_OK, or what the whole call is to return. */
typedef int hf_backup_fn(void *arg, const hf_backup_info *info, const void *bytes, size_t size);

/* A backup of the store while it serves, for 'holdfastd --restore-from': all that was acknowledged before
 * this call is in it, and nothing of what was not agreed on. The file is whole only if this returns HF_OK: whoever
 * writes it to a disk gives it its name then. If another node leads before the end, it comes again from its
 * beginning. HF_EUNREACH: nobody led, or nothing came, for wait_ms. HF_EREFUSED: the user has not the
 * right 'admin', or the leader's disk refuses. HF_EIO: what came was damaged. */
HF_API int hf_cluster_backup(hf_store *store, hf_backup_fn *fn, void *arg, int64_t wait_ms);

#ifdef __cplusplus
}
#endif

#endif
