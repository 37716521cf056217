/* metrics.c: the table, and who reads it. */
#include "server/metrics.h"
#include "base/random.h"
#include "base/siphash.h"
#include "server/audit.h"
#include "server/cluster.h"
#include "server/exposition.h"
#include "server/info.h"
#include "server/server.h"
#include "server/tls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MICRO INT64_C(1000000)
#define MS_US 1000

/* ---- counting ------------------------------------------------------------------------------------ */

void metrics_open(struct metrics *metrics)
{
    unsigned char seed[SIPHASH_SEED];

    random_fill(seed, sizeof seed);
    *metrics = (struct metrics){.elections_won = 0};
    prefixes_open(&metrics->prefixes, seed);
    hot_open(&metrics->hot, seed);
}

void metrics_effect(struct metrics *metrics, const struct core_effect *effect)
{
    struct prefix *prefix;

    if (effect->kind != EFFECT_CHANGED || effect->once)
        return;
    if (effect->why == WHY_GRANTED)
        hot_count(&metrics->hot, effect->name);
    else if (effect->why != WHY_EXPIRED && effect->why != WHY_BROKEN)
        return;
    prefix = prefixes_of(&metrics->prefixes, effect->name);
    prefix->granted += effect->why == WHY_GRANTED;
    prefix->expired += effect->why == WHY_EXPIRED;
    prefix->broken += effect->why == WHY_BROKEN;
}

void metrics_second(struct metrics *metrics)
{
    hot_second(&metrics->hot);
}

