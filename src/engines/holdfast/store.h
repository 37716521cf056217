/* store.h: what the files of the holdfast engine share.
 *
 *     open.c       from a URL to servers, and what is said to each of them first
 *     pipeline.c   the one connection of a handle: questions out, answers in, in their order
 *     ask.c        one question: sent, waited for, given up
 *     pending.c    which answers are owed, and to whom
 *     io_thread.c  the thread behind it: has the connection made, and listens while nobody asks
 *     discovery.c  finding the server that leads
 *     waiting.c    who waits for a push, and who observes
 *     claims.c     taking and giving up
 *     renew.c      keeping: what is asked, and what a late answer means
 *     once.c       the same of once-records, and what becomes of them
 *     queries.c    asking about locks, and the operator's ways out
 *     decode.c     what SHOW and LOCKS answer
 *     cluster.c    asking about the servers themselves, and changing who they are
 *     backup.c     a backup of what the leader has
 *     errors.c     what errors mean
 *
 * All of them share one mutex, the store's. It is held while bytes are sent, answers are looked at
 * and claims are nudged, none of which waits; never while somebody sleeps, polls or dials. */
#ifndef ENGINES_HOLDFAST_STORE_H
#define ENGINES_HOLDFAST_STORE_H

#include "base/list.h"
#include "engines/engine.h"
#include "net/link.h"

#include <pthread.h>
#include <stdatomic.h>

#define HOLDFAST_PORT "7420"
#define HOLDFAST_SERVERS_MAX 16
#define HOLDFAST_PROBES_MAX (2 * HOLDFAST_SERVERS_MAX)
#define HOLDFAST_PREFIX_MAX (HF_NAME_MAX - 1)
#define HOLDFAST_CLUSTER 32 /* characters of a cluster's id */
#define HOLDFAST_TIMEOUT_MS 3000
#define HOLDFAST_TIMEOUT_MIN_MS 50
#define HOLDFAST_TIMEOUT_MAX_MS 60000
#define HOLDFAST_RENEW_MAX 4096 /* leases in one RENEW, as the server allows */

#define WAITING_BUCKETS 512

/* ---- questions ------------------------------------------------------------------------------- */

#define CALL_OPEN 1 /* result, until it is known */

/* One question: so many commands, sent together and answered in order. It is on the stack of the
 * thread that asks. */
struct call {
    const char *request;
    size_t size;
    int replies;
    /* Asked again, on the next connection, if an answer is lost: whoever sets this has made sure
     * that asking twice does no harm. */
    bool repeatable;
    bool grants;         /* an answer that is lost leaves a hold in doubt */
    bool reads;          /* it changes nothing, so its outcome is never in doubt */
    bool anyone;         /* may be asked of a server that does not lead */
    bool slow;           /* that it takes its time gives no reason to doubt the server */
    int64_t patience_ms; /* how long its answer may take, if that is more than the URL's timeout */
    /* These with the mutex held. NULL, or makes what takes its answers when its asker gives up while they are due; where it
     * returns NULL they are dropped. */
    struct call *(*leave)(struct call *call);
    /* NULL, or: does its asker know enough by now, to give up at once? */
    bool (*enough)(const struct call *call);
    /* Of what `leave` has made, for which nobody waits: called when its answers are here, or will not come; frees it. */
    void (*over)(struct call *call);
    bool aside; /* nobody waits for it, so nobody would read for it; gets errors as answers, too */
    void *context;
    /* Each answer that is not an error, from 0 on, on any thread, with the mutex held; after a
     * repetition from 0 on again. The value lives during the call. */
    void (*on_reply)(void *context, int index, const struct resp_node *value);
    struct call **shown; /* or NULL: says that this call is under way, for pipeline_interrupt */
    const _Atomic bool
        *interrupted; /* or NULL: with it, whoever asks does not want to know any more */

    /* The wire's. */
    struct list node;        /* among those not sent */
    _Atomic uint32_t wakeup; /* a futex, rung when there is something to look at */
    bool sleeps;             /* on it */
    bool sent;
    bool again;       /* it was sent before, and is to be sent once more */
    int64_t since_ms; /* since when it is to be sent */
    int64_t until_ms; /* until when its asker waits */
    int answered;
    bool elsewhere; /* this server could not serve it, and has done nothing */
    bool lost;      /* an answer to it, so that what is asked now may be done already */
    int refused;    /* what the first error means, or HF_OK */
    int result;
    struct error_text err;
};

/* Sent, and not answered yet. */
struct pending {
    struct call *call; /* NULL: nobody waits for these answers any more */
    int left;          /* answers */
    int64_t sent_ms;
};

