/* listener.c: the one connection that hears of releases and changes, and its thread.
 *
 * A store that never waits has neither. The connection subscribes to one channel of its own, by
 * which the scripts tell a claim of this client that it is its turn, and to one per observed name.
 * Whatever may have been missed while it was down is made up for by ringing everybody once it is
 * back. What is told here is only a reason to look: the lock is decided by acquire.lua alone. */
#include "base/clock.h"
#include "base/futex.h"
#include "base/random.h"
#include "base/text.h"
#include "engines/redis/store.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BUCKETS 256
#define STACK_BYTES 262144
#define PING_MS 5000   /* a quiet connection is asked whether it is there */
#define QUIET_MS 12000 /* and given up if it does not say so */
#define CONNECT_MS 3000
#define PAUSE_MS 10 /* after a failure; doubles */
#define PAUSE_MS_MAX 1000
#define CHANNEL_WAKE SCRIPT_KEY_RESERVED "wake:"
#define CHANNEL_CHANGE SCRIPT_KEY_RESERVED "change:"

struct farewell { /* a channel to leave */
    struct list node;
    char channel[];
};

struct listener {
    struct engine_store *store;
    struct node node; /* for its handshake and its messages; links are not pooled here */
    char client[17];
    char channel[sizeof CHANNEL_WAKE + 17];
    struct link *_Atomic link;
    int poke_fd;
    pthread_t thread;

    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t changed;
    bool runs, stop, hears;
    bool news; /* somebody to subscribe for, or a farewell */
    uint64_t last_number;
    struct list waiting[BUCKETS];
    struct list observers;
    struct list farewells;
};

/* ---- ringing --------------------------------------------------------------------------------- */

static void ring(struct waiting *waiting)
{
    atomic_fetch_add(&waiting->bell, 1);
    futex_wake(&waiting->bell, FUTEX_MASK_ALL, 1);
}

/* With the mutex. */
static void ring_all(struct listener *listener)
{
    for (int i = 0; i < BUCKETS; i++)
        LIST_EACH(node, &listener->waiting[i])
        {
            ring(LIST_ENTRY(node, struct waiting, node));
        }
    LIST_EACH(node, &listener->observers)
    {
        ring(LIST_ENTRY(node, struct waiting, node));
    }
}

static void ring_number(struct listener *listener, const struct resp_node *payload)
{
    int64_t number;

    if (!resp_to_int64(payload, &number))
        return;
    pthread_mutex_lock(&listener->mutex);
    LIST_EACH(node, &listener->waiting[(uint64_t)number % BUCKETS])
    {
        struct waiting *waiting = LIST_ENTRY(node, struct waiting, node);

        if (waiting->number == (uint64_t)number)
            ring(waiting);
    }
    pthread_mutex_unlock(&listener->mutex);
}

static void ring_observers(struct listener *listener, const char *key, size_t size)
{
    size_t prefix = strlen(listener->store->prefix);

    if (size < prefix)
        return;
    pthread_mutex_lock(&listener->mutex);
    LIST_EACH(node, &listener->observers)
    {
        struct waiting *waiting = LIST_ENTRY(node, struct waiting, node);

        if (strlen(waiting->claim->name) == size - prefix &&
            memcmp(waiting->claim->name, key + prefix, size - prefix) == 0)
            ring(waiting);
    }
    pthread_mutex_unlock(&listener->mutex);
}

