/* info.c: what an operator or a client asks about the server itself. It is this node's own view, and
 * does not go through the log. */
#include "server/server.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define INFO_MAX 8192

struct text {
    char bytes[INFO_MAX];
    size_t size;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(text->bytes + text->size, sizeof text->bytes - text->size, format, arguments);
    va_end(arguments);
    if (size > 0 && (size_t)size < sizeof text->bytes - text->size)
        text->size += (size_t)size;
}

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

const char *role_word(const struct server *server)
{
    return server->sessions.role == REPLICA_LEADING   ? "leader"
           : server->sessions.role == REPLICA_STOPPED ? "stopped"
           : server->node && node_waits(server->node) ? "waiting"
           : cluster_was_removed(server)              ? "removed"
                                                      : "follower";
}

static void info_server(const struct server *server, struct text *text)
{
    int64_t up = ((int64_t)uv_now(server->loop) - server->began_ms) / 1000;

    add(text, "holdfast_version:%s\r\nprocess_id:%d\r\nuptime_in_seconds:%" PRId64 "\r\n",
        HOLDFAST_VERSION, (int)getpid(), up);
    for (int i = 0; i < server->listener_count; i++)
        add(text, "listen%d:%s\r\n", i, server->listeners[i].endpoint.shown);
    add(text, "data:%s\r\n", server->config->data);
    if (server->sessions.stopped_why[0])
        add(text, "stopped:%s\r\n", server->sessions.stopped_why);
}

static void info_clients(const struct server *server, struct text *text)
{
    add(text,
        "connected_clients:%u\r\nunauthenticated_clients:%u\r\nmaxclients:%" PRIu64
        "\r\nblocked_clients:%u\r\n"
        "waiting_places:%u\r\nobserved_names:%u\r\n"
        "total_connections_received:%" PRIu64 "\r\nrejected_connections:%" PRIu64 "\r\n",
        server->connection_count, server->unauthenticated_count, server->config->max_clients,
        server->sessions.blocked_count, server->sessions.waiters.count,
        server->sessions.observers.count, server->accepted, server->refused);
}

static void info_memory(const struct server *server, struct text *text)
{
    (void)server;
    add(text, "used_memory_rss:%" PRIu64 "\r\n", resident_bytes());
}

static void info_locks(const struct server *server, struct text *text)
{
    struct core_counts counts;

    core_count(replica_table(server->replica), &counts);
    add(text,
        "store_id:%s\r\nnames:%u\r\nholds:%u\r\nwithheld:%u\r\nwaiting:%u\r\nleases:%u\r\n"
        "leases_remembered:%u\r\nonce_records:%u\r\nlast_token:%" PRIu64 "\r\n"
        "granted:%" PRIu64 "\r\nexpired:%" PRIu64 "\r\nbroken:%" PRIu64 "\r\n",
        counts.id, counts.locks, counts.holds, counts.ghosts, counts.places, counts.leases,
        counts.ended, counts.records, counts.last_token, counts.grants, counts.expired,
        counts.broken);
}

static void info_disk(const struct server *server, struct text *text)
{
    struct node_disk_status status;

    node_disk_status(server->node, &status);
    add(text,
        "log_writes:%" PRIu64 "\r\nlog_bytes_written:%" PRIu64 "\r\n"
        "log_write_usec_mean:%" PRIu64 "\r\nlog_write_usec_max:%" PRIu64 "\r\n",
        status.writes, status.bytes, status.writes ? status.total_us / status.writes : 0,
        status.longest_us);
}

static void info_raft(const struct server *server, struct text *text)
{
    struct replica_status status;

    replica_status(server->replica, &status);
    add(text,
        "role:%s\r\nnode_id:%" PRIu64 "\r\nleader_id:%" PRIu64 "\r\nterm:%" PRIu64 "\r\n"
        "last_index:%" PRIu64 "\r\ncommit_index:%" PRIu64 "\r\napplied_index:%" PRIu64 "\r\n"
        "entries_proposed:%" PRIu64 "\r\ncommands_proposed:%" PRIu64 "\r\nticks:%" PRIu64 "\r\n"
        "log_bytes_since_snapshot:%" PRIu64 "\r\nlog_bytes_in_memory:%" PRIu64
        "\r\nsnapshots:%" PRIu64 "\r\nsnapshots_installed:%" PRIu64 "\r\n"
        "snapshot_bytes:%" PRIu64 "\r\nsnapshotting:%d\r\n",
        role_word(server), server->config->id, replica_leader(server->replica), status.term,
        status.last_index, status.commit_index, status.applied_index, status.entries,
        status.commands, status.ticks, status.log_bytes, status.memory_bytes, status.snapshots,
        status.snapshots_installed, status.snapshot_bytes, status.snapshotting);
}

