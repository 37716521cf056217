/* engine.c: the test engine's table of functions over table.c. See test_engine.h. */
#include "inside.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/sha256.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#ifndef TEST_ENGINE_WEAK
#define TEST_ENGINE_WEAK 0
#endif

#define DEFAULT_TTL_MS 30000
#define BREAK_PATIENCE_MS 10000
#define HANG_LOOK_MS 50 /* how often a hanging call looks whether it may go on */

/* ---- faults ---------------------------------------------------------------------------------- */

static bool strikes(struct table *table, enum fault_kind kind, int call)
{
    int32_t *count = &table->rules[kind][call];

    if (*count == 0)
        return false;
    if (*count > 0)
        --*count;
    return true;
}

static void sleep_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    if (ms > 0)
        nanosleep(&span, NULL);
}

/* With the table's mutex, which it lets go while it sleeps. A hang of n calls hangs each until its
 * deadline; one without a number, until it is cleared. */
static int hang(struct table *table, int call, int64_t deadline_ms, struct error_text *err)
{
    bool counted = table->rules[FAULT_HANG][call] > 0;

    if (counted)
        table->rules[FAULT_HANG][call]--;
    while (counted || table->rules[FAULT_HANG][call] != 0) {
        uint32_t seen = atomic_load(&table->changes);

        if (clock_boot_ms() >= deadline_ms) {
            table_unlock(table);
            return error_set(err, HF_EUNKNOWN, "test store: no answer in time");
        }
        table_unlock(table);
        futex_wait(&table->changes, seen, FUTEX_MASK_ALL,
                   deadline_ms < clock_boot_ms() + HANG_LOOK_MS ? deadline_ms
                                                                : clock_boot_ms() + HANG_LOOK_MS);
        if (!table_lock(table, deadline_ms))
            return error_set(err, HF_EUNKNOWN, "test store: no answer in time");
    }
    return HF_OK;
}

int call_begin(struct engine_store *store, int call, int64_t deadline_ms, bool *ret_lose_reply,
               struct error_text *err)
{
    struct table *table = store->table;
    int64_t delay_ms;
    int result;

    *ret_lose_reply = false;
    if (!table_lock(table, deadline_ms))
        return error_set(err, HF_EUNREACH, "test store: somebody keeps its mutex");
    table->counts[call]++;
    result = hang(table, call, deadline_ms, err);
    if (result != HF_OK)
        return result;
    delay_ms = table->delay_ms[call];
    if (delay_ms > 0) {
        int64_t left_ms = deadline_ms - clock_boot_ms();

        table_unlock(table);
        sleep_ms(delay_ms < left_ms ? delay_ms : left_ms);
        if (delay_ms > left_ms || !table_lock(table, deadline_ms))
            return error_set(err, HF_EUNKNOWN, "test store: no answer in time");
    }
    if (strikes(table, FAULT_UNREACHABLE, call))
        result = error_set(err, HF_EUNREACH, "test store: told to be unreachable");
    else if (strikes(table, FAULT_REFUSE, call))
        result = error_set(err, HF_EREFUSED, "test store: told to refuse");
    else if (strikes(table, FAULT_LOSE_REQUEST, call))
        result = error_set(err, HF_EUNKNOWN, "test store: told to lose the request");
    else
        *ret_lose_reply = strikes(table, FAULT_LOSE_REPLY, call);
    if (result != HF_OK) {
        table_unlock(table);
        return result;
    }
    table_settle(table);
    return HF_OK;
}

