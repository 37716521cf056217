/* node_file.h: the file 'node' in a data directory, as identity.h shows it. */
#ifndef NODE_NODE_FILE_H
#define NODE_NODE_FILE_H

#include "journal/directory.h"
#include "node/files.h"
#include "node/identity.h"

struct node_file {
    bool there;
    uint64_t id;
    uint64_t incarnation;               /* "life" in the file */
    char members[MEMBERS_TEXT_MAX + 1]; /* as asked for at the last start; "": a node alone */
    char initial_members[MEMBERS_TEXT_MAX + 1]; /* what a log is to begin with; "": it has begun */
    char cluster[CLUSTER_ID_DIGITS + 1];        /* "": none */
    enum node_file_how {
        NODE_BOOTSTRAPPED, /* with that cluster */
        NODE_JOINED,       /* it was added to it */
        NODE_MEMBER        /* one of both, and it has had a log */
    } how;
    char restored[IDENTITY_REMARK_MAX + 1];
};

/* HF_EIO: it cannot be read, or is not what it should be. */
int node_file_read(const struct directory *directory, struct node_file *ret_file,
                   struct error_text *err);
/* Durable when it returns. */
int node_file_write(const struct directory *directory, const struct node_file *file,
                    struct error_text *err);
bool node_file_same(const struct node_file *one, const struct node_file *other);

#endif
