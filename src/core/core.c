/* core.c: what each command does but ACQUIRE, which is in acquire.c. core.h says what it promises, granting.c how names change hands. */
#include "base/switches.h"
#include "core/inside.h"

#include <stdlib.h>
#include <string.h>

#define PREFETCHED_AGAIN 4u /* commands later */

static struct timer *timer_of(void *context, enum timer_kind kind, uint32_t slot)
{
    struct core *core = context;
    struct lease *lease;
    struct extra *extra;
    struct record *record;

    switch (kind) {
    case TIMER_LEASE:
        lease = lease_at(core, slot);
        return lease->kept ? NULL : &lease->timer;
    case TIMER_CLAIM:
        extra = extra_of(core, claim_at(core, slot));
        return extra ? &extra->timer : NULL;
    case TIMER_LOCK:
        break;
    }
    record = record_of(core, lock_at(core, slot));
    return record ? &record->timer : NULL;
}

struct core *core_new(const unsigned char seed[16])
{
    struct core *core = core_alloc(sizeof *core);

    memcpy(core->seed, seed, sizeof core->seed);
    core->now_ms = 1; /* a deadline of 0 is none, in a snapshot */
    core->renewing = core_alloc(CORE_RENEW_MAX * sizeof *core->renewing);
    slab_init(&core->leases, sizeof(struct lease));
    slab_init(&core->claims, sizeof(struct claim));
    slab_init(&core->extras, sizeof(struct extra));
    slab_init(&core->locks, sizeof(struct lock));
    slab_init(&core->records, sizeof(struct record));
    slab_init(&core->usages, sizeof(struct usage));
    texts_init(core);
    index_init(&core->lease_index, &core->leases);
    index_init(&core->lock_index, &core->locks);
    index_init(&core->claim_index, &core->claims);
    index_init(&core->usage_index, &core->usages);
    timers_init(&core->timers, seed);
    timers_moved(&core->timers, core);
    core->timers.of = timer_of;
    return core;
}

void core_free(struct core *core)
{
    size_t size;

    if (!core)
        return;
    free(core_snapshot_end(core, &size));
    for (uint32_t i = slab_next(&core->locks, 0); i != NONE; i = slab_next(&core->locks, i + 1))
        record_forget(core, i);
    index_free(&core->lease_index);
    index_free(&core->lock_index);
    index_free(&core->claim_index);
    index_free(&core->usage_index);
    timers_free(&core->timers);
    slab_free(&core->leases);
    slab_free(&core->claims);
    slab_free(&core->extras);
    slab_free(&core->locks);
    slab_free(&core->records);
    slab_free(&core->usages);
    texts_free(core);
    free(core->renewing);
    free(core->prefetched);
    free(core);
}

int64_t core_next_deadline(const struct core *core)
{
    return timers_next_ms(&core->timers);
}

int64_t core_now(const struct core *core)
{
    return core->now_ms;
}

/* ---- commands ---------------------------------------------------------------------------------- */

static uint32_t find_claim(const struct core *core, const struct core_command *command)
{
    uint32_t lease = lease_find(core, command->lease);
    uint32_t lock = lock_find(core, command->name, command->flags & CORE_ONCE);

    return lease == NONE || lock == NONE ? NONE : claim_find(core, lock, lease);
}

/* There is nothing to release. A lease that is remembered was ended, by BREAK or END, and did not release it before. */
static void answer_nothing(struct core *core, uint32_t number, struct core_text id)
{
    uint32_t lease = lease_find(core, id);
    struct core_effect effect = {
        .kind = EFFECT_ANSWER, .command = number, .answer = ANSWER_NUMBER, .number = 0};

    if (lease != NONE && lease_at(core, lease)->ended)
        effect.why = WHY_ENDED;
    core_emit(core, &effect);
}

static void apply_release(struct core *core, uint32_t number, const struct core_command *command)
{
    uint32_t slot = find_claim(core, command), lease;
    const struct claim *claim;

    if (slot == NONE) {
        answer_nothing(core, number, command->lease);
        return;
    }
    claim = claim_at(core, slot);
    lease = claim->lease;
    /* A token names a hold, and that one only: a late duplicate touches nothing newer. */
    if (command->token && !SWITCHED(SWITCH_RELEASE_NEWER) &&
        (claim->state != CORE_HOLD || claim->number != command->token)) {
        core_reply(core, number, ANSWER_NUMBER, 0);
        return;
    }
    if (claim->state == CORE_HOLD)
        hold_end(core, slot, WHY_RELEASED);
    else
        place_end(core, slot, WHY_LEFT);
    lease_tidy(core, lease);
    core_reply(core, number, ANSWER_NUMBER, 1);
}

