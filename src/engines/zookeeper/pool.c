/* pool.c: finding a session for a claim or a question, and keeping those that there are.
 *
 * The library waits a third of the timeout for a server that accepts connections and says nothing, ten seconds and more.
 * Whoever finds no session for HEDGE_MS that is connected and answers tries another one meanwhile, which begins at a server of its own choice. */
#include "base/clock.h"
#include "base/futex.h"
#include "base/text.h"
#include "engines/zookeeper/store.h"

#define HEDGE_MS ZK_STALL_MS
#define HEDGES_MAX 4
#define PROBE_AFTER_MS 500 /* of trying */
#define QUERY_TTL_MS HF_TTL_DEFAULT_MS

/* The timeout from which a hold of ttl_ms can be promised; sessions.c says why. */
static int64_t timeout_for(int64_t ttl_ms, bool long_ticks)
{
    int64_t timeout_ms = ttl_ms * 8 / 5; /* 1 - 1/4 - 1/8 of it are the TTL */

    if (timeout_ms > 4 * ZK_ALLOWANCE_MAX_MS && !long_ticks)
        timeout_ms = (ttl_ms + ZK_ALLOWANCE_MAX_MS) * 8 / 7;
    return timeout_ms + timeout_ms / 20 + 40;
}

static int64_t ttl_within(int64_t timeout_ms)
{
    int64_t ttl_ms = (timeout_ms - 40) * 20 / 21 * 5 / 8;

    if (timeout_ms > 5 * ZK_ALLOWANCE_MAX_MS)
        ttl_ms = (timeout_ms - 40) * 20 / 21 * 7 / 8 - ZK_ALLOWANCE_MAX_MS;
    return ttl_ms;
}

/* ---- getting one ----------------------------------------------------------------------------- */

bool session_is_dead(struct session *session)
{
    bool dead;

    pthread_mutex_lock(&session->store->mutex);
    dead = session->state == ZK_DEAD;
    pthread_mutex_unlock(&session->store->mutex);
    return dead;
}

void session_unref(struct session *session)
{
    if (!session)
        return;
    pthread_mutex_lock(&session->store->mutex);
    session->refs--;
    pthread_mutex_unlock(&session->store->mutex);
}

bool session_is_stalled(const struct session *session)
{
    return !list_empty(&session->calls) &&
           clock_boot_ms() - LIST_ENTRY(session->calls.next, struct call, node)->sent_ms > HEDGE_MS;
}

/* With the mutex: a connected one, referenced, or NULL. ret_trying, ret_newest_ms: those that are not yet. */
static struct session *pick(struct engine_store *store, int64_t asked_ms, int *ret_trying,
                            int64_t *ret_newest_ms)
{
    *ret_trying = 0;
    *ret_newest_ms = INT64_MIN;
    LIST_EACH(node, &store->sessions)
    {
        struct session *session = LIST_ENTRY(node, struct session, node);

        if (session->asked_ms != asked_ms || session->state == ZK_DEAD)
            continue;
        if (session->state == ZK_CONNECTED && !session_is_stalled(session)) {
            session->refs++;
            return session;
        }
        ++*ret_trying;
        if (session->made_ms > *ret_newest_ms)
            *ret_newest_ms = session->made_ms;
    }
    return NULL;
}

/* One that ended before it ever began, as long as nobody has taken it away: HF_EREFUSED, with the password, or HF_EUNREACH,
 * by what is no ZooKeeper server. HF_OK: none. With the mutex. */
static int find_refusal(struct engine_store *store, struct error_text *err)
{
    LIST_EACH(node, &store->sessions)
    {
        struct session *session = LIST_ENTRY(node, struct session, node);

        if (session->state == ZK_DEAD && session->result != HF_ELOST && !session->was_connected)
            return error_set(err, session->result, "%s", session->why.text);
    }
    return HF_OK;
}

/* Unless another thread has just done so: the newest was made at newest_ms. */
static int make_one_more(struct engine_store *store, int64_t asked_ms, int64_t newest_ms,
                         struct error_text *err)
{
    int64_t now_newest_ms;
    struct session *session;
    int trying, result = HF_OK;

