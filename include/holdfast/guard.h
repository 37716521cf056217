/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: the resource's side. A lock is only as safe as the resource that checks its token.
 *
 * A holder may be stopped for a minute and go on as if nothing had happened, while the lock has long
 * been somebody else's. No lock can prevent that; the resource can, if it keeps the greatest token
 * that it has seen for each key, its *mark*, and refuses what comes with a smaller one. Two rules:
 *
 *   Enter before you read.  Raise the mark before the first read, not with the write. Else: A reads,
 *                           pauses; B reads; A writes; B writes, and what A wrote is gone.
 *   Check and write are one step.  One transaction, one script, or the key held across the write.
 *
 * A key belongs to one lock name of one store, for exclusive holds: tokens of two stores, and those
 * of shared holds and permits, cannot be compared. docs/fencing.md has each guard with an example.
 *
 * Results, threads and fork are as holdfast.h says.
 */
#ifndef HOLDFAST_GUARD_H
#define HOLDFAST_GUARD_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_KEY_MAX 400 /* bytes of a guard's key, any but NUL, at least 1 */

/* What a guard accepts. */
enum hf_guard_mode {
    HF_NOT_OLDER = 0, /* token >= mark: a holder may write many times */
    HF_NEWER = 1      /* token > mark: a step that must happen once */
};

/* ---- a fence: marks for any resource ---------------------------------------------------------- */

/* A durable map from key to mark in a directory, for a resource that cannot keep marks itself: a
 * tree of files, a device, a service. All threads and processes of one machine may use it at once.
 *
 *     hf_fence_open("/var/lib/shop/fence", NULL, &fence);
 *     ...
 *     result = hf_fence_begin(fence, "account:7", hf_lock_token(lock), HF_NOT_OLDER, 5000,
 *                             &entry, NULL);
 *     if (result != HF_OK)
 *         give_up(hf_error());         HF_ESTALE: somebody has entered with a newer token
 *     read, think, write               nobody else is inside, not even a holder that woke up late
 *     hf_fence_end(entry);
 *
 * A mark is on the disk before its call answers HF_OK, and no crash takes it back. A token that
 * raises nothing writes nothing. In the child of a fork a fence answers HF_EFORK, and what the
 * parent is inside of is not kept by the child. Needs the module holdfast-fence (LMDB). */
typedef struct hf_fence hf_fence;
typedef struct hf_fence_entry hf_fence_entry;

#define HF_FENCE_BATCH_MAX 4096 /* tokens of one hf_fence_admit_many */
#define HF_FENCE_BYTES_MIN (UINT64_C(1) << 20)
#define HF_FENCE_BYTES_MAX (UINT64_C(1) << 40)
#define HF_FENCE_BYTES_DEFAULT (UINT64_C(1) << 32) /* 10 million keys of 100 bytes */
#define HF_FENCE_PATIENCE_MS INT64_C(10000)
#define HF_REASON_MAX 200 /* bytes of the reason for a reset */

/* What hf_fence_open may put up with, or-ed together. */
enum hf_fence_allow {
    HF_ALLOW_TMPFS = 1 << 0,   /* a filesystem that forgets at a reboot */
    HF_ALLOW_NETWORK = 1 << 1, /* one that other machines may write to */
    HF_ALLOW_WRITABLE = 1 << 2 /* a directory that others may write to, or another user's */
};

typedef struct hf_fence_options {
    size_t size;
    uint64_t bytes_max;  /* of the file of marks; 0: the default. Costs only what is in use, and the
                            greatest that anybody opened the fence with counts for all */
    int64_t patience_ms; /* a write waits at most so long while others write; 0: the default */
    int allow;           /* of enum hf_fence_allow */
    int existing;        /* non-zero: HF_EREFUSED if there is no fence yet, instead of making one */
} hf_fence_options;

/* clang-format off */
#define HF_FENCE_OPTIONS_INIT { sizeof(hf_fence_options), 0, 0, 0, 0 }
/* clang-format on */

/* path: a directory, borrowed; made, for this user alone, if it is not there. options: or NULL.
 * HF_EREFUSED: a place where marks would not be safe. A process may open a fence many times. */
HF_API int hf_fence_open(const char *path, const hf_fence_options *options, hf_fence **ret_fence);
/* Ends every entry that is left, and frees the fence. Must be the last call on it. NULL is fine. */
HF_API void hf_fence_close(hf_fence *fence);

/* Enters: waits until nobody is inside the key, at most wait_ms (0, or HF_FOREVER; HF_EBUSY), then
 * compares the token with the mark as `mode` (of enum hf_guard_mode) says, and raises the mark.
 * HF_ESTALE names both tokens. Nobody enters the key again until hf_fence_end, or until the process
 * is dead; that goes for this process too, so do not enter a key twice. Keys are entered one by one:
 * whoever is inside several at once takes them in an order that all keep to.
 *
 * ret_mark, if not NULL, is what the token was compared with, after HF_OK and after HF_ESTALE: the
 * mark as it was before, 0 if there was none. */
