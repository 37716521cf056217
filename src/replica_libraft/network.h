/* network.h: what a raft_io needs to reach the other nodes: src/peers under libraft's messages.
 *
 *     storage_open ──▶ network_open ──▶ replica_open … replica_close ──▶ network_close ──▶ storage_close
 *
 * Beside libraft's messages there are words, short texts of the host's own. Those pass between a member and a node that belongs to
 * no cluster yet; libraft's messages only pass between nodes of one cluster, with one exception: a leader's first message
 * to a node that waits makes it a member of the leader's cluster, if the host agrees.
 *
 * Which of them count, and who gets them, is decided for each by the members as libraft knows them at that moment: see [I2] and [I3] in
 * identity.h. */
#ifndef REPLICA_NETWORK_H
#define REPLICA_NETWORK_H

#include "base/error.h"
#include "base/note.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct network;
struct raft_io;
struct uv_loop_s;

#define NETWORK_CLUSTER 32      /* characters of a cluster's id */
#define NETWORK_WORDS_MAX 4095u /* bytes */

#define NETWORK_LOST                                                                               \
    "the members of the cluster know this node with other data: its directory was lost or is not " \
    "mounted; mount it, or remove this node and add it under another id (if a majority lost its "  \
    "data: holdfastd --restore-from)"

struct network_node { /* see peers.h */
    uint64_t id;
    const char *about, *cluster;
};

struct network_words {
    uint64_t from;
    const char *address, *cluster; /* the sender's; cluster "": it belongs to none */
    const char *text;              /* with a NUL; lives during the call */
};

struct network_host {
    void *context;
    void (*note)(void *context, const struct note *note);
    /* A node has connected. False: it is not let in. May be NULL, as those below. */
    bool (*met)(void *context, const struct network_node *node);
    /* The same of one that this node has connected to. */
    bool (*reached)(void *context, const struct network_node *node);
    char (*why_not)(void *context, uint64_t id); /* see peers.h, as the next */
    void (*turned_away)(void *context, uint64_t by, char why);
    void (*heard)(void *context, const struct network_words *words);
    /* This node belongs to no cluster, and a leader of this one sends to it. True: it does now. */
    bool (*adopted)(void *context, uint64_t leader, const char *cluster);
};

struct network_options {
    uint64_t id;
    const char *address, *listen; /* see peers.h */
    const void *secret, *other;
    size_t secret_size, other_size;
    const char *about;   /* see peers.h: where clients find this node, a slash, and its life */
    const char *cluster; /* this node's; "": none yet */
};

/* io: borrowed until closed; it sends and receives from now on. */
int network_open(struct uv_loop_s *loop, const struct network_options *options,
                 const struct network_host *host, struct raft_io *io, struct network **ret_network,
                 struct error_text *err);
/* This node belongs to this cluster from now on. */
void network_set_cluster(struct network *network, const char *cluster);
/* See peers.h. */
int network_set_secrets(struct network *network, const void *secret, size_t secret_size,
                        const void *other, size_t other_size, struct error_text *err);
/* False: there is no connection yet; one is being made. What is sent may get lost. */
bool network_say(struct network *network, uint64_t to, const char *address, const char *text);
/* Is there a connection to this node now? That of a process that has died ends at once; one whose machine is gone is there until
 * that is found out. */
bool network_is_connected(const struct network *network, uint64_t id);
/* Why this node could not be reached the last time, in words; "": not known. Lives until the loop goes on. */
const char *network_why(const struct network *network, uint64_t id);
/* Ends all connections with this node; it is not called before it is a member again. */
void network_forget(struct network *network, uint64_t id);
uint16_t network_port(const struct network *network);
void network_close(struct network *network, void (*done)(void *context), void *context);

#endif
