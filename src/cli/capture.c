#include "cli/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define UNSENT_MAX 65536 /* then the job has to wait, as it would without us */
#define READ_MAX 65536   /* at once */
#define FINISH_MS 1000   /* more than it takes, unless a terminal stands still */
#define LEFT_OVER_MAX \
    (1 << 21) /* of what is in a pipe when the job has ended: more than one can hold */

static bool bytes_add(struct bytes *bytes, const char *more, size_t size)
{
    if (bytes->capacity - bytes->size < size) {
        size_t capacity = bytes->capacity ? bytes->capacity : 4096;
        char *grown;

        while (capacity < bytes->size + size)
            capacity *= 2;
        grown = realloc(bytes->at, capacity);
        if (!grown)
            return false;
        bytes->at = grown;
        bytes->capacity = capacity;
    }
    memcpy(bytes->at + bytes->size, more, size);
    bytes->size += size;
    return true;
}

static void bytes_take(struct bytes *bytes, size_t size)
{
    bytes->size -= size;
    memmove(bytes->at, bytes->at + size, bytes->size);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void keep(struct capture *capture, struct capture_stream *stream, const char *bytes,
                 size_t size)
{
    size_t kept = 0;

    if (capture->too_much)
        return;
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        kept += capture->streams[i].kept.size;
    /* Without the memory to keep it, it is too much as well. */
    capture->too_much = kept + size > capture->keep_max || !bytes_add(&stream->kept, bytes, size);
}

/* Reads once. False: there is nothing now. */
static bool take_in(struct capture *capture, struct capture_stream *stream)
{
    static char block[READ_MAX]; /* there is one thread, and one capture */
    ssize_t got = read(stream->in, block, sizeof block);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        close(stream->in);
        stream->in = -1;
        return false;
    }
    keep(capture, stream, block, (size_t)got);
    if (stream->out >= 0 && !bytes_add(&stream->unsent, block, (size_t)got))
        stream->out = -1;
    return true;
}

/* As much as a pipe takes without making us wait, once it says that it takes something. */
static void send_some(struct capture_stream *stream)
{
    size_t size = stream->unsent.size < PIPE_BUF ? stream->unsent.size : PIPE_BUF;
    ssize_t sent = write(stream->out, stream->unsent.at, size);

    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (sent < 0) { /* nobody reads it: the job goes on */
        stream->out = -1;
        stream->unsent.size = 0;
        return;
    }
    bytes_take(&stream->unsent, (size_t)sent);
}

static bool all_sent(const struct capture *capture)
{
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        if (capture->streams[i].unsent.size > 0)
            return false;
    return true;
}

/* What was in the pipes when the job had ended. */
static void take_rest(struct capture *capture)
{
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        struct capture_stream *stream = &capture->streams[i];
        size_t before = stream->unsent.size;

        while (stream->in >= 0 && stream->unsent.size - before < LEFT_OVER_MAX)
            if (!take_in(capture, stream))
                break;
        if (stream->in >= 0)
            close(stream->in);
        stream->in = -1;
    }
}

static void *pump(void *arg)
{
    struct capture *capture = arg;
    bool job_ended = false;

    while (!job_ended || !all_sent(capture)) {
        struct pollfd fds[2 * CAPTURE_STREAMS + 1];

        for (int i = 0; i < CAPTURE_STREAMS; i++) {
            const struct capture_stream *stream = &capture->streams[i];
            bool room = stream->unsent.size < UNSENT_MAX;

            fds[2 * i] = (struct pollfd){.fd = room ? stream->in : -1, .events = POLLIN};
            fds[2 * i + 1] = (struct pollfd){.fd = stream->unsent.size > 0 ? stream->out : -1,
                                             .events = POLLOUT};
        }
        fds[2 * CAPTURE_STREAMS] =
            (struct pollfd){.fd = job_ended ? -1 : capture->job_ended_fd, .events = POLLIN};
        if (poll(fds, 2 * CAPTURE_STREAMS + 1, -1) < 0)
            continue;
        for (int i = 0; i < CAPTURE_STREAMS; i++) {
            if (fds[2 * i + 1].revents)
                send_some(&capture->streams[i]);
            if (fds[2 * i].revents)
                take_in(capture, &capture->streams[i]);
        }
        if (fds[2 * CAPTURE_STREAMS].revents) {
            take_rest(capture);
            job_ended = true;
            eventfd_write(capture->all_kept_fd, 1);
        }
    }
    eventfd_write(capture->all_sent_fd, 1);
    return NULL;
}

