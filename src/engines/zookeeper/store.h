/* store.h: what the files of the ZooKeeper engine share. docs/zookeeper-store.md draws its nodes.
 *
 * Threads. Each session has two of the library's: one does its I/O, the other calls our completions and watchers. Those
 * take the store's mutex for a moment, never wait for anything, and never close a session. What an engine's function waits
 * for, it waits for itself, with its own deadline: the library's synchronous calls have none.
 *
 * Time. What a session promises is worked out in sessions.c. */
#ifndef ENGINES_ZOOKEEPER_STORE_H
#define ENGINES_ZOOKEEPER_STORE_H

#include "base/list.h"
#include "engines/engine.h"
#include "net/address.h"

#include <pthread.h>
#include <stdatomic.h>
#include <zookeeper/zookeeper.h>

#define ZK_PORT "2181"
#define ZK_SERVERS_MAX 32
#define ZK_THREADS 2          /* that the library makes for a session */
#define ZK_THREAD_NAME_MAX 16 /* the kernel's limit */
#define ZK_ROOT_MAX 512
#define ZK_ID_BYTES 16                   /* of a lease's digest, in the name of a node */
#define ZK_ID_SIZE (2 * ZK_ID_BYTES + 1) /* in hex */
#define ZK_CHILD_MAX 512 /* bytes in the name of a contender, with its NUL; ours have fewer */
/* Root, and name with every byte encoded. */
#define ZK_PARENT_MAX (ZK_ROOT_MAX + 3 * HF_NAME_MAX + 4)
#define ZK_PATH_MAX (ZK_PARENT_MAX + ZK_CHILD_MAX + 4)
#define ZK_TOUCHES 16 /* remembered */
#define ZK_BATCH_MAX 128
#define ZK_ALLOWANCE_MAX_MS 1000 /* sessions.c says what for */
#define ZK_TOUCH_PART 8          /* likewise */
#define ZK_STALL_MS 700          /* without an answer, until another server is tried */

/* Whose names the contenders have. */
enum zk_names { ZK_NAMES_OURS, ZK_NAMES_KAZOO, ZK_NAMES_CURATOR };

struct engine_store {
    /* Constant after open. */
    const struct engine_host *host;
    struct access access;
    char hosts[HF_URL_MAX + 1];                              /* host:port,host:port... */
    char library_hosts[HF_URL_MAX + HOSTPORT_HOST_MAX + 16]; /* the same, for the library */
    struct address *addresses;
    int address_count;
    char root[ZK_ROOT_MAX + 1]; /* "", or with a '/' at its begin and none at its end */
    enum zk_names names;

    bool forked;
    pthread_mutex_t opening; /* held while a session is made; before the mutex */
    pthread_mutex_t
        mutex; /* guards all that follows, and all of the sessions and claims that says so */
    struct list sessions;
    struct list claims;
    uint64_t last_number;
    _Atomic uint32_t bell; /* a futex; counts up when a session changes its state */
};

/* ---- sessions.c */

struct call;

enum zk_state { ZK_CONNECTING, ZK_CONNECTED, ZK_DEAD };

/* One session with ZooKeeper, from its beginning to its end: never revived. */
struct session {
    struct list node; /* in store->sessions */
    struct engine_store *store;
    zhandle_t *handle;
    int64_t asked_ms;
    int64_t made_ms;
    /* Of the library's threads for it; descriptors.c says what for. */
    char thread_name[ZK_THREAD_NAME_MAX];
    pid_t threads[ZK_THREADS]; /* constant, once they */
    _Atomic bool threads_known;
    _Atomic bool maker_ended; /* the thread that made them, and has their name */

    /* Guarded by the mutex. */
    int refs; /* claims and calls under way that may use it */
    enum zk_state state;
    bool was_connected;
    int64_t timeout_ms;             /* as negotiated; 0 until then */
    int64_t allowance_ms;           /* see sessions.c */
    int64_t connect_ms;             /* not after the handshake of the present connection */
    int64_t touches_ms[ZK_TOUCHES]; /* when requests were sent that were answered, oldest first */
    int touch_count;
    int64_t connected_ms; /* when we heard of the present connection, */
    int64_t broken_ms;    /* or that there is none */
    uint32_t connections; /* how many there have been; the number of the present one */
    /* Of which connection: */
    uint32_t closed_on_exec; /* it is known not to be inherited */
    uint32_t waited_for;     /* somebody has waited for it to show itself */
    uint32_t ended;          /* we have ended it */
    int stalls;              /* connections in a row that were ended because nothing was answered */
    int64_t touch_sent_ms;   /* the last that process() sent */
    int64_t id;
    int result;            /* once it is dead: of who wanted to use it, */
    struct error_text why; /* and why */
    struct list calls;     /* sent and not completed */
    struct list debts;     /* nodes that are to be deleted, when that can be done */
};

