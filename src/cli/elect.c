/* elect.c: holdfast elect NAME [--] CMD... */
#include "base/random.h"
#include "cli/environment.h"
#include "cli/jobopts.h"
#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>

#define RETRY_MS 1000 /* after a store that led us once could not be reached; plus jitter */

static const struct option_spec options[] = {
    LOCKOPTS_HOLDING,
    JOBOPTS,
    {OPT_ON_LOST, "on-lost", "WHAT",
     "what is done to the command when leadership is lost: term (default) or kill"},
    {0},
};

/* Sleeps before the next campaign. Ends the process when told to. */
static void pause_or_die(struct cli *cli, struct signals *signals)
{
    struct pollfd fd = {.fd = signals->fd, .events = POLLIN};
    int number;

    poll(&fd, 1, RETRY_MS + (int)random_below(RETRY_MS));
    while ((number = signals_take(signals)) != 0) {
        if (number == SIGTSTP)
            signals_stop(SIGTSTP, false);
        if (signals_ends(number)) {
            if (!signals->hurried)
                hf_close(cli->store);
            signals_die(number, false);
        }
    }
}

static bool may_pass(int result)
{
    return result == HF_EUNREACH || result == HF_EUNKNOWN || result == HF_EBUSY;
}

/* Returns when elected (HF_OK) or when there is no point in going on. Once we have led, a store
 * that cannot be reached is an outage to sit out, not a mistake in the command line. */
static int campaign(const struct jobopts *opts, struct cli *cli, struct signals *signals,
                    bool has_led, hf_lock **ret_lock)
{
    struct acquisition wanted = {.store = cli->store,
                                 .name = opts->name,
                                 .options = opts->lock.options,
                                 .signals = signals,
                                 .quiet = opts->lock.quiet};
    struct error_text err = {""};
    bool said = false;

    for (;;) {
        int number, result = acquire(&wanted, ret_lock, &number, &err);

        if (result == HF_ECANCELED) {
            if (!signals->hurried)
                hf_close(cli->store);
            signals_die(number, false);
        }
        if (result == HF_OK)
            return 0;
        if (!has_led || !may_pass(result)) {
            say_failure(err.text);
            return status_of(result);
        }
        if (!said)
            say("%s; trying again", err.text);
        said = true;
        pause_or_die(cli, signals);
    }
}

static int run(struct cli *cli, struct args *args)
{
    struct jobopts opts = JOBOPTS_INIT;
    struct error_text err;
    struct signals signals;
    bool has_led = false;
    int status, result;

    status = jobopts_parse(&opts, args, NULL, NULL);
    if (status >= 0)
        return status;
    if (opts.on_lost == ON_LOST_IGNORE)
        return args_complain(args,
                             "--on-lost ignore would allow two leaders at once: use term or kill");
    if (!signals_begin(&signals)) {
        say("cannot set up signal handling: %s", strerror(errno));
        return EXIT_OURS;
    }
    status = cli_open(cli);
    if (status == 0)
        status = jobopts_check(&opts, args, cli->store);
    if (status != 0)
        return status;
    result = environment_check_nested(cli->store, opts.name, &err);
    if (result != HF_OK) {
        say_failure(err.text);
        return status_of(result);
    }
    for (;;) {
        struct job_result led;
        hf_lock *mandate;

        status = campaign(&opts, cli, &signals, has_led, &mandate);
        if (status != 0)
            return status;
        has_led = true;
        if (opts.lock.verbose)
            say("leads '%s', token %llu", printable(opts.name),
                (unsigned long long)hf_lock_token(mandate));
        jobopts_run(&opts, cli, &signals, mandate, 0, &led);
        if (led.status != 0)
            return led.status;
        if (supervise_interrupted(&led.outcome)) {
            hf_close(cli->store);
            signals_die(WTERMSIG(led.outcome.wait_status), true);
        }
        if (!led.outcome.lost) /* the command ended by itself: it resigns */
            return exit_status_of(led.outcome.wait_status);
        if (led.outcome.told != 0) { /* lost and told to end: then this is the end */
            hf_close(cli->store);
            signals_die(led.outcome.told, false);
        }
        if (!opts.lock.quiet)
            say("no longer leads '%s'; campaigning again", printable(opts.name));
    }
}

const struct command command_elect = {
    .name = "elect",
    .summary = "run a command whenever this process is the leader",
    .usage = "NAME [OPTION...] [--] CMD [ARG...]",
    .description =
        "Campaigns for NAME and runs CMD while it is the leader. When leadership is lost, CMD is\n"
        "stopped in time and the campaign starts again. When CMD ends by itself, leadership is\n"
        "released, and its exit status is ours. 'holdfast leader NAME' prints the leader.",
    .options = options,
    .examples = "  holdfast --on file:/srv/locks elect scheduler -- scheduler --serve\n"
                "  holdfast leader scheduler --follow\n",
    .statuses = "  the command's own; 69, 77, 78, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
