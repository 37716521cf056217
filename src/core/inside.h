/* inside.h: the lock table's records, for the files of this room.
 *
 *     leases ──first_claim──▶ claims ◀──first_hold, first_place── locks
 *                                │
 *                  of one lease, of one lock
 *
 * All are slots of slabs. Texts lie in slabs by size, so that a name of 18 bytes takes 20. */
#ifndef CORE_INSIDE_H
#define CORE_INSIDE_H

#include "core/core.h"
#include "core/index.h"
#include "core/slab.h"
#include "core/timers.h"

#include <string.h>

#define NONE SLAB_NONE
#define CLAIMS_LISTED_MAX 16u /* with more, the claims of a lease are indexed */

/* Sizes from 8 to 64 by 4, then coarser: texts.c. */
#define TEXT_CLASSES 24

struct lease {
    struct index_link link; /* first: see index.h */
    uint32_t id_slot;
    uint32_t ttl_ms;
    union {
        struct timer timer; /* unless it is kept: its moment knows the deadline */
        /* If it is: when it would end otherwise. An int64_t in halves, or there would be a hole. */
        uint32_t kept_until[2];
    };
    uint32_t first_claim, claims;
    uint32_t kept; /* places that a connection keeps alive: while there are any, no deadline */
    uint8_t id_size;
    uint8_t epoch;
    /* Of 16 bits, since there is room for no more. */
    unsigned usage : 14;  /* its user's slot plus 1; 0: it is nobody's, or has ended */
    unsigned ended : 1;   /* remembered, so that nobody revives it */
    unsigned indexed : 1; /* its claims are found by claim_index */
};
#define LEASE_USAGE_MASK 0x3fffu
_Static_assert(CORE_USERS_MAX <= LEASE_USAGE_MASK, "a lease knows whose it is");

struct claim {
    struct index_link link; /* used if its lease is indexed */
    uint32_t lease, lock;   /* lease: NONE for a ghost */
    uint32_t lease_prev, lease_next;
    uint32_t lock_prev, lock_next; /* among holds, or among places */
    uint32_t owner_slot;           /* here, or there would be a hole */
    uint64_t number;               /* token, or ticket of a place */
    int64_t since_ms;
    union {
        uint32_t extra;      /* with CLAIM_EXTRA: its slot */
        uint32_t attachment; /* without: of the place that it was; 0: it was none */
    };
    uint8_t owner_size;
    uint8_t mode;
    uint8_t state; /* of enum core_state */
    uint8_t flags;
};

/* Flags of a claim. */
#define CLAIM_KEPT 1    /* a place that a connection keeps alive */
#define CLAIM_NO_HEIR 2 /* a place that does not want to replace a dead runner */
#define CLAIM_EXTRA 4   /* it has one; not told in a snapshot, since the rest says it [C9] */
#define CLAIM_TOLD (CLAIM_KEPT | CLAIM_NO_HEIR)
#define CLAIM_OF_USER 8 /* in a snapshot only: a ghost whose user's name follows */

struct extra { /* of a place, a ghost, or a hold with a delay: most claims are none of them */
    int64_t deadline_ms; /* of a place's WAIT (INT64_MAX: none), or of a ghost */
    uint64_t delay_ms;   /* lock-delay; of a once-record: how long its runner's death is known */
    struct timer timer;
    uint32_t attachment; /* of a place: which of its connections keeps it, if one does */
    uint32_t usage;      /* of a ghost whose lease had a user: as there */
};

struct record {  /* what became of a once-record */
    char *bytes; /* its result, or NULL: its runner died */
    uint32_t size;
    struct timer timer;
    uint64_t token;
    int64_t deadline_ms;
};

struct lock {
    struct index_link link;
    uint32_t name_slot;
    uint16_t name_size;
    bool once;
    uint8_t epoch;
    uint32_t permits;       /* 0: exclusive and shared */
    uint32_t holds, places; /* holds: ghosts included */
    uint32_t first_hold, last_hold, first_place, last_place;
    uint32_t record; /* slot plus 1; 0: none */
};