int session_make(struct engine_store *store, int64_t asked_ms, struct error_text *err);
/* For how long after `since_ms` the nodes of a session last at least, if a write that was sent then was acknowledged. */
int64_t session_lasts_ms(struct session *session, int64_t since_ms);
/* A request that was sent then has been answered. With the mutex. */
void session_touched(struct session *session, int64_t sent_ms);
/* For how long a request may go unanswered until the connection is given up for another server. */
int64_t session_patience_ms(struct session *session);
/* Gives up the connection on which it was sent, unless it has been done before. */
void session_unstall(struct session *session, const struct call *call);
/* It has no connection, perhaps because one is being made to a server that has stopped. */
void session_hurry(struct session *session);
/* Closes those that nobody needs: dead ones, what lost a race, and the oldest of too many. Not with the mutex. */
void sessions_reap(struct engine_store *store);
void sessions_close(struct engine_store *store);

/* ---- descriptors.c */

/* Gives the thread that calls it a name of this session's, which the threads that it makes inherit. */
void descriptors_name_thread(struct session *session);
/* Finds those, from the same thread. */
void descriptors_find_threads(struct session *session);
/* Keeps the connection, and what else the library has for this session, from the programs that the process runs. may_wait:
 * for some ms. Not with the mutex. */
void descriptors_close_on_exec(struct session *session, bool may_wait);
/* A descriptor of our own of its connection, to be closed; -1: there is none, or it is not known. Waits for some ms. Not
 * with the mutex. */
int descriptors_connection(struct session *session);

/* ---- probe.c */

/* In words, why no session begins. Takes a moment. False: nobody takes
 * connections, or only what is no ZooKeeper server. */
bool probe_servers(struct engine_store *store, struct error_text *ret_why);

/* ---- pool.c */

/* A session that is connected, and long enough for ttl_ms; with a reference. HF_EUNREACH: none by then. HF_EINVAL: the
 * server does not allow so long a session. */
int session_get(struct engine_store *store, int64_t ttl_ms, int64_t deadline_ms,
                struct session **ret_session, struct error_text *err);
/* One that is connected, however long it is: for questions. */
int session_for_query(struct engine_store *store, int64_t deadline_ms, struct session **ret_session,
                      struct error_text *err);
int64_t session_allowance_ms(struct session *session);
void session_unref(struct session *session); /* NULL is fine */
/* Waits until it is connected. HF_ELOST: it is dead. */
int session_await(struct session *session, int64_t deadline_ms, struct error_text *err);
bool session_is_dead(struct session *session);
/* A server that does not answer may be stopped, which the library notices later. With the mutex. */
bool session_is_stalled(const struct session *session);
/* Sends what keeps sessions alive in the eyes of the leader, and pays debts. Returns when to call it again. */
int64_t sessions_process(struct engine_store *store);

/* ---- calls.c: a request and its answer */

struct call {
    struct list node; /* in session->calls */
    struct session *session;
    _Atomic int refs;      /* who waits, and the library */
    _Atomic uint32_t done; /* a futex */
    int64_t sent_ms;
    /* Called by the library's thread before it is done; may be NULL. */
    void (*then)(struct call *call);
    void *context;

    /* The answer, once it is done. */
    int rc;     /* of enum ZOO_ERRORS */
    char *text; /* of a create: the path; of a get: the data, with a NUL behind */
    size_t size;
    struct Stat stat;
    struct String_vector names; /* of a list */
    zoo_op_t *ops;
    zoo_op_result_t *results;
    int op_count;
};

/* Each sends one request. NULL, with an error in ret_result, if nothing was sent: HF_EUNREACH when not connected. `then` is
 * for who does not wait: the call is ended after it. number: of the watch to set, 0 for none. */
struct call *call_create(struct session *session, const char *path, const void *data, size_t size,
                         int mode, int *ret_result, struct error_text *err);
struct call *call_delete(struct session *session, const char *path, int32_t version,
                         int *ret_result, struct error_text *err);
