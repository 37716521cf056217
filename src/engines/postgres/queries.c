/* queries.c: asking about locks, and the operator's ways out.
 *
 * Whoever asks has seen something, too: a claim that it knows to be dead is removed first, and then the answer is that of the database. */
#include "base/clock.h"
#include "engines/postgres/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 1000
#define BREAK_MS 10000
#define DIGEST_DIGITS 16 /* of a lease, for people */
#define NOTE_MS 500      /* for what nobody waits for */

/* Columns of show and list. */
enum column {
    COLUMN_NOW,
    COLUMN_ID,
    COLUMN_BEAT,
    COLUMN_SPAN,
    COLUMN_AT,
    COLUMN_MODE,
    COLUMN_PERMITS,
    COLUMN_TOKEN,
    COLUMN_STATE,
    COLUMN_OWNER,
    COLUMN_LEASE,
    COLUMN_AGE,
    COLUMN_NAME
};

/* In COLUMN_STATE. */
enum claim_state {
    STATE_HOLDS = 'h', /* or waits */
    STATE_BROKEN = 'b',
    STATE_ENTERED = 'e', /* broken, and a transaction that entered with it has not ended */
    STATE_OTHER = 'o' /* another incarnation granted it: its holder has lost it, and may not know */
};

int pg_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms, struct error_text *err)
{
    struct question question = {.statement = STATEMENT_HELLO, .reads = true};
    PGresult *answer = NULL;
    const char *incarnation;
    int result = store_reach(store, deadline_ms, err);

    if (result == HF_OK)
        result = store_ask(store, &question, deadline_ms, &answer, err);
    if (result != HF_OK)
        return result;
    incarnation = answer_text(answer, 0, 1);
    if (schema_is_incarnation(incarnation))
        snprintf(ret_id, 65, "%s", incarnation);
    else
        result = error_set(err, HF_EINTERNAL, "the server does not say which one it is");
    PQclear(answer);
    return result;
}

/* ---- what is only noted, what is removed ----------------------------------------------------- */

void note_seen(struct engine_store *store, uint32_t era, const struct key *key,
               const struct sighting *list, int count)
{
    struct question question = {.statement = STATEMENT_NOTE};
    struct text ids = {0}, beats = {0}, times = {0};
    struct error_text ignored;
    PGresult *answer = NULL;
    char host[PG_HOST_MAX];
    int unnoted = sightings_unnoted(store, list, count, &ids, &beats, &times);

    store_host(
        store,
        host); /* first: what was seen of another server must not pass for what this one has */
    question_add_expected(&question);
    question_add_bytes(&question, key->bytes, key->size);
    question_add_text(&question, host);
    question_add_text(&question, ids.bytes);
    question_add_text(&question, beats.bytes);
    question_add_text(&question, times.bytes);
    if (unnoted > 0 && era == store_era(store) && !ids.failed && !beats.failed && !times.failed)
        store_ask(store, &question, clock_after(clock_boot_ms(), NOTE_MS), &answer, &ignored);
    PQclear(answer);
    text_drop(&ids);
    text_drop(&beats);
    text_drop(&times);
}

int sweep_dead(struct engine_store *store, uint32_t era, const struct key *key,
               const struct sighting *list, int count, int64_t forget, int64_t deadline_ms,
               struct error_text *err)
{
    struct question question = {.statement = STATEMENT_SWEEP,
                                .patience = true,
                                .dated = true,
                                .era = era,
                                .reads = true}; /* done twice it does the same */
    struct text ids = {0}, beats = {0};
    int64_t now_ms = clock_boot_ms(), next_ms;
    PGresult *answer = NULL;
    int dead = sightings_dead(list, count, now_ms, &ids, &beats, &next_ms), result = HF_OK;

    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_bytes(&question, key->bytes, key->size);
    question_add_text(&question, ids.bytes);
    question_add_text(&question, beats.bytes);
    question_add_number(&question, forget);
    if (ids.failed || beats.failed)
        result = error_set(err, HF_ENOMEM, "out of memory");
    else if (dead > 0 || forget > 0)
        result = store_ask(store, &question, deadline_ms, &answer, err);
    PQclear(answer);
    text_drop(&ids);
    text_drop(&beats);
    if (result == HF_ESTORE)
        return 0; /* then nobody knows of anybody that it is dead */
    return result != HF_OK ? result : dead > 0 || forget > 0;
}

