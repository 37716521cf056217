/* claims.c: taking and giving up.
 *
 * An acquisition is one statement. Who is in the way comes with the answer, and is kept: those that are dead by then go with the
 * next attempt. Whoever leaves without the lock notes for others of this host what it has seen, unless that is noted. */
#include "base/clock.h"
#include "base/sha256.h"
#include "engines/postgres/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* In a database whose functions are of before, sql/acquire.sql counts who holds among the first 2,048 of them. */
_Static_assert(HF_PERMITS_MAX < 2048, "no pool is larger than what an acquisition sees of it");

#define TRIES_MAX \
    3 /* of one attempt: what is dead, or was kept long enough, is removed and it goes on */
#define BEAT_PART 4  /* of a TTL: a place in a queue is renewed by an attempt when it is that old */
#define SWEEP_MS 500 /* for what nobody waits for */
#define ENTERED_MS 20 /* between looks, for the transaction of a holder to end */

enum code {
    CODE_LEASE_OVER = -1,
    CODE_MODE = -2,
    CODE_NOTHING = 0,
    CODE_DONE = 1,
    CODE_ENTERED = 5,
    CODE_ENDED = 6,    /* functions of before this say CODE_NOTHING, */
    CODE_NOT_KNOWN = 7 /* and of before this */
};
enum column {
    COLUMN_CODE,
    COLUMN_INCARNATION,
    COLUMN_CLAIM,
    COLUMN_TOKEN,
    COLUMN_OTHERS,
    COLUMN_RESULT,
    COLUMN_KEEP,
    COLUMN_SEEN,
    COLUMN_BEAT
};

void key_of(const char *name, bool once, struct key *ret_key)
{
    size_t length = strlen(name);

    ret_key->bytes[0] = '\0';
    ret_key->size = length + once;
    memcpy(ret_key->bytes + once, name, length + 1);
}

struct pg_claim *claim_private(struct engine_store *store, struct engine_claim *claim)
{
    struct pg_claim *own = claim->private;

    (void)store;
    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    list_init(&own->node);
    own->claim = claim;
    key_of(claim->name, claim->once, &own->key);
    if (claim->lease)
        sha256(claim->lease, strlen(claim->lease), own->lease);
    own->next_ms = CLOCK_NEVER;
    /* `wake` may look while this is made. */
    __atomic_store_n(&claim->private, own, __ATOMIC_RELEASE);
    return own;
}

static void forget_ahead(struct pg_claim *own)
{
    free(own->ahead);
    own->ahead = NULL;
    own->ahead_count = 0;
    own->next_ms = CLOCK_NEVER;
}

void pg_dispose(struct engine_store *store, struct engine_claim *claim)
{
    struct pg_claim *own = claim->private;

    if (!own)
        return;
    if (!store->forked)
        listener_drop(store, own);
    claim->private = NULL; /* first: a child forked in between must not free it again */
    free(own->ahead);
    free(own);
}

/* ---- acquiring ------------------------------------------------------------------------------- */

static const char *const mode_letters[] = {
    [HF_EXCLUSIVE] = "x", [HF_SHARED] = "s", [HF_PERMIT] = "p"};

struct attempt {
    struct engine_store *store;
    struct pg_claim *own;
    int64_t forget; /* the token of a once-record that was kept long enough; 0: none */
    int64_t sent_ms, arrived_ms;
    uint32_t era;
    bool beats;
};

static int ask(struct attempt *attempt, int64_t deadline_ms, PGresult **ret_answer,
               struct error_text *err)
{
    struct pg_claim *own = attempt->own;
    const struct engine_claim *claim = own->claim;
    const char *owner = claim->owner ? claim->owner : "";
    struct question question = {
        .statement = STATEMENT_ACQUIRE, .patience = true, .bell = &own->bell, .rung = own->seen};
    struct text dead = {0}, beats = {0};
    char host[PG_HOST_MAX];
    int result;

