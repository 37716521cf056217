/* renewing.c: keeping what is held, and places in queues: many in one statement, and each has an answer of its own. */
#include "base/clock.h"
#include "base/text.h"
#include "engines/postgres/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES_MAX 3 /* for those whose row somebody had locked just then */
#define PAUSE_MS 5

struct renewing {
    struct engine_store *store;
    struct engine_claim *const *claims;
    int count;
    int64_t *left_ms;
    uint32_t era;
};

static bool is_open(const struct renewing *renewing, int index)
{
    return renewing->left_ms[index] == ENGINE_NOT_KNOWN && renewing->claims[index]->private;
}

static bool next_number(const char **text, long long *ret_number)
{
    char *end;

    *ret_number = strtoll(*text, &end, 10);
    if (end == *text)
        return false;
    *text = end;
    return true;
}

static void take_answer(struct renewing *renewing, const char *lefts, const char *beats,
                        int64_t sent_ms)
{
    for (int i = 0; i < renewing->count; i++) {
        struct pg_claim *own;
        long long left_ms, beat;

        if (!is_open(renewing, i))
            continue;
        if (!next_number(&lefts, &left_ms) || !next_number(&beats, &beat))
            return;
        own = renewing->claims[i]->private;
        if (left_ms >= 0) {
            atomic_store(&own->beat_ms, sent_ms);
            atomic_store(&own->beat, beat);
            renewing->left_ms[i] = left_ms;
        } else if (left_ms == ENGINE_GONE) {
            renewing->left_ms[i] = ENGINE_GONE;
        }
    }
}

static int renew_once(struct renewing *renewing, int64_t deadline_ms, struct error_text *err)
{
    struct question question = {.statement = STATEMENT_RENEW,
                                .patience = true,
                                .urgent = true,
                                .renews = true,
                                .dated = true,
                                .era = renewing->era};
    struct text names = {0}, leases = {0}, tokens = {0}, ids = {0}, ttls = {0}, known = {0};
    struct text *const all[] = {&names, &leases, &tokens, &ids, &ttls, &known};
    int64_t sent_ms = clock_boot_ms();
    char host[PG_HOST_MAX];
    PGresult *answer = NULL;
    bool failed = false;
    int result;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        text_add(all[i], "{");
    for (int i = 0; i < renewing->count; i++) {
        struct pg_claim *own = renewing->claims[i]->private;

        if (!is_open(renewing, i))
            continue;
        text_add_name(&names, own->key.bytes, own->key.size);
        text_add_name(&leases, own->lease, sizeof own->lease);
        text_add_number(&tokens, (int64_t)renewing->claims[i]->token);
        text_add_number(&ids, atomic_load(&own->id));
        text_add_number(&ttls, renewing->claims[i]->ttl_ms);
        text_add_number(&known, atomic_load(&own->beat));
    }
    question_add_expected(&question);
    question_add_number(&question, 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        text_add(all[i], "}");
        failed = failed || all[i]->failed;
        question_add_text(&question, all[i]->bytes);
    }
    store_host(renewing->store, host);
    question_add_text(&question, host);
    question_add_number(&question, store_kernel_ms(renewing->store, sent_ms));
    if (failed)
        result = error_set(err, HF_ENOMEM, "out of memory");
    else
        result = store_ask(renewing->store, &question, deadline_ms, &answer, err);
    if (result == HF_OK)
        take_answer(renewing, answer_text(answer, 0, 2), answer_text(answer, 0, 3), sent_ms);
    PQclear(answer);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        text_drop(all[i]);
    return result;
}

static bool any_open(const struct renewing *renewing)
{
    for (int i = 0; i < renewing->count; i++)
        if (is_open(renewing, i))
            return true;
    return false;
}

/* What another server granted, or this one before it was promoted, is not known to anybody now. */
static void end_old_ones(struct renewing *renewing)
{
    renewing->era = store_era(renewing->store);
    for (int i = 0; i < renewing->count; i++) {
        struct pg_claim *own = claim_private(renewing->store, renewing->claims[i]);
        uint32_t none = 0;

        if (!own)
            continue;
        atomic_compare_exchange_strong(&own->era, &none, renewing->era); /* one that was adopted */
        if (atomic_load(&own->era) != renewing->era)
            renewing->left_ms[i] = ENGINE_GONE;
    }
}

int pg_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
             int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct renewing renewing = {
        .store = store, .claims = claims, .count = count, .left_ms = ret_left_ms};
    int result = store_reach(store, deadline_ms, err);

    if (result != HF_OK)
        return result;
    for (int i = 0; i < TRIES_MAX; i++) {
        struct timespec span = {0, PAUSE_MS * 1000000};

        end_old_ones(&renewing);
        if (!any_open(&renewing))
            break;
        if (i > 0)
            nanosleep(&span, NULL);
        result = renew_once(&renewing, deadline_ms, err);
        if (result != HF_OK && result != HF_ESTORE)
            return result;
    }
    end_old_ones(&renewing);
    for (int i = 0; i < count; i++) {
        struct pg_claim *own = claims[i]->private;

        if (!own)
            return error_set(err, HF_ENOMEM, "out of memory");
        if (ret_left_ms[i] >= 0 && claims[i]->token > 0)
            listener_add(store, own); /* one that was adopted is told of a break, too */
    }
    breaks_explain(store, claims, count, ret_left_ms, deadline_ms);
    if (any_open(&renewing))
        return error_set(err, HF_EUNKNOWN, "somebody has the row of a claim locked all the time");
    return HF_OK;
}
