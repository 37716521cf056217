/* calls.c: requests to ZooKeeper, each with its own wait.
 *
 * A call has two references: of whoever waits for it, and of the library, which gives its own back with the completion. So
 * whoever waits may leave at its deadline, and the answer finds memory all the same. Completions that the library owes when
 * a session is closed come from within zookeeper_close, or never: calls_drop frees those.
 *
 * Nothing is sent unless the session is connected. What is sent then and ends with ZCONNECTIONLOSS may have been carried
 * out: HF_EUNKNOWN. What a later request of the same session sees includes it, or it never happens: a session's requests
 * are carried out in the order they were sent, and when it moves to another server, the leader refuses what still comes
 * from the one before (ZSESSIONMOVED). */
#include "base/clock.h"
#include "base/futex.h"
#include "engines/zookeeper/store.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define HEED_MS 50 /* until an attempt that was interrupted ends */

static void destroy(struct call *call)
{
    deallocate_String_vector(&call->names);
    free(call->text);
    free(call->ops);
    free(call->results);
    free(call);
}

static void unref(struct call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) == 1)
        destroy(call);
}

void call_end(struct call *call)
{
    if (call)
        unref(call);
}

static void complete(struct call *call, int rc)
{
    struct engine_store *store = call->session->store;
    void (*then)(struct call *);

    pthread_mutex_lock(&store->mutex);
    list_remove(&call->node);
    /* Whatever a server said, it has heard from this session. */
    if (rc == ZOK ||
        (rc < ZAPIERROR && rc != ZSESSIONEXPIRED && rc != ZSESSIONMOVED && rc != ZCLOSING))
        session_touched(call->session, call->sent_ms);
    call->rc = rc;
    then = call->then;
    atomic_store(&call->done, 1);
    pthread_mutex_unlock(&store->mutex);
    futex_wake(&call->done, FUTEX_MASK_ALL, INT_MAX);
    if (then && rc != ZCLOSING)
        then(call);
    unref(call);
}

static void on_void(int rc, const void *data)
{
    complete((struct call *)(uintptr_t)data, rc);
}

static void on_string(int rc, const char *value, const void *data)
{
    (void)value;
    complete((struct call *)(uintptr_t)data, rc);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    struct call *call = (struct call *)(uintptr_t)data;

    if (rc == ZOK && stat)
        call->stat = *stat;
    complete(call, rc);
}

static void on_created(int rc, const char *value, const struct Stat *stat, const void *data)
{
    struct call *call = (struct call *)(uintptr_t)data;

    if (rc == ZOK && value && stat) {
        call->text = strdup(value);
        call->stat = *stat;
    }
    complete(call, rc == ZOK && !call->text ? ZSYSTEMERROR : rc);
}

static void on_data(int rc, const char *value, int size, const struct Stat *stat, const void *data)
{
    struct call *call = (struct call *)(uintptr_t)data;

    if (rc == ZOK && stat) {
        call->size = value && size > 0 ? (size_t)size : 0;
        call->text = malloc(call->size + 1);
        call->stat = *stat;
        if (call->text && call->size)
            memcpy(call->text, value, call->size);
        if (call->text)
            call->text[call->size] = '\0';
    }
    complete(call, rc == ZOK && !call->text ? ZSYSTEMERROR : rc);
}

static void on_names(int rc, const struct String_vector *names, const struct Stat *stat,
                     const void *data)
{
    struct call *call = (struct call *)(uintptr_t)data;
    bool well = true;

    if (rc == ZOK && names && stat) {
        call->stat = *stat;
        call->names.data = calloc((size_t)names->count + 1, sizeof *call->names.data);
        well = call->names.data != NULL;
        for (int i = 0; well && i < names->count; i++) {
            call->names.data[i] = strdup(names->data[i]);
            well = call->names.data[i] != NULL;
            call->names.count += well;
        }
    }
    complete(call, well ? rc : ZSYSTEMERROR);
}

/* ---- sending --------------------------------------------------------------------------------- */

static struct call *begin(struct session *session, int *ret_result, struct error_text *err)
{
    struct engine_store *store = session->store;
    struct call *call = calloc(1, sizeof *call);
    enum zk_state state;

