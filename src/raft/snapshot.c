/* snapshot.c: a log that begins with a snapshot. §5 */
#include "raft/inside.h"

void snapshot_installed(struct raft *raft, const struct raft_event *event,
                        struct raft_output *output)
{
    const struct raft_id *id = &event->id;

    raft->ack_due = raft->leader != 0;
    if (raft->role == RAFT_LEADER || id->index <= raft->commit)
        return; /* what we have is newer */
    if (id->term > raft->term || id->index > RAFT_INDEX_MAX || !event->members ||
        event->members->index > id->index ||
        !members_are_sound(event->members, raft->limits.members)) {
        raft_fatal(raft, output,
                   "a snapshot is in use that is of a later term, or has an index or members that "
                   "cannot be");
        return;
    }
    if (window_has(raft, id->index) && window_term(raft, id->index) == id->term) {
        if (window_id(raft, id->index).chain != id->chain) {
            raft_fatal(raft, output,
                       "a snapshot and our log differ in an entry of the same index and term");
            return;
        }
        commit_to(raft, id->index, output); /* R12: the log goes on as it is */
        if (raft->durable < id->index)
            raft->durable = id->index;
        if (raft->written < id->index)
            raft->written = id->index;
        return;
    }
    /* A candidate has counted its votes by their places in the configuration that goes. */
    if (raft->role != RAFT_FOLLOWER)
        become_follower(raft, raft->term, 0, output);
    raft->epoch++;
    raft->base = *id;
    raft->base_total = 0;
    raft->last = raft->commit = raft->verified = raft->written = raft->durable = id->index;
    config_set(raft, LATEST, event->members);
    config_of(raft, PREVIOUS)->index = config_of(raft, PREVIOUS)->count = 0;
    output->committed = output->changed = true;
}