/* The order in which answers come: a ring that grows. */
struct pendings {
    struct pending *at;
    size_t first, count, capacity;
};

/* ---- those who are told ---------------------------------------------------------------------- */

/* A claim that waits in a queue, or observes. */
struct waiting {
    struct list node;
    struct engine_claim *claim;
    bool listed;
    /* Nothing is under way for it: if the connection was lost, it has to be told to ask again. */
    _Atomic bool idle;
    /* Of a once-record: what was pushed. ENGINE_DONE or ENGINE_DIED, or 0. The mutex's. */
    int told;
    struct engine_record record;
};

/* claim->private */
struct holdfast_claim {
    struct waiting waiting;
    struct list held;  /* among those that are told when they are lost; the mutex's */
    bool drawn;        /* the lease is our own; else it was adopted */
    bool unsure;       /* an answer was lost, so an acquisition may still arrive there */
    struct call *call; /* an acquisition under way; the mutex's */
    struct {
        struct list
            parts; /* answers that are due, and that nobody waits for any more; the mutex's */
        bool made; /* there was one */
        bool gone; /* one of them says that the lease is; the mutex's */
        int64_t until_ms; /* that it lasts until then at least; 0: nothing; the mutex's */
    } late;
};

/* ---- the store ------------------------------------------------------------------------------- */

enum probe_state {
    PROBE_IDLE,       /* to be sent out */
    PROBE_CONNECTING, /* and shaking hands */
    PROBE_ASKING,     /* its server does not lead, and was asked who does */
    PROBE_RESTING,    /* until it asks again */
    PROBE_FAILED      /* not sent out again in this round */
};

/* A connection that is tried, and where to; discovery.c tells how. */
struct probe {
    struct list node;
    struct engine_store *store;
    struct address at;
    struct turns *turns; /* of it: the store's, where it is in the URL, or else its own */
    struct turns own_turns;
    struct link_handshake handshake;
    struct link *link; /* NULL when it is home or back */
    int slot;          /* of it, in store->links */
    enum probe_state state;
    bool leads;
    bool refused;                       /* by its server, the last time */
    bool mute;                          /* it was let in, and nothing was said yet */
    int64_t since_ms;                   /* since when an answer is due */
    struct address told;                /* where its server sends us; shown[0] == 0: nowhere */
    struct address leader;              /* who leads, as its server says; shown[0] == 0: nobody */
    char cluster[HOLDFAST_CLUSTER + 1]; /* of its server, while it has a link; "": not known */
    bool unfounded;                     /* its server says that it belongs to none yet */
    int64_t node_id;                    /* of its server in that cluster; 0: not known */
};

/* Who has said why nobody serves. What tells most is kept: a node that cannot go on knows a reason, and what to do; one that only
 * has no leader does not, and one that is to be added yet has nothing to do with it. */
enum said {
    SAID_NOTHING,   /* nobody: a server could not be reached */
    SAID_WAITS,     /* a node that belongs to no cluster yet */
    SAID_NO_LEADER, /* a member that has no leader, or a server that refuses us */
    SAID_STRANGE, /* a server of another cluster: the URL is wrong, or its address was given to another one */
    SAID_SHUT_OUT, /* a node that the members do not let in: it has lost its data, or was removed */
    SAID_STOPPED,  /* a node that has stopped */
};

struct engine_store {
    /* Constant. */
    const struct engine_host *host;
    struct access access; /* its password is the I/O thread's: what its file says may change */
    char prefix[HOLDFAST_PREFIX_MAX + 1];
    char cluster[HOLDFAST_CLUSTER + 1]; /* the only one that is meant, or "" */
    size_t prefix_size;
    struct address servers[HOLDFAST_SERVERS_MAX];
    int server_count;
    int64_t timeout_ms; /* how long a server may be silent when it should say something */
    bool forked;

    pthread_mutex_t mutex; /* of all below */

    /* The connection. Whoever reads has `reading` to himself, and only he may close the link; the
     * others say that it is `doomed`, and poke him. */
    struct link *_Atomic link;
    /* All that probes have, this one too, for after_fork: each is there before it is used, and not any more when it is closed. */
    struct link *_Atomic links[HOLDFAST_PROBES_MAX + 1];
    struct probe *found;             /* what the link was before */
    bool served;                     /* a leader has let us in at least once */
    char ours[HOLDFAST_CLUSTER + 1]; /* the cluster that we belong to; "": not known yet */
    const struct address *at;        /* of the link */
    bool has_others;                 /* there is another server to ask */
    bool reading;
    bool doomed;
    struct error_text doom;
    bool leaving;           /* the server serves no more: closed when what it owes is answered */
    enum said leaving_said; /* what it said of that: `doom` */
    bool doubt; /* the server owes an answer for so long that the others are asked who leads */
    int poke_fd;
    int64_t heard_ms;
    struct call naming; /* asks who is at the other end: the first question of each connection */
    struct pendings pending;
    int late_count; /* of those with an `over` */
    struct list unsent;

