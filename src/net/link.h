/* link.h: one connection to a server that speaks RESP: connect, greet, then values in and out.
 * Nothing here waits (see stream.h).
 *
 *     CONNECTING ──▶ HANDSHAKE ──▶ READY         any of them ──▶ over: close it and dial again
 *
 * The handshake is what a server must answer before it is asked anything else: password, database,
 * what kind of server it is. A request never goes out before all of it was answered, so that a
 * refused SELECT cannot send a lock into the wrong database. */
#ifndef NET_LINK_H
#define NET_LINK_H

#include "net/stream.h"
#include "resp/resp.h"

/* Replies that may be outstanding on a link whose askers have gone; more: it is closed. */
#define LINK_OWED_MAX 256
/* How far behind a server may be before a fresh connection is worth a try. */
#define LINK_LAG_MS 1000

struct link_handshake {
    int replies;
    /* Commands as RESP. Called as each link is opened, and may have to read a file: a password may be another one by then. */
    void (*write)(void *context, struct resp_writer *writer);
    /* Looks at one reply. An error ends the link, and is what its user hears. */
    int (*on_reply)(void *context, int index, const struct resp_node *reply,
                    struct error_text *err);
    void *context;
};

enum link_state { LINK_CONNECTING, LINK_HANDSHAKE, LINK_READY };

struct link {
    struct stream *stream;
    struct resp_reader *reader;
    struct resp_writer out;     /* what the socket would not take yet */
    size_t out_sent;            /* of it */
    struct resp_writer scratch; /* for whoever has the link: to build a request in */
    const struct link_handshake *handshake;
    struct resp_writer hello; /* what it wrote; wiped as soon as it is answered */
    enum link_state state;
    int greeted;
    /* exchange.c: replies to requests nobody waits for any more, and since when they are late. */
    int owed;
    int64_t lags_since_ms;
    int slot;       /* the pool's */
    uint32_t marks; /* the owner's, of what this server is known to know; an error that nobody
                     * hears clears them */
};

/* address, access, turns (see stream.h; or NULL) and handshake are borrowed for as long as the link lives. */
int link_open(const struct address *address, const struct access *access, struct turns *turns,
              const struct link_handshake *handshake, struct link **ret_link,
              struct error_text *err);
/* The same in two steps, for whoever has to know the link before it has a descriptor, because of a fork: link_after_fork. One that could not
 * be dialled is closed, too. */
int link_new(const struct link_handshake *handshake, struct link **ret_link,
             struct error_text *err);
int link_dial(struct link *link, const struct address *address, const struct access *access,
              struct turns *turns, struct error_text *err);
/* In the child of a fork: closes the descriptor, and nothing else. Async-signal-safe. NULL is fine. */
void link_after_fork(struct link *link);
void link_close(struct link *link); /* NULL is fine */

short link_events(const struct link *link);
/* When it is to be pumped though nothing has come: one of several addresses of its host is silent, and the next one is tried. */
int64_t link_look_ms(const struct link *link);

/* Queues bytes and sends what can be sent. Only when READY. HF_EUNREACH: the link is over. */
int link_send(struct link *link, const void *bytes, size_t size, struct error_text *err);

/* Does all that can be done without waiting. Values that come when READY go to fn, which answers
 * whether it wants more now; they live during that call. An error: the link is over. */
typedef bool link_value_fn(void *context, const struct resp_node *value);
int link_pump(struct link *link, link_value_fn *fn, void *context, struct error_text *err);

/* Has something come, or has the server closed it? */
bool link_has_news(const struct link *link);

#endif
