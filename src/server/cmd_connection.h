/* cmd_connection.h: the commands about what is between a client and us. */
#ifndef SERVER_CMD_CONNECTION_H
#define SERVER_CMD_CONNECTION_H

#include "session/commands.h"

enum verdict command_ping(struct session *, const struct resp_node *);
enum verdict command_auth(struct session *, const struct resp_node *);
enum verdict command_hello(struct session *, const struct resp_node *);
extern const struct command client_parts[];
enum verdict command_select(struct session *, const struct resp_node *);
enum verdict command_quit(struct session *, const struct resp_node *);

#endif
