/* gate.c: what stands between libraft and its raft_io.
 *
 * libraft hands its raft_io appends, snapshots, terms and votes, and believes that they succeed or
 * that it is closing. A failed vote is forgotten. Here each failure is seen, and makes trouble. An append that nobody answers at all is noticed by counting ticks: not by the
 * clock alone, for a machine that slept has not been waiting for its disk.
 *
 * libraft itself never hears of a failure: the paths on which it would clean up free some things
 * twice (0.22.1: recvCb, legacyPersistSnapshotStart). Once there is trouble, the gate is shut. What
 * libraft still does before it is closed seems to succeed and goes nowhere: no message leaves, nothing
 * is applied, and what waits for the disk waits until libraft closes, and is cancelled. */
#include "replica_libraft/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_COUNTS_MAX_US 1000000 /* what one tick adds to a wait, at most */

static struct replica *of_io(struct raft_io *io)
{
    struct raft *raft = io->data;

    return raft->data;
}

void gate_trouble(struct replica *replica, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;

    if (gate_shut(replica))
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error_write(&replica->trouble, "%s", text);
}

/* What the raft_io left behind in words. */
static void trouble_of_io(struct replica *replica, const char *what, int status)
{
    gate_trouble(replica, "%s: %s", what,
                 replica->io->errmsg[0] ? replica->io->errmsg : raft_strerror(status));
}

/* ---- watching --------------------------------------------------------------------------------- */

static void watch_appends(struct replica *replica, int64_t passed_us)
{
    if (replica->appends == 0)
        return;
    replica->stalled_us += passed_us;
    if (replica->stalled_us < (int64_t)REPLICA_STALL_MS * 1000)
        return;
    if (replica->stalled_us >= (int64_t)REPLICA_STALL_MAX_MS * 1000)
        gate_trouble(replica, "the disk has not taken an entry of the log for %d s",
                     REPLICA_STALL_MAX_MS / 1000);
    else if (!replica->stall_noted)
        replica_note(replica, 2, "the disk has not taken an entry of the log for %d s",
                     REPLICA_STALL_MS / 1000);
    replica->stall_noted = true;
}

static int64_t count_tick(struct replica *replica)
{
    int64_t now = replica_now(replica);
    int64_t passed = now - replica->ticked_us;

    replica->ticked_us = now;
    return passed < 0 ? 0 : passed > TICK_COUNTS_MAX_US ? TICK_COUNTS_MAX_US : passed;
}

static struct raft_server *own_member(struct raft *raft)
{
    for (unsigned i = 0; i < raft->configuration.n; i++)
        if (raft->configuration.servers[i].id == raft->id)
            return &raft->configuration.servers[i];
    return NULL;
}

static bool is_voter(struct raft *raft)
{
    const struct raft_server *own = own_member(raft);

    return own && own->role == RAFT_VOTER;
}

/* A follower refuses its vote while it has a leader. libraft forgets a leader that has fallen silent when the follower stands itself,
 * which one that does not vote, as far as it knows, never does: so it forgets it here, after the shortest election timeout (thesis,
 * 4.2.3). */
static void forget_leader(struct replica *replica)
{
    struct raft *raft = &replica->raft;

    if (raft->state != RAFT_FOLLOWER || raft->follower_state.current_leader.id == 0 ||
        raft->snapshot.installing || is_voter(raft))
        return;
    raft->follower_state.current_leader.id = 0;
    raft_free(raft->follower_state.current_leader.address);
    raft->follower_state.current_leader.address = NULL;
}

static void watch_leader(struct replica *replica)
{
    if (replica_now(replica) - replica->led_us >= (int64_t)replica->raft.election_timeout * 1000)
        forget_leader(replica);
}

static void on_tick(struct raft_io *io)
{
    struct replica *replica = of_io(io);
    int64_t passed_us = count_tick(replica);

    if (!gate_shut(replica)) {
        watch_appends(replica, passed_us);
        snapshots_watch(replica, passed_us);
    }
    if (gate_shut(replica)) {
        replica_stop(replica);
        return;
    }
    snapshots_consider(replica);
    members_promote(replica);
    watch_leader(replica);
    replica->tick(io);
    replica_observe(replica);
}

