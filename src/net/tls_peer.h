/* tls_peer.h: TLS between the nodes of a cluster, as the module holdfast-tls.so provides it. It has neither sockets nor a loop: what has come is
 * fed to it, and what is to be sent is taken from it. Both sides show a certificate (TLS_CLIENTS_ARE_PEERS of net/tls_server.h, which reads
 * the files). One thread. */
#ifndef NET_TLS_PEER_H
#define NET_TLS_PEER_H

#include "net/tls_server.h"

/* Raised whenever this file or tls_server.h changes in a way that the module must be rebuilt for. */
#define TLS_PEER_ABI 2

#define TLS_PEER_BINDING \
    32 /* bytes that both ends of one connection know, and nobody between them */
#define TLS_PEER_RECORD 16384u                     /* bytes of plaintext in one record, at most, */
#define TLS_PEER_RECORD_EXTRA 64u                  /* and what it is longer by when it is sealed */
#define TLS_PEER_RECORDS_A_KEY (UINT64_C(1) << 22) /* that are sent, and then there is a new key */

struct tls_peer;

struct tls_peer_provider {
    uint32_t abi; /* TLS_PEER_ABI; first, so that any two versions can compare it */

    /* Would other nodes, which have the same authorities, take this node's certificate for one of this host, on either side of a connection?
     * HF_EREFUSED: no, in words; HF_ENOMEM. */
    int (*check_own)(const struct tls_context *context, const char *host, struct error_text *err);

    /* host: whom this node connects to, by a name or number that the certificate must be for; NULL: it is the one that is connected to.
     * HF_ENOMEM, HF_EINVAL: no certificate can be for such a host. */
    int (*peer_new)(struct tls_context *context, const char *host, struct tls_peer **ret_peer);
    /* These bytes have come: borrowed, until handshake or read says that it needs more. */
    void (*feed)(struct tls_peer *peer, const void *bytes, size_t size);
    /* HF_OK: it is done; TLS_AGAIN: it needs more. HF_EINVAL: the other side does not speak TLS; HF_EREFUSED: its certificate is no good, or
     * there is none, or it does not take ours; HF_EUNREACH: anything else. In words; there may be something to send each time. */
    int (*handshake)(struct tls_peer *peer, struct error_text *err);
    /* How many bytes there are, after the handshake; 0: it needs more. HF_EUNREACH: it is over, in words ("": the other side has ended it);
     * HF_EREFUSED: so it is, because of this node's certificate. */
    ssize_t (*read)(struct tls_peer *peer, void *bytes, size_t size, struct error_text *err);
    /* All of it is among what is to be sent then. HF_ENOMEM, HF_EUNREACH: it is not, and nothing more can be. */
    int (*write)(struct tls_peer *peer, const void *bytes, size_t size);
    /* What is to be sent: lives until the next call. */
    size_t (*output)(const struct tls_peer *peer, const void **ret_bytes);
    void (*sent)(struct tls_peer *peer); /* all of it */
    /* After the handshake: may the certificate that it has shown be that of this host? */
    bool (*is_for)(const struct tls_peer *peer, const char *host);
    /* Of this connection alone (tls-exporter, RFC 9266). False: there is none. */
    bool (*binding)(const struct tls_peer *peer, unsigned char ret_binding[TLS_PEER_BINDING]);
    void (*peer_free)(struct tls_peer *peer); /* NULL is fine */
};

/* The third symbol of the module: const struct tls_peer_provider *holdfast_tls_peer(void). */
#define TLS_PEER_SYMBOL "holdfast_tls_peer"
typedef const struct tls_peer_provider *tls_peer_module_fn(void);

#endif
