/* founding.h: one CLUSTER INIT, from the questions to the answer; at the founder, and at a node that passes it on. bootstrap.h says how
 * a cluster is founded; this is who asks, decides and tells, what others say to it bootstrap.c hears. */
#ifndef SERVER_FOUNDING_H
#define SERVER_FOUNDING_H

#include <stdint.h>

struct server;

/* One at a time: whoever asks meanwhile gets the same answer. */
void founding_begin(struct server *server);
/* Says what is to be said by now, and ends when all have answered or the time is up. Nothing without a CLUSTER INIT under way. */
void founding_step(struct server *server, int64_t now_ms);
/* Answers all who asked. */
void founding_finish(struct server *server, const char *said);

#endif
