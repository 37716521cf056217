/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast.h: locks that can be trusted, over any store.
 *
 *     hf_store *store;
 *     hf_lock *lock;
 *     if (hf_open(NULL, &store) != HF_OK) die(hf_error());
 *     if (hf_acquire(store, "nightly", NULL, &lock) != HF_OK) die(hf_error());
 *     write_with_fence(hf_lock_token(lock), ...);
 *     hf_release(lock);
 *     hf_close(store);
 *
 * Results. Every call that can fail returns HF_OK (0) or one negative HF_E... of the list below,
 * and hf_error() then says in words what happened. Outputs are written on success only. An
 * acquisition ends in one of three ways, never two: held (HF_OK), not held (HF_EBUSY, HF_ECANCELED
 * and every other error), or HF_EUNKNOWN: the store may or may not have given the lock, and could
 * not be asked. What was perhaps given then ends by itself, at the latest with its TTL.
 *
 * Threads. Every function may be called from any thread at any time, on any store. A lock belongs
 * to whoever holds the pointer: hf_release and hf_lock_detach consume it, so call them once, with
 * no other call on that lock under way. hf_close must be the last call on its store.
 *
 * Callbacks (lost, done, changed) run on a thread of the library, one at a time per store, and may
 * call anything but hf_close. A program with an event loop of its own calls hf_fd() before anything
 * else, watches that descriptor, and calls hf_dispatch() when it is readable: callbacks then run
 * only inside hf_dispatch().
 *
 * Fork. In the child of a fork every call on the parent's stores and locks answers HF_EFORK, and
 * the child's copies of lock descriptors are closed, so the child can neither use nor keep alive
 * what the parent holds. hf_close and hf_release in the child only free memory. hf_lock_pass_fd()
 * is the way to hand a lock to a child on purpose.
 *
 * Warnings. The library writes nothing to standard error; hf_set_warning_handler() hears what it would say there. (libpq does, of a
 * password file that others may read.)
 *
 * Signals. The library installs no handler, blocks all signals in its threads, never raises
 * SIGPIPE.
 *
 * Growing. Option structs begin with their size; fields are only ever added at the end. Initialise
 * them with their _INIT macro.
 */
#ifndef HOLDFAST_HOLDFAST_H
#define HOLDFAST_HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_API __attribute__((visibility("default")))

/* ---- limits ---------------------------------------------------------------------------------- */

#define HF_NAME_MAX 512                        /* bytes of a name, any but NUL, at least 1 */
#define HF_LEASE_MAX 64                        /* bytes of a lease id */
#define HF_OWNER_MAX 128                       /* bytes of an owner label */
#define HF_URL_MAX 2048                        /* bytes of a store URL */
#define HF_TOKEN_MAX ((UINT64_C(1) << 53) - 1) /* exact in JSON, JavaScript, Lua, BIGINT */
#define HF_TTL_MIN_MS INT64_C(100)
#define HF_TTL_MAX_MS INT64_C(86400000) /* 24 h */
#define HF_TTL_DEFAULT_MS INT64_C(30000)
#define HF_DURATION_MAX_MS INT64_C(31622400000) /* a year: waits, holds, delays */
#define HF_PERMITS_MAX 1024
#define HF_SEQUENCER_MAX 2048  /* bytes of a sequencer, with its NUL */
#define HF_OPS_MAX 4096        /* started operations at once, per store */
#define HF_FOREVER INT64_C(-1) /* wait_ms: as long as it takes */
#define HF_UNLIMITED INT64_MAX /* left_ms: this store has no TTL */

/* ---- results --------------------------------------------------------------------------------- */

enum hf_result {
    HF_OK = 0,
    HF_EBUSY = -1,      /* not acquired (in time): no hold, and no place in the queue */
    HF_EUNKNOWN = -2,   /* may or may not have taken effect, and the store could not be asked */
    HF_ELOST = -3,      /* the hold is over: ran out, was broken, or passed its maximum */
    HF_ECANCELED = -4,  /* cancelled by the caller: no hold, and no place in the queue */
    HF_EINVAL = -5,     /* an argument, option or URL that cannot be */
    HF_EMODE = -6,      /* the name is in use in another mode or with another number of permits */
    HF_ENOTSUP = -7,    /* this store does not have that feature */
    HF_EWEAK = -8,      /* need_strict, and this store is best effort */
    HF_EREFUSED = -9,   /* refused by the store: permissions, password, limits, unsafe directory */
    HF_EUNREACH = -10,  /* the store cannot be reached; nothing was done */
    HF_EIO = -11,       /* the disk is full or failing; nothing was granted */
    HF_ENOMEM = -12,    /* out of memory, threads or descriptors */
    HF_EFORK = -13,     /* this store or lock belongs to the parent process */
    HF_EMODULE = -14,   /* the store's module is not installed, or does not fit */
    HF_ESTORE = -15,    /* a sequencer of another store */
    HF_EINTERNAL = -16, /* our fault */
    HF_ESTALE = -17     /* a guard has seen a newer token; a run of once was lost or replaced */
};

