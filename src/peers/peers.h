/* peers.h: the connections between the nodes of a cluster, on a libuv loop: whole messages, only to and from
 * nodes that know the cluster's secret (handshake.h). Nothing here knows what is in them.
 *
 * A connection is used in one direction, by who made it. One that fails is made again when the node is dialled
 * next; what was on its way is lost, and whoever sent it must be able to live with that. A node may have several
 * addresses, which are tried beside each other; the connection that works is kept. A node's name is looked up each time, by
 * another thread: the number behind it may change. If nobody answers that, the number of before is taken.
 *
 * With TLS (seal.h) what is said here is inside of it: both sides show a certificate, and the proof of the secret is of that connection.
 *
 * [P1] Not a byte of a message is looked at before the other side has proved that it knows the secret.
 * [P2] What has not proved itself yet may send a handshake, has five seconds for it, and there are at most
 *      PEERS_UNAUTHENTICATED_MAX of that kind: the oldest makes room for the next.
 * [P3] A message arrives whole, unchanged (by its checksum), once, in order, or not at all.
 * [P4] A node of another cluster is not heard, and hears nothing. One that belongs to no cluster yet is: the host decides
 *      what its messages are worth.
 * [P5] Where TLS is a must, nothing is said or taken in the clear, and nobody is heard, or told anything, whose certificate is not of the
 *      nodes' authority and for the host that he is reached at, or says that he is. Strangers' handshakes have PEERS_TLS_ROUND_US of each round of the loop. */
#ifndef PEERS_PEERS_H
#define PEERS_PEERS_H

#include "base/error.h"
#include "base/note.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define PEERS_MESSAGE_MAX UINT32_MAX        /* bytes; a snapshot is one message */
#define PEERS_PIECES_MAX 257u               /* of one message */
#define PEERS_UNSENT_MAX ((size_t)64 << 20) /* to one node; with more, nothing is added */
#define PEERS_UNAUTHENTICATED_MAX 64        /* connections that have not proved themselves */
#define PEERS_HANDSHAKE_MS 5000
#define PEERS_TLS_ROUND_US \
    5000u                     /* of CPU for strangers' TLS, and then all others have their turn */
#define PEERS_NOTES_MAX 10u   /* lines about them that are logged within, */
#define PEERS_NOTES_MS 10000  /* so long: who sends nothing but a packet must not fill a disk */
#define PEERS_ADDRESS_MAX 271 /* bytes of "host:port" */
#define PEERS_ABOUT_MAX 271
#define PEERS_CLUSTER 32 /* characters of a cluster's id: lower-case hex */

struct peers;
struct tls_context;
struct tls_peer_provider;
struct uv_loop_s;

enum peers_tls_mode {
    PEERS_IN_CLEAR,
    PEERS_TLS_MAY, /* for a change-over: TLS is tried first, and whoever does not speak it is spoken to in the clear */
    PEERS_TLS_MUST
};

struct peers_tls {
    enum peers_tls_mode mode;
    const struct tls_peer_provider *provider; /* net/tls_peer.h; NULL: in the clear */
    struct tls_context *context;              /* borrowed, until another one is set */
};

struct peers_node { /* what another node has said of itself, and proved to be a node's words */
    uint64_t id;
    const char *about;   /* visible ASCII, perhaps empty */
    const char *cluster; /* its id; "": it belongs to none yet */
    const char *peer;    /* where it came from, by the kernel, or was reached */
    const char *
        address; /* where it can be reached, as it says itself; "": it was reached, and does not say */
};

struct peers_message {
    uint64_t from;
    const char *address; /* where its sender can be reached, as it says itself, */
    const char *about;   /* and what else it says, as in peers_node */
    const char *cluster; /* the sender's; "": it belonged to none when it connected */
    void *bytes;         /* from malloc, and the host's from now on */
    size_t size;
};

