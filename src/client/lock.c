/* lock.c: what a holder can do with a lock.
 *
 * A release names the lock's own lease and token, so that a late one touches nothing newer. A lock
 * known to be lost is only freed: its holder may not be able to reach the store at all, and the
 * store has let go of it or is about to. The one exception is a lock lost by its maximum hold,
 * where the store does not know yet: it is told after on_lost has returned (lock_pay), or here. */
#include "base/clock.h"
#include "base/switches.h"
#include "base/text.h"
#include "client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define FINISH_MS_MAX 15000 /* a result is worth waiting for another leader, but not for ever */

uint64_t hf_lock_token(const hf_lock *lock)
{
    return lock ? lock->claim.token : 0;
}

const char *hf_lock_name(const hf_lock *lock)
{
    return lock ? lock->claim.name : NULL;
}

int hf_lock_mode(const hf_lock *lock)
{
    return lock ? lock->claim.mode : HF_EINVAL;
}

const char *hf_lock_lease(const hf_lock *lock)
{
    return lock ? lock->lease : NULL;
}

static int lock_check(const hf_lock *lock, struct error_text *err)
{
    if (!lock)
        return error_set(err, HF_EINVAL, "no lock given");
    return store_check(lock->store, err);
}

int64_t hf_lock_left_ms(hf_lock *lock)
{
    int64_t end_ms, left_ms;

    if (!lock || store_forked(lock->store))
        return 0;
    end_ms = atomic_load(&lock->end_ms);
    if (end_ms == CLOCK_NEVER)
        return HF_UNLIMITED;
    if (end_ms == INT64_MIN)
        return 0;
    left_ms = end_ms - clock_boot_ms();
    if (left_ms > 0)
        return left_ms;
    /* The watchdog is late, or a renewal came in just now: see under the mutex which of them it is.
     */
    pthread_mutex_lock(&lock->store->mutex);
    left_ms = 0;
    if (claim_look_at_clock(lock, clock_boot_ms()))
        left_ms = atomic_load(&lock->end_ms) - clock_boot_ms();
    pthread_mutex_unlock(&lock->store->mutex);
    return left_ms > 0 ? left_ms : 0;
}

int hf_lock_lost_fd(hf_lock *lock)
{
    struct error_text err;
    int result = lock_check(lock, &err), fd;

    if (result != HF_OK)
        return failure_keep(result, &err);
    pthread_mutex_lock(&lock->store->mutex);
    if (lock->lost_fd < 0) {
        lock->lost_fd = eventfd(lock->state == CLAIM_LOST, EFD_CLOEXEC | EFD_NONBLOCK);
        if (lock->lost_fd < 0)
            result = error_set_errno(&err, HF_ENOMEM, errno, "cannot make a descriptor");
    }
    fd = lock->lost_fd;
    pthread_mutex_unlock(&lock->store->mutex);
    return result == HF_OK ? fd : failure_keep(result, &err);
}

static const char *words_of_loss(const hf_lock *lock)
{
    return lock->why ? lock->why : "it has ended";
}

/* Once it is lost, the words stay as they are. */
const char *hf_lock_lost_why(hf_lock *lock)
{
    bool lost;

    if (!lock || store_forked(lock->store))
        return "";
    pthread_mutex_lock(&lock->store->mutex);
    lost = lock->state == CLAIM_LOST;
    pthread_mutex_unlock(&lock->store->mutex);
    return lost ? words_of_loss(lock) : "";
}

int64_t hf_lock_unrenewed_ms(hf_lock *lock)
{
    struct error_text err = {""};
    int64_t now_ms = clock_boot_ms(), since_ms;
    int result = lock_check(lock, &err);

    if (result != HF_OK)
        return failure_keep(result, &err);
    pthread_mutex_lock(&lock->store->mutex);
    since_ms = claim_unrenewed(lock, now_ms, &err);
    pthread_mutex_unlock(&lock->store->mutex);
    if (since_ms == 0)
        return 0;
    failure_note(HF_EUNREACH, &err);
    return now_ms > since_ms ? now_ms - since_ms : 1;
}

/* With the mutex held. */
static int lost_error(const hf_lock *lock, struct error_text *err)
{
    return error_set(err, HF_ELOST, "'%.100s' was lost: %s", lock->claim.name, words_of_loss(lock));
}

/* ---- renewing -------------------------------------------------------------------------------- */

