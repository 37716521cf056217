/* guard.c: holdfast guard ACTION: a table. To add an action: a file with a struct command, and its
 * line here. */
#include "cli/guard.h"

#include "cli/output.h"

#include <string.h>

static const struct command *const actions[] = {
    &command_guard_sql,
    &command_guard_redis,
    &command_guard_marks,
    &command_guard_reset,
};

#define ACTION_COUNT (sizeof actions / sizeof *actions)

static const struct command *find_action(const struct args *args, const char *name)
{
    const char *names[ACTION_COUNT];
    int at;

    for (size_t i = 0; i < ACTION_COUNT; i++)
        names[i] = actions[i]->name + strlen("guard ");
    at = args_pick(args, names, ACTION_COUNT, name);
    return at < 0 ? NULL : actions[at];
}

static int run(struct cli *cli, struct args *args)
{
    struct args rest = *args;
    int id = args_next(args);

    if (id != ARGS_WORD)
        return id == ARGS_END
                   ? args_complain(args, "usage: holdfast guard %s", args->command->usage)
                   : args_status(id);
    rest.command = find_action(args, args->value);
    if (!rest.command)
        return EXIT_USAGE;
    if (cli->json && !rest.command->takes_json)
        return args_complain(&rest, "has no --json");
    cli->command = rest.command;
    rest.words = args->words + args->at;
    rest.count = args->count - args->at;
    rest.at = 0;
    return rest.command->run(cli, &rest);
}

const struct command command_guard = {
    .name = "guard",
    .summary = "make a resource refuse a stale holder",
    .usage = "ACTION ...",
    .description =
        "A guard keeps the greatest token that a resource has seen, and refuses a smaller one.\n"
        "\n"
        "Actions:\n"
        "  sql     print SQL that guards tables of PostgreSQL or SQLite\n"
        "  redis   print functions or scripts that guard keys of Redis\n"
        "  marks   show the marks of a fence, the guard for C programs\n"
        "  reset   forget or change a mark of a fence (for operators)\n"
        "\n"
        "'holdfast guard ACTION --help' says more.",
    .takes_json = true,
    .run = run,
};
