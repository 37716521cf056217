/* listener.c: the thread behind the watches.
 *
 * A watch is a request that is not answered to its end: the gateway sends one JSON object after the other, in pieces of any size. Each has a
 * connection of its own. A stream that ends, or whose endpoint was found failing, is made again elsewhere from the same revision,
 * so that nothing is missed. That a watch loses an event all the same happens (etcd 18089, 17529, 19179, 20655): the client looks
 * every few seconds, whether it was told or not, and a holder renews.
 *
 *     of a waiter     any event: told once, then it is over; the next look makes another one
 *     of a holder     its key is deleted, or marked as broken: lost. It begins when a hold is HELD_AFTER_MS old: most are over by then
 *     of an observer  a key came or went, or a hold was broken
 *
 * A revision that was compacted away (compact_revision): whoever watched from there looks again.
 *
 * The mutex is held while claims are told, which does not wait; never during a call of libcurl that may. */
#include "base/clock.h"
#include "engines/etcd/store.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK_BYTES 524288
#define HELD_AFTER_MS 500
#define AGAIN_MS 50 /* until a stream that ended is made again; doubles */
#define AGAIN_MS_MAX 2000
#define SLEEP_MS_MAX 1000 /* while there are watches */
#define IDLE_MS_MAX 60000

struct watch {
    struct list node;
    struct engine_store *store;
    struct etcd_claim *own; /* NULL: nobody is told any more. The mutex's */
    enum watch_kind kind;
    struct body requests;
    int64_t start_ms; /* when it is to be made */
    int64_t again_ms;
    /* The listener's. */
    CURL *curl; /* NULL: it is not under way */
    struct curl_slist *headers;
    struct splitter splitter;
    int endpoint;
    uint32_t failures; /* of the endpoint, when it was made */
    int64_t created_by_ms;
    bool created, broken, done;
};

/* ---- telling --------------------------------------------------------------------------------- */

static void tell_turn(struct watch *watch)
{
    struct etcd_claim *own = watch->own;

    watch->done = true;
    atomic_store(&own->told, true);
    watch->store->host->nudge(watch->store->host->context, own->claim);
}

static void tell_lost(struct watch *watch, const char *why)
{
    watch->done = true;
    watch->store->host->lost(watch->store->host->context, watch->own->claim, why);
}

static bool is_broken(const json_t *kv)
{
    size_t size = 0;
    char *bytes = json_blob(kv, "value", ETCD_EVENT_MAX, &size);
    struct value value = {.mode = VALUE_FOREIGN};

    if (bytes)
        value_read(bytes, size, &value);
    free(bytes);
    return value.mode == VALUE_BROKEN;
}

static void take_event(struct watch *watch, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *kv = json_object_get(event, "kv");
    bool deleted = type && strcmp(type, "DELETE") == 0;
    int64_t version = 0;

    if (!watch->own || watch->done)
        return;
    switch (watch->kind) {
    case WATCH_TURN:
        tell_turn(watch);
        break;
    case WATCH_HELD:
        if (deleted)
            tell_lost(watch, "its key was deleted, or its lease ran out at the server");
        else if (is_broken(kv))
            tell_lost(watch, "broken by an operator");
        break;
    case WATCH_OBSERVE: /* a renewal is a put, too */
        if (deleted || (json_number(kv, "version", &version) && version == 1) || is_broken(kv))
            watch->store->host->nudge(watch->store->host->context, watch->own->claim);
        break;
    }
}

/* Of a watch that cannot go on from where it was. */
static void begin_later(struct watch *watch)
{
    struct etcd_claim *own = watch->own;

    if (!own)
        return;
    if (watch->kind == WATCH_TURN) {
        tell_turn(watch);
        return;
    }
    body_free(&watch->requests);
    if (watch->kind == WATCH_HELD) /* what was missed, the next renewal finds out */
        watch_add_request(&watch->requests, &own->place, own->key, own->key_size, 0, true);
    else
        watch_add_request(&watch->requests, &own->place, "", 0, 0, true);
    watch->broken = true;
}

static void take_object(void *context, const char *bytes, size_t size)
{
    struct watch *watch = context;
    json_t *object = json_loadb(bytes, size, 0, NULL);
    const json_t *result = json_object_get(object, "result"), *events;
    int64_t compacted = 0, cluster = 0;

    if (json_number(json_object_get(result, "header"), "cluster_id", &cluster) && cluster != 0)
        etcd_note_cluster(watch->store, (uint64_t)cluster);
    pthread_mutex_lock(&watch->store->mutex);
    if (!json_is_object(result) || !json_number(result, "compact_revision", &compacted)) {
        watch->broken = true;
    } else if (compacted > 0) {
        begin_later(watch);
    } else if (json_is_true(json_object_get(result, "canceled"))) {
        watch->broken = true;
    } else {
        if (json_is_true(json_object_get(result, "created")) && !watch->created) {
            watch->created = true;
            watch->again_ms = AGAIN_MS;
            if (watch->kind == WATCH_OBSERVE && watch->own) /* from here on nothing is missed */
                watch->store->host->nudge(watch->store->host->context, watch->own->claim);
        }
        events = json_object_get(result, "events");
        for (size_t i = 0; i < json_array_size(events); i++)
            take_event(watch, json_array_get(events, i));
    }
    pthread_mutex_unlock(&watch->store->mutex);
    json_decref(object);
}