int call_end(struct engine_store *store, bool lose_reply, int result, struct error_text *err)
{
    table_settle(store->table);
    table_unlock(store->table);
    if (lose_reply)
        return error_set(err, HF_EUNKNOWN, "test store: told to lose the reply");
    return result;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int read_options(struct engine_store *store, struct url *url, struct error_text *err)
{
    const char *push = url_get(url, "push");
    const char *lost = url_get(url, "lost");
    const char *ttl_min = url_get(url, "ttl-min");

    if (!push || strcmp(push, "thread") == 0)
        store->push = PUSH_THREAD;
    else if (strcmp(push, "poll") == 0)
        store->push = PUSH_POLL;
    else if (strcmp(push, "no") == 0)
        store->push = PUSH_NO;
    else
        return error_set(err, HF_EINVAL, "test store: push=%s is not thread, poll or no", push);
    store->push_lost = lost && strcmp(lost, "push") == 0;
    store->ttl_min_ms = ttl_min ? strtoll(ttl_min, NULL, 10) : 0;
    return HF_OK;
}

static void test_close(struct engine_store *store)
{
    pushing_stop(store);
    close(store->event_fd);
    table_close(store->table);
    if (!store->forked)
        pthread_mutex_destroy(&store->mutex);
    free(store);
}

static int test_open(struct url *url, const struct engine_host *host,
                     struct engine_store **ret_store, char *ret_where, struct error_text *err)
{
    struct engine_store *store = calloc(1, sizeof *store);
    int result;

    if (!store)
        return error_set(err, HF_ENOMEM, "out of memory");
    store->host = host;
    store->queues = !TEST_ENGINE_WEAK;
    pthread_mutex_init(&store->mutex, NULL);
    list_init(&store->locals);
    result = read_options(store, url, err);
    if (result == HF_OK &&
        !text_percent_decode(url->rest, strlen(url->rest), ret_where, HF_URL_MAX + 1))
        result = error_set(err, HF_EINVAL, "test store: the path is badly percent-encoded");
    if (result == HF_OK)
        result = table_open(ret_where, &store->table, err);
    if (result != HF_OK) {
        pthread_mutex_destroy(&store->mutex);
        free(store);
        return result;
    }
    store->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *ret_store = store;
    return HF_OK;
}

static void test_after_fork(struct engine_store *store)
{
    store->forked = true;
}

static int test_id(struct engine_store *store, char ret_id[65], int64_t deadline_ms,
                   struct error_text *err)
{
    bool lose_reply;
    int result = call_begin(store, CALL_ID, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    memcpy(ret_id, store->table->id, TABLE_ID_SIZE);
    return call_end(store, lose_reply, HF_OK, err);
}

/* ---- acquiring ------------------------------------------------------------------------------- */

static bool fits_users(struct table *table, const struct table_name *name,
                       const struct engine_claim *claim)
{
    for (int32_t i = 0; i < table->claims_used; i++) {
        const struct table_claim *other = &table->claims[i];

        if (other->state == CLAIM_FREE || &table->names[other->name] != name)
            continue;
        if ((other->mode == HF_PERMIT) != (claim->mode == HF_PERMIT) ||
            (claim->mode == HF_PERMIT && other->permits != claim->permits))
            return false;
    }
    return true;
}

const char *name_in_table(const struct engine_claim *claim, char scratch[TABLE_NAME_SIZE])
{
    if (!claim->once)
        return claim->name;
    scratch[0] = TABLE_ONCE_MARK;
    memcpy(scratch + 1, claim->name, strnlen(claim->name, HF_NAME_MAX) + 1);
    return scratch;
}

static int join(struct engine_store *store, struct engine_claim *claim,
                struct table_claim **ret_slot, struct error_text *err)
{
    struct table *table = store->table;
    char scratch[TABLE_NAME_SIZE];
    struct table_name *name = table_take_name(table, name_in_table(claim, scratch));
    struct table_claim like = {.mode = claim->mode,
                               .permits = claim->permits,
                               .ttl_ms = claim->ttl_ms,
                               .delay_ms = claim->delay_ms,
                               .once = claim->once,
                               .no_heir = claim->no_heir,
                               .death_ms = claim->death_ms,
                               .pid = getpid()};

    if (!name)
        return error_set(err, HF_EREFUSED, "test store: no room for another name");
    if (!fits_users(table, name, claim))
        return error_set(err, HF_EMODE, "the name is in use in another mode or number of permits");
    if ((!claim->will_wait || !store->queues) &&
        (table_has_waiters(table, name) ||
         !table_could_hold(table, name, claim->mode, claim->permits)))
        return ENGINE_BUSY;
    memcpy(like.lease, claim->lease, strnlen(claim->lease, HF_LEASE_MAX));
    if (claim->owner)
        memcpy(like.owner, claim->owner, strnlen(claim->owner, HF_OWNER_MAX));
    *ret_slot = table_join(table, name, &like);
    if (!*ret_slot)
        return error_set(err, HF_EREFUSED, "test store: no room for another claim");
    return HF_OK;
}

static int attempt(struct engine_store *store, struct engine_claim *claim, uint64_t *ret_token,
                   struct error_text *err)
{
    struct table *table = store->table;
    struct table_claim *slot = table_find(table, claim->lease);
    int result = claim->once ? once_known(store, claim, err) : HF_OK;

    if (result != HF_OK)
        return result;
    if (table_is_ended(table, claim->lease))
        return error_set(err, HF_EREFUSED, "this lease is over");
    if (!slot)
        result = join(store, claim, &slot, err);
    if (result < 0)
        return result;
    if (result == ENGINE_BUSY) {
        if (claim->will_wait)
            result = pushing_register(store, claim, LOCAL_WAITING, err);
        return result < 0 ? result : ENGINE_BUSY;
    }
    if (slot->expires_ms < table_now_ms(table) + claim->ttl_ms)
        slot->expires_ms = table_now_ms(table) + claim->ttl_ms;
    if (slot->state == CLAIM_HELD)
        *ret_token = slot->token;
    result =
        pushing_register(store, claim, slot->state == CLAIM_HELD ? LOCAL_HELD : LOCAL_WAITING, err);
    if (result < 0)
        return result;
    return slot->state == CLAIM_HELD ? ENGINE_HELD : ENGINE_QUEUED;
}

static int test_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                        struct error_text *err)
{
    uint64_t token = 0;
    bool lose_reply;
    int result;

    if (claim->ttl_ms < store->ttl_min_ms)
        return error_set(err, HF_EINVAL, "test store: a TTL of %" PRId64 " ms is too short",
                         claim->ttl_ms);
    result = call_begin(store, CALL_ACQUIRE, deadline_ms, &lose_reply, err);
    if (result != HF_OK)
        return result;
    result = call_end(store, lose_reply, attempt(store, claim, &token, err), err);
    if (result == ENGINE_HELD)
        claim->token = token;
    return result;
}

static int test_observe(struct engine_store *store, struct engine_claim *claim,
                        struct error_text *err)
{
    int result;

    if (!table_lock(store->table, clock_boot_ms() + BREAK_PATIENCE_MS))
        return error_set(err, HF_EUNREACH, "test store: somebody keeps its mutex");
    result = pushing_register(store, claim, LOCAL_OBSERVER, err);
    table_unlock(store->table);
    return result;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static int test_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                        struct error_text *err)
{
    struct table_claim *slot;
    bool lose_reply;
    int result = call_begin(store, CALL_ABANDON, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    slot = table_find(store->table, claim->lease);
    if (slot)
        table_end(store->table, slot);
    else
        table_remember(store->table, claim->lease, claim->ttl_ms);
    return call_end(store, lose_reply, HF_OK, err);
}

static int test_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                        struct error_text *err)
{
    char scratch[TABLE_NAME_SIZE];
    struct table_claim *slot;
    bool lose_reply;
    int result = call_begin(store, CALL_RELEASE, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    slot = table_find(store->table, claim->lease);
    if (!slot || slot->state != CLAIM_HELD || slot->token != claim->token ||
        strcmp(store->table->names[slot->name].name, name_in_table(claim, scratch)) != 0)
        result = error_set(err, HF_ELOST, "the hold was over before");
    else
        table_end(store->table, slot);
    return call_end(store, lose_reply, result, err);
}

static int test_renew(struct engine_store *store, struct engine_claim *const *claims, int count,
                      int64_t *ret_left_ms, int64_t deadline_ms, struct error_text *err)
{
    int64_t now_ms;
    bool lose_reply;
    int result = call_begin(store, CALL_RENEW, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    now_ms = table_now_ms(store->table);
    for (int i = 0; i < count; i++) {
        struct table_claim *slot = table_find(store->table, claims[i]->lease);
        int64_t left_ms = ENGINE_GONE;

        if (strcmp(store->table->spoilt, claims[i]->name) == 0) {
            result = error_set(err, HF_EREFUSED, "test store: told not to renew this one");
            continue;
        }
        if (slot &&
            !(slot->state == CLAIM_HELD && claims[i]->token && claims[i]->token != slot->token)) {
            if (slot->expires_ms < now_ms + claims[i]->ttl_ms)
                slot->expires_ms = now_ms + claims[i]->ttl_ms;
            left_ms = slot->expires_ms - now_ms;
        }
        if (!lose_reply)
            ret_left_ms[i] = left_ms;
    }
    return call_end(store, lose_reply, result, err);
}

static int test_break(struct engine_store *store, const char *name, int64_t grace_ms,
                      uint32_t *ret_broken, struct error_text *err)
{
    struct table *table = store->table;
    struct table_name *slot;
    uint32_t broken = 0;
    bool lose_reply;
    int result =
        call_begin(store, CALL_BREAK, clock_boot_ms() + BREAK_PATIENCE_MS, &lose_reply, err);

    if (result != HF_OK)
        return result;
    slot = table_find_name(table, name);
    for (int32_t i = 0; slot && i < table->claims_used; i++) {
        struct table_claim *claim = &table->claims[i];

        if (claim->state != CLAIM_HELD || &table->names[claim->name] != slot)
            continue;
        broken++;
        /* Withheld until they must know by themselves, as if they had run out; unless told not to. */
        if (grace_ms > 0)
            table_expire(table, claim, claim->expires_ms);
        else
            table_end(table, claim);
    }
    if (slot && grace_ms == 0 && slot->withheld_ms != 0)
        slot->withheld_ms = 1; /* over */
    result = call_end(store, lose_reply, HF_OK, err);
    if (result == HF_OK)
        *ret_broken = broken;
    return result;
}

static int test_floor(struct engine_store *store, uint64_t token, int64_t deadline_ms,
                      struct engine_floor *ret_floor, struct error_text *err)
{
    bool lose_reply;
    int result = call_begin(store, CALL_FLOOR, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    if (token >= HF_TOKEN_MAX)
        result = error_set(err, HF_EREFUSED, "no token is greater than that");
    else if (store->table->last_token < token)
        store->table->last_token = token;
    ret_floor->at = store->table->last_token;
    return call_end(store, lose_reply, result, err);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int add_entry(struct table *table, const struct table_claim *claim,
                     const struct engine_sink *sink)
{
    unsigned char digest[SHA256_SIZE];
    char lease[17];
    int64_t now_ms = table_now_ms(table);

    sha256(claim->lease, strlen(claim->lease), digest);
    text_hex(digest, 8, lease);
    return sink->add(
        sink->context,
        &(hf_entry){.size = sizeof(hf_entry),
                    .kind = claim->state == CLAIM_HELD ? HF_ENTRY_HOLDER : HF_ENTRY_WAITER,
                    .mode = claim->mode,
                    .permits = claim->permits,
                    .name = table->names[claim->name].name,
                    .token = claim->token,
                    .owner = claim->owner,
                    .lease = lease,
                    .pid = claim->pid,
                    .age_ms = now_ms - claim->since_ms,
                    .left_ms = claim->expires_ms - now_ms});
}

/* Claims of one state in their order of arrival; name NULL: of all names. */
static int add_claims(struct table *table, const struct table_name *name, int state,
                      const struct engine_sink *sink)
{
    uint64_t last = 0;

    for (;;) {
        const struct table_claim *next = NULL;
        int result;

        for (int32_t i = 0; i < table->claims_used; i++) {
            const struct table_claim *claim = &table->claims[i];

            if (claim->state == state && !claim->once &&
                (!name || &table->names[claim->name] == name) && claim->place > last &&
                (!next || claim->place < next->place))
                next = claim;
        }
        if (!next)
            return HF_OK;
        last = next->place;
        result = add_entry(table, next, sink);
        if (result != HF_OK)
            return result;
    }
}

static int test_show(struct engine_store *store, const char *name, const struct engine_sink *sink,
                     int64_t deadline_ms, struct error_text *err)
{
    const struct table_name *slot;
    bool lose_reply;
    int result = call_begin(store, CALL_SHOW, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    slot = table_find_name(store->table, name);
    if (slot)
        result = add_claims(store->table, slot, CLAIM_HELD, sink);
    if (slot && result == HF_OK)
        result = add_claims(store->table, slot, CLAIM_QUEUED, sink);
    return call_end(store, lose_reply, result, err);
}

static int test_list(struct engine_store *store, const char *match, bool all,
                     const struct engine_sink *sink, int64_t deadline_ms, struct error_text *err)
{
    struct table *table = store->table;
    bool lose_reply;
    int result = call_begin(store, CALL_LIST, deadline_ms, &lose_reply, err);

    (void)match; /* the client filters */
    if (result != HF_OK)
        return result;
    result = add_claims(table, NULL, CLAIM_HELD, sink);
    for (int32_t i = 0; all && result == HF_OK && i < table->names_used; i++)
        if (table->names[i].claims == 0 && table->names[i].name[0] != TABLE_ONCE_MARK)
            result = sink->add(sink->context, &(hf_entry){.size = sizeof(hf_entry),
                                                          .kind = HF_ENTRY_FREE,
                                                          .name = table->names[i].name,
                                                          .owner = "",
                                                          .lease = "",
                                                          .age_ms = -1,
                                                          .left_ms = -1});
    return call_end(store, lose_reply, result, err);
}

static int test_check(struct engine_store *store, const char *name, uint64_t token, int *ret_mode,
                      int64_t deadline_ms, struct error_text *err)
{
    struct table *table = store->table;
    int mode = ENGINE_GONE;
    bool lose_reply;
    int result = call_begin(store, CALL_CHECK, deadline_ms, &lose_reply, err);

    if (result != HF_OK)
        return result;
    for (int32_t i = 0; i < table->claims_used; i++) {
        const struct table_claim *claim = &table->claims[i];

        if (claim->state == CLAIM_HELD && claim->token == token &&
            strcmp(table->names[claim->name].name, name) == 0)
            mode = claim->mode;
    }
    result = call_end(store, lose_reply, HF_OK, err);
    if (result == HF_OK)
        *ret_mode = mode;
    return result;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct engine test_engine = {
    .abi = ENGINE_ABI,
    .traits = {.size = sizeof(hf_store_info),
               .scheme = TEST_ENGINE_WEAK ? "testweak" : "test",
               .url = TEST_ENGINE_WEAK ? "testweak:PATH" : "test:PATH",
               .features = TEST_ENGINE_WEAK ? HF_HAS_TTL | HF_HAS_BREAK | HF_HAS_ONCE
                                            : HF_HAS_TTL | HF_HAS_SHARED | HF_HAS_PERMITS |
                                                  HF_HAS_FIFO | HF_HAS_DELAY | HF_HAS_DETACH |
                                                  HF_HAS_BREAK | HF_HAS_FLOOR | HF_HAS_ONCE,
               .exclusion = TEST_ENGINE_WEAK ? HF_BEST_EFFORT : HF_STRICT,
               .tokens = TEST_ENGINE_WEAK ? HF_BEST_EFFORT : HF_STRICT,
               .survives = "process death; nothing else",
               .wakes = "pushed through shared memory",
               .ttl_ms = DEFAULT_TTL_MS},
    .open = test_open,
    .close = test_close,
    .after_fork = test_after_fork,
    .id = test_id,
    .acquire = test_acquire,
    .observe = test_observe,
    .abandon = test_abandon,
    .release = test_release,
    .renew = test_renew,
    .dispose = pushing_forget,
    .poll_fd = pushing_poll_fd,
    .process = pushing_process,
    .show = test_show,
    .list = test_list,
    .check = test_check,
    .break_name = test_break,
    .floor = TEST_ENGINE_WEAK ? NULL : test_floor,
    .finish = test_finish,
    .once_read = test_once_read,
};

__attribute__((visibility("default"))) const struct engine *holdfast_engine(void);

const struct engine *holdfast_engine(void)
{
    return &test_engine;
}
