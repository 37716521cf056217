/* session.c: asking one node, or all at once.
 *
 * Scripts go out by their digest. A server that does not know one (first use, restart, SCRIPT
 * FLUSH) says so without having done anything, and gets that command again, with the whole text,
 * on the same link and within the same exchange. Where an exchange may end before that answer comes,
 * the text goes out at once, unless the link has shown before that the script is known. */
#include "base/clock.h"
#include "engines/redis/store.h"

#include <string.h>

static bool begins(const struct resp_node *value, const char *text)
{
    size_t size = strlen(text);

    return value->size >= size && memcmp(value->text, text, size) == 0;
}

/* True: it is under way once more. */
static bool send_text(struct session *session, int node, int index)
{
    const struct question *question = session->question;
    struct call *call = &session->calls[node];
    struct resp_writer writer = {0};
    bool sent;

    question->write(question->context, index, true, &writer);
    sent = !writer.failed && link_send(call->link, writer.bytes, writer.size, &call->err) == HF_OK;
    resp_writer_free(&writer);
    if (!sent)
        return false;
    session->again[node][session->again_count[node]++] = (int16_t)index;
    call->replies++;
    return true;
}

static uint32_t mark_of(const struct question *question)
{
    _Static_assert(SCRIPT_COUNT <= 32, "a mark for each script");
    return question->text_first == SCRIPT_NONE ? 0 : UINT32_C(1) << question->text_first;
}

static void on_reply(void *context, int call, int reply, const struct resp_node *value)
{
    struct session *session = context;
    const struct question *question = session->question;
    int node = question->to > 0 ? question->to - 1 : call;
    struct link *link = session->calls[node].link;
    bool first = reply < question->commands;
    int index = first ? reply : session->again[node][reply - question->commands];

    if (value->type != RESP_ERROR) {
        link->marks |= mark_of(question);
        question->answer(question->context, node, index, value);
        return;
    }
    if (first && begins(value, "NOSCRIPT")) {
        link->marks = 0;
        if (send_text(session, node, index))
            return;
    }
    /* A primary that became a replica stays one, on this connection. Where its name leads by now, only a new
     * one can tell. */
    if (begins(value, "READONLY"))
        session->calls[node].over = true;
    if (session->refused[node] == HF_OK)
        session->refused[node] =
            node_refusal(&session->store->nodes[node], value, &session->calls[node].err);
}

/* ---- when it is enough ----------------------------------------------------------------------- */

/* Nodes that are still being connected to, and were not asked. A lock that lives on three nodes of
 * five is lost with one of them, and a release that a node has not heard blocks others there. So
 * whoever can be reached within the timeout is told, unless he could not the last time. */
static bool has_stragglers(const struct session *session)
{
    for (int i = 0; i < session->store->node_count; i++) {
        const struct call *call = &session->calls[i];

        if (call->link && call->result == CALL_OPEN && !call->sent &&
            !atomic_load(&session->store->nodes[i].suspect))
            return true;
    }
    return false;
}

static bool enough(void *context)
{
    struct session *session = context;
    const struct question *question = session->question;

    return question->enough(question->context) && !(question->tells_all && has_stragglers(session));
}

