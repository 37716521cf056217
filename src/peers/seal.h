/* seal.h: TLS of a connection between nodes: what net/tls_peer.h does, and a stream of libuv under it. A connection in the clear has none, and
 * nothing here is called for it. */
#ifndef PEERS_SEAL_H
#define PEERS_SEAL_H

#include "net/tls_peer.h"
#include "peers/inside.h"

_Static_assert(HANDSHAKE_BINDING == TLS_PEER_BINDING, "one length");

struct seal {
    const struct tls_peer_provider *tls;
    struct tls_peer *peer;
    uv_stream_t *stream; /* borrowed */
    bool is_open;        /* the handshake is done */
    bool was_answered;   /* the other side has said something */
    unsigned char binding[HANDSHAKE_BINDING];
};

/* host: whom this node connects to; NULL: it is connected to. NULL: there is no memory, or no certificate can be for that. */
struct seal *seal_new(const struct peers *peers, uv_stream_t *stream, const char *host);
void seal_free(struct seal *seal); /* NULL is fine */

/* What has come, until the next of these gives TLS_AGAIN, or 0. */
void seal_feed(struct seal *seal, const void *bytes, size_t size);
/* As `handshake` and `read` of tls_peer.h. What is to be said is sent. */
int seal_shake(struct seal *seal, struct error_text *err);
ssize_t seal_read(struct seal *seal, void *bytes, size_t size, struct error_text *err);
/* A few bytes, sent at once. False: they cannot be. */
bool seal_say(struct seal *seal, const void *bytes, size_t size);

#endif
