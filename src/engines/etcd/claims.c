/* claims.c: taking and giving up.
 *
 *     join: grant a lease, then create the key with it ──first in the queue──▶ HELD
 *        │                                             └──▶ QUEUED, and its predecessor is watched
 *        ▼
 *     nudged: grant another lease, move the key to it ──first, and the key was still there──▶ HELD
 *        │                                             └──gone: its lease ran out in the queue──▶ HF_ELOST
 *     not nudged: look, and move only if it comes first
 *
 * So whatever is HELD has a key that was written in this very call, with a lease that was granted in it: a key that was only seen
 * counts for nothing (etcd 11456).
 *
 * Who does not wait looks first: a name that is taken costs one transaction, and leaves nothing. Its key is created only if nobody
 * has come since it looked.
 *
 * Giving up a place: the leases that a put may have been sent with are revoked. That takes the key along, and whatever is still under
 * way finds no lease. Where several keys share a lease, the key is deleted.
 *
 * Releasing: the key is deleted by comparing its last modification, so that a late one touches nothing newer (etcd 22082), and it is known
 * whether the hold was over before. Then its leases are revoked, which nobody depends on. */
#include "base/clock.h"
#include "base/switches.h"
#include "engines/etcd/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_TRIES 4 /* of one that does not wait, while others come and go */
#define BIND_TRIES 3

struct etcd_claim *claim_private(struct engine_store *store, struct engine_claim *claim)
{
    struct etcd_claim *own = claim->private;
    int size;

    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    own->claim = claim;
    place_of_name(store, claim->name, claim->once, &own->place);
    if (claim->lease && claim->mode != ENGINE_OBSERVE) {
        size = snprintf(own->key, sizeof own->key, "%s%" PRIx64, own->place.bytes,
                        (uint64_t)key_number(claim->lease));
        own->key_size = (size_t)size;
    }
    /* `wake` may look while this is made. */
    __atomic_store_n(&claim->private, own, __ATOMIC_RELEASE);
    return own;
}

void etcd_wake(struct engine_store *store, struct engine_claim *claim)
{
    struct etcd_claim *own = __atomic_load_n(&claim->private, __ATOMIC_ACQUIRE);

    (void)store;
    if (own)
        atomic_store(&own->interrupted, true);
}

void etcd_dispose(struct engine_store *store, struct engine_claim *claim)
{
    struct etcd_claim *own = claim->private;

    if (!own)
        return;
    if (!store->forked)
        listener_drop(store, own);
    claim->private = NULL; /* first: a child forked in between must not free it again */
    free(own);
}

/* ---- leases ---------------------------------------------------------------------------------- */

void claim_forget_lease(struct etcd_claim *own, int64_t lease)
{
    for (int i = 0; i < own->lease_count; i++)
        if (own->leases[i] == lease) {
            own->leases[i] = own->leases[--own->lease_count];
            return;
        }
}

int claim_note_lease(struct engine_store *store, struct etcd_claim *own, int64_t lease,
                     int64_t deadline_ms, struct error_text *err)
{
    if (own->lease_count == ETCD_LEASES_MAX) {
        int64_t oldest = own->leases[own->leases[0] == own->bound];
        int result = lease_revoke(store, oldest, deadline_ms, NULL, err);

        if (result != HF_OK)
            return result;
        claim_forget_lease(own, oldest);
    }
    own->leases[own->lease_count++] = lease;
    return HF_OK;
}

int claim_revoke_all(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms,
                     struct error_text *err)
{
    while (own->lease_count > 0) {
        int64_t lease = own->leases[own->lease_count - 1];
        int result = lease_revoke(store, lease, deadline_ms, NULL, err);

        if (result != HF_OK)
            return result;
        claim_forget_lease(own, lease);
    }
    return HF_OK;
}

void claim_revoke_others(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms)
{
    struct error_text ignored;

    for (int i = own->lease_count - 1; i >= 0; i--) {
        int64_t lease = own->leases[i];

        if (lease == own->bound)
            continue;
        if (lease_revoke(store, lease, deadline_ms, NULL, &ignored) != HF_OK)
            return;
        claim_forget_lease(own, lease);
    }
}

static int grant(struct engine_store *store, struct etcd_claim *own, int64_t wanted,
                 int64_t deadline_ms, int64_t *ret_lease, struct error_text *err)
{
    int result = lease_grant(store, own->claim->ttl_ms, wanted, false, &own->interrupted,
                             deadline_ms, ret_lease, err);

    if (result == HF_OK)
        result = claim_note_lease(store, own, *ret_lease, deadline_ms, err);
    return result;
}

