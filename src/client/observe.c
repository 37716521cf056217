/* observe.c: telling somebody of every change of holder.
 *
 * An observer is a task that alternates between "may have changed" and "who is it now". The first
 * comes from the engine: by nudges (engine->observe), by engine->wait, or, where nothing can push,
 * from asking every second. The second is a show. The callback is queued only if the set of
 * holders, by token and owner, differs from the last one told, and changes that come faster than
 * callbacks run are told as one. A store that cannot be reached is asked again until it can; only a handle that
 * never reached it asks before it begins, and hears an error (reach.c).
 *
 * Freeing. The user and the thread each have a reference; the last one to go frees. */
#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MS 1000     /* where nothing tells us */
#define RECHECK_MS 10000 /* where nudges should tell us */
#define GAP_MS 5         /* the least between two looks, whatever the engine says */
#define PAUSE_MS 10      /* after a failure; doubles */
#define PAUSE_MS_LONGEST 1000

/* With the mutex held. */
static void observer_unref(hf_observer *observer)
{
    if (--observer->refs > 0)
        return;
    list_remove(&observer->node);
    hf_report_free(observer->pending);
    hf_report_free(observer->told);
    free(observer);
}

static bool ended(const hf_observer *observer)
{
    return cancel_fired(&observer->stop) || cancel_fired(&observer->store->closing);
}

/* Takes the report. */
static void tell(hf_observer *observer, hf_report *now)
{
    hf_store *store = observer->store;
    hf_report *latest;

    pthread_mutex_lock(&store->mutex);
    latest = observer->pending ? observer->pending : observer->told;
    if (observer->stopped || report_same_holders(now, latest)) {
        pthread_mutex_unlock(&store->mutex);
        hf_report_free(now);
        return;
    }
    latest = observer->pending;
    observer->pending = now;
    events_post(store, &observer->event);
    pthread_mutex_unlock(&store->mutex);
    hf_report_free(latest);
}

/* Waits until the holders may have changed. */
static int await_change(hf_observer *observer, uint32_t seen, struct error_text *err)
{
    const struct engine *engine = observer->store->engine;
    int64_t now_ms = clock_boot_ms();

    if (engine->wait && !engine->observe)
        return engine->wait(observer->store->engine_store, &observer->claim, CLOCK_NEVER, err);
    waiter_sleep(&observer->waiter, seen,
                 clock_after(now_ms, engine->observe ? RECHECK_MS : POLL_MS));
    return HF_OK;
}

static void observer_loop(hf_observer *observer)
{
    hf_store *store = observer->store;
    struct error_text err = {""};
    int64_t pause_ms = PAUSE_MS;
    int result = HF_OK;

    if (store->engine->observe)
        result = store->engine->observe(store->engine_store, &observer->claim, &err);
    else if (store->engine->wait) /* the first wait returns at once: changes count from here */
        result = store->engine->wait(store->engine_store, &observer->claim, CLOCK_NEVER, &err);
    while (!ended(observer)) {
        uint32_t seen = atomic_load(&observer->waiter.word);
        int64_t began_ms = clock_boot_ms();
        hf_report *now;

        if (result == HF_OK)
            result = query_show(store, observer->claim.name, true, &err, &now);
        if (result == HF_OK) {
            pause_ms = PAUSE_MS;
            tell(observer, now);
            if (!ended(observer))
                result = await_change(observer, seen, &err);
            waiter_sleep(&observer->waiter, atomic_load(&observer->waiter.word),
                         clock_after(began_ms, GAP_MS));
        }
        if (result != HF_OK && !ended(observer)) {
            waiter_sleep(&observer->waiter, seen,
                         clock_after(clock_boot_ms(), jitter_ms(pause_ms)));
            pause_ms = pause_ms * 2 < PAUSE_MS_LONGEST ? pause_ms * 2 : PAUSE_MS_LONGEST;
            result = HF_OK;
        }
    }
}

static void observer_task(void *arg)
{
    hf_observer *observer = arg;
    hf_store *store = observer->store;
    hf_cancel *cancels[WAITER_LINKS] = {&store->closing, &observer->stop, NULL};

    waiter_register(&observer->waiter, cancels);
    observer_loop(observer);
    waiter_unregister(&observer->waiter);
    store->engine->dispose(store->engine_store, &observer->claim);
    observer->claim.private = NULL;
    pthread_mutex_lock(&store->mutex);
    store->op_count--;
    observer_unref(observer);
    pthread_mutex_unlock(&store->mutex);
}

