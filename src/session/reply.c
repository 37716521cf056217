/* reply.c: effects of the log become answers to those who asked, and pushes to those who wait or
 * watch. */
#include "base/switches.h"
#include "session/inside.h"

#include <inttypes.h>
#include <stdio.h>

void sessions_failed(struct sessions *sessions, void *about, enum replica_failure failure)
{
    struct request *request = about;
    char text[ERROR_TEXT_MAX + 32];

    if (!request)
        return;
    if (failure == REPLICA_NOT_LEADING)
        sessions_not_leading(sessions, text, sizeof text);
    else
        snprintf(text, sizeof text,
                 "UNKNOWN it may or may not have taken effect: ask again with the same lease");
    request_fail(request, text);
}

/* ---- answers to commands ------------------------------------------------------------------------ */

static const char *refusal_of(const struct core_effect *effect, char *ret_text, size_t size)
{
    switch (effect->answer) {
    case ANSWER_OTHER_MODE:
        return "MODE this lease has the name in another mode";
    case ANSWER_OTHER_PERMITS:
        if (effect->number)
            snprintf(ret_text, size, "MODE the name is in use with PERMITS %" PRIu64,
                     effect->number);
        else
            snprintf(ret_text, size, "MODE the name is in use without PERMITS");
        return ret_text;
    case ANSWER_ENDED:
        return "ENDED this lease is over: take another";
    case ANSWER_LEASES_FULL:
        return "LIMIT there are too many leases";
    case ANSWER_LOCKS_FULL:
        return "LIMIT there are too many names in use";
    case ANSWER_CLAIMS_FULL:
        return "LIMIT there are too many holds and places";
    case ANSWER_QUEUE_FULL:
        return "LIMIT the queue of this name is full";
    case ANSWER_TOKENS_SPENT:
        return "LIMIT there are no tokens left";
    case ANSWER_STALE:
        snprintf(ret_text, size,
                 "STALE this lease and token do not hold the record; the newest token is %" PRIu64,
                 effect->number);
        return ret_text;
    default:
        return NULL;
    }
}

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

/* Somebody else waited at this place with the same lease: the later one gets the answer. */
static void replaced(struct waiter *waiter)
{
    struct request *request = waiter->request;

    waiter->request = NULL;
    waiter_remove(waiter);
    if (request)
        request_fail(request, "REPLACED another connection waits with this lease");
}

static void reply_queued(struct request *request, const struct core_effect *effect)
{
    struct session *session = request->session;
    struct waiter *before = waiter_find(session->sessions, effect->ticket);

    if (before)
        replaced(before);
    if (request->push) {
        if (!session->closed && !(before && SWITCHED(SWITCH_PUSH_LOST)))
            waiter_add(session, effect->ticket, effect->attachment, NULL);
        resp_write_simple(&session->out, "QUEUED");
        request_finish(request);
    } else {
        struct waiter *waiter = waiter_add(session, effect->ticket, effect->attachment, request);

        if (session->closed)
            waiter_leave(waiter);
        else
            session->blocked = waiter;
    }
}

static void answer(struct request *request, const struct core_effect *effect)
{
    struct session *session = request->session;
    struct resp_writer *out = &session->out;
    char text[128];

    switch (effect->answer) {
    case ANSWER_TOKEN:
        holder_set(session, effect->number);
        write_outcome(session, request, "RUN", effect->number, NULL);
        break;
    case ANSWER_BUSY:
        resp_write_nil(out, session->resp3);
        break;
    case ANSWER_QUEUED:
        reply_queued(request, effect);
        return;
    case ANSWER_DONE:
        write_outcome(session, request, "DONE", effect->number, &effect->result);
        break;
    case ANSWER_DIED:
        write_outcome(session, request, "DIED", effect->number, NULL);
        break;
    case ANSWER_NUMBER:
        resp_write_integer(out, (int64_t)effect->number);
        break;
    default:
        resp_write_error(out, refusal_of(effect, text, sizeof text));
        break;
    }
    request_finish(request);
}

/* RENEW has an answer for each of its leases. */
static void reply_part(struct request *request, const struct core_effect *effect)
{
    struct resp_writer *out = &request->session->out;

    if ((int64_t)effect->number >= 0)
        holder_renewed(request->session, effect->lease);
    if (request->parts == request->total)
        resp_write_array(out, request->total);
    resp_write_integer(out, span_shown((int64_t)effect->number));
    if (--request->parts == 0)
        request_finish(request);
}

/* ---- those who wait ------------------------------------------------------------------------------ */

