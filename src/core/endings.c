/* endings.c: what ends because time passes, and what a new leader's term ends. */
#include "core/inside.h"

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

void core_end_due(struct core *core)
{
    for (uint32_t i = 0; i < CORE_ENDINGS_MAX; i++) {
        const struct timer *first = timers_first(&core->timers);
        uint32_t slot;

        if (!first || first->deadline_ms > core->now_ms)
            return;
        slot = timer_slot(first);
        switch (timer_kind(first)) {
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
