/* leases.c: granting and revoking. */
#include "base/clock.h"
#include "base/random.h"
#include "engines/etcd/store.h"

#include <inttypes.h>
#include <stdio.h>

#define NOT_FOUND "requested lease not found"
#define ALREADY_THERE "lease already exists"
#define GRANT_TRIES 8

static int64_t draw(bool shared)
{
    uint64_t number;

    random_fill(&number, sizeof number);
    number &= INT64_MAX;
    number = shared ? number | (uint64_t)LEASE_SHARED : number & ~(uint64_t)LEASE_SHARED;
    return number ? (int64_t)number : 2;
}

/* Whole seconds, and never less than asked for. */
static int64_t seconds_of(int64_t ttl_ms)
{
    return (ttl_ms + 999) / 1000;
}

int lease_grant(struct engine_store *store, int64_t ttl_ms, int64_t wanted, bool shared,
                const _Atomic bool *interrupted, int64_t deadline_ms, int64_t *ret_lease,
                struct error_text *err)
{
    int64_t lease = wanted ? wanted : draw(shared);
    int result;

    /* A number is not sent twice: what may have been granted unseen is left to run out. */
    for (int i = 0; i < GRANT_TRIES; i++) {
        char body[96];
        struct question question = {.path = "/v3/lease/grant",
                                    .body = body,
                                    .interrupted = interrupted,
                                    .absent = ALREADY_THERE};
        json_t *answer = NULL;
        int64_t granted_s = 0;

        snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\",\"TTL\":\"%" PRId64 "\"}", lease,
                 seconds_of(ttl_ms));
        result = gateway_ask(store, &question, deadline_ms, &answer, err);
        if (result == HF_OK && answer) {
            bool well = json_number(answer, "TTL", &granted_s) && granted_s >= seconds_of(ttl_ms);

            json_decref(answer);
            if (!well)
                return error_set(err, HF_EREFUSED, "etcd grants a lease of %lld s only",
                                 (long long)granted_s);
            *ret_lease = lease;
            return HF_OK;
        }
        if (result != HF_OK && result != HF_EUNKNOWN)
            return result;
        lease = draw(shared);
        if (clock_boot_ms() >= deadline_ms)
            break;
    }
    /* No key was ever put with it: nothing was done that counts. */
    return HF_EUNREACH;
}

int lease_revoke(struct engine_store *store, int64_t lease, int64_t deadline_ms, bool *ret_existed,
                 struct error_text *err)
{
    char body[64];
    bool again = false;
    struct question question = {.path = "/v3/lease/revoke",
                                .body = body,
                                .repeatable = true,
                                .absent = NOT_FOUND,
                                .ret_again = &again};
    json_t *answer = NULL;
    int result;

    snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\"}", lease);
    result = gateway_ask(store, &question, deadline_ms, &answer, err);
    if (result == HF_OK && ret_existed)
        *ret_existed = answer != NULL || again;
    json_decref(answer);
    return result;
}

int lease_left(struct engine_store *store, int64_t lease, int64_t deadline_ms, int64_t *ret_left_ms,
               int64_t *ret_granted_ms, struct error_text *err)
{
    char body[64];
    struct question question = {.path = "/v3/lease/timetolive",
                                .body = body,
                                .repeatable = true,
                                .reads = true,
                                .absent = NOT_FOUND};
    int64_t left_s = -1, granted_s = -1;
    json_t *answer = NULL;
    int result;

    snprintf(body, sizeof body, "{\"ID\":\"%" PRId64 "\"}", lease);
    result = gateway_ask(store, &question, deadline_ms, &answer, err);
    if (result != HF_OK)
        return result;
    if (answer &&
        (!json_number(answer, "TTL", &left_s) || !json_number(answer, "grantedTTL", &granted_s)))
        left_s = granted_s = -1;
    json_decref(answer);
    if (ret_left_ms)
        *ret_left_ms = left_s < 0 ? -1 : left_s * 1000;
    if (ret_granted_ms)
        *ret_granted_ms = left_s < 0 ? -1 : granted_s * 1000;
    return HF_OK;
}
