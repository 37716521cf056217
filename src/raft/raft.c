/* raft.c: the block, the step, and what all rules share. */
#include "raft/inside.h"

/* ---- making ---------------------------------------------------------------------------------- */

static size_t size_of(const struct raft_limits *limits)
{
    return sizeof(struct raft) +
           CONFIGS * (sizeof(struct config) + limits->members * sizeof(struct raft_member)) +
           (limits->members + (size_t)LEAVING_MAX) * sizeof(struct progress) +
           limits->window * sizeof(struct window_entry);
}

size_t raft_size(const struct raft_limits *limits)
{
    return size_of(limits);
}

const char *raft_boot_check(const struct raft_limits *limits, const struct raft_boot *boot)
{
    const struct raft_id *snapshot = &boot->snapshot;

    if (limits->members < 1 || limits->members > RAFT_MEMBERS_MAX || limits->window < 1 ||
        limits->window > RAFT_WINDOW_MAX || limits->heartbeat_us < 1 ||
        limits->election_us < limits->heartbeat_us || limits->election_us > ELECTION_MAX_US)
        return "a limit of consensus is out of range";
    if (boot->id == 0)
        return "a node without a number";
    if (boot->term > RAFT_TERM_MAX || snapshot->term > boot->term)
        return "the snapshot is of a later term than the node has ever heard of";
    if ((snapshot->index == 0) != (snapshot->term == 0) || boot->commit < snapshot->index ||
        snapshot->index > RAFT_INDEX_MAX)
        return "the snapshot is of no entry, or of one that is not committed";
    if (boot->members && (boot->members->index > snapshot->index ||
                          !members_are_sound(boot->members, limits->members)))
        return "the snapshot's members are none, too many, twice there, or of a later entry";
    if (snapshot->index > 0 && !boot->members)
        return "a snapshot without members";
    return NULL;
}

void raft_init(struct raft *ret, const struct raft_limits *limits, const struct raft_boot *boot)
{
    INVARIANT(!raft_boot_check(limits, boot));
    memset(ret, 0, size_of(limits));
    ret->limits = *limits;
    ret->id = boot->id;
    ret->incarnation = boot->incarnation;
    ret->term = boot->term;
    ret->vote = boot->vote;
    ret->seed = boot->seed;
    ret->base = boot->snapshot;
    ret->last = ret->verified = ret->written = ret->durable = boot->snapshot.index;
    ret->commit = boot->commit;
    ret->now_us = boot->now_us;
    ret->writing = boot->writing;
    if (boot->members)
        config_set(ret, LATEST, boot->members);
    election_postpone(ret);
}

bool can_follow(const struct raft *raft, const struct raft_entry *entry)
{
    return entry->type >= RAFT_COMMAND && entry->type <= RAFT_VERSION && entry->term > 0 &&
           entry->term >= window_term(raft, raft->last) && entry->term <= raft->term &&
           (SWITCHED(SWITCH_CHAIN_UNCHECKED) ||
            entry->chain == raft_chain(window_id(raft, raft->last).chain, entry->term, entry->type,
                                       entry->size, entry->sum));
}

/* While entries come in, commit may be ahead of last: it is known of an entry that comes later. */
bool raft_recover(struct raft *raft, const struct raft_entry *entry)
{
    uint64_t commit = raft->commit;
    struct raft_members members;

    if (!can_follow(raft, entry))
        return false;
    if (entry->type == RAFT_CONFIG && (!raft_members_read(entry->bytes, entry->size, &members) ||
                                       members.count > raft->limits.members))
        return false;
    if (raft->commit > raft->last)
        raft->commit = raft->last;
    if (window_full(raft))
        return false;
    window_append(raft, entry->term, entry->type, entry->size, entry->chain);
    raft->commit = commit;
    raft->written = raft->last;
    if (!raft->writing)
        raft->durable = raft->last;
    raft->verified = commit < raft->last ? commit : raft->last;
    if (entry->type == RAFT_CONFIG)
        config_push(raft, &members);
    return true;
}

/* ---- shared ---------------------------------------------------------------------------------- */

