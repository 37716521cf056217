/* core.h: the lock table of holdfastd, as a pure state machine. Entries of the log go in, effects
 * come out: no clock, no I/O, no threads, no randomness, so that every node which applies the same
 * entries has the same table, and a test can drive it by hand.
 *
 * Words. A *lease* owns *claims*; a claim is a lease's business with one name, and is one of
 *
 *     place     in the name's queue
 *     hold      granted, with a token
 *     ghost     what is left of a hold whose lease expired or was broken: the name is withheld until
 *               the lock-delay (and after a BREAK the old TTL) has run
 *
 *             ACQUIRE ──▶ place ──▶ hold ──▶ (RELEASE, END)
 *                │          │        │
 *                └──────────┼───────▶┴──▶ ghost ──▶ gone     (lease expired, BREAK)
 *                           └──▶ gone                        (WAIT over, lease over, RELEASE)
 *
 * Time is the cluster's clock: the sum of what the entries bring. Deadlines end inside core_apply,
 * first of all, in the order of (deadline, kind, slot). A lease whose deadline has passed lives until
 * then, so the end of a lease may be late, never early.
 *
 * Numbered invariants, checked by core_check:
 *   [C1] conflicting claims never hold a name together: one exclusive hold or ghost alone, or any
 *        number of shared ones, or at most N permits of N.
 *   [C2] the first place in a queue could not be granted as things are.
 *   [C3] the tokens of a name's holds and ghosts rise from the first to the last, and none is above
 *        the last one given.
 *   [C4] places stand in the order of their tickets.
 *   [C5] a hold or place has a living lease, which knows it; an ended lease has nothing; a living
 *        lease has something.
 *   [C6] a name that nobody holds, awaits or is withheld from, and that has no record, is forgotten;
 *        a record has nobody beside it, as long as there are tokens.
 *   [C7] every deadline is in the timers, once, and nothing else is.
 *   [C8] a lease waits without a deadline only while a place of it is kept by a connection.
 *   [C9] what only places, ghosts and holds with a lock-delay need is in a record beside the claim:
 *        each of them has one, of its own, and nobody else has.
 *   [C10] what a user is said to have is what the leases have that are his, and the ghosts that were
 *        theirs; a user who has nothing is forgotten.
 *
 * Memory that runs out ends the process: a node that skipped an effect would no longer be a copy. */
#ifndef CORE_CORE_H
#define CORE_CORE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits. They belong to the state machine: all nodes must agree on them. */
#define CORE_LEASES_MAX 8000000u   /* living and remembered */
#define CORE_LOCKS_MAX 8000000u    /* names in use */
#define CORE_CLAIMS_MAX 16000000u  /* holds, places and ghosts */
#define CORE_QUEUE_MAX 1000000u    /* places in one name's queue */
#define CORE_RENEW_MAX 4096u       /* leases in one RENEW */
#define CORE_RESULT_MAX 65536u     /* bytes of a once-record's result */
#define CORE_MEMBERS_MAX 34u       /* members whose addresses are known, and the highest id ever */
#define CORE_ADDRESS_MAX 271u      /* bytes of such an address */
#define CORE_USERS_MAX 10000u      /* who have something and limits */
#define CORE_USER_MAX 64u          /* bytes of a user's name */
#define CORE_ENDINGS_MAX 4096u     /* deadlines that end in one entry; the rest in the next */
#define CORE_ELAPSED_MAX_MS 1000u  /* time that one entry may bring */
#define CORE_ENTRY_MAX (16u << 20) /* bytes of an entry */
/* A millisecond more than clients may ask for: the table's clock may be so much behind the time when
 * a command comes, and whoever wants a span in full adds it. */
#define CORE_TTL_MAX_MS (HF_TTL_MAX_MS + 1)
#define CORE_SPAN_MAX_MS (HF_DURATION_MAX_MS + 1)
#define CORE_ENDED_DEFAULT_MS 30000 /* how long an unknown lease that was ended is remembered */
#define CORE_RESTORE_JUMP \
    (UINT64_C(1) << 40) /* so far above the clock, or the last token, is a restored backup's next */
/* The clock's bits below this tell restores of tables that are ahead of it apart: two years. There is room for some 200 of them. */
#define CORE_RESTORE_SPREAD (UINT64_C(1) << 46)

/* ---- commands, and entries as bytes (entry.c) ------------------------------------------------- */

