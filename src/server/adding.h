/* adding.h: CLUSTER ADD. The members know each other by id, address and incarnation (raft/raft.h, R20), so a node has to be asked for its incarnation
 * before it can be added: it runs, and its directory is empty.
 *
 *     ADD ──▶ "ask NUMBER" ──▶ "is NUMBER empty|joins LIFE LIST" ──▶ a change of members ──▶ OK
 *
 * The words are those of bootstrap.c. */
#ifndef SERVER_ADDING_H
#define SERVER_ADDING_H

#include "node/node.h"
#include "session/commands.h"

#include <uv.h>

struct server;

struct adding {
    uv_timer_t timer;
    bool open;               /* the timer is */
    struct request *request; /* NULL: nobody is being asked */
    uint64_t id;
    char address[REPLICA_ADDRESS_MAX + 1];
    uint64_t number; /* of the question */
    int64_t until_ms, next_ms;
};

enum verdict command_cluster_add(struct session *, const struct resp_node *);
void adding_open(struct server *server);
/* Answers who waits. */
void adding_close(struct server *server);
/* Another node has said what it is: see bootstrap.c. */
void adding_heard(struct server *server, const struct node_words *words, uint64_t number,
                  const char *what, const char *of);

#endif
