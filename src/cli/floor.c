/* floor.c: holdfast floor TOKEN */
#include "base/text.h"
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/slow.h"

/* A lost answer says nothing of what was done. */
static int say_not_done(int result)
{
    if (result != HF_EUNKNOWN)
        return say_result(result);
    say("%s; the floor may or may not have been raised: repeat the command, which then changes "
        "nothing twice and says where tokens are",
        hf_error());
    return status_of(result);
}

static int run(struct cli *cli, struct args *args)
{
    const char *word;
    struct json json;
    struct slow slow;
    uint64_t token, at = 0;
    int status, result, ended = 0;

    if (args_words(args, &word, 1, 1, NULL, &status))
        return status;
    if (!text_to_u64(word, HF_TOKEN_MAX - 1, &token) || token == 0)
        return args_complain(args, "'%s' is not a token: a number from 1 to %llu", printable(word),
                             (unsigned long long)HF_TOKEN_MAX - 1);
    status = cli_open(cli);
    if (status != 0)
        return status;
    slow_begin_soon_refused(&slow, cli, "floor", "no word that it is done", SLOW_NO_LIMIT);
    result = hf_floor_at(cli->store, token, &at, &ended);
    slow_end(&slow);
    if (result != HF_OK)
        return say_not_done(result);
    if (cli->json) {
        json_begin(&json);
        json_u64(&json, "floor", token);
        json_string(&json, "url", hf_info(cli->store)->url);
        json_u64(&json, "at", at);
        json_bool(&json, "ended", ended);
        json_end(&json);
    } else if (at > token) {
        printf("nothing changed: tokens of %s are at %llu already\n",
               printable(hf_info(cli->store)->url), (unsigned long long)at);
    } else {
        printf("from now on every token of %s is greater than %llu%s\n",
               printable(hf_info(cli->store)->url), (unsigned long long)token,
               ended ? "; all holds of before have ended" : "");
    }
    return finish_output(EXIT_DONE);
}

const struct command command_floor = {
    .name = "floor",
    .summary = "make all later tokens greater than a given one",
    .usage = "TOKEN",
    .description =
        "For moving from another store: guards remember the greatest token they have seen, so\n"
        "the new store must begin above it. It never lowers anything. Not on etcd and ZooKeeper:\n"
        "there the marks of the guards are reset instead. On PostgreSQL it ends all holds, if it\n"
        "raises anything.",
    .takes_json = true,
    .examples = "  holdfast --on file:/srv/locks floor 184467\n",
    .statuses =
        "  0 done   69 not done, or not known: the message says which   77, 64, 70 as in 'holdfast "
        "run --help'\n",
    .run = run,
};
