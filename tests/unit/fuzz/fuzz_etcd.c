/* fuzz_etcd.c: what a gateway of etcd, or something else in its place, answers: JSON as jansson gives it, the streams of watches that are
 * cut into objects first, the keys and values in them, and its errors. The input's first byte says which. Whole or in pieces, a stream has
 * the same objects; what is taken for a queue is in order, and says who holds; a value of ours reads again as it was written. */
#include "base/hash.h"
#include "engines/etcd/store.h"
#include "fuzz.h"

#include <holdfast/once.h>

static struct engine_store store;

/* ---- streams ----------------------------------------------------------------------------------- */

static void note_object(void *context, const char *object, size_t size)
{
    uint64_t *sum = context, parts[2] = {*sum, hash_bytes(object, size)};

    REQUIRE(size >= 2 && (object[size - 1] == '}' || object[size - 1] == ']'));
    *sum = hash_bytes(parts, sizeof parts);
}

static int feed(const char *bytes, size_t size, size_t piece, uint64_t *ret_sum)
{
    struct splitter splitter = {0};
    int result = HF_OK;

    *ret_sum = 0;
    for (size_t at = 0; at < size && result == HF_OK; at += piece) {
        char *exact = (char *)fuzz_copy(bytes + at, piece < size - at ? piece : size - at);

        result = splitter_feed(&splitter, exact, piece < size - at ? piece : size - at, note_object,
                               ret_sum);
        free(exact);
    }
    splitter_free(&splitter);
    return result;
}

static void try_stream(const char *bytes, size_t size)
{
    uint64_t whole, pieces;
    int result = size ? feed(bytes, size, size, &whole) : HF_OK;

    REQUIRE(result == HF_OK || result == HF_EINTERNAL);
    for (size_t piece = 1; size > 0 && piece < 8; piece += 3) {
        REQUIRE(feed(bytes, size, piece, &pieces) == result);
        REQUIRE(whole == pieces);
    }
}

/* ---- queues ------------------------------------------------------------------------------------ */

static void look_at_once(const struct once_key *key)
{
    if (!key->exists)
        return;
    REQUIRE(key->state == 'd' || key->state == 'r');
    REQUIRE(key->size == 0 || key->bytes);
    hash_bytes(key->bytes, key->size); /* all of it is there, or a sanitizer says so */
}

static void look_at_queue(struct queue *queue)
{
    struct error_text err = {""};
    bool puts;

    for (size_t i = 0; i < queue->count; i++) {
        const struct member *member = &queue->at[i];
        int awaits = queue_awaits(queue, i, &puts);

        REQUIRE(member->create > 0 && member->mod >= member->create && member->key);
        REQUIRE(i == 0 || queue->at[i - 1].create <= member->create);
        REQUIRE(awaits < (int)i && awaits >= -1);
        REQUIRE(i == 0 || member->value.mode != VALUE_FOREIGN || !queue_holds(queue, i));
        REQUIRE(queue_find(queue, member->key, member->key_size) <= (int)i);
    }
    for (int mode = HF_EXCLUSIVE; mode <= HF_PERMIT; mode++) {
        struct engine_claim claim = {
            .name = "n", .lease = "l", .mode = mode, .permits = mode == HF_PERMIT ? 2 : 0};
        int result = queue_check_mode(queue, &claim, &err);

        REQUIRE(result == HF_OK || (result == HF_EMODE && err.text[0]));
    }
    look_at_once(&queue->result);
    look_at_once(&queue->run);
    queue_runs(queue);
}

static void try_range(const char *bytes, size_t size)
{
    json_t *range = json_loadb(bytes, size, 0, NULL);
    struct error_text err = {""};
    struct queue queue = {0};
    struct place place;
    int result;

    place_of_name(&store, "a/b", false, &place);
    result = queue_read(range, &place, &queue, &err);
    REQUIRE(result == HF_OK || err.text[0]);
    if (result == HF_OK)
        look_at_queue(&queue);
    queue_free(&queue);
    json_decref(range);
}

/* ---- the rest ---------------------------------------------------------------------------------- */

static void try_value(const char *bytes, size_t size)
{
    char again[ETCD_VALUE_MAX];
    struct value value, same;

    value_read(bytes, size, &value);
    if (value.mode == VALUE_FOREIGN)
        return;
    REQUIRE(strchr("xspb", (char)value.mode) && strlen(value.owner) <= HF_OWNER_MAX);
    REQUIRE(value.ttl_ms >= 0 && value.ttl_ms <= HF_TTL_MAX_MS);
    REQUIRE((value.mode == VALUE_PERMIT) == (value.permits > 0));
    value_read(again, value_write(&value, again), &same);
    REQUIRE(strcmp(value.owner, same.owner) == 0);
    REQUIRE(value.mode == same.mode && value.permits == same.permits);
    REQUIRE(value.ttl_ms == same.ttl_ms && value.since_ms == same.since_ms);
}

static void try_key(const char *bytes, size_t size)
{
    char name[HF_NAME_MAX + 1];
    struct place place;

    if (!place_name_in(&store, bytes, size, name))
        return;
    REQUIRE(name[0] && strlen(name) <= HF_NAME_MAX);
    place_of_name(&store, name, false, &place);
    REQUIRE(place.size < size && memcmp(bytes, place.bytes, place.size) == 0);
}

