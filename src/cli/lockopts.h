/* lockopts.h: the options that run, elect and lock share: how to take a lock. */
#ifndef CLI_LOCKOPTS_H
#define CLI_LOCKOPTS_H

#include "cli/acquire.h"
#include "cli/args.h"

/* Rows for a command's table. The ids are what lockopts_take understands. */
enum lockopts_id {
    OPT_NO_WAIT = 'n',
    OPT_WAIT = 'w',
    OPT_SHARED = 's',
    OPT_EXCLUSIVE = 'x',
    OPT_CONFLICT = 'E',
    OPT_VERBOSE = 'v',
    OPT_QUIET = 'q',
    OPT_TTL = 256,
    OPT_PERMITS,
    OPT_OWNER,
    OPT_NEED,
    OPT_DELAY,
    OPT_OWN /* a command's own ids start here */
};

/* clang-format off */
#define LOCKOPTS_WAITING \
    {OPT_NO_WAIT, "no-wait", NULL, "do not wait: exit with 75 if it is taken"}, \
    {OPT_WAIT, "wait", "DUR", "wait at most DUR (default: as long as it takes)"}, \
    {OPT_SHARED, "shared", NULL, "a shared lock: many readers, no writer"}, \
    {OPT_EXCLUSIVE, "exclusive", NULL, "an exclusive lock (the default)"}, \
    {OPT_PERMITS, "permits", "N", "one of N permits; everybody must use the same N"}, \
    {OPT_CONFLICT, "conflict-exit-code", "N", "exit with N instead of 75 when not acquired"}, \
    {OPT_NO_WAIT, "nonblock", NULL, NULL}, {OPT_NO_WAIT, "nb", NULL, NULL}, \
    {OPT_WAIT, "timeout", "DUR", NULL}
#define LOCKOPTS_HOLDING \
    {OPT_TTL, "ttl", "DUR", "lease: how long the lock outlives a holder that vanishes (100ms to 24h)"}, \
    {OPT_DELAY, "delay", "DUR", "after a lease has expired, give the lock to nobody for DUR"}, \
    {OPT_OWNER, "owner", "TEXT", "label that others see (default: user, host, program, pid)"}, \
    {OPT_NEED, "need", "strict|best-effort", "refuse a store that is only best effort (exit status 78)"}, \
    {OPT_VERBOSE, "verbose", NULL, "say what happens"}, \
    {OPT_QUIET, "quiet", NULL, "do not print who holds it, while waiting or when busy, nor warnings"}
/* clang-format on */

struct lockopts {
    hf_options options;
    int conflict_status;
    bool verbose, quiet, no_wait;
};

#define LOCKOPTS_INIT                                            \
    (struct lockopts)                                            \
    {                                                            \
        .options = HF_OPTIONS_INIT, .conflict_status = EXIT_BUSY \
    }

/* True if `id` was one of the shared options; *ret_status is EXIT_USAGE if its value was wrong (and
 * has been said so), else 0. */
bool lockopts_take(struct lockopts *opts, const struct args *args, int id, int *ret_status);
/* After the store is open: what can be seen to be wrong before asking it. 0 or an exit status. */
int lockopts_check(const struct lockopts *opts, const struct args *args, hf_store *store);
/* "user@host program[pid]", as the library would say of itself, but about the program we run. */
void lockopts_owner(char ret_text[HF_OWNER_MAX + 1], const char *program);

/* The whole way to a lock, with the words when there is none. -1 with the lock, else the exit
 * status, which may well be 0: -E 0. */
int lockopts_acquire(const struct lockopts *opts, struct cli *cli, const char *name,
                     struct signals *signals, hf_lock **ret_lock);

#endif
