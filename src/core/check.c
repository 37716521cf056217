/* check.c: does the table obey its invariants (core.h numbers them), and is it the same as another?
 * For tests, simulators and a snapshot that has just been read. */
#include "base/hash.h"
#include "core/snapshot.h"

#include <stdlib.h>

#define BROKEN(err, ...) error_set((err), HF_EIO, __VA_ARGS__)

static bool is_timed(const struct core *core, const struct claim *claim)
{
    return claim->flags & CLAIM_EXTRA && extra_of(core, claim)->timer.moment != TIMER_NONE;
}

static int check_extra(const struct core *core, const struct claim *claim, struct error_text *err)
{
    bool needed = claim->state != CORE_HOLD || claim_delay(core, claim) != 0;

    if (needed && !(claim->flags & CLAIM_EXTRA))
        return BROKEN(err, "[C9] a place or a ghost has no extra");
    if (!needed && claim->flags & CLAIM_EXTRA)
        return BROKEN(err, "[C9] a hold has an extra without need");
    if (claim->state == CORE_HOLD && claim_deadline(core, claim) != 0)
        return BROKEN(err, "[C9] a hold has the deadline of the place that it was");
    return HF_OK;
}

static int check_hold(const struct core *core, const struct lock *lock, const struct claim *claim,
                      uint64_t before, struct error_text *err)
{
    const struct claim *first = claim_at(core, lock->first_hold);

    if (claim->mode != first->mode || (claim->mode == HF_EXCLUSIVE && lock->holds != 1) ||
        (claim->mode == HF_PERMIT) != (lock->permits != 0) ||
        (lock->permits && lock->holds > lock->permits) ||
        (lock->once && claim->mode != HF_EXCLUSIVE))
        return BROKEN(err, "[C1] conflicting holds");
    if (claim->number <= before || claim->number > core->last_token)
        return BROKEN(err, "[C3] token %llu is out of order", (unsigned long long)claim->number);
    if ((claim->state == CORE_GHOST) != (claim->lease == NONE) || claim->state == CORE_PLACE)
        return BROKEN(err, "[C5] a hold without a lease, or a ghost with one");
    if (claim->flags & CLAIM_KEPT)
        return BROKEN(err, "[C8] a hold is kept");
    if (check_extra(core, claim, err) != HF_OK)
        return HF_EIO;
    if ((claim->state == CORE_GHOST) != is_timed(core, claim))
        return BROKEN(err, "[C7] a ghost without a deadline, or a hold with one");
    return HF_OK;
}

static int check_place(const struct core *core, const struct lock *lock, const struct claim *claim,
                       uint64_t before, struct error_text *err)
{
    if (claim->number <= before || claim->number > core->last_ticket)
        return BROKEN(err, "[C4] ticket %llu is out of order", (unsigned long long)claim->number);
    if (claim->lease == NONE || claim->state != CORE_PLACE)
        return BROKEN(err, "[C5] a place without a lease");
    if ((claim->mode == HF_PERMIT) != (lock->permits != 0) ||
        (lock->once && claim->mode != HF_EXCLUSIVE))
        return BROKEN(err, "[C1] a place in another mode than its name");
    if (check_extra(core, claim, err) != HF_OK)
        return HF_EIO;
    if ((claim_deadline(core, claim) == INT64_MAX) == is_timed(core, claim))
        return BROKEN(err, "[C7] a place's WAIT is not in the timers, or without need");
    return HF_OK;
}

/* Before anybody looks into them. */
static int check_extras(const struct core *core, struct error_text *err)
{
    bool *seen = core_alloc(slab_end(&core->extras) + 1), sound = true;
    uint32_t count = 0;

    for (uint32_t i = slab_next(&core->claims, 0); i != NONE && sound;
         i = slab_next(&core->claims, i + 1)) {
        const struct claim *claim = claim_at(core, i);

        if (!(claim->flags & CLAIM_EXTRA))
            continue;
        sound = slab_is_used(&core->extras, claim->extra) && !seen[claim->extra];
        if (sound)
            seen[claim->extra] = true;
        count++;
    }
    free(seen);
    if (!sound)
        return BROKEN(err, "[C9] a claim has an extra that is not its own");
    if (count != core->extras.used)
        return BROKEN(err, "[C9] an extra that no claim has");
    return HF_OK;
}

