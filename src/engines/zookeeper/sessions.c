/* sessions.c: sessions with ZooKeeper, and what their time is worth.
 *
 * A claim's node lives as long as its session. Claims with the same TTL share one. A session that the server has ended is
 * dead for ever; claims that come after that get another one. The library hears of the end only from a server, so nobody
 * here relies on it: the client counts each hold's time itself, from before the last write that was acknowledged.
 *
 * How long must a session be, for a hold to last its TTL from such a write on? It is the leader that lets sessions expire,
 * timeout_ms after it last heard of them. But a write that comes through a follower does not tell it: followers report who
 * was heard with their answer to the leader's ping, every half tick. Suppose a write is acknowledged, and at that moment we
 * and our follower are cut off together. Then the leader counts from the last report, and that tells of what we sent
 * before. The timeout must therefore be longer than the TTL by
 *
 *     allowance_ms   half a tick: the report that was missed. A tick is 2 s in ZooKeeper's defaults; whatever it is, the
 *                    shortest session is two ticks, so that half a tick is at most a quarter of the timeout
 *     ZK_TOUCH_PART  of the timeout, the time between two requests that we send: sessions_process sends some if nobody
 *                    else does. (The library's pings come less often, and cannot be seen.)
 *
 * and a little more, because threads are late. We know when each answered request was sent, so nobody has to hope for that:
 * session_lasts_ms says what is certain. Requests from before the present connection count only as far as the handshake
 * came after them, because what the server before was told may have died with it. */
#include "base/clock.h"
#include "base/futex.h"
#include "base/text.h"
#include "engines/zookeeper/store.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOUCH_SPACING_PART 32 /* of the timeout: the least between two that are remembered */
#define STALLS_MAX 4
#define HURRY_MS (ZK_STALL_MS * 3 / 4) /* those who wait began before we heard that it broke */
#define IDLE_MAX 4                     /* sessions without a claim that are kept for the next one */

/* ---- what is known of its time --------------------------------------------------------------- */

void session_touched(struct session *session, int64_t sent_ms)
{
    int count = session->touch_count;

    if (clock_boot_ms() - sent_ms < ZK_STALL_MS)
        session->stalls = 0;
    if (session->state != ZK_CONNECTED || sent_ms < session->connect_ms)
        return;
    if (count > 0 &&
        sent_ms - session->touches_ms[count - 1] < session->timeout_ms / TOUCH_SPACING_PART)
        return;
    if (count == ZK_TOUCHES) {
        memmove(session->touches_ms, session->touches_ms + 1,
                sizeof *session->touches_ms * (ZK_TOUCHES - 1));
        count--;
    }
    session->touches_ms[count] = sent_ms;
    session->touch_count = count + 1;
}

int64_t session_lasts_ms(struct session *session, int64_t since_ms)
{
    int64_t known_ms;

    pthread_mutex_lock(&session->store->mutex);
    known_ms = session->connect_ms;
    for (int i = 0; i < session->touch_count; i++)
        if (session->touches_ms[i] <= since_ms - session->allowance_ms &&
            session->touches_ms[i] > known_ms)
            known_ms = session->touches_ms[i];
    known_ms = clock_after(known_ms, session->timeout_ms) - since_ms;
    pthread_mutex_unlock(&session->store->mutex);
    return known_ms;
}

/* ---- servers that stop ----------------------------------------------------------------------- */

/* The library would wait for two thirds of the timeout. A busy ZooKeeper may be slow for every server: then we wait longer
 * each time. */
int64_t session_patience_ms(struct session *session)
{
    int64_t patience_ms;

    pthread_mutex_lock(&session->store->mutex);
    patience_ms = (int64_t)ZK_STALL_MS
                  << (session->stalls < STALLS_MAX ? session->stalls : STALLS_MAX);
    pthread_mutex_unlock(&session->store->mutex);
    return patience_ms;
}

/* Ends the present connection, if it is still the one with this number. A copy of its descriptor is enough. */
static bool end_connection(struct session *session, uint32_t number, enum zk_state state)
{
    struct engine_store *store = session->store;
    int fd = descriptors_connection(session);
    bool ends = false;

    if (fd < 0)
        return false;
    pthread_mutex_lock(&store->mutex);
    if (session->connections == number && session->state == state) {
        shutdown(fd, SHUT_RDWR);
        ends = true;
    }
    pthread_mutex_unlock(&store->mutex);
    close(fd);
    return ends;
}

