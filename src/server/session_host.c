/* session_host.c: what sessions (src/session) get from this server. */
#include "server/session_host.h"
#include "base/random.h"
#include "server/audit.h"
#include "server/cluster.h"
#include "server/commands.h"
#include "server/connection.h"
#include "server/server.h"

static int on_submit(void *context, const struct core_command *command, void *request)
{
    struct server *server = context;

    return node_submit(server->node, command, request);
}

static const struct core *on_table(void *context)
{
    const struct server *server = context;

    return replica_table(server->replica);
}

static bool on_leader_address(void *context, char *ret_text, size_t size)
{
    return cluster_leader_address(context, ret_text, size);
}

static const char *on_why_no_leader(void *context)
{
    const struct server *server = context;

    if (server->membership.shut_out)
        return server->membership.shut_out;
    if (server->node && node_waits(server->node) && server->config->join == CONFIG_JOINS)
        return "this node was started with --join and belongs to no cluster yet: add it, at a "
               "member of that cluster, with 'holdfast cluster add'";
    if (server->node && node_waits(server->node))
        return "this node belongs to no cluster yet: found one with 'holdfast cluster init' when "
               "all members run, or add this node with 'holdfast cluster add'";
    return "there is no leader at the moment";
}

void server_open_sessions(struct server *server)
{
    static const struct sessions_host host = {.submit = on_submit,
                                              .table = on_table,
                                              .leader_address = on_leader_address,
                                              .why_no_leader = on_why_no_leader,
                                              .dirty = connection_dirty,
                                              .answered = connection_answered,
                                              .unused = connection_free,
                                              .denied = audit_denied,
                                              .operates = audit_begin,
                                              .operated = audit_end};
    unsigned char seed[SIPHASH_SEED];

    random_fill(seed, sizeof seed);
    sessions_open(&server->sessions, &host, server, seed);
    server->sessions.owner_commands = server_commands;
    server->sessions.owner_command_count = server_command_count;
    server->sessions.max_pipeline = server->config->max_pipeline;
    server->sessions.max_output_bytes = server->config->max_output_bytes;
}
