/* heartbeat.h: reports of a job's progress, which come through a pipe (--progress). Of the line about a call that takes
 * long, see progress.h. */
#ifndef CLI_HEARTBEAT_H
#define CLI_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

struct heartbeat {
    int64_t every_ms; /* the job must report that often; 0: there is no pipe */
    int64_t heard_ms; /* clock_boot_ms of the last report, or of the beginning */
    int64_t
        rest_ms; /* until then nothing is read, so that a job that writes all the time costs little */
    int in;      /* never waits */
    int out;     /* ours: it keeps the pipe open, and is found by `holdfast progress` */
    int job_end;    /* the job's: inherited; -1 once it has it */
    uint64_t inode; /* of the pipe */
};

#define HEARTBEAT_NONE                     \
    (struct heartbeat)                     \
    {                                      \
        .in = -1, .out = -1, .job_end = -1 \
    }

/* 0, or the errno of what could not be had. every_ms 0: makes none. */
int heartbeat_begin(struct heartbeat *heartbeat, int64_t every_ms);
/* The job has been started, or will not be: its end is its own. */
void heartbeat_job_has_it(struct heartbeat *heartbeat);
void heartbeat_end(struct heartbeat *heartbeat);
/* The descriptor to wait for, or -1: not now. */
int heartbeat_fd(const struct heartbeat *heartbeat, int64_t now_ms);
/* When to ask for that again; CLOCK_NEVER: it is as it stays. */
int64_t heartbeat_next_ms(const struct heartbeat *heartbeat, int64_t now_ms);
/* Takes what has come, at most what a pipe holds. True: the job has reported. */
bool heartbeat_take(struct heartbeat *heartbeat, int64_t now_ms);

/* What the job finds in its environment: the descriptor that it has inherited; and where the pipe is, for those of its
 * children that have not. */
#define HEARTBEAT_FD_NAME "HOLDFAST_PROGRESS_FD"
#define HEARTBEAT_PIPE_NAME "HOLDFAST_PROGRESS_PIPE"
#define HEARTBEAT_TEXT_MAX 64
void heartbeat_describe(const struct heartbeat *heartbeat, char ret_fd[HEARTBEAT_TEXT_MAX],
                        char ret_pipe[HEARTBEAT_TEXT_MAX]);

enum heartbeat_answer {
    HEARTBEAT_REPORTED,
    HEARTBEAT_NOBODY, /* the environment names no pipe */
    HEARTBEAT_GONE,   /* whoever asked for reports has ended, or cannot be reached from here */
    HEARTBEAT_INVALID /* what the environment says cannot be */
};
/* Reports to whoever runs us with --progress. Never waits: where a pipe is full, a report is under way already. */
enum heartbeat_answer heartbeat_report(void);

#endif