/* Does whoever has our token still run the once-record? */
static int check_runs(hf_lock *lock, int64_t deadline_ms, bool *ret_alive, struct error_text *err)
{
    hf_store *store = lock->store;
    struct engine_record record = {.age_ms = -1};
    int64_t left_ms = -1;
    int result = store->engine->once_read(store->engine_store, lock->claim.name, &record, &left_ms,
                                          deadline_ms, err);

    free(record.bytes);
    free(record.owner);
    if (result < 0)
        return result;
    *ret_alive = result == ENGINE_HELD && record.token == lock->claim.token;
    return HF_OK;
}

/* On a store without a TTL there is nothing to renew; its word that the hold is alive is as good.
 */
static int renew_or_check(hf_lock *lock, struct error_text *err)
{
    hf_store *store = lock->store;
    int64_t deadline_ms = clock_after(clock_boot_ms(), ATTEMPT_MS);
    int64_t end_ms = atomic_load(&lock->end_ms);
    bool alive = true;
    int result, mode = ENGINE_GONE;

    if (end_ms < deadline_ms)
        deadline_ms = end_ms;
    if (lock->claim.ttl_ms > 0)
        return claim_renew(lock, deadline_ms, err);
    if (lock->claim.once) {
        result = check_runs(lock, deadline_ms, &alive, err);
    } else {
        result = store->engine->check(store->engine_store, lock->claim.name, lock->claim.token,
                                      &mode, deadline_ms, err);
        alive = mode != ENGINE_GONE;
    }
    return result != HF_OK || alive ? result : HF_ELOST;
}

int lock_renew(hf_lock *lock, struct error_text *err)
{
    hf_store *store = lock->store;
    int result = HF_ELOST;

    pthread_mutex_lock(&store->mutex);
    claim_enter_locked(lock);
    if (claim_look_at_clock(lock, clock_boot_ms())) {
        pthread_mutex_unlock(&store->mutex);
        result = renew_or_check(lock, err);
        pthread_mutex_lock(&store->mutex);
        if (result == HF_ELOST)
            claim_lost(lock, LOSS_TOLD, "the store says that it has ended");
        claim_look_at_clock(lock, clock_boot_ms());
    }
    claim_leave_locked(lock);
    if (lock->state != CLAIM_HELD)
        result = lost_error(lock, err);
    pthread_mutex_unlock(&store->mutex);
    return result;
}

int hf_renew(hf_lock *lock)
{
    struct error_text err = {""};
    int result = lock_check(lock, &err);

    if (result == HF_OK)
        result = lock_renew(lock, &err);
    return failure_keep(result, &err);
}

/* ---- reporting progress ---------------------------------------------------------------------- */

int hf_progress(hf_lock *lock)
{
    struct error_text err = {""};
    int64_t now_ms = clock_boot_ms();
    int result = lock_check(lock, &err);
    hf_store *store;

    if (result != HF_OK)
        return failure_keep(result, &err);
    store = lock->store;
    pthread_mutex_lock(&store->mutex);
    if (claim_look_at_clock(lock, now_ms)) {
        bool stalled = lock->stalled;

        claim_reported(lock, now_ms);
        if (stalled) /* its renewal was passed over */
            claim_watch(lock);
    } else {
        result = lost_error(lock, &err);
    }
    pthread_mutex_unlock(&store->mutex);
    return failure_keep(result, &err);
}

/* ---- releasing ------------------------------------------------------------------------------- */

/* Tells the store. A second try after a lost answer may find that the first one did it, unless the store knows better. */
static int release_at_store(hf_lock *lock, int64_t deadline_ms, struct error_text *err)
{
    hf_store *store = lock->store;
    int64_t pause_ms = SETTLE_PAUSE_MS;
    bool unsure = false;
    int result;

    do {
        result = store->engine->release(store->engine_store, &lock->claim, deadline_ms, err);
        unsure = unsure || result == HF_EUNKNOWN;
    } while (is_transient(result) && waiter_pause(&lock->waiter, &pause_ms, deadline_ms));
    if (result == HF_ELOST && unsure)
        return HF_OK;
    if (result == ENGINE_ENDED) /* that was not our first try */
        result = HF_ELOST;
    if (result == HF_ELOST)
        store_forget_id(store);
    if (SWITCHED(SWITCH_UNKNOWN_RELEASED) && is_transient(result))
        return HF_OK;
    /* Who refuses the second try has not said what became of the first. */
    return result == HF_EUNREACH || (unsure && result != HF_OK && result != HF_ELOST) ? HF_EUNKNOWN
                                                                                      : result;
}

