/* record.h: the record of a founding (bootstrap.h), as nodes hand it to each other: "1=HOST:PORT/LIFE,2=HOST:PORT/LIFE". It is what the
 * log of each begins with. */
#ifndef SERVER_RECORD_H
#define SERVER_RECORD_H

#include "node/identity.h"
#include "server/config.h"

struct server;

struct record { /* the incarnations of the members in the configuration, in its order */
    char incarnations[CONFIG_MEMBERS_MAX][INCARNATION_DIGITS + 1];
};

/* False: it does not list these members. */
bool record_read(const struct config_cluster *members, const char *text, struct record *ret_record);
void record_write(const struct config_cluster *members, const struct record *record,
                  char ret_text[MEMBERS_TEXT_MAX + 1]);
/* What a log begins with. */
void record_members(const struct config_cluster *members, const struct record *record,
                    struct replica_config *ret_config);
/* The id of the cluster that it founds. */
void record_cluster(const struct config_cluster *members, const struct record *record,
                    char ret_cluster[CLUSTER_ID_DIGITS + 1]);
/* Of this node's log. False: there is none, or there was a change of members, after which it is of no use. */
bool record_find(const struct server *server, struct record *ret_record);

#endif
