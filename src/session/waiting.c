/* waiting.c: who waits at which place, and who watches which name: two tables of chains that double
 * when they are full. */
#include "session/inside.h"

#include <stdlib.h>
#include <string.h>

#define CHAINS_MIN 64u

/* ---- places -------------------------------------------------------------------------------------- */

static struct waiter **chain_of(const struct waiters *table, uint64_t ticket)
{
    return &table->chains[ticket & (table->capacity - 1)];
}

static void waiters_grow(struct waiters *table)
{
    struct waiters grown = {.capacity = table->capacity ? 2 * table->capacity : CHAINS_MIN,
                            .count = table->count};

    grown.chains = calloc(grown.capacity, sizeof *grown.chains);
    INVARIANT(grown.chains != NULL);
    for (uint32_t i = 0; i < table->capacity; i++)
        while (table->chains[i]) {
            struct waiter *waiter = table->chains[i];

            table->chains[i] = waiter->next;
            waiter->next = *chain_of(&grown, waiter->ticket);
            *chain_of(&grown, waiter->ticket) = waiter;
        }
    free(table->chains);
    *table = grown;
}

struct waiter *waiter_find(struct sessions *sessions, uint64_t ticket)
{
    struct waiter *waiter = sessions->waiters.count ? *chain_of(&sessions->waiters, ticket) : NULL;

    while (waiter && waiter->ticket != ticket)
        waiter = waiter->next;
    return waiter;
}

struct waiter *waiter_add(struct session *session, uint64_t ticket, uint32_t attachment,
                          struct request *request)
{
    struct waiters *table = &session->sessions->waiters;
    struct waiter *waiter = calloc(1, sizeof *waiter);

    INVARIANT(waiter != NULL);
    if (table->count >= table->capacity)
        waiters_grow(table);
    waiter->ticket = ticket;
    waiter->attachment = attachment;
    waiter->session = session;
    waiter->request = request;
    waiter->next = *chain_of(table, ticket);
    *chain_of(table, ticket) = waiter;
    table->count++;
    list_init(&waiter->of_session);
    list_append(&session->waiters, &waiter->of_session);
    if (request)
        session->sessions->blocked_count++;
    else
        session->waiting++;
    waiter->blocks = request != NULL;
    return waiter;
}

static void unlist(struct waiter *waiter)
{
    struct session *session = waiter->session;
    struct waiters *table = &session->sessions->waiters;
    struct waiter **from = chain_of(table, waiter->ticket);

    while (*from != waiter)
        from = &(*from)->next;
    *from = waiter->next;
    table->count--;
    list_remove(&waiter->of_session);
    if (waiter->blocks)
        session->sessions->blocked_count--;
    else
        session->waiting--;
    if (session->blocked == waiter)
        session->blocked = NULL;
}

void waiter_remove(struct waiter *waiter)
{
    unlist(waiter);
    free(waiter);
}

void waiter_leave(struct waiter *waiter)
{
    struct sessions *sessions = waiter->session->sessions;

    unlist(waiter);
    list_append(&sessions->leaving, &waiter->of_session);
}

void sessions_leave(struct sessions *sessions)
{
    while (!list_empty(&sessions->leaving)) {
        struct waiter *waiter = LIST_ENTRY(sessions->leaving.next, struct waiter, of_session);
        struct request *request = waiter->request;
        struct core_command command = {.op = CORE_LEAVE,
                                       .flags = request->once ? CORE_ONCE : 0,
                                       .name = request->words->word[0],
                                       .lease = request->words->word[1],
                                       .attachment = waiter->attachment};

        if (sessions->host->submit(sessions->context, &command, NULL) == HF_EBUSY)
            return;
        /* Where this node does not lead, the next leader's term starts the lease's time. */
        list_remove(&waiter->of_session);
        request_free(sessions, request);
        free(waiter);
    }
}

void waiters_free_leaving(struct sessions *sessions)
{
    while (!list_empty(&sessions->leaving)) {
        struct waiter *waiter = LIST_ENTRY(sessions->leaving.next, struct waiter, of_session);

        list_remove(&waiter->of_session);
        request_free(sessions, waiter->request);
        free(waiter);
    }
}

/* ---- names --------------------------------------------------------------------------------------- */

static struct observer **observer_chain(const struct observers *table, const char *name,
                                        size_t size)
{
    return &table->chains[siphash(table->seed, 0, name, size) & (table->capacity - 1)];
}

static void observers_grow(struct observers *table)
{
    struct observers grown = {.capacity = table->capacity ? 2 * table->capacity : CHAINS_MIN,
                              .count = table->count};

    memcpy(grown.seed, table->seed, sizeof grown.seed);
    grown.chains = calloc(grown.capacity, sizeof *grown.chains);
    INVARIANT(grown.chains != NULL);
    for (uint32_t i = 0; i < table->capacity; i++)
        while (table->chains[i]) {
            struct observer *observer = table->chains[i];
            struct observer **to = observer_chain(&grown, observer->name, observer->size);

            table->chains[i] = observer->next;
            observer->next = *to;
            *to = observer;
        }
    free(table->chains);
    *table = grown;
}

static bool is_about(const struct observer *observer, struct core_text name)
{
    return observer->size == name.size && memcmp(observer->name, name.bytes, name.size) == 0;
}

static struct observer *observer_find(struct session *session, struct core_text name,
                                      bool subscribed)
{
    struct observers *table = &session->sessions->observers;
    struct observer *observer = table->count ? *observer_chain(table, name.bytes, name.size) : NULL;

    while (observer && !(observer->session == session && is_about(observer, name) &&
                         observer->subscribed == subscribed))
        observer = observer->next;
    return observer;
}

bool observer_add(struct session *session, struct core_text name, bool subscribed)
{
    struct observers *table = &session->sessions->observers;
    struct observer *observer, **chain;

    if (observer_find(session, name, subscribed))
        return true;
    if (session->observing >= OBSERVED_MAX)
        return false;
    observer = calloc(1, sizeof *observer + name.size);
    INVARIANT(observer != NULL);
    if (table->count >= table->capacity)
        observers_grow(table);
    observer->session = session;
    observer->subscribed = subscribed;
    observer->size = name.size;
    memcpy(observer->name, name.bytes, name.size);
    chain = observer_chain(table, name.bytes, name.size);
    observer->next = *chain;
    *chain = observer;
    table->count++;
    list_init(&observer->of_session);
    list_append(&session->observers, &observer->of_session);
    session->observing++;
    session->subscriptions += subscribed;
    return true;
}

void observer_drop(struct observer *observer)
{
    struct session *session = observer->session;
    struct observers *table = &session->sessions->observers;
    struct observer **from = observer_chain(table, observer->name, observer->size);

    while (*from != observer)
        from = &(*from)->next;
    *from = observer->next;
    table->count--;
    session->observing--;
    session->subscriptions -= observer->subscribed;
    list_remove(&observer->of_session);
    free(observer);
}

bool observer_remove(struct session *session, struct core_text name, bool subscribed)
{
    struct observer *observer = observer_find(session, name, subscribed);

    if (observer)
        observer_drop(observer);
    return observer != NULL;
}

void observers_each(struct sessions *sessions, struct core_text name,
                    void (*fn)(struct observer *observer, void *context), void *context)
{
    struct observer *observer = *observer_chain(&sessions->observers, name.bytes, name.size);

    for (; observer; observer = observer->next)
        if (is_about(observer, name))
            fn(observer, context);
}
