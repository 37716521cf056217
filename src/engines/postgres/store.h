/* store.h: what the files of the PostgreSQL engine share.
 *
 *     open.c         from a URL to libpq's parameters
 *     connection.c   one connection: making it, asking, within a deadline
 *     pool.c         connections that are there for all; one question and its answer
 *     errors.c       what an SQLSTATE means
 *     schema.c       the tables and functions: made, looked for, of the right version
 *     question.c     the parameters of a statement
 *     sightings.c    what was seen of others' claims, and since when: who is dead
 *     claims.c       taking and giving up
 *     waiting.c      waiting, and observing
 *     renewing.c     keeping
 *     listener.c     the thread behind LISTEN
 *     observers.c    the places of observers, which that thread keeps
 *     once.c         once-records
 *     queries.c      asking about locks, and the operator's ways out
 *     row.c          ?mode=row: locks that are open transactions
 *     row_watch.c    the thread that watches these
 *
 * What happens in the database is in sql/: each operation is one statement, which calls one function. Nothing of a session
 * that counts outlives a statement, so a transaction pooler may be between us and the server.
 *
 * Expiry. A claim has a beat, which each renewal raises. It is dead when somebody has seen the same beat for the whole of its span
 * (TTL, drift allowance, lock-delay) by his own CLOCK_BOOTTIME, from when the answer that showed it had arrived. Whoever
 * knows that hands in id and beat with his next statement, and the function removes exactly that. The holder counts from before it
 * sent its last renewal that was acknowledged, which is earlier. So nobody believes the clock of a server. */
#ifndef ENGINES_POSTGRES_STORE_H
#define ENGINES_POSTGRES_STORE_H

#include "base/bootclock.h"
#include "base/list.h"
#include "base/pgnames.h"
#include "engines/engine.h"
#include "net/address.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

/* How the words about a right that a role lacks go on. */
#define PG_NO_SCHEMA "there is no such schema"
#define PG_NOT_GRANTED "a role must be GRANTed "
#define PG_UNHEARD                                                                                \
    "no notification of the database comes through (a transaction pooler?): those who wait look " \
    "once a second; ?listen=URL names a direct connection, ?listen=off ends this warning"
#define PG_UNHEARD_ELSEWHERE                                                            \
    "no notification comes through over the URL of listen= (another database than the " \
    "store's, or a transaction pooler?): those who wait look once a second"
#define PG_SCHEMA_VERSION 3
#define PG_REVISION 2         /* of the functions: helpers.sql */
#define PG_POOL_MAX 8         /* connections for all, */
#define PG_POOL_URGENT_MAX 10 /* so many with those for giving up what is held, */
#define PG_POOL_RENEW_MAX 11  /* and with the one that only renewals may have */
#define PG_SOCKETS_MAX 512
#define PG_KEYWORDS_MAX 64
#define PG_PARAMETERS_MAX 20
#define PG_INCARNATION_MAX 64
#define PG_ID_DIGITS 16 /* of the table, in tables.sql */
#define PG_ERA_DIGITS 8
#define PG_SYSTEM_DIGITS_MAX 20 /* 64 bits */
#define PG_TIMELINE_DIGITS 8
#define PG_HOST_MAX 17 /* 16 hexadecimal digits */
#define PG_TIMEOUT_MS \
    5000 /* for a connection to be made; the statement's deadline is the client's */
#define PG_TIMEOUT_MIN_MS 50
#define PG_TIMEOUT_MAX_MS 60000
#define PG_DEAD_MAX 256 /* that one statement removes */
#define PG_OBSERVER_TTL_MS 30000
#define PG_BROKEN "broken by an operator" /* to a holder */
#define PG_STATE_ISOLATION \
    "HF003" /* a function's, in a transaction that is not READ COMMITTED: nothing was done */
#define PG_STATEMENT_NAME_MAX 32
#define PG_NEWS_MAX 64 /* ids that were told of last, for whoever learns its own id only now */

struct engine_store;

/* ---- connection.c ---------------------------------------------------------------------------- */

