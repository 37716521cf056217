/* expiry.c: what ends because time passes, and what a new leader's term ends. */
#include "core/inside.h"

/* How many places before its end each thing is fetched: as far apart as memory takes to answer. */
#define LEASE_AHEAD 12u
#define CLAIM_AHEAD 9u
#define LOCK_AHEAD 6u
#define NAME_AHEAD 3u

/* The connections that kept places alive were another leader's: from now on their TTL runs. */
void core_unkeep_all(struct core *core)
{
    for (uint32_t i = slab_next(&core->claims, 0); i != NONE; i = slab_next(&core->claims, i + 1))
        if (claim_at(core, i)->flags & CLAIM_KEPT)
            place_keep(core, i, false);
}

static void end_lease_in_time(struct core *core, uint32_t slot)
{
    const struct lease *lease = lease_at(core, slot);

    if (lease->ended) {
        lease_forget(core, slot);
        return;
    }
    /* It is not remembered: nobody said that nothing of it must come any more. */
    core->expired++;
    lease_end(core, slot, WHY_EXPIRED, true, -1);
}

static void end_claim_in_time(struct core *core, uint32_t slot)
{
    uint32_t lease = claim_at(core, slot)->lease;

    if (claim_at(core, slot)->state == CORE_GHOST) {
        hold_end(core, slot, WHY_EXPIRED);
        return;
    }
    place_end(core, slot, WHY_WAIT_OVER);
    lease_tidy(core, lease);
}

/* ---- prefetching ends --------------------------------------------------------------------------
 * All inlined, as fetch has to be. */

__attribute__((always_inline)) static inline void prefetch_lease(const struct core *core,
                                                                 uint32_t what)
{
    if (timer_kind(what) == TIMER_LEASE)
        slab_prefetch(&core->leases, timer_slot(what));
}

/* The first claim, if it is a lease that ends and it has one, or NONE. Most have no more. */
__attribute__((always_inline)) static inline uint32_t first_claim(const struct core *core,
                                                                  uint32_t what)
{
    return timer_kind(what) == TIMER_LEASE ? lease_at(core, timer_slot(what))->first_claim : NONE;
}

__attribute__((always_inline)) static inline void prefetch_claim(const struct core *core,
                                                                 uint32_t what)
{
    uint32_t claim = first_claim(core, what);

    if (timer_kind(what) == TIMER_LEASE)
        index_prefetch(&core->lease_index, lease_at(core, timer_slot(what))->link.hash);
    if (claim != NONE)
        slab_prefetch(&core->claims, claim);
}

__attribute__((always_inline)) static inline void prefetch_lock(const struct core *core,
                                                                uint32_t what)
{
    uint32_t claim = first_claim(core, what);

    if (claim != NONE)
        slab_prefetch(&core->locks, claim_at(core, claim)->lock);
}

__attribute__((always_inline)) static inline void prefetch_name(const struct core *core,
                                                                uint32_t what)
{
    uint32_t claim = first_claim(core, what);

    if (claim != NONE)
        index_prefetch(&core->lock_index, lock_at(core, claim_at(core, claim)->lock)->link.hash);
}

/* What the end of a lease will look for is fetched from memory while those before it end. A lease says where its claim
 * is, that where its lock is, and that where its name is found: each is asked when it has come, so that nobody waits. */
__attribute__((always_inline)) static inline void prefetch_ends(const struct core *core)
{
    prefetch_lease(core, timers_ahead(&core->timers, LEASE_AHEAD));
    prefetch_claim(core, timers_ahead(&core->timers, CLAIM_AHEAD));
    prefetch_lock(core, timers_ahead(&core->timers, LOCK_AHEAD));
    prefetch_name(core, timers_ahead(&core->timers, NAME_AHEAD));
}

/* ---- ends ------------------------------------------------------------------------------------- */

void core_end_due(struct core *core)
{
    for (uint32_t i = 0; i < CORE_ENDINGS_MAX; i++) {
        uint32_t what = timers_due(&core->timers, core->now_ms), slot = timer_slot(what);

        if (what == TIMER_NONE)
            return;
        prefetch_ends(core);
        switch (timer_kind(what)) {
        case TIMER_LEASE:
            end_lease_in_time(core, slot);
            break;
        case TIMER_CLAIM:
            end_claim_in_time(core, slot);
            break;
        case TIMER_LOCK:
            record_forget(core, slot);
            lock_tidy(core, slot);
            break;
        }
    }
}
