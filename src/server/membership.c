#include "server/membership.h"
#include "server/log.h"
#include "server/server.h"

#include <stdio.h>
#include <string.h>

/* From now on this node takes part. */
static bool begin(struct server *server, const char *cluster, const struct replica_member *members,
                  int count)
{
    struct bootstrap *bootstrap = &server->bootstrap;
    struct error_text err = {""};

    server->shut_out = NULL;
    snprintf(bootstrap->cluster, sizeof bootstrap->cluster, "%s", cluster);
    network_set_cluster(server->network, cluster);
    if (replica_begin(server->replica, members, count, &err) == HF_OK)
        return true;
    log_error(err.text);
    return false;
}

/* On disk it may be a member, or not: only a start can tell. */
static bool fail_to_store(struct server *server, const struct error_text *err)
{
    log_error("this node cannot become a member of a cluster", log_text("why", err->text));
    replica_cannot_begin(server->replica, err);
    return false;
}

bool membership_founded(struct server *server, const char *cluster, const struct record *record)
{
    const struct config_cluster *members = &server->config->cluster;
    struct replica_member begins[CONFIG_MEMBERS_MAX];
    char founders[FOUNDING_MEMBERS + 1];
    struct error_text err = {""};

    record_write(members, record, founders);
    if (founding_found(server->storage, cluster, founders, &err) != HF_OK)
        return fail_to_store(server, &err);
    record_members(members, record, begins);
    log_info("the cluster is founded, and this node is one of its members",
             log_text("cluster", cluster), log_text("members", server->bootstrap.list));
    return begin(server, cluster, begins, members->count);
}

bool membership_added(struct server *server, uint64_t leader, const char *cluster)
{
    const struct bootstrap *bootstrap = &server->bootstrap;
    struct error_text err = {""};

    if (!server->replica || !replica_waits(server->replica) ||
        (bootstrap->cluster[0] && strcmp(bootstrap->cluster, cluster) != 0))
        return false;
    if (founding_join(server->storage, cluster, &err) != HF_OK)
        return fail_to_store(server, &err);
    log_info("this node has been added to a cluster", log_text("cluster", cluster),
             log_number("leader", (int64_t)leader));
    return begin(server, cluster, NULL, 0);
}

bool membership_hears_nothing(const struct server *server)
{
    struct replica_seen any;

    return !replica_waits(server->replica) && replica_members(server->replica, &any, 1) == 0 &&
           replica_leader(server->replica) == 0;
}
