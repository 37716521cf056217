/* acquire.c: what ACQUIRE does: a hold, a place, or a refusal. */
#include "base/switches.h"
#include "core/inside.h"

/* ---- answers ---------------------------------------------------------------------------------- */

void core_reply(struct core *core, uint32_t command, enum core_answer what, uint64_t number)
{
    struct core_effect effect = {
        .kind = EFFECT_ANSWER, .command = command, .answer = what, .number = number};

    core_emit(core, &effect);
}

static void answer_record(struct core *core, uint32_t command, const struct record *record)
{
    struct core_effect effect = {.kind = EFFECT_ANSWER,
                                 .command = command,
                                 .answer = record->bytes ? ANSWER_DONE : ANSWER_DIED,
                                 .number = record->token,
                                 .result = {record->bytes, record->size}};

    core_emit(core, &effect);
}

static void answer_queued(struct core *core, uint32_t command, uint32_t claim_slot)
{
    const struct claim *claim = claim_at(core, claim_slot);
    struct core_effect effect = {.kind = EFFECT_ANSWER,
                                 .command = command,
                                 .answer = ANSWER_QUEUED,
                                 .number = claim->number,
                                 .ticket = claim->number,
                                 .attachment = claim_attachment(core, claim)};

    core_emit(core, &effect);
}

/* ---- ACQUIRE ---------------------------------------------------------------------------------- */

void lease_prolong(struct core *core, uint32_t slot, uint32_t ttl_ms)
{
    struct lease *lease = lease_at(core, slot);

    touch_lease(core, slot);
    if (ttl_ms > lease->ttl_ms)
        lease->ttl_ms = ttl_ms;
    if (core->now_ms + ttl_ms > lease_deadline(core, lease))
        lease_set_deadline(core, slot, core->now_ms + ttl_ms);
}

static int64_t wait_deadline(const struct core *core, const struct core_command *command)
{
    return command->wait_ms == CORE_FOREVER ? INT64_MAX : core->now_ms + (int64_t)command->wait_ms;
}

/* From now on this request waits at the place: the one before it, if any, does so no more. */
static void place_attach(struct core *core, uint32_t slot, const struct core_command *command)
{
    struct claim *claim = claim_at(core, slot);
    struct extra *extra;

    touch_lock(core, claim->lock);
    extra = extra_make(core, slot);
    extra->attachment = ++core->last_attachment;
    claim->flags &= (uint8_t)~CLAIM_NO_HEIR;
    if (command->flags & CORE_NO_HEIR)
        claim->flags |= CLAIM_NO_HEIR;
    extra->deadline_ms = wait_deadline(core, command);
    if (extra->deadline_ms == INT64_MAX)
        timers_clear(&core->timers, TIMER_CLAIM, slot);
    else
        timers_set(&core->timers, TIMER_CLAIM, slot, extra->deadline_ms);
    place_keep(core, slot, command->flags & CORE_KEPT);
}

/* The lease has business with this name already. */
static void acquire_again(struct core *core, uint32_t number, const struct core_command *command,
                          uint32_t claim_slot)
{
    const struct claim *claim = claim_at(core, claim_slot);
    uint32_t lease = claim->lease;

    if (claim->mode != command->mode ||
        (claim->mode == HF_PERMIT && lock_at(core, claim->lock)->permits != command->permits)) {
        core_reply(core, number, ANSWER_OTHER_MODE, 0);
        return;
    }
    if (claim->state == CORE_HOLD) {
        lease_prolong(core, lease, command->ttl_ms);
        if (SWITCHED(SWITCH_ANOTHER_TOKEN))
            core->last_token++;
        core_reply(core, number, ANSWER_TOKEN,
                   SWITCHED(SWITCH_ANOTHER_TOKEN) ? core->last_token : claim->number);
        return;
    }
    if (!(command->flags & CORE_WAITS)) {
        place_end(core, claim_slot, WHY_LEFT);
        lease_tidy(core, lease);
        core_reply(core, number, ANSWER_BUSY, 0);
        return;
    }
    lease_prolong(core, lease, command->ttl_ms);
    place_attach(core, claim_slot, command);
    answer_queued(core, number, claim_slot);
}

/* 0, or why there is no room for one more. */
static enum core_answer no_room(const struct core *core, uint32_t lease, uint32_t lock, bool waits)
{
    if (core->last_token >= HF_TOKEN_MAX)
        return ANSWER_TOKENS_SPENT;
    if (lease == NONE && core->leases.used >= CORE_LEASES_MAX)
        return ANSWER_LEASES_FULL;
    if (lock == NONE && core->locks.used >= CORE_LOCKS_MAX)
        return ANSWER_LOCKS_FULL;
    if (core->claims.used >= CORE_CLAIMS_MAX)
        return ANSWER_CLAIMS_FULL;
    if (waits && lock_at(core, lock)->places >= CORE_QUEUE_MAX)
        return ANSWER_QUEUE_FULL;
    return 0;
}

