/* losses.c: who has which hold, and is told when it is lost: by BREAK, by END, or because its lease ran out.
 *
 * A hold is had by the connection that acquired it or renewed its lease last, if that has asked for it (HELLO 3 LOSSES). This node
 * knows of it only from what it was asked itself: after a change of leader, or on another connection, the next RENEW tells it. */
#include "server/server.h"

#include <stdlib.h>

#define CHAINS_MIN 64u

static struct holder **chain_of(const struct holders *table, uint64_t token)
{
    return &table->chains[token & (table->capacity - 1)];
}

static void grow(struct holders *table)
{
    struct holders grown = {.capacity = table->capacity ? 2 * table->capacity : CHAINS_MIN,
                            .count = table->count};

    grown.chains = calloc(grown.capacity, sizeof *grown.chains);
    INVARIANT(grown.chains != NULL);
    for (uint32_t i = 0; i < table->capacity; i++)
        while (table->chains[i]) {
            struct holder *holder = table->chains[i];

            table->chains[i] = holder->next;
            holder->next = *chain_of(&grown, holder->token);
            *chain_of(&grown, holder->token) = holder;
        }
    free(table->chains);
    *table = grown;
}

static struct holder *find(const struct server *server, uint64_t token)
{
    struct holder *holder = server->holders.count ? *chain_of(&server->holders, token) : NULL;

    while (holder && holder->token != token)
        holder = holder->next;
    return holder;
}

static struct holder *add(struct server *server, uint64_t token)
{
    struct holders *table = &server->holders;
    struct holder *holder = calloc(1, sizeof *holder);

    INVARIANT(holder != NULL);
    if (table->count >= table->capacity)
        grow(table);
    holder->token = token;
    holder->next = *chain_of(table, token);
    *chain_of(table, token) = holder;
    table->count++;
    list_init(&holder->of_connection);
    return holder;
}

static void drop(struct server *server, struct holder *holder)
{
    struct holder **from = chain_of(&server->holders, holder->token);

    while (*from != holder)
        from = &(*from)->next;
    *from = holder->next;
    server->holders.count--;
    list_remove(&holder->of_connection);
    free(holder);
}

void holder_set(struct connection *connection, uint64_t token)
{
    struct server *server = connection->server;
    struct holder *holder = find(server, token);
    bool wants = connection->losses && !connection->closed;

    if (holder && holder->connection == connection)
        return;
    if (holder && !wants) { /* another one has it now, who does not want to know */
        drop(server, holder);
        return;
    }
    if (!wants)
        return;
    if (!holder)
        holder = add(server, token);
    holder->connection = connection;
    list_remove(&holder->of_connection);
    list_append(&connection->holders, &holder->of_connection);
}

struct renewed {
    struct connection *connection;
    uint32_t left;
};

static bool on_token(void *context, uint64_t token)
{
    struct renewed *renewed = context;

    holder_set(renewed->connection, token);
    return --renewed->left > 0;
}

void holder_renewed(struct connection *connection, struct core_text lease)
{
    struct renewed renewed = {connection, LOSSES_PER_LEASE};

    if (connection->losses || connection->server->holders.count > 0)
        core_each_token(replica_table(connection->server->replica), lease, on_token, &renewed);
}

/* >5 lost name lease token why */
static void push_lost(struct connection *connection, const struct core_effect *effect,
                      const char *why)
{
    struct resp_writer *out = &connection->out;

    resp_write_push(out, 5, true);
    resp_write_text(out, "lost");
    resp_write_blob(out, effect->name.bytes, effect->name.size);
    resp_write_blob(out, effect->lease.bytes, effect->lease.size);
    resp_write_integer(out, (int64_t)effect->number);
    resp_write_text(out, why);
    connection_dirty(connection);
}

void holder_ended(struct server *server, const struct core_effect *effect, const char *why)
{
    struct holder *holder = find(server, effect->number);

    if (!holder)
        return;
    if (effect->why == WHY_BROKEN || effect->why == WHY_EXPIRED || effect->why == WHY_ENDED)
        push_lost(holder->connection, effect, why);
    drop(server, holder);
}

void holders_drop(struct connection *connection)
{
    LIST_EACH_SAFE(node, &connection->holders)
    drop(connection->server, LIST_ENTRY(node, struct holder, of_connection));
}