static const char *const why_words[] = {
    [WHY_GRANTED] = "granted", [WHY_RELEASED] = "released", [WHY_EXPIRED] = "expired",
    [WHY_BROKEN] = "broken",   [WHY_ENDED] = "ended",       [WHY_WAIT_OVER] = "timeout",
    [WHY_LEFT] = "left",       [WHY_FINISHED] = "finished", [WHY_DIED] = "died",
};

/* A place is over, for better or worse: >4 word name lease number, and what goes with it. */
static void push_waiter(struct waiter *waiter, const char *word, const struct core_effect *effect)
{
    struct session *session = waiter->session;
    struct resp_writer *out = &session->out;
    bool result = effect->kind == EFFECT_DONE, left = effect->kind == EFFECT_LEFT;
    bool died = left && effect->why == WHY_DIED;

    resp_write_push(out, result || died ? 5 : 4, true);
    resp_write_text(out, word);
    resp_write_blob(out, effect->name.bytes, effect->name.size);
    resp_write_blob(out, effect->lease.bytes, effect->lease.size);
    if (left)
        resp_write_text(out, why_words[effect->why]);
    if (!left || died)
        resp_write_integer(out, (int64_t)effect->number);
    if (result)
        resp_write_blob(out, effect->result.bytes, effect->result.size);
    session_dirty(session);
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
        resp_write_error(out, "ENDED this lease is over: take another");
}

static void waiter_told(struct sessions *sessions, const struct core_effect *effect)
{
    struct waiter *waiter = waiter_find(sessions, effect->ticket);
    struct session *session;
    struct request *request;

    if (!waiter)
        return;
    session = waiter->session;
    request = waiter->request;
    /* A grant under another leader: the lease's time may have begun long before it. The client is told to come anew. */
    if (request && sessions->role != REPLICA_LEADING && !SWITCHED(SWITCH_BLOCKED_NEXT_TERM))
        return;
    if (effect->kind == EFFECT_GRANTED)
        holder_set(session, effect->number);
    if (!request) {
        push_waiter(waiter,
                    effect->kind == EFFECT_GRANTED ? "granted"
                    : effect->kind == EFFECT_DONE  ? "done"
                                                   : "left",
                    effect);
        waiter_remove(waiter);
        return;
    }
    if (effect->kind == EFFECT_GRANTED)
        write_outcome(session, request, "RUN", effect->number, NULL);
    else if (effect->kind == EFFECT_DONE)
        write_outcome(session, request, "DONE", effect->number, &effect->result);
    else
        write_left(session, request, effect);
    waiter->request = NULL;
    waiter_remove(waiter);
    request_finish(request);
}

/* ---- those who watch ----------------------------------------------------------------------------- */

/* >5 changed name why token owner; in RESP2 *3 message name "why token owner". */
static void tell_observer(struct observer *observer, void *context)
{
    const struct core_effect *effect = context;
    struct session *session = observer->session;
    struct resp_writer *out = &session->out;
    const char *why = why_words[effect->why];

    if (observer->subscribed) {
        char text[HF_OWNER_MAX + 64];
        int size = snprintf(text, sizeof text, "%s %" PRIu64 " %.*s", why, effect->number,
                            (int)effect->owner.size, effect->owner.bytes);

        resp_write_push(out, 3, session->resp3);
        resp_write_text(out, "message");
        resp_write_blob(out, effect->name.bytes, effect->name.size);
        resp_write_blob(out, text, (size_t)size);
    } else {
        resp_write_push(out, 5, true);
        resp_write_text(out, "changed");
        resp_write_blob(out, effect->name.bytes, effect->name.size);
        resp_write_text(out, why);
        resp_write_integer(out, (int64_t)effect->number);
        resp_write_blob(out, effect->owner.bytes, effect->owner.size);
    }
    session_dirty(session);
}

/* ---- effects ------------------------------------------------------------------------------------- */

void sessions_effect(struct sessions *sessions, void *about, const struct core_effect *effect)
{
    struct request *request = about;

    switch (effect->kind) {
    case EFFECT_ANSWER:
        if (request && request->total > 0)
            reply_part(request, effect);
        else if (request)
            answer(request, effect);
        break;
    case EFFECT_READ:
        if (request) {
            request->read(request->session, request->words);
            request_finish(request);
        }
        break;
    case EFFECT_GRANTED:
    case EFFECT_LEFT:
    case EFFECT_DONE:
        waiter_told(sessions, effect);
        break;
    case EFFECT_CHANGED:
        if (sessions->holders.count && effect->why != WHY_GRANTED)
            holder_ended(sessions, effect, why_words[effect->why]);
        if (sessions->observers.count && !effect->once)
            observers_each(sessions, effect->name, tell_observer, (void *)effect);
        break;
    }
}
