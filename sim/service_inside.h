/* service_inside.h: what the files of the service share. */
#ifndef SIM_SERVICE_INSIDE_H
#define SIM_SERVICE_INSIDE_H

#include "sim/sim.h"

#define LOCKS_COUNT 1000 /* of a page: all names there are */
#define ASKED_MAX \
    16 /* requests of one connection that are not answered: a client that has lost its lock asks for the next one */

/* What is under way, in the order in which it is answered. */
struct asked {
    enum ask ask;
    bool once;
    uint64_t number, lease;
};

struct connection {
    struct session session;
    int client;
    uint64_t number;
    struct list ready, dirty;
    struct asked asked[ASKED_MAX];
    uint32_t asked_count;
    struct asked queued; /* the last ACQUIRE … PUSH that has a place */
};

static inline struct connection *connection_of(struct session *session)
{
    return LIST_ENTRY(session, struct connection, session);
}

/* ---- service_words.c */

/* The request, as RESP. */
void service_write(struct resp_writer *words, const struct request *request);

/* ---- service_answers.c */

/* Tells the client what its session has written. */
void service_read(struct service *service, struct connection *connection);

#endif