/* The last failure of this thread, in words: one line, no newline. Valid until this thread's next
 * failing call. */
HF_API const char *hf_error(void);
/* The code's name ("HF_EBUSY"), for logs. */
HF_API const char *hf_result_name(int result);
/* "0.1.0" */
HF_API const char *hf_version(void);

/* What an operator should hear of a store, and no call's result says: a file store was made where there was none, a server may
 * evict locks, or has a known fault. */
typedef struct hf_warning {
    size_t size;
    const char *scheme; /* of the store: "etcd" */
    const char *text;   /* in words: one line, no newline */
} hf_warning;

/* Runs inside whatever call met with it, on any thread, perhaps on several at once: it must not call this library. `warning` lives
 * during the call only. */
typedef void hf_warning_fn(const hf_warning *warning, void *arg);
/* Of all stores of this process, from now on; NULL, as at the beginning: nobody hears them. The library itself writes to no
 * descriptor that is not its own. Call it before the first hf_open, which may have something to say already. */
HF_API void hf_set_warning_handler(hf_warning_fn *fn, void *arg);

/* ---- types ----------------------------------------------------------------------------------- */

typedef struct hf_store hf_store;       /* an open store */
typedef struct hf_lock hf_lock;         /* a hold */
typedef struct hf_op hf_op;             /* a started operation */
typedef struct hf_cancel hf_cancel;     /* something that cancels waits */
typedef struct hf_report hf_report;     /* an answer of hf_show or hf_list */
typedef struct hf_observer hf_observer; /* somebody told of every change of holder */

enum hf_mode {
    HF_EXCLUSIVE = 0,
    HF_SHARED = 1,
    HF_PERMIT = 2 /* one of `permits`; the number must be the same for all who use the name */
};

enum hf_strength {
    HF_BEST_EFFORT = 1,
    HF_STRICT = 2 /* never two conflicting holds; `lost` reaches the holder before the next grant */
};

enum hf_feature {
    HF_HAS_TTL = 1 << 0, /* holds run out unless renewed */
    HF_HAS_SHARED = 1 << 1,
    HF_HAS_PERMITS = 1 << 2,
    HF_HAS_FIFO = 1 << 3,    /* waiters are served in their order */
    HF_HAS_DELAY = 1 << 4,   /* lock-delay after an expiry */
    HF_HAS_DETACH = 1 << 5,  /* a hold can outlive the process that took it */
    HF_HAS_PASS_FD = 1 << 6, /* a hold can be handed to a child as a descriptor */
    HF_HAS_BREAK = 1 << 7,
    HF_HAS_FLOOR = 1 << 8,
    HF_HAS_ONCE = 1 << 9, /* once-records: once.h */
    HF_HAS_PUSH =
        1 << 10 /* a holder whose hold is broken is told at once, not when it next renews */
};

/* ---- stores ---------------------------------------------------------------------------------- */

/* Opens a store. url: borrowed; NULL means $HOLDFAST_URL, else the url of ~/.config/holdfast/client.conf or
 * /etc/holdfast/client.conf (holdfast-client.conf(5)), else the file store in its default directory. An empty URL, given or in
 * the variable, is HF_EINVAL. Opening checks the URL and loads the engine; it may or may not reach out to a server. */
HF_API int hf_open(const char *url, hf_store **ret_store);
/* Releases every lock still held, cancels what was started (its callbacks are called no more),
 * and frees the store. Locks of this store are freed with it. Acquisitions that other threads are in end first, with
 * HF_ECANCELED; of all other calls none may be under way. NULL is fine. */
HF_API void hf_close(hf_store *store);

