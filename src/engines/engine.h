/* engine.h: what a store must provide.
 *
 * An engine is one table of functions. Everything that is the same over all stores lives above it,
 * in src/client: leases, the watchdog, deadlines, retries, backoff, outcomes, and knowing when a
 * lock is lost. An engine makes single attempts and tells the truth about them. To add a store,
 * follow docs/architecture.md, "Adding a store".
 *
 * Words. A *claim* is one acquisition by one lease: from its first attempt until it is disposed
 * of, whether it ever was granted or not. The client owns the struct; `private` is the engine's.
 *
 *     acquire ──BUSY/QUEUED──▶ wait ──▶ acquire …        (client: as long as the caller wants)
 *        │                      │
 *       HELD                    └──▶ abandon ──▶ dispose
 *        │
 *        ├──▶ renew … ──▶ release ──▶ dispose
 *        └──▶ (host.lost) ──▶ release ──▶ dispose
 *
 * Threads. All functions may be called from several threads at once on one store, but never two at
 * once on the same claim, except `wake`, and `renew` beside `wait`.
 *
 * Time. `deadline_ms` and `until_ms` are clock_boot_ms values. An engine answers by its deadline,
 * with HF_EUNKNOWN when a request may have taken effect, or HF_EUNREACH when it certainly did not.
 */
#ifndef ENGINES_ENGINE_H
#define ENGINES_ENGINE_H

#include "base/error.h"
#include "base/url.h"

#include <holdfast/cluster.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Raised whenever this file changes in a way that a module must be rebuilt for. */
#define ENGINE_ABI 15

struct engine_store; /* each engine's own */

/* Answers of acquire besides the negative errors. */
enum engine_outcome {
    ENGINE_HELD = 0,
    ENGINE_BUSY = 1,   /* no hold, no place in a queue */
    ENGINE_QUEUED = 2, /* no hold, a place in the store's queue; ask again after a nudge */
    ENGINE_DONE = 3,   /* a once-record that has been run: what came out is in claim->record */
    ENGINE_DIED = 4    /* a once-record whose runner died, and claim->no_heir; its token likewise */
};

/* An answer of release besides the errors: somebody else had ended that hold before. Where HF_ELOST may come of an earlier
 * try whose answer was lost, this does not, however often it is asked. With words, as of an error. */
#define ENGINE_ENDED 1

/* Answers of renew for one claim, besides what is left of it in ms. */
#define ENGINE_GONE (-1)      /* the store says so: it is over. Also of check */
#define ENGINE_NOT_KNOWN (-2) /* no answer, or a refusal: it may be renewed or not */

/* What became of a once-record. */
struct engine_record {
    uint64_t token; /* of whoever ran it, or runs it */
    void *bytes;    /* malloc'ed, NULL when there are none; the client frees them */
    size_t size;
    /* Set by once_read with ENGINE_HELD, where the store knows. */
    char *owner;    /* of whoever runs it; malloc'ed, or NULL; the client frees it */
    int64_t age_ms; /* since it began to run; -1, as the client sets it before, when not known */
    /* Set by once_read with ENGINE_BUSY: nobody gets it yet. A run from before the store became another one counts for its TTL. */
    bool withheld;
};

struct engine_claim {
    /* Set by the client before the first attempt, constant afterwards. */
    const char *name;  /* 1 to HF_NAME_MAX bytes */
    const char *lease; /* 1 to HF_LEASE_MAX bytes; secret */
    const char *owner; /* up to HF_OWNER_MAX bytes */
    int mode;          /* of enum hf_mode, or ENGINE_OBSERVE */
    uint32_t permits;  /* with HF_PERMIT */
    int64_t ttl_ms;    /* 0 on a store without TTL */
    int64_t delay_ms;  /* lock-delay, 0: none */
    bool will_wait;    /* the caller will wait: take a place in the queue if there is one */
    /* With HF_HAS_ONCE. The name is then the key of a once-record, in a name space of its own, and
     * the mode is exclusive: whoever holds it runs it, and ends that by finish or by release. */
    bool once;
    bool no_heir;     /* if its runner died, say ENGINE_DIED instead of running it */
    int64_t death_ms; /* for how long its death is known, if this lease runs out; 0: not at all */

