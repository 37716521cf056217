/* inside.h: what the files of this room have of each other. */
#ifndef SESSION_INSIDE_H
#define SESSION_INSIDE_H

#include "session/protocol.h"

#define OBSERVED_MAX 65536u  /* names that one session may observe */
#define LOSSES_PER_LEASE 64u /* holds of one lease that a RENEW has a session told of */
#define WAITERS_MAX 1048576u /* places that one session may wait at, by PUSH */

/* A place in a queue that a session waits at. */
struct waiter {
    uint64_t ticket;
    uint32_t attachment;
    struct session *session;
    struct request *request; /* of a blocked one; NULL: it is told by a push */
    int64_t began_us;        /* its ACQUIRE came */
    bool blocks;             /* its session; else it is told by a push */
    struct list of_session;  /* or of those that leave */
    struct waiter *next;     /* in its chain of the table */
};

/* A hold that a session is told of when it is lost: the one that acquired or renewed it last. */
struct holder {
    uint64_t token;
    struct session *session;
    struct list of_session;
    struct holder *next; /* in its chain */
};

struct observer {
    struct session *session;
    struct list of_session;
    struct observer *next; /* in its chain */
    bool subscribed;       /* by SUBSCRIBE: is told in that form */
    size_t size;
    char name[];
};

static inline void session_dirty(struct session *session)
{
    session->sessions->host->dirty(session);
}

static inline const struct core *sessions_table(const struct sessions *sessions)
{
    return sessions->host->table(sessions->context);
}

/* ---- request.c ---- */
/* Into the log. words: so many words of the value from `from` on are copied for later. */
struct submission {
    struct core_command command;
    const struct resp_node *value;
    uint32_t from, words;
    uint32_t rows; /* of an answer that may be long */
    bool push, waits;
    void (*read)(struct session *session, const struct words *words);
};
enum verdict submit(struct session *session, const struct submission *submission);
/* May it begin what has a long answer, or do others come first? Then it comes before those who ask later. */
bool session_may_read(struct session *session);
/* It does not wait for that any more. */
void session_reads_not(struct session *session);
void request_free(struct sessions *sessions, struct request *request);
/* Its answer is in `out`: it was refused with these words; NULL: it was not. */
void request_over(struct request *request, const char *refusal);
/* An operator's command is over, of which nothing is under way any more; refusal: as in sessions_host. */
void operation_over(struct session *session, const char *refusal);
void requests_free_spare(struct sessions *sessions);

/* ---- cmd_args.c ---- */
bool parse_name(struct session *session, const struct resp_node *word, struct core_text *ret_name);
bool parse_lease(struct session *session, const struct resp_node *word,
                 struct core_text *ret_lease);
bool parse_acquire(struct words_left *left, bool once, struct core_command *ret_command,
                   bool *ret_push);
uint64_t span_in_full(uint64_t span_ms);
int64_t span_shown(int64_t left_ms);

/* ---- cmd_lock.c ---- */
enum verdict command_acquire(struct session *, const struct resp_node *);
enum verdict command_release(struct session *, const struct resp_node *);
enum verdict command_renew(struct session *, const struct resp_node *);
enum verdict command_end(struct session *, const struct resp_node *);
enum verdict command_break(struct session *, const struct resp_node *);
enum verdict command_floor(struct session *, const struct resp_node *);
enum verdict command_once_claim(struct session *, const struct resp_node *);
enum verdict command_once_finish(struct session *, const struct resp_node *);
enum verdict command_once_read(struct session *, const struct resp_node *);
enum verdict command_once_release(struct session *, const struct resp_node *);

/* ---- cmd_query.c ---- */
enum verdict command_check(struct session *, const struct resp_node *);
enum verdict command_show(struct session *, const struct resp_node *);
enum verdict command_locks(struct session *, const struct resp_node *);
enum verdict command_observe(struct session *, const struct resp_node *);
enum verdict command_unobserve(struct session *, const struct resp_node *);
/* What ONCE READ answers. */
void read_once(struct session *session, const struct words *words);

/* ---- waiting.c ---- */
struct waiter *waiter_find(struct sessions *sessions, uint64_t ticket);
struct waiter *waiter_add(struct session *session, uint64_t ticket, uint32_t attachment,
                          struct request *request);
void waiter_remove(struct waiter *waiter);
/* Its session is gone: the place is given up, as soon as the log takes it. */
void waiter_leave(struct waiter *waiter);
void waiters_free_leaving(struct sessions *sessions);
/* False: it does so already, or too many. */
bool observer_add(struct session *session, struct core_text name, bool subscribed);
bool observer_remove(struct session *session, struct core_text name, bool subscribed);
void observer_drop(struct observer *observer);
/* fn for each that observes the name. */
void observers_each(struct sessions *sessions, struct core_text name,
                    void (*fn)(struct observer *observer, void *context), void *context);

/* ---- losses.c ---- */
/* The session has the hold with this token from now on, if it wants to be told of losses. */
void holder_set(struct session *session, uint64_t token);
/* It has all that this lease holds, or as much as a session is told of. */
void holder_renewed(struct session *session, struct core_text lease);
/* The hold of this effect has ended: whoever has it is told, unless it has given it up. */
void holder_ended(struct sessions *sessions, const struct core_effect *effect);

/* ---- reply.c ---- */
void session_lost(struct session *session, const struct core_effect *effect);

#endif
