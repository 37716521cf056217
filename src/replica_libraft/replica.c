/* replica.c: who leads, what is proposed when, and closing. */
#include "replica_libraft/replica.h"
#include "base/clock.h"
#include "replica_libraft/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_MIN 64u
/* An entry that takes longer to apply than it takes to let others run. With less, somebody who is alone in waiting would wait for
 * those who use the CPU for something else. */
#define YIELD_BYTES ((size_t)4096)

void *replica_realloc(void *memory, size_t size)
{
    void *larger = realloc(memory, size);

    INVARIANT(larger != NULL);
    return larger;
}

void replica_note(struct replica *replica, int level, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    replica->host.note(replica->host.context, level, text);
}

/* ---- who leads -------------------------------------------------------------------------------- */

static void fail_flight(struct replica *replica, struct flight *flight,
                        enum replica_failure failure)
{
    const struct replica_host *host = &replica->host;
    uint32_t count = flight->active && !flight->first ? flight->count : 0;

    flight->active = false;
    for (uint32_t i = 0; i < count; i++)
        host->failed(host->context, flight->requests[i], failure);
}

/* Nobody can submit meanwhile: it does not lead any more. */
static void fail_under_way(struct replica *replica, enum replica_failure of_flight)
{
    const struct replica_host *host = &replica->host;
    uint32_t count = replica->batch.packer.count;

    INVARIANT(replica->leading == LEAD_IDLE);
    fail_flight(replica, &replica->arrived, REPLICA_UNKNOWN);
    fail_flight(replica, &replica->flight, of_flight);
    for (uint32_t i = 0; i < count; i++)
        host->failed(host->context, replica->batch.requests[i], REPLICA_NOT_LEADING);
    core_packer_clear(&replica->batch.packer);
    replica->gathering = false;
}

static void step_down(struct replica *replica, enum replica_failure of_flight)
{
    bool served = replica->role == REPLICA_LEADING;

    apply_put_off(replica); /* what has arrived is answered, whoever leads now */
    replica->leading = LEAD_IDLE;
    replica->role = REPLICA_FOLLOWING;
    fail_under_way(replica, of_flight);
    members_fail(replica, false);
    if (served)
        replica->host.role(replica->host.context, REPLICA_FOLLOWING);
}

void replica_observe(struct replica *replica)
{
    bool leads;

    if (!replica->opened || replica->closing || gate_shut(replica))
        return;
    leads = raft_state(&replica->raft) == RAFT_LEADER;
    if (replica->leading != LEAD_IDLE &&
        (!leads || raft_current_term(&replica->raft) != replica->term))
        step_down(replica, REPLICA_UNKNOWN);
    if (leads && replica->leading == LEAD_IDLE) {
        apply_put_off(replica);
        replica->leading = LEAD_BEGINNING;
        replica->term = raft_current_term(&replica->raft);
    }
    members_observe(replica);
}

void replica_landed(struct replica *replica)
{
    replica->arrived.active = false;
    if (replica->leading != LEAD_BEGINNING || raft_state(&replica->raft) != RAFT_LEADER)
        return;
    replica->leading = LEAD_SERVING;
    replica->role = REPLICA_LEADING;
    replica->host.role(replica->host.context, REPLICA_LEADING);
}

/* ---- proposing -------------------------------------------------------------------------------- */

/* What is above the maximum is forgotten, or the entries to come would bring it, too fast for the
 * leases that are given meanwhile. What is below a millisecond is left for the next. */
static uint32_t count_elapsed(struct replica *replica, int64_t now)
{
    int64_t elapsed_ms = (now - replica->counted_us) / 1000;

    if (elapsed_ms <= 0)
        return 0;
    if (elapsed_ms > CORE_ELAPSED_MAX_MS) {
        replica->counted_us = now;
        return CORE_ELAPSED_MAX_MS;
    }
    replica->counted_us += elapsed_ms * 1000;
    return (uint32_t)elapsed_ms;
}

/* libraft refuses while it hands its leadership over, too: then nothing has happened, and it is asked
 * again, for it may think better of it. Any other refusal leaves its log in parts. */
