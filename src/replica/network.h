/* network.h: what a raft_io needs to reach the other nodes: src/peers under libraft's messages.
 *
 *     storage_open ──▶ network_open ──▶ replica_open … replica_close ──▶ network_close ──▶ storage_close */
#ifndef REPLICA_NETWORK_H
#define REPLICA_NETWORK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct network;
struct raft_io;
struct uv_loop_s;

struct network_options {
    uint64_t id;
    const char *address, *listen; /* see peers.h */
    const void *secret;
    size_t secret_size;
    void *context;
    void (*note)(void *context, int level, const char *text);
    const char *about;                                          /* see peers.h, */
    bool (*met)(void *context, uint64_t id, const char *about); /* and there; may be NULL */
};

/* io: borrowed until closed; it sends and receives from now on. */
int network_open(struct uv_loop_s *loop, const struct network_options *options, struct raft_io *io,
                 struct network **ret_network, struct error_text *err);
uint16_t network_port(const struct network *network);
void network_close(struct network *network, void (*done)(void *context), void *context);

#endif
