#include "base/clock.h"
#include "base/random.h"
#include "journal/note.h"
#include "replica_libraft/node_file.h"
#include "replica_libraft/restore.h"
#include "replica_libraft/storing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From here on a write takes the loop longer than a thread takes to be called. */
#define IN_THREAD_BYTES ((size_t)8192)

void *storage_grown(void *array, size_t *capacity, size_t count, size_t item)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 64;
    array = realloc(array, *capacity * item);
    INVARIANT(array != NULL);
    return array;
}

int storage_say(struct storage *storage, int status, const struct error_text *err)
{
    snprintf(storage->io.errmsg, sizeof storage->io.errmsg, "%.*s",
             (int)sizeof storage->io.errmsg - 1, err->text);
    return status;
}

/* ---- what an operator should know --------------------------------------------------------------- */

static void note_torn(const struct storage *storage)
{
    struct journal_torn torn = journal_torn(storage->journal);
    char text[PATH_MAX + 160];

    if (torn.segment == 0 || !storage->note)
        return;
    snprintf(text, sizeof text,
             "dropped the rest of a write that was cut short and not acknowledged: %s/log-%" PRIu64
             " at=%zu bytes=%zu",
             storage->directory.path, torn.segment, torn.at, torn.bytes);
    storage->note(storage->context, 2, text);
}

static void note_syncs(struct storage *storage)
{
    if (storage->told_of_syncs || !storage->note || !journal_syncs_apart())
        return;
    storage->told_of_syncs = true;
    storage->note(
        storage->context, 2,
        "this system does not know pwritev2 with RWF_DSYNC: each write to the log is followed by "
        "fdatasync, and takes longer");
}

/* What a clean stop makes certain is not lost without it, only harder to tell from damage. */
static void mark_end(const struct storage *storage)
{
    struct error_text err;

    if (journal_stop(storage->journal, &err) != HF_OK && storage->note)
        storage->note(storage->context, 2, err.text);
}

/* ---- spare segments --------------------------------------------------------------------------- */

static void make_spare(uv_work_t *work)
{
    struct storage *storage = work->data;

    journal_spare_make(&storage->spare);
}

static void on_spare_made(uv_work_t *work, int status)
{
    struct storage *storage = work->data;

    (void)status;
    storage->spare_running = false;
    storage->spare_again = storage->spare.failure.text[0] ? TRY_AGAIN_TICKS : 0;
    uv_mutex_lock(&storage->journal_mutex);
    journal_spare_end(storage->journal, &storage->spare);
    uv_mutex_unlock(&storage->journal_mutex);
    note_syncs(storage);
    storage_maybe_finish(storage);
}

static void begin_spare(struct storage *storage)
{
    bool wanted;

    uv_mutex_lock(&storage->journal_mutex);
    wanted = !storage->closing && journal_wants_spare(storage->journal);
    if (wanted)
        storage->spare = journal_spare_begin(storage->journal);
    uv_mutex_unlock(&storage->journal_mutex);
    if (!wanted)
        return;
    storage->spare_work.data = storage;
    storage->spare_running = true;
    INVARIANT(uv_queue_work(storage->loop, &storage->spare_work, make_spare, on_spare_made) == 0);
}

/* ---- the log ---------------------------------------------------------------------------------- */

/* libraft does so before each append. What is to be replaced is replaced by it. */
static int on_truncate(struct raft_io *io, raft_index index)
{
    storage_of(io)->next = index;
    return 0;
}

static int on_append(struct raft_io *io, struct raft_io_append *req,
                     const struct raft_entry entries[], unsigned count, raft_io_append_cb done)
{
    struct storage *storage = storage_of(io);

    req->cb = done;
    storage->appends = storage_grown(storage->appends, &storage->append_capacity,
                                     storage->append_count, sizeof *storage->appends);
    storage->appends[storage->append_count++] =
        (struct waiting_append){req, entries, count, storage->next};
    storage->next += count;
    return 0;
}

/* Those that wait, as one group, as far as their indexes go on. */
static size_t collect(struct storage *storage, size_t *ret_records)
{
    size_t appends = 0, count = 0;

    while (appends < storage->append_count) {
        const struct waiting_append *append = &storage->appends[appends];

        if (count > 0 && append->index != storage->records[count - 1].index + 1)
            break;
        for (unsigned i = 0; i < append->count; i++) {
            const struct raft_entry *entry = &append->entries[i];

            storage->records = storage_grown(storage->records, &storage->record_capacity, count,
                                             sizeof *storage->records);
            storage->records[count++] = (struct journal_record){.index = append->index + i,
                                                                .term = entry->term,
                                                                .type = (uint8_t)entry->type,
                                                                .bytes = entry->buf.base,
                                                                .size = entry->buf.len};
        }
        appends++;
    }
    *ret_records = count;
    return appends;
}

