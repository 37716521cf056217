/* adopt.c: taking up a hold that somebody else left behind (hf_lock_detach, `holdfast lock`).
 *
 * Knowing name, lease and token is not enough: the lease may have run out since. One renewal proves
 * that it is alive, and from that renewal's send the TTL counts, as if it had been our own all
 * along. How it was taken (exclusive, shared, a permit) is the store's to say: a sequencer that called a
 * shared hold exclusive would pass where only one may. */
#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"

#include <string.h>

#define ADOPT_PAUSE_MS 10

static int check_arguments(hf_store *store, const char *name, const char *lease, uint64_t token,
                           struct error_text *err)
{
    size_t length = lease ? strnlen(lease, HF_LEASE_MAX + 1) : 0;
    int result = text_check_name(name, err);

    if (result != HF_OK)
        return result;
    if (length < 1 || length > HF_LEASE_MAX)
        return error_set(err, HF_EINVAL, "a lease has from 1 to %d bytes", HF_LEASE_MAX);
    if (token < 1 || token > HF_TOKEN_MAX)
        return error_set(err, HF_EINVAL, "a token is a number from 1 to 2^53-1");
    if (!(store->info.features & HF_HAS_DETACH) || !store->engine->renew)
        return error_set(err, HF_ENOTSUP,
                         "a hold in %s lives with its process and cannot be taken up by "
                         "another",
                         text_kind(&store->info).text);
    return HF_OK;
}

/* Whoever adopts may leave the mode to the store (exclusive, the default), but not contradict it. */
static int take_mode(hf_lock *lock, struct error_text *err)
{
    static const char *const words[] = {
        [HF_EXCLUSIVE] = "exclusive", [HF_SHARED] = "shared", [HF_PERMIT] = "a permit"};
    struct engine_claim *claim = &lock->claim;
    int mode, result = query_mode(lock->store, claim->name, claim->token, &mode, err);

    if (result != HF_OK)
        return result;
    if (mode < HF_EXCLUSIVE || mode > HF_PERMIT)
        return error_set(err, HF_EINTERNAL, "the store returned an invalid mode");
    if (claim->mode != HF_EXCLUSIVE && claim->mode != mode)
        return error_set(err, HF_EMODE, "'%.100s' with that lease is %s, not %s", claim->name,
                         words[mode], words[claim->mode]);
    claim->mode = mode;
    return HF_OK;
}

/* Renews once, and again if an answer was lost. */
static int prove_alive(hf_lock *lock, struct error_text *err)
{
    int64_t allowed_ms = reach_allowed(lock->store);
    int64_t deadline_ms =
        clock_after(clock_boot_ms(), allowed_ms > ATTEMPT_MS ? allowed_ms : ATTEMPT_MS);
    int result = HF_EUNREACH;

    for (int i = 0; i < SETTLE_TRIES && clock_boot_ms() < deadline_ms; i++) {
        uint32_t seen = atomic_load(&lock->waiter.word);

        if (i > 0)
            waiter_sleep(&lock->waiter, seen, clock_after(clock_boot_ms(), ADOPT_PAUSE_MS << i));
        result = claim_renew(lock, deadline_ms, err);
        if (result == HF_OK)
            result = take_mode(lock, err);
        if (!is_transient(result))
            break;
    }
    if (result == HF_ELOST)
        error_set(err, HF_ELOST,
                  "this lease and token do not hold '%.100s': the hold was released, broken or not "
                  "renewed in time, or is another name's",
                  lock->claim.name);
    return result;
}

static int adopt(hf_store *store, const char *name, const char *lease, uint64_t token,
                 const hf_options *options, struct error_text *err, hf_lock **ret_lock)
{
    hf_lock *lock = claim_new(store, name, options, err);
    int result;

    if (!lock)
        return HF_ENOMEM;
    memcpy(lock->lease, lease, strlen(lease) + 1);
    lock->claim.token = token;
    pthread_mutex_lock(&store->mutex);
    result = watchdog_start(store, true, err);
    if (result == HF_OK && options->on_lost)
        result = events_start(store, err);
    if (result == HF_OK)
        result = claim_enlist(lock, err);
    pthread_mutex_unlock(&store->mutex);
    if (result == HF_OK)
        result = prove_alive(lock, err);
    pthread_mutex_lock(&store->mutex);
    if (result != HF_OK) {
        claim_withdraw(lock);
        pthread_mutex_unlock(&store->mutex);
        claim_free(lock);
        return result;
    }
    lock->state = CLAIM_HELD;
    if (options->max_hold_ms > 0)
        claim_set_hold(lock, clock_after(clock_boot_ms(), options->max_hold_ms));
    claim_reported(lock, clock_boot_ms());
    claim_watch(lock);
    watchdog_wants_poll(store);
    pthread_mutex_unlock(&store->mutex);
    *ret_lock = lock;
    return HF_OK;
}

int hf_adopt(hf_store *store, const char *name, const char *lease, uint64_t token,
             const hf_options *options, hf_lock **ret_lock)
{
    struct error_text err = {""};
    hf_options checked;
    int result = store_check(store, &err);

    if (result == HF_OK && !ret_lock)
        result = error_set(&err, HF_EINVAL, "nowhere to put the lock");
    if (result == HF_OK)
        result = check_arguments(store, name, lease, token, &err);
    if (result == HF_OK)
        result = options_read(store, options, &checked, &err);
    if (result == HF_OK)
        result = adopt(store, name, lease, token, &checked, &err, ret_lock);
    return failure_keep(result, &err);
}
