/* acquire.c: from "I want this lock" to one of three ends: held, not held, unknown.
 *
 *     attempt ──HELD──▶ fresh enough? ──▶ held
 *        ▲                   └─ no: renew first, or start afresh with a new lease
 *        │BUSY, QUEUED: wait for a nudge, the engine or a pause
 *        │UNKNOWN, UNREACH: pause, then ask again with the same lease (not if the store was never reached: reach.c)
 *        └── until the wait ends, somebody cancels, or the store refuses ──▶ settle
 *
 * Of a once-record there are two more ends, DONE and DIED: nothing is held, and what is known is handed
 * out. They stand even if what an earlier attempt may have left behind cannot be settled.
 *
 * Settling. Whoever leaves after an answer was lost, or with a place in a queue, has the engine
 * abandon the lease, within a time of its own that begins then: clean-up never uses the deadline
 * that ran out or was cancelled. Only if that fails, the end is HF_EUNKNOWN. A request that
 * certainly did nothing (UNREACH) needs no settling.
 *
 * One lease per acquisition: a retry with the same lease finds its own grant or place, so our own
 * retries cannot block us. A lease that ended meanwhile is settled and replaced, never revived.
 *
 * A grant counts from before its attempt was sent; when answers were lost since the last definite
 * one, from before the first of those, because any of them may have been the grant. If that is more
 * than half a TTL ago it is not believed before a renewal has confirmed it. */
#include "base/clock.h"
#include "base/switches.h"
#include "base/text.h"
#include "client/client.h"

#define UNREACH_PAUSE_MS 10 /* the first pause after a lost answer; doubles */
#define BUSY_PAUSE_MS 50    /* the first pause where nobody tells us of a release; doubles */
#define PAUSE_MS_MAX 1000
#define REASK_MS 5000 /* a place in a queue is asked about so often even without a nudge */

struct acquisition {
    hf_store *store;
    hf_lock *lock;
    hf_cancel *cancels[WAITER_LINKS];
    int64_t began_ms;
    int64_t until_ms; /* the end of the wait */
    bool may_wait;
    bool asked;        /* the first attempt was made */
    bool waited;       /* others may have seen this claim */
    bool queued;       /* has a place */
    bool unsure;       /* some answer was lost */
    bool restart;      /* the lease is over: settle it and draw another */
    int64_t unsure_ms; /* when the first attempt was sent whose answer was lost; NEVER: none */
    int64_t unreach_pause_ms, busy_pause_ms;
    int retries;              /* of a call that does not wait */
    struct once_terms *terms; /* of a once-record; NULL: a lock */
    struct error_text *err;
};

bool is_transient(int result)
{
    return result == HF_EUNKNOWN || result == HF_EUNREACH;
}

static bool canceled(const struct acquisition *a)
{
    for (int i = 0; i < WAITER_LINKS; i++)
        if (cancel_fired(a->cancels[i]))
            return true;
    return false;
}

/* A request's deadline: the wait's end, within what is useful for one request. Whoever does not wait for the lock waits for the
 * connection nevertheless, once, for as long as the URL says. */
static int64_t attempt_deadline(const struct acquisition *a, int64_t now_ms)
{
    int64_t allowed_ms = a->may_wait || a->retries > 0 ? 0 : reach_allowed(a->store);
    int64_t least_ms =
        clock_after(now_ms, allowed_ms > ATTEMPT_FLOOR_MS ? allowed_ms : ATTEMPT_FLOOR_MS);
    int64_t most_ms = clock_after(now_ms, reach_span(a->store, ATTEMPT_MS));

    if (a->until_ms < least_ms)
        return least_ms;
    return a->until_ms < most_ms ? a->until_ms : most_ms;
}

/* ---- settling -------------------------------------------------------------------------------- */

/* One try. The claim is not watched, or we have made it busy. */
static int abandon_once(struct acquisition *a, int64_t deadline_ms, struct error_text *err)
{
    return a->store->engine->abandon(a->store->engine_store, &a->lock->claim, deadline_ms, err);
}

/* Tries for as long as clean-up may take. Not to be cancelled. */
static int abandon(struct acquisition *a, struct error_text *err)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), SETTLE_MS), pause_ms = SETTLE_PAUSE_MS;
    int result;

    if (SWITCHED(SWITCH_ABANDONS_TOO_LATE))
        deadline_ms = a->until_ms;
    do
        result = abandon_once(a, deadline_ms, err);
    while (is_transient(result) && waiter_pause(&a->lock->waiter, &pause_ms, deadline_ms));
    return result;
}

static void stop_waiting(struct acquisition *a)
{
    waiter_unregister(&a->lock->waiter);
}

