/* redlock.c: one lock over N independent Redis servers, the `redlock:` store: giving up, keeping, and
 * the table of it all. redlock-voting.c takes locks, redlock-queries.c asks about them. */
#include "base/clock.h"
#include "engines/redis/redis.h"
#include "engines/redis/store.h"

#include <stdlib.h>

int64_t redlock_validity_ms(int64_t ttl_ms, int64_t elapsed_ms)
{
    return ttl_ms - elapsed_ms - (SWITCHED(SWITCH_REDLOCK_NO_DRIFT) ? 0 : ttl_ms / 100 + 2);
}

int64_t redlock_deadline(const struct engine_store *store, int64_t deadline_ms)
{
    int64_t node_ms = clock_after(clock_boot_ms(), store->timeout_ms);

    return node_ms < deadline_ms ? node_ms : deadline_ms;
}

/* HF_EINVAL, and words: one of them is no Redis server, so that the URL is wrong. HF_OK: none that said so. */
static int find_no_redis(const struct session *session, struct error_text *err)
{
    struct error_text words = {""};

    for (int i = 0; i < session->store->node_count; i++)
        if (session_result(session, i, &words) == HF_EINVAL)
            return error_set(err, HF_EINVAL, "%s", words.text);
    return HF_OK;
}

int redlock_no_majority(const struct session *session, struct error_text *err)
{
    const struct engine_store *store = session->store;
    int answered = 0, unknown = 0, refusals = 0, refused = HF_EUNREACH, example = -1;
    struct error_text why = {""};

    if (find_no_redis(session, err) != HF_OK)
        return HF_EINVAL; /* no retry helps */
    for (int i = 0; i < store->node_count; i++) {
        struct error_text words = {""};
        int result = session_result(session, i, &words);

        answered += result == HF_OK;
        unknown += result == HF_EUNKNOWN;
        if (session->calls[i].result == HF_OK && result != HF_OK) {
            refusals++;
            refused = result;
        }
        /* The best example of what is wrong: a refusal, then one that cannot be reached. */
        if (result != HF_OK && (example < 0 || result == refused)) {
            example = i;
            why = words;
        }
    }
    if (refusals >= redlock_blocking(store))
        return error_set(err, refused, "%.400s", why.text);
    if (answered + unknown >= redlock_quorum(store) && unknown > 0)
        return error_set(err, HF_EUNKNOWN, "%d of %d servers did not answer in time (%.300s)",
                         unknown, store->node_count, why.text);
    return error_set(err, HF_EUNREACH, "only %d of %d servers answered, %d are needed (%.300s)",
                     answered, store->node_count, redlock_quorum(store), why.text);
}

/* ---- ending ---------------------------------------------------------------------------------- */

struct ending {
    struct engine_store *store;
    const struct engine_claim *claim;
    bool abandons;
    int64_t remember_ms;
    int ended, absent; /* answers */
    int broken;        /* of the latter: by an operator */
};

static void write_ending(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct ending *ending = context;
    const struct engine_claim *claim = ending->claim;

    (void)index;
    if (ending->abandons)
        say_abandon(ending->store, claim, "", ending->remember_ms, by_text, writer);
    else
        say_release(ending->store, claim, claim->token, ending->remember_ms, by_text, writer);
}

static void read_ending(void *context, int node, int index, const struct resp_node *value)
{
    struct ending *ending = context;

    (void)node;
    (void)index;
    if (value->type == RESP_INTEGER && value->integer == 1)
        ending->ended++;
    else
        ending->absent++;
    if (value->type == RESP_INTEGER && value->integer == RELEASE_BROKEN)
        ending->broken++;
}

/* Those that hang are told, and not waited for. */
static bool enough_ended(void *context)
{
    const struct ending *ending = context;

    return ending->ended >= redlock_quorum(ending->store) ||
           ending->absent >= redlock_blocking(ending->store);
}

static void end_on_all(struct session *session, struct ending *ending, int64_t deadline_ms)
{
    struct question question = {.text_first = ending->abandons ? SCRIPT_ABANDON : SCRIPT_RELEASE,
                                .commands = 1,
                                .context = ending,
                                .write = write_ending,
                                .answer = read_ending,
                                .enough = enough_ended,
                                .tells_all = true};

    session_ask(session, &question, deadline_ms);
}