    /* Set by the client, before `wake`, for good: whoever wanted this has given it up. An acquire that
     * waits for a server is to end soon, with HF_EUNREACH or HF_EUNKNOWN as at its deadline. It does not
     * concern the other calls: abandon comes after it. */
    _Atomic bool interrupted;

    uint64_t token;              /* set by acquire when HELD (by the client for an adopted claim) */
    struct engine_record record; /* set by acquire when DONE or DIED */
    void *private;               /* the engine's; NULL at the start; freed by dispose */
};

/* The mode of a claim that only waits for changes of holder: never passed to acquire. */
#define ENGINE_OBSERVE 100

/* What an engine may call, from any thread, also from within its own functions (the client only
 * takes note; nothing comes back into the engine on that stack). */
struct engine_host {
    void *context;
    const char *
        other_conf; /* a client.conf with a password for its own url, which is not this store's; NULL: none */
    /* A waiting claim should be tried again now (queue moved, release heard). */
    void (*nudge)(void *context, struct engine_claim *claim);
    /* A held claim is over. Why, in words, for the holder: "broken by an operator". */
    void (*lost)(void *context, struct engine_claim *claim, const char *why);
    /* A connection was made. Who is at its other end may be another store than before, at the same
     * address: emptied, restored, exchanged. `id` is what it calls itself; NULL: it was not asked, and
     * the client does so before it uses an id again. Told before any answer of that connection counts:
     * where the id is another one than before, all that was held is lost. */
    void (*connected)(void *context, const char *id);
    /* A server of the store answered, if only that it cannot serve now: what it is told is worth repeating. Not needed
     * by whoever calls `connected`, or answers at all. */
    void (*reached)(void *context);
    /* The store cannot be used, and is being tried again within a call, or between calls; why, in words, for whoever
     * waits. Over with `connected`, or with the next answer. */
    void (*trouble)(void *context, const char *why);
    /* Something the operator should hear once ("maxmemory-policy is not noeviction"). */
    void (*warn)(void *context, const char *text);
    /* Is the store being closed? Then what takes long, and has no claim to be woken by, is to end. */
    bool (*closing)(void *context);
};

/* Where show and list put what they find. The entry and its strings live during the call only. */
struct engine_sink {
    void *context;
    /* Returns HF_OK, or an error that ends the listing and becomes its answer. */
    int (*add)(void *context, const hf_entry *entry);
};

/* Where cluster_look puts what it finds; likewise. */
struct engine_cluster_sink {
    void *context;
    /* First, and again if the answer was lost and comes anew: what came before counts no more. */
    void (*begin)(void *context, const hf_cluster_info *about);
    int (*add)(void *context, const hf_member *member);
};

/* What a floor came to. */
struct engine_floor {
    uint64_t
        at; /* every later token is greater than this. Above what was asked for: so it was before, and nothing was changed */
    bool ended; /* all that was held before is over */
};

enum engine_change { ENGINE_ADD = 1, ENGINE_REMOVE, ENGINE_TRANSFER, ENGINE_INIT };

#define ENGINE_PIECE_MAX ((size_t)256 << 10)

/* A piece of a backup, and what it is a piece of. */
struct engine_piece {
    char cluster[33];      /* its id */
    uint64_t index, term;  /* of the last entry in it */
    uint64_t size, offset; /* bytes of all of it, and where these belong */
    uint32_t sum;          /* crc32c of all of it */
    size_t count;          /* bytes; 0: there are no more */
    unsigned char *bytes;  /* the caller's, ENGINE_PIECE_MAX of them */
};

struct engine {
    uint32_t abi; /* ENGINE_ABI; first, so that any two versions can compare it */

    /* What it promises, as data. Strings are static; url is the pattern to show ("file:DIR");
     * where and missing are NULL here. ttl_ms: the default TTL, 0 without HF_HAS_TTL. */
    hf_store_info traits;

