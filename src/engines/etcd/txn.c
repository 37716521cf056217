/* txn.c: the transactions. Each compares, writes, and lists the keys of the place in one step. */
#include "base/switches.h"
#include "engines/etcd/store.h"

#include <inttypes.h>
#include <string.h>

static void add_range_keys(struct body *body, const char *from, size_t size)
{
    char end[ETCD_KEY_MAX];

    memcpy(end, from, size);
    end[size - 1]++; /* a '/' becomes a '0' */
    body_add(body, "\"key\":");
    body_blob(body, from, size);
    body_add(body, ",\"range_end\":");
    body_blob(body, end, size);
}

void txn_add_range(struct body *body, const struct place *place)
{
    body_add(body, "{\"request_range\":{\"limit\":\"%d\",", ETCD_QUEUE_MAX + 1);
    add_range_keys(body, place->bytes, place->size);
    body_add(body, "}}");
}

/* A modification that is not known is none: a key that is not there has 0, and no key has 1. */
void txn_add_compare_mod(struct body *body, const char *key, size_t key_size, uint64_t mod)
{
    mod = mod ? mod : 1;
    body_add(
        body,
        "{\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"%" PRIu64 "\",\"key\":", mod);
    body_blob(body, key, key_size);
    body_add(body, "}");
}

void txn_add_put(struct body *body, const char *key, size_t key_size, const char *bytes,
                 size_t size, int64_t lease)
{
    body_add(body, "{\"request_put\":{\"key\":");
    body_blob(body, key, key_size);
    if (bytes) {
        body_add(body, ",\"value\":");
        body_blob(body, bytes, size);
    } else {
        body_add(body, ",\"ignore_value\":true");
    }
    body_add(body, ",\"lease\":\"%" PRId64 "\"}}", SWITCHED(SWITCH_ETCD_UNBOUND) ? 0 : lease);
}

void txn_add_delete(struct body *body, const char *key, size_t key_size)
{
    body_add(body, "{\"request_delete_range\":{\"key\":");
    body_blob(body, key, key_size);
    body_add(body, "}}");
}

void txn_add_tail_key(const struct place *place, const char *tail, char ret_key[ETCD_KEY_MAX],
                      size_t *ret_size)
{
    memcpy(ret_key, place->bytes, place->size);
    memcpy(ret_key + place->size, tail, strlen(tail) + 1);
    *ret_size = place->size + strlen(tail);
}

const json_t *txn_response(const json_t *answer, size_t index, const char *kind)
{
    return json_object_get(json_array_get(json_object_get(answer, "responses"), index), kind);
}

void txn_note_revision(struct engine_store *store, uint64_t revision)
{
    uint64_t newest = atomic_load(&store->newest);

    while (revision > newest && !atomic_compare_exchange_weak(&store->newest, &newest, revision))
        ;
}

/* The last response is the range. */
static int read_queue(struct engine_store *store, const json_t *answer, const struct place *place,
                      struct queue *ret_queue, bool *ret_done, struct error_text *err)
{
    const json_t *responses = json_object_get(answer, "responses");
    size_t count = json_array_size(responses);
    int64_t revision = 0;
    int result;

    if (count == 0 || !json_number(json_object_get(answer, "header"), "revision", &revision) ||
        revision < 1)
        return error_set(err, HF_EINTERNAL, "etcd returned an invalid answer to a transaction");
    result = queue_read(txn_response(answer, count - 1, "response_range"), place, ret_queue, err);
    if (result != HF_OK)
        return result;
    txn_note_revision(store, (uint64_t)revision);
    ret_queue->revision = revision;
    if (ret_done)
        *ret_done = json_is_true(json_object_get(answer, "succeeded"));
    return HF_OK;
}

static int ask(struct engine_store *store, struct body *body, const struct place *place,
               const struct question *how, int64_t deadline_ms, struct queue *ret_queue,
               bool *ret_done, struct error_text *err)
{
    struct question question = *how;
    json_t *answer = NULL;
    int result;

    queue_free(ret_queue);
    question.path = "/v3/kv/txn";
    question.body = body->bytes;
    question.repeatable = true; /* each compares what it is about to change */
    if (body->failed)
        result = error_set(err, HF_ENOMEM, "out of memory");
    else
        result = gateway_ask(store, &question, deadline_ms, &answer, err);
    if (result == HF_OK && answer)
        result = read_queue(store, answer, place, ret_queue, ret_done, err);
    else if (result == HF_OK) /* of question->absent */
        result = HF_ELOST;
    json_decref(answer);
    body_free(body);
    return result;
}

