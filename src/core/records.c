/* records.c: making, finding and forgetting leases, locks and claims, and who is in whose list.
 * Nothing here decides anything. */
#include "core/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- texts of records ------------------------------------------------------------------------- */

struct core_text lease_id(const struct core *core, const struct lease *lease)
{
    return (struct core_text){text_bytes(core, lease->id_slot, lease->id_size), lease->id_size};
}

struct core_text lock_name(const struct core *core, const struct lock *lock)
{
    return (struct core_text){text_bytes(core, lock->name_slot, lock->name_size), lock->name_size};
}

struct core_text claim_owner(const struct core *core, const struct claim *claim)
{
    return (struct core_text){text_bytes(core, claim->owner_slot, claim->owner_size),
                              claim->owner_size};
}

/* ---- leases ----------------------------------------------------------------------------------- */

static uint32_t lease_hash(const struct core *core, struct core_text id)
{
    if (core->known && id.bytes == core->known->lease)
        return core->known->lease_hash;
    return index_hash(core->seed, id.bytes, id.size, HASH_LEASE);
}

uint32_t lease_find(const struct core *core, struct core_text id)
{
    uint32_t slot = index_first(&core->lease_index, lease_hash(core, id));

    while (slot != NONE && !texts_equal(lease_id(core, lease_at(core, slot)), id))
        slot = index_next(&core->lease_index, slot);
    return slot;
}

static void lease_fill(struct core *core, uint32_t slot, struct core_text id)
{
    struct lease *lease = lease_at(core, slot);

    lease->id_size = (uint8_t)id.size;
    lease->id_slot = text_store(core, id);
    lease->first_claim = NONE;
    lease->epoch = core->epoch;
    index_add(&core->lease_index, slot, lease_hash(core, id));
}

uint32_t lease_make(struct core *core, struct core_text id)
{
    uint32_t slot = slab_take(&core->leases);

    lease_fill(core, slot, id);
    return slot;
}

bool lease_make_at(struct core *core, uint32_t slot, struct core_text id)
{
    if (lease_find(core, id) != NONE || !slab_take_at(&core->leases, slot))
        return false;
    lease_fill(core, slot, id);
    return true;
}

void lease_forget(struct core *core, uint32_t slot)
{
    struct lease *lease = lease_at(core, slot);

    touch_lease(core, slot);
    INVARIANT(lease->claims == 0);
    quota_leave(core, slot);
    timers_clear(&core->timers, TIMER_LEASE, slot);
    if (lease->ended)
        core->ended--;
    index_remove(&core->lease_index, slot);
    text_drop(core, lease->id_slot, lease->id_size);
    slab_give(&core->leases, slot);
}

void lease_set_deadline(struct core *core, uint32_t slot, int64_t deadline_ms)
{
    struct lease *lease = lease_at(core, slot);

    touch_lease(core, slot);
    if (lease->kept)
        memcpy(lease->kept_until, &deadline_ms, sizeof deadline_ms);
    else
        timers_set(&core->timers, TIMER_LEASE, slot, deadline_ms);
}

void lease_keep(struct core *core, uint32_t slot)
{
    struct lease *lease = lease_at(core, slot);
    int64_t deadline_ms = lease_deadline(core, lease);

    touch_lease(core, slot);
    timers_clear(&core->timers, TIMER_LEASE, slot); /* before its room is used otherwise */
    lease->kept++;
    lease_set_deadline(core, slot, deadline_ms);
}

void lease_unkeep(struct core *core, uint32_t slot, int64_t end_ms)
{
    struct lease *lease = lease_at(core, slot);

    touch_lease(core, slot);
    if (--lease->kept > 0)
        return;
    lease->timer = (struct timer){TIMER_NONE, 0};
    lease_set_deadline(core, slot, end_ms);
}

/* ---- locks ------------------------------------------------------------------------------------ */

static uint32_t lock_hash(const struct core *core, struct core_text name, bool once)
{
    if (core->known && name.bytes == core->known->name && once == core->known->once)
        return core->known->name_hash;
    return index_hash(core->seed, name.bytes, name.size, once ? HASH_ONCE : HASH_LOCK);
}

uint32_t lock_find(const struct core *core, struct core_text name, bool once)
{
    uint32_t slot = index_first(&core->lock_index, lock_hash(core, name, once));

    while (slot != NONE && !(lock_at(core, slot)->once == once &&
                             texts_equal(lock_name(core, lock_at(core, slot)), name)))
        slot = index_next(&core->lock_index, slot);
    return slot;
}

