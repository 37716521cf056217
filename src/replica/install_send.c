/* install_send.c: a snapshot goes to a follower in pieces.
 *
 * Two are in flight; the receiver's acknowledgement names the snapshot and how much of it is there, so a stream goes on wherever the
 * receiver is, after a lost piece, a restart of the sender, or a connection that broke. Whoever says nothing for snapshot_silence_us gets
 * nothing more, and raft probes it again. */
#include "replica/inside.h"

static void begin_sending(struct replica *replica, struct sending *sending)
{
    sending->id = replica->snapshots.stored;
    sending->sent = sending->acked = sending->total = 0;
    sending->answered = false;
    sending->heard_us = sending->sent_us = replica->now_us;
    if (sending->id.index == 0)
        replica->snapshots.wanted = true;
}

void install_send(struct replica *replica, uint64_t to)
{
    struct peer *peer = peer_of(replica, to, true);

    if (!peer || peer->sending.active)
        return;
    peer->sending.active = true;
    begin_sending(replica, &peer->sending);
}

static void end_sending(struct peer *peer)
{
    peer->sending.active = false;
    peer->snapshot_over = true;
}

/* Until somebody answers it is not known that anybody is there. */
static uint64_t in_flight_max(const struct sending *sending)
{
    return sending->answered ? (uint64_t)tuning.snapshot_pieces * REPLICA_PIECE_BYTES : 1;
}

static int64_t again_us(const struct sending *sending)
{
    return sending->sent_us +
           (sending->answered ? tuning.snapshot_again_us : tuning.snapshot_silence_us / 2);
}

/* The next piece that may be in flight is read. */
static void read_next(struct replica *replica, struct peer *peer)
{
    struct sending *sending = &peer->sending;

    if (sending->reads || sending->id.index == 0 ||
        (sending->total > 0 && sending->sent >= sending->total) ||
        sending->sent - sending->acked >= in_flight_max(sending))
        return;
    sending->reads = true;
    sending->reading_at = sending->sent;
    sending->reading_index = sending->id.index;
    replica->io.read_snapshot(replica->io.context, peer->id, sending->id.index, sending->sent,
                              REPLICA_PIECE_BYTES);
}

void replica_snapshot_read(struct replica *replica, uint64_t to, uint64_t index, uint64_t offset,
                           const void *bytes, size_t size, uint64_t total, int64_t now_us)
{
    struct peer *peer = peer_of(replica, to, false);
    struct sending *sending = peer ? &peer->sending : NULL;
    struct message message = {.raft = {.type = RAFT_SNAPSHOT, .to = to},
                              .total = total,
                              .offset = offset,
                              .bytes = bytes,
                              .size = size};

    if (now_us > replica->now_us)
        replica->now_us = now_us;
    if (!sending || !sending->reads || sending->reading_index != index ||
        sending->reading_at != offset)
        return;
    sending->reads = false;
    if (!sending->active || sending->id.index != index || !leads(replica))
        return;
    if (!bytes ||
        size == 0) { /* there is a newer one by now, or there is none that could be read */
        if (replica->snapshots.stored.index == index)
            end_sending(peer);
        else
            begin_sending(replica, sending);
        return;
    }
    sending->total = total;
    if (offset == sending->sent) { /* else the receiver has said meanwhile where to go on */
        message.raft.term = raft_term(replica->raft);
        message.raft.id = sending->id;
        send_own(replica, &message);
        sending->sent = offset + size;
        sending->sent_us = replica->now_us;
    }
    read_next(replica, peer);
}

void install_on_ack(struct replica *replica, const struct message *message)
{
    struct peer *peer = peer_of(replica, message->raft.from, false);
    struct sending *sending = peer ? &peer->sending : NULL;

    if (!sending || !sending->active || message->raft.id.index != sending->id.index ||
        message->raft.id.chain != sending->id.chain || message->offset > sending->total)
        return;
    sending->heard_us = replica->now_us;
    sending->answered = true;
    if (message->again) {
        sending->sent = sending->acked = message->offset;
    } else if (message->offset > sending->acked) {
        sending->acked = message->offset;
        if (sending->sent < sending->acked)
            sending->sent = sending->acked;
    }
    read_next(replica, peer);
}

/* All that may be in flight is, and no answer comes: it was lost. Of a snapshot that has arrived the last piece is repeated, until raft
 * hears that it is in use. */
static void repeat(struct sending *sending)
{
    sending->sent = sending->acked;
    if (sending->total > 0 && sending->sent == sending->total)
        sending->sent = (sending->total - 1) / REPLICA_PIECE_BYTES * REPLICA_PIECE_BYTES;
    if (sending->acked > sending->sent)
        sending->acked = sending->sent;
}

static void watch_sending(struct replica *replica, struct peer *peer)
{
    struct sending *sending = &peer->sending;
    struct raft_progress progress;

    if (!raft_progress(replica->raft, peer->id, &progress) || !progress.snapshotting) {
        sending->active = false;
        return;
    }
    /* It has that already: raft, which has heard so before it was told that entries are gone, will not hear it again. */
    if (sending->id.index > 0 && progress.match >= sending->id.index) {
        end_sending(peer);
        return;
    }
    if (sending->id.index == 0) {
        if (replica->snapshots.stored.index > 0)
            begin_sending(replica, sending);
    } else if (replica->now_us - sending->heard_us >= tuning.snapshot_silence_us) {
        end_sending(peer);
        return;
    } else if (!sending->reads && replica->now_us >= again_us(sending)) {
        sending->sent_us = replica->now_us;
        repeat(sending);
    }
    read_next(replica, peer);
}

void install_send_pump(struct replica *replica)
{
    for (unsigned i = 0; i < replica->peer_count; i++)
        if (replica->peers[i].id && replica->peers[i].sending.active)
            watch_sending(replica, &replica->peers[i]);
}

int64_t install_next_us(const struct replica *replica)
{
    int64_t next_us = NEVER_US;

    for (unsigned i = 0; i < replica->peer_count; i++) {
        const struct sending *sending = &replica->peers[i].sending;

        if (replica->peers[i].id && sending->active && !sending->reads && sending->id.index > 0 &&
            again_us(sending) < next_us)
            next_us = again_us(sending);
    }
    return next_us;
}
