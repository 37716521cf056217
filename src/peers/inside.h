/* inside.h: for the files of this room.
 *
 *     address.c    "host:port" as text
 *     peers.c      opening and closing, listening
 *     outgoing.h   to a node: its addresses, attempts, the connection, messages
 *     incoming.c   from a node: handshake, receiving
 *     seal.h       TLS of a connection, in either direction */
#ifndef PEERS_INSIDE_H
#define PEERS_INSIDE_H

#include "base/hostport.h"
#include "base/list.h"
#include "peers/handshake.h"
#include "peers/peers.h"

#include <uv.h>

#define SECRET_MAX 1024
#define PEERS_NOTED_MAX 32
/* Before each message: its size and its checksum, 4 bytes each, the lowest first. */
#define FRAME_HEADER 8
#define SEALED_MAX 65536 /* bytes of TLS that are read at a time */
#define TLS_RECORD 0x16  /* how TLS begins, and nothing else here */

_Static_assert(PEERS_CLUSTER == HANDSHAKE_CLUSTER, "one length");
_Static_assert(PEERS_ADDRESS_MAX < HANDSHAKE_TEXT && PEERS_ABOUT_MAX < HANDSHAKE_TEXT,
               "a hello has room for both, each with its NUL");

struct peers {
    uv_loop_t *loop;
    struct peers_host host;
    uint64_t id;
    struct handshake_own own; /* what follows, for handshakes */
    char address[HANDSHAKE_TEXT], about[HANDSHAKE_TEXT], cluster[HANDSHAKE_CLUSTER + 1];
    unsigned char secret[SECRET_MAX], other[SECRET_MAX];
    uv_tcp_t listener;
    struct list outgoing, incoming; /* all that are not yet freed */
    struct peers_tls tls;
    struct list steps;                /* those of incoming whose TLS handshake may go on */
    uv_idle_t idle;                   /* while there are some */
    unsigned char sealed[SEALED_MAX]; /* for the connection that is being read from */
    struct list searches;             /* for numbers behind names, */
    unsigned searches_count;          /* and how many there are */
    unsigned unauthenticated;
    unsigned
        notes; /* lines about those that have not proved themselves, in the span that began then */
    int64_t notes_ms;
    struct noted {
        uint64_t whom;
        int64_t ms;
    } elsewhere
        [PEERS_NOTED_MAX], /* nodes of other clusters, and when that was last said of them; */
        refused[PEERS_NOTED_MAX],  /* machines, by a hash of their address and of why; */
        in_clear[PEERS_NOTED_MAX]; /* nodes that are spoken to in the clear, though TLS was tried */
    unsigned handles;              /* that are open, or closing */
    bool stopped;                  /* nothing more is sent */
    bool closing;
    void (*done)(void *context);
    void *done_context;
};

void peers_note(const struct peers *peers, const struct note *note);
/* Who is refused comes again and again: a line about the same one now and then is enough. */
bool peers_may_repeat(struct noted slots[PEERS_NOTED_MAX], uint64_t whom);
/* Tells the host, see `ended` in peers.h. */
void peers_ended(const struct peers *peers, uint64_t id);
/* A handle of this is open from now on, and now is not any more. */
void peers_hold(struct peers *peers);
void peers_release(struct peers *peers);
/* What makes small messages quick, and dead nodes known. */
void peers_tune(uv_tcp_t *tcp);

struct peer_address {
    char host[HOSTPORT_HOST_MAX + 1]; /* without brackets */
    char port[6];
    uint16_t port_number;           /* perhaps 0: then it can only be listened at */
    bool is_loopback;               /* only this machine can reach it */
    bool is_number;                 /* else it is a name, */
    struct sockaddr_storage number; /* and this means nothing */
};

#define PEERS_UNPROVEN \
    "it does not know the cluster's secret, or this node does not: compare secret-file on both"

#define PEERS_NO_TLS "it does not speak TLS, which peer-tls asks for here: set peer-tls on both"
#define PEERS_NO_ANSWER \
    "it does not answer a TLS handshake: set peer-tls on both, or is that its port for clients?"
#define PEERS_ONLY_TLS "it speaks TLS with other nodes, and this one does not: set peer-tls on both"

/* Instead of a reply: one byte, and the end. No reply is as short. */
#define REFUSES_CLEAR 'T' /* only TLS is spoken here */
#define REFUSES_CERTIFICATE \
    'H' /* that certificate is not for the host of the address in the hello */

bool peer_address_parse(const char *text, struct peer_address *ret_address);
/* Whom the other end is, by the kernel: "1.2.3.4:567"; "" if that cannot be told. */
void peer_address_of(const uv_tcp_t *tcp, char ret_text[PEERS_ADDRESS_MAX + 1]);

/* Another node belongs to another cluster. */
void peers_note_elsewhere(struct peers *peers, uint64_t id, const char *address,
                          const char *cluster);

void outgoing_close_all(struct peers *peers);
/* All of them are made anew, when they are dialled next. */
void outgoing_handshake_again(struct peers *peers);
/* It has come to us: no need to wait before it is tried again. */
void outgoing_is_there(struct peers *peers, uint64_t id, const struct sockaddr_storage *from);
void incoming_accept(struct peers *peers);
/* TLS handshakes of strangers go on for a while. */
void incoming_go_on(uv_idle_t *idle);
void incoming_close_from(struct peers *peers, uint64_t id);
void incoming_close_all(struct peers *peers);
/* Those from nodes of another cluster than this node's. */
void incoming_close_elsewhere(struct peers *peers);

#endif
