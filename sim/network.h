/* network.h: between the nodes: connections that keep the order of messages and break, or datagrams that do what they like. */
#ifndef SIM_NETWORK_H
#define SIM_NETWORK_H

#include "sim/chance.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define NETWORK_NODES 8

struct sim;
struct node;

struct packet {
    uint64_t from, incarnation;
    uint64_t connection; /* 0: a datagram */
    uint32_t size;
    unsigned char bytes[];
};

/* From one node to another. */
struct link {
    int64_t last_us; /* when the last message of it arrives */
    bool cut;
};

struct network {
    struct chance chance;
    struct link links[NETWORK_NODES][NETWORK_NODES];
    uint64_t connection[NETWORK_NODES][NETWORK_NODES]; /* of two nodes, either way: its number */
    int64_t again_us[NETWORK_NODES][NETWORK_NODES];    /* it is broken until then */
};

void network_begin(struct sim *sim);
void network_send(struct sim *sim, struct node *from, uint64_t to, const struct iovec *pieces,
                  unsigned count);
/* Has come. False: it was lost with its connection. */
bool network_came(struct sim *sim, const struct node *to, const struct packet *packet);
/* A process has ended. at_once: the others are told by the kernel of its machine. */
void network_ended(struct sim *sim, const struct node *node, bool at_once);
/* New cuts, in place of those that were. */
void network_cut(struct sim *sim);
/* This one alone. */
void network_isolate(struct sim *sim, uint64_t id);
void network_heal(struct sim *sim);
bool network_is_cut(const struct sim *sim, uint64_t from, uint64_t to);

#endif