    attempt->era = question.era = store_era(attempt->store);
    question.dated = true;
    attempt->sent_ms = clock_boot_ms();
    attempt->beats =
        !own->queued || attempt->sent_ms - atomic_load(&own->beat_ms) >= claim->ttl_ms / BEAT_PART;
    if (own->ahead_era != attempt->era)
        forget_ahead(own);
    store_host(attempt->store, host);
    sightings_dead(own->ahead, own->ahead_count, attempt->sent_ms, &dead, &beats, &own->next_ms);
    sightings_hand_in(own->ahead, own->ahead_count, attempt->sent_ms);
    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_bytes(&question, own->key.bytes, own->key.size);
    question_add_bytes(&question, own->lease, sizeof own->lease);
    question_add_bytes(&question, owner, strlen(owner));
    question_add_text(&question, mode_letters[claim->mode]);
    question_add_number(&question, claim->permits);
    question_add_number(&question, claim->ttl_ms);
    question_add_number(&question, claim->delay_ms);
    question_add_number(&question, claim->once ? claim->death_ms : 0);
    question_add_bool(&question, claim->will_wait);
    question_add_bool(&question, claim->no_heir);
    question_add_bool(&question, own->queued);
    question_add_bool(&question, attempt->beats);
    question_add_number(&question, atomic_load(&own->beat));
    question_add_text(&question, host);
    question_add_number(&question, store_kernel_ms(attempt->store, attempt->sent_ms));
    question_add_text(&question, dead.bytes);
    question_add_text(&question, beats.bytes);
    question_add_number(&question, attempt->forget);
    if (dead.failed || beats.failed)
        result = error_set(err, HF_ENOMEM, "out of memory");
    else
        result = store_ask(attempt->store, &question, deadline_ms, ret_answer, err);
    text_drop(&dead);
    text_drop(&beats);
    attempt->arrived_ms = clock_boot_ms();
    return result;
}

/* Who is in the way. Returns whether some of them are dead already. Whoever waits comes again soon: for him only those count that he has
 * not handed in. What a transaction that has entered with a dead hold keeps would else cost each of those who wait several attempts at every look. */
static bool read_ahead(struct attempt *attempt, const PGresult *answer, bool queued)
{
    struct pg_claim *own = attempt->own;
    struct text ids = {0}, beats = {0};
    struct sighting *before = own->ahead;
    int64_t now_ms = clock_boot_ms();
    int dead, before_count = own->ahead_era == attempt->era ? own->ahead_count : 0;

    own->ahead = NULL;
    forget_ahead(own);
    own->ahead_era = attempt->era;
    own->ahead_count =
        sightings_again(attempt->store, attempt->era, attempt->arrived_ms,
                        answer_text(answer, 0, COLUMN_OTHERS), before, before_count, &own->ahead);
    free(before);
    if (own->ahead_count < 0) { /* seen by nobody then */
        own->ahead_count = 0;
        return false;
    }
    dead = sightings_dead(own->ahead, own->ahead_count, now_ms, &ids, &beats, &own->next_ms);
    text_drop(&ids);
    text_drop(&beats);
    return queued ? sightings_dead_anew(own->ahead, own->ahead_count, now_ms) : dead > 0;
}

static int take_answer(struct attempt *attempt, const PGresult *answer, bool *ret_again,
                       struct error_text *err)
{
    struct pg_claim *own = attempt->own;
    struct engine_claim *claim = own->claim;
    int64_t code = HF_EINTERNAL, id = 0, token = 0, beat;
    bool dead;

    answer_number(answer, 0, COLUMN_CODE, &code);
    answer_number(answer, 0, COLUMN_CLAIM, &id);
    answer_number(answer, 0, COLUMN_TOKEN, &token);
    if (code == ENGINE_DONE || code == ENGINE_DIED) {
        int result = once_answer(attempt->store, own, answer, attempt->era, attempt->arrived_ms,
                                 &attempt->forget, err);

        *ret_again = result == 0;
        if (result == ENGINE_DONE)
            own->queued = false;
        return result;
    }
    dead = read_ahead(attempt, answer, code == ENGINE_QUEUED);
    atomic_store(&own->id, id);
    atomic_store(&own->era, attempt->era);
    if (answer_number(answer, 0, COLUMN_BEAT, &beat))
        atomic_store(&own->beat, beat);
    if (attempt->beats)
        atomic_store(&own->beat_ms, attempt->sent_ms);
    own->queued = code == ENGINE_QUEUED;
    switch (code) {
    case ENGINE_HELD:
        if (token < 1 || (uint64_t)token > HF_TOKEN_MAX)
            break;
        claim->token = (uint64_t)token;
        return ENGINE_HELD;
    case ENGINE_QUEUED:
    case ENGINE_BUSY:
        *ret_again = dead;
        return (int)code;
    case CODE_LEASE_OVER:
        return error_set(err, HF_ELOST, "the lease for '%.100s' is over", claim->name);
    case CODE_MODE: {
        size_t size = 0;
        char *words = answer_hex(answer, 0, COLUMN_RESULT, 100, &size);

        *ret_again = dead;
        error_write(err, "'%.100s' is in use otherwise: %s", claim->name, words ? words : "");
        free(words);
        return HF_EMODE;
    }
    default:
        break;
    }
    return error_set(err, HF_EINTERNAL, "the database returned an invalid answer");
}