static void lock_fill(struct core *core, uint32_t slot, struct core_text name, bool once)
{
    struct lock *lock = lock_at(core, slot);

    lock->name_size = (uint16_t)name.size;
    lock->name_slot = text_store(core, name);
    lock->once = once;
    lock->first_hold = lock->last_hold = lock->first_place = lock->last_place = NONE;
    lock->epoch = core->epoch;
    index_add(&core->lock_index, slot, lock_hash(core, name, once));
}

uint32_t lock_make(struct core *core, struct core_text name, bool once)
{
    uint32_t slot = slab_take(&core->locks);

    lock_fill(core, slot, name, once);
    return slot;
}

bool lock_make_at(struct core *core, uint32_t slot, struct core_text name, bool once)
{
    if (lock_find(core, name, once) != NONE || !slab_take_at(&core->locks, slot))
        return false;
    lock_fill(core, slot, name, once);
    return true;
}

void lock_tidy(struct core *core, uint32_t slot)
{
    struct lock *lock = lock_at(core, slot);

    if (lock->holds || lock->places || lock->record)
        return;
    touch_lock(core, slot);
    index_remove(&core->lock_index, slot);
    text_drop(core, lock->name_slot, lock->name_size);
    slab_give(&core->locks, slot);
}

/* ---- once-records ----------------------------------------------------------------------------- */

void record_forget(struct core *core, uint32_t slot)
{
    struct lock *lock = lock_at(core, slot);

    if (!lock->record)
        return;
    touch_lock(core, slot);
    timers_clear(&core->timers, TIMER_LOCK, slot);
    free(record_of(core, lock)->bytes);
    slab_give(&core->records, lock->record - 1);
    lock->record = 0;
}

void record_set(struct core *core, uint32_t slot, struct core_text result, uint64_t token,
                int64_t deadline_ms)
{
    struct lock *lock = lock_at(core, slot);
    struct record *record;

    record_forget(core, slot);
    touch_lock(core, slot);
    lock->record = slab_take(&core->records) + 1;
    record = record_of(core, lock);
    record->token = token;
    record->deadline_ms = deadline_ms;
    if (result.bytes) {
        record->bytes = core_alloc(result.size + 1);
        record->size = (uint32_t)result.size;
        memcpy(record->bytes, result.bytes, result.size);
    }
    timers_set(&core->timers, TIMER_LOCK, slot, deadline_ms);
}

/* ---- claims ----------------------------------------------------------------------------------- */

static uint32_t claim_hash(const struct core *core, uint32_t lock_slot, uint32_t lease_slot)
{
    const uint32_t key[2] = {lock_slot, lease_slot};

    return index_hash(core->seed, key, sizeof key, HASH_CLAIM);
}

/* Most leases have one claim, or a few, and their list is as good as an index. */
uint32_t claim_find(const struct core *core, uint32_t lock_slot, uint32_t lease_slot)
{
    const struct lease *lease = lease_at(core, lease_slot);
    uint32_t slot = lease->indexed
                        ? index_first(&core->claim_index, claim_hash(core, lock_slot, lease_slot))
                        : lease->first_claim;

    while (slot != NONE) {
        const struct claim *claim = claim_at(core, slot);

        if (claim->lock == lock_slot && claim->lease == lease_slot)
            return slot;
        slot = lease->indexed ? index_next(&core->claim_index, slot) : claim->lease_next;
    }
    return NONE;
}

uint32_t claim_make(struct core *core, uint32_t lock, struct core_text owner)
{
    uint32_t slot = slab_take(&core->claims);

    claim_fill(core, slot, lock, owner);
    return slot;
}

void claim_fill(struct core *core, uint32_t slot, uint32_t lock, struct core_text owner)
{
    struct claim *claim = claim_at(core, slot);

    claim->lock = lock;
    claim->lease = claim->lease_prev = claim->lease_next = NONE;
    claim->lock_prev = claim->lock_next = NONE;
    claim->owner_size = (uint8_t)owner.size;
    claim->owner_slot = text_store(core, owner);
}

void claim_enlist(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);
    struct lock *lock = lock_at(core, claim->lock);
    bool place = claim->state == CORE_PLACE;
    uint32_t *first = place ? &lock->first_place : &lock->first_hold;
    uint32_t *last = place ? &lock->last_place : &lock->last_hold;

    claim->lock_prev = *last;
    claim->lock_next = NONE;
    if (*last != NONE)
        claim_at(core, *last)->lock_next = slot;
    else
        *first = slot;
    *last = slot;
    if (place) {
        lock->places++;
        core->places++;
    } else {
        lock->holds++;
        core->ghosts += claim->state == CORE_GHOST;
    }
    quota_on_enlist(core, claim);
}

