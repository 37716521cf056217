/* keeper.c: the thread behind the connection. It makes the connection when somebody has something to
 * ask, or waits, or observes; it listens while claims wait or observe; and it notices when the other
 * side has gone quiet. A handle that does none of that lets it sleep.
 *
 *     nothing wanted: sleep                     wanted: asked, waited for or observed
 *     no connection:  the next server ──▶ connect ──▶ greet ──▶ send what waited, observe anew,
 *                                                               nudge those who may have missed
 *                                                               something
 *     connected:      read while anybody waits or observes; PING when it is quiet
 *
 * Servers are tried in turn, each once without a pause; then comes a pause of up to a quarter of the
 * time that nobody has served us, at random, so that those who lost the same server do not come back
 * to it all at once. It is shorter where a server is there and cannot serve yet. A server that sends us to another (MOVED) is obeyed at once, the first time. */
#include "base/clock.h"
#include "base/futex.h"
#include "base/random.h"
#include "engines/holdfast/store.h"

#include <signal.h>
#include <sys/eventfd.h>

#define STACK_BYTES 262144
#define PING_MS 5000 /* a quiet connection is asked whether it is there */
#define PAUSE_PART 4 /* of the time that nobody has served us */
#define PAUSE_MS_MIN 5
#define PAUSE_DOUBLINGS 8 /* of that, while a server is there and does not serve */
#define PAUSE_MS_MAX 1000

void keeper_ring(struct engine_store *store)
{
    atomic_fetch_add(&store->keeper_bell, 1);
    futex_wake(&store->keeper_bell, FUTEX_MASK_ALL, 1);
}

static void sleep_until(struct engine_store *store, int64_t until_ms)
{
    uint32_t seen = atomic_load(&store->keeper_bell);

    pthread_mutex_unlock(&store->mutex);
    futex_wait(&store->keeper_bell, seen, FUTEX_MASK_ALL, until_ms);
    pthread_mutex_lock(&store->mutex);
}

static bool wanted(const struct engine_store *store)
{
    return store->attentive > 0 || !list_empty(&store->unsent);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int64_t pause_span_ms(struct engine_store *store, bool elsewhere, int64_t now_ms)
{
    int64_t span_ms = (now_ms - store->down_since_ms) / PAUSE_PART;

    if (elsewhere) /* it is there, and will serve as soon as it can */
        span_ms = PAUSE_MS_MIN << (store->turns < PAUSE_DOUBLINGS ? store->turns : PAUSE_DOUBLINGS);
    if (span_ms < PAUSE_MS_MIN)
        return PAUSE_MS_MIN;
    return span_ms < PAUSE_MS_MAX ? span_ms : PAUSE_MS_MAX;
}

void keeper_plan(struct engine_store *store, bool elsewhere)
{
    int64_t now_ms = clock_boot_ms();

    if (store->down_since_ms == 0)
        store->down_since_ms = now_ms;
    store->dial_ms = now_ms;
    if (store->moved.shown[0] && ++store->moves == 1)
        return;
    if (++store->tried % store->server_count != 0)
        return;
    store->dial_ms += 1 + (int64_t)random_below((uint64_t)pause_span_ms(store, elsewhere, now_ms));
    store->turns = elsewhere ? store->turns + 1 : 0;
}

void keeper_served(struct engine_store *store)
{
    store->down_since_ms = 0;
    store->tried = store->turns = store->moves = 0;
}

static const struct address *next_address(struct engine_store *store)
{
    const struct address *next = &store->servers[store->next_server];

    if (store->moved.shown[0]) {
        store->aside = store->moved;
        store->moved.shown[0] = '\0';
        return &store->aside;
    }
    store->next_server = (store->next_server + 1) % store->server_count;
    return next;
}

/* Until it is greeted, or why it cannot be. */
static int greet(struct engine_store *store, struct error_text *err)
{
    struct link *link = store->link;
    int64_t until_ms = clock_after(clock_boot_ms(), store->timeout_ms);
    int result = link_pump(link, NULL, NULL, err);

    while (result == HF_OK && link->state != LINK_READY) {
        if (store->stop)
            return error_set(err, HF_EUNREACH, "the store is being closed");
        if (clock_boot_ms() >= until_ms)
            return error_set(err, HF_EUNREACH, "%s: it does not answer", store->at->shown);
        wire_poll(store, until_ms);
        result = link_pump(link, NULL, NULL, err);
    }
    return result;
}

/* With `reading`, so that nobody else touches what is being made. */
static int connect_to(struct engine_store *store, const struct address *address,
                      struct error_text *err)
{
    struct link *link;
    int result;

    store->at = address;
    pthread_mutex_unlock(&store->mutex);
    result = link_open(address, &store->access, &store->greeting, &link, err);
    pthread_mutex_lock(&store->mutex);
    if (result != HF_OK) {
        store->why_down = *err;
        keeper_plan(store, false);
        return result;
    }
    atomic_store(&store->link, link);
    result = greet(store, err);
    if (result != HF_OK)
        wire_drop(store, err);
    return result;
}

static void dial(struct engine_store *store)
{
    struct error_text err;
    int result;

    if (clock_boot_ms() < store->dial_ms) {
        sleep_until(store, store->dial_ms);
        return;
    }
    store->reading = true;
    result = connect_to(store, next_address(store), &err);
    if (result == HF_OK) {
        store->heard_ms = clock_boot_ms();
        waiting_begin_again(store);
        wire_send_all(store);
    } else if (result != HF_EUNREACH) {
        wire_refuse_all(store, result, &err); /* who asks again has it tried again */
    }
    store->reading = false;
    wire_hand_on(store);
}

/* ---- listening ------------------------------------------------------------------------------- */

static void ping(struct engine_store *store)
{
    struct resp_writer writer = {0};

    resp_write_array(&writer, 1);
    resp_write_text(&writer, "PING");
    wire_tell(store, &writer, 1);
    resp_writer_free(&writer);
}

static void listen_once(struct engine_store *store)
{
    int64_t until_ms = wire_silent_until(store);
    int64_t ping_ms = clock_after(store->heard_ms, PING_MS);

    store->reading = true;
    if (store->pending.count == 0 && clock_boot_ms() >= ping_ms) {
        ping(store);
        until_ms = wire_silent_until(store);
    } else if (store->pending.count == 0) {
        until_ms = ping_ms;
    }
    wire_poll(store, until_ms);
    wire_pump(store);
    store->reading = false;
    if (!wanted(store))
        wire_hand_on(store);
}

static void *keeper_main(void *arg)
{
    struct engine_store *store = arg;

    pthread_mutex_lock(&store->mutex);
    while (!store->stop) {
        if (!store->link && wanted(store))
            dial(store);
        else if (store->link && !store->reading && wanted(store))
            listen_once(store);
        else
            sleep_until(store, CLOCK_NEVER);
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

int keeper_call(struct engine_store *store, struct error_text *err)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed;

    keeper_ring(store);
    if (store->keeper_runs)
        return HF_OK;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&store->keeper, &attributes, keeper_main, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return error_set_errno(err, HF_ENOMEM, failed, "cannot start a thread for the connection");
    pthread_setname_np(store->keeper, "holdfast-wire");
    store->keeper_runs = true;
    return HF_OK;
}

void keeper_stop(struct engine_store *store)
{
    if (!store->keeper_runs)
        return;
    pthread_mutex_lock(&store->mutex);
    store->stop = true;
    keeper_ring(store);
    eventfd_write(store->poke_fd, 1);
    pthread_mutex_unlock(&store->mutex);
    pthread_join(store->keeper, NULL);
}