struct usage { /* what a user has who has limits: quota.c */
    struct index_link link;
    uint32_t name_slot;
    uint32_t leases, holds, places; /* holds: ghosts included */
    uint8_t name_size;
};

/* Millions of them are what memory is needed for. */
_Static_assert(sizeof(struct lease) == 36, "a lease has its deadline in one place only");
_Static_assert(sizeof(struct claim) == 56, "what few claims have is in their extra");
_Static_assert(sizeof(struct extra) == 32, "an extra has no hole");
_Static_assert(sizeof(struct lock) == 44, "what few locks have belongs elsewhere");

struct prefetched { /* of a command: where its texts are, and their hashes */
    const char *lease, *name;
    uint32_t lease_hash, name_hash;
    bool once;
};

struct snapshot; /* snapshot.c */

/* See core_member. */
struct member {
    uint64_t id;
    uint32_t size;
    char address[CORE_ADDRESS_MAX];
};

struct core {
    struct slab leases, claims, extras, locks, records, usages, texts[TEXT_CLASSES];
    struct index lease_index, lock_index, usage_index;
    struct index claim_index; /* of leases that have many */
    struct timers timers;
    unsigned char seed[16];

    /* The rest of the state. */
    int64_t now_ms;
    uint64_t last_token, last_ticket;
    uint32_t last_attachment;
    bool identified;
    unsigned char id[16];
    struct member members[CORE_MEMBERS_MAX];
    uint32_t member_count;
    uint64_t members_version; /* not state */

    uint32_t ended, places, ghosts; /* how many */
    uint64_t grants, expired, broken;

    const struct core_sink *sink;  /* while applying */
    struct core_text *renewing;    /* CORE_RENEW_MAX: of the RENEW being read */
    struct prefetched *prefetched; /* of the commands of the entry */
    uint32_t prefetched_capacity;
    const struct prefetched *known; /* of the command being applied; NULL: there is none */
    struct snapshot *snapshot;
    uint8_t epoch; /* of the last snapshot begun; 0 until there was one */
};

static inline struct lease *lease_at(const struct core *core, uint32_t slot)
{
    return slab_at(&core->leases, slot);
}

static inline struct claim *claim_at(const struct core *core, uint32_t slot)
{
    return slab_at(&core->claims, slot);
}

static inline struct lock *lock_at(const struct core *core, uint32_t slot)
{
    return slab_at(&core->locks, slot);
}

/* Or NULL. */
static inline struct extra *extra_of(const struct core *core, const struct claim *claim)
{
    return claim->flags & CLAIM_EXTRA ? slab_at(&core->extras, claim->extra) : NULL;
}

/* 0: it has none, and neither has any hold. */
static inline int64_t claim_deadline(const struct core *core, const struct claim *claim)
{
    return claim->flags & CLAIM_EXTRA ? extra_of(core, claim)->deadline_ms : 0;
}

static inline uint64_t claim_delay(const struct core *core, const struct claim *claim)
{
    return claim->flags & CLAIM_EXTRA ? extra_of(core, claim)->delay_ms : 0;
}

static inline uint32_t claim_attachment(const struct core *core, const struct claim *claim)
{
    return claim->flags & CLAIM_EXTRA ? extra_of(core, claim)->attachment : claim->attachment;
}

/* What became of a once-record, or NULL. */
static inline struct record *record_of(const struct core *core, const struct lock *lock)
{
    return lock->record ? slab_at(&core->records, lock->record - 1) : NULL;
}

static inline struct usage *usage_at(const struct core *core, uint32_t slot)
{
    return slab_at(&core->usages, slot);
}

/* Whose claim it is, as a lease has it. */
static inline uint32_t claim_usage(const struct core *core, const struct claim *claim)
{
    if (core->usages.used == 0)
        return 0;
    if (claim->lease != NONE)
        return lease_at(core, claim->lease)->usage;
    return claim->state == CORE_GHOST && claim->flags & CLAIM_EXTRA ? extra_of(core, claim)->usage
                                                                    : 0;
}