typedef struct hf_store_info {
    size_t size;
    const char *scheme;   /* "file" */
    const char *url;      /* without password; for hf_engines a pattern such as "file:DIR" */
    const char *where;    /* in words: the directory, the servers */
    uint32_t features;    /* of enum hf_feature */
    int exclusion;        /* of enum hf_strength */
    int tokens;           /* of enum hf_strength */
    const char *survives; /* in words: "survives ..." or "does NOT survive: ..." */
    const char *wakes;    /* how a waiter wakes, in words */
    const char *missing;  /* hf_engines: why this engine cannot be used here; NULL if it can */
    int64_t ttl_ms;       /* the TTL used when none is asked for; 0 where there is none */
    /* Who named it: "" the caller, "HOLDFAST_URL", a file's path, or "default". */
    const char *origin;
    /* What in the URL makes it promise something else than others of its scheme: "mode=row"; or NULL. */
    const char *variant;
} hf_store_info;

/* The answer belongs to the store and lives as long as it does. NULL in the child of a fork. What depends on the server, as how
 * a waiter wakes, or the schema in `where` on PostgreSQL, is what was found out by the time of this call. */
HF_API const hf_store_info *hf_info(hf_store *store);

/* For how long the store has been out of reach, in ms, as far as the waits, observers, questions and renewals of
 * this handle have noticed; hf_error() then says why. 0: it is not, or was never reached, so that nothing waits for it.
 * Negative: an error. Never waits for the store. */
HF_API int64_t hf_outage_ms(hf_store *store);
/* 1: this handle has had an answer from its store. 0: not yet; perhaps there is none at that address. Negative: an error. Never
 * waits for the store. */
HF_API int hf_reached(hf_store *store);

/* Calls fn for every engine this build knows. info lives during the call only. */
typedef void hf_engine_fn(const hf_store_info *info, void *arg);
HF_API int hf_engines(hf_engine_fn *fn, void *arg);
/* Calls fn once, with the store that hf_open(url) would open, and makes nothing: where that would make a directory,
 * `missing` is "not made yet". */
HF_API int hf_describe(const char *url, hf_engine_fn *fn, void *arg);

/* ---- acquiring ------------------------------------------------------------------------------- */

/* The lock is over, and nobody else has been granted it yet (on a strict store). The lock is still
 * yours to release, which then only frees it.
 *
 * Called at most once, and never for a lock that was given up: hf_release, hf_release_start (and what else
 * frees or consumes it) first wait for an on_lost of this lock that is running on another thread, and from
 * then on it is not called. So when they return, `arg` may be freed; and they must not be called with
 * anything held that on_lost waits for. From inside on_lost itself they do not wait. For a lock that
 * hf_acquire_start brought, it is called after `done` has taken the lock out, never before; a lock that
 * hf_acquire returns may have been lost already, and on_lost called. */
typedef void hf_lost_fn(hf_lock *lock, void *arg);

typedef struct hf_options {
    size_t size;
    int64_t wait_ms;     /* HF_FOREVER, 0 (do not wait), or the longest wait */
    int64_t ttl_ms;      /* 0: the store's default. A TTL on a store without one is HF_ENOTSUP */
    int64_t max_hold_ms; /* the hold is lost when this old, renewed or not; 0: no maximum */
    int64_t delay_ms;    /* keep the name back for so long after an expiry; 0: no lock-delay */
    int mode;            /* of enum hf_mode */
    uint32_t permits;    /* with HF_PERMIT: 1 to HF_PERMITS_MAX */
    const char *owner;   /* a label shown to others; borrowed; NULL: user, host, program and pid */
    /* 1: HF_EWEAK on a best-effort store, before anything runs; 0: if client.conf says need = strict;
     * -1: not even then. */
    int need_strict;
    hf_cancel *cancel;   /* borrowed until the call (or the started operation) has ended; or NULL */
    hf_lost_fn *on_lost; /* or NULL */
    void *arg;           /* for on_lost */
    int64_t progress_ms; /* the owner must call hf_progress at least so often; 0: need not */
} hf_options;

/* clang-format off */
#define HF_OPTIONS_INIT { sizeof(hf_options), HF_FOREVER, 0, 0, 0, HF_EXCLUSIVE, 0, NULL, 0, NULL, NULL, NULL, 0 }
/* clang-format on */

/* Takes the lock, waiting as options->wait_ms says (options NULL: as long as it takes). Outages of the store
 * during the wait are sat out; hf_outage_ms tells of them. But a handle that never yet had an answer from its
 * store does not wait for one: if the first contact fails (refused, no such host, no answer for 2 s, or for as
 * long as `timeout=` in the URL says, if that is more; of several servers: all of them) the call ends with HF_EUNREACH, whatever the wait. */