/* Ends an acquisition that did not succeed and says how it ended. Frees the lock. */
static int settle(struct acquisition *a, int result)
{
    hf_store *store = a->store;
    struct error_text why = {""};
    int settled = HF_OK;

    stop_waiting(a);
    pthread_mutex_lock(&store->mutex);
    claim_withdraw(a->lock);
    pthread_mutex_unlock(&store->mutex);
    if (a->unsure || (a->queued && !SWITCHED(SWITCH_PLACE_LEFT)) || a->restart)
        settled = abandon(a, &why);
    if (settled != HF_OK && result < 0)
        result = error_set(
            a->err, HF_EUNKNOWN,
            "'%.100s' may or may not have been granted, and the store could not be asked: %.300s",
            a->lock->claim.name, why.text);
    claim_free(a->lock);
    return result;
}

/* The lease of this claim is over. Makes sure of that, then begins again with another. */
static int start_afresh(struct acquisition *a)
{
    hf_store *store = a->store;
    hf_lock *lock = a->lock;
    int result;

    stop_waiting(a);
    pthread_mutex_lock(&store->mutex);
    claim_unwatch(lock);
    claim_enter_locked(lock);
    lock->state = CLAIM_ASKING;
    pthread_mutex_unlock(&store->mutex);
    /* Once: if it has to be tried again, somebody may have cancelled meanwhile. */
    result = abandon_once(a, clock_after(clock_boot_ms(), SETTLE_MS), a->err);
    if (result == HF_OK)
        store->engine->dispose(store->engine_store, &lock->claim);
    pthread_mutex_lock(&store->mutex);
    if (result == HF_OK) {
        lock->claim.private = NULL;
        lock->claim.token = 0;
        if (!SWITCHED(SWITCH_LEASE_REVIVED))
            claim_draw_lease(store, lock->lease);
        lock->gone = false;
        lock->valid_ms = lock->renew_ms = CLOCK_NEVER;
        a->restart = a->unsure = a->queued = false;
        a->unsure_ms = CLOCK_NEVER;
    }
    claim_leave_locked(lock);
    pthread_mutex_unlock(&store->mutex);
    return result;
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* Before the first attempt: a lease, a place in the store's list, the threads it will need. */
static int prepare(struct acquisition *a, const hf_options *options)
{
    hf_store *store = a->store;
    bool ttl = a->lock->claim.ttl_ms > 0;
    int result = HF_OK;

    pthread_mutex_lock(&store->mutex);
    if (ttl || options->max_hold_ms > 0 || options->progress_ms > 0 || store->engine->poll_fd)
        result = watchdog_start(store, ttl, a->err);
    if (result == HF_OK && options->on_lost)
        result = events_start(store, a->err);
    if (result == HF_OK)
        result = claim_enlist(a->lock, a->err);
    if (result == HF_OK) {
        claim_draw_lease(store, a->lock->lease);
        store->acquisitions++;
    }
    pthread_mutex_unlock(&store->mutex);
    return result;
}

/* With the mutex. The last that an acquisition does with its store: hf_close may be waiting for exactly this. */
static void leave_store(hf_store *store)
{
    store->acquisitions--;
    if (store->closed)
        pthread_cond_broadcast(&store->changed);
}

/* What the answer says about where the claim stands. The claim is ours to call the engine on. */
static void note_outcome(struct acquisition *a, int outcome, int64_t sent_ms)
{
    hf_lock *lock = a->lock;

    if (outcome == HF_EUNKNOWN) {
        a->unsure = true;
        if (sent_ms < a->unsure_ms)
            a->unsure_ms = sent_ms;
    } else if (outcome == ENGINE_QUEUED || outcome == ENGINE_BUSY) {
        a->unsure_ms = CLOCK_NEVER;
        a->queued = outcome == ENGINE_QUEUED;
    } else if (outcome == ENGINE_DONE) {
        a->queued = false;
    }
    if (outcome == ENGINE_QUEUED && lock->claim.ttl_ms > 0) {
        lock->state = CLAIM_QUEUED;
        claim_counts_from(lock, sent_ms, lock->claim.ttl_ms);
        claim_watch(lock);
    } else if (outcome == ENGINE_BUSY) {
        lock->state = CLAIM_ASKING;
        claim_unwatch(lock);
    }
    if (outcome == ENGINE_QUEUED || outcome == ENGINE_BUSY)
        watchdog_wants_poll(a->store);
}

/* Has the store told us, while we waited, that the lease is over? */
static bool is_gone(const struct acquisition *a)
{
    bool gone;

    if (a->lock->claim.ttl_ms == 0 || !a->waited) /* nobody but us has seen this claim yet */
        return false;
    pthread_mutex_lock(&a->store->mutex);
    gone = a->lock->gone;
    pthread_mutex_unlock(&a->store->mutex);
    return gone;
}

/* One attempt. After HELD the claim is still busy, for take_grant to go on with. */
static int attempt(struct acquisition *a, int64_t *ret_sent_ms)
{
    hf_store *store = a->store;
    hf_lock *lock = a->lock;
    int outcome;

    if (lock->state == CLAIM_QUEUED) /* written by this thread only, until it is held */
        claim_enter(lock);
    else
        lock->busy = true; /* nobody else can reach it */
    *ret_sent_ms = a->asked ? clock_boot_ms() : a->began_ms;
    a->asked = true;
    outcome = store->engine->acquire(store->engine_store, &lock->claim,
                                     attempt_deadline(a, *ret_sent_ms), a->err);
    if (!is_transient(outcome) || !canceled(a)) /* else it may be no fault of the store's */
        reach_note(store, outcome, a->err);
    if (outcome == ENGINE_HELD)
        return outcome;
    pthread_mutex_lock(&store->mutex);
    note_outcome(a, outcome, *ret_sent_ms);
    claim_leave_locked(lock);
    pthread_mutex_unlock(&store->mutex);
    return outcome;
}

/* A grant that took more than half its TTL to reach us is believed only if a renewal succeeds. */
static int confirm(struct acquisition *a, int64_t since_ms)
{
    int64_t expires_ms = clock_after(since_ms, a->lock->claim.ttl_ms);
    int64_t deadline_ms = clock_after(clock_boot_ms(), ATTEMPT_MS);
    int result;

    if (clock_boot_ms() >= expires_ms)
        result = HF_ELOST;
    else
        result = claim_renew(a->lock, deadline_ms < expires_ms ? deadline_ms : expires_ms, a->err);
    if (result == HF_OK)
        return HF_OK;
    a->unsure = true;
    a->unsure_ms = since_ms;
    if (result != HF_ELOST && clock_boot_ms() < expires_ms)
        return result;
    a->restart = true;
    return error_set(a->err, HF_EUNKNOWN, "'%.100s' was granted too late to be of use",
                     a->lock->claim.name);
}

static int believe(struct acquisition *a, int64_t since_ms, bool *ret_confirmed)
{
    int64_t ttl_ms = a->lock->claim.ttl_ms;

    if (a->lock->claim.token < 1 || a->lock->claim.token > HF_TOKEN_MAX) {
        a->unsure = true;
        return error_set(a->err, HF_EINTERNAL, "the store returned an invalid token");
    }
    *ret_confirmed = ttl_ms > 0 && !SWITCHED(SWITCH_LATE_GRANT_BELIEVED) &&
                     clock_boot_ms() - since_ms > ttl_ms / 2;
    return *ret_confirmed ? confirm(a, since_ms) : HF_OK;
}

/* The store says HELD. HF_OK: it is held. Else as if the attempt had ended so. */
static int take_grant(struct acquisition *a, const hf_options *options, int64_t sent_ms)
{
    int64_t since_ms =
        a->unsure_ms < sent_ms && !SWITCHED(SWITCH_LOST_ANSWER_IGNORED) ? a->unsure_ms : sent_ms;
    hf_lock *lock = a->lock;
    bool confirmed = false;
    int result = believe(a, since_ms, &confirmed);

    stop_waiting(a); /* from HELD on, a callback may do anything with the lock, even free it */
    pthread_mutex_lock(&a->store->mutex);
    if (result == HF_OK && lock->gone) {
        a->restart = true;
        result = error_set(a->err, HF_EUNKNOWN, "'%.100s' was granted and lost again at once",
                           lock->claim.name);
    }
    if (result == HF_OK) {
        lock->state = CLAIM_HELD;
        if (!confirmed)
            claim_counts_from(lock, since_ms, lock->claim.ttl_ms);
        if (options->max_hold_ms > 0)
            claim_set_hold(lock, clock_after(since_ms, options->max_hold_ms));
        claim_reported(lock, clock_boot_ms());
        claim_watch(lock);
        watchdog_wants_poll(a->store);
    }
    claim_leave_locked(lock);
    if (result == HF_OK)
        leave_store(a->store);
    pthread_mutex_unlock(&a->store->mutex);
    return result;
}

/* The store refuses. Is that because the lease ended while it waited? Then another one will do.
 * Engines say so with HF_ELOST; where the word is only "refused", a renewal tells. */
static bool lease_is_over(struct acquisition *a, int outcome)
{
    hf_lock *lock = a->lock;
    struct error_text ignored;
    int result;

    if (outcome != HF_EREFUSED || lock->claim.ttl_ms == 0 || !(a->unsure || a->queued))
        return outcome == HF_ELOST;
    claim_enter(lock);
    result = claim_renew(lock, clock_after(clock_boot_ms(), ATTEMPT_FLOOR_MS), &ignored);
    pthread_mutex_lock(&a->store->mutex);
    claim_leave_locked(lock);
    pthread_mutex_unlock(&a->store->mutex);
    return result == HF_ELOST;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void heed_cancels(struct acquisition *a)
{
    if (!a->lock->waiter.registered)
        waiter_register(&a->lock->waiter, a->cancels);
}

static void begin_waiting(struct acquisition *a)
{
    a->waited = true;
    heed_cancels(a);
}

static void pause_for(struct acquisition *a, uint32_t seen, int64_t span_ms)
{
    int64_t until_ms = clock_after(clock_boot_ms(), span_ms);

    waiter_sleep(&a->lock->waiter, seen, until_ms < a->until_ms ? until_ms : a->until_ms);
}

static int64_t next_pause(int64_t *pause_ms)
{
    int64_t span_ms = jitter_ms(*pause_ms);

    *pause_ms = *pause_ms * 2 < PAUSE_MS_MAX ? *pause_ms * 2 : PAUSE_MS_MAX;
    return span_ms;
}

/* Waits until another attempt is worth while. False: the acquisition ends here, with *outcome.
 * `seen` and `nudges` are from before the attempt, so that a nudge during it counts. */
static bool wait_for_more(struct acquisition *a, uint32_t seen, uint32_t nudges, int *outcome)
{
    const struct engine *engine = a->store->engine;
    struct waiter *waiter = &a->lock->waiter;

    if (canceled(a)) /* perhaps that is why there is no answer */
        return true;
    if (!a->may_wait)
        return is_transient(*outcome) && a->retries++ == 0;
    if (*outcome == HF_EUNREACH && !reach_known(a->store))
        return false;
    if (clock_boot_ms() >= a->until_ms && atomic_load(&waiter->nudges) == nudges)
        return false;
    begin_waiting(a);
    if (canceled(a))
        return true;
    if (!is_transient(*outcome)) {
        a->unreach_pause_ms = UNREACH_PAUSE_MS;
        if (!engine->wait) {
            bool queued = *outcome == ENGINE_QUEUED;

            pause_for(a, seen, queued ? REASK_MS : next_pause(&a->busy_pause_ms));
            return clock_boot_ms() < a->until_ms || atomic_load(&waiter->nudges) != nudges;
        }
        *outcome = engine->wait(a->store->engine_store, &a->lock->claim, a->until_ms, a->err);
        /* It does not say whether it came back for a reason or for the time: one more try is cheap,
         * and a wake-up that was meant for us is not lost. */
        if (*outcome == HF_OK)
            return true;
        if (!is_transient(*outcome))
            return false;
        reach_note(a->store, *outcome, a->err);
    }
    pause_for(a, seen, next_pause(&a->unreach_pause_ms));
    return clock_boot_ms() < a->until_ms || atomic_load(&waiter->nudges) != nudges;
}

/* In words, why an acquisition that could have gone on ends here. */
static int give_up(struct acquisition *a, int outcome)
{
    char waited[TEXT_SPAN_MAX];

    if (outcome < 0 && !is_transient(outcome))
        return outcome;
    if (outcome == HF_EUNREACH && !a->unsure) /* whether it is free now is not known */
        return outcome;
    if (!a->may_wait && !a->unsure)
        return error_set(a->err, HF_EBUSY, "'%.100s' is %s by somebody else", a->lock->claim.name,
                         a->terms ? "being run" : "held");
    if (!a->may_wait)
        return error_set(a->err, HF_EBUSY, "'%.100s' was not granted: answers were lost",
                         a->lock->claim.name);
    text_from_ms(clock_boot_ms() - a->began_ms, waited);
    if (a->unsure && is_transient(outcome) && !a->queued) /* nobody may have held it */
        return error_set(a->err, HF_EBUSY, "'%.100s' was not granted within %s: answers were lost",
                         a->lock->claim.name, waited);
    return error_set(a->err, HF_EBUSY, "'%.100s' %s within %s", a->lock->claim.name,
                     a->terms ? "was not finished" : "did not become free", waited);
}

/* It has been run, or whoever ran it died: that is known, and nothing is held. */
static int take_record(struct acquisition *a, int outcome)
{
    a->terms->record = a->lock->claim.record;
    a->lock->claim.record = (struct engine_record){0};
    return settle(a, outcome);
}

static int run(struct acquisition *a, const hf_options *options)
{
    for (;;) {
        uint32_t seen = atomic_load(&a->lock->waiter.word);
        uint32_t nudges = atomic_load(&a->lock->waiter.nudges);
        int64_t sent_ms = 0;
        int outcome = HF_OK;

        if (canceled(a))
            return settle(a, error_set(a->err, HF_ECANCELED, "waiting for '%.100s' was cancelled",
                                       a->lock->claim.name));
        if (is_gone(a))
            a->restart = true;
        if (a->restart)
            outcome = start_afresh(a);
        if (outcome == HF_OK) {
            if (store_has_server(a->store))
                heed_cancels(a);
            if (canceled(a))
                continue;
            outcome = attempt(a, &sent_ms);
            if (outcome == ENGINE_HELD)
                outcome = take_grant(a, options, sent_ms);
            if (outcome == HF_OK)
                return HF_OK;
            if (a->terms && (outcome == ENGINE_DONE || outcome == ENGINE_DIED))
                return take_record(a, outcome);
        }
        if (outcome < 0 && !is_transient(outcome)) {
            if (!lease_is_over(a, outcome))
                return settle(a, outcome);
            a->restart = true;
            outcome = HF_EUNKNOWN;
        }
        if (!wait_for_more(a, seen, nudges, &outcome))
            return settle(a, give_up(a, outcome));
    }
}

int acquire_run(hf_store *store, const char *name, const hf_options *options,
                struct once_terms *terms, hf_cancel *also_cancel, struct error_text *err,
                hf_lock **ret_lock)
{
    int64_t now_ms = clock_boot_ms();
    struct acquisition a = {
        .store = store,
        .cancels = {SWITCHED(SWITCH_CLOSE_WAITS) ? NULL : &store->closing, options->cancel,
                    also_cancel},
        .began_ms = now_ms,
        .until_ms = options->wait_ms < 0 ? CLOCK_NEVER : clock_after(now_ms, options->wait_ms),
        .may_wait = options->wait_ms != 0,
        .unsure_ms = CLOCK_NEVER,
        .unreach_pause_ms = UNREACH_PAUSE_MS,
        .busy_pause_ms = BUSY_PAUSE_MS,
        .terms = terms,
        .err = err,
    };
    int result = terms ? text_check_key(name, err) : text_check_name(name, err);

    if (result != HF_OK)
        return result;
    a.lock = claim_new(store, name, options, err);
    if (!a.lock)
        return HF_ENOMEM;
    a.lock->parked = also_cancel != NULL; /* started: on_lost comes after `done` */
    if (terms)
        claim_set_once(a.lock, terms);
    result = prepare(&a, options);
    if (result != HF_OK) {
        claim_free(a.lock);
        return result;
    }
    result = run(&a, options);
    if (result == HF_OK) {
        *ret_lock = a.lock;
        return HF_OK;
    }
    pthread_mutex_lock(&store->mutex);
    leave_store(store);
    pthread_mutex_unlock(&store->mutex);
    return result;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int acquire_call(hf_store *store, const char *name, const hf_options *options, bool no_wait,
                        bool leader, hf_lock **ret_lock)
{
    struct error_text err;
    hf_options checked;
    int result;

    err.text[0] = '\0';
    result = store_check(store, &err);
    if (result != HF_OK)
        return failure_keep(result, &err);
    if (!ret_lock)
        return failure_keep(error_set(&err, HF_EINVAL, "nowhere to put the lock"), &err);
    result = options_read(store, options, &checked, &err);
    if (result != HF_OK)
        return failure_keep(result, &err);
    if (leader && checked.mode != HF_EXCLUSIVE)
        return failure_keep(error_set(&err, HF_EINVAL, "a leader's lock is exclusive"), &err);
    if (no_wait)
        checked.wait_ms = 0;
    return failure_keep(acquire_run(store, name, &checked, NULL, NULL, &err, ret_lock), &err);
}

int hf_acquire(hf_store *store, const char *name, const hf_options *options, hf_lock **ret_lock)
{
    return acquire_call(store, name, options, false, false, ret_lock);
}

int hf_try(hf_store *store, const char *name, const hf_options *options, hf_lock **ret_lock)
{
    return acquire_call(store, name, options, true, false, ret_lock);
}

int hf_campaign(hf_store *store, const char *name, const hf_options *options, hf_lock **ret_mandate)
{
    return acquire_call(store, name, options, false, true, ret_mandate);
}

int hf_resign(hf_lock *mandate)
{
    return hf_release(mandate);
}
