/* user.c: holdfast user ACTION: a table of what can be done to the users file of a holdfastd. It asks no server. */
#include "cli/user.h"

#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

#define STANDARD_FILE "/etc/holdfast/users"

enum {
    OPT_FILE = 256,
    OPT_ALLOW,
    OPT_CONNECTIONS, /* like the next three, in the order of their kinds */
    OPT_LEASES,
    OPT_HOLDS,
    OPT_PLACES,
    OPT_PASSWORD_FILE,
    OPT_GENERATE,
    OPT_KEEP_OLD,
    OPT_DROP_OLD
};

static const struct option_spec options[] = {
    {OPT_FILE, "file", "FILE", "the users file (default: " STANDARD_FILE ")"},
    {OPT_ALLOW, "allow", "RIGHTS", "add: what the user may do; may be said again"},
    {OPT_CONNECTIONS, "connections", "N", "add: at most so many at a time, at each server"},
    {OPT_LEASES, "leases", "N", "add: at most so many leases at a time"},
    {OPT_HOLDS, "holds", "N", "add: at most so many locks held or waited for at a time"},
    {OPT_PLACES, "places", "N", "add: at most so many locks waited for at a time"},
    {OPT_PASSWORD_FILE, "password-file", "FILE",
     "the password is its first line; - is standard input"},
    {OPT_GENERATE, "generate", NULL, "make a password, and print it, once"},
    {OPT_KEEP_OLD, "keep-old", NULL, "password: the last one stays valid beside the new one"},
    {OPT_DROP_OLD, "drop-old", NULL, "password: only the newest stays valid; asks for none"},
    {0},
};

enum { HAS_NAME = 1, HAS_RIGHTS = 2, TAKES_PASSWORD = 4, TAKES_FILE = 8, ADDS = 16 };

static const struct action {
    const char *name, *usage;
    int traits;
    int (*run)(struct user_request *request);
} actions[] = {
    {"add", " NAME", HAS_NAME | TAKES_PASSWORD | ADDS, user_add},
    {"password", " NAME", HAS_NAME | TAKES_PASSWORD, user_password},
    {"allow", " NAME RIGHTS", HAS_NAME | HAS_RIGHTS, user_allow},
    {"deny", " NAME RIGHTS", HAS_NAME | HAS_RIGHTS, user_deny},
    {"remove", " NAME", HAS_NAME, user_remove},
    {"list", "", 0, user_list},
    {"check", " [FILE]", TAKES_FILE, user_check},
};
#define ACTION_COUNT (sizeof actions / sizeof *actions)

static const struct action *find_action(const struct args *args, const char *name)
{
    const char *names[ACTION_COUNT];
    int at;

    for (size_t i = 0; i < ACTION_COUNT; i++)
        names[i] = actions[i].name;
    at = args_pick(args, names, ACTION_COUNT, name);
    return at < 0 ? NULL : &actions[at];
}

/* ---- the command line ------------------------------------------------------------------------------ */

/* Words in their order: the name, and the rights; or the file of check. */
static int take_word(const struct args *args, const struct action *action,
                     struct user_request *request, bool *has_path)
{
    if (action->traits & HAS_NAME && !request->name)
        request->name = args->value;
    else if (action->traits & HAS_RIGHTS && !request->rights)
        request->rights = args->value;
    else if (action->traits & TAKES_FILE && !*has_path)
        request->path = args->value, *has_path = true;
    else
        return args_complain(args, "one word too many: '%s'%s", printable(args->value),
                             action->traits & HAS_RIGHTS ? " (RIGHTS are one word, in quotes)"
                                                         : "");
    return 0;
}

static int take_option(const struct args *args, int id, struct user_request *request,
                       bool *has_path)
{
    switch (id) {
    case OPT_FILE:
        if (*has_path)
            return args_complain(args, "the file is named twice");
        request->path = args->value;
        *has_path = true;
        break;
    case OPT_ALLOW:
        if (request->allow_count == USER_ALLOWS_MAX)
            return args_complain(args, "more than %d times --allow", USER_ALLOWS_MAX);
        request->allows[request->allow_count++] = args->value;
        break;
    case OPT_CONNECTIONS:
    case OPT_LEASES:
    case OPT_HOLDS:
    case OPT_PLACES:
        request->limits[id - OPT_CONNECTIONS] = args->value;
        break;
    case OPT_PASSWORD_FILE:
        request->password_file = args->value;
        break;
    case OPT_GENERATE:
        request->generate = true;
        break;
    case OPT_KEEP_OLD:
        request->keep_old = true;
        break;
    default:
        request->drop_old = true;
        break;
    }
    return 0;
}

