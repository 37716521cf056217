/* breaks.c: which holds an operator has broken, as their rows say.
 *
 * A break is told by a notification (listener.c), which reaches only those who listen by then: most holds are over before that is worth a
 * connection, and nobody while the listener makes its connection anew. So the rows are looked at once when listening begins; and of a hold that a
 * renewal finds gone, for the reason. Where `break --now` has removed the row, the mark that it leaves is found.
 *
 * A notification has ids only, and where these began again two names may have the same one: the row says which hold it was. */
#include "base/clock.h"
#include "engines/postgres/store.h"

#include <stdlib.h>

#define LOOK_MS 1000
#define AT_ONCE_MAX 256 /* holds in one question */

struct suspects {
    struct text names, leases;     /* arrays; begin with "{" */
    uint64_t serials[AT_ONCE_MAX]; /* of those that are listed */
    int count;
};

static void begin(struct suspects *suspects)
{
    suspects->names = suspects->leases = (struct text){0};
    suspects->count = 0;
    text_add(&suspects->names, "{");
    text_add(&suspects->leases, "{");
}

static void add(struct suspects *suspects, const struct pg_claim *own)
{
    text_add_name(&suspects->names, own->key.bytes, own->key.size);
    text_add_name(&suspects->leases, own->lease, sizeof own->lease);
    suspects->count++;
}

/* Of each that is broken, or gone, its number from 1. NULL: none is known to be. */
static PGresult *ask(struct engine_store *store, struct suspects *suspects, int64_t deadline_ms)
{
    struct question question = {.statement = STATEMENT_BROKEN, .reads = true};
    struct error_text ignored;
    PGresult *answer = NULL;

    text_add(&suspects->names, "}");
    text_add(&suspects->leases, "}");
    if (suspects->count > 0 && !suspects->names.failed && !suspects->leases.failed) {
        question_add_text(&question, suspects->names.bytes);
        question_add_text(&question, suspects->leases.bytes);
        if (store_ask(store, &question, deadline_ms, &answer, &ignored) != HF_OK) {
            PQclear(answer);
            answer = NULL;
        }
    }
    text_drop(&suspects->names);
    text_drop(&suspects->leases);
    return answer;
}

static bool was_broken(const PGresult *answer, int row)
{
    return answer_text(answer, row, 1)[0] == 't';
}

/* From the one after *serial on, in the order in which they came. False: those were all. */
static bool collect_held(struct engine_store *store, bool told, uint64_t *serial,
                         struct suspects *suspects)
{
    begin(suspects);
    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->listening)
    {
        struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        if (own->serial <= *serial || suspects->count == AT_ONCE_MAX)
            continue;
        *serial = own->serial;
        if (!own->observes && !own->queued && (own->suspect || !told)) {
            suspects->serials[suspects->count] = own->serial;
            add(suspects, own);
        }
        own->suspect = false;
    }
    pthread_mutex_unlock(&store->mutex);
    return suspects->count == AT_ONCE_MAX;
}

/* told: only those whose id was told of. Where no answer comes, the next renewal finds out. */
static void look(struct engine_store *store, bool told)
{
    struct suspects suspects;
    uint64_t serial = 0;
    bool more = true;

    while (more) {
        PGresult *answer;
        int64_t n;

        more = collect_held(store, told, &serial, &suspects);
        answer = ask(store, &suspects, clock_after(clock_boot_ms(), LOOK_MS));
        pthread_mutex_lock(&store->mutex);
        for (int row = 0; answer && row < PQntuples(answer); row++)
            if (answer_number(answer, row, 0, &n) && n >= 1 && n <= suspects.count &&
                (told || was_broken(answer, row)))
                notifications_tell_broken(store, suspects.serials[n - 1]);
        more = more && answer && !store->stop;
        pthread_mutex_unlock(&store->mutex);
        PQclear(answer);
    }
}

static bool somebody_holds(struct engine_store *store)
{
    bool holds = false;

    pthread_mutex_lock(&store->mutex);
    LIST_EACH(node, &store->listening)
    {
        const struct pg_claim *own = LIST_ENTRY(node, struct pg_claim, node);

        holds = holds || (!own->observes && !own->queued);
    }
    pthread_mutex_unlock(&store->mutex);
    return holds;
}

/* A floor is told by a notification, too, and by nothing in the rows of those whom it has ended. */
void breaks_look(struct engine_store *store)
{
    if (!somebody_holds(store))
        return;
    floor_look(store, clock_after(clock_boot_ms(), LOOK_MS));
    look(store, false);
}

void breaks_look_at_suspects(struct engine_store *store)
{
    look(store, true);
}

/* The n-th that is gone, from 1; NULL: there are not so many. */
static struct engine_claim *nth_gone(struct engine_claim *const *claims, int count,
                                     const int64_t *left_ms, int64_t n)
{
    for (int i = 0; i < count; i++)
        if (left_ms[i] == ENGINE_GONE && --n == 0)
            return claims[i];
    return NULL;
}

void breaks_explain(struct engine_store *store, struct engine_claim *const *claims, int count,
                    const int64_t *left_ms, int64_t deadline_ms)
{
    struct suspects suspects;
    PGresult *answer;
    int64_t n;

    begin(&suspects);
    for (int i = 0; i < count; i++)
        if (left_ms[i] == ENGINE_GONE)
            add(&suspects, claims[i]->private);
    answer = ask(store, &suspects, deadline_ms);
    for (int row = 0; answer && row < PQntuples(answer); row++) {
        struct engine_claim *claim = was_broken(answer, row) && answer_number(answer, row, 0, &n)
                                         ? nth_gone(claims, count, left_ms, n)
                                         : NULL;

        if (claim)
            store->host->lost(store->host->context, claim, PG_BROKEN);
    }
    PQclear(answer);
}
