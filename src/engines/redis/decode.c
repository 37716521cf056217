#include "base/sha256.h"
#include "base/text.h"
#include "engines/redis/store.h"

#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT 500 /* keys looked at per page */
#define DIGEST_BYTES 8 /* of a lease, shown */

/* ---- rows ------------------------------------------------------------------------------------ */

static void copy(const struct resp_node *from, char *ret_text, size_t size)
{
    size_t length = from && from->text ? from->size : 0;

    if (length >= size)
        length = size - 1;
    if (length > 0)
        memcpy(ret_text, from->text, length);
    ret_text[length] = '\0';
}

bool row_read(const struct resp_node *value, const char *name, struct row *ret_row)
{
    int64_t token, permits;

    if (!value || value->count != 8 || !resp_to_int64(resp_item(value, 2), &permits) ||
        !resp_to_int64(resp_item(value, 4), &token) ||
        !resp_to_int64(resp_item(value, 6), &ret_row->age_ms) ||
        !resp_to_int64(resp_item(value, 7), &ret_row->left_ms) || permits < 0 ||
        permits > HF_PERMITS_MAX || token < 0 || token > (int64_t)HF_TOKEN_MAX)
        return false;
    memcpy(ret_row->name, name, strlen(name) + 1);
    copy(resp_item(value, 3), ret_row->lease, sizeof ret_row->lease);
    copy(resp_item(value, 5), ret_row->owner, sizeof ret_row->owner);
    ret_row->waits = resp_is(resp_item(value, 0), "w");
    ret_row->withheld = resp_is(resp_item(value, 0), "b");
    ret_row->mode = resp_is(resp_item(value, 1), "s")   ? HF_SHARED
                    : resp_is(resp_item(value, 1), "p") ? HF_PERMIT
                                                        : HF_EXCLUSIVE;
    ret_row->permits = (uint32_t)permits;
    ret_row->token = (uint64_t)token;
    if (ret_row->age_ms < 0) /* the server's clock was set back */
        ret_row->age_ms = -1;
    if (ret_row->left_ms < 0) /* another program's lock without an end */
        ret_row->left_ms = ret_row->waits ? -1 : HF_UNLIMITED;
    return true;
}

int row_add(const struct row *row, const struct engine_sink *sink)
{
    unsigned char digest[SHA256_SIZE];
    char lease[2 * DIGEST_BYTES + 1] = "";

    if (row->lease[0]) {
        sha256(row->lease, strlen(row->lease), digest);
        text_hex(digest, DIGEST_BYTES, lease);
    }
    return sink->add(sink->context,
                     &(hf_entry){.size = sizeof(hf_entry),
                                 .kind = row->waits      ? HF_ENTRY_WAITER
                                         : row->withheld ? HF_ENTRY_WITHHELD
                                                         : HF_ENTRY_HOLDER,
                                 .mode = row->mode,
                                 .permits = row->permits,
                                 .name = row->name,
                                 .token = row->token,
                                 .owner = row->owner,
                                 .lease = lease,
                                 .age_ms = row->age_ms,
                                 .left_ms = row->left_ms,
                                 /* Ours have tokens. */
                                 .foreign = !row->waits && !row->withheld && row->token == 0});
}

/* ---- names ----------------------------------------------------------------------------------- */

bool names_add(struct names *names, const char *bytes, size_t size)
{
    char *name;

    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 256;
        char **grown = realloc(names->names, capacity * sizeof *grown);

        if (!grown)
            return false;
        names->names = grown;
        names->capacity = capacity;
    }
    name = strndup(bytes, size);
    if (!name)
        return false;
    names->names[names->count++] = name;
    return true;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void names_sort(struct names *names)
{
    size_t kept = 0;

    if (names->count == 0)
        return;
    qsort(names->names, names->count, sizeof *names->names, compare);
    for (size_t i = 1; i < names->count; i++) {
        if (strcmp(names->names[kept], names->names[i]) == 0)
            free(names->names[i]);
        else
            names->names[++kept] = names->names[i];
    }
    names->count = kept + 1;
}

void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct names){0};
}

/* ---- SCAN ------------------------------------------------------------------------------------ */

void scan_write(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct scanning *scanning = context;
    char pattern[2 * REDIS_PREFIX_MAX + 2];
    size_t used = 0;

    (void)index;
    (void)by_text;
    for (const char *at = scanning->store->prefix; *at; at++) {
        if (strchr("*?[]\\^-", *at))
            pattern[used++] = '\\';
        pattern[used++] = *at;
    }
    pattern[used++] = '*';
    resp_write_array(writer, 8);
    resp_write_text(writer, "SCAN");
    resp_write_text(writer, scanning->cursor);
    resp_write_text(writer, "MATCH");
    resp_write_blob(writer, pattern, used);
    resp_write_text(writer, "COUNT");
    resp_write_number(writer, SCAN_COUNT);
    resp_write_text(writer, "TYPE");
    resp_write_text(writer, "string");
}

/* A key of ours, a name that cannot be, or no name at all: not a lock. */
static bool is_lock(const struct engine_store *store, const struct resp_node *key)
{
    size_t prefix = strlen(store->prefix), reserved = strlen(SCRIPT_KEY_RESERVED);

    return key->type == RESP_BLOB && key->size > prefix && key->size - prefix <= HF_NAME_MAX &&
           !memchr(key->text, '\0', key->size) &&
           (key->size < reserved || memcmp(key->text, SCRIPT_KEY_RESERVED, reserved) != 0);
}

/* [cursor, [key, key, ...]] */
void scan_read(void *context, int node, int index, const struct resp_node *value)
{
    struct scanning *scanning = context;
    const struct resp_node *cursor = resp_item(value, 0), *keys = resp_item(value, 1);
    size_t prefix = strlen(scanning->store->prefix);

    (void)node;
    (void)index;
    scanning->well = false;
    if (!cursor || !keys || cursor->type != RESP_BLOB || cursor->size >= SCAN_CURSOR_MAX)
        return;
    for (const struct resp_node *key = keys + 1; key < keys + keys->span; key += key->span)
        if (is_lock(scanning->store, key) &&
            !names_add(&scanning->names, key->text + prefix, key->size - prefix))
            return;
    copy(cursor, scanning->cursor, SCAN_CURSOR_MAX);
    scanning->well = true;
}
