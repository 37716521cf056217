/* once.c: once-records on one Redis server: finishing and reading. Claims, waits, renewals and releases
 * are those of locks (claims.c), under other keys; what differs is in scripts/once_claim.lua. */
#include "engines/redis/store.h"

#include <holdfast/once.h>
#include <stdlib.h>
#include <string.h>

static const char answer_that_cannot_be[] = "the script returned an invalid answer";

/* ---- answers --------------------------------------------------------------------------------- */

/* {code, token, ...}: how it begins. False: it cannot be. */
static bool read_token(const struct resp_node *value, uint64_t *ret_token)
{
    int64_t token;

    if (!resp_to_int64(resp_item(value, 1), &token) || token < 0 || (uint64_t)token > HF_TOKEN_MAX)
        return false;
    *ret_token = (uint64_t)token;
    return true;
}

/* {3, token, result, ...} or {4, token, ...} */
int redis_once_answer(const struct resp_node *value, struct engine_record *ret_record)
{
    const struct resp_node *code = resp_item(value, 0), *result = resp_item(value, 2);
    uint64_t token;
    void *bytes = NULL;

    if (!code || !read_token(value, &token) || token == 0)
        return HF_EINTERNAL;
    if (code->integer == ENGINE_DIED) {
        ret_record->token = token;
        return ENGINE_DIED;
    }
    if (!result || result->type != RESP_BLOB || result->size > HF_ONCE_RESULT_MAX)
        return HF_EINTERNAL;
    if (result->size > 0) {
        bytes = malloc(result->size);
        if (!bytes)
            return HF_ENOMEM;
        memcpy(bytes, result->text, result->size);
    }
    ret_record->token = token;
    ret_record->bytes = bytes;
    ret_record->size = result->size;
    return ENGINE_DONE;
}

/* ---- finishing ------------------------------------------------------------------------------- */

struct finishing {
    struct engine_store *store;
    const struct engine_claim *claim;
    const void *bytes;
    size_t size;
    int64_t keep_ms;
    int64_t answer;
};

static void write_finish(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct finishing *finishing = context;
    const struct engine_claim *claim = finishing->claim;

    (void)index;
    script_write_once(writer, SCRIPT_ONCE_FINISH, by_text, finishing->store->prefix, claim->name,
                      claim->lease, 4);
    resp_write_text(writer, claim->lease);
    resp_write_number(writer, (int64_t)claim->token);
    resp_write_number(writer, finishing->keep_ms);
    resp_write_blob(writer, finishing->bytes, finishing->size);
}

static void read_finish(void *context, int node, int index, const struct resp_node *value)
{
    struct finishing *finishing = context;

    (void)node;
    (void)index;
    if (!resp_to_int64(value, &finishing->answer))
        finishing->answer = -1;
}

int redis_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                 size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err)
{
    struct finishing finishing = {store, claim, bytes, size, keep_ms, -1};
    struct question question = {.text_first = SCRIPT_ONCE_FINISH,
                                .commands = 1,
                                .context = &finishing,
                                .write = write_finish,
                                .answer = read_finish};
    int result;

    if (size > HF_ONCE_RESULT_MAX || keep_ms < 1)
        return error_set(err, HF_EINVAL, "a result has at most %d bytes, kept for 1 ms or more",
                         HF_ONCE_RESULT_MAX);
    result = redis_ask(store, &question, deadline_ms, err);
    if (result != HF_OK)
        return result;
    if (finishing.answer == 1)
        return HF_OK;
    if (finishing.answer == 0)
        return error_set(err, HF_ESTALE, "'%.100s' is not run by us any more: nothing was stored",
                         claim->name);
    return error_set(err, HF_EINTERNAL, answer_that_cannot_be);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    struct engine_store *store;
    const char *key;
    struct engine_record *record;
    int64_t *left_ms;
    int outcome;
};

static void write_read(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct reading *reading = context;

    (void)index;
    script_write_once(writer, SCRIPT_ONCE_READ, by_text, reading->store->prefix, reading->key, "",
                      0);
}

/* {0, token, owner, age, left} */
static int read_runner(const struct resp_node *value, struct engine_record *ret_record,
                       int64_t *ret_left_ms)
{
    const struct resp_node *owner = resp_item(value, 2);
    int64_t age_ms, left_ms;
    uint64_t token;

    if (!read_token(value, &token) || !owner || owner->type != RESP_BLOB ||
        !resp_to_int64(resp_item(value, 3), &age_ms) ||
        !resp_to_int64(resp_item(value, 4), &left_ms))
        return HF_EINTERNAL;
    ret_record->token = token;
    ret_record->owner = strndup(owner->text, owner->size);
    ret_record->age_ms = age_ms;
    *ret_left_ms = left_ms;
    return ENGINE_HELD;
}

static void read_read(void *context, int node, int index, const struct resp_node *value)
{
    struct reading *reading = context;
    int64_t code, left_ms;

    (void)node;
    (void)index;
    reading->outcome = HF_EINTERNAL;
    if (!resp_to_int64(resp_item(value, 0), &code))
        return;
    if (code == ENGINE_HELD) {
        reading->outcome = read_runner(value, reading->record, reading->left_ms);
    } else if (code == ENGINE_BUSY) {
        reading->outcome = ENGINE_BUSY;
    } else if (code == ENGINE_DONE || code == ENGINE_DIED) {
        if (!resp_to_int64(resp_item(value, code == ENGINE_DONE ? 3 : 2), &left_ms))
            return;
        reading->outcome = redis_once_answer(value, reading->record);
        if (reading->outcome >= 0)
            *reading->left_ms = left_ms < 0 ? 0 : left_ms;
    }
}

int redis_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                    int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct reading reading = {store, key, ret_record, ret_left_ms, HF_EINTERNAL};
    struct question question = {
        .commands = 1, .context = &reading, .write = write_read, .answer = read_read};
    int result = redis_ask(store, &question, deadline_ms, err);

    if (result != HF_OK)
        return result;
    if (reading.outcome == HF_ENOMEM)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (reading.outcome < 0)
        return error_set(err, reading.outcome, answer_that_cannot_be);
    return reading.outcome;
}