    /* io_thread.c */
    bool io_thread_runs, stop;
    pthread_t io_thread;
    _Atomic uint32_t io_wakeup;

    /* discovery.c */
    struct list probes;
    struct turns turns[HOLDFAST_SERVERS_MAX]; /* of the servers of the URL */
    int next_server;                          /* of the URL */
    int to_try;                               /* of them, in this round */
    int64_t next_ms;                          /* when the next is tried */
    int64_t round_ms;     /* when the next round begins; CLOCK_NEVER: one is under way */
    int64_t seeking_ms;   /* since when we look for who leads, and nobody has served us; 0: not */
    int losses;           /* connections lost since somebody served us */
    struct address moved; /* where the last one sent us; shown[0] == 0: nowhere */
    int refusal;          /* by a server, in this round, or HF_OK */
    struct error_text refusal_why;
    enum said said; /* whose word why_down is, */
    struct address said_at;
    struct error_text why_down;

    /* waiting.c */
    struct list waiting[WAITING_BUCKETS];   /* by lease */
    struct list observers[WAITING_BUCKETS]; /* by name */
    int attentive;                          /* how many of both */
    struct list held[WAITING_BUCKETS];      /* claims that hold, by lease */
    int holding;                            /* how many of these */
    bool watches;                           /* the I/O thread looks after them by itself */
};

/* ---- open.c ---------------------------------------------------------------------------------- */

/* What a probe says first, and makes of the answer. */
void holdfast_handshake(struct probe *probe);
int holdfast_open(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
                  char *ret_where, struct error_text *err);
void holdfast_close(struct engine_store *store);
/* HF_EINVAL: with the prefix it is longer than the server allows. */
int holdfast_check_name(const struct engine_store *store, const char *name, struct error_text *err);
/* The name as the server knows it. */
void holdfast_write_name(const struct engine_store *store, const char *name,
                         struct resp_writer *writer);

/* ---- clusters.c ------------------------------------------------------------------------------ */

/* Takes down which cluster it belongs to. HF_EREFUSED: this one is not meant by the URL. */
int cluster_on_handshake(struct probe *probe, const struct resp_node *reply,
                         struct error_text *err);
/* Is it of the cluster that we belong to? Else it is a stranger, or of none yet. */
bool cluster_may_serve(const struct probe *probe);
bool cluster_is_strange(const struct probe *probe);
bool cluster_is_none(const struct probe *probe);
void cluster_stranger_words(const struct probe *probe, struct error_text *ret_words);
/* It leads, and serves us from now on. */
void cluster_serves(struct engine_store *store, const struct probe *probe);

/* ---- pipeline.c ---------------------------------------------------------------------------------- */

/* With the mutex held. */

/* Sends a call that nobody sleeps for; it lives longer than the connection. */
void pipeline_ask_aside(struct engine_store *store, struct call *call);
/* Sends what nobody waits for. */
void pipeline_tell(struct engine_store *store, const struct resp_writer *writer, int replies);
bool pipeline_ready(const struct engine_store *store);
/* Sends what waited for a connection. */
void pipeline_send_all(struct engine_store *store);
/* Reads what has come, and does what follows from it. By the one who reads. */
void pipeline_pump(struct engine_store *store);
/* Sleeps, without the mutex, until there is something to read, somebody pokes, or until_ms. By the
 * one who reads. */
void pipeline_poll(struct engine_store *store, int64_t until_ms);
/* The connection is over. By the one who reads. */
void pipeline_drop(struct engine_store *store, const struct error_text *why);
/* What was not sent will not be. */
void pipeline_refuse_all(struct engine_store *store, int result, const struct error_text *why);
/* Until when the server has to say something, or is left; CLOCK_NEVER if nothing is due. */
int64_t pipeline_silent_until(const struct engine_store *store);
/* Until when whoever reads may sleep: as above, or until there is reason to doubt. */
int64_t pipeline_look_until(const struct engine_store *store);
/* Somebody else may have to read now. */
void pipeline_hand_on(struct engine_store *store);
/* The answers to it are no more waited for. */
void call_finish(struct call *call, int result);
/* Ends the sleep of whoever reads. */
void pipeline_poke(struct engine_store *store);
/* The connection is of no use. Only who reads may close it. */
void pipeline_doom(struct engine_store *store, const struct error_text *why);
/* By the one who reads, or where nobody does. */
void pipeline_end_if_doomed(struct engine_store *store);
/* What the clock says of a server that owes us something. */
void pipeline_look_at_clock(struct engine_store *store);

