/* waiting.c: waiting, and observing.
 *
 * Whoever releases tells the one who can go now, and nobody else, by NOTIFY. Behind that everybody looks by himself: about once a second, and
 * when somebody ahead of him will be dead. Where nothing can be heard, more often at first. */
#include "base/clock.h"
#include "base/futex.h"
#include "base/random.h"
#include "engines/postgres/store.h"

#define RELOOK_MS 1000 /* the least between two looks, when we will be told, */
#define RELOOK_SPREAD_MS 500
#define LOOK_MS_MIN 25   /* and when we will not: first, for each who is before us, */
#define LOOK_MS_MAX 1000 /* and at last */
#define SPREAD_MS 30     /* those who wait for the same death come within so much of it */

/* Where nobody tells us: soon at first, and again whenever somebody before us has gone; then more and more seldom. */
static int64_t next_pause_ms(struct pg_claim *own)
{
    int64_t first_ms = (int64_t)LOOK_MS_MIN * (own->ahead_count > 0 ? own->ahead_count : 1);
    int64_t pause_ms;

    if (own->ahead_count < own->ahead_before || own->look_ms == 0)
        own->look_ms = first_ms < LOOK_MS_MAX ? first_ms : LOOK_MS_MAX;
    own->ahead_before = own->ahead_count;
    pause_ms = own->look_ms / 2 + (int64_t)random_below((uint64_t)own->look_ms);
    own->look_ms = 2 * own->look_ms < LOOK_MS_MAX ? 2 * own->look_ms : LOOK_MS_MAX;
    return pause_ms;
}

static int64_t next_look_ms(struct engine_store *store, struct pg_claim *own)
{
    bool hears = listener_hears(store);
    int64_t least_ms = clock_after(own->asked_ms, hears ? RELOOK_MS : LOOK_MS_MIN);
    int64_t dead_ms = own->next_ms;
    int64_t next_ms = hears ? least_ms + (int64_t)random_below(RELOOK_SPREAD_MS)
                            : clock_after(own->asked_ms, next_pause_ms(own));

    if (dead_ms == CLOCK_NEVER)
        return next_ms;
    dead_ms =
        clock_after(dead_ms > least_ms ? dead_ms : least_ms, (int64_t)random_below(SPREAD_MS));
    return dead_ms < next_ms ? dead_ms : next_ms;
}

int pg_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
            struct error_text *err)
{
    struct pg_claim *own = claim_private(store, claim);
    int64_t look_ms;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    look_ms = next_look_ms(store, own);
    look_ms = until_ms < look_ms ? until_ms : look_ms;
    while (atomic_load(&own->bell) == own->seen && clock_boot_ms() < look_ms)
        futex_wait(&own->bell, own->seen, FUTEX_MASK_ALL, look_ms);
    own->seen = atomic_load(&own->bell);
    return HF_OK;
}

void pg_wake(struct engine_store *store, struct engine_claim *claim)
{
    struct pg_claim *own = __atomic_load_n(&claim->private, __ATOMIC_ACQUIRE);

    pool_interrupt(store);
    if (!own)
        return;
    atomic_fetch_add(&own->bell, 1);
    futex_wake(&own->bell, FUTEX_MASK_ALL, 1);
}

int pg_observe(struct engine_store *store, struct engine_claim *claim, struct error_text *err)
{
    struct pg_claim *own = claim_private(store, claim);

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    own->observes = true;
    random_fill(own->lease, sizeof own->lease); /* an observer has no lease of its own */
    listener_add(store, own);
    return HF_OK;
}