static int check_lock(const struct core *core, uint32_t slot, struct error_text *err)
{
    const struct lock *lock = lock_at(core, slot);
    uint64_t before = 0;
    uint32_t count = 0;
    int result = HF_OK;

    for (uint32_t i = lock->first_hold; i != NONE && result == HF_OK;
         i = claim_at(core, i)->lock_next, count++) {
        result = check_hold(core, lock, claim_at(core, i), before, err);
        before = claim_at(core, i)->number;
    }
    if (result == HF_OK && count != lock->holds)
        return BROKEN(err, "[C1] the number of holds is wrong");
    before = count = 0;
    for (uint32_t i = lock->first_place; i != NONE && result == HF_OK;
         i = claim_at(core, i)->lock_next, count++) {
        result = check_place(core, lock, claim_at(core, i), before, err);
        before = claim_at(core, i)->number;
    }
    if (result != HF_OK)
        return result;
    if (count != lock->places)
        return BROKEN(err, "[C4] the number of places is wrong");
    if (lock->places && lock_admits(core, lock, claim_at(core, lock->first_place)->mode))
        return BROKEN(err, "[C2] the first place could be granted");
    if (!lock->holds && !lock->places && !lock->record)
        return BROKEN(err, "[C6] a name that nobody uses");
    if (lock->once && lock->permits)
        return BROKEN(err, "[C1] a once-record with permits");
    if (lock->record &&
        (!lock->once || lock->holds || (lock->places && core->last_token < HF_TOKEN_MAX)))
        return BROKEN(err, "[C6] a record beside a hold or a place");
    if (lock->record && record_of(core, lock)->timer.moment == TIMER_NONE)
        return BROKEN(err, "[C7] a record without a deadline");
    return HF_OK;
}

static int check_lease(const struct core *core, uint32_t slot, struct error_text *err)
{
    const struct lease *lease = lease_at(core, slot);
    uint32_t count = 0, kept = 0;

    for (uint32_t i = lease->first_claim; i != NONE; i = claim_at(core, i)->lease_next, count++) {
        if (claim_at(core, i)->lease != slot)
            return BROKEN(err, "[C5] a lease has somebody else's claim");
        if (!lease->indexed && count >= CLAIMS_LISTED_MAX)
            return BROKEN(err, "[C5] a lease with many claims has no index");
        if (claim_find(core, claim_at(core, i)->lock, slot) != i)
            return BROKEN(err, "[C5] a claim that is not found");
        kept += claim_at(core, i)->flags & CLAIM_KEPT;
    }
    if (count != lease->claims || (count == 0) != lease->ended)
        return BROKEN(err, "[C5] a living lease with nothing, or an ended one with something");
    if (kept != lease->kept || (!kept && lease->timer.moment == TIMER_NONE))
        return BROKEN(err, "[C8] a lease without a deadline that nobody keeps, or the reverse");
    if (kept &&
        (lease_deadline(core, lease) < 0 || lease_deadline(core, lease) > deadline_max(core)))
        return BROKEN(err, "[C8] a kept lease would end when none can");
    if (!lease->ended && (lease->ttl_ms < HF_TTL_MIN_MS || lease->ttl_ms > CORE_TTL_MAX_MS))
        return BROKEN(err, "[C5] a lease with a TTL of %u ms", lease->ttl_ms);
    return HF_OK;
}

/* By its record; a lease leaves that to the timers. */
static int64_t deadline_of(const struct core *core, uint32_t what)
{
    uint32_t slot = timer_slot(what);

    switch (timer_kind(what)) {
    case TIMER_LEASE:
        return lease_deadline(core, lease_at(core, slot));
    case TIMER_CLAIM:
        return claim_deadline(core, claim_at(core, slot));
    case TIMER_LOCK:
        break;
    }
    return record_of(core, lock_at(core, slot))->deadline_ms;
}

static bool is_indexed(const struct timers *timers, uint32_t slot)
{
    const struct moment *moment = slab_at(&timers->moments, slot);
    uint32_t i = index_first(&timers->index, moment->link.hash);

    while (i != SLAB_NONE && i != slot)
        i = index_next(&timers->index, i);
    return i == slot;
}

static int check_moment(const struct core *core, uint32_t slot, struct error_text *err)
{
    const struct timers *timers = &core->timers;
    const struct moment *moment = slab_at(&timers->moments, slot);
    uint32_t open = 0, before = 0;

    for (uint32_t i = 0; i < moment->count; i++) {
        uint32_t what = moment_list(moment)[i];
        const struct timer *timer;

        if (!what)
            continue;
        open++;
        timer = timers->of(timers->context, timer_kind(what), timer_slot(what));
        if (!timer || timer->moment != slot + 1 || timer->at != i)
            return BROKEN(err, "[C7] a deadline does not know its place");
        if (deadline_of(core, what) != moment->deadline_ms)
            return BROKEN(err, "[C7] a deadline in the timers is another than in its record");
        if (i < moment->first || (!moment->unordered && what < before))
            return BROKEN(err, "[C7] a deadline is in the wrong place");
        before = what;
    }
    if (open == 0 || open != moment->open)
        return BROKEN(err, "[C7] the number of deadlines in a moment is wrong");
    return HF_OK;
}

static bool has_deadline(const struct core *core, enum timer_kind kind, uint32_t slot)
{
    const struct timer *timer = core->timers.of(core->timers.context, kind, slot);

    return timer && timer->moment != TIMER_NONE;
}