/* ---- what a look says ------------------------------------------------------------------------ */

static void take_note(struct etcd_claim *own, const struct member *member)
{
    own->create = member->create;
    own->mod = member->mod;
    own->bound = member->lease;
    own->unsure = false;
}

static int over(const struct etcd_claim *own, struct error_text *err)
{
    return error_set(err, HF_ELOST, "the lease for '%.100s' is over", own->claim->name);
}

static void watch_turn(struct engine_store *store, struct etcd_claim *own,
                       const struct queue *queue, size_t index)
{
    struct body requests = {0};
    char key[ETCD_KEY_MAX];
    size_t key_size;
    bool puts;
    int before = queue_awaits(queue, index, &puts);

    if (before < 0)
        watch_add_request(&requests, &own->place, "", 0, queue->revision + 1, false);
    else
        watch_add_request(&requests, &own->place, queue->at[before].key, queue->at[before].key_size,
                          queue->revision + 1, puts);
    if (own->claim->once) {
        txn_add_tail_key(&own->place, ONCE_RESULT, key, &key_size);
        watch_add_request(&requests, &own->place, key, key_size, queue->revision + 1, true);
    }
    listener_watch(store, own, WATCH_TURN, &requests);
}

/* Nothing is left behind, or it is not known. */
static int leave(struct engine_store *store, struct etcd_claim *own, int outcome,
                 int64_t deadline_ms, struct error_text *err)
{
    struct error_text why = {""};
    int result = claim_revoke_all(store, own, deadline_ms, &why);

    own->create = own->mod = 0;
    own->bound = 0;
    if (result == HF_OK)
        return outcome;
    return error_set(err, HF_EUNKNOWN, "%s", why.text);
}

/* What was written in this call, and before that the key, must be newer than all that this handle had seen when it was sent: else a backup
 * was restored, or etcd forgot, and a token of ours would be lower than one that was given out before. */
static int check_revisions(const struct etcd_claim *own, const struct queue *queue,
                           uint64_t newest_before, struct error_text *err)
{
    if (own->create > HF_TOKEN_MAX)
        return error_set(err, HF_EREFUSED,
                         "the revisions of this etcd are beyond what a token can be");
    if (SWITCHED(SWITCH_ETCD_GOES_BACK))
        return HF_OK;
    if ((uint64_t)queue->revision > newest_before && own->create > own->newest_before)
        return HF_OK;
    return error_set(err, HF_EREFUSED,
                     "the revisions of this etcd went back (below %" PRIu64
                     "): its tokens cannot be trusted (etcd 17780)",
                     newest_before);
}

/* Nothing that trying again would help, and the claim gets no other chance. */
static bool is_refusal(int result)
{
    return result < 0 && result != HF_EUNKNOWN && result != HF_EUNREACH && result != HF_ELOST;
}