static void end_append(struct storage *storage, size_t at, int status)
{
    struct raft_io_append *req = storage->appends[at].req;

    memmove(storage->appends + at, storage->appends + at + 1,
            (--storage->append_count - at) * sizeof *storage->appends);
    req->cb(req, status);
}

/* The first so many. libraft may append more from within. */
static void end_appends(struct storage *storage, size_t count, int status)
{
    while (count-- > 0)
        end_append(storage, 0, status);
}

void storage_end_appends_behind(struct storage *storage, size_t from, int status)
{
    while (storage->append_count > from)
        end_append(storage, from, status);
}

void storage_status(const struct storage *storage, struct storage_status *ret_status)
{
    *ret_status = storage->status;
}

/* Any thread's. */
static void write_records(struct storage *storage)
{
    struct writing *writing = &storage->writing;
    int64_t begin_ns = clock_boot_ns();

    uv_mutex_lock(&storage->journal_mutex);
    writing->result =
        journal_append(storage->journal, storage->records, writing->records, &writing->err);
    uv_mutex_unlock(&storage->journal_mutex);
    writing->took_us = (uint64_t)(clock_boot_ns() - begin_ns) / 1000;
}

static void count_write(struct storage *storage)
{
    struct storage_status *status = &storage->status;
    const struct writing *writing = &storage->writing;

    status->writes++;
    status->bytes += journal_size_of(storage->records, writing->records);
    status->total_us += writing->took_us;
    if (writing->took_us > status->longest_us)
        status->longest_us = writing->took_us;
}

/* False: there was no room, and it is tried again. */
static bool end_writing(struct storage *storage)
{
    struct writing *writing = &storage->writing;

    if (writing->result == HF_EBUSY && (storage->spare_running || !storage->spare_needed)) {
        storage->spare_needed = !storage->spare_running; /* it is tried again for this one */
        begin_spare(storage);
        return false;
    }
    storage->spare_needed = false;
    if (writing->result == HF_OK) {
        count_write(storage);
        begin_spare(storage);
    }
    end_appends(storage, writing->appends,
                writing->result == HF_OK ? 0 : storage_say(storage, RAFT_IOERR, &writing->err));
    return true;
}

static void write_in_thread(uv_work_t *work)
{
    write_records(work->data);
}

static void on_written(uv_work_t *work, int status)
{
    struct storage *storage = work->data;

    (void)status;
    storage->writing.running = false;
    if (storage->closing)
        end_appends(storage, storage->writing.appends, RAFT_CANCELED);
    else
        end_writing(storage);
    images_go_on(storage);
    storage_maybe_finish(storage);
}

bool storage_flush(struct storage *storage, bool others_write)
{
    struct writing *writing = &storage->writing;

    if (storage->append_count == 0 || storage->closing || storage->put.whole_log ||
        writing->running)
        return false;
    writing->appends = collect(storage, &writing->records);
    writing->err.text[0] = '\0';
    if (others_write && journal_size_of(storage->records, writing->records) >= IN_THREAD_BYTES) {
        writing->running = true;
        writing->work.data = storage;
        INVARIANT(uv_queue_work(storage->loop, &writing->work, write_in_thread, on_written) == 0);
        return false;
    }
    write_records(storage);
    return end_writing(storage);
}

/* ---- time, chance, others --------------------------------------------------------------------- */

static raft_time on_time(struct raft_io *io)
{
    return uv_now(storage_of(io)->loop);
}

static int on_random(struct raft_io *io, int min, int max)
{
    (void)io;
    return min + (int)random_below((uint64_t)max - (uint64_t)min);
}

/* A node alone has nobody to send to. */
static int on_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
                   raft_io_send_cb done)
{
    (void)io;
    (void)message;
    done(req, RAFT_NOCONNECTION);
    return 0;
}

static void on_timer(uv_timer_t *timer)
{
    struct storage *storage = timer->data;

    if (storage->spare_again > 0 && --storage->spare_again == 0)
        begin_spare(storage);
    images_try_again(storage);
    storage->tick(&storage->io);
}

static int on_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    struct storage *storage = storage_of(io);

    (void)receive;
    storage->tick = tick;
    begin_spare(storage);
    return uv_timer_start(&storage->timer, on_timer, msecs, msecs) == 0 ? 0 : RAFT_IOERR;
}

/* ---- opening and closing ---------------------------------------------------------------------- */

static int on_init(struct raft_io *io, raft_id id, const char *address)
{
    (void)io;
    (void)id;
    (void)address;
    return 0;
}

static void free_all(struct storage *storage)
{
    loading_forget(storage);
    if (storage->journal)
        journal_close(storage->journal);
    uv_mutex_destroy(&storage->journal_mutex);
    directory_close(&storage->directory);
    free(storage->appends);
    free(storage->records);
    free(storage);
}

