/* granting.c: who gets a name, and what happens when a hold, a place or a lease ends. */
#include "base/switches.h"
#include "core/inside.h"

#include <stdlib.h>
#include <string.h>

#define CLAIMS_FEW 8u /* of a lease: no need for memory to list them */

void core_emit(struct core *core, const struct core_effect *effect)
{
    if (core->sink)
        core->sink->effect(core->sink->context, effect);
}

/* An effect about a claim, with the texts that go with it. */
static struct core_effect effect_of(const struct core *core, const struct claim *claim,
                                    enum core_effect_kind kind, enum core_why why)
{
    const struct lock *lock = lock_at(core, claim->lock);
    struct core_effect effect = {.kind = kind,
                                 .why = why,
                                 .number = claim->number,
                                 .once = lock->once,
                                 .name = lock_name(core, lock),
                                 .owner = claim_owner(core, claim)};

    if (claim->lease != NONE)
        effect.lease = lease_id(core, lease_at(core, claim->lease));
    return effect;
}

static void emit_changed(struct core *core, const struct claim *claim, enum core_why why)
{
    struct core_effect effect = effect_of(core, claim, EFFECT_CHANGED, why);

    core_emit(core, &effect);
}

/* ---- granting --------------------------------------------------------------------------------- */

/* As far as those who hold it are concerned; a ghost counts like the hold it was. */
bool lock_admits(const struct core *core, const struct lock *lock, int mode)
{
    if (core->last_token >= HF_TOKEN_MAX)
        return false;
    if (lock->holds == 0)
        return true;
    if (mode == HF_PERMIT)
        return lock->holds < lock->permits + (SWITCHED(SWITCH_PERMIT_TOO_MANY) ? 1 : 0);
    return mode == HF_SHARED && claim_at(core, lock->first_hold)->mode == HF_SHARED;
}

/* A hold needs no more than its delay, if it has one. */
static void extra_reduce(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);

    if (claim_delay(core, claim) == 0) {
        extra_drop(core, slot);
        return;
    }
    timers_clear(&core->timers, TIMER_CLAIM, slot);
    extra_of(core, claim)->deadline_ms = 0;
}

/* The claim is in no list of its lock. */
void claim_grant(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);

    extra_reduce(core, slot);
    claim->state = CORE_HOLD;
    claim->number = ++core->last_token;
    claim->since_ms = core->now_ms;
    claim_enlist(core, slot);
    core->grants++;
    emit_changed(core, claim, WHY_GRANTED);
}

static void place_grant(struct core *core, uint32_t slot)
{
    struct claim *claim = claim_at(core, slot);
    uint64_t ticket = claim->number;
    struct core_effect effect;

    claim_delist(core, slot);
    place_keep(core, slot, false); /* a kept lease's time begins now */
    claim_grant(core, slot);
    effect = effect_of(core, claim, EFFECT_GRANTED, WHY_GRANTED);
    effect.ticket = ticket;
    core_emit(core, &effect);
}

/* Takes the place out and says so; the queue behind it is for the caller. */
static void place_remove(struct core *core, uint32_t slot, enum core_why why)
{
    struct claim *claim = claim_at(core, slot);
    const struct lock *lock = lock_at(core, claim->lock);
    struct core_effect effect;

    touch_lock(core, claim->lock);
    place_keep(core, slot, false);
    claim_delist(core, slot);
    effect = effect_of(core, claim, EFFECT_LEFT, why);
    effect.ticket = claim->number;
    effect.number = lock->record ? record_of(core, lock)->token : 0;
    core_emit(core, &effect);
    claim_unbind(core, slot);
    claim_forget(core, slot);
}

/* Why the first in the queue is not to be granted: its time has run out, and only the end of other
 * deadlines has come first; or it would rather not replace a runner that died. Or 0. */
static enum core_why passed_over(const struct core *core, const struct lock *lock)
{
    const struct claim *first = claim_at(core, lock->first_place);
    const struct lease *lease = lease_at(core, first->lease);

    if (!lease->kept && lease_deadline(core, lease) <= core->now_ms &&
        !SWITCHED(SWITCH_GRANT_TO_EXPIRED))
        return WHY_EXPIRED;
    return lock->record && first->flags & CLAIM_NO_HEIR ? WHY_DIED : 0;
}

void lock_advance(struct core *core, uint32_t slot)
{
    struct lock *lock = lock_at(core, slot);

    while (lock->first_place != NONE) {
        uint32_t place = lock->first_place, lease = claim_at(core, place)->lease;
        enum core_why why;

        if (!lock_admits(core, lock, claim_at(core, place)->mode))
            return;
        touch_lock(core, slot);
        why = passed_over(core, lock);
        if (why) {
            place_remove(core, place, why);
            lease_tidy(core, lease);
            continue;
        }
        record_forget(core, slot);
        place_grant(core, place);
    }
}

/* ---- ending ----------------------------------------------------------------------------------- */

void hold_end(struct core *core, uint32_t slot, enum core_why why)
{
    struct claim *claim = claim_at(core, slot);
    uint32_t lock = claim->lock;

    touch_lock(core, lock);
    if (lock_at(core, lock)->once && (why == WHY_EXPIRED || why == WHY_BROKEN))
        record_set(core, lock, (struct core_text){NULL, 0}, claim->number,
                   core->now_ms + (int64_t)claim_delay(core, claim));
    claim_delist(core, slot);
    emit_changed(core, claim, why);
    claim_unbind(core, slot);
    claim_forget(core, slot);
    lock_advance(core, lock);
    lock_tidy(core, lock);
}

