/* store_disk.c: the production journal, term and snapshots on a simulated disk. */
#include "sim/context.h"
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENT_BYTES ((size_t)64 << 10) /* small: so that there are many */
#define READ_RECORDS_MAX 4096
#define START_OPERATIONS 60 /* of a disk, about so many while a process starts */

void store_make(struct sim *sim, struct store *store)
{
    store_free(store);
    store->disk = sim_disk_new(chance_draw(&sim->chance));
}

static void drop_snapshot(struct store_snapshot *snapshot)
{
    free(snapshot->bytes);
    *snapshot = (struct store_snapshot){NULL, 0, 0};
}

void store_close(struct store *store, bool power)
{
    if (power)
        sim_disk_crash(store->disk);
    else
        sim_disk_stop_at(store->disk, 0);
    recovery_close(&store->recovery);
    drop_snapshot(&store->snapshot);
    drop_snapshot(&store->old);
}

void store_free(struct store *store)
{
    if (store->disk) { /* nothing of it is looked at any more */
        sim_disk_stop_at(store->disk, 1);
        recovery_close(&store->recovery);
        drop_snapshot(&store->snapshot);
        drop_snapshot(&store->old);
        sim_disk_free(store->disk);
    }
    store_drop_queues(store);
    memset(store, 0, sizeof *store);
}

/* ---- starting --------------------------------------------------------------------------------- */

static int see_record(void *context, const struct journal_record *record, struct error_text *err)
{
    struct node_context *see = context;

    (void)err;
    check_recovered(&see->node->seen, &see->sim->check.verdict, see->node->id, record->index,
                    record->term, record->type, record->bytes, record->size);
    return HF_OK;
}

/* Is all there that the disk has acknowledged? */
static void see_log(struct sim *sim, struct node *node)
{
    struct node_context context = {sim, node};
    struct error_text err;

    check_recovering(&node->seen, node->store.snapshot.index);
    journal_read_range(node->store.recovery.journal, node->store.snapshot.index + 1, UINT64_MAX,
                       SIZE_MAX, see_record, &context, &err);
    check_recovered_all(&node->seen, &sim->check.verdict, node->id);
}

int store_open(struct sim *sim, struct node *node, const struct replica_options *options,
               const struct replica_io *io, const struct replica_host *host,
               struct replica **ret_replica, struct error_text *err)
{
    struct store *store = &node->store;
    struct store_snapshot *snapshot = &store->snapshot;
    int result;

    sim_disk_limit(store->disk, sim->now_us < node->full_until_us ? 0 : UINT64_MAX);
    node->seen.disk_failed = sim->now_us < node->full_until_us;
    sim_disk_fail_at(store->disk, 0);
    if (node->reads_fail) {
        node->seen.disk_failed = true;
        sim_disk_fail_at(store->disk, 1 + chance_below(&sim->chance, START_OPERATIONS));
    }
    if (!sim->healing && chance_happens(&sim->chance, sim->swarm.term_crash))
        sim_disk_stop_at(store->disk, 1 + chance_below(&sim->chance, 12));
    result = recovery_open(&store->recovery, sim_disk_table(store->disk), STORE_DIRECTORY, err);
    if (result == HF_OK) {
        check_found_vote(&node->seen, &sim->check.verdict, node->id, store->recovery.term.number,
                         store->recovery.term.vote);
        result = recovery_load_snapshot(&store->recovery, &snapshot->bytes, &snapshot->size, err);
    }
    if (result == HF_OK && snapshot->bytes) {
        struct replica_snapshot decoded;

        if (replica_snapshot_decode(snapshot->bytes, snapshot->size, &decoded))
            snapshot->index = decoded.id.index;
    }
    if (result == HF_OK)
        result = recovery_replica(&store->recovery, SEGMENT_BYTES, options, io, host,
                                  node_now_us(sim, node), ret_replica, err);
    if (sim_disk_stopped(store->disk))
        node->dying = true;
    sim_disk_stop_at(store->disk, 0);
    sim_disk_fail_at(store->disk, 0);
    node->reads_fail = false;
    if (result == HF_OK && !node->dying)
        see_log(sim, node);
    return result;
}

/* ---- writing ---------------------------------------------------------------------------------- */

static void make_spare(struct journal *journal)
{
    struct journal_spare spare;

    if (!journal_wants_spare(journal))
        return;
    spare = journal_spare_begin(journal);
    journal_spare_make(&spare);
    journal_spare_end(journal, &spare);
}

