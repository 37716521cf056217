/* once.c: holdfast once KEY [--] CMD...
 *
 *     begin ──it has been run──▶ replay
 *       │
 *       └─▶ run ──exit──▶ finish: kept ──▶ its exit status
 *            │             └─ refused: 76; not known: 69
 *            ├──cannot be run, or --only-success and it failed──▶ release: the key is free
 *            └──ended by a signal, or lost (76)──▶ likewise; with --if-died fail, it counts as dead */
#include "base/clock.h"
#include "base/text.h"
#include "cli/capture.h"
#include "cli/environment.h"
#include "cli/jobopts.h"
#include "cli/once_show.h"
#include "cli/output.h"
#include "cli/replay.h"
#include "cli/slow.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The library's own limits, to be said. */
#define RELEASE_MS 5000
#define FINISH_MS_MIN 5000
#define FINISH_MS_MAX 15000

enum { OPT_KEEP = OPT_JOB_OWN, OPT_IF_DIED, OPT_ONLY_SUCCESS, OPT_SHOW };

static const struct option_spec options[] = {
    {OPT_KEEP, "keep", "DUR", "how long the result is kept and replayed (24h)"},
    {OPT_IF_DIED, "if-died", "WHAT", "what is done after a run that died: rerun (default) or fail"},
    {OPT_ONLY_SUCCESS, "only-success", NULL, "keep only the result of a run that succeeds"},
    {OPT_NO_WAIT, "no-wait", NULL, "do not wait for a run: exit with 75 while there is one"},
    {OPT_WAIT, "wait", "DUR", "wait at most DUR (default: as long as it takes)"},
    {OPT_CONFLICT, "conflict-exit-code", "N", "exit with N instead of 75 when not finished"},
    {OPT_TTL, "ttl", "DUR", "lease: how long others wait after a run that vanishes (100ms to 24h)"},
    {OPT_OWNER, "owner", "TEXT", "label that others see (default: user, host, program, pid)"},
    {OPT_NEED, "need", "strict|best-effort",
     "refuse a store that is only best effort (exit status 78)"},
    {OPT_COMMAND, "command", "TEXT", "run TEXT with the shell ($SHELL, else /bin/sh)"},
    {OPT_ON_LOST, "on-lost", "WHAT",
     "what is done to the job when the key is lost: term (default), kill or ignore"},
    {OPT_GRACE, "grace", "DUR", "time between SIGTERM and SIGKILL when the key is being lost (5s)"},
    {OPT_CLOSE, "close", NULL, "file store: do not let the job's descendants keep the key"},
    JOBOPTS_WATCHING,
    {OPT_VERBOSE, "verbose", NULL, "say what happens"},
    {OPT_QUIET, "quiet", NULL,
     "do not print who runs it, while waiting or when busy, that it failed before, nor warnings"},
    {OPT_SHOW, "show", NULL, "run nothing: print what is known of KEY (also with --json)"},
    {0},
};

struct wish {
    struct jobopts job;
    int64_t keep_ms;
    bool fail_if_died, only_success, show;
};

static bool take_if_died(struct wish *wish, const struct args *args)
{
    wish->fail_if_died = strcmp(args->value, "fail") == 0;
    if (wish->fail_if_died || strcmp(args->value, "rerun") == 0)
        return true;
    args_complain(args, "--if-died '%s' is not one of rerun, fail", printable(args->value));
    return false;
}

static bool take_own(void *context, const struct args *args, int id)
{
    struct wish *wish = context;

    switch (id) {
    case OPT_KEEP:
        return args_duration(args, "--keep", 1, HF_DURATION_MAX_MS, &wish->keep_ms);
    case OPT_IF_DIED:
        return take_if_died(wish, args);
    case OPT_ONLY_SUCCESS:
        return wish->only_success = true;
    case OPT_SHOW:
        return wish->show = wish->job.no_command = true;
    default:
        return false;
    }
}

/* ---- what has been run ----------------------------------------------------------------------- */

/* 0, or the errno. That nobody reads it is fine: they have what they wanted. */
static int write_out(const char *bytes, size_t size, FILE *to)
{
    int failure = fwrite(bytes, 1, size, to) < size || fflush(to) != 0 ? errno : 0;

    clearerr(to); /* said by us, or not at all */
    return failure == EPIPE ? 0 : failure;
}

