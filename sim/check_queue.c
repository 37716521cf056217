/* check_queue.c: whoever is known to have a place gets the name before all who asked after that. A greater token means a later grant. */
#include "sim/check.h"

void queue_told(struct check_queue *queue, int client, uint64_t lease, uint64_t ticket,
                int64_t now_us)
{
    struct place *place = &queue->places[client];

    if (place->lease == lease && place->ticket == ticket)
        return;
    *place = (struct place){.lease = lease, .ticket = ticket, .told_us = now_us};
}

void queue_left(struct check_queue *queue, int client)
{
    queue->places[client].lease = 0;
}

void queue_granted(struct check_queue *queue, struct verdict *verdict, int client, int name,
                   uint64_t lease, uint64_t token, int64_t asked_us)
{
    const struct place *place = &queue->places[client];
    uint32_t count = queue->count[name];

    if (place->lease == lease)
        for (uint32_t i = count > CHECK_GRANTS ? count - CHECK_GRANTS : 0; i < count; i++) {
            const struct grant *grant = &queue->grants[name][i % CHECK_GRANTS];

            if (grant->token < token && grant->asked_us > place->told_us)
                verdict_wrong(verdict,
                              "not in order: client %d had place %llu for name %d, and gets token "
                              "%llu after somebody who asked %lld us later got %llu",
                              client, (unsigned long long)place->ticket, name,
                              (unsigned long long)token,
                              (long long)(grant->asked_us - place->told_us),
                              (unsigned long long)grant->token);
        }
    queue->grants[name][count % CHECK_GRANTS] = (struct grant){token, asked_us};
    queue->count[name]++;
    queue_left(queue, client);
}
