/* once.c: once-records. Whoever runs one holds its key as an exclusive lock; what came out is in a table of its own.
 *
 * A result is kept for at least as long as it must be, counted by those who look: a host that has seen it for so long may forget it. So
 * may nobody else. */
#include "base/clock.h"
#include "base/random.h"
#include "base/sha256.h"
#include "engines/postgres/store.h"

#include <holdfast/once.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENTERED_MS 20
#define ROUNDS 3
#define NOTE_PART 4 /* of those who finish, one looks around */
#define NOTE_MS 500

/* No claim has a negative id. Tokens of several names may be the same, so it is the key's. */
static int64_t record_id(const struct key *key)
{
    unsigned char digest[SHA256_SIZE];
    uint64_t id;

    sha256(key->bytes, key->size, digest);
    memcpy(&id, digest, sizeof id);
    return -(int64_t)(id >> 1) - 1;
}

/* When this host first saw it, in ours. */
static int64_t seen_since(struct engine_store *store, uint32_t era, int64_t arrived_ms,
                          const struct key *key, int64_t token, int64_t at_ms, bool *ret_noted)
{
    const int64_t shown[SIGHTING_NUMBERS] = {record_id(key), token, 0, at_ms};
    struct sighting sighting;

    sightings_note(store, era, arrived_ms, shown, &sighting);
    *ret_noted = sighting.noted;
    return sighting.since_ms;
}

/* Writes down for this host that it had seen these by then. Nobody minds if that fails. */
static void note_records(struct engine_store *store, uint32_t era, const struct text *names,
                         const struct text *tokens, int64_t seen_ms)
{
    struct question question = {.statement = STATEMENT_NOTE_RECORDS};
    struct error_text ignored;
    PGresult *answer = NULL;
    char host[PG_HOST_MAX];

    if (names->failed || tokens->failed)
        return;
    store_host(store, host); /* first, as in note_seen */
    question_add_expected(&question);
    question_add_text(&question, host);
    question_add_text(&question, names->bytes);
    question_add_text(&question, tokens->bytes);
    question_add_number(&question, store_kernel_ms(store, seen_ms));
    if (era == store_era(store))
        store_ask(store, &question, clock_after(clock_boot_ms(), NOTE_MS), &answer, &ignored);
    PQclear(answer);
}

static void note_record(struct engine_store *store, uint32_t era, const struct key *key,
                        int64_t token, int64_t seen_ms)
{
    struct text names = {0}, tokens = {0};

    text_add(&names, "{");
    text_add_name(&names, key->bytes, key->size);
    text_add(&names, "}");
    text_add(&tokens, "{");
    text_add_number(&tokens, token);
    text_add(&tokens, "}");
    note_records(store, era, &names, &tokens, seen_ms);
    text_drop(&names);
    text_drop(&tokens);
}

/* Of a record as a row has it. Returns what is left of it, at least 0; -1: it was kept long enough. */
static int64_t left_of(struct engine_store *store, uint32_t era, int64_t arrived_ms,
                       const struct key *key, int64_t token, int64_t keep_ms, int64_t at_ms)
{
    bool noted;
    int64_t since_ms = seen_since(store, era, arrived_ms, key, token, at_ms, &noted);
    int64_t left_ms = keep_ms - (clock_boot_ms() - since_ms);

    if (left_ms <= 0)
        return -1;
    if (!noted)
        note_record(store, era, key, token, since_ms);
    return left_ms < keep_ms ? left_ms : keep_ms;
}

