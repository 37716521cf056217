#include "net/exchange.h"
#include "base/clock.h"

#include <limits.h>
#include <poll.h>
#include <stdatomic.h>

struct turn { /* of one call, while its link is pumped */
    struct exchange *exchange;
    int index;
};

static bool is_open(const struct call *call)
{
    return call->result == CALL_OPEN;
}

static void fail(struct call *call, int result)
{
    call->over = true;
    call->result = call->sent ? HF_EUNKNOWN : result; /* whatever it was: it may have been done */
}

static bool take_reply(void *context, const struct resp_node *value)
{
    struct turn *turn = context;
    struct call *call = &turn->exchange->calls[turn->index];
    struct link *link = call->link;

    if (value->type == RESP_PUSH)
        return true;
    if (link->owed > 0) { /* to somebody who has gone */
        if (value->type == RESP_ERROR)
            link->marks = 0;
        if (--link->owed == 0)
            link->lags_since_ms = 0;
        return true;
    }
    if (!call->sent) /* an answer to nothing: the link's next user must not take it for his own */
        return true;
    turn->exchange->on_reply(turn->exchange->context, turn->index, call->answered++, value);
    if (call->answered == call->replies) {
        call->result = HF_OK;
        link->lags_since_ms = 0;
    }
    return is_open(call);
}

static void send_request(struct call *call)
{
    int result;

    if (call->sent || call->link->state != LINK_READY)
        return;
    result = link_send(call->link, call->request, call->size, &call->err);
    call->sent = result != HF_EUNREACH; /* then not a byte of it went out */
    if (result != HF_OK)
        fail(call, result);
}

static void pump(struct exchange *exchange, int index)
{
    struct call *call = &exchange->calls[index];
    struct turn turn = {exchange, index};
    int result = link_pump(call->link, take_reply, &turn, &call->err);

    if (result != HF_OK && is_open(call))
        fail(call, result);
    else if (result != HF_OK)
        call->over = true;
    else if (is_open(call))
        send_request(call);
}

static bool is_done(struct exchange *exchange)
{
    bool open = false;

    for (int i = 0; i < exchange->count; i++)
        open = open || is_open(&exchange->calls[i]);
    return !open || (exchange->enough && exchange->enough(exchange->context));
}

static int poll_span(int64_t span_ms)
{
    if (span_ms < 0)
        return 0;
    return span_ms > INT_MAX ? INT_MAX : (int)span_ms;
}

/* False when the time is up. */
static bool wait_for_some(struct exchange *exchange)
{
    struct pollfd fds[EXCHANGE_CALLS_MAX];
    int64_t now_ms = clock_boot_ms(), until_ms = exchange->deadline_ms;
    int count = 0, indexes[EXCHANGE_CALLS_MAX];

    if (now_ms >= until_ms || (exchange->interrupted && atomic_load(exchange->interrupted)))
        return false;
    if (exchange->interrupted && until_ms - now_ms > EXCHANGE_LOOK_MS)
        until_ms = now_ms + EXCHANGE_LOOK_MS;
    for (int i = 0; i < exchange->count; i++) {
        struct call *call = &exchange->calls[i];

        if (!is_open(call))
            continue;
        fds[count] =
            (struct pollfd){.fd = stream_fd(call->link->stream), .events = link_events(call->link)};
        indexes[count++] = i;
        if (link_look_ms(call->link) < until_ms)
            until_ms = link_look_ms(call->link);
    }
    if (poll(fds, (nfds_t)count, poll_span(until_ms - now_ms)) < 0)
        return true; /* the clock is looked at again */
    now_ms = clock_boot_ms();
    for (int i = 0; i < count; i++)
        if (fds[i].revents || now_ms >= link_look_ms(exchange->calls[indexes[i]].link))
            pump(exchange, indexes[i]);
    return true;
}

/* The time is up, or enough have answered. */
static void leave(struct call *call, int64_t now_ms)
{
    struct link *link = call->link;

    if (!is_open(call))
        return;
    if (!call->sent) {
        call->result = error_set(&call->err, HF_EUNREACH, "the server did not answer in time");
        if (link->lags_since_ms == 0)
            link->lags_since_ms = now_ms;
        return;
    }
    call->result = error_set(&call->err, HF_EUNKNOWN, "the server did not answer in time");
    link->owed += call->replies - call->answered;
    if (link->lags_since_ms == 0)
        link->lags_since_ms = now_ms;
    if (link->owed > LINK_OWED_MAX)
        call->over = true;
}

bool exchange_run(struct exchange *exchange)
{
    bool done;

    INVARIANT(exchange->count <= EXCHANGE_CALLS_MAX);
    for (int i = 0; i < exchange->count; i++) {
        struct call *call = &exchange->calls[i];

        call->answered = 0;
        call->sent = call->over = false;
        if (!call->link)
            continue;
        call->result = CALL_OPEN;
        if (call->link->state == LINK_READY && call->link->owed == 0)
            send_request(call); /* nothing to read yet */
        else
            pump(exchange, i);
    }
    while (!(done = is_done(exchange)) && wait_for_some(exchange))
        ;
    for (int i = 0; i < exchange->count; i++)
        if (exchange->calls[i].link)
            leave(&exchange->calls[i], clock_boot_ms());
    return done;
}
