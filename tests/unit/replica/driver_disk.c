#include "driver_disk.h"

#include "base/crc32c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The node dies with this call, before anything comes of it. */
static bool dies(struct node *node)
{
    if (++node->io_calls == node->dies_at)
        node->dying = true;
    return node->dying;
}

static struct stored copy_record(const struct journal_record *record)
{
    struct stored stored = {.record = *record, .bytes = malloc(record->size + 1)};

    if (record->size > 0)
        memcpy(stored.bytes, record->bytes, record->size);
    stored.record.bytes = stored.bytes;
    return stored;
}

/* ---- what is given to it ---------------------------------------------------------------------- */

static int store_term(void *context, uint64_t term, uint64_t vote, struct error_text *err)
{
    struct node *node = context;

    if (dies(node) || node->fails)
        return error_set(err, HF_EIO, "the disk is gone");
    driver_trace(node, "term %llu, vote %llu", (unsigned long long)term, (unsigned long long)vote);
    node->disk.term = term;
    node->disk.vote = vote;
    return HF_OK;
}

/* What goes to the disk points at the replica's bytes until it is done. */
static void append(void *context, uint64_t number, const struct journal_record *records,
                   size_t count)
{
    struct node *node = context;
    struct node_write *write;

    if (dies(node))
        return;
    if (node->write_count == node->write_capacity) {
        node->write_capacity = node->write_capacity ? 2 * node->write_capacity : 16;
        node->writes = realloc(node->writes, node->write_capacity * sizeof *node->writes);
    }
    write = &node->writes[node->write_count++];
    *write = (struct node_write){number, malloc(count * sizeof *write->records), count};
    for (size_t i = 0; i < count; i++) {
        write->records[i].record = records[i];
        write->records[i].sum = crc32c(0, records[i].bytes, records[i].size);
        node->driver->trace =
            crc32c(node->driver->trace, &write->records[i].sum, sizeof write->records[i].sum);
    }
    driver_trace(node, "append %llu: %llu to %llu, term %llu, commit %llu, chain %llx",
                 (unsigned long long)number, (unsigned long long)records[0].index,
                 (unsigned long long)records[count - 1].index,
                 (unsigned long long)records[count - 1].term,
                 (unsigned long long)records[count - 1].commit,
                 (unsigned long long)records[count - 1].chain);
    if (count > node->entries_max)
        node->entries_max = count;
}

static void send(void *context, uint64_t to, const char *address, const struct iovec *pieces,
                 unsigned count)
{
    struct node *node = context;
    struct packet packet = {.from = node->id, .to = to, .incarnation = node->disk.incarnation};
    unsigned char *at;

    (void)address;
    if (dies(node) || to >= NODES || to == 0)
        return;
    for (unsigned i = 0; i < count; i++)
        packet.size += pieces[i].iov_len;
    at = packet.bytes = malloc(packet.size + 1);
    for (unsigned i = 0; i < count; at += pieces[i++].iov_len)
        memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
    node->messages_sent++;
    node->driver->trace = crc32c(node->driver->trace, packet.bytes, packet.size);
    node->pieces_sent += ((const unsigned char *)pieces[0].iov_base)[1] == RAFT_SNAPSHOT;
    driver_post(node->driver, packet);
}

static void read_log(void *context, uint64_t to, uint64_t first, uint64_t last, size_t bytes_max)
{
    struct node *node = context;

    if (dies(node))
        return;
    INVARIANT(!node->log_reads[to].active && first <= last);
    node->log_reads[to].active = true;
    node->log_reads[to].first = first;
    node->log_reads[to].last = last;
    node->log_reads[to].bytes_max = bytes_max;
}

static int reset_log(void *context, struct error_text *err)
{
    struct node *node = context;
    struct driver_disk *disk = &node->disk;

    if (dies(node))
        return error_set(err, HF_EIO, "the disk is gone");
    driver_trace(node, "the log is dropped");
    for (size_t i = 0; i < disk->log_count; i++)
        free(disk->log[i].bytes);
    disk->log_count = 0;
    node->resets++;
    return HF_OK;
}

