/* store.h: what the files of this engine share. */
#ifndef ENGINES_FILE_STORE_H
#define ENGINES_FILE_STORE_H

#include "base/bootclock.h"
#include "base/list.h"
#include "engines/engine.h"
#include "engines/file/directory.h"
#include "engines/file/lockfile.h"
#include "engines/file/record.h"
#include "engines/file/tokens.h"

#include <pthread.h>

#define IDLE_FILES_MAX 64 /* open lock files kept for the next use of their names */

enum keys_state { KEYS_CLOSED, KEYS_OPEN, KEYS_SYNCED };

struct engine_store {
    struct directory directory;
    struct directory keys; /* the same with DIR/once as the folder: of once-records */
    struct record_place records;
    _Atomic int keys_state; /* of enum keys_state; changed under tokens_mutex */
    struct engine_host host;
    pid_t pid; /* ours */
    bool forked;

    pthread_mutex_t tokens_mutex; /* opening the token file, the folder of keys and the clock */
    struct bootclock clock;
    _Atomic bool clock_ready; /* it has been read */
    int tokens_fd;            /* -1 until the first use */
    char tokens_path[HF_URL_MAX + 1 + sizeof FILE_STATE_NAME];
    struct tokens tokens;       /* page is NULL when we may only read */
    _Atomic bool tokens_ready;  /* open for drawing */
    _Atomic bool tokens_locked; /* by a thread of ours, which raises the ceiling or is about to */

    /* The mutex keeps the lists, the idle files and the watches; and the file of a claim may only
     * be changed under it while the claim is in a list. */
    pthread_mutex_t mutex;
    struct list held;    /* of file_claim */
    struct list waiting; /* of file_claim, waiters and observers */
    struct lockfile idle[IDLE_FILES_MAX];
    int inotify_fd; /* -1: not yet, or none to be had */
    int directory_watch;
    bool no_inotify;
    bool processed;         /* once, at least */
    int64_t looked_ms;      /* when we last looked whether what is held is still in its place */
    _Atomic bool listening; /* the watchdog reads inotify_fd */
};

/* What this engine keeps of a claim. */
struct file_claim {
    struct list link; /* in store->held or store->waiting */
    struct engine_claim *claim;
    struct lockfile file; /* fd is -1 while there is none */
    bool held;
    bool passed;     /* a child has a copy of the descriptor: never unlock, only close */
    bool registered; /* among those who wait or observe, in the kernel and in the store's list */
    bool has_record; /* of a key: there is one in its place, as far as we know */
    bool has_gate;
    bool is_head;       /* watches for the holder's death */
    int64_t head_token; /* of that holder; 0: not known yet */
    int64_t head_since_ms;
    int64_t place; /* WAIT or WATCH that the kernel shows for us, or 0; may outlast the waiting */
    uint32_t attention;        /* what our asking for attention made of it */
    int watch;                 /* inotify's number for our file, -1 */
    uint32_t seen;             /* page->missed, before the last look */
    uint32_t own_bit;          /* of the futex mask: to wake just us */
    int64_t slot;              /* SLOT held, or -1 */
    struct lock_record record; /* written when granted; filled in before a wait, to be quick then */
    _Atomic bool woken;        /* the next wait returns at once */
    _Atomic int hasty; /* so many naps are short: a close was heard, an unlock will follow */
};

/* Where the lock file of a claim is. */
static inline const struct directory *folder_of(const struct engine_store *store,
                                                const struct engine_claim *claim)
{
    return claim->once ? &store->keys : &store->directory;
}

/* file.c */
int file_open_tokens(struct engine_store *store, bool to_draw, struct error_text *err);
/* Makes store->clock readable, as does whatever opens the folder of keys. */
int file_open_clock(struct engine_store *store, struct error_text *err);
int file_open_clock_locked(struct engine_store *store, struct error_text *err); /* tokens_mutex */

/* claims.c: one attempt, and the way back */
int file_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err);
int file_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err);
int file_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err);
void file_dispose(struct engine_store *store, struct engine_claim *claim);
int file_pass_fd(struct engine_store *store, struct engine_claim *claim, int *ret_fd,
                 struct error_text *err);
/* The claim's own part: NULL before there is one; made if need be, NULL when out of memory. */
struct file_claim *file_claim_of(struct engine_claim *claim);
struct file_claim *claims_own(struct engine_claim *claim);
/* Ends a hold and rings: for one who waits, or for all. */
void claims_let_go(struct engine_store *store, struct file_claim *own, bool ring_all);

/* once.c: the keys of once-records. Answers are of enum engine_outcome, or errors. */

/* Is there an answer for whoever claims it, without a lock? ENGINE_HELD: none. */
int file_once_look(struct engine_store *store, struct engine_claim *claim, struct error_text *err);
/* The same with the lock, which ENGINE_HELD leaves to us; unless *ret_replaced: then it is the lock of a
 * file that is no longer in its place. */
int file_once_decide(struct engine_store *store, struct file_claim *own, bool *ret_replaced,
                     struct error_text *err);
/* With lock and token: from here on, if we are gone, we died. */
int file_once_begin(struct engine_store *store, struct file_claim *own, struct error_text *err);
/* The lock was taken, but not for us to wait: by somebody who only looks, or is about to begin? */
bool file_once_is_passing(const struct file_claim *own);
/* With the lock, before it is given up without a result: nobody died. */
int file_once_forget(struct engine_store *store, struct file_claim *own, struct error_text *err);
int file_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err);
int file_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err);

/* modes.c: which ranges a mode takes */
int modes_try(struct file_claim *own, struct error_text *err);

/* waiting.c */
int file_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
              struct error_text *err);
void file_wake(struct engine_store *store, struct engine_claim *claim);
int file_poll_fd(struct engine_store *store);
int64_t file_process(struct engine_store *store);
/* Shows up among the waiters; the attempt must be made again after it. */
int waiting_register(struct engine_store *store, struct file_claim *own, struct error_text *err);
/* Becomes the one who watches for the holder's death, if nobody is. */
void waiting_watch_holder(struct engine_store *store, struct file_claim *own);
/* No longer among the waiters. Leaves the holds alone. */
void waiting_unregister(struct engine_store *store, struct file_claim *own);
/* From the waiters, if it was among them, to the holders; rings for others, if there are any. */
void waiting_granted(struct engine_store *store, struct file_claim *own);
/* After a change: wakes exactly those who can use it, if anybody waits or observes at all. mode: of
 * the hold that has ended or begun. */
void waiting_ring_released(const struct lockfile *file, int mode);
/* Takes attention back that nobody asks for any more. Needs the descriptor, which ringing does not. */
void waiting_forget_the_dead(const struct lockfile *file);
/* After the file has been replaced: everybody looks again. */
void waiting_ring_all(const struct lockfile *file);

/* queries.c */
int file_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
            struct error_text *err);
int file_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
              int64_t deadline_ms, struct error_text *err);
int file_list(struct engine_store *store, const char *match, bool all,
              const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err);
int file_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
               int64_t deadline_ms, struct error_text *err);
int file_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
               struct engine_floor *ret_floor, struct error_text *err);

/* break.c */
int file_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
               struct error_text *err);

#endif
