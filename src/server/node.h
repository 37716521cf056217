/* node.h: opening and closing what is beneath the server (src/node). */
#ifndef SERVER_NODE_H
#define SERVER_NODE_H

#include "base/error.h"

struct node_host;
struct server;

/* host: what the server does with effects, roles and so on; the rest is filled in. */
int server_open_node(struct server *server, struct node_host *host, struct error_text *err);
/* Whether or not it was opened. */
void server_close_node(struct server *server, void (*done)(void *context), void *context);

#endif