static int acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                   struct error_text *err)
{
    struct pg_claim *own = claim_private(store, claim);
    struct attempt attempt = {.store = store, .own = own};
    bool again = false;
    int result;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    own->seen = atomic_load(&own->bell);
    result = store_reach(store, deadline_ms, err);
    if (result != HF_OK)
        return result;
    if (own->queued && atomic_load(&own->era) != store_era(store))
        return error_set(err, HF_ELOST, "the server is another one than before, or was promoted");
    for (int i = 0; i < TRIES_MAX; i++) {
        int64_t forget = attempt.forget;
        PGresult *answer = NULL;

        again = false;
        result = ask(&attempt, deadline_ms, &answer, err);
        if (result == HF_ESTORE && !own->queued && i + 1 < TRIES_MAX)
            continue;            /* nothing was done, and we know now who is there */
        if (result == HF_ESTORE) /* whoever had a place has none any more */
            result = own->queued ? HF_ELOST : HF_EUNREACH;
        if (result == HF_EUNKNOWN)
            own->unsure = true;
        if (result != HF_OK)
            return result;
        result = take_answer(&attempt, answer, &again, err);
        PQclear(answer);
        if (!again)
            break;
        if (attempt.forget != forget && clock_boot_ms() < deadline_ms)
            i--; /* a result that was kept for long enough: if there is another one already, somebody else gets on */
    }
    if (again && result == 0)
        return error_set(err, HF_EUNREACH, "the results of '%.100s' come and go all the time",
                         claim->name);
    own->asked_ms = clock_boot_ms();
    if (result == ENGINE_QUEUED || result == ENGINE_HELD)
        listener_add(store, own);
    else
        listener_drop(store, own);
    if (result == ENGINE_BUSY || result == HF_EMODE) {
        note_seen(store, own->ahead_era, &own->key, own->ahead, own->ahead_count);
        forget_ahead(own);
    } else if (result == ENGINE_HELD) {
        struct error_text ignored;

        /* Observers that have died: nobody is in the way any more who would find them. */
        sweep_dead(store, own->ahead_era, &own->key, own->ahead, own->ahead_count, 0,
                   clock_after(clock_boot_ms(), SWEEP_MS), &ignored);
        forget_ahead(own);
    }
    return result;
}

int pg_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err)
{
    int result;

    connection_heed(&claim->interrupted);
    result = acquire(store, claim, deadline_ms, err);
    connection_heed(NULL);
    return result;
}

/* ---- giving up ------------------------------------------------------------------------------- */

/* token 0: whatever this lease has. CODE_DONE, CODE_NOTHING, CODE_ENDED, CODE_NOT_KNOWN, or an error. */
static int end_claim(struct engine_store *store, struct pg_claim *own, uint64_t token,
                     int64_t deadline_ms, bool *ret_again, struct error_text *err)
{
    struct question question = {
        .statement = STATEMENT_RELEASE, .patience = true, .urgent = true, .ret_again = ret_again};
    struct text ids = {0}, beats = {0}, times = {0};
    const struct sighting *ahead = own->ahead;
    PGresult *answer = NULL;
    char host[PG_HOST_MAX];
    int64_t code = 0;
    int result;

    store_host(store, host);
    sightings_unnoted(store, ahead, own->ahead_era == store_era(store) ? own->ahead_count : 0, &ids,
                      &beats, &times);
    question_add_expected(&question);
    question_add_number(&question, 0);
    question_add_bytes(&question, own->key.bytes, own->key.size);
    question_add_bytes(&question, own->lease, sizeof own->lease);
    question_add_number(&question, (int64_t)token);
    question_add_number(&question, own->unsure ? own->claim->ttl_ms : 0);
    question_add_text(&question, host);
    question_add_text(&question, ids.bytes);
    question_add_text(&question, beats.bytes);
    question_add_text(&question, times.bytes);
    if (ids.failed || beats.failed || times.failed)
        result = error_set(err, HF_ENOMEM, "out of memory");
    else
        result = store_ask_anyhow(store, &question, deadline_ms, &answer, err);
    if (result == HF_OK && !answer_number(answer, 0, COLUMN_CODE, &code))
        result = error_set(err, HF_EINTERNAL, "the database returned an invalid answer");
    PQclear(answer);
    text_drop(&ids);
    text_drop(&beats);
    text_drop(&times);
    return result == HF_OK ? (int)code : result;
}