HF_API int hf_acquire(hf_store *store, const char *name, const hf_options *options,
                      hf_lock **ret_lock);
/* The same without ever waiting. */
HF_API int hf_try(hf_store *store, const char *name, const hf_options *options, hf_lock **ret_lock);

/* A cancel may be shared by many waits; once fired it stays fired. hf_cancel_fire may be called
 * from any thread. Every wait that uses it ends with HF_ECANCELED and leaves nothing behind, also while its first
 * attempt waits for a server. What a server was asked by then is taken back first; if that cannot be done within some
 * seconds, because it does not answer, the end is HF_EUNKNOWN. */
HF_API int hf_cancel_new(hf_cancel **ret_cancel);
HF_API void hf_cancel_fire(hf_cancel *cancel);
HF_API void hf_cancel_free(hf_cancel *cancel);

/* ---- holding --------------------------------------------------------------------------------- */

/* The fencing token: give it to the resource with every write, and have the resource refuse older
 * ones. 1 to HF_TOKEN_MAX; a new store begins at the wall clock in microseconds (etcd, ZooKeeper: at 1), so it needs 64 bits. */
HF_API uint64_t hf_lock_token(const hf_lock *lock);
HF_API const char *hf_lock_name(const hf_lock *lock);
HF_API int hf_lock_mode(const hf_lock *lock);
/* The lease: a secret; whoever knows it can release the lock. */
HF_API const char *hf_lock_lease(const hf_lock *lock);
/* How long the hold is certain to last if nothing more is heard from the store: HF_UNLIMITED where
 * there is no TTL and no maximum, 0 once lost. Never more than the truth. */
HF_API int64_t hf_lock_left_ms(hf_lock *lock);
/* A descriptor that turns readable when the lock is lost. Belongs to the lock, and is closed by whatever
 * gives that up, before it returns: stop watching it first. Negative: an error. */
HF_API int hf_lock_lost_fd(hf_lock *lock);
/* Why it was lost, in words ("broken by an operator"), if it could not be renewed with the last reason for that; "" while it is
 * held. Never waits for the store. Lives as long as the lock. */
HF_API const char *hf_lock_lost_why(hf_lock *lock);
/* For how long renewals of this lock have failed, in ms; hf_error() then says why ("10.0.0.1:7420: it does not accept this
 * user and password"). 0: the last one did not fail. Negative: an error. Never waits for the store. */
HF_API int64_t hf_lock_unrenewed_ms(hf_lock *lock);
/* Store id, name, mode and token as one printable string that a third party can hf_check_sequencer.
 * Needs up to HF_SEQUENCER_MAX bytes. */
HF_API int hf_lock_sequencer(const hf_lock *lock, char *ret_text, size_t size);
/* Renews now. The library renews by itself; this is for those who want to know. HF_ELOST when over.
 */
HF_API int hf_renew(hf_lock *lock);
/* For a lock that was taken with progress_ms: its owner reports that the work goes on, so that a thread that hangs does not hold for
 * as long as its process lives. Cheap, and it waits for nobody: call it wherever the work gets on, and from the thread that does it.
 *
 *     reports stop       The last report, or the grant, counts for progress_ms. After that the library begins no renewal of the lock;
 *                        one that is under way by then counts as it always does.
 *     it is lost         when its TTL, counted from the last renewal, ends: at most a TTL after the renewals have ceased. Never
 *                        earlier: until then the hold is valid, and it is never released before its owner has been told. On a store
 *                        without TTL it is lost as long after the renewals would have ceased as progress_ms, or 30 s if that is
 *                        less, and is released then, as one that has passed its maximum; a once-record's runner counts as dead.
 *     how it is told     as any loss: on_lost, hf_lock_lost_fd, hf_lock_left_ms, HF_ELOST, and in hf_lock_lost_why.
 *                        hf_lock_unrenewed_ms tells of it before, while the lock is held and not renewed (with a TTL).
 *     it goes on         A report that comes before it is lost counts: the lock is renewed at once. One that comes later revives nothing.
 *
 * What hangs may wake up later and write: the token is what the resource refuses it by. hf_renew renews also then; it is no report. Of
 * a lock without progress_ms a report changes nothing. HF_ELOST: the lock is over. */
HF_API int hf_progress(hf_lock *lock);
/* Gives the lock up and frees it, whatever the answer. HF_ELOST: it was over before. HF_EUNKNOWN:
 * the store could not be told, for all of 5 s; the hold ends with its TTL. A renewal that is under way is waited for
 * first, for a fifth of the TTL, or 5 s, at most. NULL is fine. */