/* ["message", channel, payload], or something we asked for and need not look at. */
static bool on_value(void *context, const struct resp_node *value)
{
    struct listener *listener = context;
    const struct resp_node *channel = resp_item(value, 1);
    size_t label = strlen(CHANNEL_CHANGE);

    if (value->count != 3 || !resp_is(resp_item(value, 0), "message") || !channel)
        return true;
    if (resp_is(channel, listener->channel))
        ring_number(listener, resp_item(value, 2));
    else if (channel->size > label && memcmp(channel->text, CHANNEL_CHANGE, label) == 0)
        ring_observers(listener, channel->text + label, channel->size - label);
    return true;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void write_subscribe(struct listener *listener, const char *name, struct resp_writer *out)
{
    char channel[sizeof CHANNEL_CHANGE + REDIS_PREFIX_MAX + HF_NAME_MAX + 1];
    int size =
        snprintf(channel, sizeof channel, "%s%s%s", CHANNEL_CHANGE, listener->store->prefix, name);

    resp_write_array(out, 2);
    resp_write_text(out, "SUBSCRIBE");
    resp_write_blob(out, channel, (size_t)size);
}

/* With the mutex. all: on a fresh connection. */
static void write_news(struct listener *listener, bool all, struct resp_writer *out)
{
    LIST_EACH_SAFE(node, &listener->farewells)
    {
        struct farewell *farewell = LIST_ENTRY(node, struct farewell, node);

        if (!all) {
            resp_write_array(out, 2);
            resp_write_text(out, "UNSUBSCRIBE");
            resp_write_text(out, farewell->channel);
        }
        list_remove(node);
        free(farewell);
    }
    LIST_EACH(node, &listener->observers)
    {
        struct waiting *waiting = LIST_ENTRY(node, struct waiting, node);

        if (all || !waiting->listed)
            write_subscribe(listener, waiting->claim->name, out);
        waiting->listed = true;
        ring(waiting); /* what changed before the subscription was not told */
    }
    listener->news = false;
}

static int send_news(struct listener *listener, struct link *link, bool all, bool ping,
                     struct error_text *err)
{
    struct resp_writer out = {0};
    int result = HF_OK;

    pthread_mutex_lock(&listener->mutex);
    if (all || listener->news)
        write_news(listener, all, &out);
    if (all) {
        listener->hears = true;
        ring_all(listener);
        pthread_cond_broadcast(&listener->changed);
    }
    pthread_mutex_unlock(&listener->mutex);
    if (ping) {
        resp_write_array(&out, 1);
        resp_write_text(&out, "PING");
    }
    if (out.failed)
        result = error_set(err, HF_ENOMEM, "out of memory");
    else if (out.size > 0)
        result = link_send(link, out.bytes, out.size, err);
    resp_writer_free(&out);
    return result;
}

static bool must_stop(struct listener *listener)
{
    bool stop;

    pthread_mutex_lock(&listener->mutex);
    stop = listener->stop;
    pthread_mutex_unlock(&listener->mutex);
    return stop;
}

/* Sleeps until the link or somebody here has something to say. True: the link. */
static bool wait_for_link(struct listener *listener, struct link *link, int64_t until_ms)
{
    struct pollfd fds[2] = {{.fd = listener->poke_fd, .events = POLLIN}};
    int64_t left_ms;
    eventfd_t ignored;

    if (link && link_look_ms(link) < until_ms)
        until_ms = link_look_ms(link);
    left_ms = until_ms - clock_boot_ms();
    if (link)
        fds[1] = (struct pollfd){.fd = stream_fd(link->stream), .events = link_events(link)};
    poll(fds, link ? 2 : 1, left_ms > 0 ? (int)left_ms : 0);
    if (fds[0].revents)
        eventfd_read(listener->poke_fd, &ignored);
    return link && (fds[1].revents || clock_boot_ms() >= link_look_ms(link));
}

/* Until the link is over or the listener is to stop. What can be done is done before each wait: a
 * fresh link may be connected, and even greeted, before it is first polled. */
static void listen_on(struct listener *listener, struct link *link)
{
    int64_t heard_ms = clock_boot_ms(), pinged_ms = heard_ms;
    struct error_text err;
    bool ready = false;
    int result = link_pump(link, on_value, listener, &err);

    while (result == HF_OK && !must_stop(listener)) {
        int64_t now_ms = clock_boot_ms();

        if (link->state == LINK_READY) {
            bool ping = now_ms - pinged_ms >= PING_MS;

            result = send_news(listener, link, !ready, ping, &err);
            ready = true;
            if (ping)
                pinged_ms = now_ms;
        }
        if (now_ms - heard_ms > (ready ? QUIET_MS : CONNECT_MS))
            result = HF_EUNREACH;
        if (result == HF_OK && wait_for_link(listener, link, pinged_ms + PING_MS)) {
            result = link_pump(link, on_value, listener, &err);
            if (link->greeted > 0) /* an address that only accepts says nothing */
                heard_ms = clock_boot_ms();
        }
    }
}

static void *listener_main(void *arg)
{
    struct listener *listener = arg;
    int64_t pause_ms = PAUSE_MS;

    while (!must_stop(listener)) {
        struct node *node = &listener->node;
        struct error_text err;
        struct link *link;

        if (link_new(&node->handshake, &link, &err) == HF_OK) {
            atomic_store(&listener->link, link); /* before it has a descriptor */
            if (link_dial(link, &node->address, node->access, &node->turns, &err) == HF_OK)
                listen_on(listener, link);
            atomic_store(&listener->link, NULL);
            link_close(link);
        }
        pthread_mutex_lock(&listener->mutex);
        if (listener->hears)
            pause_ms = PAUSE_MS;
        listener->hears = false;
        pthread_mutex_unlock(&listener->mutex);
        if (!must_stop(listener))
            wait_for_link(listener, NULL,
                          clock_boot_ms() + 1 + (int64_t)random_below((uint64_t)pause_ms));
        pause_ms = pause_ms * 2 < PAUSE_MS_MAX ? pause_ms * 2 : PAUSE_MS_MAX;
    }
    return NULL;
}

/* With the mutex. A thread that cannot be started is tried again with the next wait. */
static void start_thread(struct listener *listener)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    if (listener->runs || listener->stop)
        return;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    listener->runs = pthread_create(&listener->thread, &attributes, listener_main, listener) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (listener->runs)
        pthread_setname_np(listener->thread, "holdfast-listen");
}

/* ---- from outside ---------------------------------------------------------------------------- */

