#include "replica/storage.h"
#include "base/clock.h"
#include "base/random.h"
#include "journal/directory.h"
#include "journal/image.h"
#include "journal/journal.h"
#include "journal/term.h"

#include <raft.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define TRY_AGAIN_TICKS 10u /* what the disk refused, and can wait, is tried again after so many */

/* What was in the directory, until libraft asks for it. */
struct loaded {
    struct image image;
    struct raft_entry *entries;
    size_t count, capacity;
    raft_index first; /* of the entries */
};

struct waiting_append {
    struct raft_io_append *req;
    const struct raft_entry *entries;
    unsigned count;
    raft_index index;
};

struct putting { /* a snapshot on its way to the disk */
    struct raft_io_snapshot_put *req;
    uv_work_t work;
    struct image image;
    struct iovec configuration; /* encoded */
    bool whole_log;             /* it takes the place of all entries, those after it too */
    raft_index keep;            /* else entries from here on stay */
    uint64_t needed;            /* and this is the oldest segment with such */
    bool running;
    unsigned again; /* ticks until it is tried again */
    struct error_text err;
    int result; /* the thread's */
};

struct getting { /* a snapshot on its way to a follower */
    struct raft_io_snapshot_get *req;
    struct storage *storage;
    uv_work_t work;
    struct image image;
    struct error_text err;
    int result;
};

struct storage {
    struct raft_io io; /* first: libraft hands it back to us */
    struct directory directory;
    uv_loop_t *loop;
    struct term term;
    struct journal *journal;
    struct loaded loaded;

    raft_index next; /* index of the next entry to be appended */
    struct waiting_append *appends;
    size_t append_count, append_capacity;
    struct journal_record *records;
    size_t record_capacity;

    struct journal_spare spare; /* being made */
    uv_work_t spare_work;
    bool spare_running;
    bool spare_needed;    /* an append waits for it */
    unsigned spare_again; /* ticks until it is tried again */

    struct putting put;
    unsigned gets;
    struct storage_status status;

    uv_timer_t timer; /* open until the end */
    raft_io_tick_cb tick;
    bool closing, timer_closed;
    raft_io_close_cb io_closed;
    void (*done)(void *context);
    void *done_context;
};

static struct storage *of(struct raft_io *io)
{
    return (struct storage *)(void *)io;
}

static void *grown(void *array, size_t *capacity, size_t count, size_t item)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 64;
    array = realloc(array, *capacity * item);
    INVARIANT(array != NULL);
    return array;
}

static int say(struct storage *storage, int status, const struct error_text *err)
{
    snprintf(storage->io.errmsg, sizeof storage->io.errmsg, "%.*s",
             (int)sizeof storage->io.errmsg - 1, err->text);
    return status;
}

/* ---- what is there ---------------------------------------------------------------------------- */

static void forget_from(struct loaded *loaded, raft_index index)
{
    while (loaded->count > 0 && loaded->first + loaded->count > index)
        free(loaded->entries[--loaded->count].buf.base);
}

static int keep_record(void *context, const struct journal_record *record, struct error_text *err)
{
    struct loaded *loaded = context;
    void *bytes = malloc(record->size ? record->size : 1);

    if (!bytes)
        return error_set(err, HF_ENOMEM, "no memory for the log");
    if (record->size > 0)
        memcpy(bytes, record->bytes, record->size);
    forget_from(loaded, record->index);
    if (loaded->count == 0)
        loaded->first = record->index;
    loaded->entries =
        grown(loaded->entries, &loaded->capacity, loaded->count, sizeof *loaded->entries);
    loaded->entries[loaded->count++] = (struct raft_entry){
        .term = record->term, .type = record->type, .buf = {bytes, record->size}, .batch = bytes};
    return HF_OK;
}

/* Does the log go on where the snapshot ends? One from another node may have come instead of the log, and
 * then the crash before the log was removed. */
static bool log_fits(const struct loaded *loaded)
{
    const struct image *image = &loaded->image;

    if (image->index < loaded->first)
        return true;
    if (image->index >= loaded->first + loaded->count)
        return false;
    return loaded->entries[image->index - loaded->first].term == image->term;
}