    /* NULL, or a table of its own for some URLs of this store, which promises something else; listed beside it. Both have one scheme. */
    const struct engine *variant;
    bool (*wants_variant)(struct url *url);
    /* Without HF_HAS_TTL: there is a server all the same, which has to be reached. */
    bool remote;

    /* url: borrowed during the call; mark every parameter it understands by url_get. `timeout`, where it is one, is how long
     * a server may take, and the client gives a first contact as much. host: lives until close. ret_where: HF_URL_MAX + 1 bytes, in words where the locks live, no password. */
    int (*open)(struct url *url, const struct engine_host *host, struct engine_store **ret_store,
                char *ret_where, struct error_text *err);
    /* NULL where traits say all. Changes in ret_info what is otherwise here, as far as the store has found out by now: features, wakes, where. */
    void (*in_effect)(struct engine_store *store, hf_store_info *ret_info);
    /* NULL where opening makes nothing. True: open would make a directory, in ret_where as open gives it. Touches
     * nothing. */
    bool (*unmade)(struct url *url, char *ret_where);
    /* All claims have been disposed of, no other call is under way. */
    void (*close)(struct engine_store *store);
    /* In the child of a fork, before anything else runs there: close the descriptors that keep
     * holds alive. Only async-signal-safe calls. Then the child calls only dispose and close, which
     * free memory and touch nothing the parent has (store->forked is the engine's to remember). */
    void (*after_fork)(struct engine_store *store);

    /* A printable id of this store, [0-9A-Za-z.-], at most 64 bytes; for sequencers. As it is now: asks
     * the server if there is one. The client remembers it until host->connected, or until the store says
     * that something is gone. */
    int (*id)(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
              struct error_text *err);

    /* One attempt. The same claim may be tried again and again; with the same lease it gives the
     * same token, or finds its place again. HELD promises a hold of at least ttl_ms from when this
     * call began: the client counts from there. HF_EUNKNOWN: the answer was lost. HF_ELOST: this
     * lease is over (it ran out in the queue); the client begins again with another. After DONE
     * this lease has no hold and no place; after DIED the client abandons it if it had one. */
    int (*acquire)(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                   struct error_text *err);

    /* NULL where nudge is all there is. Blocks this thread until it is worth trying again,
     * `until_ms`, or wake. For ENGINE_OBSERVE: the first call returns at once, each later one when
     * the holders may have changed since the call before it returned. Early returns are fine. May
     * be called beside renew. */
    int (*wait)(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
                struct error_text *err);
    /* With wait: makes the present or else the next wait of this claim return. Also called during acquire, once
     * claim->interrupted is set; where there is no `wake`, acquire looks for that by itself. */
    void (*wake)(struct engine_store *store, struct engine_claim *claim);
    /* NULL where wait serves observers (or where nothing can push, then the client polls): starts
     * nudges for every change of holder of an ENGINE_OBSERVE claim, until it is disposed of. */
    int (*observe)(struct engine_store *store, struct engine_claim *claim, struct error_text *err);

    /* Gives up a place in a queue, and whatever an attempt with an unknown outcome may have taken:
     * after HF_OK this lease holds nothing and never will. */
    int (*abandon)(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                   struct error_text *err);
    /* Gives up the hold with claim->token. HF_ELOST: it was over before, and nothing was touched. ENGINE_ENDED: the same,
     * by somebody else. */
    int (*release)(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                   struct error_text *err);
    /* NULL without HF_HAS_TTL. Renews claims that hold or wait, and tells of each by itself: what goes
     * wrong with one of them says nothing about the others. ret_left_ms[i] is what the store says is
     * left, or ENGINE_GONE, or ENGINE_NOT_KNOWN, as the client sets all of them before. HF_OK: all are
     * known. An error: why one that is not known is not; what is known of the others counts. */
    int (*renew)(struct engine_store *store, struct engine_claim *const *claims, int count,
                 int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);
    /* How many are best renewed by one call; 0: 256. Fewer, where one of them takes long. The client has a limit of its own. */
    int renew_batch;
    /* Frees claim->private, which may be NULL. No I/O that can block, no failure. */
    void (*dispose)(struct engine_store *store, struct engine_claim *claim);
    /* NULL without HF_HAS_PASS_FD. As hf_lock_pass_fd. */
    int (*pass_fd)(struct engine_store *store, struct engine_claim *claim, int *ret_fd,
                   struct error_text *err);

