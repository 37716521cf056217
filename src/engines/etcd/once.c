/* once.c: once-records. Whoever runs one holds its name as an exclusive lock; two more keys are beside the queue:
 *
 *     !run       "hf1 r TOKEN DEATH SINCE OWNER", from when it is run. Its lease outlives the runner's by DEATH: if it is there, and the
 *                runner's key is not, the runner died over it
 *     !result    "hf1 d TOKEN KEEP SINCE RESULT", with a lease for as long as it is kept
 *
 * Finishing puts the result and deletes the others in one transaction. */
#include "base/clock.h"
#include "engines/etcd/store.h"

#include <holdfast/once.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINISH_TRIES 3
#define LATE_PART 20 /* of the time that a result is kept: what took longer is made good */

static int take_result(const struct once_key *result, struct engine_record *ret_record,
                       struct error_text *err)
{
    void *bytes = malloc(result->size + 1);

    if (!bytes)
        return error_set(err, HF_ENOMEM, "out of memory");
    memcpy(bytes, result->bytes, result->size);
    free(ret_record->bytes);
    ret_record->token = result->token;
    ret_record->bytes = bytes;
    ret_record->size = result->size;
    return ENGINE_DONE;
}

int once_look(const struct queue *queue, struct engine_claim *claim, struct error_text *err)
{
    if (queue->result.exists)
        return take_result(&queue->result, &claim->record, err);
    if (!claim->no_heir || !queue->run.exists || queue_runs(queue))
        return HF_OK;
    claim->record.token = queue->run.token;
    return ENGINE_DIED;
}

/* ---- running --------------------------------------------------------------------------------- */

static void put_once_key(struct body *operations, const struct place *place, const char *tail,
                         char state, uint64_t token, int64_t span_ms, const void *bytes,
                         size_t size, int64_t lease)
{
    char head[96], key[ETCD_KEY_MAX];
    int head_size = snprintf(head, sizeof head, "hf1 %c %" PRIu64 " %" PRId64 " %" PRId64 " ",
                             state, token, span_ms, clock_wall_ms());
    size_t key_size, all = (size_t)head_size + size;
    char *value = malloc(all ? all : 1);

    if (!value) {
        operations->failed = true;
        return;
    }
    memcpy(value, head, (size_t)head_size);
    if (size > 0)
        memcpy(value + head_size, bytes, size);
    txn_add_tail_key(place, tail, key, &key_size);
    txn_add_put(operations, key, key_size, value, all, lease);
    free(value);
}

int once_begin(struct engine_store *store, struct etcd_claim *own, const struct queue *queue,
               int64_t deadline_ms, struct error_text *err)
{
    const char *owner = own->claim->owner ? own->claim->owner : "";
    int64_t death_ms = own->claim->death_ms, lease = own->run_lease;
    struct body operations = {0};
    struct queue after = {0};
    char key[ETCD_KEY_MAX];
    size_t key_size;
    bool done = false;
    int result = HF_OK;

    if (death_ms == 0 && !queue->run.exists)
        return HF_OK;
    if (death_ms > 0 && lease == 0)
        result = lease_grant(store, own->claim->ttl_ms + death_ms, 0, false, &own->interrupted,
                             deadline_ms, &lease, err);
    if (result != HF_OK)
        return result == HF_EUNREACH ? HF_EUNKNOWN : result;
    own->run_lease = lease;
    txn_add_tail_key(&own->place, ONCE_RUN, key, &key_size);
    if (death_ms > 0)
        put_once_key(&operations, &own->place, ONCE_RUN, 'r', own->create, death_ms, owner,
                     strlen(owner), lease);
    else
        txn_add_delete(&operations, key, key_size);
    result = txn_if_unchanged(store, &own->place, own->key, own->key_size, own->mod, &operations,
                              deadline_ms, &after, &done, NULL, err);
    body_free(&operations);
    if (result == HF_OK && !done)
        result = HF_ELOST;
    if (result == HF_ELOST)
        error_write(err, "the lease for '%.100s' is over", own->claim->name);
    queue_free(&after);
    return result == HF_EUNREACH ? HF_EUNKNOWN : result; /* we have a place that must be settled */
}

static int keep_alive(struct engine_store *store, int64_t lease, int64_t deadline_ms,
                      struct error_text *err)
{
    char body[64];
    struct question question = {
        .path = "/v3/lease/keepalive", .body = body, .repeatable = true, .reads = true};
    json_t *answer = NULL;
    int result;

    snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\"}", lease);
    result = gateway_ask(store, &question, deadline_ms, &answer, err);
    json_decref(answer);
    return result;
}

/* A keep-alive says nothing that a hold depends on. */
void once_renew(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms)
{
    struct error_text ignored;

    keep_alive(store, own->run_lease, deadline_ms, &ignored);
}

static void revoke_run_lease(struct engine_store *store, struct etcd_claim *own,
                             int64_t deadline_ms)
{
    struct error_text ignored;

    if (own->run_lease && lease_revoke(store, own->run_lease, deadline_ms, NULL, &ignored) == HF_OK)
        own->run_lease = 0;
}

int once_release(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms,
                 struct error_text *err)
{
    struct body also = {0};
    struct error_text ignored;
    char key[ETCD_KEY_MAX];
    size_t key_size;
    int result;

    txn_add_tail_key(&own->place, ONCE_RUN, key, &key_size);
    txn_add_delete(&also, key, key_size);
    result = claim_delete_key(store, own, &also, deadline_ms, err);
    body_free(&also);
    if (result == HF_OK || result == HF_ELOST) {
        claim_revoke_all(store, own, deadline_ms, &ignored);
        if (result == HF_OK)
            revoke_run_lease(store, own, deadline_ms);
    }
    if (result == HF_ELOST)
        error_write(err, "'%.100s' was not ours any more", own->claim->name);
    return result;
}