/* ---- show and list --------------------------------------------------------------------------- */

static int read_entry(const PGresult *answer, int row, const char *name,
                      char owner[HF_OWNER_MAX + 1], char digest[DIGEST_DIGITS + 1],
                      hf_entry *ret_entry, struct error_text *err)
{
    int64_t token = 0, permits = 0, age_ms = -1;
    char state = answer_text(answer, row, COLUMN_STATE)[0];
    bool withheld = state != STATE_HOLDS;
    char mode = answer_text(answer, row, COLUMN_MODE)[0];
    size_t size = 0;
    char *bytes = answer_hex(answer, row, COLUMN_OWNER, HF_OWNER_MAX, &size);

    if (!bytes)
        return error_set(err, HF_ENOMEM, "out of memory, or a row is damaged");
    memcpy(owner, bytes, size + 1);
    free(bytes);
    snprintf(digest, DIGEST_DIGITS + 1, "%s", answer_text(answer, row, COLUMN_LEASE));
    answer_number(answer, row, COLUMN_TOKEN, &token);
    answer_number(answer, row, COLUMN_PERMITS, &permits);
    answer_number(answer, row, COLUMN_AGE, &age_ms);
    *ret_entry = (hf_entry){.size = sizeof *ret_entry,
                            .kind = withheld    ? HF_ENTRY_WITHHELD
                                    : token > 0 ? HF_ENTRY_HOLDER
                                                : HF_ENTRY_WAITER,
                            .mode = mode == 's'   ? HF_SHARED
                                    : mode == 'p' ? HF_PERMIT
                                                  : HF_EXCLUSIVE,
                            .permits = (uint32_t)permits,
                            .name = name,
                            .token = withheld ? 0 : (uint64_t)token,
                            .owner = withheld ? "" : owner,
                            .lease = digest,
                            .age_ms = age_ms < 0 ? 0 : age_ms,
                            .left_ms = mode == 'r' ? HF_UNLIMITED : -1,
                            .withheld = state == STATE_ENTERED ? HF_WITHHELD_ENTERED
                                        : state == STATE_OTHER ? HF_WITHHELD_OTHER
                                                               : HF_WITHHELD_DELAY};
    return HF_OK;
}

/* token: only the row of that hold, which the first few thousand need not have; 0: all of these. */
static int ask_rows(struct engine_store *store, const struct key *key, uint64_t token,
                    int64_t deadline_ms, uint32_t *ret_era, PGresult **ret_answer,
                    struct error_text *err)
{
    struct question question = {.statement = token ? STATEMENT_CHECK : STATEMENT_SHOW,
                                .reads = true};
    char host[PG_HOST_MAX];
    int result = store_reach(store, deadline_ms, err);

    if (result != HF_OK)
        return result;
    *ret_era = store_era(store);
    store_host(store, host);
    question_add_bytes(&question, key->bytes, key->size);
    question_add_text(&question, host);
    if (token)
        question_add_number(&question, (int64_t)token);
    return store_ask(store, &question, deadline_ms, ret_answer, err);
}

/* What is seen with them. ret_list: one for each row that there is. */
static int see_rows(struct engine_store *store, uint32_t era, const PGresult *answer,
                    struct sighting **ret_list)
{
    int64_t arrived_ms = clock_boot_ms();
    int count = 0, rows = PQntuples(answer);
    struct sighting *list = calloc((size_t)rows + 1, sizeof *list);

