/* queue.c: the keys of one name, by their create revisions, which is the order in which they came.
 *
 *     exclusive    holds if it is the first
 *     shared       holds if all before it are shared
 *     permit of N  holds if all before it are permits of N, and fewer than N
 *
 * So a hold is never taken away by somebody who comes later, and nobody is passed.
 *
 * Whom to watch, so that a release does not wake everybody:
 *
 *     exclusive    the one before it
 *     shared       the nearest before it that is not shared: those that wait for the same one get the name together
 *     permit       the first that waits watches all ends, because any holder may be the next to go. The others watch the
 *                  one before them, for its promotion, too (which moves its key to another lease): then they are the first
 */
#include "engines/etcd/store.h"

#include <holdfast/once.h>
#include <stdlib.h>
#include <string.h>

static int out_of_memory(struct error_text *err)
{
    return error_set(err, HF_ENOMEM, "out of memory");
}

static int invalid(struct error_text *err)
{
    return error_set(err, HF_EINTERNAL, "the server returned an invalid answer about keys");
}

int queue_add(struct queue *queue, const json_t *kv, struct error_text *err)
{
    struct member member = {0};
    size_t value_size = 0;
    int64_t create, mod;
    char *value;

    if (!json_number(kv, "create_revision", &create) || !json_number(kv, "mod_revision", &mod) ||
        !json_number(kv, "lease", &member.lease) || create < 1 || mod < create)
        return invalid(err);
    if (queue->count == ETCD_QUEUE_MAX)
        return error_set(err, HF_EREFUSED, "more than %d hold or wait for one name",
                         ETCD_QUEUE_MAX);
    if (queue->count == queue->room) {
        size_t room = queue->room ? 2 * queue->room : 8;
        struct member *at = realloc(queue->at, room * sizeof *at);

        if (!at)
            return out_of_memory(err);
        queue->at = at;
        queue->room = room;
    }
    member.create = (uint64_t)create;
    member.mod = (uint64_t)mod;
    member.key = json_blob(kv, "key", ETCD_ANSWER_MAX, &member.key_size);
    value = json_blob(kv, "value", ETCD_ANSWER_MAX, &value_size);
    if (!member.key || !value) {
        free(member.key);
        free(value);
        return invalid(err);
    }
    value_read(value, value_size, &member.value);
    free(value);
    queue->at[queue->count++] = member;
    return HF_OK;
}

/* ---- once-records ---------------------------------------------------------------------------- */

/* "hf1 d TOKEN SPAN SINCE RESULT", or r without a result. */
static int read_once_key(const json_t *kv, struct once_key *ret_key, struct error_text *err)
{
    struct once_key key = {.exists = true};
    size_t size = 0;
    char *bytes = json_blob(kv, "value", HF_ONCE_RESULT_MAX + ETCD_VALUE_MAX, &size), *at, *end;
    uint64_t numbers[3];

    if (!bytes || ret_key->exists) { /* there is one of each */
        free(bytes);
        return invalid(err);
    }
    at = bytes + 5;
    if (size < 6 || memcmp(bytes, "hf1 ", 4) != 0 || (bytes[4] != 'd' && bytes[4] != 'r') ||
        !json_number(kv, "lease", &key.lease)) {
        free(bytes);
        return error_set(err, HF_EREFUSED,
                         "there is a key of somebody else where once-records are");
    }
    for (int i = 0; i < 3; i++) {
        numbers[i] = strtoull(at, &end, 10);
        if (end == at || *end != ' ') {
            free(bytes);
            return invalid(err);
        }
        at = end;
    }
    at++;
    key.state = bytes[4];
    key.token = numbers[0];
    key.span_ms = (int64_t)numbers[1];
    key.since_ms = (int64_t)numbers[2];
    key.size = size - (size_t)(at - bytes);
    memmove(bytes, at, key.size);
    key.bytes = bytes;
    *ret_key = key;
    return HF_OK;
}

