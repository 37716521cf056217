/* once.c: the test engine's once-records. A second implementation of what engine.h says, beside
 * holdfastd's, and one whose answers can be lost on command. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

static int copy_result(const struct table_record *record, struct engine_record *ret_record,
                       struct error_text *err)
{
    void *bytes = malloc(record->size + 1u);

    if (!bytes)
        return error_set(err, HF_ENOMEM, "out of memory");
    memcpy(bytes, record->bytes, record->size);
    free(ret_record->bytes);
    ret_record->bytes = bytes;
    ret_record->size = record->size;
    ret_record->token = record->token;
    return ENGINE_DONE;
}

int once_known(struct engine_store *store, struct engine_claim *claim, struct error_text *err)
{
    char scratch[TABLE_NAME_SIZE];
    struct table *table = store->table;
    const struct table_name *name = table_find_name(table, name_in_table(claim, scratch));
    const struct table_record *record = table_record_of(table, name);
    uint64_t died = claim->no_heir ? table_died_for(table, claim->lease) : 0;

    if (record && record->done)
        return copy_result(record, &claim->record, err);
    if (record && claim->no_heir)
        died = record->token;
    if (!died)
        return HF_OK;
    claim->record.token = died;
    return ENGINE_DIED;
}

static int finish_now(struct engine_store *store, const struct engine_claim *claim,
                      const void *bytes, size_t size, int64_t keep_ms, struct error_text *err)
{
    char scratch[TABLE_NAME_SIZE];
    struct table *table = store->table;
    struct table_name *name = table_find_name(table, name_in_table(claim, scratch));
    struct table_claim *slot = table_find(table, claim->lease);
    const struct table_record *record = table_record_of(table, name);

    if (record && record->done && record->token == claim->token)
        return HF_OK; /* once more */
    if (!name || !slot || slot->state != CLAIM_HELD || slot->token != claim->token ||
        &table->names[slot->name] != name)
        return error_set(err, HF_ESTALE, "the newest token is %llu",
                         (unsigned long long)table->last_token);
    if (!table_set_record(table, name, claim->token, bytes, size, table_now_ms(table) + keep_ms))
        return error_set(err, HF_EREFUSED, "test store: no room for another result");
    table_end_waiters(table, name);
    table_end(table, slot);
    return HF_OK;
}

int test_finish(struct engine_store *store, struct engine_claim *claim, const void *bytes,
                size_t size, int64_t keep_ms, int64_t deadline_ms, struct error_text *err)
{
    bool lose_reply;
    int result = call_begin(store, CALL_FINISH, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    result = finish_now(store, claim, bytes, size, keep_ms, err);
    return call_end(store, lose_reply, result, err);
}

static const struct table_claim *runner_of(const struct table *table, const struct table_name *name)
{
    for (int32_t i = 0; i < table->claims_used; i++)
        if (table->claims[i].state == CLAIM_HELD && &table->names[table->claims[i].name] == name)
            return &table->claims[i];
    return NULL;
}

static int read_now(struct engine_store *store, const char *key, struct engine_record *record,
                    int64_t *left_ms, struct error_text *err)
{
    const struct engine_claim claim = {.name = key, .once = true};
    char scratch[TABLE_NAME_SIZE];
    struct table *table = store->table;
    const struct table_name *name = table_find_name(table, name_in_table(&claim, scratch));
    const struct table_record *known = table_record_of(table, name);
    const struct table_claim *runner = name ? runner_of(table, name) : NULL;

    if (known) {
        *left_ms = known->until_ms - table_now_ms(table);
        record->token = known->token;
        return known->done ? copy_result(known, record, err) : ENGINE_DIED;
    }
    if (!runner)
        return ENGINE_BUSY;
    record->token = runner->token;
    record->age_ms = table_now_ms(table) - runner->since_ms;
    *left_ms = runner->expires_ms - table_now_ms(table);
    record->owner = strdup(runner->owner);
    return record->owner ? ENGINE_HELD : error_set(err, HF_ENOMEM, "out of memory");
}

int test_once_read(struct engine_store *store, const char *key, struct engine_record *ret_record,
                   int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct engine_record record = {.age_ms = -1};
    int64_t left_ms = -1;
    bool lose_reply;
    int result = call_begin(store, CALL_READ, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    result = call_end(store, lose_reply, read_now(store, key, &record, &left_ms, err), err);
    if (result >= 0) {
        *ret_record = record;
        *ret_left_ms = left_ms;
    } else {
        free(record.bytes);
        free(record.owner);
    }
    return result;
}
