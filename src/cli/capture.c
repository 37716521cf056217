#include "cli/capture.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define READ_MAX \
    65536 /* at once; then the job has to wait until it is passed on, as it would without us */
#define LEFT_OVER_MAX \
    (1 << 21) /* of what is in a pipe when the job has ended: more than one can hold */
#define LINE_MAX_BYTES 4096

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

/* ---- the threads ----------------------------------------------------------------------------- */

/* With the mutex, as all that changes a stream. */
static void keep(struct capture *capture, struct capture_stream *stream, const char *bytes,
                 size_t size)
{
    size_t kept = 0;

    capture->total += size;
    if (capture->too_much)
        return;
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        kept += capture->streams[i].kept.size;
    /* Without the memory to keep it, it is too much as well. */
    capture->too_much = kept + size > capture->keep_max || !bytes_add(&stream->kept, bytes, size);
}

static void pass_on(struct capture_stream *stream, const char *bytes, size_t size)
{
    if (!stream->failure && !bytes_add(&stream->unsent, bytes, size))
        stream->failure = ENOMEM;
}

/* Reads once. How much; 0: there is nothing now. */
static size_t take_in(struct capture_stream *stream)
{
    static char block[READ_MAX]; /* of whoever has the mutex: there is one capture */
    ssize_t got = read(stream->in, block, sizeof block);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0) {
        close(stream->in);
        stream->in = -1;
        return 0;
    }
    keep(stream->capture, stream, block, (size_t)got);
    pass_on(stream, block, (size_t)got);
    return (size_t)got;
}

