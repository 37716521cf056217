/* store.c: a store's memory, closing it, and what a fork does to it. open.c opens.
 *
 * Fork. Before a fork we take the list of stores, the cancels and every store's mutex, so that the
 * child's copy of all our lists is whole. In the child the generation has moved on: every call on
 * an old store answers HF_EFORK, and the engines have closed the descriptors that keep holds alive.
 * What the child may still do is free memory; it never waits for a thread, which it does not have.
 */
#include "base/clock.h"
#include "base/random.h"
#include "base/user.h"
#include "client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t stores_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list stores = {&stores, &stores};
static _Atomic uint32_t fork_generation;
static pthread_mutex_t warning_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards both */
static hf_warning_fn *warning_fn;
static void *warning_arg;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_errno;

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void)
{
    pthread_mutex_lock(&stores_mutex);
    cancels_before_fork();
    LIST_EACH(node, &stores)
    {
        pthread_mutex_lock(&LIST_ENTRY(node, hf_store, node)->mutex);
    }
    pthread_mutex_lock(&warning_mutex); /* nobody asks for another while he has it */
}

static void after_fork(void)
{
    pthread_mutex_unlock(&warning_mutex);
    LIST_EACH(node, &stores)
    {
        pthread_mutex_unlock(&LIST_ENTRY(node, hf_store, node)->mutex);
    }
    cancels_after_fork();
    pthread_mutex_unlock(&stores_mutex);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add(&fork_generation, 1);
    LIST_EACH(node, &stores)
    {
        hf_store *store = LIST_ENTRY(node, hf_store, node);

        if (store->generation + 1 == atomic_load(&fork_generation) && store->engine->after_fork)
            store->engine->after_fork(store->engine_store);
    }
    after_fork();
}

static void watch_forks(void)
{
    fork_errno = pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

bool store_forked(const hf_store *store)
{
    return store->generation != atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

bool store_has_server(const hf_store *store)
{
    return (store->info.features & HF_HAS_TTL) || store->engine->remote;
}

int store_check(const hf_store *store, struct error_text *err)
{
    if (!store)
        return error_set(err, HF_EINVAL, "no store given");
    if (store_forked(store))
        return error_set(err, HF_EFORK,
                         "this store was opened before a fork and belongs to the parent process; "
                         "open one in the child");
    return HF_OK;
}

/* ---- what an engine calls -------------------------------------------------------------------- */

static void host_nudge(void *context, struct engine_claim *claim)
{
    (void)context;
    waiter_nudge(claim_waiter(claim));
}

static void host_lost(void *context, struct engine_claim *claim, const char *why)
{
    hf_store *store = context;

    if (claim->mode == ENGINE_OBSERVE)
        return;
    pthread_mutex_lock(&store->mutex);
    claim_lost(LIST_ENTRY(claim, hf_lock, claim), LOSS_TOLD, why);
    pthread_mutex_unlock(&store->mutex);
}

/* With the mutex held. True: it is another one than before. */
static bool note_id(hf_store *store, const char *id)
{
    bool changed = store->id[0] && strcmp(store->id, id) != 0;

    snprintf(store->id, sizeof store->id, "%s", id);
    if (changed)
        atomic_fetch_add(&store->eras, 1);
    return changed;
}

/* What another store holds with our lease, as one that was restored may, is not what we were granted: its
 * tokens and sequencers are others. */
static void host_connected(void *context, const char *id)
{
    hf_store *store = context;

    reach_recovered(store);
    pthread_mutex_lock(&store->mutex);
    store->connections++;
    if (id && note_id(store, id)) {
        LIST_EACH_SAFE(node, &store->locks)
        {
            hf_lock *lock = LIST_ENTRY(node, hf_lock, node);

            if (lock->state == CLAIM_HELD)
                claim_lost(lock, LOSS_TOLD,
                           store->engine->floor_replaces
                               ? "the store is another one now: a standby was promoted, its tables "
                                 "were made anew, or its tokens were raised (holdfast floor)"
                               : "the store was replaced by another one");
        }
    }
    if (id)
        store->id_as_of = store->connections;
    pthread_mutex_unlock(&store->mutex);
}

void hf_set_warning_handler(hf_warning_fn *fn, void *arg)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&warning_mutex);
    warning_fn = fn;
    warning_arg = arg;
    pthread_mutex_unlock(&warning_mutex);
}