/* ---- messages --------------------------------------------------------------------------------- */

void gate_free_entries(struct raft_append_entries *append)
{
    void *batch = NULL;

    if (append->n_entries == 0)
        return;
    for (unsigned i = 0; i < append->n_entries; i++) {
        if (append->entries[i].batch != batch) {
            batch = append->entries[i].batch;
            raft_free(batch);
        }
    }
    raft_free(append->entries);
}

/* Frees what libraft would have taken over. */
static void drop_message(struct raft_message *message)
{
    if (message->type == RAFT_INSTALL_SNAPSHOT) {
        raft_configuration_close(&message->install_snapshot.conf);
        raft_free(message->install_snapshot.data.base);
    }
    if (message->type == RAFT_APPEND_ENTRIES)
        gate_free_entries(&message->append_entries);
}

/* Some that libraft 0.22.1 had better not see. A snapshot from the leader that arrives while this node takes one of
 * its own makes it follow a pointer that it has just cleared (takeSnapshotCb); one that arrives while another
 * is being installed is never freed. The leader will send it again. */
static bool comes_at_a_bad_time(const struct replica *replica, const struct raft_message *message)
{
    return message->type == RAFT_INSTALL_SNAPSHOT &&
           (replica->snapshots.state != SNAPSHOT_NONE || replica->raft.snapshot.installing);
}

/* Entries that this node has long committed, and the word that more is: libraft would take its own commit index back to
 * where these end, and a snapshot taken then would have the wrong index. */
static void correct(const struct replica *replica, struct raft_message *message)
{
    struct raft_append_entries *append = &message->append_entries;
    raft_index committed = raft_commit_index(&replica->raft);

    if (message->type == RAFT_APPEND_ENTRIES && append->leader_commit > committed &&
        append->prev_log_index + append->n_entries < committed)
        append->leader_commit = committed;
}

/* A node that is asked for its vote may not know yet that it has one: the change that gives it one is in the candidate's log; its own may
 * be empty. If it refused, as libraft lets it, a lone voter that was killed while it promoted a second one would wait for ever. A vote depends on
 * terms and logs alone (thesis, 4.1), and only a candidate counts it, by the members in its own log. So libraft sees this node
 * among the voters for as long as it decides. */
static void receive_vote_request(struct replica *replica, struct raft_message *message)
{
    struct raft *raft = &replica->raft;
    const struct raft_configuration members = raft->configuration;
    struct raft_configuration with_own = members;

    if (raft->state == RAFT_FOLLOWER &&
        message->server_id == raft->follower_state.current_leader.id)
        forget_leader(replica); /* who asks for votes does not lead */
    if (!is_voter(raft)) {
        with_own.servers = replica_realloc(NULL, (members.n + 1) * sizeof *members.servers);
        with_own.n = 0;
        for (unsigned i = 0; i < members.n; i++)
            if (members.servers[i].id != raft->id)
                with_own.servers[with_own.n++] = members.servers[i];
        with_own.servers[with_own.n++] =
            (struct raft_server){.id = raft->id, .address = raft->address, .role = RAFT_VOTER};
        raft->configuration = with_own;
    }
    replica->receive(replica->io, message);
    if (with_own.servers == members.servers)
        return;
    raft->configuration = members; /* a vote does not change them */
    free(with_own.servers);
}

void gate_deliver(struct replica *replica, struct raft_message *message)
{
    correct(replica, message);
    replica->memory.speaker = message->server_id;
    if (message->type == RAFT_REQUEST_VOTE && !replica->closing)
        receive_vote_request(replica, message);
    else
        replica->receive(replica->io, message);
    replica->memory.speaker = 0;
}

