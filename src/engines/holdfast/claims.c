/* claims.c: taking and giving up. The server decides everything; here is what is asked, and
 * what a lost answer means.
 *
 * A claim that will wait asks with PUSH: it gets a place in the queue at once, and hears by a push
 * when that is over. The place belongs to the lease, not to the connection: after a broken one the
 * claim asks again with the same lease, and finds its place where it was.
 *
 * An answer that was lost leaves an ACQUIRE that may still arrive, after everything else is over. So
 * a claim that has lost one ends its lease, with END, which the server remembers; one that has not is
 * simply released. */
#include "base/clock.h"
#include "base/switches.h"
#include "engines/holdfast/store.h"

#include <stdlib.h>
#include <string.h>

#define OBSERVE_MS 5000

struct holdfast_claim *holdfast_private_of(struct engine_claim *claim)
{
    struct holdfast_claim *own = claim->private;

    if (own)
        return own;
    own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    list_init(&own->waiting.node);
    list_init(&own->held);
    late_init(own);
    own->waiting.claim = claim;
    /* `wake` may look while this is made. */
    __atomic_store_n(&claim->private, own, __ATOMIC_RELEASE);
    return own;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

static void write_acquire(const struct engine_store *store, const struct engine_claim *claim,
                          struct resp_writer *writer)
{
    int words = 7 + (claim->will_wait ? 1 : 0) + (claim->delay_ms > 0 ? 2 : 0);

    if (claim->mode != HF_EXCLUSIVE)
        words += claim->mode == HF_SHARED ? 1 : 2;
    resp_write_array(writer, (size_t)words);
    resp_write_text(writer, "ACQUIRE");
    holdfast_write_name(store, claim->name, writer);
    resp_write_text(writer, claim->lease);
    resp_write_text(writer, "TTL");
    resp_write_number(writer, claim->ttl_ms);
    if (claim->will_wait)
        resp_write_text(writer, "PUSH");
    if (claim->mode == HF_SHARED)
        resp_write_text(writer, "SHARED");
    if (claim->mode == HF_PERMIT) {
        resp_write_text(writer, "PERMITS");
        resp_write_number(writer, claim->permits);
    }
    if (claim->delay_ms > 0) {
        resp_write_text(writer, "DELAY");
        resp_write_number(writer, claim->delay_ms);
    }
    resp_write_text(writer, "OWNER");
    resp_write_text(writer, claim->owner ? claim->owner : "");
}

struct acquiring {
    struct engine_store *store;
    struct engine_claim *claim;
    int outcome;
};

static void read_acquire(void *context, int index, const struct resp_node *value)
{
    struct acquiring *acquiring = context;
    struct holdfast_claim *own = acquiring->claim->private;

    (void)index;
    acquiring->outcome = HF_EINTERNAL;
    if (value->type == RESP_INTEGER && value->integer > 0 && !acquiring->claim->once) {
        acquiring->claim->token = (uint64_t)value->integer;
        acquiring->outcome = ENGINE_HELD;
    } else if (value->type == RESP_NIL) {
        acquiring->outcome = ENGINE_BUSY;
    } else if (resp_is(value, "QUEUED")) {
        acquiring->outcome = ENGINE_QUEUED;
        /* Here, with the mutex, so that a connection lost just now does not pass it over. */
        atomic_store(&own->waiting.idle, true);
    } else if (acquiring->claim->once) {
        acquiring->outcome = holdfast_once_answer(acquiring->claim, value);
    }
    if (acquiring->outcome == ENGINE_HELD) /* before anything else is read: it may be its loss */
        held_add(acquiring->store, acquiring->claim);
}

/* Asked again when an answer is lost, with the lease that finds what it has. But "no" to the second
 * question does not settle the first, which may still arrive: then it is the client who has to settle
 * it. */
static int ask_acquire(struct engine_store *store, struct acquiring *acquiring, int64_t deadline_ms,
                       struct error_text *err)
{
    struct holdfast_claim *own = acquiring->claim->private;
    struct call call = {.replies = 1,
                        .repeatable = true,
                        .grants = true,
                        .context = acquiring,
                        .on_reply = read_acquire,
                        .shown = &own->call,
                        .interrupted = &acquiring->claim->interrupted};
    struct resp_writer writer = {0};
    int result;

    if (acquiring->claim->once)
        holdfast_once_write(store, acquiring->claim, &writer);
    else
        write_acquire(store, acquiring->claim, &writer);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && acquiring->outcome == HF_EINTERNAL)
        result = error_set(err, HF_EINTERNAL, "an invalid answer to ACQUIRE");
    else if (result == HF_OK && acquiring->outcome == HF_ENOMEM)
        result = error_set(err, HF_ENOMEM, "out of memory");
    else if (result == HF_OK)
        result = acquiring->outcome;
    own->unsure = own->unsure || call.lost || result == HF_EUNKNOWN;
    if (call.lost && !SWITCHED(SWITCH_SECOND_NO) && result != ENGINE_HELD &&
        result != ENGINE_QUEUED && result != HF_EUNKNOWN)
        return error_set(err, HF_EUNKNOWN, "the answer was lost, and asked again it was no");
    return result;
}

