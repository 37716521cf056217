/* greeting.h: how two nodes of a cluster prove to each other that they know its secret. Pure: bytes in,
 * bytes out.
 *
 *     who connects                                  who is connected to
 *          hello: who I am, where, whom I want,   ──▶
 *                 what I say about myself, a nonce
 *          ◀──  reply: a nonce, proof of the secret
 *          proof of the secret                    ──▶
 *
 * Each proof is an HMAC over the hello's digest and the other nonce, and says on which side it was made: it is
 * worth nothing on another connection, another day, or the other way round, and nothing in the hello can be
 * changed under way. The secret itself is never sent. After that the connection is trusted as far as the
 * network under it is; encryption is TLS's business. */
#ifndef PEERS_GREETING_H
#define PEERS_GREETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GREETING_NONCE 32
#define GREETING_DIGEST 32
#define GREETING_TEXT 272 /* bytes of each text, with its NUL; zeros follow it */
#define GREETING_HELLO (8 + 8 + 8 + GREETING_NONCE + 2 * GREETING_TEXT)
#define GREETING_REPLY (GREETING_NONCE + GREETING_DIGEST)
#define GREETING_PROOF GREETING_DIGEST

struct greeting {
    const void *secret; /* borrowed */
    size_t secret_size;
    uint64_t from, to;           /* ids: who connects, to whom */
    char address[GREETING_TEXT]; /* of who connects: where it can be reached, */
    char about[GREETING_TEXT];   /* and what it says about itself */
    unsigned char hello[GREETING_HELLO];
    unsigned char nonce[GREETING_NONCE]; /* of the reply */
};

enum greeting_result {
    GREETING_OK,
    GREETING_STRANGER, /* it speaks something else */
    GREETING_MISTAKEN, /* it wants another node than this */
    GREETING_UNPROVEN  /* it has another secret, or is an impostor */
};

/* Whether a hello may carry it: visible ASCII, no blanks, and short enough. */
bool greeting_text_ok(const char *text);

/* ---- who connects ---- */
/* address and about: see greeting_text_ok. */
void greeting_hello(struct greeting *greeting, const void *secret, size_t secret_size,
                    uint64_t from, const char *address, const char *about, uint64_t to,
                    unsigned char ret_hello[GREETING_HELLO]);
enum greeting_result greeting_prove(struct greeting *greeting,
                                    const unsigned char reply[GREETING_REPLY],
                                    unsigned char ret_proof[GREETING_PROOF]);

/* ---- who is connected to ---- */
/* Whether what has come so far may become a hello: who speaks something else need not be waited for. */
bool greeting_may_be_hello(const unsigned char *bytes, size_t size);
enum greeting_result greeting_reply(struct greeting *greeting, const void *secret,
                                    size_t secret_size, uint64_t own_id,
                                    const unsigned char hello[GREETING_HELLO],
                                    unsigned char ret_reply[GREETING_REPLY]);
enum greeting_result greeting_accept(const struct greeting *greeting,
                                     const unsigned char proof[GREETING_PROOF]);

#endif
