/* store.c: what a replica asks of its disk: done later, one after the other, or not at all. */
#include "base/switches.h"
#include "sim/context.h"
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is asked for ------------------------------------------------------------------------ */

static struct store_op *op_new(enum store_op_kind kind, size_t count)
{
    struct store_op *op = calloc(1, sizeof *op + count * sizeof *op->records);

    INVARIANT(op != NULL);
    op->kind = kind;
    op->count = count;
    return op;
}

static void op_free(struct store_op *op)
{
    free(op->snapshot);
    free(op);
}

static int64_t latency_us(struct sim *sim, const struct node *node)
{
    struct chance *chance = &sim->chance;

    if (sim->healing)
        return chance_between(chance, 20, 200);
    if (sim->swarm.disk_slow_us && chance_below(chance, 128) == 0)
        return chance_between(chance, sim->swarm.disk_us, sim->swarm.disk_slow_us);
    return node->disk_slower *
           chance_between(chance, sim->swarm.disk_us / 2 + 1, sim->swarm.disk_us + 1);
}

static void begin_next(struct sim *sim, struct node *node, bool write)
{
    struct store_queue *queue = write ? &node->store.writes : &node->store.reads;

    if (queue->busy || !queue->first)
        return;
    queue->busy = true;
    sim_at(sim, sim->now_us + latency_us(sim, node), write ? EVENT_WRITE : EVENT_READ, node, 0,
           NULL);
}

static void ask(struct node_context *context, struct store_op *op, bool write)
{
    struct store *store = &context->node->store;
    struct store_queue *queue = write ? &store->writes : &store->reads;

    if (context->node->dying) {
        op_free(op);
        return;
    }
    if (queue->last)
        queue->last->next = op;
    else
        queue->first = op;
    queue->last = op;
    begin_next(context->sim, context->node, write);
}

/* What fails from now on: some operation soon, or whatever needs more room, for a while. */
static void harm(struct sim *sim, struct node *node)
{
    if (node->full_until_us) {
        bool full = sim->now_us < node->full_until_us;

        node->seen.disk_failed = node->seen.disk_failed || full;
        sim_disk_limit(node->store.disk, full ? 0 : UINT64_MAX);
        if (!full)
            node->full_until_us = 0;
    }
    if (!node->disk_bad)
        return;
    node->seen.disk_failed = true;
    if (chance_below(&sim->chance, 2))
        sim_disk_fail_at(node->store.disk, 1 + chance_below(&sim->chance, 3));
    else
        sim_disk_limit(node->store.disk, 0);
}

/* Term and vote are durable when this returns, unless the power goes meanwhile. */
static int io_store_term(void *opaque, uint64_t term, uint64_t vote, struct error_text *err)
{
    struct node_context *context = opaque;
    struct sim *sim = context->sim;
    struct node *node = context->node;
    struct recovery *recovery = &node->store.recovery;
    int result;

    if (node->dying)
        return error_set(err, HF_EIO, "the power is gone");
    harm(sim, node);
    if (!sim->healing && chance_happens(&sim->chance, sim->swarm.term_crash)) {
        node->dying = true;
        sim_disk_stop_at(node->store.disk, 1 + chance_below(&sim->chance, 4));
    }
    check_voting(&node->seen);
    result = term_store(&recovery->directory, &recovery->term, term, vote, err);
    if (node->dying)
        return error_set(err, HF_EIO, "the power is gone");
    if (result != HF_OK)
        return result;
    check_voted(&node->seen, &sim->check.verdict, node->id, term, vote);
    trace(&sim->trace, sim->now_us, TRACE_TERM, node->id, term, vote, 0);
    if (vote == node->id)
        node->candidate = term;
    else if (vote || SWITCHED(SWITCH_VOTE_NOT_DURABLE))
        faults_voted(sim, node);
    if (vote == node->id && !sim->healing &&
        chance_happens(&sim->chance, sim->swarm.crash_after_election))
        faults_crash_soon(sim, node);
    return HF_OK;
}

static void io_append(void *opaque, uint64_t number, const struct journal_record *records,
                      size_t count)
{
    struct node_context *context = opaque;
    struct store_op *op = op_new(STORE_APPEND, count);

    op->number = number;
    memcpy(op->records, records, count * sizeof *records);
    for (size_t i = 0; i < count; i++) {
        check_given(&context->node->seen, records[i].index, records[i].term, records[i].type,
                    records[i].bytes, records[i].size);
        if (records[i].type == RAFT_FIRST_OF_TERM && records[i].term == context->node->candidate)
            faults_elected(context->sim, context->node);
    }
    ask(context, op, true);
}

static void io_store_snapshot(void *opaque, const struct replica_snapshot *snapshot, bool installs,
                              bool keeps_log)
{
    struct node_context *context = opaque;
    struct store_op *op = op_new(STORE_SNAPSHOT, 0);

    op->snapshot = malloc(sizeof *op->snapshot);
    INVARIANT(op->snapshot != NULL);
    *op->snapshot = *snapshot;
    op->installs = installs;
    op->keeps_log = keeps_log;
    trace(&context->sim->trace, context->sim->now_us, TRACE_SNAPSHOT, context->node->id,
          snapshot->id.index, installs, keeps_log);
    ask(context, op, installs); /* what it replaces of the log was written before */
}

static void io_read_log(void *opaque, uint64_t to, uint64_t first, uint64_t last, size_t bytes_max)
{
    struct store_op *op = op_new(STORE_READ_LOG, 0);

    op->to = to;
    op->first = first;
    op->last = last;
    op->size = bytes_max;
    ask(opaque, op, false);
}