enum core_op {
    CORE_READ = 1, /* nothing but a place in the order of things: see EFFECT_READ */
    CORE_ACQUIRE,
    CORE_RELEASE,
    CORE_RENEW,
    CORE_END,
    CORE_LEAVE, /* a kept place's connection is gone: the place, not a hold, is given up */
    CORE_BREAK,
    CORE_FLOOR,
    CORE_FINISH, /* a once-record */
    CORE_IDENTITY,
    CORE_MEMBER /* where clients find a member of the cluster */
};

struct core_text {
    const char *bytes;
    size_t size;
};

enum core_flag {
    CORE_WAITS = 1,    /* take a place if it cannot be had now; else BUSY, and no place */
    CORE_KEPT = 2,     /* with WAITS: a connection waits, so the lease does not run out meanwhile */
    CORE_NOW = 4,      /* BREAK: nothing is withheld */
    CORE_ONCE = 8,     /* the name is a once-record's key, which is a name space of its own */
    CORE_NO_HEIR = 16, /* ACQUIRE of a once-record: if its runner died, say so instead of running */
    CORE_FORCE = 32,   /* IDENTITY: replaces one that is there, as after restoring a backup */
    CORE_QUOTA = 64    /* ACQUIRE: says whose it is, and the limits of that user (quota.c) */
};

#define CORE_FOREVER UINT64_MAX

/* What a user may have at a time; 0: any number. holds: of holds and places together, since each place may become a hold. */
struct core_quota {
    uint32_t leases, holds, places;
};

/* One command. What an op does not use is 0. Texts are borrowed. */
struct core_command {
    enum core_op op;
    uint32_t flags;
    struct core_text name;  /* ACQUIRE RELEASE LEAVE BREAK FINISH */
    struct core_text lease; /* ACQUIRE RELEASE END LEAVE FINISH; RENEW: see leases */
    int mode;               /* ACQUIRE: of enum hf_mode */
    uint32_t permits;       /* ACQUIRE with HF_PERMIT */
    uint32_t ttl_ms;        /* ACQUIRE; RENEW and END: 0 leaves it as it is */
    uint64_t wait_ms;       /* ACQUIRE with WAITS; CORE_FOREVER: no end */
    uint64_t delay_ms;      /* ACQUIRE: lock-delay; of a once-record: how long its death is known */
    struct core_text owner; /* ACQUIRE */
    struct core_text user;  /* ACQUIRE with QUOTA, as is */
    struct core_quota quota;
    uint64_t token;      /* RELEASE FINISH: of the hold (RELEASE: 0 is any); FLOOR; MEMBER: its id;
                       * IDENTITY: the clock, which the tokens of a new table begin above; see core_restored_token */
    uint64_t keep_ms;    /* FINISH: how long the result is kept */
    uint32_t attachment; /* LEAVE: as the ACQUIRE was answered */
    struct core_text result; /* FINISH; IDENTITY: 16 bytes; MEMBER: its address, "" forgets it */
    const struct core_text *leases; /* RENEW */
    uint32_t lease_count;
};

/* An entry being packed. Begin with {0}; core_packer_free frees. Growing failures end the process. */
struct core_packer {
    unsigned char *bytes;
    size_t size, capacity;
    uint32_t count;
    bool users; /* some command says whose it is */
};

/* Returns the command's number in the entry, or CORE_NOT_PACKED if it does not obey the limits: such an
 * entry would be refused by every node, after every restart. */
#define CORE_NOT_PACKED UINT32_MAX
uint32_t core_pack(struct core_packer *packer, const struct core_command *command);
/* How many bytes the entry has so far, padding included. */
size_t core_packed_size(const struct core_packer *packer);
/* Writes the header and pads to a multiple of 8. new_term: the first entry of this leader's term.
 * origin, sequence: whose batch this is, for the node that waits for it. The bytes stay the packer's
 * until core_packer_take hands them over (malloc'ed) and leaves it empty. */
void core_packer_finish(struct core_packer *packer, uint32_t elapsed_ms, bool new_term,
                        uint64_t origin, uint64_t sequence);
void *core_packer_take(struct core_packer *packer, size_t *ret_size);
void core_packer_clear(struct core_packer *packer);
void core_packer_free(struct core_packer *packer);

struct core_entry_header {
    uint32_t elapsed_ms, count;
    bool new_term;
    bool
        users; /* commands may say whose they are: only whoever reads version 2 of the formats can read it */
    uint64_t origin, sequence;
};
/* False: not an entry of ours. Looks at the header only. */
bool core_entry_header(const void *bytes, size_t size, struct core_entry_header *ret_header);

/* ---- effects ---------------------------------------------------------------------------------- */

