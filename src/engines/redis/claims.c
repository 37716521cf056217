/* claims.c: taking, keeping and giving up a lock on one Redis server. What happens there is in
 * scripts/; here is what is asked and how long it is waited for.
 *
 * Waiting. A claim that cannot have the name takes a place in its queue. Whoever releases tells the
 * first in the queue, and nobody else. Because nobody announces that a hold ran out, or that
 * another program's lock was deleted, a waiter also looks by itself: when the present hold would
 * run out, a little later at random, and otherwise more and more seldom. */
#include "base/clock.h"
#include "base/futex.h"
#include "base/random.h"
#include "engines/redis/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_MS 500      /* how long an attempt waits for the listener to come up */
#define LOOK_MS_MIN 50     /* between two looks of a waiter: at first, */
#define LOOK_MS_MAX 1000   /* at last, when nobody will tell it, */
#define RELOOK_MS_MAX 5000 /* and when somebody should have */
#define SPREAD_MS 50       /* those who wait for the same end come back within so much of it */

#define PLACE_MAX (HF_OWNER_MAX + 64)

struct redis_claim {
    struct waiting waiting;
    char place[PLACE_MAX];
    bool queued; /* the server has our place, as far as we know */
    bool unsure; /* an answer was lost, so an acquisition may still arrive there */
    /* From the last answer: for how long the name is taken (-1: no end known), and whether the end
     * will be told. */
    int64_t left_ms;
    bool told;
    int64_t look_ms; /* the next pause */
    uint32_t seen;   /* the bell when the last attempt, or look, began */
};

static struct redis_claim *private_of(struct engine_store *store, struct engine_claim *claim)
{
    struct redis_claim *own = claim->private;