/* Output that is missing makes a success none. A failure of the job says more. */
static int status_with(int status, int failure)
{
    return status == EXIT_DONE && failure ? EXIT_UNAVAILABLE : status;
}

/* Else a failure that nobody sees happen looks like one of now, and like one that could be tried again. */
static void say_failed_before(const struct wish *wish, struct cli *cli, const hf_once *once,
                              int status)
{
    char left[64] = "until it is forgotten";
    hf_once *known;

    if (hf_once_read(cli->store, wish->job.name, &known) == HF_OK) {
        if (hf_once_state(known) == HF_ONCE_DONE && hf_once_token(known) == hf_once_token(once))
            snprintf(left, sizeof left, "for another %s", span(hf_once_left_ms(known)));
        hf_once_free(known);
    }
    say("'%s' has been run, with token %llu, and failed with exit status %d: nothing is run now, "
        "that is its result %s; another KEY is run at once, and with --only-success no failure is "
        "kept",
        printable(wish->job.name), (unsigned long long)hf_once_token(once), status, left);
}

static int replay_it(const struct wish *wish, struct cli *cli, const hf_once *once)
{
    struct replay replay;
    size_t size = 0;
    const void *bytes = hf_once_result(once, &size);
    int out_failure, err_failure;

    if (!replay_read(bytes, size, &replay)) {
        say("what is kept of '%s' was not written by 'holdfast once', and cannot be replayed",
            printable(wish->job.name));
        return EXIT_REFUSED;
    }
    if (wish->job.lock.verbose)
        say("'%s' has been run, with token %llu: replaying that", printable(wish->job.name),
            (unsigned long long)hf_once_token(once));
    if (replay
            .left_out) /* also with --quiet: that there is no output must not look like the output */
        say("'%s' has been run, with token %llu and exit status %d; its output was too long to be "
            "kept",
            printable(wish->job.name), (unsigned long long)hf_once_token(once), replay.status);
    if (replay.status != 0 && !wish->job.lock.quiet)
        say_failed_before(wish, cli, once, replay.status);
    out_failure = write_out(replay.out, replay.out_size, stdout);
    err_failure = write_out(replay.err, replay.err_size, stderr);
    if (out_failure)
        say("cannot write the output: %s", strerror(out_failure));
    return status_with(replay.status, out_failure ? out_failure : err_failure);
}

/* ---- running it ------------------------------------------------------------------------------ */

/* The job has ended, and whoever waits for us sees nothing happen while the store is away. doing: in words, with what is done to the key.
 * Over with slow_end. */
static void begin_settling(struct slow *slow, const struct wish *wish, const struct cli *cli,
                           struct capture *capture, const char *doing, int64_t limit_ms)
{
    *slow = (struct slow){0};
    if (!wish->job.lock.quiet)
        slow_begin_captured(slow, cli, capture, doing, "no answer", limit_ms);
}

/* Nothing is kept: the key is free, unless it is lost already. */
static void give_up(const struct wish *wish, const struct cli *cli, hf_once *once,
                    struct capture *capture, const char *why)
{
    uint64_t token = hf_once_token(once);
    struct slow slow;
    char doing[640];
    int result;

    snprintf(doing, sizeof doing, "releasing '%.600s'", printable(wish->job.name));
    begin_settling(&slow, wish, cli, capture, doing, RELEASE_MS);
    result = hf_once_release(once);
    slow_end(&slow);
    if (result != HF_OK && result != HF_ELOST)
        capture_say(capture,
                    "could not release '%s' (%s); others may run it when its lease has expired",
                    printable(wish->job.name), hf_error());
    else if (wish->job.lock.verbose)
        capture_say(capture, "nothing is kept of '%s', token %llu: %s", printable(wish->job.name),
                    (unsigned long long)token, why);
}

/* What it has done is not known: it may be run again, unless that must not be. A store with a TTL knows of no death before the
 * lease has run out: nobody but the runner's lease says that there is one. */
static void give_up_doubtful(const struct wish *wish, const struct cli *cli, hf_once *once,
                             struct capture *capture, const char *why)
{
    int64_t left_ms = hf_once_left_ms(once); /* 0: it was lost; without a TTL, unlimited */
    char when[64] = "";