/* Never to a descriptor: number 2 may be a file of the program's. */
static void host_warn(void *context, const char *text)
{
    hf_store *store = context;
    hf_warning_fn *fn;
    void *arg;
    bool told;

    pthread_mutex_lock(&warning_mutex);
    fn = warning_fn;
    arg = warning_arg;
    pthread_mutex_unlock(&warning_mutex);
    pthread_mutex_lock(&store->mutex);
    told = fn && store->warnings++ < WARNINGS_MAX;
    pthread_mutex_unlock(&store->mutex);
    if (told)
        fn(&(hf_warning){sizeof(hf_warning), store->info.scheme, text}, arg);
}

static void host_reached(void *context)
{
    reach_answered(context);
}

static void host_trouble(void *context, const char *why)
{
    reach_failed(context, why);
}

static bool host_closing(void *context)
{
    return cancel_fired(&((hf_store *)context)->closing);
}

/* ---- its memory ------------------------------------------------------------------------------- */

hf_store *store_new(void)
{
    hf_store *store = calloc(1, sizeof *store);

    if (!store)
        return NULL;
    store->generation = atomic_load(&fork_generation);
    store->host = (struct engine_host){.context = store,
                                       .nudge = host_nudge,
                                       .lost = host_lost,
                                       .connected = host_connected,
                                       .reached = host_reached,
                                       .trouble = host_trouble,
                                       .warn = host_warn,
                                       .closing = host_closing};
    cancel_init(&store->closing);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->changed, NULL);
    pthread_cond_init(&store->renew_due, NULL);
    pthread_cond_init(&store->events_due, NULL);
    list_init(&store->locks);
    list_init(&store->owing);
    list_init(&store->events);
    list_init(&store->tasks);
    list_init(&store->finished);
    list_init(&store->ops);
    list_init(&store->observers);
    store->poke_fd = store->timer_fd = store->dispatch_fd = -1;
    store->watch_next_ms = CLOCK_NEVER;
    return store;
}

void store_free(hf_store *store)
{
    /* A condition that dead threads wait for cannot be destroyed: not in the child of a fork. */
    if (!store_forked(store)) {
        pthread_cond_destroy(&store->events_due);
        pthread_cond_destroy(&store->renew_due);
        pthread_cond_destroy(&store->changed);
        pthread_mutex_destroy(&store->mutex);
    }
    if (store->dispatch_fd >= 0)
        close(store->dispatch_fd);
    if (store->poke_fd >= 0)
        close(store->poke_fd);
    if (store->timer_fd >= 0)
        close(store->timer_fd);
    if (store->full_url)
        explicit_bzero(store->full_url, strlen(store->full_url));
    free(store->full_url);
    heap_free(&store->ends);
    heap_free(&store->renewals);
    free(store->batch);
    free(store);
}

void store_register(hf_store *store)
{
    pthread_mutex_lock(&stores_mutex);
    list_append(&stores, &store->node);
    pthread_mutex_unlock(&stores_mutex);
}

int store_watch_forks(struct error_text *err)
{
    pthread_once(&fork_once, watch_forks);
    if (fork_errno)
        return error_set_errno(err, HF_ENOMEM, fork_errno, "cannot watch for forks");
    return HF_OK;
}

const hf_store_info *hf_info(hf_store *store)
{
    struct error_text err;
    int result = store_check(store, &err);

    if (result == HF_OK) {
        if (store->engine->in_effect)
            store->engine->in_effect(store->engine_store, &store->info);
        return &store->info;
    }
    failure_keep(result, &err);
    return NULL;
}

/* ---- what belongs to a store ------------------------------------------------------------------
 */

void store_random(hf_store *store, void *ret_bytes, size_t size)
{
    INVARIANT(size <= RANDOM_POOL_BYTES);
    if (store->random_left < size) {
        random_fill(store->random_pool, sizeof store->random_pool);
        store->random_left = sizeof store->random_pool;
    }
    store->random_left -= size;
    memcpy(ret_bytes, store->random_pool + store->random_left, size);
    /* What became a secret is in one place only. */
    memset(store->random_pool + store->random_left, 0, size);
}

static void describe_owner(char ret_text[HF_OWNER_MAX + 1])
{
    char host[65] = "?", user[USER_NAME_SIZE];

    user_name(user);
    gethostname(host, sizeof host - 1);
    snprintf(ret_text, HF_OWNER_MAX + 1, "%s@%s %.16s[%ld]", user, host,
             program_invocation_short_name, (long)getpid());
}

