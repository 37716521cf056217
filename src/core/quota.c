/* quota.c: what each user has in the table, so that an ACQUIRE can be held against the limits that it brings along.
 *
 * The leader knows the users and their limits, the table does not: a command of a user who has limits says who that is and what they are
 * (CORE_QUOTA). So all copies count the same and decide the same, and a limit that was changed is in force with the next command. Nobody else is
 * counted here, and nothing else is paid for.
 *
 *   - A lease is its first user's until it ends, whoever asks with it later. One that was there before its user had limits is counted, with all
 *     that it has, when it takes something more.
 *   - A ghost goes on counting as the hold that it was, so that nobody withholds name after name by letting leases expire.
 *   - `holds` limits holds and places together, at the time of the ACQUIRE: a place may become a hold at any time, and then nobody asks. So a
 *     grant never exceeds it, and nobody in a queue is passed over or stopped by the limits of others.
 *   - Who asks again for what it holds or awaits is answered as ever, whatever the limits are now. */
#include "base/switches.h"
#include "core/inside.h"

#include <stdlib.h>

static bool is_empty(const struct usage *usage)
{
    return usage->leases == 0 && usage->holds == 0 && usage->places == 0;
}

/* A user who has nothing is forgotten [C10]. */
static void usage_tidy(struct core *core, uint32_t slot)
{
    const struct usage *usage = usage_at(core, slot);

    if (!is_empty(usage))
        return;
    index_remove(&core->usage_index, slot);
    text_drop(core, usage->name_slot, usage->name_size);
    slab_give(&core->usages, slot);
}

struct core_text usage_name(const struct core *core, const struct usage *usage)
{
    return (struct core_text){text_bytes(core, usage->name_slot, usage->name_size),
                              usage->name_size};
}

static uint32_t usage_hash(const struct core *core, struct core_text user)
{
    return index_hash(core->seed, user.bytes, user.size, HASH_USER);
}

uint32_t usage_find(const struct core *core, struct core_text user)
{
    uint32_t slot = index_first(&core->usage_index, usage_hash(core, user));

    while (slot != NONE && !texts_equal(usage_name(core, usage_at(core, slot)), user))
        slot = index_next(&core->usage_index, slot);
    return slot;
}

/* Of a user who is about to have something. */
static uint32_t usage_make(struct core *core, struct core_text user)
{
    uint32_t slot = usage_find(core, user);

    if (slot != NONE)
        return slot;
    INVARIANT(core->usages.used < CORE_USERS_MAX);
    slot = slab_take(&core->usages);
    usage_at(core, slot)->name_size = (uint8_t)user.size;
    usage_at(core, slot)->name_slot = text_store(core, user);
    index_add(&core->usage_index, slot, usage_hash(core, user));
    return slot;
}

/* ---- counting ---------------------------------------------------------------------------------- */

static uint32_t *count_of(struct usage *usage, const struct claim *claim)
{
    return claim->state == CORE_PLACE ? &usage->places : &usage->holds;
}

void quota_on_enlist(struct core *core, const struct claim *claim)
{
    uint32_t of = claim_usage(core, claim);

    if (of)
        ++*count_of(usage_at(core, of - 1), claim);
}

void quota_on_delist(struct core *core, const struct claim *claim)
{
    uint32_t of = claim_usage(core, claim);

    if (!of)
        return;
    --*count_of(usage_at(core, of - 1), claim);
    usage_tidy(core, of - 1); /* a ghost's lease is gone already */
}

bool quota_join(struct core *core, uint32_t lease_slot, struct core_text user)
{
    struct lease *lease = lease_at(core, lease_slot);
    uint32_t slot;

    if (usage_find(core, user) == NONE && core->usages.used >= CORE_USERS_MAX)
        return false;
    slot = usage_make(core, user);
    touch_lease(core, lease_slot);
    lease->usage = (slot + 1) & LEASE_USAGE_MASK;
    usage_at(core, slot)->leases++;
    for (uint32_t i = lease->first_claim; i != NONE; i = claim_at(core, i)->lease_next)
        quota_on_enlist(core, claim_at(core, i));
    return true;
}

bool quota_of_ghost(struct core *core, struct core_text user, uint32_t *ret_usage)
{
    if (usage_find(core, user) == NONE && core->usages.used >= CORE_USERS_MAX)
        return false;
    *ret_usage = usage_make(core, user) + 1;
    return true;
}