HF_API int hf_fence_begin(hf_fence *fence, const char *key, uint64_t token, int mode,
                          int64_t wait_ms, hf_fence_entry **ret_entry, uint64_t *ret_mark);
/* Leaves, and frees the entry. NULL is fine. */
HF_API void hf_fence_end(hf_fence_entry *entry);

/* Compares and raises, and holds nothing: for a resource that takes one thing at a time anyway.
 * Does not wait for those who are inside, who stay inside and may still write: where a write takes
 * its time, enter. ret_mark is as for hf_fence_begin. */
HF_API int hf_fence_admit(hf_fence *fence, const char *key, uint64_t token, int mode,
                          uint64_t *ret_mark);

typedef struct hf_fence_item {
    const char *key; /* borrowed */
    uint64_t token;
    int result;    /* out: HF_OK or HF_ESTALE */
    uint64_t mark; /* out: what the token was compared with */
} hf_fence_item;

/* Up to HF_FENCE_BATCH_MAX at the price of one write to the disk, in their order: a key may be there
 * several times. HF_OK: every item has its result. Anything else: no item was changed, nor any mark,
 * unless the disk failed in the very last step (HF_EIO). */
HF_API int hf_fence_admit_many(hf_fence *fence, hf_fence_item *items, size_t count, int mode);

/* The mark of a key; 0: it has none. */
HF_API int hf_fence_mark(hf_fence *fence, const char *key, uint64_t *ret_mark);
/* Calls fn for every key that has a mark, in the order of their bytes, until it returns non-zero.
 * A mark that changes meanwhile is seen as it was or as it is. fn may call anything but close. */
typedef int hf_fence_fn(const char *key, uint64_t mark, void *arg);
HF_API int hf_fence_each(hf_fence *fence, hf_fence_fn *fn, void *arg);

/* For operators, when a key has moved to another store, or its store has lost its data: sets the
 * mark, lower or higher; 0 forgets the key. A stale holder may pass afterwards, so make sure that
 * there is none. Who did it, when and why (a line of at most HF_REASON_MAX bytes, or NULL) is in the
 * fence's resets.log before the mark changes. ret_was: the mark until then, or NULL. */
HF_API int hf_fence_reset(hf_fence *fence, const char *key, uint64_t mark, const char *why,
                          uint64_t *ret_was);

/* The token in a sequencer (hf_lock_sequencer, $HOLDFAST_SEQUENCER), for any guard. HF_EINVAL: no
 * sequencer, or one of a shared hold or a permit, whose tokens fence nobody. */
HF_API int hf_guard_token(const char *sequencer, uint64_t *ret_token);

/* ---- SQL -------------------------------------------------------------------------------------- */

/* SQL that makes a database refuse stale tokens, for any client in any language. Printed for a
 * person to read and to apply; applying it again is harmless, also with other options.
 *
 *     SELECT holdfast_enter('batch:4472', 35);                                       PostgreSQL
 *     INSERT INTO holdfast_enter(key, token) VALUES('batch:4472', 35);               SQLite
 *
 * first in the transaction raises the mark, and holds it until commit. With a table, triggers
 * refuse stale INSERTs, UPDATEs and DELETEs: the token is what the statement gives to a column of
 * the table, or else the transaction's own (SET LOCAL holdfast.token = '35'; in SQLite
 * hf_guard_sqlite_token). holdfast-guard-sql(1) says more. */
#define HF_SQL_NAME_MAX 63 /* bytes of a schema's, table's or column's name */

enum hf_sql_dialect {
    HF_SQL_POSTGRES = 1, /* 14 or later */
    HF_SQL_SQLITE = 2
};

typedef struct hf_guard_sql_options {
    size_t size;
    int dialect;            /* of enum hf_sql_dialect */
    const char *table;      /* [SCHEMA.]TABLE, a part may be in "double quotes"; NULL: enter only */
    const char *key_column; /* unique; NULL: id */
    const char *column;     /* for the token; NULL: fence_token */
    int mode;               /* of the triggers, of enum hf_guard_mode */
    int require;            /* non-zero: refuse a write that brings no token of its own */
    int undo;               /* non-zero: what takes it out again, instead */
    const char *schema;     /* PostgreSQL: of what has no other; NULL: public */
    int setting;            /* SQLite: non-zero: ask holdfast_token(), too (always in PostgreSQL) */
    int add_column;         /* SQLite: non-zero: add the column (PostgreSQL: if it is missing) */
    int sqlite_version;     /* least, such as 3047000; 0: any. From then on errors name tokens */
    int locks; /* PostgreSQL: non-zero: instead, what the store postgres: keeps its locks in;
                               table: the one of its URL, NULL: holdfast_locks */
} hf_guard_sql_options;

/* clang-format off */
#define HF_GUARD_SQL_OPTIONS_INIT \
    { sizeof(hf_guard_sql_options), 0, NULL, NULL, NULL, HF_NOT_OLDER, 0, 0, NULL, 0, 0, 0, 0 }
/* clang-format on */

/* The text is the caller's: free(). */
HF_API int hf_guard_sql(const hf_guard_sql_options *options, char **ret_text);