enum statement {
    STATEMENT_HELLO,
    STATEMENT_ACQUIRE,
    STATEMENT_RENEW,
    STATEMENT_RELEASE,
    STATEMENT_NOTE,
    STATEMENT_SWEEP,
    STATEMENT_SOME_CLAIMS,
    STATEMENT_NOTE_MANY,
    STATEMENT_SWEEP_MANY,
    STATEMENT_BREAK,
    STATEMENT_FLOOR,
    STATEMENT_OBSERVE,
    STATEMENT_UNOBSERVE,
    STATEMENT_FINISH,
    STATEMENT_ONCE_READ,
    STATEMENT_ONCE_PAGE,
    STATEMENT_NOTE_RECORDS,
    STATEMENT_SHOW,
    STATEMENT_CHECK,
    STATEMENT_LIST,
    STATEMENT_ROW_MAKE,
    STATEMENT_ROW_GRANT,
    STATEMENT_ROW_ALIVE,
    STATEMENT_BROKEN,
    STATEMENT_TELL,
    STATEMENT_COUNT
};

struct connection {
    struct list node;
    PGconn *pg;
    const struct engine_host *host; /* is told that an answer is long in coming; NULL: nobody is */
    int slot;                       /* in store->sockets; -1: none */
    bool unreplicated;              /* a commit was not waited for by those who should have it */
    bool direct;            /* no pooler is between here and the server: the session is ours */
    bool standby;           /* its server is one: another host may be the primary */
    bool read_only;         /* it is none, and cannot be written to */
    bool by_name;           /* the last statement was a prepared one */
    unsigned number, hosts; /* it is to that one of so many */
    bool prepared[STATEMENT_COUNT];
    unsigned char asked[STATEMENT_COUNT]; /* how often, until it is prepared */
    int64_t idle_ms;                      /* since when it is not used */
};

/* What a new connection is asked before it is used. HF_EUNREACH at the deadline: its server hangs. */
typedef int connection_settle_fn(struct engine_store *store, struct connection *conn,
                                 int64_t deadline_ms, struct error_text *err);
/* A call for which a connection is made, perhaps after others have failed. */
struct contact {
    int64_t since_ms;
    bool cut_off; /* what is told is that there was too little time; more of it might have helped */
    bool unwritable;  /* all hosts let us in, and none is a primary that can be written to */
    bool has_standby; /* that one of several is one was found out, by this try or one before */
    unsigned standby; /* its number */
};
/* Made and settled by the deadline, and its server is one that can be used. settle: NULL if there is nothing to ask. HF_EUNREACH or
 * HF_EREFUSED. */
int connection_new(struct engine_store *store, const char *const *keywords,
                   const char *const *values, connection_settle_fn *settle, int64_t deadline_ms,
                   struct contact *contact, struct connection **ret_conn, struct error_text *err);
/* Its host lets us in, and does not answer. True: there is another one, which is tried first from now on. */
bool connection_pass_over(struct engine_store *store, const struct connection *conn);
void connection_free(struct engine_store *store, struct connection *conn);
/* Is it worth being used again? */
bool connection_is_alive(struct connection *conn);

/* From now on, what this thread waits for ends soon when this becomes true, as at a deadline; NULL: no more. */
void connection_heed(const _Atomic bool *interrupted);
bool connection_interrupted(void);

struct question;
/* The answer to one statement, whatever it is; PQclear it. NULL: none came, and the connection is of no use any more. ret_sent: it may
 * have been done. */
PGresult *connection_ask(struct connection *conn, const struct question *question,
                         int64_t deadline_ms, bool *ret_sent, struct error_text *err);
/* Several statements without parameters, as one transaction. */
PGresult *connection_run(struct connection *conn, const char *text, int64_t deadline_ms,
                         struct error_text *err);
/* Is the server itself at the other end? A pooler has made up the process that it says it is, so that it can pass on whoever cancels. UNKNOWN: no
 * answer came. */
enum peer { PEER_UNKNOWN, PEER_SERVER, PEER_POOLER };
enum peer connection_peer(struct connection *conn, int64_t deadline_ms, struct error_text *err);
/* Only the first line of what libpq says, in words that fit ours. */
void connection_words(const char *message, struct error_text *err);

/* ---- question.c ------------------------------------------------------------------------------ */

extern const char *const statement_texts[STATEMENT_COUNT];

