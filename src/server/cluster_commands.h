/* cluster_commands.h: CLUSTER, by which operators look at the cluster and change it. INIT is bootstrap.c's, ADD adding.c's, BACKUP and PIECE are backup.c's. */
#ifndef SERVER_CLUSTER_COMMANDS_H
#define SERVER_CLUSTER_COMMANDS_H

#include "base/error.h"
#include "replica/replica.h"
#include "session/commands.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

struct hand_over {
    bool transferring; /* another node is asked to lead, as it was wished */
    bool is_over;      /* a clean stop has asked another node to lead, and that is over */
};

extern const struct command cluster_parts[];
/* What the replica calls. */
void cluster_changed(void *context, void *request, enum replica_change result);
/* node_transfer, and a line in the log about what comes of it. */
int cluster_hand_over(struct server *server, uint64_t to, struct request *request,
                      struct error_text *err);
/* What keeps this node from taking part; "": nothing that it knows. */
const char *cluster_trouble(const struct server *server);
/* For the log. */
int64_t cluster_term(const struct server *server);
/* Why the replica does not do it, as it is answered. */
void cluster_refusal(struct server *server, int result, const struct error_text *err,
                     char ret_text[ERROR_TEXT_MAX]);

#endif
