/* capture.h: the output of a job, passed on as it comes, and kept.
 *
 * A thread for each stream does it: it may hang in a write for as long as our reader stands still (^S at a terminal),
 * and neither we, who look at the lock, nor the other stream wait for it. What the job wrote is kept all the same, since
 * at the job's end it is we who read the rest. Whoever reads us and goes away does not end the job, nor does a disk that
 * is full: what it does is for others, too. */
#ifndef CLI_CAPTURE_H
#define CLI_CAPTURE_H

#include "cli/signals.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { CAPTURE_OUT, CAPTURE_ERR, CAPTURE_STREAMS };

/* Bytes, in memory that grows. */
struct bytes {
    char *at;
    size_t size, capacity;
};

struct capture_stream {
    struct capture *capture;
    int in;              /* from the job, never waits; -1 at its end */
    int out;             /* our own */
    int failure;         /* errno: why no more is passed on (EPIPE: nobody reads it); or 0 */
    struct bytes unsent; /* not passed on yet */
    struct bytes kept;
    pthread_t thread;
    bool ended; /* the thread */
};

struct capture {
    int job_ends[CAPTURE_STREAMS]; /* for the job to write to; above 2 */
    size_t keep_max;
    int job_ended_fd;      /* readable once the job has ended */
    int all_sent_fd;       /* readable once both threads have */
    pthread_mutex_t mutex; /* of the rest */
    pthread_cond_t changed;
    struct capture_stream streams[CAPTURE_STREAMS];
    uint64_t total; /* bytes of both outputs */
    bool too_much;  /* for keep_max: then nothing is kept */
    bool job_ended; /* the threads read no more */
    bool closing;   /* what is unsent is all there will be */
    int running;    /* threads */
};

/* 0, or the errno of what could not be had. keep_max: bytes kept of both streams together. */
int capture_begin(struct capture *capture, size_t keep_max);
/* The job has been started, or will not be: its ends are its own. */
void capture_job_has_it(struct capture *capture);
/* The job has ended: all it wrote is kept when this returns, which it does at once. What it left behind and still
 * writes is not waited for. */
void capture_finish(struct capture *capture);
/* As say, behind what the job wrote to its stderr; and it never waits for whoever reads ours. */
void capture_say(struct capture *capture, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* After capture_finish: waits until all is passed on; after a signal no longer than CAPTURE_PASS_ON_MS, and after
 * a second one no more. told: the signal that was for the job, or 0. Returns 0, or the signal that ends us: one that came
 * since, or `told` if not all could be passed on. */
#define CAPTURE_PASS_ON_MS 2000
int capture_pass_on(struct capture *capture, struct signals *signals, int told);
/* After capture_pass_on returned 0: the errno of what could not be passed on although somebody reads it, or 0. Of
 * standard output it has been said, behind all else. */
int capture_failure(const struct capture *capture);
/* Only when all is passed on; else the threads may still use it. */
void capture_free(struct capture *capture);

#endif