/* Text that grows; begin with {0}. `failed`: out of memory, and it says nothing. */
struct text {
    char *bytes;
    size_t size, room;
    bool failed;
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next element of an array that begins with "{": a name, which has at most HF_NAME_MAX + 2 bytes; a number. */
void text_add_name(struct text *text, const void *bytes, size_t size);
void text_add_number(struct text *text, int64_t number);
void text_drop(struct text *text);

struct question {
    enum statement statement;
    const char *text; /* set by ask_store from the statement, or an own one */
    bool reads;       /* changes nothing, so its outcome is never in doubt */
    bool replicated;  /* what it reads counts only if a synchronous standby has it, too */
    bool urgent;      /* somebody waits for what it gives up */
    bool renews;      /* a hold depends on it */
    bool expects;     /* its first parameter is the incarnation, which ask_store puts in */
    bool
        dated; /* what it says was found out in this era; in another one it is not sent (HF_ESTORE) */
    uint32_t era;
    bool patience;   /* its second how long to wait for rows, likewise */
    bool *ret_again; /* or NULL: set when it was asked again after it may have been done */
    const _Atomic uint32_t
        *bell; /* or NULL: when it is not what it was, nobody waits for a server any more */
    uint32_t rung;
    const char *name; /* set by ask_store: what it is prepared as; NULL: not at all */
    bool isolates; /* set by ask_store: the role's default is another level than READ COMMITTED */
    int count;
    const char *values[PG_PARAMETERS_MAX];
    int lengths[PG_PARAMETERS_MAX];
    int formats[PG_PARAMETERS_MAX];
    char numbers[PG_PARAMETERS_MAX][24];
};

/* The parameters, in their order. What they point to is borrowed until it was asked. */
void question_add_expected(struct question *question);
void question_add_number(struct question *question, int64_t number);
void question_add_bool(struct question *question, bool yes);
void question_add_text(struct question *question, const char *text);
void question_add_bytes(struct question *question, const void *bytes, size_t size);
/* All of it as one text that takes no parameters and is one transaction, READ COMMITTED whatever the default is; free it. NULL: out of
 * memory. */
char *question_isolated(const struct question *question);

/* Columns of a row; false: it is not there, NULL, or something else. */
bool answer_number(const PGresult *answer, int row, int column, int64_t *ret_number);
const char *answer_text(const PGresult *answer, int row, int column); /* "" if NULL */
/* The bytes that a hexadecimal column stands for; free them. A NUL is behind them. NULL: malformed, or out of memory. */
char *answer_hex(const PGresult *answer, int row, int column, size_t max, size_t *ret_size);

/* ---- pool.c ---------------------------------------------------------------------------------- */

/* HF_OK: ret_answer has at least one row, or the statement reads; PQclear it. HF_EUNREACH: nothing was done. HF_EUNKNOWN: it may
 * have been. What the server refuses is another error. HF_ESTORE: the server is another incarnation than expected, and nothing was done. */
int store_ask(struct engine_store *store, struct question *question, int64_t deadline_ms,
              PGresult **ret_answer, struct error_text *err);
/* The same, and again, once, where HF_ESTORE would be the answer. */
int store_ask_anyhow(struct engine_store *store, struct question *question, int64_t deadline_ms,
                     PGresult **ret_answer, struct error_text *err);
/* So that schema, incarnation and host are known. */
int store_reach(struct engine_store *store, int64_t deadline_ms, struct error_text *err);
/* Whoever waits for a connection looks whether it is interrupted. */
void pool_interrupt(struct engine_store *store);
/* A connection is one to the store: it has said who is there, and that counts. */
int pool_settle(struct engine_store *store, struct connection *conn, int64_t deadline_ms,
                struct error_text *err);
void pool_free(struct engine_store *store);
/* A connection has said who is there. */
bool store_note_incarnation(struct engine_store *store, const char *incarnation, uint32_t era);
/* How often that changed. */
uint32_t store_era(struct engine_store *store);

/* ---- errors.c -------------------------------------------------------------------------------- */

enum verdict {
    VERDICT_AGAIN,  /* nothing was done, and it may be asked again at once */
    VERDICT_BROKEN, /* this connection is of no use; it may have been done */
    VERDICT_UNDONE, /* nothing was done, and nothing can be done just now */
    VERDICT_FINAL   /* asking again would change nothing */
};
/* A standby, or one that an operator has set so: nothing was done. */
bool error_is_read_only(const PGresult *answer);
/* Of an answer that is an error. ret_code: with VERDICT_FINAL. The words are for all of them. */
enum verdict error_read(const struct engine_store *store, const PGresult *answer, int *ret_code,
                        struct error_text *err);
/* Of a connection that could not be made. HF_EUNREACH or HF_EREFUSED. */
int error_of_connection(const struct engine_store *store, const char *message,
                        struct error_text *err);

/* ---- schema.c -------------------------------------------------------------------------------- */

/* Finds the tables over a new connection, or makes them; fills store->names and store->texts the first time. ret_incarnation: of this
 * server. */
int schema_settle(struct engine_store *store, struct connection *conn, int64_t deadline_ms,
                  char ret_incarnation[PG_INCARNATION_MAX + 1], struct error_text *err);
/* Is it what the functions of the store make of an incarnation? Whoever may write to the _meta table may have put anything there. */
bool schema_is_incarnation(const char *text);
void schema_free(struct engine_store *store);

/* ---- sightings.c ----------------------------------------------------------------------------- */

struct sighting {
    int64_t id, beat, span_ms;
    int64_t since_ms; /* clock_boot_ms; of this process, or as noted by another one of this host */
    bool noted;       /* in the database, for this host */
    bool handed;      /* as dead, with this beat, and it is there still */
};

struct sightings;
struct sightings *sightings_new(void);
void sightings_free(struct sightings *sightings);
void sightings_clear(struct sightings *sightings, uint32_t era);
/* id, beat, span in ms, and when this host noted it, as it is in the database, or -1. */
#define SIGHTING_NUMBERS 4
/* An answer that had arrived at arrived_ms, to what was asked in this era, showed this. Gives back what is known of it then. */
void sightings_note(struct engine_store *store, uint32_t era, int64_t arrived_ms,
                    const int64_t shown[SIGHTING_NUMBERS], struct sighting *ret_sighting);
/* The same of many, all numbers in one text. The list is the caller's: free it. -1: out of memory, or malformed. */
int sightings_read(struct engine_store *store, uint32_t era, int64_t arrived_ms, const char *text,
                   struct sighting **ret_list);
/* The same, for who has looked before, and saw that. */
int sightings_again(struct engine_store *store, uint32_t era, int64_t arrived_ms, const char *text,
                    const struct sighting *before, int before_count, struct sighting **ret_list);
/* Those that are dead if a statement is sent now, as two arrays in the database's words. Returns how many; ret_next_ms: when the next
 * one will be, or CLOCK_NEVER. */
int sightings_dead(const struct sighting *list, int count, int64_t now_ms, struct text *ids,
                   struct text *beats, int64_t *ret_next_ms);
/* Those were handed in with a statement. */
void sightings_hand_in(struct sighting *list, int count, int64_t now_ms);
/* Are there some among them that were not? Of the others a statement would remove none, either: a transaction has them locked. */
bool sightings_dead_anew(const struct sighting *list, int count, int64_t now_ms);
/* Those that this host has not noted yet, likewise. */
int sightings_unnoted(struct engine_store *store, const struct sighting *list, int count,
                      struct text *ids, struct text *beats, struct text *times);
/* clock_boot_ms as it is in the database: the kernel's own, whatever the time namespace. */
int64_t store_kernel_ms(const struct engine_store *store, int64_t boot_ms);
/* What notes of this host are found by: of the kernel's boot, and the incarnation. */
void store_host(struct engine_store *store, char ret_host[PG_HOST_MAX]);

/* ---- claims.c -------------------------------------------------------------------------------- */

/* A name as it is in the database: the key of a once-record has a zero byte before it. */
struct key {
    char bytes[HF_NAME_MAX + 2];
    size_t size;
};
void key_of(const char *name, bool once, struct key *ret_key);

/* claim->private */
struct pg_claim {
    struct engine_claim *claim;
    struct list node; /* of store->listening; the mutex's */
    _Atomic bool listens;
    bool observes; /* constant; the claim's own mode is not, where it is adopted */
    struct key key;
    unsigned char lease[32]; /* its SHA-256 */
    _Atomic int64_t id;      /* in the database, as far as is known; 0: not */
    _Atomic int64_t beat;    /* likewise, by the last answer */
    _Atomic uint32_t era;    /* of the store, when it got that */
    _Atomic bool queued;     /* it has a place, as far as we know */
    bool unsure;             /* an answer was lost: it may still arrive there */
    _Atomic int64_t beat_ms; /* when the last statement was sent that raised its beat */
    struct sighting *ahead;  /* who is in the way, by the last answer */
    int ahead_count, ahead_before;
    uint32_t ahead_era;
    int64_t next_ms;  /* when the next of them will be dead */
    int64_t asked_ms; /* when the last attempt was answered */
    int64_t look_ms;  /* the next pause, where nobody tells us */
    uint32_t seen;    /* the bell when the last attempt began */
    _Atomic uint32_t bell;
    /* listener.c. The mutex's. */
    uint64_t serial; /* of its being listed; never used again */
    int64_t listed_ms;
    int64_t renew_ms; /* of an observer: when its place is to be renewed */
    bool suspect;     /* a hold with this id was broken, which may be another name's */
};

struct pg_claim *claim_private(struct engine_store *store, struct engine_claim *claim);
int pg_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err);
int pg_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err);
int pg_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err);
void pg_dispose(struct engine_store *store, struct engine_claim *claim);