static int check_loaded(struct storage *storage, struct error_text *err)
{
    struct loaded *loaded = &storage->loaded;
    uint64_t begin = loaded->image.index + 1;

    if ((loaded->count > 0 || loaded->image.index > 0) && !storage->term.known)
        return error_set(
            err, HF_EIO,
            "%s holds a log, and its file 'term' is lost or damaged: restore it, or the "
            "directory, from a backup",
            storage->directory.path);
    if (loaded->count > 0 && loaded->first > begin)
        return error_set(err, HF_EIO,
                         "entries %" PRIu64 " to %" PRIu64
                         " are missing in %s: restore the directory from a backup",
                         begin, (uint64_t)loaded->first - 1, storage->directory.path);
    return HF_OK;
}

static int begin_anew(struct storage *storage, struct error_text *err)
{
    struct loaded *loaded = &storage->loaded;
    int result = journal_begin(storage->journal, err);

    if (result == HF_OK && loaded->count > 0 && !log_fits(loaded)) {
        forget_from(loaded, 0);
        result = journal_reset(storage->journal, err);
    }
    if (result == HF_OK)
        result = image_clean(&storage->directory, &loaded->image, err);
    return result;
}

static int load(struct storage *storage, size_t segment_bytes, struct error_text *err)
{
    struct loaded *loaded = &storage->loaded;
    int result = term_load(&storage->directory, &storage->term, err);

    if (result == HF_OK)
        result = image_load(&storage->directory, &loaded->image, err);
    if (result == HF_OK)
        result = journal_open(&storage->directory, segment_bytes, keep_record, loaded,
                              &storage->journal, err);
    if (result == HF_OK)
        result = check_loaded(storage, err);
    if (result == HF_OK)
        result = begin_anew(storage, err);
    if (loaded->count == 0)
        loaded->first = loaded->image.index + 1;
    storage->next = loaded->first + loaded->count;
    return result;
}

/* The configuration is decoded into the snapshot, the data handed over. */
static int make_snapshot(struct image *image, struct raft_snapshot **ret_snapshot)
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

static int on_load(struct raft_io *io, raft_term *ret_term, raft_id *ret_voted_for,
                   struct raft_snapshot **ret_snapshot, raft_index *ret_start_index,
                   struct raft_entry *ret_entries[], size_t *ret_count)
{
    struct storage *storage = of(io);
    struct loaded *loaded = &storage->loaded;

    *ret_snapshot = NULL;
    if (loaded->image.index > 0) {
        int result = make_snapshot(&loaded->image, ret_snapshot);

        if (result != 0)
            return say(storage, result, &(struct error_text){"the snapshot names no members"});
        image_free(&loaded->image);
    }
    *ret_term = storage->term.number;
    *ret_voted_for = storage->term.vote;
    *ret_start_index = loaded->first;
    *ret_entries = loaded->count > 0 ? loaded->entries : NULL;
    *ret_count = loaded->count;
    if (loaded->count == 0)
        free(loaded->entries);
    *loaded = (struct loaded){0};
    return 0;
}

/* ---- term and vote ---------------------------------------------------------------------------- */

static int on_set_term(struct raft_io *io, raft_term term)
{
    struct storage *storage = of(io);
    struct error_text err;

    if (term_store(&storage->directory, &storage->term, term, 0, &err) != HF_OK)
        return say(storage, RAFT_IOERR, &err);
    return 0;
}

static int on_set_vote(struct raft_io *io, raft_id id)
{
    struct storage *storage = of(io);
    struct error_text err;

    if (term_store(&storage->directory, &storage->term, storage->term.number, id, &err) != HF_OK)
        return say(storage, RAFT_IOERR, &err);
    return 0;
}

/* A founding that was interrupted after the term was stored begins again. */
static bool is_new(const struct storage *storage)
{
    return storage->loaded.count == 0 && storage->loaded.image.index == 0 &&
           storage->term.number <= 1 && storage->term.vote == 0;
}

static int found(struct storage *storage, const struct raft_buffer *configuration,
                 struct error_text *err)
{
    struct journal_record record = {
        .index = 1, .term = 1, .type = RAFT_CHANGE, configuration->base, configuration->len};
    struct journal_spare spare;
    int result = term_store(&storage->directory, &storage->term, 1, 0, err);