/* ---- reading ------------------------------------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    char line[128] = "";
    const char *second;

    if (!file)
        return 0;
    second = fgets(line, sizeof line, file) ? strchr(line, ' ')
                                            : NULL; /* the first is all, not resident */
    fclose(file);
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t cpu_us(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (uint64_t)((usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * MICRO +
                      usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void read_table(const struct server *server, struct readings *readings)
{
    struct core_counts *counts = &readings->table;

    core_count(replica_table(server->replica), counts);
    readings->names = counts->locks;
    readings->holds = counts->holds;
    readings->withheld = counts->ghosts;
    readings->waiting = counts->places;
    readings->leases = counts->leases;
    readings->ended = counts->ended;
    readings->records = counts->records;
}

static void read_node(const struct server *server, struct readings *readings)
{
    replica_status(server->replica, &readings->log);
    readings->snapshotting = readings->log.snapshotting;
    node_disk_status(server->node, &readings->disk);
    readings->disk_mean_us =
        readings->disk.writes ? readings->disk.total_us / readings->disk.writes : 0;
    readings->node_id = server->config->id;
    readings->leader_id = replica_leader(server->replica);
    readings->leads = server->sessions.role == REPLICA_LEADING;
    readings->has_leader = readings->leader_id != 0;
    readings->stopped = server->sessions.role == REPLICA_STOPPED;
}

void metrics_read(const struct server *server, struct readings *ret_readings)
{
    *ret_readings = (struct readings){
        .server = server,
        .process_id = (uint64_t)getpid(),
        .uptime_us = (uint64_t)((int64_t)uv_now(server->loop) - server->began_ms) * MS_US,
        .cpu_us = cpu_us(),
        .resident_bytes = resident_bytes(),
        .connections = server->connection_count,
        .unauthenticated = server->unauthenticated_count,
        .max_connections = server->config->max_clients,
        .blocked = server->sessions.blocked_count,
        .places = server->sessions.waiters.count,
        .observed = server->sessions.observers.count,
        .accepted = server->accepted,
        .refused = server->refused,
        .commands = server->sessions.commands,
        .wrong_commands = server->sessions.wrong_commands,
        .denied_commands = server->sessions.denied_commands,
        .over_quota_commands = server->sessions.over_quota_commands,
        .audit_left_out = audit_left_out(),
    };
    read_table(server, ret_readings);
    read_node(server, ret_readings);
    tls_ends(&server->tls, &ret_readings->tls_ends, &ret_readings->peer_tls_ends);
}

/* ---- what INFO says in words ------------------------------------------------------------------------ */

const char *role_word(const struct server *server)
{
    return server->sessions.role == REPLICA_LEADING   ? "leader"
           : server->sessions.role == REPLICA_STOPPED ? "stopped"
           : server->node && node_waits(server->node) ? "waiting"
           : cluster_was_removed(server)              ? "removed"
                                                      : "follower";
}

static void say_version(const struct readings *readings, struct textbuf *out)
{
    (void)readings;
    textbuf_words(out, "holdfast_version:" HOLDFAST_VERSION "\r\n");
}

static void say_places(const struct readings *readings, struct textbuf *out)
{
    const struct server *server = readings->server;

    for (int i = 0; i < server->listener_count; i++)
        textbuf_format(out, "listen%d:%s\r\n", i, server->listeners[i].endpoint.shown);
    textbuf_words(out, "data:");
    textbuf_words(out, server->config->data);
    textbuf_words(out, "\r\n");
    if (server->sessions.stopped_why[0])
        textbuf_format(out, "stopped:%s\r\n", server->sessions.stopped_why);
}

static void say_store(const struct readings *readings, struct textbuf *out)
{
    textbuf_format(out, "store_id:%s\r\n", readings->table.id);
}

static void say_role(const struct readings *readings, struct textbuf *out)
{
    textbuf_format(out, "role:%s\r\n", role_word(readings->server));
}

static void say_tls(const struct readings *readings, struct textbuf *out)
{
    char lines[1024];

    tls_info(readings->server, lines, sizeof lines);
    textbuf_words(out, lines);
}

/* ---- the table ----------------------------------------------------------------------------------- */

enum kind { COUNTER, GAUGE };
enum unit {
    PLAIN,
    SECONDS,
    INFO_SECONDS
}; /* a time is kept in µs; INFO has whole seconds of the last */

struct metric {
    const char *section, *field; /* of INFO; NULL: it is not there */
    const char *name;            /* for Prometheus; NULL: it is not there */
    enum kind kind;
    enum unit unit;
    size_t offset; /* of the number in struct readings */
    const char *help;
    void (*say)(const struct readings *readings, struct textbuf *out); /* INFO's words instead */
};

#define AT(field) offsetof(struct readings, field)

/* In INFO's order. */
/* clang-format off */
static const struct metric metrics[] = {
    {"Server", NULL, .say = say_version},
    {"Server", "process_id", NULL, GAUGE, PLAIN, AT(process_id)},
    {"Server", "uptime_in_seconds", "holdfast_uptime_seconds", GAUGE, INFO_SECONDS, AT(uptime_us), "Seconds since the server was started"},
    {"Server", NULL, .say = say_places},

    {"Clients", "connected_clients", "holdfast_connections", GAUGE, PLAIN, AT(connections), "Connections of clients"},
    {"Clients", "unauthenticated_clients", "holdfast_unauthenticated_connections", GAUGE, PLAIN, AT(unauthenticated), "Connections that have not said the password"},
    {"Clients", "maxclients", "holdfast_max_connections", GAUGE, PLAIN, AT(max_connections), "Connections that the server takes (max-clients)"},
    {"Clients", "blocked_clients", "holdfast_blocked_connections", GAUGE, PLAIN, AT(blocked), "Connections that wait for a lock"},
    {"Clients", "waiting_places", "holdfast_attended_places", GAUGE, PLAIN, AT(places), "Places in queues at which a connection of this node waits"},
    {"Clients", "observed_names", "holdfast_observed_names", GAUGE, PLAIN, AT(observed), "Names that connections of this node observe, each as often as it is observed"},
    {"Clients", "total_connections_received", "holdfast_connections_accepted_total", COUNTER, PLAIN, AT(accepted), "Connections taken"},
    {"Clients", "rejected_connections", "holdfast_connections_refused_total", COUNTER, PLAIN, AT(refused), "Connections refused, or closed before they had said the password"},

    {"Memory", "used_memory_rss", "process_resident_memory_bytes", GAUGE, PLAIN, AT(resident_bytes), "Memory of the process"},
    {NULL, NULL, "process_cpu_seconds_total", COUNTER, SECONDS, AT(cpu_us), "CPU time of the process"},

    {"Locks", NULL, .say = say_store},
    {"Locks", "names", "holdfast_names", GAUGE, PLAIN, AT(names), "Names in use"},
    {"Locks", "holds", "holdfast_holds", GAUGE, PLAIN, AT(holds), "Holds"},
    {"Locks", "withheld", "holdfast_withheld", GAUGE, PLAIN, AT(withheld), "Holds that have ended while their lock-delay lasts"},
    {"Locks", "waiting", "holdfast_waiting", GAUGE, PLAIN, AT(waiting), "Places in all queues"},
    {"Locks", "leases", "holdfast_leases", GAUGE, PLAIN, AT(leases), "Leases that are alive"},
    {"Locks", "leases_remembered", "holdfast_leases_remembered", GAUGE, PLAIN, AT(ended), "Leases that have ended and are remembered"},
    {"Locks", "once_records", "holdfast_once_records", GAUGE, PLAIN, AT(records), "Records of idempotency keys"},
    {"Locks", "last_token", "holdfast_last_token", GAUGE, PLAIN, AT(table.last_token), "The token that was given last"},
    {"Locks", "granted", "holdfast_grants_total", COUNTER, PLAIN, AT(table.grants), "Locks granted, of names and of idempotency keys"},
    {"Locks", "expired", "holdfast_expired_total", COUNTER, PLAIN, AT(table.expired), "Leases that ran out while they held or awaited something"},
    {"Locks", "broken", "holdfast_broken_total", COUNTER, PLAIN, AT(table.broken), "Holds that were broken"},

    {"Raft", NULL, .say = say_role},
    {"Raft", "node_id", "holdfast_node_id", GAUGE, PLAIN, AT(node_id), "The id of this node"},
    {"Raft", "leader_id", "holdfast_leader_id", GAUGE, PLAIN, AT(leader_id), "The id of the leader, as this node knows; 0: none"},
    {NULL, NULL, "holdfast_leads", GAUGE, PLAIN, AT(leads), "1: this node leads, and serves"},
    {NULL, NULL, "holdfast_has_leader", GAUGE, PLAIN, AT(has_leader), "1: this node knows a leader, which may be itself"},
    {NULL, NULL, "holdfast_stopped", GAUGE, PLAIN, AT(stopped), "1: this node cannot go on, and refuses all commands"},
    {"Raft", "term", "holdfast_term", GAUGE, PLAIN, AT(log.term), "The term of the log"},
    {"Raft", "last_index", "holdfast_last_index", GAUGE, PLAIN, AT(log.last_index), "The last entry of this node's log"},
    {"Raft", "commit_index", "holdfast_commit_index", GAUGE, PLAIN, AT(log.commit_index), "The last entry that is committed, as this node knows"},
    {"Raft", "applied_index", "holdfast_applied_index", GAUGE, PLAIN, AT(log.applied_index), "The last entry that is in this node's table"},
    {"Raft", "entries_proposed", "holdfast_entries_proposed_total", COUNTER, PLAIN, AT(log.entries), "Entries that this node has proposed as a leader"},
    {"Raft", "commands_proposed", "holdfast_commands_proposed_total", COUNTER, PLAIN, AT(log.commands), "Commands in these entries"},
    {"Raft", "ticks", "holdfast_ticks_total", COUNTER, PLAIN, AT(log.ticks), "Entries of them with nothing but time"},
    {"Raft", "log_bytes_since_snapshot", "holdfast_log_bytes_since_snapshot", GAUGE, PLAIN, AT(log.log_bytes), "Bytes of log since the last snapshot"},
    {"Raft", "log_bytes_in_memory", "holdfast_log_bytes_in_memory", GAUGE, PLAIN, AT(log.memory_bytes), "Bytes of log in memory"},
    {"Raft", "snapshots", "holdfast_snapshots_total", COUNTER, PLAIN, AT(log.snapshots), "Snapshots taken"},
    {"Raft", "snapshots_installed", "holdfast_snapshots_installed_total", COUNTER, PLAIN, AT(log.snapshots_installed), "Snapshots of a leader that were installed here"},
    {"Raft", "snapshot_bytes", "holdfast_snapshot_bytes", GAUGE, PLAIN, AT(log.snapshot_bytes), "Bytes of the last snapshot"},
    {"Raft", "snapshotting", "holdfast_snapshotting", GAUGE, PLAIN, AT(snapshotting), "1: a snapshot is being taken"},

    {"Disk", "log_writes", "holdfast_log_writes_total", COUNTER, PLAIN, AT(disk.writes), "Writes to the log, each durable when it ended"},
    {"Disk", "log_bytes_written", "holdfast_log_written_bytes_total", COUNTER, PLAIN, AT(disk.bytes), "Bytes written to the log"},
    {"Disk", "log_write_usec_mean", NULL, GAUGE, PLAIN, AT(disk_mean_us)},
    {"Disk", "log_write_usec_max", "holdfast_log_write_max_seconds", GAUGE, SECONDS, AT(disk.longest_us), "The longest write to the log since the start"},

    {"Stats", "total_commands_processed", "holdfast_commands_total", COUNTER, PLAIN, AT(commands), "Commands of clients"},
    {"Stats", "refused_commands", "holdfast_commands_refused_total", COUNTER, PLAIN, AT(wrong_commands), "Commands that were refused"},
    {NULL, NULL, "holdfast_commands_denied_total", COUNTER, PLAIN, AT(denied_commands), "Commands whose user had not the right"},
    {"Stats", "audit_lines_left_out", "holdfast_audit_lines_left_out_total", COUNTER, PLAIN, AT(audit_left_out), "Refusals that are not in the audit file, as there were too many of them"},
    {NULL, NULL, "holdfast_commands_over_quota_total", COUNTER, PLAIN, AT(over_quota_commands), "Commands by which a user would have had more than it may"},

    {"TLS", NULL, .say = say_tls},
    {NULL, NULL, "holdfast_tls_certificate_ends_timestamp_seconds", GAUGE, PLAIN, AT(tls_ends), "When the certificate that clients see ends, in seconds since 1970; 0: there is none"},
    {NULL, NULL, "holdfast_peer_tls_certificate_ends_timestamp_seconds", GAUGE, PLAIN, AT(peer_tls_ends), "When the certificate that other nodes see ends, likewise"},
};
/* clang-format on */
#define METRICS (sizeof metrics / sizeof *metrics)

static uint64_t value_of(const struct metric *metric, const struct readings *readings)
{
    uint64_t value;

    memcpy(&value, (const char *)readings + metric->offset, sizeof value);
    return value;
}

/* ---- INFO ---------------------------------------------------------------------------------------- */

static void say(const struct metric *metric, const struct readings *readings, struct textbuf *out)
{
    uint64_t value = metric->say ? 0 : value_of(metric, readings);

    if (metric->say)
        metric->say(readings, out);
    else
        textbuf_format(out, "%s:%" PRIu64 "\r\n", metric->field,
                       metric->unit == INFO_SECONDS ? value / MICRO : value);
}

void metrics_info(const struct server *server, bool (*wanted)(void *context, const char *section),
                  void *context, struct textbuf *out)
{
    const char *section = "";
    struct readings readings;
    bool shown = false;

    metrics_read(server, &readings);
    for (size_t i = 0; i < METRICS; i++) {
        if (!metrics[i].section)
            continue;
        if (strcmp(section, metrics[i].section) != 0) {
            section = metrics[i].section;
            shown = wanted(context, section);
            if (shown)
                textbuf_format(out, "%s# %s\r\n", out->size ? "\r\n" : "", section);
        }
        if (shown)
            say(&metrics[i], &readings, out);
    }
}

/* ---- Prometheus ---------------------------------------------------------------------------------- */

void metrics_expose(const struct server *server, const struct user *user, struct textbuf *out)
{
    const struct exposition_label none = {.name = NULL};
    struct readings readings;

    metrics_read(server, &readings);
    for (size_t i = 0; i < METRICS; i++) {
        const struct metric *metric = &metrics[i];

        if (!metric->name)
            continue;
        exposition_family(out, metric->name, metric->kind == COUNTER ? "counter" : "gauge",
                          metric->help);
        (metric->unit == PLAIN ? exposition_number : exposition_micro)(out, metric->name, none,
                                                                       value_of(metric, &readings));
    }
    metrics_expose_families(&readings, user, out);
}