/* On the thread that runs callbacks. The observer may be freed within fn. */
void observer_run_event(hf_store *store, struct event *event)
{
    hf_observer *observer = LIST_ENTRY(event, hf_observer, event);
    hf_report *now, *before;

    pthread_mutex_lock(&store->mutex);
    now = observer->pending;
    observer->pending = NULL;
    before = observer->told;
    if (now && report_same_holders(now, before)) { /* it changed, and back */
        before = now;
        now = NULL;
    } else if (now) {
        observer->told = report_ref(now);
    } else {
        before = NULL;
    }
    pthread_mutex_unlock(&store->mutex);
    hf_report_free(before);
    if (now)
        observer->fn(observer, now, observer->arg);
    hf_report_free(now);
}

static hf_observer *observer_new(hf_store *store, const char *name, hf_observer_fn *fn, void *arg)
{
    size_t name_size = strlen(name) + 1;
    hf_observer *observer = calloc(1, sizeof *observer + name_size);

    if (!observer)
        return NULL;
    memcpy(observer->name, name, name_size);
    observer->store = store;
    observer->fn = fn;
    observer->arg = arg;
    observer->refs = 2;
    observer->claim = (struct engine_claim){
        .name = observer->name,
        .lease = observer->lease,
        .owner = store_owner(store),
        .mode = ENGINE_OBSERVE,
        .will_wait = true,
    };
    observer->event.kind = EVENT_CHANGED;
    list_init(&observer->event.node);
    list_init(&observer->node);
    cancel_init(&observer->stop);
    waiter_init(&observer->waiter, store, &observer->claim);
    return observer;
}

static int observer_start(hf_observer *observer, struct error_text *err, hf_observer **ret_observer)
{
    hf_store *store = observer->store;
    int result;

    pthread_mutex_lock(&store->mutex);
    result = events_start(store, err);
    if (result == HF_OK && store->engine->poll_fd)
        result = watchdog_start(store, false, err);
    if (result == HF_OK && store->op_count >= HF_OPS_MAX)
        result =
            error_set(err, HF_ENOMEM, "%d operations are under way at once already", HF_OPS_MAX);
    if (result == HF_OK) {
        claim_draw_lease(store, observer->lease);
        result = task_start_locked(store, observer_task, observer, err);
    }
    if (result == HF_OK) {
        store->op_count++;
        list_append(&store->observers, &observer->node);
        watchdog_wants_poll(store);
        *ret_observer = observer; /* before fn can run */
    }
    pthread_mutex_unlock(&store->mutex);
    return result;
}

static int ignore(void *context, const hf_entry *entry)
{
    (void)context;
    (void)entry;
    return HF_OK;
}

/* An outage of a store that was reached is sat out; all else is told to whoever begins. */
static int first_contact(hf_store *store, const char *name, struct error_text *err)
{
    struct engine_sink sink = {NULL, ignore};
    int64_t deadline_ms = clock_after(clock_boot_ms(), reach_span(store, QUERY_MS));
    int result = store->engine->show(store->engine_store, name, &sink, deadline_ms, err);

    reach_note(store, result, err);
    return is_transient(result) && reach_known(store) ? HF_OK : result;
}

int hf_observe(hf_store *store, const char *name, hf_observer_fn *fn, void *arg,
               hf_observer **ret_observer)
{
    struct error_text err = {""};
    hf_observer *observer;
    int result = store_check(store, &err);

    if (result == HF_OK && (!fn || !ret_observer))
        result = error_set(&err, HF_EINVAL, "nobody to tell");
    if (result == HF_OK)
        result = text_check_name(name, &err);
    if (result == HF_OK && !reach_known(store))
        result = first_contact(store, name, &err);
    if (result != HF_OK)
        return failure_keep(result, &err);
    tasks_reap(store);
    observer = observer_new(store, name, fn, arg);
    if (!observer)
        return failure_keep(error_set(&err, HF_ENOMEM, "out of memory"), &err);
    result = observer_start(observer, &err, ret_observer);
    if (result != HF_OK)
        free(observer);
    return failure_keep(result, &err);
}

void hf_observer_stop(hf_observer *observer)
{
    hf_store *store;

    if (!observer)
        return;
    store = observer->store;
    if (store_forked(store)) /* freed with its store */
        return;
    hf_cancel_fire(&observer->stop);
    pthread_mutex_lock(&store->mutex);
    observer->stopped = true;
    while (events_runs_elsewhere(store, &observer->event))
        pthread_cond_wait(&store->changed, &store->mutex);
    events_drop(&observer->event);
    events_forget(store, &observer->event);
    observer_unref(observer);
    pthread_mutex_unlock(&store->mutex);
}

/* At the end of the store, or in the child of a fork: the threads are gone. */
void observer_free_all(hf_store *store, bool forked)
{
    LIST_EACH_SAFE(node, &store->observers)
    {
        hf_observer *observer = LIST_ENTRY(node, hf_observer, node);

        waiter_unregister(&observer->waiter);
        if (forked)
            store->engine->dispose(store->engine_store, &observer->claim);
        observer->refs = 1;
        observer_unref(observer);
    }
}