    for (int i = 0; list && i < rows; i++) {
        int64_t shown[SIGHTING_NUMBERS];
        bool there = true;

        if (answer_text(answer, i, COLUMN_MODE)[0] == 'r') /* that ends with its connection */
            continue;
        for (int n = 0; n < SIGHTING_NUMBERS; n++)
            there = there && answer_number(answer, i, COLUMN_ID + n, &shown[n]);
        if (there)
            sightings_note(store, era, arrived_ms, shown, &list[count++]);
    }
    *ret_list = list;
    return count;
}

/* The rows of a key, or that of one token, without those that are dead. */
static int live_rows(struct engine_store *store, const struct key *key, uint64_t token,
                     int64_t deadline_ms, PGresult **ret_answer, struct error_text *err)
{
    struct sighting *list = NULL;
    uint32_t era = 0;
    int count, swept, result = ask_rows(store, key, token, deadline_ms, &era, ret_answer, err);

    if (result != HF_OK)
        return result;
    count = see_rows(store, era, *ret_answer, &list);
    swept = list ? sweep_dead(store, era, key, list, count, 0, deadline_ms, err) : 0;
    if (list && swept == 0) /* whoever asks from here a TTL later, and nobody else may, knows it */
        note_seen(store, era, key, list, count);
    free(list);
    if (swept == 0)
        return HF_OK;
    PQclear(*ret_answer);
    *ret_answer = NULL;
    return swept < 0 ? swept : ask_rows(store, key, token, deadline_ms, &era, ret_answer, err);
}

int sweep_name(struct engine_store *store, const struct key *key, int64_t deadline_ms)
{
    struct error_text ignored;
    struct sighting *list = NULL;
    PGresult *answer = NULL;
    uint32_t era = 0;
    int count, swept = 0;

    if (ask_rows(store, key, 0, deadline_ms, &era, &answer, &ignored) != HF_OK)
        return 0;
    count = see_rows(store, era, answer, &list);
    PQclear(answer);
    if (list)
        swept = sweep_dead(store, era, key, list, count, 0, deadline_ms, &ignored);
    if (list && swept == 0)
        note_seen(store, era, key, list, count);
    free(list);
    return swept;
}

int show_key(struct engine_store *store, const struct key *key, const char *name,
             const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    char owner[HF_OWNER_MAX + 1], digest[DIGEST_DIGITS + 1];
    PGresult *answer = NULL;
    bool withheld = false;
    int result = live_rows(store, key, 0, deadline_ms, &answer, err);

    for (int i = 0; result == HF_OK && i < PQntuples(answer); i++) {
        hf_entry entry;

        if (PQgetisnull(answer, i, COLUMN_ID))
            continue;
        result = read_entry(answer, i, name, owner, digest, &entry, err);
        if (result != HF_OK ||
            (entry.kind == HF_ENTRY_WITHHELD && withheld)) /* one stands for all */
            continue;
        withheld = withheld || entry.kind == HF_ENTRY_WITHHELD;
        result = sink->add(sink->context, &entry);
    }
    PQclear(answer);
    return result;
}

int pg_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err)
{
    struct key key;

    key_of(name, false, &key);
    return show_key(store, &key, name, sink, deadline_ms, err);
}

/* As far as is known here. */
static bool is_dead(struct engine_store *store, uint32_t era, const PGresult *answer, int row,
                    int64_t now_ms)
{
    int64_t shown[SIGHTING_NUMBERS];
    struct sighting sighting;

    if (answer_text(answer, row, COLUMN_MODE)[0] == 'r')
        return false;
    for (int n = 0; n < SIGHTING_NUMBERS; n++)
        if (!answer_number(answer, row, COLUMN_ID + n, &shown[n]))
            return false;
    sightings_note(store, era, now_ms, shown, &sighting);
    return now_ms - sighting.since_ms >= sighting.span_ms;
}

