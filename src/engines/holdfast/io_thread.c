/* io_thread.c: the thread behind the connection. It has the connection made when somebody has something to
 * ask, or waits, or observes; it listens while claims wait or observe; and it notices when the other
 * side has gone quiet. A handle that does none of that lets it sleep.
 *
 *     nothing wanted: sleep                     wanted: asked, waited for or observed
 *     no connection:  probes look for who leads ──▶ send what waited, observe anew, nudge those who
 *                                                   may have missed something
 *     in doubt:       probes look, and the connection is read
 *     connected:      read while anybody waits or observes; PING when it is quiet
 *                     read while anybody holds, if nobody else has used it for a moment: a loss is told at once */
#include "base/clock.h"
#include "base/futex.h"
#include "engines/holdfast/store.h"

#include <signal.h>
#include <sys/eventfd.h>

#define STACK_BYTES 262144
/* A quiet connection is asked whether it is there: soon, where another server could serve instead. */
#define PING_MS 5000
#define PING_SOON_MS 1000
/* Whoever asks reads his answer himself, as long as there is always somebody who does. */
#define QUIET_MS 100

void io_thread_wakeup(struct engine_store *store)
{
    atomic_fetch_add(&store->io_wakeup, 1);
    futex_wake(&store->io_wakeup, FUTEX_MASK_ALL, 1);
}

static void sleep_until(struct engine_store *store, int64_t until_ms)
{
    uint32_t seen = atomic_load(&store->io_wakeup);

    pthread_mutex_unlock(&store->mutex);
    futex_wait(&store->io_wakeup, seen, FUTEX_MASK_ALL, until_ms);
    pthread_mutex_lock(&store->mutex);
}

/* ---- listening ------------------------------------------------------------------------------- */

static void ping(struct engine_store *store)
{
    struct resp_writer writer = {0};

    resp_write_array(&writer, 1);
    resp_write_text(&writer, "PING");
    pipeline_tell(store, &writer, 1);
    resp_writer_free(&writer);
}

static void listen_once(struct engine_store *store)
{
    int64_t until_ms = pipeline_look_until(store);
    int64_t ping_ms = clock_after(store->heard_ms, store->has_others ? PING_SOON_MS : PING_MS);

    store->reading = true;
    if (store->attentive == 0) {
        /* Of a loss by a server that is gone, the next renewal tells. */
    } else if (store->pending.count == 0 && clock_boot_ms() >= ping_ms) {
        ping(store);
        until_ms = pipeline_look_until(store);
    } else if (store->pending.count == 0) {
        until_ms = ping_ms;
    }
    pipeline_poll(store, until_ms);
    pipeline_pump(store);
    store->reading = false;
    if (store->attentive == 0)
        pipeline_hand_on(store);
}

static bool is_quiet(const struct engine_store *store)
{
    return clock_boot_ms() >= clock_after(store->heard_ms, QUIET_MS);
}

static bool is_listened_to(const struct engine_store *store)
{
    return store->link && !store->reading &&
           (store->attentive > 0 || (store->holding > 0 && is_quiet(store)));
}

static void rest(struct engine_store *store)
{
    store->watches = store->holding > 0;
    sleep_until(store, store->watches ? clock_after(clock_boot_ms(), QUIET_MS) : CLOCK_NEVER);
}

static void *io_thread_main(void *arg)
{
    struct engine_store *store = arg;

    pthread_mutex_lock(&store->mutex);
    while (!store->stop) {
        bool seek = discovery_wanted(store);

        if (seek && !store->reading)
            discovery_step(store);
        else if (!seek && !list_empty(&store->probes))
            discovery_stop(store);
        else if (!seek && is_listened_to(store))
            listen_once(store);
        else
            rest(store);
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

int io_thread_want(struct engine_store *store, struct error_text *err)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed;

    io_thread_wakeup(store);
    if (store->io_thread_runs)
        return HF_OK;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&store->io_thread, &attributes, io_thread_main, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return error_set_errno(err, HF_ENOMEM, failed, "cannot start a thread for the connection");
    pthread_setname_np(store->io_thread, "holdfast-io");
    store->io_thread_runs = true;
    return HF_OK;
}

void io_thread_stop(struct engine_store *store)
{
    if (!store->io_thread_runs)
        return;
    pthread_mutex_lock(&store->mutex);
    store->stop = true;
    io_thread_wakeup(store);
    eventfd_write(store->poke_fd, 1);
    pthread_mutex_unlock(&store->mutex);
    pthread_join(store->io_thread, NULL);
}
