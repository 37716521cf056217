/* queries.c: asking about locks. */
#include "base/clock.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engines/etcd/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_KEYS 1000
#define PREFIX_DIGEST 8 /* bytes of the digest of the prefix in our id */

/* ---- the store's id -------------------------------------------------------------------------- */

/* Each prefix is a store of its own: the same name means another lock there. */
static void make_id(const struct engine_store *store, uint64_t cluster, char ret_id[65])
{
    unsigned char digest[SHA256_SIZE];
    char of_prefix[2 * PREFIX_DIGEST + 1];

    sha256(store->prefix, store->prefix_size, digest);
    text_hex(digest, PREFIX_DIGEST, of_prefix);
    snprintf(ret_id, 65, "%016" PRIx64 ".%s", cluster, of_prefix);
}

void etcd_note_cluster(struct engine_store *store, uint64_t cluster)
{
    char id[65];

    if (atomic_load(&store->cluster) == cluster ||
        atomic_exchange(&store->cluster, cluster) == cluster)
        return;
    atomic_store(&store->newest, 0); /* another one counts for itself */
    make_id(store, cluster, id);
    store->host->connected(store->host->context, id);
}

int etcd_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
            struct error_text *err)
{
    struct question question = {
        .path = "/v3/maintenance/status", .body = "{}", .repeatable = true, .reads = true};
    json_t *answer = NULL;
    int64_t cluster = 0;
    int result = gateway_ask(store, &question, deadline_ms, &answer, err);

    if (result != HF_OK)
        return result;
    json_number(json_object_get(answer, "header"), "cluster_id", &cluster);
    json_decref(answer);
    make_id(store, (uint64_t)cluster, ret_id);
    return HF_OK;
}

/* ---- show and list --------------------------------------------------------------------------- */

static int64_t age_of(int64_t since_ms)
{
    int64_t age_ms = clock_wall_ms() - since_ms;

    return since_ms <= 0 ? -1 : age_ms > 0 ? age_ms : 0;
}

static int tell(const struct queue *queue, size_t index, const char *name, int64_t left_ms,
                const struct engine_sink *sink)
{
    const struct member *member = &queue->at[index];
    bool holds = queue_holds(queue, index);
    const char *tail = memrchr(member->key, '/', member->key_size);
    hf_entry entry = {.size = sizeof entry,
                      .kind = member->value.mode == VALUE_BROKEN ? HF_ENTRY_WITHHELD
                              : holds                            ? HF_ENTRY_HOLDER
                                                                 : HF_ENTRY_WAITER,
                      .mode = value_hf_mode(&member->value),
                      .permits = member->value.permits,
                      .name = name,
                      .token = holds ? member->create : 0,
                      .owner = member->value.mode == VALUE_BROKEN ? "" : member->value.owner,
                      .lease = tail ? tail + 1 : "", /* a digest of the lease */
                      .age_ms = age_of(member->value.since_ms),
                      .left_ms = left_ms,
                      .foreign = member->value.mode == VALUE_FOREIGN};

    return sink->add(sink->context, &entry);
}

int etcd_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
              int64_t deadline_ms, struct error_text *err)
{
    struct queue queue = {0};
    struct error_text ignored;
    struct place place;
    bool withheld = false;
    int result;

    place_of_name(store, name, false, &place);
    result = txn_look(store, &place, NULL, deadline_ms, &queue, err);
    for (size_t i = 0; i < queue.count && result == HF_OK; i++) {
        bool broken = queue.at[i].value.mode == VALUE_BROKEN;
        int64_t left_ms = -1;

        if (broken && withheld) /* one stands for all */
            continue;
        if (broken)
            lease_left(store, queue.at[i].lease, deadline_ms, &left_ms, NULL, &ignored);
        withheld = withheld || broken;
        result = tell(&queue, i, name, left_ms, sink);
    }
    queue_free(&queue);
    return result;
}

struct listing {
    struct engine_store *store;
    const struct engine_sink *sink;
    bool all;
    struct queue queue; /* of the name that is being read */
    char name[HF_NAME_MAX + 1];
};