    if (result != HF_OK)
        return result;
    spare = journal_spare_begin(storage->journal);
    journal_spare_make(&spare);
    journal_spare_end(storage->journal, &spare);
    result = journal_append(storage->journal, &record, 1, err);
    if (result == HF_OK)
        result = keep_record(&storage->loaded, &record, err);
    storage->next = 2;
    return result;
}

static int on_bootstrap(struct raft_io *io, const struct raft_configuration *members)
{
    struct storage *storage = of(io);
    struct raft_buffer configuration;
    struct error_text err = {""};
    int result;

    if (!is_new(storage))
        return RAFT_CANTBOOTSTRAP;
    if (raft_configuration_encode(members, &configuration) != 0)
        return RAFT_NOMEM;
    result = found(storage, &configuration, &err);
    raft_free(configuration.base);
    return result == HF_OK ? 0 : say(storage, RAFT_IOERR, &err);
}

static int on_recover(struct raft_io *io, const struct raft_configuration *members)
{
    (void)members;
    return say(of(io), RAFT_INVALID, &(struct error_text){"not by this way"});
}

/* ---- spare segments --------------------------------------------------------------------------- */

static void maybe_finish(struct storage *storage);

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
    journal_spare_end(storage->journal, &storage->spare);
    maybe_finish(storage);
}

static void begin_spare(struct storage *storage)
{
    if (storage->closing || !journal_wants_spare(storage->journal))
        return;
    storage->spare = journal_spare_begin(storage->journal);
    storage->spare_work.data = storage;
    storage->spare_running = true;
    INVARIANT(uv_queue_work(storage->loop, &storage->spare_work, make_spare, on_spare_made) == 0);
}

/* ---- the log ---------------------------------------------------------------------------------- */

/* libraft does so before each append. What is to be replaced is replaced by it. */
static int on_truncate(struct raft_io *io, raft_index index)
{
    of(io)->next = index;
    return 0;
}

static int on_append(struct raft_io *io, struct raft_io_append *req,
                     const struct raft_entry entries[], unsigned count, raft_io_append_cb done)
{
    struct storage *storage = of(io);

    req->cb = done;
    storage->appends = grown(storage->appends, &storage->append_capacity, storage->append_count,
                             sizeof *storage->appends);
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

            storage->records =
                grown(storage->records, &storage->record_capacity, count, sizeof *storage->records);
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

/* libraft may append more from within. */
static void end_appends(struct storage *storage, size_t count, int status)
{
    while (count-- > 0) {
        struct raft_io_append *req = storage->appends[0].req;

        memmove(storage->appends, storage->appends + 1,
                --storage->append_count * sizeof *storage->appends);
        req->cb(req, status);
    }
}

static int write_records(struct storage *storage, size_t count, struct error_text *err)
{
    struct storage_status *status = &storage->status;
    int64_t begin_ns = clock_boot_ns();
    int result = journal_append(storage->journal, storage->records, count, err);
    uint64_t took_us = (uint64_t)(clock_boot_ns() - begin_ns) / 1000;

    if (result == HF_OK) {
        status->writes++;
        status->bytes += journal_size_of(storage->records, count);
        status->total_us += took_us;
        status->longest_us = took_us > status->longest_us ? took_us : status->longest_us;
    }
    return result;
}

void storage_status(const struct storage *storage, struct storage_status *ret_status)
{
    *ret_status = storage->status;
}

bool storage_flush(struct storage *storage)
{
    struct error_text err = {""};
    size_t records, appends;
    int result;

    if (storage->append_count == 0 || storage->closing || storage->put.whole_log)
        return false;
    appends = collect(storage, &records);
    result = write_records(storage, records, &err);
    if (result == HF_EBUSY && (storage->spare_running || !storage->spare_needed)) {
        storage->spare_needed = !storage->spare_running; /* it is tried again for this one */
        begin_spare(storage);
        return false;
    }
    storage->spare_needed = false;
    if (result == HF_OK)
        begin_spare(storage);
    end_appends(storage, appends, result == HF_OK ? 0 : say(storage, RAFT_IOERR, &err));
    return true;
}

/* ---- snapshots -------------------------------------------------------------------------------- */

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

static void on_image_written(uv_work_t *work, int status)
{
    struct storage *storage = work->data;
    struct putting *put = &storage->put;

    (void)status;
    put->running = false;
    if (put->result != HF_OK && !storage->closing) {
        put->again = TRY_AGAIN_TICKS; /* a disk that is full may have room again */
        return;
    }
    if (put->result == HF_OK && put->whole_log)
        put->result = journal_reset(storage->journal, &put->err);
    else if (put->result == HF_OK)
        journal_removed(storage->journal, put->needed);
    end_put(storage, storage->closing ? RAFT_CANCELED : put->result == HF_OK ? 0 : RAFT_IOERR);
    maybe_finish(storage);
}

static void begin_put(struct storage *storage)
{
    struct putting *put = &storage->put;

    put->work.data = storage;
    put->running = true;
    put->needed = journal_needed(storage->journal, put->keep);
    INVARIANT(uv_queue_work(storage->loop, &put->work, write_image, on_image_written) == 0);
}

static int on_snapshot_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done)
{
    struct storage *storage = of(io);
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
    if (put->whole_log)
        storage->next = snapshot->index + 1;
    begin_put(storage);
    return 0;
}

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
                     ? make_snapshot(&get->image, &snapshot)
                     : say(storage, RAFT_IOERR, &get->err);

    (void)status;
    get->req->cb(get->req, snapshot, result);
    image_free(&get->image);
    free(get);
    storage->gets--;
    maybe_finish(storage);
}

