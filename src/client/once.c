/* once.c: what is to be done once, however often it is asked for.
 *
 * A once-record is acquired as a lock is, by the same code: leases, retries, waiting, watchdog, loss.
 * Whoever gets it runs it, and ends that by finishing, which stores the result and lets go in one step
 * at the store, or by a release, after which it is as if nothing had been. Everybody else gets what was
 * stored.
 *
 * An hf_once that is to be run belongs to its lock, and goes with it; hf_close knows it, too. Any other
 * is only memory. */
#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"

#include <stdlib.h>
#include <string.h>

void once_drop(hf_once *once)
{
    if (!once)
        return;
    free(once->record.bytes);
    free(once->record.owner);
    free(once);
}

/* ---- beginning ------------------------------------------------------------------------------- */

int once_run(hf_store *store, const char *key, const hf_options *options, struct once_terms *terms,
             hf_cancel *also_cancel, struct error_text *err, hf_once **ret_once)
{
    hf_once *once = calloc(1, sizeof *once); /* first: what has been granted cannot be refused */
    int result;

    if (!once)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = acquire_run(store, key, options, terms, also_cancel, err, &once->lock);
    if (result == ENGINE_DIED)
        error_set(err, HF_ELOST,
                  "whoever ran '%.100s' (token %llu) died before it was finished, and it is not "
                  "run again",
                  key, (unsigned long long)terms->record.token);
    if (result != HF_OK && result != ENGINE_DONE) {
        once_drop(once);
        return result == ENGINE_DIED ? HF_ELOST : result;
    }
    once->left_ms = once->record.age_ms = -1;
    if (result == ENGINE_DONE) {
        once->state = HF_ONCE_DONE;
        once->record = terms->record;
    } else {
        once->state = HF_ONCE_RUNNING;
        once->record.token = once->lock->claim.token;
        once->lock->once = once;
    }
    *ret_once = once;
    return HF_OK;
}

int hf_once_begin(hf_store *store, const char *key, const hf_once_options *options,
                  hf_once **ret_once)
{
    struct error_text err = {""};
    struct once_terms terms;
    hf_options checked;
    int result = store_check(store, &err);

    if (result == HF_OK && !ret_once)
        result = error_set(&err, HF_EINVAL, "nowhere to put the answer");
    if (result == HF_OK)
        result = once_options_read(store, options, &checked, &terms, &err);
    if (result == HF_OK)
        result = once_run(store, key, &checked, &terms, NULL, &err, ret_once);
    return failure_keep(result, &err);
}

/* ---- looking at it --------------------------------------------------------------------------- */

int hf_once_runs(const hf_once *once)
{
    return once && once->lock;
}

int hf_once_state(const hf_once *once)
{
    return once ? once->state : HF_ONCE_NOTHING;
}

int hf_once_withheld(const hf_once *once)
{
    return hf_once_state(once) == HF_ONCE_NOTHING && once && once->record.withheld;
}

uint64_t hf_once_token(const hf_once *once)
{
    return once ? once->record.token : 0;
}

const void *hf_once_result(const hf_once *once, size_t *ret_size)
{
    if (!once || once->state != HF_ONCE_DONE)
        return NULL;
    if (ret_size)
        *ret_size = once->record.size;
    return once->record.bytes ? once->record.bytes : "";
}

const char *hf_once_owner(const hf_once *once)
{
    if (once && once->lock)
        return once->lock->claim.owner;
    return once && once->record.owner ? once->record.owner : "";
}

int64_t hf_once_age_ms(const hf_once *once)
{
    return once ? once->record.age_ms : -1;
}

int64_t hf_once_left_ms(const hf_once *once)
{
    if (once && once->lock)
        return hf_lock_left_ms(once->lock);
    return once ? once->left_ms : -1;
}

hf_lock *hf_once_lock(const hf_once *once)
{
    return once ? once->lock : NULL;
}

/* ---- ending ---------------------------------------------------------------------------------- */

int once_check_finish(const hf_once *once, const void *bytes, size_t size, int64_t keep_ms,
                      struct error_text *err)
{
    if (!once || !once->lock)
        return error_set(err, HF_EINVAL, "this is not ours to finish: it was run by somebody else");
    if (size > HF_ONCE_RESULT_MAX || (!bytes && size > 0))
        return error_set(err, HF_EINVAL, "a result of %zu bytes: at most %d can be kept", size,
                         HF_ONCE_RESULT_MAX);
    if (keep_ms == 0)
        return error_set(err, HF_EINVAL, "a result is kept for at least 1 ms");
    return check_span(keep_ms, "keeping a result", err);
}

int hf_once_finish(hf_once *once, const void *bytes, size_t size, int64_t keep_ms)
{
    struct error_text err = {""};
    int result = once_check_finish(once, bytes, size, keep_ms, &err);

    if (result != HF_OK)
        return failure_keep(result, &err);
    result = store_check(once->lock->store, &err);
    if (result != HF_OK) {
        hf_release(once->lock);
        return failure_keep(result, &err);
    }
    return failure_keep(lock_finish(once->lock, bytes ? bytes : "", size, keep_ms, &err), &err);
}

int hf_once_release(hf_once *once)
{
    if (once && once->lock)
        return hf_release(once->lock); /* and with the lock it is freed */
    once_drop(once);
    return HF_OK;
}

void hf_once_free(hf_once *once)
{
    hf_once_release(once);
}

void hf_once_abandon(hf_once *once)
{
    if (once && once->lock && !store_forked(once->lock->store))
        lock_leave(once->lock);
    else
        hf_once_release(once); /* it only frees */
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int state_of(int outcome)
{
    switch (outcome) {
    case ENGINE_HELD:
        return HF_ONCE_RUNNING;
    case ENGINE_DONE:
        return HF_ONCE_DONE;
    case ENGINE_DIED:
        return HF_ONCE_DIED;
    default:
        return HF_ONCE_NOTHING;
    }
}

int query_once(hf_store *store, const char *key, struct error_text *err, hf_once **ret_once)
{
    int result = text_check_key(key, err);
    hf_once *once;

    if (result != HF_OK)
        return result;
    if (!(store->info.features & HF_HAS_ONCE) || !store->engine->once_read)
        return error_set(err, HF_ENOTSUP,
                         "%s keeps no once-records; 'holdfast stores' says which do",
                         text_kind(&store->info).text);
    once = calloc(1, sizeof *once);
    if (!once)
        return error_set(err, HF_ENOMEM, "out of memory");
    once->left_ms = once->record.age_ms = -1;
    result =
        store->engine->once_read(store->engine_store, key, &once->record, &once->left_ms,
                                 clock_after(clock_boot_ms(), reach_span(store, QUERY_MS)), err);
    reach_note(store, result, err);
    if (result < 0) {
        once_drop(once);
        return result;
    }
    once->state = state_of(result);
    *ret_once = once;
    return HF_OK;
}

int hf_once_read(hf_store *store, const char *key, hf_once **ret_once)
{
    struct error_text err = {""};
    int result = store_check(store, &err);

    if (result == HF_OK && !ret_once)
        result = error_set(&err, HF_EINVAL, "nowhere to put the answer");
    if (result == HF_OK)
        result = query_once(store, key, &err, ret_once);
    return failure_keep(result, &err);
}
