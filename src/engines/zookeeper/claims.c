/* claims.c: taking, keeping and giving up.
 *
 *     no place ──create──▶ placed ──list──▶ held, or waits for a watch
 *        ▲                   │ ▲
 *        └──────delete───────┘ └──found by its id── unsure: the answer to the create was lost
 *
 * A claim's node is made by one session, and the claim stays with that session: when it is over, so is the claim
 * (HF_ELOST), and the client begins again with another lease. So what is found by its id is always of the present session.
 *
 * Granted at once, the create is the proof that the node is there, and the hold counts from before it. A claim that has
 * waited proves itself by another write, because the list that shows it first may be older than its own end (CURATOR-604,
 * etcd 11456): call_check is committed by a majority only if the node is still there, and wakes nobody. A claim with a
 * permit writes its own data instead where somebody may wait for that (contenders.c).
 *
 * After a create whose answer was lost, a write is sent before the list: the session's requests are carried out in their
 * order, so when that write is done the create has been done or never will be, and whoever answers has seen both. */
#include "base/clock.h"
#include "base/switches.h"
#include "engines/zookeeper/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PARENT_TRIES 5 /* a container may be deleted between being made and being used */
#define LOOKS_MAX 100  /* in one attempt: whoever is watched may be gone already */
#define SESSION_TRIES 3
#define RETRY_MS 5

void claim_set_place(struct zk_claim *own, enum zk_place place)
{
    struct engine_store *store = own->session->store;

    pthread_mutex_lock(&store->mutex);
    own->place = place;
    if (place != ZK_PLACED)
        own->held = false;
    pthread_mutex_unlock(&store->mutex);
}

static void set_session(struct engine_store *store, struct zk_claim *own, struct session *session)
{
    struct session *before = own->session;

    pthread_mutex_lock(&store->mutex);
    own->session = session;
    pthread_mutex_unlock(&store->mutex);
    session_unref(before);
}

static int is_over(struct zk_claim *own, struct error_text *err)
{
    claim_set_place(own, ZK_GONE);
    return error_set(err, HF_ELOST, "its node in ZooKeeper has been deleted");
}

/* ---- one's own node -------------------------------------------------------------------------- */

static int note_created(struct zk_claim *own, const char *path, const struct Stat *stat,
                        int64_t sent_ms, struct error_text *err)
{
    struct engine_store *store = own->session->store;

    if (stat->ephemeralOwner != own->session->id)
        return is_over(own, err);
    pthread_mutex_lock(&store->mutex);
    snprintf(own->path, sizeof own->path, "%s", path);
    own->token = (uint64_t)stat->czxid;
    own->version = stat->version;
    own->place = ZK_PLACED;
    own->proved_ms = sent_ms;
    own->expired = own->deleting = own->broken = false;
    pthread_mutex_unlock(&store->mutex);
    return HF_OK;
}

/* A create was sent, and its answer was lost. */
static int find_own(struct zk_claim *own, int64_t deadline_ms, struct error_text *err)
{
    const char *parents[] = {own->parent};
    const int32_t any[] = {-1};
    char path[ZK_PATH_MAX] = "";
    struct queue queue = {0};
    int64_t sent_ms = clock_boot_ms();
    struct call *call;
    int result, at = -1;

    /* Whether it says yes or no, it is a write. */
    call = call_check(own->session, parents, any, 1, &result, err);
    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    call_end(call);
    if (result != HF_OK)
        return result;
    call = call_list(own->session, own->parent, 0, &result, err);
    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    if (result == HF_OK && call->rc == ZOK &&
        !queue_read(own->session->store->names, &call->names, &queue))
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (result == HF_OK && !SWITCHED(SWITCH_ZK_OWN_UNKNOWN))
        at = queue_find(&queue, own->id);
    INVARIANT(at < 0 || queue.contenders);
    if (at >= 0)
        zk_child_path(own->parent, queue.contenders[at].name, path);
    queue_free(&queue);
    call_end(call);
    if (result != HF_OK)
        return result;
    if (at < 0) {
        claim_set_place(own, ZK_NO_PLACE);
        return HF_OK;
    }
    call = call_get(own->session, path, 0, &result, err);
    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    if (result == HF_OK && call->rc == ZNONODE)
        result = is_over(own, err);
    else if (result == HF_OK)
        result = note_created(own, path, &call->stat, sent_ms, err);
    call_end(call);
    return result;
}