/* ---- from outside ---------------------------------------------------------------------------- */

/* A pipe with both ends above the standard descriptors, of which some may be closed. */
static bool make_pipe(int *ret_read, int *ret_write)
{
    int ends[2], high[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    for (int i = 0; i < 2; i++) {
        high[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        close(ends[i]);
    }
    *ret_read = high[0];
    *ret_write = high[1];
    return high[0] >= 0 && high[1] >= 0 && fcntl(high[0], F_SETFL, O_NONBLOCK) == 0;
}

static void close_all(struct capture *capture)
{
    int fds[] = {capture->job_ended_fd, capture->all_kept_fd, capture->all_sent_fd};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        if (capture->streams[i].in >= 0)
            close(capture->streams[i].in);
    capture_job_has_it(capture);
}

int capture_begin(struct capture *capture, size_t keep_max)
{
    static const int ours[CAPTURE_STREAMS] = {STDOUT_FILENO, STDERR_FILENO};
    bool fine = true;
    int failure;

    *capture = (struct capture){.keep_max = keep_max,
                                .job_ended_fd = eventfd(0, EFD_CLOEXEC),
                                .all_kept_fd = eventfd(0, EFD_CLOEXEC),
                                .all_sent_fd = eventfd(0, EFD_CLOEXEC)};
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        capture->streams[i].in = capture->job_ends[i] = -1;
        capture->streams[i].out = ours[i];
        fine = fine && make_pipe(&capture->streams[i].in, &capture->job_ends[i]);
    }
    fine = fine && capture->job_ended_fd >= 0 && capture->all_kept_fd >= 0 &&
           capture->all_sent_fd >= 0;
    failure = fine ? pthread_create(&capture->thread, NULL, pump, capture) : errno;
    if (failure)
        close_all(capture);
    return failure;
}

void capture_job_has_it(struct capture *capture)
{
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        if (capture->job_ends[i] >= 0)
            close(capture->job_ends[i]);
        capture->job_ends[i] = -1;
    }
}

/* False: a signal came that asks us to end, and it did not happen within patience_ms of that. */
static bool wait_for(int fd, struct signals *signals, int patience_ms, int *ret_signal)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = signals->fd, .events = POLLIN}};
    int number;

    *ret_signal = 0;
    for (;;) {
        int ready = poll(fds, 2, *ret_signal ? patience_ms : -1);

        if (ready == 0)
            return false;
        if (ready < 0)
            continue;
        if (fds[0].revents)
            return true;
        while ((number = signals_take(signals)) != 0) {
            if (number == SIGTSTP)
                signals_stop(SIGTSTP, false);
            if (signals_ends(number))
                *ret_signal = number;
        }
    }
}

bool capture_finish(struct capture *capture, struct signals *signals, int *ret_signal)
{
    eventfd_write(capture->job_ended_fd, 1);
    return wait_for(capture->all_kept_fd, signals, FINISH_MS, ret_signal);
}

int capture_pass_on(struct capture *capture, struct signals *signals)
{
    int number;

    if (!wait_for(capture->all_sent_fd, signals, 0, &number))
        return number;
    pthread_join(capture->thread, NULL);
    return 0;
}

void capture_free(struct capture *capture)
{
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        free(capture->streams[i].kept.at);
        free(capture->streams[i].unsent.at);
    }
    close_all(capture);
}
