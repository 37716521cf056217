/* connection.h: one client: its bytes in, its bytes out, and when it may go on. */
#ifndef SERVER_CONNECTION_H
#define SERVER_CONNECTION_H

#include "base/list.h"
#include "server/endpoint.h"
#include "session/session.h"

#include <stdbool.h>
#include <stdint.h>

#define CLIENT_NAME_MAX 64
#define READ_LEAST 4096u /* bytes of room for one read */
/* Who has not said the password yet may do what is needed to say it (also UNAUTHENTICATED_BYTES). */
#define UNAUTHENTICATED_MS 10000  /* until then it has said it */
#define UNAUTHENTICATED_WORDS 64u /* of one command */
#define UNAUTHENTICATED_SHARE 4u  /* they are at most one in so many of --max-clients, */
#define UNAUTHENTICATED_MAX 1024u /* and at most so many */
#define LATELY_MS 50              /* a client that sent something is busy for so long */

struct account;
struct protocol;
struct server;
struct tls_client;

struct connection {
    struct server *server;
    struct session session;
    struct account
        *account; /* of the users file; NULL: it has not said who it is, or there is none */
    uint64_t id;
    int fd;
    struct tls_client *tls; /* NULL: it speaks in the clear */
    bool by_certificate;    /* it is its account by that, and has not said a password */
    bool unread;            /* there may be bytes of which the socket says nothing: TLS has them */
    uint32_t asked;         /* events of epoll */
    bool hung_up;           /* the client sends no more */
    bool has_spoken;        /* it has sent something */
    uint32_t wrong_passwords; /* that it has said */
    char *last_words;         /* an error to be said before it is closed */
    int64_t heard_ms, came_ms;
    uint32_t at_once; /* commands that came with the last read; 0 if that is a while ago */
    char name[CLIENT_NAME_MAX + 1];
    char address[ENDPOINT_TEXT_MAX];

    struct list unauthenticated;
    struct list handshake, step; /* of TLS: tls.c's */
    struct list dirty;           /* has something to write */
    struct list ready;           /* may go on */
    struct list busy;            /* sent something lately */
};

static inline struct connection *connection_of(struct session *session)
{
    return LIST_ENTRY(session, struct connection, session);
}

/* Takes fd on success. with_tls: it begins with a handshake. */
struct connection *connection_new(struct server *server, int fd, const char *address,
                                  const struct protocol *protocol, bool with_tls);
/* The handshake is done, and what came behind it may be there already. */
void connection_begin(struct connection *connection);
/* It is told why, after what it has been answered, and closed. */
void connection_end(struct connection *connection, const char *why);
/* At once: nothing more is read or written. */
void connection_close(struct connection *connection);
/* It has said the password: from the next command on it may do what this user may. */
void connection_authenticated(struct connection *connection, const struct user *user);
/* What sessions call: see struct sessions_host. */
void connection_dirty(struct session *session);
void connection_answered(struct session *session, bool waited);
void connection_free(struct session *session);
void connection_event(struct connection *connection, uint32_t events);
void connection_write_all(struct server *server);
void connections_go_on(struct server *server);
/* How many commands those may send at once who sent something lately. */
uint32_t connections_expected(struct server *server);
void connections_close_idle(struct server *server);
/* Makes room for a new one, if there is somebody who has not said the password, or no need to. False: there is none. */
bool connections_make_room(struct server *server);

#endif
