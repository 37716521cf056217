/* client.h: what the files of this room share. docs in the .c files; here the data and who guards
 * it.
 *
 * One store, up to four kinds of threads of ours, each started when first needed:
 *
 *     watchdog   looks at the clock: declares losses, says what is due. Never calls anything that
 *                can block, so that no slow store and no slow callback can make `lost` late
 *     renewer    calls engine->renew, which can block. Only on stores with a TTL
 *     callbacks  runs the user's callbacks when there is no hf_fd(). A thread of its own because a
 *                callback may call hf_acquire and stay there for an hour
 *     tasks      one per started operation or observer
 *
 * Locking. Three kinds of mutex, always taken in this order, and never the other way round:
 *
 *     stores (store.c) -> cancels (cancel.c) -> [an engine's own] -> hf_store.mutex
 *
 * hf_store.mutex is never held across a call into an engine or a callback: an engine may call
 * host.lost with locks of its own held. `cancels` may be held across engine->wake only.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/conf.h"
#include "base/error.h"
#include "base/failure.h"
#include "base/heap.h"
#include "base/list.h"
#include "engines/engine.h"

#include <holdfast/once.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- limits of this room --------------------------------------------------------------------- */

#define ATTEMPT_MS 5000 /* the longest a single request to a store may take */
#define FIRST_CONTACT_MS \
    2000 /* the same while the store was never reached, unless its URL allows more */
#define ATTEMPT_FLOOR_MS 1000 /* and the shortest useful one, even when the wait ends sooner */
#define SETTLE_MS 5000        /* for clean-up, counted from when clean-up begins */
#define SETTLE_PAUSE_MS 10    /* between two tries of it; doubles */
#define SETTLE_PAUSE_MS_MAX 500
#define SETTLE_TRIES 3
#define QUERY_MS 5000
#define ID_TRIES 3
#define LIST_MS 30000
#define RENEW_BATCH 256 /* renewed together, unless the engine says otherwise */
#define RENEW_BATCH_MAX 4096
#define RENEW_EARLY_MAX 1024 /* of these: for fewer, others come along before their time */
#define DISPATCH_MAX 1000    /* callbacks per hf_dispatch, so that a loop gets its turn */
#define TASK_STACK_BYTES (256 * 1024)
#define RANDOM_POOL_BYTES 1024
#define REPORT_ENTRIES_MAX (1u << 24)
#define WARNINGS_MAX 16 /* of each store that are told */

/* ---- cancelling ------------------------------------------------------------------------------ */

struct hf_cancel {
    _Atomic bool fired;
    struct list links; /* of struct waiter_link; guarded by the cancels mutex */
};

struct waiter;

struct waiter_link {
    struct list node;
    struct waiter *waiter;
};

#define WAITER_LINKS 3 /* the store's closing, the caller's, the operation's */

/* Somebody who sleeps: an acquisition or an observer. */
struct waiter {
    hf_store *store;
    struct engine_claim *claim; /* for engine->wake */
    _Atomic uint32_t word;      /* what it sleeps on: changes with every wake-up */
    _Atomic uint32_t nudges;    /* those that mean "try again now" */
    bool registered;            /* its own thread's: the links are in use */
    struct waiter_link links[WAITER_LINKS];
};

/* ---- callbacks ------------------------------------------------------------------------------- */

enum event_kind { EVENT_LOST, EVENT_DONE, EVENT_CHANGED };

/* Part of a lock, an operation or an observer: something to call back about. */
struct event {
    struct list node; /* in hf_store.events while queued */
    enum event_kind kind;
    bool queued;
};

/* ---- locks ----------------------------------------------------------------------------------- */

enum claim_state { /* the diagram is in claim.c */
                   CLAIM_ASKING,
                   CLAIM_QUEUED,
                   CLAIM_HELD,
                   CLAIM_LOST,
                   CLAIM_ENDING
};

/* What each renewal needs is together, at the beginning: with many locks that is what one costs. */
struct hf_lock {
    hf_store *store;

    /* When it is over, or NEVER; INT64_MIN once lost. Written under the mutex, read by anyone. */
    _Atomic int64_t end_ms;