/* ---- finishing ------------------------------------------------------------------------------- */

static int finish_once(struct engine_store *store, struct etcd_claim *own,
                       const struct body *operations, int64_t deadline_ms, bool *ret_done,
                       struct error_text *err)
{
    struct queue queue = {0};
    int index, result = txn_if_unchanged(store, &own->place, own->key, own->key_size, own->mod,
                                         operations, deadline_ms, &queue, ret_done, NULL, err);

    if (result == HF_OK && !*ret_done) {
        index = queue_find(&queue, own->key, own->key_size);
        if (queue.result.exists && queue.result.token == own->create) {
            *ret_done = true; /* by an earlier one, whose answer was lost */
        } else if (index < 0 || queue.at[index].create != own->create ||
                   queue.at[index].value.mode == VALUE_BROKEN) {
            result =
                error_set(err, HF_ESTALE, "'%.100s' is not run by us any more: nothing was stored",
                          own->claim->name);
        } else {
            own->mod = queue.at[index].mod;
            own->bound = queue.at[index].lease;
        }
    }
    queue_free(&queue);
    return result;
}

/* The result's lease was granted a while before the result was stored, and counts from then: from now on, instead. */
static int keep_longer(struct engine_store *store, int64_t lease, int64_t keep_ms,
                       int64_t deadline_ms, struct error_text *err)
{
    struct error_text why;
    int64_t left_ms = -1;
    int result = keep_alive(store, lease, deadline_ms, &why);

    if (result == HF_OK)
        result = lease_left(store, lease, deadline_ms, &left_ms, NULL, &why);
    if (result == HF_OK && left_ms >= 0)
        return HF_OK;
    if (result == HF_OK)
        error_write(&why, "it was stored too late, and is gone");
    return error_set(err, HF_EUNKNOWN,
                     "the result may be kept for less than the %" PRId64 " ms that it should: %s",
                     keep_ms, why.text);
}

int etcd_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err)
{
    struct etcd_claim *own = claim_private(store, claim);
    struct body operations = {0};
    struct error_text ignored;
    char key[ETCD_KEY_MAX];
    size_t key_size;
    int64_t lease, began_ms = clock_boot_ms();
    bool done = false;
    int result;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (size > HF_ONCE_RESULT_MAX || keep_ms < 1)
        return error_set(err, HF_EINVAL, "a result has at most %d bytes, kept for 1 ms or more",
                         HF_ONCE_RESULT_MAX);
    listener_drop(store, own);
    own->create = claim->token;
    result = lease_grant(store, keep_ms, 0, false, NULL, deadline_ms, &lease, err);
    if (result != HF_OK)
        return result;
    put_once_key(&operations, &own->place, ONCE_RESULT, 'd', claim->token, keep_ms, bytes, size,
                 lease);
    body_add(&operations, ",");
    txn_add_delete(&operations, own->key, own->key_size);
    body_add(&operations, ",");
    txn_add_tail_key(&own->place, ONCE_RUN, key, &key_size);
    txn_add_delete(&operations, key, key_size);
    for (int i = 0; i < FINISH_TRIES && result == HF_OK && !done; i++)
        result = finish_once(store, own, &operations, deadline_ms, &done, err);
    body_free(&operations);
    if (result == HF_ELOST || (result == HF_OK && !done))
        result = error_set(err, HF_EUNKNOWN, "the lease for the result ran out meanwhile");
    if (result != HF_OK)
        return result;
    if ((clock_boot_ms() - began_ms) * LATE_PART > keep_ms)
        result = keep_longer(store, lease, keep_ms, deadline_ms, err);
    claim_revoke_all(store, own, deadline_ms, &ignored);
    revoke_run_lease(store, own, deadline_ms);
    return result;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int64_t left_of(struct engine_store *store, const struct once_key *key, int64_t deadline_ms)
{
    struct error_text ignored;
    int64_t left_ms = -1;

    if (lease_left(store, key->lease, deadline_ms, &left_ms, NULL, &ignored) != HF_OK ||
        left_ms < 0)
        return 0;
    return left_ms < key->span_ms ? left_ms : key->span_ms;
}

static int64_t age_of(int64_t since_ms)
{
    int64_t age_ms = clock_wall_ms() - since_ms;

    return since_ms <= 0 ? -1 : age_ms > 0 ? age_ms : 0;
}

static int read_runner(const struct queue *queue, struct engine_record *ret_record)
{
    const struct member *first = &queue->at[0];

    ret_record->token = first->create;
    ret_record->owner = strdup(first->value.owner);
    ret_record->age_ms =
        age_of(queue->run.exists && queue->run.token == first->create ? queue->run.since_ms
                                                                      : first->value.since_ms);
    return ENGINE_HELD;
}

int etcd_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct queue queue = {0};
    struct place place;
    int result;

    place_of_name(store, key, true, &place);
    result = txn_look(store, &place, NULL, deadline_ms, &queue, err);
    if (result == HF_OK && queue.result.exists) {
        *ret_left_ms = left_of(store, &queue.result, deadline_ms);
        result = take_result(&queue.result, ret_record, err);
    } else if (result == HF_OK && queue.run.exists && !queue_runs(&queue)) {
        ret_record->token = queue.run.token;
        *ret_left_ms = left_of(store, &queue.run, deadline_ms);
        result = ENGINE_DIED;
    } else if (result == HF_OK) {
        result = queue.count ? read_runner(&queue, ret_record) : ENGINE_BUSY;
    }
    queue_free(&queue);
    return result;
}