struct peers_host {
    void *context;
    /* A message has come. */
    void (*received)(void *context, const struct peers_message *message);
    /* An operator should know. Its texts live during the call. */
    void (*note)(void *context, const struct note *note);
    /* A node has connected and proved itself: once for each connection, before any message that comes by it.
     * False: it is not wanted, and the connection is closed. May be NULL. */
    bool (*met)(void *context, const struct peers_node *node);
    /* The same of a node that this one has connected to, before anything is sent to it. */
    bool (*reached)(void *context, const struct peers_node *node);
    /* Whether this is what the node says of itself that is meant by the id. If not, it is somebody else: the connection may serve for some words,
     * and the node is looked for at its other addresses. May be NULL: it is. */
    bool (*meant)(void *context, uint64_t id, const char *about);
    /* There is a connection to a node now: what is sent here goes before all else. May be NULL. */
    void (*opened)(void *context, uint64_t id);
    /* `met` was false: a byte that says why, for the other side's `turned_away`; 0: it is told nothing. May be NULL. */
    char (*why_not)(void *context, uint64_t id);
    /* Another node has not let this one in. May be NULL. */
    void (*turned_away)(void *context, uint64_t by, char why);
    /* A connection with a node, in either direction, has ended: what was on its way is lost. Not of one that this node has made anew.
     * Perhaps from within any function here; it may only take note. May be NULL. */
    void (*ended)(void *context, uint64_t id);
};

struct peers_options {
    uint64_t id;         /* of this node */
    const char *address; /* where others can reach it: "host:port"; copied */
    /* "host:port"; its port may be 0: the kernel chooses. With a name for a host it listens at all addresses
     * of this machine, with "localhost" at 127.0.0.1. */
    const char *listen;
    const void *secret; /* copied, as is the next */
    size_t secret_size;
    const void *other; /* secret that is valid, too (handshake.h); NULL: none */
    size_t other_size;
    /* What others are told about this node: visible ASCII, at most PEERS_ABOUT_MAX bytes; NULL is "". Copied. */
    const char *about;
    const char *cluster; /* this node's; NULL or "": it belongs to none yet. Copied. */
    struct peers_tls tls;
};

/* "name:port", "1.2.3.4:port" or "[v6]:port", the port from 1 on. It says nothing about whether anybody is
 * there, or knows that name. */
bool peers_address_ok(const char *address);
/* Only this machine can reach it: a number of 127.0.0.0/8, ::1, or "localhost". */
bool peers_address_is_loopback(const char *address);

/* HF_EINVAL: such an address (or about, or secret) cannot be. HF_EIO: it cannot be listened at. */
int peers_open(struct uv_loop_s *loop, const struct peers_options *options,
               const struct peers_host *host, struct peers **ret_peers, struct error_text *err);
/* The port that it listens at. */
uint16_t peers_port(const struct peers *peers);
/* Nothing more is sent from now on. */
void peers_hang_up(struct peers *peers);
/* Calls done when nothing of it is left; the loop runs on until then. */
void peers_close(struct peers *peers, void (*done)(void *context), void *context);

/* This node belongs to this cluster from now on. Connections to others are made anew, so that they hear of it; those from nodes of
 * another cluster are closed. */
void peers_set_cluster(struct peers *peers, const char *cluster);

/* These are the secrets from now on, in peers_options' order. Connections that are open stay. HF_EINVAL: one is too long. */
int peers_set_secrets(struct peers *peers, const void *secret, size_t secret_size,
                      const void *other, size_t other_size, struct error_text *err);

/* These are the certificates from now on, if this node was opened with TLS. Connections that are open stay. */
void peers_set_tls(struct peers *peers, struct tls_context *context);

/* One message, of several pieces, which are borrowed for the call: what the kernel does not take at once is copied. HF_OK: it is on its way.
 * HF_EUNREACH: there is no connection; peers_dial makes one. HF_EBUSY: too much is unsent, or there is no memory. */
int peers_send(struct peers *peers, uint64_t to, const struct iovec *pieces, unsigned count);
/* Makes a connection, at whichever of these addresses that can be done, if there is none to whom is meant: votes must not wait for one. To
 * be called now and then. */
void peers_dial(struct peers *peers, uint64_t to, const char *const *addresses, unsigned count);
/* It is there, or nowhere: a connection at another address ends. */
void peers_dial_only(struct peers *peers, uint64_t to, const char *address);
/* What the node says of itself that this one is connected to; NULL: there is no connection (yet). Lives until the loop goes on. */
const char *peers_about(struct peers *peers, uint64_t id);
/* What the node says of itself that has connected to this one; NULL: there is none. As above. */
const char *peers_about_from(struct peers *peers, uint64_t id);
/* Why this node could not be reached the last time, in words; "": not known. Lives until the loop goes on. */
const char *peers_why(struct peers *peers, uint64_t id);
/* Forgets a node that is no member any more: connections to it and from it end. */
void peers_forget(struct peers *peers, uint64_t id);

#endif
