/* once.c: once-records. A claim of one is a claim like any other: the same leases, retries, pushes and
 * renewals. Here is what differs: the words, the result, and how it ends. */
#include "base/clock.h"
#include "engines/holdfast/store.h"

#include <holdfast/once.h>
#include <stdlib.h>
#include <string.h>

static void write_once(const char *what, size_t words, struct resp_writer *writer)
{
    resp_write_array(writer, words);
    resp_write_text(writer, "ONCE");
    resp_write_text(writer, what);
}

static bool read_token(const struct resp_node *value, uint64_t *ret_token)
{
    int64_t token;

    if (!resp_to_int64(value, &token) || token < 1 || (uint64_t)token > HF_TOKEN_MAX)
        return false;
    *ret_token = (uint64_t)token;
    return true;
}

/* ---- claiming -------------------------------------------------------------------------------- */

void holdfast_once_write(const struct engine_store *store, const struct engine_claim *claim,
                         struct resp_writer *writer)
{
    write_once("CLAIM", 10u + (claim->will_wait ? 1 : 0) + (claim->no_heir ? 1 : 0), writer);
    holdfast_write_name(store, claim->name, writer);
    resp_write_text(writer, claim->lease);
    resp_write_text(writer, "TTL");
    resp_write_number(writer, claim->ttl_ms);
    resp_write_text(writer, "KEEP");
    resp_write_number(writer, claim->death_ms);
    if (claim->will_wait)
        resp_write_text(writer, "PUSH");
    if (claim->no_heir)
        resp_write_text(writer, "NOHEIR");
    resp_write_text(writer, "OWNER");
    resp_write_text(writer, claim->owner ? claim->owner : "");
}

/* Takes the place of what was there. */
static int keep_result(uint64_t token, const struct resp_node *result, struct engine_record *record)
{
    void *bytes;

    if (!result || result->type != RESP_BLOB || result->size > HF_ONCE_RESULT_MAX)
        return HF_EINTERNAL;
    bytes = malloc(result->size + 1);
    if (!bytes)
        return HF_ENOMEM;
    memcpy(bytes, result->text, result->size);
    free(record->bytes);
    *record = (struct engine_record){.token = token, .bytes = bytes, .size = result->size};
    return ENGINE_DONE;
}

/* [RUN token], [DONE token result], [DIED token] */
int holdfast_once_answer(struct engine_claim *claim, const struct resp_node *value)
{
    const struct resp_node *word = resp_item(value, 0);
    uint64_t token;

    if (!read_token(resp_item(value, 1), &token))
        return HF_EINTERNAL;
    if (resp_is(word, "DONE"))
        return keep_result(token, resp_item(value, 2), &claim->record);
    if (resp_is(word, "RUN")) {
        claim->token = token;
        return ENGINE_HELD;
    }
    if (!resp_is(word, "DIED"))
        return HF_EINTERNAL;
    claim->record.token = token;
    return ENGINE_DIED;
}

void holdfast_once_note_push(struct waiting *waiting, const struct resp_node *value)
{
    const struct resp_node *word = resp_item(value, 0);
    bool died = resp_is(word, "left") && resp_is(resp_item(value, 3), "died");
    uint64_t token;

    if (!died && !resp_is(word, "done"))
        return;
    if (!read_token(resp_item(value, died ? 4 : 3), &token))
        return; /* it asks, and that answer counts */
    if (died) {
        waiting->record.token = token;
        waiting->told = ENGINE_DIED;
    } else if (keep_result(token, resp_item(value, 4), &waiting->record) == ENGINE_DONE) {
        waiting->told = ENGINE_DONE;
    }
}

int holdfast_once_take_pushed(struct engine_store *store, struct waiting *waiting)
{
    int told;

    pthread_mutex_lock(&store->mutex);
    told = waiting->told;
    if (told) {
        free(waiting->claim->record.bytes);
        waiting->claim->record = waiting->record;
        waiting->record = (struct engine_record){0};
        waiting->told = 0;
    }
    pthread_mutex_unlock(&store->mutex);
    return told;
}

/* ---- finishing ------------------------------------------------------------------------------- */

struct finishing {
    int64_t answer;
};

static void read_finish(void *context, int index, const struct resp_node *value)
{
    struct finishing *finishing = context;

    (void)index;
    if (!resp_to_int64(value, &finishing->answer))
        finishing->answer = -1;
}