    if (!wish->fail_if_died) {
        give_up(wish, cli, once, capture, why);
        return;
    }
    if ((hf_info(cli->store)->features & HF_HAS_TTL) && left_ms > 0)
        snprintf(when, sizeof when, " when its lease has run out, in about %s", span(left_ms));
    capture_say(capture, "nothing is kept of '%s', token %llu: %s; it counts as dead%s",
                printable(wish->job.name), (unsigned long long)hf_once_token(once), why, when);
    hf_once_abandon(once);
}

/* When the lease of a run that nobody renews any more has expired. While a store is away its leases may stand still, so there is
 * no time from now on. */
static void describe_expiry(const struct cli *cli, const char *whose, int64_t ttl_ms, int result,
                            char *ret_text, size_t size)
{
    bool away = result == HF_EUNREACH || result == HF_EUNKNOWN;

    ret_text[0] = '\0';
    if (hf_info(cli->store)->features & HF_HAS_TTL)
        snprintf(ret_text, size, " when %s lease has expired, %s %s at the latest", whose,
                 span(ttl_ms), away ? "after the store is back" : "from now");
}

/* The result of a run that is over could not be kept, and the command may be run again: what matters to its caller. */
static void say_not_kept(const struct wish *wish, const struct cli *cli, struct capture *capture,
                         int result, const char *why)
{
    int64_t ttl_ms = wish->job.lock.options.ttl_ms;
    const char *unless = result == HF_EUNKNOWN ? "if it is not, "
                         : result == HF_ESTALE ? "unless somebody else has run it since, "
                                               : "";
    char when[128] = "";

    if (result != HF_ESTALE) /* then the lease is over already */
        describe_expiry(cli, wish->fail_if_died ? "its" : "this run's",
                        ttl_ms > 0 ? ttl_ms : hf_info(cli->store)->ttl_ms, result, when,
                        sizeof when);
    if (wish->fail_if_died)
        capture_say(capture,
                    "%s; %sthis run counts as dead%s, and with --if-died fail the command is not "
                    "run again",
                    why, unless, when);
    else
        capture_say(capture, "%s; %sthe next call runs the command again%s", why, unless, when);
}

static int64_t finish_limit_ms(const hf_once *once)
{
    int64_t left_ms = hf_once_left_ms(once);

    return left_ms < FINISH_MS_MIN   ? FINISH_MS_MIN
           : left_ms < FINISH_MS_MAX ? left_ms
                                     : FINISH_MS_MAX;
}

/* Stores what came out. 0, or the exit status that takes the place of the job's. */
static int keep(const struct wish *wish, const struct cli *cli, hf_once *once,
                struct capture *capture, int status)
{
    const struct bytes *out = &capture->streams[CAPTURE_OUT].kept;
    const struct bytes *err = &capture->streams[CAPTURE_ERR].kept;
    struct replay replay = {.status = status, .left_out = capture->too_much};
    static char bytes[HF_ONCE_RESULT_MAX];
    struct slow slow;
    char doing[640];
    int result;

    if (!capture->too_much) {
        replay.out = out->at;
        replay.out_size = out->size;
        replay.err = err->at;
        replay.err_size = err->size;
    }
    replay_write(&replay, bytes);
    snprintf(doing, sizeof doing, "keeping the result of '%.600s'", printable(wish->job.name));
    begin_settling(&slow, wish, cli, capture, doing, finish_limit_ms(once));
    result = hf_once_finish(once, bytes, REPLAY_HEADER + replay.out_size + replay.err_size,
                            wish->keep_ms);
    slow_end(&slow);
    if (result == HF_OK) {
        if (wish->job.lock.verbose)
            capture_say(capture, "'%s' is done with exit status %d, which is kept for %s%s",
                        printable(wish->job.name), status, span(wish->keep_ms),
                        capture->too_much ? ", but not its output" : "");
        if (capture->too_much && !wish->job.lock.quiet)
            capture_say(capture,
                        "%llu bytes of output are more than the %d that are kept of '%s': whoever "
                        "asks later gets none of it, only the exit status",
                        (unsigned long long)capture->total, REPLAY_OUTPUT_MAX,
                        printable(wish->job.name));
        return 0;
    }
    say_not_kept(wish, cli, capture, result, hf_error());
    return result == HF_ESTALE ? EXIT_LOST : status_of(result);
}

