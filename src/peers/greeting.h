/* greeting.h: how two nodes of a cluster prove to each other that they know its secret, and tell which cluster they belong
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
 * changed under way. Two nodes of different clusters have nothing to say to each other; one that belongs to none yet waits
 * to be founded or added, and may talk to all. The secret itself is never sent. After that the connection is trusted as far as the
 * network under it is; encryption is TLS's business.
 *
 * While the secret is exchanged for another, a node knows two. Who is connected to speaks first, and proves its first secret; who
 * connects takes a proof of either of its own, and proves that one in turn. So two nodes understand each other as long as each
 * knows what is the first secret of the other. */
#ifndef PEERS_GREETING_H
#define PEERS_GREETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GREETING_NONCE 32
#define GREETING_DIGEST 32
#define GREETING_TEXT 272   /* bytes of each text, with its NUL; zeros follow it */
#define GREETING_CLUSTER 32 /* characters of a cluster's id: lower-case hex; zeros: of none */
#define GREETING_HELLO (8 + 8 + 8 + GREETING_NONCE + GREETING_CLUSTER + 2 * GREETING_TEXT)
#define GREETING_WORDS (GREETING_NONCE + GREETING_CLUSTER + GREETING_TEXT) /* of a reply */
#define GREETING_REPLY (GREETING_WORDS + GREETING_DIGEST)
#define GREETING_PROOF GREETING_DIGEST

/* What a node says of itself. All borrowed. */
struct greeting_own {
    const void *secret;
    size_t secret_size;
    const void *other; /* secret that is valid, too; NULL: there is none */
    size_t other_size;
    uint64_t id;
    const char *address, *about; /* see greeting_text_ok */
    const char *cluster;         /* "": none; else see greeting_cluster_ok */
};

struct greeting {
    const struct greeting_own *own; /* borrowed */
    bool by_other;                  /* proofs are of the other secret */
    uint64_t from, to;              /* ids: who connects, to whom */
    /* Of the other side, as soon as it has said so: */
    char address[GREETING_TEXT]; /* where it can be reached (of who connects), */
    char about[GREETING_TEXT];   /* what it says about itself, */
    char cluster[GREETING_CLUSTER + 1];
    unsigned char hello[GREETING_HELLO];
    unsigned char words[GREETING_WORDS]; /* of the reply */
};

enum greeting_result {
    GREETING_OK,
    GREETING_STRANGER, /* it speaks something else */
    GREETING_MISTAKEN, /* it wants another node than this */
    GREETING_UNPROVEN, /* it has another secret, or is an impostor */
    GREETING_ELSEWHERE /* it belongs to another cluster */
};

/* Whether a hello may carry it: visible ASCII, no blanks, and short enough. */
bool greeting_text_ok(const char *text);

/* An id as greetings carry it. */
bool greeting_cluster_ok(const char *text);

/* ---- who connects ---- */
void greeting_hello(struct greeting *greeting, const struct greeting_own *own, uint64_t to,
                    unsigned char ret_hello[GREETING_HELLO]);
/* GREETING_ELSEWHERE: ret_proof is there, so that the other side can know it for sure, too. */
enum greeting_result greeting_prove(struct greeting *greeting,
                                    const unsigned char reply[GREETING_REPLY],
                                    unsigned char ret_proof[GREETING_PROOF]);

/* ---- who is connected to ---- */
/* Whether what has come so far may become a hello: who speaks something else need not be waited for. */
bool greeting_may_be_hello(const unsigned char *bytes, size_t size);
enum greeting_result greeting_reply(struct greeting *greeting, const struct greeting_own *own,
                                    const unsigned char hello[GREETING_HELLO],
                                    unsigned char ret_reply[GREETING_REPLY]);
enum greeting_result greeting_accept(struct greeting *greeting,
                                     const unsigned char proof[GREETING_PROOF]);

#endif
