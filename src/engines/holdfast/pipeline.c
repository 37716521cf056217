/* pipeline.c: the one connection of a handle. All threads ask on it, and answers come in the order of the
 * questions.
 *
 * Who reads. Whoever waits for an answer reads the socket himself if nobody else does; he hands out
 * what belongs to others, and when he leaves the next one takes over. So a thread that is alone with
 * its lock has no other thread between itself and the server. While claims wait or observe, somebody
 * has to listen between the questions too: that is the I/O thread, and then it reads for all.
 *
 *     unsent ──(connected)──▶ pending ──(all answers)──▶ done
 *        ▲                       │
 *        │ "not here" (MOVED, TRYAGAIN, STOPPED): nothing was done
 *        └──────────────┬────────┤
 *             repeatable└────────┴──(UNKNOWN, connection lost)──▶ HF_EUNKNOWN
 *
 * A question that its asker has given up stays pending: its answers still have to be counted, and one to a renewal counts
 * for what it renewed (renew.c). */
#include "base/clock.h"
#include "base/futex.h"
#include "engines/holdfast/store.h"

#include <poll.h>
#include <sys/eventfd.h>

#define DOUBT_MS 100  /* an answer that is due for so long makes us ask the other servers */
#define ANSWER_MS 100 /* with less time left a grant is not asked for again */

/* ---- what is owed ---------------------------------------------------------------------------- */

/* Since when the server owes us something; there is something pending. */
static int64_t owes_since_ms(const struct engine_store *store)
{
    int64_t sent_ms = pending_at(&store->pending, 0)->sent_ms;

    return sent_ms > store->heard_ms ? sent_ms : store->heard_ms;
}

int64_t pipeline_silent_until(const struct engine_store *store)
{
    const struct call *first;
    int64_t patience_ms = store->timeout_ms;

    if (!store->link || store->pending.count == 0)
        return CLOCK_NEVER;
    first = pending_at(&store->pending, 0)->call;
    if (first && first->patience_ms > patience_ms)
        patience_ms = first->patience_ms;
    return clock_after(owes_since_ms(store), patience_ms);
}

static int64_t doubt_from_ms(const struct engine_store *store)
{
    const struct call *first;

    if (!store->link || store->pending.count == 0 || !store->has_others || store->doubt)
        return CLOCK_NEVER;
    first = pending_at(&store->pending, 0)->call;
    return first && first->slow ? CLOCK_NEVER : clock_after(owes_since_ms(store), DOUBT_MS);
}

