/* engines.c: which stores there are. A store with a heavy client library is a module, loaded with
 * its first use, so that the file store starts like flock(1).
 *
 * A store that is built in has a line with its table. A module has one so that 'holdfast stores' lists
 * it, and so that whoever lacks it is told what to install; the library is named as its users call it,
 * with Debian's package in brackets, which is what a build of the module needs:
 *
 *     {.scheme = "zookeeper", .library = "libzookeeper (libzookeeper-mt-dev)"},
 */
#include "base/modules.h"
#include "base/suggest.h"
#include "engines/engine.h"
#include "engines/file/file.h"
#include "engines/holdfast/table.h"
#include "engines/redis/redis.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct known_engine {
    const char *scheme;
    const struct engine *built_in; /* NULL: a module */
    const char *module;            /* holdfast-MODULE.so; NULL: it is called as the scheme */
    const char *library;           /* of a module: what has to be installed for it to be built */
    bool another_spelling;         /* of one above it: not listed */
};

static const struct known_engine known_engines[] = {
    {.scheme = "file", .built_in = &file_engine},
    {.scheme = "holdfast", .built_in = &holdfast_engine},
    {.scheme = "holdfasts", .built_in = &holdfast_engine, .another_spelling = true},
    {.scheme = "holdfast+unix", .built_in = &holdfast_engine, .another_spelling = true},
    {.scheme = "redis", .built_in = &redis_engine},
    {.scheme = "rediss", .built_in = &redis_engine, .another_spelling = true},
    {.scheme = "redis+unix", .built_in = &redis_engine, .another_spelling = true},
    {.scheme = "redlock", .built_in = &redlock_engine},
    {.scheme = "etcd", .library = "libcurl and jansson (libcurl4-openssl-dev, libjansson-dev)"},
    {.scheme = "etcds",
     .module = "etcd",
     .library = "libcurl and jansson (libcurl4-openssl-dev, libjansson-dev)",
     .another_spelling = true},
    {.scheme = "postgres", .library = "libpq (libpq-dev)"},
    {.scheme = "postgresql",
     .module = "postgres",
     .library = "libpq (libpq-dev)",
     .another_spelling = true},
    {.scheme = "zookeeper", .library = "libzookeeper (libzookeeper-mt-dev)"},
};

#define KNOWN_COUNT (sizeof known_engines / sizeof *known_engines)

/* URLs of other programs for what cannot keep these locks. */
static const char *const refused_schemes[] = {"redis+sentinel", "redis-sentinel", "rediss+sentinel",
                                              "redis+cluster", "redis-cluster"};

/* Modules of ours that are no stores: "http://..." is a mistake in a URL, and not in what was installed. */
static const char *const other_modules[] = {"fence", "http", "sqlite", "tls"};

static int load_engine(const struct known_engine *known, const struct engine **ret_engine,
                       struct error_text *err)
{
    char needed_by[HF_URL_MAX + 32];
    struct module module = {.name = known->module ? known->module : known->scheme,
                            .needed_by = needed_by,
                            .library = known->library,
                            .symbol = ENGINE_MODULE_SYMBOL};
    const struct engine *engine;
    engine_module_fn *get;
    int result;

    snprintf(needed_by, sizeof needed_by, "%s: stores need", known->scheme);
    result = module_symbol(&module, (void **)&get, err);
    if (result != HF_OK)
        return result;
    engine = get();
    if (!engine || engine->abi != ENGINE_ABI) {
        module_misfit(&module, err);
        return HF_EMODULE;
    }
    *ret_engine = engine;
    return HF_OK;
}

static int refuse_scheme(const char *scheme, struct error_text *err)
{
    const char *names[KNOWN_COUNT], *near;

    for (size_t i = 0; i < KNOWN_COUNT; i++)
        names[i] = known_engines[i].scheme;
    near = suggest_nearest(scheme, names, KNOWN_COUNT);
    if (near)
        return error_set(err, HF_EINVAL, "no store has the scheme '%s:': did you mean '%s:'?",
                         scheme, near);
    return error_set(err, HF_EINVAL, "no store has the scheme '%s:' (see 'holdfast stores')",
                     scheme);
}

int engines_find(const char *scheme, const struct engine **ret_engine, struct error_text *err)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        const struct known_engine *known = &known_engines[i];

        if (strcmp(known->scheme, scheme) != 0)
            continue;
        if (!known->built_in)
            return load_engine(known, ret_engine, err);
        *ret_engine = known->built_in;
        return HF_OK;
    }
    for (size_t i = 0; i < sizeof refused_schemes / sizeof *refused_schemes; i++)
        if (strcmp(refused_schemes[i], scheme) == 0)
            return error_set(err, HF_EINVAL,
                             "%s: Redis Cluster and Sentinel lose locks when a server fails; use "
                             "redis:// with the address of one server, or redlock:// over "
                             "independent ones",
                             scheme);
    for (size_t i = 0; i < sizeof other_modules / sizeof *other_modules; i++)
        if (strcmp(other_modules[i], scheme) == 0)
            return refuse_scheme(scheme, err);
    /* Somebody else's engine: a module of that name is all it needs. */
    if (module_exists(scheme))
        return load_engine(&(struct known_engine){.scheme = scheme}, ret_engine, err);
    return refuse_scheme(scheme, err);
}

void engines_each(hf_engine_fn *fn, void *arg)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        const struct engine *engine = known_engines[i].built_in;
        struct error_text err;
        hf_store_info info;

        if (known_engines[i].another_spelling)
            continue;
        if (!engine && load_engine(&known_engines[i], &engine, &err) != HF_OK) {
            info = (hf_store_info){.size = sizeof info,
                                   .scheme = known_engines[i].scheme,
                                   .url = known_engines[i].scheme,
                                   .missing = err.text};
        } else {
            info = engine->traits;
        }
        fn(&info, arg);
        if (engine && engine->variant) {
            info = engine->variant->traits;
            fn(&info, arg);
        }
    }
}