void session_unstall(struct session *session, const struct call *call)
{
    struct engine_store *store = session->store;
    uint32_t number;
    bool stalls;

    pthread_mutex_lock(&store->mutex);
    number = session->connections;
    stalls = session->state == ZK_CONNECTED && !atomic_load(&call->done) &&
             call->sent_ms >= session->connected_ms && session->ended != number;
    if (stalls)
        session->ended = number; /* by us, and by nobody else meanwhile */
    pthread_mutex_unlock(&store->mutex);
    if (!stalls)
        return;
    stalls = end_connection(session, number, ZK_CONNECTED);
    pthread_mutex_lock(&store->mutex);
    if (stalls)
        session->stalls++;
    else if (session->ended == number)
        session->ended = 0;
    pthread_mutex_unlock(&store->mutex);
}

void session_hurry(struct session *session)
{
    struct engine_store *store = session->store;
    int64_t now_ms = clock_boot_ms();
    uint32_t number;
    bool hurry;

    pthread_mutex_lock(&store->mutex);
    number = session->connections;
    hurry = session->state == ZK_CONNECTING && now_ms - session->broken_ms >= HURRY_MS;
    if (hurry)
        session->broken_ms = now_ms;
    pthread_mutex_unlock(&store->mutex);
    if (hurry)
        end_connection(session, number, ZK_CONNECTING);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void ring(struct engine_store *store)
{
    atomic_fetch_add(&store->bell, 1);
    futex_wake(&store->bell, FUTEX_MASK_ALL, INT_MAX);
}

/* With the mutex. */
static void on_connected(struct session *session, zhandle_t *handle)
{
    session->timeout_ms = zoo_recv_timeout(handle);
    session->allowance_ms = session->timeout_ms / 4;
    /* Longer than we asked for: it is two ticks, and those may be longer than the usual ones. */
    if (session->allowance_ms > ZK_ALLOWANCE_MAX_MS && session->timeout_ms <= session->asked_ms)
        session->allowance_ms = ZK_ALLOWANCE_MAX_MS;
    if (!session->was_connected)
        session->id = zoo_client_id(handle)->client_id;
    session->state = ZK_CONNECTED;
    session->was_connected = true;
    session->connections++;
    session->connected_ms = clock_boot_ms();
    session->touch_count = 0;
    session->touch_sent_ms = 0;
}

/* With the mutex. */
static void on_disconnected(struct session *session)
{
    if (session->state != ZK_CONNECTED)
        return;
    session->broken_ms = clock_boot_ms();
    session->state = ZK_CONNECTING;
    if (session->touch_count > 0)
        session->connect_ms = session->touches_ms[session->touch_count - 1];
    session->touch_count = 0;
}

static void on_dead(struct session *session, int result, const char *why)
{
    struct engine_store *store = session->store;

    pthread_mutex_lock(&store->mutex);
    if (session->state != ZK_DEAD) {
        session->state = ZK_DEAD;
        session->result = result;
        error_write(&session->why, "%s", why);
        waiting_session_over(session, session->why.text);
    }
    pthread_mutex_unlock(&store->mutex);
}

static void on_change(struct session *session, zhandle_t *handle, bool connected)
{
    struct engine_store *store = session->store;

    pthread_mutex_lock(&store->mutex);
    if (!session->handle) /* it has not been returned yet */
        session->handle = handle;
    if (session->state != ZK_DEAD && connected)
        on_connected(session, handle);
    else
        on_disconnected(session);
    pthread_mutex_unlock(&store->mutex);
    if (!connected)
        return;
    descriptors_close_on_exec(session, false);
    store->host->connected(store->host->context, NULL);
    debts_pay(session);
}

static void on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct session *session = (struct session *)(uintptr_t)zoo_get_context(handle);
    /* The library takes any bytes for a handshake, and connects anew without a pause if they grant a session of no time.
     * Only the completions' thread writes was_connected. */
    bool no_time = state == ZOO_CONNECTED_STATE && zoo_recv_timeout(handle) <= 0;

    (void)path;
    (void)context;
    if (type != ZOO_SESSION_EVENT)
        return;
    if (state == ZOO_EXPIRED_SESSION_STATE)
        on_dead(session, HF_ELOST, "its session with ZooKeeper has expired");
    else if (state == ZOO_AUTH_FAILED_STATE)
        on_dead(session, HF_EREFUSED, "ZooKeeper does not accept the user and password");
    else if (no_time && !session->was_connected)
        on_dead(session, HF_EUNREACH, "what answers there is no ZooKeeper server");
    else
        on_change(session, handle, state == ZOO_CONNECTED_STATE && !no_time);
    ring(session->store);
}

/* ---- making and closing ---------------------------------------------------------------------- */

/* The library would write to stderr. */
static void keep_quiet(const char *message)
{
    (void)message;
}

struct making {
    struct session *session;
    zhandle_t *handle; /* NULL: see number, an errno */
    int number;
};