struct call *call_get(struct session *session, const char *path, uint64_t number, int *ret_result,
                      struct error_text *err);
/* The one whose watch also tells that the node was made. */
struct call *call_exists(struct session *session, const char *path, uint64_t number,
                         int *ret_result, struct error_text *err);
struct call *call_set(struct session *session, const char *path, const void *data, size_t size,
                      int32_t version, int *ret_result, struct error_text *err);
struct call *call_list(struct session *session, const char *path, uint64_t number, int *ret_result,
                       struct error_text *err);
struct call *call_sync(struct session *session, const char *path, int *ret_result,
                       struct error_text *err);
/* A write that changes nothing: it is committed by a majority, and only if all these nodes have these versions (-1: any).
 * The paths are borrowed until it is done. */
struct call *call_check(struct session *session, const char *const *paths, const int32_t *versions,
                        int count, int *ret_result, struct error_text *err);
/* Waits for the answer. HF_OK: there is one, in rc; errors that mean the same for all requests have become words:
 * HF_EUNKNOWN (the answer was lost), HF_EUNREACH (it was not carried out), HF_EREFUSED, HF_ELOST (the session is over). */
int call_await(struct call *call, int64_t deadline_ms, struct error_text *err);
/* From now on, what this thread waits for ends soon when this becomes true, as at a deadline; NULL: no more. */
void zk_heed(const _Atomic bool *interrupted);
bool zk_interrupted(void);
/* Until when it may sleep: until_ms, or a moment. */
int64_t zk_look_ms(int64_t until_ms);
void call_end(struct call *call); /* NULL is fine */
/* What to do with the answer instead of waiting for it. Takes the call. */
void call_leave(struct call *call, void (*then)(struct call *call), void *context);
/* An answer that does not fit what was asked. */
int call_unexpected(const struct call *call, const char *path, struct error_text *err);
/* Of a session that has been closed. */
void calls_drop(struct session *session);

/* ---- contenders.c: nodes in the queue of a name. Pure. */

struct contender {
    char *name; /* borrowed */
    int mode;
    uint32_t permits;
    int32_t sequence;
    const char *id; /* in the name; ZK_ID_SIZE - 1 bytes, or NULL for somebody else's */
};

/* False: not the name of one. */
bool contender_parse(enum zk_names names, char *name, struct contender *ret);
/* The name without the sequence that ZooKeeper adds. */
void contender_name(enum zk_names names, int mode, uint32_t permits, const char *id,
                    char ret_name[ZK_CHILD_MAX]);
void contenders_sort(struct contender *contenders, int count);

enum zk_verdict {
    ZK_HOLDS,
    ZK_WAITS,         /* for `watch` to go */
    ZK_WAITS_CHANGES, /* for any change among the contenders */
    ZK_MISFITS        /* the name is in use in the mode of the first contender */
};
enum zk_verdict contenders_judge(const struct contender *contenders, int count, int own,
                                 int *ret_watch);

/* A list of a name's contenders, in order. */
struct queue {
    struct contender *contenders;
    int count;
    const char *foreign; /* the name of some other node, or NULL; borrowed */
};
/* Out of memory: false. The names stay with the list. */
bool queue_read(enum zk_names names, const struct String_vector *list, struct queue *ret_queue);
void queue_free(struct queue *queue);
int queue_find(const struct queue *queue, const char *id); /* -1: not there */

/* ---- claims.c */

enum zk_place {
    ZK_NO_PLACE,
    ZK_UNSURE, /* a create was sent, and its answer was lost */
    ZK_PLACED,
    ZK_GONE /* its node is known to be deleted */
};

struct zk_claim {
    struct list node; /* in store->claims */
    struct engine_claim *claim;
    uint64_t number; /* by which watches call it */
    char id[ZK_ID_SIZE];
    char parent[ZK_PARENT_MAX];
    _Atomic uint32_t bell; /* a futex; counts up with every reason to look again */

    uint32_t heard; /* the bell when it last looked */
    uint64_t seen;  /* of an observer: what the holders were */