static int redlock_abandon(struct engine_store *store, struct engine_claim *claim,
                           int64_t deadline_ms, struct error_text *err)
{
    struct session session;
    struct ending ending = {
        .store = store, .claim = claim, .abandons = true, .remember_ms = claim->ttl_ms};
    struct redlock_claim *own = claim->private;
    int result = HF_OK;

    deadline_ms = redlock_deadline(store, deadline_ms);
    session_begin(&session, store);
    end_on_all(&session, &ending, deadline_ms);
    if (ending.ended < redlock_blocking(store))
        result = redlock_no_majority(&session, err);
    else if (own)
        own->unsure = false;
    session_end(&session);
    return result;
}

static int redlock_release(struct engine_store *store, struct engine_claim *claim,
                           int64_t deadline_ms, struct error_text *err)
{
    struct session session;
    struct redlock_claim *own = claim->private;
    struct ending ending = {
        .store = store, .claim = claim, .remember_ms = own && own->unsure ? claim->ttl_ms : 0};
    int result = HF_OK;

    deadline_ms = redlock_deadline(store, deadline_ms);
    session_begin(&session, store);
    end_on_all(&session, &ending, deadline_ms);
    if (ending.ended >= redlock_quorum(store))
        result = HF_OK;
    else if (ending.absent >= redlock_blocking(store))
        result = redis_is_lost(claim, ending.broken >= redlock_blocking(store), err);
    else if (ending.ended + ending.absent < redlock_blocking(store))
        result = redlock_no_majority(&session, err);
    session_end(&session);
    return result;
}

static void redlock_dispose(struct engine_store *store, struct engine_claim *claim)
{
    void *own = claim->private;

    (void)store;
    claim->private = NULL; /* first: a child forked in between must not free it again */
    free(own);
}

/* ---- keeping --------------------------------------------------------------------------------- */

struct renewing {
    struct engine_store *store;
    struct session *session;
    struct engine_claim *const *claims;
    int count;
    /* Of each claim: nodes that renewed it, that have somebody else, that have nothing; and the
     * least that one of the first said is left. */
    uint8_t renewed[REDIS_BATCH_MAX], gone[REDIS_BATCH_MAX], empty[REDIS_BATCH_MAX];
    int64_t left_ms[REDIS_BATCH_MAX];
    bool broken[REDIS_BATCH_MAX]; /* one of them says that an operator did it */
    int refills[REDIS_BATCH_MAX], refill_count;
};

static void write_renew(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct renewing *renewing = context;

    say_renew(renewing->store, renewing->claims[index], "", by_text, writer);
}

static void read_renew(void *context, int node, int index, const struct resp_node *value)
{
    struct renewing *renewing = context;
    int64_t left_ms;

    (void)node;
    if (!resp_to_int64(value, &left_ms))
        return;
    if (left_ms < 0) {
        renewing->gone[index]++;
        renewing->empty[index] = (uint8_t)(renewing->empty[index] + (left_ms == RENEW_EMPTY));
        renewing->broken[index] = renewing->broken[index] || left_ms == RENEW_BROKEN;
        return;
    }
    if (renewing->renewed[index]++ == 0 || left_ms < renewing->left_ms[index])
        renewing->left_ms[index] = left_ms;
}

/* What a majority says of one claim: what is left, that it is gone, or nothing yet. */
static int64_t verdict_on(const struct renewing *renewing, int index)
{
    if (renewing->renewed[index] >= redlock_quorum(renewing->store))
        return renewing->left_ms[index];
    return renewing->gone[index] >= redlock_blocking(renewing->store) ? ENGINE_GONE
                                                                      : ENGINE_NOT_KNOWN;
}

/* The first claim that is not decided; -1: all are. */
static int first_undecided(const struct renewing *renewing)
{
    for (int i = 0; i < renewing->count; i++)
        if (verdict_on(renewing, i) == ENGINE_NOT_KNOWN)
            return i;
    return -1;
}

/* There is no hurry: whoever can be expected to answer is waited for, because what it lacks it gets
 * only after it has said so. */
static bool enough_renewed(void *context)
{
    const struct renewing *renewing = context;

    for (int i = 0; i < renewing->store->node_count; i++)
        if (renewing->session->calls[i].link && renewing->session->calls[i].result == CALL_OPEN &&
            !atomic_load(&renewing->store->nodes[i].suspect))
            return false;
    return first_undecided(renewing) < 0;
}

static void write_refill(void *context, int index, bool by_text, struct resp_writer *writer)
{
    const struct renewing *renewing = context;
    const struct engine_claim *claim = renewing->claims[renewing->refills[index]];

    script_write(writer, SCRIPT_REFILL, by_text, renewing->store->prefix, claim->name, claim->lease,
                 4);
    resp_write_text(writer, claim->lease);
    resp_write_number(writer, (int64_t)claim->token);
    resp_write_number(writer, claim->ttl_ms);
    resp_write_text(writer, claim->owner ? claim->owner : "");
}

