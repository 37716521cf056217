/* guard_redis.c: holdfast guard redis: prints Lua for a Redis that is to refuse stale tokens. */
#include "cli/guard.h"

#include "cli/output.h"

#include <errno.h>
#include <holdfast/guard.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPT_EVAL = 256, OPT_WRAP, OPT_MARK };

static const struct option_spec options[] = {
    {OPT_EVAL, "eval", "OP", "one script for EVAL: enter, set, del, hset, reset or wrap"},
    {OPT_WRAP, "wrap", "NAME", "a library with the script on standard input as function NAME"},
    {OPT_MARK, "mark", "KEY", "only print where the mark of KEY is kept"},
    {0},
};

struct wanted {
    const char *eval, *wrap, *mark;
};

static int say_misuse(const struct args *args)
{
    return args_complain(args, "%s", hf_error());
}

/* The script on standard input; NULL: it has said what is wrong. */
static char *read_body(int *ret_status)
{
    size_t room = HF_GUARD_REDIS_BODY_MAX + 2, used = 0; /* one too many shows, and the NUL */
    char *body = calloc(1, room);
    ssize_t got = 1;

    *ret_status = EXIT_UNAVAILABLE;
    if (!body) {
        say("out of memory");
        return NULL;
    }
    while (got != 0 && used < room - 1) {
        got = read(STDIN_FILENO, body + used, room - 1 - used);
        if (got > 0)
            used += (size_t)got;
        else if (got < 0 && errno != EINTR) {
            say("cannot read the script on standard input: %s", strerror(errno));
            free(body);
            return NULL;
        }
    }
    if (strlen(body) == used)
        return body;
    say("the script on standard input is not text: there is a NUL in it");
    *ret_status = EXIT_USAGE;
    free(body);
    return NULL;
}

static int print_wrapped(const struct args *args, const char *name)
{
    char *body, *text = NULL;
    int status, result;

    body = read_body(&status);
    if (!body)
        return status;
    result = hf_guard_redis_wrap(name, body, &text);
    free(body);
    if (result != HF_OK)
        return result == HF_EINVAL ? say_misuse(args) : say_result(result);
    fputs(text, stdout);
    free(text);
    return EXIT_DONE;
}

static int print_script(const struct args *args, const char *operation)
{
    const char *text;

    if (strcmp(operation, "wrap") == 0)
        return print_wrapped(args, NULL);
    text = hf_guard_redis_script(operation);
    if (!text)
        return args_complain(args,
                             "no operation '%s': there are enter, set, del, hset, reset and wrap",
                             printable(operation));
    fputs(text, stdout);
    return EXIT_DONE;
}

static int print_mark(const struct args *args, const char *key)
{
    char mark[HF_GUARD_REDIS_MARK_MAX];

    if (hf_guard_redis_mark(key, mark, sizeof mark) != HF_OK)
        return say_misuse(args);
    puts(mark);
    return EXIT_DONE;
}

static int print_wanted(const struct args *args, const struct wanted *wanted)
{
    if (wanted->eval)
        return print_script(args, wanted->eval);
    if (wanted->wrap)
        return print_wrapped(args, wanted->wrap);
    if (wanted->mark)
        return print_mark(args, wanted->mark);
    fputs(hf_guard_redis_library(), stdout);
    return EXIT_DONE;
}

static int run(struct cli *cli, struct args *args)
{
    struct wanted wanted = {0};
    int id;

    (void)cli;
    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_EVAL)
            wanted.eval = args->value;
        else if (id == OPT_WRAP)
            wanted.wrap = args->value;
        else if (id == OPT_MARK)
            wanted.mark = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        else
            return args_status(id);
    }
    if (!!wanted.eval + !!wanted.wrap + !!wanted.mark > 1)
        return args_complain(args, "one of --eval, --wrap and --mark at a time");
    return print_wanted(args, &wanted); /* main looks whether the output was taken */
}

const struct command command_guard_redis = {
    .name = "guard redis",
    .summary = "make a Redis refuse a stale holder",
    .usage = "[--eval OP | --wrap NAME | --mark KEY]",
    .description =
        "Prints a library of functions for Redis 7, or scripts for EVAL. The greatest token seen,\n"
        "the mark, lives in Redis beside the data, and is checked, raised and the data written in\n"
        "one call: enter, SET, DEL, HSET, and scripts of your own. Loading it twice is harmless.",
    .options = options,
    .examples =
        "  # Redis 7: load the functions once; then enter before you read, and write with the "
        "token\n"
        "  holdfast guard redis | redis-cli -x FUNCTION LOAD REPLACE\n"
        "  redis-cli -e FCALL holdfast_enter 1 'holdfast.mark:{stock}' 35 not-older\n"
        "  redis-cli -e FCALL holdfast_set 2 'holdfast.mark:{stock}' stock 35 not-older 7\n"
        "\n"
        "  # from lock to write\n"
        "  holdfast run stock-take -- sh -c 'redis-cli -e FCALL holdfast_hset 2 \\\n"
        "      \"holdfast.mark:{shelf}\" shelf $HOLDFAST_TOKEN not-older apples 12 pears 5'\n"
        "\n"
        "  # a script of your own: KEYS and ARGV come to it without the mark, token and mode\n"
        "  echo 'return redis.call(\"DECRBY\", KEYS[1], ARGV[1])' >take.lua\n"
        "  holdfast guard redis --wrap take <take.lua | redis-cli -x FUNCTION LOAD REPLACE\n"
        "  redis-cli -e FCALL take 2 'holdfast.mark:{stock}' stock 35 not-older 2\n"
        "\n"
        "  # before Redis 7\n"
        "  holdfast guard redis --eval del >del.lua\n"
        "  redis-cli -e --eval del.lua 'holdfast.mark:{stock}' stock , 36 not-older\n"
        "\n"
        "  # for operators: forget a mark, and write down why\n"
        "  redis-cli -e FCALL holdfast_reset 2 'holdfast.mark:{stock}' holdfast.resets 0 'new "
        "store'\n"
        "\n"
        "  # undo\n"
        "  redis-cli -e FUNCTION DELETE holdfast_take\n"
        "  redis-cli -e FUNCTION DELETE holdfast\n",
    .statuses = "  0 printed   64 usage   69 standard input or output fails\n",
    .run = run,
};
