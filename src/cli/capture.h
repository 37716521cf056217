/* capture.h: the output of a job, passed on as it comes, and kept.
 *
 * A thread does it, so that a reader of ours who is slow, or stands still, cannot keep us from looking at
 * the lock. Whoever reads us and goes away does not end the job: what it does is for others, too. */
#ifndef CLI_CAPTURE_H
#define CLI_CAPTURE_H

#include "cli/signals.h"

#include <pthread.h>
#include <stddef.h>

enum { CAPTURE_OUT, CAPTURE_ERR, CAPTURE_STREAMS };

/* Bytes, in memory that grows. */
struct bytes {
    char *at;
    size_t size, capacity;
};

struct capture_stream {
    int in;              /* from the job; -1 at its end */
    int out;             /* our own; -1 when nobody reads it any more */
    struct bytes unsent; /* not passed on yet */
    struct bytes kept;
};

struct capture {
    int job_ends[CAPTURE_STREAMS]; /* for the job to write to; above 2 */
    /* The thread's until it has ended; `kept` and what follows until `all_kept_fd` is readable. */
    struct capture_stream streams[CAPTURE_STREAMS];
    size_t keep_max;
    bool too_much; /* for keep_max: then nothing is kept */
    int job_ended_fd, all_kept_fd, all_sent_fd;
    pthread_t thread;
};

/* 0, or the errno of what could not be had. keep_max: bytes kept of both streams together. */
int capture_begin(struct capture *capture, size_t keep_max);
/* The job has been started, or will not be: its ends are its own. */
void capture_job_has_it(struct capture *capture);
/* The job has ended: all it wrote is kept when this returns true. What it left behind and still writes is
 * not waited for. ret_signal: 0, or the signal that came meanwhile and asks us to end; only with one
 * it may be false. */
bool capture_finish(struct capture *capture, struct signals *signals, int *ret_signal);
/* After that: waits until all is passed on. Returns 0, or the signal that came first. */
int capture_pass_on(struct capture *capture, struct signals *signals);
/* After a signal as well: what is not passed on by then never is. */
void capture_free(struct capture *capture);

#endif