void storage_maybe_finish(struct storage *storage)
{
    raft_io_close_cb io_closed = storage->io_closed;
    void (*done)(void *) = storage->done;
    void *context = storage->done_context;

    if (storage->spare_running || storage->put.running || storage->writing.running ||
        storage->gets > 0 || !storage->timer_closed)
        return;
    if (io_closed) {
        storage->io_closed = NULL;
        io_closed(&storage->io); /* which may close us in turn */
    }
    if (!done)
        return;
    mark_end(storage);
    free_all(storage);
    done(context);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct storage *storage = timer->data;

    storage->timer_closed = true;
    storage_maybe_finish(storage);
}

static void begin_closing(struct storage *storage)
{
    if (storage->closing)
        return;
    storage->closing = true;
    uv_close((uv_handle_t *)&storage->timer, on_timer_closed);
}

static void on_close(struct raft_io *io, raft_io_close_cb done)
{
    struct storage *storage = storage_of(io);

    storage->io_closed = done;
    begin_closing(storage);
    storage_end_appends_behind(storage, storage->writing.running ? storage->writing.appends : 0,
                               RAFT_CANCELED);
    images_cancel(storage);
}

static const struct raft_io functions = {.version = 2,
                                         .init = on_init,
                                         .close = on_close,
                                         .load = loading_on_load,
                                         .start = on_start,
                                         .bootstrap = loading_on_bootstrap,
                                         .recover = loading_on_recover,
                                         .set_term = loading_on_set_term,
                                         .set_vote = loading_on_set_vote,
                                         .send = on_send,
                                         .append = on_append,
                                         .truncate = on_truncate,
                                         .snapshot_put = images_on_put,
                                         .snapshot_get = images_on_get,
                                         .time = on_time,
                                         .random = on_random};

/* Half a copy of a backup is no data directory. */
static int check_restored(const struct storage *storage, struct error_text *err)
{
    char text[NOTE_MAX + 1];
    int result = note_read(&storage->directory, RESTORE_MARK, text, err);

    if (result == HF_OK && text[0])
        return error_set(
            err, HF_EREFUSED,
            "a restore into %s did not come to its end: run 'holdfastd --restore-from' "
            "again",
            storage->directory.path);
    return result;
}

bool storage_is_data(const char *name)
{
    uint64_t number;

    return strcmp(name, "term") == 0 || strcmp(name, "end") == 0 ||
           directory_number_in(name, "log-", &number) ||
           directory_number_in(name, "snapshot-", &number);
}

bool storage_is_nothing(const char *name)
{
    const char *ending = strrchr(name, '.');

    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, DIRECTORY_LOCK) == 0 ||
           strcmp(name, "lost+found") == 0 || (ending && strcmp(ending, ".new") == 0);
}

static int expect_ours(void *context, const char *name, struct error_text *err)
{
    const struct directory *directory = context;

    if (storage_is_data(name) || storage_is_nothing(name))
        return HF_OK;
    return error_set(
        err, HF_EREFUSED,
        "%s is no data directory of holdfastd, and not empty (there is %s): name an empty one, "
        "or one that is not there yet",
        directory->path, name);
}

/* Of a directory that nobody has had before. A server that found itself among other files would be in the way of theirs, and they of its. */
static int check_foreign(struct storage *storage, struct error_text *err)
{
    int result;

    if (directory_has(&storage->directory, NODE_FILE))
        return HF_OK;
    result = directory_each(&storage->directory, expect_ours, &storage->directory, err);
    if (result != HF_OK)
        directory_leave_alone(&storage->directory);
    return result;
}

int storage_make_parents(const char *path, unsigned mode, struct error_text *err)
{
    return directory_make_parents(path, mode, err);
}

int storage_open(struct uv_loop_s *loop, const struct storage_options *options,
                 struct storage **ret_storage, struct error_text *err)
{
    struct storage *storage = calloc(1, sizeof *storage);
    int result;

    if (!storage)
        return error_set(err, HF_ENOMEM, "out of memory");
    storage->io = functions;
    storage->loop = loop;
    storage->note = options->note;
    storage->context = options->context;
    INVARIANT(uv_mutex_init(&storage->journal_mutex) == 0);
    result = directory_open(options->path, &storage->directory, err);
    if (result != HF_OK) {
        uv_mutex_destroy(&storage->journal_mutex);
        free(storage);
        return result;
    }
    if (!options->restoring)
        result = check_restored(storage, err);
    if (result == HF_OK && !options->restoring)
        result = check_foreign(storage, err);
    if (result == HF_OK)
        result = loading_read(storage, options, err);
    if (result != HF_OK) {
        free_all(storage);
        return result;
    }
    note_torn(storage);
    note_syncs(storage);
    storage->timer.data = storage;
    uv_timer_init(loop, &storage->timer);
    *ret_storage = storage;
    return HF_OK;
}

struct raft_io *storage_io(struct storage *storage)
{
    return &storage->io;
}

void storage_close(struct storage *storage, void (*done)(void *context), void *context)
{
    storage->done = done;
    storage->done_context = context;
    begin_closing(storage);
    storage_maybe_finish(storage);
}
