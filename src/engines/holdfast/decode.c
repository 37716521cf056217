/* decode.c: what SHOW and LOCKS answer: a name with its holders and those who wait. */
#include "engines/holdfast/store.h"

#include <string.h>

#define DIGEST_MAX 64 /* bytes of a lease's digest, shown */

const struct resp_node *map_value(const struct resp_node *map, const char *key)
{
    const struct resp_node *at;

    if (!map || map->type != RESP_MAP)
        return NULL;
    at = map + 1;
    for (uint32_t i = 0; i + 1 < map->count; i += 2) {
        const struct resp_node *value = at + at->span;

        if (resp_is(at, key))
            return value;
        at = value + value->span;
    }
    return NULL;
}

int64_t map_number(const struct resp_node *map, const char *key, int64_t otherwise)
{
    int64_t number;

    return resp_to_int64(map_value(map, key), &number) ? number : otherwise;
}

void map_text(const struct resp_node *map, const char *key, char *ret_text, size_t size)
{
    const struct resp_node *from = map_value(map, key);
    size_t length = from && from->text ? from->size : 0;

    if (length >= size)
        length = size - 1;
    if (length > 0)
        memcpy(ret_text, from->text, length);
    ret_text[length] = '\0';
}

static int mode_of(const struct resp_node *claim)
{
    const struct resp_node *mode = map_value(claim, "mode");

    if (resp_is(mode, "shared"))
        return HF_SHARED;
    return resp_is(mode, "permit") ? HF_PERMIT : HF_EXCLUSIVE;
}

static bool has_state(const struct resp_node *claim, const char *state)
{
    return resp_is(map_value(claim, "state"), state);
}

static int add_claim(const struct resp_node *claim, const char *name, uint32_t permits, int kind,
                     const struct engine_sink *sink)
{
    char owner[HF_OWNER_MAX + 1], lease[DIGEST_MAX + 1];
    int mode = mode_of(claim);

    map_text(claim, "owner", owner, sizeof owner);
    map_text(claim, "lease", lease, sizeof lease);
    return sink->add(sink->context, &(hf_entry){.size = sizeof(hf_entry),
                                                .kind = kind,
                                                .mode = mode,
                                                .permits = mode == HF_PERMIT ? permits : 0,
                                                .name = name,
                                                .token = (uint64_t)map_number(claim, "token", 0),
                                                .owner = owner,
                                                .lease = lease,
                                                .age_ms = map_number(claim, "age_ms", -1),
                                                .left_ms = map_number(claim, "left_ms", -1)});
}

/* What is withheld is held by nobody. *ret_count grows by those who were added. */
static int add_claims(const struct resp_node *claims, const char *state, const char *name,
                      uint32_t permits, int kind, const struct engine_sink *sink, int *ret_count)
{
    const struct resp_node *claim = claims ? claims + 1 : NULL;
    int result = HF_OK;

    for (uint32_t i = 0; claims && i < claims->count && result == HF_OK; i++) {
        if (has_state(claim, state)) {
            result = add_claim(claim, name, permits, kind, sink);
            ++*ret_count;
        }
        claim += claim->span;
    }
    return result;
}

/* Nobody holds it. The longest that is left counts; a server may show only some of them. */
static int add_withheld(const struct resp_node *lock, const char *name,
                        const struct engine_sink *sink)
{
    const struct resp_node *holders = map_value(lock, "holders"), *claim;
    int64_t left_ms = -1;

    claim = holders ? holders + 1 : NULL;
    for (uint32_t i = 0; holders && i < holders->count; i++) {
        if (map_number(claim, "left_ms", -1) > left_ms)
            left_ms = map_number(claim, "left_ms", -1);
        claim += claim->span;
    }
    return sink->add(sink->context, &(hf_entry){.size = sizeof(hf_entry),
                                                .kind = HF_ENTRY_WITHHELD,
                                                .name = name,
                                                .owner = "",
                                                .lease = "",
                                                .age_ms = -1,
                                                .left_ms = left_ms});
}

int decode_lock(const struct engine_store *store, const struct resp_node *lock,
                const struct engine_sink *sink)
{
    const struct resp_node *full = map_value(lock, "name");
    uint32_t permits = (uint32_t)map_number(lock, "permits", 0);
    char name[HF_NAME_MAX + 1];
    int held = 0, waits = 0, result;

    if (!full || full->type != RESP_BLOB || full->size > HF_NAME_MAX)
        return HF_EINTERNAL;
    if (full->size <= store->prefix_size ||
        memcmp(full->text, store->prefix, store->prefix_size) != 0)
        return HF_OK;
    memcpy(name, full->text + store->prefix_size, full->size - store->prefix_size);
    name[full->size - store->prefix_size] = '\0';
    result = add_claims(map_value(lock, "holders"), "holds", name, permits, HF_ENTRY_HOLDER, sink,
                        &held);
    if (result == HF_OK)
        result = add_claims(map_value(lock, "waiters"), "waits", name, permits, HF_ENTRY_WAITER,
                            sink, &waits);
    if (result == HF_OK && held == 0 && map_number(lock, "holds", 0) > 0)
        result = add_withheld(lock, name, sink);
    return result;
}

void decode_holders(const struct resp_node *lock, void (*fn)(void *context, uint64_t token),
                    void *context)
{
    const struct resp_node *holders = map_value(lock, "holders"), *claim;

    claim = holders ? holders + 1 : NULL;
    for (uint32_t i = 0; holders && i < holders->count; i++) {
        if (has_state(claim, "holds"))
            fn(context, (uint64_t)map_number(claim, "token", 0));
        claim += claim->span;
    }
}