int holdfast_acquire(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                     struct error_text *err)
{
    struct holdfast_claim *own = holdfast_private_of(claim);
    struct acquiring acquiring = {.store = store, .claim = claim};
    int result = holdfast_check_name(store, claim->name, err);

    if (result != HF_OK)
        return result;
    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    own->drawn = true;
    late_forget(store, own); /* of what it had before, perhaps by another lease */
    if (claim->once && (result = holdfast_once_take_pushed(store, &own->waiting)) != HF_OK)
        return result;
    atomic_store(&own->waiting.idle, false);
    if (claim->will_wait) /* before it asks: the push may come right behind the answer */
        waiting_add(store, &own->waiting);
    result = ask_acquire(store, &acquiring, deadline_ms, err);
    if (result == ENGINE_QUEUED || result == HF_EUNKNOWN || result == HF_EUNREACH)
        atomic_store(&own->waiting.idle, true);
    else
        waiting_remove(store, &own->waiting);
    return result;
}

/* There is no wait to be ended; but whoever cancels need not wait for a server that is away. */
void holdfast_wake(struct engine_store *store, struct engine_claim *claim)
{
    struct holdfast_claim *own = __atomic_load_n(&claim->private, __ATOMIC_ACQUIRE);

    if (own)
        pipeline_interrupt(store, &own->call);
}

/* ---- observing ------------------------------------------------------------------------------- */

static void ignore(void *context, int index, const struct resp_node *value)
{
    (void)context;
    (void)index;
    (void)value;
}

int holdfast_observe(struct engine_store *store, struct engine_claim *claim, struct error_text *err)
{
    struct holdfast_claim *own = holdfast_private_of(claim);
    struct call call = {.replies = 1, .repeatable = true, .on_reply = ignore};
    struct resp_writer writer = {0};
    int result = holdfast_check_name(store, claim->name, err);

    if (result != HF_OK)
        return result;
    if (!own)
        return error_set(err, HF_ENOMEM, "out of memory");
    waiting_add(store, &own->waiting);
    resp_write_array(&writer, 2);
    resp_write_text(&writer, "OBSERVE");
    holdfast_write_name(store, claim->name, &writer);
    result =
        pipeline_ask_written(store, &call, &writer, clock_after(clock_boot_ms(), OBSERVE_MS), err);
    /* Who cannot be reached now will be told when it can. */
    if (result == HF_EUNREACH || result == HF_EUNKNOWN)
        return HF_OK;
    if (result != HF_OK)
        waiting_remove(store, &own->waiting);
    return result;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void claim_write_end(const struct engine_claim *claim, struct resp_writer *writer)
{
    resp_write_array(writer, 4);
    resp_write_text(writer, "END");
    resp_write_text(writer, claim->lease);
    resp_write_text(writer, "TTL");
    resp_write_number(writer, claim->ttl_ms);
}

int holdfast_abandon(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                     struct error_text *err)
{
    struct holdfast_claim *own = claim->private;
    struct call call = {.replies = 1, .repeatable = true, .on_reply = ignore};
    struct resp_writer writer = {0};
    int result;

    if (own)
        waiting_remove(store, &own->waiting);
    held_remove(store, claim);
    claim_write_end(claim, &writer);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_OK && own)
        own->unsure = false;
    return result;
}

struct releasing {
    int64_t answer;
};

/* The answer to RELEASE; that to END says nothing new. */
static void read_release(void *context, int index, const struct resp_node *value)
{
    struct releasing *releasing = context;

    if (index == 0 && !resp_to_int64(value, &releasing->answer))
        releasing->answer = -1;
}

int holdfast_release(struct engine_store *store, struct engine_claim *claim, int64_t deadline_ms,
                     struct error_text *err)
{
    const struct holdfast_claim *own = claim->private;
    bool end = own && own->unsure && !SWITCHED(SWITCH_LATE_ACQUIRE);
    struct releasing releasing = {-1};
    struct call call = {.replies = end ? 2 : 1, .context = &releasing, .on_reply = read_release};
    struct resp_writer writer = {0};
    int result;

    held_remove(store, claim);
    resp_write_array(&writer, claim->once ? 6 : 5);
    if (claim->once)
        resp_write_text(&writer, "ONCE");
    resp_write_text(&writer, "RELEASE");
    holdfast_write_name(store, claim->name, &writer);
    resp_write_text(&writer, claim->lease);
    resp_write_text(&writer, "TOKEN");
    resp_write_number(&writer, (int64_t)claim->token);
    if (end)
        claim_write_end(claim, &writer);
    result = pipeline_ask_written(store, &call, &writer, deadline_ms, err);
    if (result == HF_ELOST && !(own && own->unsure)) /* or our own END, whose answer was lost */
        return ENGINE_ENDED;
    /* That the server has no room to remember the lease does not undo what it answered before. */
    if (result != HF_OK && !(result == HF_EREFUSED && releasing.answer >= 0))
        return result;
    if (releasing.answer == 1)
        return HF_OK;
    return error_set(err, HF_ELOST, "'%.100s' was not ours any more", claim->name);
}

/* ---- leaving ---------------------------------------------------------------------------------- */

void holdfast_dispose(struct engine_store *store, struct engine_claim *claim)
{
    struct holdfast_claim *own = claim->private;

    if (!own)
        return;
    if (!store->forked) {
        waiting_remove(store, &own->waiting);
        held_remove(store, claim);
        late_forget(store, own);
        free(own->waiting.record.bytes); /* in a child it may be half done */
    }
    claim->private = NULL; /* first: a child forked in between must not free it again */
    free(own);
}
