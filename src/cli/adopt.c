#include "cli/adopt.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/slow.h"

#include <stdlib.h>
#include <string.h>

struct words {
    const char *name, *lease, *token;
    const char *env_lease; /* what `lock` said, with its TTL */
    int64_t ttl_ms;        /* 0: not said */
};

/* The TTL that the lock was taken with goes with its lease, and with no other. */
static bool take_env_ttl(struct args *args, struct words *words)
{
    const char *ttl = getenv("HOLDFAST_TTL");

    if (words->ttl_ms > 0 || words->lease != words->env_lease || !ttl || !*ttl)
        return true;
    args->value = ttl;
    return args_duration(args, "HOLDFAST_TTL", HF_TTL_MIN_MS, HF_TTL_MAX_MS, &words->ttl_ms);
}

static int parse(struct args *args, struct words *words)
{
    int id;

    while ((id = args_next(args)) != ARGS_END) {
        switch (id) {
        case OPT_LEASE:
            words->lease = args->value;
            break;
        case OPT_TOKEN:
            words->token = args->value;
            break;
        case OPT_ADOPT_TTL:
            if (!args_duration(args, "--ttl", HF_TTL_MIN_MS, HF_TTL_MAX_MS, &words->ttl_ms))
                return EXIT_USAGE;
            break;
        case ARGS_WORD:
            if (words->name)
                return args_complain(args, "one word too many: '%s'", printable(args->value));
            words->name = args->value;
            break;
        default:
            return args_status(id);
        }
    }
    if (!take_env_ttl(args, words))
        return EXIT_USAGE;
    if (!words->name)
        return args_complain(args, "which lock? usage: holdfast %s %s", args->command->name,
                             args->command->usage);
    return args_name(args, words->name) ? -1 : EXIT_USAGE;
}

static int check(const struct args *args, const struct words *words, uint64_t *ret_token)
{
    if (!words->lease || !*words->lease || !words->token || !*words->token)
        return args_complain(
            args, "neither --lease and --token nor HOLDFAST_LEASE and HOLDFAST_TOKEN are "
                  "there: they come from lease=$(holdfast lock NAME) && eval \"$lease\" || exit");
    if (strlen(words->lease) > HF_LEASE_MAX)
        return args_complain(args, "a lease has at most %d bytes", HF_LEASE_MAX);
    if (!text_to_u64(words->token, HF_TOKEN_MAX, ret_token) || *ret_token == 0)
        return args_complain(args, "'%s' is not a token", printable(words->token));
    return -1;
}

int adopt(struct cli *cli, struct args *args, struct adoption *ret_adoption)
{
    struct words words = {.lease = getenv("HOLDFAST_LEASE"), .token = getenv("HOLDFAST_TOKEN")};
    hf_options options = HF_OPTIONS_INIT;
    struct slow slow;
    uint64_t token = 0;
    int status, result;

    words.env_lease = words.lease;
    status = parse(args, &words);
    if (status < 0)
        status = check(args, &words, &token);
    if (status >= 0)
        return status;
    status = cli_open(cli);
    if (status != 0)
        return status;
    if (!(hf_info(cli->store)->features & HF_HAS_DETACH))
        return args_complain(args, "a hold in %s lives with its process: there is nothing to %s",
                             text_kind(hf_info(cli->store)).text, args->command->name);
    options.ttl_ms = words.ttl_ms;
    slow_begin(&slow, cli, args->command->name, "no word of the lock", SLOW_NO_LIMIT);
    result = hf_adopt(cli->store, words.name, words.lease, token, &options, &ret_adoption->lock);
    slow_end(&slow);
    ret_adoption->name = words.name;
    return result == HF_OK ? -1 : say_result(result);
}
