/* commands.c: the commands beside those about locks (src/session): about this server and this connection, and what clients of Redis expect. */
#include "server/server.h"

const struct command server_commands[] = {
    {"PING", -1, command_ping, COMMAND_SUBSCRIBED, "Is anybody there?", "[text]"},
    {"INFO", -1, command_info, 0, "How the server is", "[section ...]"},
    {"COMMAND", -1, command_command, 0, "Which commands there are",
     "[COUNT | LIST | INFO name ... | DOCS name ...]"},
    {"CLUSTER", -2, command_cluster, 0, "The nodes, and who leads them",
     "STATUS | DIGEST | INIT | ADD id host:port | REMOVE id | TRANSFER [id] | SLOTS | MYID"},
    {"HELLO", -1, command_hello, COMMAND_OPEN, "Chooses the protocol",
     "[2 | 3] [AUTH user password] [SETNAME name] [LOSSES]"},
    {"AUTH", -2, command_auth, COMMAND_OPEN, "Says the password", "[user] password"},
    {"CLIENT", -2, command_client, 0, "About this connection",
     "SETNAME name | GETNAME | SETINFO what text | ID | INFO"},
    {"SELECT", 2, command_select, 0, "There is only 0", "index"},
    {"SUBSCRIBE", -2, command_subscribe, COMMAND_LOGGED | COMMAND_SUBSCRIBED,
     "OBSERVE for clients that speak RESP2", "name [name ...]"},
    {"UNSUBSCRIBE", -1, command_unsubscribe, COMMAND_SUBSCRIBED, "Ends that", "[name ...]"},
    {"QUIT", 1, command_quit, COMMAND_OPEN | COMMAND_SUBSCRIBED, "Closes the connection", ""},
};
const size_t server_command_count = sizeof server_commands / sizeof *server_commands;
