/* commands.c: the commands beside those about locks (src/session): about this server and this connection, and what clients of Redis expect. */
#include "server/commands.h"
#include "server/cluster_commands.h"
#include "server/cmd_command.h"
#include "server/cmd_connection.h"
#include "server/info.h"
#include "server/server.h"

const struct command server_commands[] = {
    {"PING", -1, command_ping, COMMAND_SUBSCRIBED, RIGHT_NONE, NAMES_NONE, "Is anybody there?",
     "[text]", NULL},
    {"INFO", -1, command_info, 0, RIGHT_LOOK_OR_ACQUIRE, NAMES_NONE, "How the server is",
     "[section ...]", NULL},
    {"COMMAND", -1, command_command, 0, RIGHT_NONE, NAMES_NONE, "Which commands there are",
     "[COUNT | LIST | INFO name ... | DOCS name ...]", NULL},
    {"CLUSTER", -2, NULL, 0, RIGHT_NONE, NAMES_NONE, "The nodes, and who leads them",
     "STATUS | DIGEST | INIT | ADD id host:port | REMOVE id | TRANSFER [id] | BACKUP | PIECE id "
     "offset | SLOTS | MYID",
     cluster_parts},
    {"HELLO", -1, command_hello, COMMAND_OPEN, RIGHT_NONE, NAMES_NONE, "Chooses the protocol",
     "[2 | 3] [AUTH user password] [SETNAME name] [LOSSES]", NULL},
    {"AUTH", -2, command_auth, COMMAND_OPEN, RIGHT_NONE, NAMES_NONE, "Says the password",
     "[user] password", NULL},
    {"CLIENT", -2, NULL, 0, RIGHT_NONE, NAMES_NONE, "About this connection",
     "SETNAME name | GETNAME | SETINFO what text | ID | INFO", client_parts},
    {"SELECT", 2, command_select, 0, RIGHT_NONE, NAMES_NONE, "There is only 0", "index", NULL},
    {"SUBSCRIBE", -2, command_subscribe, COMMAND_LOGGED | COMMAND_SUBSCRIBED, RIGHT_LOOK, NAMES_ALL,
     "OBSERVE for clients that speak RESP2", "name [name ...]", NULL},
    {"UNSUBSCRIBE", -1, command_unsubscribe, COMMAND_SUBSCRIBED, RIGHT_NONE, NAMES_ALL, "Ends that",
     "[name ...]", NULL},
    {"QUIT", 1, command_quit, COMMAND_OPEN | COMMAND_SUBSCRIBED, RIGHT_NONE, NAMES_NONE,
     "Closes the connection", "", NULL},
};
const size_t server_command_count = sizeof server_commands / sizeof *server_commands;
