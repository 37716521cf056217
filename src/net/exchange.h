/* exchange.h: the same moment for several servers: requests out, replies in, until enough have
 * answered or the time is up. With one server it is a plain question and answer.
 *
 * What came of a call: HF_OK, all its replies came; HF_EUNREACH, nothing of it was sent;
 * HF_EUNKNOWN, it was sent and the replies (or the rest of them) did not come in time. In the last
 * case the link owes them and stays usable: a later request on it is executed after this one, which
 * is what a release behind an unanswered acquisition needs. */
#ifndef NET_EXCHANGE_H
#define NET_EXCHANGE_H

#include "net/link.h"

#define EXCHANGE_CALLS_MAX 16
#define EXCHANGE_LOOK_MS 50
#define CALL_OPEN 1 /* result, while it may still be answered */

struct call {
    struct link *link;   /* NULL: there is none; `result` and `err` say why */
    const char *request; /* RESP, so many commands as replies are expected */
    size_t size;
    int replies;

    int answered;
    bool sent; /* a byte of it, at least */
    bool over; /* the link is of no use any more */
    int result;
    struct error_text err;
};

struct exchange {
    struct call *calls;
    int count;
    int64_t deadline_ms;
    /* NULL, or what makes the time be up within EXCHANGE_LOOK_MS. */
    const _Atomic bool *interrupted;
    void *context;
    /* Each reply as it comes. The value lives during the call. */
    void (*on_reply)(void *context, int call, int reply, const struct resp_node *value);
    /* NULL: until all have answered. Asked after each reply and each failure. */
    bool (*enough)(void *context);
};

/* False: it ended because the time was up. */
bool exchange_run(struct exchange *exchange);

#endif
