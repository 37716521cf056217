/* open.c: which store a caller gets, and opening it. */
#include "base/text.h"
#include "client/client.h"
#include "client/defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which URL ------------------------------------------------------------------------------- */

/* What was chosen, and by whom. */
struct choice {
    const char *url, *origin; /* origin: as in hf_store_info */
    struct defaults defaults;
};

/* An empty URL is a variable that somebody forgot to set, not a wish for locks on this machine alone. */
static int choose_url(const char *given, struct choice *ret_choice, struct error_text *err)
{
    const char *variable = secure_getenv("HOLDFAST_URL");
    int result;

    if (given && !*given)
        return error_set(
            err, HF_EINVAL,
            "the store URL is empty (--on, or hf_open): name a store; without one it is "
            "that of HOLDFAST_URL, else of client.conf, else files on this machine");
    if (!given && variable && !*variable)
        return error_set(err, HF_EINVAL,
                         "HOLDFAST_URL is set, and is empty: name a store, or unset it for that of "
                         "client.conf, or for files on this machine");
    result = defaults_read(given || variable, &ret_choice->defaults, err);
    if (result != HF_OK)
        return result;
    ret_choice->url = given                         ? given
                      : variable                    ? variable
                      : ret_choice->defaults.url[0] ? ret_choice->defaults.url
                                                    : "file:";
    ret_choice->origin = given                         ? ""
                         : variable                    ? "HOLDFAST_URL"
                         : ret_choice->defaults.url[0] ? ret_choice->defaults.url_from
                                                       : "default";
    return HF_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int read_ttl(hf_store *store, struct url *url, struct error_text *err)
{
    int64_t ttl_ms = store->info.ttl_ms;
    int result = url_get_ms(url, "ttl", HF_TTL_MIN_MS, HF_TTL_MAX_MS, &ttl_ms, err);

    if (result != HF_OK)
        return result;
    if (store->info.features & HF_HAS_TTL)
        store->info.ttl_ms = ttl_ms > 0 ? ttl_ms : HF_TTL_DEFAULT_MS;
    else if (url_get(url, "ttl"))
        return error_set(err, HF_ENOTSUP, "%s has no TTL; use a maximum hold",
                         text_kind(&store->info).text);
    else
        store->info.ttl_ms = 0;
    return HF_OK;
}

/* Where an engine has this option, it has checked it by now: what it says counts for the first contact, too. */
static int read_timeout(hf_store *store, struct url *url, struct error_text *err)
{
    return url_get_ms(url, "timeout", 0, HF_DURATION_MAX_MS, &store->timeout_ms, err);
}

/* "localhost:7420", which reads as a scheme; what may have a password in it is not quoted. */
static bool is_host_and_port(const struct url *url)
{
    return url->rest[0] >= '0' && url->rest[0] <= '9' &&
           !url->rest[strspn(url->rest, "abcdefghijklmnopqrstuvwxyz0123456789.-,:")];
}

static int open_engine(hf_store *store, struct url *url, struct error_text *err)
{
    int result = engines_find(url->scheme, &store->engine, err);

    if (result == HF_EINVAL && is_host_and_port(url))
        return error_set(err, HF_EINVAL,
                         "store URL: it does not begin with a scheme: holdfast://%s:%s is a "
                         "holdfastd there (see 'holdfast stores')",
                         url->scheme, url->rest);
    if (result != HF_OK)
        return result;
    if (store->engine->variant && store->engine->wants_variant(url))
        store->engine = store->engine->variant;
    store->info = store->engine->traits;
    store->renew_batch = store->engine->renew_batch > 0 ? store->engine->renew_batch : RENEW_BATCH;
    if (store->renew_batch > RENEW_BATCH_MAX)
        store->renew_batch = RENEW_BATCH_MAX;
    store->renew_early =
        store->renew_batch < RENEW_EARLY_MAX ? store->renew_batch : RENEW_EARLY_MAX;
    /* What lives with its process is on this machine: nothing has to be reached. */
    store->reached = !store_has_server(store);
    if ((result = read_ttl(store, url, err)) != HF_OK)
        return result;
    result = store->engine->open(url, &store->host, &store->engine_store, store->where, err);
    if (result != HF_OK)
        return result;
    result = url_check_all_used(url, err);
    if (result == HF_OK)
        result = read_timeout(store, url, err);
    if (result != HF_OK)
        store->engine->close(store->engine_store);
    return result;
}

static int open_store(hf_store *store, const struct choice *choice, struct error_text *err)
{
    struct url *url = malloc(sizeof *url);
    int result = url ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");

    if (result == HF_OK)
        result = url_parse(choice->url, url, err);
    if (result == HF_OK)
        result = open_engine(store, url, err);
    free(url);
    return result;
}

/* A client.conf has a password, and its url is not the one that was chosen. */
static void note_other_conf(hf_store *store, const struct choice *choice)
{
    const struct defaults *defaults = &choice->defaults;
    char shown[HF_URL_MAX + 1];

    url_without_passwords(defaults->url, shown);
    if (choice->url == defaults->url ||
        (!strstr(defaults->url, "password-file=") && strcmp(shown, defaults->url) == 0))
        return;
    snprintf(store->other_conf, sizeof store->other_conf, "%s", defaults->url_from);
    store->host.other_conf = store->other_conf;
}

static int open_choice(const struct choice *choice, struct error_text *err, hf_store **ret_store)
{
    hf_store *store = store_new();
    int result = store ? HF_OK : error_set(err, HF_ENOMEM, "out of memory");

    if (result == HF_OK) {
        note_other_conf(store, choice);
        result = open_store(store, choice, err);
    }
    if (result != HF_OK) {
        if (store)
            store_free(store);
        return result;
    }
    url_without_passwords(choice->url, store->url);
    if (store->engine->cluster_look)
        store->full_url = strdup(choice->url); /* without it one view less can be had */
    snprintf(store->origin, sizeof store->origin, "%s", choice->origin);
    snprintf(store->need_from, sizeof store->need_from, "%s",
             choice->defaults.need_strict ? choice->defaults.need_from : "");
    store->info.size = sizeof store->info;
    store->info.url = store->url;
    store->info.where = store->where;
    store->info.origin = store->origin;
    store->info.missing = NULL;
    store_register(store);
    *ret_store = store;
    return HF_OK;
}

/* What is wrong with a URL that the caller did not type is looked for where it came from. */
static void name_origin(const struct choice *choice, struct error_text *err)
{
    struct error_text plain = *err;

    if (choice->origin == choice->defaults.url_from)
        error_write(err, "%s: %s", choice->origin, plain.text);
}

int hf_open(const char *url, hf_store **ret_store)
{
    struct choice *choice = malloc(sizeof *choice);
    struct error_text err = {""};
    int result;

    if (!ret_store)
        result = error_set(&err, HF_EINVAL, "hf_open: nowhere to put the store");
    else if (!choice)
        result = error_set(&err, HF_ENOMEM, "out of memory");
    else
        result = store_watch_forks(&err);
    if (result == HF_OK)
        result = choose_url(url, choice, &err);
    if (result == HF_OK) {
        result = open_choice(choice, &err, ret_store);
        if (result != HF_OK)
            name_origin(choice, &err);
    }
    free(choice);
    return failure_keep(result, &err);
}

/* ---- looking without opening ----------------------------------------------------------------- */

/* True: opening it would make something, so `ret_info` was filled in without. */
static bool peek(const struct choice *choice, hf_store_info *ret_info, char *ret_where)
{
    struct url *url = malloc(sizeof *url);
    const struct engine *engine;
    bool unmade = url && url_parse(choice->url, url, NULL) == HF_OK &&
                  engines_find(url->scheme, &engine, NULL) == HF_OK && engine->unmade &&
                  engine->unmade(url, ret_where);

    free(url);
    if (!unmade)
        return false;
    *ret_info = engine->traits;
    ret_info->where = ret_where;
    ret_info->missing = "not made yet";
    return true;
}

struct description {
    struct choice choice;
    hf_store_info info;
    char url[HF_URL_MAX + 1], where[HF_URL_MAX + 1];
};

/* HF_OK and *ret_known: it was told without opening it. */
static int describe(const char *url, hf_engine_fn *fn, void *arg, struct description *space,
                    bool *ret_known, struct error_text *err)
{
    int result = choose_url(url, &space->choice, err);

    if (result != HF_OK || !peek(&space->choice, &space->info, space->where))
        return result;
    url_without_passwords(space->choice.url, space->url);
    space->info.url = space->url;
    space->info.origin = space->choice.origin;
    fn(&space->info, arg);
    *ret_known = true;
    return HF_OK;
}

int hf_describe(const char *url, hf_engine_fn *fn, void *arg)
{
    struct description *space = malloc(sizeof *space);
    struct error_text err = {""};
    hf_store *store;
    bool known = false;
    int result;

    if (!fn || !space)
        result = fn ? error_set(&err, HF_ENOMEM, "out of memory")
                    : error_set(&err, HF_EINVAL, "hf_describe: no callback given");
    else
        result = describe(url, fn, arg, space, &known, &err);
    free(space);
    if (result != HF_OK || known)
        return failure_keep(result, &err);
    result = hf_open(url, &store);
    if (result != HF_OK)
        return result;
    fn(&store->info, arg);
    hf_close(store);
    return HF_OK;
}

int hf_engines(hf_engine_fn *fn, void *arg)
{
    struct error_text err;

    if (!fn)
        return failure_keep(error_set(&err, HF_EINVAL, "hf_engines: no callback given"), &err);
    engines_each(fn, arg);
    return HF_OK;
}