static int on_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                           raft_io_snapshot_get_cb done)
{
    struct storage *storage = of(io);
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

/* ---- time, chance, others --------------------------------------------------------------------- */

static raft_time on_time(struct raft_io *io)
{
    return uv_now(of(io)->loop);
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
    if (storage->put.again > 0 && --storage->put.again == 0)
        begin_put(storage);
    storage->tick(&storage->io);
}

static int on_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    struct storage *storage = of(io);

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
    forget_from(&storage->loaded, 0);
    free(storage->loaded.entries);
    image_free(&storage->loaded.image);
    if (storage->journal)
        journal_close(storage->journal);
    directory_close(&storage->directory);
    free(storage->appends);
    free(storage->records);
    free(storage);
}

static void maybe_finish(struct storage *storage)
{
    raft_io_close_cb io_closed = storage->io_closed;
    void (*done)(void *) = storage->done;
    void *context = storage->done_context;

    if (storage->spare_running || storage->put.running || storage->gets > 0 ||
        !storage->timer_closed)
        return;
    if (io_closed) {
        storage->io_closed = NULL;
        io_closed(&storage->io); /* which may close us in turn */
    }
    if (!done)
        return;
    free_all(storage);
    done(context);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct storage *storage = timer->data;

    storage->timer_closed = true;
    maybe_finish(storage);
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
    struct storage *storage = of(io);

    storage->io_closed = done;
    begin_closing(storage);
    end_appends(storage, storage->append_count, RAFT_CANCELED);
    if (storage->put.req && !storage->put.running)
        end_put(storage, RAFT_CANCELED);
}

static const struct raft_io functions = {.version = 2,
                                         .init = on_init,
                                         .close = on_close,
                                         .load = on_load,
                                         .start = on_start,
                                         .bootstrap = on_bootstrap,
                                         .recover = on_recover,
                                         .set_term = on_set_term,
                                         .set_vote = on_set_vote,
                                         .send = on_send,
                                         .append = on_append,
                                         .truncate = on_truncate,
                                         .snapshot_put = on_snapshot_put,
                                         .snapshot_get = on_snapshot_get,
                                         .time = on_time,
                                         .random = on_random};

int storage_open(struct uv_loop_s *loop, const struct storage_options *options,
                 struct storage **ret_storage, struct error_text *err)
{
    struct storage *storage = calloc(1, sizeof *storage);
    int result;

    if (!storage)
        return error_set(err, HF_ENOMEM, "out of memory");
    storage->io = functions;
    storage->loop = loop;
    result = directory_open(options->path, &storage->directory, err);
    if (result != HF_OK) {
        free(storage);
        return result;
    }
    result = load(storage, options->segment_bytes, err);
    if (result != HF_OK) {
        free_all(storage);
        return result;
    }
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
    maybe_finish(storage);
}
