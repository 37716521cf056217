/* break.c: holdfast break NAME, the operator's way out. */
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/slow.h"

/* Longer than run's own grace of 5 s, so that an obedient holder is gone before the name is given
 * out. */
#define BREAK_GRACE_MS 10000
#define BREAK_MS 10000 /* hf_break's own limit, where there is a server to be told */

enum { OPT_NOW = 256, OPT_BREAK_GRACE, OPT_QUIET = 'q' };

static const struct option_spec options[] = {
    {OPT_NOW, "now", NULL,
     "do not wait for the old holder: two may believe that they hold the lock"},
    {OPT_BREAK_GRACE, "grace", "DUR", "store without TTL: wait at most DUR for the holder (10s)"},
    {OPT_QUIET, "quiet", NULL, "do not print that the store is slow to answer, nor warnings"},
    {0},
};

static void answer_json(const char *name, uint32_t broken, uint32_t untold, bool now)
{
    struct json json;

    json_begin(&json);
    json_name(&json, name);
    json_u64(&json, "broken", broken);
    json_u64(&json, "untold", untold);
    json_bool(&json, "now", now);
    json_end(&json);
}

/* How many of those who hold it are of other programs, and cannot be told. */
static uint32_t count_foreign(hf_store *store, const char *name)
{
    uint32_t count = 0;
    hf_report *report;

    if (hf_show(store, name, &report) != HF_OK)
        return 0; /* then the break fails, too, and says why */
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        count += entry->kind == HF_ENTRY_HOLDER && entry->foreign;
    }
    hf_report_free(report);
    return count;
}

/* In words, that it is withheld, or "". */
static void look_for_withheld(hf_store *store, const char *name, char *ret_text, size_t size)
{
    hf_report *report;

    ret_text[0] = '\0';
    if (hf_show(store, name, &report) != HF_OK)
        return;
    describe_withheld(report, ret_text, size);
    hf_report_free(report);
}

/* It may have been broken before. */
static void answer_nobody(hf_store *store, const char *name)
{
    char withheld[160];

    look_for_withheld(store, name, withheld, sizeof withheld);
    if (*withheld)
        printf("nobody held '%s': it is %s (--now frees it at once)\n", printable(name), withheld);
    else
        printf("nobody held '%s'\n", printable(name));
}

/* Holds of other programs are exclusive: there is one. */
static void answer_foreign(hf_store *store, const char *name)
{
    char withheld[160];

    look_for_withheld(store, name, withheld, sizeof withheld);
    printf(
        "The holder is another program's, not ours: it is not told, and goes on until it looks by "
        "itself. It brings no token that a guard could refuse.\n");
    if (*withheld)
        printf("The name is %s (--now frees it at once).\n", withheld);
    else
        printf("The name is free at once.\n");
}

static void answer_text(hf_store *store, const char *name, uint32_t broken, uint32_t untold,
                        bool now)
{
    const char *shown = printable(name);
    uint32_t features = hf_info(store)->features;
    char withheld[160] = "";

    if (broken == 0) {
        answer_nobody(store, name);
        return;
    }
    printf("broke %u hold%s of '%s'\n", (unsigned)broken, broken == 1 ? "" : "s", shown);
    if (now && untold == 0)
        look_for_withheld(store, name, withheld, sizeof withheld);
    if (untold > 0)
        answer_foreign(store, name);
    else if (*withheld)
        printf("A transaction that entered with it has not ended: the name is %s. Once that "
               "transaction has ended, --now frees it.\n",
               withheld);
    else if (now)
        printf("The name is free at once. The old holder may not know yet: what it still writes is "
               "refused "
               "only by a guard that compares tokens.\n");
    else if (features & HF_HAS_TTL)
        printf("The holder %s if it can be reached, and nobody else gets the name before it has "
               "let go or its TTL has expired.\n",
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
    uint32_t broken, untold;
    struct slow slow;
    int id, status, result;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_NOW)
            now = true;
        else if (id == OPT_QUIET)
            cli->quiet = true;
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
    slow_begin(&slow, cli, "break", BREAK_MS);
    untold = count_foreign(cli->store, name);
    result = hf_break(cli->store, name, grace_ms, &broken);
    slow_end(&slow);
    if (result != HF_OK)
        return say_result(result);
    if (untold > broken) /* it went by itself in between */
        untold = broken;
    if (cli->json)
        answer_json(name, broken, untold, grace_ms == 0);
    else
        answer_text(cli->store, name, broken, untold, grace_ms == 0);
    return finish_output(EXIT_DONE);
}

const struct command command_break = {
    .name = "break",
    .summary = "end all holds of a name (for operators)",
    .usage = "NAME [OPTION...]",
    .description =
        "Ends all holds of NAME. The holders are told, and nobody gets the lock until the old\n"
        "holder has let go or its TTL has expired, or, in a store without TTL, --grace has "
        "passed.\n"
        "The next token is greater, so a guard refuses what the old holder still writes.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast show nightly && holdfast break nightly\n"
                "  holdfast break nightly --now     # only where a guard protects the resource\n",
    .statuses = "  0 done, also when nobody held it   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