    if (!call) {
        *ret_result = error_set(err, HF_ENOMEM, "out of memory");
        return NULL;
    }
    call->session = session;
    call->sent_ms = clock_boot_ms();
    atomic_store(&call->refs, 2);
    pthread_mutex_lock(&store->mutex);
    state = session->state;
    list_append(&session->calls, &call->node);
    pthread_mutex_unlock(&store->mutex);
    if (state == ZK_CONNECTED)
        return call;
    pthread_mutex_lock(&store->mutex);
    list_remove(&call->node);
    if (state == ZK_DEAD)
        *ret_result = error_set(err, HF_ELOST, "%s", session->why.text);
    else
        *ret_result = error_set(err, HF_EUNREACH, "the connection to ZooKeeper is broken");
    pthread_mutex_unlock(&store->mutex);
    free(call);
    return NULL;
}

/* The library took it, or not. */
static struct call *sent(struct call *call, int rc, int *ret_result, struct error_text *err)
{
    struct engine_store *store = call->session->store;

    if (rc == ZOK)
        return call;
    pthread_mutex_lock(&store->mutex);
    list_remove(&call->node);
    pthread_mutex_unlock(&store->mutex);
    destroy(call);
    if (rc == ZINVALIDSTATE)
        *ret_result = error_set(err, HF_ELOST, "the session with ZooKeeper is over");
    else if (rc == ZBADARGUMENTS)
        *ret_result = error_set(err, HF_EINVAL, "this is no path that ZooKeeper could have");
    else
        *ret_result = error_set(err, HF_EUNREACH, "cannot send to ZooKeeper: %s", zerror(rc));
    return NULL;
}

struct call *call_create(struct session *session, const char *path, const void *data, size_t size,
                         int mode, int *ret_result, struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);

    if (!call)
        return NULL;
    return sent(call,
                zoo_acreate2(session->handle, path, data, (int)size, zk_acl(session->store), mode,
                             on_created, call),
                ret_result, err);
}

struct call *call_delete(struct session *session, const char *path, int32_t version,
                         int *ret_result, struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);

    if (!call)
        return NULL;
    return sent(call, zoo_adelete(session->handle, path, version, on_void, call), ret_result, err);
}

struct call *call_get(struct session *session, const char *path, uint64_t number, int *ret_result,
                      struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);

    if (!call)
        return NULL;
    return sent(call,
                zoo_awget(session->handle, path, number ? watch_fired : NULL,
                          (void *)(uintptr_t)number, on_data, call),
                ret_result, err);
}

struct call *call_exists(struct session *session, const char *path, uint64_t number,
                         int *ret_result, struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);

    if (!call)
        return NULL;
    return sent(call,
                zoo_awexists(session->handle, path, number ? watch_fired : NULL,
                             (void *)(uintptr_t)number, on_stat, call),
                ret_result, err);
}

struct call *call_set(struct session *session, const char *path, const void *data, size_t size,
                      int32_t version, int *ret_result, struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);

    if (!call)
        return NULL;
    return sent(call, zoo_aset(session->handle, path, data, (int)size, version, on_stat, call),
                ret_result, err);
}

struct call *call_list(struct session *session, const char *path, uint64_t number, int *ret_result,
                       struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);

    if (!call)
        return NULL;
    return sent(call,
                zoo_awget_children2(session->handle, path, number ? watch_fired : NULL,
                                    (void *)(uintptr_t)number, on_names, call),
                ret_result, err);
}

struct call *call_sync(struct session *session, const char *path, int *ret_result,
                       struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);

    if (!call)
        return NULL;
    return sent(call, zoo_async(session->handle, path, on_string, call), ret_result, err);
}

