#include "cli/args.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Options of every command. Given before or after the command's name, they mean the same. */
enum { ID_ON = 1000, ID_JSON, ID_HELP };

static const struct option_spec common_options[] = {
    {ID_ON, "on", "URL", "the store (default: $HOLDFAST_URL, else client.conf, else local files)"},
    {ID_JSON, "json", NULL, "print JSON, one object per line"},
    {ID_HELP, "help", NULL, "print this help"},
    {0},
};

#define OPTION_NAMES_MAX 64

int args_complain(const struct args *args, const char *format, ...)
{
    char text[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say("%s: %s (see 'holdfast %s --help')", args->command->name, text, args->command->name);
    return EXIT_USAGE;
}

static bool applies(const struct command *command, const struct option_spec *option)
{
    return option->id != ID_JSON || command->takes_json;
}

static const struct option_spec *find_long(const struct command *command, const char *name,
                                           size_t length)
{
    const struct option_spec *tables[] = {command->options, common_options};

    for (size_t t = 0; t < 2; t++)
        for (const struct option_spec *o = tables[t]; o && o->name; o++)
            if (strlen(o->name) == length && memcmp(o->name, name, length) == 0 &&
                applies(command, o))
                return o;
    return NULL;
}

static const struct option_spec *find_letter(const struct command *command, char letter)
{
    for (const struct option_spec *o = command->options; o && o->name; o++)
        if (o->id == letter)
            return o;
    if (letter == 'h')
        return find_long(command, "help", 4);
    return NULL;
}

static int unknown_long(const struct args *args, const char *name, size_t length)
{
    const char *names[OPTION_NAMES_MAX];
    const struct option_spec *tables[] = {args->command->options, common_options};
    char typed[64];
    const char *near;
    size_t count = 0;

    for (size_t t = 0; t < 2; t++)
        for (const struct option_spec *o = tables[t]; o && o->name; o++)
            if (count < OPTION_NAMES_MAX && o->help && applies(args->command, o))
                names[count++] = o->name;
    snprintf(typed, sizeof typed, "%.*s", (int)length, name);
    near = suggest_nearest(typed, names, count);
    if (near)
        args_complain(args, "unknown option '--%s': did you mean '--%s'?", printable(typed), near);
    else
        args_complain(args, "unknown option '--%s'", printable(typed));
    return ARGS_USAGE;
}

/* Common options are carried out here; the others go back to the command. */
static int finish_option(struct args *args, const struct option_spec *option)
{
    switch (option->id) {
    case ID_ON:
        cli_take_url(args->cli, args->value);
        return args_next(args);
    case ID_JSON:
        args->cli->json = true;
        return args_next(args);
    case ID_HELP:
        args_help(args->command);
        return ARGS_HELPED;
    default:
        return option->id;
    }
}

static int take_value(struct args *args, const struct option_spec *option, const char *attached)
{
    if (attached) {
        args->value = attached;
    } else if (args->at < args->count) {
        args->value = args->words[args->at++];
    } else {
        args_complain(args, "option '--%s' needs a value (%s)", option->name, option->value);
        return ARGS_USAGE;
    }
    return finish_option(args, option);
}

static int next_letter(struct args *args)
{
    char letter = *args->cluster++;
    const struct option_spec *option = find_letter(args->command, letter);
    const char *rest = args->cluster;

    if (!*args->cluster)
        args->cluster = NULL;
    if (!option) {
        char shown[2] = {letter, '\0'};

        args_complain(args, "unknown option '-%s'", printable(shown));
        return ARGS_USAGE;
    }
    if (!option->value)
        return finish_option(args, option);
    args->cluster = NULL;
    return take_value(args, option, *rest ? rest : NULL);
}

static int next_long(struct args *args, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const struct option_spec *option = find_long(args->command, text, length);

    if (!option)
        return unknown_long(args, text, length);
    if (option->value)
        return take_value(args, option, equals ? equals + 1 : NULL);
    if (equals) {
        args_complain(args, "option '--%s' takes no value", option->name);
        return ARGS_USAGE;
    }
    return finish_option(args, option);
}

int args_next(struct args *args)
{
    const char *word;

    if (args->cluster)
        return next_letter(args);
    if (args->at >= args->count)
        return ARGS_END;
    word = args->words[args->at++];
    if (!args->literal && strcmp(word, "--") == 0) {
        args->literal = true;
        return args_next(args);
    }
    if (args->literal || word[0] != '-' || word[1] == '\0') {
        args->value = word;
        return ARGS_WORD;
    }
    if (word[1] == '-')
        return next_long(args, word + 2);
    args->cluster = word + 1;
    return next_letter(args);
}

char **args_rest(struct args *args)
{
    if (args->at < args->count && strcmp(args->words[args->at], "--") == 0)
        args->at++;
    return args->words + args->at;
}

int args_status(int answer)
{
    return answer == ARGS_HELPED ? EXIT_DONE : EXIT_USAGE;
}

/* "a, b and c" */
static void list_names(const char *const *names, size_t count, char *ret_text, size_t size)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s",
                                 i == 0           ? ""
                                 : i + 1 == count ? " and "
                                                  : ", ",
                                 names[i]);
}

