/* client_poll.h: what clients send, and when it is listened to. */
#ifndef SERVER_CLIENT_POLL_H
#define SERVER_CLIENT_POLL_H

#include "base/list.h"
#include "resp/resp.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct connection;
struct server;

struct client_poll {
    int fd; /* an epoll set of the clients' sockets */
    uv_poll_t handle;
    bool paused;
    struct list gone;        /* connections whose events may have been fetched */
    struct resp_spare spare; /* what readers without anything to read have left */
};

void client_poll_open(struct server *server);
void client_poll_close(struct server *server);
/* Asks for these events of the connection, instead of those before. */
void client_poll_want(struct connection *connection, uint32_t events);
/* What was asked for is told again if it is there already: without that, only what is new is told. */
void client_poll_again(struct connection *connection);
/* The connection is closed: there will be no more events. */
void client_poll_forget(struct connection *connection);
/* Serves what has come. */
void client_poll_read(struct server *server);
/* Paused: what comes does not wake the loop. */
void client_poll_pause(struct server *server, bool paused);

#endif