struct call *call_check(struct session *session, const char *const *paths, const int32_t *versions,
                        int count, int *ret_result, struct error_text *err)
{
    struct call *call = begin(session, ret_result, err);
    int rc = ZSYSTEMERROR;

    if (!call)
        return NULL;
    call->ops = calloc((size_t)count, sizeof *call->ops);
    call->results = calloc((size_t)count, sizeof *call->results);
    call->op_count = count;
    if (call->ops && call->results) {
        for (int i = 0; i < count; i++)
            zoo_check_op_init(&call->ops[i], paths[i], versions[i]);
        rc = zoo_amulti(session->handle, count, call->ops, call->results, on_void, call);
    }
    return sent(call, rc, ret_result, err);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* What ends the attempt of this thread, or NULL. An attempt is many calls, and one thread makes them all. */
static _Thread_local const _Atomic bool *heeded;

void zk_heed(const _Atomic bool *interrupted)
{
    heeded = interrupted;
}

bool zk_interrupted(void)
{
    return heeded && atomic_load(heeded);
}

int64_t zk_look_ms(int64_t until_ms)
{
    int64_t look_ms = heeded ? clock_after(clock_boot_ms(), HEED_MS) : CLOCK_NEVER;

    return look_ms < until_ms ? look_ms : until_ms;
}

static void wait_until(struct call *call, int64_t until_ms)
{
    while (!atomic_load(&call->done) && clock_boot_ms() < until_ms && !zk_interrupted())
        futex_wait(&call->done, 0, FUTEX_MASK_ALL, zk_look_ms(until_ms));
}

int call_await(struct call *call, int64_t deadline_ms, struct error_text *err)
{
    int64_t patience_ms = clock_after(call->sent_ms, session_patience_ms(call->session));

    wait_until(call, patience_ms < deadline_ms ? patience_ms : deadline_ms);
    while (!atomic_load(&call->done) && clock_boot_ms() < deadline_ms && !zk_interrupted()) {
        session_unstall(call->session, call);
        session_hurry(call->session); /* it may have been sent just when the connection broke */
        patience_ms = clock_after(clock_boot_ms(), ZK_STALL_MS);
        wait_until(call, patience_ms < deadline_ms ? patience_ms : deadline_ms);
    }
    if (!atomic_load(&call->done))
        return error_set(err, HF_EUNKNOWN,
                         "this ZooKeeper server does not answer: it is slow or has stopped, or has "
                         "no majority");
    switch (call->rc) {
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZCLOSING:
        return error_set(err, HF_EUNKNOWN, "the connection to ZooKeeper broke before it answered");
    case ZSESSIONMOVED:
    case ZTHROTTLEDOP:
        return error_set(err, HF_EUNREACH, "ZooKeeper did not carry it out: %s", zerror(call->rc));
    case ZNOTREADONLY:
        return error_set(err, HF_EUNREACH,
                         "this ZooKeeper server is read-only now: it has lost its majority");
    case ZSESSIONEXPIRED:
    case ZINVALIDSTATE:
        return error_set(err, HF_ELOST, "the session with ZooKeeper has expired");
    case ZNOAUTH:
        return error_set(
            err, HF_EREFUSED, "ZooKeeper refuses it: the node's ACL allows it to others only%s",
            call->session->store->access.password[0] ? ""
                                                     : ", and no user and password were given");
    case ZAUTHFAILED:
        return error_set(err, HF_EREFUSED, "ZooKeeper does not accept the user and password");
    case ZSYSTEMERROR:
        return error_set(err, HF_ENOMEM, "out of memory");
    default:
        return HF_OK;
    }
}

int call_unexpected(const struct call *call, const char *path, struct error_text *err)
{
    if (call->rc == ZNOCHILDRENFOREPHEMERALS)
        return error_set(
            err, HF_EREFUSED,
            "'%.300s' is somebody else's ephemeral node, which can have no locks below it", path);
    return error_set(err, HF_EREFUSED, "ZooKeeper refuses it at '%.300s': %s", path,
                     zerror(call->rc));
}

void call_leave(struct call *call, void (*then)(struct call *call), void *context)
{
    struct engine_store *store = call->session->store;
    bool done;

    pthread_mutex_lock(&store->mutex);
    done = atomic_load(&call->done) != 0;
    call->context = context;
    if (!done)
        call->then = then;
    pthread_mutex_unlock(&store->mutex);
    if (done && then)
        then(call);
    unref(call);
}

void calls_drop(struct session *session)
{
    LIST_EACH_SAFE(node, &session->calls)
    {
        list_remove(node);
        unref(LIST_ENTRY(node, struct call, node));
    }
}
