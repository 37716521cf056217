/* guard.h: the actions of "holdfast guard", one file each. An action is a command of its own, with
 * its own options and help: "holdfast guard sql --help". */
#ifndef CLI_GUARD_H
#define CLI_GUARD_H

#include "cli/args.h"

#include <holdfast/guard.h>

extern const struct command command_guard_marks, command_guard_reset;

extern const struct command command_guard_redis;

extern const struct command command_guard_sql;

/* --fence DIR and --allow WHAT, of the actions that look after a fence. */
struct fence_words {
    const char *path;
    int allow; /* of enum hf_fence_allow */
};

/* Or-s in what a list such as "tmpfs,writable" names. False: it has said what is wrong. */
bool fence_allow(const struct args *args, int *allow);
/* Opens a fence that there is. On failure says why and returns the exit status, else 0. */
int fence_open_words(const struct args *args, const struct fence_words *words,
                     hf_fence **ret_fence);

#endif
