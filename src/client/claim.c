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
 * mutex. Once lost, always lost: an acknowledgement that comes later revives nothing.
 *
 * Progress. Whose owner is to report, and has not for progress_ms, is not renewed any more, so that its TTL
 * ends it. Without a TTL a span of its own does, and then the store must be told, as after a maximum hold. */
#include "base/clock.h"
#include "base/switches.h"
#include "base/text.h"
#include "client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LATE_PART 10       /* of the TTL: a renewal that is under way for longer is late */
#define STALL_MS_MAX 30000 /* without a TTL: the longest from the end of progress_ms to the loss */
#define SPREAD_PART 16     /* of the TTL: by so much a renewal comes early, at most */
#define SPREAD_WIDE_PART 6 /* the same of one that is not among others yet */

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
    lock->stall_ms = lock->report_by_ms = CLOCK_NEVER;
    lock->progress_ms = options->progress_ms;
    atomic_init(&lock->end_ms, CLOCK_NEVER);
    list_init(&lock->node);
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

int claim_enlist(hf_lock *lock, struct error_text *err)
{
    hf_store *store = lock->store;

    if (!heap_reserve(&store->ends, store->claims + 1) ||
        !heap_reserve(&store->renewals, store->claims + 1))
        return error_set(err, HF_ENOMEM, "out of memory");
    list_append(&store->locks, &lock->node);
    store->claims++;
    return HF_OK;
}

/* ---- when to look at it ---------------------------------------------------------------------- */

/* An end that has become later stays where it is, and is found so when that time has come: it is put off once in a TTL, and not
 * with each renewal. */
static void watch_end(hf_lock *lock)
{
    hf_store *store = lock->store;
    int64_t end_ms = atomic_load(&lock->end_ms);

    if (end_ms == CLOCK_NEVER || (heap_has(&lock->ending) && lock->ending_ms <= end_ms))
        return;
    lock->ending_ms = end_ms;
    heap_set(&store->ends, &lock->ending, end_ms);
    watchdog_schedule(store, end_ms);
}

static void watch_renewal(hf_lock *lock)
{
    hf_store *store = lock->store;

    if (lock->claim.ttl_ms == 0 || lock->busy || lock->gone || lock->stalled)
        return;
    heap_set(&store->renewals, &lock->renewal, lock->renew_ms);
    if (store->renewer_waits)
        watchdog_schedule(store, lock->renew_ms);
}

void claim_watch(hf_lock *lock)
{
    if (lock->state == CLAIM_HELD)
        watch_end(lock);
    if (lock->state == CLAIM_HELD || lock->state == CLAIM_QUEUED)
        watch_renewal(lock);
}

void claim_unwatch(hf_lock *lock)
{
    heap_remove(&lock->store->ends, &lock->ending);
    heap_remove(&lock->store->renewals, &lock->renewal);
}

void claim_leave_quietly(hf_lock *lock)
{
    lock->busy = false;
    claim_watch(lock);
    if (!list_empty(&lock->owe_node)) /* the watchdog passed it over while it was busy */
        watchdog_schedule(lock->store, INT64_MIN);
}

void claim_leave_locked(hf_lock *lock)
{
    claim_leave_quietly(lock);
    pthread_cond_broadcast(&lock->store->changed);
}

/* ---- what the clock says of it --------------------------------------------------------------- */

static void note_end(hf_lock *lock)
{
    int64_t end_ms = lock->valid_ms < lock->hold_ms ? lock->valid_ms : lock->hold_ms;

    atomic_store(&lock->end_ms, lock->stall_ms < end_ms ? lock->stall_ms : end_ms);
}

static uint64_t random_spread(hf_store *store, uint64_t limit)
{
    uint64_t x = store->spread_state;

    while (x == 0)
        store_random(store, &x, sizeof x);
    x ^= x << 13; /* xorshift64: nobody's secret, and no call of the kernel for each renewal */
    x ^= x >> 7;
    x ^= x << 17;
    store->spread_state = x;
    return x % limit;
}

/* Where there are more locks than go into one request, each is renewed a little early, by another span each time, so that they do
 * not come all at once, and do not stay together because they were granted together. One that is new, or could not be
 * renewed for a while, is put anywhere among the others. */
