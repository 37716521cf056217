/* ls.c: holdfast ls [GLOB] */
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/slow.h"

#include <stdlib.h>
#include <string.h>

enum { OPT_ALL = 'a', OPT_QUIET = 'q', OPT_LONGEST = 256 };

static const struct option_spec options[] = {
    {OPT_ALL, "all", NULL, "also names that nobody holds now, where the store knows them"},
    {OPT_LONGEST, "longest", NULL, "what is held longest first, what is not known to be last"},
    {OPT_QUIET, "quiet", NULL, "do not print that the store is slow to answer, nor warnings"},
    {0},
};

/* By name, as they come; or by how long they are held. */
struct listing {
    const hf_entry **entries;
    size_t count;
};

/* -1: not known, or nobody holds it. */
static int64_t held_ms(const hf_entry *entry)
{
    return entry->kind == HF_ENTRY_HOLDER ? entry->age_ms : -1;
}

static int compare_ages(const void *a, const void *b)
{
    const hf_entry *first = *(const hf_entry *const *)a, *second = *(const hf_entry *const *)b;

    if (held_ms(first) != held_ms(second))
        return held_ms(first) > held_ms(second) ? -1 : 1;
    return strcmp(first->name, second->name);
}

static bool listing_of(const hf_report *report, bool longest, struct listing *ret_listing)
{
    size_t count = hf_report_count(report);
    const hf_entry **entries = calloc(count + 1, sizeof *entries);

    if (!entries)
        return false;
    for (size_t i = 0; i < count; i++)
        entries[i] = hf_report_entry(report, i);
    if (longest)
        qsort(entries, count, sizeof *entries, compare_ages);
    *ret_listing = (struct listing){entries, count};
    return true;
}

static void print_json(const struct listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        const hf_entry *entry = listing->entries[i];
        struct json json;

        json_begin(&json);
        json_name(&json, entry->name);
        json_bool(&json, "held", entry->kind == HF_ENTRY_HOLDER);
        if (entry->kind == HF_ENTRY_HOLDER)
            json_entry(&json, entry);
        json_end(&json);
    }
}

static int print_table(const struct listing *listing)
{
    static const char *const titles[] = {"NAME", "MODE", "TOKEN", "AGE", "OWNER"};
    struct table table;

    if (listing->count == 0)
        return EXIT_DONE; /* as ls(1) in an empty directory */
    table_begin(&table, 5);
    for (size_t i = 0; i < 5; i++)
        table_cell(&table, titles[i]);
    for (size_t i = 0; i < listing->count; i++) {
        const hf_entry *entry = listing->entries[i];
        bool held = entry->kind == HF_ENTRY_HOLDER;
        char token[24];

        snprintf(token, sizeof token, "%llu", (unsigned long long)entry->token);
        table_cell(&table, printable(entry->name));
        table_cell(&table, held                               ? mode_name(entry->mode)
                           : entry->kind == HF_ENTRY_WITHHELD ? "withheld"
                                                              : "free");
        table_cell(&table, held ? token : "-");
        table_cell(&table, held ? span(entry->age_ms) : "-");
        table_cell(&table, held ? printable(entry->owner) : "-");
    }
    return table_end(&table);
}

static int run(struct cli *cli, struct args *args)
{
    hf_list_options wanted = HF_LIST_OPTIONS_INIT;
    hf_report *report;
    struct listing listing;
    struct slow slow;
    bool longest = false;
    int id, status, result;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_ALL)
            wanted.all = 1;
        else if (id == OPT_LONGEST)
            longest = true;
        else if (id == OPT_QUIET)
            cli->quiet = true;
        else if (id == ARGS_WORD && !wanted.match)
            wanted.match = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one pattern at a time; quote it for the shell: 'jobs/*'");
        else
            return args_status(id);
    }
    status = cli_open(cli);
    if (status != 0)
        return status;
    slow_begin(&slow, cli, "ls", "no list", SLOW_NO_LIMIT);
    result = hf_list(cli->store, &wanted, &report);
    slow_end(&slow);
    if (result != HF_OK)
        return say_result(result);
    if (!listing_of(report, longest, &listing)) {
        hf_report_free(report);
        say("out of memory");
        return EXIT_UNAVAILABLE;
    }
    if (cli->json)
        print_json(&listing);
    else
        status = print_table(&listing);
    free(listing.entries);
    hf_report_free(report);
    return finish_output(status);
}

const struct command command_ls = {
    .name = "ls",
    .summary = "list who holds what",
    .usage = "[GLOB] [OPTION...]",
    .description = "Lists every holder of every name that matches GLOB (all without one), by name, "
                   "or with\n--longest by how long they are held.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast ls\n  holdfast ls 'jobs/*' --json | jq .owner\n"
                "  holdfast ls --longest | head\n",
    .statuses = "  0 also when there are none   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
