/* handshake.h: how two nodes of a cluster prove to each other that they know its secret, and tell which cluster they belong
 * to. Pure: bytes in, bytes out.
 *
 *     who connects                                  who is connected to
 *          hello: who I am, where, of which cluster,  ──▶
 *                 whom I want, what I say about myself, a nonce
 *          ◀──  reply: a nonce, of which cluster, what I say about myself, proof of the secret
 *          proof of the secret                        ──▶
 *
 * Each proof is an HMAC over the digests of hello and reply, and says on which side it was made: it is
 * worth nothing on another connection, another day, or the other way round, and nothing in either can be
 * changed under way. Inside TLS it is over what both ends of that connection have in common, too: whoever stands between them, with a
 * certificate for each, cannot pass it on. Two nodes of different clusters have nothing to say to each other; one that belongs to none yet waits
 * to be founded or added, and may talk to all. The secret itself is never sent. After that the connection is trusted as far as the
 * network under it is; encryption is TLS's business (seal.h).
 *
 * While the secret is exchanged for another, a node knows two. Who is connected to speaks first, and proves its first secret; who
 * connects takes a proof of either of its own, and proves that one in turn. So two nodes understand each other as long as each
 * knows what is the first secret of the other. */
#ifndef PEERS_HANDSHAKE_H
#define PEERS_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HANDSHAKE_NONCE 32
#define HANDSHAKE_DIGEST 32
#define HANDSHAKE_BINDING 32 /* bytes that the two ends of a connection of TLS have in common */
#define HANDSHAKE_TEXT 272   /* bytes of each text, with its NUL; zeros follow it */
#define HANDSHAKE_CLUSTER 32 /* characters of a cluster's id: lower-case hex; zeros: of none */
#define HANDSHAKE_HELLO (8 + 8 + 8 + HANDSHAKE_NONCE + HANDSHAKE_CLUSTER + 2 * HANDSHAKE_TEXT)
#define HANDSHAKE_WORDS (HANDSHAKE_NONCE + HANDSHAKE_CLUSTER + HANDSHAKE_TEXT) /* of a reply */
#define HANDSHAKE_REPLY (HANDSHAKE_WORDS + HANDSHAKE_DIGEST)
#define HANDSHAKE_PROOF HANDSHAKE_DIGEST

/* What a node says of itself. All borrowed. */
struct handshake_own {
    const void *secret;
    size_t secret_size;
    const void *other; /* secret that is valid, too; NULL: there is none */
    size_t other_size;
    uint64_t id;
    const char *address, *about; /* see handshake_text_ok */
    const char *cluster;         /* "": none; else see handshake_cluster_ok */
};

struct handshake {
    const struct handshake_own *own; /* borrowed */
    bool by_other;                   /* proofs are of the other secret */
    bool is_bound;                   /* proofs are of this connection of TLS: */
    unsigned char binding[HANDSHAKE_BINDING];
    uint64_t from, to; /* ids: who connects, to whom */
    /* Of the other side, as soon as it has said so: */
    char address[HANDSHAKE_TEXT]; /* where it can be reached (of who connects), */
    char about[HANDSHAKE_TEXT];   /* what it says about itself, */
    char cluster[HANDSHAKE_CLUSTER + 1];
    unsigned char hello[HANDSHAKE_HELLO];
    unsigned char words[HANDSHAKE_WORDS]; /* of the reply */
};

enum handshake_result {
    HANDSHAKE_OK,
    HANDSHAKE_STRANGER, /* it speaks something else */
    HANDSHAKE_MISTAKEN, /* it wants another node than this */
    HANDSHAKE_UNPROVEN, /* it has another secret, or is an impostor */
    HANDSHAKE_ELSEWHERE /* it belongs to another cluster */
};

/* Whether a hello may carry it: visible ASCII, no blanks, and short enough. */
bool handshake_text_ok(const char *text);

/* An id as handshakes carry it. */
bool handshake_cluster_ok(const char *text);

/* ---- who connects ---- */
/* binding: HANDSHAKE_BINDING bytes, copied; NULL: the connection is in the clear. */
void handshake_hello(struct handshake *handshake, const struct handshake_own *own, uint64_t to,
                     const unsigned char *binding, unsigned char ret_hello[HANDSHAKE_HELLO]);
/* HANDSHAKE_ELSEWHERE: ret_proof is there, so that the other side can know it for sure, too. */
enum handshake_result handshake_prove(struct handshake *handshake,
                                      const unsigned char reply[HANDSHAKE_REPLY],
                                      unsigned char ret_proof[HANDSHAKE_PROOF]);

/* ---- who is connected to ---- */
/* Whether what has come so far may become a hello: who speaks something else need not be waited for. */
bool handshake_may_be_hello(const unsigned char *bytes, size_t size);
enum handshake_result handshake_reply(struct handshake *handshake, const struct handshake_own *own,
                                      const unsigned char *binding,
                                      const unsigned char hello[HANDSHAKE_HELLO],
                                      unsigned char ret_reply[HANDSHAKE_REPLY]);
enum handshake_result handshake_accept(struct handshake *handshake,
                                       const unsigned char proof[HANDSHAKE_PROOF]);

#endif
