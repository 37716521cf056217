/* pushing.c: how the test engine tells waiters, observers and holders that something changed, between
 * processes and without polling: a thread sleeps on the futex word in the mapping until somebody
 * changes the table or the next deadline in it passes. */
#include "inside.h"

#include "base/clock.h"
#include "base/futex.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PATIENCE_MS 10000

static uint64_t stamp_of(struct engine_store *store, const char *name)
{
    const struct table_name *slot = table_find_name(store->table, name);

    return slot ? slot->stamp : 0;
}

static bool is_due(struct engine_store *store, struct local *local)
{
    const struct table_claim *found;
    char scratch[TABLE_NAME_SIZE];
    uint64_t stamp;

    if (local->role == LOCAL_IDLE || (local->role == LOCAL_HELD && !store->push_lost) ||
        (local->role == LOCAL_WAITING && store->push == PUSH_NO))
        return false;
    if (local->role == LOCAL_HELD || (local->role == LOCAL_WAITING && store->queues)) {
        int normal = local->role == LOCAL_HELD ? CLAIM_HELD : CLAIM_QUEUED;

        found = table_find(store->table, local->claim->lease);
        return !found || found->state != normal;
    }
    stamp = stamp_of(store, name_in_table(local->claim, scratch));
    if (stamp == local->stamp)
        return false;
    local->stamp = stamp;
    return true;
}

/* Says to the client what has become due since the last look, and returns when to look again. The
 * table's mutex is not held while the client is told. */
static int64_t look(struct engine_store *store)
{
    int64_t next_ms;

    if (!table_lock(store->table, clock_boot_ms() + PATIENCE_MS))
        return clock_boot_ms() + 100;
    table_settle(store->table);
    next_ms = table_next_ms(store->table);
    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->locals)
    {
        struct local *local = LIST_ENTRY(node, struct local, node);

        local->due = is_due(store, local);
    }
    table_unlock(store->table);
    LIST_EACH(node, &store->locals)
    {
        struct local *local = LIST_ENTRY(node, struct local, node);

        if (!local->due)
            continue;
        if (local->role == LOCAL_HELD)
            store->host->lost(store->host->context, local->claim, "the test store ended it");
        else
            store->host->nudge(store->host->context, local->claim);
        if (local->role != LOCAL_OBSERVER)
            local->role = LOCAL_IDLE; /* once told, silent until the next attempt */
    }
    pthread_mutex_unlock(&store->mutex);
    return next_ms;
}

static int64_t next_deadline(struct engine_store *store)
{
    int64_t next_ms;

    if (!table_lock(store->table, clock_boot_ms() + PATIENCE_MS))
        return clock_boot_ms() + 100;
    table_settle(store->table);
    next_ms = table_next_ms(store->table);
    table_unlock(store->table);
    return next_ms;
}

static void *thread_main(void *arg)
{
    struct engine_store *store = arg;

    while (!atomic_load(&store->stop)) {
        uint32_t seen = atomic_load(&store->table->changes);
        int64_t next_ms;

        if (store->push == PUSH_POLL) {
            next_ms = next_deadline(store);
            if (eventfd_write(store->event_fd, 1) < 0)
                break;
        } else {
            next_ms = look(store);
        }
        futex_wait(&store->table->changes, seen, FUTEX_MASK_ALL, next_ms);
    }
    return NULL;
}

static int start_thread(struct engine_store *store, struct error_text *err)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&store->thread, NULL, thread_main, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return error_set_errno(err, HF_ENOMEM, failed, "test store: cannot start its thread");
    store->thread_runs = true;
    return HF_OK;
}

int pushing_register(struct engine_store *store, struct engine_claim *claim, int role,
                     struct error_text *err)
{
    struct local *local = claim->private;
    char scratch[TABLE_NAME_SIZE];
    int result = HF_OK;

    pthread_mutex_lock(&store->mutex);
    if (!local) {
        local = calloc(1, sizeof *local);
        if (!local) {
            pthread_mutex_unlock(&store->mutex);
            return error_set(err, HF_ENOMEM, "out of memory");
        }
        local->claim = claim;
        list_append(&store->locals, &local->node);
        claim->private = local;
    }
    local->role = role;
    local->stamp = stamp_of(store, name_in_table(claim, scratch));
    if ((store->push != PUSH_NO || role == LOCAL_OBSERVER) && !store->thread_runs)
        result = start_thread(store, err);
    pthread_mutex_unlock(&store->mutex);
    return result;
}

void pushing_forget(struct engine_store *store, struct engine_claim *claim)
{
    struct local *local = claim->private;

    if (!local)
        return;
    claim->private = NULL;
    if (store->forked) { /* the parent's threads may have held the mutex: it is nobody's now */
        free(local);
        return;
    }
    pthread_mutex_lock(&store->mutex);
    list_remove(&local->node);
    pthread_mutex_unlock(&store->mutex);
    free(local);
}

void pushing_stop(struct engine_store *store)
{
    if (!store->thread_runs || store->forked)
        return;
    atomic_store(&store->stop, true);
    table_changed(store->table);
    pthread_join(store->thread, NULL);
    store->thread_runs = false;
}

int pushing_poll_fd(struct engine_store *store)
{
    return store->push == PUSH_POLL ? store->event_fd : -1;
}

int64_t pushing_process(struct engine_store *store)
{
    eventfd_t value;

    if (store->push == PUSH_POLL && eventfd_read(store->event_fd, &value) == 0)
        look(store);
    return -1;
}