static void io_read_snapshot(void *opaque, uint64_t to, uint64_t index, uint64_t offset,
                             size_t size)
{
    struct store_op *op = op_new(STORE_READ_SNAPSHOT, 0);

    op->to = to;
    op->first = index;
    op->offset = offset;
    op->size = size;
    ask(opaque, op, false);
}

static void io_trim_log(void *opaque, uint64_t index)
{
    struct node_context *context = opaque;

    context->node->store.trimmed = index;
}

/* Of a log that does not go with the snapshot: nothing in it that was acknowledged is above that, or the checker complains. */
static int io_reset_log(void *opaque, struct error_text *err)
{
    struct node_context *context = opaque;

    if (context->node->dying)
        return error_set(err, HF_EIO, "the power is gone");
    return journal_reset(context->node->store.recovery.journal, err);
}

void store_io(struct replica_io *ret_io)
{
    ret_io->store_term = io_store_term;
    ret_io->append = io_append;
    ret_io->reset_log = io_reset_log;
    ret_io->read_log = io_read_log;
    ret_io->store_snapshot = io_store_snapshot;
    ret_io->read_snapshot = io_read_snapshot;
    ret_io->trim_log = io_trim_log;
}

/* ---- what gets done --------------------------------------------------------------------------- */

static void appended(struct sim *sim, struct node *node, const struct store_op *op)
{
    struct error_text err = {""};
    uint64_t first = op->records[0].index, last = op->records[op->count - 1].index;
    int result;

    check_writing(&node->seen, first);
    result = store_append(&node->store, op->records, op->count, &err);
    if (result == HF_OK) {
        trace(&sim->trace, sim->now_us, TRACE_WRITTEN, node->id, first, last, op->number);
        for (size_t i = 0; i < op->count; i++)
            check_written(&node->seen, op->records[i].index, op->records[i].term,
                          op->records[i].type, op->records[i].bytes, op->records[i].size,
                          op->records[i].commit);
    }
    replica_written(node->replica, op->number, result == HF_OK ? NULL : &err,
                    node_now_us(sim, node));
}

static void stored(struct sim *sim, struct node *node, const struct store_op *op)
{
    struct error_text err = {""};
    int result;

    if (op->installs && !op->keeps_log)
        check_reset(&node->seen);
    result = store_write_snapshot(&node->store, op, &err);
    sim->counts.snapshots += result == HF_OK && !op->installs;
    replica_snapshot_stored(node->replica, result == HF_OK ? NULL : &err, node_now_us(sim, node));
}

void store_event(struct sim *sim, struct node *node, bool write)
{
    struct store_queue *queue = write ? &node->store.writes : &node->store.reads;
    struct store_op *op = queue->first;

    INVARIANT(op != NULL && queue->busy);
    queue->busy = false;
    queue->first = op->next;
    if (!queue->first)
        queue->last = NULL;
    switch (op->kind) {
    case STORE_APPEND:
        harm(sim, node);
        appended(sim, node, op);
        break;
    case STORE_SNAPSHOT:
        harm(sim, node);
        stored(sim, node, op);
        break;
    case STORE_READ_LOG:
        store_read_log(sim, node, op);
        break;
    case STORE_READ_SNAPSHOT:
        store_read_snapshot(sim, node, op);
        break;
    }
    op_free(op);
    if (!node->seen.disk_failed && !node->dying && !node->damaged)
        store_trim(&node->store);
    begin_next(sim, node, true);
    begin_next(sim, node, false);
    node_fed(sim, node);
}

/* ---- the end of a process --------------------------------------------------------------------- */

static void drop_queue(struct store_queue *queue)
{
    while (queue->first) {
        struct store_op *op = queue->first;

        queue->first = op->next;
        op_free(op);
    }
    *queue = (struct store_queue){NULL, NULL, false};
}

/* One more, of which the replica hears no more. */
static bool finish(struct node *node, const struct store_op *op)
{
    struct error_text err;

    if (op->kind == STORE_SNAPSHOT) {
        if (op->installs && !op->keeps_log)
            check_reset(&node->seen);
        return store_write_snapshot(&node->store, op, &err) == HF_OK;
    }
    if (op->kind != STORE_APPEND)
        return true;
    check_writing(&node->seen, op->records[0].index);
    return store_append(&node->store, op->records, op->count, &err) == HF_OK;
}

void store_drop_queues(struct store *store)
{
    drop_queue(&store->writes);
    drop_queue(&store->reads);
}

/* Some writes of those that wait are done, and the next one is cut short somewhere in its middle. */
void store_crash(struct sim *sim, struct node *node, bool power)
{
    struct store *store = &node->store;
    struct store_queue *queue =
        store->reads.first && chance_below(&sim->chance, 2) ? &store->reads : &store->writes;
    uint64_t pending = 0, kept;
    const struct store_op *op;

    for (op = queue->first; op; op = op->next)
        pending++;
    kept = chance_below(&sim->chance, pending + 1);
    trace(&sim->trace, sim->now_us, TRACE_CRASHED, node->id, kept, pending, power);
    if (!node->seen.disk_failed && !sim_disk_stopped(store->disk) && store->recovery.journal) {
        for (op = queue->first; op && kept > 0; op = op->next, kept--)
            if (!finish(node, op))
                break;
        if (op && kept == 0) {
            sim_disk_stop_at(store->disk, 1 + chance_below(&sim->chance, 4));
            finish(node, op);
        }
    }
    store_drop_queues(store);
    store->trimmed = 0;
    store_close(store, power || sim_disk_stopped(store->disk));
}
