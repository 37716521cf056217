/* notifications.c: what notifications say, and whom of the claims that listen they concern: listener.c. What comes:
 *
 *     w ID ID ...    these can go now          o ID ID ...    who holds has changed, for these observers
 *     b ID ID ...    these holds were broken   t NUMBER       a test of ours
 *     f INCARNATION  a floor has ended all that was held before it
 */
#include "base/clock.h"
#include "base/futex.h"
#include "engines/postgres/store.h"

#include <stdlib.h>
#include <string.h>

#define FLOOR_MS 1000

/* With the mutex. */
static void tell(struct engine_store *store, struct pg_claim *own)
{
    if (own->observes) {
        store->host->nudge(store->host->context, own->claim);
        return;
    }
    atomic_fetch_add(&own->bell, 1);
    futex_wake(&own->bell, FUTEX_MASK_ALL, 1);
}

void notifications_tell_all(struct engine_store *store, bool waiters)
{
    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        if (own->observes || (waiters && own->queued))
            tell(store, own);
    }
    pthread_mutex_unlock(&store->mutex);
}

void notifications_hand_over(struct engine_store *store, const struct key *key)
{
    struct pg_claim *first = NULL;

    if (atomic_load(&store->hears))
        return;
    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        if (own->queued && own->key.size == key->size &&
            memcmp(own->key.bytes, key->bytes, key->size) == 0 &&
            (!first || atomic_load(&own->id) < atomic_load(&first->id)))
            first = own;
    }
    if (first)
        tell(store, first);
    pthread_mutex_unlock(&store->mutex);
}

void notifications_tell_broken(struct engine_store *store, uint64_t serial)
{
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        if (own->serial != serial)
            continue;
        store->host->lost(store->host->context, own->claim, PG_BROKEN);
        return;
    }
}

/* With the mutex. Its row says whether it is that one: breaks.c. */
static void suspect(struct engine_store *store, struct pg_claim *own)
{
    own->suspect = true;
    store->suspects = true;
}

/* Where ids began again, claims of several names may have this one: whoever waits in vain only looks once more. */
static void take_id(struct engine_store *store, char kind, int64_t id)
{
    bool found = false;

    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        if (atomic_load(&own->id) != id)
            continue;
        found = true;
        if (kind == 'b')
            suspect(store, own);
        else
            tell(store, own);
    }
    if (!found && kind != 'o') /* perhaps it has not learnt its id yet, or was granted just now */
        store->news[store->news_count++ % PG_NEWS_MAX] = kind == 'b' ? -id : id;
}

/* It may have been long on its way, and another come after it: what counts is what an answer says, and asking is enough to have it noted. */
static void take_floor(struct engine_store *store, const char *incarnation)
{
    bool known;

    pthread_mutex_lock(&store->mutex);
    known = strcmp(store->incarnation, incarnation) == 0;
    pthread_mutex_unlock(&store->mutex);
    if (!known)
        floor_look(store, clock_after(clock_boot_ms(), FLOOR_MS));
}

static void take_payload(struct engine_store *store, const char *payload, uint64_t *test)
{
    const char *at = payload + 1;

    if (payload[0] == 't') {
        if (strtoull(at, NULL, 10) == *test)
            *test = 0;
        return;
    }
    if (payload[0] == 'f') {
        take_floor(store, at);
        return;
    }
    if (!payload[0])
        return;
    pthread_mutex_lock(&store->mutex);
    for (;;) {
        char *end;
        int64_t id = strtoll(at, &end, 10);

        if (end == at)
            break;
        take_id(store, payload[0], id);
        at = end;
    }
    pthread_mutex_unlock(&store->mutex);
}

bool notifications_take(struct engine_store *store, PGconn *pg, const char *channel, uint64_t *test)
{
    PGnotify *notify;

    if (!PQconsumeInput(pg))
        return false;
    while ((notify = PQnotifies(pg))) {
        if (strcmp(notify->relname, channel) == 0)
            take_payload(store, notify->extra, test);
        PQfreemem(notify);
    }
    return PQstatus(pg) == CONNECTION_OK;
}

/* An id of 0 is not known, as of one that was adopted. */
static bool was_told(struct engine_store *store, int64_t id)
{
    for (int i = 0; i < PG_NEWS_MAX && id != 0; i++)
        if (store->news[i] == id) {
            store->news[i] = 0;
            return true;
        }
    return false;
}

bool notifications_catch_up(struct engine_store *store, struct pg_claim *own, bool listens_now)
{
    if (own->queued && was_told(store, atomic_load(&own->id)))
        tell(store, own);
    if (!listens_now || own->queued || own->observes || !was_told(store, -atomic_load(&own->id)))
        return false;
    suspect(store, own);
    return true;
}