    /* Guarded by the mutex; changed by calls on this claim only, but for `told` and `expired`. */
    struct session *session; /* with a reference; NULL before there is one */
    enum zk_place place;
    char path[ZK_PATH_MAX]; /* of the node */
    uint64_t token;
    int32_t version;   /* of its data, -1: not known, because an answer was lost */
    bool queued;       /* it was not granted at first */
    bool held;         /* to be told when its node goes */
    bool deleting;     /* a delete was sent, and its answer was lost */
    bool broken;       /* a release has found it so */
    bool busy;         /* an attempt or a renewal is under way: not the time to expire */
    bool told;         /* that it is lost */
    bool expired;      /* nobody has renewed it, and its node is being deleted */
    int64_t proved_ms; /* when the last write was sent that proved it alive */
};

int zk_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err);
int zk_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err);
int zk_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err);
void zk_dispose(struct engine_store *store, struct engine_claim *claim);
/* Not with the mutex. */
void claim_set_place(struct zk_claim *own, enum zk_place place);

/* ---- renewing.c */

int zk_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
             int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);
/* Deletes the nodes of claims that nobody renews. */
void claims_expire(struct engine_store *store);

/* ---- debts.c: nodes that nobody waits for to be deleted */

/* Of a claim that is disposed of. path "": not known, to be found by its id. Best effort: without memory it ends with
 * the session. */
void debt_add(struct session *session, const char *parent, const char *id, const char *path);
/* Not with the mutex. */
void debts_pay(struct session *session);
void debts_drop(struct session *session);
/* A node of a claim that is not renewed any more. Not with the mutex. */
void debt_expire(struct session *session, const char *path);

/* ---- waiting.c */

/* What a watch is for; with the claim's number in the library's context. */
enum zk_watch { ZK_WATCH_QUEUE, ZK_WATCH_OWN };
uint64_t watch_number(const struct zk_claim *own, enum zk_watch watch);
void watch_fired(zhandle_t *handle, int type, int state, const char *path, void *context);
int zk_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
            struct error_text *err);
void zk_wake(struct engine_store *store, struct engine_claim *claim);
/* A session is over: tells its claims. With the mutex, which is let go meanwhile. */
void waiting_session_over(struct session *session, const char *why);
/* A private part for a claim. NULL: no memory. */
struct zk_claim *zk_claim_of(struct engine_store *store, struct engine_claim *claim);

/* ---- open.c */

int zk_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
            char *ret_where, struct error_text *err);
void zk_close(struct engine_store *store);
const struct ACL_vector *zk_acl(const struct engine_store *store);
/* ROOT/NAME, encoded. */
void zk_parent_path(const struct engine_store *store, const char *name,
                    char ret_path[ZK_PARENT_MAX]);
/* A contender's. */
void zk_child_path(const char *parent, const char *child, char ret_path[ZK_PATH_MAX]);
/* Makes the parent of contenders, and what is above it. */
int zk_make_parent(struct session *session, const char *name, int64_t deadline_ms,
                   struct error_text *err);
/* Makes the root, and what is above it. */
int zk_make_root(struct session *session, int64_t deadline_ms, struct error_text *err);

/* ---- queries.c */

int zk_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms, struct error_text *err);
int zk_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err);
int zk_list(struct engine_store *store, const char *match, bool all, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err);
int zk_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
             int64_t deadline_ms, struct error_text *err);
/* What a node of ours says. */
#define ZK_DATA_MAX (HF_OWNER_MAX + 64)
struct zk_record {
    bool ours, broken;
    int64_t ttl_ms;
    char owner[HF_OWNER_MAX + 1];
};
size_t record_write(int64_t ttl_ms, bool broken, const char *owner, char ret_data[ZK_DATA_MAX]);
void record_read(const char *data, size_t size, struct zk_record *ret_record);

struct row {
    const struct contender *contender;
    bool there, holds;
    struct Stat stat;
    struct zk_record record;
};

/* All contenders of a name, in order, with what they say. */
struct rows {
    struct call *list;
    struct queue queue;
    struct row *rows;
};

/* A list that is not older than this call. by_write: not even than what some majority has ever answered. */
int rows_ask(struct engine_store *store, const char *name, bool by_write, struct rows *ret_rows,
             int64_t deadline_ms, struct error_text *err);
void rows_free(struct rows *rows);

/* Asks by some session, and again by another one if that breaks or stalls. Only for what may be asked twice. */
typedef int session_question(struct session *session, void *context, int64_t deadline_ms,
                             struct error_text *err);
int session_ask(struct engine_store *store, session_question *question, void *context,
                int64_t deadline_ms, struct error_text *err);

/* ---- breaking.c */

int zk_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
             struct error_text *err);

#endif
