/* run.c: holdfast run NAME [--] CMD... */
#include "cli/jobopts.h"
#include "cli/output.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

enum { OPT_HOLD_AT_LEAST = OPT_JOB_OWN };

static const struct option_spec options[] = {
    LOCKOPTS_WAITING,
    LOCKOPTS_HOLDING,
    JOBOPTS,
    {OPT_ON_LOST, "on-lost", "WHAT",
     "what is done to the job when the lock is lost: term (default), kill or ignore"},
    {OPT_HOLD_AT_LEAST, "hold-at-least", "DUR",
     "hold the lock for at least DUR (for cron on hosts whose clocks differ)"},
    {0},
};

static bool take_own(void *context, const struct args *args, int id)
{
    int64_t *hold_at_least_ms = context;

    return id == OPT_HOLD_AT_LEAST &&
           args_duration(args, "--hold-at-least", 0, HF_DURATION_MAX_MS, hold_at_least_ms);
}

static int finish(struct cli *cli, const struct job_result *result)
{
    const struct outcome *outcome = &result->outcome;

    if (result->status != 0)
        return result->status;
    if (outcome->signal != 0) {
        hf_close(cli->store);
        signals_die(outcome->signal, false);
    }
    if (outcome->lost)
        return EXIT_LOST;
    if (supervise_interrupted(outcome)) {
        hf_close(cli->store);
        signals_die(WTERMSIG(outcome->wait_status), true);
    }
    return exit_status_of(outcome->wait_status);
}

static int run(struct cli *cli, struct args *args)
{
    struct jobopts opts = JOBOPTS_INIT;
    int64_t hold_at_least_ms = 0;
    struct job_result result;
    struct signals signals;
    hf_lock *lock;
    int status;

    status = jobopts_parse(&opts, args, take_own, &hold_at_least_ms);
    if (status >= 0)
        return status;
    if (opts.lock.options.max_hold_ms > 0 && hold_at_least_ms > opts.lock.options.max_hold_ms)
        return args_complain(args, "--hold-at-least is longer than --max-hold");
    if (!signals_begin(&signals)) {
        say("cannot set up signal handling: %s", strerror(errno));
        return EXIT_OURS;
    }
    status = cli_open(cli);
    if (status == 0)
        status = jobopts_check(&opts, args, cli->store);
    if (status != 0)
        return status;
    status = lockopts_acquire(&opts.lock, cli, opts.name, &signals, &lock);
    if (status >= 0)
        return status;
    jobopts_run(&opts, cli, &signals, lock, hold_at_least_ms, &result);
    return finish(cli, &result);
}

const struct command command_run = {
    .name = "run",
    .summary = "run a command under a lock",
    .usage = "NAME [OPTION...] [--] CMD [ARG...]",
    .description =
        "Waits for the lock NAME, runs CMD, and releases the lock. The command sees "
        "HOLDFAST_NAME,\n"
        "HOLDFAST_TOKEN (the fencing token: pass it on to whatever the command writes to),\n"
        "HOLDFAST_SEQUENCER and HOLDFAST_URL. It is stopped before anybody else can get the lock.",
    .options = options,
    .examples = "  holdfast run nightly -- /usr/local/bin/backup --full\n"
                "  holdfast run -n nightly -- backup          # skip if it is still running\n"
                "  holdfast run nightly -w 5m -c 'dump | gzip > dump.gz'\n"
                "  holdfast run reminder --hold-at-least 1m -- send-mail\n"
                "  holdfast run --permits 3 downloads -- fetch\n",
    .statuses =
        "  the command's own (128+n: ended by signal n; 126, 127: cannot be run, not found)\n"
        "  75 not acquired in time       76 lost before the command ended\n"
        "  69 store unreachable          77 refused by the store\n"
        "  78 too weak for --need        64 usage          70 internal error\n",
    .run = run,
};
