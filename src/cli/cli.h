/* cli.h: what all commands share.
 *
 * main.c is a table of commands; each command is one file with one function that takes the parsed
 * global options and its own words, and returns an exit status. Nothing here is a second API: the
 * commands use holdfast.h as any program would. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <holdfast/holdfast.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses besides the child's own. They are part of the interface: see holdfast(1). */
enum exit_status {
    EXIT_DONE = 0,
    EXIT_NOT = 1,          /* check: stale; unlock, renew: not held; leader: nobody */
    EXIT_USAGE = 64,       /* also what this store cannot do */
    EXIT_UNAVAILABLE = 69, /* store unreachable, outcome unknown, disk full or failing */
    EXIT_OURS = 70,        /* our fault */
    EXIT_BUSY = 75,        /* not acquired in time */
    EXIT_LOST = 76,        /* lost before the child ended */
    EXIT_REFUSED = 77,     /* refused by the store */
    EXIT_WEAK = 78,        /* too weak for --need strict */
    EXIT_CANNOT_RUN = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128 /* + n */
};

struct command;

#define CLI_URLS_MAX 8u

struct cli {
    const char *url; /* the last --on, or NULL: the library looks at HOLDFAST_URL itself */
    const char *urls[CLI_URLS_MAX]; /* every --on, for a command that takes several */
    size_t url_count;               /* may be more than there is room for */
    bool json;
    bool quiet; /* -q: nothing is said but what went wrong */
    const struct command *command;
    hf_store *store; /* opened by cli_open, closed by main */
};

static inline void cli_take_url(struct cli *cli, const char *url)
{
    cli->url = url;
    if (cli->url_count < CLI_URLS_MAX)
        cli->urls[cli->url_count] = url;
    cli->url_count++;
}

/* Opens the store in effect. On failure says why and returns the exit status, else 0. */
int cli_open(struct cli *cli);

/* The command ends without success. Where a shell evaluates our output, prints what fails there, too: eval "" succeeds,
 * and the script would go on without the lock. To be called by whoever ends us by a signal; else main does. */
void cli_fail_eval(const struct cli *cli, int status);

/* ---- the commands, one file each --------------------------------------------------------------
 */

extern const struct command command_run, command_lock, command_renew, command_unlock, command_elect,
    command_leader, command_check, command_ls, command_show, command_watch, command_break,
    command_floor, command_stores, command_cluster, command_guard, command_once, command_progress,
    command_top, command_user, command_bench;

#endif
