/* follow.h: printing changes of holder until somebody stops us or nobody reads. */
#ifndef CLI_FOLLOW_H
#define CLI_FOLLOW_H

#include "cli/cli.h"

/* Calls fn on this thread, at the start and after every change. Returns the exit status: only when
 * the reader of our output went away, or on a failure. */
int follow(struct cli *cli, const char *name, hf_observer_fn *fn, void *arg);

#endif
