/* events.c: calling back, one callback at a time per store.
 *
 * An event is a part of the lock, operation or observer it tells about. It is queued under the
 * store's mutex, at most once, and run by exactly one of two:
 *
 *     no hf_fd()    a thread of ours, started with the first thing that could call back. Not the
 *                   watchdog's: a callback may block, and a loss elsewhere must not wait for it.
 *     hf_fd()       whoever calls hf_dispatch(); the descriptor is readable while the queue is not
 * empty.
 *
 * The object can be freed from within its own callback (hf_release in on_lost, hf_observer_stop in
 * fn): events_forget() notes that, and the runner touches it no more. Anybody else who frees it
 * waits until the callback has returned, and drops what is still queued. */
#include "client/client.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Stands in for an object that was freed by its own callback: its memory may become another one's.
 */
static struct event gone;

void events_post(hf_store *store, struct event *event)
{
    if (store->events_stop || event->queued)
        return;
    event->queued = true;
    list_append(&store->events, &event->node);
    if (store->dispatch_fd >= 0)
        eventfd_write(store->dispatch_fd, 1);
    else
        pthread_cond_signal(&store->events_due);
}

void events_drop(struct event *event)
{
    list_remove(&event->node);
    event->queued = false;
}

bool events_runs_elsewhere(const hf_store *store, const struct event *event)
{
    return store->running == event && !pthread_equal(store->runner, pthread_self());
}

void events_forget(hf_store *store, const struct event *event)
{
    if (store->running == event)
        store->running = &gone;
}

/* After on_lost has returned and if it left the lock alone: now the store may be told. */
static void pay_after_callback(hf_lock *lock)
{
    if (!lock->owes_release || lock->state != CLAIM_LOST)
        return;
    list_append(&lock->store->owing, &lock->owe_node);
    watchdog_schedule(lock->store, INT64_MIN);
}

/* Runs the first event of the queue. With the mutex held, which it lets go meanwhile. */
static void run_first(hf_store *store)
{
    struct event *event = LIST_ENTRY(store->events.next, struct event, node);
    enum event_kind kind = event->kind;

    events_drop(event);
    store->running = event;
    store->runner = pthread_self();
    pthread_mutex_unlock(&store->mutex);
    if (kind == EVENT_LOST) {
        hf_lock *lock = LIST_ENTRY(event, hf_lock, event);

        lock->on_lost(lock, lock->arg);
    } else if (kind == EVENT_DONE) {
        op_run_event(event);
    } else {
        observer_run_event(store, event);
    }
    tasks_reap(store);
    pthread_mutex_lock(&store->mutex);
    if (kind == EVENT_LOST && store->running == event)
        pay_after_callback(LIST_ENTRY(event, hf_lock, event));
    store->running = NULL;
    pthread_cond_broadcast(&store->changed);
}

static void *callbacks_main(void *arg)
{
    hf_store *store = arg;

    pthread_mutex_lock(&store->mutex);
    while (!store->events_stop) {
        if (list_empty(&store->events) || store->dispatch_fd >= 0 || store->running)
            pthread_cond_wait(&store->events_due, &store->mutex);
        else
            run_first(store);
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

int events_start(hf_store *store, struct error_text *err)
{
    int failed;

    if (store->closed)
        return error_set(err, HF_ECANCELED, "the store is being closed");
    if (store->callbacks_run || store->dispatch_fd >= 0)
        return HF_OK;
    /* The callback is the user's code: it gets a stack of the usual size. */
    failed = thread_start(&store->callbacks, 0, callbacks_main, store, "holdfast-calls");
    if (failed)
        return error_set_errno(err, HF_ENOMEM, failed, "cannot start the callback thread");
    store->callbacks_run = true;
    return HF_OK;
}

void events_close(hf_store *store)
{
    store->events_stop = true;
    while (!list_empty(&store->events))
        events_drop(LIST_ENTRY(store->events.next, struct event, node));
    pthread_cond_broadcast(&store->events_due);
}

void events_join(hf_store *store)
{
    bool join;

    pthread_mutex_lock(&store->mutex);
    while (store->running)
        pthread_cond_wait(&store->changed, &store->mutex);
    join = store->callbacks_run;
    store->callbacks_run = false;
    pthread_mutex_unlock(&store->mutex);
    if (join)
        pthread_join(store->callbacks, NULL);
}

int hf_fd(hf_store *store)
{
    struct error_text err;
    int result = store_check(store, &err), fd;

    if (result != HF_OK)
        return failure_keep(result, &err);
    pthread_mutex_lock(&store->mutex);
    if (store->dispatch_fd < 0) {
        fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            result = error_set_errno(&err, HF_ENOMEM, errno, "cannot make a descriptor");
        else
            store->dispatch_fd = fd;
        if (fd >= 0 && !list_empty(&store->events))
            eventfd_write(fd, 1);
        /* What our thread is in the middle of is the last it runs. */
        while (fd >= 0 && store->running && !pthread_equal(store->runner, pthread_self()))
            pthread_cond_wait(&store->changed, &store->mutex);
    }
    fd = store->dispatch_fd;
    pthread_mutex_unlock(&store->mutex);
    return result == HF_OK ? fd : failure_keep(result, &err);
}

int hf_dispatch(hf_store *store)
{
    struct error_text err;
    int result = store_check(store, &err), count = 0;
    eventfd_t ignored;

    if (result != HF_OK)
        return failure_keep(result, &err);
    pthread_mutex_lock(&store->mutex);
    if (store->dispatch_fd < 0) {
        pthread_mutex_unlock(&store->mutex);
        return failure_keep(error_set(&err, HF_EINVAL, "hf_dispatch without hf_fd"), &err);
    }
    /* One at a time: a callback that dispatches, or a second thread, leaves the queue to the first.
     */
    while (!store->running && !list_empty(&store->events) && count < DISPATCH_MAX) {
        run_first(store);
        count++;
    }
    if (list_empty(&store->events))
        eventfd_read(store->dispatch_fd, &ignored);
    pthread_mutex_unlock(&store->mutex);
    return count;
}
