/* store.h: what the files of the Redis engines share. redis.c, claims.c, listener.c and queries.c
 * are `redis:`; redlock*.c are `redlock:`, over the same nodes, keys and scripts. */
#ifndef ENGINES_REDIS_STORE_H
#define ENGINES_REDIS_STORE_H

#include "base/list.h"
#include "base/switches.h"
#include "engines/redis/node.h"
#include "engines/redis/scripts.h"
#include "net/exchange.h"

#define REDIS_PORT "6379"
#define REDIS_PREFIX "holdfast:"
#define REDIS_PREFIX_MAX 512
#define REDIS_DATABASES_MAX 65536
#define REDIS_NODES_MAX 15  /* of a Redlock */
#define REDIS_BATCH_MAX 256 /* commands sent in one go */

_Static_assert(REDIS_NODES_MAX <= EXCHANGE_CALLS_MAX, "a Redlock asks all its nodes at once");

struct listener;

struct engine_store {
    const struct engine_host *host;
    struct access access;
    char prefix[REDIS_PREFIX_MAX + 1];
    unsigned database;
    struct node nodes[REDIS_NODES_MAX];
    int node_count;
    bool forked;
    struct listener *listener; /* redis: only */
    int64_t timeout_ms;        /* redlock: only, of one node */
    int64_t min_uptime_ms;     /* redlock: only, a younger node has no vote */
    _Atomic bool warned_of_youth;
};

/* ---- open.c: URLs, the same for both */

int redis_open_nodes(struct url *url, const struct engine_host *host, bool many,
                     struct engine_store **ret_store, char *ret_where, struct error_text *err);
void redis_close_nodes(struct engine_store *store);
/* The key of a name may not be one of ours. */
int redis_check_key(const struct engine_store *store, const char *name, struct error_text *err);

/* ---- session.c: asking one node, or all at once */

/* One question: so many commands, the same to every node, or (`to` > 0) to the node `to` - 1. */
struct question {
    int to;
    /* Set where not all answers are waited for: a server that is not known to know this script gets
     * its text at once, because its "no such script" might come too late to be heard. */
    enum script_id text_first;
    int commands; /* at most REDIS_BATCH_MAX */
    void *context;
    void (*write)(void *context, int index, bool by_text, struct resp_writer *writer);
    /* Each answer that is not an error of the server. */
    void (*answer)(void *context, int node, int index, const struct resp_node *value);
    bool (*enough)(void *context); /* NULL: when all have answered */
    /* That a few have answered may be enough, but all should hear it: links that broke are made
     * again, and nodes that are still being connected to are waited for, until they are told. */
    bool tells_all;
    const _Atomic bool *interrupted; /* or NULL: ends it as its deadline would */
};

/* Links to all nodes, kept from question to question, so that a later one arrives behind an
 * earlier one that was not answered. */
struct session {
    struct engine_store *store;
    struct call calls[REDIS_NODES_MAX];
    int refused[REDIS_NODES_MAX]; /* of the last question: what an error reply meant, or HF_OK */
    /* Inside a question. */
    const struct question *question;
    int64_t asked_ms; /* 0: nothing yet, so there are no links either */
    int16_t again[REDIS_NODES_MAX][REDIS_BATCH_MAX]; /* commands sent once more, by their text */
    int again_count[REDIS_NODES_MAX];
};

void session_begin(struct session *session, struct engine_store *store);
void session_end(struct session *session);
/* What came of it is in calls[].result: HF_OK also when the server refused, see refused[]. */
void session_ask(struct session *session, const struct question *question, int64_t deadline_ms);
/* Within a question: how many nodes may still answer. */
int session_open(const struct session *session);
/* What came of one node's part, refusals included, with words. */
int session_result(const struct session *session, int node, struct error_text *err);

/* All of that for the one node of a Redis. */
int redis_ask(struct engine_store *store, const struct question *question, int64_t deadline_ms,
              struct error_text *err);

/* ---- encode.c: what both stores say about a claim */

/* token 0: whichever it has. remember_ms: for how long a late acquisition is refused; 0: none can
 * come. */
void say_release(const struct engine_store *store, const struct engine_claim *claim, uint64_t token,
                 int64_t remember_ms, bool by_text, struct resp_writer *writer);
/* place: in the queue, "" for none. */
void say_abandon(const struct engine_store *store, const struct engine_claim *claim,
                 const char *place, int64_t remember_ms, bool by_text, struct resp_writer *writer);
void say_renew(const struct engine_store *store, const struct engine_claim *claim,
               const char *place, bool by_text, struct resp_writer *writer);
/* redis: only, of a once-record. */
void say_claim(const struct engine_store *store, const struct engine_claim *claim,
               const char *place, bool by_text, struct resp_writer *writer);

/* ---- claims.c: taking, keeping and giving up, on one server */

int redis_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                  struct error_text *err);
int redis_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
               struct error_text *err);
void redis_wake(struct engine_store *store, struct engine_claim *claim);
int redis_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                  struct error_text *err);
int redis_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                  struct error_text *err);
#define RELEASE_BROKEN \
    (-2) /* the script's answer: there is nothing to give up, an operator has ended it */
