#include "replica_libraft/storing.h"

#include <stdlib.h>

int image_to_snapshot(struct image *image, struct raft_snapshot **ret_snapshot)
{
    struct raft_snapshot *snapshot = raft_calloc(1, sizeof *snapshot);
    struct raft_buffer configuration = {image->configuration.iov_base,
                                        image->configuration.iov_len};
    int result;

    INVARIANT(snapshot != NULL);
    snapshot->bufs = raft_calloc(1, sizeof *snapshot->bufs);
    INVARIANT(snapshot->bufs != NULL);
    snapshot->index = image->index;
    snapshot->term = image->term;
    snapshot->configuration_index = image->configuration_index;
    raft_configuration_init(&snapshot->configuration);
    result = raft_configuration_decode(&configuration, &snapshot->configuration);
    if (result != 0) {
        raft_free(snapshot->bufs);
        raft_free(snapshot);
        return result;
    }
    snapshot->n_bufs = 1;
    snapshot->bufs[0] = (struct raft_buffer){image->data.iov_base, image->data.iov_len};
    image->data = (struct iovec){0};
    *ret_snapshot = snapshot;
    return 0;
}

/* ---- to the disk ------------------------------------------------------------------------------ */

static void write_image(uv_work_t *work)
{
    struct storage *storage = work->data;
    struct putting *put = &storage->put;

    put->result = image_write(&storage->directory, &put->image, &put->err);
    if (put->result == HF_OK && !put->whole_log)
        put->result = journal_remove(&storage->directory, put->needed, &put->err);
}

static void end_put(struct storage *storage, int status)
{
    struct raft_io_snapshot_put *req = storage->put.req;

    raft_free(storage->put.configuration.iov_base);
    storage->put = (struct putting){0};
    req->cb(req, status);
}

/* A node that cannot store its leader's snapshot stays behind: nobody else would know why. */
static void note_failure(struct storage *storage)
{
    char text[ERROR_TEXT_MAX + 80];

    if (storage->put.told || !storage->note)
        return;
    storage->put.told = true;
    snprintf(text, sizeof text, "a snapshot cannot be stored, and is tried again and again: %s",
             storage->put.err.text);
    storage->note(storage->context, 2, text);
}

static void on_image_written(uv_work_t *work, int status)
{
    struct storage *storage = work->data;
    struct putting *put = &storage->put;

    (void)status;
    put->running = false;
    if (put->result != HF_OK && !storage->closing) {
        put->again = TRY_AGAIN_TICKS; /* a disk that is full may have room again */
        note_failure(storage);
        return;
    }
    uv_mutex_lock(&storage->journal_mutex);
    if (put->result == HF_OK && put->whole_log)
        put->result = journal_reset(storage->journal, &put->err);
    else if (put->result == HF_OK)
        journal_removed(storage->journal, put->needed);
    uv_mutex_unlock(&storage->journal_mutex);
    end_put(storage, storage->closing ? RAFT_CANCELED : put->result == HF_OK ? 0 : RAFT_IOERR);
    storage_maybe_finish(storage);
}

static void begin_put(struct storage *storage)
{
    struct putting *put = &storage->put;

    put->work.data = storage;
    put->running = true;
    uv_mutex_lock(&storage->journal_mutex);
    put->needed = journal_needed(storage->journal, put->keep);
    uv_mutex_unlock(&storage->journal_mutex);
    INVARIANT(uv_queue_work(storage->loop, &put->work, write_image, on_image_written) == 0);
}

int images_on_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                  const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done)
{
    struct storage *storage = storage_of(io);
    struct putting *put = &storage->put;
    struct raft_buffer configuration;

    INVARIANT(!put->req && snapshot->n_bufs == 1);
    if (raft_configuration_encode(&snapshot->configuration, &configuration) != 0)
        return RAFT_NOMEM;
    req->cb = done;
    *put = (struct putting){
        .req = req,
        .configuration = {configuration.base, configuration.len},
        .whole_log = trailing == 0,
        .keep = snapshot->index > trailing ? snapshot->index - trailing + 1 : 1,
        .image = {.index = snapshot->index,
                  .term = snapshot->term,
                  .configuration_index = snapshot->configuration_index,
                  .configuration = {configuration.base, configuration.len},
                  .data = {snapshot->bufs[0].base, snapshot->bufs[0].len}},
    };
    if (put->whole_log) { /* what waits to be written would be written behind it */
        storage->next = snapshot->index + 1;
        storage_end_appends_behind(storage, storage->writing.running ? storage->writing.appends : 0,
                                   0);
        put->waits = storage->writing.running;
    }
    if (!put->waits)
        begin_put(storage);
    return 0;
}

void images_go_on(struct storage *storage)
{
    if (storage->put.waits) {
        storage->put.waits = false;
        begin_put(storage);
    }
}

void images_try_again(struct storage *storage)
{
    if (storage->put.again > 0 && --storage->put.again == 0)
        begin_put(storage);
}

void images_cancel(struct storage *storage)
{
    if (storage->put.req && !storage->put.running)
        end_put(storage, RAFT_CANCELED);
}

/* ---- from it ---------------------------------------------------------------------------------- */

static void read_image(uv_work_t *work)
{
    struct getting *get = work->data;

    get->result = image_load(&get->storage->directory, &get->image, &get->err);
}

static void on_image_read(uv_work_t *work, int status)
{
    struct getting *get = work->data;
    struct storage *storage = get->storage;
    struct raft_snapshot *snapshot = NULL;
    int result = get->result == HF_OK && get->image.index > 0
                     ? image_to_snapshot(&get->image, &snapshot)
                     : storage_say(storage, RAFT_IOERR, &get->err);

    (void)status;
    get->req->cb(get->req, snapshot, result);
    image_free(&get->image);
    free(get);
    storage->gets--;
    storage_maybe_finish(storage);
}

int images_on_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                  raft_io_snapshot_get_cb done)
{
    struct storage *storage = storage_of(io);
    struct getting *get = calloc(1, sizeof *get);

    INVARIANT(get != NULL);
    req->cb = done;
    get->req = req;
    get->storage = storage;
    get->work.data = get;
    storage->gets++;
    INVARIANT(uv_queue_work(storage->loop, &get->work, read_image, on_image_read) == 0);
    return 0;
}