static inline bool texts_equal(struct core_text a, struct core_text b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

/* When a lease ends, a kept one if nobody kept it, an ended one in memory; 0: that was not set yet. */
static inline int64_t lease_deadline(const struct core *core, const struct lease *lease)
{
    int64_t deadline_ms;

    if (!lease->kept)
        return timers_deadline(&core->timers, &lease->timer);
    memcpy(&deadline_ms, lease->kept_until, sizeof deadline_ms);
    return deadline_ms;
}

/* No deadline is later, nor is one believed that comes from elsewhere: it would stay for ever. */
static inline int64_t deadline_max(const struct core *core)
{
    return core->now_ms + 3 * CORE_SPAN_MAX_MS;
}

/* What the hash of a key begins with: no two kinds are the same. */
#define HASH_LEASE 1u
#define HASH_LOCK 2u
#define HASH_ONCE 3u
#define HASH_CLAIM 4u
#define HASH_USER 5u

/* ---- texts.c ---- */
void texts_init(struct core *core);
void texts_free(struct core *core);
uint32_t text_store(struct core *core, struct core_text text);
void text_drop(struct core *core, uint32_t slot, size_t size);
const char *text_bytes(const struct core *core, uint32_t slot, size_t size);

/* ---- quota.c ---- */
uint32_t usage_find(const struct core *core, struct core_text user);
struct core_text usage_name(const struct core *core, const struct usage *usage);
/* A claim has come into a list of its lock, or is about to leave it. */
void quota_on_enlist(struct core *core, const struct claim *claim);
void quota_on_delist(struct core *core, const struct claim *claim);
/* From now on the lease is this user's, with all that it has. False: there are too many users. */
bool quota_join(struct core *core, uint32_t lease, struct core_text user);
/* The same of a ghost, which is to be enlisted next. */
bool quota_of_ghost(struct core *core, struct core_text user, uint32_t *ret_usage);
/* It is over, and nobody's. */
void quota_leave(struct core *core, uint32_t lease);
/* 0, or which limit keeps this lease (NONE: a new one) from one claim more, and what its user has of so many. */
enum core_answer quota_exceeded(const struct core *core, const struct core_command *command,
                                uint32_t lease, bool waits, uint64_t *ret_count,
                                uint64_t *ret_limit);
bool quota_is_sound(const struct core *core); /* [C10] */

/* ---- acquire.c ---- */
void core_acquire(struct core *core, uint32_t number, const struct core_command *command);
/* Never sooner than it was: a TTL in ACQUIRE does not shorten a living lease. */
void lease_prolong(struct core *core, uint32_t lease, uint32_t ttl_ms);
/* An answer that is no more than a number. */
void core_reply(struct core *core, uint32_t command, enum core_answer what, uint64_t number);

/* ---- records.c: making, finding and forgetting records; who is in whose list ---- */
struct core_text lease_id(const struct core *core, const struct lease *lease);
struct core_text lock_name(const struct core *core, const struct lock *lock);
struct core_text claim_owner(const struct core *core, const struct claim *claim);
uint32_t lease_find(const struct core *core, struct core_text id);
uint32_t lease_make(struct core *core, struct core_text id);
void lease_forget(struct core *core, uint32_t lease);
/* The same in a slot that the restorer says. False: it is taken, or the id is there already. */
bool lease_make_at(struct core *core, uint32_t slot, struct core_text id);
uint32_t lock_find(const struct core *core, struct core_text name, bool once);
uint32_t lock_make(struct core *core, struct core_text name, bool once);
bool lock_make_at(struct core *core, uint32_t slot, struct core_text name, bool once);
/* Forgets the name if nothing is left of it [C6]. */
void lock_tidy(struct core *core, uint32_t lock);
uint32_t claim_find(const struct core *core, uint32_t lock, uint32_t lease);
/* A claim of no list yet. */
uint32_t claim_make(struct core *core, uint32_t lock, struct core_text owner);
void claim_fill(struct core *core, uint32_t claim, uint32_t lock, struct core_text owner);
void claim_enlist(struct core *core, uint32_t claim); /* at the end of its lock's list by state */
void claim_delist(struct core *core, uint32_t claim); /* out of it */
void claim_bind(struct core *core, uint32_t claim, uint32_t lease);
void claim_unbind(struct core *core, uint32_t claim);
void claim_forget(struct core *core, uint32_t claim); /* in no list any more */
/* The claim's extra, which is made if it has none. */
struct extra *extra_make(struct core *core, uint32_t claim);
/* It has none any more, and no deadline; its attachment stays. */
void extra_drop(struct core *core, uint32_t claim);
/* What the command, the entry's so-and-so-manieth, will look for is fetched from memory while others are
 * being read; and its hashes are remembered. */
void core_prefetch(struct core *core, uint32_t number, const struct core_command *command);
void lease_set_deadline(struct core *core, uint32_t lease, int64_t deadline_ms);
/* One more of its places is kept, and no time ends it. */
void lease_keep(struct core *core, uint32_t lease);
/* One less; after the last one it ends then. */
void lease_unkeep(struct core *core, uint32_t lease, int64_t end_ms);

/* ---- granting.c ---- */
/* Each of these may grant to others, and forget the name; not the lease. */
void hold_end(struct core *core, uint32_t claim, enum core_why why);
void place_end(struct core *core, uint32_t claim, enum core_why why);
void place_keep(struct core *core, uint32_t claim, bool kept);
/* Until when the holder of a living lease may believe in it. */
int64_t lease_end_ms(const struct core *core, const struct lease *lease);
/* Grants to the head of the queue as long as that is possible [C2]. */
void lock_advance(struct core *core, uint32_t lock);
/* Ends a lease and all its claims, and remembers it so long (negative: forgets it). How many claims
 * there were. withhold:
 * of a broken lease, whether its names are withheld until it would have run out. */
uint32_t lease_end(struct core *core, uint32_t lease, enum core_why why, bool withhold,
                   int64_t remember_ms);
/* A lease without claims is over. */
void lease_tidy(struct core *core, uint32_t lease);
bool lock_admits(const struct core *core, const struct lock *lock, int mode);
void claim_grant(struct core *core, uint32_t claim);
void record_forget(struct core *core, uint32_t lock);
/* result.bytes NULL: the runner died. */
void record_set(struct core *core, uint32_t lock, struct core_text result, uint64_t token,
                int64_t deadline_ms);

/* ---- expiry.c ---- */
/* Ends what is due, in its order, at most CORE_ENDINGS_MAX. */
void core_end_due(struct core *core);
void core_unkeep_all(struct core *core);

/* ---- entry.c ---- */
struct unpacker {
    const unsigned char *at, *end;
    struct core_text *leases; /* CORE_RENEW_MAX, lent; NULL: only looks */
    bool users;               /* as in the header */
};
/* Checks the whole entry, then stands before its first command. HF_EREFUSED: it is none. */
int core_unpack_begin(struct unpacker *unpacker, struct core *core, const void *bytes, size_t size,
                      struct core_entry_header *ret_header, struct error_text *err);
/* The next command, which lives as long as the entry, its leases until the next call. False: the
 * bytes are no command within the limits, which core_unpack_begin has ruled out. */
bool core_unpack(struct unpacker *unpacker, struct core_command *ret_command);

/* ---- snapshot.c ---- */
/* To be called before a record changes or goes. */
void snapshot_save_lease(struct core *core, uint32_t lease);
void snapshot_save_lock(struct core *core, uint32_t lock);

static inline void touch_lease(struct core *core, uint32_t lease)
{
    if (core->snapshot && lease_at(core, lease)->epoch != core->epoch)
        snapshot_save_lease(core, lease);
}

/* For a lock and all its claims. */
static inline void touch_lock(struct core *core, uint32_t lock)
{
    if (core->snapshot && lock_at(core, lock)->epoch != core->epoch)
        snapshot_save_lock(core, lock);
}

void core_emit(struct core *core, const struct core_effect *effect);

/* members.c. False: nothing was changed. */
bool member_set(struct core *core, uint64_t id, struct core_text address);

#endif
