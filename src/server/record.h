/* record.h: the record of a founding (bootstrap.h), as nodes hand it to each other: "1=HOST:PORT/LIFE,2=HOST:PORT/LIFE". It is what the
 * log of each begins with. */
#ifndef SERVER_RECORD_H
#define SERVER_RECORD_H

#include "replica_libraft/founding.h"
#include "server/config.h"

struct server;

struct record { /* the lives of the members in the configuration, in its order */
    char lives[CONFIG_MEMBERS_MAX][FOUNDING_LIFE + 1];
};

/* False: it does not list these members. */
bool record_read(const struct config_cluster *members, const char *text, struct record *ret_record);
void record_write(const struct config_cluster *members, const struct record *record,
                  char ret_text[FOUNDING_MEMBERS + 1]);
/* What a log begins with. Points into both. */
void record_members(const struct config_cluster *members, const struct record *record,
                    struct replica_member ret_members[CONFIG_MEMBERS_MAX]);
/* Of this node's log. False: there is none, or there was a change of members, after which it is of no use. */
bool record_find(const struct server *server, struct record *ret_record);

#endif
