/* node_file.h: the file 'node' in a data directory, as founding.h shows it. */
#ifndef REPLICA_NODE_FILE_H
#define REPLICA_NODE_FILE_H

#include "journal/directory.h"
#include "replica_libraft/founding.h"

#define NODE_FILE "node"

struct node_file {
    bool there;
    uint64_t id;
    char life[FOUNDING_LIFE + 1];
    char members[FOUNDING_MEMBERS + 1];  /* as asked for at the last start; "": a node alone */
    char founders[FOUNDING_MEMBERS + 1]; /* what a log is to begin with; "": it has begun */
    char cluster[FOUNDING_CLUSTER + 1];  /* "": none */
    enum node_file_how {
        NODE_FOUNDED, /* with that cluster */
        NODE_JOINED,  /* it was added to it */
        NODE_MEMBER   /* one of both, and it has had a log */
    } how;
    char restored[FOUNDING_ABOUT + 1];
};

/* HF_EIO: it cannot be read, or is not what it should be. */
int node_file_read(const struct directory *directory, struct node_file *ret_file,
                   struct error_text *err);
/* Durable when it returns. */
int node_file_write(const struct directory *directory, const struct node_file *file,
                    struct error_text *err);
bool node_file_same(const struct node_file *one, const struct node_file *other);

#endif
