/* message.h: libraft's messages as bytes, between nodes that may be of different versions of Holdfast.
 *
 *     version (1 byte), type (1), flags (1), libraft's version of it (1), count of entries (4); then numbers of 8 bytes,
 *     as many as the type has; then what belongs to it: the entries' terms, sizes and types, and their
 *     bytes; or a configuration and a snapshot. All numbers have their lowest byte first. */
#ifndef REPLICA_MESSAGE_H
#define REPLICA_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

struct raft_message;

struct encoded { /* a message on its way out */
    struct iovec *pieces;
    unsigned count;
    unsigned char *header;        /* what is ours of it; the rest is libraft's */
    unsigned char *configuration; /* or NULL */
};

/* What it points to stays libraft's, and must stay. */
void message_encode(const struct raft_message *message, struct encoded *ret_encoded);
void encoded_free(struct encoded *encoded);

/* bytes: from malloc. True: they belong to the message from now on, or are gone. False: they are no message,
 * and still the caller's. Sender and address are not in it. */
bool message_decode(void *bytes, size_t size, struct raft_message *ret_message);

/* libraft believes what a configuration says about itself. This looks first. */
bool message_is_configuration(const void *bytes, size_t size);

#endif
