/* session_host.h: what sessions (src/session) get from this server. */
#ifndef SERVER_SESSION_HOST_H
#define SERVER_SESSION_HOST_H

struct server;

void server_open_sessions(struct server *server);

#endif