/* ---- ask.c ----------------------------------------------------------------------------------- */

/* HF_OK: all answers came, and none was an error. HF_EUNREACH: nothing of it was sent, or nothing
 * was done. HF_EUNKNOWN: it was sent, and an answer was lost; never for what only reads. Else what an
 * error of the server means. */
int pipeline_ask(struct engine_store *store, struct call *call, int64_t deadline_ms,
                 struct error_text *err);
/* Builds and asks at once. */
int pipeline_ask_written(struct engine_store *store, struct call *call, struct resp_writer *writer,
                         int64_t deadline_ms, struct error_text *err);

/* A call that was not sent yet ends here, with HF_EUNREACH; one that was, with HF_EUNKNOWN, if it is `interrupted`. */
void pipeline_interrupt(struct engine_store *store, struct call *const *shown);
/* Before the connection is closed: waits a moment for what the server owes. */
void pipeline_linger(struct engine_store *store);

/* ---- pending.c ------------------------------------------------------------------------------- */

/* The index-th that is owed; there is one. */
struct pending *pending_at(const struct pendings *pending, size_t index);
/* Makes room for one more. False: no memory. */
bool pending_room(struct pendings *pending);
void pending_add(struct pendings *pending, struct call *call, int replies); /* there is room */
void pending_remove_first(struct pendings *pending);
/* Its answers are still counted, and for `other`, or for nobody if that is NULL. */
void pending_leave(struct pendings *pending, const struct call *call, struct call *other);
/* Does anybody wait for one of them? */
bool pending_awaited(const struct pendings *pending);
void pendings_free(struct pendings *pending);
bool call_is_interrupted(const struct call *call);

/* ---- io_thread.c -------------------------------------------------------------------------------- */

/* With the mutex held: starts it if need be, and makes it look around. */
int io_thread_want(struct engine_store *store, struct error_text *err);
void io_thread_wakeup(struct engine_store *store);
/* Without. */
void io_thread_stop(struct engine_store *store);

/* ---- discovery.c -------------------------------------------------------------------------------- */

/* With the mutex held; all but lost and served by the I/O thread. */

/* Is there somebody to be found? */
bool discovery_wanted(const struct engine_store *store);
/* Takes the search a step further, and sleeps until the next one is due. Reads meanwhile. */
void discovery_step(struct engine_store *store);
/* The search is over. */
void discovery_stop(struct engine_store *store);
/* The connection with the server at that address is gone. said: because it said that it does not serve. */
void discovery_lost(struct engine_store *store, const struct address *at,
                    const struct error_text *why, enum said said);
void discovery_served(struct engine_store *store);
void probe_free(struct probe *probe); /* NULL is fine */

/* ---- waiting.c ------------------------------------------------------------------------------- */

void waiting_init(struct engine_store *store);
/* These take the mutex; adding or removing twice is harmless. */
void waiting_add(struct engine_store *store, struct waiting *waiting);
void waiting_remove(struct engine_store *store, struct waiting *waiting);
/* It gives up what it holds, or is of no use any more. */
void held_remove(struct engine_store *store, const struct engine_claim *claim);
/* With the mutex held. */
void waiting_push(struct engine_store *store, const struct resp_node *value);
/* The claim holds, and is told when it does not any more. */
void held_add(struct engine_store *store, struct engine_claim *claim);
/* On a fresh connection: observes anew, and has everybody look who may have missed something. */
void waiting_begin_again(struct engine_store *store);

/* ---- errors.c ------------------------------------------------------------------------------ */

int reply_error(const struct address *at, const struct resp_node *reply, struct error_text *err);
/* How much an error tells of why nobody serves. */
enum said reply_tells(const struct resp_node *reply);
/* Does it say that this server cannot serve now, and has done nothing? ret_moved: where to go
 * instead, if it says so; untouched otherwise. */
bool reply_is_elsewhere(const struct resp_node *reply, struct address *ret_moved);
/* Of several, whose trouble was not the only one: none of them has said anything. */
void add_all_servers(const struct engine_store *store, struct error_text *err);
/* No server was found, for so long; and what to do about it, unless it was a wait that has ended before. */
void not_reached_words(const struct engine_store *store, int64_t lasted_ms,
                       struct error_text *ret_why);

