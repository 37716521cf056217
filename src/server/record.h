/* record.h: the record of a founding (bootstrap.h), as nodes hand it to each other: "1=HOST:PORT/LIFE,2=HOST:PORT/LIFE". What it says is
 * kept in the first entry of the log and among the lives. */
#ifndef SERVER_RECORD_H
#define SERVER_RECORD_H

#include "replica/network.h"
#include "server/lives.h"

struct server;

/* False: it does not list the same members as this node, or has another life for it. */
bool record_read(const struct server *server, const char *record, struct lives *ret_lives);
/* Does this node have it? It is of use as long as there was no change of members. */
bool record_is_here(const struct server *server);
/* Of a node that has it. */
void record_write(const struct server *server, char ret_record[NETWORK_WORDS_MAX + 1]);

#endif
