/* supervise.h: a job under a lock: runs it, forwards signals, and stops it before the lock can be
 * somebody else's. Shared by run, elect and once. */
#ifndef CLI_SUPERVISE_H
#define CLI_SUPERVISE_H

#include "cli/capture.h"
#include "cli/heartbeat.h"

#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdint.h>

enum on_lost { ON_LOST_TERM, ON_LOST_KILL, ON_LOST_IGNORE };

struct supervision {
    hf_lock *lock; /* borrowed */
    struct signals *signals;
    char *const *argv, *const *envp;
    struct capture *capture;     /* of its output, or NULL */
    struct heartbeat *heartbeat; /* its reports of progress, if it sends any */
    int pass_fd;                 /* a copy of the lock for the job, or -1; closed by supervise */
    enum on_lost on_lost;
    int64_t grace_ms;    /* between SIGTERM and SIGKILL */
    int64_t margin_ms;   /* so long before zero goes the SIGKILL: ending a process takes time */
    int64_t granted_ms;  /* clock_boot_ms of the grant */
    int64_t max_hold_ms; /* 0: none; for words only, the library ends it */
    int64_t hold_at_least_ms;
    int64_t warn_after_ms; /* 0: nobody wants to know */
    bool has_ttl;          /* the store's holds run out */
};

struct outcome {
    int failure;     /* errno: the job could not be started */
    int wait_status; /* of the job */
    bool lost;       /* before the job had ended */
    int signal;      /* told to end while only the lock was being held */
    int told;        /* the last signal to end that was passed on to the job, or 0 */
    bool was_foreground;
};

void supervise(const struct supervision *how, struct outcome *ret_outcome);

/* Ctrl-C went to the job's group, not to ours. When it ended the job, whoever runs us (a loop in a
 * script) expects to be interrupted too, as if the job had been in one group with it. */
bool supervise_interrupted(const struct outcome *outcome);

/* The exit status that goes with a wait status: the child's own, or 128 + n. */
int exit_status_of(int wait_status);
/* 126 or 127: of an outcome's failure. */
int status_of_failure(int failure);
/* What to say behind it, or "". */
const char *hint_of_failure(const char *program, int failure);
/* The same, with a line saying why. */
int say_cannot_run(const char *program, int failure);

#endif