void quota_leave(struct core *core, uint32_t lease_slot)
{
    struct lease *lease = lease_at(core, lease_slot);
    uint32_t of = lease->usage;

    if (!of)
        return;
    INVARIANT(lease->claims == 0);
    lease->usage = 0;
    if (!SWITCHED(SWITCH_QUOTA_KEPT))
        usage_at(core, of - 1)->leases--;
    usage_tidy(core, of - 1);
}

/* ---- deciding ---------------------------------------------------------------------------------- */

/* How many of these are places: of a lease that is about to be counted. */
static uint32_t places_of(const struct core *core, const struct lease *lease)
{
    uint32_t places = 0;

    for (uint32_t i = lease->first_claim; i != NONE; i = claim_at(core, i)->lease_next)
        places += claim_at(core, i)->state == CORE_PLACE;
    return places;
}

enum core_answer quota_exceeded(const struct core *core, const struct core_command *command,
                                uint32_t lease_slot, bool waits, uint64_t *ret_count,
                                uint64_t *ret_limit)
{
    const struct lease *lease = lease_slot == NONE ? NULL : lease_at(core, lease_slot);
    const struct core_quota *quota = &command->quota;
    bool joins = !lease || !lease->usage;
    uint32_t slot = joins ? usage_find(core, command->user) : lease->usage - 1u;
    struct usage has = {.leases = 0};
    uint64_t claims;

    if (slot != NONE)
        has = *usage_at(core, slot);
    claims = (uint64_t)has.holds + has.places + (joins && lease ? lease->claims : 0);
    if (joins && quota->leases && has.leases >= quota->leases) {
        *ret_count = has.leases, *ret_limit = quota->leases;
        return ANSWER_OVER_LEASES;
    }
    if (quota->holds && claims >= quota->holds) {
        *ret_count = claims, *ret_limit = quota->holds;
        return ANSWER_OVER_HOLDS;
    }
    if (waits && quota->places) {
        uint64_t places = has.places + (joins && lease ? places_of(core, lease) : 0);

        if (places >= quota->places) {
            *ret_count = places, *ret_limit = quota->places;
            return ANSWER_OVER_PLACES;
        }
    }
    return slot == NONE && core->usages.used >= CORE_USERS_MAX ? ANSWER_USERS_FULL : 0;
}

/* ---- looking ----------------------------------------------------------------------------------- */

bool core_usage(const struct core *core, struct core_text user, struct core_usage *ret_usage)
{
    uint32_t slot = usage_find(core, user);
    const struct usage *usage;

    if (slot == NONE)
        return false;
    usage = usage_at(core, slot);
    *ret_usage = (struct core_usage){usage->leases, usage->holds, usage->places};
    return true;
}

/* ---- checking ---------------------------------------------------------------------------------- */

static bool count_leases(const struct core *core, struct usage *counted)
{
    for (uint32_t i = slab_next(&core->leases, 0); i != NONE; i = slab_next(&core->leases, i + 1)) {
        const struct lease *lease = lease_at(core, i);

        if (!lease->usage)
            continue;
        if (lease->ended || !slab_is_used(&core->usages, lease->usage - 1u))
            return false;
        counted[lease->usage - 1u].leases++;
    }
    return true;
}

static bool count_claims(const struct core *core, struct usage *counted)
{
    for (uint32_t i = slab_next(&core->claims, 0); i != NONE; i = slab_next(&core->claims, i + 1)) {
        const struct claim *claim = claim_at(core, i);
        const struct extra *extra = extra_of(core, claim);
        uint32_t of = claim_usage(core, claim);

        if (extra && extra->usage && claim->state != CORE_GHOST)
            return false;
        if (!of)
            continue;
        if (!slab_is_used(&core->usages, of - 1))
            return false;
        ++*count_of(&counted[of - 1], claim);
    }
    return true;
}

static bool same_counts(const struct usage *a, const struct usage *b)
{
    return a->leases == b->leases && a->holds == b->holds && a->places == b->places;
}

bool quota_is_sound(const struct core *core)
{
    struct usage *counted = core_alloc((slab_end(&core->usages) + 1) * sizeof *counted);
    bool sound = count_leases(core, counted) && count_claims(core, counted) &&
                 core->usages.used == core->usage_index.count;

    for (uint32_t i = slab_next(&core->usages, 0); i != NONE && sound;
         i = slab_next(&core->usages, i + 1)) {
        const struct usage *usage = usage_at(core, i);

        sound = same_counts(usage, &counted[i]) && !is_empty(usage) &&
                usage_find(core, usage_name(core, usage)) == i;
    }
    free(counted);
    return sound;
}