/* The rows of a page. ret_last and ret_id: where the next one begins. */
static int list_page(struct engine_store *store, uint32_t era, const PGresult *answer, bool all,
                     const struct engine_sink *sink, struct key *ret_last, int64_t *ret_id,
                     struct error_text *err)
{
    char owner[HF_OWNER_MAX + 1], digest[DIGEST_DIGITS + 1];
    int64_t now_ms = clock_boot_ms();
    int result = HF_OK;

    for (int i = 0; result == HF_OK && i < PQntuples(answer); i++) {
        hf_entry entry;
        size_t size = 0;
        char *name;

        if (PQgetisnull(answer, i, COLUMN_ID))
            continue;
        name = answer_hex(answer, i, COLUMN_NAME, HF_NAME_MAX, &size);
        if (!name || !answer_number(answer, i, COLUMN_ID, ret_id)) {
            free(name);
            return error_set(err, HF_ENOMEM, "out of memory, or a row is damaged");
        }
        memcpy(ret_last->bytes, name, size + 1);
        ret_last->size = size;
        result = read_entry(answer, i, name, owner, digest, &entry, err);
        if (result == HF_OK && (entry.kind == HF_ENTRY_HOLDER || all) &&
            !is_dead(store, era, answer, i, now_ms))
            result = sink->add(sink->context, &entry);
        free(name);
    }
    return result;
}

int pg_list(struct engine_store *store, const char *match, bool all, const struct engine_sink *sink,
            int64_t deadline_ms, struct error_text *err)
{
    struct key last = {.size = 0};
    char host[PG_HOST_MAX];
    uint32_t era;
    int64_t id = 0;
    int rows, result = store_reach(store, deadline_ms, err);

    (void)match; /* the client filters */
    if (result != HF_OK)
        return result;
    store_host(store, host);
    do {
        struct question question = {.statement = STATEMENT_LIST, .reads = true};
        PGresult *answer = NULL;

        question_add_bytes(&question, last.bytes, last.size);
        question_add_text(&question, host);
        question_add_number(&question, id);
        era = store_era(store);
        result = store_ask(store, &question, deadline_ms, &answer, err);
        rows = result == HF_OK ? PQntuples(answer) : 0;
        if (result == HF_OK)
            result = list_page(store, era, answer, all, sink, &last, &id, err);
        PQclear(answer);
    } while (result == HF_OK && rows == PAGE_ROWS);
    return result;
}

int pg_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
             int64_t deadline_ms, struct error_text *err)
{
    PGresult *answer = NULL;
    struct key key;
    int result;

    key_of(name, false, &key);
    result = live_rows(store, &key, token, deadline_ms, &answer, err);
    if (result != HF_OK)
        return result;
    *ret_mode = ENGINE_GONE;
    for (int i = 0; i < PQntuples(answer); i++) {
        char mode = answer_text(answer, i, COLUMN_MODE)[0];
        int64_t there = 0;

        if (answer_number(answer, i, COLUMN_TOKEN, &there) && (uint64_t)there == token &&
            answer_text(answer, i, COLUMN_STATE)[0] == STATE_HOLDS)
            *ret_mode = mode == 's' ? HF_SHARED : mode == 'p' ? HF_PERMIT : HF_EXCLUSIVE;
    }
    PQclear(answer);
    return HF_OK;
}

/* ---- the operator's ways out ----------------------------------------------------------------- */

/* Whoever breaks what nobody holds changes nothing, and so need not ask in doubt. */
static int is_held(struct engine_store *store, const struct key *key, int64_t deadline_ms,
                   bool *ret_held, struct error_text *err)
{
    PGresult *answer = NULL;
    uint32_t era;
    int64_t token;
    int result = ask_rows(store, key, 0, deadline_ms, &era, &answer, err);

    *ret_held = false;
    for (int i = 0; result == HF_OK && i < PQntuples(answer); i++)
        *ret_held = *ret_held || answer_number(answer, i, COLUMN_TOKEN, &token);
    PQclear(answer);
    return result;
}

#define CODE_BY_ROW 6

