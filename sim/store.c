#include "sim/store.h"

#include "sim/context.h"
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define READ_RECORDS_MAX 4096

enum store_op_kind { STORE_APPEND = 1, STORE_IMAGE, STORE_READ_LOG, STORE_READ_IMAGE };

struct store_op {
    struct store_op *next;
    enum store_op_kind kind;
    uint64_t number, to, first, last;
    uint64_t offset;
    size_t size;
    bool installs, keeps_log;
    struct replica_image image; /* the table's bytes are the replica's */
    size_t count;
    struct journal_record records[]; /* and so are these */
};

/* ---- what is asked for ------------------------------------------------------------------------ */

static struct store_op *op_new(enum store_op_kind kind, size_t count)
{
    struct store_op *op = calloc(1, sizeof *op + count * sizeof *op->records);

    INVARIANT(op != NULL);
    op->kind = kind;
    op->count = count;
    return op;
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
        free(op);
        return;
    }
    if (queue->last)
        queue->last->next = op;
    else
        queue->first = op;
    queue->last = op;
    begin_next(context->sim, context->node, write);
}

/* Term and vote are durable when this returns, unless the power goes meanwhile. */
static int io_store_term(void *opaque, uint64_t term, uint64_t vote, struct error_text *err)
{
    struct node_context *context = opaque;
    struct sim *sim = context->sim;
    struct node *node = context->node;
    struct store *store = &node->store;

    if (node->dying)
        return error_set(err, HF_EIO, "the power is gone");
    if (node->disk_bad) {
        node->seen.disk_failed = true;
        return error_set(err, HF_EIO, "the disk fails");
    }
    if (!sim->healing && chance_happens(&sim->chance, sim->swarm.term_crash)) {
        node->dying = true;
        if (chance_below(&sim->chance, 2)) {
            store->term = term;
            store->vote = vote;
        }
        return error_set(err, HF_EIO, "the power is gone");
    }
    store->term = term;
    store->vote = vote;
    check_voted(&node->seen, &sim->check.verdict, node->id, term, vote);
    trace(&sim->trace, sim->now_us, TRACE_TERM, node->id, term, vote, 0);
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
    for (size_t i = 0; i < count; i++)
        check_given(&context->node->seen, records[i].index, records[i].term, records[i].type,
                    records[i].bytes, records[i].size);
    ask(context, op, true);
}