/* An acquisition whose answer was lost may still arrive, when the record is long forgotten. */
static void end_lease(struct engine_store *store, const struct engine_claim *claim)
{
    struct resp_writer writer = {0};

    claim_write_end(claim, &writer);
    pthread_mutex_lock(&store->mutex);
    if (!writer.failed)
        pipeline_tell(store, &writer, 1);
    pthread_mutex_unlock(&store->mutex);
    resp_writer_free(&writer);
}

/* Not asked again here when an answer is lost: the client does that, and knows for how long "stale"
 * means that the first one did nothing. */
int holdfast_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                    size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err)
{
    const struct holdfast_claim *own = claim->private;
    struct finishing finishing = {-1};
    struct call call = {.replies = 1, .context = &finishing, .on_reply = read_finish};
    struct resp_writer writer = {0};
    int result;

    held_remove(store, claim);
    write_once("FINISH", 9, &writer);
    holdfast_write_name(store, claim->name, &writer);
    resp_write_text(&writer, claim->lease);
    resp_write_text(&writer, "TOKEN");
    resp_write_number(&writer, (int64_t)claim->token);
    resp_write_text(&writer, "KEEP");
    resp_write_number(&writer, keep_ms);
    resp_write_blob(&writer, bytes, size);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && finishing.answer != 1)
        return error_set(err, HF_EINTERNAL, "an invalid answer to ONCE FINISH");
    if (result == HF_OK && own && own->unsure)
        end_lease(store, claim);
    return result;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    int outcome;
    struct engine_record record;
    int64_t left_ms;
};

static bool number_at(const struct resp_node *value, uint32_t index, int64_t *ret_number)
{
    return resp_to_int64(resp_item(value, index), ret_number);
}

/* [RUNNING token owner age left]; of all but the first word not more than the server knows. */
static int read_runner(const struct resp_node *value, struct reading *reading)
{
    const struct resp_node *owner = resp_item(value, 2);

    if (value->count > 1 && !read_token(resp_item(value, 1), &reading->record.token))
        return HF_EINTERNAL;
    number_at(value, 3, &reading->record.age_ms);
    number_at(value, 4, &reading->left_ms);
    if (!owner || owner->type != RESP_BLOB)
        return ENGINE_HELD;
    reading->record.owner =
        strndup(owner->text, owner->size < HF_OWNER_MAX ? owner->size : HF_OWNER_MAX);
    return reading->record.owner ? ENGINE_HELD : HF_ENOMEM;
}

/* nil, [RUNNING ...], [DONE token result left], [DIED token left] */
static void read_read(void *context, int index, const struct resp_node *value)
{
    struct reading *reading = context;
    const struct resp_node *word = resp_item(value, 0);
    bool done = resp_is(word, "DONE");
    uint64_t token;

    (void)index;
    free(reading->record.bytes);
    free(reading->record.owner);
    *reading = (struct reading){HF_EINTERNAL, {.age_ms = -1}, -1};
    if (value->type == RESP_NIL) {
        reading->outcome = ENGINE_BUSY;
    } else if (resp_is(word, "RUNNING")) {
        reading->outcome = read_runner(value, reading);
    } else if ((done || resp_is(word, "DIED")) && read_token(resp_item(value, 1), &token)) {
        reading->record.token = token;
        reading->outcome =
            done ? keep_result(token, resp_item(value, 2), &reading->record) : ENGINE_DIED;
        if (!number_at(value, done ? 3 : 2, &reading->left_ms))
            reading->outcome = HF_EINTERNAL;
    }
}

int holdfast_once_read(struct engine_store *store, const char *key,
                       struct engine_record *ret_record, int64_t *ret_left_ms, int64_t deadline_ms,
                       struct error_text *err)
{
    struct reading reading = {.outcome = HF_EINTERNAL};
    struct call call = {.replies = 1,
                        .repeatable = true,
                        .reads = true,
                        .context = &reading,
                        .on_reply = read_read};
    struct resp_writer writer = {0};
    int result = holdfast_check_name(store, key, err);

    if (result != HF_OK)
        return result;
    write_once("READ", 3, &writer);
    holdfast_write_name(store, key, &writer);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && reading.outcome == HF_EINTERNAL)
        result = error_set(err, HF_EINTERNAL, "an invalid answer to ONCE READ");
    else if (result == HF_OK && reading.outcome < 0)
        result = error_set(err, reading.outcome, "out of memory");
    if (result != HF_OK) {
        free(reading.record.bytes);
        free(reading.record.owner);
        return result;
    }
    *ret_record = reading.record;
    *ret_left_ms = reading.left_ms;
    return reading.outcome;
}
