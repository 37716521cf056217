#include "replica/uv.h"
#include "replica/aio.h"
#include "replica/directory.h"
#include "replica/zeros.h"

#include <raft.h>
#include <raft/uv.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define SEGMENT_BYTES_DEFAULT ((size_t)8 << 20)
/* How long libraft waits before it tries again what the disk refused. A failed write must never get
 * there: the timer that would repeat it is not set up for that (0.22.1, uv_append.c). The replica
 * looks for such a failure with each heartbeat, and closes libraft when it finds one. */
#define DISK_RETRY_MS 15000
#define PROBE_FRESH_MS 10000 /* what a look at the disk said longer ago is of no interest */
/* How many entries can be on their way to the disk at once. Alone, the replica waits for each; from
 * a leader, libraft takes up to 32 before it hears of the first, and twice that is on the safe side. */
#define TORN_MAX_ALONE 0
#define TORN_MAX 64

struct replica_uv {
    struct raft_io io; /* first: libraft hands it back to us */
    struct raft_io theirs;
    struct raft_uv_transport nobody;
    struct directory directory;
    uv_loop_t *loop;
    bool live; /* libraft has set it up and not yet closed it */
    raft_io_close_cb io_closed;

    size_t segment_bytes;
    uv_work_t probe;
    bool probing;
    int probed;         /* the thread's: an errno, or 0 */
    int disk_failure;   /* of the last probe that ended, */
    uint64_t probed_ms; /* and when */

    void (*done)(void *context);
    void *done_context;
};

/* ---- a transport for a node alone ------------------------------------------------------------- */

static int nobody_init(struct raft_uv_transport *transport, raft_id id, const char *address)
{
    (void)transport;
    (void)id;
    (void)address;
    return 0;
}

static int nobody_listen(struct raft_uv_transport *transport, raft_uv_accept_cb accept)
{
    (void)transport;
    (void)accept;
    return 0;
}

static int nobody_connect(struct raft_uv_transport *transport, struct raft_uv_connect *req,
                          raft_id id, const char *address, raft_uv_connect_cb done)
{
    (void)transport;
    (void)req;
    (void)id;
    (void)address;
    (void)done;
    return RAFT_NOCONNECTION;
}

static void nobody_close(struct raft_uv_transport *transport, raft_uv_transport_close_cb done)
{
    done(transport);
}

static const struct raft_uv_transport nobody = {.version = 1,
                                                .init = nobody_init,
                                                .listen = nobody_listen,
                                                .connect = nobody_connect,
                                                .close = nobody_close};

/* ---- what of libraft's backend is wrapped ----------------------------------------------------- */

static int on_init(struct raft_io *io, raft_id id, const char *address)
{
    struct replica_uv *uv = (struct replica_uv *)io;
    int result = uv->theirs.init(io, id, address);

    uv->live = result == 0;
    return result;
}

static void maybe_finish(struct replica_uv *uv)
{
    void (*done)(void *) = uv->done;
    void *context = uv->done_context;

    if (!done || uv->live || uv->probing)
        return;
    raft_uv_close(&uv->io);
    directory_close(&uv->directory);
    free(uv);
    done(context);
}

static void on_io_closed(struct raft_io *io)
{
    struct replica_uv *uv = (struct replica_uv *)io;
    bool asked = uv->done != NULL;

    uv->live = false;
    uv->io_closed(io); /* may close us in turn */
    if (asked)
        maybe_finish(uv);
}

static void on_close(struct raft_io *io, raft_io_close_cb done)
{
    struct replica_uv *uv = (struct replica_uv *)io;

    uv->io_closed = done;
    uv->theirs.close(io, on_io_closed);
}

static void free_loaded(struct raft_snapshot *snapshot, struct raft_entry *entries, size_t count)
{
    void *batch = NULL;

    for (unsigned i = 0; snapshot && i < snapshot->n_bufs; i++)
        raft_free(snapshot->bufs[i].base);
    if (snapshot) {
        raft_free(snapshot->bufs);
        raft_configuration_close(&snapshot->configuration);
        raft_free(snapshot);
    }
    for (size_t i = 0; i < count; i++) {
        if (entries[i].batch != batch) {
            batch = entries[i].batch;
            raft_free(batch);
        }
    }
    raft_free(entries);
}

/* Where the newest snapshot cannot be read, libraft takes the one before. If the log after that is
 * no longer there, everything in between would be forgotten. */
