/* store.h: what the files of the etcd engine share.
 *
 *     open.c       from a URL to endpoints
 *     gateway.c    requests to the JSON gateway: which endpoint, which token, what an answer is
 *     handles.c    libcurl's handles, and their sockets
 *     errors.c   what errors of the gateway mean
 *     body.c       JSON and base64, out and in
 *     keys.c       names to keys and back; what is in a value
 *     queue.c      the keys of one name, in their order: who holds, and whom a waiter waits for
 *     leases.c     granting and revoking
 *     txn.c        the transactions
 *     claims.c     taking and giving up
 *     renewing.c   keeping
 *     once.c       once-records
 *     listener.c   the thread behind the watches
 *     queries.c    asking about locks
 *     breaking.c   the operator's way out
 *
 * Why no lease is ever kept alive. A keep-alive is answered by whoever believes to lead: a leader that was stopped, and
 * does not know yet that another one was elected, says yes (etcd 12528); before 3.4.38 and 3.5.23 any says yes for a lease
 * that is revoked (20616); and before 3.4.31 and 3.5.13 a former leader can revoke leases that were kept alive elsewhere (15247). So a
 * renewal is two writes, which only a majority can acknowledge: a new lease is granted, and the key is moved to it by a
 * transaction that compares the key's last modification. The old lease, with no key left, runs out.
 *
 * Numbers of leases. Each is granted at most once, and a put with it is sent only after that was acknowledged. So a lease
 * that was revoked, or ran out, never comes back, and whatever was sent with it and arrives late does nothing. */
#ifndef ENGINES_ETCD_STORE_H
#define ENGINES_ETCD_STORE_H

#include "base/list.h"
#include "engines/engine.h"
#include "net/address.h"

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#define ETCD_PORT "2379"
#define ETCD_ENDPOINTS_MAX 16
#define ETCD_PREFIX "holdfast"
#define ETCD_PREFIX_MAX 256
#define ETCD_KEY_MAX (ETCD_PREFIX_MAX + 3 * HF_NAME_MAX + 64) /* a name may be percent-encoded */
#define ETCD_VALUE_MAX (HF_OWNER_MAX + 128)
#define ETCD_QUEUE_MAX 4096         /* keys of one name */
#define ETCD_ANSWER_MAX (32u << 20) /* bytes */
#define ETCD_EVENT_MAX (4u << 20)   /* bytes of one object of a watch */
#define ETCD_STREAMS_MAX 256 /* watches of one handle; who comes later looks every few seconds */
#define ETCD_SOCKETS_MAX (ETCD_STREAMS_MAX + 512)
#define ETCD_TIMEOUT_MS 2000
#define ETCD_TIMEOUT_MIN_MS 50
#define ETCD_TIMEOUT_MAX_MS 60000
#define ETCD_TOKEN_MAX 4096 /* of the server's authentication, not of a lock */
#define ETCD_LEASES_MAX 8   /* of one claim, that may be in use */
#define ETCD_RENEW_MAX 60   /* keys in one transaction; a server allows 128 operations */

/* ---- body.c ---------------------------------------------------------------------------------- */

/* A request as it is written; begin with {0}. `failed`: out of memory, and it says nothing. */
struct body {
    char *bytes;
    size_t size, room;
    bool failed;
};