enum core_answer {
    ANSWER_TOKEN = 1, /* ACQUIRE: held, `number` is the token */
    ANSWER_BUSY,      /* ACQUIRE: no hold and no place */
    ANSWER_QUEUED,    /* ACQUIRE: a place; `number` is its ticket */
    ANSWER_DONE,      /* ACQUIRE of a once-record: finished; `result`, and `number` is its token */
    ANSWER_DIED,      /* ACQUIRE with NO_HEIR: its runner, whose token is `number`, died */
    ANSWER_NUMBER, /* the others: `number`. RENEW: one for each `lease`, in order, ms or -1. RELEASE by
                       * a lease that was ended: 0, and `why` is WHY_ENDED */
    /* Refusals of ACQUIRE, nothing changed. */
    ANSWER_OTHER_MODE,    /* this lease has the name in another mode */
    ANSWER_OTHER_PERMITS, /* the name is in use with another number of permits, `number` */
    ANSWER_ENDED,         /* this lease is over */
    ANSWER_LEASES_FULL,
    ANSWER_LOCKS_FULL,
    ANSWER_CLAIMS_FULL,
    ANSWER_QUEUE_FULL,
    ANSWER_TOKENS_SPENT,
    ANSWER_USERS_FULL,
    ANSWER_OVER_LEASES, /* `owner` is a user who has `number` of them, of at most `limit`; `name` as asked */
    ANSWER_OVER_HOLDS, /* holds and places */
    ANSWER_OVER_PLACES,
    ANSWER_STALE, /* FINISH: `number` is the newest token of all */
};

enum core_effect_kind {
    EFFECT_ANSWER,  /* command `command` of this entry has this `answer` */
    EFFECT_READ,    /* command `command` is a READ, and this is its moment */
    EFFECT_GRANTED, /* the place `ticket` became a hold with token `number` */
    EFFECT_LEFT,    /* the place `ticket` is gone, because of `why` */
    EFFECT_DONE,    /* the place `ticket` in a once-record's queue is over: `result`, `number` */
    EFFECT_CHANGED  /* the holders of `name` are others now, because of `why` */
};

enum core_why {
    WHY_GRANTED = 1,
    WHY_RELEASED,
    WHY_EXPIRED,
    WHY_BROKEN,
    WHY_ENDED,     /* by END */
    WHY_WAIT_OVER, /* the WAIT ran out */
    WHY_LEFT,      /* by RELEASE or LEAVE of a place, or an ACQUIRE that would not wait */
    WHY_FINISHED,  /* a once-record has its result */
    WHY_DIED       /* a once-record's runner died and nobody may replace it */
};

/* Lives during the call only. */
struct core_effect {
    enum core_effect_kind kind;
    uint32_t command;
    enum core_answer answer;
    enum core_why why;
    uint64_t number; /* of RENEW: an int64_t */
    uint64_t ticket;
    uint64_t limit;      /* ANSWER_OVER_… */
    uint32_t attachment; /* ANSWER_QUEUED with KEPT: for LEAVE */
    bool once;           /* the name is a once-record's key */
    struct core_text name, lease, owner, result;
};

struct core_sink {
    void *context;
    void (*effect)(void *context, const struct core_effect *effect); /* may only read the table */
};

/* ---- the table -------------------------------------------------------------------------------- */

struct core;

/* seed: for the hash tables, so that nobody outside can make names collide; the only thing in which
 * two copies may differ. Never NULL. */
struct core *core_new(const unsigned char seed[16]);
void core_free(struct core *core);

/* HF_EREFUSED: the bytes are no entry of ours; the table is unchanged. sink may be NULL. */
int core_apply(struct core *core, const void *bytes, size_t size, const struct core_sink *sink,
               struct error_text *err);

/* The earliest deadline in the cluster's clock, or -1 if none is open. */
int64_t core_next_deadline(const struct core *core);
int64_t core_now(const struct core *core);

struct core_counts {
    uint32_t locks, records; /* names in use; of these, once-records */
    uint32_t leases, ended;  /* living, remembered */
    uint32_t holds, places, ghosts;
    uint32_t users; /* who have something and limits */
    uint64_t last_token, last_ticket;
    uint64_t grants, expired, broken; /* since this table was made or restored: not state */
    bool identified;
    char id[33]; /* of the store, in hex */
};
void core_count(const struct core *core, struct core_counts *ret_counts);
/* What a user has who has limits; a ghost is a hold. False: nothing, or he has none. */
struct core_usage {
    uint32_t leases, holds, places;
};
bool core_usage(const struct core *core, struct core_text user, struct core_usage *ret_usage);
/* What the tokens of a restored table are greater than, whose last was `last`: CORE_RESTORE_JUMP above the clock, so that whatever is
 * restored later gives greater ones, of whatever age its copy is. A table that is ahead even of that (somebody has raised its tokens, or the
 * clock is wrong) goes on above its last, and as much more as the clock's lower bits say. clock 0: it is not known. HF_TOKEN_MAX: none is left. */
