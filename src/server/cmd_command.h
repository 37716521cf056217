/* cmd_command.h: COMMAND: which commands there are. */
#ifndef SERVER_CMD_COMMAND_H
#define SERVER_CMD_COMMAND_H

#include "session/commands.h"

enum verdict command_command(struct session *, const struct resp_node *);

#endif