/* The hold is over, and the name stays withheld. */
static void hold_haunt(struct core *core, uint32_t slot, int64_t until_ms, enum core_why why)
{
    struct claim *claim = claim_at(core, slot);
    uint32_t usage = claim_usage(core, claim);

    touch_lock(core, claim->lock);
    emit_changed(core, claim, why);
    claim_unbind(core, slot);
    claim->state = CORE_GHOST;
    extra_make(core, slot)->deadline_ms = until_ms;
    extra_of(core, claim)->usage = usage;
    core->ghosts++;
    timers_set(&core->timers, TIMER_CLAIM, slot, until_ms);
}

/* Until when its holder may believe in it. */
int64_t lease_end_ms(const struct core *core, const struct lease *lease)
{
    int64_t least = core->now_ms + (lease->kept ? (int64_t)lease->ttl_ms : 0);
    int64_t deadline = lease_deadline(core, lease);

    return deadline > least ? deadline : least;
}

/* A place is kept by a connection from now on, or not any more: then the lease's time begins, and
 * does not end before it would have without. */
void place_keep(struct core *core, uint32_t slot, bool kept)
{
    struct claim *claim = claim_at(core, slot);

    if (!!(claim->flags & CLAIM_KEPT) == kept)
        return;
    touch_lock(core, claim->lock);
    claim->flags ^= CLAIM_KEPT;
    if (kept)
        lease_keep(core, claim->lease);
    else
        lease_unkeep(core, claim->lease, lease_end_ms(core, lease_at(core, claim->lease)));
}

void place_end(struct core *core, uint32_t slot, enum core_why why)
{
    uint32_t lock = claim_at(core, slot)->lock;

    place_remove(core, slot, why);
    lock_advance(core, lock);
    lock_tidy(core, lock);
}

/* ---- leases ----------------------------------------------------------------------------------- */

static int by_slot(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* The lease's claims in the order of their slots. In its list they are in an order that a restored
 * copy would not have; and who is granted first gets the lower token. */
static uint32_t *claims_of(const struct core *core, uint32_t lease_slot, uint32_t few[CLAIMS_FEW],
                           uint32_t *ret_count)
{
    const struct lease *lease = lease_at(core, lease_slot);
    uint32_t *slots = lease->claims <= CLAIMS_FEW ? few : core_alloc(lease->claims * sizeof *slots);
    uint32_t count = 0;

    for (uint32_t i = lease->first_claim; i != NONE; i = claim_at(core, i)->lease_next)
        slots[count++] = i;
    if (count > 1 && !SWITCHED(SWITCH_ENDS_UNORDERED))
        qsort(slots, count, sizeof *slots, by_slot);
    *ret_count = count;
    return slots;
}

/* Until when the name of a hold is withheld whose lease ended like this; now, if it is not. */
static int64_t withheld_until(const struct core *core, const struct claim *claim, enum core_why why,
                              bool withhold)
{
    int64_t from = core->now_ms;

    if (!withhold || (why != WHY_BROKEN && why != WHY_EXPIRED))
        return from;
    if (why == WHY_BROKEN && !SWITCHED(SWITCH_BREAK_NOT_WITHHELD))
        from = lease_end_ms(core, lease_at(core, claim->lease));
    if (lock_at(core, claim->lock)->once)
        return from; /* its delay means something else */
    return SWITCHED(SWITCH_NO_DELAY) ? from : from + (int64_t)claim_delay(core, claim);
}

static void claim_end(struct core *core, uint32_t slot, enum core_why why, bool withhold)
{
    const struct claim *claim = claim_at(core, slot);
    int64_t until;

    if (claim->state == CORE_PLACE) {
        place_end(core, slot, why);
        return;
    }
    until = withheld_until(core, claim, why, withhold);
    if (until > core->now_ms)
        hold_haunt(core, slot, until, why);
    else
        hold_end(core, slot, why);
}

uint32_t lease_end(struct core *core, uint32_t slot, enum core_why why, bool withhold,
                   int64_t remember_ms)
{
    uint32_t few[CLAIMS_FEW], count, *claims = claims_of(core, slot, few, &count);
    struct lease *lease = lease_at(core, slot);

    touch_lease(core, slot);
    for (uint32_t i = 0; i < count; i++)
        claim_end(core, claims[i], why, withhold);
    if (claims != few)
        free(claims);
    INVARIANT(lease->claims == 0 && lease->kept == 0);
    if (remember_ms < 0) {
        lease_forget(core, slot);
        return count;
    }
    if (!lease->ended) {
        lease->ended = true;
        core->ended++;
        quota_leave(core, slot);
    } else if (lease_deadline(core, lease) > core->now_ms + remember_ms) {
        return count;
    }
    lease_set_deadline(core, slot, core->now_ms + remember_ms);
    return count;
}

void lease_tidy(struct core *core, uint32_t slot)
{
    const struct lease *lease = lease_at(core, slot);

    if (lease->claims == 0 && !lease->ended)
        lease_forget(core, slot);
}
