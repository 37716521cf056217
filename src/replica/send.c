/* send.c: messages to other nodes. raft says "entries a to b for this one": here they are taken from memory, or read from disk
 * first, and some of them go out a little later than others (schedule_defers). */
#include "base/crc32c.h"
#include "replica/inside.h"

void send_own(struct replica *replica, const struct message *message)
{
    uint8_t head[MESSAGE_HEAD_MAX];
    struct iovec pieces[MESSAGE_PIECES_MAX];
    unsigned count = message_encode(message, replica->versions.now, head, pieces);
    uint64_t to = message->raft.to;

    if (!is_stopped(replica)) /* [P5] */
        replica->io.send(replica->io.context, to, members_address(replica, to), pieces, count);
}

static void send_raft(struct replica *replica, const struct raft_message *raft)
{
    struct message message = {.raft = *raft};

    send_own(replica, &message);
}

/* ---- entries ---------------------------------------------------------------------------------- */

/* What is before message->first is in message->id. As many as make one message; returns the last. */
static uint64_t send_from_memory(struct replica *replica, struct raft_message *message)
{
    struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    uint64_t index = message->first;
    size_t bytes = 0;

    for (message->count = 0; index <= message->last && message->count < MESSAGE_ENTRIES_MAX;
         index++) {
        const struct log_entry *entry = log_at(&replica->log, index);

        if (message->count > 0 && bytes + entry->size > MESSAGE_BYTES_MAX)
            break;
        bytes += entry->size;
        entries[message->count++] = (struct raft_entry){.term = entry->term,
                                                        .chain = entry->chain,
                                                        .size = entry->size,
                                                        .sum = entry->sum,
                                                        .type = entry->type,
                                                        .bytes = entry->bytes};
    }
    message->entries = entries;
    send_raft(replica, message);
    message->entries = NULL;
    return index - 1;
}

/* One read at a time: what follows the one under way is read after it. */
static void read_from_disk(struct replica *replica, struct peer *peer,
                           const struct raft_message *message)
{
    struct reading *reading = &peer->reading;
    struct raft_progress progress = {0};

    if (reading->active) {
        if (reading->term == message->term && message->first == reading->last + 1)
            reading->last = message->last;
        return;
    }
    raft_progress(replica->raft, peer->id, &progress);
    *reading = (struct reading){.active = true,
                                .term = message->term,
                                .one = progress.probing,
                                .first = message->first,
                                .last = message->last,
                                .commit = message->commit,
                                .round = message->round,
                                .acked = message->acked,
                                .acked_by = message->acked_by};
    replica->io.read_log(replica->io.context, peer->id, reading->first, reading->last,
                         REPLICA_PIECE_BYTES);
}

static void send_entries(struct replica *replica, struct peer *peer,
                         const struct raft_message *message)
{
    struct raft_message part = *message;

    while (part.first <= message->last) {
        part.last = message->last;
        if (part.first < log_first(&replica->log)) {
            read_from_disk(replica, peer, &part);
            return;
        }
        log_id(&replica->log, part.first - 1, &part.id);
        part.first = send_from_memory(replica, &part) + 1;
    }
}

/* ---- later ------------------------------------------------------------------------------------ */

static void flush_held(struct replica *replica, struct peer *peer)
{
    if (!peer->held.active)
        return;
    peer->held.active = false;
    if (leads(replica) && raft_term(replica->raft) == peer->held.message.term)
        send_entries(replica, peer, &peer->held.message);
}

static void hold(struct replica *replica, struct peer *peer, const struct raft_message *message)
{
    struct held *held = &peer->held;

    if (held->active &&
        (held->message.term != message->term || held->message.last + 1 != message->first))
        flush_held(replica, peer);
    if (!held->active) {
        *held = (struct held){.active = true, .message = *message, .since_us = replica->now_us};
    } else {
        held->message.last = message->last;
        held->message.commit = message->commit;
        held->message.round = message->round;
    }
    if (++held->messages >= tuning.deferred_entries)
        flush_held(replica, peer);
}

void send_held(struct replica *replica, bool all)
{
    for (unsigned i = 0; i < replica->peer_count; i++) {
        struct peer *peer = &replica->peers[i];

        if (peer->id && peer->held.active &&
            (all || replica->now_us - peer->held.since_us >= tuning.deferred_us))
            flush_held(replica, peer);
    }
}

