/* propose.c: commands on their way into the log: the batch, and the entries in flight with those who wait for them.
 *
 * A request is answered by the entry at the index and term at which it was proposed [P4]: an index alone may be another leader's. */
#include "base/crc32c.h"
#include "base/switches.h"
#include "replica/inside.h"

#include <stdlib.h>

#define REQUESTS_MIN 64u
#define IN_FLIGHT_MIN 8u

/* ---- the batch -------------------------------------------------------------------------------- */

int replica_submit(struct replica *replica, const struct core_command *command, void *request,
                   int64_t now_us)
{
    struct batch *batch = &replica->batch;
    struct core_command plain;
    uint32_t number;

    if (replica->role != REPLICA_LEADING)
        return HF_EUNREACH;
    if (schedule_batch_full(replica))
        return HF_EBUSY;
    if (command->flags & CORE_QUOTA && !version_has_users(replica)) {
        plain = *command;
        plain.flags &= ~(uint32_t)CORE_QUOTA;
        command = &plain;
    }
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

static struct proposal *in_flight_at(const struct replica *replica, uint32_t i)
{
    return &replica->in_flight.at[replica->in_flight.first + i];
}

uint32_t in_flight_uncommitted(const struct replica *replica)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < replica->in_flight.count; i++)
        count += !in_flight_at(replica, i)->committed;
    return count;
}

struct proposal *in_flight_front(const struct replica *replica)
{
    return replica->in_flight.count > 0 ? in_flight_at(replica, 0) : NULL;
}

void in_flight_pop(struct replica *replica)
{
    struct in_flight *in_flight = &replica->in_flight;

    in_flight->elapsed_ms -= in_flight_at(replica, 0)->elapsed_ms;
    free(in_flight_at(replica, 0)->requests);
    in_flight->first++;
    if (--in_flight->count == 0)
        in_flight->first = 0;
}

/* The batch takes off, and leaves an empty one behind. */
static void add_in_flight(struct replica *replica, uint64_t index, uint32_t elapsed_ms,
                          bool new_term)
{
    struct in_flight *in_flight = &replica->in_flight;
    struct batch *batch = &replica->batch;

    if (in_flight->first > 0 && in_flight->first + in_flight->count == in_flight->capacity) {
        memmove(in_flight->at, in_flight->at + in_flight->first,
                in_flight->count * sizeof *in_flight->at);
        in_flight->first = 0;
    }
    if (in_flight->count == in_flight->capacity) {
        in_flight->capacity = in_flight->capacity ? 2 * in_flight->capacity : IN_FLIGHT_MIN;
        in_flight->at = replica_realloc(in_flight->at, in_flight->capacity * sizeof *in_flight->at);
    }
    in_flight->elapsed_ms += elapsed_ms;
    in_flight->at[in_flight->first + in_flight->count++] =
        (struct proposal){.index = index,
                          .term = replica->term,
                          .since_us = replica->now_us,
                          .elapsed_ms = elapsed_ms,
                          .new_term = new_term,
                          .requests = batch->requests,
                          .count = batch->packer.count};
    batch->requests = NULL;
    batch->capacity = 0;
}

uint64_t propose_entry(struct replica *replica, enum raft_entry_type type, unsigned char *bytes,
                       size_t size)
{
    struct raft_entry entry = {.type = (uint8_t)type,
                               .term = replica->term,
                               .size = (uint32_t)size,
                               .sum = crc32c(0, bytes, size)};
    struct raft_event event = {.type = RAFT_ON_PROPOSE,
                               .now_us = replica->now_us,
                               .entry_type = entry.type,
                               .size = entry.size,
                               .sum = entry.sum};
    struct raft_id before;

    log_id(&replica->log, replica->log.last, &before);
    entry.chain = raft_chain(before.chain, entry.term, entry.type, entry.size, entry.sum);
    raft_step(replica->raft, &event, &replica->output);
    INVARIANT(replica->output.result == RAFT_OK && replica->output.index == replica->log.last + 1);
    log_add(&replica->log, &entry, bytes);
    return replica->log.last;
}

static void propose(struct replica *replica)
{
    struct core_packer *packer = &replica->batch.packer;
    bool new_term = replica->leading == LEAD_ELECTED;
    uint32_t elapsed_ms, count;
    unsigned char *bytes;
    size_t size;

    if (new_term)
        schedule_elected(replica);
    if (new_term && replica->host.elected)
        replica->host.elected(replica->host.context, packer);
    count = packer->count;
    elapsed_ms = schedule_elapsed(replica);
    core_packer_finish(packer, elapsed_ms, new_term, replica->options.id, ++replica->sequence);
    add_in_flight(replica, raft_last(replica->raft) + 1, elapsed_ms, new_term);
    bytes = core_packer_take(packer, &size);
    propose_entry(replica, RAFT_COMMAND, bytes, size);
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
    for (uint32_t i = 0; i < replica->in_flight.count; i++) {
        struct proposal *proposal = in_flight_at(replica, i);

        if (proposal->index > raft_commit(replica->raft))
            return;
        if (!proposal->committed) {
            schedule_committed(replica, replica->now_us - proposal->since_us);
            histogram_add(&replica->commits, replica->now_us - proposal->since_us);
        }
        proposal->committed = true;
    }
}

/* ---- failing ---------------------------------------------------------------------------------- */

/* Nobody can submit meanwhile: it does not lead any more. */
void propose_fail(struct replica *replica)
{
    const struct replica_host *host = &replica->host;
    uint32_t count = replica->batch.packer.count;

    INVARIANT(replica->role != REPLICA_LEADING);
    while (replica->in_flight.count > 0) {
        const struct proposal *proposal = in_flight_front(replica);

        for (uint32_t i = 0; i < proposal->count && !proposal->new_term; i++)
            host->failed(host->context, proposal->requests[i],
                         SWITCHED(SWITCH_UNKNOWN_AS_REFUSED) ? REPLICA_NOT_LEADING
                                                             : REPLICA_UNKNOWN);
        in_flight_pop(replica);
    }
    for (uint32_t i = 0; i < count; i++)
        host->failed(host->context, replica->batch.requests[i], REPLICA_NOT_LEADING);
    core_packer_clear(&replica->batch.packer);
}

void propose_free(struct replica *replica)
{
    core_packer_free(&replica->batch.packer);
    free(replica->batch.requests);
    free(replica->in_flight.at);
}