/* Who did not answer in time is not waited for the next time; until it has caught up. */
static void note_suspects(struct session *session, const struct exchange *exchange, bool in_time)
{
    for (int i = 0; i < exchange->count; i++) {
        const struct call *call = &exchange->calls[i];
        struct node *node = &session->store->nodes[call - session->calls];

        if (!call->link)
            continue;
        if (call->result == HF_OK || call->link->lags_since_ms >= session->asked_ms)
            atomic_store(&node->suspect, false);
        if (!in_time && call->result != HF_OK)
            atomic_store(&node->suspect, true);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

void session_begin(struct session *session, struct engine_store *store)
{
    session->store = store;
    session->asked_ms = 0;
    for (int i = 0; i < store->node_count; i++) {
        struct call *call = &session->calls[i];

        call->link = NULL;
        call->over = call->sent = false;
        call->err.text[0] = '\0';
        call->result = HF_EUNREACH;
    }
}

static void drop_link(struct session *session, int node)
{
    struct call *call = &session->calls[node];

    if (call->link)
        node_give(&session->store->nodes[node], call->link, call->over);
    call->link = NULL;
}

void session_end(struct session *session)
{
    for (int i = 0; i < session->store->node_count; i++)
        drop_link(session, i);
}

/* For the first question, and again where links broke for one that all should hear. */
static void make_links(struct session *session, int64_t deadline_ms)
{
    for (int i = 0; i < session->store->node_count; i++) {
        struct call *call = &session->calls[i];

        if (call->link && call->over)
            drop_link(session, i);
        if (!call->link)
            call->result =
                node_take(&session->store->nodes[i], deadline_ms, &call->link, &call->err);
        call->over = false;
    }
}

/* The commands of a question; by_text: the first of them, which teaches the script for the rest. */
static void write_request(const struct question *question, bool by_text, struct resp_writer *writer)
{
    for (int i = 0; i < question->commands; i++)
        question->write(question->context, i, by_text && i == 0, writer);
}

static void prepare_call(struct session *session, int node, const struct resp_writer *request)
{
    struct call *call = &session->calls[node];

    session->refused[node] = HF_OK;
    session->again_count[node] = 0;
    if (call->link && (call->over || request->failed)) {
        call->over = true;
        drop_link(session, node);
        call->result =
            request->failed ? error_set(&call->err, HF_ENOMEM, "out of memory") : HF_EUNREACH;
        call->sent = false;
    }
    call->request = request->bytes;
    call->size = request->size;
    call->replies = session->question->commands;
}

void session_ask(struct session *session, const struct question *question, int64_t deadline_ms)
{
    struct engine_store *store = session->store;
    struct resp_writer own = {0}, text = {0}, *request = &own;
    struct exchange exchange = {.calls = session->calls,
                                .count = store->node_count,
                                .deadline_ms = deadline_ms,
                                .interrupted = question->interrupted,
                                .context = session,
                                .on_reply = on_reply,
                                .enough = question->enough ? enough : NULL};

    INVARIANT(question->commands <= REDIS_BATCH_MAX);
    session->question = question;
    if (question->tells_all || session->asked_ms == 0)
        make_links(session, deadline_ms);
    session->asked_ms = clock_boot_ms();
    if (store->node_count == 1 && session->calls[0].link) { /* memory that is there already */
        request = &session->calls[0].link->scratch;
        resp_writer_clear(request);
    }
    write_request(question, false, request);
    for (int i = 0; i < store->node_count; i++) {
        const struct link *link = session->calls[i].link;
        bool by_text = link && mark_of(question) && !(link->marks & mark_of(question));

        if (by_text && text.size == 0)
            write_request(question, true, &text);
        prepare_call(session, i, by_text ? &text : request);
    }
    if (question->to > 0) {
        exchange.calls += question->to - 1;
        exchange.count = 1;
    }
    note_suspects(session, &exchange, exchange_run(&exchange));
    resp_writer_free(&own);
    resp_writer_free(&text);
}

int session_open(const struct session *session)
{
    int open = 0;

    for (int i = 0; i < session->store->node_count; i++)
        open += session->calls[i].link && session->calls[i].result == CALL_OPEN;
    return open;
}

int session_result(const struct session *session, int node, struct error_text *err)
{
    const struct call *call = &session->calls[node];
    int result = call->result == HF_OK ? session->refused[node] : call->result;

    if (result == HF_OK)
        return HF_OK;
    /* A Redis that speaks no TLS there waits for the rest of what it takes for a command. */
    if (session->store->access.tls && call->link && call->link->state == LINK_CONNECTING &&
        strstr(call->err.text, "in time"))
        return error_set(err, result,
                         "%s: %s; does it speak TLS at this port? (redis:// is without)",
                         session->store->nodes[node].address.shown, call->err.text);
    if (result == HF_EUNKNOWN || strstr(call->err.text, session->store->nodes[node].address.shown))
        return error_set(err, result, "%s", call->err.text);
    return error_set(err, result, "%s: %s", session->store->nodes[node].address.shown,
                     call->err.text);
}

int redis_ask(struct engine_store *store, const struct question *question, int64_t deadline_ms,
              struct error_text *err)
{
    struct session session;
    int result;

    session_begin(&session, store);
    session_ask(&session, question, deadline_ms);
    result = session_result(&session, 0, err);
    session_end(&session);
    return result;
}
