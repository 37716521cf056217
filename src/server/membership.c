#include "server/membership.h"
#include "server/cluster.h"
#include "server/log.h"
#include "server/server.h"

#include <stdio.h>
#include <string.h>

/* On disk it may be a member, or not: only a start can tell. */
static bool fail_to_store(const struct error_text *err)
{
    log_error("this node cannot become a member of a cluster", log_text("why", err->text));
    return false;
}

bool membership_founded(struct server *server, const struct record *record)
{
    const struct config_cluster *members = &server->config->cluster;
    struct replica_config config;
    char initial_members[MEMBERS_TEXT_MAX + 1];
    struct error_text err = {""};

    record_write(members, record, initial_members);
    record_members(members, record, &config);
    if (node_bootstrap(server->node, &config, initial_members, &err) != HF_OK)
        return fail_to_store(&err);
    server->membership.shut_out = NULL;
    log_info("the cluster is founded, and this node is one of its members",
             log_text("cluster", node_cluster(server->node)),
             log_text("members", server->bootstrap.list));
    return true;
}

void membership_added(struct server *server, uint64_t leader, const char *cluster)
{
    struct error_text err = {""};

    if (!server->node || !node_waits(server->node))
        return;
    if (node_join(server->node, cluster, &err) != HF_OK) {
        fail_to_store(&err);
        return;
    }
    server->membership.shut_out = NULL;
    log_info("this node has been added to a cluster", log_text("cluster", cluster),
             log_number("leader", (int64_t)leader));
}

bool membership_hears_nothing(const struct server *server)
{
    return !node_waits(server->node) && replica_members(server->replica)->count == 0 &&
           replica_leader(server->replica) == 0;
}
