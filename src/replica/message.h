/* message.h: what nodes say to each other, as bytes. */
#ifndef REPLICA_MESSAGE_H
#define REPLICA_MESSAGE_H

#include "raft/raft.h"

#include <sys/uio.h>

#define MESSAGE_ENTRIES_MAX 256u      /* of one append */
#define MESSAGE_ENTRY_MAX (16u << 20) /* bytes of one entry */
#define MESSAGE_BYTES_MAX (1u << 20)  /* of the entries of an append, but for one that is larger */
#define MESSAGE_HEAD_MAX (128u + MESSAGE_ENTRIES_MAX * 25u)
#define MESSAGE_PIECES_MAX (1u + MESSAGE_ENTRIES_MAX)

/* Types above raft's; RAFT_SNAPSHOT is a piece of one. */
#define MESSAGE_SNAPSHOT_ACK 9u
#define MESSAGE_DIGEST 11u  /* of a part of the table: divergence.c */
#define MESSAGE_VERSION 10u /* the newest of the formats that the sender reads */

enum digest_says {
    DIGEST_ASKS = 1,
    DIGEST_ANSWERS,
    DIGEST_STOPS, /* another digest than yours: nobody knows who is wrong */
    DIGEST_STOPS_FOR_SURE
};

struct digest {
    uint64_t index, hash; /* 0: none */
};

struct message {
    struct raft_message
        raft; /* its type is the message's, and `id` is of a snapshot's last entry, too */
    /* RAFT_SNAPSHOT: a piece of its bytes; MESSAGE_SNAPSHOT_ACK: raft.id.index, and all up to offset is there. */
    uint64_t total, offset;
    const unsigned char *bytes; /* borrowed */
    size_t size;
    bool again; /* MESSAGE_SNAPSHOT_ACK: what came was not what comes next: begin at the offset */
    uint32_t version;    /* MESSAGE_VERSION */
    uint8_t digest_says; /* of enum digest_says */
    struct digest digest;
};

/* Pieces that point into head and to the entries' bytes. version: of the formats, in effect. Returns their count. */
unsigned message_encode(const struct message *message, uint32_t version,
                        uint8_t head[MESSAGE_HEAD_MAX], struct iovec pieces[MESSAGE_PIECES_MAX]);
/* False: bytes that are no message. Sender and incarnation are not touched. entries: room for MESSAGE_ENTRIES_MAX; they and what the
 * message points to borrow from the bytes. */
bool message_decode(const void *bytes, size_t size, struct raft_entry *entries,
                    struct message *ret_message);

#endif