/* With the mutex held, at the beginning of whatever gives the lock up: nobody is told anything of it any
 * more, and nobody else is busy with it. */
static void take_back(hf_lock *lock)
{
    claim_await_callback(lock);
    claim_silence(lock);
    while (lock->busy || lock->pins > 0)
        pthread_cond_wait(&lock->store->changed, &lock->store->mutex);
}

int lock_release(hf_lock *lock, int64_t deadline_ms, struct error_text *err)
{
    hf_store *store = lock->store;
    struct error_text ignored;
    bool held, owes;
    int result;

    pthread_mutex_lock(&store->mutex);
    take_back(lock);
    held = atomic_load(&lock->end_ms) == CLOCK_NEVER ? lock->state == CLAIM_HELD
                                                     : claim_look_at_clock(lock, clock_boot_ms());
    owes = lock->owes_release;
    result = held ? HF_OK : lost_error(lock, err);
    claim_withdraw(lock);
    pthread_mutex_unlock(&store->mutex);
    if (deadline_ms == CLOCK_NEVER)
        deadline_ms = clock_after(clock_boot_ms(), SETTLE_MS);
    if (held)
        result = release_at_store(lock, deadline_ms, err);
    else if (owes)
        release_at_store(lock, deadline_ms, &ignored);
    claim_free(lock);
    return result;
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* So that a lost answer, or a new leader, need not mean that it is not known whether it is kept. The
 * lease is not renewed meanwhile. */
static int64_t finish_deadline_ms(int64_t now_ms, int64_t end_ms)
{
    int64_t least_ms = clock_after(now_ms, SETTLE_MS), most_ms = clock_after(now_ms, FINISH_MS_MAX);

    return end_ms < least_ms ? least_ms : end_ms < most_ms ? end_ms : most_ms;
}

/* Tells the store what came out. A second try after a lost answer finds what the first one did: "stale"
 * then means that it did nothing, unless what it kept may have been forgotten since. */
static int finish_at_store(hf_lock *lock, const void *bytes, size_t size, int64_t keep_ms,
                           struct error_text *err)
{
    hf_store *store = lock->store;
    int64_t began_ms = clock_boot_ms(), pause_ms = SETTLE_PAUSE_MS;
    int64_t until_ms = finish_deadline_ms(began_ms, atomic_load(&lock->end_ms));
    bool unsure = false;
    int result;

    do {
        int64_t attempt_ms = clock_after(clock_boot_ms(), ATTEMPT_MS);

        result = store->engine->finish(store->engine_store, &lock->claim, bytes, size, keep_ms,
                                       attempt_ms < until_ms ? attempt_ms : until_ms, err);
        unsure = unsure || result == HF_EUNKNOWN;
    } while (is_transient(result) && waiter_pause(&lock->waiter, &pause_ms, until_ms));
    if (result == HF_ESTALE && unsure && clock_boot_ms() - began_ms >= keep_ms / 2)
        return error_set(err, HF_EUNKNOWN,
                         "an answer was lost, and what was kept may be forgotten already");
    /* Who refuses the second try has not said what became of the first. */
    return unsure && result != HF_OK && result != HF_ESTALE ? HF_EUNKNOWN : result;
}

int lock_finish(hf_lock *lock, const void *bytes, size_t size, int64_t keep_ms,
                struct error_text *err)
{
    hf_store *store = lock->store;
    struct error_text why = {""};
    bool held;
    int result;

    pthread_mutex_lock(&store->mutex);
    take_back(lock);
    held = claim_look_at_clock(lock, clock_boot_ms());
    if (!held)
        error_set(&why, HF_ESTALE, "%s", words_of_loss(lock));
    claim_withdraw(lock);
    pthread_mutex_unlock(&store->mutex);
    result = held ? finish_at_store(lock, bytes, size, keep_ms, &why) : HF_ESTALE;
    if (result == HF_EUNKNOWN)
        error_set(err, result, "the result of '%.100s' may or may not be kept: %.300s",
                  lock->claim.name, why.text);
    else if (result != HF_OK)
        error_set(err, result, "the result of '%.100s' (token %llu) is not kept: %.300s",
                  lock->claim.name, (unsigned long long)lock->claim.token, why.text);
    claim_free(lock);
    return result;
}

void lock_leave(hf_lock *lock)
{
    pthread_mutex_lock(&lock->store->mutex);
    take_back(lock);
    claim_withdraw(lock);
    pthread_mutex_unlock(&lock->store->mutex);
    claim_free(lock);
}

/* ---- the calls ------------------------------------------------------------------------------- */

int hf_release(hf_lock *lock)
{
    struct error_text err = {""};
    int result;

    if (!lock)
        return HF_OK;
    result = store_check(lock->store, &err);
    if (result != HF_OK) {
        list_remove(&lock->node);
        claim_free(lock);
        return failure_keep(result, &err);
    }
    return failure_keep(lock_release(lock, CLOCK_NEVER, &err), &err);
}

static void release_task(void *arg)
{
    struct error_text err;

    lock_release(arg, CLOCK_NEVER, &err);
}

void lock_release_aside(hf_lock *lock)
{
    /* Inside a callback, so that on_lost does not run now; nor shall it later. */
    pthread_mutex_lock(&lock->store->mutex);
    claim_silence(lock);
    pthread_mutex_unlock(&lock->store->mutex);
    if (task_start(lock->store, release_task, lock, NULL) != HF_OK)
        release_task(lock);
}

void lock_pay(void *arg)
{
    hf_lock *lock = arg;
    hf_store *store = lock->store;
    struct error_text err;

    /* Whatever the answer: it is not renewed any more, and the store has been told what we can
     * tell. Of a once-record it is not known what has been done: its runner is to count as dead. */
    if (lock->claim.once)
        store->engine->dispose(store->engine_store, &lock->claim);
    else
        release_at_store(lock, clock_after(clock_boot_ms(), SETTLE_MS), &err);
    pthread_mutex_lock(&store->mutex);
    if (lock->claim.once)
        lock->claim.private = NULL;
    lock->owes_release = false;
    claim_leave_locked(lock);
    pthread_mutex_unlock(&store->mutex);
}

/* ---- handing on ------------------------------------------------------------------------------ */

int hf_lock_pass_fd(hf_lock *lock, int *ret_fd)
{
    struct error_text err = {""};
    int result = lock_check(lock, &err);
    hf_store *store;

    if (result != HF_OK)
        return failure_keep(result, &err);
    store = lock->store;
    if (!ret_fd)
        return failure_keep(error_set(&err, HF_EINVAL, "nowhere to put the descriptor"), &err);
    if (!(store->info.features & HF_HAS_PASS_FD) || !store->engine->pass_fd)
        return failure_keep(error_set(&err, HF_ENOTSUP,
                                      "a lock of %s is not a descriptor that could be passed on",
                                      text_kind(&store->info).text),
                            &err);
    pthread_mutex_lock(&store->mutex);
    claim_enter_locked(lock);
    if (!claim_look_at_clock(lock, clock_boot_ms()))
        result = lost_error(lock, &err);
    pthread_mutex_unlock(&store->mutex);
    if (result == HF_OK)
        result = store->engine->pass_fd(store->engine_store, &lock->claim, ret_fd, &err);
    pthread_mutex_lock(&store->mutex);
    claim_leave_locked(lock);
    pthread_mutex_unlock(&store->mutex);
    return failure_keep(result, &err);
}

static int need_detach(const hf_store *store, struct error_text *err)
{
    if (store->info.features & HF_HAS_DETACH && store->engine->renew)
        return HF_OK;
    return error_set(err, HF_ENOTSUP, "a hold in %s lives with its process and cannot outlive it",
                     text_kind(&store->info).text);
}

int hf_lock_detach(hf_lock *lock)
{
    struct error_text err = {""};
    int result = lock_check(lock, &err);
    hf_store *store;

    if (result != HF_OK || (result = need_detach(lock->store, &err)) != HF_OK)
        return failure_keep(result, &err);
    if (lock->claim.once)
        return failure_keep(
            error_set(&err, HF_EINVAL, "what is to be run once cannot be left to somebody else"),
            &err);
    store = lock->store;
    pthread_mutex_lock(&store->mutex);
    while (lock->busy || lock->pins > 0 || events_runs_elsewhere(store, &lock->event))
        pthread_cond_wait(&store->changed, &store->mutex);
    if (!claim_look_at_clock(lock, clock_boot_ms()))
        result = lost_error(lock, &err);
    else
        claim_withdraw(lock);
    pthread_mutex_unlock(&store->mutex);
    if (result == HF_OK)
        claim_free(lock);
    return failure_keep(result, &err);
}
