/* store.h: a node's directory, on a simulated disk: the production journal, term and snapshots. And what has been asked of that disk
 * and is not done yet. */
#ifndef SIM_STORE_H
#define SIM_STORE_H

#include "node/recovery.h"
#include "sim/disk.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_DIRECTORY "/data"

struct sim;
struct node;

enum store_op_kind { STORE_APPEND = 1, STORE_SNAPSHOT, STORE_READ_LOG, STORE_READ_SNAPSHOT };

struct store_op {
    struct store_op *next;
    enum store_op_kind kind;
    uint64_t number, to, first, last;
    uint64_t offset;
    size_t size;
    bool installs, keeps_log;
    struct replica_snapshot *snapshot; /* owned; the table's bytes are the replica's */
    size_t count;
    struct journal_record records[]; /* and so are these */
};

struct store_queue {
    struct store_op *first, *last;
    bool busy; /* its event is planned */
};

/* As it is sent to others. */
struct store_snapshot {
    unsigned char *bytes;
    size_t size;
    uint64_t index; /* 0: none */
};

struct store {
    struct sim_disk *disk;
    struct recovery recovery;
    struct store_snapshot snapshot, old; /* old: the one before, which is still open somewhere */
    struct store_queue writes, reads;
    uint64_t trimmed;     /* nobody needs the log up to here */
    uint64_t group_first; /* of the entries that were written last */
};

/* ---- store.c: what is asked for, and when it is done */

/* The disk's part of replica_io; the context is a struct node_context. */
void store_io(struct replica_io *ret_io);
void store_event(struct sim *sim, struct node *node, bool write);
/* The process has ended: of what was under way some is durable, in its order. power: what was not synced is lost. */
void store_crash(struct sim *sim, struct node *node, bool power);
/* What has been asked for, and is not done, is forgotten. */
void store_drop_queues(struct store *store);

/* ---- store_disk.c: how */

void store_make(struct sim *sim, struct store *store);
void store_free(struct store *store);
/* A new replica of what is there. */
int store_open(struct sim *sim, struct node *node, const struct replica_options *options,
               const struct replica_io *io, const struct replica_host *host,
               struct replica **ret_replica, struct error_text *err);
/* The process has ended. */
void store_close(struct store *store, bool power);
int store_append(struct store *store, const struct journal_record *records, size_t count,
                 struct error_text *err);
int store_write_snapshot(struct store *store, const struct store_op *op, struct error_text *err);
void store_trim(struct store *store);
void store_read_log(struct sim *sim, struct node *node, const struct store_op *op);
void store_read_snapshot(struct sim *sim, struct node *node, const struct store_op *op);

#endif
