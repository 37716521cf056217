/* node.c: opening and closing what is beneath the server: a node (src/node), and what it wants of its host. */
#include "server/node.h"
#include "node/node.h"
#include "server/adding.h"
#include "server/bootstrap.h"
#include "server/cluster.h"
#include "server/initial_members.h"
#include "server/log.h"
#include "server/membership.h"
#include "server/server.h"
#include "server/tls_config.h"

#include <stdio.h>

/* Where clients find this node. */
static void introduce(struct server *server)
{
    const char *address = server->config->advertise;

    for (int i = 0; i < server->listener_count && !address[0]; i++)
        if (!server->listeners[i].endpoint.path[0])
            address = endpoint_address(&server->listeners[i].endpoint);
    snprintf(server->address, sizeof server->address, "%s", address);
}

static bool on_met(void *context, const struct node_peer *peer)
{
    return cluster_met(context, peer);
}

static char on_why_not(void *context, uint64_t id)
{
    return cluster_why_not(context, id);
}

static void on_turned_away(void *context, uint64_t by, char why)
{
    (void)by; /* they all say the same */
    cluster_turned_away(context, why);
}

static void on_readable(void *context, const struct node_words *words)
{
    bootstrap_heard(context, words);
}

static void on_adopted(void *context, uint64_t leader, const char *cluster)
{
    membership_added(context, leader, cluster);
}

static void on_note(void *context, int level, const char *text)
{
    (void)context;
    log_at((enum log_level)level, text);
}

/* Whoever notes it takes care that nobody can fill the log with it. */
static void on_peer_note(void *context, const struct note *note)
{
    struct log_field fields[3];
    size_t count = 0;

    (void)context;
    if (!log_wants((enum log_level)note->level))
        return;
    if (note->node != 0)
        fields[count++] = log_number("node", (int64_t)note->node);
    if (note->peer && note->peer[0])
        fields[count++] = log_text("peer", note->peer);
    if (note->why)
        fields[count++] = log_text("why", note->why);
    log_line((enum log_level)note->level, note->words, fields, count);
}

static void tell(const struct identity *found)
{
    if (found->begins && found->state == IDENTITY_TAKES_PART)
        log_warning("the data directory is new: this store begins without locks; if there should "
                    "be some, look at "
                    "'data' and at what is mounted there");
    if (found->restored[0])
        log_warning(
            "this store was restored from a backup: what was acknowledged between the two is "
            "not in it, and tokens went on far above the clock, or those of the backup",
            log_text("restored", found->restored));
}

static int open_with(struct server *server, const struct node_host *host, struct error_text *err)
{
    const struct config *config = server->config;
    const struct config_member *own = initial_members_find(&config->cluster, config->id);
    struct replica_config members = {.count = config->cluster.count};
    struct node_options options = {
        .path = config->data,
        .id = config->id,
        .members = members.at,
        .member_count = config->cluster.count,
        .address = own ? own->address : "",
        .listen = !own                     ? ""
                  : config->peer_listen[0] ? config->peer_listen
                                           : own->address,
        .secret = config->cluster_secret.digest,
        .secret_size = config->cluster_secret.set ? sizeof config->cluster_secret.digest : 0,
        .other = config->cluster_secret.has_other ? config->cluster_secret.other : NULL,
        .other_size = config->cluster_secret.has_other ? sizeof config->cluster_secret.other : 0,
        .tls = tls_config_peers(config, server->tls.peers),
        .client = server->address,
        .election_ms = (uint32_t)config->election_timeout_ms,
        .snapshot_bytes = config->snapshot_bytes};

    for (int i = 0; i < config->cluster.count; i++) {
        struct replica_member *member = &members.at[i];

        member->id = config->cluster.at[i].id;
        snprintf(member->address, sizeof member->address, "%s", config->cluster.at[i].address);
    }
    return node_open(server->loop, &options, host, &server->node, err);
}

int server_open_node(struct server *server, struct node_host *host, struct error_text *err)
{
    int result = config_check_data(server->config, err);

    host->context = server;
    host->note = on_note;
    host->peer_note = on_peer_note;
    host->met = on_met;
    host->why_not = on_why_not;
    host->turned_away = on_turned_away;
    host->heard = on_readable;
    host->adopted = on_adopted;
    introduce(server);
    if (result == HF_OK)
        result = open_with(server, host, err);
    if (result != HF_OK)
        return result;
    server->replica = node_replica(server->node);
    server->has_links = node_has_links(server->node);
    tell(node_identity(server->node));
    bootstrap_open(server);
    adding_open(server);
    return HF_OK;
}

void server_close_node(struct server *server, void (*done)(void *context), void *context)
{
    struct node *node = server->node;

    if (node)
        node_close(node, done, context);
    else
        done(context);
}
