#include "cli/jobopts.h"
#include "base/clock.h"
#include "cli/environment.h"
#include "cli/output.h"
#include "cli/slow.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRACE_DEFAULT_MS 5000
#define MARGIN_MAX_MS 50
#define PROGRESS_MS_MIN 100
#define STALL_MS_MAX 30000 /* the library's: how long a silent job has on a store without TTL */
/* hf_release's own limits, to be said: for its own question, and for a renewal that is under way, which it lets end first. */
#define RELEASE_MS 5000
#define RENEWAL_MS_MAX 5000
#define RENEWAL_TTL_PART 5
#define MARGIN_MIN_MS 5
/* Scripts like to use small descriptors for themselves; one that does `exec 3>log` must not throw
 * away its lock by that. */
#define PASSED_FD_MIN 100

static bool take_on_lost(struct jobopts *opts, const struct args *args)
{
    static const char *const words[] = {"term", "kill", "ignore"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(args->value, words[i]) == 0) {
            opts->on_lost = (enum on_lost)i;
            return true;
        }
    args_complain(args, "--on-lost '%s' is not one of term, kill, ignore", printable(args->value));
    return false;
}

static bool take_job_option(struct jobopts *opts, const struct args *args, int id, bool *ret_fine)
{
    switch (id) {
    case OPT_COMMAND:
        opts->shell_argv[2] = (char *)args->value; /* argv is never written to */
        *ret_fine = true;
        return true;
    case OPT_CLOSE:
        opts->close = true;
        *ret_fine = true;
        return true;
    case OPT_ON_LOST:
        *ret_fine = take_on_lost(opts, args);
        return true;
    case OPT_GRACE:
        *ret_fine = args_duration(args, "--grace", 0, HF_DURATION_MAX_MS, &opts->grace_ms);
        return true;
    case OPT_MAX_HOLD:
        *ret_fine = args_duration(args, "--max-hold", HF_TTL_MIN_MS, HF_DURATION_MAX_MS,
                                  &opts->lock.options.max_hold_ms);
        return true;
    case OPT_PROGRESS:
        *ret_fine = args_duration(args, "--progress", PROGRESS_MS_MIN, HF_DURATION_MAX_MS,
                                  &opts->lock.options.progress_ms);
        return true;
    case OPT_WARN_AFTER:
        *ret_fine =
            args_duration(args, "--warn-after", 1, HF_DURATION_MAX_MS, &opts->warn_after_ms);
        return true;
    default:
        return false;
    }
}

static int settle_command(struct jobopts *opts, const struct args *args, char **words)
{
    const char *shell = getenv("SHELL");

    if (!opts->name)
        return args_complain(args, "which %s? usage: holdfast %s %s",
                             opts->kind ? opts->kind : "lock", args->command->name,
                             args->command->usage);
    if (opts->kind ? !args_key(args, opts->name) : !args_name(args, opts->name))
        return EXIT_USAGE;
    if (opts->no_command)
        return *words || opts->shell_argv[2]
                   ? args_complain(args, "runs nothing like this: leave the command out")
                   : -1;
    if (opts->shell_argv[2] && !*opts->shell_argv[2])
        return args_complain(args, "--command is empty: which command?");
    if (opts->shell_argv[2]) {
        if (*words)
            return args_complain(args, "--command runs alone: '%s' is one word too many",
                                 printable(*words));
        opts->shell_argv[0] = (char *)(shell && *shell ? shell : "/bin/sh");
        opts->shell_argv[1] = (char *)"-c";
        opts->argv = opts->shell_argv;
        return -1;
    }
    if (!*words)
        return args_complain(args, "which command? usage: holdfast %s %s", args->command->name,
                             args->command->usage);
    opts->argv = words;
    return -1;
}

/* Of "run -- echo hello" the name was forgotten: 'hello' is hardly a command under a lock 'echo'. */
static int settle_literal(struct jobopts *opts, struct args *args)
{
    char **next = args->words + args->at;

    if (opts->name[0] != '-' && (!*next || strcmp(*next, "--") != 0))
        return args_complain(args,
                             "which lock? before '--' there is no NAME; usage: holdfast %s %s",
                             args->command->name, args->command->usage);
    return settle_command(opts, args, args_rest(args));
}