int store_append(struct store *store, const struct journal_record *records, size_t count,
                 struct error_text *err)
{
    struct journal *journal = store->recovery.journal;
    int result = journal_append(journal, records, count, err);

    store->group_first = records[0].index;
    if (result == HF_EBUSY) {
        make_spare(journal);
        result = journal_append(journal, records, count, err);
    }
    if (result == HF_EBUSY)
        result = error_set(err, HF_EIO, "no segment can be made: the disk is full, or fails");
    return result;
}

int store_write_snapshot(struct store *store, const struct store_op *op, struct error_text *err)
{
    int result = recovery_store_snapshot(&store->recovery, op->snapshot,
                                         op->installs && !op->keeps_log, err);
    uint8_t head[REPLICA_SNAPSHOT_HEAD_MAX];
    size_t head_size;

    if (result != HF_OK)
        return result;
    /* Whoever reads the one before goes on: as with a file that is open. */
    drop_snapshot(&store->old);
    store->old = store->snapshot;
    head_size = replica_snapshot_encode(op->snapshot, head);
    store->snapshot = (struct store_snapshot){.size = head_size + op->snapshot->table_size,
                                              .index = op->snapshot->id.index};
    store->snapshot.bytes = malloc(store->snapshot.size);
    INVARIANT(store->snapshot.bytes != NULL);
    memcpy(store->snapshot.bytes, head, head_size);
    memcpy(store->snapshot.bytes + head_size, op->snapshot->table, op->snapshot->table_size);
    return HF_OK;
}

void store_trim(struct store *store)
{
    struct journal *journal = store->recovery.journal;
    struct error_text err;
    uint64_t needed;

    if (store->trimmed == 0)
        return;
    needed = journal_needed(journal, store->trimmed + 1);
    store->trimmed = 0;
    if (journal_remove(&store->recovery.directory, needed, &err) == HF_OK)
        journal_removed(journal, needed);
}

/* ---- reading ---------------------------------------------------------------------------------- */

struct reading {
    struct journal_record records[READ_RECORDS_MAX];
    size_t count;
};

static int read_record(void *context, const struct journal_record *record, struct error_text *err)
{
    struct reading *reading = context;
    struct journal_record *copy = &reading->records[reading->count];
    void *bytes;

    (void)err;
    if (reading->count == READ_RECORDS_MAX)
        return HF_EBUSY;
    bytes = malloc(record->size + 1);
    INVARIANT(bytes != NULL);
    if (record->size)
        memcpy(bytes, record->bytes, record->size);
    *copy = *record;
    copy->bytes = bytes;
    reading->count++;
    return HF_OK;
}

/* The one before is wanted, too, if it is there. */
void store_read_log(struct sim *sim, struct node *node, const struct store_op *op)
{
    static struct reading reading;
    struct journal *journal = node->store.recovery.journal;
    struct error_text err;

    reading.count = 0;
    if (node->reads_fail)
        sim_disk_fail_at(node->store.disk, 1 + chance_below(&sim->chance, 4));
    if (op->first > 1 && journal_read_range(journal, op->first - 1, op->first - 1, 1, read_record,
                                            &reading, &err) == JOURNAL_GONE)
        reading.count = 0;
    if (journal_read_range(journal, op->first, op->last, op->size, read_record, &reading, &err) ==
        JOURNAL_GONE)
        reading.count = 0;
    if (node->reads_fail)
        sim_disk_fail_at(node->store.disk, 0);
    node->reads_fail = false;
    replica_log_read(node->replica, op->to, reading.records, reading.count, node_now_us(sim, node));
    for (size_t i = 0; i < reading.count; i++)
        free((void *)(uintptr_t)reading.records[i].bytes);
}

void store_read_snapshot(struct sim *sim, struct node *node, const struct store_op *op)
{
    const struct store *store = &node->store;
    const struct store_snapshot *snapshot =
        store->snapshot.index == op->first ? &store->snapshot : &store->old;
    bool there = snapshot->bytes && snapshot->index == op->first && op->offset <= snapshot->size;
    size_t size = there ? snapshot->size - (size_t)op->offset : 0;

    if (size > op->size)
        size = op->size;
    replica_snapshot_read(node->replica, op->to, op->first, op->offset,
                          there ? snapshot->bytes + op->offset : NULL, size,
                          there ? snapshot->size : 0, node_now_us(sim, node));
}