bool queue_runs(const struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        if (queue->at[i].create == queue->run.token)
            return true;
    return false;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int by_create(const void *left, const void *right)
{
    const struct member *a = left, *b = right;

    return (a->create > b->create) - (a->create < b->create);
}

void queue_sort(struct queue *queue)
{
    if (queue->count > 1)
        qsort(queue->at, queue->count, sizeof *queue->at, by_create);
}

static bool is_tail(const json_t *kv, const struct place *place, const char *tail)
{
    size_t size = 0;
    char *key = json_blob(kv, "key", ETCD_KEY_MAX, &size);
    bool yes = key && size == place->size + strlen(tail) &&
               memcmp(key + place->size, tail, strlen(tail)) == 0;

    free(key);
    return yes;
}

int queue_read(const json_t *range, const struct place *place, struct queue *ret_queue,
               struct error_text *err)
{
    const json_t *kvs = json_object_get(range, "kvs");

    if (!json_is_object(range) || (kvs && !json_is_array(kvs)))
        return invalid(err);
    if (json_is_true(json_object_get(range, "more")))
        return error_set(err, HF_EREFUSED, "more than %d hold or wait for one name",
                         ETCD_QUEUE_MAX);
    for (size_t i = 0; i < json_array_size(kvs); i++) {
        const json_t *kv = json_array_get(kvs, i);
        int result = is_tail(kv, place, ONCE_RESULT) ? read_once_key(kv, &ret_queue->result, err)
                     : is_tail(kv, place, ONCE_RUN)  ? read_once_key(kv, &ret_queue->run, err)
                                                     : queue_add(ret_queue, kv, err);

        if (result != HF_OK)
            return result;
    }
    queue_sort(ret_queue);
    return HF_OK;
}

void queue_free(struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        free(queue->at[i].key);
    free(queue->at);
    free(queue->result.bytes);
    free(queue->run.bytes);
    *queue = (struct queue){0};
}

int queue_find(const struct queue *queue, const char *key, size_t size)
{
    for (size_t i = 0; i < queue->count; i++)
        if (queue->at[i].key_size == size && memcmp(queue->at[i].key, key, size) == 0)
            return (int)i;
    return -1;
}

/* ---- who holds ------------------------------------------------------------------------------- */

static bool is_beside(const struct value *before, const struct value *value)
{
    return (value->mode == VALUE_SHARED && before->mode == VALUE_SHARED) ||
           (value->mode == VALUE_PERMIT && before->mode == VALUE_PERMIT &&
            value->permits == before->permits);
}

static bool holds_behind(const struct queue *queue, size_t count, const struct value *value)
{
    if (value->mode == VALUE_BROKEN)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!is_beside(&queue->at[i].value, value))
            return false;
    return value->mode != VALUE_PERMIT || count < value->permits;
}

bool queue_holds(const struct queue *queue, size_t index)
{
    return holds_behind(queue, index, &queue->at[index].value);
}

bool queue_would_hold(const struct queue *queue, const struct value *value)
{
    return holds_behind(queue, queue->count, value);
}

int queue_check_mode(const struct queue *queue, const struct engine_claim *claim,
                     struct error_text *err)
{
    const struct value *first = queue->count ? &queue->at[0].value : NULL;
    bool permit = claim->mode == HF_PERMIT;

    if (!first || first->mode == VALUE_BROKEN)
        return HF_OK;
    if (permit != (first->mode == VALUE_PERMIT))
        return error_set(err, HF_EMODE, "'%.100s' is in use otherwise: it is %s pool of permits",
                         claim->name, permit ? "not a" : "a");
    if (permit && first->permits != claim->permits)
        return error_set(err, HF_EMODE, "'%.100s' is in use otherwise: with %u permits",
                         claim->name, first->permits);
    return HF_OK;
}

int queue_awaits(const struct queue *queue, size_t index, bool *ret_puts)
{
    const struct value *value = &queue->at[index].value;

    *ret_puts = false;
    if (value->mode != VALUE_SHARED && value->mode != VALUE_PERMIT)
        return (int)index - 1;
    for (size_t i = index; i > 0; i--)
        if (!is_beside(&queue->at[i - 1].value, value))
            return (int)i - 1;
    if (index <= value->permits)
        return -1;
    *ret_puts = true;
    return (int)index - 1;
}
