/* append.c: a follower's side of the log. §3.5, §3.6 */
#include "raft/inside.h"

uint64_t acknowledged(const struct raft *raft)
{
    if (SWITCHED(SWITCH_ACK_BEFORE_DURABLE))
        return raft->verified;
    return raft->durable < raft->verified ? raft->durable : raft->verified;
}

void append_acknowledge(struct raft *raft, struct raft_output *output)
{
    struct raft_message *answer;

    if (!raft->ack_due || raft->role != RAFT_FOLLOWER || raft->leader == 0)
        return;
    raft->ack_due = false;
    raft->ack_us = raft->now_us;
    answer = output_message(raft, output, RAFT_APPEND_REPLY, raft->leader);
    answer->yes = true;
    answer->index = acknowledged(raft);
    answer->round = raft->ack_round;
}

/* The first index of the term that ours has there, above what is committed: a leader that does not know that term skips all
 * of it. */
static void reject(struct raft *raft, const struct raft_message *message,
                   struct raft_output *output)
{
    struct raft_message *answer = output_message(raft, output, RAFT_APPEND_REPLY, message->from);

    answer->index = message->id.index;
    answer->round = message->round;
    if (message->id.index > raft->last) {
        answer->hint_index = raft->last + 1;
        return;
    }
    answer->hint_term = window_term(raft, message->id.index);
    answer->hint_index = message->id.index;
    while (answer->hint_index > raft->commit + 1 &&
           window_term(raft, answer->hint_index - 1) == answer->hint_term)
        answer->hint_index--;
}

enum fit { FITS, MISSING, FATAL };

/* Does ours have what precedes? R9: up to what is committed it has, whatever it remembers of it. */
static enum fit fits(const struct raft *raft, const struct raft_id *before)
{
    if (before->index > raft->last)
        return MISSING;
    if (before->index < raft->base.index || SWITCHED(SWITCH_PREV_UNCHECKED))
        return FITS;
    if (window_term(raft, before->index) != before->term)
        return before->index <= raft->commit ? FATAL : MISSING;
    return window_id(raft, before->index).chain == before->chain ? FITS : FATAL;
}

/* R10 */
static bool take_config(struct raft *raft, const struct raft_entry *entry,
                        struct raft_output *output)
{
    struct raft_members members;

    if (entry->type != RAFT_CONFIG)
        return true;
    if (!raft_members_read(entry->bytes, entry->size, &members) ||
        members.count > raft->limits.members)
        return false;
    config_push(raft, &members);
    if (SWITCHED(SWITCH_CONFIG_AT_FIRST))
        config_of(raft, LATEST)->index = output->taken;
    output->changed = true;
    return true;
}

/* One entry at `index`, of which all before are there. False: no more are taken. */
static bool take_entry(struct raft *raft, uint64_t index, const struct raft_entry *entry,
                       struct raft_output *output)
{
    if (index < raft->base.index)
        return true;
    if (index <= raft->last) {
        if (window_term(raft, index) == entry->term) {
            if (window_id(raft, index).chain != entry->chain)
                raft_fatal(
                    raft, output,
                    "the leader's log and ours differ in an entry of the same index and term");
            return !raft->stopped;
        }
        if ((index <= raft->commit && !SWITCHED(SWITCH_COMMITTED_CUT)) ||
            !config_cut(raft, index)) {
            raft_fatal(raft, output, "the leader's log contradicts what is committed");
            return false;
        }
        window_cut(raft, index);
        output->changed = true;
    }
    if (window_full(raft))
        return false;
    if (!can_follow(raft, entry)) {
        raft_fatal(raft, output, "the leader sends an entry that cannot follow the one before it");
        return false;
    }
    window_append(raft, entry->term, entry->type, entry->size, entry->chain);
    if (output->taken == 0)
        output->taken = raft->last;
    if (!take_config(raft, entry, output))
        raft_fatal(raft, output, "the leader sends a configuration that is none");
    return !raft->stopped;
}

void append_hear(struct raft *raft, const struct raft_message *message, struct raft_output *output)
{
    if (raft->role == RAFT_LEADER) {
        raft_fatal(raft, output, "another node leads in our own term");
        return;
    }
    if (raft->role != RAFT_FOLLOWER || raft->leader != message->from)
        become_follower(raft, raft->term, message->from, output);
    election_postpone(raft);
    raft->heard_us = raft->now_us;
}

/* What is below the window is committed, and fits. The append's `id` is known to be here if it is not above what was acknowledged. */
bool append_is_lost(const struct raft *raft, const struct raft_message *message)
{
    if (message->acked == 0 || message->acked_by != raft->incarnation ||
        SWITCHED(SWITCH_OLD_COPY_GOES_ON))
        return false;
    return raft->term < message->term || raft->last < message->acked ||
           (message->id.index <= message->acked && fits(raft, &message->id) == MISSING);
}

void append_on_entries(struct raft *raft, const struct raft_message *message,
                       struct raft_output *output)
{
    uint64_t index = message->id.index, commit;

    append_hear(raft, message, output);
    if (raft->stopped)
        return;
    switch (fits(raft, &message->id)) {
    case FATAL:
        raft_fatal(raft, output,
                   "the leader's log differs from what is committed here, or has the same entry "
                   "with another content before it");
        return;
    case MISSING:
        reject(raft, message, output);
        return;
    case FITS:
        break;
    }
    for (uint32_t i = 0; i < message->count; i++)
        if (take_entry(raft, index + 1, &message->entries[i], output))
            index++;
        else
            break;
    if (raft->stopped)
        return;
    if (index > raft->verified)
        raft->verified = index;
    commit = message->commit < raft->verified ? message->commit : raft->verified;
    commit_to(raft, commit, output);
    raft->ack_round = message->round;
    /* What was taken is acknowledged when it is durable. Until then there is nothing to say but that this node is alive. */
    if (output->taken == 0 || raft->now_us - raft->ack_us >= raft->limits.heartbeat_us)
        raft->ack_due = true;
}