    /* NULL, or a descriptor for the watchdog to watch; it calls `process` when that is readable,
     * and at the latest after as many ms as the last process returned (-1: no need). First called
     * right after the first claim was held or began to wait. */
    int (*poll_fd)(struct engine_store *store);
    int64_t (*process)(struct engine_store *store);

    int (*show)(struct engine_store *store, const char *name, const struct engine_sink *sink,
                int64_t deadline_ms, struct error_text *err);
    /* `match` may be ignored: the client filters and sorts. */
    int (*list)(struct engine_store *store, const char *match, bool all,
                const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err);
    /* The hold with this token: ret_mode is its mode, of enum hf_mode, or ENGINE_GONE. */
    int (*check)(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                 int64_t deadline_ms, struct error_text *err);
    /* NULL without HF_HAS_BREAK. May take grace_ms, but not while host.closing: HF_ECANCELED then means
     * that it was done, and was not waited for. */
    int (*break_name)(struct engine_store *store, const char *name, int64_t grace_ms,
                      uint32_t *ret_broken, struct error_text *err);
    /* NULL without HF_HAS_FLOOR. Where all later tokens are greater than `token` anyway, it ends nothing. */
    /* A higher floor makes it another store: what was held is lost, and the engine warns of that first. */
    bool floor_replaces;
    int (*floor)(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                 struct engine_floor *ret_floor, struct error_text *err);

    /* Both NULL without HF_HAS_ONCE. Keeps what came out of a once-record that this claim holds for
     * keep_ms, gives up the hold, and tells those who wait, in one step. HF_ESTALE: the claim's
     * token holds it no more, and nothing was kept. With the same token it may be asked again after
     * HF_EUNKNOWN: what was kept the first time is HF_OK. */
    int (*finish)(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                  size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err);
    /* What is known of a key: ENGINE_HELD (somebody runs it, record.token), ENGINE_BUSY (nothing),
     * ENGINE_DONE or ENGINE_DIED. ret_left_ms: how long that will be known, of the last two; of the
     * first how long its lease will last, or -1, as the client sets it before, when not known. */
    int (*once_read)(struct engine_store *store, const char *key, struct engine_record *ret_record,
                     int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);

    /* Both NULL where no cluster of ours is behind the store. The members, as whichever node
     * answers sees them; of_leader: only one that has just proved that it leads may answer. */
    int (*cluster_look)(struct engine_store *store, bool of_leader,
                        const struct engine_cluster_sink *sink, int64_t deadline_ms,
                        struct error_text *err);
    /* address: with ENGINE_ADD. id 0: with ENGINE_INIT; with ENGINE_TRANSFER, any other node. Never asked twice by
     * itself: an answer that was lost is HF_EUNKNOWN. */
    int (*cluster_change)(struct engine_store *store, enum engine_change change, uint64_t id,
                          const char *address, int64_t deadline_ms, struct error_text *err);
    /* NULL as those. A backup of what its leader has, which is asked for piece by piece. Whoever leaves it halfway has nothing to give back. */
    int (*backup_begin)(struct engine_store *store, char ret_id[17], int64_t deadline_ms,
                        struct error_text *err);
    /* The piece at piece->offset. HF_EBUSY: it is not ready yet. HF_ELOST: there is no such backup (any more). */
    int (*backup_piece)(struct engine_store *store, const char *id, struct engine_piece *piece,
                        int64_t deadline_ms, struct error_text *err);
};

/* The one symbol of a module: const struct engine *holdfast_engine(void). */
#define ENGINE_MODULE_SYMBOL "holdfast_engine"
typedef const struct engine *engine_module_fn(void);

/* engines.c: finds the engine of a scheme, loading its module if need be. */
int engines_find(const char *scheme, const struct engine **ret_engine, struct error_text *err);
/* Calls fn for each engine this build knows; those that cannot be loaded have `missing` set. */
void engines_each(hf_engine_fn *fn, void *arg);

#endif
