/* watch.c: holdfast watch NAME */
#include "base/clock.h"
#include "cli/args.h"
#include "cli/follow.h"
#include "cli/json.h"
#include "cli/output.h"

#include <stdlib.h>
#include <time.h>

/* Who held it when we last looked, to tell who came and who went. */
struct seen {
    uint64_t token;
    int64_t since_ms; /* clock_boot_ms */
};

struct watching {
    hf_store *store;
    const char *name;
    bool json, started;
    struct seen *seen;
    size_t count;
};

static void json_time(struct json *json)
{
    int64_t wall_ms = clock_wall_ms();
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    char text[48] = "", stamp[64];

    if (gmtime_r(&seconds, &utc) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc) > 0) {
        snprintf(stamp, sizeof stamp, "%s.%03dZ", text, (int)(wall_ms % 1000));
        json_string(json, "time", stamp);
    }
}

static void tell_held(const struct watching *watching, const hf_entry *entry)
{
    struct json json;
    char text[512];

    if (watching->json) {
        json_begin(&json);
        json_time(&json);
        json_name(&json, watching->name);
        json_string(&json, "event", "held");
        json_entry(&json, entry);
        json_end(&json);
        return;
    }
    describe_holder(watching->store, entry, text, sizeof text);
    printf("%s  %s: held (%s) by %s\n", clock_time(0), printable(watching->name),
           mode_name(entry->mode), text);
}

static void tell_ended(const struct watching *watching, const struct seen *seen, bool is_free)
{
    int64_t held_ms = clock_boot_ms() - seen->since_ms;
    struct json json;

    if (watching->json) {
        json_begin(&json);
        json_time(&json);
        json_name(&json, watching->name);
        json_string(&json, "event", "ended");
        json_u64(&json, "token", seen->token);
        json_ms(&json, "held_ms", held_ms);
        json_bool(&json, "free", is_free);
        json_end(&json);
        return;
    }
    printf("%s  %s: %stoken %llu ended after %s\n", clock_time(0), printable(watching->name),
           is_free ? "free: " : "", (unsigned long long)seen->token, span(held_ms));
}

static void tell_free(const struct watching *watching)
{
    struct json json;

    if (!watching->json) {
        printf("%s  %s: nobody holds it\n", clock_time(0), printable(watching->name));
        return;
    }
    json_begin(&json);
    json_time(&json);
    json_name(&json, watching->name);
    json_string(&json, "event", "free");
    json_end(&json);
}

static bool holds(const hf_report *now, uint64_t token)
{
    for (size_t i = 0; i < hf_report_count(now); i++)
        if (hf_report_entry(now, i)->kind == HF_ENTRY_HOLDER &&
            hf_report_entry(now, i)->token == token)
            return true;
    return false;
}

static const struct seen *find(const struct watching *watching, uint64_t token)
{
    for (size_t i = 0; i < watching->count; i++)
        if (watching->seen[i].token == token)
            return &watching->seen[i];
    return NULL;
}

static void changed(hf_observer *observer, const hf_report *now, void *arg)
{
    struct watching *watching = arg;
    size_t entries = hf_report_count(now), holders = 0;
    struct seen *seen = calloc(entries + 1, sizeof *seen);

    (void)observer;
    if (!seen)
        return; /* the next change tells it all */
    for (size_t i = 0; i < entries; i++)
        holders += hf_report_entry(now, i)->kind == HF_ENTRY_HOLDER;
    for (size_t i = 0; i < watching->count; i++)
        if (!holds(now, watching->seen[i].token))
            tell_ended(watching, &watching->seen[i], holders == 0);
    if (!watching->started && holders == 0)
        tell_free(watching);
    holders = 0;
    for (size_t i = 0; i < entries; i++) {
        const hf_entry *entry = hf_report_entry(now, i);
        const struct seen *before = find(watching, entry->token);

        if (entry->kind != HF_ENTRY_HOLDER)
            continue;
        if (!before)
            tell_held(watching, entry);
        seen[holders].token = entry->token;
        seen[holders].since_ms =
            before ? before->since_ms : clock_boot_ms() - (entry->age_ms > 0 ? entry->age_ms : 0);
        holders++;
    }
    free(watching->seen);
    watching->seen = seen;
    watching->count = holders;
    watching->started = true;
}

static int run(struct cli *cli, struct args *args)
{
    struct watching watching = {0};
    int status;

    if (args_words(args, &watching.name, 1, 1, NULL, &status))
        return status;
    if (!args_name(args, watching.name))
        return EXIT_USAGE;
    watching.json = cli->json;
    status = cli_open(cli);
    watching.store = cli->store;
    return status != 0 ? status : follow(cli, watching.name, changed, &watching);
}

const struct command command_watch = {
    .name = "watch",
    .summary = "follow changes of a lock's holder",
    .usage = "NAME",
    .description =
        "Prints who holds NAME, then a line for every change, until interrupted. Changes in quick\n"
        "succession may be reported as one.",
    .takes_json = true,
    .examples = "  holdfast watch nightly\n  holdfast watch nightly --json\n",
    .statuses = "  as 'holdfast show'\n",
    .run = run,
};
