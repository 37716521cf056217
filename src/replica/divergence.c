/* divergence.c: nodes that have applied the same entries have the same table. Whether that is so is looked at all the time, a part after the
 * other: memory that is damaged, or code that does not do the same everywhere, is to be found before such a node leads.
 *
 * At every DIGEST_EVERY-th entry each node takes a digest: of the table's counters, and of a few hundred slots, which the index
 * chooses, so that all of the table comes round (core_hash_part). What it costs does not depend on how large the table is. The
 * leader asks for one of them now and then:
 *
 *     leader ──ASKS index, digest──▶ members ──ANSWERS index, digest──▶ leader      who was not so far answers when it is
 *     leader ──STOPS──▶ the member whose table is another than the majority's; if the leader's own is, it stops itself
 *
 * If no majority agrees within a round, those who differ from the leader stop: nobody knows who is wrong. */
#include "replica/inside.h"

#include <inttypes.h>

static struct digest *digest_at(struct replica *replica, uint64_t index)
{
    return &replica->divergence.own[index / DIGEST_EVERY % DIGESTS_KEPT];
}

/* What the operator is to do about it. */
static void stop(struct replica *replica, uint64_t index, uint64_t other, bool sure)
{
    uint64_t id = replica->options.id;

    if (sure)
        replica_stop(
            replica,
            "after entry %" PRIu64 " the table of this node, %" PRIu64
            ", differs from that of node %" PRIu64 " and of a majority, though all have "
            "applied the same entries: its memory or data is damaged: replace node %" PRIu64,
            index, id, other, id);
    else
        replica_stop(replica,
                     "after entry %" PRIu64 " the tables of this node, %" PRIu64
                     ", and of node %" PRIu64 " differ, though both have applied the same entries: "
                     "find out which of the two has damaged memory or data, and replace that node",
                     index, id, other);
}

static void send_digest(struct replica *replica, uint64_t to, enum digest_says says, uint64_t index,
                        uint64_t hash)
{
    struct message message = {
        .raft = {.type = MESSAGE_DIGEST, .to = to, .term = raft_term(replica->raft)},
        .digest_says = (uint8_t)says,
        .digest = {index, hash}};

    send_own(replica, &message);
}

/* ---- a member --------------------------------------------------------------------------------- */

void divergence_applied(struct replica *replica)
{
    struct divergence *divergence = &replica->divergence;
    uint64_t index = replica->applied.index;

    if (index % DIGEST_EVERY != 0)
        return;
    *digest_at(replica, index) =
        (struct digest){index, core_hash_part(replica->table, index / DIGEST_EVERY, DIGEST_SLOTS)};
    if (replica->live && divergence->asked == index) {
        divergence->asked = 0;
        send_digest(replica, divergence->asked_by, DIGEST_ANSWERS, index,
                    digest_at(replica, index)->hash);
    }
}

void divergence_reset(struct replica *replica)
{
    replica->divergence = (struct divergence){.next_us = replica->divergence.next_us};
}

static void on_ask(struct replica *replica, const struct message *message)
{
    struct divergence *divergence = &replica->divergence;
    const struct digest *own = digest_at(replica, message->digest.index);

    if (own->index == message->digest.index) {
        send_digest(replica, message->raft.from, DIGEST_ANSWERS, own->index, own->hash);
    } else if (message->digest.index > replica->applied.index) {
        divergence->asked = message->digest.index;
        divergence->asked_by = message->raft.from;
    }
}

static void on_stop(struct replica *replica, const struct message *message)
{
    const struct digest *own = digest_at(replica, message->digest.index);

    if (own->index == message->digest.index && own->hash != message->digest.hash)
        stop(replica, own->index, message->raft.from,
             message->digest_says == DIGEST_STOPS_FOR_SURE);
}

/* ---- the leader ------------------------------------------------------------------------------- */

static bool has_answered(const struct replica *replica, const struct peer *peer)
{
    return peer && peer->digest.index == replica->divergence.round.index && peer->digest.index != 0;
}

/* How many of the voters have this. */
static int count_voters(struct replica *replica, uint64_t hash)
{
    const struct replica_config *members = &replica->members.latest;
    int count = 0;

    for (int i = 0; i < members->count; i++) {
        const struct peer *peer = peer_of(replica, members->at[i].id, false);

        if (!members->at[i].votes)
            continue;
        if (members->at[i].id == replica->options.id)
            count += replica->divergence.round.hash == hash;
        else
            count += has_answered(replica, peer) && peer->digest.hash == hash;
    }
    return count;
}

static int voters(const struct replica *replica)
{
    int count = 0;

    for (int i = 0; i < replica->members.latest.count; i++)
        count += replica->members.latest.at[i].votes;
    return count;
}

/* over: nothing more is awaited. */
static void judge(struct replica *replica, bool over)
{
    const struct digest *round = &replica->divergence.round;
    bool sure = 2 * count_voters(replica, round->hash) > voters(replica);

    for (unsigned i = 0; i < replica->peer_count && !is_stopped(replica); i++) {
        struct peer *peer = &replica->peers[i];

        if (!peer->id || !members_find(replica, peer->id) || !has_answered(replica, peer) ||
            peer->digest.hash == round->hash)
            continue;
        if (2 * count_voters(replica, peer->digest.hash) > voters(replica))
            stop(replica, round->index, peer->id, true);
        else if (sure || over)
            send_digest(replica, peer->id, sure ? DIGEST_STOPS_FOR_SURE : DIGEST_STOPS,
                        round->index, round->hash);
    }
}

static void on_answer(struct replica *replica, const struct message *message)
{
    const struct replica_member *member = members_find(replica, message->raft.from);
    struct peer *peer = peer_of(replica, message->raft.from, false);

    if (!peer || !member || member->incarnation != message->raft.incarnation ||
        message->digest.index != replica->divergence.round.index)
        return;
    peer->digest = message->digest;
    if (peer->digest.hash != replica->divergence.round.hash)
        judge(replica, false);
}

/* The newest that it has. */
static void begin_round(struct replica *replica)
{
    const struct replica_config *members = &replica->members.latest;
    const struct digest *newest =
        digest_at(replica, replica->applied.index / DIGEST_EVERY * DIGEST_EVERY);

    if (newest->index == 0 || newest->index == replica->divergence.round.index ||
        newest->index + DIGEST_EVERY <= replica->applied.index)
        return;
    replica->divergence.round = *newest;
    for (int i = 0; i < members->count; i++)
        if (members->at[i].id != replica->options.id)
            send_digest(replica, members->at[i].id, DIGEST_ASKS, newest->index, newest->hash);
}

void divergence_pump(struct replica *replica)
{
    struct divergence *divergence = &replica->divergence;

    if (replica->leading != LEAD_SERVING) {
        divergence->round.index = 0;
        return;
    }
    if (replica->now_us < divergence->next_us)
        return;
    divergence->next_us = replica->now_us + tuning.digest_us;
    if (divergence->round.index > 0)
        judge(replica, true);
    if (!is_stopped(replica))
        begin_round(replica);
}

void divergence_on_message(struct replica *replica, const struct message *message)
{
    if (message->raft.term != raft_term(replica->raft) ||
        message->digest.index % DIGEST_EVERY != 0 || message->digest.index == 0)
        return;
    if (message->digest_says == DIGEST_ANSWERS) {
        if (replica->leading == LEAD_SERVING)
            on_answer(replica, message);
    } else if (message->raft.from == raft_leader(replica->raft)) {
        if (message->digest_says == DIGEST_ASKS)
            on_ask(replica, message);
        else
            on_stop(replica, message);
    }
}
