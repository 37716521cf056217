/* cancel.c: ending somebody's sleep.
 *
 * A wait registers with up to three cancels (the caller's, its operation's, its store's), then
 * looks whether one has fired, then sleeps; so does an attempt that may have to wait for a server. Firing sets the flag, then wakes all who are
 * registered. So a fire is either seen by the look or wakes the sleep; there is no gap between.
 *
 * One mutex serves all cancels of the process: they are used only by calls that wait anyway, and
 * one mutex can be held across a fork, so that a cancel made before a fork works in the child too.
 */
#include "base/clock.h"
#include "base/futex.h"
#include "base/random.h"
#include "client/client.h"

#include <limits.h>
#include <stdlib.h>

static pthread_mutex_t cancels = PTHREAD_MUTEX_INITIALIZER;

void cancels_before_fork(void)
{
    pthread_mutex_lock(&cancels);
}

void cancels_after_fork(void)
{
    pthread_mutex_unlock(&cancels);
}

bool cancel_fired(const hf_cancel *cancel)
{
    return cancel && atomic_load(&cancel->fired);
}

void cancel_init(hf_cancel *cancel)
{
    atomic_init(&cancel->fired, false);
    list_init(&cancel->links);
}

int hf_cancel_new(hf_cancel **ret_cancel)
{
    hf_cancel *cancel;
    struct error_text err;

    if (!ret_cancel)
        return failure_keep(error_set(&err, HF_EINVAL, "hf_cancel_new: nowhere to put it"), &err);
    cancel = malloc(sizeof *cancel);
    if (!cancel)
        return failure_keep(error_set(&err, HF_ENOMEM, "out of memory"), &err);
    cancel_init(cancel);
    *ret_cancel = cancel;
    return HF_OK;
}

void hf_cancel_fire(hf_cancel *cancel)
{
    if (!cancel)
        return;
    pthread_mutex_lock(&cancels);
    atomic_store(&cancel->fired, true);
    LIST_EACH(node, &cancel->links)
    {
        struct waiter *waiter = LIST_ENTRY(node, struct waiter_link, node)->waiter;

        if (!store_forked(waiter->store))
            atomic_store(&waiter->claim->interrupted, true);
        waiter_interrupt(waiter);
    }
    pthread_mutex_unlock(&cancels);
}

void hf_cancel_free(hf_cancel *cancel)
{
    if (!cancel)
        return;
    /* Nobody should be registered. In the child of a fork, threads that are no more may be. */
    pthread_mutex_lock(&cancels);
    LIST_EACH_SAFE(node, &cancel->links)
    list_remove(node);
    pthread_mutex_unlock(&cancels);
    free(cancel);
}

void waiter_init(struct waiter *waiter, hf_store *store, struct engine_claim *claim)
{
    waiter->store = store;
    waiter->claim = claim;
    waiter->registered = false;
    atomic_init(&waiter->word, 0);
    atomic_init(&waiter->nudges, 0);
    for (int i = 0; i < WAITER_LINKS; i++) {
        list_init(&waiter->links[i].node);
        waiter->links[i].waiter = waiter;
    }
}

void waiter_register(struct waiter *waiter, hf_cancel *const given[WAITER_LINKS])
{
    pthread_mutex_lock(&cancels);
    for (int i = 0; i < WAITER_LINKS; i++)
        if (given[i])
            list_append(&given[i]->links, &waiter->links[i].node);
    waiter->registered = true;
    pthread_mutex_unlock(&cancels);
}

void waiter_unregister(struct waiter *waiter)
{
    if (!waiter->registered)
        return;
    pthread_mutex_lock(&cancels);
    for (int i = 0; i < WAITER_LINKS; i++)
        list_remove(&waiter->links[i].node);
    waiter->registered = false;
    pthread_mutex_unlock(&cancels);
}

void waiter_nudge(struct waiter *waiter)
{
    atomic_fetch_add(&waiter->nudges, 1);
    atomic_fetch_add(&waiter->word, 1);
    futex_wake(&waiter->word, FUTEX_MASK_ALL, INT_MAX);
}

void waiter_interrupt(struct waiter *waiter)
{
    if (store_forked(waiter->store)) /* its thread was left behind in the parent */
        return;
    atomic_fetch_add(&waiter->word, 1);
    futex_wake(&waiter->word, FUTEX_MASK_ALL, INT_MAX);
    if (waiter->store->engine->wake)
        waiter->store->engine->wake(waiter->store->engine_store, waiter->claim);
}

bool waiter_sleep(struct waiter *waiter, uint32_t seen, int64_t until_ms)
{
    while (atomic_load(&waiter->word) == seen) {
        if (clock_boot_ms() >= until_ms)
            return false;
        futex_wait(&waiter->word, seen, FUTEX_MASK_ALL, until_ms);
    }
    return true;
}

bool waiter_pause(struct waiter *waiter, int64_t *pause_ms, int64_t deadline_ms)
{
    uint32_t seen = atomic_load(&waiter->word);
    int64_t until_ms = clock_after(clock_boot_ms(), jitter_ms(*pause_ms));

    waiter_sleep(waiter, seen, until_ms < deadline_ms ? until_ms : deadline_ms);
    *pause_ms = *pause_ms * 2 < SETTLE_PAUSE_MS_MAX ? *pause_ms * 2 : SETTLE_PAUSE_MS_MAX;
    return clock_boot_ms() < deadline_ms;
}

int64_t jitter_ms(int64_t span_ms)
{
    int64_t half = span_ms / 2;

    return span_ms - half + (int64_t)random_below((uint64_t)half + 1);
}
