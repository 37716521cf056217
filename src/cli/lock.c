/* lock.c: holdfast lock NAME: run's first half, for scripts that want to do the rest themselves. */
#include "base/text.h"
#include "cli/json.h"
#include "cli/lockopts.h"
#include "cli/output.h"

#include <errno.h>
#include <string.h>

static const struct option_spec options[] = {LOCKOPTS_WAITING, LOCKOPTS_HOLDING, {0}};

/* Lines for eval. The lease is hex as the library makes them; anything else would have to be
 * quoted, and is not ours. */
static bool is_plain(const char *text)
{
    return text[strspn(
               text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-")] == '\0';
}

static void print(struct cli *cli, hf_lock *lock, int64_t ttl_ms)
{
    unsigned long long token = hf_lock_token(lock);
    struct json json;

    if (!cli->json) {
        printf("HOLDFAST_LEASE=%s; export HOLDFAST_LEASE\n", hf_lock_lease(lock));
        printf("HOLDFAST_TOKEN=%llu; export HOLDFAST_TOKEN\n", token);
        printf("HOLDFAST_TTL=%lldms; export HOLDFAST_TTL\n", (long long)ttl_ms);
        return;
    }
    json_begin(&json);
    json_name(&json, hf_lock_name(lock));
    json_string(&json, "lease", hf_lock_lease(lock));
    json_u64(&json, "token", token);
    json_string(&json, "mode", mode_name(hf_lock_mode(lock)));
    json_ms(&json, "ttl_ms", ttl_ms);
    json_ms(&json, "left_ms", hf_lock_left_ms(lock));
    json_end(&json);
}

static int hand_out(struct cli *cli, hf_lock *lock, int64_t ttl_ms)
{
    int status, result;

    if (!is_plain(hf_lock_lease(lock))) {
        say("the lease cannot be printed for a shell");
        hf_release(lock);
        return EXIT_OURS;
    }
    print(cli, lock, ttl_ms > 0 ? ttl_ms : hf_info(cli->store)->ttl_ms);
    /* A lease that nobody got to read is a lock that nobody can give up. */
    status = finish_output(EXIT_DONE);
    if (status != EXIT_DONE) {
        hf_release(lock);
        return status;
    }
    result = hf_lock_detach(lock);
    return result == HF_OK ? EXIT_DONE : say_result(result);
}

static int parse(struct lockopts *opts, struct args *args, const char **ret_name)
{
    int id, status;

    *ret_name = NULL;
    while ((id = args_next(args)) != ARGS_END) {
        if (id == ARGS_WORD && *ret_name)
            return args_complain(
                args, "one word too many: '%s' (to run a command under the lock: holdfast run)",
                printable(args->value));
        if (id == ARGS_WORD)
            *ret_name = args->value;
        else if (id < 0)
            return args_status(id);
        else if (lockopts_take(opts, args, id, &status) && status != 0)
            return status;
    }
    if (!*ret_name)
        return args_complain(args, "which lock? usage: holdfast lock NAME");
    return args_name(args, *ret_name) ? -1 : EXIT_USAGE;
}

static int lock_command(struct cli *cli, struct args *args)
{
    struct lockopts opts = LOCKOPTS_INIT;
    struct signals signals;
    char owner[HF_OWNER_MAX + 1];
    const char *name;
    hf_lock *lock;
    int status;

    status = parse(&opts, args, &name);
    if (status >= 0)
        return status;
    status = cli_open(cli);
    if (status != 0)
        return status;
    if (!(hf_info(cli->store)->features & HF_HAS_DETACH))
        return args_complain(
            args,
            "a hold in %s lives with the process that took it, and 'lock' ends at once: "
            "use 'holdfast run %s -- CMD'",
            text_kind(hf_info(cli->store)).text, printable(name));
    status = lockopts_check(&opts, args, cli->store);
    if (status != 0)
        return status;
    if (!opts.options.owner) {
        lockopts_owner(owner, "lock");
        opts.options.owner = owner;
    }
    if (!signals_begin(&signals)) {
        say("cannot set up signal handling: %s", strerror(errno));
        return EXIT_OURS;
    }
    status = lockopts_acquire(&opts, cli, name, &signals, &lock);
    return status < 0 ? hand_out(cli, lock, opts.options.ttl_ms) : status;
}

const struct command command_lock = {
    .name = "lock",
    .summary = "take a lock and print its lease, for scripts",
    .usage = "NAME [OPTION...]",
    .description =
        "Takes the lock NAME and ends, leaving it held for its TTL: prints HOLDFAST_LEASE,\n"
        "HOLDFAST_TOKEN and HOLDFAST_TTL as lines for the shell, which 'renew' and 'unlock' read\n"
        "from the environment. Nothing renews it but 'renew': 'holdfast run' is safer wherever it "
        "fits.",
    .options = options,
    .takes_json = true,
    .for_eval = true,
    .examples = "  lease=$(holdfast lock deploy --ttl 5m) && eval \"$lease\" || exit\n"
                "  step-one && holdfast renew deploy && step-two\n"
                "  holdfast unlock deploy\n",
    .statuses =
        "  0 held   75 not acquired in time   69, 77, 78, 64, 70 as in 'holdfast run --help'\n",
    .run = lock_command,
};
