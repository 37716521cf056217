/* adopt.h: renew and unlock find the hold that `lock` left behind. */
#ifndef CLI_ADOPT_H
#define CLI_ADOPT_H

#include "cli/args.h"

enum { OPT_LEASE = 256, OPT_TOKEN, OPT_ADOPT_TTL };

/* clang-format off */
#define ADOPT_OPTIONS \
    {OPT_LEASE, "lease", "TEXT", "the lease (default: $HOLDFAST_LEASE; others can see it on a command line)"}, \
    {OPT_TOKEN, "token", "N", "the token (default: $HOLDFAST_TOKEN)"}
/* clang-format on */

struct adoption {
    const char *name;
    hf_lock *lock;
};

/* Reads the words, opens the store and adopts. Returns -1 with the lock, else the exit status. */
int adopt(struct cli *cli, struct args *args, struct adoption *ret_adoption);

#endif