    (void)store;
    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    list_init(&own->waiting.node);
    own->waiting.claim = claim;
    own->look_ms = LOOK_MS_MIN;
    /* `wake` may look while this is made. */
    __atomic_store_n(&claim->private, own, __ATOMIC_RELEASE);
    return own;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

static const char *const mode_letters[] = {
    [HF_EXCLUSIVE] = "x", [HF_SHARED] = "s", [HF_PERMIT] = "p"};

struct acquiring {
    struct engine_store *store;
    struct engine_claim *claim;
    struct redis_claim *own;
    const char *place;
    int outcome;
    char words[128];
};

static void write_acquire(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct acquiring *acquiring = context;
    const struct engine_claim *claim = acquiring->claim;

    (void)index;
    if (claim->once) {
        say_claim(acquiring->store, claim, acquiring->place, by_text, writer);
        return;
    }
    script_write(writer, SCRIPT_ACQUIRE, by_text, acquiring->store->prefix, claim->name,
                 claim->lease, 7);
    resp_write_text(writer, claim->lease);
    resp_write_number(writer, claim->ttl_ms);
    resp_write_text(writer, mode_letters[claim->mode]);
    resp_write_number(writer, claim->permits);
    resp_write_number(writer, claim->delay_ms);
    resp_write_text(writer, claim->owner ? claim->owner : "");
    resp_write_text(writer, acquiring->place);
}

static void read_acquire(void *context, int node, int index, const struct resp_node *value)
{
    struct acquiring *acquiring = context;
    const struct resp_node *second = resp_item(value, 1);
    int64_t code = 0, number = 0, told = 0;

    (void)node;
    (void)index;
    acquiring->outcome = HF_EINTERNAL;
    if (!resp_to_int64(resp_item(value, 0), &code))
        return;
    if (code == 1 && resp_to_int64(second, &number) && number > 0) {
        acquiring->claim->token = (uint64_t)number;
        acquiring->outcome = ENGINE_HELD;
    } else if ((code == 0 || code == 2) && resp_to_int64(second, &number) &&
               resp_to_int64(resp_item(value, 2), &told)) {
        acquiring->own->left_ms = number;
        acquiring->own->told = told == 1;
        acquiring->outcome = code == 0 ? ENGINE_BUSY : ENGINE_QUEUED;
    } else if (code == ENGINE_DONE || code == ENGINE_DIED) {
        acquiring->outcome = redis_once_answer(value, &acquiring->claim->record);
    } else if (code == -1) {
        acquiring->outcome = HF_ELOST;
    } else if (code == -2 && second) {
        acquiring->outcome = HF_EMODE;
        snprintf(acquiring->words, sizeof acquiring->words, "%.*s", (int)second->size,
                 second->text);
    }
}

/* One question and its answer. */
static int ask(struct acquiring *acquiring, int64_t deadline_ms, struct error_text *err)
{
    struct question question = {.commands = 1,
                                .context = acquiring,
                                .write = write_acquire,
                                .answer = read_acquire,
                                .interrupted = &acquiring->claim->interrupted};
    struct redis_claim *own = acquiring->own;
    int result = redis_ask(acquiring->store, &question, deadline_ms, err);

    if (result == HF_EUNKNOWN)
        own->unsure = true;
    if (result == HF_EREFUSED || result == HF_EIO) { /* perhaps half-way through the script */
        struct error_text ignored;

        redis_abandon(acquiring->store, acquiring->claim, deadline_ms, &ignored);
    }
    if (result != HF_OK)
        return result;
    own->queued = acquiring->outcome == ENGINE_QUEUED;
    switch (acquiring->outcome) {
    case HF_ELOST:
        return error_set(err, HF_ELOST, "this lease is over");
    case HF_EMODE:
        return error_set(err, HF_EMODE, "'%.100s' is in use otherwise: %s", acquiring->claim->name,
                         acquiring->words);
    case HF_ENOMEM:
        return error_set(err, HF_ENOMEM, "out of memory");
    case HF_EINTERNAL:
        return error_set(err, HF_EINTERNAL, "the script returned an invalid answer");
    default:
        return acquiring->outcome;
    }
}

/* The place is ours to take only while somebody here can be told that it came up. */
static const char *place_of(struct engine_store *store, struct engine_claim *claim,
                            struct redis_claim *own)
{
    if (!claim->will_wait || (!own->queued && !listener_hears(store)))
        return "";
    if (own->waiting.number == 0) {
        listener_add(store, &own->waiting);
        snprintf(own->place, sizeof own->place, "%s:%s:%" PRIu64 ":%s", mode_letters[claim->mode],
                 listener_client(store), own->waiting.number, claim->owner ? claim->owner : "");
    }
    return own->place;
}

int redis_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                  struct error_text *err)
{
    struct redis_claim *own = private_of(store, claim);
    struct acquiring acquiring = {.store = store, .claim = claim, .own = own};
    int result = claim->once ? HF_OK : redis_check_key(store, claim->name, err);

    if (result != HF_OK)
        return result;
    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    own->seen = atomic_load(&own->waiting.bell);
    acquiring.place = place_of(store, claim, own);
    result = ask(&acquiring, deadline_ms, err);
    if (result == ENGINE_BUSY && claim->will_wait && !acquiring.place[0]) {
        int64_t listen_ms = clock_after(clock_boot_ms(), LISTEN_MS);

        if (listener_ready(store, listen_ms < deadline_ms ? listen_ms : deadline_ms)) {
            acquiring.place = place_of(store, claim, own);
            result = ask(&acquiring, deadline_ms, err);
        }
    }
    if (result == ENGINE_HELD || result == ENGINE_DONE || result == ENGINE_DIED)
        listener_remove(store, &own->waiting);
    return result;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int64_t next_look_ms(struct redis_claim *own)
{
    int64_t most_ms = own->told ? RELOOK_MS_MAX : LOOK_MS_MAX;
    int64_t pause_ms = own->look_ms / 2 + (int64_t)random_below((uint64_t)own->look_ms);

    own->look_ms = own->look_ms * 2 < most_ms ? own->look_ms * 2 : most_ms;
    if (own->told) /* then there is no need to look before the hold would end */
        pause_ms = most_ms / 2 + (int64_t)random_below((uint64_t)most_ms / 2);
    if (own->left_ms >= 0 && own->left_ms < pause_ms)
        pause_ms = own->left_ms + 1 + (int64_t)random_below(SPREAD_MS);
    return clock_after(clock_boot_ms(), pause_ms);
}

struct peeking {
    struct engine_store *store;
    const char *name;
    struct redis_claim *own;
};

static void write_peek(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct peeking *peeking = context;
    char key[REDIS_PREFIX_MAX + HF_NAME_MAX + 1];
    int size = snprintf(key, sizeof key, "%s%s", peeking->store->prefix, peeking->name);

    (void)index;
    (void)by_text;
    resp_write_array(writer, 2);
    resp_write_text(writer, "PTTL");
    resp_write_blob(writer, key, (size_t)size);
}

static void read_peek(void *context, int node, int index, const struct resp_node *value)
{
    const struct peeking *peeking = context;
    int64_t left_ms;

    (void)node;
    (void)index;
    if (resp_to_int64(value, &left_ms))
        peeking->own->left_ms = left_ms < 0 ? -1 : left_ms;
}

/* An observer asks when the present hold would end: nobody announces that. */
static void peek(struct engine_store *store, struct engine_claim *claim)
{
    struct redis_claim *own = claim->private;
    struct peeking peeking = {store, claim->name, own};
    struct question question = {
        .commands = 1, .context = &peeking, .write = write_peek, .answer = read_peek};
    struct error_text ignored;

    own->told = listener_hears(store);
    own->left_ms = -1;
    redis_ask(store, &question, clock_after(clock_boot_ms(), LISTEN_MS), &ignored);
}

int redis_wait(struct engine_store *store, struct engine_claim *claim, int64_t until_ms,
               struct error_text *err)
{
    struct redis_claim *own = private_of(store, claim);
    int64_t look_ms;

    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (claim->mode == ENGINE_OBSERVE) {
        if (own->waiting.number == 0) { /* from here on it hears of changes */
            listener_add(store, &own->waiting);
            return HF_OK;
        }
        peek(store, claim);
    }
    look_ms = next_look_ms(own);
    if (until_ms < look_ms)
        look_ms = until_ms;
    while (atomic_load(&own->waiting.bell) == own->seen && clock_boot_ms() < look_ms)
        futex_wait(&own->waiting.bell, own->seen, FUTEX_MASK_ALL, look_ms);
    own->seen = atomic_load(&own->waiting.bell);
    return HF_OK;
}

void redis_wake(struct engine_store *store, struct engine_claim *claim)
{
    struct redis_claim *own = __atomic_load_n(&claim->private, __ATOMIC_ACQUIRE);

    (void)store;
    if (!own)
        return;
    atomic_fetch_add(&own->waiting.bell, 1);
    futex_wake(&own->waiting.bell, FUTEX_MASK_ALL, 1);
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* What ends a hold goes out by its text until the server is known to know it: we may be gone before
 * one that hangs could say that it does not. */

struct ending {
    struct engine_store *store;
    const struct engine_claim *claim;
    const char *place; /* NULL: a release */
    int64_t remember_ms;
    int64_t answer;
};

static void write_ending(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct ending *ending = context;
    const struct engine_claim *claim = ending->claim;

    (void)index;
    if (ending->place)
        say_abandon(ending->store, claim, ending->place, ending->remember_ms, by_text, writer);
    else
        say_release(ending->store, claim, claim->token, ending->remember_ms, by_text, writer);
}

static void read_ending(void *context, int node, int index, const struct resp_node *value)
{
    struct ending *ending = context;

    (void)node;
    (void)index;
    if (!resp_to_int64(value, &ending->answer))
        ending->answer = -1;
}

int redis_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                  struct error_text *err)
{
    struct redis_claim *own = claim->private;
    struct ending ending = {.store = store,
                            .claim = claim,
                            .place = own ? own->place : "",
                            .remember_ms = own && own->unsure ? claim->ttl_ms : 0};
    struct question question = {.text_first = SCRIPT_ABANDON,
                                .commands = 1,
                                .context = &ending,
                                .write = write_ending,
                                .answer = read_ending};
    int result = redis_ask(store, &question, deadline_ms, err);

    if (result == HF_OK && own) {
        listener_remove(store, &own->waiting);
        own->place[0] = '\0';
        own->queued = own->unsure = false;
    }
    return result;
}

int redis_is_lost(const struct engine_claim *claim, bool broken, struct error_text *err)
{
    error_write(
        err, broken ? "'%.100s' had been broken by an operator" : "'%.100s' was not ours any more",
        claim->name);
    return broken ? ENGINE_ENDED : HF_ELOST;
}

int redis_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                  struct error_text *err)
{
    struct redis_claim *own = claim->private; /* an adopted claim has none */
    struct ending ending = {
        .store = store, .claim = claim, .remember_ms = own && own->unsure ? claim->ttl_ms : 0};
    struct question question = {.text_first = SCRIPT_RELEASE,
                                .commands = 1,
                                .context = &ending,
                                .write = write_ending,
                                .answer = read_ending};
    int result = redis_ask(store, &question, deadline_ms, err);

    if (result != HF_OK)
        return result;
    if (ending.answer == 1)
        return HF_OK;
    return redis_is_lost(claim, ending.answer == RELEASE_BROKEN, err);
}

