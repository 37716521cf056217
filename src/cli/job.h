/* job.h: a child in a process group of its own that does not outlive us unlocked, and the
 * terminal's place in that. Knows nothing of locks. */
#ifndef CLI_JOB_H
#define CLI_JOB_H

#include "cli/signals.h"

#include <stdbool.h>
#include <sys/types.h>

struct job {
    pid_t pid; /* of the child, and of its group; 0: none */
    bool ended;
    int wait_status; /* once ended */
    int stopped_by;  /* a signal while it is stopped, else 0 */
    int terminal;    /* a descriptor of the controlling terminal, or -1 */
    bool foreground; /* we gave it the terminal */
};

/* Starts argv (searched in PATH) with envp. outputs: descriptors above 2 to be its stdout and stderr, or
 * NULL: it has ours. 0, or the errno of what could not be done; then there is no child. */
int job_start(struct job *job, char *const *argv, char *const *envp, const int outputs[2],
              const struct signals *signals);
/* To the whole group. */
void job_signal(const struct job *job, int number);
/* Takes note of what happened to the child, after SIGCHLD. */
void job_look(struct job *job);
/* What a terminal user expects when the job stopped: we stop too, and return when continued; or
 * the job gets the terminal it asked for and goes on. */
void job_follow_stop(struct job *job);
/* Lets a stopped job go on, in the foreground if that is where we are. */
void job_continue(struct job *job);
/* Takes the terminal back. */
void job_finish(struct job *job);
/* From now on what the job started and left behind comes to us when its parent ends, so that we hear
 * of its end, and nobody leaves zombies about. */
void job_adopt_orphans(bool yes);
/* Whether any process of the group is left after the child has ended. */
bool job_has_remains(const struct job *job);

#endif
