/* protocol.h: how the client of a session is spoken to. What is under way, who waits at which place and who leads is the same whatever it
 * speaks: that is the rest of this room. RESP is resp_protocol.c. */
#ifndef SESSION_PROTOCOL_H
#define SESSION_PROTOCOL_H

#include "session/commands.h"

/* What a session is told without having asked just now. */
enum push {
    PUSH_PLACE,   /* its place in a queue is over: granted, with a result, or left */
    PUSH_CHANGED, /* a name that it observes has another holder, or none */
    PUSH_MESSAGE, /* the same, for who has subscribed */
    PUSH_LOST     /* a hold of its own has ended */
};

struct protocol {
    const char *name;
    /* Begins as many commands as may begin, of the bytes that have come. As session_go_on. */
    int (*feed)(struct session *session, struct error_text *err);
    /* What became of a command: an answer of the table, or the end of the place that it was blocked at. One with several parts (RENEW) is
     * answered part by part. */
    void (*reply)(struct request *request, const struct core_effect *effect);
    /* Why nothing became of it: a word in capitals, and then a sentence. */
    void (*fail)(struct session *session, const char *text);
    /* The same for somebody who has no session (yet), into `out`. */
    void (*refuse)(struct resp_writer *out, const char *text);
    void (*push)(struct session *session, enum push push, const struct core_effect *effect);
    /* Nobody is there any more: frees what is the protocol's. */
    void (*closed)(struct session *session);
};

/* Which limit of its user a command would exceed: as in the users file. NULL: it is no such answer. */
const char *quota_word(enum core_answer answer);
/* For whatever the table says no to; NULL: it did not. ret_text: room for it. */
const char *refusal_of(const struct core_effect *effect, char *ret_text, size_t size);
/* Why something has ended or changed. */
const char *why_word(const struct core_effect *effect);

#endif