/* ---- keeping --------------------------------------------------------------------------------- */

struct renewing {
    struct engine_store *store;
    struct engine_claim *const *claims;
    int64_t *left_ms;
};

static void write_renew(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct renewing *renewing = context;
    const struct engine_claim *claim = renewing->claims[index];
    const struct redis_claim *own = claim->private;

    say_renew(renewing->store, claim, own && own->queued ? own->place : "", by_text, writer);
}

static void read_renew(void *context, int node, int index, const struct resp_node *value)
{
    const struct renewing *renewing = context;
    int64_t left_ms;

    (void)node;
    if (!resp_to_int64(value, &left_ms))
        return;
    renewing->left_ms[index] = left_ms < 0 ? ENGINE_GONE : left_ms;
    if (left_ms == RENEW_BROKEN)
        redis_tell_broken(renewing->store, renewing->claims[index]);
}

/* Nobody else gets a name that is withheld, so it was this hold that was broken. */
void redis_tell_broken(struct engine_store *store, struct engine_claim *claim)
{
    if (claim->token > 0)
        store->host->lost(store->host->context, claim, "broken by an operator");
}

int redis_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
                int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    int result = HF_OK;

    for (int done = 0; done < count; done += REDIS_BATCH_MAX) {
        struct renewing renewing = {store, claims + done, ret_left_ms + done};
        struct question question = {.commands = count - done < REDIS_BATCH_MAX ? count - done
                                                                               : REDIS_BATCH_MAX,
                                    .context = &renewing,
                                    .write = write_renew,
                                    .answer = read_renew};
        int asked = redis_ask(store, &question, deadline_ms, err);

        result = result == HF_OK ? asked : result;
    }
    return result;
}

void redis_dispose(struct engine_store *store, struct engine_claim *claim)
{
    struct redis_claim *own = claim->private;

    if (!own)
        return;
    if (!store->forked)
        listener_remove(store, &own->waiting);
    claim->private = NULL; /* first: a child forked in between must not free it again */
    free(own);
}