int listener_new(struct engine_store *store, const struct address *address, struct error_text *err)
{
    struct listener *listener = calloc(1, sizeof *listener);
    unsigned char id[8];
    pthread_condattr_t attributes;

    if (!listener)
        return error_set(err, HF_ENOMEM, "out of memory");
    random_fill(id, sizeof id);
    text_hex(id, sizeof id, listener->client);
    snprintf(listener->channel, sizeof listener->channel, "%s%s", CHANNEL_WAKE, listener->client);
    node_init(&listener->node, address, &store->access, 0, listener->channel, store->host);
    listener->poke_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (listener->poke_fd < 0) {
        node_close(&listener->node, false);
        free(listener);
        return error_set(err, HF_ENOMEM, "out of descriptors");
    }
    listener->store = store;
    pthread_mutex_init(&listener->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&listener->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    for (int i = 0; i < BUCKETS; i++)
        list_init(&listener->waiting[i]);
    list_init(&listener->observers);
    list_init(&listener->farewells);
    store->listener = listener;
    return HF_OK;
}

void listener_after_fork(struct engine_store *store)
{
    link_after_fork(atomic_load(&store->listener->link));
}

void listener_free(struct engine_store *store)
{
    struct listener *listener = store->listener;

    if (!listener)
        return;
    if (!store->forked) {
        pthread_mutex_lock(&listener->mutex);
        listener->stop = true;
        pthread_mutex_unlock(&listener->mutex);
        eventfd_write(listener->poke_fd, 1);
        if (listener->runs)
            pthread_join(listener->thread, NULL);
        pthread_cond_destroy(&listener->changed);
        pthread_mutex_destroy(&listener->mutex);
        LIST_EACH_SAFE(node, &listener->farewells)
        {
            free(LIST_ENTRY(node, struct farewell, node));
        }
    } /* else the parent's thread may be in the middle of link and farewells: see node_close */
    node_close(&listener->node, store->forked);
    close(listener->poke_fd);
    free(listener);
    store->listener = NULL;
}

const char *listener_client(struct engine_store *store)
{
    return store->listener->client;
}

bool listener_hears(struct engine_store *store)
{
    struct listener *listener = store->listener;
    bool hears;

    pthread_mutex_lock(&listener->mutex);
    hears = listener->hears;
    pthread_mutex_unlock(&listener->mutex);
    return hears;
}

bool listener_ready(struct engine_store *store, int64_t deadline_ms)
{
    struct listener *listener = store->listener;
    bool hears;

    pthread_mutex_lock(&listener->mutex);
    start_thread(listener);
    while (listener->runs && !listener->hears) {
        int64_t left_ms = deadline_ms - clock_boot_ms();
        struct timespec until;

        if (left_ms <= 0)
            break;
        until = clock_monotonic_in(left_ms);
        pthread_cond_timedwait(&listener->changed, &listener->mutex, &until);
    }
    hears = listener->hears;
    pthread_mutex_unlock(&listener->mutex);
    return hears;
}

void listener_add(struct engine_store *store, struct waiting *waiting)
{
    struct listener *listener = store->listener;

    pthread_mutex_lock(&listener->mutex);
    if (waiting->number == 0) {
        waiting->number = ++listener->last_number;
        waiting->observes = waiting->claim->mode == ENGINE_OBSERVE;
        list_append(waiting->observes ? &listener->observers
                                      : &listener->waiting[waiting->number % BUCKETS],
                    &waiting->node);
        if (waiting->observes) {
            listener->news = true;
            start_thread(listener);
            eventfd_write(listener->poke_fd, 1);
        }
    }
    pthread_mutex_unlock(&listener->mutex);
}

/* With the mutex. The last observer of a name goes: so does its subscription. */
static void bid_farewell(struct listener *listener, const char *name)
{
    size_t size = strlen(CHANNEL_CHANGE) + strlen(listener->store->prefix) + strlen(name) + 1;
    struct farewell *farewell;

    LIST_EACH(node, &listener->observers)
    {
        if (strcmp(LIST_ENTRY(node, struct waiting, node)->claim->name, name) == 0)
            return;
    }
    farewell = malloc(sizeof *farewell + size);
    if (!farewell) /* we go on hearing what nobody listens to */
        return;
    snprintf(farewell->channel, size, "%s%s%s", CHANNEL_CHANGE, listener->store->prefix, name);
    list_append(&listener->farewells, &farewell->node);
    listener->news = true;
    eventfd_write(listener->poke_fd, 1);
}

void listener_remove(struct engine_store *store, struct waiting *waiting)
{
    struct listener *listener = store->listener;

    if (waiting->number == 0)
        return;
    pthread_mutex_lock(&listener->mutex);
    list_remove(&waiting->node);
    waiting->number = 0;
    if (waiting->observes && waiting->listed)
        bid_farewell(listener, waiting->claim->name);
    pthread_mutex_unlock(&listener->mutex);
}
