/* losses.c: who has which hold, and is told when it is lost: by BREAK, by END, or because its lease ran out.
 *
 * A hold is had by the connection that acquired it or renewed its lease last, if that has asked for it (HELLO 3 LOSSES). This node
 * knows of it only from what it was asked itself: after a change of leader, or on another connection, the next RENEW tells it. */
#include "session/inside.h"

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

static struct holder *find(const struct sessions *sessions, uint64_t token)
{
    struct holder *holder = sessions->holders.count ? *chain_of(&sessions->holders, token) : NULL;

    while (holder && holder->token != token)
        holder = holder->next;
    return holder;
}

static struct holder *add(struct sessions *sessions, uint64_t token)
{
    struct holders *table = &sessions->holders;
    struct holder *holder = calloc(1, sizeof *holder);

    INVARIANT(holder != NULL);
    if (table->count >= table->capacity)
        grow(table);
    holder->token = token;
    holder->next = *chain_of(table, token);
    *chain_of(table, token) = holder;
    table->count++;
    list_init(&holder->of_session);
    return holder;
}

static void drop(struct sessions *sessions, struct holder *holder)
{
    struct holder **from = chain_of(&sessions->holders, holder->token);

    while (*from != holder)
        from = &(*from)->next;
    *from = holder->next;
    sessions->holders.count--;
    list_remove(&holder->of_session);
    free(holder);
}

void holder_set(struct session *session, uint64_t token)
{
    struct sessions *sessions = session->sessions;
    struct holder *holder = find(sessions, token);
    bool wants = session->losses && !session_is_closed(session);

    if (holder && holder->session == session)
        return;
    if (holder && !wants) { /* another one has it now, who does not want to know */
        drop(sessions, holder);
        return;
    }
    if (!wants)
        return;
    if (!holder)
        holder = add(sessions, token);
    holder->session = session;
    list_remove(&holder->of_session);
    list_append(&session->holders, &holder->of_session);
}

struct renewed {
    struct session *session;
    uint32_t left;
};

static bool on_token(void *context, uint64_t token)
{
    struct renewed *renewed = context;

    holder_set(renewed->session, token);
    return --renewed->left > 0;
}

void holder_renewed(struct session *session, struct core_text lease)
{
    struct renewed renewed = {session, LOSSES_PER_LEASE};

    if (session->losses || session->sessions->holders.count > 0)
        core_each_token(sessions_table(session->sessions), lease, on_token, &renewed);
}

void holder_ended(struct sessions *sessions, const struct core_effect *effect)
{
    struct holder *holder = find(sessions, effect->number);

    if (!holder)
        return;
    if (effect->why == WHY_BROKEN || effect->why == WHY_EXPIRED || effect->why == WHY_ENDED)
        session_lost(holder->session, effect);
    drop(sessions, holder);
}

void holders_drop(struct session *session)
{
    LIST_EACH_SAFE(node, &session->holders)
    drop(session->sessions, LIST_ENTRY(node, struct holder, of_session));
}