static int64_t spread_ms(const hf_lock *lock, int64_t sent_ms, int64_t lasts_ms)
{
    const hf_store *store = lock->store;
    int64_t span_ms = lasts_ms / SPREAD_PART;
    bool apart = lock->renew_ms == CLOCK_NEVER || sent_ms > clock_after(lock->renew_ms, span_ms);

    if (store->renewals.count <= (uint32_t)store->renew_early)
        return 0;
    if (apart)
        span_ms = lasts_ms / SPREAD_WIDE_PART;
    return span_ms > 0 ? (int64_t)random_spread(lock->store, (uint64_t)span_ms + 1) : 0;
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
            clock_after(sent_ms, (SWITCHED(SWITCH_RENEWS_LATE) ? lasts_ms : lasts_ms / 3) -
                                     spread_ms(lock, sent_ms, lasts_ms));
        lock->retry_ms = lock->failing_ms = 0;
    }
    note_end(lock);
}

void claim_set_hold(hf_lock *lock, int64_t hold_ms)
{
    lock->hold_ms = hold_ms;
    note_end(lock);
}

void claim_reported(hf_lock *lock, int64_t now_ms)
{
    if (lock->progress_ms == 0)
        return;
    lock->report_by_ms = clock_after(now_ms, lock->progress_ms);
    lock->stalled = false;
    if (lock->claim.ttl_ms > 0)
        return;
    lock->stall_ms = clock_after(
        lock->report_by_ms, lock->progress_ms < STALL_MS_MAX ? lock->progress_ms : STALL_MS_MAX);
    note_end(lock);
}

bool claim_is_silent(const hf_lock *lock, int64_t now_ms)
{
    return lock->state == CLAIM_HELD && now_ms >= lock->report_by_ms &&
           !SWITCHED(SWITCH_SILENT_RENEWED);
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
    claim_unwatch(lock);
    lock->why = strdup(why);
    if (lock->lost_fd >= 0)
        eventfd_write(lock->lost_fd, 1);
    lock->owes_release = loss == LOSS_MAX_HOLD || loss == LOSS_STALLED;
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

/* In words, for how long its owner has been silent. */
static void describe_stall(const hf_lock *lock, int64_t now_ms, struct error_text *ret_why)
{
    char silent[TEXT_SPAN_MAX], allowed[TEXT_SPAN_MAX];

    text_from_ms(now_ms - lock->report_by_ms + lock->progress_ms, silent);
    text_from_ms(lock->progress_ms, allowed);
    error_write(ret_why, "no progress was reported for %s (%s are allowed)", silent, allowed);
}

/* A renewal that is under way for too long says nothing by itself, and the one before said nothing new. */
int64_t claim_unrenewed(const hf_lock *lock, int64_t now_ms, struct error_text *ret_why)
{
    char span[TEXT_SPAN_MAX];

    if (lock->stalled) {
        describe_stall(lock, now_ms, ret_why);
        return lock->report_by_ms;
    }
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
    bool known;

    if (lock->renew_ms <= now_ms && claim_is_silent(lock, now_ms))
        lock->stalled = true; /* the renewer may not have come to it */
    known = claim_unrenewed(lock, now_ms, &cause) != 0 && cause.text[0];
    if (lock->stalled)
        error_write(&why, "%s, so it was not renewed%s%s", cause.text,
                    lock->failing_ms ? "; before that it could not be: " : "",
                    lock->failing_ms ? lock->store->unrenewed.text : "");
    else
        error_write(&why, "it could not be renewed in time%s%s", known ? ": " : "", cause.text);
    claim_lost(lock, LOSS_EXPIRED, why.text);
}

static void stall(hf_lock *lock, int64_t now_ms)
{
    struct error_text why;

    describe_stall(lock, now_ms, &why);
    claim_lost(lock, LOSS_STALLED, why.text);
}

bool claim_look_at_clock(hf_lock *lock, int64_t now_ms)
{
    if (lock->state != CLAIM_HELD)
        return false;
    if (now_ms >= lock->valid_ms && !SWITCHED(SWITCH_EXPIRY_UNSEEN))
        expire(lock, now_ms);
    else if (now_ms >= lock->hold_ms)
        claim_lost(lock, LOSS_MAX_HOLD, "it was held for its maximum");
    else if (now_ms >= lock->stall_ms)
        stall(lock, now_ms);
    return lock->state == CLAIM_HELD;
}

void claim_withdraw(hf_lock *lock)
{
    hf_store *store = lock->store;

    while (lock->busy || lock->pins > 0 || events_runs_elsewhere(store, &lock->event))
        pthread_cond_wait(&store->changed, &store->mutex);
    events_drop(&lock->event);
    events_forget(store, &lock->event);
    claim_unwatch(lock);
    list_remove(&lock->owe_node);
    if (!list_empty(&lock->node))
        store->claims--;
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
