/* break.c: holdfast break NAME, the operator's way out. */
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/slow.h"

/* Longer than run's own grace of 5 s, so that an obedient holder is gone before the name is given
 * out. */
#define BREAK_GRACE_MS 10000

enum { OPT_NOW = 256, OPT_BREAK_GRACE, OPT_QUIET = 'q' };

static const struct option_spec options[] = {
    {OPT_NOW, "now", NULL,
     "do not wait for the old holder: two may believe that they hold the lock"},
    {OPT_BREAK_GRACE, "grace", "DUR", "store without TTL: wait at most DUR for the holder (10s)"},
    {OPT_QUIET, "quiet", NULL, "do not print that the store is slow to answer, nor warnings"},
    {0},
};

/* What was there before the break, and what came of it. */
struct breaking {
    const char *name;
    bool now;
    bool held;
    bool withheld; /* the name was: somebody has broken it before */
    bool freed;    /* it was withheld, and is so no more */
    uint32_t broken;
    uint32_t untold;      /* of the holders, those of other programs, who cannot be told */
    uint32_t told, ended; /* of the holders, those whose process is there, and is not */
    bool entered;         /* a transaction that entered with the hold has not ended */
};

static void answer_json(const struct breaking *breaking)
{
    struct json json;

    json_begin(&json);
    json_name(&json, breaking->name);
    json_u64(&json, "broken", breaking->broken);
    json_u64(&json, "untold", breaking->untold);
    json_bool(&json, "now", breaking->now);
    json_bool(&json, "freed", breaking->freed);
    json_bool(&json, "entered", breaking->entered);
    json_end(&json);
}

/* If that fails, so does the break, and says why. */
static void look_before(hf_store *store, struct breaking *breaking)
{
    hf_report *report;

    if (hf_show(store, breaking->name, &report) != HF_OK)
        return;
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        breaking->untold += entry->kind == HF_ENTRY_HOLDER && entry->foreign;
        breaking->held = breaking->held || entry->kind == HF_ENTRY_HOLDER;
        if (holder_has_ended(store, entry))
            breaking->ended++;
        else
            breaking->told += entry->kind == HF_ENTRY_HOLDER;
        breaking->withheld = breaking->withheld || entry->kind == HF_ENTRY_WITHHELD;
    }
    hf_report_free(report);
}

/* What can be said of the name after the break. */
struct after {
    bool known;         /* it could be looked at */
    char withheld[160]; /* in words, that it is; "": it is not */
    int64_t left_ms;    /* for how long it is withheld; -1: not, or not known */
    bool entered;       /* by a transaction that has not ended, too */
};

static void look_after(hf_store *store, const char *name, struct after *ret_after)
{
    hf_report *report;

    *ret_after = (struct after){.left_ms = -1};
    if (hf_show(store, name, &report) != HF_OK)
        return;
    ret_after->known = true;
    describe_withheld(report, ret_after->withheld, sizeof ret_after->withheld);
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        if (entry->kind != HF_ENTRY_WITHHELD)
            continue;
        ret_after->left_ms = entry->left_ms;
        ret_after->entered = entry->withheld == HF_WITHHELD_ENTERED;
    }
    hf_report_free(report);
}

/* It may have been broken before. */
static void answer_nobody(const struct breaking *breaking, const char *withheld)
{
    const char *shown = printable(breaking->name);

    if (breaking->freed)
        printf(
            "nobody held '%s', which was withheld after a break or a lock-delay: it is free "
            "now.\n"
            "Whoever held it before may not know yet: what it still writes is refused only by a "
            "guard that somebody with a newer token has entered, and only if it brings its own.\n",
            shown);
    else if (*withheld)
        printf("nobody held '%s': it is %s%s\n", shown, withheld,
               breaking->entered ? ". Once that has ended, --now frees it."
               : breaking->now   ? ""
                                 : " (--now frees it at once)");
    else
        printf("nobody held '%s'\n", shown);
}

/* Holds of other programs are exclusive: there is one. */
static void answer_foreign(const char *withheld)
{
    printf(
        "The holder is another program's, not ours: it is not told, and goes on until it looks by "
        "itself. It brings no token that a guard could refuse.\n");
    if (*withheld)
        printf("The name is %s (--now frees it at once).\n", withheld);
    else
        printf("The name is free at once.\n");
}