static void apply_leave(struct core *core, uint32_t number, const struct core_command *command)
{
    uint32_t slot = find_claim(core, command), lease;
    const struct claim *claim = slot == NONE ? NULL : claim_at(core, slot);

    if (!claim || claim->state != CORE_PLACE || !(claim->flags & CLAIM_KEPT) ||
        (claim_attachment(core, claim) != command->attachment &&
         !SWITCHED(SWITCH_LEAVES_FOR_ANOTHER))) {
        core_reply(core, number, ANSWER_NUMBER, 0);
        return;
    }
    lease = claim->lease;
    place_end(core, slot, WHY_LEFT);
    lease_tidy(core, lease);
    core_reply(core, number, ANSWER_NUMBER, 1);
}

static int64_t renew_one(struct core *core, struct core_text id, uint32_t ttl_ms)
{
    uint32_t slot = lease_find(core, id);
    struct lease *lease;

    if (slot == NONE || (lease_at(core, slot)->ended && !SWITCHED(SWITCH_RENEW_REVIVES)))
        return -1;
    lease = lease_at(core, slot);
    touch_lease(core, slot);
    if (ttl_ms)
        lease->ttl_ms = ttl_ms;
    lease_prolong(core, slot, lease->ttl_ms);
    return lease_end_ms(core, lease) - core->now_ms;
}

static void apply_renew(struct core *core, uint32_t number, const struct core_command *command)
{
    for (uint32_t i = 0; i < command->lease_count; i++) {
        struct core_effect effect = {.kind = EFFECT_ANSWER,
                                     .command = number,
                                     .answer = ANSWER_NUMBER,
                                     .lease = command->leases[i]};

        effect.number = (uint64_t)renew_one(core, command->leases[i], command->ttl_ms);
        core_emit(core, &effect);
    }
}

/* An unknown lease is remembered too: its ACQUIRE may still be under way. */
static void apply_end(struct core *core, uint32_t number, const struct core_command *command)
{
    uint32_t slot = lease_find(core, command->lease);
    int64_t remember = command->ttl_ms ? command->ttl_ms : CORE_ENDED_DEFAULT_MS;

    if (slot == NONE) {
        if (core->leases.used >= CORE_LEASES_MAX) {
            core_reply(core, number, ANSWER_LEASES_FULL, 0);
            return;
        }
        slot = lease_make(core, command->lease);
    }
    if (lease_at(core, slot)->ttl_ms > remember)
        remember = lease_at(core, slot)->ttl_ms;
    core_reply(core, number, ANSWER_NUMBER, lease_end(core, slot, WHY_ENDED, false, remember));
}

/* Ghosts go at once, if nothing is to be withheld. Returns how many. */
static uint32_t drop_ghosts(struct core *core, struct core_text name, bool once)
{
    uint32_t lock = lock_find(core, name, once), count = 0;

    while (lock != NONE) {
        uint32_t slot = lock_at(core, lock)->first_hold;

        while (slot != NONE && claim_at(core, slot)->state != CORE_GHOST)
            slot = claim_at(core, slot)->lock_next;
        if (slot == NONE)
            break;
        hold_end(core, slot, WHY_BROKEN);
        count++;
        lock = lock_find(core, name, once);
    }
    return count;
}

static void apply_break(struct core *core, uint32_t number, const struct core_command *command)
{
    bool once = command->flags & CORE_ONCE, now = command->flags & CORE_NOW;
    uint32_t lock = lock_find(core, command->name, once), count = 0, dropped = 0, *leases;

    if (lock == NONE) {
        core_reply(core, number, ANSWER_NUMBER, 0);
        return;
    }
    /* Those who hold it now, not those who will because these go. */
    leases = core_alloc((lock_at(core, lock)->holds + 1) * sizeof *leases);
    for (uint32_t i = lock_at(core, lock)->first_hold; i != NONE; i = claim_at(core, i)->lock_next)
        if (claim_at(core, i)->state == CORE_HOLD)
            leases[count++] = claim_at(core, i)->lease;
    if (now)
        dropped = drop_ghosts(core, command->name, once);
    for (uint32_t i = 0; i < count; i++) {
        const struct lease *lease = lease_at(core, leases[i]);
        int64_t left = lease_end_ms(core, lease) - core->now_ms;

        lease_end(core, leases[i], WHY_BROKEN, !now, left + lease->ttl_ms);
        core->broken++;
    }
    free(leases);
    core_reply(core, number, ANSWER_NUMBER, count + dropped);
}

static void apply_floor(struct core *core, uint32_t number, const struct core_command *command)
{
    if (command->token > core->last_token)
        core->last_token = command->token;
    core_reply(core, number, ANSWER_NUMBER, core->last_token);
}

/* Those who waited for the result have it. */
static void tell_result(struct core *core, uint32_t lock_slot)
{
    struct lock *lock = lock_at(core, lock_slot);
    const struct record *record = record_of(core, lock);

    while (lock->first_place != NONE) {
        uint32_t slot = lock->first_place;
        struct claim *claim = claim_at(core, slot);
        uint32_t lease = claim->lease;
        struct core_effect effect = {.kind = EFFECT_DONE,
                                     .why = WHY_FINISHED,
                                     .number = record->token,
                                     .ticket = claim->number,
                                     .once = true,
                                     .name = lock_name(core, lock),
                                     .lease = lease_id(core, lease_at(core, lease)),
                                     .result = {record->bytes, record->size}};

        core_emit(core, &effect);
        place_keep(core, slot, false);
        claim_delist(core, slot);
        claim_unbind(core, slot);
        claim_forget(core, slot);
        lease_tidy(core, lease);
    }
}

