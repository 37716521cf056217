/* initial_members.h: the settings of a cluster: which members it is founded with, and the rules between them. */
#ifndef SERVER_INITIAL_MEMBERS_H
#define SERVER_INITIAL_MEMBERS_H

#include "server/settings.h"

/* "1=host:port,2=host:port": in any order. */
extern const struct setting_kind initial_members_kind;
/* "host:port", of a machine; "" is none. */
extern const struct setting_kind address_kind;

/* What has to be true of a cluster's settings together. */
int initial_members_check(const struct config *config, struct error_text *err);
/* This node's own, or NULL. */
const struct config_member *initial_members_find(const struct config_cluster *cluster, uint64_t id);

#endif
