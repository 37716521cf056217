/* guard_reset.c: holdfast guard reset --fence DIR KEY [--to TOKEN] [--why TEXT] */
#include "cli/guard.h"
#include "cli/json.h"
#include "cli/output.h"

enum { OPT_FENCE = 256, OPT_ALLOW, OPT_TO, OPT_WHY };

static const struct option_spec options[] = {
    {OPT_FENCE, "fence", "DIR", "the fence's directory"},
    {OPT_TO, "to", "TOKEN", "the new mark; 0, or without it: forget the key"},
    {OPT_WHY, "why", "TEXT", "the reason, for the log"},
    {OPT_ALLOW, "allow", "WHAT",
     "open it although it is on tmpfs or network, or writable by others"},
    {0},
};

struct wanted {
    struct fence_words words;
    const char *key, *why;
    uint64_t mark;
};

static void print_change(const struct cli *cli, const struct wanted *wanted, uint64_t was)
{
    struct json json;

    if (cli->json) {
        json_begin(&json);
        json_text(&json, "key", wanted->key);
        json_u64(&json, "was", was);
        json_u64(&json, "mark", wanted->mark);
        json_end(&json);
    } else if (was == 0 && wanted->mark == 0) {
        printf("'%s' had no mark, and has none\n", printable(wanted->key));
    } else if (wanted->mark == 0) {
        printf("'%s' had the mark %llu, and has none now: the next token passes, whatever it is\n",
               printable(wanted->key), (unsigned long long)was);
    } else {
        printf("'%s' had the mark %llu, and has %llu now\n", printable(wanted->key),
               (unsigned long long)was, (unsigned long long)wanted->mark);
    }
}

static int reset(const struct cli *cli, const struct args *args, const struct wanted *wanted)
{
    hf_fence *fence = NULL;
    uint64_t was = 0;
    int result, status = fence_open_words(args, &wanted->words, &fence);

    if (status != 0)
        return status;
    result = hf_fence_reset(fence, wanted->key, wanted->mark, wanted->why, &was);
    if (result != HF_OK)
        status = say_result(result);
    else
        print_change(cli, wanted, was);
    hf_fence_close(fence);
    return finish_output(status);
}

static int run(struct cli *cli, struct args *args)
{
    struct wanted wanted = {0};
    int id;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_FENCE)
            wanted.words.path = args->value;
        else if (id == OPT_WHY)
            wanted.why = args->value;
        else if (id == OPT_ALLOW) {
            if (!fence_allow(args, &wanted.words.allow))
                return EXIT_USAGE;
        } else if (id == OPT_TO) {
            if (!args_number(args, "--to", 0, HF_TOKEN_MAX, &wanted.mark))
                return EXIT_USAGE;
        } else if (id == ARGS_WORD && !wanted.key)
            wanted.key = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        else
            return args_status(id);
    }
    if (!wanted.key)
        return args_complain(args, "usage: holdfast guard reset %s", args->command->usage);
    return reset(cli, args, &wanted);
}

const struct command command_guard_reset = {
    .name = "guard reset",
    .summary = "set a mark of a fence on purpose",
    .usage = "--fence DIR KEY [--to TOKEN] [--why TEXT]",
    .description =
        "For a key that has moved to another store, or whose store has lost its data: its tokens\n"
        "begin again, and the old mark would refuse them. Make sure first that no holder of the\n"
        "old tokens is left: it would pass, too. Where the new store can begin above the old "
        "mark,\n"
        "'holdfast floor' is the better way.\n\n"
        "Says what the mark was. The fence's resets.log keeps who did it, when and why.",
    .options = options,
    .takes_json = true,
    .examples =
        "  holdfast guard reset --fence /var/lib/shop/fence account:7 --why 'restored the store'\n",
    .statuses =
        "  0 done   75 others are writing, and do not end   77 no fence there, or not a safe "
        "place\n  64, 69, 70 as in 'holdfast run --help'\n",
    .run = run,
};