static void refused(struct replica *replica, int result)
{
    if (result == RAFT_NOTLEADER)
        step_down(replica, REPLICA_NOT_LEADING);
    else
        gate_trouble(replica, "the log cannot be written: %s", raft_strerror(result));
}

/* The batch takes off, and leaves an empty one behind. */
static void take_off(struct replica *replica, bool first)
{
    struct flight *flight = &replica->flight;
    struct batch *batch = &replica->batch;
    void **requests = flight->requests;
    uint32_t capacity = flight->capacity;

    flight->active = true;
    flight->overdue = false;
    flight->first = first;
    flight->sequence = replica->sequence;
    flight->requests = batch->requests;
    flight->count = batch->packer.count;
    flight->capacity = batch->capacity;
    batch->requests = requests;
    batch->capacity = capacity;
    replica->gathering = false;
}

static void propose(struct replica *replica, int64_t now, bool first)
{
    struct core_packer *packer = &replica->batch.packer;
    struct raft_buffer buffer;
    int result;

    if (first)
        replica->counted_us = now;
    core_packer_finish(packer, count_elapsed(replica, now), first, replica->origin,
                       ++replica->sequence);
    take_off(replica, first);
    replica->flight.since_us = now;
    buffer.base = core_packer_take(packer, &buffer.len);
    result = raft_apply(&replica->raft, &replica->proposal, &buffer, 1, NULL);
    if (result != 0) { /* not the gate's word, so libraft has not taken the buffer */
        raft_free(buffer.base);
        refused(replica, result);
        return;
    }
    replica->status.entries++;
    replica->status.commands += first ? 0 : replica->flight.count;
    replica->status.ticks += replica->flight.count == 0 && !first;
}

/* The table is new, as far as this node knows: with the entry goes what its tokens begin above. */
static uint64_t first_token(struct replica *replica)
{
    const struct replica_host *host = &replica->host;
    uint64_t token = host->wall_us ? clock_first_token(host->wall_us(host->context)) : 0;

    if (host->wall_us && token == 0)
        replica_note(
            replica, 2,
            "the wall clock is obviously wrong, so the tokens of this new cluster begin at 1: if "
            "a guard has seen tokens of another, raise them with 'holdfast floor'");
    return token;
}

static void propose_first(struct replica *replica, int64_t now)
{
    unsigned char id[16];
    struct core_command identity = {.op = CORE_IDENTITY, .result = {(const char *)id, sizeof id}};
    struct core_command member = {.op = CORE_MEMBER,
                                  .token = replica->id,
                                  .result = {replica->about, strlen(replica->about)}};
    struct core_counts counts;

    core_count(replica->table, &counts);
    if (!counts.identified) {
        identity.token = first_token(replica);
        replica->host.random(replica->host.context, id, sizeof id);
        core_pack(&replica->batch.packer, &identity);
    }
    if (member.result.size > 0)
        core_pack(&replica->batch.packer, &member);
    propose(replica, now, true);
}

static bool is_full(const struct replica *replica)
{
    const struct core_packer *packer = &replica->batch.packer;

    return packer->count >= REPLICA_BATCH_MAX_COUNT ||
           core_packed_size(packer) >= REPLICA_BATCH_MAX_BYTES;
}

/* Half of what is expected, while the other half is in flight. An entry costs a cluster more, on each of its nodes: there it
 * is worth waiting for more, if there are many. */
static bool is_enough(const struct replica *replica, uint32_t expected)
{
    uint64_t count = replica->batch.packer.count;

    if (count >= REPLICA_ENOUGH)
        return true;
    if (replica->raft.configuration.n > 1 && expected >= REPLICA_MANY)
        return 4 * count >= 3 * (uint64_t)expected;
    return 2 * count >= expected;
}

/* How long the batch waits for more, in microseconds. */
static int64_t gather(struct replica *replica, int64_t now, uint32_t expected)
{
    int64_t left;

    if (is_enough(replica, expected) || is_full(replica))
        return 0;
    if (!replica->gathering) {
        replica->gathering = true;
        replica->gathering_us = now;
    }
    left = replica->gathering_us + REPLICA_GATHER_MAX_US - now;
    return left > 0 ? left : 0;
}

