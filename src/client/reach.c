/* reach.c: can the store be reached?
 *
 *     never reached ──an answer, of whatever kind──▶ reached ◀──an answer── in trouble
 *          │                                            └──────a failure──────▲
 *          └─ the first contact fails: waits end, observers are refused
 *
 * Somebody who mistyped a host must not take that for a lock that is held for ever: a handle that has never had an
 * answer does not wait. From the first answer on a wait is a wait, and outages are sat out; whoever wants to tell a
 * person what is going on asks how long this one has lasted, and why. */
#include "base/clock.h"
#include "client/client.h"

#include <stdio.h>

bool reach_known(const hf_store *store)
{
    return atomic_load(&store->reached);
}

int64_t reach_allowed(const hf_store *store)
{
    return reach_known(store) ? 0 : store->timeout_ms;
}

/* A `timeout=` that is shorter shortens nothing: it is what one server may take, and there may be several. */
int64_t reach_span(const hf_store *store, int64_t span_ms)
{
    if (reach_allowed(store) > FIRST_CONTACT_MS)
        return store->timeout_ms;
    return reach_known(store) || span_ms < FIRST_CONTACT_MS ? span_ms : FIRST_CONTACT_MS;
}

void reach_answered(hf_store *store)
{
    atomic_store(&store->reached, true);
}

void reach_recovered(hf_store *store)
{
    reach_answered(store);
    if (!atomic_load(&store->in_trouble))
        return;
    pthread_mutex_lock(&store->mutex);
    atomic_store(&store->in_trouble, false);
    pthread_mutex_unlock(&store->mutex);
}

void reach_failed(hf_store *store, const char *why)
{
    pthread_mutex_lock(&store->mutex);
    if (!store->in_trouble)
        store->trouble_ms = clock_boot_ms();
    error_write(&store->trouble, "%s", why);
    atomic_store(&store->in_trouble, true);
    pthread_mutex_unlock(&store->mutex);
}

void reach_note(hf_store *store, int outcome, const struct error_text *err)
{
    if (outcome == HF_EUNKNOWN) /* what was sent went somewhere */
        reach_answered(store);
    if (is_transient(outcome))
        reach_failed(store, err->text);
    else if (outcome >= 0 || outcome == HF_ELOST)
        reach_recovered(store);
    /* All other errors may have been found here, without asking anybody. */
}

int hf_reached(hf_store *store)
{
    struct error_text err = {""};
    int result = store_check(store, &err);

    return result == HF_OK ? reach_known(store) : failure_keep(result, &err);
}

int64_t hf_outage_ms(hf_store *store)
{
    struct error_text err = {""};
    int64_t lasts_ms = 0;
    int result = store_check(store, &err);

    if (result != HF_OK)
        return failure_keep(result, &err);
    if (!reach_known(store) || !atomic_load(&store->in_trouble))
        return 0;
    pthread_mutex_lock(&store->mutex);
    if (store->in_trouble) {
        lasts_ms = clock_boot_ms() - store->trouble_ms;
        lasts_ms = lasts_ms > 0 ? lasts_ms : 1;
        err = store->trouble;
    }
    pthread_mutex_unlock(&store->mutex);
    if (lasts_ms > 0)
        failure_note(HF_EUNREACH, &err);
    return lasts_ms;
}