/* ---- waiting.c, renewing.c ------------------------------------------------------------------- */

int pg_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
            struct error_text *err);
void pg_wake(struct engine_store *store, struct engine_claim *claim);
int pg_observe(struct engine_store *store, struct engine_claim *claim, struct error_text *err);
int pg_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
             int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);

/* ---- listener.c ------------------------------------------------------------------------------ */

/* From here on it is told: a waiter that it can go, a holder that it was broken, an observer of changes. */
void listener_add(struct engine_store *store, struct pg_claim *own);
/* When it returns, the claim is not told any more; an observer's place is removed soon. */
void listener_drop(struct engine_store *store, struct pg_claim *own);
/* Will those who wait be told? */
bool listener_hears(struct engine_store *store);
/* The server is another one, or does not answer: what the listener has may be of no more use. */
void listener_doubt(struct engine_store *store);
void listener_stop(struct engine_store *store);

/* ---- notifications.c --------------------------------------------------------------------------- */

/* Tells those here whom it concerns what has come in. *test: set to 0 if that number was among it. False: the connection is over. */
bool notifications_take(struct engine_store *store, PGconn *pg, const char *channel,
                        uint64_t *test);
/* Observers, and those who wait, are to look by themselves: something may have been missed. */
void notifications_tell_all(struct engine_store *store, bool waiters);
/* With the mutex: tells a claim what has come in for it before it was listed, or while it was not. True: it was broken, as it seems. */
bool notifications_catch_up(struct engine_store *store, struct pg_claim *own, bool listens_now);
/* Where nothing is heard: somebody here has let go of it, so the first who waits for it here looks at once. */
void notifications_hand_over(struct engine_store *store, const struct key *key);
/* With the mutex: the claim that was listed as this one was broken by an operator, if it is listed still. */
void notifications_tell_broken(struct engine_store *store, uint64_t serial);

