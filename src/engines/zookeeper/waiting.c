/* waiting.c: who waits for a watch, and who is told that its node is gone.
 *
 * A watch carries a claim's number, not its address: the library keeps watches until they fire or the session ends, longer
 * than many a claim lives. */
#include "base/clock.h"
#include "base/futex.h"
#include "base/hash.h"
#include "base/sha256.h"
#include "base/text.h"
#include "engines/zookeeper/store.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_AGAIN_MS 5000 /* behind every watch */
#define OBSERVE_MS 5000    /* for the requests of an observer */

uint64_t watch_number(const struct zk_claim *own, enum zk_watch watch)
{
    return own->number * 2 + (watch == ZK_WATCH_OWN);
}

static void lease_id(const char *lease, char ret_id[ZK_ID_SIZE])
{
    unsigned char digest[SHA256_SIZE];

    sha256(lease, strlen(lease), digest);
    text_hex(digest, ZK_ID_BYTES, ret_id);
}

struct zk_claim *zk_claim_of(struct engine_store *store, struct engine_claim *claim)
{
    struct zk_claim *own = claim->private;

    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    own->claim = claim;
    lease_id(claim->lease, own->id);
    zk_parent_path(store, claim->name, own->parent);
    pthread_mutex_lock(&store->mutex);
    own->number = ++store->last_number;
    list_append(&store->claims, &own->node);
    claim->private = own;
    pthread_mutex_unlock(&store->mutex);
    return own;
}

static void ring(struct zk_claim *own)
{
    atomic_fetch_add(&own->bell, 1);
    futex_wake(&own->bell, FUTEX_MASK_ALL, INT_MAX);
}

/* With the mutex, so that the claim stays. The client only takes note. */
static void tell_lost(struct engine_store *store, struct zk_claim *own, const char *why)
{
    if (own->held && !own->told) {
        own->told = true;
        store->host->lost(store->host->context, own->claim, why);
    }
}

void watch_fired(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct session *session = (struct session *)(uintptr_t)zoo_get_context(handle);
    struct engine_store *store = session->store;
    uint64_t number = (uintptr_t)context;
    char broken[ZK_PATH_MAX] = "";

    (void)state;
    (void)path;
    if (type == ZOO_SESSION_EVENT)
        return;
    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->claims)
    {
        struct zk_claim *own = LIST_ENTRY(node, struct zk_claim, node);

        if (own->number != number / 2)
            continue;
        if (number % 2 == 0) {
            ring(own);
        } else if (own->session == session && own->held) {
            if (type == ZOO_CHANGED_EVENT) /* whoever breaks it waits until we let go */
                memcpy(broken, own->path, sizeof broken);
            tell_lost(store, own, "broken by an operator");
        }
        break;
    }
    pthread_mutex_unlock(&store->mutex);
    if (broken[0])
        debt_expire(session, broken);
}

void waiting_session_over(struct session *session, const char *why)
{
    LIST_EACH(node, &session->store->claims)
    {
        struct zk_claim *own = LIST_ENTRY(node, struct zk_claim, node);

        if (own->session != session)
            continue;
        tell_lost(session->store, own, why);
        ring(own);
    }
}

/* ---- observers ------------------------------------------------------------------------------- */

/* A number for who holds: another one when that is somebody else. */
static uint64_t holders_of(const struct queue *queue)
{
    uint64_t seen = 1;
    int ignored;

    for (int i = 0; i < queue->count &&
                    contenders_judge(queue->contenders, queue->count, i, &ignored) == ZK_HOLDS;
         i++)
        seen = seen * 31 + hash_bytes(queue->contenders[i].name, strlen(queue->contenders[i].name));
    return seen;
}

/* Waits for one of its requests, and frees it unless it is returned. */
static struct call *answer(struct call *call, int *result, struct error_text *err)
{
    if (!call)
        return NULL;
    *result = call_await(call, clock_after(clock_boot_ms(), OBSERVE_MS), err);
    if (*result == HF_OK)
        return call;
    call_end(call);
    return NULL;
}