static size_t receive(char *bytes, size_t one, size_t size, void *context)
{
    struct watch *watch = context;

    (void)one;
    if (splitter_feed(&watch->splitter, bytes, size, take_object, watch) != HF_OK || watch->broken)
        return 0;
    return size;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void end_stream(struct watch *watch)
{
    if (!watch->curl)
        return;
    curl_multi_remove_handle(watch->store->multi, watch->curl);
    curl_easy_cleanup(watch->curl);
    curl_slist_free_all(watch->headers);
    splitter_free(&watch->splitter);
    watch->curl = NULL;
    watch->headers = NULL;
    watch->created = watch->broken = false;
}

/* Without the mutex: nobody but this thread touches what is used here, `requests` included. */
static void start_stream(struct watch *watch)
{
    struct engine_store *store = watch->store;
    char url[sizeof store->endpoints[0].url + 16];
    bool well;

    watch->endpoint = atomic_load(&store->current);
    watch->failures = atomic_load(&store->endpoints[watch->endpoint].failures);
    watch->created_by_ms = clock_after(clock_boot_ms(), store->timeout_ms);
    watch->curl = curl_easy_init();
    watch->headers = gateway_headers(store, true);
    well = watch->curl && watch->headers && gateway_prepare(store, watch->curl) &&
           !watch->requests.failed;
    if (well) {
        snprintf(url, sizeof url, "%s/v3/watch", store->endpoints[watch->endpoint].url);
        curl_easy_setopt(watch->curl, CURLOPT_PRIVATE, watch);
        curl_easy_setopt(watch->curl, CURLOPT_HTTPHEADER, watch->headers);
        curl_easy_setopt(watch->curl, CURLOPT_POSTFIELDS, watch->requests.bytes);
        curl_easy_setopt(watch->curl, CURLOPT_POSTFIELDSIZE, (long)watch->requests.size);
        curl_easy_setopt(watch->curl, CURLOPT_WRITEFUNCTION, receive);
        curl_easy_setopt(watch->curl, CURLOPT_WRITEDATA, watch);
        curl_easy_setopt(watch->curl, CURLOPT_FORBID_REUSE, 1L);
        well = curl_easy_setopt(watch->curl, CURLOPT_URL, url) == CURLE_OK &&
               curl_multi_add_handle(store->multi, watch->curl) == CURLM_OK;
    }
    if (!well) {
        curl_easy_cleanup(watch->curl);
        curl_slist_free_all(watch->headers);
        watch->curl = NULL;
        watch->headers = NULL;
    }
}

/* With the mutex. It is made again, unless it is over. */
static void plan_again(struct watch *watch)
{
    watch->start_ms = clock_after(clock_boot_ms(), watch->again_ms);
    watch->again_ms = watch->again_ms * 2 < AGAIN_MS_MAX ? watch->again_ms * 2 : AGAIN_MS_MAX;
}

static bool is_stuck(const struct watch *watch, int64_t now_ms)
{
    const struct endpoint *at = &watch->store->endpoints[watch->endpoint];

    return watch->broken || (!watch->created && now_ms >= watch->created_by_ms) ||
           atomic_load(&at->failures) != watch->failures;
}

/* With the mutex held, which is let go for what may take long. Returns until when there is nothing to do. */
static int64_t look_after_all(struct engine_store *store)
{
    int64_t now_ms = clock_boot_ms(), next_ms = clock_after(now_ms, SLEEP_MS_MAX);
    int streams = 0;

    if (list_empty(&store->watches))
        return clock_after(now_ms, IDLE_MS_MAX);
    LIST_EACH_SAFE(node, &store->watches)
    {
        struct watch *watch = LIST_ENTRY(node, struct watch, node);

        if (!watch->own) {
            list_remove(node);
            end_stream(watch);
            body_free(&watch->requests);
            free(watch);
            continue;
        }
        if (watch->curl && watch->done) {
            end_stream(watch);
        } else if (watch->curl && is_stuck(watch, now_ms)) {
            end_stream(watch);
            plan_again(watch);
        }
        streams += watch->curl != NULL;
        if (watch->curl || watch->done || streams >= ETCD_STREAMS_MAX)
            continue;
        if (watch->start_ms <= now_ms) {
            pthread_mutex_unlock(
                &store->mutex); /* nobody but this thread takes anything out of the list */
            start_stream(watch);
            pthread_mutex_lock(&store->mutex);
            streams += watch->curl != NULL;
            if (!watch->curl)
                plan_again(watch);
        } else if (watch->start_ms < next_ms) {
            next_ms = watch->start_ms;
        }
    }
    return next_ms;
}

static void take_ended(struct engine_store *store)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(store->multi, &left))) {
        struct watch *watch = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &watch);
        end_stream(watch);
        plan_again(watch);
    }
}

