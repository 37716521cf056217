/* leftovers.c: what others left, of whom nobody asks any more.
 *
 *     a release, now and then ──▶ some claims of a page ──▶ dead: swept away
 *                                                      └──▶ not seen before: noted, for whoever of this host comes there next
 *
 * A dead claim goes when somebody comes to its name and has seen it for its span, or comes from its own host. To names that are used once nobody
 * comes, and what died over them would stay: holders, places, marks. So a part of those who release look at a page, whichever, as in once.c.
 * A claim costs two looks from one host. What a look costs does not depend on how many there are. */
#include "base/clock.h"
#include "base/random.h"
#include "engines/postgres/store.h"

#include <stdlib.h>

#define LOOK_PART 64  /* of those who release, one looks, */
#define LOOK_COUNT 32 /* at so many */
#define LOOK_MS 500

/* Elements of arrays, side by side. */
struct columns {
    struct text names, ids, beats, times;
    int count;
};

static void columns_begin(struct columns *columns)
{
    text_add(&columns->names, "{");
    text_add(&columns->ids, "{");
    text_add(&columns->beats, "{");
    text_add(&columns->times, "{");
}

static void columns_add(struct columns *columns, const char *name, size_t size,
                        const struct sighting *sighting, int64_t kernel_ms)
{
    text_add_name(&columns->names, name, size);
    text_add_number(&columns->ids, sighting->id);
    text_add_number(&columns->beats, sighting->beat);
    text_add_number(&columns->times, kernel_ms);
    columns->count++;
}

/* False: out of memory. */
static bool columns_end(struct columns *columns)
{
    text_add(&columns->names, "}");
    text_add(&columns->ids, "}");
    text_add(&columns->beats, "}");
    text_add(&columns->times, "}");
    return !columns->names.failed && !columns->ids.failed && !columns->beats.failed &&
           !columns->times.failed;
}

static void columns_drop(struct columns *columns)
{
    text_drop(&columns->names);
    text_drop(&columns->ids);
    text_drop(&columns->beats);
    text_drop(&columns->times);
}

/* Columns of an answer. */
enum column { COLUMN_NAME, COLUMN_ID };

static void sort_out(struct engine_store *store, uint32_t era, int64_t arrived_ms,
                     const PGresult *answer, struct columns *dead, struct columns *unnoted)
{
    for (int i = 0; i < PQntuples(answer); i++) {
        int64_t shown[SIGHTING_NUMBERS];
        struct sighting sighting;
        size_t size = 0;
        char *name = answer_hex(answer, i, COLUMN_NAME, HF_NAME_MAX + 1, &size);
        bool well = name != NULL;

        for (int n = 0; n < SIGHTING_NUMBERS; n++)
            well = well && answer_number(answer, i, COLUMN_ID + n, &shown[n]);
        if (well) {
            sightings_note(store, era, arrived_ms, shown, &sighting);
            if (arrived_ms - sighting.since_ms >= sighting.span_ms)
                columns_add(dead, name, size, &sighting, 0);
            else if (!sighting.noted)
                columns_add(unnoted, name, size, &sighting,
                            store_kernel_ms(store, sighting.since_ms));
        }
        free(name);
    }
}

/* Nobody minds if that fails. */
static void tell(struct engine_store *store, struct question *question, uint32_t era)
{
    struct error_text ignored;
    PGresult *answer = NULL;

    question->dated = true;
    question->era = era;
    store_ask(store, question, clock_after(clock_boot_ms(), LOOK_MS), &answer, &ignored);
    PQclear(answer);
}

static void sweep(struct engine_store *store, uint32_t era, const struct columns *dead)
{
    struct question question = {.statement = STATEMENT_SWEEP_MANY,
                                .patience = true,
                                .reads = true}; /* done twice it does the same */

    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_text(&question, dead->names.bytes);
    question_add_text(&question, dead->ids.bytes);
    question_add_text(&question, dead->beats.bytes);
    tell(store, &question, era);
}

static void note(struct engine_store *store, uint32_t era, const char *host,
                 const struct columns *unnoted)
{
    struct question question = {.statement = STATEMENT_NOTE_MANY};

    question_add_expected(&question);
    question_add_text(&question, host);
    question_add_text(&question, unnoted->names.bytes);
    question_add_text(&question, unnoted->ids.bytes);
    question_add_text(&question, unnoted->beats.bytes);
    question_add_text(&question, unnoted->times.bytes);
    tell(store, &question, era);
}

void leftovers_look(struct engine_store *store)
{
    struct question question = {.statement = STATEMENT_SOME_CLAIMS, .reads = true};
    struct columns dead = {.count = 0}, unnoted = {.count = 0};
    uint32_t era = store_era(store);
    struct error_text ignored;
    PGresult *answer = NULL;
    char host[PG_HOST_MAX];

    if (random_below(LOOK_PART) != 0 || atomic_load(&store->outdated))
        return;
    store_host(store, host); /* first, as in note_seen */
    question_add_number(&question, LOOK_COUNT);
    question_add_text(&question, host);
    if (store_ask(store, &question, clock_after(clock_boot_ms(), LOOK_MS), &answer, &ignored) !=
        HF_OK)
        return;
    columns_begin(&dead);
    columns_begin(&unnoted);
    sort_out(store, era, clock_boot_ms(), answer, &dead, &unnoted);
    PQclear(answer);
    if (columns_end(&dead) && dead.count > 0)
        sweep(store, era, &dead);
    if (columns_end(&unnoted) && unnoted.count > 0)
        note(store, era, host, &unnoted);
    columns_drop(&dead);
    columns_drop(&unnoted);
}