/* Was it told to end, and did? A job that obeys a signal need not die by it. */
static bool was_stopped(const struct outcome *outcome)
{
    return WIFSIGNALED(outcome->wait_status) ||
           (outcome->told != 0 && exit_status_of(outcome->wait_status) != 0);
}

/* The job has ended, or was not started. Frees once. The exit status. */
static int settle(const struct wish *wish, const struct cli *cli, hf_once *once,
                  const struct job_result *run, struct capture *capture)
{
    int failure = run->status == 0 ? run->outcome.failure : 0, instead;
    int status = run->status ? run->status
                 : failure   ? status_of_failure(failure)
                             : exit_status_of(run->outcome.wait_status);

    if (failure)
        capture_say(capture, "cannot run '%s': %s%s", printable(wish->job.argv[0]),
                    strerror(failure), hint_of_failure(wish->job.argv[0], failure));
    if (run->status != 0 || failure != 0) {
        give_up(wish, cli, once, capture, "it could not be run");
    } else if (run->outcome.lost) {
        give_up_doubtful(wish, cli, once, capture, "it was lost");
        return EXIT_LOST;
    } else if (was_stopped(&run->outcome)) {
        give_up_doubtful(wish, cli, once, capture, "it was ended by a signal");
    } else if (wish->only_success && status != 0) {
        give_up(wish, cli, once, capture, "it failed");
    } else {
        instead = keep(wish, cli, once, capture, status);
        return instead ? instead : status;
    }
    return status;
}

static _Noreturn void die(struct cli *cli, int number, bool group)
{
    hf_close(cli->store);
    signals_die(number, group);
}

