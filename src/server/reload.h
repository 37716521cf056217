/* reload.h: files that are read again while the server runs. */
#ifndef SERVER_RELOAD_H
#define SERVER_RELOAD_H

struct config;
struct server;

/* SIGHUP. config: the server's. */
void reload(struct server *server, struct config *config);

#endif