/* ---- the transactions ------------------------------------------------------------------------ */

int txn_join(struct engine_store *store, const struct joining *joining, int64_t deadline_ms,
             struct queue *ret_queue, bool *ret_done, struct error_text *err)
{
    const struct etcd_claim *own = joining->own;
    struct question how = {.interrupted = &own->interrupted, .absent = "requested lease not found"};
    char bytes[ETCD_VALUE_MAX];
    struct body body = {0};
    struct value value;
    int index, result;

    value_of_claim(own->claim, &value);
    body_add(&body, "{\"compare\":[{\"target\":\"CREATE\",\"result\":\"EQUAL\","
                    "\"create_revision\":\"0\",\"key\":");
    body_blob(&body, own->key, own->key_size);
    body_add(&body, "}");
    if (joining->only_if_last) {
        body_add(&body,
                 ",{\"target\":\"CREATE\",\"result\":\"LESS\",\"create_revision\":\"%" PRIu64 "\",",
                 joining->newest + 1);
        add_range_keys(&body, own->place.bytes, own->place.size);
        body_add(&body, "}");
    }
    body_add(&body, "],\"success\":[");
    txn_add_put(&body, own->key, own->key_size, bytes, value_write(&value, bytes), joining->lease);
    body_add(&body, ",");
    txn_add_range(&body, &own->place);
    body_add(&body, "],\"failure\":[");
    txn_add_range(&body, &own->place);
    body_add(&body, "]}");
    result = ask(store, &body, &own->place, &how, deadline_ms, ret_queue, ret_done, err);
    if (result != HF_OK || *ret_done)
        return result;
    index = queue_find(ret_queue, own->key, own->key_size);
    *ret_done = index >= 0 && ret_queue->at[index].lease == joining->lease;
    return HF_OK;
}

int txn_if_unchanged(struct engine_store *store, const struct place *place, const char *key,
                     size_t key_size, uint64_t mod, const struct body *operations,
                     int64_t deadline_ms, struct queue *ret_queue, bool *ret_done, bool *ret_again,
                     struct error_text *err)
{
    struct question how = {.absent = "requested lease not found", .ret_again = ret_again};
    struct body body = {0};

    if (operations->failed)
        return error_set(err, HF_ENOMEM, "out of memory");
    body_add(&body, "{\"compare\":[");
    txn_add_compare_mod(&body, key, key_size, mod);
    body_add(&body, "],\"success\":[%s,", operations->bytes);
    txn_add_range(&body, place);
    body_add(&body, "],\"failure\":[");
    txn_add_range(&body, place);
    body_add(&body, "]}");
    return ask(store, &body, place, &how, deadline_ms, ret_queue, ret_done, err);
}

int txn_bind(struct engine_store *store, const struct etcd_claim *own, int64_t lease,
             int64_t deadline_ms, struct queue *ret_queue, bool *ret_done, struct error_text *err)
{
    char bytes[ETCD_VALUE_MAX];
    struct body operations = {0};
    struct value value;
    int index, result;

    value_of_claim(own->claim, &value);
    txn_add_put(&operations, own->key, own->key_size, bytes, value_write(&value, bytes), lease);
    result = txn_if_unchanged(store, &own->place, own->key, own->key_size, own->mod, &operations,
                              deadline_ms, ret_queue, ret_done, NULL, err);
    body_free(&operations);
    if (result != HF_OK || *ret_done)
        return result;
    index = queue_find(ret_queue, own->key, own->key_size);
    *ret_done = index >= 0 && ret_queue->at[index].lease == lease;
    return HF_OK;
}

int txn_look(struct engine_store *store, const struct place *place, const _Atomic bool *interrupted,
             int64_t deadline_ms, struct queue *ret_queue, struct error_text *err)
{
    struct question how = {.interrupted = interrupted, .reads = true};
    struct body body = {0};

    /* A comparison that never holds, before a deletion that is never done: so it goes through the log, as a write does, and
     * even where space is used up. */
    body_add(
        &body,
        "{\"compare\":[{\"target\":\"VERSION\",\"result\":\"LESS\",\"version\":\"0\",\"key\":");
    body_blob(&body, place->bytes, place->size);
    body_add(&body, "}],\"success\":[");
    txn_add_delete(&body, place->bytes, place->size);
    body_add(&body, "],\"failure\":[");
    txn_add_range(&body, place);
    body_add(&body, "]}");
    return ask(store, &body, place, &how, deadline_ms, ret_queue, NULL, err);
}