int args_pick(const struct args *args, const char *const *names, size_t count, const char *word)
{
    char all[ARGS_NAMES_MAX * 16];
    const char *near;

    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0)
            return (int)i;
    near = suggest_nearest(word, names, count);
    list_names(names, count, all, sizeof all);
    if (near)
        args_complain(args, "unknown action '%s': did you mean '%s'?", printable(word), near);
    else
        args_complain(args, "unknown action '%s'; there are %s", printable(word), all);
    return -1;
}

int args_words(struct args *args, const char **ret_words, int min, int max, int *ret_count,
               int *ret_status)
{
    int count = 0, answer;

    while ((answer = args_next(args)) == ARGS_WORD) {
        if (count == max) {
            *ret_status = args_complain(args, "one word too many: '%s'", printable(args->value));
            return 1;
        }
        ret_words[count++] = args->value;
    }
    if (answer != ARGS_END) {
        *ret_status = args_status(answer);
        return 1;
    }
    if (count < min) {
        *ret_status =
            args_complain(args, "usage: holdfast %s %s", args->command->name, args->command->usage);
        return 1;
    }
    if (ret_count)
        *ret_count = count;
    return 0;
}

bool args_duration(const struct args *args, const char *option, int64_t min_ms, int64_t max_ms,
                   int64_t *ret_ms)
{
    char least[TEXT_SPAN_MAX], most[TEXT_SPAN_MAX];
    int64_t ms;

    if (text_to_ms(args->value, &ms) && ms >= min_ms && ms <= max_ms) {
        *ret_ms = ms;
        return true;
    }
    text_duration(min_ms, least);
    text_duration(max_ms, most);
    args_complain(args, "%s '%s' is not a duration from %s to %s, such as 500ms, 30s or 5m30s",
                  option, printable(args->value), least, most);
    return false;
}

bool args_number(const struct args *args, const char *option, uint64_t min, uint64_t max,
                 uint64_t *ret_value)
{
    uint64_t value;

    if (text_to_u64(args->value, max, &value) && value >= min) {
        *ret_value = value;
        return true;
    }
    args_complain(args, "%s '%s' is not a number from %llu to %llu", option, printable(args->value),
                  (unsigned long long)min, (unsigned long long)max);
    return false;
}

static bool check(const struct args *args, int result, const struct error_text *err)
{
    if (result != HF_OK)
        args_complain(args, "%s", err->text);
    return result == HF_OK;
}

bool args_name(const struct args *args, const char *name)
{
    struct error_text err;

    return check(args, text_check_name(name, &err), &err);
}

bool args_key(const struct args *args, const char *key)
{
    struct error_text err;

    return check(args, text_check_key(key, &err), &err);
}

static void help_options(const struct command *command, const struct option_spec *options)
{
    for (const struct option_spec *o = options; o && o->name; o++) {
        char left[64];

        if (!o->help || !applies(command, o))
            continue;
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", o->id < 256 ? '-' : ' ',
                 o->id < 256 ? o->id : ' ', o->id < 256 ? "," : " ", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-32s %s\n", left, o->help);
    }
}

static bool takes_duration(const struct command *command)
{
    for (const struct option_spec *o = command->options; o && o->name; o++)
        if (o->help && o->value && strcmp(o->value, "DUR") == 0)
            return true;
    return false;
}

void args_help(const struct command *command)
{
    printf("usage: holdfast [--on URL] %s%s%s\n\n%s\n\nOptions:\n", command->name,
           *command->usage ? " " : "", command->usage, command->description);
    help_options(command, command->options);
    help_options(command, common_options);
    if (takes_duration(command))
        puts("\nDUR is a duration such as 500ms, 30s, 5m30s or 24h; a bare number is seconds.");
    if (command->examples)
        printf("\nExamples:\n%s", command->examples);
    if (command->statuses)
        printf("\nExit status:\n%s", command->statuses);
    printf("\nMore: man holdfast-");
    for (const char *c = command->name; *c; c++) /* of "guard sql" it is holdfast-guard-sql */
        putchar(*c == ' ' ? '-' : *c);
    putchar('\n');
}
