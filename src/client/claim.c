/* claim.c: the life of one claim, from before its first attempt until it is freed.
 *
 *                 BUSY, retry                     renewed beside the wait
 *                  ┌─────┐                              ┌─────┐
 *     claim_new ─▶ ASKING ──── QUEUED, with a TTL ───▶ QUEUED ┘
 *                  │  │ ◀── place lost, lease gone ─────┘ │
 *                  │  │ HELD                              │ HELD
 *                  │  └───────────▶ HELD ◀────────────────┘
 *                  │                 │ └─ claim_lost ─▶ LOST
 *                  │ settled         │ release, detach   │ release
 *                  ▼                 ▼                   ▼
 *                ENDING ◀── claim_withdraw ──────────────┘        then disposed of and freed
 *
 * `busy` is orthogonal: whoever calls the engine on a claim that others can reach has made it busy
 * first, so no two calls meet on one claim (engine.h: all but `wake`, and `wait` beside `renew`). A
 * loss needs no such right: it is declared under the mutex while a renewal hangs.
 *
 * Time. A hold is valid until (the clock before the last acknowledged request was sent) + TTL -
 * drift allowance. end_ms is the earlier of that and the maximum hold; it can be read without the
 * mutex. Once lost, always lost: an acknowledgement that comes later revives nothing. */
#include "base/clock.h"
#include "base/switches.h"
#include "base/text.h"
#include "client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LATE_PART 10 /* of the TTL: a renewal that is under way for longer is late */

/* What clocks that tick within 1 % and a late look at them may cost: DESIGN, "strict". */
static int64_t drift_ms(int64_t ttl_ms)
{
    return SWITCHED(SWITCH_NO_DRIFT) ? 0 : ttl_ms / 100 + 2;
}

struct waiter *claim_waiter(struct engine_claim *claim)
{
    if (claim->mode == ENGINE_OBSERVE)
        return &LIST_ENTRY(claim, hf_observer, claim)->waiter;
    return &LIST_ENTRY(claim, hf_lock, claim)->waiter;
}

void claim_draw_lease(hf_store *store, char *ret_lease)
{
    unsigned char secret[16];

    store_random(store, secret, sizeof secret);
    text_hex(secret, sizeof secret, ret_lease);
}

hf_lock *claim_new(hf_store *store, const char *name, const hf_options *options,
                   struct error_text *err)
{
    size_t name_size = strlen(name) + 1;
    size_t owner_size = options->owner ? strlen(options->owner) + 1 : 0;
    /* Not calloc, which goes past glibc's per-thread cache: an eighth of what a lock costs here. */
    hf_lock *lock = malloc(sizeof *lock + name_size + owner_size);

    if (!lock) {
        error_set(err, HF_ENOMEM, "out of memory");
        return NULL;
    }
    memset(lock, 0, sizeof *lock);
    memcpy(lock->strings, name, name_size);
    if (owner_size)
        memcpy(lock->strings + name_size, options->owner, owner_size);
    lock->store = store;
    lock->claim = (struct engine_claim){
        .name = lock->strings,
        .lease = lock->lease,
        .owner = owner_size ? lock->strings + name_size : store_owner(store),
        .mode = options->mode,
        .permits = options->permits,
        .ttl_ms = options->ttl_ms,
        .delay_ms = options->delay_ms,
        .will_wait = options->wait_ms != 0,
    };
    atomic_init(&lock->era, atomic_load(&store->eras));
    lock->on_lost = options->on_lost;
    lock->arg = options->arg;
    lock->lost_fd = -1;
    lock->valid_ms = lock->hold_ms = lock->renew_ms = CLOCK_NEVER;
    atomic_init(&lock->end_ms, CLOCK_NEVER);
    list_init(&lock->node);
    list_init(&lock->watch_node);
    list_init(&lock->owe_node);
    list_init(&lock->event.node);
    lock->event.kind = EVENT_LOST;
    waiter_init(&lock->waiter, store, &lock->claim);
    return lock;
}

void claim_set_once(hf_lock *lock, const struct once_terms *terms)
{
    lock->claim.once = true;
    lock->claim.no_heir = terms->no_heir;
    lock->claim.death_ms = terms->death_ms;
}

