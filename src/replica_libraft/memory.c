/* memory.c: how much of the log libraft keeps in memory.
 *
 * It keeps all that its last snapshot does not cover. On disk there is room for more log than that, and new memory costs more
 * time than the table takes for a command. So between two snapshots libraft is told of ones that nobody takes, and forgets
 * what came before. Nothing is lost by that:
 *
 *  - after a restart the log is read from the disk, where it is whole behind the last real snapshot;
 *  - what some other node does not have yet, the leader does not forget;
 *  - what its leader may not know it to have, a follower does not forget: sent once more, it would be refused, and the leader
 *    would go back to what it has forgotten itself.
 *
 * If another node should want it all the same (one that was added, or that another leader knew better), libraft asks for
 * its snapshot. Then a real one is taken. It is a later one than libraft had in mind, which it is prepared for but for
 * the term. */
#include "replica_libraft/inside.h"

#include <stdlib.h>

void memory_count(struct replica *replica, size_t bytes)
{
    replica->memory.bytes += bytes;
    replica->memory.entries++;
}

void memory_forgot(struct replica *replica, unsigned trailing)
{
    struct memory *memory = &replica->memory;

    if (memory->entries <= trailing)
        return;
    memory->bytes = memory->bytes / memory->entries * trailing;
    memory->entries = trailing;
}

void memory_restored(struct replica *replica)
{
    replica->memory.bytes = replica->memory.entries = 0;
    replica->memory.ahead = false;
}

unsigned memory_trailing(const struct replica *replica)
{
    uint64_t last = replica->raft.last_applied;
    uint64_t behind = last - members_have(replica) + 1; /* with one that all have, to go on from */
    unsigned least = snapshots_trailing(replica);

    return behind > least ? (unsigned)behind : least;
}

/* It is about averages: the entries of a node are of one kind, or there are many of them. */
bool memory_is_time(const struct replica *replica)
{
    const struct memory *memory = &replica->memory;
    unsigned trailing;

    if (memory->bytes < replica->memory_bytes)
        return false;
    trailing = memory_trailing(replica);
    return memory->entries > trailing &&
           memory->bytes / memory->entries * (memory->entries - trailing) >=
               replica->memory_bytes / 2;
}

/* ---- snapshots for others ---------------------------------------------------------------------- */

/* libraft cannot be told that there is none: its way out of that frees what was never set (0.22.1,
 * legacyLoadSnapshotCb). So it gets an empty one, which memory_send does not send. */
static struct raft_snapshot *empty(void)
{
    struct raft_snapshot *snapshot = raft_calloc(1, sizeof *snapshot);

    INVARIANT(snapshot != NULL);
    snapshot->bufs = raft_calloc(1, sizeof *snapshot->bufs);
    INVARIANT(snapshot->bufs != NULL);
    snapshot->n_bufs = 1;
    snapshot->index = UINT64_MAX;
    raft_configuration_init(&snapshot->configuration);
    return snapshot;
}

static struct handing *find_handing(struct replica *replica, uint64_t receiver)
{
    for (int i = 0; i < HANDINGS_MAX; i++)
        if (replica->memory.handings[i].replica && replica->memory.handings[i].receiver == receiver)
            return &replica->memory.handings[i];
    return NULL;
}

static struct handing *new_handing(struct replica *replica)
{
    for (int i = 0; i < HANDINGS_MAX; i++)
        if (!replica->memory.handings[i].replica)
            return &replica->memory.handings[i];
    return NULL;
}

static void give_up(struct handing *handing)
{
    handing->replica = NULL;
    handing->get_done(handing->get, empty(), 0);
}

static void on_got(struct raft_io_snapshot_get *ours, struct raft_snapshot *snapshot, int status)
{
    struct handing *handing = ours->data;
    struct replica *replica = handing->replica;

    if (status == 0 && snapshot) {
        handing->term = snapshot->term;
        replica->memory.got = handing;
        handing->get_done(handing->get, snapshot, 0); /* which sends it at once: memory_send */
        replica->memory.got = NULL;
        return;
    }
    replica_note(replica, 2, "another node needs a snapshot, and it cannot be read: %s",
                 replica->io->errmsg[0] ? replica->io->errmsg : raft_strerror(status));
    give_up(handing);
}

static void get_from_io(struct handing *handing)
{
    struct replica *replica = handing->replica;
    int result;

    handing->waits = false;
    result = replica->saved.snapshot_get(replica->io, &handing->our_get, on_got);
    if (result != 0)
        on_got(&handing->our_get, NULL, result);
}

/* One at a time for each receiver: a node that has not got it yet refuses what libraft says to it meanwhile, and libraft takes
 * that for a reason to send the snapshot again. But not one for all: a learner behind a slow line would keep out a voter
 * without which nothing is granted. Whom it is for libraft says only when it sends it: it is who has just refused
 * something, or if nobody has, perhaps one to whom it is on its way already. That one will refuse, too. */
void memory_get(struct replica *replica, struct raft_io_snapshot_get *req,
                raft_io_snapshot_get_cb done)
{
    uint64_t receiver = replica->memory.speaker;
    struct handing *handing = new_handing(replica);
    bool alone = true;

    for (int i = 0; i < HANDINGS_MAX; i++)
        alone = alone && !replica->memory.handings[i].replica;
    if (!handing || find_handing(replica, receiver) || find_handing(replica, 0) ||
        (!receiver && !alone)) {
        done(req, empty(), 0);
        return;
    }
    *handing =
        (struct handing){.replica = replica, .receiver = receiver, .get = req, .get_done = done};
    handing->our_get.data = handing->our_send.data = handing;
    if (replica->memory.ahead)
        handing->waits = true;
    else
        get_from_io(handing);
}

bool memory_wants(const struct replica *replica)
{
    for (int i = 0; i < HANDINGS_MAX; i++)
        if (replica->memory.handings[i].replica && replica->memory.handings[i].waits)
            return true;
    return false;
}

void memory_taken(struct replica *replica)
{
    replica->memory.ahead = false;
    for (int i = 0; i < HANDINGS_MAX; i++)
        if (replica->memory.handings[i].replica && replica->memory.handings[i].waits)
            get_from_io(&replica->memory.handings[i]);
}

static void on_sent(struct raft_io_send *ours, int status)
{
    struct handing *handing = ours->data;

    handing->replica = NULL;
    handing->send_done(handing->send, status);
}

int memory_send(struct replica *replica, struct raft_io_send *req, struct raft_message *message,
                raft_io_send_cb done)
{
    struct handing *handing = replica->memory.got, *other;
    int result;

    if (message->install_snapshot.data.len == 0) {
        done(req, RAFT_NOCONNECTION);
        return 0;
    }
    INVARIANT(handing != NULL);
    other = find_handing(replica, message->server_id);
    if (other && other != handing) { /* we had taken it for somebody else's */
        handing->replica = NULL;
        done(req, RAFT_NOCONNECTION);
        return 0;
    }
    handing->receiver = message->server_id;
    handing->send = req;
    handing->send_done = done;
    message->install_snapshot.last_term = handing->term;
    result = replica->saved.send(replica->io, &handing->our_send, message, on_sent);
    if (result != 0)
        handing->replica = NULL;
    return result;
}

void memory_cancel(struct replica *replica)
{
    for (int i = 0; i < HANDINGS_MAX; i++)
        if (replica->memory.handings[i].replica && replica->memory.handings[i].waits)
            give_up(&replica->memory.handings[i]);
}
