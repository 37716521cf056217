/* renewing.c: keeping what is held, and places in queues.
 *
 * A new lease is granted, and the keys are moved to it, many in one transaction, each by its own comparison (nested transactions): one
 * that is gone says nothing about the others. A claim that is renewed alone has its lease to itself, and the one before is revoked.
 * A key whose modification is another one than we know, after an answer was lost, is moved in a second round. */
#include "base/clock.h"
#include "engines/etcd/store.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 3
#define TIDY_MS 200 /* for revoking what is not needed any more */

struct renewing {
    struct engine_store *store;
    struct etcd_claim *own[ETCD_RENEW_MAX];
    int64_t *left_ms[ETCD_RENEW_MAX];
    int count;
    int64_t lease;
};

static void write_one(struct body *body, const struct etcd_claim *own, int64_t lease)
{
    body_add(body, "{\"request_txn\":{\"compare\":[");
    txn_add_compare_mod(body, own->key, own->key_size, own->mod);
    body_add(body, "],\"success\":[");
    txn_add_put(body, own->key, own->key_size, NULL, 0, lease);
    body_add(body, "],\"failure\":[{\"request_range\":{\"key\":");
    body_blob(body, own->key, own->key_size);
    body_add(body, "}}]}}");
}

/* It is moved, or here is the key as it is, if it is. */
static void read_one(struct renewing *renewing, int index, const json_t *txn, int64_t revision)
{
    struct etcd_claim *own = renewing->own[index];
    const json_t *range = txn_response(txn, 0, "response_range");
    struct queue found = {0};
    struct error_text ignored;

    if (json_is_true(json_object_get(txn, "succeeded"))) {
        own->mod = (uint64_t)revision;
        own->bound = renewing->lease;
        own->unsure = false;
        *renewing->left_ms[index] = own->claim->ttl_ms;
    } else if (json_is_object(range) && queue_read(range, &own->place, &found, &ignored) == HF_OK) {
        const struct member *key = found.count == 1 ? &found.at[0] : NULL;

        own->create = own->create ? own->create : own->claim->token;
        if (!key || key->create != own->create || key->value.mode == VALUE_BROKEN) {
            *renewing->left_ms[index] = ENGINE_GONE;
        } else {
            own->mod = key->mod;
            own->bound = key->lease;
            own->unsure = false;
            if (key->lease == renewing->lease) /* an answer to this was lost a moment ago */
                *renewing->left_ms[index] = own->claim->ttl_ms;
        }
    }
    queue_free(&found);
}

static bool is_open(const struct renewing *renewing, int index)
{
    return *renewing->left_ms[index] == ENGINE_NOT_KNOWN;
}

/* etcd does not look at permissions within nested transactions, so a user whose role was withdrawn could renew for ever, and not
 * release. It looks at both branches of the outer one, and the second is never taken: there is nothing that it compares. */
static void add_permissions(struct body *body, const struct renewing *renewing)
{
    size_t at = 0;

    body_add(body, "],\"failure\":[");
    for (int i = 0; i < renewing->count; i++)
        if (is_open(renewing, i)) {
            body_add(body, "%s", at++ ? "," : "");
            txn_add_delete(body, renewing->own[i]->key, renewing->own[i]->key_size);
        }
}

