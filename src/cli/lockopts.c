#include "cli/lockopts.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/user.h"
#include "cli/environment.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool take_wait(struct lockopts *opts, const struct args *args, int id)
{
    if (id == OPT_WAIT &&
        !args_duration(args, "--wait", 0, HF_DURATION_MAX_MS, &opts->options.wait_ms))
        return false;
    opts->no_wait = opts->no_wait || id == OPT_NO_WAIT;
    if (opts->no_wait && opts->options.wait_ms > 0) {
        args_complain(args, "-n does not wait, and --wait does: leave out one of the two");
        return false;
    }
    if (opts->no_wait)
        opts->options.wait_ms = 0;
    return true;
}

static bool take_permits(struct lockopts *opts, const struct args *args)
{
    uint64_t permits;

    if (!args_number(args, "--permits", 1, HF_PERMITS_MAX, &permits))
        return false;
    if (opts->options.mode == HF_SHARED) {
        args_complain(args, "--permits and --shared exclude each other");
        return false;
    }
    opts->options.mode = HF_PERMIT;
    opts->options.permits = (uint32_t)permits;
    return true;
}

static bool take_mode(struct lockopts *opts, const struct args *args, int mode)
{
    if (opts->options.mode == HF_PERMIT) {
        args_complain(args, "--permits and --%s exclude each other", mode_name(mode));
        return false;
    }
    opts->options.mode = mode;
    return true;
}

static bool take_conflict(struct lockopts *opts, const struct args *args)
{
    uint64_t status;

    if (!args_number(args, "--conflict-exit-code", 0, 255, &status))
        return false;
    opts->conflict_status = (int)status;
    return true;
}

static bool take_owner(struct lockopts *opts, const struct args *args)
{
    if (strlen(args->value) > HF_OWNER_MAX) {
        args_complain(args, "--owner has at most %d bytes", HF_OWNER_MAX);
        return false;
    }
    opts->options.owner = args->value;
    return true;
}

static bool take_need(struct lockopts *opts, const struct args *args)
{
    opts->options.need_strict = strcmp(args->value, "strict") == 0 ? 1 : -1;
    if (opts->options.need_strict < 0 && strcmp(args->value, "best-effort") != 0) {
        args_complain(args, "--need '%s': must be 'strict' or 'best-effort'",
                      printable(args->value));
        return false;
    }
    return true;
}

bool lockopts_take(struct lockopts *opts, const struct args *args, int id, int *ret_status)
{
    bool fine = true;

    switch (id) {
    case OPT_NO_WAIT:
    case OPT_WAIT:
        fine = take_wait(opts, args, id);
        break;
    case OPT_SHARED:
        fine = take_mode(opts, args, HF_SHARED);
        break;
    case OPT_EXCLUSIVE:
        fine = take_mode(opts, args, HF_EXCLUSIVE);
        break;
    case OPT_CONFLICT:
        fine = take_conflict(opts, args);
        break;
    case OPT_VERBOSE:
        opts->verbose = true;
        break;
    case OPT_QUIET:
        opts->quiet = args->cli->quiet = true;
        break;
    case OPT_TTL:
        fine = args_duration(args, "--ttl", HF_TTL_MIN_MS, HF_TTL_MAX_MS, &opts->options.ttl_ms);
        break;
    case OPT_PERMITS:
        fine = take_permits(opts, args);
        break;
    case OPT_OWNER:
        fine = take_owner(opts, args);
        break;
    case OPT_NEED:
        fine = take_need(opts, args);
        break;
    case OPT_DELAY:
        fine = args_duration(args, "--delay", 0, HF_DURATION_MAX_MS, &opts->options.delay_ms);
        break;
    default:
        return false;
    }
    *ret_status = fine ? 0 : EXIT_USAGE;
    return true;
}

int lockopts_check(const struct lockopts *opts, const struct args *args, hf_store *store)
{
    const hf_store_info *info = hf_info(store);

    if (opts->options.ttl_ms != 0 && !(info->features & HF_HAS_TTL))
        return args_complain(args,
                             "%s has no TTL: a hold there ends with its process; to limit how long "
                             "it may last, use --max-hold",
                             text_kind(info).text);
    if (opts->options.delay_ms != 0 && !(info->features & HF_HAS_DELAY))
        return args_complain(args, "%s has no lock-delay: leave out --delay", text_kind(info).text);
    if (opts->options.mode == HF_SHARED && !(info->features & HF_HAS_SHARED))
        return args_complain(args, "%s has no shared locks", text_kind(info).text);
    if (opts->options.mode == HF_PERMIT && !(info->features & HF_HAS_PERMITS))
        return args_complain(args, "%s has no permits", text_kind(info).text);
    return 0;
}

void lockopts_owner(char ret_text[HF_OWNER_MAX + 1], const char *program)
{
    const char *user = getenv("LOGNAME"), *slash = strrchr(program, '/');
    char host[65] = "", name[USER_NAME_SIZE];

    if (!user || !*user)
        user = getenv("USER");
    if (!user || !*user) { /* of a job of systemd or of a container, say */
        user_name(name);
        user = name;
    }
    gethostname(host, sizeof host - 1);
    /* The command's arguments stay out: they may hold secrets, and this is for everybody to see. */
    snprintf(ret_text, HF_OWNER_MAX + 1, "%.32s@%.48s %.24s[%ld]", user, host,
             slash && slash[1] ? slash + 1 : program, (long)getpid());
}

int lockopts_acquire(const struct lockopts *opts, struct cli *cli, const char *name,
                     struct signals *signals, hf_lock **ret_lock)
{
    struct acquisition wanted = {.store = cli->store,
                                 .name = name,
                                 .options = opts->options,
                                 .signals = signals,
                                 .quiet = opts->quiet,
                                 .say_busy = true};
    struct error_text err = {""};
    int64_t begun_ms = clock_boot_ms();
    int result, number = 0;

    result = environment_check_nested(cli->store, name, &err);
    if (result == HF_OK)
        result = acquire(&wanted, ret_lock, &number, &err);
    if (result == HF_OK) {
        if (opts->verbose)
            say("got '%s' after %s, token %llu, in %s", printable(name),
                span(clock_boot_ms() - begun_ms), (unsigned long long)hf_lock_token(*ret_lock),
                printable(hf_info(cli->store)->where));
        return -1;
    }
    if (result == HF_ECANCELED) {
        cli_fail_eval(cli, EXIT_SIGNAL + number);
        flush_output();
        if (!signals->hurried)
            hf_close(cli->store);
        signals_die(number, false);
    }
    if (result != HF_EBUSY || !opts->quiet)
        say_failure(err.text);
    return result == HF_EBUSY ? opts->conflict_status : status_of(result);
}