static uint32_t claim_begin(struct core *core, const struct core_command *command, uint32_t lease,
                            uint32_t lock)
{
    uint32_t slot;
    struct claim *claim;

    if (lock == NONE)
        lock = lock_make(core, command->name, command->flags & CORE_ONCE);
    touch_lock(core, lock);
    if (command->mode == HF_PERMIT)
        lock_at(core, lock)->permits = command->permits;
    if (lease == NONE)
        lease = lease_make(core, command->lease);
    if (command->flags & CORE_QUOTA && !lease_at(core, lease)->usage)
        quota_join(core, lease, command->user);
    slot = claim_make(core, lock, command->owner);
    claim = claim_at(core, slot);
    claim->mode = (uint8_t)command->mode;
    if (command->delay_ms)
        extra_make(core, slot)->delay_ms = command->delay_ms;
    claim->since_ms = core->now_ms;
    claim_bind(core, slot, lease);
    lease_prolong(core, lease, command->ttl_ms);
    return slot;
}

/* Is it more than its user may have? Then it has been told so. */
static bool is_over_quota(struct core *core, uint32_t number, const struct core_command *command,
                          uint32_t lease, bool waits)
{
    struct core_effect effect = {
        .kind = EFFECT_ANSWER, .command = number, .name = command->name, .owner = command->user};

    if (!(command->flags & CORE_QUOTA))
        return false;
    effect.answer = quota_exceeded(core, command, lease, waits, &effect.number, &effect.limit);
    if (effect.answer)
        core_emit(core, &effect);
    return effect.answer != 0;
}

static void acquire_anew(struct core *core, uint32_t number, const struct core_command *command,
                         uint32_t lease, uint32_t lock_slot)
{
    const struct lock *lock = lock_slot == NONE ? NULL : lock_at(core, lock_slot);
    uint32_t permits = command->mode == HF_PERMIT ? command->permits : 0, slot;
    bool free = !lock || ((lock->places == 0 || SWITCHED(SWITCH_SHARED_OVERTAKES)) &&
                          lock_admits(core, lock, command->mode));
    enum core_answer refusal;

    if (lock && (lock->holds || lock->places) && lock->permits != permits) {
        core_reply(core, number, ANSWER_OTHER_PERMITS, lock->permits);
        return;
    }
    if (!free && !(command->flags & CORE_WAITS)) {
        core_reply(core, number, ANSWER_BUSY, 0);
        return;
    }
    if (is_over_quota(core, number, command, lease, !free))
        return;
    refusal = no_room(core, lease, lock_slot, !free);
    if (refusal) {
        core_reply(core, number, refusal, 0);
        return;
    }
    slot = claim_begin(core, command, lease, lock_slot);
    if (free) {
        record_forget(core, claim_at(core, slot)->lock);
        claim_grant(core, slot);
        core_reply(core, number, ANSWER_TOKEN, claim_at(core, slot)->number);
        return;
    }
    claim_at(core, slot)->state = CORE_PLACE;
    claim_at(core, slot)->number = ++core->last_ticket;
    claim_enlist(core, slot);
    place_attach(core, slot, command);
    answer_queued(core, number, slot);
}

void core_acquire(struct core *core, uint32_t number, const struct core_command *command)
{
    uint32_t lease = lease_find(core, command->lease);
    uint32_t lock = lock_find(core, command->name, command->flags & CORE_ONCE), claim = NONE;

    if (lease != NONE && lease_at(core, lease)->ended && !SWITCHED(SWITCH_ENDED_ACQUIRES)) {
        core_reply(core, number, ANSWER_ENDED, 0);
        return;
    }
    if (lock != NONE && lock_at(core, lock)->record) {
        const struct record *record = record_of(core, lock_at(core, lock));

        if (record->bytes || command->flags & CORE_NO_HEIR) {
            answer_record(core, number, record);
            return;
        }
    }
    if (lease != NONE && lock != NONE)
        claim = claim_find(core, lock, lease);
    if (claim != NONE && SWITCHED(SWITCH_QUOTA_ASKED_AGAIN) &&
        is_over_quota(core, number, command, lease, false))
        return;
    if (claim != NONE)
        acquire_again(core, number, command, claim);
    else
        acquire_anew(core, number, command, lease, lock);
}