const char *store_owner(hf_store *store)
{
    char text[HF_OWNER_MAX + 1];

    if (atomic_load(&store->owner_known))
        return store->owner;
    describe_owner(text);
    pthread_mutex_lock(&store->mutex);
    if (!store->owner_known)
        memcpy(store->owner, text, sizeof text);
    atomic_store(&store->owner_known, true);
    pthread_mutex_unlock(&store->mutex);
    return store->owner;
}

void store_forget_id(hf_store *store)
{
    atomic_store(&store->id_stale, true);
}

/* An engine that tells nothing by `connected` has only been asked. Each hold that may be of the store before
 * is renewed at once: the one that is there now knows it, or does not. */
static void renew_all(hf_store *store)
{
    LIST_EACH(node, &store->locks)
    {
        hf_lock *lock = LIST_ENTRY(node, hf_lock, node);

        if (lock->claim.ttl_ms == 0 || lock->state != CLAIM_HELD)
            continue;
        lock->renew_ms = clock_boot_ms();
        claim_watch(lock);
    }
}

static int ask_id(hf_store *store, char ret_id[65], struct error_text *err)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), QUERY_MS);
    int result = HF_EUNKNOWN;

    /* Whoever asks has a lock already: a connection that broke in between is no reason to fail. */
    for (int i = 0; i < ID_TRIES && is_transient(result) && clock_boot_ms() < deadline_ms; i++)
        result = store->engine->id(store->engine_store, ret_id, deadline_ms, err);
    return result;
}

int store_id(hf_store *store, char ret_id[65], struct error_text *err)
{
    uint64_t as_of;
    bool known;
    int result;

    pthread_mutex_lock(&store->mutex);
    as_of = store->connections;
    known = store->id[0] && store->id_as_of == as_of && !atomic_load(&store->id_stale);
    memcpy(ret_id, store->id, sizeof store->id);
    pthread_mutex_unlock(&store->mutex);
    if (known)
        return HF_OK;
    atomic_store(&store->id_stale, false); /* what is gone from now on makes it stale again */
    result = ask_id(store, ret_id, err);
    if (result != HF_OK) {
        store_forget_id(store);
        return result;
    }
    pthread_mutex_lock(&store->mutex);
    store->id_as_of = as_of; /* if the answer came over a new connection, it is asked once more */
    if (note_id(store, ret_id))
        renew_all(store);
    pthread_mutex_unlock(&store->mutex);
    return HF_OK;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void forget_store(hf_store *store)
{
    pthread_mutex_lock(&stores_mutex);
    list_remove(&store->node);
    pthread_mutex_unlock(&stores_mutex);
}

static void close_in_child(hf_store *store)
{
    forget_store(store);
    /* First those that may be registered with a cancel, then those that have one. */
    LIST_EACH_SAFE(node, &store->locks)
    {
        claim_free(LIST_ENTRY(node, hf_lock, node));
    }
    observer_free_all(store, true);
    op_free_all(store, true);
    tasks_free_forked(store);
    store->engine->close(store->engine_store);
    store_free(store);
}

/* Whatever the locks still need to tell the store, all together within one clean-up time. */
static void release_all(hf_store *store)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), SETTLE_MS);
    struct error_text err;

    while (!list_empty(&store->locks))
        lock_release(LIST_ENTRY(store->locks.next, hf_lock, node), deadline_ms, &err);
}

void hf_close(hf_store *store)
{
    if (!store)
        return;
    if (store_forked(store)) {
        close_in_child(store);
        return;
    }
    pthread_mutex_lock(&store->mutex);
    /* hf_close inside a callback would wait for itself for ever. */
    INVARIANT(!store->running || !pthread_equal(store->runner, pthread_self()));
    store->closed = true;
    events_close(store); /* first, so that nobody is told of what the closing cancels */
    pthread_mutex_unlock(&store->mutex);
    hf_cancel_fire(&store->closing);
    events_join(store);
    watchdog_stop(store);
    tasks_join(store);
    pthread_mutex_lock(&store->mutex);
    while (store->acquisitions > 0)
        pthread_cond_wait(&store->changed, &store->mutex);
    pthread_mutex_unlock(&store->mutex);
    op_free_all(store, false);
    observer_free_all(store, false);
    release_all(store);
    forget_store(store);
    store->engine->close(store->engine_store);
    store_free(store);
}