/* When the table wants to hear what time it is; -1: it does not. Nothing is in flight, so it knows
 * of all the time that was counted. */
static int64_t tick(const struct replica *replica, int64_t now)
{
    int64_t deadline_ms = core_next_deadline(replica->table);
    int64_t until_ms, left;

    if (deadline_ms < 0)
        return -1;
    until_ms = deadline_ms - core_now(replica->table);
    if (until_ms > 0 && until_ms < REPLICA_TICK_MIN_MS) /* others will end with it, a little late */
        until_ms = REPLICA_TICK_MIN_MS;
    if (until_ms > REPLICA_TICK_MAX_MS)
        until_ms = REPLICA_TICK_MAX_MS;
    left = replica->counted_us + until_ms * 1000 - now;
    return left > 0 ? left : 0;
}

/* Nothing is in flight. Returns when to come again. */
static int64_t propose_in_time(struct replica *replica, uint32_t expected)
{
    int64_t now = replica_now(replica);
    int64_t wait;

    if (replica->change.kind == CHANGE_LEADER)
        return -1; /* what has come is for another to do */
    if (replica->leading == LEAD_BEGINNING) {
        propose_first(replica, now);
        return -1;
    }
    wait = tick(replica, now);
    if (replica->batch.packer.count > 0) {
        int64_t more = gather(replica, now, expected);

        wait = wait < 0 || more < wait ? more : wait;
    }
    if (wait != 0)
        return wait;
    propose(replica, now, false);
    return -1;
}

/* The next entry takes off before the last one is applied, if it is ready to. */
static int64_t lead(struct replica *replica, uint32_t expected)
{
    bool flew = replica->flight.active;

    if (!flew && replica->batch.packer.count > 0) {
        int64_t wait = propose_in_time(replica, expected);

        if (replica->flight.active || replica->put_off.count == 0)
            return wait;
    }
    apply_put_off(replica);
    return flew || gate_shut(replica) ? -1 : propose_in_time(replica, expected);
}

int64_t replica_pump(struct replica *replica, uint32_t expected)
{
    int64_t wait = -1;
    bool slicing;

    if (replica->closing)
        return -1;
    replica->expected = expected;
    replica_observe(replica);
    if (replica->leading == LEAD_IDLE && replica->appends == 0)
        apply_next(replica);
    slicing = !gate_shut(replica) && snapshots_step(replica);
    if (!gate_shut(replica) && replica->leading != LEAD_IDLE)
        wait = lead(replica, expected);
    if (gate_shut(replica)) {
        replica_stop(replica);
        return -1;
    }
    return slicing || replica->put_off.count > 0 ? 0 : late_wait(replica, wait);
}

bool replica_flying(const struct replica *replica)
{
    return replica->flight.active;
}

bool replica_arrived(const struct replica *replica)
{
    return replica->arrived.active;
}

bool replica_yields(const struct replica *replica)
{
    const struct put_off *put_off = &replica->put_off;

    return replica->leading == LEAD_IDLE && put_off->count > 0 &&
           put_off->entries[put_off->first].buffer.len >= YIELD_BYTES;
}

bool replica_has_enough(const struct replica *replica)
{
    uint64_t count = replica->batch.packer.count;

    return !replica->flight.active && replica->raft.configuration.n > 1 &&
           count >= REPLICA_ENOUGH && 2 * count >= replica->expected;
}

int replica_submit(struct replica *replica, const struct core_command *command, void *request)
{
    struct batch *batch = &replica->batch;
    uint32_t number;

    if (replica->role != REPLICA_LEADING || replica->closing)
        return HF_EUNREACH;
    if (is_full(replica))
        return HF_EBUSY;
    number = core_pack(&batch->packer, command);
    if (number == CORE_NOT_PACKED)
        return HF_EINVAL;
    if (number >= batch->capacity) {
        batch->capacity = batch->capacity ? batch->capacity * 2 : REQUESTS_MIN;
        batch->requests =
            replica_realloc(batch->requests, batch->capacity * sizeof *batch->requests);
    }
    batch->requests[number] = request;
    return HF_OK;
}