/* A transaction of the holder's that entered with this hold keeps it until it ends: nobody else may be let in before. */
static int end_claim_patiently(struct engine_store *store, struct pg_claim *own, uint64_t token,
                               int64_t deadline_ms, bool *ret_again, struct error_text *err)
{
    bool entered = false;

    for (;;) {
        int result = end_claim(store, own, token, deadline_ms, ret_again, err);
        struct timespec span = {0, ENTERED_MS * 1000000};

        if (entered && (result == HF_EUNREACH || result == HF_EUNKNOWN)) {
            const struct error_text said = *err;

            /* Of the last look, which may have too little time for an answer: what was seen before says why it comes to that. */
            return error_set(err, result,
                             "a transaction that entered with this hold of '%.100s' had not ended "
                             "when the server last answered: %.300s",
                             own->claim->name, said.text);
        }
        if (result != CODE_ENTERED)
            return result;
        if (clock_boot_ms() + ENTERED_MS >= deadline_ms)
            return error_set(err, HF_EUNREACH,
                             "a transaction that entered with this hold of '%.100s' has not ended",
                             own->claim->name);
        entered = true;
        nanosleep(&span, NULL);
    }
}

int pg_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err)
{
    struct pg_claim *own = claim->private;
    bool again = false;
    int result;

    if (!own)
        return HF_OK; /* nothing was ever sent */
    listener_drop(store, own);
    if (!atomic_load(&store->settled))
        return HF_OK;
    result = end_claim_patiently(store, own, 0, deadline_ms, &again, err);
    if (result < 0)
        return result;
    notifications_hand_over(store, &own->key);
    own->queued = own->unsure = false;
    atomic_store(&own->id, 0);
    forget_ahead(own);
    return HF_OK;
}

int pg_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
               struct error_text *err)
{
    struct pg_claim *own = claim_private(store, claim);
    bool again = false;
    int result;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    listener_drop(store, own);
    result = store_reach(store, deadline_ms, err);
    if (result == HF_OK)
        result = end_claim_patiently(store, own, claim->token, deadline_ms, &again, err);
    if (result < 0)
        return result;
    notifications_hand_over(store, &own->key);
    if (result == CODE_ENDED) {
        error_set(err, HF_ELOST, "somebody else had ended the hold of '%.100s' (%s)", claim->name,
                  "a break, a floor or a promotion");
        return ENGINE_ENDED;
    }
    /* A promotion may have forgotten the grant, and then somebody else may have had the lock before we gave it up. */
    if (result == CODE_NOT_KNOWN && atomic_load(&own->era) != 0 &&
        atomic_load(&own->era) != store_era(store)) {
        /* Or the release was done, with its answer lost, and somebody else came after it: what is there now is the same. Of both it is told what is worse. */
        error_set(err, HF_ELOST,
                  "the server is another one than before, or was promoted, and nothing is known of "
                  "the hold of '%.100s' there%s",
                  claim->name,
                  again ? ": no answer came to its release, which may have been done before that"
                        : "");
        return ENGINE_ENDED;
    }
    if (result == CODE_DONE)
        leftovers_look(store);
    if (result == CODE_DONE || again) /* an answer to it was lost a moment ago */
        return HF_OK;
    return error_set(err, HF_ELOST, "'%.100s' was not ours any more", claim->name);
}
