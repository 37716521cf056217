/* modules.c: where modules are, and loading them. */
#include "base/modules.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#ifndef HOLDFAST_MODULE_DIR
#error "the build says where modules live"
#endif

#define MODULE_PATH_MAX 4096

#ifdef HOLDFAST_WITHOUT_MODULES
/* The command as one file: a module would bring a C library of its own. */

void modules_find_beside(const char *own)
{
    (void)own;
}

bool module_exists(const char *name)
{
    (void)name;
    return false;
}

int module_symbol(const struct module *module, void **ret_symbol, struct error_text *err)
{
    (void)ret_symbol;
    return error_set(err, HF_EMODULE,
                     "%s a module, and this holdfast is a single file without modules: use one "
                     "that is installed, with holdfast-%s",
                     module->needed_by, module->name);
}

void module_misfit(const struct module *module, struct error_text *err)
{
    (void)module;
    error_set(err, HF_EMODULE, "this holdfast has no modules");
}

#else
void modules_find_beside(const char *own)
{
    char path[PATH_MAX], directories[4 * PATH_MAX];
    size_t own_size = strlen(own);
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    int base = (int)size - (int)own_size, length;

    if (base <= 0 || memcmp(path + base, own, own_size) != 0 || getauxval(AT_SECURE))
        return;
    length = snprintf(directories, sizeof directories,
                      "%.*s/src/engines:%.*s/src/net:%.*s/src/guard:%.*s/src/admin", base, path,
                      base, path, base, path, base, path);
    if (length > 0 && (size_t)length < sizeof directories)
        setenv("HOLDFAST_MODULE_DIR", directories, 0);
}

/* The module in the first directory of the list that has it; in the first directory of all if none
 * has, so that the loader's words name a path. False if a path is too long. */
static bool search(const char *directories, const char *name, char ret_path[MODULE_PATH_MAX],
                   bool *ret_found)
{
    char path[MODULE_PATH_MAX];
    bool any = false;

    *ret_found = false;
    for (const char *at = directories; *at && !*ret_found;) {
        size_t size = strcspn(at, ":");

        if (size > 0) {
            int length = size < sizeof path ? snprintf(path, sizeof path, "%.*s/holdfast-%s.so",
                                                       (int)size, at, name)
                                            : -1;

            if (length < 0 || length >= MODULE_PATH_MAX)
                return false;
            /* Where nobody can tell now, the loader finds it, or says why not. */
            *ret_found = access(path, F_OK) == 0 || errno == EIO || errno == ENOMEM;
            if (*ret_found || !any)
                memcpy(ret_path, path, (size_t)length + 1);
            any = true;
        }
        at += size;
        at += *at == ':';
    }
    return any;
}

static int module_path(const char *name, char ret_path[MODULE_PATH_MAX], bool *ret_found,
                       struct error_text *err)
{
    /* The build tree's programs and tests are told where its modules are. Not for set-user-id
     * programs: the variable would let anybody run code as somebody else. */
    const char *directories = secure_getenv("HOLDFAST_MODULE_DIR");

    if (!directories || !directories[strspn(directories, ":")])
        directories = HOLDFAST_MODULE_DIR;
    if (!search(directories, name, ret_path, ret_found))
        return error_set(err, HF_EMODULE, "the module directory's path is too long");
    return HF_OK;
}

bool module_exists(const char *name)
{
    char path[MODULE_PATH_MAX];
    bool found;

    return module_path(name, path, &found, NULL) == HF_OK && found;
}

/* Debian's packages are called as their modules are. Of a module that is not ours we do not know who brings it. */
static int refuse(const struct module *module, const char *why, struct error_text *err)
{
    if (!module->library)
        return error_set(err, HF_EMODULE,
                         "%s a module that cannot be loaded: %s; in a build tree "
                         "HOLDFAST_MODULE_DIR says where it is",
                         module->needed_by, why);
    return error_set(err, HF_EMODULE,
                     "%s a module that cannot be loaded: %s; install holdfast-%s: the package of "
                     "that name brings it, and 'make install' does if built with %s, and in a "
                     "build tree HOLDFAST_MODULE_DIR says where it is",
                     module->needed_by, why, module->name, module->library);
}

int module_symbol(const struct module *module, void **ret_symbol, struct error_text *err)
{
    char path[MODULE_PATH_MAX];
    void *loaded, *symbol;
    bool found;
    int result = module_path(module->name, path, &found, err);

    if (result != HF_OK)
        return result;
    loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!loaded)
        return refuse(module, dlerror(), err);
    symbol = dlsym(loaded, module->symbol);
    if (!symbol) {
        dlclose(loaded);
        module_misfit(module, err);
        return HF_EMODULE;
    }
    *ret_symbol = symbol;
    return HF_OK;
}

void module_misfit(const struct module *module, struct error_text *err)
{
    char path[MODULE_PATH_MAX];
    bool found;

    if (module_path(module->name, path, &found, err) == HF_OK)
        error_set(err, HF_EMODULE,
                  "%s does not fit this version of holdfast: install both from the same version",
                  path);
}

#endif