/* SQLite has no setting of a transaction: the module holdfast-sqlite brings one, holdfast_token().
 * Loads it into a connection, with the program's own libsqlite3. HF_ENOTSUP: the program has none
 * that can be found, or one without extensions. Other languages: SELECT load_extension(...). */
struct sqlite3;
HF_API int hf_guard_sqlite(struct sqlite3 *db);
/* The token of the transaction that the connection is in, until it ends; 0: none any more. */
HF_API int hf_guard_sqlite_token(struct sqlite3 *db, uint64_t token);

/* ---- Redis ------------------------------------------------------------------------------------ */

/* The mark lives in Redis beside the data, and one script checks the token, raises the mark and
 * writes. These are the texts of the scripts, for whatever Redis client a program has: a library of
 * functions (Redis 7), loaded once with FUNCTION LOAD REPLACE, or one script each for EVAL.
 *
 *     FCALL holdfast_enter 1 MARK TOKEN MODE                            the mark; before the first read
 *     FCALL holdfast_set   2 MARK KEY TOKEN MODE VALUE [OPTION ...]     as SET
 *     FCALL holdfast_del   N MARK KEY [KEY ...] TOKEN MODE              as DEL
 *     FCALL holdfast_hset  2 MARK KEY TOKEN MODE FIELD VALUE [...]      as HSET
 *     FCALL holdfast_reset 2 MARK holdfast.resets TOKEN [WHY]           for operators
 *     EVAL  (the script)   2 MARK KEY TOKEN MODE VALUE ...              the same words
 *
 * MARK is the key where the mark is kept: 'holdfast.mark:' and what hf_guard_redis_mark() or you
 * choose; one mark may protect many keys. MODE is not-older or newer. A stale token is answered by
 * the error "STALE 33 34 ..." with both tokens, anything else that is wrong by "ERR ..."; those have
 * changed nothing. If the write itself fails, its token has been seen: the mark is raised.
 * holdfast-guard-redis(1) says more. */
#define HF_GUARD_REDIS_LIBRARY "holdfast"
#define HF_GUARD_REDIS_MARKS "holdfast.mark:"     /* what every mark's key begins with */
#define HF_GUARD_REDIS_MARK_MAX (HF_KEY_MAX + 24) /* bytes of one, with its NUL */
#define HF_GUARD_REDIS_NAME_MAX 64                /* letters of a function's name */
#define HF_GUARD_REDIS_BODY_MAX (256 * 1024)      /* bytes of a script to wrap */

/* The library. Never NULL, and never freed. */
HF_API const char *hf_guard_redis_library(void);
/* "enter", "set", "del", "hset" or "reset" for EVAL; never freed. NULL if there is no such one. */
HF_API const char *hf_guard_redis_script(const char *operation);
/* A script of your own that runs only if the token may pass: the caller gives MARK before its keys,
 * TOKEN and MODE before its arguments, and the script sees KEYS and ARGV without them. If it fails,
 * the mark stays raised. name NULL: for EVAL; else a library "holdfast_NAME" with the function NAME.
 * The text is the caller's: free(). */
HF_API int hf_guard_redis_wrap(const char *name, const char *body, char **ret_text);
/* The key for the mark of a data key, in the same slot of a Redis Cluster: holdfast.mark:{KEY}, or
 * holdfast.mark:tag:KEY if it has a {tag} of its own. HF_EINVAL for the few that have '}' and no tag.
 * size: at least HF_GUARD_REDIS_MARK_MAX. */
HF_API int hf_guard_redis_mark(const char *key, char *ret_mark, size_t size);

/* ---- trying again ----------------------------------------------------------------------------- */

/* For compare-and-set on a version column, where no lock is needed at all:
 *
 *     hf_retry retry = HF_RETRY_INIT;
 *     do {
 *         read the row with its version
 *         won = UPDATE ... SET version = version + 1 WHERE id = ? AND version = ?    one row changed
 *     } while (!won && (result = hf_retry_wait(&retry)) == HF_OK);
 *
 * It waits for a random time between nothing and a span that doubles with each attempt, so that
 * those who lost to each other do not meet again, and gives up when the attempts or the time are
 * used up. */
typedef struct hf_retry {
    size_t size;
    uint32_t attempts_max; /* the first included */
    int64_t total_max_ms;  /* from the first wait on */
    int64_t first_ms;      /* the first wait is shorter than that, at least 1 */
    int64_t wait_max_ms;   /* and no wait is longer than that */
    uint32_t waits;        /* the library's: so many so far */
    int64_t until_ms;      /* the library's: the end of total_max_ms */
} hf_retry;

#define HF_RETRY_ATTEMPTS_MAX 100000

/* clang-format off */
#define HF_RETRY_INIT { sizeof(hf_retry), 20, 10000, 2, 500, 0, 0 }
/* clang-format on */

/* HF_OK: try again now. HF_EBUSY: give up. */
HF_API int hf_retry_wait(hf_retry *retry);

#ifdef __cplusplus
}
#endif

#endif