/* Sets a watch that fires with the next change of holder, and says who holds now. */
static int watch_holders(struct zk_claim *own, uint64_t *ret_seen, struct error_text *err)
{
    struct session *session = own->session;
    uint64_t number = watch_number(own, ZK_WATCH_QUEUE);
    struct queue queue = {0};
    char path[ZK_PATH_MAX];
    struct call *call, *first = NULL;
    int result = HF_OK;

    call = answer(call_list(session, own->parent, 0, &result, err), &result, err);
    if (call && call->rc == ZOK && !queue_read(session->store->names, &call->names, &queue))
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (call && result == HF_OK && queue.count > 0 && queue.contenders[0].mode == HF_EXCLUSIVE) {
        /* Those who come after it are no change of holder. */
        zk_child_path(own->parent, queue.contenders[0].name, path);
        first = answer(call_get(session, path, number, &result, err), &result, err);
    }
    if (result == HF_OK && !(first && first->rc == ZOK)) {
        queue_free(&queue);
        call_end(call);
        call = answer(call_list(session, own->parent, number, &result, err), &result, err);
        if (call && call->rc == ZOK && !queue_read(session->store->names, &call->names, &queue))
            result = error_set(err, HF_ENOMEM, "out of memory");
    }
    if (result == HF_OK && call && call->rc == ZNONODE) {
        call_end(first);
        first = answer(call_exists(session, own->parent, number, &result, err), &result, err);
        if (first && first->rc == ZOK)
            ring(own); /* it was made in between */
    }
    if (result == HF_OK)
        *ret_seen = holders_of(&queue);
    queue_free(&queue);
    call_end(call);
    call_end(first);
    return result;
}

static int observe(struct engine_store *store, struct zk_claim *own, struct error_text *err,
                   bool *ret_changed)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), OBSERVE_MS);
    struct session *session = NULL;
    uint64_t seen = 0;
    int result = HF_OK;

    if (own->session && session_is_dead(own->session)) {
        session = own->session;
        pthread_mutex_lock(&store->mutex);
        own->session = NULL;
        pthread_mutex_unlock(&store->mutex);
        session_unref(session);
        session = NULL;
    }
    if (!own->session) {
        result = session_for_query(store, deadline_ms, &session, err);
        if (result != HF_OK)
            return result;
        pthread_mutex_lock(&store->mutex);
        own->session = session;
        pthread_mutex_unlock(&store->mutex);
    }
    result = session_await(own->session, deadline_ms, err);
    if (result == HF_OK)
        result = watch_holders(own, &seen, err);
    if (result == HF_ELOST)
        return HF_EUNREACH;
    *ret_changed = result == HF_OK && seen != own->seen;
    own->seen = result == HF_OK ? seen : own->seen;
    return result;
}

/* ---- waiting --------------------------------------------------------------------------------- */

int zk_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
            struct error_text *err)
{
    int64_t look_ms = clock_after(clock_boot_ms(), LOOK_AGAIN_MS);
    struct zk_claim *own = zk_claim_of(store, claim);

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (claim->mode == ENGINE_OBSERVE) {
        bool changed = false;
        int result;

        own->heard = atomic_load(&own->bell);
        result = observe(store, own, err, &changed);
        if (result != HF_OK || changed)
            return result;
    }
    if (look_ms < until_ms)
        until_ms = look_ms;
    while (atomic_load(&own->bell) == own->heard && clock_boot_ms() < until_ms)
        futex_wait(&own->bell, own->heard, FUTEX_MASK_ALL, until_ms);
    return HF_OK;
}

void zk_wake(struct engine_store *store, struct engine_claim *claim)
{
    struct zk_claim *own;

    pthread_mutex_lock(&store->mutex);
    own = claim->private;
    if (own)
        ring(own);
    pthread_mutex_unlock(&store->mutex);
}