/* ---- breaks.c ---------------------------------------------------------------------------------- */

/* Of all that are held: what a break, or a floor, has ended before somebody listened is told now. By the listener, without the mutex. */
void breaks_look(struct engine_store *store);
/* The same of those whose id was told of: broken, or removed with that. */
void breaks_look_at_suspects(struct engine_store *store);
/* Those that are gone, as a renewal says, and that an operator has broken are told so. */
void breaks_explain(struct engine_store *store, struct engine_claim *const *claims, int count,
                    const int64_t *left_ms, int64_t deadline_ms);

/* ---- observers.c: for the listener ----------------------------------------------------------- */

/* Makes or renews a place that is due. False: none is. */
bool observers_renew_one(struct engine_store *store, int64_t now_ms);
/* With the mutex: its place is to be removed, */
void observers_leave(struct engine_store *store, struct pg_claim *own);
/* and here all of those are. */
void observers_let_leave(struct engine_store *store, int64_t deadline_ms);
void observers_free(struct engine_store *store);

/* ---- once.c, queries.c ----------------------------------------------------------------------- */

/* code 3 or 4 of acquire: ENGINE_DONE or ENGINE_DIED with the claim's record, or 0: it has been kept long enough, and *ret_forget is its
 * token. */
int once_answer(struct engine_store *store, struct pg_claim *own, const PGresult *answer,
                uint32_t era, int64_t arrived_ms, int64_t *ret_forget, struct error_text *err);
int pg_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
              size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err);
int pg_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                 int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);
/* Writes down for this host what of the list it has not noted. Nobody minds if that fails. */
void note_seen(struct engine_store *store, uint32_t era, const struct key *key,
               const struct sighting *list, int count);
/* Removes those of the list that are dead, as was seen in this era, and a record (0: none), for whoever only asks. 1: it did; 0: there was nothing. */
int sweep_dead(struct engine_store *store, uint32_t era, const struct key *key,
               const struct sighting *list, int count, int64_t forget, int64_t deadline_ms,
               struct error_text *err);

/* Removes whoever is dead of this name; 0: nobody is, and what was seen is noted. */
int sweep_name(struct engine_store *store, const struct key *key, int64_t deadline_ms);
int show_key(struct engine_store *store, const struct key *key, const char *name,
             const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err);
