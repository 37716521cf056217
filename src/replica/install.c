/* install.c: a snapshot goes to a follower in pieces, and comes from a leader.
 *
 * Sending. Two pieces are in flight; the receiver's acknowledgement names the snapshot and how much of it is there, so a stream goes on
 * wherever the receiver is, after a lost piece, a restart of either, or a connection that broke. Whoever says nothing for
 * image_silence_us gets nothing more, and raft probes it again.
 *
 * Receiving.
 *     NOTHING ──a piece──▶ PIECES ──all are there, and make a table──▶ WAITS ──the disk is free──▶ WRITE ──stored──▶ NOTHING
 *
 * raft hears of each piece before anything of it can become durable (raft.h, RAFT_ON_INSTALLED). From WAITS on no entries are taken from
 * anybody: the log is about to be dropped, and they would go with it after they were acknowledged. The old table
 * serves until the new one is durable [P7]. */
#include "replica/inside.h"

#include <inttypes.h>
#include <stdlib.h>

static void send_own(struct replica *replica, const struct message *message)
{
    uint8_t head[MESSAGE_HEAD_MAX];
    struct iovec pieces[MESSAGE_PIECES_MAX];
    unsigned count = message_encode(message, head, pieces);

    send_pieces(replica, message->raft.to, pieces, count);
}

/* ---- sending ---------------------------------------------------------------------------------- */

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
    peer->image_over = true;
}

/* Until somebody answers it is not known that anybody is there. */
static uint64_t in_flight_max(const struct sending *sending)
{
    return sending->answered ? (uint64_t)tuning.image_pieces * REPLICA_PIECE_BYTES : 1;
}

static int64_t again_us(const struct sending *sending)
{
    return sending->sent_us +
           (sending->answered ? tuning.image_again_us : tuning.image_silence_us / 2);
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
    replica->io.read_image(replica->io.context, peer->id, sending->id.index, sending->sent,
                           REPLICA_PIECE_BYTES);
}

void replica_image_read(struct replica *replica, uint64_t to, uint64_t index, uint64_t offset,
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
    if (sending->id.index == 0) {
        if (replica->snapshots.stored.index > 0)
            begin_sending(replica, sending);
    } else if (replica->now_us - sending->heard_us >= tuning.image_silence_us) {
        end_sending(peer);
        return;
    } else if (!sending->reads && replica->now_us >= again_us(sending)) {
        sending->sent_us = replica->now_us;
        repeat(sending);
    }
    read_next(replica, peer);
}

/* ---- receiving -------------------------------------------------------------------------------- */

static void forget(struct replica *replica)
{
    struct receiving_image *receiving = &replica->receiving;

    free(receiving->bytes);
    if (receiving->table)
        core_free(receiving->table);
    *receiving = (struct receiving_image){.state = RECEIVING_NOTHING};
}

static void acknowledge(struct replica *replica, const struct message *piece, uint64_t offset,
                        bool again)
{
    struct message message = {.raft = {.type = MESSAGE_IMAGE_ACK,
                                       .to = piece->raft.from,
                                       .term = raft_term(replica->raft),
                                       .id = piece->raft.id},
                              .offset = offset,
                              .again = again};

    send_own(replica, &message);
}

static bool is_same(const struct raft_id *a, const struct raft_id *b)
{
    return a->index == b->index && a->term == b->term && a->chain == b->chain;
}

static void begin_receiving(struct replica *replica, const struct message *piece)
{
    struct receiving_image *receiving = &replica->receiving;

    if (receiving->state == RECEIVING_PIECES && receiving->from == piece->raft.from &&
        is_same(&receiving->id, &piece->raft.id) && receiving->total == piece->total)
        return;
    forget(replica);
    receiving->state = RECEIVING_PIECES;
    receiving->from = piece->raft.from;
    receiving->id = piece->raft.id;
    receiving->total = piece->total;
}

/* Memory grows with what has come, not with what is said to come. */
static void collect(struct receiving_image *receiving, const struct message *piece)
{
    if (receiving->have + piece->size > receiving->capacity) {
        receiving->capacity = 2 * receiving->capacity > receiving->have + piece->size
                                  ? 2 * receiving->capacity
                                  : receiving->have + piece->size;
        receiving->bytes = replica_realloc(receiving->bytes, receiving->capacity);
    }
    memcpy(receiving->bytes + receiving->have, piece->bytes, piece->size);
    receiving->have += piece->size;
}

/* [P7] */
static bool makes_a_table(struct replica *replica, struct error_text *err)
{
    struct receiving_image *receiving = &replica->receiving;
    struct replica_image *image = &receiving->image;

    if (!replica_image_decode(receiving->bytes, receiving->have, image) ||
        !is_same(&image->id, &receiving->id)) {
        error_set(err, HF_EIO, "it is damaged, or not the one that was announced");
        return false;
    }
    if (replica->has_cluster && memcmp(image->cluster, replica->cluster, REPLICA_CLUSTER) != 0) {
        error_set(err, HF_EIO, "it is of another cluster");
        return false;
    }
    receiving->table = core_new(replica->hash_seed);
    return core_restore(receiving->table, image->table, image->table_size, err) == HF_OK;
}

