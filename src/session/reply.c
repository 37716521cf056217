/* reply.c: effects of the log become answers to those who asked, and pushes to those who wait or watch. Whom they concern is decided here;
 * the words are the protocol's. */
#include "base/switches.h"
#include "session/inside.h"

#include <stdio.h>

static void write_reply(struct request *request, const struct core_effect *effect)
{
    request->session->protocol->reply(request, effect);
}

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

static void count_grant(struct sessions *sessions, int64_t began_us)
{
    histogram_add(&sessions->grants, sessions->now_us - began_us);
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
        if (!session_is_closed(session) && !(before && SWITCHED(SWITCH_PUSH_LOST)))
            waiter_add(session, effect->ticket, effect->attachment, NULL)->began_us =
                request->began_us;
        write_reply(request, effect);
        request_finish(request);
    } else {
        struct waiter *waiter = waiter_add(session, effect->ticket, effect->attachment, request);

        waiter->began_us = request->began_us;
        if (session_is_closed(session))
            waiter_leave(waiter);
        else
            session->blocked = waiter;
    }
}

/* Counted, and told to whoever keeps book, like a right that is missing. */
static void tell_over_quota(const struct request *request, const struct core_effect *effect)
{
    struct session *session = request->session;
    struct sessions *sessions = session->sessions;
    const struct denied denied = {.command = request->once ? "ONCE" : "ACQUIRE",
                                  .quota = quota_word(effect->answer),
                                  .name = effect->name};

    if (!denied.quota)
        return;
    sessions->over_quota_commands++;
    if (sessions->host->denied && !session_is_closed(session))
        sessions->host->denied(session, &denied);
}

static void answer(struct request *request, const struct core_effect *effect)
{
    char text[ERROR_TEXT_MAX];

    if (effect->answer == ANSWER_QUEUED) {
        reply_queued(request, effect);
        return;
    }
    if (effect->answer == ANSWER_TOKEN) {
        if (!request->once)
            count_grant(request->session->sessions, request->began_us);
        holder_set(request->session, effect->number);
    }
    tell_over_quota(request, effect);
    write_reply(request, effect);
    request_over(request, refusal_of(effect, text, sizeof text));
}

/* RENEW has an answer for each of its leases. */
static void reply_part(struct request *request, const struct core_effect *effect)
{
    if ((int64_t)effect->number >= 0)
        holder_renewed(request->session, effect->lease);
    write_reply(request, effect);
    if (--request->parts == 0)
        request_finish(request);
}

/* ---- those who wait ------------------------------------------------------------------------------ */

static void push(struct session *session, enum push what, const struct core_effect *effect)
{
    session->protocol->push(session, what, effect);
    session_dirty(session);
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
    if (effect->kind == EFFECT_GRANTED) {
        if (!effect->once)
            count_grant(sessions, waiter->began_us);
        holder_set(session, effect->number);
    }
    if (!request) {
        push(session, PUSH_PLACE, effect);
        waiter_remove(waiter);
        return;
    }
    write_reply(request, effect);
    waiter->request = NULL;
    waiter_remove(waiter);
    request_finish(request);
}

/* ---- those who watch, and those who hold ------------------------------------------------------------ */

static void tell_observer(struct observer *observer, void *context)
{
    push(observer->session, observer->subscribed ? PUSH_MESSAGE : PUSH_CHANGED, context);
}

void session_lost(struct session *session, const struct core_effect *effect)
{
    push(session, PUSH_LOST, effect);
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
            holder_ended(sessions, effect);
        if (sessions->observers.count && !effect->once)
            observers_each(sessions, effect->name, tell_observer, (void *)effect);
        break;
    }
}