/* Options that the action has no use for would be taken for done. */
static int check_options(const struct args *args, const struct action *action,
                         const struct user_request *request)
{
    bool is_password = action->traits & TAKES_PASSWORD && !(action->traits & ADDS);
    bool of_add = request->allow_count > 0;

    for (unsigned i = 0; i < USERS_LIMITS; i++)
        of_add = of_add || request->limits[i];
    if (of_add && !(action->traits & ADDS))
        return args_complain(args, "--allow, --connections, --leases, --holds and --places are for "
                                   "add");
    if ((request->password_file || request->generate) && !(action->traits & TAKES_PASSWORD))
        return args_complain(args, "--password-file and --generate are for add and password");
    if (request->password_file && request->generate)
        return args_complain(args, "--password-file and --generate do not go together");
    if ((request->keep_old || request->drop_old) && !is_password)
        return args_complain(args, "--keep-old and --drop-old are for password");
    if (request->drop_old && (request->keep_old || request->generate || request->password_file))
        return args_complain(args, "--drop-old takes no new password");
    return 0;
}

static int check_values(const struct args *args, const struct action *action,
                        const struct user_request *request)
{
    struct error_text err = {""};
    struct users_allow allow;
    uint32_t number;
    int result = HF_OK;

    if ((action->traits & HAS_NAME && !request->name) ||
        (action->traits & HAS_RIGHTS && !request->rights))
        return args_complain(args, "usage: holdfast user %s%s", action->name, action->usage);
    if (request->name)
        result = users_file_name(request->name, &err);
    if (result == HF_OK && request->rights)
        result = users_file_allow(request->rights, &allow, &err);
    for (size_t i = 0; i < request->allow_count && result == HF_OK; i++)
        result = users_file_allow(request->allows[i], &allow, &err);
    for (unsigned i = 0; i < USERS_LIMITS && result == HF_OK; i++)
        if (request->limits[i])
            result = users_file_limit(USERS_CONNECTIONS + i, request->limits[i], &number, &err);
    return result == HF_OK ? 0 : args_complain(args, "%s", err.text);
}

static int run(struct cli *cli, struct args *args)
{
    const char *variable = getenv("HOLDFASTD_USERS_FILE");
    struct user_request request = {.path = variable && *variable ? variable : STANDARD_FILE};
    const struct action *action = NULL;
    bool has_path = false;
    int id, status = 0;

    while (status == 0 && (id = args_next(args)) != ARGS_END) {
        if (id == ARGS_WORD && !action) {
            action = find_action(args, args->value);
            status = action ? 0 : EXIT_USAGE;
        } else if (id == ARGS_WORD) {
            status = take_word(args, action, &request, &has_path);
        } else if (id < 0) {
            return args_status(id);
        } else {
            status = take_option(args, id, &request, &has_path);
        }
    }
    if (status != 0)
        return status;
    if (!action)
        return args_complain(args, "usage: holdfast user %s", args->command->usage);
    status = check_options(args, action, &request);
    if (status == 0)
        status = check_values(args, action, &request);
    request.json = cli->json;
    request.adds = action->traits & ADDS;
    return status != 0 ? status : action->run(&request);
}

const struct command command_user = {
    .name = "user",
    .summary = "keep the users file of a holdfastd (for operators)",
    .usage = "add NAME | password NAME | allow NAME RIGHTS | deny NAME RIGHTS | remove NAME | list "
             "| check [FILE] [OPTION...]",
    .description =
        "Says who may do what at a holdfastd that has a users-file. No server is asked: it reads\n"
        "the file again at SIGHUP (systemctl reload holdfastd).\n\n"
        "add       a user, whose password is asked for\n"
        "password  gives the user a new one in place of all before; with --keep-old, beside the "
        "last\n"
        "allow     adds RIGHTS: verbs (acquire look break floor admin), for acquire, look and\n"
        "          break with patterns of names behind a colon; without them, all names\n"
        "deny      takes away verbs, or of them the patterns that are written so\n"
        "remove    the user\n"
        "list      who may do what\n"
        "check     whether the server would take the file\n\n"
        "Other lines stay as they are, with their comments. The file is exchanged in one step, "
        "and\n"
        "keeps its owner and mode.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast user add ci --allow 'acquire look: build/*' --holds 50 --generate\n"
                "  holdfast user allow ann 'look break' --file /srv/holdfast/users\n"
                "  holdfast user deny ci 'look: build/*'\n"
                "  holdfast user password ci --keep-old --generate   # later: --drop-old\n",
    .statuses =
        "  0 done   1 nothing changed: such a user is there or is not, or the file has a\n"
        "  mistake, or no password came   77 the file may not be read or changed, or others "
        "can\n  69 the disk   64, 70 as in 'holdfast run --help'\n",
    .run = run,
};
