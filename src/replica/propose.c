/* propose.c: commands on their way into the log: the batch, and the entries in flight with those who wait for them.
 *
 * A request is answered by the entry at the index and term at which it was proposed [P4]: an index alone may be another leader's. */
#include "base/crc32c.h"
#include "replica/inside.h"

#include <stdlib.h>

#define REQUESTS_MIN 64u
#define FLIGHTS_MIN 8u

/* ---- the batch -------------------------------------------------------------------------------- */

int replica_submit(struct replica *replica, const struct core_command *command, void *request,
                   int64_t now_us)
{
    struct batch *batch = &replica->batch;
    uint32_t number;

    if (replica->role != REPLICA_LEADING)
        return HF_EUNREACH;
    if (schedule_batch_full(replica))
        return HF_EBUSY;
    number = core_pack(&batch->packer, command);
    if (number == CORE_NOT_PACKED)
        return HF_EINVAL;
    if (number == 0)
        replica->schedule.batch_us = now_us;
    if (number >= batch->capacity) {
        batch->capacity = batch->capacity ? batch->capacity * 2 : REQUESTS_MIN;
        batch->requests =
            replica_realloc(batch->requests, batch->capacity * sizeof *batch->requests);
    }
    batch->requests[number] = request;
    return HF_OK;
}

/* ---- in flight -------------------------------------------------------------------------------- */

static struct flight *flight_at(const struct replica *replica, uint32_t i)
{
    return &replica->flights.at[replica->flights.first + i];
}

uint32_t flights_uncommitted(const struct replica *replica)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < replica->flights.count; i++)
        count += !flight_at(replica, i)->committed;
    return count;
}

struct flight *flight_front(const struct replica *replica)
{
    return replica->flights.count > 0 ? flight_at(replica, 0) : NULL;
}

void flight_over(struct replica *replica)
{
    struct flights *flights = &replica->flights;

    flights->elapsed_ms -= flight_at(replica, 0)->elapsed_ms;
    free(flight_at(replica, 0)->requests);
    flights->first++;
    if (--flights->count == 0)
        flights->first = 0;
}

/* The batch takes off, and leaves an empty one behind. */
static void add_flight(struct replica *replica, uint64_t index, uint32_t elapsed_ms, bool new_term)
{
    struct flights *flights = &replica->flights;
    struct batch *batch = &replica->batch;

    if (flights->first > 0 && flights->first + flights->count == flights->capacity) {
        memmove(flights->at, flights->at + flights->first, flights->count * sizeof *flights->at);
        flights->first = 0;
    }
    if (flights->count == flights->capacity) {
        flights->capacity = flights->capacity ? 2 * flights->capacity : FLIGHTS_MIN;
        flights->at = replica_realloc(flights->at, flights->capacity * sizeof *flights->at);
    }
    flights->elapsed_ms += elapsed_ms;
    flights->at[flights->first + flights->count++] = (struct flight){.index = index,
                                                                     .term = replica->term,
                                                                     .since_us = replica->now_us,
                                                                     .elapsed_ms = elapsed_ms,
                                                                     .new_term = new_term,
                                                                     .requests = batch->requests,
                                                                     .count = batch->packer.count};
    batch->requests = NULL;
    batch->capacity = 0;
}

static void propose(struct replica *replica)
{
    struct core_packer *packer = &replica->batch.packer;
    struct raft_event event = {.type = RAFT_ON_PROPOSE, .now_us = replica->now_us};
    struct raft_entry entry = {.type = RAFT_COMMAND, .term = replica->term};
    bool new_term = replica->leading == LEAD_ELECTED;
    uint32_t elapsed_ms, count = packer->count;
    unsigned char *bytes;
    struct raft_id before;
    size_t size;

    if (new_term)
        schedule_elected(replica);
    elapsed_ms = schedule_elapsed(replica);
    core_packer_finish(packer, elapsed_ms, new_term, replica->options.id, ++replica->sequence);
    add_flight(replica, raft_last(replica->raft) + 1, elapsed_ms, new_term);
    bytes = core_packer_take(packer, &size);
    entry.size = event.size = (uint32_t)size;
    entry.sum = event.sum = crc32c(0, bytes, size);
    log_id(&replica->log, replica->log.last, &before);
    entry.chain = raft_chain(before.chain, entry.term, entry.type, entry.size, entry.sum);
    raft_step(replica->raft, &event, &replica->output);
    INVARIANT(replica->output.result == RAFT_OK && replica->output.index == replica->log.last + 1);
    log_add(&replica->log, &entry, bytes);
    replica->entries++;
    replica->commands += count;
    replica->ticks += count == 0 && !new_term;
    if (new_term)
        replica->leading = LEAD_BEGINNING;
}

void propose_due(struct replica *replica)
{
    while (leads(replica) && raft_may_propose(replica->raft) &&
           schedule_propose_us(replica) <= replica->now_us)
        propose(replica);
}

void propose_committed(struct replica *replica)
{
    for (uint32_t i = 0; i < replica->flights.count; i++) {
        struct flight *flight = flight_at(replica, i);

        if (flight->index > raft_commit(replica->raft))
            return;
        if (!flight->committed)
            schedule_committed(replica, replica->now_us - flight->since_us);
        flight->committed = true;
    }
}

/* ---- failing ---------------------------------------------------------------------------------- */

/* Nobody can submit meanwhile: it does not lead any more. */
void propose_fail(struct replica *replica)
{
    const struct replica_host *host = &replica->host;
    uint32_t count = replica->batch.packer.count;

    INVARIANT(replica->role != REPLICA_LEADING);
    while (replica->flights.count > 0) {
        const struct flight *flight = flight_front(replica);

        for (uint32_t i = 0; i < flight->count && !flight->new_term; i++)
            host->failed(host->context, flight->requests[i], REPLICA_UNKNOWN);
        flight_over(replica);
    }
    for (uint32_t i = 0; i < count; i++)
        host->failed(host->context, replica->batch.requests[i], REPLICA_NOT_LEADING);
    core_packer_clear(&replica->batch.packer);
}

void propose_free(struct replica *replica)
{
    core_packer_free(&replica->batch.packer);
    free(replica->batch.requests);
    free(replica->flights.at);
}