static void store_snapshot(void *context, const struct replica_snapshot *snapshot, bool installs,
                           bool keeps_log)
{
    struct node *node = context;
    uint8_t head[REPLICA_SNAPSHOT_HEAD_MAX];
    size_t size = replica_snapshot_encode(snapshot, head);

    if (dies(node))
        return;
    INVARIANT(!node->storing.active);
    INVARIANT(!installs || node->write_count == 0);
    driver_trace(node, "snapshot %llu, %s%s", (unsigned long long)snapshot->id.index,
                 installs ? "installs" : "own", keeps_log ? "" : ", drops the log");
    node->storing.active = true;
    node->storing.installs = installs;
    node->storing.keeps_log = keeps_log;
    node->storing.index = snapshot->id.index;
    node->storing.size = size + snapshot->table_size;
    node->storing.bytes = malloc(node->storing.size);
    memcpy(node->storing.bytes, head, size);
    memcpy(node->storing.bytes + size, snapshot->table, snapshot->table_size);
}

static void read_snapshot(void *context, uint64_t to, uint64_t index, uint64_t offset, size_t size)
{
    struct node *node = context;

    if (dies(node))
        return;
    INVARIANT(!node->snapshot_reads[to].active);
    node->snapshot_reads[to].active = true;
    node->snapshot_reads[to].index = index;
    node->snapshot_reads[to].offset = offset;
    node->snapshot_reads[to].size = size;
}

static void trim_log(void *context, uint64_t index)
{
    struct node *node = context;

    if (!dies(node) && index > node->disk.trimmed)
        node->disk.trimmed = index;
}

struct replica_io disk_io(struct node *node)
{
    return (struct replica_io){node,      store_term,     append,        send,    read_log,
                               reset_log, store_snapshot, read_snapshot, trim_log};
}

/* ---- doing it --------------------------------------------------------------------------------- */

static void put_record(struct driver_disk *disk, const struct journal_record *record)
{
    if (disk->log_count == disk->log_capacity) {
        disk->log_capacity = disk->log_capacity ? 2 * disk->log_capacity : 64;
        disk->log = realloc(disk->log, disk->log_capacity * sizeof *disk->log);
    }
    disk->log[disk->log_count++] = copy_record(record);
}

/* [J4] */
static uint64_t last_on_disk(const struct driver_disk *disk)
{
    return disk->log_count > 0 ? disk->log[disk->log_count - 1].record.index : 0;
}

static void finish_write(struct node *node)
{
    struct node_write write = node->writes[0];
    struct driver_disk *disk = &node->disk;

    memmove(node->writes, node->writes + 1, --node->write_count * sizeof *node->writes);
    INVARIANT(disk->log_count == 0 || write.records[0].record.index <= last_on_disk(disk) + 1);
    driver_trace(node, "written %llu", (unsigned long long)write.number);
    for (size_t i = 0; i < write.count; i++) {
        const struct journal_record *record = &write.records[i].record;

        INVARIANT(crc32c(0, record->bytes, record->size) == write.records[i].sum);
        put_record(disk, record);
    }
    free(write.records);
    replica_written(node->replica, write.number,
                    node->fails ? &(struct error_text){"the disk is gone"} : NULL,
                    node->driver->now_us + node->skew_us);
}

static void finish_snapshot(struct node *node)
{
    struct driver_disk *disk = &node->disk;
    struct error_text err;

    free(disk->snapshot);
    disk->snapshot = node->storing.bytes;
    disk->snapshot_size = node->storing.size;
    disk->snapshot_index = node->storing.index;
    node->storing.active = false;
    node->storing.bytes = NULL;
    node->snapshots_stored++;
    driver_trace(node, "snapshot %llu is stored", (unsigned long long)disk->snapshot_index);
    if (dies(node)) /* the snapshot is there, the log is not dropped */
        return;
    if (node->storing.installs && !node->storing.keeps_log) {
        long calls = node->io_calls;

        reset_log(node, &err);
        node->io_calls = calls;
    }
    replica_snapshot_stored(node->replica, NULL, node->driver->now_us + node->skew_us);
}

/* The last record of an index is the one in effect, if nothing before it was written later. */
static const struct journal_record *find_record(const struct driver_disk *disk, uint64_t index)
{
    for (size_t i = disk->log_count; i-- > 0;) {
        const struct journal_record *record = &disk->log[i].record;

        if (record->index < index)
            return NULL;
        if (record->index == index)
            return index > disk->trimmed ? record : NULL;
    }
    return NULL;
}