/* By what the records say. */
static uint32_t count_deadlines(const struct core *core)
{
    uint32_t count = 0;

    for (uint32_t i = slab_next(&core->leases, 0); i != NONE; i = slab_next(&core->leases, i + 1))
        count += has_deadline(core, TIMER_LEASE, i);
    for (uint32_t i = slab_next(&core->claims, 0); i != NONE; i = slab_next(&core->claims, i + 1))
        count += has_deadline(core, TIMER_CLAIM, i);
    for (uint32_t i = slab_next(&core->locks, 0); i != NONE; i = slab_next(&core->locks, i + 1))
        count += has_deadline(core, TIMER_LOCK, i);
    return count;
}

static int check_timers(const struct core *core, struct error_text *err)
{
    const struct timers *timers = &core->timers;
    uint32_t listed = 0;

    for (uint32_t i = 1; i <= timers->count; i++) {
        const struct due *due = &timers->heap[i];
        const struct moment *moment = slab_at(&timers->moments, due->moment);

        if (moment->at != i || moment->deadline_ms != due->deadline_ms ||
            !is_indexed(timers, due->moment))
            return BROKEN(err, "[C7] a moment does not know its place");
        if (due->deadline_ms < timers->heap[1].deadline_ms)
            return BROKEN(err, "[C7] the moment that comes first is not the first");
        if (check_moment(core, due->moment, err) != HF_OK)
            return HF_EIO;
        listed += moment->open;
    }
    if (timers->count != timers->moments.used || listed != count_deadlines(core))
        return BROKEN(err, "[C7] a deadline is not in the timers");
    if (timers->recent && !slab_is_used(&timers->moments, timers->recent - 1))
        return BROKEN(err, "[C7] the moment that was used last is gone");
    return HF_OK;
}

int core_check(const struct core *core, struct error_text *err)
{
    uint32_t claims = 0;
    int result = check_extras(core, err);

    for (uint32_t i = slab_next(&core->locks, 0); i != NONE && result == HF_OK;
         i = slab_next(&core->locks, i + 1)) {
        claims += lock_at(core, i)->holds + lock_at(core, i)->places;
        result = check_lock(core, i, err);
    }
    if (result == HF_OK && claims != core->claims.used)
        return BROKEN(err, "[C5] a claim that no name knows");
    claims = 0;
    for (uint32_t i = slab_next(&core->leases, 0); i != NONE && result == HF_OK;
         i = slab_next(&core->leases, i + 1)) {
        claims += lease_at(core, i)->indexed ? lease_at(core, i)->claims : 0;
        result = check_lease(core, i, err);
    }
    if (result == HF_OK && claims != core->claim_index.count)
        return BROKEN(err, "[C5] the index of claims knows others");
    if (result == HF_OK && !quota_is_sound(core))
        return BROKEN(err, "[C10] what a user has is counted wrong");
    return result == HF_OK ? check_timers(core, err) : result;
}

uint64_t core_hash(const struct core *core)
{
    struct snapshot_writer writer = {NULL};
    uint64_t hash;

    snapshot_write_header(&writer, core);
    hash = hash_bytes(writer.bytes, writer.size);
    /* A sum, so that the order in which records are met does not matter. */
    for (uint32_t i = slab_next(&core->leases, 0); i != NONE; i = slab_next(&core->leases, i + 1)) {
        writer.size = 0;
        snapshot_write_lease(&writer, core, i);
        hash += hash_bytes(writer.bytes, writer.size);
    }
    for (uint32_t i = slab_next(&core->locks, 0); i != NONE; i = slab_next(&core->locks, i + 1)) {
        writer.size = 0;
        snapshot_write_lock(&writer, core, i);
        hash += hash_bytes(writer.bytes, writer.size);
    }
    free(writer.bytes);
    return hash;
}

typedef void write_record_fn(struct snapshot_writer *writer, const struct core *core,
                             uint32_t slot);

static void write_part(struct snapshot_writer *writer, const struct core *core,
                       const struct slab *slab, write_record_fn *write, uint64_t number,
                       uint32_t slots)
{
    uint32_t parts = (slab_top(slab) + slots - 1) / slots, first;

    if (parts == 0)
        return;
    first = (uint32_t)(number % parts) * slots;
    for (uint32_t i = slab_next(slab, first); i != NONE && i < first + slots;
         i = slab_next(slab, i + 1))
        write(writer, core, i);
}

uint64_t core_hash_part(const struct core *core, uint64_t number, uint32_t slots)
{
    struct snapshot_writer writer = {NULL};
    uint64_t hash;

    snapshot_write_header(&writer, core);
    write_part(&writer, core, &core->leases, snapshot_write_lease, number, slots);
    write_part(&writer, core, &core->locks, snapshot_write_lock_alone, number, slots);
    write_part(&writer, core, &core->claims, snapshot_write_claim, number, slots);
    hash = hash_bytes(writer.bytes, writer.size);
    free(writer.bytes);
    return hash;
}
