/* unlock.c: holdfast unlock NAME */
#include "cli/adopt.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/slow.h"

static const struct option_spec options[] = {ADOPT_OPTIONS, {0}};

static int run(struct cli *cli, struct args *args)
{
    struct adoption adoption;
    struct json json;
    struct slow slow;
    int status, result;

    status = adopt(cli, args, &adoption);
    if (status >= 0)
        return status;
    slow_begin(&slow, cli, "unlock", "no word that it is released", SLOW_NO_LIMIT);
    result = hf_release(adoption.lock);
    slow_end(&slow);
    if (result != HF_OK)
        return say_result(result);
    if (cli->json) {
        json_begin(&json);
        json_name(&json, adoption.name);
        json_bool(&json, "unlocked", true);
        json_end(&json);
    }
    return finish_output(EXIT_DONE);
}

const struct command command_unlock = {
    .name = "unlock",
    .summary = "release a lock taken with 'lock'",
    .usage = "NAME [OPTION...]",
    .description =
        "Releases NAME if this lease and token still hold it; a newer hold is left alone.",
    .options = options,
    .takes_json = true,
    .examples = "  lease=$(holdfast lock deploy) && eval \"$lease\" || exit\n"
                "  work; holdfast unlock deploy\n",
    .statuses =
        "  0 released   1 was no longer held   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
