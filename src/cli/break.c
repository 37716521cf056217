/* break.c: holdfast break NAME, the operator's way out. */
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"

/* Longer than run's own grace of 5 s, so that an obedient holder is gone before the name is given
 * out. */
#define BREAK_GRACE_MS 10000

enum { OPT_NOW = 256, OPT_BREAK_GRACE };

static const struct option_spec options[] = {
    {OPT_NOW, "now", NULL,
     "do not wait for the old holder: two may believe that they hold the lock"},
    {OPT_BREAK_GRACE, "grace", "DUR", "store without TTL: wait at most DUR for the holder (10s)"},
    {0},
};

static void answer_json(const char *name, uint32_t broken, bool now)
{
    struct json json;

    json_begin(&json);
    json_name(&json, name);
    json_u64(&json, "broken", broken);
    json_bool(&json, "now", now);
    json_end(&json);
}

/* It may have been broken before. */
static void answer_nobody(hf_store *store, const char *name)
{
    char withheld[160] = "";
    hf_report *report;

    if (hf_show(store, name, &report) == HF_OK) {
        describe_withheld(report, withheld, sizeof withheld);
        hf_report_free(report);
    }
    if (*withheld)
        printf("nobody held '%s': it is %s (--now frees it at once)\n", printable(name), withheld);
    else
        printf("nobody held '%s'\n", printable(name));
}

static void answer_text(hf_store *store, const char *name, uint32_t broken, bool now)
{
    const char *shown = printable(name);
    uint32_t features = hf_info(store)->features;

    if (broken == 0) {
        answer_nobody(store, name);
        return;
    }
    printf("broke %u hold%s of '%s'\n", (unsigned)broken, broken == 1 ? "" : "s", shown);
    if (now)
        printf("The name is free at once. The old holder may not know yet: what it still writes is "
               "refused "
               "only by a guard that compares tokens.\n");
    else if (features & HF_HAS_TTL)
        printf("The holder %s, and nobody else gets the name before its TTL has expired.\n",
               features & HF_HAS_PUSH ? "is told at once" : "learns it when it next renews");
    else
        printf("The holder has been told, and had until now to let go. If it was stopped or "
               "ignores it, "
               "only a guard that compares tokens keeps its writes out.\n");
}

static int run(struct cli *cli, struct args *args)
{
    int64_t grace_ms = -1;
    const char *name = NULL;
    bool now = false;
    uint32_t broken;
    int id, status, result;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_NOW)
            now = true;
        else if (id == OPT_BREAK_GRACE) {
            if (!args_duration(args, "--grace", 0, HF_DURATION_MAX_MS, &grace_ms))
                return EXIT_USAGE;
        } else if (id == ARGS_WORD && !name)
            name = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        else
            return args_status(id);
    }
    if (!name)
        return args_complain(args, "break what? usage: holdfast break NAME");
    if (now && grace_ms > 0)
        return args_complain(args, "--now means no grace: leave out one of the two");
    if (!args_name(args, name))
        return EXIT_USAGE;
    if (grace_ms < 0)
        grace_ms = now ? 0 : BREAK_GRACE_MS;
    status = cli_open(cli);
    if (status != 0)
        return status;
    result = hf_break(cli->store, name, grace_ms, &broken);
    if (result != HF_OK)
        return say_result(result);
    if (cli->json)
        answer_json(name, broken, grace_ms == 0);
    else
        answer_text(cli->store, name, broken, grace_ms == 0);
    return finish_output(EXIT_DONE);
}

const struct command command_break = {
    .name = "break",
    .summary = "end all holds of a name (for operators)",
    .usage = "NAME [OPTION...]",
    .description =
        "Ends all holds of NAME. The holders are told, and nobody gets the lock until the old\n"
        "holder's TTL has expired, or, in a store without TTL, until it has let go or --grace has\n"
        "passed. The next token is greater, so a guard refuses what the old holder still writes.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast show nightly && holdfast break nightly\n"
                "  holdfast break nightly --now     # only where a guard protects the resource\n",
    .statuses = "  0 done, also when nobody held it   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
