/* main.c: a table. To add a command: a file with a struct command, and its line here. */
#include "base/modules.h"
#include "base/suggest.h"
#include "cli/args.h"
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &command_run,    &command_lock,     &command_renew,  &command_unlock,  &command_elect,
    &command_leader, &command_check,    &command_ls,     &command_show,    &command_watch,
    &command_break,  &command_floor,    &command_stores, &command_cluster, &command_guard,
    &command_once,   &command_progress, &command_top,    &command_user,    &command_bench,
};

#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static void usage(FILE *out)
{
    fprintf(out, "usage: holdfast [--on URL] COMMAND ...\n\n"
                 "Locks that can be trusted, on one machine or across many.\n\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n  holdfast COMMAND --help    options, examples and exit statuses\n"
                 "  holdfast --version\n\n"
                 "The store is --on URL, else $HOLDFAST_URL, else the url of "
                 "holdfast-client.conf(5), else files on this\n"
                 "machine; 'holdfast stores' shows it. Start with: holdfast run NAME -- CMD\n");
}

/* What others call ours. */
static const struct {
    const char *typed, *meant;
} synonyms[] = {
    {"list", "ls"}, {"status", "cluster status"}, {"release", "unlock"}, {"acquire", "lock"}};

static int unknown(const char *name)
{
    const char *names[COMMAND_COUNT];
    const char *near;

    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (strcmp(synonyms[i].typed, name) == 0) {
            say("unknown command '%s': did you mean '%s'?", name, synonyms[i].meant);
            return EXIT_USAGE;
        }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i]->name;
    near = suggest_nearest(name, names, COMMAND_COUNT);
    if (near)
        say("unknown command '%s': did you mean '%s'?", printable(name), near);
    else
        say("unknown command '%s' (see 'holdfast --help')", printable(name));
    return EXIT_USAGE;
}

int cli_open(struct cli *cli)
{
    int result = hf_open(cli->url, &cli->store);

    return result == HF_OK ? 0 : say_result(result);
}

void cli_fail_eval(const struct cli *cli, int status)
{
    if (cli->command && cli->command->for_eval && !cli->json)
        printf("(exit %d)\n", status);
}

static int help(int count, char **words)
{
    const struct command *command;

    if (count == 0) {
        usage(stdout);
        return EXIT_DONE;
    }
    command = find(words[0]);
    if (!command)
        return unknown(words[0]);
    args_help(command);
    return EXIT_DONE;
}

/* Options before the command. Returns where the command is, or -1 with *ret_status set. */
static int global_options(struct cli *cli, int count, char **words, int *ret_status)
{
    for (int i = 1; i < count; i++) {
        const char *word = words[i];

        if (strncmp(word, "--on=", 5) == 0) {
            cli_take_url(cli, word + 5);
        } else if (strcmp(word, "--on") == 0 && i + 1 < count) {
            cli_take_url(cli, words[++i]);
        } else if (strcmp(word, "--json") == 0) {
            cli->json = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            *ret_status = help(0, NULL);
            return -1;
        } else if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
            printf("holdfast %s\n", hf_version());
            *ret_status = EXIT_DONE;
            return -1;
        } else if (word[0] == '-') {
            if (strcmp(word, "--on") == 0)
                say("option '--on' needs a URL (see 'holdfast stores')");
            else
                say("unknown option '%s' before the command (see 'holdfast --help')",
                    printable(word));
            *ret_status = EXIT_USAGE;
            return -1;
        } else {
            return i;
        }
    }
    usage(stderr);
    *ret_status = EXIT_USAGE;
    return -1;
}

static int dispatch(struct cli *cli, int count, char **words)
{
    struct args args = {.cli = cli};
    int status = EXIT_OURS, at = global_options(cli, count, words, &status);

    if (at < 0)
        return status;
    if (strcmp(words[at], "help") == 0)
        return help(count - at - 1, words + at + 1);
    args.command = cli->command = find(words[at]);
    if (!args.command)
        return unknown(words[at]);
    if (cli->json && !args.command->takes_json)
        return args_complain(&args, "has no --json: its output is the command's own");
    args.words = words + at + 1;
    args.count = count - at - 1;
    return args.command->run(cli, &args);
}

/* What an etcd store warns of is its server's version, or that it asks nobody who he is: a job of cron cannot change that, and it would be
 * mailed with every run. */
static bool is_for_people(const hf_warning *warning, const struct cli *cli)
{
    return strcmp(warning->scheme, "etcd") == 0 && cli->command != &command_stores;
}

static void on_warning(const hf_warning *warning, void *arg)
{
    const struct cli *cli = arg;

    if (!cli->quiet && (!is_for_people(warning, cli) || isatty(STDERR_FILENO)))
        say("%s", warning->text);
}

/* What whoever started us has closed must not become a socket of ours, which would be written to as the output. What stands in its place
 * can be used for nothing, and jobs do not get it: to them it is closed. */
static void fill_standard_places(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    int status;

    fill_standard_places();
    modules_find_beside("/src/cli/holdfast");
    hf_set_warning_handler(on_warning, &cli);
    status = dispatch(&cli, argc, argv);
    if (status != EXIT_DONE)
        cli_fail_eval(&cli, status);
    hf_close(cli.store);
    return finish_output(status);
}