static void *make_handle(void *arg)
{
    struct making *making = arg;
    struct session *session = making->session;

    descriptors_name_thread(session);
    making->handle =
        zookeeper_init2(session->store->library_hosts, on_event, (int)session->asked_ms, NULL,
                        session, ZOO_NO_LOG_CLIENTENV, keep_quiet);
    making->number = errno;
    if (!making->handle)
        return NULL;
    /* Else it resolves all names anew with every request that it sends or answer that it gets: slow, and the child of a
     * fork that happens meanwhile inherits a lock of the resolver's that nobody opens any more. */
    zoo_set_servers_resolution_delay(making->handle, -1);
    descriptors_find_threads(session);
    return NULL;
}

/* In a thread of its own: what the library's threads inherit of it, their name and that they get no signals, is not to be
 * changed in a thread of the program's. */
static zhandle_t *init_handle(struct session *session)
{
    struct making making = {.session = session};
    sigset_t all, before;
    pthread_t thread;
    int number;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(&thread, NULL, make_handle, &making);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number == 0) {
        pthread_join(thread, NULL);
        atomic_store(&session->maker_ended, true);
        number = making.number;
    }
    errno = number;
    return making.handle;
}

static int log_in(struct session *session)
{
    const struct access *access = &session->store->access;
    char text[2 * PASSWORD_MAX + 2];
    size_t user = strlen(access->user), password = strlen(access->password);
    int rc;

    if (!password)
        return ZOK;
    memcpy(text, access->user, user);
    text[user] = ':';
    memcpy(text + user + 1, access->password, password);
    rc = zoo_add_auth(session->handle, "digest", text, (int)(user + 1 + password), NULL, NULL);
    explicit_bzero(text, sizeof text);
    return rc;
}

/* Out of the list, and nobody has a reference. */
static void session_close(struct session *session)
{
    uint32_t number;
    bool stalled;

    if (session->store->forked)
        return; /* the library's threads are not in this process: its memory stays */
    pthread_mutex_lock(&session->store->mutex);
    stalled = session->state == ZK_CONNECTED && session_is_stalled(session);
    number = session->connections;
    pthread_mutex_unlock(&session->store->mutex);
    if (stalled) /* the library would wait for its goodbye */
        end_connection(session, number, ZK_CONNECTED);
    if (session->handle)
        zookeeper_close(session->handle);
    calls_drop(session);
    debts_drop(session);
    free(session);
}

int session_make(struct engine_store *store, int64_t asked_ms, struct error_text *err)
{
    struct session *session;
    zhandle_t *handle;

    if (asked_ms > INT_MAX)
        return error_set(err, HF_EINVAL, "no session with ZooKeeper is that long");
    session = calloc(1, sizeof *session);
    if (!session)
        return error_set(err, HF_ENOMEM, "out of memory");
    session->store = store;
    session->asked_ms = asked_ms;
    session->made_ms = session->connect_ms = clock_boot_ms();
    session->broken_ms = session->made_ms;
    list_init(&session->calls);
    list_init(&session->debts);
    handle = init_handle(session);
    if (!handle) {
        int number = errno;

        free(session);
        if (number == ENOMEM || number == EMFILE || number == ENFILE || number == EAGAIN)
            return error_set_errno(err, HF_ENOMEM, number, "cannot begin a session with ZooKeeper");
        return error_set(err, HF_EUNREACH, "cannot find the address of %.300s", store->hosts);
    }
    pthread_mutex_lock(&store->mutex);
    if (!session->handle)
        session->handle = handle;
    list_append(&store->sessions, &session->node);
    pthread_mutex_unlock(&store->mutex);
    if (log_in(session) != ZOK)
        return error_set(err, HF_ENOMEM, "cannot send the user and password to ZooKeeper");
    return HF_OK;
}

static bool has_twin(const struct session *session)
{
    LIST_EACH(node, &session->store->sessions)
    {
        const struct session *other = LIST_ENTRY(node, struct session, node);

        if (other != session && other->asked_ms == session->asked_ms &&
            other->state == ZK_CONNECTED)
            return true;
    }
    return false;
}

void sessions_reap(struct engine_store *store)
{
    struct session *gone;

    do {
        int idle = 0;

        gone = NULL;
        pthread_mutex_lock(&store->mutex);
        LIST_EACH(node, &store->sessions)
        {
            struct session *session = LIST_ENTRY(node, struct session, node);

            if (session->refs > 0)
                continue;
            idle++;
            if (!gone && (session->state == ZK_DEAD ||
                          (session->state == ZK_CONNECTING && has_twin(session))))
                gone = session;
        }
        LIST_EACH(node, &store->sessions)
        {
            struct session *session = LIST_ENTRY(node, struct session, node);

            if (!gone && idle > IDLE_MAX && session->refs == 0)
                gone = session;
        }
        if (gone)
            list_remove(&gone->node);
        pthread_mutex_unlock(&store->mutex);
        if (gone)
            session_close(gone);
    } while (gone);
}

void sessions_close(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->sessions)
    {
        list_remove(node);
        session_close(LIST_ENTRY(node, struct session, node));
    }
}