/* Moves all that are not known yet. */
static int move(struct renewing *renewing, int64_t deadline_ms, struct error_text *err)
{
    struct question question = {.path = "/v3/kv/txn", .repeatable = true};
    struct body body = {0};
    int64_t revision = 0;
    json_t *answer = NULL;
    size_t at = 0;
    int result;

    body_add(&body, "{\"success\":[");
    for (int i = 0; i < renewing->count; i++)
        if (is_open(renewing, i)) {
            body_add(&body, "%s", at++ ? "," : "");
            write_one(&body, renewing->own[i], renewing->lease);
        }
    add_permissions(&body, renewing);
    body_add(&body, "]}");
    question.body = body.bytes;
    result = body.failed ? error_set(err, HF_ENOMEM, "out of memory")
                         : gateway_ask(renewing->store, &question, deadline_ms, &answer, err);
    body_free(&body);
    at = 0;
    if (result == HF_OK && !json_number(json_object_get(answer, "header"), "revision", &revision))
        result = error_set(err, HF_EINTERNAL, "etcd returned an invalid answer to a transaction");
    if (result == HF_OK)
        txn_note_revision(renewing->store, (uint64_t)revision);
    for (int i = 0; i < renewing->count && (result == HF_OK || result == HF_EUNKNOWN); i++) {
        if (!is_open(renewing, i))
            continue;
        if (result == HF_OK)
            read_one(renewing, i, txn_response(answer, at++, "response_txn"), revision);
        else
            renewing->own[i]->unsure = true;
    }
    json_decref(answer);
    return result;
}

static bool any_open(const struct renewing *renewing)
{
    for (int i = 0; i < renewing->count; i++)
        if (is_open(renewing, i))
            return true;
    return false;
}

/* What comes after: leases that are of no use any more, once-records, the watch of an adopted claim. */
static void tidy(struct renewing *renewing, int64_t deadline_ms)
{
    int64_t until_ms = clock_after(clock_boot_ms(), TIDY_MS);

    until_ms = until_ms < deadline_ms ? until_ms : deadline_ms;
    for (int i = 0; i < renewing->count; i++) {
        struct etcd_claim *own = renewing->own[i];

        if (*renewing->left_ms[i] < 0)
            continue;
        if (own->claim->once && own->run_lease)
            once_renew(renewing->store, own, until_ms);
        if (!own->watch && own->claim->token)
            watch_held(renewing->store, own);
        if (renewing->count == 1)
            claim_revoke_others(renewing->store, own, until_ms);
    }
}

/* All of them have TTLs that one lease can be for. */
static int renew_together(struct renewing *renewing, int64_t ttl_ms, int64_t deadline_ms,
                          struct error_text *err)
{
    bool shared = renewing->count > 1;
    int result =
        lease_grant(renewing->store, ttl_ms, 0, shared, NULL, deadline_ms, &renewing->lease, err);

    if (result == HF_OK && !shared)
        result =
            claim_note_lease(renewing->store, renewing->own[0], renewing->lease, deadline_ms, err);
    for (int i = 0; i < ROUNDS && result == HF_OK && any_open(renewing); i++)
        result = move(renewing, deadline_ms, err);
    if (result == HF_OK && any_open(renewing))
        result = error_set(err, HF_EUNKNOWN, "the keys change all the time");
    tidy(renewing, deadline_ms);
    return result;
}

int etcd_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
               int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct renewing *renewing = malloc(sizeof *renewing);
    int result = HF_OK;

    if (!renewing)
        return error_set(err, HF_ENOMEM, "out of memory");
    for (int done = 0; done < count;) {
        int64_t ttl_ms = 0;
        int renewed;

        *renewing = (struct renewing){.store = store};
        for (; done < count && renewing->count < ETCD_RENEW_MAX; done++) {
            struct etcd_claim *own = claim_private(store, claims[done]);

            if (!own) {
                result = error_set(err, HF_ENOMEM, "out of memory");
                continue;
            }
            if (renewing->count > 0 && claims[done]->ttl_ms != ttl_ms)
                break;
            ttl_ms = claims[done]->ttl_ms;
            own->create = own->create ? own->create : claims[done]->token;
            renewing->own[renewing->count] = own;
            renewing->left_ms[renewing->count++] = &ret_left_ms[done];
        }
        renewed = renewing->count ? renew_together(renewing, ttl_ms, deadline_ms, err) : HF_OK;
        result = result == HF_OK ? renewed : result;
    }
    free(renewing);
    return result;
}