int pg_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms, struct error_text *err);
int pg_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err);
int pg_list(struct engine_store *store, const char *match, bool all, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err);
int pg_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
             int64_t deadline_ms, struct error_text *err);
int pg_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
             struct error_text *err);
/* Asks which incarnation is there, so that another one is noted: one row is read, however many names there are. */
void floor_look(struct engine_store *store, int64_t deadline_ms);
int pg_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
             struct engine_floor *ret_floor, struct error_text *err);

/* ---- leftovers.c ------------------------------------------------------------------------------ */

/* Now and then: removes, or notes, some of what nobody may ask for any more. */
void leftovers_look(struct engine_store *store);

/* ---- row.c ----------------------------------------------------------------------------------- */

extern const struct engine pg_row_engine;
void row_stop(struct engine_store *store);

/* ---- open.c ---------------------------------------------------------------------------------- */

enum listen_kind { LISTEN_HERE, LISTEN_ELSEWHERE, LISTEN_OFF };

/* Parameters of a connection, as libpq takes them; both end with NULL. */
struct parameters {
    char *keywords[PG_KEYWORDS_MAX + 1];
    char *values[PG_KEYWORDS_MAX + 1];
    int count;
};

int pg_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
            char *ret_where, struct error_text *err);
void pg_close(struct engine_store *store);
void pg_in_effect(struct engine_store *store, hf_store_info *ret_info);
/* In words where the locks live. names: as the URL has them, or as they were found. */
void pg_say_where(const struct engine_store *store, const struct pgnames *names,
                  char ret_where[HF_URL_MAX + 1]);
/* Once: libpq's lock is one that the child of a fork can use. */
void pg_survive_forks(void);
void pg_after_fork(struct engine_store *store);

/* ---- the store ------------------------------------------------------------------------------- */

struct engine_store {
    /* Constant. */
    const struct engine_host *host;
    struct parameters parameters;
    struct parameters listen_parameters; /* with LISTEN_ELSEWHERE */
    enum listen_kind listen;
    struct pgnames wanted; /* as the URL has it */
    struct bootclock bootclock;
    char shown[256];  /* host and port for people */
    char advice[192]; /* the command that prints its tables */
    bool row;         /* ?mode=row */
    int64_t timeout_ms;
    _Atomic unsigned first_host; /* of several: the one that served last */
    _Atomic uint32_t doubts;     /* how often the listener's connection was doubted */
    bool forked;

    _Atomic int sockets[PG_SOCKETS_MAX]; /* -1: none; for after_fork */
    struct sightings *sightings;         /* has a mutex of its own */

    pthread_mutex_t
        telling; /* held while the host is told who is there: of two, the later is told last */
    pthread_mutex_t mutex; /* of all below; never held while somebody waits for a server */
    pthread_cond_t freed;  /* a connection was given back, or somebody is interrupted */
    struct list idle;
    int connections;            /* idle and in use */
    struct pgnames names;       /* with the schema */
    char where[HF_URL_MAX + 1]; /* with that, in words */
    char *texts[STATEMENT_COUNT];
    char statement_names[STATEMENT_COUNT]
                        [PG_STATEMENT_NAME_MAX + 1]; /* what they are prepared as */
    _Atomic bool settled;                            /* names and texts are there, and constant */
    _Atomic bool unprepared; /* a prepared statement was not there, or had become another one */
    _Atomic bool
        isolates; /* a statement was refused because of the role's default isolation level */
    _Atomic bool
        pooled; /* a pooler was between here and the server, when a connection was made last */
    char incarnation[PG_INCARNATION_MAX + 1];
    _Atomic uint32_t era;

    /* listener.c */
    struct list listening;
    struct list leaving; /* places of observers that have ended */
    uint64_t serials;
    int64_t news[PG_NEWS_MAX];
    uint32_t news_count;
    bool listener_runs, listener_sleeps, stop, warned;
    bool suspects; /* one of those that are listed is */
    pthread_t listener;
    int bell_fd; /* an eventfd that wakes it; -1: none */
    _Atomic bool hears;
    _Atomic bool unlistened; /* the URL of listen= could not be used the last time */
    _Atomic bool
        outdated; /* the functions there are older than ours, which was told, and lack some */

    /* row.c */
    struct list rows; /* claims that hold */
    bool watcher_runs;
    pthread_t watcher;
};

#endif