HF_API int hf_release(hf_lock *lock);
/* Where the store HF_HAS_PASS_FD: a new descriptor, inherited across exec, that keeps the hold
 * alive for as long as any process has it open, also after hf_release. The caller closes its own
 * copy. */
HF_API int hf_lock_pass_fd(hf_lock *lock, int *ret_fd);
/* Where the store HF_HAS_DETACH: stops renewing and frees the lock without releasing it. Somebody
 * who knows name, lease and token can hf_adopt it before its TTL runs out. HF_ELOST and other
 * errors: it is still yours to release. */
HF_API int hf_lock_detach(hf_lock *lock);
/* HF_ELOST: that hold is over. How it was taken is the store's to say: leave the mode as it is
 * (exclusive) to have it, and hf_lock_mode tells. HF_EMODE: the options name another one. */
HF_API int hf_adopt(hf_store *store, const char *name, const char *lease, uint64_t token,
                    const hf_options *options, hf_lock **ret_lock);

/* ---- asking ---------------------------------------------------------------------------------- */

enum hf_entry_kind {
    HF_ENTRY_FREE = 0, /* the name is known and nobody holds it */
    HF_ENTRY_HOLDER = 1,
    HF_ENTRY_WAITER = 2,
    HF_ENTRY_WITHHELD =
        3 /* nobody holds the name, and nobody gets it for left_ms: after a break, or a lock-delay */
};

/* Why a name is withheld. The last two on PostgreSQL only. */
enum hf_withheld {
    HF_WITHHELD_DELAY = 0, /* after a break, or a lock-delay */
    HF_WITHHELD_ENTERED =
        1, /* its last holder has lost it, and an open transaction of that one has not ended: nothing frees it before */
    HF_WITHHELD_OTHER =
        2 /* it was held before the store became another one: by hf_floor, or a promotion */
};

typedef struct hf_entry {
    size_t size;
    int kind; /* of enum hf_entry_kind */
    int mode; /* of enum hf_mode; meaningful for holders */
    uint32_t permits;
    const char *name;
    uint64_t token;    /* of a holder, else 0 */
    const char *owner; /* "" when not known */
    const char *lease; /* a digest of the lease, "" when not known; never the lease itself */
    int64_t pid;       /* 0 when not known */
    int64_t age_ms;    /* since the grant (or since it began to wait); -1 when not known */
    int64_t left_ms;   /* until the store lets go; HF_UNLIMITED without TTL; -1 when not known */
    int foreign; /* 1: a hold of another program's library: nobody can tell it that it was broken */
    int withheld; /* of enum hf_withheld, with HF_ENTRY_WITHHELD */
} hf_entry;

/* Holders, then waiters of one name; empty when nobody holds it and nobody waits. One HF_ENTRY_WITHHELD stands for the holders
 * where there are none, and the name is not free yet. */
HF_API int hf_show(hf_store *store, const char *name, hf_report **ret_report);

typedef struct hf_list_options {
    size_t size;
    const char *match; /* a glob over names (fnmatch), or NULL */
    int all; /* also names that nobody holds now (free, withheld), where the store knows them */
} hf_list_options;

#define HF_LIST_OPTIONS_INIT             \
    {                                    \
        sizeof(hf_list_options), NULL, 0 \
    }

/* Every holder of every name that matches, ordered by name. May take 30 s. */
HF_API int hf_list(hf_store *store, const hf_list_options *options, hf_report **ret_report);
HF_API size_t hf_report_count(const hf_report *report);
/* Lives as long as the report. NULL past the end. */
HF_API const hf_entry *hf_report_entry(const hf_report *report, size_t index);
HF_API void hf_report_free(hf_report *report);

/* HF_OK if that hold is alive, HF_ELOST if not. True when answered; only a guard protects. */
HF_API int hf_check(hf_store *store, const char *name, uint64_t token);
/* Also HF_ELOST if it is held in another mode than the sequencer says, and HF_ESTORE if it is of
 * another store. */
HF_API int hf_check_sequencer(hf_store *store, const char *sequencer);

/* The operator's way out: ends all holds of a name. The holders are told, and the name is withheld
 * until they must know: on a store with TTL until that has run out, on one without until they have
 * let go, at most grace_ms. grace_ms 0 does not wait, and risks two who believe they hold it: only
 * a guard protects then. A holder that is `foreign` is not told at all. If the store is closed
 * meanwhile, the holds are ended and the name is withheld all the same (HF_ECANCELED). A server is
 * tried for up to 10 s. ret_broken (or NULL): how many holds were ended. */