static int create_own(struct zk_claim *own, int64_t deadline_ms, struct error_text *err)
{
    const struct engine_claim *claim = own->claim;
    struct session *session = own->session;
    char child[ZK_CHILD_MAX], path[ZK_PATH_MAX], data[ZK_DATA_MAX];
    size_t size = record_write(claim->ttl_ms, false, claim->owner, data);
    int result = HF_OK;

    contender_name(session->store->names, claim->mode, claim->permits, own->id, child);
    zk_child_path(own->parent, child, path);
    for (int i = 0; i < PARENT_TRIES; i++) {
        struct call *call =
            call_create(session, path, data, size, ZOO_EPHEMERAL_SEQUENTIAL, &result, err);

        if (!call)
            return result;
        result = call_await(call, deadline_ms, err);
        if (result == HF_EUNKNOWN)
            claim_set_place(own, ZK_UNSURE);
        if (result == HF_OK && call->rc == ZOK)
            result = note_created(own, call->text, &call->stat, call->sent_ms, err);
        else if (result == HF_OK && call->rc != ZNONODE)
            result = call_unexpected(call, own->parent, err);
        else if (result == HF_OK)
            result = zk_make_parent(session, claim->name, deadline_ms, err);
        call_end(call);
        if (result != HF_OK || own->place == ZK_PLACED)
            return result;
    }
    return error_set(err, HF_EUNREACH, "'%.300s' is deleted as often as it is made", own->parent);
}

/* Whatever it was, the node is not there after HF_OK. */
static int delete_own(struct zk_claim *own, int32_t version, int64_t deadline_ms, int *ret_rc,
                      struct error_text *err)
{
    struct engine_store *store = own->session->store;
    struct call *call;
    int result;

    pthread_mutex_lock(&store->mutex);
    own->held = false;
    pthread_mutex_unlock(&store->mutex);
    call = call_delete(own->session, own->path, version, &result, err);
    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    *ret_rc = call->rc;
    if (result == HF_EUNKNOWN)
        own->deleting = true;
    if (result == HF_OK && call->rc != ZOK && call->rc != ZNONODE && call->rc != ZBADVERSION)
        result = call_unexpected(call, own->path, err);
    call_end(call);
    return result;
}

/* Gives up the place; then `answer`. */
static int leave_with(struct zk_claim *own, int answer, int64_t deadline_ms, struct error_text *err)
{
    struct error_text why = *err;
    int rc, result = delete_own(own, -1, deadline_ms, &rc, err);

    if (result == HF_EUNREACH)
        return error_code(HF_EUNKNOWN, 0); /* there is a place */
    if (result != HF_OK)
        return result;
    claim_set_place(own, ZK_NO_PLACE);
    *err = why;
    return answer;
}

/* An operator broke it before it was granted: nobody holds by it, and so the node goes at once. */
static int broken_early(struct zk_claim *own, int64_t deadline_ms, struct error_text *err)
{
    int rc, result = delete_own(own, -1, deadline_ms, &rc, err);

    return result == HF_OK ? is_over(own, err) : result;
}

/* ---- a grant --------------------------------------------------------------------------------- */

/* The answer to a write that proves the node alive. */
static int prove(struct zk_claim *own, bool by_data, int64_t deadline_ms, int64_t *ret_sent_ms,
                 struct error_text *err)
{
    const char *paths[] = {own->path};
    int32_t versions[] = {own->version};
    char data[ZK_DATA_MAX];
    struct call *call;
    int result;

    if (by_data && own->version >= 0) {
        size_t size = record_write(own->claim->ttl_ms, false, own->claim->owner, data);

        call = call_set(own->session, own->path, data, size, own->version, &result, err);
    } else {
        call = call_check(own->session, paths, versions, 1, &result, err);
    }
    if (!call)
        return result;
    *ret_sent_ms = call->sent_ms;
    result = call_await(call, deadline_ms, err);
    if (by_data && result == HF_EUNKNOWN)
        own->version = -1;
    else if (by_data && own->version >= 0 && result == HF_OK && call->rc == ZOK)
        own->version++;
    if (result == HF_OK && call->rc == ZNONODE)
        result = is_over(own, err);
    else if (result == HF_OK && call->rc == ZBADVERSION)
        result = broken_early(own, deadline_ms, err);
    else if (result == HF_OK && call->rc != ZOK)
        result = call_unexpected(call, own->path, err);
    call_end(call);
    return result;
}

