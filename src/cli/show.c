/* show.c: holdfast show NAME */
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"

#include <string.h>

static size_t count_kind(const hf_report *report, int kind)
{
    size_t count = 0;

    for (size_t i = 0; i < hf_report_count(report); i++)
        count += hf_report_entry(report, i)->kind == kind;
    return count;
}

static void json_kind(struct json *json, const char *key, const hf_report *report, int kind)
{
    json_array(json, key);
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);

        if (entry->kind != kind)
            continue;
        json_object(json, NULL);
        json_entry(json, entry);
        json_close(json, '}');
    }
    json_close(json, ']');
}

/* found: where the store is, if that was found out by asking it; else NULL. */
static void print_json(const char *name, const hf_report *report, const char *found)
{
    struct json json;

    json_begin(&json);
    json_name(&json, name);
    json_bool(&json, "held", count_kind(report, HF_ENTRY_HOLDER) > 0);
    for (size_t i = 0; i < hf_report_count(report); i++)
        if (hf_report_entry(report, i)->kind == HF_ENTRY_WITHHELD)
            json_ms(&json, "withheld_ms", hf_report_entry(report, i)->left_ms);
    json_kind(&json, "holders", report, HF_ENTRY_HOLDER);
    json_kind(&json, "waiters", report, HF_ENTRY_WAITER);
    if (found)
        json_string(&json, "where", found);
    json_end(&json);
}

static void print_text(hf_store *store, const char *name, const hf_report *report,
                       const char *found)
{
    size_t holders = count_kind(report, HF_ENTRY_HOLDER);
    size_t waiters = count_kind(report, HF_ENTRY_WAITER);
    char withheld[160];

    describe_withheld(report, withheld, sizeof withheld);
    if (holders == 0)
        printf("%s: nobody holds it%s%s\n", printable(name), *withheld ? ": " : "", withheld);
    for (size_t i = 0; i < hf_report_count(report); i++) {
        const hf_entry *entry = hf_report_entry(report, i);
        char text[512];

        if (entry->kind == HF_ENTRY_HOLDER) {
            describe_holder(store, entry, text, sizeof text);
            printf("%s: held (%s) by %s", printable(name), mode_name(entry->mode), text);
            if (entry->mode == HF_PERMIT)
                printf(", one of %u permits", (unsigned)entry->permits);
            if (entry->left_ms >= 0 && entry->left_ms != HF_UNLIMITED)
                printf(", %s left", span(entry->left_ms));
            putchar('\n');
            if (holder_has_ended(store, entry))
                printf("%s: process %lld has ended, and one that it left behind holds the lock "
                       "(or it runs in another container)\n",
                       printable(name), (long long)entry->pid);
        } else if (entry->kind == HF_ENTRY_WAITER) {
            printf("%s: waiting: %s, for %s%s\n", printable(name),
                   *entry->owner ? printable(entry->owner) : "somebody",
                   ages_are_least(store) ? "at least " : "", span(entry->age_ms));
        }
    }
    if (waiters == 0)
        printf("%s: nobody waits\n", printable(name));
    if (found)
        printf("%s: looked for in %s\n", printable(name), printable(found));
}

static int run(struct cli *cli, struct args *args)
{
    const char *name, *named, *found;
    hf_report *report;
    int status, result;

    if (args_words(args, &name, 1, 1, NULL, &status))
        return status;
    if (!args_name(args, name))
        return EXIT_USAGE;
    status = cli_open(cli);
    if (status != 0)
        return status;
    named = hf_info(cli->store)->where;
    result = hf_show(cli->store, name, &report);
    if (result != HF_OK)
        return say_result(result);
    found = hf_info(cli->store)->where;
    if (strcmp(named, found) == 0)
        found = NULL;
    if (cli->json)
        print_json(name, report, found);
    else
        print_text(cli->store, name, report, found);
    hf_report_free(report);
    return finish_output(EXIT_DONE);
}

const struct command command_show = {
    .name = "show",
    .summary = "show who holds a lock and who waits for it",
    .usage = "NAME",
    .description = "Shows the holders of NAME with token, mode, owner and age, then the waiters; "
                   "after a break or\n"
                   "a lock-delay, how long the name is still withheld.",
    .takes_json = true,
    .examples = "  holdfast show nightly\n  holdfast show nightly --json | jq '.holders[].owner'\n",
    .statuses = "  0 held or not   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
