/* tls.h: clients that speak TLS: their handshakes, their bytes, and who their certificates say that they are. What TLS does is a module's
 * (net/tls_server.h); a connection has its client of it, or speaks in the clear. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include "base/error.h"
#include "base/list.h"
#include "net/tls_server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TLS_HANDSHAKE_MS 10000     /* until then it is done */
#define TLS_HANDSHAKE_FAIR_MS 1000 /* while others wait for their turn */
#define TLS_HANDSHAKES_MAX 256u    /* at a time; each may cost some 100 KB until it is done */
#define TLS_HANDSHAKES_SHARE 4u    /* and at most one in so many of --max-clients */
#define TLS_ROUND_US 5000          /* of CPU for handshakes, and then all others have their turn */
#define TLS_WARN_DAYS 14           /* before a certificate ends */

struct account;
struct config;
struct connection;
struct server;
struct users;

struct tls_state {
    struct tls_context *context; /* NULL: there is no TLS */
    struct tls_context *peers;   /* with other nodes; NULL: there is none */
    struct list silent; /* connections that have sent nothing, in the order in which they came */
    struct list handshakes; /* those that have begun to speak, in that order */
    struct list steps;      /* of them, those that may go on with it */
    uint32_t handshake_count, connection_count;
    uint64_t done, failed;
    int64_t told_ms; /* when the log was last told of a certificate that ends; -1: not yet */
};

void tls_open(struct server *server);
void tls_close(struct server *server);
/* SIGHUP. Whoever is connected stays so. */
void tls_reload(struct server *server, const struct config *config);
/* Each second: who takes too long; a certificate that ends. */
void tls_tick(struct server *server, int64_t now_ms);
/* As many are at it as may be. */
bool tls_is_full(const struct server *server);
/* Somebody waits to be taken, and it is full. False: they come first. */
bool tls_make_room(struct server *server);
/* Handshakes go on for a while. False: some have to wait for the next round. */
bool tls_go_on(struct server *server);

/* A new connection begins with a handshake. False: there is no memory. */
bool tls_begin(struct connection *connection);
/* It has something to read, or may write. */
void tls_step(struct connection *connection, bool hung_up);
/* As recv(2) and send(2). */
ssize_t tls_receive(struct connection *connection, void *bytes, size_t size);
ssize_t tls_send(struct connection *connection, const void *bytes, size_t size);
/* A read waits until the socket takes something. */
bool tls_must_write(const struct connection *connection);
/* Whose certificate it has shown. NULL: nobody's, or that of several. */
struct account *tls_account(const struct connection *connection, struct users *users);
/* It is closed. */
void tls_left(struct connection *connection);

/* What INFO says: lines of "field:value". */
/* When the certificates end, in seconds since 1970; 0: there is none. */
void tls_ends(const struct tls_state *tls, uint64_t *ret_for_clients, uint64_t *ret_for_peers);
void tls_info(const struct server *server, char *ret_text, size_t size);

#endif
