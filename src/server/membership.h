/* membership.h: how a node that waits (bootstrap.h) becomes a member: by the record of a founding, or because a leader sends to it. Both are
 * durable before it takes part. */
#ifndef SERVER_MEMBERSHIP_H
#define SERVER_MEMBERSHIP_H

#include "server/record.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

/* The cluster is founded with the members of the configuration, of which this node is one. False: it goes on waiting, and the log says why. */
bool membership_founded(struct server *server, const struct record *record);
/* A leader of this cluster sends to this node. */
void membership_added(struct server *server, uint64_t leader, const char *cluster);

/* It was added, and had not got any of the log when it was stopped: it does not know who the others are. */
#define MEMBERSHIP_HEARS_NOTHING                                                          \
    "this node has been added to a cluster, and waits for its leader; if it was removed " \
    "meanwhile, "                                                                         \
    "empty its directory, and add it under another id"
bool membership_hears_nothing(const struct server *server);

#endif
