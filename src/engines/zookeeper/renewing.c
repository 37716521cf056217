/* renewing.c: keeping nodes alive, or not.
 *
 * A session lives as long as this process talks to ZooKeeper, and so would its nodes, whether anybody still renews their
 * claims or not. So a renewal is a write that proves the nodes there, many of one session at once; and a node whose claim
 * is not renewed is deleted, once its session would have expired if that claim had been all of it. */
#include "base/clock.h"
#include "engines/zookeeper/store.h"

#include <stdlib.h>
#include <string.h>

void claims_expire(struct engine_store *store)
{
    for (;;) {
        char path[ZK_PATH_MAX];
        struct session *session = NULL;

        pthread_mutex_lock(&store->mutex);
        LIST_EACH(node, &store->claims)
        {
            struct zk_claim *own = LIST_ENTRY(node, struct zk_claim, node);

            if (session || own->place != ZK_PLACED || own->expired || own->busy ||
                own->session->state != ZK_CONNECTED ||
                clock_boot_ms() < clock_after(own->proved_ms, own->session->timeout_ms))
                continue;
            own->expired = true;
            memcpy(path, own->path, sizeof path);
            session = own->session;
            session->refs++;
        }
        pthread_mutex_unlock(&store->mutex);
        if (!session)
            return;
        debt_expire(session, path);
        session_unref(session);
    }
}

/* Claims of one session that are renewed with one write. */
struct batch {
    struct session *session;
    struct zk_claim *claims[ZK_BATCH_MAX];
    int indices[ZK_BATCH_MAX];
    int count;
    const char *paths[ZK_BATCH_MAX];
    int32_t versions[ZK_BATCH_MAX];
    struct call *call;
};

static int batch_send(struct batch *batch, struct error_text *err)
{
    int result = HF_OK;

    for (int i = 0; i < batch->count; i++) {
        batch->paths[i] = batch->claims[i]->path;
        batch->versions[i] = batch->claims[i]->version;
    }
    batch->call =
        call_check(batch->session, batch->paths, batch->versions, batch->count, &result, err);
    return result;
}

static void batch_remove(struct batch *batch, int at)
{
    batch->count--;
    batch->claims[at] = batch->claims[batch->count];
    batch->indices[at] = batch->indices[batch->count];
}

/* What the answer says. 1: of one that it is gone; the others are to be asked again. */
static int batch_read(struct batch *batch, int64_t *ret_left_ms, struct error_text *err)
{
    struct engine_store *store = batch->session->store;
    struct call *call = batch->call;

    if (call->rc == ZOK) {
        int64_t lasts_ms = session_lasts_ms(batch->session, call->sent_ms);

        for (int i = 0; i < batch->count; i++) {
            struct zk_claim *own = batch->claims[i];
            int64_t ttl_ms = own->claim->ttl_ms;

            pthread_mutex_lock(&store->mutex);
            own->proved_ms = call->sent_ms;
            pthread_mutex_unlock(&store->mutex);
            if (lasts_ms > 0)
                ret_left_ms[batch->indices[i]] = lasts_ms < ttl_ms ? lasts_ms : ttl_ms;
        }
        return HF_OK;
    }
    for (int i = 0; i < batch->count; i++) {
        int rc = call->results[i].err;

        if (rc != ZNONODE && rc != ZBADVERSION)
            continue;
        /* One that was broken is still there, before all who wait: whoever releases it deletes it, or claims_expire. */
        if (rc == ZNONODE)
            claim_set_place(batch->claims[i], ZK_GONE);
        ret_left_ms[batch->indices[i]] = ENGINE_GONE;
        batch_remove(batch, i);
        return 1;
    }
    return call_unexpected(call, batch->claims[0]->path, err);
}

static int batch_finish(struct batch *batch, int64_t *ret_left_ms, int64_t deadline_ms,
                        struct error_text *err)
{
    int result = HF_OK;

    while (batch->count > 0) {
        if (!batch->call) {
            result = session_await(batch->session, deadline_ms, err);
            if (result == HF_OK)
                result = batch_send(batch, err);
        }
        if (batch->call) {
            result = call_await(batch->call, deadline_ms, err);
            if (result == HF_OK)
                result = batch_read(batch, ret_left_ms, err);
            call_end(batch->call);
            batch->call = NULL;
        }
        if (result == HF_ELOST) {
            for (int i = 0; i < batch->count; i++) {
                claim_set_place(batch->claims[i], ZK_GONE);
                ret_left_ms[batch->indices[i]] = ENGINE_GONE;
            }
            return HF_OK;
        }
        if (result != 1)
            return result;
        result = HF_OK;
    }
    return result;
}

static void batch_add(struct batch *batches, int *batch_count, struct zk_claim *own, int index)
{
    struct batch *batch = batches;

    while (batch < batches + *batch_count &&
           (batch->session != own->session || batch->count == ZK_BATCH_MAX))
        batch++;
    if (batch == batches + *batch_count) {
        ++*batch_count;
        batch->session = own->session;
    }
    batch->claims[batch->count] = own;
    batch->indices[batch->count++] = index;
}

int zk_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
             int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct batch *batches = calloc((size_t)count, sizeof *batches);
    int batch_count = 0, result = HF_OK;

    if (!batches)
        return error_set(err, HF_ENOMEM, "out of memory");
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < count; i++) {
        struct zk_claim *own = claims[i]->private;

        if (!own || own->place == ZK_GONE || own->expired) {
            ret_left_ms[i] = ENGINE_GONE;
        } else if (own->place == ZK_PLACED) {
            own->busy = true;
            batch_add(batches, &batch_count, own, i);
        } else {
            result = error_set(err, HF_EUNKNOWN, "whether it has a place is not known");
        }
    }
    pthread_mutex_unlock(&store->mutex);
    for (int i = 0; i < batch_count; i++)
        batch_send(&batches[i], err); /* what is not connected is sent below */
    for (int i = 0; i < batch_count; i++) {
        int its = batch_finish(&batches[i], ret_left_ms, deadline_ms, err);

        result = its != HF_OK ? its : result;
    }
    pthread_mutex_lock(&store->mutex);
    for (int i = 0; i < count; i++)
        if (claims[i]->private)
            ((struct zk_claim *)claims[i]->private)->busy = false;
    pthread_mutex_unlock(&store->mutex);
    free(batches);
    return result;
}
