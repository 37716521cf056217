/* check.c: what must always hold, and what decides. For tests, simulator and explorer. */
#include "raft/inside.h"

static const char *check_log(const struct raft *raft)
{
    uint64_t before;

    if (raft->base.index > raft->last || raft->commit > raft->last || raft->verified > raft->last ||
        raft->written > raft->last || raft->durable > raft->written)
        return "an index is beyond the end of the log";
    if (raft->verified < raft->commit)
        return "what is committed is not verified";
    if (raft->last - raft->base.index > raft->limits.window)
        return "the window is larger than it may be";
    before = window_term(raft, raft->base.index);
    for (uint64_t i = raft->base.index + 1; i <= raft->last; i++) {
        uint64_t term = window_term(raft, i);

        if (term < before || term > raft->term)
            return "terms go back within the log, or are ahead of the node's";
        before = term;
    }
    return NULL;
}

static const char *check_role(const struct raft *raft)
{
    if (raft->role == RAFT_LEADER &&
        (raft->leader != raft->id || raft->vote != raft->id || raft->first_of_term > raft->last ||
         window_term(raft, raft->last) != raft->term))
        return "a leader without its vote, or without an entry of its term";
    if (raft->role == RAFT_CANDIDATE && raft->vote != raft->id)
        return "a candidate without its own vote";
    if (raft->role != RAFT_LEADER && (raft->progress_count > 0 || raft->transferee))
        return "only a leader has followers";
    for (int i = 0; i < raft->progress_count; i++)
        if (progress_of(raft, i)->match > raft->last ||
            progress_of(raft, i)->next <= progress_of(raft, i)->match ||
            progress_of(raft, i)->next > raft->last + 1)
            return "a follower's place is beyond the log";
    return NULL;
}

const char *raft_check(const struct raft *raft)
{
    const char *wrong = check_log(raft);

    if (!wrong)
        wrong = check_role(raft);
    if (!wrong && config_of(raft, LATEST)->index > raft->last)
        wrong = "the configuration in effect is not in the log";
    if (!wrong && config_of(raft, PREVIOUS)->count > 0 &&
        config_of(raft, PREVIOUS)->index >= config_of(raft, LATEST)->index)
        wrong = "the configuration before is not before";
    return wrong;
}

/* ---- without times and chance ---------------------------------------------------------------- */

struct writer {
    uint8_t *at;
};

static void put(struct writer *writer, uint64_t value)
{
    memcpy(writer->at, &value, sizeof value);
    writer->at += sizeof value;
}

static void put_config(struct writer *writer, const struct raft *raft, int which)
{
    const struct raft_member *members = members_of(raft, which);

    put(writer, config_of(raft, which)->index << 8 | config_of(raft, which)->count);
    for (uint32_t i = 0; i < config_of(raft, which)->count; i++) {
        put(writer, members[i].id << 1 | members[i].votes);
        put(writer, members[i].incarnation);
    }
}

static void put_progress(struct writer *writer, const struct raft *raft,
                         const struct progress *progress, int64_t now_us)
{
    bool silent = now_us - progress->advanced_us >= raft->limits.election_us;
    bool slow = now_us - progress->goal_us >= raft->limits.election_us;

    put(writer, progress->id);
    put(writer, progress->incarnation);
    put(writer, progress->goal);
    put(writer, progress->match << 32 | progress->next);
    put(writer, progress->commit_sent);
    put(writer,
        (uint64_t)progress->state | (uint64_t)progress->probing << 2 |
            (uint64_t)progress->caught_up << 3 | (uint64_t)(progress->leaving_us != 0) << 4 |
            (uint64_t)(now_us - progress->acked_us < raft->limits.election_us) << 5 |
            (uint64_t)(now_us - progress->sent_us < raft->limits.heartbeat_us) << 6 |
            (uint64_t)silent << 7 | (uint64_t)slow << 8 |
            (uint64_t)(now_us >= progress->leaving_us) << 9 | (uint64_t)progress->answered << 10);
}

size_t raft_canonical(const struct raft *raft, int64_t now_us, void *ret_bytes)
{
    struct writer writer = {.at = ret_bytes};
    bool heard = raft->heard_us && now_us - raft->heard_us < raft->limits.election_us;

    put(&writer, raft->term);
    put(&writer, raft->vote << 32 | raft->leader);
    put(&writer, (uint64_t)raft->role | (uint64_t)raft->stopped << 4 |
                     (uint64_t)raft->transferring << 5 | (uint64_t)raft->ack_due << 6 |
                     (uint64_t)heard << 7 | (uint64_t)raft->timeout_sent << 8 |
                     (uint64_t)raft->commit_urgent << 9 |
                     (uint64_t)(now_us >= raft->transfer_until_us) << 10);
    put(&writer, raft->incarnation);
    put(&writer, raft->base.index << 32 | raft->last);
    put(&writer, raft->commit << 32 | raft->verified);
    put(&writer, raft->written << 32 | raft->durable);
    put(&writer, raft->role == RAFT_CANDIDATE || raft->role == RAFT_PRE_CANDIDATE ? raft->yes : 0);
    put(&writer, raft->role == RAFT_LEADER ? raft->first_of_term << 32 | raft->transferee : 0);
    put_config(&writer, raft, LATEST);
    put_config(&writer, raft, PREVIOUS);
    for (int i = 0; i < raft->progress_count; i++)
        put_progress(&writer, raft, progress_of(raft, i), now_us);
    for (uint64_t i = raft->base.index; i <= raft->last; i++)
        put(&writer, window_id(raft, i).chain);
    return (size_t)(writer.at - (uint8_t *)ret_bytes);
}