void claim_delist(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);
    struct lock *lock = lock_at(core, claim->lock);
    bool place = claim->state == CORE_PLACE;

    if (claim->lock_prev != NONE)
        claim_at(core, claim->lock_prev)->lock_next = claim->lock_next;
    else
        *(place ? &lock->first_place : &lock->first_hold) = claim->lock_next;
    if (claim->lock_next != NONE)
        claim_at(core, claim->lock_next)->lock_prev = claim->lock_prev;
    else
        *(place ? &lock->last_place : &lock->last_hold) = claim->lock_prev;
    if (place) {
        lock->places--;
        core->places--;
    } else {
        lock->holds--;
        core->ghosts -= claim->state == CORE_GHOST;
    }
    quota_on_delist(core, claim);
}

static void index_claims(struct core *core, struct lease *lease)
{
    lease->indexed = true;
    for (uint32_t slot = lease->first_claim; slot != NONE;) {
        const struct claim *claim = claim_at(core, slot);

        index_add(&core->claim_index, slot, claim_hash(core, claim->lock, claim->lease));
        slot = claim->lease_next;
    }
}

void claim_bind(struct core *core, uint32_t slot, uint32_t lease_slot)
{
    struct claim *claim = claim_at(core, slot);
    struct lease *lease = lease_at(core, lease_slot);

    claim->lease = lease_slot;
    claim->lease_prev = NONE;
    claim->lease_next = lease->first_claim;
    if (lease->first_claim != NONE)
        claim_at(core, lease->first_claim)->lease_prev = slot;
    lease->first_claim = slot;
    lease->claims++;
    if (lease->indexed)
        index_add(&core->claim_index, slot, claim_hash(core, claim->lock, lease_slot));
    else if (lease->claims > CLAIMS_LISTED_MAX)
        index_claims(core, lease);
}

void claim_unbind(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);

    if (claim->lease == NONE)
        return;
    if (lease_at(core, claim->lease)->indexed)
        index_remove(&core->claim_index, slot);
    if (claim->lease_prev != NONE)
        claim_at(core, claim->lease_prev)->lease_next = claim->lease_next;
    else
        lease_at(core, claim->lease)->first_claim = claim->lease_next;
    if (claim->lease_next != NONE)
        claim_at(core, claim->lease_next)->lease_prev = claim->lease_prev;
    lease_at(core, claim->lease)->claims--;
    claim->lease = claim->lease_prev = claim->lease_next = NONE;
}

struct extra *extra_make(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);
    uint32_t attachment = claim->attachment;

    if (claim->flags & CLAIM_EXTRA)
        return extra_of(core, claim);
    claim->flags |= CLAIM_EXTRA;
    claim->extra = slab_take(&core->extras);
    extra_of(core, claim)->attachment = attachment;
    return extra_of(core, claim);
}

void extra_drop(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);
    uint32_t attachment = claim_attachment(core, claim);

    if (!(claim->flags & CLAIM_EXTRA))
        return;
    timers_clear(&core->timers, TIMER_CLAIM, slot);
    slab_give(&core->extras, claim->extra);
    claim->flags &= (uint8_t)~CLAIM_EXTRA;
    claim->attachment = attachment;
}

void claim_forget(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);

    INVARIANT(claim->lease == NONE);
    extra_drop(core, slot);
    text_drop(core, claim->owner_slot, claim->owner_size);
    slab_give(&core->claims, slot);
}

void core_prefetch(struct core *core, uint32_t number, const struct core_command *command)
{
    struct prefetched prefetched = {.lease = command->lease.bytes,
                                    .name = command->name.bytes,
                                    .once = command->flags & CORE_ONCE};

    if (number >= core->prefetched_capacity) {
        core->prefetched_capacity = core->prefetched_capacity ? 2 * core->prefetched_capacity : 64;
        core->prefetched =
            core_realloc(core->prefetched, core->prefetched_capacity * sizeof *core->prefetched);
    }
    if (command->lease.size) {
        prefetched.lease_hash = lease_hash(core, command->lease);
        index_prefetch(&core->lease_index, prefetched.lease_hash);
    }
    if (command->name.size) {
        prefetched.name_hash = lock_hash(core, command->name, prefetched.once);
        index_prefetch(&core->lock_index, prefetched.name_hash);
    }
    core->prefetched[number] = prefetched;
}