int pg_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
             struct error_text *err)
{
    struct question question = {.statement = STATEMENT_BREAK, .patience = true};
    int64_t deadline_ms = clock_after(clock_boot_ms(), BREAK_MS), broken = 0, code = 0;
    PGresult *answer = NULL;
    bool held = true;
    struct key key;
    int result;

    key_of(name, false, &key);
    result = is_held(store, &key, deadline_ms, &held, err);
    if (result == HF_OK && !held)
        *ret_broken = 0;
    if (result != HF_OK || !held)
        return result;
    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_bytes(&question, key.bytes, key.size);
    question_add_bool(&question, grace_ms == 0);
    result = store_ask_anyhow(store, &question, deadline_ms, &answer, err);
    if (result == HF_OK &&
        (!answer_number(answer, 0, 0, &code) || !answer_number(answer, 0, 2, &broken)))
        result = error_set(err, HF_EINTERNAL, "the database returned an invalid answer");
    if (result == HF_OK && code == CODE_BY_ROW)
        result =
            error_set(err, HF_EREFUSED,
                      "an open transaction holds '%.100s' (mode=row), and ends with its "
                      "connection: pg_terminate_backend() ends that, pg_locks shows whose it is",
                      name);
    PQclear(answer);
    if (result == HF_OK)
        *ret_broken = (uint32_t)broken;
    return result;
}

/* do_it: else only what would come of it. */
static int ask_floor(struct engine_store *store, uint64_t token, bool do_it, bool *ret_again,
                     int64_t deadline_ms, struct engine_floor *ret_floor, struct error_text *err)
{
    struct question question = {
        .statement = STATEMENT_FLOOR, .patience = true, .reads = !do_it, .ret_again = ret_again};
    PGresult *answer = NULL;
    int64_t at = 0;
    int result;

    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_number(&question, (int64_t)token);
    question_add_bool(&question, do_it);
    result = store_ask_anyhow(store, &question, deadline_ms, &answer, err);
    if (result == HF_OK && (!answer_number(answer, 0, 2, &at) || at < (do_it ? (int64_t)token : 0)))
        result = error_set(err, HF_EINTERNAL, "the database returned an invalid answer");
    if (result == HF_OK)
        *ret_floor =
            (struct engine_floor){(uint64_t)at, strcmp(answer_text(answer, 0, 3), "t") == 0};
    PQclear(answer);
    return result;
}

void floor_look(struct engine_store *store, int64_t deadline_ms)
{
    struct question question = {.statement = STATEMENT_HELLO, .reads = true};
    struct error_text ignored;
    PGresult *answer = NULL;
    uint32_t era = store_era(store); /* first: what is noted meanwhile is newer than this answer */
    const char *incarnation;

    if (store_ask(store, &question, deadline_ms, &answer, &ignored) != HF_OK)
        return;
    incarnation = answer_text(answer, 0, 1);
    if (incarnation[0] && strlen(incarnation) <= PG_INCARNATION_MAX)
        store_note_incarnation(store, incarnation, era);
    PQclear(answer);
}

int pg_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
             struct engine_floor *ret_floor, struct error_text *err)
{
    struct engine_floor before = {0};
    bool again = false; /* it may be done twice */
    int result;

    if (token >= HF_TOKEN_MAX)
        return error_set(err, HF_EINVAL, "a floor is below the last token that there can be");
    result = store_reach(store, deadline_ms, err);
    if (result == HF_OK)
        result = ask_floor(store, token, false, &again, deadline_ms, &before, err);
    if (result != HF_OK)
        return result;
    if (before.ended) /* the operator is told first: operators.sql says why it must be so */
        store->host->warn(store->host->context,
                          "a higher floor ends all holds of this store: whoever has a lock is told "
                          "that it is lost, and its command is ended");
    again = false;
    result = ask_floor(store, token, true, &again, deadline_ms, ret_floor, err);
    if (result == HF_OK && again && before.ended) /* the first time, whose answer was lost */
        ret_floor->ended = true;
    return result;
}