uint64_t draw(struct raft *raft, uint64_t below)
{
    raft->seed ^= raft->seed << 13;
    raft->seed ^= raft->seed >> 7;
    raft->seed ^= raft->seed << 17;
    if (raft->seed == 0)
        raft->seed = 0x9e3779b97f4a7c15u + raft->id;
    return below ? raft->seed % below : 0;
}

void raft_fatal(struct raft *raft, struct raft_output *output, const char *words)
{
    raft->stopped = true;
    output->fatal = words;
}

struct raft_message *output_message(struct raft *raft, struct raft_output *output, uint8_t type,
                                    uint64_t to)
{
    struct raft_message *message = &output->messages[output->message_count++];

    INVARIANT(output->message_count <= RAFT_MESSAGES_MAX);
    *message = (struct raft_message){.type = type,
                                     .from = raft->id,
                                     .to = to,
                                     .incarnation = raft->incarnation,
                                     .term = raft->term};
    return message;
}

void become_follower(struct raft *raft, uint64_t term, uint64_t leader, struct raft_output *output)
{
    bool was = raft->role == RAFT_FOLLOWER;

    INVARIANT(term >= raft->term);
    if (term > raft->term) {
        raft->term = term;
        raft->vote = 0;
        raft->verified = raft->commit;
        raft->ack_due = false;
        output->persist = output->persist || !SWITCHED(SWITCH_TERM_NOT_DURABLE);
    }
    output->changed = output->changed || !was || raft->leader != leader;
    if (raft->role == RAFT_LEADER)
        transfer_end(raft);
    raft->role = RAFT_FOLLOWER;
    raft->leader = leader;
    raft->transferring = false;
    raft->progress_count = 0;
    if (!was)
        election_postpone(raft);
}

