/* check.c: holdfast check NAME TOKEN, or check SEQUENCER */
#include "base/text.h"
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"

#include <string.h>

#define SEQUENCER_START "hf1." /* of what HOLDFAST_SEQUENCER has */

static int answer(struct cli *cli, const char *name, const char *sequencer, uint64_t token,
                  int result)
{
    struct json json;

    if (result != HF_OK && result != HF_ELOST)
        return say_result(result);
    if (cli->json) {
        json_begin(&json);
        if (name) {
            json_name(&json, name);
            json_u64(&json, "token", token);
        } else {
            json_string(&json, "sequencer", sequencer);
        }
        json_bool(&json, "alive", result == HF_OK);
        json_end(&json);
    } else {
        puts(result == HF_OK ? "alive" : "stale");
    }
    return finish_output(result == HF_OK ? EXIT_DONE : EXIT_NOT);
}

static int run(struct cli *cli, struct args *args)
{
    const char *words[2];
    uint64_t token = 0;
    int count, status;

    if (args_words(args, words, 1, 2, &count, &status))
        return status;
    if (count == 2 && !args_name(args, words[0]))
        return EXIT_USAGE;
    if (count == 2 && (!text_to_u64(words[1], HF_TOKEN_MAX, &token) || token == 0))
        return args_complain(args, "'%s' is not a token: a number from 1 to %llu",
                             printable(words[1]), (unsigned long long)HF_TOKEN_MAX);
    if (count == 1 && strncmp(words[0], SEQUENCER_START, strlen(SEQUENCER_START)) != 0)
        return args_complain(args,
                             "TOKEN is missing: give it behind the name, or a sequencer alone");
    status = cli_open(cli);
    if (status != 0)
        return status;
    if (count == 1)
        return answer(cli, NULL, words[0], 0, hf_check_sequencer(cli->store, words[0]));
    return answer(cli, words[0], NULL, token, hf_check(cli->store, words[0], token));
}

const struct command command_check = {
    .name = "check",
    .summary = "ask whether a token or sequencer is alive",
    .usage = "NAME TOKEN | SEQUENCER",
    .description = "Prints 'alive' if that hold exists at the moment of the answer, else 'stale'. "
                   "The answer may\n"
                   "be out of date when you read it: only a guard at the resource protects it.",
    .takes_json = true,
    .examples = "  holdfast check nightly 17\n"
                "  holdfast run nightly -- sh -c 'holdfast check \"$HOLDFAST_SEQUENCER\"'\n",
    .statuses = "  0 alive   1 stale   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
