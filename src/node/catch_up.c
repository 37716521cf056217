/* catch_up.c: what another node misses, from the disk: entries of the log, or pieces of a snapshot. Threads read; the replica asks for one
 * thing at a time for each node.
 *
 * The file of a snapshot stays open between its pieces: it is removed when a newer one is there, and whoever has got half of it
 * should get the rest. */
#include "node/inside.h"

#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX 4096u /* read at a time */
#define UNUSED_US 5000000 /* a file of which nobody has wanted a piece for so long is closed */

struct log_read {
    uv_work_t work;
    struct node *node;
    uint64_t to, first, last;
    size_t bytes_max;
    struct journal_record *records;
    size_t count, capacity;
};

struct snapshot_piece {
    uv_work_t work;
    struct node *node;
    struct snapshot_reader *reader;
    uint64_t index, offset;
    size_t size, count;
    bool there;
    unsigned char bytes[];
};

/* ---- the log ---------------------------------------------------------------------------------- */

static int keep_record(void *context, const struct journal_record *record, struct error_text *err)
{
    struct log_read *read = context;
    unsigned char *bytes;

    (void)err;
    if (read->count == RECORDS_MAX)
        return HF_EBUSY;
    read->records = node_grown(read->records, &read->capacity, read->count, sizeof *read->records);
    bytes = malloc(record->size ? record->size : 1);
    INVARIANT(bytes != NULL);
    if (record->size)
        memcpy(bytes, record->bytes, record->size);
    read->records[read->count] = *record;
    read->records[read->count++].bytes = bytes;
    return HF_OK;
}

static void drop_records(struct log_read *read)
{
    for (size_t i = 0; i < read->count; i++)
        free((void *)(uintptr_t)read->records[i].bytes);
    read->count = 0;
}

/* The one before is wanted too, if it is there. */
static void read_log(uv_work_t *work)
{
    struct log_read *read = work->data;
    struct journal *journal = read->node->recovery.journal;
    struct error_text err;

    if (read->first > 1 && journal_read_range(journal, read->first - 1, read->first - 1, 1,
                                              keep_record, read, &err) == JOURNAL_GONE)
        drop_records(read);
    if (journal_read_range(journal, read->first, read->last, read->bytes_max, keep_record, read,
                           &err) == JOURNAL_GONE)
        drop_records(read);
}

static void on_log_read(uv_work_t *work, int status)
{
    struct log_read *read = work->data;
    struct node *node = read->node;

    (void)status;
    node->reads--;
    if (!node->closing)
        replica_log_read(node->replica, read->to, read->records, read->count, node_now_us());
    drop_records(read);
    free(read->records);
    free(read);
    node_maybe_finish(node);
}

void catch_up_read_log(void *context, uint64_t to, uint64_t first, uint64_t last, size_t bytes_max)
{
    struct node *node = context;
    struct log_read *read = calloc(1, sizeof *read);

    INVARIANT(read != NULL);
    read->node = node;
    read->to = to;
    read->first = first;
    read->last = last;
    read->bytes_max = bytes_max;
    read->work.data = read;
    node->reads++;
    INVARIANT(uv_queue_work(node->loop, &read->work, read_log, on_log_read) == 0);
}

/* ---- snapshots -------------------------------------------------------------------------------- */

void catch_up_close(struct node *node, bool all)
{
    int64_t now_us = node_now_us();

    for (unsigned i = 0; i < KNOWN_MAX; i++) {
        struct snapshot_reader *reader = &node->readers[i];

        if (reader->busy || (!all && now_us - reader->used_us < UNUSED_US))
            continue;
        snapshot_file_close(&reader->file);
        reader->to = 0;
    }
}

static struct snapshot_reader *reader_for(struct node *node, uint64_t to)
{
    struct snapshot_reader *unused = NULL, *oldest = NULL;

    for (unsigned i = 0; i < KNOWN_MAX; i++) {
        struct snapshot_reader *reader = &node->readers[i];

        if (reader->to == to)
            return reader;
        if (reader->to == 0)
            unused = reader;
        else if (!reader->busy && (!oldest || reader->used_us < oldest->used_us))
            oldest = reader;
    }
    if (!unused) {
        INVARIANT(oldest != NULL); /* the replica asks for no more than there are */
        snapshot_file_close(&oldest->file);
        unused = oldest;
    }
    *unused = (struct snapshot_reader){.to = to};
    return unused;
}

static void read_snapshot(uv_work_t *work)
{
    struct snapshot_piece *piece = work->data;
    struct snapshot_reader *reader = piece->reader;
    struct error_text err;

    if (reader->index != piece->index)
        snapshot_file_close(&reader->file);
    reader->index = piece->index;
    if (!reader->file.disk && snapshot_file_open(&piece->node->recovery.directory, piece->index,
                                                 &reader->file, &err) != HF_OK)
        return;
    piece->there = piece->offset <= reader->file.size &&
                   snapshot_file_read(&reader->file, piece->offset, piece->bytes, piece->size,
                                      &piece->count, &err) == HF_OK;
}

static void on_snapshot_read(uv_work_t *work, int status)
{
    struct snapshot_piece *piece = work->data;
    struct node *node = piece->node;
    struct snapshot_reader *reader = piece->reader;
    uint64_t size = reader->file.disk ? reader->file.size : 0;

    (void)status;
    node->reads--;
    reader->busy = false;
    reader->used_us = node_now_us();
    if (!node->closing)
        replica_snapshot_read(node->replica, reader->to, piece->index, piece->offset,
                              piece->there ? piece->bytes : NULL, piece->count, size,
                              reader->used_us);
    if (!reader->busy && piece->offset + piece->count >= size) { /* that was the last piece */
        snapshot_file_close(&reader->file);
        reader->to = 0;
    }
    free(piece);
    node_maybe_finish(node);
}

void catch_up_read_snapshot(void *context, uint64_t to, uint64_t index, uint64_t offset,
                            size_t size)
{
    struct node *node = context;
    struct snapshot_piece *piece = calloc(1, sizeof *piece + size);

    INVARIANT(piece != NULL);
    piece->node = node;
    piece->reader = reader_for(node, to);
    INVARIANT(!piece->reader->busy);
    piece->reader->busy = true;
    piece->index = index;
    piece->offset = offset;
    piece->size = size;
    piece->work.data = piece;
    node->reads++;
    INVARIANT(uv_queue_work(node->loop, &piece->work, read_snapshot, on_snapshot_read) == 0);
}
