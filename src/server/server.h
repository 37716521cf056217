/* server.h: what the files of this room have in common: one holdfastd. Each of them has a header of its own for what it does.
 *
 *     admin.c        what operators see by HTTP
 *     connection.c   bytes in, bytes out, one client
 *     client_poll.c  what clients send, and when it is listened to
 *     login.c        who somebody is; users.c: the file that says who may do what; audit.c: what was done
 *     tls.c          handshakes, and who a certificate is of; tls_config.c: its files
 *     session_host.c what sessions get from here: commands, answers and who waits are src/session
 *     commands.c     the commands beside those about locks:
 *     cmd_connection.c  HELLO, AUTH, CLIENT: what is between a client and us
 *     cmd_command.c  COMMAND: which commands there are
 *     info.c         INFO: how this server is; metrics.c: its numbers, for INFO and for Prometheus
 *     cluster.c      CLUSTER: who belongs to it, who leads, and where clients find them
 *     bootstrap.c    CLUSTER INIT: founding a cluster, waiting to belong to one
 *     membership.c   a node that waited becomes a member
 *     adding.c       CLUSTER ADD: asks a node, and adds it
 *     backup.c       CLUSTER BACKUP: the table, piece by piece
 *     restore.c      a data directory from a backup
 *     node.c         opening and closing what is beneath: src/node
 *     listening.c    sockets that clients come to
 *     activation.c   those that systemd has opened
 *     loop.c         the loop: what happens when
 *
 * One thread, one libuv loop. In each round: sockets are read and their commands submitted, the log's
 * effects are turned into answers, then the batch is proposed and the answers are written. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/clock.h"
#include "base/list.h"
#include "node/node.h"
#include "server/adding.h"
#include "server/admin.h"
#include "server/backup.h"
#include "server/bootstrap.h"
#include "server/client_poll.h"
#include "server/cluster.h"
#include "server/cluster_commands.h"
#include "server/config.h"
#include "server/listening.h"
#include "server/login.h"
#include "server/metrics.h"
#include "server/tls.h"
#include "session/session.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct server {
    const struct config *config;
    uv_loop_t *loop;
    int64_t began_ms;

    struct node *node;
    const struct replica *replica;      /* the node's, to look at */
    bool has_links;                     /* with other nodes; else it is a node alone */
    char address[CORE_ADDRESS_MAX + 1]; /* where clients find this node */
    struct membership_view membership;
    struct hand_over hand_over;
    struct bootstrap bootstrap;
    struct adding adding;
    struct backups backups;

    /* Where clients come from: listening.c's. */
    struct listener listeners[CONFIG_LISTEN_MAX];
    int listener_count;
    uv_timer_t accept_again;
    uint64_t accepted, refused;

    /* The clients: connection.c's. */
    struct client_poll client_poll;
    struct sessions sessions; /* of all connections */
    struct list dirty, ready, busy;
    struct list unauthenticated; /* connections, in the order in which they came */
    uint32_t connection_count, unauthenticated_count;
    uint32_t expected; /* commands, of those who sent something lately */
    uint64_t next_id;
    struct users *users; /* NULL: there is no users file */
    struct logins logins;
    struct tls_state tls;
    struct metrics metrics;
    struct admin admin;
    uint64_t digest_after_ns; /* by the loop's clock: no CLUSTER DIGEST is computed before */
};

/* For what is counted: how long things take. */
static inline void server_look_at_clock(struct server *server)
{
    server->sessions.now_us = clock_boot_ns() / 1000;
}

static inline struct server *server_of(const struct session *session)
{
    return LIST_ENTRY(session->sessions, struct server, sessions);
}

#endif
