/* jobopts.h: the options and words that run, elect and once share: what to run and how to stop it. */
#ifndef CLI_JOBOPTS_H
#define CLI_JOBOPTS_H

#include "cli/lockopts.h"
#include "cli/supervise.h"

enum jobopts_id {
    OPT_COMMAND = 'c',
    OPT_CLOSE = 'o',
    OPT_ON_LOST = OPT_OWN,
    OPT_GRACE,
    OPT_MAX_HOLD,
    OPT_PROGRESS,
    OPT_WARN_AFTER,
    OPT_JOB_OWN /* a command's own ids start here */
};

/* clang-format off */
#define JOBOPTS_WATCHING \
    {OPT_PROGRESS, "progress", "DUR", "the job must report progress at least so often, or it loses the lock"}, \
    {OPT_WARN_AFTER, "warn-after", "DUR", "say on stderr that it is held for longer than DUR, and again each time that has doubled"}
#define JOBOPTS \
    {OPT_COMMAND, "command", "TEXT", "run TEXT with the shell ($SHELL, else /bin/sh)"}, \
    {OPT_MAX_HOLD, "max-hold", "DUR", "stop the job so that the lock is released within DUR (exit status 76)"}, \
    {OPT_GRACE, "grace", "DUR", "time between SIGTERM and SIGKILL when the lock is being lost (5s)"}, \
    {OPT_CLOSE, "close", NULL, "file store: do not let the job's descendants keep the lock"}, \
    JOBOPTS_WATCHING
/* clang-format on */

struct jobopts {
    struct lockopts lock;
    const char *name;
    const char *kind;    /* what the name is of; NULL: a lock */
    bool no_command;     /* nothing is to be run */
    char *shell_argv[4]; /* for --command */
    char **argv;
    enum on_lost on_lost;
    int64_t grace_ms;      /* -1: not given */
    int64_t warn_after_ms; /* 0: never */
    bool close;
    char owner[HF_OWNER_MAX + 1];
};

#define JOBOPTS_INIT                          \
    (struct jobopts)                          \
    {                                         \
        .lock = LOCKOPTS_INIT, .grace_ms = -1 \
    }

/* Reads options, NAME and the command to run. `own` (or NULL) is asked about ids that are the
 * command's own; false means it has complained. Returns -1 to go on, else the exit status. */
int jobopts_parse(struct jobopts *opts, struct args *args,
                  bool (*own)(void *context, const struct args *args, int id), void *context);
/* With the store open: settles the grace, and says what cannot be. 0 or an exit status. */
int jobopts_check(struct jobopts *opts, const struct args *args, hf_store *store);

struct job_result {
    struct outcome outcome;
    int status; /* for exit: not 0 when the job could not even be tried */
};

/* The pipe for its reports, if it is to send any. */
int jobopts_heartbeat(const struct jobopts *opts, struct heartbeat *heartbeat,
                      struct error_text *err);
/* Runs the job under the lock, which stays the caller's. envp NULL: the job is not tried, and `made` and *err say why
 * there is none. */
void jobopts_try(const struct jobopts *opts, struct cli *cli, struct supervision *how, char **envp,
                 int made, const struct error_text *err, struct job_result *ret_result);
/* The same, and gives the lock up, whatever happens. */
void jobopts_run(const struct jobopts *opts, struct cli *cli, struct signals *signals,
                 hf_lock *lock, int64_t hold_at_least_ms, struct job_result *ret_result);

#endif