    /* Guarded by the store's mutex. */
    int64_t valid_ms;     /* by the TTL; CLOCK_NEVER without */
    int64_t hold_ms;      /* by the maximum hold; CLOCK_NEVER without */
    int64_t stall_ms;     /* by want of reports, without a TTL; else CLOCK_NEVER */
    int64_t report_by_ms; /* after that nothing is renewed; CLOCK_NEVER without progress_ms */
    int64_t renew_ms;     /* the next renewal; CLOCK_NEVER without a TTL */
    int64_t retry_ms;     /* the pause after the next failed renewal */
    int64_t
        failing_ms; /* since when renewals fail, store->unrenewed says why; 0: the last one did not */
    int64_t asked_ms;         /* since when a renewal is under way; 0: none is */
    int64_t ending_ms;        /* when it is looked at in hf_store.ends */
    struct heap_node ending;  /* in hf_store.ends */
    struct heap_node renewal; /* in hf_store.renewals */
    enum claim_state state;
    bool busy;            /* an engine call on this claim is under way */
    bool gone;            /* the store said so while it was not yet held */
    bool stalled;         /* a renewal was due, and was not begun for want of a report */
    bool owes_release;    /* lost, and the store does not know: it must still be told */
    bool parked;          /* its acquisition was started, and `done` has not taken it out yet */
    int pins;             /* started renewals that still need it */
    int lost_fd;          /* -1 until somebody asks for it */
    int64_t progress_ms;  /* its owner must report that often; 0: need not */
    struct list node;     /* in hf_store.locks */
    struct list owe_node; /* in hf_store.owing */
    struct event event;
    char *why; /* it was lost; NULL: it was not, or there was no memory to say so */

    struct engine_claim claim;
    hf_lost_fn *on_lost; /* NULL from when the lock is given up; changed while no callback runs */
    void *arg;
    struct waiter waiter;
    hf_once *once; /* of a once-record's runner; freed with the lock */
    /* store->eras when we last knew that this store has it; its first attempt was made after that. */
    _Atomic uint32_t era;
    char lease[HF_LEASE_MAX + 1];
    char strings[]; /* name, owner */
};

/* What goes with the acquisition of a once-record, and what came of it if not a hold. */
struct once_terms {
    bool no_heir;
    int64_t death_ms;
    struct engine_record record; /* with ENGINE_DONE or ENGINE_DIED; its bytes are the caller's */
};

/* ---- once-records ---------------------------------------------------------------------------- */

/* An answer of hf_once_begin or hf_once_read. */
struct hf_once {
    hf_lock *lock; /* while this is to be run; then the lock owns us */
    int state;     /* of enum hf_once_state */
    struct engine_record record;
    int64_t left_ms; /* of an answer of hf_once_read; -1 when not known */
};

/* ---- observers ------------------------------------------------------------------------------- */

struct hf_observer {
    hf_store *store;
    struct engine_claim claim;
    struct waiter waiter;
    struct hf_cancel stop;
    hf_observer_fn *fn;
    void *arg;

    /* Guarded by the store's mutex. */
    struct list node; /* in hf_store.observers */
    struct event event;
    int refs;           /* the user's and its thread's */
    bool stopped;       /* by the user: the user's reference is gone */
    hf_report *pending; /* to be told */
    hf_report *told;    /* last */

    char lease[HF_LEASE_MAX + 1];
    char name[];
};

/* ---- stores ---------------------------------------------------------------------------------- */

struct hf_store {
    /* Constant after hf_open. */
    uint32_t generation; /* of fork: another one means that this is the child's useless copy */
    const struct engine *engine;
    struct engine_store *engine_store;
    struct engine_host host;
    hf_store_info info;
    char url[HF_URL_MAX + 1];
    char *full_url; /* with its password; NULL where the engine has no cluster. Wiped */
    char where[HF_URL_MAX + 1];
    char origin[CONF_PATH_MAX];
    char other_conf[CONF_PATH_MAX]; /* of the host; "": none */
    char need_from[CONF_PATH_MAX];  /* the client.conf that refuses best-effort stores; "": none */

    struct list node;         /* in the list of all stores; guarded by its mutex */
    struct hf_cancel closing; /* fired by hf_close */
    int renew_batch,
        renew_early; /* constant: how many locks are renewed together, and for how few others come along */

    /* reach.c. Written under the mutex, but for `reached`, which only ever becomes true. */
    _Atomic bool reached; /* some server of it answered, if only to say that it cannot serve */
    int64_t timeout_ms;   /* of its URL, constant; 0: it says none */
    _Atomic bool in_trouble;
    int64_t trouble_ms; /* since when */
    struct error_text trouble;
    struct error_text unrenewed; /* why the last renewal failed */