void body_add(struct body *body, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* In base64, with quotes. */
void body_blob(struct body *body, const void *bytes, size_t size);
void body_free(struct body *body); /* may be used again */

/* Numbers of 64 bits come as strings, or as numbers; what is absent is 0. False: something else. */
bool json_number(const json_t *object, const char *key, int64_t *ret_number);
/* What is absent is empty. Free it; has a NUL behind it. NULL: not base64, larger than `max`, or out of memory. */
char *json_blob(const json_t *object, const char *key, size_t max, size_t *ret_size);

/* Cuts a stream into its objects. Begin with {0}. */
struct splitter {
    char *bytes;
    size_t size, room;
    size_t looked; /* so far */
    int depth;
    bool in_string, escaped;
};
/* Calls fn with each object that is whole. HF_EINTERNAL: no JSON, or an object too large. */
int splitter_feed(struct splitter *splitter, const char *bytes, size_t size,
                  void (*fn)(void *context, const char *object, size_t size), void *context);
void splitter_free(struct splitter *splitter);

/* ---- keys.c ---------------------------------------------------------------------------------- */

/* What all keys of a name begin with: "PREFIX/NAME/", or "PREFIX/%once/KEY/". */
struct place {
    char bytes[ETCD_KEY_MAX];
    size_t size;
};

#define ONCE_RESULT "!result" /* behind the place: what came out of a once-record */
#define ONCE_RUN "!run"       /* and who runs it, or died over it */

void place_of_name(const struct engine_store *store, const char *name, bool once,
                   struct place *ret_place);
/* The name in a key of PREFIX/NAME/TAIL. False: it is none of those. */
bool place_name_in(const struct engine_store *store, const char *key, size_t size,
                   char ret_name[HF_NAME_MAX + 1]);
/* The number in a claim's key: of the lease's digest, so that nobody learns the lease. */
int64_t key_number(const char *lease);

enum value_mode {
    VALUE_FOREIGN = 0, /* somebody else's key, such as etcdctl's: exclusive */
    VALUE_EXCLUSIVE = 'x',
    VALUE_SHARED = 's',
    VALUE_PERMIT = 'p',
    VALUE_BROKEN = 'b' /* by an operator: the name is withheld until the key's new lease runs out */
};

struct value {
    enum value_mode mode;
    uint32_t permits;
    int64_t ttl_ms;
    int64_t since_ms; /* by the wall clock; for people */
    char owner[HF_OWNER_MAX + 1];
};

void value_of_claim(const struct engine_claim *claim, struct value *ret_value);
size_t value_write(const struct value *value, char ret_bytes[ETCD_VALUE_MAX]);
void value_read(const char *bytes, size_t size, struct value *ret_value);
int value_hf_mode(const struct value *value);

/* ---- queue.c --------------------------------------------------------------------------------- */

struct member {
    char *key;
    size_t key_size;
    uint64_t create, mod;
    int64_t lease;
    struct value value;
};

/* A once-record's other keys. */
struct once_key {
    bool exists;
    char state;      /* 'd': done; 'r': it runs, or whoever ran it died */
    uint64_t token;  /* of whoever ran it */
    int64_t span_ms; /* to be kept, or that a death is to be known */
    int64_t since_ms;
    int64_t lease;
    char *bytes; /* what came out */
    size_t size;
};

struct queue {
    struct member *at; /* by their order in the queue */
    size_t count, room;
    int64_t revision; /* of the answer that it is from */
    struct once_key result, run;
};

/* Of an answer to a range. Begin with {0}; free it whatever the answer. */
int queue_read(const json_t *range, const struct place *place, struct queue *ret_queue,
               struct error_text *err);
int queue_add(struct queue *queue, const json_t *kv, struct error_text *err);
void queue_sort(struct queue *queue);
void queue_free(struct queue *queue);
/* -1: it is not there. */
int queue_find(const struct queue *queue, const char *key, size_t size);
bool queue_holds(const struct queue *queue, size_t index);
/* Would it, if it came last? */
bool queue_would_hold(const struct queue *queue, const struct value *value);
/* HF_EMODE: permits beside other modes, or another number of them. */
int queue_check_mode(const struct queue *queue, const struct engine_claim *claim,
                     struct error_text *err);
/* Whose end (or promotion: `puts`) makes it worth looking again. -1: the end of any of them. */
int queue_awaits(const struct queue *queue, size_t index, bool *ret_puts);
/* Is what runs according to `run` still alive? */
bool queue_runs(const struct queue *queue);

/* ---- gateway.c ------------------------------------------------------------------------------- */

struct endpoint {
    struct address address;
    char url[ADDRESS_TEXT_MAX + 16];
    _Atomic uint32_t failures; /* changes when a request found it failing: its watches move on */
    _Atomic bool known;        /* its version was looked at */
};

struct question {
    const char *path; /* "/v3/kv/txn" */
    const char *body;
    /* Asked again, also elsewhere, when an answer is lost: whoever sets it has made sure that it does no harm. */
    bool repeatable;
    bool reads; /* it changes nothing, so its outcome is never in doubt */
    const _Atomic bool *
        interrupted; /* or NULL: ends the search for a server that serves, and within about a second what one was asked */
    const char
        *absent;     /* or NULL: an error with these words is an answer, and *ret_answer is NULL */
    bool *ret_again; /* or NULL: set if it was asked again, after it may have been done */
};

/* HF_OK: ret_answer is the caller's (json_decref). HF_EUNREACH: nothing was done. HF_EUNKNOWN: it may have been. */
int gateway_ask(struct engine_store *store, const struct question *question, int64_t deadline_ms,
                json_t **ret_answer, struct error_text *err);

/* ---- handles.c ------------------------------------------------------------------------------- */

struct handle {
    struct list node;
    CURL *curl;
    int requests; /* sent by the present attempt */
};

/* NULL: no memory. Given back, it is whoever's next. */
struct handle *handle_take(struct engine_store *store);
void handle_give(struct engine_store *store, struct handle *handle);
int gateway_new(struct engine_store *store, struct error_text *err);
void gateway_free(struct engine_store *store);
/* Only async-signal-safe calls. */
void gateway_after_fork(struct engine_store *store);
/* What every handle needs: TLS, sockets that a fork closes. */
bool gateway_prepare(struct engine_store *store, CURL *curl);
/* The headers of a request to this store; NULL: out of memory. */
struct curl_slist *gateway_headers(struct engine_store *store, bool with_token);

/* ---- errors.c ------------------------------------------------------------------------------ */

enum verdict {
    VERDICT_ELSEWHERE, /* this server cannot serve now, and has done nothing */
    VERDICT_UNSURE,    /* the same, and it may have done it */
    VERDICT_FOREIGN,   /* likewise, and the words are not etcd's: a proxy whose servers are down */
    VERDICT_TOKEN,     /* our authentication has run out */
    VERDICT_FINAL      /* asking again would change nothing */
};

/* ret_code: with VERDICT_FINAL, the error. The words are for all of them. */
enum verdict etcd_error_read(const struct endpoint *at, long status, const char *bytes, size_t size,
                             const struct access *access, int *ret_code, struct error_text *err);
/* The message of an error of the gateway, "" if it has none. */
void etcd_error_message(const json_t *error, char *ret_text, size_t size);
/* In words, what a server of this version does wrong that matters here. False: nothing that is known. */
bool etcd_error_version(const char *version, char *ret_words, size_t size);

/* ---- leases.c -------------------------------------------------------------------------------- */

/* The lowest bit of a lease that several keys are bound to: whoever gives up one of them does not revoke it. */
#define LEASE_SHARED INT64_C(1)

/* wanted: 0 for any number. */
int lease_grant(struct engine_store *store, int64_t ttl_ms, int64_t wanted, bool shared,
                const _Atomic bool *interrupted, int64_t deadline_ms, int64_t *ret_lease,
                struct error_text *err);
/* ret_existed may be NULL; true also if we may have revoked it ourselves a moment ago. */
int lease_revoke(struct engine_store *store, int64_t lease, int64_t deadline_ms, bool *ret_existed,
                 struct error_text *err);
/* ret_left_ms, ret_granted_ms: -1 when it is not there. Either may be NULL. */
int lease_left(struct engine_store *store, int64_t lease, int64_t deadline_ms, int64_t *ret_left_ms,
               int64_t *ret_granted_ms, struct error_text *err);

/* ---- claims.c -------------------------------------------------------------------------------- */

/* claim->private */
struct etcd_claim {
    struct engine_claim *claim;
    struct place place;
    char key[ETCD_KEY_MAX];
    size_t key_size;
    uint64_t create, mod;   /* of the key, as far as is known; 0: not */
    uint64_t newest_before; /* store->newest when the key was created, or may have been */
    int64_t bound;          /* the lease that the key is bound to, as far as is known; 0: not */
    /* Leases of our own that a put may have been sent with, and that are not known to be over. */
    int64_t leases[ETCD_LEASES_MAX];
    int lease_count;
    bool unsure;       /* whether the key was moved to another lease: an answer was lost */
    int64_t run_lease; /* of a once-record's ONCE_RUN */
    struct watch *watch;
    _Atomic bool told;        /* by its watch */
    _Atomic bool interrupted; /* by wake */
};

struct etcd_claim *claim_private(struct engine_store *store, struct engine_claim *claim);
int etcd_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err);
void etcd_wake(struct engine_store *store, struct engine_claim *claim);
int etcd_observe(struct engine_store *store, struct engine_claim *claim, struct error_text *err);
int etcd_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err);
int etcd_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err);
void etcd_dispose(struct engine_store *store, struct engine_claim *claim);
/* The leases of a claim; its key goes with the one that it is bound to. */
int claim_note_lease(struct engine_store *store, struct etcd_claim *own, int64_t lease,
                     int64_t deadline_ms, struct error_text *err);
