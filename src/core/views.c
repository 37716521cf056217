/* views.c: looking at the table. Nothing here changes anything. */
#include "base/text.h"
#include "core/inside.h"

#include <string.h>

static struct core_lock_view lock_view(const struct core *core, const struct lock *lock)
{
    const struct record *record = record_of(core, lock);
    struct core_lock_view view = {.name = lock_name(core, lock),
                                  .once = lock->once,
                                  .holds = lock->holds,
                                  .places = lock->places,
                                  .permits = lock->permits};

    for (uint32_t i = lock->first_hold; i != NONE; i = claim_at(core, i)->lock_next)
        view.ghosts += claim_at(core, i)->state == CORE_GHOST;
    view.holds -= view.ghosts;
    if (record) {
        view.done = record->bytes != NULL;
        view.died = record->bytes == NULL;
        view.result = (struct core_text){record->bytes, record->size};
        view.result_token = record->token;
        view.result_left_ms = record->deadline_ms - core->now_ms;
    }
    return view;
}

bool core_find(const struct core *core, struct core_text name, bool once,
               struct core_lock_view *ret_view)
{
    uint32_t slot = lock_find(core, name, once);

    if (slot == NONE)
        return false;
    *ret_view = lock_view(core, lock_at(core, slot));
    return true;
}

static int64_t left_of(const struct core *core, const struct claim *claim)
{
    const struct lease *lease;

    if (claim->lease == NONE)
        return claim_deadline(core, claim) - core->now_ms;
    lease = lease_at(core, claim->lease);
    return lease->kept ? -1 : lease_deadline(core, lease) - core->now_ms;
}

static struct core_claim_view claim_view(const struct core *core, const struct claim *claim)
{
    const struct lock *lock = lock_at(core, claim->lock);
    struct core_claim_view view = {.name = lock_name(core, lock),
                                   .lease = {"", 0},
                                   .owner = claim_owner(core, claim),
                                   .state = claim->state,
                                   .mode = claim->mode,
                                   .permits = lock->permits,
                                   .number = claim->number,
                                   .age_ms = core->now_ms - claim->since_ms,
                                   .left_ms = left_of(core, claim),
                                   .delay_ms = (int64_t)claim_delay(core, claim)};

    if (claim->lease != NONE)
        view.lease = lease_id(core, lease_at(core, claim->lease));
    return view;
}

static void each(const struct core *core, uint32_t slot, core_claim_fn *fn, void *context)
{
    for (; slot != NONE; slot = claim_at(core, slot)->lock_next) {
        struct core_claim_view view = claim_view(core, claim_at(core, slot));

        if (!fn(context, &view))
            return;
    }
}

void core_each_hold(const struct core *core, struct core_text name, bool once, core_claim_fn *fn,
                    void *context)
{
    uint32_t slot = lock_find(core, name, once);

    if (slot != NONE)
        each(core, lock_at(core, slot)->first_hold, fn, context);
}

void core_each_place(const struct core *core, struct core_text name, bool once, core_claim_fn *fn,
                     void *context)
{
    uint32_t slot = lock_find(core, name, once);

    if (slot != NONE)
        each(core, lock_at(core, slot)->first_place, fn, context);
}

uint32_t core_list(const struct core *core, uint32_t cursor, uint32_t steps, core_lock_fn *fn,
                   void *context)
{
    uint32_t slot = slab_next(&core->locks, cursor);

    for (; slot != NONE && steps > 0; steps--) {
        struct core_lock_view view = lock_view(core, lock_at(core, slot));
        bool more = fn(context, &view);

        slot = slab_next(&core->locks, slot + 1);
        if (!more)
            break;
    }
    return slot == NONE ? 0 : slot;
}

void core_each_token(const struct core *core, struct core_text lease, core_token_fn *fn,
                     void *context)
{
    uint32_t slot = lease_find(core, lease);

    if (slot == NONE)
        return;
    for (uint32_t i = lease_at(core, slot)->first_claim; i != NONE;
         i = claim_at(core, i)->lease_next)
        if (claim_at(core, i)->state == CORE_HOLD && !fn(context, claim_at(core, i)->number))
            return;
}

int core_mode_of(const struct core *core, struct core_text name, uint64_t token)
{
    uint32_t lock = lock_find(core, name, false);

    if (lock == NONE)
        return -1;
    for (uint32_t i = lock_at(core, lock)->first_hold; i != NONE; i = claim_at(core, i)->lock_next)
        if (claim_at(core, i)->number == token)
            return claim_at(core, i)->state == CORE_HOLD ? claim_at(core, i)->mode : -1;
    return -1;
}

bool core_alive(const struct core *core, struct core_text name, uint64_t token)
{
    return core_mode_of(core, name, token) >= 0;
}

void core_count(const struct core *core, struct core_counts *ret_counts)
{
    memset(ret_counts, 0, sizeof *ret_counts);
    ret_counts->locks = core->locks.used;
    ret_counts->records = core->records.used;
    ret_counts->leases = core->leases.used - core->ended;
    ret_counts->ended = core->ended;
    ret_counts->places = core->places;
    ret_counts->ghosts = core->ghosts;
    ret_counts->holds = core->claims.used - core->places - core->ghosts;
    ret_counts->users = core->usages.used;
    ret_counts->last_token = core->last_token;
    ret_counts->last_ticket = core->last_ticket;
    ret_counts->grants = core->grants;
    ret_counts->expired = core->expired;
    ret_counts->broken = core->broken;
    ret_counts->identified = core->identified;
    text_hex(core->id, sizeof core->id, ret_counts->id);
}
