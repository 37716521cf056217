/* leader.c: holdfast leader NAME */
#include "cli/args.h"
#include "cli/follow.h"
#include "cli/json.h"
#include "cli/output.h"

enum { OPT_FOLLOW = 'f' };

static const struct option_spec options[] = {
    {OPT_FOLLOW, "follow", NULL, "keep running, and print a line for every new leader"},
    {0},
};

struct lead {
    const char *name;
    bool json, said;
    uint64_t token; /* of the leader told last; 0: nobody */
};

static const hf_entry *leader_of(const hf_report *report)
{
    for (size_t i = 0; i < hf_report_count(report); i++)
        if (hf_report_entry(report, i)->kind == HF_ENTRY_HOLDER)
            return hf_report_entry(report, i);
    return NULL;
}

static void print(const struct lead *lead, const hf_entry *leader)
{
    struct json json;

    if (lead->json) {
        json_begin(&json);
        json_name(&json, lead->name);
        json_string(&json, "leader", leader ? leader->owner : NULL);
        if (leader)
            json_entry(&json, leader);
        json_end(&json);
    } else if (leader) {
        printf("%s, token %llu\n", *leader->owner ? printable(leader->owner) : "somebody",
               (unsigned long long)leader->token);
    } else if (lead->said) {
        puts("nobody");
    }
}

static void changed(hf_observer *observer, const hf_report *now, void *arg)
{
    struct lead *lead = arg;
    const hf_entry *leader = leader_of(now);
    uint64_t token = leader ? leader->token : 0;

    (void)observer;
    if (lead->said && token == lead->token)
        return;
    lead->said = true;
    lead->token = token;
    print(lead, leader);
}

static int run(struct cli *cli, struct args *args)
{
    struct lead lead = {0};
    const hf_entry *leader;
    hf_report *report;
    bool follows = false;
    int id, status, result;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_FOLLOW)
            follows = true;
        else if (id == ARGS_WORD && !lead.name)
            lead.name = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        else
            return args_status(id);
    }
    if (!lead.name)
        return args_complain(args, "leader of what? usage: holdfast leader NAME");
    if (!args_name(args, lead.name))
        return EXIT_USAGE;
    lead.json = cli->json;
    status = cli_open(cli);
    if (status != 0)
        return status;
    if (follows)
        return follow(cli, lead.name, changed, &lead);
    result = hf_show(cli->store, lead.name, &report);
    if (result != HF_OK)
        return say_result(result);
    leader = leader_of(report);
    print(&lead, leader);
    if (!leader && !lead.json)
        say("nobody leads '%s'", printable(lead.name));
    status = leader ? EXIT_DONE : EXIT_NOT;
    hf_report_free(report);
    return finish_output(status);
}

const struct command command_leader = {
    .name = "leader",
    .summary = "print the leader",
    .usage = "NAME [OPTION...]",
    .description = "Prints the owner and the token of the leader of NAME (see 'holdfast elect').",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast leader scheduler\n  holdfast leader scheduler --follow --json\n",
    .statuses =
        "  0 there is a leader   1 there is none   69, 77, 64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