HF_API int hf_break(hf_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken);
/* Every later token will be greater than `token` (moving here from another store). HF_ENOTSUP without HF_HAS_FLOOR (etcd,
 * ZooKeeper): there the marks of guards are reset instead. On PostgreSQL it also ends all holds of the store, unless all of its tokens
 * are greater already. */
HF_API int hf_floor(hf_store *store, uint64_t token);
/* The same, and what came of it; either may be NULL. ret_at: every later token is greater than this; if it is above
 * `token`, so it was before. ret_ended: 1 if all holds of the store were ended. */
HF_API int hf_floor_at(hf_store *store, uint64_t token, uint64_t *ret_at, int *ret_ended);

/* ---- election -------------------------------------------------------------------------------- */

/* A leader is the holder of an exclusive lock whose owner others can observe. Campaign returns when
 * elected; the hf_lock is the mandate, and ends with it. */
HF_API int hf_campaign(hf_store *store, const char *name, const hf_options *options,
                       hf_lock **ret_mandate);
HF_API int hf_resign(hf_lock *mandate);

/* Tells fn who holds the name: once at the start, then after each change. Changes that come
 * faster than fn returns may be told as one. `now` lives during the call only. Outages of the store are sat
 * out (hf_outage_ms). A handle that never yet had an answer from its store asks it first, which may take up to
 * 2 s: HF_EUNREACH, or what it is refused for. */
typedef void hf_observer_fn(hf_observer *observer, const hf_report *now, void *arg);
HF_API int hf_observe(hf_store *store, const char *name, hf_observer_fn *fn, void *arg,
                      hf_observer **ret_observer);
/* When it returns, fn runs no more (from within fn: not again). NULL is fine. */
HF_API void hf_observer_stop(hf_observer *observer);

/* ---- started operations ---------------------------------------------------------------------- */

/* Whatever can wait can also be started. `done` is called exactly once for every operation that was
 * started (unless the store is closed first), and the operation is freed when it returns. */
typedef void hf_done_fn(hf_op *op, int result, void *arg);

HF_API int hf_acquire_start(hf_store *store, const char *name, const hf_options *options,
                            hf_done_fn *done, void *arg, hf_op **ret_op);
HF_API int hf_renew_start(hf_lock *lock, hf_done_fn *done, void *arg, hf_op **ret_op);
/* Consumes the lock at once, if the answer is HF_OK: its descriptor is closed, nothing of it is told any
 * more but `done`, and it is as if freed. After an error it is still yours, as it was. */
HF_API int hf_release_start(hf_lock *lock, hf_done_fn *done, void *arg, hf_op **ret_op);
HF_API int hf_check_start(hf_store *store, const char *name, uint64_t token, hf_done_fn *done,
                          void *arg, hf_op **ret_op);
HF_API int hf_show_start(hf_store *store, const char *name, hf_done_fn *done, void *arg,
                         hf_op **ret_op);
HF_API int hf_list_start(hf_store *store, const hf_list_options *options, hf_done_fn *done,
                         void *arg, hf_op **ret_op);
HF_API int hf_break_start(hf_store *store, const char *name, int64_t grace_ms, hf_done_fn *done,
                          void *arg, hf_op **ret_op);

/* Inside done: what the operation brought. The lock is yours from then on; a lock not taken out is
 * released when done returns, and its on_lost never called. The report likewise. NULL if there is none. */
HF_API hf_lock *hf_op_take_lock(hf_op *op);
HF_API hf_report *hf_op_take_report(hf_op *op);
/* Inside done: the failure in words. */
HF_API const char *hf_op_error(hf_op *op);
/* Cancels an acquisition that is still under way: done then gets HF_ECANCELED. If the grant came
 * first, done gets HF_OK and the lock. Other operations run to their end. May be called until done
 * is called. */
HF_API void hf_op_cancel(hf_op *op);

/* A descriptor that is readable when hf_dispatch has something to do. From the first call on, this
 * store's callbacks run only inside hf_dispatch. Negative: an error. */
HF_API int hf_fd(hf_store *store);
/* Runs the callbacks that are due, on this thread. Returns how many, or an error. */
HF_API int hf_dispatch(hf_store *store);

#ifdef __cplusplus
}
#endif

#endif
