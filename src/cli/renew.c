/* renew.c: holdfast renew NAME */
#include "cli/adopt.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/slow.h"

static const struct option_spec options[] = {
    ADOPT_OPTIONS,
    {OPT_ADOPT_TTL, "ttl", "DUR",
     "the TTL from now on (default: $HOLDFAST_TTL, as lock printed it; else the store's)"},
    {0},
};

static int run(struct cli *cli, struct args *args)
{
    struct adoption adoption;
    struct json json;
    struct slow slow;
    int64_t left_ms;
    int status, result;

    status = adopt(cli, args, &adoption);
    if (status >= 0)
        return status;
    slow_begin(&slow, cli, "renew", "no word that it is renewed", SLOW_NO_LIMIT);
    result = hf_renew(adoption.lock);
    slow_end(&slow);
    if (result != HF_OK) {
        status = say_result(result);
        hf_lock_detach(adoption.lock);
        return status;
    }
    left_ms = hf_lock_left_ms(adoption.lock);
    if (cli->json) {
        json_begin(&json);
        json_name(&json, adoption.name);
        json_u64(&json, "token", hf_lock_token(adoption.lock));
        json_string(&json, "mode", mode_name(hf_lock_mode(adoption.lock)));
        json_ms(&json, "left_ms", left_ms);
        json_end(&json);
    } else {
        printf("%lld\n", (long long)left_ms);
    }
    hf_lock_detach(adoption.lock);
    return finish_output(EXIT_DONE);
}

const struct command command_renew = {
    .name = "renew",
    .summary = "renew a lock taken with 'lock'",
    .usage = "NAME [OPTION...]",
    .description = "Renews the lease of NAME and prints for how many milliseconds it is certainly "
                   "held. A TTL\n"
                   "shorter than what is left does not shorten it.",
    .options = options,
    .takes_json = true,
    .examples = "  lease=$(holdfast lock deploy) && eval \"$lease\" || exit\n"
                "  step-one && holdfast renew deploy && step-two\n",
    .statuses = "  0 renewed   1 no longer held   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
