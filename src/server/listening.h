/* listening.h: the sockets that clients come to. */
#ifndef SERVER_LISTENING_H
#define SERVER_LISTENING_H

#include "server/endpoint.h"

#include <stdbool.h>
#include <uv.h>

#define ACCEPTS_PER_ROUND 64

struct protocol;
struct server;

struct listener {
    struct server *server;
    struct endpoint endpoint;
    const struct protocol *protocol; /* what clients speak there, under TLS or not */
    int fd;
    bool is_ours; /* not systemd's, which keeps it when we end */
    uv_poll_t poll;
};

/* Port 0 of the endpoint becomes a real one. The socket is the caller's. */
int listening_tcp(struct endpoint *endpoint, int *ret_fd, struct error_text *err);
/* All of them, as they may be written again. */
void listening_shown(const struct server *server, char *ret_text, size_t size);
int listening_open(struct server *server, struct error_text *err);
void listening_close(struct server *server);

#endif
