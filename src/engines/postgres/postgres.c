/* postgres.c: locks in a PostgreSQL database, the `postgres:` store. docs/postgres-store.md tells how it works. */
#include "engines/postgres/store.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* libpq has a lock of its own for what it reads of the user. Where one thread has it and another one forks, the child would wait for it for ever: it gets a new one. One that the program has
 * registered itself stays. ERRORCHECK: a thread of the program that has taken libpq's own, just before, gives back ours, which it does not have. */
static pthread_mutex_t libpq_mutex;
static pthread_once_t libpq_once = PTHREAD_ONCE_INIT;

static void make_libpq_mutex(void)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&libpq_mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static void lock_libpq(int acquires)
{
    if (acquires)
        pthread_mutex_lock(&libpq_mutex);
    else
        pthread_mutex_unlock(&libpq_mutex);
}

static void replace_libpq_lock(void)
{
    pgthreadlock_t before, usual;

    make_libpq_mutex();
    if (pthread_atfork(NULL, NULL, make_libpq_mutex) != 0)
        return; /* out of memory: a child may hang, as with libpq alone */
    before = PQregisterThreadLock(NULL);
    usual = PQregisterThreadLock(lock_libpq);
    if (before != usual)
        PQregisterThreadLock(before);
}

void pg_survive_forks(void)
{
    pthread_once(&libpq_once, replace_libpq_lock);
}

/* What libpq would say to the server belongs to the parent: only the descriptors are closed. */
void pg_after_fork(struct engine_store *store)
{
    store->forked = true;
    for (int i = 0; i < PG_SOCKETS_MAX; i++)
        if (store->sockets[i] >= 0)
            close(store->sockets[i]);
}

static bool wants_row(struct url *url)
{
    const char *mode = url_get(url, "mode");

    return mode && strcmp(mode, "row") == 0;
}

static const struct engine postgres_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = "postgres",
               .url = "postgres://HOST/DATABASE",
               .features = HF_HAS_TTL | HF_HAS_SHARED | HF_HAS_PERMITS | HF_HAS_FIFO |
                           HF_HAS_DELAY | HF_HAS_DETACH | HF_HAS_BREAK | HF_HAS_FLOOR |
                           HF_HAS_ONCE | HF_HAS_PUSH,
               .exclusion = HF_STRICT,
               .tokens = HF_STRICT,
               .survives = "survives restarts; a failover only to a synchronous standby",
               .wakes = "told by NOTIFY, in their order; behind a pooler they look",
               .ttl_ms = HF_TTL_DEFAULT_MS},
    .variant = &pg_row_engine,
    .wants_variant = wants_row,
    .open = pg_open,
    .close = pg_close,
    .after_fork = pg_after_fork,
    .in_effect = pg_in_effect,
    .id = pg_id,
    .acquire = pg_acquire,
    .wait = pg_wait,
    .wake = pg_wake,
    .observe = pg_observe,
    .abandon = pg_abandon,
    .release = pg_release,
    .renew = pg_renew,
    .dispose = pg_dispose,
    .show = pg_show,
    .list = pg_list,
    .check = pg_check,
    .break_name = pg_break,
    .floor_replaces = true,
    .floor = pg_floor,
    .finish = pg_finish,
    .once_read = pg_once_read,
};

const struct engine *holdfast_engine(void);

HF_API const struct engine *holdfast_engine(void)
{
    return &postgres_engine;
}