int once_answer(struct engine_store *store, struct pg_claim *own, const PGresult *answer,
                uint32_t era, int64_t arrived_ms, int64_t *ret_forget, struct error_text *err)
{
    int64_t code = 0, token = 0, keep_ms = 0, at_ms = -1;
    struct engine_record *record = &own->claim->record;
    size_t size = 0;
    char *bytes;

    if (!answer_number(answer, 0, 0, &code) || !answer_number(answer, 0, 3, &token) || token < 1 ||
        !answer_number(answer, 0, 6, &keep_ms) || !answer_number(answer, 0, 7, &at_ms))
        return error_set(err, HF_EINTERNAL, "the database returned an invalid answer");
    if (left_of(store, era, arrived_ms, &own->key, token, keep_ms, at_ms) < 0) {
        *ret_forget = token;
        return 0;
    }
    bytes = code == ENGINE_DONE ? answer_hex(answer, 0, 5, HF_ONCE_RESULT_MAX, &size) : NULL;
    if (code == ENGINE_DONE && !bytes)
        return error_set(err, HF_ENOMEM, "out of memory, or the result is damaged");
    free(record->bytes);
    record->token = (uint64_t)token;
    record->bytes = bytes;
    record->size = size;
    return (int)code;
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* Records that nobody asks for are to go, too: now and then some of a page are noted, with when they had been seen. */
static void note_some(struct engine_store *store)
{
    struct question question = {.statement = STATEMENT_ONCE_PAGE, .reads = true};
    struct text names = {0}, tokens = {0};
    uint32_t era = store_era(store);
    struct error_text ignored;
    PGresult *answer = NULL;
    char host[PG_HOST_MAX];
    int64_t token;

    if (random_below(NOTE_PART) != 0 || atomic_load(&store->outdated))
        return;
    store_host(store, host);
    question_add_text(&question, host);
    if (store_ask(store, &question, clock_after(clock_boot_ms(), NOTE_MS), &answer, &ignored) !=
        HF_OK)
        return;
    text_add(&names, "{");
    text_add(&tokens, "{");
    for (int i = 0; i < PQntuples(answer); i++) {
        size_t size = 0;
        char *name = answer_hex(answer, i, 0, HF_NAME_MAX + 1, &size);

        if (name && answer_number(answer, i, 1, &token)) {
            text_add_name(&names, name, size);
            text_add_number(&tokens, token);
        }
        free(name);
    }
    text_add(&names, "}");
    text_add(&tokens, "}");
    if (PQntuples(answer) > 0)
        note_records(store, era, &names, &tokens, clock_boot_ms());
    PQclear(answer);
    text_drop(&names);
    text_drop(&tokens);
}

int pg_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
              size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err)
{
    struct pg_claim *own = claim_private(store, claim);
    int64_t sent_ms = clock_boot_ms(), code = 0;
    char host[PG_HOST_MAX];
    bool other = false;
    int result;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (size > HF_ONCE_RESULT_MAX || keep_ms < 1)
        return error_set(err, HF_EINVAL, "a result has at most %d bytes, kept for 1 ms or more",
                         HF_ONCE_RESULT_MAX);
    result = store_reach(store, deadline_ms, err);
    if (result != HF_OK)
        return result;
    listener_drop(store, own);
    store_host(store, host);
    do {
        struct question question = {
            .statement = STATEMENT_FINISH, .patience = true, .urgent = true};
        struct timespec span = {0, ENTERED_MS * 1000000};
        PGresult *answer = NULL;

        if (code != 0)
            nanosleep(&span, NULL);
        question_add_expected(&question);
        question_add_number(&question, 0);
        question_add_bytes(&question, own->key.bytes, own->key.size);
        question_add_bytes(&question, own->lease, sizeof own->lease);
        question_add_number(&question, (int64_t)claim->token);
        question_add_bytes(&question, bytes, size);
        question_add_number(&question, keep_ms);
        question_add_text(&question, host);
        question_add_number(&question, store_kernel_ms(store, sent_ms));
        result = store_ask(store, &question, deadline_ms, &answer, err);
        if (result ==
            HF_ESTORE) { /* an earlier call's may be kept all the same: its answer may have been lost */
            other = true;
            result = store_ask_anyhow(store, &question, deadline_ms, &answer, err);
        }
        if (result == HF_OK && !answer_number(answer, 0, 0, &code))
            result = error_set(err, HF_EINTERNAL, "the database returned an invalid answer");
        PQclear(answer);
    } while (result == HF_OK && code == 5 && clock_boot_ms() + ENTERED_MS < deadline_ms);
    if (result != HF_OK)
        return result;
    if (code == 1) {
        note_record(store, store_era(store), &own->key, (int64_t)claim->token, clock_boot_ms());
        note_some(store);
        return HF_OK;
    }
    if (code == 5)
        return error_set(err, HF_EUNREACH, "somebody has the row of '%.100s' locked all the time",
                         claim->name);
    if (other)
        return error_set(
            err, HF_ESTALE,
            "'%.100s': the server was promoted, or is another one, or was declared to be "
            "another one (holdfast floor): nothing was stored",
            claim->name);
    return error_set(err, HF_ESTALE, "'%.100s' is not run by us any more: nothing was stored",
                     claim->name);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int ask_record(struct engine_store *store, const struct key *key, int64_t deadline_ms,
                      PGresult **ret_answer, struct error_text *err)
{
    struct question question = {
        .statement = STATEMENT_ONCE_READ, .reads = true, .replicated = true, .patience = true};
    char host[PG_HOST_MAX];

    store_host(store, host);
    question_add_bytes(&question, key->bytes, key->size);
    question_add_number(&question, 0);
    question_add_text(&question, host);
    return store_ask(store, &question, deadline_ms, ret_answer, err);
}

/* ENGINE_DONE or ENGINE_DIED, ENGINE_BUSY: nothing is known; else an error. ret_forget: of one that was kept long enough. */
static int read_record(struct engine_store *store, const struct key *key, int64_t deadline_ms,
                       struct engine_record *ret_record, int64_t *ret_left_ms, int64_t *ret_forget,
                       struct error_text *err)
{
    uint32_t era = store_era(store);
    int64_t token = 0, keep_ms = 0, at_ms = -1, left_ms;
    PGresult *answer = NULL;
    int result = ask_record(store, key, deadline_ms, &answer, err);
    size_t size = 0;

    if (result != HF_OK)
        return result;
    result = ENGINE_BUSY;
    if (answer_number(answer, 0, 2, &token) && answer_number(answer, 0, 3, &keep_ms) &&
        answer_number(answer, 0, 4, &at_ms)) {
        left_ms = left_of(store, era, clock_boot_ms(), key, token, keep_ms, at_ms);
        if (left_ms < 0) {
            *ret_forget = token;
        } else {
            result = answer_text(answer, 0, 1)[0] == 'd' ? ENGINE_DONE : ENGINE_DIED;
            ret_record->token = (uint64_t)token;
            *ret_left_ms = left_ms;
        }
    }
    if (result == ENGINE_DONE) {
        ret_record->bytes = answer_hex(answer, 0, 5, HF_ONCE_RESULT_MAX, &size);
        ret_record->size = size;
        if (!ret_record->bytes)
            result = error_set(err, HF_ENOMEM, "out of memory, or the result is damaged");
    }
    PQclear(answer);
    return result;
}

struct runner {
    struct engine_record *record;
    bool found;
};

static int take_runner(void *context, const hf_entry *entry)
{
    struct runner *runner = context;

    if (entry->kind == HF_ENTRY_WITHHELD)
        runner->record->withheld = true;
    if (entry->kind != HF_ENTRY_HOLDER || runner->found)
        return HF_OK;
    runner->found = true;
    runner->record->token = entry->token;
    runner->record->owner = strdup(entry->owner);
    runner->record->age_ms = entry->age_ms;
    return HF_OK;
}

/* Whoever runs it first: if that is dead, it becomes a record, which is read then. */
int pg_once_read(struct engine_store *store, const char *name, struct engine_record *ret_record,
                 int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct runner runner = {.record = ret_record};
    const struct engine_sink sink = {&runner, take_runner};
    uint32_t era = store_era(store);
    int64_t forget = 0;
    struct key key;
    int result;

    key_of(name, true, &key);
    result = show_key(store, &key, name, &sink, deadline_ms, err);
    if (result == HF_OK && runner.found)
        return ENGINE_HELD;
    if (result == HF_OK)
        result = read_record(store, &key, deadline_ms, ret_record, ret_left_ms, &forget, err);
    if (forget != 0) {
        int swept = sweep_dead(store, era, &key, NULL, 0, forget, deadline_ms, err);

        result = swept < 0 ? swept : result;
    }
    return result;
}