static void io_store_image(void *opaque, const struct replica_image *image, bool installs,
                           bool keeps_log)
{
    struct node_context *context = opaque;
    struct store_op *op = op_new(STORE_IMAGE, 0);

    op->image = *image;
    op->installs = installs;
    op->keeps_log = keeps_log;
    trace(&context->sim->trace, context->sim->now_us, TRACE_IMAGE, context->node->id,
          image->id.index, installs, keeps_log);
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

static void io_read_image(void *opaque, uint64_t to, uint64_t index, uint64_t offset, size_t size)
{
    struct store_op *op = op_new(STORE_READ_IMAGE, 0);

    op->to = to;
    op->first = index;
    op->offset = offset;
    op->size = size;
    ask(opaque, op, false);
}

/* ---- the log ---------------------------------------------------------------------------------- */

uint64_t store_last(const struct store *store)
{
    return store->count ? store->log[store->count - 1].index : 0;
}

static void drop_from(struct store *store, size_t from)
{
    while (store->count > from)
        free(store->log[--store->count].bytes);
}

static void drop_before(struct store *store, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(store->log[i].bytes);
    memmove(store->log, store->log + count, (store->count - count) * sizeof *store->log);
    store->count -= count;
}

static struct store_entry *entry_at(const struct store *store, uint64_t index)
{
    if (store->count == 0 || index < store->log[0].index || index > store_last(store))
        return NULL;
    return &store->log[index - store->log[0].index];
}

static void write_record(struct store *store, const struct journal_record *record)
{
    struct store_entry *entry = entry_at(store, record->index);

    if (entry)
        drop_from(store, (size_t)(entry - store->log));
    else if (store->count && record->index != store_last(store) + 1)
        drop_from(store, 0); /* behind a snapshot that is ahead of the log */
    if (store->count == store->capacity) {
        store->capacity = store->capacity ? 2 * store->capacity : 64;
        store->log = realloc(store->log, store->capacity * sizeof *store->log);
        INVARIANT(store->log != NULL);
    }
    entry = &store->log[store->count++];
    *entry = (struct store_entry){.index = record->index,
                                  .term = record->term,
                                  .chain = record->chain,
                                  .commit = record->commit,
                                  .type = record->type,
                                  .size = record->size,
                                  .bytes = malloc(record->size + 1)};
    INVARIANT(entry->bytes != NULL);
    if (record->size)
        memcpy(entry->bytes, record->bytes, record->size);
}

static struct journal_record record_of(const struct store_entry *entry)
{
    return (struct journal_record){.index = entry->index,
                                   .term = entry->term,
                                   .chain = entry->chain,
                                   .commit = entry->commit,
                                   .type = entry->type,
                                   .bytes = entry->bytes,
                                   .size = entry->size};
}

static void io_trim_log(void *opaque, uint64_t index)
{
    struct node_context *context = opaque;
    struct store *store = &context->node->store;

    /* Whole segments go: the rest of one stays. */
    if (!context->node->dying && store->count && index >= store->log[0].index) {
        uint64_t gone = index - store->log[0].index + 1;

        gone -= gone % 8;
        if (gone < store->count)
            drop_before(store, (size_t)gone);
    }
}

static int io_reset_log(void *opaque, struct error_text *err)
{
    struct node_context *context = opaque;

    if (context->node->dying)
        return error_set(err, HF_EIO, "the power is gone");
    drop_from(&context->node->store, 0);
    return HF_OK;
}

/* ---- what gets done --------------------------------------------------------------------------- */

static void write_image(struct store *store, const struct store_op *op)
{
    uint8_t head[REPLICA_IMAGE_HEAD_MAX];
    size_t head_size = replica_image_encode(&op->image, head);

    /* Whoever reads the one before goes on: as with a file that is open. */
    free(store->old_image);
    store->old_image = store->image;
    store->old_image_size = store->image_size;
    store->old_image_index = store->image_index;
    store->image_size = head_size + op->image.table_size;
    store->image = malloc(store->image_size);
    INVARIANT(store->image != NULL);
    memcpy(store->image, head, head_size);
    memcpy(store->image + head_size, op->image.table, op->image.table_size);
    store->image_index = op->image.id.index;
    if (op->installs && !op->keeps_log)
        drop_from(store, 0);
}

static void written(struct sim *sim, struct node *node, struct store_op *op)
{
    struct error_text failure = {"the disk fails"};
    const struct error_text *failed = node->disk_bad ? &failure : NULL;
    struct store *store = &node->store;

    if (failed)
        node->seen.disk_failed = true;
    if (op->kind == STORE_APPEND) {
        size_t count = op->count;

        if (failed)
            count = chance_below(&sim->chance, count + 1);
        for (size_t i = 0; i < count; i++)
            write_record(store, &op->records[i]);
        if (!failed)
            trace(&sim->trace, sim->now_us, TRACE_WRITTEN, node->id, op->records[0].index,
                  op->records[count - 1].index, op->number);
        if (!failed)
            check_written(&node->seen, op->records[count - 1].commit);
        replica_written(node->replica, op->number, failed, node_now_us(sim, node));
    } else {
        if (!failed)
            write_image(store, op);
        sim->counts.snapshots += !failed && !op->installs;
        replica_image_stored(node->replica, failed, node_now_us(sim, node));
    }
}

static void read_log(struct sim *sim, struct node *node, const struct store_op *op)
{
    const struct store *store = &node->store;
    static struct journal_record records[READ_RECORDS_MAX];
    size_t count = 0, bytes = 0;
    uint64_t from = op->first > 1 && entry_at(store, op->first - 1) ? op->first - 1 : op->first;

    if (entry_at(store, op->first))
        for (uint64_t i = from; i <= op->last && count < READ_RECORDS_MAX; i++) {
            const struct store_entry *entry = entry_at(store, i);

            if (!entry || (i > op->first && bytes + entry->size > op->size))
                break;
            bytes += i >= op->first ? entry->size : 0;
            records[count++] = record_of(entry);
        }
    replica_log_read(node->replica, op->to, records, count, node_now_us(sim, node));
}

static void read_image(struct sim *sim, struct node *node, const struct store_op *op)
{
    const struct store *store = &node->store;
    bool old = store->old_image && store->image_index != op->first;
    const unsigned char *image = old ? store->old_image : store->image;
    size_t total = old ? store->old_image_size : store->image_size, size;
    bool there = image && op->offset <= total &&
                 op->first == (old ? store->old_image_index : store->image_index);

    size = there ? total - (size_t)op->offset : 0;
    if (size > op->size)
        size = op->size;
    replica_image_read(node->replica, op->to, op->first, op->offset,
                       there ? image + op->offset : NULL, size, there ? total : 0,
                       node_now_us(sim, node));
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
    if (op->kind == STORE_READ_LOG)
        read_log(sim, node, op);
    else if (op->kind == STORE_READ_IMAGE)
        read_image(sim, node, op);
    else
        written(sim, node, op);
    free(op);
    begin_next(sim, node, true);
    begin_next(sim, node, false);
    node_fed(sim, node);
}

static void drop_queue(struct store_queue *queue)
{
    while (queue->first) {
        struct store_op *op = queue->first;

        queue->first = op->next;
        free(op);
    }
    *queue = (struct store_queue){NULL, NULL, false};
}

void store_crash(struct sim *sim, struct node *node)
{
    struct store *store = &node->store;
    uint64_t pending = 0, kept;

    for (const struct store_op *op = store->writes.first; op; op = op->next)
        pending++;
    kept = chance_below(&sim->chance, pending + 1);
    if (node->seen.disk_failed) /* nothing gets behind a write that failed */
        drop_queue(&store->writes);
    trace(&sim->trace, sim->now_us, TRACE_CRASHED, node->id, kept, pending, 0);
    for (const struct store_op *op = store->writes.first; op; op = op->next, kept--) {
        size_t count = op->count;

        if (kept == 0) /* this one was cut short */
            count = chance_below(&sim->chance, count + 1);
        for (size_t i = 0; i < count; i++)
            write_record(store, &op->records[i]);
        if (op->kind == STORE_IMAGE && kept)
            write_image(store, op);
        if (kept == 0)
            break;
    }
    if (store->reads.first && store->reads.first->kind == STORE_IMAGE &&
        chance_below(&sim->chance, 2))
        write_image(store, store->reads.first);
    drop_queue(&store->writes);
    drop_queue(&store->reads);
}

void store_wipe(struct store *store)
{
    drop_from(store, 0);
    free(store->log);
    free(store->image);
    free(store->old_image);
    drop_queue(&store->writes);
    drop_queue(&store->reads);
    memset(store, 0, sizeof *store);
}

/* ---- starting --------------------------------------------------------------------------------- */

int store_open(struct sim *sim, struct node *node, const struct replica_options *options,
               const struct replica_io *io, const struct replica_host *host,
               struct replica **ret_replica, struct error_text *err)
{
    struct store *store = &node->store;
    struct replica_image image = {.id.index = 0};
    struct replica_boot boot = {
        .term = store->term, .vote = store->vote, .now_us = node_now_us(sim, node)};
    int status = HF_OK;

    if (store->image) {
        if (!replica_image_decode(store->image, store->image_size, &image))
            return error_set(err, HF_EIO, "the snapshot cannot be read");
        boot.image = &image;
    }
    status = replica_new(options, io, host, &boot, ret_replica, err);
    for (size_t i = 0; status == HF_OK && i < store->count; i++) {
        struct journal_record record = record_of(&store->log[i]);

        status = replica_recover(*ret_replica, &record, err);
    }
    if (status == HF_OK)
        status = replica_start(*ret_replica, node_now_us(sim, node), err);
    return status;
}

void store_io(struct replica_io *ret_io)
{
    ret_io->store_term = io_store_term;
    ret_io->append = io_append;
    ret_io->reset_log = io_reset_log;
    ret_io->read_log = io_read_log;
    ret_io->store_image = io_store_image;
    ret_io->read_image = io_read_image;
    ret_io->trim_log = io_trim_log;
}
