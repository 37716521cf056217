/* transfer.c: leadership is handed over. §3.10 */
#include "raft/inside.h"

/* The one who has most, of those that answer. */
static uint64_t furthest(const struct raft *raft)
{
    const struct progress *best = NULL;

    for (int i = 0; i < raft->progress_count; i++) {
        const struct progress *progress = progress_of(raft, i);

        if (is_voter(raft, LATEST, progress->id) && progress->answered &&
            (!best || progress->match > best->match) &&
            raft->now_us - progress->acked_us < raft->limits.election_us)
            best = progress;
    }
    return best ? best->id : 0;
}

void transfer_begin(struct raft *raft, uint64_t to, struct raft_output *output)
{
    if (raft->role != RAFT_LEADER) {
        output->result = RAFT_NOT_LEADER;
        return;
    }
    if (to == 0)
        to = furthest(raft);
    if (to == raft->id)
        output->result = RAFT_NOT_NEEDED;
    else if (!is_voter(raft, LATEST, to))
        output->result = RAFT_NO_SUCH;
    else if (raft->transferee)
        output->result = RAFT_BUSY;
    if (output->result != RAFT_OK)
        return;
    raft->transferee = to;
    raft->transfer_until_us = raft->now_us + raft->limits.election_us;
    raft->timeout_sent = false;
    transfer_try(raft, output);
}

void transfer_try(struct raft *raft, struct raft_output *output)
{
    const struct progress *progress =
        raft->transferee ? progress_find(raft, raft->transferee) : NULL;

    if (!progress || raft->timeout_sent ||
        (progress->match != raft->last && !SWITCHED(SWITCH_TRANSFER_EARLY)))
        return;
    raft->timeout_sent = true;
    output_message(raft, output, RAFT_TIMEOUT_NOW, raft->transferee)->id =
        window_id(raft, raft->last);
}

void transfer_end(struct raft *raft)
{
    raft->transferee = 0;
    raft->timeout_sent = false;
}

/* R13. Who lacks something would only cost a term. */
void transfer_on_timeout_now(struct raft *raft, const struct raft_message *message,
                             struct raft_output *output)
{
    struct raft_id own = window_id(raft, raft->last);

    if (raft->role == RAFT_LEADER || !is_voter_itself(raft, LATEST) ||
        own.index != message->id.index || own.term != message->id.term ||
        own.chain != message->id.chain)
        return;
    election_begin(raft, true, output);
}