/* Says so of a release: ENGINE_ENDED if it was broken, or else HF_ELOST. */
int redis_is_lost(const struct engine_claim *claim, bool broken, struct error_text *err);
/* What the script of a renewal says besides what is left, and besides -1: somebody else holds it. */
#define RENEW_EMPTY (-2)  /* it is gone, and nobody holds the name */
#define RENEW_BROKEN (-3) /* it is gone, and the name is withheld after a break */
/* A renewal has found out. */
void redis_tell_broken(struct engine_store *store, struct engine_claim *claim);
int redis_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
                int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);
void redis_dispose(struct engine_store *store, struct engine_claim *claim);

/* ---- once.c: once-records, on one server; claiming them is in claims.c */

/* What a script answered about a record: ENGINE_DONE or ENGINE_DIED, or an error without words. */
int redis_once_answer(const struct resp_node *value, struct engine_record *ret_record);
int redis_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                 size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err);
int redis_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                    int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);

/* ---- queries.c: asking about locks, and the operator's ways out, on one server */

int redis_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
             struct error_text *err);
int redis_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
               int64_t deadline_ms, struct error_text *err);
int redis_list(struct engine_store *store, const char *match, bool all,
               const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err);
int redis_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                int64_t deadline_ms, struct error_text *err);
int redis_break(struct engine_store *store, const char *name, int64_t grace_ms,
                uint32_t *ret_broken, struct error_text *err);
int redis_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                struct engine_floor *ret_floor, struct error_text *err);

/* ---- decode.c: what show.lua and SCAN answer, the same for both */

/* A row of show.lua, copied. */
struct row {
    char name[HF_NAME_MAX + 1];
    char lease[HF_LEASE_MAX * 2 + 1]; /* of another program's lock perhaps longer: cut */
    char owner[HF_OWNER_MAX + 1];
    bool waits, withheld;
    int mode;
    uint32_t permits;
    uint64_t token;
    int64_t age_ms, left_ms;
};
bool row_read(const struct resp_node *value, const char *name, struct row *ret_row);
int row_add(const struct row *row, const struct engine_sink *sink);

/* Names, without the prefix, growing; freed by names_free. */
struct names {
    char **names;
    size_t count, capacity;
};
bool names_add(struct names *names, const char *bytes, size_t size); /* false: out of memory */
void names_sort(struct names *names);                                /* and each only once */
void names_free(struct names *names);
#define SCAN_CURSOR_MAX 24
/* The context of a question for one page of names after the other, until the cursor is "0" again. */
struct scanning {
    const struct engine_store *store;
    struct names names;
    char cursor[SCAN_CURSOR_MAX]; /* "0" at the start */
    bool well;                    /* the last page was one, and there was memory for it */
};
void scan_write(void *context, int index, bool by_text, struct resp_writer *writer);
void scan_read(void *context, int node, int index, const struct resp_node *value);

/* ---- listener.c: the one connection that hears of releases and changes */

int listener_new(struct engine_store *store, const struct address *address, struct error_text *err);
void listener_free(struct engine_store *store); /* NULL is fine */
void listener_after_fork(struct engine_store *store);

/* Starts it if need be, and waits until it hears. False: not by then. */
bool listener_ready(struct engine_store *store, int64_t deadline_ms);
bool listener_hears(struct engine_store *store);
const char *listener_client(struct engine_store *store);

/* A claim that waits or observes. */
struct waiting {
    struct list node;
    struct engine_claim *claim;
    uint64_t number;       /* by which the scripts call it; 0: not added */
    _Atomic uint32_t bell; /* a futex; counts up with every nudge */
    bool observes, listed; /* listed: its channel is subscribed to */
};
void listener_add(struct engine_store *store, struct waiting *waiting);
void listener_remove(struct engine_store *store, struct waiting *waiting);

/* ---- redlock.c, redlock-voting.c, redlock-queries.c: the same over many servers */

struct redlock_claim {
    bool unsure; /* an answer was lost, so a vote may still arrive somewhere */
};

/* A majority. */
static inline int redlock_quorum(const struct engine_store *store)
{
    return store->node_count / 2 + (SWITCHED(SWITCH_REDLOCK_MINORITY) ? 0 : 1);
}

/* So many must have answered that no majority is left to say otherwise. */
static inline int redlock_blocking(const struct engine_store *store)
{
    return store->node_count - redlock_quorum(store) + 1;
}

/* For how long a grant is still good that took elapsed_ms to get: less the drift allowance. */
int64_t redlock_validity_ms(int64_t ttl_ms, int64_t elapsed_ms);

/* What to say when too few answered: HF_EUNKNOWN if something was sent to so many that it may have
 * taken effect, a refusal if they all refuse, HF_EINVAL if one of them is no Redis server, else HF_EUNREACH. */
int redlock_no_majority(const struct session *session, struct error_text *err);

/* `timeout` from now, or the deadline if that is sooner. */
int64_t redlock_deadline(const struct engine_store *store, int64_t deadline_ms);

int redlock_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                    struct error_text *err);
int redlock_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
               struct error_text *err);
int redlock_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
                 int64_t deadline_ms, struct error_text *err);
int redlock_list(struct engine_store *store, const char *match, bool all,
                 const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err);
int redlock_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                  int64_t deadline_ms, struct error_text *err);
int redlock_break(struct engine_store *store, const char *name, int64_t grace_ms,
                  uint32_t *ret_broken, struct error_text *err);
int redlock_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                  struct engine_floor *ret_floor, struct error_text *err);

#endif
