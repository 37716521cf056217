/* backup_taking.c: a backup of the table while the node serves. It is the snapshot that the replica takes in slices anyway, and stores: that file is
 * kept open, and read piece by piece by a thread. So it costs no memory beyond one piece, whoever reads it may be slow, and what was applied
 * later is not in it.
 *
 *     WAITS ──a snapshot with its index is on disk──▶ OPENS ──read once, and whole──▶ READY ◀──▶ READS
 *       ▲                                               │
 *       └─────────a newer one took its place────────────┘
 *
 * Whoever gives it up while a thread is at it leaves it to that thread's end. */
#include "base/switches.h"
#include "node/inside.h"

#include <stdlib.h>

enum taking_state { WAITS, OPENS, READY, READS };

struct node_backup {
    struct list listed; /* in node->backups */
    struct node *node;
    enum taking_state state;
    bool given_up;
    uint64_t index; /* it has at least this entry */
    struct open_snapshot file;
    struct node_backup_about about;
    struct node_backup_host host;

    uv_work_t work; /* OPENS and READS */
    int result;
    struct error_text err;
    uint64_t offset;
    size_t size, count;
    unsigned char *piece;
};

static void backup_free(struct node_backup *backup)
{
    snapshot_file_close(&backup->file);
    list_remove(&backup->listed);
    free(backup->piece);
    free(backup);
}

/* Is nobody there any more to be told? Then it is gone. */
static bool is_over(struct node_backup *backup)
{
    struct node *node = backup->node;

    node->reads--;
    if (!backup->given_up && !node->closing)
        return false;
    backup_free(backup);
    node_maybe_finish(node);
    return true;
}

static void begin_work(struct node_backup *backup, enum taking_state state, uv_work_cb work,
                       uv_after_work_cb after)
{
    backup->state = state;
    backup->work.data = backup;
    backup->node->reads++;
    INVARIANT(uv_queue_work(backup->node->loop, &backup->work, work, after) == 0);
}

/* ---- until it is there ------------------------------------------------------------------------- */

static void open_file(uv_work_t *work)
{
    struct node_backup *backup = work->data;

    backup->result = snapshot_file_open(&backup->node->recovery.directory, backup->about.index,
                                        &backup->file, &backup->err);
    if (backup->result != HF_OK)
        return;
    backup->about.size = backup->file.size;
    backup->result = snapshot_file_verify(&backup->file, &backup->about.sum, &backup->err);
}

/* The file may have gone because a newer one is there, or is about to be. */
static bool is_superseded(const struct node_backup *backup)
{
    struct replica_status status;

    replica_status(backup->node->replica, &status);
    return !backup->file.disk &&
           (backup->node->snapshot.running || status.snapshot.index > backup->about.index);
}

static void on_opened(uv_work_t *work, int status)
{
    struct node_backup *backup = work->data;

    (void)status;
    if (is_over(backup))
        return;
    if (backup->result == HF_OK) {
        backup->state = READY;
        backup->host.ready(backup->host.context, &backup->about, NULL);
    } else if (is_superseded(backup)) {
        backup->state = WAITS;
    } else {
        backup->state = READY; /* for its end */
        backup->host.ready(backup->host.context, NULL, &backup->err);
    }
}

/* What the disk refuses is tried again for ever, but whoever wants a backup should hear of it. */
static void look(struct node_backup *backup)
{
    struct node *node = backup->node;
    uint64_t enough = SWITCHED(SWITCH_BACKUP_OLD) ? 1 : backup->index;
    struct replica_status status;

    replica_status(node->replica, &status);
    if (status.snapshot.index >= enough && !node->snapshot.running) {
        backup->about.index = status.snapshot.index;
        backup->about.term = status.snapshot.term;
        begin_work(backup, OPENS, open_file, on_opened);
        return;
    }
    replica_want_snapshot(node->replica, backup->index);
    if (node->snapshot.told && !node->snapshot.running) {
        backup->state = READY;
        backup->host.ready(backup->host.context, NULL, &node->snapshot.err);
    }
}

void backup_taking_pump(struct node *node)
{
    LIST_EACH_SAFE(listed, &node->backups)
    {
        struct node_backup *backup = LIST_ENTRY(listed, struct node_backup, listed);

        if (backup->state == WAITS)
            look(backup);
    }
}

struct node_backup *node_backup_begin(struct node *node, const struct node_backup_host *host)
{
    struct node_backup *backup = calloc(1, sizeof *backup);
    struct replica_status status;

    INVARIANT(backup != NULL);
    backup->piece = malloc(NODE_BACKUP_PIECE);
    INVARIANT(backup->piece != NULL);
    replica_status(node->replica, &status);
    backup->node = node;
    backup->host = *host;
    backup->index = status.applied_index;
    list_append(&node->backups, &backup->listed);
    return backup;
}

/* ---- its pieces -------------------------------------------------------------------------------- */

static void read_piece(uv_work_t *work)
{
    struct node_backup *backup = work->data;

    backup->result = snapshot_file_read(&backup->file, backup->offset, backup->piece, backup->size,
                                        &backup->count, &backup->err);
}

static void on_read(uv_work_t *work, int status)
{
    struct node_backup *backup = work->data;
    bool whole;

    (void)status;
    if (is_over(backup))
        return;
    backup->state = READY;
    whole = backup->result == HF_OK && backup->count == backup->size;
    if (backup->result == HF_OK && !whole)
        error_write(&backup->err, "a snapshot ends before its end");
    backup->host.piece(backup->host.context, whole ? backup->piece : NULL, backup->count,
                       &backup->err);
}

void node_backup_read(struct node_backup *backup, uint64_t offset, size_t size)
{
    INVARIANT(backup->state == READY && backup->file.disk && size <= NODE_BACKUP_PIECE &&
              offset <= backup->about.size && size <= backup->about.size - offset);
    backup->offset = offset;
    backup->size = size;
    backup->count = 0;
    begin_work(backup, READS, read_piece, on_read);
}

void node_backup_end(struct node_backup *backup)
{
    if (backup->state == OPENS || backup->state == READS)
        backup->given_up = true;
    else
        backup_free(backup);
}