/* The key was written in this call, and this is the queue as of then. */
static int held_or_queued(struct engine_store *store, struct etcd_claim *own,
                          const struct queue *queue, size_t index, uint64_t newest_before,
                          int64_t deadline_ms, struct error_text *err)
{
    int result = check_revisions(own, queue, newest_before, err);

    if (result != HF_OK)
        return result;
    result = own->claim->once ? once_look(queue, own->claim, err) : HF_OK;
    if (result != HF_OK) /* it was finished before the key came */
        return result == ENGINE_DONE ? leave(store, own, result, deadline_ms, err) : result;
    if (!queue_holds(queue, index)) {
        watch_turn(store, own, queue, index);
        return ENGINE_QUEUED;
    }
    if (own->claim->once)
        result = once_begin(store, own, queue, deadline_ms, err);
    if (result != HF_OK)
        return result;
    own->claim->token = own->create;
    watch_held(store, own);
    return ENGINE_HELD;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Looks before it joins, and goes on if there is reason to. 0: join. */
static int look_first(struct engine_store *store, struct etcd_claim *own, struct joining *joining,
                      int64_t deadline_ms, struct error_text *err)
{
    struct engine_claim *claim = own->claim;
    struct queue queue = {0};
    struct value value;
    int result = txn_look(store, &own->place, &own->interrupted, deadline_ms, &queue, err);
    bool there = result == HF_OK && queue_find(&queue, own->key, own->key_size) >= 0;

    if (result == HF_OK && claim->once)
        result = once_look(&queue, claim, err);
    if (result == HF_OK && !there)
        result = queue_check_mode(&queue, claim, err);
    value_of_claim(claim, &value);
    if (result == HF_OK && !claim->will_wait && !there && !queue_would_hold(&queue, &value))
        result = ENGINE_BUSY;
    joining->newest = queue.count ? queue.at[queue.count - 1].create : 0;
    joining->only_if_last = !claim->will_wait;
    queue_free(&queue);
    return result;
}

/* The key as it is now is moved to a lease that was granted in this call. */
static int bind_key(struct engine_store *store, struct etcd_claim *own, int64_t lease,
                    int64_t deadline_ms, struct queue *queue, size_t *ret_index,
                    struct error_text *err)
{
    for (int i = 0; i < BIND_TRIES; i++) {
        bool done = false;
        int index, result = txn_bind(store, own, lease, deadline_ms, queue, &done, err);

        if (result == HF_ELOST)
            return over(own, err);
        own->unsure = own->unsure || result == HF_EUNKNOWN;
        if (result != HF_OK)
            return result;
        index = queue_find(queue, own->key, own->key_size);
        if (index < 0 || queue->at[index].create != own->create ||
            queue->at[index].value.mode == VALUE_BROKEN)
            return over(own, err);
        take_note(own,
                  &queue->at[index]); /* if an answer was lost before, its outcome is known now */
        if (done) {
            *ret_index = (size_t)index;
            return HF_OK;
        }
    }
    return error_set(err, HF_EUNKNOWN, "the key of '%.100s' changes all the time",
                     own->claim->name);
}

static int join(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms,
                struct error_text *err)
{
    struct engine_claim *claim = own->claim;
    struct joining joining = {.own = own};
    /* Of the first lease the number is that of the key, as with etcdctl. */
    int64_t wanted = own->lease_count == 0 ? key_number(claim->lease) : 0;
    uint64_t newest = atomic_load(&store->newest);
    struct queue queue = {0};
    bool looks = !claim->will_wait || claim->once || claim->mode == HF_PERMIT, done = false;
    size_t place = 0;
    int index = -1, result = HF_OK;

    if (own->lease_count == 0) /* else an earlier try, whose answer was lost, may have created it */
        own->newest_before = newest;
    for (int i = 0; i < JOIN_TRIES && result == HF_OK && index < 0; i++) {
        if (looks)
            result = look_first(store, own, &joining, deadline_ms, err);
        if (result > 0)
            result = leave(store, own, result, deadline_ms, err);
        if (result == HF_OK && joining.lease == 0)
            result = grant(store, own, wanted, deadline_ms, &joining.lease, err);
        if (result == HF_OK)
            result = txn_join(store, &joining, deadline_ms, &queue, &done, err);
        if (result == HF_OK)
            index = queue_find(&queue, own->key, own->key_size);
    }
    if (result == HF_ELOST)
        result = error_set(err, HF_EUNKNOWN, "the lease ran out before it was of use");
    if (result == HF_OK && index < 0)
        result = leave(store, own, ENGINE_BUSY, deadline_ms, err);
    if (result == HF_OK) {
        take_note(own, &queue.at[index]);
        place = (size_t)index;
        if (done)
            own->newest_before = newest;
        if (!done) /* it was there before: an earlier answer was lost */
            result = bind_key(store, own, joining.lease, deadline_ms, &queue, &place, err);
        else if (claim->mode == HF_PERMIT || queue.at[0].value.mode == VALUE_PERMIT)
            result = queue_check_mode(&queue, claim, err);
    }
    if (result == HF_OK)
        result = held_or_queued(store, own, &queue, place, newest, deadline_ms, err);
    if (is_refusal(result)) /* the key may have been created all the same */
        result = leave(store, own, result, deadline_ms, err);
    if (result == ENGINE_QUEUED && !claim->will_wait) {
        listener_drop(store, own);
        result = leave(store, own, ENGINE_BUSY, deadline_ms, err);
    }
    queue_free(&queue);
    return result;
}

/* ---- in the queue ---------------------------------------------------------------------------- */

static int look_in_queue(struct engine_store *store, struct etcd_claim *own, int64_t deadline_ms,
                         struct error_text *err)
{
    struct queue queue = {0};
    int index = -1,
        result = txn_look(store, &own->place, &own->interrupted, deadline_ms, &queue, err);

    if (result == HF_OK && own->claim->once)
        result = once_look(&queue, own->claim, err);
    if (result == HF_OK)
        index = queue_find(&queue, own->key, own->key_size);
    if (result == HF_OK && (index < 0 || queue.at[index].create != own->create ||
                            queue.at[index].value.mode == VALUE_BROKEN))
        result = over(own, err);
    if (result == HF_OK && !queue_holds(&queue, (size_t)index)) {
        watch_turn(store, own, &queue, (size_t)index);
        result = ENGINE_QUEUED;
    }
    queue_free(&queue);
    return result;
}

static int advance(struct engine_store *store, struct etcd_claim *own, bool told,
                   int64_t deadline_ms, struct error_text *err)
{
    uint64_t newest = atomic_load(&store->newest);
    struct queue queue = {0};
    size_t index = 0;
    int64_t lease;
    int result = HF_OK;

    /* Of a once-record, a look tells what came out. */
    if (!told || own->claim->once)
        result = look_in_queue(store, own, deadline_ms, err);
    if (result == ENGINE_DONE)
        return leave(store, own, result, deadline_ms, err);
    if (result == HF_OK)
        result = grant(store, own, 0, deadline_ms, &lease, err);
    if (result == HF_OK)
        result = bind_key(store, own, lease, deadline_ms, &queue, &index, err);
    if (result == HF_OK)
        result = held_or_queued(store, own, &queue, index, newest, deadline_ms, err);
    queue_free(&queue);
    return result;
}

int etcd_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err)
{
    struct etcd_claim *own = claim_private(store, claim);
    bool told;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    atomic_store(&own->interrupted, false);
    if (atomic_load(&claim->interrupted)) /* before there was anything to tell */
        atomic_store(&own->interrupted, true);
    told = atomic_exchange(&own->told, false);
    if (own->create == 0)
        return join(store, own, deadline_ms, err);
    return advance(store, own, told, deadline_ms, err);
}