static void sleep_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&span, NULL);
}

/* An answer was lost with which its data changed, or not. */
static int learn_version(struct zk_claim *own, int64_t deadline_ms, struct error_text *err)
{
    struct zk_record record;
    int result;
    struct call *call = call_get(own->session, own->path, 0, &result, err);

    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    if (result == HF_OK && call->rc == ZNONODE)
        result = is_over(own, err);
    if (result == HF_OK) {
        record_read(call->text, call->size, &record);
        own->version = call->stat.version;
        if (record.broken)
            result = broken_early(own, deadline_ms, err);
    }
    call_end(call);
    return result;
}

/* It is first, by the list. behind: somebody waits behind it. */
static int take(struct zk_claim *own, bool fresh, bool behind, int64_t deadline_ms,
                struct error_text *err)
{
    struct engine_store *store = own->session->store;
    int64_t sent_ms = own->proved_ms;
    /* Not of a claim that was granted before: it watches its own data. */
    bool by_data = own->claim->mode == HF_PERMIT && !own->held && (own->queued || behind);
    struct call *call;
    int result = HF_OK, ignored;

    if (own->version < 0)
        result = learn_version(own, deadline_ms, err);
    if (result == HF_OK && (!fresh || by_data))
        result = prove(own, by_data, deadline_ms, &sent_ms, err);
    /* Seldom: we were stopped for a while, or the connection is a new one (sessions.c). */
    while (result == HF_OK && session_lasts_ms(own->session, sent_ms) < own->claim->ttl_ms) {
        if (clock_boot_ms() >= deadline_ms)
            return error_set(err, HF_EUNKNOWN, "ZooKeeper was too slow for this TTL");
        sleep_ms(session_allowance_ms(own->session));
        result = prove(own, false, deadline_ms, &sent_ms, err);
    }
    if (result != HF_OK)
        return result;
    if (own->token < 1 || own->token > HF_TOKEN_MAX)
        return leave_with(
            own,
            error_set(err, HF_EREFUSED, "ZooKeeper's transaction numbers are too large for tokens"),
            deadline_ms, err);
    pthread_mutex_lock(&store->mutex);
    own->proved_ms = sent_ms;
    own->held = true;
    own->claim->token = own->token;
    pthread_mutex_unlock(&store->mutex);
    /* Tells us of a break. Nobody waits for it: renewals notice it too. */
    call = call_get(own->session, own->path, watch_number(own, ZK_WATCH_OWN), &ignored, NULL);
    if (call)
        call_leave(call, NULL, NULL);
    return ENGINE_HELD;
}

/* ---- looking at the queue -------------------------------------------------------------------- */

static int misfit(const struct zk_claim *own, const struct contender *first, struct error_text *err)
{
    if (first->mode == HF_PERMIT)
        return error_set(err, HF_EMODE, "'%.100s' is in use with %u permits", own->claim->name,
                         first->permits);
    return error_set(err, HF_EMODE, "'%.100s' is in use as a lock, without permits",
                     own->claim->name);
}

/* Sets the watch. 1: look again. */
static int watch(struct zk_claim *own, const struct queue *queue, int at, int64_t deadline_ms,
                 struct error_text *err)
{
    char path[ZK_PATH_MAX];
    struct call *call;
    int result;

    zk_child_path(own->parent, queue->contenders[at].name, path);
    call = call_get(own->session, path, watch_number(own, ZK_WATCH_QUEUE), &result, err);
    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    if (result == HF_OK && call->rc != ZOK)
        result = call->rc == ZNONODE ? 1 : call_unexpected(call, path, err);
    call_end(call);
    return result;
}

