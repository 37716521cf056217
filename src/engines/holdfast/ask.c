/* ask.c: one question, as the thread that asks it sees it: it waits for its turn to be sent and for its answers, reads the connection if nobody else
 * does, and gives up when its time is over. What becomes of the question in between is pipeline.c's. */
#include "base/clock.h"
#include "base/futex.h"
#include "engines/holdfast/store.h"

#define LINGER_MS 50  /* the longest that closing waits for answers */
#define CLOSING_MS 50 /* so often a question looks whether the handle is being closed */

/* A connection that nobody has read from may have died since: better seen before something is sent. */
static void look_before_sending(struct engine_store *store)
{
    if (!store->reading)
        pipeline_end_if_doomed(store);
    if (store->reading || !pipeline_ready(store))
        return;
    if (store->pending.count > 0 || link_has_news(store->link))
        pipeline_pump(store);
}

/* Somebody has left without his answer. */
static void look_after_leaving(struct engine_store *store)
{
    struct error_text why = store->doom;

    if (store->link && store->leaving && !pending_awaited(&store->pending))
        pipeline_doom(store, &why);
    else
        pipeline_look_at_clock(store);
}

/* Its answers are due all the same. */
static void leave_answers(struct engine_store *store, struct call *call)
{
    struct call *other = call->leave ? call->leave(call) : NULL;

    if (other)
        other->answered = call->answered;
    pending_leave(&store->pending, call, other);
}

/* Why it was refused the last time says more than that the time is up. */
static void give_up(struct engine_store *store, struct call *call)
{
    bool sent = call->sent, in_doubt = !call->reads && (sent || call->lost);
    struct error_text why = call->err.text[0] ? call->err : store->why_down;

    if (sent)
        leave_answers(store, call);
    if (sent && (in_doubt || !call->err.text[0]))
        error_write(&why, "%s did not answer in time", store->at->shown);
    else if (!why.text[0])
        not_reached_words(store, clock_boot_ms() - call->since_ms, &why);
    else if (!sent && !call->err.text[0] && store->said == SAID_NOTHING)
        add_all_servers(store, &why);
    call_finish(call, error_set(&call->err, in_doubt ? HF_EUNKNOWN : HF_EUNREACH, "%s", why.text));
    if (sent)
        look_after_leaving(store);
}

/* Whoever asks may be asleep, or read: then only a poke ends that. */
static void interrupt(struct engine_store *store, struct call *call)
{
    bool sent = call->sent;

    if (sent)
        leave_answers(store, call);
    call_finish(call, error_set(&call->err, sent || call->lost ? HF_EUNKNOWN : HF_EUNREACH,
                                "interrupted before it was %s", sent ? "answered" : "sent"));
    if (!sent)
        return;
    look_after_leaving(store);
    pipeline_poke(store);
}

/* Somebody else reads. He may have gone to sleep before the server owed us anything, and does not know
 * until when it may: we look at the clock ourselves. */
static void sleep_on_wakeup(struct engine_store *store, struct call *call, int64_t until_ms)
{
    uint32_t seen = atomic_load(&call->wakeup);

    call->sleeps = true;
    pthread_mutex_unlock(&store->mutex);
    futex_wait(&call->wakeup, seen, FUTEX_MASK_ALL, until_ms);
    pthread_mutex_lock(&store->mutex);
    call->sleeps = false;
    if (call->sent && call->result == CALL_OPEN)
        pipeline_look_at_clock(store);
}

/* Nobody wants the answer to a question once the handle is being closed. What changes something there is waited for: a release, the end of
 * a lease that may have been granted something. */
static bool is_unwanted(const struct engine_store *store, const struct call *call)
{
    return call->reads && store->host->closing(store->host->context);
}

static void wait_some(struct engine_store *store, struct call *call, int64_t deadline_ms)
{
    int64_t until_ms = deadline_ms, most_ms = clock_after(call->since_ms, store->timeout_ms);

    if (!call->sent && most_ms < until_ms)
        until_ms = most_ms;
    if (clock_boot_ms() >= until_ms || is_unwanted(store, call) ||
        (call->sent && call->enough && call->enough(call))) {
        give_up(store, call);
        return;
    }
    if (call->sent && pipeline_look_until(store) < until_ms)
        until_ms = pipeline_look_until(store);
    if (call->reads && clock_after(clock_boot_ms(), CLOSING_MS) < until_ms)
        until_ms = clock_after(clock_boot_ms(), CLOSING_MS);
    if (call->sent && !store->reading && !store->doubt) {
        store->reading = true;
        pipeline_poll(store, until_ms);
        pipeline_pump(store);
        store->reading = false;
    } else {
        sleep_on_wakeup(store, call, until_ms);
    }
}

int pipeline_ask(struct engine_store *store, struct call *call, int64_t deadline_ms,
                 struct error_text *err)
{
    list_init(&call->node);
    atomic_init(&call->wakeup, 0);
    call->result = CALL_OPEN;
    call->refused = HF_OK;
    call->answered = 0;
    call->sent = call->sleeps = call->elsewhere = call->lost = call->again = false;
    call->since_ms = clock_boot_ms();
    call->until_ms = deadline_ms;
    call->err.text[0] = '\0';
    pthread_mutex_lock(&store->mutex);
    if (call->shown)
        *call->shown = call;
    look_before_sending(store);
    list_append(&store->unsent, &call->node);
    if (call_is_interrupted(call))
        interrupt(store, call);
    pipeline_send_all(store);
    if (call->result == CALL_OPEN && !call->sent && io_thread_want(store, &call->err) != HF_OK)
        call_finish(call, HF_ENOMEM);
    if (!call->sent && call->anyone)
        pipeline_poke(
            store); /* whoever looks for the leader may have found somebody else already */
    while (call->result == CALL_OPEN)
        wait_some(store, call, deadline_ms);
    if (call->shown)
        *call->shown = NULL;
    pipeline_hand_on(store);
    pthread_mutex_unlock(&store->mutex);
    if (call->result != HF_OK)
        error_write(err, "%s", call->err.text);
    return call->result;
}

void pipeline_interrupt(struct engine_store *store, struct call *const *shown)
{
    pthread_mutex_lock(&store->mutex);
    if (*shown && (*shown)->result == CALL_OPEN && (!(*shown)->sent || call_is_interrupted(*shown)))
        interrupt(store, *shown);
    pthread_mutex_unlock(&store->mutex);
}

int pipeline_ask_written(struct engine_store *store, struct call *call, struct resp_writer *writer,
                         int64_t deadline_ms, struct error_text *err)
{
    int result;

    call->request = writer->bytes;
    call->size = writer->size;
    result = writer->failed ? error_set(err, HF_ENOMEM, "out of memory")
                            : pipeline_ask(store, call, deadline_ms, err);
    resp_writer_free(writer);
    return result;
}

/* A connection that is closed on unread answers is reset, and with it may go a release that the
 * server has not read yet. */
void pipeline_linger(struct engine_store *store)
{
    int64_t deadline_ms = clock_after(clock_boot_ms(), LINGER_MS);

    pthread_mutex_lock(&store->mutex);
    store->reading = true;
    while (pipeline_ready(store) && store->pending.count > 0 && clock_boot_ms() < deadline_ms) {
        pipeline_poll(store, deadline_ms);
        pipeline_pump(store);
    }
    pthread_mutex_unlock(&store->mutex);
}