static void try_blob(const char *bytes, size_t size)
{
    json_t *object = json_pack("{s:o}", "b", json_stringn_nocheck(bytes, size));
    struct body body = {0};
    size_t decoded_size = 0, again_size = 0;
    char *decoded = json_blob(object, "b", FUZZ_MAX, &decoded_size), *again;

    if (decoded) {
        json_t *other;

        body_add(&body, "{\"b\":");
        body_blob(&body, decoded, decoded_size);
        body_add(&body, "}");
        REQUIRE(!body.failed);
        other = json_loadb(body.bytes, body.size, 0, NULL);
        again = json_blob(other, "b", FUZZ_MAX, &again_size);
        REQUIRE(again && again_size == decoded_size && memcmp(again, decoded, again_size) == 0);
        free(again);
        json_decref(other);
    }
    free(decoded);
    body_free(&body);
    json_decref(object);
}

static void try_error(const char *bytes, size_t size, long status)
{
    static const struct endpoint at = {.address = {.shown = "there:2379"}};
    static const struct access access;
    struct error_text err = {""};
    char words[200];
    int code = HF_OK;
    enum verdict verdict = etcd_error_read(&at, status, bytes, size, &access, &code, &err);

    REQUIRE(verdict >= VERDICT_ELSEWHERE && verdict <= VERDICT_FINAL && err.text[0]);
    REQUIRE(verdict != VERDICT_FINAL || code < 0);
    if (size > 0 && memchr(bytes, '\0', size))
        etcd_error_version(bytes, words, sizeof words);
}

const int fuzz_rounds = 100000;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes;

    if (size < 1)
        return 0;
    if (!store.prefix_size)
        store.prefix_size = (size_t)snprintf(store.prefix, sizeof store.prefix, "holdfast/");
    bytes = (char *)fuzz_copy(data, size); /* as json_blob leaves it: with a NUL behind */
    memmove(bytes, bytes + 1, size - 1);
    bytes[size - 1] = '\0';
    switch (data[0] % 7) {
    case 0:
        try_stream(bytes, size - 1);
        break;
    case 1:
        try_value(bytes, size - 1);
        break;
    case 2:
        try_key(bytes, size - 1);
        break;
    case 3:
        try_blob(bytes, size - 1);
        break;
    case 4:
        try_error(bytes, size - 1, 400 + data[0]);
        break;
    default:
        try_range(bytes, size - 1);
    }
    free(bytes);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t ret_bytes[FUZZ_MAX])
{
    /* The keys: holdfast/a%2Fb/1f, /!result, /!run. The values: hf1 x 0 5000 17 me; hf1 p 2 ...; hf1 d 5 100 7 out. */
    static const struct {
        uint8_t first;
        const char *text;
    } texts[] = {
        {0, "{\"result\":{\"events\":[{\"kv\":{\"key\":\"YQ==\\\"\"}}]}}\n{\"result\":{}} [1]"},
        {1, "hf1 x 0 5000 17 somebody"},
        {1, "hf1 p 2 5000 17 "},
        {2, "holdfast/a%2Fb%25/1f00ab"},
        {3, "aGYxIHggMCA1MDAwIDE3IG1l"},
        {3, "YQ=="},
        {4, "{\"code\":14,\"message\":\"etcdserver: no leader\"}"},
        {11, "{\"error\":\"etcdserver: permission denied\",\"code\":7}"},
        {18, "3.4.23"},
        {5,
         "{\"kvs\":[{\"key\":\"aG9sZGZhc3QvYSUyRmIvMWY=\",\"create_revision\":\"5\",\"mod_"
         "revision\":\"7\","
         "\"lease\":\"77\",\"value\":\"aGYxIHggMCA1MDAwIDE3IG1l\"},{\"key\":"
         "\"aG9sZGZhc3QvYSUyRmIvMmY=\","
         "\"create_revision\":6,\"mod_revision\":\"6\",\"value\":\"aGYxIHAgMiA1MDAwIDE3IA==\"}]}"},
        {6, "{\"kvs\":[{\"key\":\"aG9sZGZhc3QvYSUyRmIvIXJlc3VsdA==\",\"create_revision\":\"5\","
            "\"mod_revision\":\"5\",\"value\":\"aGYxIGQgNSAxMDAgNyBvdXQ=\",\"lease\":\"3\"},"
            "{\"key\":\"aG9sZGZhc3QvYSUyRmIvIXJ1bg==\",\"create_revision\":\"8\",\"mod_revision\":"
            "\"8\","
            "\"value\":\"aGYxIHIgNSAxMDAgNyA=\"}]}"},
        {6, "{\"more\":true,\"kvs\":[]}"},
    };

    if (n == COUNT(texts)) { /* an owner that is too long */
        memset(ret_bytes, 'o', FUZZ_MAX / 8);
        memcpy(ret_bytes, "\1hf1 x 0 1 2 ", 13);
        return FUZZ_MAX / 8;
    }
    if (n > COUNT(texts))
        return 0;
    ret_bytes[0] = texts[n].first;
    memcpy(ret_bytes + 1, texts[n].text, strlen(texts[n].text));
    return 1 + strlen(texts[n].text);
}