/* ---- looking at it ---------------------------------------------------------------------------- */

const struct core *replica_table(const struct replica *replica)
{
    return replica->table;
}

uint64_t replica_leader(const struct replica *replica)
{
    struct raft *raft = (struct raft *)&replica->raft; /* which only looks, and says no const */
    const char *address;
    raft_id leader;

    if (replica->closing)
        return 0;
    raft_leader(raft, &leader, &address);
    return leader;
}

void replica_status(const struct replica *replica, struct replica_status *ret_status)
{
    struct raft *raft = (struct raft *)&replica->raft;
    const struct snapshots *snapshots = &replica->snapshots;
    struct replica_status status = replica->status;

    status.role = replica->role;
    status.id = replica->id;
    if (!replica->closing) {
        status.leader_id = replica_leader(replica);
        status.term = raft_current_term(raft);
        status.last_index = raft_last_index(raft);
        status.commit_index = raft_commit_index(raft);
        status.applied_index = raft_last_applied(raft);
    }
    status.log_bytes = snapshots->bytes;
    status.memory_bytes = replica->memory.bytes;
    status.snapshots = snapshots->taken;
    status.snapshot_bytes = snapshots->last_size;
    status.snapshots_installed = snapshots->installed;
    status.snapshotting = snapshots->state != SNAPSHOT_NONE;
    *ret_status = status;
}

/* Committed entries may wait before they are applied. */
static uint64_t table_index(const struct replica *replica)
{
    const struct put_off *put_off = &replica->put_off;

    return put_off->first < put_off->count ? put_off->entries[put_off->first].index - 1
                                           : raft_last_applied((struct raft *)&replica->raft);
}

void replica_digest(const struct replica *replica, struct replica_digest *ret_digest)
{
    *ret_digest = (struct replica_digest){.table = core_hash(replica->table)};
    if (replica->closing)
        return;
    ret_digest->index = table_index(replica);
    ret_digest->members = members_hash(replica);
    ret_digest->members_index = replica_members_version(replica);
}

/* ---- closing ---------------------------------------------------------------------------------- */

void replica_finish(struct replica *replica)
{
    void (*done)(void *) = replica->done;
    void *context = replica->done_context;

    gate_remove(replica);
    core_free(replica->table);
    core_packer_free(&replica->batch.packer);
    free(replica->batch.requests);
    free(replica->flight.requests);
    free(replica->arrived.requests);
    free(replica->put_off.entries);
    free(replica);
    if (done)
        done(context);
}

static void on_closed(struct raft *raft)
{
    struct replica *replica = raft->data;

    replica->closed = true;
    if (replica->done || replica->abandoned)
        replica_finish(replica);
}

void replica_close_raft(struct replica *replica)
{
    replica_status(replica, &replica->status);
    replica->status.leader_id = 0;
    replica->closing = true;
    raft_close(&replica->raft, on_closed);
}

void replica_stop(struct replica *replica)
{
    const struct replica_host *host = &replica->host;

    if (replica->closing)
        return;
    replica->leading = LEAD_IDLE;
    replica->role = REPLICA_STOPPED;
    fail_under_way(replica, REPLICA_UNKNOWN);
    members_fail(replica, true);
    host->stopped(host->context, replica->trouble.text);
    host->role(host->context, REPLICA_STOPPED);
    replica_close_raft(replica);
}

void replica_close(struct replica *replica, void (*done)(void *context), void *context)
{
    replica->done = done;
    replica->done_context = context;
    if (replica->closed) {
        replica_finish(replica);
    } else if (!replica->closing) {
        apply_put_off(replica);
        replica->leading = LEAD_IDLE;
        replica->role = REPLICA_FOLLOWING;
        fail_under_way(replica, REPLICA_UNKNOWN);
        members_fail(replica, true);
        replica_close_raft(replica);
    }
}