    pthread_mutex_lock(&store->opening);
    pthread_mutex_lock(&store->mutex);
    session = pick(store, asked_ms, &trying, &now_newest_ms);
    if (session)
        session->refs--;
    pthread_mutex_unlock(&store->mutex);
    if (!session && now_newest_ms == newest_ms)
        result = session_make(store, asked_ms, err);
    pthread_mutex_unlock(&store->opening);
    return result;
}

static int get_connected(struct engine_store *store, int64_t asked_ms, int64_t deadline_ms,
                         struct session **ret_session, struct error_text *err)
{
    int64_t probe_ms = clock_after(clock_boot_ms(), PROBE_AFTER_MS);
    struct error_text why = {"no ZooKeeper server has begun a session in this time"};

    for (;;) {
        uint32_t seen = atomic_load(&store->bell);
        int64_t newest_ms, now_ms = clock_boot_ms(), hedge_ms;
        int trying, result;

        pthread_mutex_lock(&store->mutex);
        *ret_session = pick(store, asked_ms, &trying, &newest_ms);
        result = *ret_session ? HF_OK : find_refusal(store, err);
        pthread_mutex_unlock(&store->mutex);
        if (*ret_session)
            return HF_OK;
        if (result == HF_EUNREACH) {
            sessions_reap(store);
            probe_servers(store, err); /* which one, and what does it say? */
        }
        if (result != HF_OK)
            return result;
        if (now_ms >= deadline_ms || zk_interrupted())
            return error_set(err, HF_EUNREACH, "%s", why.text);
        if (now_ms >= probe_ms) {
            bool any = probe_servers(store, &why);

            store->host->trouble(store->host->context, why.text);
            if (!any)
                return error_set(err, HF_EUNREACH, "%s", why.text);
            probe_ms = CLOCK_NEVER;
            continue;
        }
        hedge_ms = trying == 0           ? now_ms
                   : trying < HEDGES_MAX ? clock_after(newest_ms, HEDGE_MS)
                                         : CLOCK_NEVER;
        if (hedge_ms <= now_ms) {
            result = make_one_more(store, asked_ms, newest_ms, err);
            if (result != HF_OK)
                return result;
            continue;
        }
        hedge_ms = hedge_ms < probe_ms ? hedge_ms : probe_ms;
        futex_wait(&store->bell, seen, FUTEX_MASK_ALL,
                   zk_look_ms(hedge_ms < deadline_ms ? hedge_ms : deadline_ms));
    }
}

static int64_t timeout_of(struct session *session)
{
    int64_t timeout_ms;

    pthread_mutex_lock(&session->store->mutex);
    timeout_ms = session->timeout_ms;
    pthread_mutex_unlock(&session->store->mutex);
    return timeout_ms;
}

static int too_long(int64_t timeout_ms, int64_t ttl_ms, struct error_text *err)
{
    char wanted[TEXT_SPAN_MAX], allowed[TEXT_SPAN_MAX], most[TEXT_SPAN_MAX];

    text_from_ms(ttl_ms, wanted);
    text_from_ms(timeout_ms, allowed);
    text_from_ms(ttl_within(timeout_ms), most);
    return error_set(err, HF_EINVAL,
                     "a TTL of %s is too long here: this ZooKeeper allows sessions of %s "
                     "(maxSessionTimeout), which is enough for a TTL of %s (--ttl, or ?ttl= in the "
                     "URL)",
                     wanted, allowed, most);
}

int session_get(struct engine_store *store, int64_t ttl_ms, int64_t deadline_ms,
                struct session **ret_session, struct error_text *err)
{
    bool long_ticks = false;

    sessions_reap(store);
    for (;;) {
        int64_t asked_ms = timeout_for(ttl_ms, long_ticks), timeout_ms;
        struct session *session;
        int result = get_connected(store, asked_ms, deadline_ms, &session, err);

        if (result != HF_OK)
            return result;
        timeout_ms = timeout_of(session);
        if (timeout_ms >= asked_ms &&
            (long_ticks || timeout_ms == asked_ms || timeout_ms / 8 * 5 >= ttl_ms)) {
            descriptors_close_on_exec(session, true); /* whoever holds may run a program */
            *ret_session = session;
            return HF_OK;
        }
        session_unref(session);
        if (timeout_ms < asked_ms)
            return too_long(timeout_ms, ttl_ms, err);
        long_ticks = true; /* two of them are longer than what we asked for */
    }
}