void claim_forget_lease(struct etcd_claim *own, int64_t lease);
int claim_revoke_all(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms,
                     struct error_text *err);
/* Those that the key is not bound to any more, as far as that can be done. */
void claim_revoke_others(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms);
/* The key is deleted if it is still the one that we know of, and `also` (operations, or NULL) is done with it. HF_ELOST: it is not. */
int claim_delete_key(struct engine_store *store, struct etcd_claim *own, const struct body *also,
                     int64_t deadline_ms, struct error_text *err);

/* ---- renewing.c ------------------------------------------------------------------------------ */

int etcd_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
               int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);

/* ---- txn.c ----------------------------------------------------------------------------------- */

/* All of these: HF_OK, and the keys of the place as they are then, by a majority's word. */

struct joining {
    const struct etcd_claim *own;
    int64_t lease;
    bool only_if_last; /* and nobody came after `newest` */
    uint64_t newest;
};
/* A write was acknowledged with it. */
void txn_note_revision(struct engine_store *store, uint64_t revision);
/* Creates the key. ret_done: by this, or by an earlier try within this call. */
int txn_join(struct engine_store *store, const struct joining *joining, int64_t deadline_ms,
             struct queue *ret_queue, bool *ret_done, struct error_text *err);
/* Moves the key, as last known, to another lease. */
int txn_bind(struct engine_store *store, const struct etcd_claim *own, int64_t lease,
             int64_t deadline_ms, struct queue *ret_queue, bool *ret_done, struct error_text *err);