void commit_to(struct raft *raft, uint64_t index, struct raft_output *output)
{
    if (index <= raft->commit)
        return;
    INVARIANT(index <= raft->last);
    raft->commit = index;
    if (raft->verified < index)
        raft->verified = index;
    output->committed = true;
    members_committed(raft, output);
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool is_reply(uint8_t type)
{
    return type == RAFT_APPEND_REPLY || type == RAFT_VOTE_REPLY || type == RAFT_PRE_VOTE_REPLY;
}

/* Could anybody have sent this? */
static bool is_sound(const struct raft_message *message)
{
    const struct raft_id *id = &message->id;

    if (message->type < RAFT_APPEND || message->type > RAFT_SNAPSHOT ||
        message->term > RAFT_TERM_MAX)
        return false;
    if (is_reply(message->type))
        return true;
    if (id->index > RAFT_INDEX_MAX) /* what follows it would begin again at 0 */
        return false;
    if (message->type == RAFT_SNAPSHOT)
        return true;
    if ((id->index == 0) != (id->term == 0) || (id->index == 0 && id->chain != 0))
        return false;
    if (message->type == RAFT_VOTE || message->type == RAFT_PRE_VOTE)
        return id->term < message->term; /* which the candidate has just begun */
    return message->term > 0 && id->term <= message->term &&
           (message->count == 0 || (message->type == RAFT_APPEND && message->entries));
}

/* A leader of an earlier term learns from the answer that it is none. */
static void answer_stale(struct raft *raft, const struct raft_message *message,
                         struct raft_output *output)
{
    struct raft_message *answer;

    if (message->type == RAFT_SNAPSHOT)
        output->result = RAFT_NOT_LEADER;
    else if (message->type != RAFT_APPEND)
        return;
    answer = output_message(raft, output, RAFT_APPEND_REPLY, message->from);
    answer->index = message->id.index;
    answer->round = message->round;
}

static void on_message(struct raft *raft, const struct raft_message *message,
                       struct raft_output *output)
{
    if (message->to != raft->id || message->from == raft->id || message->from == 0 ||
        !is_sound(message)) {
        output->result = RAFT_NOT_LEADER;
        return;
    }
    if (message->type == RAFT_VOTE || message->type == RAFT_PRE_VOTE) {
        election_on_vote(raft, message, output);
        return;
    }
    /* R15: who grants a pre-vote has not taken up any term for it, and may be behind in that. */
    if (message->term < raft->term && message->type != RAFT_PRE_VOTE_REPLY) {
        answer_stale(raft, message, output);
        return;
    }
    if (message->type == RAFT_APPEND && append_is_lost(raft, message)) {
        raft_fatal(raft, output,
                   "this node's data directory is an older copy of itself: it lacks what this node "
                   "has acknowledged to the leader: replace this node (remove it, then add it with "
                   "an empty directory)");
        return;
    }
    /* R15, R16: the sender's term, whatever it says about the asked one. Who is not counted does not depose anybody. */
    if (message->term > raft->term) {
        int place = member_find(raft, LATEST, message->from);

        if (is_reply(message->type) &&
            (place < 0 || members_of(raft, LATEST)[place].incarnation != message->incarnation))
            return;
        become_follower(raft, message->term, 0, output);
    }
    switch (message->type) {
    case RAFT_APPEND:
        append_on_entries(raft, message, output);
        break;
    case RAFT_SNAPSHOT:
        append_hear(raft, message, output);
        break;
    case RAFT_APPEND_REPLY:
        if (raft->role == RAFT_LEADER)
            replicate_on_reply(raft, message, output);
        break;
    case RAFT_VOTE_REPLY:
    case RAFT_PRE_VOTE_REPLY:
        election_on_reply(raft, message, output);
        break;
    case RAFT_TIMEOUT_NOW:
        transfer_on_timeout_now(raft, message, output);
        break;
    default:
        break;
    }
}

static void on_time(struct raft *raft, struct raft_output *output)
{
    if (raft->role == RAFT_LEADER) {
        if (raft->transferee && raft->now_us >= raft->transfer_until_us)
            transfer_end(raft);
        /* R17 */
        if (!majority_answers(raft) && !SWITCHED(SWITCH_LEADS_ALONE))
            become_follower(raft, raft->term, 0, output);
        else
            replicate_send(raft, output);
    } else if (raft->now_us >= raft->election_us || election_is_settled(raft)) {
        election_begin(raft, false, output);
    }
}

static void on_propose(struct raft *raft, const struct raft_event *event,
                       struct raft_output *output)
{
    uint64_t before = window_id(raft, raft->last).chain;
    uint8_t type = event->entry_type == RAFT_VERSION ? RAFT_VERSION : RAFT_COMMAND;

    if (raft->role != RAFT_LEADER)
        output->result = RAFT_NOT_LEADER;
    else if (raft->transferee || window_tight(raft))
        output->result = RAFT_BUSY;
    if (output->result != RAFT_OK)
        return;
    window_append(raft, raft->term, type, event->size,
                  raft_chain(before, raft->term, type, event->size, event->sum));
    output->index = raft->last;
}

static void on_persisted(struct raft *raft, const struct raft_event *event,
                         struct raft_output *output)
{
    /* What the disk says of entries that were cut off since says nothing of those in their place. */
    if (event->epoch != raft->epoch || event->index <= raft->durable)
        return;
    INVARIANT(event->index <= raft->written);
    raft->durable = event->index;
    if (raft->role == RAFT_LEADER)
        replicate_commit(raft, output);
    else
        raft->ack_due = raft->leader != 0;
}

static void on_flush(struct raft *raft, struct raft_output *output)
{
    if (raft->last > raft->written) {
        output->append = true;
        output->append_first = raft->written + 1;
        output->append_last = raft->last;
        output->append_epoch = raft->epoch;
        raft->written = raft->last;
    }
    if (raft->role == RAFT_LEADER)
        replicate_send(raft, output);
    else
        append_acknowledge(raft, output);
}

static void on_peer_down(struct raft *raft, uint64_t id)
{
    struct progress *progress = raft->role == RAFT_LEADER ? progress_find(raft, id) : NULL;

    if (progress)
        progress->answered = false;
    if (progress && progress->state != PROGRESS_SNAPSHOT)
        replicate_probe(raft, progress);
    /* R16: nobody waits a whole timeout for a leader whose process is gone. */
    if (raft->role == RAFT_FOLLOWER && raft->leader == id && id != 0) {
        int64_t soon_us = raft->limits.election_us / 10;

        raft->heard_us = 0;
        raft->election_us = raft->now_us + soon_us + (int64_t)draw(raft, (uint64_t)(2 * soon_us));
    }
}

static void on_gone(struct raft *raft, uint64_t id, struct raft_output *output)
{
    struct progress *progress = raft->role == RAFT_LEADER ? progress_find(raft, id) : NULL;

    if (progress && progress->state != PROGRESS_SNAPSHOT)
        replicate_snapshot(raft, progress, output);
}

static void on_snapshot_sent(struct raft *raft, uint64_t id)
{
    struct progress *progress = raft->role == RAFT_LEADER ? progress_find(raft, id) : NULL;

    if (progress && progress->state == PROGRESS_SNAPSHOT)
        replicate_probe(raft, progress);
}

void raft_step(struct raft *raft, const struct raft_event *event, struct raft_output *output)
{
    output->persist = output->append = output->committed = output->changed = false;
    output->message_count = 0;
    output->caught_up = output->index = output->taken = 0;
    output->made.type = 0;
    output->fatal = NULL;
    output->result = RAFT_OK;
    if (event->now_us > raft->now_us)
        raft->now_us = event->now_us;
    INVARIANT(event->type >= RAFT_ON_MESSAGE && event->type <= RAFT_ON_INSTALLED);
    if (raft->stopped)
        return;
    switch (event->type) {
    case RAFT_ON_MESSAGE:
        on_message(raft, &event->message, output);
        break;
    case RAFT_ON_TIME:
        on_time(raft, output);
        break;
    case RAFT_ON_PROPOSE:
        on_propose(raft, event, output);
        break;
    case RAFT_ON_PERSISTED:
        on_persisted(raft, event, output);
        break;
    case RAFT_ON_FLUSH:
        on_flush(raft, output);
        break;
    case RAFT_ON_CHANGE:
        members_change(raft, event, output);
        break;
    case RAFT_ON_TRANSFER:
        transfer_begin(raft, event->member.id, output);
        break;
    case RAFT_ON_PEER_DOWN:
        on_peer_down(raft, event->member.id);
        break;
    case RAFT_ON_GONE:
        on_gone(raft, event->member.id, output);
        break;
    case RAFT_ON_SNAPSHOT_SENT:
        on_snapshot_sent(raft, event->member.id);
        break;
    case RAFT_ON_INSTALLED:
        snapshot_installed(raft, event, output);
        break;
    default:
        break;
    }
    output->term = raft->term;
    output->vote = raft->vote;
    output->commit = raft->commit;
}

/* ---- questions ------------------------------------------------------------------------------- */

int64_t raft_next_us(const struct raft *raft)
{
    if (raft->stopped)
        return NEVER_US;
    if (raft->role == RAFT_LEADER)
        return replicate_next_us(raft);
    return election_is_settled(raft) ? raft->now_us : raft->election_us;
}

enum raft_role raft_role(const struct raft *raft)
{
    return raft->role;
}

uint64_t raft_term(const struct raft *raft)
{
    return raft->term;
}

uint64_t raft_leader(const struct raft *raft)
{
    return raft->leader;
}

uint64_t raft_commit(const struct raft *raft)
{
    return raft->commit;
}

uint64_t raft_last(const struct raft *raft)
{
    return raft->last;
}

bool raft_id_of(const struct raft *raft, uint64_t index, struct raft_id *ret_id)
{
    if (!window_has(raft, index))
        return false;
    *ret_id = window_id(raft, index);
    return true;
}

bool raft_may_propose(const struct raft *raft)
{
    return raft->role == RAFT_LEADER && !raft->stopped && !raft->transferee && !window_tight(raft);
}

uint64_t raft_transferee(const struct raft *raft)
{
    return raft->transferee;
}

bool raft_progress(const struct raft *raft, uint64_t id, struct raft_progress *ret_progress)
{
    const struct progress *progress = raft->role == RAFT_LEADER ? progress_find(raft, id) : NULL;

    if (!progress)
        return false;
    *ret_progress = (struct raft_progress){.match = progress->match,
                                           .answered = progress->answered,
                                           .acked_us = progress->acked_us,
                                           .probing = progress->probing,
                                           .snapshotting = progress->state == PROGRESS_SNAPSHOT};
    return true;
}