int64_t send_next_us(const struct replica *replica)
{
    int64_t next_us = NEVER_US, overdue_us = schedule_overdue_us(replica);

    for (unsigned i = 0; i < replica->peer_count; i++) {
        const struct peer *peer = &replica->peers[i];

        if (peer->id && peer->held.active && peer->held.since_us + tuning.deferred_us < next_us)
            next_us = peer->held.since_us + tuning.deferred_us;
    }
    return next_us != NEVER_US && overdue_us < next_us ? overdue_us : next_us;
}

static void send_append(struct replica *replica, const struct raft_message *message)
{
    struct peer *peer = peer_of(replica, message->to, true);
    struct raft_progress progress = {0};

    if (!peer)
        return;
    if (message->first > message->last) { /* it speaks of what was sent before: that goes first */
        flush_held(replica, peer);
        send_raft(replica, message);
        return;
    }
    raft_progress(replica->raft, message->to, &progress);
    if (!progress.probing && schedule_defers(replica, message->to)) {
        hold(replica, peer, message);
        return;
    }
    flush_held(replica, peer);
    send_entries(replica, peer, message);
}

void send_message(struct replica *replica, const struct raft_message *message)
{
    if (message->type == RAFT_SNAPSHOT)
        install_send(replica, message->to);
    else if (message->type == RAFT_APPEND)
        send_append(replica, message);
    else
        send_raft(replica, message);
    if (message->type == RAFT_APPEND_REPLY && message->yes)
        version_say(replica, message->to);
}

/* ---- from disk -------------------------------------------------------------------------------- */

/* What precedes the first entry. False: nobody here knows. */
static bool id_before(const struct replica *replica, uint64_t first,
                      const struct journal_record *records, struct raft_id *ret_id)
{
    if (log_id(&replica->log, first - 1, ret_id))
        return true;
    *ret_id = (struct raft_id){0};
    if (first == 1)
        return true;
    if (replica->snapshots.stored.index == first - 1) {
        *ret_id = replica->snapshots.stored;
        return true;
    }
    if (records[0].index != first - 1)
        return false;
    *ret_id = (struct raft_id){first - 1, records[0].term, records[0].chain};
    return true;
}

/* Those from `first` on, in their order. */
static uint32_t to_entries(const struct journal_record *records, size_t count, uint64_t first,
                           uint64_t last, struct raft_entry *ret_entries)
{
    uint32_t taken = 0;

    for (size_t i = 0; i < count && taken < MESSAGE_ENTRIES_MAX; i++) {
        if (records[i].index != first + taken || records[i].index > last)
            continue;
        ret_entries[taken++] =
            (struct raft_entry){.term = records[i].term,
                                .chain = records[i].chain,
                                .size = (uint32_t)records[i].size,
                                .sum = crc32c(0, records[i].bytes, records[i].size),
                                .type = records[i].type,
                                .bytes = records[i].bytes};
    }
    return taken;
}

void replica_log_read(struct replica *replica, uint64_t to, const struct journal_record *records,
                      size_t count, int64_t now_us)
{
    struct peer *peer = peer_of(replica, to, false);
    struct reading *reading = peer ? &peer->reading : NULL;
    struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    struct raft_progress progress;
    struct raft_message message = {
        .type = RAFT_APPEND, .from = replica->options.id, .to = to, .entries = entries};

    if (now_us > replica->now_us)
        replica->now_us = now_us;
    if (!reading || !reading->active)
        return;
    reading->active = false;
    if (!leads(replica) || raft_term(replica->raft) != reading->term)
        return;
    if (count > 0)
        message.count = to_entries(records, count, reading->first, reading->last, entries);
    if (message.count == 0 || !id_before(replica, reading->first, records, &message.id)) {
        /* Meanwhile it may have said that it has more. */
        peer->gone =
            !raft_progress(replica->raft, to, &progress) || progress.match < reading->first;
        return;
    }
    message.term = reading->term;
    message.commit = reading->commit;
    message.round = reading->round;
    message.acked = reading->acked;
    message.acked_by = reading->acked_by;
    send_raft(replica, &message);
    reading->first += message.count;
    if (!reading->one && reading->first <= reading->last) {
        message.first = reading->first;
        message.last = reading->last;
        send_entries(replica, peer, &message);
    }
}
