/* info.h: what is said about the server itself, without the log: see metrics.h. */
#ifndef SERVER_INFO_H
#define SERVER_INFO_H

#include "session/commands.h"

struct server;

enum verdict command_info(struct session *, const struct resp_node *);
/* What this node is to its cluster, in one word. */
const char *role_word(const struct server *server);

#endif
