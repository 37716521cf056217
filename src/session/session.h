/* session.h: what a node has with its clients, below the socket: words in, answers and pushes out, who waits for what. Pure: no loop, no
 * sockets, no clock. holdfastd runs it on real connections, the simulator on its own.
 *
 *     session.c      one client: which of its commands may begin, and what is left when it goes
 *     leadership.c   who is blocked when this node leads no more, leads again, or stops
 *     commands.c     words of a client → a command of the table, or an answer at once
 *     rights.c       what a user may do: verbs, on names that match a pattern
 *     request.c      a command goes into the log, and is under way until its answer is written
 *     cmd_args.c     words of commands, checked against their limits
 *     cmd_lock.c     ACQUIRE, RELEASE, RENEW, END, BREAK, FLOOR, ONCE
 *     cmd_query.c    SHOW, LOCKS, CHECK, OBSERVE: what is read in the log's order
 *     reply.c        effects of the log → whom they concern
 *     protocol.h     how a client is spoken to; resp_protocol.c: in RESP
 *     refusals.c     what the table's refusals and reasons are called
 *     waiting.c      who waits at which place, who watches which name
 *     losses.c       who has which hold, and is told when it is lost
 *
 * The owner embeds a struct sessions in its node and a struct session in each connection, and finds its own around them (LIST_ENTRY).
 *
 * The answers of a session come in the order of its commands. Commands that go through the log keep that order by themselves; one that
 * does not waits until no other is under way; and an ACQUIRE that waits lets no later command of its session begin. */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include "base/error.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/siphash.h"
#include "core/core.h"
#include "replica/replica.h"
#include "resp/resp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_PAUSE (256u << 10) /* who has so much unread gets no further command served */
/* Who has not said the password yet may do what is needed to say it. */
#define UNAUTHENTICATED_BYTES 4096u /* of one command, and of answers that it has not read */

struct command;
struct protocol;
struct session;
struct user;
struct waiter;

/* A command whose user has not the right to it, or would have more by it than he may. */
struct denied {
    const char *command, *right; /* command NULL: none is */
    const char *quota;     /* which limit: leases, holds or places; NULL: it is about a right */
    struct core_text name; /* bytes NULL: it is about none */
};

/* What sessions want of their owner. */
struct sessions_host {
    /* Into the log, as replica_submit: HF_EBUSY, the batch is full; HF_EUNREACH, this node does not lead. */
    int (*submit)(void *context, const struct core_command *command, void *request);
    const struct core *(*table)(void *context);
    /* Where clients find the leader, if it is another node and that is known. */
    bool (*leader_address)(void *context, char *ret_text, size_t size);
    /* Why there is none, and what to do about it. */
    const char *(*why_no_leader)(void *context);
    /* There is something in `out`, or the session is `ending`. */
    void (*dirty)(struct session *session);
    /* A command is no longer under way: its answer is in `out`. waited: nothing else could begin meanwhile. */
    void (*answered)(struct session *session, bool waited);
    /* Closed, and nothing refers to it any more. */
    void (*unused)(struct session *session);
    /* Its user has not this right, or has as much as he may. NULL: nobody wants to know. */
    void (*denied)(struct session *session, const struct denied *denied);
    /* An operator's command is about to begin: one that changes what is not the user's own. ret_operation: what its end is told with, NULL: it
     * is of no interest. False: it may not begin, and `refuse` was told why. NULL: nobody keeps book. */
    bool (*operates)(struct session *session, const struct command *command,
                     const struct resp_node *value, void **ret_operation);
    /* It has ended, refused with these words; NULL: it is done. The session may be closed. */
    void (*operated)(struct session *session, void *operation, const char *refusal);
};

/* ---- a client -------------------------------------------------------------------------------- */

/* What may still happen:
 *
 *     OPEN ──the client sends no more, and all it sent has been read──▶ HEARD
 *      │                                                                 │ its last command has been answered
 *      ├────────QUIT, broken framing, another node leads──────────▶ ENDING ◀┘
 *      │                                                            │ the last answer is out
 *      └────────────────the connection is gone──────────────────▶ CLOSED
 *
 * Commands begin in OPEN and HEARD. A session that is CLOSED is unused when nothing refers to it any more. */
enum session_state { SESSION_OPEN, SESSION_HEARD, SESSION_ENDING, SESSION_CLOSED };

/* What the next command waits for. */
enum session_input {
    INPUT_NONE,   /* that the client sends one */
    INPUT_UNREAD, /* there may be more in the reader, which comes first */
    INPUT_VALUE   /* `value` has been read, and has yet to begin */
};

struct session {
    struct sessions *sessions;
    const struct protocol *protocol; /* what its client speaks */
    enum session_state state;
    enum session_input input;
    struct resp_reader *reader; /* of what the client sends; the session's after session_open */
    const struct resp_node *value;
    const struct command *command; /* the last that began */
    struct resp_writer out;
    size_t sent; /* bytes of out that are gone */

    const struct user
        *user;   /* whom it has said that it is, or anybody; NULL: it has yet to say the password */
    bool resp3;  /* chosen by HELLO, as is */
    bool losses; /* that it is told of the holds that it loses */