uint64_t core_restored_token(uint64_t last, uint64_t clock);
/* Where clients find this member of the cluster; "": nobody has said. Lives until the next apply. */
struct core_text core_member(const struct core *core, uint64_t id);
/* The id of the nth of those that are known, from 0; 0: there are not so many. */
uint64_t core_member_id(const struct core *core, unsigned n);
/* Another one whenever something about a member may have changed. Not state. */
uint64_t core_members_version(const struct core *core);

/* ---- looking at it ---------------------------------------------------------------------------- */

enum core_state { CORE_PLACE = 1, CORE_HOLD, CORE_GHOST };

struct core_claim_view {
    struct core_text name, lease, owner; /* the lease of a ghost is empty */
    enum core_state state;
    int mode;
    uint32_t permits;
    uint64_t number;  /* token, or ticket of a place */
    int64_t age_ms;   /* since it was granted, or since it came into the queue */
    int64_t left_ms;  /* of the lease or the ghost; -1: kept by its connection */
    int64_t delay_ms; /* lock-delay */
};
struct core_lock_view {
    struct core_text name;
    bool once;
    uint32_t holds, ghosts, places, permits; /* permits 0: not a name with permits */
    bool done, died; /* a once-record: its result is there, or its runner died */
    struct core_text result;
    uint64_t result_token;
    int64_t result_left_ms;
};

bool core_find(const struct core *core, struct core_text name, bool once,
               struct core_lock_view *ret_view);
/* Holds and ghosts in the order of their tokens, or the places in theirs; fn returns false to stop.
 * What fn gets lives during the call only. */
typedef bool core_claim_fn(void *context, const struct core_claim_view *view);
void core_each_hold(const struct core *core, struct core_text name, bool once, core_claim_fn *fn,
                    void *context);
void core_each_place(const struct core *core, struct core_text name, bool once, core_claim_fn *fn,
                     void *context);
/* Names from `cursor` on (0: the first), at most `steps` slots further. Returns the next cursor, 0
 * after the last. A name that is in use all the while is met exactly once. */
typedef bool core_lock_fn(void *context, const struct core_lock_view *view);
uint32_t core_list(const struct core *core, uint32_t cursor, uint32_t steps, core_lock_fn *fn,
                   void *context);
/* The tokens of what a lease holds; fn returns false to stop. */
typedef bool core_token_fn(void *context, uint64_t token);
void core_each_token(const struct core *core, struct core_text lease, core_token_fn *fn,
                     void *context);
/* Is the hold with this token alive? */
bool core_alive(const struct core *core, struct core_text name, uint64_t token);
/* The same, and how it is held: of enum hf_mode, or -1. */
int core_mode_of(const struct core *core, struct core_text name, uint64_t token);

/* ---- snapshots (snapshot.c says the format) ----------------------------------------------------- */

/* Takes the table as it is now and writes it out in steps, while core_apply goes on: what is about
 * to change is written first. One at a time. */
void core_snapshot_begin(struct core *core);
/* Writes at least one record, and stops after about `bytes`. True: it is complete. */
bool core_snapshot_step(struct core *core, size_t bytes);
/* After completion: the bytes (malloc'ed), the caller's from now on. Before: gives up, NULL. */
void *core_snapshot_end(struct core *core, size_t *ret_size);

/* Replaces the content of the table. HF_EREFUSED: not a snapshot, damaged, or of a later version;
 * the table is unchanged. */
int core_restore(struct core *core, const void *bytes, size_t size, struct error_text *err);

/* ---- checking (check.c) -------------------------------------------------------------------------- */

/* Equal for equal states, whatever way they came about. Takes a look at everything. */
uint64_t core_hash(const struct core *core);
/* Of the counters, and of the number-th part of so many slots of each kind of record; after the last part comes the first again. Equal for equal
 * states. What it costs does not grow with the table. */
uint64_t core_hash_part(const struct core *core, uint64_t number, uint32_t slots);
/* HF_OK, or HF_EIO with the number of the invariant that does not hold. Takes a look at everything. */
int core_check(const struct core *core, struct error_text *err);

#endif