static void ignore(void *context, int node, int index, const struct resp_node *value)
{
    (void)context;
    (void)node;
    (void)index;
    (void)value;
}

/* A node that came back empty gets what a majority still has, so that the next failure does not
 * find a majority without it. */
static void refill(struct renewing *renewing)
{
    struct question question = {
        .text_first = SCRIPT_REFILL, .context = renewing, .write = write_refill, .answer = ignore};

    for (int i = 0; i < renewing->count; i++)
        if (renewing->empty[i] > 0 && renewing->renewed[i] >= redlock_quorum(renewing->store) &&
            renewing->claims[i]->token > 0)
            renewing->refills[renewing->refill_count++] = i;
    question.commands = renewing->refill_count;
    if (question.commands > 0)
        session_ask(renewing->session, &question, redlock_deadline(renewing->store, CLOCK_NEVER));
}

/* Why the claim at `index` is not known. */
static int say_undecided(const struct renewing *renewing, int index, struct error_text *err)
{
    int result = redlock_no_majority(renewing->session, err);

    if (renewing->renewed[index] > 0 && renewing->gone[index] > 0)
        return error_set(err, result == HF_EUNREACH ? HF_EUNREACH : HF_EUNKNOWN,
                         "only %d of %d servers renewed it, %d are needed, and %d have lost it",
                         renewing->renewed[index], renewing->store->node_count,
                         redlock_quorum(renewing->store), renewing->gone[index]);
    return result;
}

static int renew_batch(struct engine_store *store, struct engine_claim *const *claims, int count,
                       int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    struct session session;
    struct renewing renewing = {
        .store = store, .session = &session, .claims = claims, .count = count};
    struct question question = {.text_first = SCRIPT_RENEW,
                                .commands = count,
                                .context = &renewing,
                                .write = write_renew,
                                .answer = read_renew,
                                .enough = enough_renewed};
    int undecided, result = HF_OK;

    session_begin(&session, store);
    session_ask(&session, &question, redlock_deadline(store, deadline_ms));
    for (int i = 0; i < count; i++) {
        ret_left_ms[i] = verdict_on(&renewing, i);
        if (ret_left_ms[i] == ENGINE_GONE && renewing.broken[i])
            redis_tell_broken(store, claims[i]);
    }
    undecided = first_undecided(&renewing);
    if (undecided >= 0)
        result = say_undecided(&renewing, undecided, err);
    refill(&renewing);
    session_end(&session);
    return result;
}

static int redlock_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
                         int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    int result = HF_OK;

    for (int done = 0; done < count; done += REDIS_BATCH_MAX) {
        int renewed = renew_batch(store, claims + done,
                                  count - done < REDIS_BATCH_MAX ? count - done : REDIS_BATCH_MAX,
                                  ret_left_ms + done, deadline_ms, err);

        result = result == HF_OK ? renewed : result;
    }
    return result;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int redlock_open(struct url *url, const struct engine_host *host,
                        struct engine_store **ret_store, char *ret_where, struct error_text *err)
{
    return redis_open_nodes(url, host, true, ret_store, ret_where, err);
}

static void redlock_after_fork(struct engine_store *store)
{
    store->forked = true;
    for (int i = 0; i < store->node_count; i++)
        node_after_fork(&store->nodes[i]);
}

const struct engine redlock_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = "redlock",
               .url = "redlock://H1,H2,H3,H4,H5",
               .features = HF_HAS_TTL | HF_HAS_DETACH | HF_HAS_BREAK | HF_HAS_FLOOR,
               .exclusion = HF_BEST_EFFORT,
               .tokens = HF_BEST_EFFORT,
               .survives =
                   "survives the loss of a minority; NOT: a jump of clocks, a restart without data",
               .wakes = "ask again, with backoff and jitter",
               .ttl_ms = HF_TTL_DEFAULT_MS},
    .open = redlock_open,
    .close = redis_close_nodes,
    .after_fork = redlock_after_fork,
    .id = redlock_id,
    .acquire = redlock_acquire,
    .abandon = redlock_abandon,
    .release = redlock_release,
    .renew = redlock_renew,
    .dispose = redlock_dispose,
    .show = redlock_show,
    .list = redlock_list,
    .check = redlock_check,
    .break_name = redlock_break,
    .floor = redlock_floor,
};
