/* stores.c: holdfast stores: what each store promises, and which one is in effect. */
#include "base/clock.h"
#include "cli/args.h"
#include "cli/json.h"
#include "cli/output.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 80

static const struct {
    uint32_t bit;
    const char *name;
} features[] = {
    {HF_HAS_TTL, "ttl"},         {HF_HAS_SHARED, "shared"}, {HF_HAS_PERMITS, "permits"},
    {HF_HAS_FIFO, "fifo"},       {HF_HAS_DELAY, "delay"},   {HF_HAS_DETACH, "detach"},
    {HF_HAS_PASS_FD, "inherit"}, {HF_HAS_BREAK, "break"},   {HF_HAS_FLOOR, "floor"},
    {HF_HAS_ONCE, "once"},
};

static const char *strength(int value)
{
    return value == HF_STRICT ? "strict" : "best effort";
}

static void feature_list(uint32_t has, char *ret_text, size_t size)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (has & features[i].bit)
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? " " : "",
                                     features[i].name);
}

static void json_promises(struct json *json, const hf_store_info *info)
{
    json_string(json, "scheme", info->scheme);
    json_string(json, "url", info->url);
    json_string(json, "exclusion", strength(info->exclusion));
    json_string(json, "tokens", strength(info->tokens));
    json_array(json, "features");
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (info->features & features[i].bit)
            json_string(json, NULL, features[i].name);
    json_close(json, ']');
    json_string(json, "survives", info->survives);
    json_string(json, "wakes", info->wakes);
    json_ms(json, "ttl_ms", info->ttl_ms ? info->ttl_ms : -1);
}

static void engine_json(const hf_store_info *info, void *arg)
{
    struct json json;

    (void)arg;
    json_begin(&json);
    if (info->missing) {
        json_string(&json, "scheme", info->scheme);
        json_string(&json, "url", info->url);
        json_string(&json, "missing", info->missing);
    } else {
        json_promises(&json, info);
    }
    json_bool(&json, "in_effect", false);
    json_end(&json);
}

/* Words, in lines of at most WIDTH columns, if one word is not longer; an empty line after them. */
static void print_wrapped(const char *first, const char *text)
{
    size_t column = (size_t)printf("  %s", first);

    while (*text) {
        size_t word = strcspn(text, " ");

        if (column + 1 + word > WIDTH)
            column = (size_t)printf("\n   ") - 1;
        column += (size_t)printf(" %.*s", (int)word, text);
        text += word;
        text += strspn(text, " ");
    }
    printf("\n\n");
}

/* A paragraph each, within 80 columns: in a table the words that matter would be behind the edge of the screen. */
static void print_engine(const hf_store_info *info, void *arg)
{
    char text[128];

    (void)arg;
    if (info->missing) {
        printf("%s\n", printable(info->url));
        print_wrapped("cannot be used here:", printable(info->missing));
        return;
    }
    printf("%-26sexclusion %s, tokens %s\n", info->url, strength(info->exclusion),
           strength(info->tokens));
    feature_list(info->features, text, sizeof text);
    printf("  has %s\n", text);
    if (info->survives)
        printf("  %s\n", info->survives);
    if (info->wakes)
        printf("  waiters: %s\n", info->wakes);
    printf("\n");
}

/* ---- the one in effect ----------------------------------------------------------------------- */

static void print_effect(const hf_store_info *info, void *arg)
{
    const struct cli *cli = arg;
    bool named = info->origin[0] && strcmp(info->origin, "default") != 0;
    struct json json;

    if (!cli->json) {
        printf("In effect: %s (%s%s%s)", printable(info->url), printable(info->where),
               info->missing ? ", " : "", info->missing ? info->missing : "");
        printf(named ? ", named by %s\n" : "\n", printable(info->origin));
        return;
    }
    json_begin(&json);
    json_promises(&json, info);
    json_string(&json, "where", info->where);
    json_string(&json, "named_by", cli->url ? "--on" : info->origin);
    json_bool(&json, "in_effect", true);
    json_end(&json);
}

static void note_server(const hf_store_info *info, void *arg)
{
    *(bool *)arg = (info->features & HF_HAS_TTL) != 0;
}

static int show_something(hf_store *store)
{
    hf_report *report;
    int result = hf_show(store, "holdfast", &report);

    if (result == HF_OK)
        hf_report_free(report);
    /* Whoever may not look there has been answered all the same. */
    return result == HF_EREFUSED && strstr(hf_error(), " NOPERM ") ? HF_OK : result;
}

/* A store speaks of its server when it has asked it something. That it cannot is told, but not what was asked here: the list is true all
 * the same. Then it is not open. ret_named: where it was by its URL alone; lives as long as the store. */
static void ask_server(struct cli *cli, const char **ret_named)
{
    int64_t began_ms = clock_boot_ms();
    bool has_server = false;
    int result;

    if (hf_describe(cli->url, note_server, &has_server) != HF_OK || !has_server)
        return;
    result = hf_open(cli->url, &cli->store);
    if (result == HF_OK) {
        *ret_named = hf_info(cli->store)->where;
        result = show_something(cli->store);
    }
    if (result == HF_OK)
        return;
    say("the store in effect cannot be used now (asked for %s): %s",
        span(clock_boot_ms() - began_ms), hf_error());
    hf_close(cli->store);
    cli->store = NULL;
}

/* What asking the server has added: on PostgreSQL also the schema. */
static void print_found(const hf_store_info *info, const char *named)
{
    if (strcmp(info->where, named) != 0)
        printf("  found: %s\n", printable(info->where));
    printf("  waiters: %s\n", info->wakes);
}

/* The store that a command without --on would use. That it cannot be opened is worth knowing, but
 * does not make this list any less true. */
static int in_effect(struct cli *cli)
{
    const char *named = "";
    int result;

    if (cli->json)
        ask_server(cli, &named);
    if (cli->store) {
        print_effect(hf_info(cli->store), cli);
        return EXIT_DONE;
    }
    result = hf_describe(cli->url, print_effect, cli);
    flush_output();
    if (result == HF_OK) {
        if (!cli->json)
            ask_server(cli, &named);
        if (cli->store)
            print_found(hf_info(cli->store), named);
        return EXIT_DONE;
    }
    say("the store in effect cannot be opened: %s", hf_error());
    return status_of(result);
}

static int run(struct cli *cli, struct args *args)
{
    int status;

    if (args_words(args, NULL, 0, 0, NULL, &status))
        return status;
    status = hf_engines(cli->json ? engine_json : print_engine, NULL) == HF_OK ? EXIT_DONE
                                                                               : EXIT_UNAVAILABLE;
    flush_output();
    if (status == EXIT_DONE)
        status = in_effect(cli);
    return finish_output(status);
}

const struct command command_stores = {
    .name = "stores",
    .summary = "list the kinds of stores and what each promises",
    .usage = "",
    .description =
        "Lists the stores that this build knows with what they promise, and the one in effect.",
    .takes_json = true,
    .examples = "  holdfast stores\n  holdfast --on file:/srv/locks stores --json\n",
    .statuses = "  0, also when its server does not answer, which a line says   69, 77, 64 when "
                "the URL of the\n"
                "  store in effect cannot be opened\n",
    .run = run,
};