static int end_name(struct listing *listing)
{
    struct queue *queue = &listing->queue;
    int result = HF_OK;

    queue_sort(queue);
    for (size_t i = 0; i < queue->count && result == HF_OK; i++)
        if (queue_holds(queue, i) ||
            (i == 0 && listing->all && queue->at[0].value.mode == VALUE_BROKEN))
            result = tell(queue, i, listing->name, -1, listing->sink);
    queue_free(queue);
    return result;
}

static int take_key(struct listing *listing, const json_t *kv, struct error_text *err)
{
    char name[HF_NAME_MAX + 1];
    size_t size = 0;
    char *key = json_blob(kv, "key", ETCD_ANSWER_MAX, &size);
    bool ours = key && place_name_in(listing->store, key, size, name);
    int result = HF_OK;

    free(key);
    if (!ours)
        return HF_OK;
    if (strcmp(name, listing->name) != 0)
        result = end_name(listing);
    memcpy(listing->name, name, sizeof name);
    return result == HF_OK ? queue_add(&listing->queue, kv, err) : result;
}

/* From `from` on; moves it behind the last key. */
static int read_page(struct listing *listing, char *from, size_t *from_size, bool *ret_more,
                     int64_t deadline_ms, struct error_text *err)
{
    struct engine_store *store = listing->store;
    struct question question = {.path = "/v3/kv/range", .repeatable = true, .reads = true};
    char end[ETCD_PREFIX_MAX + 2] = "";
    size_t end_size = store->prefix_size ? store->prefix_size : 1, size = 0;
    struct body body = {0};
    json_t *answer = NULL, *kvs;
    int result;

    memcpy(end, store->prefix, store->prefix_size);
    if (store->prefix_size)
        end[store->prefix_size - 1]++;
    body_add(&body, "{\"limit\":\"%d\",\"key\":", PAGE_KEYS);
    body_blob(&body, from, *from_size);
    body_add(&body, ",\"range_end\":");
    body_blob(&body, end, end_size);
    body_add(&body, "}");
    question.body = body.bytes;
    result = body.failed ? error_set(err, HF_ENOMEM, "out of memory")
                         : gateway_ask(store, &question, deadline_ms, &answer, err);
    body_free(&body);
    kvs = json_object_get(answer, "kvs");
    *ret_more = json_is_true(json_object_get(answer, "more")) && json_array_size(kvs) > 0;
    for (size_t i = 0; i < json_array_size(kvs) && result == HF_OK; i++)
        result = take_key(listing, json_array_get(kvs, i), err);
    if (result == HF_OK && *ret_more) {
        char *last =
            json_blob(json_array_get(kvs, json_array_size(kvs) - 1), "key", ETCD_ANSWER_MAX, &size);

        if (!last || size >= ETCD_KEY_MAX - 1) {
            result =
                error_set(err, HF_EREFUSED, "there are keys of somebody else below this prefix");
        } else {
            memcpy(from, last, size);
            from[size] = '\0'; /* the next key that there can be */
            *from_size = size + 1;
        }
        free(last);
    }
    json_decref(answer);
    return result;
}

int etcd_list(struct engine_store *store, const char *match, bool all,
              const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    struct listing listing = {.store = store, .sink = sink, .all = all};
    char from[ETCD_KEY_MAX] = "";
    size_t from_size = store->prefix_size ? store->prefix_size : 1;
    bool more = true;
    int result = HF_OK;

    (void)match; /* the client filters */
    memcpy(from, store->prefix, store->prefix_size);
    while (result == HF_OK && more)
        result = read_page(&listing, from, &from_size, &more, deadline_ms, err);
    if (result == HF_OK)
        result = end_name(&listing);
    queue_free(&listing.queue);
    return result;
}

int etcd_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
               int64_t deadline_ms, struct error_text *err)
{
    struct queue queue = {0};
    struct place place;
    int mode = ENGINE_GONE, result;

    place_of_name(store, name, false, &place);
    result = txn_look(store, &place, NULL, deadline_ms, &queue, err);
    for (size_t i = 0; i < queue.count && result == HF_OK; i++)
        if (queue.at[i].create == token && queue_holds(&queue, i))
            mode = value_hf_mode(&queue.at[i].value);
    queue_free(&queue);
    if (result == HF_OK)
        *ret_mode = mode;
    return result;
}
