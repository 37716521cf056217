/* node.c: the parts under the log, in their order:
 *
 *     storage ──▶ whose is it? ──▶ network ──▶ replica      and back when it ends */
#include "base/random.h"
#include "base/text.h"
#include "replica_libraft/founding.h"
#include "replica_libraft/network.h"
#include "replica_libraft/storage.h"
#include "server/founders.h"
#include "server/log.h"
#include "server/membership.h"
#include "server/record.h"
#include "server/server.h"

#include <stdio.h>
#include <string.h>

#define BEATS_PER_TIMEOUT 10 /* heartbeats that must be lost before a leader is taken for dead */

struct wanted { /* what the configuration asks for */
    struct replica_member members[CONFIG_MEMBERS_MAX];
    int count;
    const struct config_member *own; /* NULL: a node alone */
};

static struct wanted wanted_by(const struct config *config)
{
    struct wanted wanted = {.count = config->cluster.count,
                            .own = founders_find(&config->cluster, config->id)};

    for (int i = 0; i < wanted.count; i++)
        wanted.members[i] = (struct replica_member){.id = config->cluster.at[i].id,
                                                    .address = config->cluster.at[i].address};
    return wanted;
}

/* What this node says of itself: where clients find it, and its life. */
static void introduce(struct server *server, const char *life)
{
    const char *address = server->config->advertise;

    for (int i = 0; i < server->listener_count && !address[0]; i++)
        if (!server->listeners[i].endpoint.path[0])
            address = server->listeners[i].endpoint.shown;
    snprintf(server->address, sizeof server->address, "%s", address);
    snprintf(server->about, sizeof server->about, "%.*s/%s",
             (int)(sizeof server->about - FOUNDING_LIFE - 2), address, life);
}

static int settle(struct server *server, const struct wanted *wanted,
                  struct founding_result *ret_settled, struct error_text *err)
{
    struct founding founding = {
        .id = server->config->id, .members = wanted->members, .member_count = wanted->count};
    unsigned char cluster[FOUNDING_CLUSTER / 2];
    int result;

    random_fill(&founding.life, sizeof founding.life);
    random_fill(cluster, sizeof cluster);
    text_hex(cluster, sizeof cluster, founding.cluster);
    result = founding_settle(server->storage, &founding, ret_settled, err);
    if (result != HF_OK)
        return result;
    introduce(server, ret_settled->life);
    if (ret_settled->begins && ret_settled->state == FOUNDING_FOUNDED)
        log_warning("the data directory is new: this store begins without locks; if there should "
                    "be some, look at "
                    "'data' and at what is mounted there");
    if (ret_settled->restored[0])
        log_warning(
            "this store was restored from a backup: what was acknowledged between the two is "
            "not in it, and tokens went on 2^40 higher",
            log_text("restored", ret_settled->restored));
    return HF_OK;
}

static bool on_met(void *context, const struct network_node *node)
{
    return cluster_met(context, node);
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

static void on_heard(void *context, const struct network_words *words)
{
    bootstrap_heard(context, words);
}

static bool on_adopted(void *context, uint64_t leader, const char *cluster)
{
    return membership_added(context, leader, cluster);
}

static void on_note(void *context, int level, const char *text)
{
    (void)context;
    log_at((enum log_level)level, text);
}

/* Whoever notes it takes care that nobody can fill the log with it. */
static void on_network_note(void *context, const struct note *note)
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

static int open_network(struct server *server, const struct wanted *wanted,
                        const struct founding_result *settled, struct error_text *err)
{
    const struct config *config = server->config;
    struct network_options options = {
        .id = config->id,
        .address = wanted->own->address,
        .listen = config->peer_listen[0] ? config->peer_listen : wanted->own->address,
        .secret = config->cluster_secret.digest,
        .secret_size = config->cluster_secret.set ? sizeof config->cluster_secret.digest : 0,
        .other = config->cluster_secret.has_other ? config->cluster_secret.other : NULL,
        .other_size = config->cluster_secret.has_other ? sizeof config->cluster_secret.other : 0,
        .about = server->about,
        .cluster = settled->cluster};
    struct network_host host = {.context = server,
                                .note = on_network_note,
                                .met = on_met,
                                .reached = on_met,
                                .why_not = on_why_not,
                                .turned_away = on_turned_away,
                                .heard = on_heard,
                                .adopted = on_adopted};

    return network_open(server->loop, &options, &host, storage_io(server->storage),
                        &server->network, err);
}

/* Members are of interest to a log that is empty: of a cluster that was founded, before a crash. */
static int open_replica(struct server *server, struct wanted *wanted,
                        const struct founding_result *settled, const struct replica_host *host,
                        struct error_text *err)
{
    const struct config *config = server->config;
    const struct replica_member alone = {.id = config->id, .address = "", .life = settled->life};
    struct record record;
    bool begins = wanted->own && settled->founders[0];
    struct replica_options options = {.id = config->id,
                                      .address = wanted->own ? wanted->own->address : "",
                                      .members = wanted->own ? wanted->members : &alone,
                                      .member_count = begins ? wanted->count : !wanted->own,
                                      .waits = settled->state == FOUNDING_WAITS,
                                      .about = server->address,
                                      .election_ms = (uint32_t)config->election_timeout_ms,
                                      .heartbeat_ms =
                                          (uint32_t)config->election_timeout_ms / BEATS_PER_TIMEOUT,
                                      .snapshot_bytes = config->snapshot_bytes};

    if (begins && !record_read(&config->cluster, settled->founders, &record))
        return error_set(err, HF_EIO,
                         "%s/node is damaged: its founders are not its members; restore it from a "
                         "backup",
                         config->data);
    if (begins)
        record_members(&config->cluster, &record, wanted->members);
    return replica_open(&options, storage_io(server->storage), host, &server->replica, err);
}

int node_open(struct server *server, const struct replica_host *host, struct error_text *err)
{
    struct wanted wanted = wanted_by(server->config);
    struct storage_options files = {.path = server->config->data, .note = on_note};
    struct founding_result settled;
    int result = config_check_data(server->config, err);

    if (result == HF_OK)
        result = storage_open(server->loop, &files, &server->storage, err);
    if (result == HF_OK)
        result = settle(server, &wanted, &settled, err);
    if (result == HF_OK && wanted.own)
        result = open_network(server, &wanted, &settled, err);
    if (result == HF_OK)
        result = open_replica(server, &wanted, &settled, host, err);
    if (result == HF_OK) {
        bootstrap_open(server, &settled);
        adding_open(server);
    }
    return result;
}

/* ---- the end ------------------------------------------------------------------------------------ */

static void close_storage(void *context)
{
    struct server *server = context;

    server->network = NULL;
    if (server->storage)
        storage_close(server->storage, server->node_closed, server->node_closed_context);
    else
        server->node_closed(server->node_closed_context);
}

static void close_network(void *context)
{
    struct server *server = context;

    server->replica = NULL;
    if (server->network)
        network_close(server->network, close_storage, server);
    else
        close_storage(server);
}

void node_close(struct server *server, void (*done)(void *context), void *context)
{
    server->node_closed = done;
    server->node_closed_context = context;
    if (server->replica)
        replica_close(server->replica, close_network, server);
    else
        close_network(server);
}