static void *listener_main(void *arg)
{
    struct engine_store *store = arg;

    pthread_mutex_lock(&store->mutex);
    while (!store->stop) {
        int64_t next_ms = look_after_all(store), left_ms;
        int running;

        pthread_mutex_unlock(&store->mutex);
        curl_multi_perform(store->multi, &running);
        left_ms = next_ms - clock_boot_ms();
        if (left_ms > 0)
            curl_multi_poll(store->multi, NULL, 0, (int)left_ms, NULL);
        curl_multi_perform(store->multi, &running);
        pthread_mutex_lock(&store->mutex);
        take_ended(store);
    }
    LIST_EACH(node, &store->watches) end_stream(LIST_ENTRY(node, struct watch, node));
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- from outside ---------------------------------------------------------------------------- */

int listener_new(struct engine_store *store, struct error_text *err)
{
    store->multi = curl_multi_init();
    return store->multi ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");
}

void listener_wake(struct engine_store *store)
{
    if (store->listens)
        curl_multi_wakeup(store->multi);
}

/* With the mutex. */
static bool start_thread(struct engine_store *store)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed;

    if (store->listens)
        return true;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&store->listener, &attributes, listener_main, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return false;
    pthread_setname_np(store->listener, "holdfast-etcd");
    store->listens = true;
    return true;
}

/* Its thread frees it. With the mutex. */
static void drop(struct etcd_claim *own)
{
    if (own->watch)
        own->watch->own = NULL;
    own->watch = NULL;
}

void listener_watch(struct engine_store *store, struct etcd_claim *own, enum watch_kind kind,
                    struct body *requests)
{
    struct watch *watch = calloc(1, sizeof *watch);
    bool idle;

    pthread_mutex_lock(&store->mutex);
    drop(own);
    idle = list_empty(&store->watches);
    if (watch && !requests->failed && start_thread(store)) {
        watch->store = store;
        watch->own = own;
        watch->kind = kind;
        watch->requests = *requests;
        watch->again_ms = AGAIN_MS;
        watch->start_ms = kind == WATCH_HELD ? clock_after(clock_boot_ms(), HELD_AFTER_MS) : 0;
        list_append(&store->watches, &watch->node);
        own->watch = watch;
        *requests = (struct body){0};
        watch = NULL;
    }
    pthread_mutex_unlock(&store->mutex);
    free(watch);
    body_free(requests);
    if (kind != WATCH_HELD || idle) /* the watch of a holder has time */
        listener_wake(store);
}

void listener_drop(struct engine_store *store, struct etcd_claim *own)
{
    if (!own->watch)
        return;
    pthread_mutex_lock(&store->mutex);
    drop(own);
    pthread_mutex_unlock(&store->mutex);
}

void watch_add_request(struct body *body, const struct place *place, const char *key, size_t size,
                       int64_t from_revision, bool puts)
{
    char end[ETCD_KEY_MAX];

    body_add(body, "{\"create_request\":{");
    if (from_revision > 0)
        body_add(body, "\"start_revision\":\"%" PRId64 "\",", from_revision);
    if (!puts)
        body_add(body, "\"filters\":[\"NOPUT\"],");
    body_add(body, "\"key\":");
    if (size > 0) {
        body_blob(body, key, size);
    } else {
        memcpy(end, place->bytes, place->size);
        end[place->size - 1]++;
        body_blob(body, place->bytes, place->size);
        body_add(body, ",\"range_end\":");
        body_blob(body, end, place->size);
    }
    body_add(body, "}}");
}

void watch_held(struct engine_store *store, struct etcd_claim *own)
{
    struct body requests = {0};

    watch_add_request(&requests, &own->place, own->key, own->key_size, (int64_t)own->mod + 1, true);
    listener_watch(store, own, WATCH_HELD, &requests);
}

void listener_free(struct engine_store *store)
{
    if (store->listens && !store->forked) {
        pthread_mutex_lock(&store->mutex);
        store->stop = true;
        pthread_mutex_unlock(&store->mutex);
        curl_multi_wakeup(store->multi);
        pthread_join(store->listener, NULL);
    }
    LIST_EACH_SAFE(node, &store->watches)
    {
        struct watch *watch = LIST_ENTRY(node, struct watch, node);

        list_remove(node);
        if (store->forked) /* what libcurl has stays with it */
            continue;
        body_free(&watch->requests);
        free(watch);
    }
    if (!store->forked)
        curl_multi_cleanup(store->multi);
}
