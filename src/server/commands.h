/* commands.h: the commands beside those about locks (src/session). */
#ifndef SERVER_COMMANDS_H
#define SERVER_COMMANDS_H

#include "session/commands.h"

extern const struct command server_commands[];
extern const size_t server_command_count;

#endif
