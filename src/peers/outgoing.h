/* outgoing.h: the connection to a node, for outgoing.c, which makes and ends it, and send.c, which sends by it. */
#ifndef PEERS_OUTGOING_H
#define PEERS_OUTGOING_H

#include "peers/inside.h"

#define WHY_MAX 127 /* bytes of a reason that are kept */

enum state { CLOSED, RESOLVING, CONNECTING, HANDSHAKE, OPEN };

struct outgoing {
    struct list node;
    struct peers *peers;
    uint64_t to;
    char address[PEERS_ADDRESS_MAX + 1];
    enum state state;
    struct connection *connection; /* NULL: CLOSED */
    int64_t again_ms;              /* not before this */
    int64_t wait_ms;
    unsigned addresses; /* behind its name, when that was last resolved; 1 for a number */
    unsigned turn;      /* whose it is, of those */
    bool guarded;       /* see peers_set_guarded */
    bool noted;         /* that it cannot be reached, */
    bool mistrusted;    /* and that this is because of the secret, which others must not hide */
    int64_t open_ms;    /* since when it can */
    size_t unsent;
    char why[WHY_MAX +
             1]; /* it could not be reached the last time; "": it was not tried, or could */
};

/* One attempt. It lives until its handles are closed and nobody resolves for it, the node may have another by
 * then. */
struct connection {
    struct outgoing *outgoing; /* NULL: it is being closed */
    struct peers *peers;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write; /* of the handshake */
    struct handshake handshake;
    unsigned char words[HANDSHAKE_HELLO + HANDSHAKE_PROOF];
    unsigned char reply[HANDSHAKE_REPLY];
    size_t got;
    unsigned users; /* handles, and the thread that resolves */
};

/* The connection that a message of so many bytes can go by; begins to make one if there is none. HF_EUNREACH, or HF_EBUSY: too much is
 * unsent. */
int outgoing_find_open(struct peers *peers, uint64_t to, const char *address, size_t size,
                       struct outgoing **ret_outgoing);
/* Ends the connection, if there is one. why: NULL if nobody is to hear of it. */
void outgoing_drop(struct outgoing *outgoing, const char *why);

#endif
