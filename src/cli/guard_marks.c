/* guard_marks.c: holdfast guard marks --fence DIR [KEY], and opening a fence for its actions. */
#include "cli/guard.h"
#include "cli/json.h"
#include "cli/output.h"

#include <string.h>

enum { OPT_FENCE = 256, OPT_ALLOW };

static const struct option_spec options[] = {
    {OPT_FENCE, "fence", "DIR", "the fence's directory"},
    {OPT_ALLOW, "allow", "WHAT",
     "open it although it is on tmpfs or network, or writable by others"},
    {0},
};

/* ---- a fence that there is ------------------------------------------------------------------- */

bool fence_allow(const struct args *args, int *allow)
{
    static const struct {
        const char *name;
        int bit;
    } known[] = {
        {"tmpfs", HF_ALLOW_TMPFS}, {"network", HF_ALLOW_NETWORK}, {"writable", HF_ALLOW_WRITABLE}};
    const char *at = args->value;

    do {
        size_t length = strcspn(at, ","), i = 0;

        while (i < 3 && (strlen(known[i].name) != length || memcmp(known[i].name, at, length) != 0))
            i++;
        if (i == 3) {
            args_complain(args, "--allow takes tmpfs, network and writable, not '%s'",
                          printable(args->value));
            return false;
        }
        *allow |= known[i].bit;
        at += length;
    } while (*at++ == ',');
    return true;
}

int fence_open_words(const struct args *args, const struct fence_words *words, hf_fence **ret_fence)
{
    hf_fence_options how = HF_FENCE_OPTIONS_INIT;
    int result;

    if (!words->path)
        return args_complain(args, "which fence? --fence DIR");
    how.existing = 1;
    how.allow = words->allow;
    result = hf_fence_open(words->path, &how, ret_fence);
    return result == HF_OK ? 0 : say_result(result);
}

/* ---- marks ----------------------------------------------------------------------------------- */

static int print_mark(const char *key, uint64_t mark, void *arg)
{
    const struct cli *cli = arg;
    struct json json;

    if (cli->json) {
        json_begin(&json);
        json_text(&json, "key", key);
        json_u64(&json, "mark", mark);
        json_end(&json);
    } else {
        printf("%-16llu %s\n", (unsigned long long)mark, printable(key));
    }
    return ferror(stdout); /* nobody reads it any more */
}

static int print_one(struct cli *cli, hf_fence *fence, const char *key)
{
    uint64_t mark = 0;
    int result = hf_fence_mark(fence, key, &mark);

    if (result != HF_OK)
        return say_result(result);
    print_mark(key, mark, cli);
    return mark != 0 ? EXIT_DONE : EXIT_NOT;
}

static int run(struct cli *cli, struct args *args)
{
    struct fence_words words = {0};
    const char *key = NULL;
    hf_fence *fence = NULL;
    int id, status;

    while ((id = args_next(args)) != ARGS_END) {
        if (id == OPT_FENCE)
            words.path = args->value;
        else if (id == OPT_ALLOW) {
            if (!fence_allow(args, &words.allow))
                return EXIT_USAGE;
        } else if (id == ARGS_WORD && !key)
            key = args->value;
        else if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        else
            return args_status(id);
    }
    status = fence_open_words(args, &words, &fence);
    if (status != 0)
        return status;
    if (key) {
        status = print_one(cli, fence, key);
    } else {
        int result = hf_fence_each(fence, print_mark, cli);

        status = result == HF_OK ? EXIT_DONE : say_result(result);
    }
    hf_fence_close(fence);
    return finish_output(status);
}

const struct command command_guard_marks = {
    .name = "guard marks",
    .summary = "show the marks of a fence",
    .usage = "--fence DIR [KEY] [OPTION...]",
    .description =
        "Prints each key of a fence (hf_fence_open) with its mark, the greatest token it "
        "has seen;\nor that of KEY alone: 0 if it has none.",
    .options = options,
    .takes_json = true,
    .examples = "  holdfast guard marks --fence /var/lib/shop/fence\n"
                "  holdfast guard marks --fence /var/lib/shop/fence account:7 --json\n",
    .statuses = "  0 done   1 KEY has no mark   77 no fence there, or not a safe place\n"
                "  64, 69, 70 as in 'holdfast run --help'\n",
    .run = run,
};