static void finish_log_read(struct node *node, uint64_t to)
{
    struct journal_record records[512];
    uint64_t first = node->log_reads[to].first, index;
    size_t count = 0, bytes = 0;

    if (find_record(&node->disk, first)) {
        if (first > 1 && find_record(&node->disk, first - 1))
            records[count++] = *find_record(&node->disk, first - 1);
        for (index = first; index <= node->log_reads[to].last && count < 512; index++) {
            const struct journal_record *record = find_record(&node->disk, index);

            if (!record || (index > first && bytes + record->size > node->log_reads[to].bytes_max))
                break;
            bytes += record->size;
            records[count++] = *record;
        }
    }
    node->log_reads[to].active = false;
    node->log_reads_done++;
    replica_log_read(node->replica, to, records, count, node->driver->now_us + node->skew_us);
}

static void finish_snapshot_read(struct node *node, uint64_t to)
{
    const struct driver_disk *disk = &node->disk;
    uint64_t offset = node->snapshot_reads[to].offset, index = node->snapshot_reads[to].index;
    bool is_there = disk->snapshot && disk->snapshot_index == index && offset < disk->snapshot_size;
    size_t size = is_there ? disk->snapshot_size - offset : 0;

    if (size > node->snapshot_reads[to].size)
        size = node->snapshot_reads[to].size;
    node->snapshot_reads[to].active = false;
    node->pieces_read++;
    replica_snapshot_read(node->replica, to, index, offset,
                          is_there ? disk->snapshot + offset : NULL, size, disk->snapshot_size,
                          node->driver->now_us + node->skew_us);
}

bool disk_busy(const struct node *node)
{
    if (node->paused)
        return false;
    if ((node->write_count > 0 && !node->disk_held) ||
        (node->storing.active && !node->snapshot_held))
        return true;
    for (uint64_t to = 1; to < NODES; to++)
        if ((node->log_reads[to].active && !node->reads_held) || node->snapshot_reads[to].active)
            return true;
    return false;
}

bool disk_work(struct node *node)
{
    bool did = disk_busy(node);
    size_t writes = node->write_count;

    for (; writes > 0 && !node->disk_held && !node->dying && node->replica; writes--)
        finish_write(node);
    if (node->storing.active && !node->snapshot_held && !node->dying)
        finish_snapshot(node);
    for (uint64_t to = 1; to < NODES && !node->dying; to++) {
        if (node->log_reads[to].active && !node->reads_held)
            finish_log_read(node, to);
        if (node->snapshot_reads[to].active && !node->dying)
            finish_snapshot_read(node, to);
    }
    return did;
}

void disk_crash(struct node *node, size_t writes_kept)
{
    for (size_t i = 0; i < node->write_count; i++) {
        for (size_t j = 0; j < node->writes[i].count && i < writes_kept; j++)
            put_record(&node->disk, &node->writes[i].records[j].record);
        free(node->writes[i].records);
    }
    node->write_count = 0;
    free(node->storing.bytes);
    node->storing.bytes = NULL;
    node->storing.active = false;
    memset(node->log_reads, 0, sizeof node->log_reads);
    memset(node->snapshot_reads, 0, sizeof node->snapshot_reads);
    node->dying = false;
}

void disk_clear(struct driver_disk *disk)
{
    uint64_t incarnation = disk->incarnation;

    for (size_t i = 0; i < disk->log_count; i++)
        free(disk->log[i].bytes);
    free(disk->log);
    free(disk->snapshot);
    *disk = (struct driver_disk){.incarnation = incarnation};
}

struct driver_disk disk_copy(const struct driver_disk *disk)
{
    struct driver_disk copy = *disk;

    copy.snapshot = disk->snapshot_size ? malloc(disk->snapshot_size) : NULL;
    if (copy.snapshot)
        memcpy(copy.snapshot, disk->snapshot, disk->snapshot_size);
    copy.log_capacity = disk->log_count + 1;
    copy.log = malloc(copy.log_capacity * sizeof *copy.log);
    for (size_t i = 0; i < disk->log_count; i++)
        copy.log[i] = copy_record(&disk->log[i].record);
    return copy;
}