static int run_it(const struct wish *wish, struct cli *cli, struct signals *signals, hf_once *once)
{
    struct capture capture;
    struct heartbeat heartbeat;
    struct supervision how = {.lock = hf_once_lock(once),
                              .signals = signals,
                              .capture = &capture,
                              .heartbeat = &heartbeat,
                              .pass_fd = -1};
    struct job_result result;
    struct error_text err;
    int failure = capture_begin(&capture, REPLAY_OUTPUT_MAX), number, status;
    int made;
    char **envp = NULL;

    if (failure) {
        hf_once_release(once);
        say("cannot take the output of '%s': %s", printable(wish->job.argv[0]), strerror(failure));
        return EXIT_UNAVAILABLE;
    }
    if (wish->job.lock.verbose)
        say("runs '%s', token %llu, in %s", printable(wish->job.name),
            (unsigned long long)hf_once_token(once), printable(hf_info(cli->store)->where));
    made = jobopts_heartbeat(&wish->job, &heartbeat, &err);
    if (made == HF_OK)
        made = environment_for_once(cli->store, how.lock, &heartbeat, &envp, &err);
    jobopts_try(&wish->job, cli, &how, envp, made, &err, &result);
    environment_free(envp);
    heartbeat_end(&heartbeat);
    capture_job_has_it(&capture);
    capture_finish(&capture);
    /* First the record, then our reader: it may stand still, and a signal end us. */
    status = settle(wish, cli, once, &result, &capture);
    number = capture_pass_on(&capture, signals, result.outcome.told);
    if (number != 0)
        die(cli, number, false);
    status = status_with(status, capture_failure(&capture));
    capture_free(&capture);
    if (result.status == 0 && result.outcome.failure == 0 && !result.outcome.lost &&
        supervise_interrupted(&result.outcome))
        die(cli, WTERMSIG(result.outcome.wait_status), true);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static hf_once_options once_options_of(const struct wish *wish)
{
    const hf_options *plain = &wish->job.lock.options;
    hf_once_options once = HF_ONCE_OPTIONS_INIT;

    once.ttl_ms = plain->ttl_ms;
    once.owner = plain->owner;
    once.need_strict = plain->need_strict;
    once.progress_ms = plain->progress_ms;
    once.fail_if_died = wish->fail_if_died;
    return once;
}

/* -1 with the answer, else the exit status. */
static int begin(const struct wish *wish, struct cli *cli, struct signals *signals,
                 hf_once **ret_once)
{
    const hf_once_options once = once_options_of(wish);
    struct acquisition wanted = {.store = cli->store,
                                 .name = wish->job.name,
                                 .options = wish->job.lock.options,
                                 .once = &once,
                                 .signals = signals,
                                 .quiet = wish->job.lock.quiet,
                                 .say_busy = true};
    struct error_text err = {""};
    int number = 0, result;

    result = environment_check_nested_once(cli->store, wish->job.name, &err);
    if (result == HF_OK)
        result = acquire_once(&wanted, ret_once, &number, &err);
    if (result == HF_OK)
        return -1;
    if (result == HF_ECANCELED && signals->hurried)
        signals_die(number, false);
    if (result == HF_ECANCELED)
        die(cli, number, false);
    if (result != HF_EBUSY || !wish->job.lock.quiet)
        say_failure(err.text);
    return result == HF_EBUSY   ? wish->job.lock.conflict_status
           : result == HF_ELOST ? EXIT_LOST
                                : status_of(result);
}

static int check(struct wish *wish, const struct args *args, struct cli *cli)
{
    const hf_store_info *info = hf_info(cli->store);

    if (!(info->features & HF_HAS_ONCE))
        return args_complain(args, "%s keeps no once-records ('holdfast stores' says which do)",
                             text_kind(info).text);
    if (wish->job.lock.options.ttl_ms != 0 && !(info->features & HF_HAS_TTL))
        return args_complain(args, "%s has no TTL: a run there ends with its process",
                             text_kind(info).text);
    return wish->show ? 0 : jobopts_check(&wish->job, args, cli->store);
}

/* Else what we open would be taken for them, and written to. */
static void fill_standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

static int run(struct cli *cli, struct args *args)
{
    struct wish wish = {.job = JOBOPTS_INIT, .keep_ms = HF_ONCE_KEEP_MS};
    struct signals signals;
    hf_once *once = NULL;
    int status;

    fill_standard_descriptors();
    wish.job.kind = "key";
    status = jobopts_parse(&wish.job, args, take_own, &wish);
    if (status >= 0)
        return status;
    if (cli->json && !wish.show)
        return args_complain(args, "has --json with --show only: its output is the command's own");
    if (!wish.show && !signals_begin(&signals)) {
        say("cannot set up signal handling: %s", strerror(errno));
        return EXIT_OURS;
    }
    status = cli_open(cli);
    if (status == 0)
        status = check(&wish, args, cli);
    if (status != 0)
        return status;
    if (wish.show)
        return once_show(cli, wish.job.name);
    status = begin(&wish, cli, &signals, &once);
    if (status >= 0)
        return status;
    if (hf_once_runs(once))
        return run_it(&wish, cli, &signals, once);
    pthread_sigmask(SIG_SETMASK, &signals.inherited, NULL); /* nothing depends on us any more */
    status = replay_it(&wish, cli, once);
    hf_once_free(once);
    return status;
}

const struct command command_once = {
    .name = "once",
    .summary = "run a command once, and replay its result",
    .usage = "KEY [OPTION...] [--] CMD [ARG...] | KEY --show",
    .description =
        "Runs CMD unless it has been run for KEY, and keeps its exit status and its output, up to\n"
        "64 KiB, for --keep. Whoever asks meanwhile waits for the result; whoever asks later gets "
        "it\n"
        "at once. If a run dies, CMD is run again; only one result is ever kept. A failure is a "
        "result,\n"
        "too, unless --only-success is given. Nothing removes a result before its time: ask for "
        "another\n"
        "KEY. The command sees HOLDFAST_TOKEN, which whatever it writes to should check, "
        "HOLDFAST_NAME\n"
        "and HOLDFAST_URL.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast once charge:4711 -- charge --amount 20 --order 4711\n"
                "  holdfast once cache:home --keep 5m -- render-home-page\n"
                "  holdfast once mail:4711 --if-died fail -- send-mail 4711\n"
                "  holdfast once charge:4711 --show\n",
    .statuses =
        "  the command's own, now or when it was run (128+n: ended by signal n, which is not "
        "kept;\n"
        "  126, 127: cannot be run, not found)\n"
        "  75 not finished in time       76 lost, refused as stale, or died and --if-died fail\n"
        "  69 store unreachable, or not known whether the result is kept; or the command "
        "succeeded,\n"
        "     and its output could not be written\n"
        "  77 refused by the store       78 too weak for --need    64 usage    70 internal error\n",
    .run = run,
};