/* Looks; through the log, because reads can be stale (etcd 20418). */
int txn_look(struct engine_store *store, const struct place *place, const _Atomic bool *interrupted,
             int64_t deadline_ms, struct queue *ret_queue, struct error_text *err);
/* Does what the operations say, if nobody has changed the key since. ret_again, or NULL: as a question's. HF_ELOST: a lease that
 * they name is over. */
int txn_if_unchanged(struct engine_store *store, const struct place *place, const char *key,
                     size_t key_size, uint64_t mod, const struct body *operations,
                     int64_t deadline_ms, struct queue *ret_queue, bool *ret_done, bool *ret_again,
                     struct error_text *err);
/* Operations for it. `tail` is behind the place. */
void txn_add_put(struct body *body, const char *key, size_t key_size, const char *bytes,
                 size_t size, int64_t lease);
void txn_add_delete(struct body *body, const char *key, size_t key_size);
void txn_add_tail_key(const struct place *place, const char *tail, char ret_key[ETCD_KEY_MAX],
                      size_t *ret_size);
void txn_add_compare_mod(struct body *body, const char *key, size_t key_size, uint64_t mod);
void txn_add_range(struct body *body, const struct place *place);
/* The answer to the operation of that number. */
const json_t *txn_response(const json_t *answer, size_t index, const char *kind);