/* Without the mutex, for as long as the reader likes. 0, or the errno. */
static int write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = write(fd, bytes, size);

        if (sent >= 0) {
            bytes += sent;
            size -= (size_t)sent;
        } else if (errno == EAGAIN) { /* somebody who shares it does not like to wait */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* Takes all that is unsent, and lets go of the mutex while it writes that. */
static void send_unsent(struct capture_stream *stream)
{
    struct bytes now = stream->unsent;
    int failure;

    stream->unsent = (struct bytes){.at = NULL};
    pthread_mutex_unlock(&stream->capture->mutex);
    failure = write_all(stream->out, now.at, now.size);
    free(now.at);
    pthread_mutex_lock(&stream->capture->mutex);
    if (failure) { /* the job goes on */
        stream->failure = failure;
        stream->unsent.size = 0;
    }
}

/* Whether output is missing where somebody will look for it. */
static bool is_missing(const struct capture_stream *stream)
{
    return stream->failure != 0 && stream->failure != EPIPE;
}

/* Until the job writes something, or ends. */
static void await_job(struct capture_stream *stream)
{
    struct capture *capture = stream->capture;
    struct pollfd fds[] = {{.fd = stream->in, .events = POLLIN},
                           {.fd = capture->job_ended_fd, .events = POLLIN}};

    pthread_mutex_unlock(&capture->mutex);
    poll(fds, 2, -1);
    pthread_mutex_lock(&capture->mutex);
    if (!capture->job_ended && fds[0].revents)
        take_in(stream);
}

/* What stdout did not take is said on stderr, when stdout has ended. */
static bool may_get_more(const struct capture_stream *stream)
{
    const struct capture *capture = stream->capture;

    return !capture->closing ||
           (stream == &capture->streams[CAPTURE_ERR] && !capture->streams[CAPTURE_OUT].ended);
}

static void end_stream(struct capture_stream *stream)
{
    struct capture *capture = stream->capture;
    char line[LINE_MAX_BYTES];

    if (stream == &capture->streams[CAPTURE_OUT] && is_missing(stream)) {
        snprintf(line, sizeof line, "holdfast: cannot write the output: %s\n",
                 strerror(stream->failure));
        pass_on(&capture->streams[CAPTURE_ERR], line, strlen(line));
    }
    stream->ended = true;
    pthread_cond_broadcast(&capture->changed);
    if (--capture->running == 0)
        eventfd_write(capture->all_sent_fd, 1);
}

static void *copy_stream(void *arg)
{
    struct capture_stream *stream = arg;
    struct capture *capture = stream->capture;

    pthread_mutex_lock(&capture->mutex);
    while (stream->unsent.size > 0 || may_get_more(stream)) {
        if (stream->unsent.size > 0)
            send_unsent(stream);
        else if (stream->in >= 0 && !capture->job_ended)
            await_job(stream);
        else
            pthread_cond_wait(&capture->changed, &capture->mutex);
    }
    end_stream(stream);
    pthread_mutex_unlock(&capture->mutex);
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
    if (capture->job_ended_fd >= 0)
        close(capture->job_ended_fd);
    if (capture->all_sent_fd >= 0)
        close(capture->all_sent_fd);
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        if (capture->streams[i].in >= 0)
            close(capture->streams[i].in);
    capture_job_has_it(capture);
}

/* Nothing more comes. */
static void close_streams(struct capture *capture)
{
    pthread_mutex_lock(&capture->mutex);
    capture->job_ended = capture->closing = true;
    pthread_cond_broadcast(&capture->changed);
    pthread_mutex_unlock(&capture->mutex);
    eventfd_write(capture->job_ended_fd, 1);
}

static int start_threads(struct capture *capture)
{
    int failure = 0;

    for (int i = 0; i < CAPTURE_STREAMS && !failure; i++) {
        struct capture_stream *stream = &capture->streams[i];

        pthread_mutex_lock(&capture->mutex);
        failure = pthread_create(&stream->thread, NULL, copy_stream, stream);
        capture->running += failure == 0;
        pthread_mutex_unlock(&capture->mutex);
        if (failure && i > 0) {
            close_streams(capture);
            pthread_join(capture->streams[0].thread, NULL);
        }
    }
    return failure;
}

int capture_begin(struct capture *capture, size_t keep_max)
{
    static const int ours[CAPTURE_STREAMS] = {STDOUT_FILENO, STDERR_FILENO};
    bool fine = true;
    int failure;

    *capture = (struct capture){.keep_max = keep_max,
                                .mutex = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER,
                                .job_ended_fd = eventfd(0, EFD_CLOEXEC),
                                .all_sent_fd = eventfd(0, EFD_CLOEXEC)};
    for (int i = 0; i < CAPTURE_STREAMS; i++) {
        capture->streams[i] = (struct capture_stream){.capture = capture, .in = -1, .out = ours[i]};
        capture->job_ends[i] = -1;
        fine = fine && make_pipe(&capture->streams[i].in, &capture->job_ends[i]);
    }
    fine = fine && capture->job_ended_fd >= 0 && capture->all_sent_fd >= 0;
    failure = fine ? start_threads(capture) : errno;
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

/* What was in the pipe when the job had ended. Others whom it left behind may write for ever. */
static void take_rest(struct capture_stream *stream)
{
    size_t taken = 0, more = 1;

    while (stream->in >= 0 && more > 0 && taken < LEFT_OVER_MAX) {
        more = take_in(stream);
        taken += more;
    }
    if (stream->in >= 0)
        close(stream->in);
    stream->in = -1;
}

void capture_finish(struct capture *capture)
{
    pthread_mutex_lock(&capture->mutex);
    capture->job_ended = true;
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        take_rest(&capture->streams[i]);
    pthread_cond_broadcast(&capture->changed);
    pthread_mutex_unlock(&capture->mutex);
    eventfd_write(capture->job_ended_fd, 1);
}

void capture_say(struct capture *capture, const char *format, ...)
{
    char line[LINE_MAX_BYTES] = "holdfast: ";
    size_t used = strlen(line), room = sizeof line - used - 1;
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(line + used, room, format, list);
    va_end(list);
    if (length < 0)
        return;
    used += (size_t)length < room ? (size_t)length : room - 1;
    line[used++] = '\n';
    pthread_mutex_lock(&capture->mutex);
    pass_on(&capture->streams[CAPTURE_ERR], line, used);
    pthread_cond_broadcast(&capture->changed);
    pthread_mutex_unlock(&capture->mutex);
}

/* The next signal that asks us to end, or 0. Stops us meanwhile if that is asked. */
static int take_ending(struct signals *signals)
{
    int number;

    while ((number = signals_take(signals)) != 0) {
        if (number == SIGTSTP)
            signals_stop(SIGTSTP, false);
        if (signals_ends(number))
            return number;
    }
    return 0;
}

/* False: a signal came that asks us to end, and it was not all passed on in time, or another came. */
static bool await_readers(struct capture *capture, struct signals *signals, bool told,
                          int *ret_signal)
{
    struct pollfd fds[] = {{.fd = capture->all_sent_fd, .events = POLLIN},
                           {.fd = signals->fd, .events = POLLIN}};
    int64_t end_ms = told ? clock_after(clock_boot_ms(), CAPTURE_PASS_ON_MS) : CLOCK_NEVER;

    *ret_signal = 0;
    for (;;) {
        int64_t left_ms = end_ms - clock_boot_ms();
        int number, ready = poll(fds, 2,
                                 end_ms == CLOCK_NEVER ? -1
                                 : left_ms > 0         ? (int)left_ms
                                                       : 0);

        if (ready > 0 && fds[0].revents)
            return true;
        while ((number = take_ending(signals)) != 0) {
            bool second = told || *ret_signal != 0;

            *ret_signal = number;
            if (second)
                return false;
            end_ms = clock_after(clock_boot_ms(), CAPTURE_PASS_ON_MS);
        }
        if (end_ms != CLOCK_NEVER && clock_boot_ms() >= end_ms)
            return false;
    }
}

int capture_pass_on(struct capture *capture, struct signals *signals, int told)
{
    int number;

    close_streams(capture);
    if (!await_readers(capture, signals, told != 0, &number))
        return number != 0 ? number : told;
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        pthread_join(capture->streams[i].thread, NULL);
    return number;
}

int capture_failure(const struct capture *capture)
{
    for (int i = 0; i < CAPTURE_STREAMS; i++)
        if (is_missing(&capture->streams[i]))
            return capture->streams[i].failure;
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