/* One look. 1: look again. watches: the list is to be watched. */
static int look(struct zk_claim *own, bool fresh, bool *watches, int64_t deadline_ms,
                struct error_text *err)
{
    uint64_t number = *watches ? watch_number(own, ZK_WATCH_QUEUE) : 0;
    struct queue queue = {0};
    enum zk_verdict verdict = ZK_WAITS;
    struct call *call;
    int result, at = -1, watched = -1;

    call = call_list(own->session, own->parent, number, &result, err);
    if (!call)
        return result;
    result = call_await(call, deadline_ms, err);
    if (result == HF_OK && call->rc == ZOK &&
        !queue_read(own->session->store->names, &call->names, &queue))
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (result == HF_OK)
        at = queue_find(&queue, own->id);
    if (result == HF_OK && at < 0)
        result = is_over(own, err);
    if (result == HF_OK && queue.foreign && own->session->store->names == ZK_NAMES_OURS)
        result =
            leave_with(own,
                       error_set(err, HF_EREFUSED,
                                 "'%.300s/%.100s' is no lock of ours: somebody else uses this path",
                                 own->parent, queue.foreign),
                       deadline_ms, err);
    if (result == HF_OK) {
        INVARIANT(queue.contenders);
        verdict = contenders_judge(queue.contenders, queue.count, at, &watched);
        if (verdict == ZK_HOLDS)
            result = take(own, fresh, at + 1 < queue.count, deadline_ms, err);
        else if (verdict == ZK_MISFITS)
            result = leave_with(own, misfit(own, &queue.contenders[0], err), deadline_ms, err);
        else if (!own->claim->will_wait)
            result = leave_with(own, ENGINE_BUSY, deadline_ms, err);
        else if (verdict == ZK_WAITS)
            result = watch(own, &queue, watched, deadline_ms, err);
        else
            result = *watches ? HF_OK : 1; /* once more, with a watch on the list */
        *watches = verdict == ZK_WAITS_CHANGES;
    }
    queue_free(&queue);
    call_end(call);
    if (result == HF_OK && verdict != ZK_HOLDS)
        return ENGINE_QUEUED;
    return result;
}

static int look_until_settled(struct zk_claim *own, bool fresh, int64_t deadline_ms,
                              struct error_text *err)
{
    bool watches = false;
    int result = 1;

    for (int i = 0; i < LOOKS_MAX; i++) {
        result = look(own, fresh, &watches, deadline_ms, err);
        /* BUSY is 1 too: then there is no place left. */
        if (result != 1 || own->place != ZK_PLACED)
            break;
    }
    if (result == 1 && own->place == ZK_PLACED) {
        own->heard = atomic_load(&own->bell) - 1; /* many go just now: the next wait is none */
        result = ENGINE_QUEUED;
    }
    if (result == ENGINE_QUEUED)
        own->queued = true;
    return result;
}

/* ---- the engine's functions ------------------------------------------------------------------ */

/* A place, of this session. HF_ELOST of a claim without a place: another session is needed. */
static int find_place(struct engine_store *store, struct zk_claim *own, bool *ret_fresh,
                      int64_t deadline_ms, struct error_text *err)
{
    struct session *session;
    int result;

    if (own->place == ZK_GONE)
        return error_set(err, HF_ELOST, "its node in ZooKeeper has been deleted");
    if (own->place == ZK_NO_PLACE) {
        result = session_get(store, own->claim->ttl_ms, deadline_ms, &session, err);
        if (result != HF_OK)
            return result;
        set_session(store, own, session);
    } else {
        result = session_await(own->session, deadline_ms, err);
        if (result == HF_ELOST)
            claim_set_place(own, ZK_GONE);
        if (result != HF_OK)
            return result;
    }
    if (own->place == ZK_UNSURE) {
        result = find_own(own, deadline_ms, err);
        if (result != HF_OK)
            return result;
    }
    if (own->place == ZK_PLACED)
        return HF_OK;
    *ret_fresh = true;
    own->queued = false;
    return create_own(own, deadline_ms, err);
}

static void set_busy(struct engine_store *store, struct zk_claim *own, bool busy)
{
    pthread_mutex_lock(&store->mutex);
    own->busy = busy;
    if (busy && own->expired)
        own->place = ZK_GONE;
    pthread_mutex_unlock(&store->mutex);
}

static int attempt(struct engine_store *store, struct zk_claim *own, int64_t deadline_ms,
                   struct error_text *err)
{
    bool fresh = false;
    int result = HF_ELOST;

