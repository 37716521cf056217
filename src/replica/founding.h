/* founding.h: does the data directory belong to this node of this cluster? Asked once, between storage_open and
 * replica_open, before anything is said to anybody.
 *
 * A file 'node' in the directory says whose it is, for people too:
 *
 *     node 2
 *     life 91f0c4a7e2d35b68
 *     cluster 1=db1:7431,2=db2:7431,3=db3:7431
 *
 * cluster: what was asked for when it was last started. It may say again what it said before, though members
 * have come and gone since, and it may say what is true by now; all else is a mistake. life: drawn when the directory
 * was made. A node that comes back with another life has lost its data, its vote among it (see members in
 * docs/cluster.md). */
#ifndef REPLICA_FOUNDING_H
#define REPLICA_FOUNDING_H

#include "replica/replica.h"
#include "replica/storage.h"

#define FOUNDING_LIFE 16 /* characters */

struct founding {
    uint64_t id;
    const struct replica_member *members; /* by their ids; none: a node alone */
    int member_count;
    bool restored; /* the data is a backup's: this node is the only member from now on */
    uint64_t life; /* for a new directory: random */
};

/* HF_EREFUSED: it does not, in words. Nothing has been changed then. HF_EIO: the directory cannot be used. */
int founding_settle(struct storage *storage, const struct founding *founding,
                    char ret_life[FOUNDING_LIFE + 1], struct error_text *err);

#endif
