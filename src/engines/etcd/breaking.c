/* breaking.c: the operator's way out.
 *
 * A holder that is broken keeps its key, and so its place before all who wait, but the key is marked, and moved to a lease of ours for as long
 * as the holder may still believe that it holds: the TTL that its own lease was granted with. The holder, who watches its key, is
 * told at once. Without a grace the key is deleted. The holder's lease, which has no key any more, is revoked; not if it is somebody
 * else's, or several holds share it. */
#include "base/clock.h"
#include "engines/etcd/store.h"

#include <stdio.h>

#define BREAK_MS 10000
#define BREAK_TRIES 5

/* How long the holder may believe. */
static int64_t ttl_of(struct engine_store *store, const struct member *member, int64_t deadline_ms)
{
    struct error_text ignored;
    int64_t granted_ms = -1;

    if (lease_left(store, member->lease, deadline_ms, NULL, &granted_ms, &ignored) != HF_OK ||
        granted_ms < 0)
        granted_ms = 0;
    if (granted_ms < member->value.ttl_ms)
        granted_ms = member->value.ttl_ms;
    return granted_ms > 0 ? granted_ms : HF_TTL_DEFAULT_MS;
}

static int break_one(struct engine_store *store, const struct place *place,
                     const struct member *member, bool withhold, int64_t deadline_ms,
                     bool *ret_done, struct error_text *err)
{
    struct value value = member->value;
    struct body operations = {0};
    struct queue after = {0};
    struct error_text ignored;
    char bytes[ETCD_VALUE_MAX];
    int64_t lease = 0;
    bool again = false;
    int index, result = HF_OK;

    if (withhold)
        result = lease_grant(store, ttl_of(store, member, deadline_ms), 0, false, NULL, deadline_ms,
                             &lease, err);
    if (result != HF_OK)
        return result;
    value.mode = VALUE_BROKEN;
    value.permits = 0;
    value.since_ms = clock_wall_ms();
    if (withhold)
        txn_add_put(&operations, member->key, member->key_size, bytes, value_write(&value, bytes),
                    lease);
    else
        txn_add_delete(&operations, member->key, member->key_size);
    result = txn_if_unchanged(store, place, member->key, member->key_size, member->mod, &operations,
                              deadline_ms, &after, ret_done, &again, err);
    body_free(&operations);
    if (result == HF_OK && !*ret_done && again) { /* perhaps it was done a moment ago */
        index = queue_find(&after, member->key, member->key_size);
        *ret_done = withhold ? index >= 0 && after.at[index].lease == lease : index < 0;
    }
    queue_free(&after);
    if (result == HF_OK && *ret_done && member->value.mode != VALUE_FOREIGN &&
        !(member->lease & LEASE_SHARED) && member->lease != 0)
        lease_revoke(store, member->lease, deadline_ms, NULL, &ignored);
    return result == HF_ELOST ? HF_EUNKNOWN : result;
}

/* Whoever held the name when it was first looked at is meant, and nobody who came to it since. */
int etcd_break(struct engine_store *store, const char *name, int64_t grace_ms, uint32_t *ret_broken,
               struct error_text *err)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), BREAK_MS);
    struct queue meant = {0}, now = {0};
    struct place place;
    uint32_t broken = 0;
    int result;

    place_of_name(store, name, false, &place);
    result = txn_look(store, &place, NULL, deadline_ms, &meant, err);
    for (size_t i = 0; i < meant.count && result == HF_OK; i++) {
        struct member member = meant.at[i];
        bool withheld = member.value.mode == VALUE_BROKEN; /* by an earlier break */
        bool done = !queue_holds(&meant, i) && !(withheld && grace_ms == 0);

        broken += !done && !withheld; /* of that nobody holds anything any more */
        /* A renewal may have come between. */
        for (int try = 0; try < BREAK_TRIES && result == HF_OK && !done; try++) {
            result = break_one(store, &place, &member, grace_ms != 0, deadline_ms, &done, err);
            if (result != HF_OK || done)
                break;
            result = txn_look(store, &place, NULL, deadline_ms, &now, err);
            if (result == HF_OK) {
                int index = queue_find(&now, member.key, member.key_size);

                if (index < 0 || now.at[index].create != member.create ||
                    (now.at[index].value.mode == VALUE_BROKEN &&
                     !withheld)) { /* it ended by itself */
                    done = true;
                    broken -= !withheld;
                } else {
                    member.mod = now.at[index].mod;
                    member.lease = now.at[index].lease;
                }
            }
        }
        if (result == HF_OK && !done)
            result = error_set(err, HF_EUNKNOWN, "the key of the holder changes all the time");
    }
    queue_free(&meant);
    queue_free(&now);
    if (result == HF_OK)
        *ret_broken = broken;
    return result;
}