static void on_message(struct raft_io *io, struct raft_message *message)
{
    struct replica *replica = of_io(io);
    bool leads = message->type == RAFT_APPEND_ENTRIES || message->type == RAFT_INSTALL_SNAPSHOT;
    raft_id from = message->server_id;
    struct heard *heard;

    if (!replica->closing &&
        (gate_shut(replica) || comes_at_a_bad_time(replica, message) ||
         consistency_impossible(message) || consistency_violated(replica, message))) {
        drop_message(message);
        return;
    }
    heard = members_heard(replica, message->server_id);
    if (message->type == RAFT_APPEND_ENTRIES_RESULT && !replica->closing &&
        consistency_forgets(replica, heard, &message->append_entries_result)) {
        drop_message(message);
        return;
    }
    if (message->type == RAFT_APPEND_ENTRIES)
        replica->memory.sent_from = message->append_entries.prev_log_index;
    if (message->type == RAFT_INSTALL_SNAPSHOT && !replica->closing)
        apply_put_off(replica); /* the log goes */
    if (message->type == RAFT_APPEND_ENTRIES && !replica->closing)
        changes_deliver(replica, message);
    else
        gate_deliver(replica, message);
    if (leads && replica_leader(replica) == from)
        replica->led_us = replica_now(replica);
    replica_observe(replica);
}

/* libraft believes in a vote or an entry that is not on disk: nobody else may. */
static int on_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb done)
{
    struct replica *replica = of_io(io);
    struct raft_message snapshot;

    if (gate_shut(replica)) {
        done(req, RAFT_NOCONNECTION);
        return 0;
    }
    if (late_holds(replica, req, message, done))
        return 0;
    if (message->type != RAFT_INSTALL_SNAPSHOT)
        return replica->saved.send(io, req, message, done);
    snapshot = *message;
    return memory_send(replica, req, &snapshot, done);
}

/* ---- starting --------------------------------------------------------------------------------- */

/* The newest members in what was loaded are this node as the only one that votes. */
static bool votes_alone(const struct replica *replica, const struct raft_snapshot *snapshot,
                        const struct raft_entry *entries, size_t count)
{
    struct raft_configuration decoded;
    const struct raft_configuration *members = snapshot ? &snapshot->configuration : NULL;
    bool own = false;
    unsigned voters = 0;

    raft_configuration_init(&decoded);
    while (count > 0 && entries[count - 1].type != RAFT_CHANGE)
        count--;
    if (count > 0 && raft_configuration_decode(&entries[count - 1].buf, &decoded) == 0)
        members = &decoded;
    for (unsigned i = 0; members && i < members->n; i++) {
        if (members->servers[i].role != RAFT_VOTER)
            continue;
        voters++;
        own = own || members->servers[i].id == replica->id;
    }
    raft_configuration_close(&decoded);
    return own && voters == 1;
}

/* libraft lets a lone voter lead as soon as it starts, in the term that is on disk. A node that is being added may have an entry of
 * that term which this one sent and lost in its crash: another entry in its place needs another term, or the newcomer
 * keeps the lost one. Several voters elect a leader, which raises the term. */
static int on_load(struct raft_io *io, raft_term *ret_term, raft_id *ret_voted_for,
                   struct raft_snapshot **ret_snapshot, raft_index *ret_start_index,
                   struct raft_entry **ret_entries, size_t *ret_count)
{
    struct replica *replica = of_io(io);
    int result = replica->saved.load(io, ret_term, ret_voted_for, ret_snapshot, ret_start_index,
                                     ret_entries, ret_count);

    if (result != 0 || !votes_alone(replica, *ret_snapshot, *ret_entries, *ret_count))
        return result;
    *ret_term += 1;
    *ret_voted_for = replica->id;
    io->set_term(io, *ret_term);
    io->set_vote(io, *ret_voted_for);
    return 0;
}

static int on_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    struct replica *replica = of_io(io);

    replica->tick = tick;
    replica->receive = receive;
    replica->ticked_us = replica_now(replica);
    return replica->saved.start(io, msecs, on_tick, on_message);
}

/* ---- the disk --------------------------------------------------------------------------------- */

