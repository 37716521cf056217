/* endings.c: what ends because time passes, and what a new leader's term ends. */
#include "core/inside.h"

#define FORESEEN 6u

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

/* What the end of a lease will look for is fetched from memory while those before it end. */
__attribute__((always_inline)) static inline void foresee_end(const struct core *core,
                                                              uint32_t what)
{
    const struct lease *lease;

    if (timer_kind(what) != TIMER_LEASE)
        return;
    lease = lease_at(core, timer_slot(what));
    index_foresee(&core->lease_index, lease->link.hash);
    if (lease->first_claim != NONE)
        index_foresee(&core->lock_index,
                      lock_at(core, claim_at(core, lease->first_claim)->lock)->link.hash);
}

void core_end_due(struct core *core)
{
    for (uint32_t i = 0; i < CORE_ENDINGS_MAX; i++) {
        uint32_t what = timers_due(&core->timers, core->now_ms), slot = timer_slot(what);

        if (what == TIMER_NONE)
            return;
        foresee_end(core, timers_ahead(&core->timers, FORESEEN));
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
