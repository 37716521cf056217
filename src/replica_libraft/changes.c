/* changes.c: changes of members among the entries that a leader sends.
 *
 * libraft 0.22.1 notes each change in a message under the index of the first entry that is new (replicationAppend): one that stands
 * further behind is committed without being recognised. The next snapshot stores the members of before, and after a
 * restart this node and a minority may elect a leader. And it knows one uncommitted change at a time: a second one that comes
 * before the first is applied takes its place, and if the second is truncated both are rolled back.
 *
 * So libraft gets a message with changes in parts, each of which begins with one:
 *
 *     x x C x C     ──▶     x x     C x     C
 *
 * and a change only when the one before it is applied. A leader proposes a change when the one before it is committed: so where
 * a second one is in its log, the first was committed, whether the message says so or not. A leader that was restarted does not
 * know it any more, and could not learn it from a majority before that majority has the second. libraft hears of it by a heartbeat
 * before it gets the part. If that is refused, because this node's log differs, the part is dropped, and the leader, which
 * hears how far this node is, sends it again. */
#include "replica_libraft/inside.h"

#include <string.h>

/* Of the second change in the message, or of the first if it is not the first entry; 0: there is none. */
static unsigned find_border(const struct raft_append_entries *append)
{
    for (unsigned i = 1; i < append->n_entries; i++)
        if (append->entries[i].type == RAFT_CHANGE)
            return i;
    return 0;
}

/* libraft frees the bytes of each message as one piece: those of a part must be a piece of their own. */
static struct raft_entry *copy_entries(const struct raft_entry *entries, unsigned count)
{
    struct raft_entry *copies = raft_malloc(count * sizeof *copies);
    size_t size = 0;
    char *at;

    for (unsigned i = 0; i < count; i++)
        size += entries[i].buf.len;
    at = raft_malloc(size + 1); /* entries may be empty */
    INVARIANT(copies && at);
    copies[0].batch = at;
    for (unsigned i = 0; i < count; i++) {
        copies[i] = entries[i];
        copies[i].batch = i > 0 ? copies[0].batch : at;
        copies[i].buf.base = at;
        if (entries[i].buf.len > 0)
            memcpy(at, entries[i].buf.base, entries[i].buf.len);
        at += entries[i].buf.len;
    }
    return copies;
}

/* Is the change before this part's first entry, if that is one, not applied yet? */
static bool is_early(const struct replica *replica, const struct raft_append_entries *append)
{
    raft_index noted = replica->raft.configuration_uncommitted_index;

    return append->n_entries > 0 && append->entries[0].type == RAFT_CHANGE && noted != 0 &&
           noted <= append->prev_log_index;
}

/* With the change that is noted as committed, and whatever else the leader knows of. */
static void deliver_heartbeat(struct replica *replica, const struct raft_message *message)
{
    struct raft_message heartbeat = *message;
    raft_index noted = replica->raft.configuration_uncommitted_index;

    if (heartbeat.append_entries.leader_commit < noted)
        heartbeat.append_entries.leader_commit = noted;
    heartbeat.append_entries.entries = NULL;
    heartbeat.append_entries.n_entries = 0;
    gate_deliver(replica, &heartbeat);
}

/* Takes over the entries. False: it was too early. */
static bool deliver_part(struct replica *replica, struct raft_message *part)
{
    if (is_early(replica, &part->append_entries))
        deliver_heartbeat(replica, part);
    if (is_early(replica, &part->append_entries)) {
        gate_free_entries(&part->append_entries);
        return false;
    }
    gate_deliver(replica, part);
    return true;
}

/* Their bytes are one piece with those of the others, and are freed with the last of them. */
static void drop_front(struct raft_append_entries *append, unsigned count)
{
    if (count == append->n_entries) {
        gate_free_entries(append);
        append->entries = NULL;
        append->n_entries = 0;
        return;
    }
    append->n_entries -= count;
    memmove(append->entries, append->entries + count, append->n_entries * sizeof *append->entries);
}

/* What is committed here the leader has, too (thesis, 3.6.3), so it is not looked at again, and the answer tells the leader how far
 * this node is. libraft looks at it, and what is below its snapshot it does not know: it refuses a message that begins there, without saying
 * what it has, so that the leader goes back to the beginning and stays there; or takes entries from before the
 * snapshot for new ones. A node gets there if its own snapshot is on disk before the entries in it are, and it is restarted then. */
static void skip_committed(const struct replica *replica, struct raft_append_entries *append)
{
    const struct raft *raft = &replica->raft;
    raft_index committed = raft->commit_index;
    raft_term term = consistency_term_of(raft, committed);
    raft_index known;

    if (append->prev_log_index >= committed || append->term < raft->current_term || term == 0 ||
        raft->snapshot.installing)
        return;
    known = committed - append->prev_log_index;
    if (append->n_entries > 0)
        drop_front(append, known < append->n_entries ? (unsigned)known : append->n_entries);
    append->prev_log_index = committed;
    append->prev_log_term = term;
}

void changes_deliver(struct replica *replica, struct raft_message *message)
{
    struct raft_append_entries *append = &message->append_entries;
    unsigned border;

    skip_committed(replica, append);
    while ((border = find_border(append)) > 0) {
        struct raft_message part = *message;
        raft_term last_term = append->entries[border - 1].term;

        part.append_entries.entries = copy_entries(append->entries, border);
        part.append_entries.n_entries = border;
        if (!deliver_part(replica, &part)) {
            gate_free_entries(append);
            return;
        }
        append->prev_log_index += border;
        append->prev_log_term = last_term;
        append->n_entries -= border;
        memmove(append->entries, append->entries + border,
                append->n_entries * sizeof *append->entries);
    }
    deliver_part(replica, message);
}