int64_t pipeline_look_until(const struct engine_store *store)
{
    int64_t silent_ms = pipeline_silent_until(store), doubt_ms = doubt_from_ms(store);

    if (store->doomed)
        return CLOCK_NEVER;
    return doubt_ms < silent_ms ? doubt_ms : silent_ms;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void call_wake(struct call *call)
{
    atomic_fetch_add(&call->wakeup, 1);
    if (call->sleeps)
        futex_wake(&call->wakeup, FUTEX_MASK_ALL, 1);
}

void call_finish(struct call *call, int result)
{
    list_remove(&call->node);
    call->result = result;
    call_wake(call);
}

/* To be sent again, before those that were not sent yet. */
static void put_back(struct engine_store *store, struct call *call)
{
    call->sent = call->elsewhere = false;
    call->again = true;
    call->answered = 0;
    call->refused = HF_OK;
    call->since_ms = clock_boot_ms();
    list_append(store->unsent.next, &call->node);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

void pipeline_drop(struct engine_store *store, const struct error_text *why)
{
    enum said said = store->leaving ? store->leaving_said : SAID_NOTHING;
    struct address at = *store->at;

    atomic_store(&store->link, NULL); /* before it is closed: see after_fork */
    probe_free(store->found);
    store->found = NULL;
    store->at = NULL;
    store->doomed = store->leaving = store->doubt = false;
    for (size_t i = store->pending.count; i > 0; i--) { /* the last first, to keep their order */
        struct call *call = pending_at(&store->pending, i - 1)->call;

        if (!call)
            continue;
        if (call->over) {
            call->over(call);
            continue;
        }
        call->lost = true;
        if (call->repeatable)
            put_back(store, call);
        else
            call_finish(call,
                        error_set(&call->err, HF_EUNKNOWN, "the answer was lost: %s", why->text));
    }
    store->pending.count = 0;
    discovery_lost(store, &at, why, said);
    io_thread_wakeup(store);
}

void pipeline_poke(struct engine_store *store)
{
    eventfd_write(store->poke_fd, 1);
}

void pipeline_doom(struct engine_store *store, const struct error_text *why)
{
    if (!store->link || store->doomed)
        return;
    if (!store->reading) {
        pipeline_drop(store, why);
        return;
    }
    store->doomed = true;
    store->doom = *why;
    pipeline_poke(store);
}

void pipeline_refuse_all(struct engine_store *store, int result, const struct error_text *why)
{
    LIST_EACH_SAFE(node, &store->unsent)
    {
        struct call *call = LIST_ENTRY(node, struct call, node);

        call->err = *why;
        call_finish(call, result);
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

bool pipeline_ready(const struct engine_store *store)
{
    const struct link *link = store->link;

    return link && link->state == LINK_READY && !store->leaving && !store->doomed;
}

/* There is room for it among the pending. */
static void send_bytes(struct engine_store *store, struct call *call, const char *bytes,
                       size_t size, int replies)
{
    struct link *link = store->link;
    struct error_text err;

    pending_add(&store->pending, call, replies);
    if (link_send(link, bytes, size, &err) != HF_OK)
        pipeline_doom(store, &err);
    else if (store->reading && link_events(link) & POLLOUT)
        pipeline_poke(store); /* whoever polls does not know that there is something to write */
}

/* A grant was asked for, and certainly not given. Asked for again now, its answer would come too late,
 * and the outcome be unknown without need. */
static bool is_too_late(const struct call *call)
{
    return call->grants && call->again && !call->lost &&
           clock_boot_ms() + ANSWER_MS > call->until_ms;
}

static struct call *next_to_send(struct engine_store *store, bool only_anyones)
{
    LIST_EACH(node, &store->unsent)
    {
        struct call *call = LIST_ENTRY(node, struct call, node);

        if (!is_too_late(call) && (call->anyone || !only_anyones))
            return call;
    }
    return NULL;
}

/* A server that does not lead has been asked what anybody answers, and there are locks to ask for: when it has answered, or nobody waits for that
 * any more, the leader is looked for. Why there is none yet is known from before. */
static void leave_for_the_leader(struct engine_store *store)
{
    struct error_text why = store->why_down;

    if (!why.text[0])
        error_write(&why, "%s is not known to lead", store->at->shown);
    if (!pending_awaited(&store->pending)) {
        pipeline_doom(store, &why);
    } else {
        store->leaving = true;
        store->leaving_said = SAID_NOTHING; /* by this one */
        store->doom = why;
    }
}

/* A server that is in doubt is asked nothing more: another one may lead by now. One that was only to be asked what anybody answers is not asked for
 * a lock, though it may lead by now: nobody has looked which cluster. */
void pipeline_send_all(struct engine_store *store)
{
    struct call *call;

    while (pipeline_ready(store) && !store->doubt &&
           (call = next_to_send(store, !store->found->leads))) {
        if (!pending_room(&store->pending)) {
            call_finish(call, error_set(&call->err, HF_ENOMEM, "out of memory"));
            continue;
        }
        list_remove(&call->node);
        call->sent = true;
        send_bytes(store, call, call->request, call->size, call->replies);
    }
    if (pipeline_ready(store) && !store->doubt && !store->found->leads &&
        next_to_send(store, false))
        leave_for_the_leader(store);
}

void pipeline_ask_aside(struct engine_store *store, struct call *call)
{
    if (!pipeline_ready(store) || !pending_room(&store->pending))
        return;
    list_init(&call->node);
    call->result = CALL_OPEN;
    call->refused = HF_OK;
    call->answered = 0;
    call->sent = true;
    call->sleeps = call->elsewhere = call->lost = false;
    send_bytes(store, call, call->request, call->size, call->replies);
}

void pipeline_tell(struct engine_store *store, const struct resp_writer *writer, int replies)
{
    if (pipeline_ready(store) && !writer->failed && pending_room(&store->pending))
        send_bytes(store, NULL, writer->bytes, writer->size, replies);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* True: the server has served us, if only by a refusal. Nothing was done where it says that it does
 * not serve (`elsewhere`); where it says UNKNOWN, whoever leads next will know. */
static bool take_error(struct engine_store *store, struct call *call, const struct resp_node *value)
{
    struct error_text words;
    struct address ignored;
    /* Where a server of no cluster sends us, there may be any. */
    bool elsewhere =
        reply_is_elsewhere(value, cluster_is_none(store->found) ? &ignored : &store->moved);
    int code = reply_error(store->at, value, &words);
    bool leaves = elsewhere || code == HF_EUNKNOWN;

    if (code == HF_EUNKNOWN && call && call->reads) /* a question changes nothing */
        error_write(&words, "%s has lost its majority, or leads no more", store->at->shown);
    if (leaves) {
        store->leaving = true;
        store->leaving_said = reply_tells(value);
        store->doom = words;
    }
    if (call && leaves && (call->repeatable || (elsewhere && call->answered == 0))) {
        call->elsewhere = true;
        call->lost = call->lost || !elsewhere || call->answered > 0;
        /* Why the leader does not serve says more than that somebody else leads. */
        if (!store->moved.shown[0] || !call->err.text[0])
            call->err = words;
    } else if (call && !call->elsewhere && call->refused == HF_OK) {
        /* What came before it was done, and this was not. */
        call->refused = elsewhere ? HF_EUNKNOWN : code;
        call->err = words;
    }
    return !leaves;
}

static void take_answer(struct engine_store *store, struct call *call,
                        const struct resp_node *value)
{
    struct call *asker = call && call->over ? NULL : call;
    bool was_elsewhere = call && call->elsewhere;

    if (call &&
        call->aside) { /* whatever it says: whether the server serves, the others find out */
        call->on_reply(call->context, call->answered, value);
        return;
    }
    if (value->type == RESP_ERROR && !take_error(store, asker, value))
        return;
    if (!store->leaving) /* what it still answers does not mean that it serves */
        discovery_served(store);
    if (was_elsewhere && !call->repeatable) { /* half of it was done */
        call->elsewhere = false;
        call->refused = HF_EUNKNOWN;
    } else if (call && value->type != RESP_ERROR && !was_elsewhere) {
        call->on_reply(call->context, call->answered, value);
    }
}

/* The first of those that wait for an answer. False: nobody does. */
static bool wake_asker(struct engine_store *store)
{
    for (size_t i = 0; i < store->pending.count; i++) {
        struct call *call = pending_at(&store->pending, i)->call;

        if (call && !call->aside && !call->over) {
            call_wake(call);
            return true;
        }
    }
    return false;
}

/* All its answers are here. */
static void conclude(struct engine_store *store, struct call *call)
{
    if (call->over) {
        call->over(call);
        wake_asker(store); /* perhaps by the same: he may know enough now */
    } else if (call->elsewhere) {
        put_back(store, call);
    } else {
        call_finish(call, call->refused);
    }
}

static bool on_value(void *context, const struct resp_node *value)
{
    struct engine_store *store = context;
    struct pending *first;
    struct call *call;

    store->heard_ms = clock_boot_ms();
    store->doubt = false;
    if (value->type == RESP_PUSH) {
        discovery_served(store);
        waiting_push(store, value);
        return true;
    }
    if (store->pending.count == 0) {
        store->doomed = true;
        error_write(&store->doom, "%s: sent an answer to no question: is this holdfastd?",
                    store->at->shown);
        return false;
    }
    first = pending_at(&store->pending, 0);
    call = first->call;
    take_answer(store, call, value);
    if (call)
        call->answered++;
    if (--first->left > 0)
        return true;
    pending_remove_first(&store->pending);
    if (call)
        conclude(store, call);
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

void pipeline_look_at_clock(struct engine_store *store)
{
    int64_t now_ms = clock_boot_ms();
    struct error_text why;

    if (now_ms >= pipeline_silent_until(store)) {
        error_write(&why, "%s: it does not answer", store->at->shown);
        pipeline_doom(store, &why);
    } else if (now_ms >= doubt_from_ms(store)) {
        store->doubt = true;
        store->round_ms = now_ms; /* probes go out at once */
        io_thread_wakeup(store);
        pipeline_poke(store); /* it may be the I/O thread who reads */
    }
}

void pipeline_end_if_doomed(struct engine_store *store)
{
    struct error_text why = store->doom;

    if (store->link && store->doomed)
        pipeline_drop(store, &why);
}

void pipeline_pump(struct engine_store *store)
{
    struct error_text err;
    int result;

    if (!store->link)
        return;
    result = link_pump(store->link, on_value, store, &err);
    if (result == HF_OK && clock_boot_ms() >= pipeline_silent_until(store))
        result = error_set(&err, HF_EUNREACH, "%s: it does not answer", store->at->shown);
    else if (result == HF_OK &&
             (store->doomed || (store->leaving && !pending_awaited(&store->pending))))
        result = error_set(&err, HF_EUNREACH, "%s", store->doom.text);
    if (result != HF_OK) {
        pipeline_drop(store, &err);
        return;
    }
    pipeline_look_at_clock(store);
    pipeline_send_all(store);      /* what was held back while it was in doubt */
    pipeline_end_if_doomed(store); /* by these two: whoever reads may be about to leave */
}

void pipeline_poll(struct engine_store *store, int64_t until_ms)
{
    const struct link *link = store->link;
    struct pollfd fds[2] = {{.fd = store->poke_fd, .events = POLLIN},
                            {.fd = stream_fd(link->stream), .events = link_events(link)}};
    int64_t left_ms = until_ms == CLOCK_NEVER ? -1 : until_ms - clock_boot_ms();
    eventfd_t ignored;

    if (left_ms < 0 && until_ms != CLOCK_NEVER)
        left_ms = 0;
    if (left_ms > HOLDFAST_TIMEOUT_MAX_MS)
        left_ms = HOLDFAST_TIMEOUT_MAX_MS;
    pthread_mutex_unlock(&store->mutex);
    poll(fds, 2, (int)left_ms);
    if (fds[0].revents)
        eventfd_read(store->poke_fd, &ignored);
    pthread_mutex_lock(&store->mutex);
}

void pipeline_hand_on(struct engine_store *store)
{
    if (store->reading)
        return;
    if (store->link && store->attentive == 0 && !store->doubt && wake_asker(store))
        return;
    if (store->attentive > 0 || store->doubt || !list_empty(&store->unsent))
        io_thread_wakeup(store);
}