    for (int i = 0; i < SESSION_TRIES && result == HF_ELOST; i++) {
        result = find_place(store, own, &fresh, deadline_ms, err);
        if (own->place != ZK_NO_PLACE)
            break;
    }
    if (result == HF_OK)
        result = look_until_settled(own, fresh, deadline_ms, err);
    if (result == HF_ELOST && own->place == ZK_NO_PLACE) /* sessions end as soon as they begin */
        return error_code(HF_EUNREACH, 0);
    if (result == HF_EUNREACH && own->place != ZK_NO_PLACE) /* but there is a place */
        return error_code(HF_EUNKNOWN, 0);
    return result;
}

int zk_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err)
{
    struct zk_claim *own = zk_claim_of(store, claim);
    int result;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (store->names != ZK_NAMES_OURS && claim->mode != HF_EXCLUSIVE)
        return error_set(err, HF_EINVAL,
                         "%s's locks are exclusive: with names=%s there are no others",
                         store->names == ZK_NAMES_KAZOO ? "kazoo" : "Curator",
                         store->names == ZK_NAMES_KAZOO ? "kazoo" : "curator");
    own->heard = atomic_load(&own->bell);
    set_busy(store, own, true);
    zk_heed(&claim->interrupted);
    /* As long as there is time: a connection that breaks is made again at once, as a rule. */
    while ((result = attempt(store, own, deadline_ms, err)) == HF_EUNKNOWN &&
           clock_boot_ms() < deadline_ms && !zk_interrupted())
        sleep_ms(RETRY_MS);
    zk_heed(NULL);
    set_busy(store, own, false);
    return result;
}

int zk_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err)
{
    struct zk_claim *own = claim->private;
    int result, rc;

    (void)store;
    if (!own || own->place == ZK_NO_PLACE || own->place == ZK_GONE)
        return HF_OK;
    result = session_await(own->session, deadline_ms, err);
    if (result == HF_OK && own->place == ZK_UNSURE)
        result = find_own(own, deadline_ms, err);
    if (result == HF_OK && own->place == ZK_PLACED)
        result = delete_own(own, -1, deadline_ms, &rc, err);
    if (result != HF_OK && result != HF_ELOST) /* with its session, its node is gone too */
        return result;
    claim_set_place(own, ZK_GONE);
    return HF_OK;
}

int zk_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err)
{
    struct zk_claim *own = claim->private;
    int result, rc = ZOK;

    (void)store;
    if (!own || own->place != ZK_PLACED || own->token != claim->token)
        return error_set(err, HF_ELOST, "its node in ZooKeeper is gone");
    result = session_await(own->session, deadline_ms, err);
    if (result == HF_OK)
        result = delete_own(own, own->version, deadline_ms, &rc, err);
    if (result == HF_OK && rc == ZBADVERSION) { /* it was broken, and its name is being withheld */
        own->broken = true; /* also if that is only known to be deleted by a later try */
        result = delete_own(own, -1, deadline_ms, &rc, err);
    }
    if (result == HF_OK && own->broken) {
        error_write(err, "it had been broken by an operator");
        result = ENGINE_ENDED;
    } else if (result == HF_OK && rc == ZNONODE && !own->deleting) {
        result = error_set(err, HF_ELOST, "its node in ZooKeeper was deleted before");
    }
    if (result == HF_OK || result == HF_ELOST || result == ENGINE_ENDED)
        claim_set_place(own, ZK_GONE);
    return result;
}

void zk_dispose(struct engine_store *store, struct engine_claim *claim)
{
    struct zk_claim *own = claim->private;
    bool owes;

    if (!own)
        return;
    if (store->forked) {
        free(own);
        return;
    }
    pthread_mutex_lock(&store->mutex);
    list_remove(&own->node);
    claim->private = NULL;
    owes = own->session && own->session->state != ZK_DEAD &&
           (own->place == ZK_PLACED || own->place == ZK_UNSURE);
    pthread_mutex_unlock(&store->mutex);
    if (owes)
        debt_add(own->session, own->parent, own->id, own->place == ZK_PLACED ? own->path : "");
    session_unref(own->session);
    free(own);
}