void claim_free(hf_lock *lock)
{
    waiter_unregister(&lock->waiter);
    lock->store->engine->dispose(lock->store->engine_store, &lock->claim);
    free(lock->claim.record.bytes);
    once_drop(lock->once);
    if (lock->lost_fd >= 0)
        close(lock->lost_fd);
    free(lock->why);
    explicit_bzero(lock->lease, sizeof lock->lease);
    free(lock);
}

void claim_enter_locked(hf_lock *lock)
{
    while (lock->busy)
        pthread_cond_wait(&lock->store->changed, &lock->store->mutex);
    lock->busy = true;
}

void claim_enter(hf_lock *lock)
{
    pthread_mutex_lock(&lock->store->mutex);
    claim_enter_locked(lock);
    pthread_mutex_unlock(&lock->store->mutex);
}

/* When the watchdog has to look at it next. */
static int64_t next_look_ms(const hf_lock *lock)
{
    int64_t end_ms = atomic_load(&lock->end_ms);

    if (lock->state != CLAIM_HELD || lock->renew_ms < end_ms)
        return lock->renew_ms;
    return end_ms;
}

void claim_leave_locked(hf_lock *lock)
{
    lock->busy = false;
    pthread_cond_broadcast(&lock->store->changed);
    if (!list_empty(&lock->watch_node))
        watchdog_schedule(lock->store, next_look_ms(lock));
    if (!list_empty(&lock->owe_node)) /* the watchdog passed it over while it was busy */
        watchdog_schedule(lock->store, INT64_MIN);
}

void claim_watch(hf_lock *lock)
{
    if (lock->claim.ttl_ms == 0 && lock->hold_ms == CLOCK_NEVER)
        return;
    if (list_empty(&lock->watch_node))
        list_append(&lock->store->watched, &lock->watch_node);
    if (!lock->busy)
        watchdog_schedule(lock->store, next_look_ms(lock));
}

/* A request sent at sent_ms was acknowledged: the lease lasts lasts_ms from then. */
void claim_counts_from(hf_lock *lock, int64_t sent_ms, int64_t lasts_ms)
{
    int64_t ttl_ms = lock->claim.ttl_ms;

    if (lock->state == CLAIM_LOST)
        return;
    if (SWITCHED(SWITCH_COUNTS_FROM_ANSWER))
        sent_ms = clock_boot_ms();
    if (ttl_ms > 0) {
        if (lasts_ms > ttl_ms)
            lasts_ms = ttl_ms;
        lock->valid_ms = clock_after(sent_ms, lasts_ms - drift_ms(ttl_ms));
        lock->renew_ms =
            clock_after(sent_ms, SWITCHED(SWITCH_RENEWS_LATE) ? lasts_ms : lasts_ms / 3);
        lock->retry_ms = lock->failing_ms = 0;
    }
    atomic_store(&lock->end_ms, lock->valid_ms < lock->hold_ms ? lock->valid_ms : lock->hold_ms);
}

void claim_set_hold(hf_lock *lock, int64_t hold_ms)
{
    lock->hold_ms = hold_ms;
    if (hold_ms < atomic_load(&lock->end_ms))
        atomic_store(&lock->end_ms, hold_ms);
}

void claim_lost(hf_lock *lock, enum loss loss, const char *why)
{
    hf_store *store = lock->store;

    if (lock->state == CLAIM_ASKING || lock->state == CLAIM_QUEUED) {
        lock->gone = true;
        waiter_nudge(&lock->waiter);
        return;
    }
    if (lock->state != CLAIM_HELD)
        return;
    lock->state = CLAIM_LOST;
    if (loss == LOSS_TOLD)
        store_forget_id(store);
    atomic_store(&lock->end_ms, INT64_MIN);
    list_remove(&lock->watch_node);
    lock->why = strdup(why);
    if (lock->lost_fd >= 0)
        eventfd_write(lock->lost_fd, 1);
    lock->owes_release = loss == LOSS_MAX_HOLD;
    if (lock->on_lost) {
        if (!lock->parked)
            events_post(store, &lock->event);
    } else if (lock->owes_release) {
        list_append(&store->owing, &lock->owe_node);
        watchdog_schedule(store, INT64_MIN);
    }
}

