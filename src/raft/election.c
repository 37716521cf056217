/* election.c: campaigns and votes. §3.4, §9.6 */
#include "raft/inside.h"

void election_postpone(struct raft *raft)
{
    raft->election_us = raft->now_us + raft->limits.election_us +
                        (int64_t)draw(raft, (uint64_t)raft->limits.election_us);
}

/* R13, R14, R20 */
static bool may_campaign(const struct raft *raft)
{
    if (raft->term == RAFT_TERM_MAX)
        return false;
    if (member_find(raft, LATEST, raft->id) >= 0)
        return is_voter_itself(raft, LATEST);
    return config_of(raft, LATEST)->index > raft->commit && is_voter_itself(raft, PREVIOUS);
}

bool election_is_settled(const struct raft *raft)
{
    return raft->role == RAFT_FOLLOWER && raft->leader == 0 && voter_count(raft, LATEST) == 1 &&
           is_voter_itself(raft, LATEST) && may_campaign(raft);
}

static int count_yes(const struct raft *raft)
{
    int count = 0;

    for (uint64_t bits = raft->yes; bits; bits &= bits - 1)
        count++;
    return count;
}

/* Also one's own. */
static void note_yes(struct raft *raft, uint64_t id)
{
    int place = member_find(raft, LATEST, id);

    if (place >= 0 && (members_of(raft, LATEST)[place].votes || SWITCHED(SWITCH_LEARNER_ELECTS)))
        raft->yes |= (uint64_t)1 << place;
}

static void ask_all(struct raft *raft, uint8_t type, struct raft_output *output)
{
    const struct raft_member *members = members_of(raft, LATEST);

    for (uint32_t i = 0; i < config_of(raft, LATEST)->count; i++) {
        struct raft_message *message;

        if ((!members[i].votes && !SWITCHED(SWITCH_LEARNER_ELECTS)) || members[i].id == raft->id)
            continue;
        message = output_message(raft, output, type, members[i].id);
        message->term = type == RAFT_PRE_VOTE ? raft->term + 1 : raft->term;
        message->id = window_id(raft, raft->last);
        message->transfer = raft->transferring;
    }
}

static void become_leader(struct raft *raft, struct raft_output *output)
{
    raft->role = RAFT_LEADER;
    raft->leader = raft->id;
    raft->election_us = NEVER_US;
    raft->heard_us = 0;
    raft->ack_due = false;
    output->changed = true;
    replicate_begin(raft, output);
}

/* A new term, with one's own vote: durable before anybody hears of it (R6). */
static void become_candidate(struct raft *raft, struct raft_output *output)
{
    if (!SWITCHED(SWITCH_LONE_OLD_TERM) || raft->vote != raft->id || voter_count(raft, LATEST) > 1)
        raft->term++;
    raft->vote = raft->id;
    raft->verified = raft->commit;
    output->persist = true;
    raft->role = RAFT_CANDIDATE;
    raft->leader = 0;
    raft->yes = 0;
    output->changed = true;
    election_postpone(raft);
    note_yes(raft, raft->id);
    if (count_yes(raft) >= majority(raft))
        become_leader(raft, output);
    else
        ask_all(raft, RAFT_VOTE, output);
}

void election_begin(struct raft *raft, bool by_order, struct raft_output *output)
{
    election_postpone(raft);
    raft->heard_us = 0;
    if (!may_campaign(raft)) {
        if (raft->leader)
            become_follower(raft, raft->term, 0, output);
        election_postpone(raft);
        return;
    }
    raft->transferring = by_order;
    if (by_order || SWITCHED(SWITCH_NO_PRE_VOTE) ||
        (voter_count(raft, LATEST) == 1 && is_voter(raft, LATEST, raft->id))) {
        become_candidate(raft, output);
        return;
    }
    raft->role = RAFT_PRE_CANDIDATE;
    raft->leader = 0;
    raft->yes = 0;
    output->changed = true;
    note_yes(raft, raft->id);
    ask_all(raft, RAFT_PRE_VOTE, output);
}

static bool is_as_far(const struct raft *raft, const struct raft_id *theirs)
{
    uint64_t term = window_term(raft, raft->last);

    return SWITCHED(SWITCH_VOTE_FOR_BEHIND) || theirs->term > term ||
           (theirs->term == term && theirs->index >= raft->last);
}

/* R16. Of a leader that lost its place without our knowing: it asks for itself. */
static bool is_sticky(const struct raft *raft, const struct raft_message *message)
{
    if (message->transfer || message->from == raft->leader || SWITCHED(SWITCH_NOT_STICKY))
        return false;
    return raft->role == RAFT_LEADER ||
           (raft->heard_us && raft->now_us - raft->heard_us < raft->limits.election_us);
}

static void reply(struct raft *raft, const struct raft_message *message, bool yes,
                  struct raft_output *output)
{
    struct raft_message *answer = output_message(
        raft, output, message->type == RAFT_VOTE ? RAFT_VOTE_REPLY : RAFT_PRE_VOTE_REPLY,
        message->from);

    answer->yes = yes;
    answer->asked_term = message->term;
}

void election_on_vote(struct raft *raft, const struct raft_message *message,
                      struct raft_output *output)
{
    bool yes;

    if (is_sticky(raft, message))
        return;
    /* R19. A log with the same end but another content: whoever led next would replace one of them by nothing. */
    if (window_has(raft, message->id.index) && message->id.index > 0 &&
        message->id.term == window_term(raft, message->id.index) &&
        message->id.chain != window_id(raft, message->id.index).chain) {
        raft_fatal(
            raft, output,
            "a candidate's log has the same last entry as ours and another content before it");
        return;
    }
    if (message->type == RAFT_PRE_VOTE) {
        reply(raft, message, message->term > raft->term && is_as_far(raft, &message->id), output);
        return;
    }
    if (message->term > raft->term)
        become_follower(raft, message->term, 0, output);
    yes = message->term == raft->term &&
          (raft->vote == 0 || raft->vote == message->from || SWITCHED(SWITCH_VOTES_TWICE)) &&
          (raft->role == RAFT_FOLLOWER || raft->role == RAFT_PRE_CANDIDATE) &&
          is_as_far(raft, &message->id);
    if (yes) {
        become_follower(raft, raft->term, raft->leader, output);
        raft->vote = message->from;
        output->persist = true;
        election_postpone(raft);
    }
    reply(raft, message, yes, output);
}

void election_on_reply(struct raft *raft, const struct raft_message *message,
                       struct raft_output *output)
{
    int place = member_find(raft, LATEST, message->from);
    bool pre = message->type == RAFT_PRE_VOTE_REPLY;

    /* R20 */
    if (place < 0 || members_of(raft, LATEST)[place].incarnation != message->incarnation)
        return;
    if (!message->yes || raft->role != (pre ? RAFT_PRE_CANDIDATE : RAFT_CANDIDATE) ||
        message->asked_term != raft->term + (pre ? 1 : 0))
        return;
    note_yes(raft, message->from);
    if (count_yes(raft) < majority(raft))
        return;
    if (pre)
        become_candidate(raft, output);
    else
        become_leader(raft, output);
}