/* On a store with a TTL. Where a hold can be detached, nobody can know that its holder has let go, so the TTL is waited for whatever it does. */
static void answer_told(uint32_t features, const struct after *after)
{
    char span_text[64] = "its TTL has expired";

    if (after->known && !after->withheld[0]) {
        printf("The holder has let go, and others can have the name.\n");
        return;
    }
    if (after->left_ms >= 0)
        snprintf(span_text, sizeof span_text, "%s have passed", span(after->left_ms));
    printf("The holder %s if it can be reached. Nobody else gets the name before %s%s%s.\n",
           features & HF_HAS_PUSH ? "is told at once" : "learns it when it next renews", span_text,
           features & HF_HAS_DETACH ? ", whatever the holder does" : ", or the holder has let go",
           after->entered ? "" : " (--now frees it at once)");
}

/* On files. */
static void answer_told_by_kernel(const struct breaking *breaking)
{
    if (breaking->told > 0 || breaking->ended == 0)
        printf("The holder has been told, and had until now to let go. If it was stopped or "
               "ignores it, only a guard keeps its writes out, once somebody with a newer token "
               "has entered it.\n");
    if (breaking->ended > 0)
        printf("Of %s the process that took it is not to be seen from here. It runs in another "
               "container, and has been told; or it has ended, and one that it left behind held "
               "on, which cannot be told, and runs on: only a guard keeps its writes out, once "
               "somebody with a newer token has entered it.\n",
               breaking->told > 0 ? "another holder" : "the holder");
}

static void answer_text(hf_store *store, const struct breaking *breaking, const struct after *after)
{
    uint32_t features = hf_info(store)->features;
    const char *withheld = after->withheld;

    if (breaking->broken == 0) {
        answer_nobody(breaking, withheld);
        return;
    }
    printf("broke %u hold%s of '%s'\n", (unsigned)breaking->broken,
           breaking->broken == 1 ? "" : "s", printable(breaking->name));
    if (breaking->untold > 0)
        answer_foreign(withheld);
    else if (breaking->now && *withheld && !breaking->entered)
        printf("The name is %s.\n", withheld);
    else if (breaking->now && *withheld)
        ; /* that is said below */
    else if (breaking->now)
        printf(
            "The name is free at once. The old holder may not know yet: what it still writes is "
            "refused only by a guard, and only once somebody with a newer token has entered it.\n");
    else if (features & HF_HAS_TTL)
        answer_told(features, after);
    else
        answer_told_by_kernel(breaking);
    if (breaking->entered)
        printf("A transaction that entered with it (holdfast_enter_held) has not ended: nobody "
               "gets the name before it has. Once it has ended, --now frees the name.\n");
}

/* A lost answer says nothing of what was done. */
static int say_not_done(int result, const char *name)
{
    if (result != HF_EUNKNOWN)
        return say_result(result);
    say("%s; the holders may or may not have been told: 'holdfast show %s' says whether the name "
        "is "
        "withheld, and to repeat the command does no harm if nobody else has taken the lock since",
        hf_error(), printable(name));
    return status_of(result);
}

static int break_it(struct cli *cli, struct breaking *breaking, int64_t grace_ms)
{
    struct after after;
    struct slow slow;
    int result;

    slow_begin(&slow, cli, "break", "no word that it is done", SLOW_NO_LIMIT);
    look_before(cli->store, breaking);
    result = hf_break(cli->store, breaking->name, grace_ms, &breaking->broken);
    slow_end(&slow);
    if (result != HF_OK)
        return say_not_done(result, breaking->name);
    if (breaking->untold > breaking->broken) /* it went by itself in between */
        breaking->untold = breaking->broken;
    look_after(cli->store, breaking->name, &after);
    breaking->entered = after.entered;
    breaking->freed = breaking->now && breaking->withheld && !breaking->held && !after.withheld[0];
    if (breaking->freed) /* some stores count what they have freed: it was broken before */
        breaking->broken = 0;
    if (cli->json)
        answer_json(breaking);
    else
        answer_text(cli->store, breaking, &after);
    return finish_output(EXIT_DONE);
}

static int run(struct cli *cli, struct args *args)
{
    int64_t grace_ms = -1;
    const char *name = NULL;
    bool now = false;
    int id, status;

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
    return break_it(cli, &(struct breaking){.name = name, .now = grace_ms == 0}, grace_ms);
}

const struct command command_break = {
    .name = "break",
    .summary = "end all holds of a name (for operators)",
    .usage = "NAME [OPTION...]",
    .description =
        "Ends all holds of NAME. The holders are told, and nobody gets the lock until their TTL\n"
        "has expired; on ZooKeeper and files until they have let go, or on files --grace has "
        "passed.\n"
        "The next token is greater: a guard refuses what the old holder still writes as soon as "
        "the\n"
        "next one has entered it.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast show nightly && holdfast break nightly\n"
                "  holdfast break nightly --now     # only where a guard protects the resource\n",
    .statuses = "  0 done, also when nobody held it   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
