/* engines.c: which stores there are. A store with a heavy client library is a module, loaded with
 * its first use, so that the file store starts like flock(1). */
#include "engines/engine.h"
#include "engines/file/file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef HOLDFAST_MODULE_DIR
#error "the build says where modules live"
#endif

#define MODULE_PATH_MAX 4096

struct known_engine {
    const char *scheme;
    const struct engine *built_in; /* NULL: the module holdfast-SCHEME.so */
    const char *package;           /* what to install when the module is missing */
};

static const struct known_engine known_engines[] = {
    {.scheme = "file", .built_in = &file_engine},
};

static int module_path(const char *scheme, char ret_path[MODULE_PATH_MAX], struct error_text *err)
{
    /* The build tree's programs and tests are told where its modules are. Not for set-user-id
     * programs: the variable would let anybody run code as somebody else. */
    const char *dir = secure_getenv("HOLDFAST_MODULE_DIR");
    int length = snprintf(ret_path, MODULE_PATH_MAX, "%s/holdfast-%s.so",
                          dir ? dir : HOLDFAST_MODULE_DIR, scheme);

    if (length < 0 || length >= MODULE_PATH_MAX)
        return error_set(err, HF_EMODULE, "the module directory's path is too long");
    return HF_OK;
}

static int load_module(const struct known_engine *known, const struct engine **ret_engine,
                       struct error_text *err)
{
    char path[MODULE_PATH_MAX];
    engine_module_fn *get;
    const struct engine *engine;
    void *module;
    int result = module_path(known->scheme, path, err);

    if (result != HF_OK)
        return result;
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return error_set(err, HF_EMODULE,
                         "%s: stores need a module that is not there: install %s (%s)",
                         known->scheme, known->package, dlerror());
    *(void **)&get = dlsym(module, ENGINE_MODULE_SYMBOL);
    engine = get ? get() : NULL;
    if (!engine || engine->abi != ENGINE_ABI) {
        error_set(err, HF_EMODULE,
                  "%s does not fit this version of holdfast: install the same version of %s", path,
                  known->package);
        dlclose(module);
        return HF_EMODULE;
    }
    *ret_engine = engine; /* stays loaded: its code may run until the process ends */
    return HF_OK;
}

int engines_find(const char *scheme, const struct engine **ret_engine, struct error_text *err)
{
    char path[MODULE_PATH_MAX];

    for (size_t i = 0; i < sizeof known_engines / sizeof *known_engines; i++) {
        const struct known_engine *known = &known_engines[i];

        if (strcmp(known->scheme, scheme) != 0)
            continue;
        if (!known->built_in)
            return load_module(known, ret_engine, err);
        *ret_engine = known->built_in;
        return HF_OK;
    }
    /* Somebody else's engine: a module of that name is all it needs. */
    if (module_path(scheme, path, NULL) == HF_OK && access(path, F_OK) == 0)
        return load_module(&(struct known_engine){.scheme = scheme, .package = "that module"},
                           ret_engine, err);
    return error_set(err, HF_EINVAL, "no store has the scheme '%s:' (see 'holdfast stores')",
                     scheme);
}

void engines_each(hf_engine_fn *fn, void *arg)
{
    for (size_t i = 0; i < sizeof known_engines / sizeof *known_engines; i++) {
        const struct engine *engine = known_engines[i].built_in;
        struct error_text err;
        hf_store_info info;

        if (!engine && load_module(&known_engines[i], &engine, &err) != HF_OK) {
            info = (hf_store_info){.size = sizeof info,
                                   .scheme = known_engines[i].scheme,
                                   .url = known_engines[i].scheme,
                                   .missing = err.text};
        } else {
            info = engine->traits;
        }
        fn(&info, arg);
    }
}