int session_for_query(struct engine_store *store, int64_t deadline_ms, struct session **ret_session,
                      struct error_text *err)
{
    struct session *session = NULL;

    sessions_reap(store);
    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->sessions)
    {
        struct session *other = LIST_ENTRY(node, struct session, node);

        if (!session && other->state == ZK_CONNECTED && !session_is_stalled(other))
            session = other;
    }
    if (session)
        session->refs++;
    pthread_mutex_unlock(&store->mutex);
    *ret_session = session;
    return session ? HF_OK
                   : get_connected(store, timeout_for(QUERY_TTL_MS, false), deadline_ms,
                                   ret_session, err);
}

int64_t session_allowance_ms(struct session *session)
{
    int64_t allowance_ms;

    pthread_mutex_lock(&session->store->mutex);
    allowance_ms = session->allowance_ms;
    pthread_mutex_unlock(&session->store->mutex);
    return allowance_ms;
}

int session_await(struct session *session, int64_t deadline_ms, struct error_text *err)
{
    struct engine_store *store = session->store;
    int64_t hurry_ms = clock_after(clock_boot_ms(), ZK_STALL_MS);

    for (;;) {
        uint32_t seen = atomic_load(&store->bell);
        enum zk_state state;

        pthread_mutex_lock(&store->mutex);
        state = session->state;
        if (state == ZK_DEAD)
            error_write(err, "%s", session->why.text);
        pthread_mutex_unlock(&store->mutex);
        if (state == ZK_CONNECTED)
            return HF_OK;
        if (state == ZK_DEAD)
            return HF_ELOST;
        if (clock_boot_ms() >= deadline_ms || zk_interrupted())
            return error_set(err, HF_EUNREACH,
                             "the connection to ZooKeeper broke, and there is no other yet");
        futex_wait(&store->bell, seen, FUTEX_MASK_ALL,
                   zk_look_ms(hurry_ms < deadline_ms ? hurry_ms : deadline_ms));
        if (clock_boot_ms() >= hurry_ms) {
            session_hurry(session);
            hurry_ms = clock_after(clock_boot_ms(), ZK_STALL_MS);
        }
    }
}

/* ---- keeping them ---------------------------------------------------------------------------- */

/* Any of them that is due for a request, with a reference. With the mutex. */
static struct session *take_due(struct engine_store *store, int64_t now_ms, int64_t *next_ms)
{
    LIST_EACH(node, &store->sessions)
    {
        struct session *session = LIST_ENTRY(node, struct session, node);
        int64_t due_ms = clock_after(session->touch_sent_ms, session->timeout_ms / ZK_TOUCH_PART);

        if (session->state != ZK_CONNECTED)
            continue;
        if (due_ms <= now_ms) {
            session->touch_sent_ms = now_ms;
            session->refs++;
            return session;
        }
        if (due_ms < *next_ms)
            *next_ms = due_ms;
    }
    return NULL;
}

int64_t sessions_process(struct engine_store *store)
{
    claims_expire(store);
    for (;;) {
        int64_t now_ms = clock_boot_ms(), next_ms = clock_after(now_ms, ZK_ALLOWANCE_MAX_MS);
        struct session *session;
        struct call *call;
        int result;

        pthread_mutex_lock(&store->mutex);
        session = take_due(store, now_ms, &next_ms);
        pthread_mutex_unlock(&store->mutex);
        if (!session)
            return next_ms - now_ms;
        /* Whatever the answer, it was heard. */
        call = call_get(session, store->root[0] ? store->root : "/", 0, &result, NULL);
        if (call)
            call_leave(call, NULL, NULL);
        debts_pay(session);
        descriptors_close_on_exec(session, false);
        session_unref(session);
    }
}