int etcd_observe(struct engine_store *store, struct engine_claim *claim, struct error_text *err)
{
    struct etcd_claim *own = claim_private(store, claim);
    struct body requests = {0};

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    watch_add_request(&requests, &own->place, "", 0, 0, true);
    listener_watch(store, own, WATCH_OBSERVE, &requests);
    return HF_OK;
}

/* ---- giving up ------------------------------------------------------------------------------- */

int claim_delete_key(struct engine_store *store, struct etcd_claim *own, const struct body *also,
                     int64_t deadline_ms, struct error_text *err)
{
    struct queue queue = {0};
    int result = HF_ELOST;

    for (int i = 0; i < BIND_TRIES; i++) {
        struct body operations = {0};
        bool done = false, again = false;
        int index;

        txn_add_delete(&operations, own->key, own->key_size);
        if (also)
            body_add(&operations, ",%s", also->failed ? "" : also->bytes);
        result = txn_if_unchanged(store, &own->place, own->key, own->key_size, own->mod,
                                  &operations, deadline_ms, &queue, &done, &again, err);
        body_free(&operations);
        if (result != HF_OK || done)
            break;
        index = queue_find(&queue, own->key, own->key_size);
        if (index < 0 || queue.at[index].create != own->create ||
            queue.at[index].value.mode == VALUE_BROKEN) {
            result = index < 0 && again ? HF_OK : HF_ELOST;
            break;
        }
        take_note(own, &queue.at[index]);
    }
    queue_free(&queue);
    return result;
}

static bool goes_with_its_lease(const struct etcd_claim *own)
{
    return own->bound != 0 && !(own->bound & LEASE_SHARED) && !own->unsure;
}

int etcd_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err)
{
    struct etcd_claim *own = claim->private;
    int result = HF_OK;

    if (!own)
        return HF_OK; /* nothing was ever sent */
    listener_drop(store, own);
    if (own->create != 0 && !goes_with_its_lease(own))
        result = claim_delete_key(store, own, NULL, deadline_ms, err);
    if (result == HF_OK || result == HF_ELOST)
        result = claim_revoke_all(store, own, deadline_ms, err);
    if (result == HF_OK && own->run_lease != 0) {
        result = lease_revoke(store, own->run_lease, deadline_ms, NULL, err);
        own->run_lease = result == HF_OK ? 0 : own->run_lease;
    }
    if (result == HF_OK) {
        own->create = own->mod = 0;
        own->bound = 0;
    }
    return result;
}

static int lost(const struct engine_claim *claim, struct error_text *err)
{
    return error_set(err, HF_ELOST, "'%.100s' was not ours any more", claim->name);
}

int etcd_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                 struct error_text *err)
{
    struct etcd_claim *own = claim_private(store, claim);
    struct error_text ignored;
    int result;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    listener_drop(store, own);
    own->create = claim->token;
    if (claim->once)
        return once_release(store, own, deadline_ms, err);
    result = claim_delete_key(store, own, NULL, deadline_ms, err);
    if (result == HF_OK || result == HF_ELOST)
        claim_revoke_all(store, own, deadline_ms, &ignored);
    return result == HF_ELOST ? lost(claim, err) : result;
}