void claim_unpark(hf_lock *lock)
{
    lock->parked = false;
    if (lock->state == CLAIM_LOST && lock->on_lost)
        events_post(lock->store, &lock->event);
}

void claim_await_callback(hf_lock *lock)
{
    hf_store *store = lock->store;

    while (events_runs_elsewhere(store, &lock->event))
        pthread_cond_wait(&store->changed, &store->mutex);
}

/* The descriptor is closed here, by the thread that gives the lock up: closed later by another, it might
 * be watched until then, or its number taken for that of something else. */
void claim_silence(hf_lock *lock)
{
    lock->on_lost = NULL;
    events_drop(&lock->event);
    if (lock->lost_fd >= 0)
        close(lock->lost_fd);
    lock->lost_fd = -1;
}

/* A renewal that is under way for too long says nothing by itself, and the one before said nothing new. */
int64_t claim_unrenewed(const hf_lock *lock, int64_t now_ms, struct error_text *ret_why)
{
    char span[TEXT_SPAN_MAX];

    if (lock->failing_ms != 0) {
        *ret_why = lock->store->unrenewed;
        return lock->failing_ms;
    }
    if (lock->asked_ms == 0 || now_ms - lock->asked_ms < lock->claim.ttl_ms / LATE_PART)
        return 0;
    text_from_ms(now_ms - lock->asked_ms, span);
    error_write(ret_why, "the store has not answered for %s", span);
    if (lock->store->in_trouble)
        *ret_why = lock->store->trouble;
    return lock->asked_ms;
}

/* Who was asleep, or stopped, may not have tried to renew it. */
static void expire(hf_lock *lock, int64_t now_ms)
{
    struct error_text cause = {""}, why;
    bool known = claim_unrenewed(lock, now_ms, &cause) != 0 && cause.text[0];

    error_write(&why, "it could not be renewed in time%s%s", known ? ": " : "", cause.text);
    claim_lost(lock, LOSS_EXPIRED, why.text);
}

bool claim_look_at_clock(hf_lock *lock, int64_t now_ms)
{
    if (lock->state != CLAIM_HELD)
        return false;
    if (now_ms >= lock->valid_ms && !SWITCHED(SWITCH_EXPIRY_UNSEEN))
        expire(lock, now_ms);
    else if (now_ms >= lock->hold_ms)
        claim_lost(lock, LOSS_MAX_HOLD, "it was held for its maximum");
    return lock->state == CLAIM_HELD;
}

void claim_withdraw(hf_lock *lock)
{
    hf_store *store = lock->store;

    while (lock->busy || lock->pins > 0 || events_runs_elsewhere(store, &lock->event))
        pthread_cond_wait(&store->changed, &store->mutex);
    events_drop(&lock->event);
    events_forget(store, &lock->event);
    list_remove(&lock->watch_node);
    list_remove(&lock->owe_node);
    list_remove(&lock->node);
    lock->state = CLAIM_ENDING;
}

/* One renewal, by whoever made the claim busy or has it to himself. HF_ELOST: the lease is gone. */
int claim_renew(hf_lock *lock, int64_t deadline_ms, struct error_text *err)
{
    struct engine_claim *claim = &lock->claim;
    hf_store *store = lock->store;
    int64_t sent_ms = clock_boot_ms(), left_ms = ENGINE_NOT_KNOWN;
    int result = store->engine->renew(store->engine_store, &claim, 1, &left_ms, deadline_ms, err);

    if (left_ms == ENGINE_GONE)
        return error_set(err, HF_ELOST, "the store says that it has ended");
    if (left_ms < 0)
        return result != HF_OK ? result : error_set(err, HF_EUNKNOWN, "the store does not say");
    pthread_mutex_lock(&store->mutex);
    claim_counts_from(lock, sent_ms, left_ms);
    pthread_mutex_unlock(&store->mutex);
    return HF_OK;
}
