/* node.h: a node alone, as it really is: libuv, a data directory, the machine's clock. */
#ifndef TESTS_REPLICA_NODE_H
#define TESTS_REPLICA_NODE_H

#include "tools.h"

#include "replica_libraft/storage.h"

#include <limits.h>
#include <uv.h>

#define NODE_PATIENCE_MS 30000 /* what takes longer will not come */

struct node {
    char home[PATH_MAX - 16]; /* removed by node_free */
    char path[PATH_MAX];      /* the data directory, in home */
    struct replica_options options;
    struct storage_options storage_options;
    uv_loop_t loop;
    uv_timer_t beat; /* so that no turn takes longer than a millisecond */
    struct storage *storage;
    struct replica *replica;
    struct witness witness;
    bool closed;
};

/* A new home below $HOLDFAST_TEST_DIR. */
void node_init(struct node *node);
/* HF_OK, or what failed, with everything closed again. */
int node_open(struct node *node, struct error_text *err);
/* Opens, and waits until it serves. */
void node_serve(struct node *node);
void node_turn(struct node *node);
void node_close(struct node *node);
/* Closes, and opens again until it serves; what the witness heard is forgotten. */
void node_reopen(struct node *node);
void node_free(struct node *node);

struct replica_status node_status(const struct node *node);
uint64_t node_hash(const struct node *node);
/* The name of a file in the data directory that begins and ends like this; the last by name. */
bool node_find_file(const struct node *node, const char *begins, const char *ends,
                    char ret_path[2 * PATH_MAX]);

/* Turns until the condition is true. */
#define NODE_UNTIL(node, condition)                                  \
    do {                                                             \
        int64_t node_until_end = clock_boot_ms() + NODE_PATIENCE_MS; \
        while (!(condition)) {                                       \
            node_turn(node);                                         \
            if (clock_boot_ms() > node_until_end)                    \
                fail_msg("waited in vain for %s", #condition);       \
        }                                                            \
    } while (0)

#endif
