/* late.c: a busy leader sends its entries to as many others as make a majority with it, and to the rest a little later, some
 * together.
 *
 * An entry costs a node the same, whatever is in it: to be woken, a write to disk, an answer. Those without whom it is
 * committed can share that among several entries, and do not take the time of those that it waits for, nor the leader's. They are
 * never more than LATE_ENTRIES or about LATE_US behind.
 *
 * Who is prompt is found out: if an entry is not committed soon, all others get what they have not got yet, and another
 * one is prompt from then on. So one that is dead or slow costs a single entry LATE_PATIENCE_US. */
#include "replica_libraft/identity.h"
#include "replica_libraft/inside.h"

#include <stdio.h>
#include <stdlib.h>

#define LATE_ENTRIES 4u
#define LATE_US 2000
#define LATE_PATIENCE_US 1000

/* Messages of libraft's with one entry each, which go on where the one before them ends, as one. */
struct joined {
    struct raft_io_send ours;
    struct raft_message message;
    char identity[IDENTITY_MAX + 1];
    int64_t since_us;
    unsigned count;
    struct raft_entry entries[LATE_ENTRIES];
    struct raft_io_send *sends[LATE_ENTRIES];
    raft_io_send_cb done[LATE_ENTRIES];
};

static void on_sent(struct raft_io_send *ours, int status)
{
    struct joined *joined = ours->data;

    for (unsigned i = 0; i < joined->count; i++)
        joined->done[i](joined->sends[i], status);
    free(joined);
}

static void flush(struct replica *replica, struct joined **late)
{
    struct joined *joined = *late;

    if (!joined)
        return;
    *late = NULL;
    joined->message.append_entries.entries = joined->entries;
    joined->message.append_entries.n_entries = joined->count;
    if (gate_shut(replica) || replica->closing ||
        replica->saved.send(replica->io, &joined->ours, &joined->message, on_sent) != 0)
        on_sent(&joined->ours, RAFT_NOCONNECTION);
}

void late_flush(struct replica *replica)
{
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        flush(replica, &replica->late[i]);
}

/* Half of the others, rounded up, make a majority with the leader. They are counted from `prompt` on. */
static bool is_late(const struct replica *replica, uint64_t id)
{
    const struct raft_configuration *members = &replica->raft.configuration;
    unsigned others = 0, place = 0;
    bool votes = false;

    for (unsigned i = 0; i < members->n; i++) {
        const struct raft_server *server = &members->servers[i];

        if (server->role != RAFT_VOTER || server->id == replica->id)
            continue;
        if (server->id == id) {
            place = others;
            votes = true;
        }
        others++;
    }
    return votes && (place + others - replica->prompt % others) % others >= (others + 1) / 2;
}

/* What waits for this node; or else where it could. */
static struct joined **late_of(struct replica *replica, uint64_t id)
{
    struct joined **unused = NULL;

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++) {
        if (!replica->late[i])
            unused = &replica->late[i];
        else if (replica->late[i]->message.server_id == id)
            return &replica->late[i];
    }
    return unused;
}

static bool goes_on(const struct joined *joined, const struct raft_append_entries *append)
{
    const struct raft_append_entries *first = &joined->message.append_entries;

    return append->term == first->term && joined->count < LATE_ENTRIES &&
           append->prev_log_index == first->prev_log_index + joined->count;
}

static struct joined *begin(const struct replica *replica, const struct raft_message *message)
{
    struct joined *joined = replica_realloc(NULL, sizeof *joined);

    joined->ours.data = joined;
    joined->message = *message;
    snprintf(joined->identity, sizeof joined->identity, "%s", message->server_address);
    joined->message.server_address = joined->identity;
    joined->since_us = replica_now(replica);
    joined->count = 0;
    return joined;
}

bool late_holds(struct replica *replica, struct raft_io_send *req,
                const struct raft_message *message, raft_io_send_cb done)
{
    const struct raft_append_entries *append = &message->append_entries;
    struct joined **late = late_of(replica, message->server_id), *joined;
    bool waits = message->type == RAFT_APPEND_ENTRIES && append->n_entries == 1 &&
                 replica->expected >= REPLICA_MANY && is_late(replica, message->server_id);

    if (late && *late && !(waits && goes_on(*late, append)))
        flush(replica, late); /* they keep their order */
    if (!waits || !late)
        return false;
    if (!*late)
        *late = begin(replica, message);
    joined = *late;
    joined->message.append_entries.leader_commit = append->leader_commit;
    joined->entries[joined->count] = append->entries[0];
    joined->sends[joined->count] = req;
    joined->done[joined->count++] = done;
    return true;
}

int64_t late_wait(const struct replica *replica, int64_t wait)
{
    bool waits = false;

    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++)
        waits |= replica->late[i] != NULL;
    return waits && (wait < 0 || wait > LATE_US) ? LATE_US : wait;
}

/* An entry that those who are prompt do not commit. */
static bool is_overdue(const struct replica *replica, int64_t now)
{
    return replica->flight.active && now - replica->flight.since_us >= LATE_PATIENCE_US;
}

void replica_rest(struct replica *replica)
{
    int64_t now = replica_now(replica);

    if (is_overdue(replica, now) && !replica->flight.overdue) {
        replica->flight.overdue = true;
        replica->prompt++;
        late_flush(replica);
    }
    for (unsigned i = 0; i < REPLICA_MEMBERS_MAX; i++) {
        const struct joined *joined = replica->late[i];

        if (joined && (joined->count == LATE_ENTRIES || now - joined->since_us >= LATE_US))
            flush(replica, &replica->late[i]);
    }
}
