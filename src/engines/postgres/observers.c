/* observers.c: the places of observers, which the listener's thread keeps.
 *
 * Each is a row with a beat, so that whoever changes the holders knows whom to tell. When an observer ends, its row is removed. Of one that dies it
 * stays until somebody who acquires the lock finds it dead: until then it costs a notification for each change, which nobody hears. */
#include "base/clock.h"
#include "engines/postgres/store.h"

#include <stdlib.h>
#include <string.h>

#define ASK_MS 2000
#define AGAIN_MS 1000

struct observer {
    struct list node; /* of store->leaving */
    uint64_t serial;  /* of its claim */
    struct key key;
    unsigned char lease[32];
    int64_t id;
};

static struct observer observer_of(struct pg_claim *own)
{
    struct observer observer = {
        .serial = own->serial, .key = own->key, .id = atomic_load(&own->id)};

    memcpy(observer.lease, own->lease, sizeof observer.lease);
    return observer;
}

/* ---- their end ------------------------------------------------------------------------------- */

/* With the mutex. Out of memory, the place stays until it is found dead. */
static void add_leaving(struct engine_store *store, const struct observer *gone)
{
    struct observer *leaving = gone->id ? malloc(sizeof *leaving) : NULL;

    if (!leaving)
        return;
    *leaving = *gone;
    list_append(&store->leaving, &leaving->node);
}

void observers_leave(struct engine_store *store, struct pg_claim *own)
{
    struct observer gone = observer_of(own);

    add_leaving(store, &gone);
}

void observers_free(struct engine_store *store)
{
    LIST_EACH_SAFE(node, &store->leaving)
    {
        free(LIST_ENTRY(node, struct observer, node));
    }
    list_init(&store->leaving);
}

void observers_let_leave(struct engine_store *store, int64_t deadline_ms)
{
    for (;;) {
        struct question question = {.statement = STATEMENT_UNOBSERVE, .reads = true};
        struct observer *gone = NULL;
        PGresult *answer = NULL;
        struct error_text ignored;

        pthread_mutex_lock(&store->mutex);
        if (!list_empty(&store->leaving)) {
            gone = LIST_ENTRY(store->leaving.next, struct observer, node);
            list_remove(&gone->node);
        }
        pthread_mutex_unlock(&store->mutex);
        if (!gone)
            return;
        question_add_bytes(&question, gone->key.bytes, gone->key.size);
        question_add_number(&question, gone->id);
        question_add_bytes(&question, gone->lease, sizeof gone->lease);
        store_ask(store, &question, deadline_ms, &answer, &ignored);
        PQclear(answer);
        free(gone);
    }
}

/* ---- their renewal --------------------------------------------------------------------------- */

/* With the mutex: the first whose place is to be made or renewed. */
static bool find_due_observer(struct engine_store *store, int64_t now_ms, struct observer *ret_due)
{
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        if (!own->observes || own->renew_ms > now_ms)
            continue;
        own->renew_ms = clock_after(now_ms, PG_OBSERVER_TTL_MS / 3);
        *ret_due = observer_of(own);
        return true;
    }
    return false;
}

static void renew_observer(struct engine_store *store, const struct observer *due)
{
    struct question question = {.statement = STATEMENT_OBSERVE, .patience = true};
    int64_t id = 0, made = 0, sent_ms = clock_boot_ms(), deadline_ms = clock_after(sent_ms, ASK_MS);
    struct observer gone = *due;
    char host[PG_HOST_MAX];
    bool found = false;
    struct error_text ignored;
    PGresult *answer = NULL;
    int result = store_reach(store, deadline_ms, &ignored);

    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_bytes(&question, due->key.bytes, due->key.size);
    question_add_bytes(&question, due->lease, sizeof due->lease);
    question_add_bytes(&question, "", 0);
    question_add_number(&question, PG_OBSERVER_TTL_MS);
    question_add_number(&question, due->id);
    store_host(store, host);
    question_add_text(&question, host);
    question_add_number(&question, store_kernel_ms(store, sent_ms));
    if (result == HF_OK)
        result = store_ask_anyhow(store, &question, deadline_ms, &answer, &ignored);
    if (result == HF_OK &&
        (!answer_number(answer, 0, 0, &made) || !answer_number(answer, 0, 2, &id)))
        result = HF_EINTERNAL;
    PQclear(answer);
    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        if (own->serial != due->serial)
            continue;
        found = true;
        if (result == HF_OK) {
            atomic_store(&own->id, id);
            if (made == 1) /* from here on nothing is missed */
                store->host->nudge(store->host->context, own->claim);
        } else {
            own->renew_ms = clock_after(clock_boot_ms(), AGAIN_MS);
        }
        break;
    }
    if (!found && result == HF_OK) { /* it ended meanwhile */
        gone.id = id;
        add_leaving(store, &gone);
    }
    pthread_mutex_unlock(&store->mutex);
}

bool observers_renew_one(struct engine_store *store, int64_t now_ms)
{
    struct observer observer;
    bool due;

    pthread_mutex_lock(&store->mutex);
    due = find_due_observer(store, now_ms, &observer);
    pthread_mutex_unlock(&store->mutex);
    if (due)
        renew_observer(store, &observer);
    return due;
}
