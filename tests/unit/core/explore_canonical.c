/* explore_canonical.c: which states have the same future. It looks into the records of src/core: whatever one of them may
 * decide by is in the fingerprint, with the exception of what is named here. Whether that is right is seen as well: of some steps that lead to a state
 * which is known, the explorer goes through all that follows, and compares it with what follows from that state (is_same in explore.c).
 *
 *   Texts. Names and leases are only compared for equality. A fingerprint knows them by their slots, which are state (they decide between
 *   equal deadlines, and the lowest free one is taken next). So a permutation of leases, or of names, is the same state, and leases
 *   that the table does not know are all the same one. Every lease may give the same commands: none is special.
 *
 *   Users are told by the length of their names; what they have follows from their leases and ghosts [C10], and is not told again.
 *
 *   Tokens. A list has its holds in their order, which is in the fingerprint. A token itself is compared with the one in a
 *   command for equality only; the explorer gives the right one or another. The next one is one more than the last one: so only the distance to
 *   the very last token matters, and only near it; and how far the last one is above those that clients know, which must be nothing.
 *
 *   Tickets and attachments. The same: queues are in order, numbers are compared for equality, the next is one more. That of a hold, which has
 *   it from the place that it was, is compared with nothing: LEAVE is for places.
 *
 *   Times. The table compares deadlines with now and with each other: all are told as differences from now. When a claim
 *   began is shown and decides nothing (compare_table sees to what is shown). Nor does it matter how long ago the deadline of a lease was that
 *   a connection keeps: when that ends, the lease has a TTL from then on, which is later.
 *
 *   The order of a lease's own claims in its list: it depends on the past, a restored table has another one, and granting.c sorts
 *   by slot before it uses it. The same for heaps and hash tables, which find things and do not order them: deadlines end by (deadline, kind,
 *   slot). A table that does otherwise differs from the model, or from its restored twin, in the entry that shows it.
 *
 *   The epochs of records, unless a snapshot is being written. Then it matters, too, what it was like when that was begun, and what was
 *   written so far: the states in which it went on are in the fingerprint. */
#include "explore.h"

#include "core/inside.h"
#include "search.h"

#define TOKENS_NEAR 16 /* the end */
#define UNKNOWN 99u    /* a slot, of a lease or name that the table does not know */

/* What the hash of a record begins with. Small numbers are mixed one after the other: two that are put together at once may be the same as two others. */
static uint64_t about(char kind, uint64_t slot)
{
    return search_mix(search_mix(1, (uint64_t)kind), slot);
}

/* 0: of nobody. */
static uint64_t of_user(const struct core *core, uint32_t usage)
{
    return usage ? (uint64_t)usage_name(core, usage_at(core, usage - 1)).size : 0;
}

static uint64_t of_lease(const struct core *core, uint32_t slot)
{
    const struct lease *lease = lease_at(core, slot);
    int64_t left_ms = lease_deadline(core, lease) - core->now_ms;
    uint64_t hash = search_mix(about('L', slot), lease->ttl_ms);

    if (lease->kept && left_ms < 0)
        left_ms = 0;
    hash = search_mix(hash, (uint64_t)left_ms);
    hash = search_mix(hash, (uint64_t)lease->kept << 1 | lease->ended);
    hash = search_mix(hash, of_user(core, lease->usage));
    if (core->snapshot)
        hash = search_mix(hash, lease->epoch == core->epoch);
    return hash;
}

static uint64_t of_claims(const struct core *core, uint64_t hash, uint32_t slot)
{
    for (; slot != NONE; slot = claim_at(core, slot)->lock_next) {
        const struct claim *claim = claim_at(core, slot);
        int64_t deadline_ms = claim_deadline(core, claim);

        hash = search_mix(hash, (uint64_t)slot << 32 | claim->lease);
        hash = search_mix(hash, (uint64_t)claim->state << 16 | (uint64_t)claim->mode << 8 |
                                    (claim->flags & CLAIM_TOLD));
        hash = search_mix(hash, claim_delay(core, claim));
        hash = search_mix(hash, claim->lease == NONE ? of_user(core, claim_usage(core, claim)) : 0);
        hash = search_mix(hash, deadline_ms == 0 || deadline_ms == INT64_MAX
                                    ? UINT64_MAX
                                    : (uint64_t)(deadline_ms - core->now_ms));
    }
    return search_mix(hash, 1);
}