static void keep_append(struct kept_append *append)
{
    append->next = append->replica->failed_appends;
    append->replica->failed_appends = append;
}

static void on_appended(struct raft_io_append *ours, int status)
{
    struct kept_append *append = ours->data;
    struct replica *replica = append->replica;

    replica->appends--;
    replica->stalled_us = 0;
    replica->stall_noted = false;
    if (!replica->closing && status != 0)
        trouble_of_io(replica, "the log cannot be written", status);
    if (!replica->closing && gate_shut(replica)) {
        keep_append(append);
        return;
    }
    append->done(append->theirs, status);
    free(append);
    replica_observe(replica);
}

static int on_append(struct raft_io *io, struct raft_io_append *req,
                     const struct raft_entry entries[], unsigned n, raft_io_append_cb done)
{
    struct replica *replica = of_io(io);
    struct kept_append *append = replica_realloc(NULL, sizeof *append);
    int result = 0;

    *append = (struct kept_append){.theirs = req, .done = done, .replica = replica};
    append->ours.data = append;
    if (!gate_shut(replica))
        result = replica->saved.append(io, &append->ours, entries, n, on_appended);
    if (result != 0)
        trouble_of_io(replica, "the log cannot be written", result);
    if (gate_shut(replica))
        keep_append(append);
    else if (replica->appends++ == 0)
        replica->stalled_us = 0;
    return 0;
}

static int on_truncate(struct raft_io *io, raft_index index)
{
    struct replica *replica = of_io(io);
    int result = gate_shut(replica) ? 0 : replica->saved.truncate(io, index);

    if (result != 0)
        trouble_of_io(replica, "the log cannot be shortened", result);
    return 0;
}

static int on_set_term(struct raft_io *io, raft_term term)
{
    struct replica *replica = of_io(io);
    int result = gate_shut(replica) ? 0 : replica->saved.set_term(io, term);

    if (result != 0)
        trouble_of_io(replica, "the term cannot be stored", result);
    return 0;
}

static int on_set_vote(struct raft_io *io, raft_id server_id)
{
    struct replica *replica = of_io(io);
    int result = gate_shut(replica) ? 0 : replica->saved.set_vote(io, server_id);

    if (result != 0)
        trouble_of_io(replica, "the vote cannot be stored", result);
    return 0;
}

static int on_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done)
{
    snapshots_put(of_io(io), trailing, req, snapshot, done);
    return 0;
}

static int on_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                           raft_io_snapshot_get_cb done)
{
    memory_get(of_io(io), req, done);
    return 0;
}

/* libraft is closing, and now takes the end of its requests for what it is. */
static void on_close(struct raft_io *io, raft_io_close_cb done)
{
    struct replica *replica = of_io(io);

    while (replica->failed_appends) {
        struct kept_append *append = replica->failed_appends;

        replica->failed_appends = append->next;
        append->done(append->theirs, RAFT_CANCELED);
        free(append);
    }
    late_flush(replica);
    snapshots_cancel(replica);
    memory_cancel(replica);
    replica->saved.close(io, done);
}

void gate_install(struct replica *replica)
{
    struct raft_io *io = replica->io;

    replica->saved = *io;
    io->load = on_load;
    io->start = on_start;
    io->close = on_close;
    io->send = on_send;
    io->append = on_append;
    io->truncate = on_truncate;
    io->set_term = on_set_term;
    io->set_vote = on_set_vote;
    io->snapshot_put = on_snapshot_put;
    io->snapshot_get = on_snapshot_get;
}

void gate_remove(struct replica *replica)
{
    struct raft_io *io = replica->io;

    io->load = replica->saved.load;
    io->start = replica->saved.start;
    io->close = replica->saved.close;
    io->send = replica->saved.send;
    io->append = replica->saved.append;
    io->truncate = replica->saved.truncate;
    io->set_term = replica->saved.set_term;
    io->set_vote = replica->saved.set_vote;
    io->snapshot_put = replica->saved.snapshot_put;
    io->snapshot_get = replica->saved.snapshot_get;
}
