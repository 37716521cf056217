/* resp_protocol.c: RESP2 and RESP3, the protocol of Redis: commands are arrays of words, answers come in their order. */
#include "session/inside.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- commands ------------------------------------------------------------------------------------ */

/* Into `value`, unless one is there that has yet to begin. */
static int next_value(struct session *session, struct error_text *err)
{
    int result;

    if (session->input == INPUT_VALUE)
        return HF_OK;
    result = resp_reader_next(session->reader, &session->value, err);
    if (result == HF_OK)
        session->input = session->value ? INPUT_VALUE : INPUT_NONE;
    return result;
}

static int feed(struct session *session, struct error_text *err)
{
    if (session->input == INPUT_NONE)
        session->input = INPUT_UNREAD;
    while (session_may_begin(session)) {
        int result = next_value(session, err);
        enum verdict verdict;

        if (result != HF_OK)
            return result;
        if (session->input == INPUT_NONE)
            break;
        verdict = command_run(session, session->value);
        if (verdict != VERDICT_DONE)
            return verdict == VERDICT_FULL ? SESSION_FULL : HF_OK;
        session->input = INPUT_UNREAD;
    }
    return HF_OK;
}

static void say_no(struct resp_writer *out, const char *text)
{
    resp_write_error(out, text);
}

static void fail(struct session *session, const char *text)
{
    say_no(&session->out, text);
}

static void closed(struct session *session)
{
    resp_reader_free(session->reader);
    resp_writer_free(&session->out);
}

#define OVER "ENDED this lease is over: take another"

/* ---- answers ------------------------------------------------------------------------------------- */

/* What became of an ACQUIRE or a CLAIM that is over. */
static void write_outcome(struct session *session, const struct request *request, const char *word,
                          uint64_t number, const struct core_text *result)
{
    struct resp_writer *out = &session->out;

    if (!request->once) {
        resp_write_integer(out, (int64_t)number);
        return;
    }
    resp_write_array(out, result ? 3 : 2);
    resp_write_text(out, word);
    resp_write_integer(out, (int64_t)number);
    if (result)
        resp_write_blob(out, result->bytes, result->size);
}

static void write_left(struct session *session, const struct request *request,
                       const struct core_effect *effect)
{
    struct resp_writer *out = &session->out;

    if (effect->why == WHY_DIED)
        write_outcome(session, request, "DIED", effect->number, NULL);
    else if (effect->why == WHY_WAIT_OVER || effect->why == WHY_LEFT)
        resp_write_nil(out, session->resp3);
    else
        resp_write_error(out, OVER);
}

static void write_part(const struct request *request, const struct core_effect *effect)
{
    struct resp_writer *out = &request->session->out;

    if (request->parts == request->total)
        resp_write_array(out, request->total);
    resp_write_integer(out, span_shown((int64_t)effect->number));
}

static void write_answer(struct session *session, const struct request *request,
                         const struct core_effect *effect)
{
    struct resp_writer *out = &session->out;
    char text[ERROR_TEXT_MAX];

    switch (effect->answer) {
    case ANSWER_TOKEN:
        write_outcome(session, request, "RUN", effect->number, NULL);
        break;
    case ANSWER_BUSY:
        resp_write_nil(out, session->resp3);
        break;
    case ANSWER_QUEUED:
        resp_write_simple(out, "QUEUED");
        break;
    case ANSWER_DONE:
        write_outcome(session, request, "DONE", effect->number, &effect->result);
        break;
    case ANSWER_DIED:
        write_outcome(session, request, "DIED", effect->number, NULL);
        break;
    case ANSWER_NUMBER:
        if (effect->why == WHY_ENDED && session->losses) /* others know 0, and 1 */
            resp_write_error(out, OVER);
        else
            resp_write_integer(out, (int64_t)effect->number);
        break;
    default:
        resp_write_error(out, refusal_of(effect, text, sizeof text));
        break;
    }
}

static void reply(struct request *request, const struct core_effect *effect)
{
    struct session *session = request->session;

    if (effect->kind == EFFECT_ANSWER && request->total > 0)
        write_part(request, effect);
    else if (effect->kind == EFFECT_ANSWER)
        write_answer(session, request, effect);
    else if (effect->kind == EFFECT_GRANTED)
        write_outcome(session, request, "RUN", effect->number, NULL);
    else if (effect->kind == EFFECT_DONE)
        write_outcome(session, request, "DONE", effect->number, &effect->result);
    else
        write_left(session, request, effect);
}

/* ---- pushes -------------------------------------------------------------------------------------- */

/* >4 word name lease number, and what goes with it. */
static void push_place(struct resp_writer *out, const struct core_effect *effect)
{
    bool result = effect->kind == EFFECT_DONE, left = effect->kind == EFFECT_LEFT;
    bool died = left && effect->why == WHY_DIED;

    resp_write_push(out, result || died ? 5 : 4, true);
    resp_write_text(out, left ? "left" : result ? "done" : "granted");
    resp_write_blob(out, effect->name.bytes, effect->name.size);
    resp_write_blob(out, effect->lease.bytes, effect->lease.size);
    if (left)
        resp_write_text(out, why_word(effect));
    if (!left || died)
        resp_write_integer(out, (int64_t)effect->number);
    if (result)
        resp_write_blob(out, effect->result.bytes, effect->result.size);
}

/* >5 changed name why token owner */
static void push_changed(struct resp_writer *out, const struct core_effect *effect)
{
    resp_write_push(out, 5, true);
    resp_write_text(out, "changed");
    resp_write_blob(out, effect->name.bytes, effect->name.size);
    resp_write_text(out, why_word(effect));
    resp_write_integer(out, (int64_t)effect->number);
    resp_write_blob(out, effect->owner.bytes, effect->owner.size);
}

/* In RESP2 *3 message name "why token owner". */
static void push_message(struct resp_writer *out, const struct core_effect *effect, bool resp3)
{
    char text[HF_OWNER_MAX + 64];
    int size = snprintf(text, sizeof text, "%s %" PRIu64 " %.*s", why_word(effect), effect->number,
                        (int)effect->owner.size, effect->owner.bytes);

    resp_write_push(out, 3, resp3);
    resp_write_text(out, "message");
    resp_write_blob(out, effect->name.bytes, effect->name.size);
    resp_write_blob(out, text, (size_t)size);
}

/* >5 lost name lease token why */
static void push_lost(struct resp_writer *out, const struct core_effect *effect)
{
    resp_write_push(out, 5, true);
    resp_write_text(out, "lost");
    resp_write_blob(out, effect->name.bytes, effect->name.size);
    resp_write_blob(out, effect->lease.bytes, effect->lease.size);
    resp_write_integer(out, (int64_t)effect->number);
    resp_write_text(out, why_word(effect));
}

static void push(struct session *session, enum push what, const struct core_effect *effect)
{
    switch (what) {
    case PUSH_PLACE:
        push_place(&session->out, effect);
        break;
    case PUSH_CHANGED:
        push_changed(&session->out, effect);
        break;
    case PUSH_MESSAGE:
        push_message(&session->out, effect, session->resp3);
        break;
    case PUSH_LOST:
        push_lost(&session->out, effect);
        break;
    }
}

const struct protocol resp_protocol = {.name = "resp",
                                       .feed = feed,
                                       .reply = reply,
                                       .fail = fail,
                                       .refuse = say_no,
                                       .push = push,
                                       .closed = closed};