static void complete(struct replica *replica)
{
    struct error_text err = {""};

    if (makes_a_table(replica, &err)) {
        replica->receiving.state = RECEIVING_WAITS;
        return;
    }
    replica_note(replica, 1, "a snapshot from node %" PRIu64 " cannot be used: %s",
                 replica->receiving.from, err.text);
    forget(replica);
}

/* What is committed here goes further: raft only has to say so. */
static void tell_installed(struct replica *replica, const struct raft_id *id,
                           const struct raft_members *members)
{
    struct raft_event event = {.type = RAFT_ON_INSTALLED, .id = *id, .members = members};

    replica_step(replica, &event);
}

void install_on_piece(struct replica *replica, const struct message *piece)
{
    struct receiving_image *receiving = &replica->receiving;
    struct raft_event event = {.type = RAFT_ON_MESSAGE, .message = piece->raft};

    if (replica_step(replica, &event) != RAFT_OK || is_stopped(replica))
        return;
    if (piece->raft.id.index <= raft_commit(replica->raft)) {
        acknowledge(replica, piece, piece->total, false);
        tell_installed(replica, &piece->raft.id, NULL);
        return;
    }
    if (install_blocks(replica)) {
        if (receiving->from == piece->raft.from && is_same(&receiving->id, &piece->raft.id))
            acknowledge(replica, piece, piece->total, false);
        return;
    }
    if (piece->total > tuning.image_max) {
        replica_note(replica, 1, "a snapshot of %" PRIu64 " bytes is too large", piece->total);
        return;
    }
    begin_receiving(replica, piece);
    if (piece->offset == receiving->have)
        collect(receiving, piece);
    acknowledge(replica, piece, receiving->have, piece->offset > receiving->have);
    if (receiving->have == receiving->total)
        complete(replica);
}

/* Nothing is being written, and nothing will be until it is stored. */
static void store(struct replica *replica)
{
    struct receiving_image *receiving = &replica->receiving;
    struct raft_id own;
    bool same_term =
        log_id(&replica->log, receiving->id.index, &own) && own.term == receiving->id.term;

    if (replica->write_count > 0 || replica->snapshots.state == TAKING_WRITE)
        return;
    if (receiving->id.index <= raft_commit(replica->raft)) {
        forget(replica);
        return;
    }
    if (same_term && own.chain != receiving->id.chain) {
        replica_stop(replica,
                     "a snapshot from node %" PRIu64 " and our log differ in entry %" PRIu64
                     " of the same term: one of the two has a damaged log: replace that node",
                     receiving->from, receiving->id.index);
        return;
    }
    snapshots_give_up(replica);
    receiving->keeps_log = same_term;
    receiving->state = RECEIVING_WRITE;
    replica->io.store_image(replica->io.context, &receiving->image, true, receiving->keeps_log);
}

/* The table, and all that belongs to it. */
static void swap(struct replica *replica)
{
    struct receiving_image *receiving = &replica->receiving;
    struct replica_image *image = &receiving->image;

    core_free(replica->table);
    replica->table = receiving->table;
    receiving->table = NULL;
    replica->applied = image->id;
    memcpy(replica->cluster, image->cluster, REPLICA_CLUSTER);
    replica->has_cluster = true;
    if (receiving->keeps_log) {
        replica->members.applied = image->config;
    } else {
        log_reset(&replica->log, &image->id);
        members_set(replica, &image->config);
    }
    replica->snapshots.last_size = image->table_size;
    replica->snapshots.log_bytes = replica->snapshots.log_entries = 0;
    replica->snapshots.installed++;
}

void install_stored(struct replica *replica)
{
    struct receiving_image *receiving = &replica->receiving;
    struct raft_members members;
    bool is_newer =
        receiving->id.index > raft_commit(replica->raft) && raft_role(replica->raft) != RAFT_LEADER;

    replica->snapshots.stored = receiving->id;
    if (!is_newer && !receiving->keeps_log) {
        replica_stop(replica, "a snapshot took the place of the log of a node that leads");
        return;
    }
    if (is_newer)
        swap(replica);
    members_to_raft(&receiving->image.config, &members);
    tell_installed(replica, &receiving->id, &members);
    forget(replica);
}

/* ---- both ------------------------------------------------------------------------------------- */

void install_pump(struct replica *replica)
{
    struct receiving_image *receiving = &replica->receiving;

    for (unsigned i = 0; i < PEERS_MAX; i++)
        if (replica->peers[i].id && replica->peers[i].sending.active)
            watch_sending(replica, &replica->peers[i]);
    if (receiving->state == RECEIVING_PIECES && receiving->id.index <= raft_commit(replica->raft))
        forget(replica);
    if (receiving->state == RECEIVING_WAITS)
        store(replica);
}

int64_t install_next_us(const struct replica *replica)
{
    int64_t next_us = NEVER_US;

    for (unsigned i = 0; i < PEERS_MAX; i++) {
        const struct sending *sending = &replica->peers[i].sending;

        if (replica->peers[i].id && sending->active && !sending->reads && sending->id.index > 0 &&
            again_us(sending) < next_us)
            next_us = again_us(sending);
    }
    return next_us;
}

void install_free(struct replica *replica)
{
    forget(replica);
}