/* Has whoever had this token finished? Then this is a repetition of a request whose answer was lost. */
static bool has_finished(const struct core *core, const struct core_command *command)
{
    uint32_t slot = lock_find(core, command->name, command->flags & CORE_ONCE);
    const struct record *record = slot == NONE ? NULL : record_of(core, lock_at(core, slot));

    return record && record->bytes && record->token == command->token;
}

static void apply_finish(struct core *core, uint32_t number, const struct core_command *command)
{
    uint32_t slot = find_claim(core, command), lock, lease;
    const struct claim *claim = slot == NONE ? NULL : claim_at(core, slot);

    if (!claim || claim->state != CORE_HOLD || claim->number != command->token) {
        if (has_finished(core, command))
            core_reply(core, number, ANSWER_NUMBER, 1);
        else
            core_reply(core, number, ANSWER_STALE, core->last_token);
        return;
    }
    lock = claim->lock;
    lease = claim->lease;
    record_set(core, lock, command->result, claim->number,
               core->now_ms + (int64_t)command->keep_ms);
    tell_result(core, lock);
    hold_end(core, slot, WHY_FINISHED);
    lease_tidy(core, lease);
    core_reply(core, number, ANSWER_NUMBER, 1);
}

uint64_t core_restored_token(uint64_t last, uint64_t clock)
{
    uint64_t above_clock =
        clock > HF_TOKEN_MAX - CORE_RESTORE_JUMP ? HF_TOKEN_MAX : clock + CORE_RESTORE_JUMP;
    uint64_t jump = CORE_RESTORE_JUMP + clock % CORE_RESTORE_SPREAD;

    if (clock > 0 && above_clock > last)
        return above_clock;
    return last > HF_TOKEN_MAX - jump ? HF_TOKEN_MAX : last + jump;
}

static void apply_identity(struct core *core, uint32_t number, const struct core_command *command)
{
    bool force = command->flags & CORE_FORCE;

    /* Once: of two leaders that found the table new, the first has its way. */
    if (!core->identified && core->last_token == 0)
        core->last_token = command->token;
    if (!core->identified || force) {
        memcpy(core->id, command->result.bytes, sizeof core->id);
        core->identified = true;
        if (force) { /* after a restored backup, tokens go on far above what may have been given, */
            core->last_token = core_restored_token(core->last_token, command->token);
            core->member_count = 0; /* and the members are others, perhaps with the same numbers */
            core->members_version++;
        }
    }
    core_reply(core, number, ANSWER_NUMBER, core->last_token);
}

/* ---- entries ---------------------------------------------------------------------------------- */

static void apply_command(struct core *core, uint32_t number, const struct core_command *command)
{
    switch (command->op) {
    case CORE_READ: {
        struct core_effect effect = {.kind = EFFECT_READ, .command = number};

        core_emit(core, &effect);
        break;
    }
    case CORE_ACQUIRE:
        core_acquire(core, number, command);
        break;
    case CORE_RELEASE:
        apply_release(core, number, command);
        break;
    case CORE_RENEW:
        apply_renew(core, number, command);
        break;
    case CORE_END:
        apply_end(core, number, command);
        break;
    case CORE_LEAVE:
        apply_leave(core, number, command);
        break;
    case CORE_BREAK:
        apply_break(core, number, command);
        break;
    case CORE_FLOOR:
        apply_floor(core, number, command);
        break;
    case CORE_FINISH:
        apply_finish(core, number, command);
        break;
    case CORE_IDENTITY:
        apply_identity(core, number, command);
        break;
    case CORE_MEMBER:
        core_reply(core, number, ANSWER_NUMBER, member_set(core, command->token, command->result));
        break;
    }
}

int core_apply(struct core *core, const void *bytes, size_t size, const struct core_sink *sink,
               struct error_text *err)
{
    struct unpacker unpacker;
    struct core_entry_header header;
    struct core_command command;
    int result = core_unpack_begin(&unpacker, core, bytes, size, &header, err);

    if (result != HF_OK)
        return result;
    core->sink = sink;
    core->now_ms += header.elapsed_ms;
    if (header.new_term)
        core_unkeep_all(core);
    core_end_due(core);
    for (uint32_t i = 0; i < header.count; i++) {
        core_unpack(&unpacker, &command);
        /* Once more: of a large entry, what was fetched while it was checked may be gone again. */
        if (i + PREFETCHED_AGAIN < header.count) {
            index_prefetch(&core->lease_index, core->prefetched[i + PREFETCHED_AGAIN].lease_hash);
            index_prefetch(&core->lock_index, core->prefetched[i + PREFETCHED_AGAIN].name_hash);
        }
        core->known = &core->prefetched[i];
        apply_command(core, i, &command);
    }
    core->known = NULL;
    core->sink = NULL;
    return HF_OK;
}