static void info_stats(const struct server *server, struct text *text)
{
    add(text, "total_commands_processed:%" PRIu64 "\r\nrefused_commands:%" PRIu64 "\r\n",
        server->sessions.commands, server->sessions.wrong_commands);
}

static const struct {
    const char *name;
    void (*write)(const struct server *server, struct text *text);
} sections[] = {
    {"Server", info_server}, {"Clients", info_clients}, {"Memory", info_memory},
    {"Locks", info_locks},   {"Raft", info_raft},       {"Disk", info_disk},
    {"Stats", info_stats},
};

static bool wanted(const struct resp_node *value, const char *section)
{
    if (value->count == 1)
        return true;
    for (uint32_t i = 1; i < value->count; i++) {
        const struct resp_node *word = word_at(value, i);

        if (word_is(word, section) || word_is(word, "all") || word_is(word, "everything") ||
            word_is(word, "default"))
            return true;
    }
    return false;
}

enum verdict command_info(struct session *session, const struct resp_node *value)
{
    struct text text = {.size = 0};

    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (wanted(value, sections[i].name)) {
            add(&text, "%s# %s\r\n", text.size ? "\r\n" : "", sections[i].name);
            sections[i].write(server_of(session), &text);
        }
    resp_write_blob(&session->out, text.bytes, text.size);
    return VERDICT_DONE;
}

/* ---- COMMAND --------------------------------------------------------------------------------------- */

static void write_lower(struct resp_writer *out, const char *name)
{
    char lower[32];
    size_t size = strlen(name);

    for (size_t i = 0; i < size && i < sizeof lower; i++)
        lower[i] = (char)(name[i] | 0x20);
    resp_write_blob(out, lower, size);
}

/* name, arity, flags, first key, last key, step */
static void write_command(struct resp_writer *out, const struct command *command)
{
    bool writes = command->traits & COMMAND_LOGGED;
    bool keyed = writes && command->arity != 1 && strcmp(command->name, "LOCKS") != 0;

    resp_write_array(out, 6);
    write_lower(out, command->name);
    resp_write_integer(out, command->arity);
    resp_write_array(out, 1);
    resp_write_simple(out, writes ? "write" : "fast");
    resp_write_integer(out, keyed);
    resp_write_integer(out, keyed);
    resp_write_integer(out, keyed);
}

static void write_docs(struct resp_writer *out, const struct command *command, bool resp3)
{
    char text[512];

    write_lower(out, command->name);
    resp_write_map(out, 3, resp3);
    resp_write_text(out, "summary");
    snprintf(text, sizeof text, "%s: %s %s", command->summary, command->name, command->syntax);
    resp_write_text(out, text);
    resp_write_text(out, "since");
    resp_write_text(out, HOLDFAST_VERSION);
    resp_write_text(out, "group");
    resp_write_text(out, "holdfast");
}

static bool is_asked(const struct resp_node *value, const struct command *command)
{
    if (value->count <= 2)
        return true;
    for (uint32_t i = 2; i < value->count; i++)
        if (word_is(word_at(value, i), command->name))
            return true;
    return false;
}

static void command_docs(struct session *session, const struct resp_node *value)
{
    const struct command *command;
    size_t count = 0;

    for (size_t i = 0; (command = command_at(session->sessions, i)); i++)
        count += is_asked(value, command);
    resp_write_map(&session->out, count, session->resp3);
    for (size_t i = 0; (command = command_at(session->sessions, i)); i++)
        if (is_asked(value, command))
            write_docs(&session->out, command, session->resp3);
}

/* All, or those that are asked for in their order, nil for what there is not. */
static void command_rows(struct session *session, const struct resp_node *value)
{
    struct resp_writer *out = &session->out;
    size_t count = command_count(session->sessions);

    resp_write_array(out, value->count <= 2 ? count : value->count - 2);
    for (size_t i = 0; value->count <= 2 && i < count; i++)
        write_command(out, command_at(session->sessions, i));
    for (uint32_t i = 2; i < value->count; i++) {
        const struct command *command = command_find(session->sessions, word_at(value, i));

        if (command)
            write_command(out, command);
        else
            resp_write_nil(out, session->resp3);
    }
}

enum verdict command_command(struct session *session, const struct resp_node *value)
{
    const struct resp_node *what = word_at(value, 1);
    size_t count = command_count(session->sessions);

    if (!what || word_is(what, "INFO")) {
        command_rows(session, value);
    } else if (word_is(what, "DOCS")) {
        command_docs(session, value);
    } else if (word_is(what, "COUNT")) {
        resp_write_integer(&session->out, (int64_t)count);
    } else if (word_is(what, "LIST")) {
        resp_write_array(&session->out, count);
        for (size_t i = 0; i < count; i++)
            write_lower(&session->out, command_at(session->sessions, i)->name);
    } else {
        return refuse(session, "ERR COMMAND is followed by COUNT, LIST, INFO or DOCS");
    }
    return VERDICT_DONE;
}