static uint64_t of_lock(const struct core *core, uint32_t slot)
{
    const struct lock *lock = lock_at(core, slot);
    const struct record *record = record_of(core, lock);
    uint64_t hash = search_mix(about('N', slot), (uint64_t)lock->permits << 1 | lock->once);

    hash = of_claims(core, hash, lock->first_hold);
    hash = of_claims(core, hash, lock->first_place);
    if (record) {
        hash = search_mix(hash, (uint64_t)record->size << 1 | (record->bytes != NULL));
        hash = search_mix(hash, (uint64_t)(record->deadline_ms - core->now_ms));
    }
    if (core->snapshot)
        hash = search_mix(hash, lock->epoch == core->epoch);
    return hash;
}

uint64_t explore_canonical(const struct core *core)
{
    uint64_t left = HF_TOKEN_MAX - core->last_token;
    uint64_t hash =
        search_mix(about('T', left < TOKENS_NEAR ? left : TOKENS_NEAR), core->identified);

    for (uint32_t i = slab_next(&core->leases, 0); i != NONE; i = slab_next(&core->leases, i + 1))
        hash = search_mix(hash, of_lease(core, i));
    for (uint32_t i = slab_next(&core->locks, 0); i != NONE; i = slab_next(&core->locks, i + 1))
        hash = search_mix(hash, of_lock(core, i));
    return hash;
}

bool explore_is_saving(const struct core *core)
{
    return core->snapshot != NULL;
}

/* ---- the book --------------------------------------------------------------------------------- */

static uint64_t lease_slot(const struct core *core, int who)
{
    uint32_t slot = lease_find(core, explore_texts.lease_of(who));

    return slot == NONE ? UNKNOWN : slot;
}

static uint64_t name_slot(const struct core *core, int name)
{
    uint32_t slot = lock_find(core, explore_texts.name_of(name), name >= MODEL_ONCE);

    return slot == NONE ? UNKNOWN : slot;
}

static uint64_t span(const struct book *book, int64_t until_ms)
{
    return until_ms == 0 || until_ms == INT64_MAX ? (uint64_t)until_ms
                                                  : (uint64_t)(until_ms - book->now_ms);
}

/* What clients may believe. It follows from the table as long as that is right: what does not follow makes another state, so that it
 * is found out. Sums, since only slots are to have an order. */
static uint64_t of_book(const struct core *core, const struct book *book)
{
    uint64_t sum = 0;

    for (int who = 0; who < BOOK_LEASES; who++) {
        const struct book_lease *lease = &book->leases[who];
        bool kept_over = book_is_kept(book, who) && lease->until_ms < book->now_ms;

        sum += search_mix(search_mix(about('l', lease_slot(core, who)), lease->ttl_ms),
                          span(book, kept_over ? book->now_ms : lease->until_ms));
        sum += search_mix(about('e', lease_slot(core, who)), span(book, lease->ended_until_ms));
    }
    for (int name = 0; name < MODEL_NAMES; name++) {
        uint64_t slot = name_slot(core, name);

        if (book->results[name].until_ms != 0)
            sum += search_mix(about('r', slot), span(book, book->results[name].until_ms));
        for (int who = 0; slot != UNKNOWN && who < BOOK_LEASES; who++) {
            const struct book_claim *claim = &book->claims[name][who];
            uint64_t hash = search_mix(about('c', slot << 8 | lease_slot(core, who)),
                                       (uint64_t)claim->state << 1 | claim->kept);

            if (claim->state == BOOK_WAITS)
                hash = search_mix(hash, span(book, claim->wait_until_ms));
            sum += hash;
        }
    }
    for (int i = 0; i < BOOK_GHOSTS; i++)
        if (book->ghosts[i].used)
            sum += search_mix(about('g', name_slot(core, book->ghosts[i].name)),
                              span(book, book->ghosts[i].until_ms));
    return search_mix(sum, core->last_token - book->last_token);
}

uint64_t explore_fingerprint(const struct core *table, const struct explore_state *state)
{
    uint64_t hash = explore_canonical(table);

    hash = search_mix(hash, of_book(table, &state->book));
    for (int i = 0; i < STEP_KINDS; i++)
        hash = search_mix(hash, state->done[i]);
    if (state->saving)
        hash = search_mix(hash, state->saving_way);
    return hash ? hash : 1;
}