    pthread_mutex_t mutex;  /* guards all that follows */
    pthread_cond_t changed; /* broadcast when a claim stops being busy, a callback or a task ends */
    struct list locks;      /* every claim from before its first attempt */
    uint32_t claims;        /* so many */
    struct heap ends; /* those that the clock can end, by when it may; it may have become later */
    struct heap renewals;  /* those that are to be renewed, by when, and that nobody is busy with */
    uint64_t spread_state; /* of the numbers that renewals are spread by; 0: not drawn yet */
    struct list owing;     /* those with owes_release that a task must take up */
    int acquisitions;      /* under way: hf_close ends their waits, and waits for them */
    bool closed;           /* hf_close has begun: no new threads */
    int warnings;
    _Atomic bool owner_known;
    char owner[HF_OWNER_MAX + 1]; /* the default; constant once known */
    char id[65];                  /* the last one known; "" until needed */
    uint64_t connections;         /* made so far by the engine, as far as it says */
    uint64_t id_as_of;     /* `connections` when the id was asked for; another number: ask again */
    _Atomic bool id_stale; /* ask again */
    _Atomic uint32_t eras; /* how often it turned out to be another store */
    unsigned char random_pool[RANDOM_POOL_BYTES];
    size_t random_left;

    /* watchdog.c */
    bool watchdog_runs, renewer_runs, watch_stop, poll_wanted;
    bool renewer_waits;  /* for the watchdog to tell it that something is due */
    struct batch *batch; /* that the renewer is at; NULL: it was never started */
    pthread_t watchdog, renewer;
    int poke_fd, timer_fd;
    int64_t watch_next_ms; /* until when it sleeps */
    pthread_cond_t renew_due;

    /* events.c */
    struct list events;
    pthread_cond_t events_due;
    bool callbacks_run, events_stop;
    pthread_t callbacks;
    int dispatch_fd;       /* -1: callbacks have a thread */
    struct event *running; /* NULL: none */
    pthread_t runner;

    /* task.c, op.c, observe.c */
    struct list tasks, finished;
    struct list ops, observers;
    int op_count;
};

/* cluster.c */
/* Has it a cluster that could be waited for so long? HF_EINVAL, HF_ENOTSUP, and as store_check. */
int cluster_check(const hf_store *store, int64_t wait_ms, struct error_text *err);

/* server_url.c */
/* The URL of one of the servers by itself; false: there are not so many, or only one. It has the password that the store's has. */
bool cluster_server_url(const hf_store *store, size_t index, char ret_url[HF_URL_MAX + 1]);

/* store.c */
hf_store *store_new(void);
void store_free(hf_store *store);
/* From here on a fork knows of it. */
void store_register(hf_store *store);
int store_watch_forks(struct error_text *err);
bool store_forked(const hf_store *store);
/* Does it take somebody else's answer to get a lock there? */
bool store_has_server(const hf_store *store);
/* HF_OK, HF_EINVAL for NULL, HF_EFORK. */
int store_check(const hf_store *store, struct error_text *err);
/* The id of the store as it is now. */
int store_id(hf_store *store, char ret_id[65], struct error_text *err);
/* The id may be another one by now, because something is gone. With the mutex held or not. */
void store_forget_id(hf_store *store);
/* With the mutex held. */
void store_random(hf_store *store, void *ret_bytes, size_t size);
/* The default owner label. Without the mutex: may have to ask the user database. */
const char *store_owner(hf_store *store);

/* reach.c. Not with the mutex held. */
bool reach_known(const hf_store *store);
/* How long the URL says that it may take to reach the store, for the first time; 0: it does not, or the store was reached. */
int64_t reach_allowed(const hf_store *store);
/* How long a call may take: span_ms; as long as the store was never reached less, or what its URL allows. */
int64_t reach_span(const hf_store *store, int64_t span_ms);
/* Somebody answered, whatever it was. */
void reach_answered(hf_store *store);
/* The store does its work. */
void reach_recovered(hf_store *store);
void reach_failed(hf_store *store, const char *why);
/* What the outcome of an engine's call says about it; err as that call left it. */
void reach_note(hf_store *store, int outcome, const struct error_text *err);