    void *operation;    /* of an operator's command that is about to begin; NULL: none */
    uint32_t under_way; /* commands whose answer has not been written */
    bool waits_to_read; /* its LOCKS or SHOW, until others have been answered */
    bool exclusive;     /* of them one that may wait: nothing else begins */
    struct waiter *blocked;
    uint32_t references; /* requests, and the owner until it is closed */
    uint32_t subscriptions, waiting, observing;
    uint64_t commands;
    struct list node; /* of all sessions; the owner's, once it is closed */
    struct list waiters, observers, holders;
};

extern const struct protocol resp_protocol;

/* Takes the reader. The rest of the session is zero. */
void session_open(struct sessions *sessions, struct session *session,
                  const struct protocol *protocol, struct resp_reader *reader);
/* Bytes of `out` that are not gone. */
static inline size_t session_unsent(const struct session *session)
{
    return session->out.size - session->sent;
}
/* So much of it may be there while further commands begin. */
size_t session_output_pause(const struct session *session);
bool session_may_begin(const struct session *session);
/* Begins as many commands of its reader as may begin. SESSION_FULL: the batch is full, or others read, and it is to be called again in the next round.
 * Negative: it does not speak RESP, and nothing more can be read. */
#define SESSION_FULL 1
int session_go_on(struct session *session, struct error_text *err);
/* The client sends no more, and all that it sent is in the reader: to be followed by session_go_on. */
void session_heard(struct session *session);
static inline bool session_is_closed(const struct session *session)
{
    return session->state == SESSION_CLOSED;
}
/* The next bytes of the client are of use: all that came before them has begun. */
static inline bool session_wants_more(const struct session *session)
{
    return session->state == SESSION_OPEN && session->input == INPUT_NONE;
}
/* All its answers are in `out`, and there will be no others. */
static inline bool session_is_done(const struct session *session)
{
    return session->state == SESSION_ENDING && session->under_way == 0;
}
/* No further command begins; the owner closes it after its answers are out. */
void session_end(struct session *session);
/* Nobody is there any more: it gives up its places. The owner's reference stays. */
void session_close(struct session *session);
void session_unref(struct session *session);
/* Frees what it has, from `unused`. */
void session_free(struct session *session);

/* ---- all of a node's --------------------------------------------------------------------------- */

struct waiters {
    struct waiter **chains;
    uint32_t count, capacity;
};

struct holders {
    struct holder **chains;
    uint32_t count, capacity;
};

struct observers {
    struct observer **chains;
    uint32_t count, capacity;
    unsigned char seed[SIPHASH_SEED]; /* clients choose the names */
};

struct sessions {
    const struct sessions_host *host;
    void *context; /* of the host's functions */
    /* The owner's own commands, beside those about locks. */
    const struct command *owner_commands;
    size_t owner_command_count;
    uint64_t max_pipeline;     /* commands of one session that may be under way */
    uint64_t max_output_bytes; /* that a client may leave unread */

    enum replica_role role;
    bool deposed;                     /* those who are blocked wait to hear of the next leader, */
    int64_t deposed_ms;               /* since then */
    char stopped_why[ERROR_TEXT_MAX]; /* the node cannot go on; "": it can */
    bool stopping;                    /* the server is */

    struct list all, spare;
    struct list leaving;          /* waiters whose sessions are gone: their places are given up */
    char owner[HF_OWNER_MAX + 1]; /* of the present command, with its user */
    struct error_text refusal;    /* why the present command is refused */
    struct denied denied;         /* and for want of which right */
    uint32_t blocked_count, spare_count;
    uint32_t rows_reading, waiting_to_read; /* of answers that may be long; sessions */
    struct waiters waiters;
    struct observers observers;
    struct holders holders;
    uint64_t commands, wrong_commands, denied_commands, over_quota_commands;
    int64_t
        now_us; /* the owner's clock, as it looked last: for what is counted, never for a decision */
    struct histogram grants; /* from ACQUIRE until the lock is held */
};

/* seed: of hashes; random. What the owner chooses (the commands, the limits) it sets afterwards. */
void sessions_open(struct sessions *sessions, const struct sessions_host *host, void *context,
                   const unsigned char seed[SIPHASH_SEED]);
/* All of them are closed, and no request is in the log any more. */
void sessions_free(struct sessions *sessions);
/* Gives up the places of those who are gone, as far as the batch has room. */
void sessions_leave(struct sessions *sessions);

/* ---- leadership.c ---- */
/* This node leads, or does not. */
void sessions_role(struct sessions *sessions, enum replica_role role, int64_t now_ms);
/* In each round, since the leader may have become known. */
void sessions_look(struct sessions *sessions, int64_t now_ms);
/* The node cannot go on, for this reason. */
void sessions_stopped(struct sessions *sessions, const char *why);
/* The server is being stopped: what is under way is failed afterwards, by the replica. */
void sessions_stopping(struct sessions *sessions);
/* What to say to somebody who asks a node that does not lead. Returns ret_text. */
const char *sessions_not_leading(struct sessions *sessions, char *ret_text, size_t size);

/* ---- reply.c: what the replica tells ---- */
void sessions_effect(struct sessions *sessions, void *request, const struct core_effect *effect);
void sessions_failed(struct sessions *sessions, void *request, enum replica_failure failure);
/* Whose request it is. */
struct session *sessions_asker(const void *request);

#endif
