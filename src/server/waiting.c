/* waiting.c: who waits at which place, and who watches which name: two tables of chains that double
 * when they are full. */
#include "server/server.h"

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

struct waiter *waiter_find(struct server *server, uint64_t ticket)
{
    struct waiter *waiter = server->waiters.count ? *chain_of(&server->waiters, ticket) : NULL;

    while (waiter && waiter->ticket != ticket)
        waiter = waiter->next;
    return waiter;
}

struct waiter *waiter_add(struct connection *connection, uint64_t ticket, uint32_t attachment,
                          struct request *request)
{
    struct waiters *table = &connection->server->waiters;
    struct waiter *waiter = calloc(1, sizeof *waiter);

    INVARIANT(waiter != NULL);
    if (table->count >= table->capacity)
        waiters_grow(table);
    waiter->ticket = ticket;
    waiter->attachment = attachment;
    waiter->connection = connection;
    waiter->request = request;
    waiter->next = *chain_of(table, ticket);
    *chain_of(table, ticket) = waiter;
    table->count++;
    list_init(&waiter->of_connection);
    list_append(&connection->waiters, &waiter->of_connection);
    if (request)
        connection->server->blocked_count++;
    else
        connection->waiting++;
    waiter->blocks = request != NULL;
    return waiter;
}

static void unlist(struct waiter *waiter)
{
    struct connection *connection = waiter->connection;
    struct waiters *table = &connection->server->waiters;
    struct waiter **from = chain_of(table, waiter->ticket);

    while (*from != waiter)
        from = &(*from)->next;
    *from = waiter->next;
    table->count--;
    list_remove(&waiter->of_connection);
    if (waiter->blocks)
        connection->server->blocked_count--;
    else
        connection->waiting--;
    if (connection->blocked == waiter)
        connection->blocked = NULL;
}

void waiter_remove(struct waiter *waiter)
{
    unlist(waiter);
    free(waiter);
}

void waiter_leave(struct waiter *waiter)
{
    struct server *server = waiter->connection->server;

    unlist(waiter);
    list_append(&server->leaving, &waiter->of_connection);
}

void waiters_leave(struct server *server)
{
    while (!list_empty(&server->leaving)) {
        struct waiter *waiter = LIST_ENTRY(server->leaving.next, struct waiter, of_connection);
        struct request *request = waiter->request;
        struct core_command command = {.op = CORE_LEAVE,
                                       .flags = request->once ? CORE_ONCE : 0,
                                       .name = request->words->word[0],
                                       .lease = request->words->word[1],
                                       .attachment = waiter->attachment};

        if (replica_submit(server->replica, &command, NULL) == HF_EBUSY)
            return;
        /* Where this node does not lead, the next leader's term starts the lease's time. */
        list_remove(&waiter->of_connection);
        request_free(server, request);
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

static struct observer *observer_find(struct connection *connection, struct core_text name,
                                      bool subscribed)
{
    struct observers *table = &connection->server->observers;
    struct observer *observer = table->count ? *observer_chain(table, name.bytes, name.size) : NULL;

    while (observer && !(observer->connection == connection && is_about(observer, name) &&
                         observer->subscribed == subscribed))
        observer = observer->next;
    return observer;
}

bool observer_add(struct connection *connection, struct core_text name, bool subscribed)
{
    struct observers *table = &connection->server->observers;
    struct observer *observer, **chain;

    if (observer_find(connection, name, subscribed))
        return true;
    if (connection->observing >= OBSERVED_MAX)
        return false;
    observer = calloc(1, sizeof *observer + name.size);
    INVARIANT(observer != NULL);
    if (table->count >= table->capacity)
        observers_grow(table);
    observer->connection = connection;
    observer->subscribed = subscribed;
    observer->size = name.size;
    memcpy(observer->name, name.bytes, name.size);
    chain = observer_chain(table, name.bytes, name.size);
    observer->next = *chain;
    *chain = observer;
    table->count++;
    list_init(&observer->of_connection);
    list_append(&connection->observers, &observer->of_connection);
    connection->observing++;
    connection->subscriptions += subscribed;
    return true;
}

void observer_drop(struct observer *observer)
{
    struct connection *connection = observer->connection;
    struct observers *table = &connection->server->observers;
    struct observer **from = observer_chain(table, observer->name, observer->size);

    while (*from != observer)
        from = &(*from)->next;
    *from = observer->next;
    table->count--;
    connection->observing--;
    connection->subscriptions -= observer->subscribed;
    list_remove(&observer->of_connection);
    free(observer);
}

bool observer_remove(struct connection *connection, struct core_text name, bool subscribed)
{
    struct observer *observer = observer_find(connection, name, subscribed);

    if (observer)
        observer_drop(observer);
    return observer != NULL;
}

void observers_each(struct server *server, struct core_text name,
                    void (*fn)(struct observer *observer, void *context), void *context)
{
    struct observer *observer = *observer_chain(&server->observers, name.bytes, name.size);

    for (; observer; observer = observer->next)
        if (is_about(observer, name))
            fn(observer, context);
}