int jobopts_parse(struct jobopts *opts, struct args *args,
                  bool (*own)(void *context, const struct args *args, int id), void *context)
{
    for (;;) {
        int id = args_next(args), status;
        bool fine;

        if (id == ARGS_WORD && !opts->name) {
            opts->name = args->value;
            if (args->literal) /* "run -- -name cmd": what follows is the command */
                return settle_literal(opts, args);
            continue;
        }
        if (id == ARGS_WORD) { /* the command begins: its options are its own */
            args->at--;
            return settle_command(opts, args, args->words + args->at);
        }
        if (id == ARGS_END)
            return settle_command(opts, args, args->words + args->at);
        if (id < 0)
            return args_status(id);
        if (lockopts_take(&opts->lock, args, id, &status))
            fine = status == 0;
        else if (!take_job_option(opts, args, id, &fine))
            fine = own && own(context, args, id);
        if (!fine)
            return EXIT_USAGE;
    }
}

/* A renewal is due after a third of the TTL, and is given a fifth: what came of the first is known, and can be said, before the job
 * is stopped because of it. Half of the TTL is over before that. */
static int64_t default_grace_ms(int64_t limit)
{
    int64_t part = limit / 5 * 2;

    return limit > 0 && part < GRACE_DEFAULT_MS ? part : GRACE_DEFAULT_MS;
}

/* The time within which the job must be stopped: the lease or the longest hold, whichever is
 * shorter, or without a lease what is left when a report is missing; 0 when nothing ends it by itself. */
static int64_t limit_ms(const struct jobopts *opts, hf_store *store)
{
    const hf_store_info *info = hf_info(store);
    int64_t limit = opts->lock.options.max_hold_ms, ttl_ms = 0;

    if (info->features & HF_HAS_TTL)
        ttl_ms = opts->lock.options.ttl_ms ? opts->lock.options.ttl_ms : info->ttl_ms;
    else if (opts->lock.options.progress_ms > 0)
        ttl_ms = opts->lock.options.progress_ms < STALL_MS_MAX ? opts->lock.options.progress_ms
                                                               : STALL_MS_MAX;
    if (ttl_ms > 0 && (limit == 0 || ttl_ms < limit))
        limit = ttl_ms;
    return limit;
}

int jobopts_check(struct jobopts *opts, const struct args *args, hf_store *store)
{
    int64_t limit = limit_ms(opts, store);
    int status = lockopts_check(&opts->lock, args, store);

    if (status != 0)
        return status;
    if (opts->grace_ms >= 0 && limit > 0 && opts->grace_ms > limit / 2)
        return args_complain(args, "--grace %s is more than half of the %s that the lock may last",
                             span(opts->grace_ms), span(limit));
    if (opts->grace_ms < 0)
        opts->grace_ms = default_grace_ms(limit);
    if (!opts->lock.options.owner) {
        lockopts_owner(opts->owner, opts->argv[0]);
        opts->lock.options.owner = opts->owner;
    }
    return 0;
}

static int64_t margin_ms(int64_t limit)
{
    int64_t margin = limit / 20;

    return margin > MARGIN_MAX_MS ? MARGIN_MAX_MS : margin < MARGIN_MIN_MS ? MARGIN_MIN_MS : margin;
}

static int descriptor_for_job(const struct jobopts *opts, hf_store *store, hf_lock *lock,
                              int *ret_fd)
{
    int fd, high, result;

    *ret_fd = -1;
    if (opts->close || !(hf_info(store)->features & HF_HAS_PASS_FD))
        return HF_OK;
    result = hf_lock_pass_fd(lock, &fd);
    if (result != HF_OK)
        return result;
    high = fcntl(fd, F_DUPFD, PASSED_FD_MIN);
    if (high >= 0)
        close(fd);
    *ret_fd = high >= 0 ? high : fd;
    return HF_OK;
}

static int64_t release_limit_ms(const struct jobopts *opts, const hf_store_info *info)
{
    int64_t ttl_ms = opts->lock.options.ttl_ms ? opts->lock.options.ttl_ms : info->ttl_ms;
    int64_t renewal_ms = ttl_ms / RENEWAL_TTL_PART;

    return RELEASE_MS + (renewal_ms < RENEWAL_MS_MAX ? renewal_ms : RENEWAL_MS_MAX);
}

/* True: others can have it now. */
static bool let_go(const struct jobopts *opts, const struct cli *cli, hf_lock *lock,
                   struct outcome *outcome)
{
    bool ended = outcome->failure == 0;
    struct slow slow = {0};
    char what[640];
    int result;