/* cancel.c */
bool cancel_fired(const hf_cancel *cancel);
void cancel_init(hf_cancel *cancel);
void waiter_init(struct waiter *waiter, hf_store *store, struct engine_claim *claim);
/* Any of the cancels may be NULL. Look at cancel_fired() after this, not before. */
void waiter_register(struct waiter *waiter, hf_cancel *const cancels[WAITER_LINKS]);
/* When it returns, nobody calls engine->wake for this waiter any more. */
void waiter_unregister(struct waiter *waiter);
void waiter_nudge(struct waiter *waiter);
/* Makes it look around: engine->wake too, so not with the mutex held. */
void waiter_interrupt(struct waiter *waiter);
/* Sleeps until the word is no longer `seen`, or until_ms. True if it changed. */
bool waiter_sleep(struct waiter *waiter, uint32_t seen, int64_t until_ms);
/* Between two tries: a pause that doubles, up to SETTLE_PAUSE_MS_MAX. False: the deadline has passed. */
bool waiter_pause(struct waiter *waiter, int64_t *pause_ms, int64_t deadline_ms);
/* 50 to 100 % of span_ms. */
int64_t jitter_ms(int64_t span_ms);
void cancels_before_fork(void);
void cancels_after_fork(void);

/* options.c */
int options_read(hf_store *store, const hf_options *options, hf_options *ret_options,
                 struct error_text *err);
int once_options_read(hf_store *store, const hf_once_options *options, hf_options *ret_options,
                      struct once_terms *ret_terms, struct error_text *err);
int check_span(int64_t ms, const char *what, struct error_text *err);

/* claim.c */
hf_lock *claim_new(hf_store *store, const char *name, const hf_options *options,
                   struct error_text *err);
void claim_set_once(hf_lock *lock, const struct once_terms *terms);
/* Disposes of it and frees it. It must be out of reach of everybody else. */
void claim_free(hf_lock *lock);
/* The waiter that goes with an engine's claim, whether of a lock or of an observer. */
struct waiter *claim_waiter(struct engine_claim *claim);
/* A fresh lease, HF_LEASE_MAX + 1 bytes; with the mutex held. */
void claim_draw_lease(hf_store *store, char *ret_lease);
/* The right to call the engine on this claim, and giving it back. _locked: with the mutex held. */
void claim_enter(hf_lock *lock);
void claim_enter_locked(hf_lock *lock);
void claim_leave_locked(hf_lock *lock);
/* The same for one of many: who has left them all broadcasts `changed`. */
void claim_leave_quietly(hf_lock *lock);
/* With the mutex held. */
/* Into the list of the store's locks, with room to be watched. */
int claim_enlist(hf_lock *lock, struct error_text *err);
void claim_counts_from(hf_lock *lock, int64_t sent_ms, int64_t lasts_ms);
void claim_set_hold(hf_lock *lock, int64_t hold_ms);
/* As it is now: when it may end, and when it is to be renewed. */
void claim_watch(hf_lock *lock);
void claim_unwatch(hf_lock *lock);
/* Its owner has made progress. */
void claim_reported(hf_lock *lock, int64_t now_ms);
/* No report came in time: it is not renewed. */
bool claim_is_silent(const hf_lock *lock, int64_t now_ms);
enum loss { LOSS_EXPIRED, LOSS_TOLD, LOSS_MAX_HOLD, LOSS_STALLED };
void claim_lost(hf_lock *lock, enum loss loss, const char *why);
/* Since when it could not be renewed, and why; 0: nothing is known of that. */
int64_t claim_unrenewed(const hf_lock *lock, int64_t now_ms, struct error_text *ret_why);
/* Declares what the clock says now. True while it is held. */
bool claim_look_at_clock(hf_lock *lock, int64_t now_ms);
/* The caller gives the lock up: from here on nobody is told anything of it. First an on_lost that runs on
 * another thread is waited for, which lets the mutex go; claim_silence does not. */
void claim_await_callback(hf_lock *lock);
void claim_silence(hf_lock *lock);
/* `done` hands it out: on_lost may be told, also of what happened before. */
void claim_unpark(hf_lock *lock);
/* Takes the lock out of everybody's reach; waits for who is busy with it. */
void claim_withdraw(hf_lock *lock);
int claim_renew(hf_lock *lock, int64_t deadline_ms, struct error_text *err);

