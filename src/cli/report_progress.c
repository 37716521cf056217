/* report_progress.c: holdfast progress, said by a job of `run --progress` */
#include "cli/args.h"
#include "cli/heartbeat.h"
#include "cli/output.h"

#include <signal.h>

enum { OPT_QUIET = 'q' };

static const struct option_spec options[] = {
    {OPT_QUIET, "quiet", NULL, "do not say that nobody asks for reports"},
    {0},
};

static int run(struct cli *cli, struct args *args)
{
    int id;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_QUIET)
            cli->quiet = true;
        else if (id == ARGS_WORD)
            return args_complain(args, "takes no words: it reports to whoever runs this job");
        else
            return args_status(id);
    }
    signal(SIGPIPE, SIG_IGN);
    switch (heartbeat_report()) {
    case HEARTBEAT_REPORTED:
        return EXIT_DONE;
    case HEARTBEAT_INVALID:
        return args_complain(args, "%s and %s are not as 'holdfast run --progress' has set them",
                             HEARTBEAT_FD_NAME, HEARTBEAT_PIPE_NAME);
    case HEARTBEAT_NOBODY:
        if (!cli->quiet)
            say("nobody asks for reports: this is no job of 'holdfast run --progress'");
        return EXIT_NOT;
    case HEARTBEAT_GONE:
        break;
    }
    if (!cli->quiet)
        say("whoever runs this job has ended, or cannot be reached from this process");
    return EXIT_NOT;
}

const struct command command_progress = {
    .name = "progress",
    .summary = "report that the job around it gets on",
    .usage = "[OPTION...]",
    .description = "Said by a job of 'holdfast run --progress DUR' (elect, once), or by a process "
                   "that it has\n"
                   "started, at least once in DUR: the job gets on, and keeps its lock. Without "
                   "that it is not\n"
                   "renewed any more, and is lost. It never waits, and asks no store.",
    .options = options,
    .examples = "  holdfast run import --progress 10m -c 'for f in *.csv; do load \"$f\" && "
                "holdfast progress; done'\n",
    .statuses = "  0 reported      1 nobody asks for reports      64 usage\n",
    .run = run,
};