    snprintf(what, sizeof what, "releasing '%.600s'", printable(opts->name));
    if (!opts->lock.quiet)
        slow_begin(&slow, cli, what, "no answer", release_limit_ms(opts, hf_info(cli->store)));
    result = hf_release(lock);
    slow_end(&slow);
    if (result == HF_OK || outcome->lost)
        return result == HF_OK;
    if (result == HF_ELOST && ended && outcome->signal == 0) {
        /* We cannot tell how long it has been over, so it counts as lost while the job ran. */
        say("lost '%s': %s", printable(opts->name), hf_error());
        outcome->lost = true;
    } else if (result != HF_ELOST && !opts->lock.quiet) {
        say("could not release '%s' (%s); others get it when its lease has expired",
            printable(opts->name), hf_error());
    }
    return false;
}

int jobopts_heartbeat(const struct jobopts *opts, struct heartbeat *heartbeat,
                      struct error_text *err)
{
    int failure = heartbeat_begin(heartbeat, opts->lock.options.progress_ms);

    if (failure != 0)
        return error_set_errno(err, HF_ENOMEM, failure,
                               "cannot make a pipe for reports of progress");
    return HF_OK;
}

void jobopts_try(const struct jobopts *opts, struct cli *cli, struct supervision *how, char **envp,
                 int made, const struct error_text *err, struct job_result *ret_result)
{
    int result;

    *ret_result = (struct job_result){.status = 0};
    if (!envp) {
        say_failure(err->text);
        ret_result->status = made == HF_ELOST ? EXIT_LOST : EXIT_UNAVAILABLE;
        return;
    }
    result = descriptor_for_job(opts, cli->store, how->lock, &how->pass_fd);
    if (result != HF_OK) {
        ret_result->status = say_result(result);
        return;
    }
    how->argv = opts->argv;
    how->envp = envp;
    how->on_lost = opts->on_lost;
    how->grace_ms = opts->grace_ms;
    how->margin_ms = margin_ms(limit_ms(opts, cli->store));
    how->granted_ms = clock_boot_ms();
    how->max_hold_ms = opts->lock.options.max_hold_ms;
    how->warn_after_ms = opts->warn_after_ms;
    how->has_ttl = hf_info(cli->store)->features & HF_HAS_TTL;
    supervise(how, &ret_result->outcome);
}

/* What the job started may have inherited the lock's descriptor, and run on. */
static bool is_held_on(hf_store *store, const char *name, uint64_t token)
{
    hf_report *report;
    bool held = false;

    if (hf_show(store, name, &report) != HF_OK)
        return false;
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        held = held || (entry->kind == HF_ENTRY_HOLDER && entry->token == token);
    }
    hf_report_free(report);
    return held;
}

static void say_ended(const struct jobopts *opts, hf_store *store, uint64_t token, bool is_free,
                      int status)
{
    if (is_free && (hf_info(store)->features & HF_HAS_PASS_FD) && !opts->close &&
        is_held_on(store, opts->name, token))
        say("the job ended with %d, and a process that it left behind still holds '%s' (--close "
            "lets go)",
            status, printable(opts->name));
    else
        say("'%s' %s; the job ended with %d", printable(opts->name),
            is_free ? "is free again" : "was not released", status);
}

void jobopts_run(const struct jobopts *opts, struct cli *cli, struct signals *signals,
                 hf_lock *lock, int64_t hold_at_least_ms, struct job_result *ret_result)
{
    struct heartbeat heartbeat;
    struct supervision how = {.lock = lock,
                              .signals = signals,
                              .heartbeat = &heartbeat,
                              .hold_at_least_ms = hold_at_least_ms};
    struct error_text err;
    char **envp = NULL;
    int made = jobopts_heartbeat(opts, &heartbeat, &err);
    uint64_t token = hf_lock_token(lock);
    bool is_free;

    if (made == HF_OK)
        made = environment_for(cli->store, lock, &heartbeat, &envp, &err);
    jobopts_try(opts, cli, &how, envp, made, &err, ret_result);
    environment_free(envp);
    heartbeat_end(&heartbeat);
    if (ret_result->status != 0) {
        hf_release(lock);
        return;
    }
    is_free = let_go(opts, cli, lock, &ret_result->outcome);
    if (ret_result->outcome.failure != 0)
        ret_result->status = say_cannot_run(opts->argv[0], ret_result->outcome.failure);
    else if (opts->lock.verbose)
        say_ended(opts, cli->store, token, is_free,
                  exit_status_of(ret_result->outcome.wait_status));
}