static int on_load(struct raft_io *io, raft_term *ret_term, raft_id *ret_voted_for,
                   struct raft_snapshot **ret_snapshot, raft_index *ret_start_index,
                   struct raft_entry *ret_entries[], size_t *ret_count)
{
    struct replica_uv *uv = (struct replica_uv *)io;
    uint64_t term, index;
    int result = uv->theirs.load(io, ret_term, ret_voted_for, ret_snapshot, ret_start_index,
                                 ret_entries, ret_count);

    if (result != 0 || !directory_newest_snapshot(&uv->directory, &term, &index))
        return result;
    if (*ret_snapshot && (*ret_snapshot)->index == index && (*ret_snapshot)->term == term)
        return 0;
    free_loaded(*ret_snapshot, *ret_entries, *ret_count);
    snprintf(io->errmsg, sizeof io->errmsg,
             "the newest snapshot, at entry %" PRIu64 ", cannot be read", index);
    return RAFT_CORRUPT;
}

/* ---- looking at the disk ---------------------------------------------------------------------- */

/* Does what libraft does for a new segment, with a file that has no name. */
static int try_disk(const struct replica_uv *uv)
{
    int fd = openat(uv->directory.fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    int failure;

    if (fd < 0)
        return errno == EOPNOTSUPP || errno == EISDIR ? 0 : errno;
    failure = posix_fallocate(fd, 0, (off_t)uv->segment_bytes);
    if (!failure && (pwrite(fd, "", 1, 0) != 1 || fdatasync(fd) < 0))
        failure = errno;
    close(fd);
    return failure;
}

static void on_probe(uv_work_t *work)
{
    struct replica_uv *uv = work->data;

    uv->probed = try_disk(uv);
}

static void on_probed(uv_work_t *work, int status)
{
    struct replica_uv *uv = work->data;

    uv->probing = false;
    uv->disk_failure = status == 0 ? uv->probed : 0;
    uv->probed_ms = uv_now(uv->loop);
    maybe_finish(uv);
}

int replica_uv_check_disk(void *context, struct error_text *err)
{
    struct replica_uv *uv = context;

    if (!uv->probing && !uv->done) {
        uv->probe.data = uv;
        uv->probing = uv_queue_work(uv->loop, &uv->probe, on_probe, on_probed) == 0;
    }
    if (uv->disk_failure && uv_now(uv->loop) - uv->probed_ms <= PROBE_FRESH_MS)
        return error_set_errno(err, HF_EIO, uv->disk_failure, "no room for %zu bytes in %s",
                               uv->segment_bytes, uv->directory.path);
    return HF_OK;
}

/* ---- opening and closing ---------------------------------------------------------------------- */

int replica_uv_open(struct uv_loop_s *loop, const struct replica_uv_options *options,
                    struct replica_uv **ret_uv, struct error_text *err)
{
    struct replica_uv *uv = calloc(1, sizeof *uv);
    int result;

    if (!uv)
        return error_set(err, HF_ENOMEM, "out of memory");
    result = directory_open(options->path, options->founding,
                            options->transport ? TORN_MAX : TORN_MAX_ALONE, &uv->directory, err);
    if (result != HF_OK)
        goto failed;
    uv->loop = loop;
    uv->nobody = nobody;
    uv->segment_bytes = options->segment_bytes ? options->segment_bytes : SEGMENT_BYTES_DEFAULT;
    if (raft_uv_init(&uv->io, loop, uv->directory.path,
                     options->transport ? options->transport : &uv->nobody) != 0) {
        result = error_set(err, HF_EIO, "cannot use %s: %s", uv->directory.path, uv->io.errmsg);
        directory_close(&uv->directory);
        goto failed;
    }
    aio_link();
    zeros_link();
    raft_uv_set_tracer(&uv->io, NULL);
    raft_uv_set_auto_recovery(&uv->io, false);
    raft_uv_set_segment_size(&uv->io, uv->segment_bytes);
    raft_uv_set_disk_retry(&uv->io, DISK_RETRY_MS);
    uv->theirs = uv->io;
    uv->io.init = on_init;
    uv->io.close = on_close;
    uv->io.load = on_load;
    *ret_uv = uv;
    return HF_OK;

failed:
    free(uv);
    return result;
}

struct raft_io *replica_uv_io(struct replica_uv *uv)
{
    return &uv->io;
}

void replica_uv_close(struct replica_uv *uv, void (*done)(void *context), void *context)
{
    uv->done = done;
    uv->done_context = context;
    maybe_finish(uv);
}