/* ---- claims.c -------------------------------------------------------------------------------- */

int holdfast_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                     struct error_text *err);
void holdfast_wake(struct engine_store *store, struct engine_claim *claim);
int holdfast_observe(struct engine_store *store, struct engine_claim *claim,
                     struct error_text *err);
int holdfast_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                     struct error_text *err);
int holdfast_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                     struct error_text *err);
void holdfast_dispose(struct engine_store *store, struct engine_claim *claim);
/* What is ours of it, made if need be; NULL: no memory. */
struct holdfast_claim *holdfast_private_of(struct engine_claim *claim);
/* END, after which its lease is remembered as ended. */
void claim_write_end(const struct engine_claim *claim, struct resp_writer *writer);

/* ---- renew.c --------------------------------------------------------------------------------- */

int holdfast_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);
void late_init(struct holdfast_claim *own);
/* Answers that are still due, and what came too late, concern it no more. Takes the mutex. Not beside holdfast_renew. */
void late_forget(struct engine_store *store, struct holdfast_claim *own);

/* ---- once.c ---------------------------------------------------------------------------------- */

void holdfast_once_write(const struct engine_store *store, const struct engine_claim *claim,
                         struct resp_writer *writer);
/* An answer to it other than nil and QUEUED: ENGINE_HELD, DONE or DIED, or HF_EINTERNAL, HF_ENOMEM. */
int holdfast_once_answer(struct engine_claim *claim, const struct resp_node *value);
/* With the mutex held: [done key lease token result], or [left key lease died token], or another push
 * that says nothing more. */
void holdfast_once_note_push(struct waiting *waiting, const struct resp_node *value);
/* What was pushed, if anything: then it becomes the claim's. */
int holdfast_once_take_pushed(struct engine_store *store, struct waiting *waiting);
int holdfast_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                    size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err);
int holdfast_once_read(struct engine_store *store, const char *key,
                       struct engine_record *ret_record, int64_t *ret_left_ms, int64_t deadline_ms,
                       struct error_text *err);

/* ---- queries.c ------------------------------------------------------------------------------- */

int holdfast_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
                struct error_text *err);
/* With the mutex held: what a fresh connection to the leader is asked first, and what is told to the
 * host. */
void holdfast_ask_name(struct engine_store *store);
int holdfast_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
                  int64_t deadline_ms, struct error_text *err);
int holdfast_list(struct engine_store *store, const char *match, bool all,
                  const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err);
int holdfast_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                   int64_t deadline_ms, struct error_text *err);
int holdfast_break(struct engine_store *store, const char *name, int64_t grace_ms,
                   uint32_t *ret_broken, struct error_text *err);
int holdfast_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                   struct engine_floor *ret_floor, struct error_text *err);

/* ---- decode.c ---------------------------------------------------------------------------------- */

/* The value behind a key of a map. */
const struct resp_node *map_value(const struct resp_node *map, const char *key);
/* It as a number; `otherwise` if it is none. */
int64_t map_number(const struct resp_node *map, const char *key, int64_t otherwise);
/* It as a text: cut if it is too long, and at a NUL, which no text of ours has. */
void map_text(const struct resp_node *map, const char *key, char *ret_text, size_t size);
/* A name with its holders and waiters, as SHOW and LOCKS give it. HF_EINTERNAL: it is not that. */
int decode_lock(const struct engine_store *store, const struct resp_node *lock,
                const struct engine_sink *sink);
/* Calls fn for the token of each who holds, at most the hundred that the server shows. */
void decode_holders(const struct resp_node *lock, void (*fn)(void *context, uint64_t token),
                    void *context);

/* ---- cluster.c ------------------------------------------------------------------------------- */

int holdfast_cluster_look(struct engine_store *store, bool of_leader,
                          const struct engine_cluster_sink *sink, int64_t deadline_ms,
                          struct error_text *err);
int holdfast_cluster_change(struct engine_store *store, enum engine_change change, uint64_t id,
                            const char *address, int64_t deadline_ms, struct error_text *err);

/* ---- backup.c -------------------------------------------------------------------------------- */

int holdfast_backup_begin(struct engine_store *store, char ret_id[17], int64_t deadline_ms,
                          struct error_text *err);
int holdfast_backup_piece(struct engine_store *store, const char *id, struct engine_piece *piece,
                          int64_t deadline_ms, struct error_text *err);

#endif