/* ---- once.c ---------------------------------------------------------------------------------- */

/* What a look says of it: ENGINE_DONE or ENGINE_DIED with the claim's record, 0, or an error. */
int once_look(const struct queue *queue, struct engine_claim *claim, struct error_text *err);
/* The claim holds: says so in ONCE_RUN. HF_ELOST: it does not any more. */
int once_begin(struct engine_store *store, struct etcd_claim *own, const struct queue *queue,
               int64_t deadline_ms, struct error_text *err);
int once_release(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms,
                 struct error_text *err);
int etcd_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err);
int etcd_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);
/* Keeps ONCE_RUN as long as it has to be. */
void once_renew(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms);

/* ---- listener.c ------------------------------------------------------------------------------ */

enum watch_kind {
    WATCH_TURN,   /* of a waiter: for the end of whoever is before it */
    WATCH_HELD,   /* of a holder: for its own key */
    WATCH_OBSERVE /* of everything about a name */
};

int listener_new(struct engine_store *store, struct error_text *err);
void listener_free(struct engine_store *store);
/* Takes the place of the claim's watch before. requests: create_request objects, one after the other. Without memory or threads
 * there is none, and the client looks every few seconds. */
void listener_watch(struct engine_store *store, struct etcd_claim *own, enum watch_kind kind,
                    struct body *requests);
/* When it returns, the claim is not told any more. */
void listener_drop(struct engine_store *store, struct etcd_claim *own);
void listener_wake(struct engine_store *store);
/* A watch of one key, or (size 0) of all of the place. */
void watch_add_request(struct body *body, const struct place *place, const char *key, size_t size,
                       int64_t from_revision, bool puts);
/* The holder's watch, for a break. */
void watch_held(struct engine_store *store, struct etcd_claim *own);

/* ---- queries.c, breaking.c ------------------------------------------------------------------- */

int etcd_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
            struct error_text *err);
/* An answer came from this cluster. */
void etcd_note_cluster(struct engine_store *store, uint64_t cluster);
int etcd_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
              int64_t deadline_ms, struct error_text *err);
int etcd_list(struct engine_store *store, const char *match, bool all,
              const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err);
int etcd_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
               int64_t deadline_ms, struct error_text *err);
int etcd_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
               struct error_text *err);

/* ---- open.c ---------------------------------------------------------------------------------- */

int etcd_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
              char *ret_where, struct error_text *err);
void etcd_close(struct engine_store *store);

/* ---- the store ------------------------------------------------------------------------------- */

struct engine_store {
    /* Constant. */
    const struct engine_host *host;
    struct access access;
    char prefix[ETCD_PREFIX_MAX + 2]; /* with the '/' behind it, or "" */
    size_t prefix_size;
    struct endpoint endpoints[ETCD_ENDPOINTS_MAX];
    int endpoint_count;
    int64_t timeout_ms; /* how long a server may take to answer */
    bool forked;

    _Atomic int current;  /* the endpoint that is asked */
    _Atomic bool reached; /* some server has answered */
    _Atomic bool warned_of_no_users;
    _Atomic uint64_t cluster; /* who answered last; 0: nobody yet */
    _Atomic uint64_t newest;  /* the highest revision that a write was acknowledged with */
    _Atomic int sockets[ETCD_SOCKETS_MAX]; /* -1: none; for after_fork */

    pthread_mutex_t mutex; /* of all below; never held while somebody waits */
    struct list idle;      /* handles */
    char token[ETCD_TOKEN_MAX + 1];
    uint32_t tokens; /* how many there were */
    bool warned;

    /* listener.c */
    struct list watches;
    _Atomic bool listens;
    bool stop;
    pthread_t listener;
    CURLM *multi;
};

#endif