/* acquire.c: also_cancel may be NULL. `options` went through options_read. With `terms` the name is a
 * once-record's key, and the answer may be ENGINE_DONE or ENGINE_DIED, with the record in them; without
 * (NULL) that of a lock. */
int acquire_run(hf_store *store, const char *name, const hf_options *options,
                struct once_terms *terms, hf_cancel *also_cancel, struct error_text *err,
                hf_lock **ret_lock);
bool is_transient(int result);

/* lock.c. deadline_ms CLOCK_NEVER: SETTLE_MS from when the lock is free to be released. */
int lock_release(hf_lock *lock, int64_t deadline_ms, struct error_text *err);
int lock_renew(hf_lock *lock, struct error_text *err);
/* Of a once-record that we run; frees the lock, like lock_release. HF_ESTALE: it was lost. */
int lock_finish(hf_lock *lock, const void *bytes, size_t size, int64_t keep_ms,
                struct error_text *err);
/* Frees the lock and leaves the hold to run out. */
void lock_leave(hf_lock *lock);
/* Releases without making this thread wait for the store, if it can be helped. */
void lock_release_aside(hf_lock *lock);
/* Tells the store what a lock owes that is past its maximum, or stalled. The caller has made it busy; this ends that. */
void lock_pay(void *lock);

/* watchdog.c. All but poke and stop with the mutex held. */
int watchdog_start(hf_store *store, bool renews, struct error_text *err);
void watchdog_schedule(hf_store *store, int64_t when_ms);
void watchdog_wants_poll(hf_store *store);
void watchdog_stop(hf_store *store);
/* Tests that shift the clock: look at it again. */
void watchdog_poke(hf_store *store);

/* events.c. All but join with the mutex held. */
int events_start(hf_store *store, struct error_text *err);
void events_post(hf_store *store, struct event *event);
void events_drop(struct event *event);
/* Is its callback running now, on another thread than this one? */
bool events_runs_elsewhere(const hf_store *store, const struct event *event);
/* Called from within its callback: the object is about to be freed. */
void events_forget(hf_store *store, const struct event *event);
/* No callback begins after this; then waits for the one that is running. */
void events_close(hf_store *store);
void events_join(hf_store *store);
int thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *), void *arg,
                 const char *name);

/* task.c: a counted thread that hf_close waits for. */
int task_start_locked(hf_store *store, void (*run)(void *), void *arg, struct error_text *err);
int task_start(hf_store *store, void (*run)(void *), void *arg, struct error_text *err);
void tasks_reap(hf_store *store);
void tasks_join(hf_store *store);
void tasks_free_forked(hf_store *store);

/* op.c, observe.c: the user's part of an event; called without the mutex. */
void op_run_event(struct event *event);
void op_free_all(hf_store *store, bool forked);
void observer_run_event(hf_store *store, struct event *event);
void observer_free_all(hf_store *store, bool forked);

/* report.c */
hf_report *report_new(void);
hf_report *report_ref(hf_report *report);
int report_add(hf_report *report, const hf_entry *entry, struct error_text *err);
void report_sort_by_name(hf_report *report);
void report_sort_by_kind(hf_report *report);
/* Whether both hold the same (token, owner) pairs. Reports of holders, in the order of tokens. */
bool report_same_holders(const hf_report *a, const hf_report *b);

/* once.c */
int once_run(hf_store *store, const char *key, const hf_options *options, struct once_terms *terms,
             hf_cancel *also_cancel, struct error_text *err, hf_once **ret_once);
int query_once(hf_store *store, const char *key, struct error_text *err, hf_once **ret_once);
int once_check_finish(const hf_once *once, const void *bytes, size_t size, int64_t keep_ms,
                      struct error_text *err);
/* Memory only: the lock, if there is one, is left alone. */
void once_drop(hf_once *once);

/* query.c */
int query_show(hf_store *store, const char *name, bool holders_only, struct error_text *err,
               hf_report **ret_report);
int query_list(hf_store *store, const char *match, bool all, struct error_text *err,
               hf_report **ret_report);
int query_check(hf_store *store, const char *name, uint64_t token, struct error_text *err);
/* The same, and how it is held. */
int query_mode(hf_store *store, const char *name, uint64_t token, int *ret_mode,
               struct error_text *err);
int query_break(hf_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
                struct error_text *err);
int list_options_read(const hf_list_options *options, hf_list_options *ret_options,
                      struct error_text *err);

#endif
