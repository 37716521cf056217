/* outgoing.h: the connection to a node, and the ways to make one, for
 *
 *     outgoing.c   which of a node's addresses are tried, and which connection is used
 *     attempt.c    one attempt at an address: connecting, handshake
 *     names.c      the numbers behind a name
 *     send.c       messages, by the connection that is open */
#ifndef PEERS_OUTGOING_H
#define PEERS_OUTGOING_H

#include "peers/seal.h"

#define WHY_MAX 127   /* bytes of a reason that are kept */
#define NUMBERS_MAX 8 /* of a name that are tried */

enum route_state { CLOSED, RESOLVING, CONNECTING, HANDSHAKE, OPEN };

/* The numbers behind an address, as they were found last: a resolver that hangs, or fails, takes nothing back. */
struct numbers {
    struct sockaddr_storage at[NUMBERS_MAX];
    unsigned count; /* 0: none is known yet */
    unsigned turn;  /* whose it is: it stays with the one that works */
    unsigned tried; /* in vain, one after the other; with the last of them, it is waited */
    struct sockaddr_storage worked; /* the last that did */
};

struct route { /* one address of a node */
    struct list node;
    struct outgoing *outgoing;
    char address[PEERS_ADDRESS_MAX + 1];
    bool is_wanted; /* it is one of those that were dialled last */
    enum route_state state;
    struct connection *connection; /* NULL: CLOSED */
    struct numbers numbers;
    struct search *search; /* for the numbers; NULL: none is under way */
    bool hung_up;          /* at the last TLS handshake, without a word */
    bool in_clear;    /* the next attempt is: the last one found that TLS is not spoken there */
    int64_t again_ms; /* not before this */
    int64_t wait_ms;
    bool failed;     /* since the node was there last */
    bool noted;      /* that it cannot be reached here, */
    bool mistrusted; /* and that this is because of the secret, which others must not hide */
    char why[WHY_MAX +
             1]; /* it could not be reached the last time; "": it was not tried, or could */
};

struct outgoing { /* to one node */
    struct list node;
    struct peers *peers;
    uint64_t to;
    struct list routes;
    struct route *open; /* whose connection is used; NULL: there is none */
    struct route *best; /* the last that was open, to whom is meant; NULL: none was */
    int64_t begun_ms;   /* since when it is dialled in vain; 0: it is not */
    int64_t open_ms;    /* since when it is open, */
    bool is_new;        /* and it has not been seen to last */
    size_t unsent;
};

/* One attempt, and the connection that it may become. It lives until its handles are closed; the route may have another by then. */
struct connection {
    struct route *route; /* NULL: it is being closed */
    struct peers *peers;
    int64_t begun_ms;
    struct sockaddr_storage number; /* that it connects to */
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_write_t write;  /* of the handshake */
    struct seal *seal; /* NULL: in the clear */
    struct handshake handshake;
    unsigned char words[HANDSHAKE_HELLO + HANDSHAKE_PROOF];
    unsigned char reply[HANDSHAKE_REPLY];
    size_t got;
    unsigned handles;
};

/* ---- outgoing.c ---- */
/* HF_EUNREACH, or HF_EBUSY: too much is unsent. */
int outgoing_find_open(struct peers *peers, uint64_t to, size_t size,
                       struct outgoing **ret_outgoing);
/* Ends the attempt, or the connection, if there is one. why: NULL if nobody is to hear of it. */
void route_drop(struct route *route, const char *why);
/* It has not worked yet, and goes on. */
void route_complain(struct route *route, const char *why);
/* It does not know the secret: said at once, whatever was said before. */
void route_mistrust(struct route *route);
/* The handshake is over: this is the connection from now on. False: another one is, or the host does not want it; it is closed. */
bool route_open(struct route *route);

/* ---- attempt.c ---- */
/* Begins, if the time has come. */
void attempt_begin(struct route *route);
/* A search for its numbers is over. failure: why it found none; NULL: route->numbers has them. */
void attempt_resolved(struct route *route, const char *failure);
void attempt_close(struct connection *connection);

/* ---- names.c ---- */
/* Looks for the numbers behind this name, if nobody does. False: it cannot. */
bool names_search(struct route *route, const struct peer_address *address);
/* The route goes; the search may have to go on without it. */
void names_abandon(struct route *route);
void names_close(struct peers *peers);
const struct sockaddr *numbers_current(const struct numbers *numbers);
/* This one was tried in vain; if the turn is another one's by now, it stays there. True: there is another one to be tried at once. */
bool numbers_next(struct numbers *numbers, const struct sockaddr_storage *tried);
/* That one led to whom was meant. */
void numbers_keep(struct numbers *numbers, const struct sockaddr_storage *number);
/* To that of the machine from which the node has come, if it is one of them, else back to the one that worked last. False: its turn it is already,
 * or it is none of them any more. */
bool numbers_return(struct numbers *numbers, const struct sockaddr_storage *from);

#endif
