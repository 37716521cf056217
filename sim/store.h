/* store.h: a node's directory: its log, term, vote and snapshot, and what has been asked of its disk and is not done yet. */
#ifndef SIM_STORE_H
#define SIM_STORE_H

#include "journal/journal.h"
#include "replica/replica.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim;
struct node;
struct store_op;

struct store_queue {
    struct store_op *first, *last;
    bool busy; /* its event is planned */
};

struct store_entry {
    uint64_t index, term, chain, commit;
    uint8_t type;
    size_t size;
    unsigned char *bytes;
};

struct store {
    /* What is durable. */
    uint64_t term, vote;
    struct store_entry *log;
    size_t count, capacity;
    unsigned char *image; /* as it is sent to others; NULL: none */
    size_t image_size;
    uint64_t image_index;
    unsigned char *old_image; /* the one before, which is still open somewhere */
    size_t old_image_size;
    uint64_t old_image_index;
    /* What is under way. */
    struct store_queue writes, reads;
};

/* The disk's part of replica_io; the context is a struct node_context. */
void store_io(struct replica_io *ret_io);
void store_event(struct sim *sim, struct node *node, bool write);
/* The process has ended: of what was under way some is durable, in its order. */
void store_crash(struct sim *sim, struct node *node);
/* The directory is gone. */
void store_wipe(struct store *store);
/* A new replica of what is there. */
int store_open(struct sim *sim, struct node *node, const struct replica_options *options,
               const struct replica_io *io, const struct replica_host *host,
               struct replica **ret_replica, struct error_text *err);
uint64_t store_last(const struct store *store);

#endif
