/* cluster_inside.h: what the files of the cluster share. */
#ifndef TESTS_RAFT_CLUSTER_INSIDE_H
#define TESTS_RAFT_CLUSTER_INSIDE_H

#include "cluster.h"

#include <stdlib.h>
#include <string.h>

entry_ref entry_keep(const struct raft_entry *entry, const void *bytes, size_t size);
/* Back from the bytes of an entry that is kept. */
entry_ref entry_of_bytes(const void *bytes);

void network_take_out(struct cluster *cluster, int at);
void network_post(struct cluster *cluster, const struct cluster_message *message);
void network_add_snapshot(const struct cluster_node *node, struct cluster_message *message);
void network_send(struct cluster *cluster, struct cluster_node *node,
                  const struct raft_message *message);

/* Returns the result. */
int cluster_feed(struct cluster *cluster, struct cluster_node *node, struct raft_event *event);
/* The end of a round, and of what follows from it. */
void cluster_flush(struct cluster *cluster, struct cluster_node *node);
void cluster_take_snapshot(struct cluster *cluster, struct cluster_node *node,
                           const struct cluster_message *message);
void node_set_empty(struct cluster_node *node);

#endif
