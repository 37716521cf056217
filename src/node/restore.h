/* restore.h: a data directory from a backup, which is a file of 'holdfast cluster backup', or a copy of a data directory. Nobody runs in it
 * meanwhile.
 *
 * What a file has was committed. What a copy has is all of its log, whether or not it was committed when the copy was made: nobody here can know that, and what
 * is too much does less harm than what is missing. What was acknowledged afterwards is not in it: tokens among it. So what is
 * restored is another store, in a cluster of its own with one member:
 *
 *     a new cluster id      members of the old cluster do not hear this node, nor it them
 *     a new term, and in it one snapshot of what the copy has, in place of its log, with
 *       the members         this node, in a new incarnation, and nobody else; nothing is left of the old ones, whose numbers
 *                           others may get
 *       the store's identity, a new id
 *       the next token      CORE_RESTORE_JUMP above the wall clock (core_restored_token): of two restores the later one's are greater,
 *                           whichever of the copies is the older
 *
 * A file 'restoring' (files.h) is in the directory from the beginning to the end; a start refuses a directory that has it, and a
 * restore begins again in it. */
#ifndef NODE_RESTORE_H
#define NODE_RESTORE_H

#include "base/error.h"

#include <stdint.h>

struct restore_options {
    const char *source; /* is not written to */
    const char *target; /* is not there, or empty */
    uint64_t id;
    const char *address; /* for its peers; "": it is alone */
    const char *when;    /* for people */
    /* As a token, as a new store's first. Where it is not known, a number below CORE_RESTORE_JUMP, at random. */
    uint64_t clock;
    void (*random)(void *bytes, unsigned size);
};

struct restore_result {
    uint64_t token; /* the last one that the copy knows, */
    uint64_t next;  /* and what the restored store's are greater than */
    uint32_t holds;
    uint64_t id; /* of the node that it is a copy of; 0: not known */
};

/* HF_EREFUSED: source or target cannot be used for it. HF_EIO: the copy is damaged, or the disk refuses. In words; the target is to be
 * emptied, or used for another restore. */
int restore_directory(const struct restore_options *options, struct restore_result *ret_result,
                      struct error_text *err);

#endif
