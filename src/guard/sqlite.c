/* sqlite.c: the connection helper for programs in C: it loads the module holdfast-sqlite into a
 * connection as anybody would, by the functions of the SQLite that the program itself uses. There
 * may be another one in the process, linked by somebody else; only the program's knows its
 * connections. */
#include "base/failure.h"
#include "base/modules.h"

#include <dlfcn.h>
#include <holdfast/guard.h>
#include <stdio.h>
#include <string.h>

#define SQLITE_OK 0
#define CONFIG_LOAD_EXTENSION \
    1005 /* SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: of the call, not of SQL */
#define STATEMENT_MAX 64

static const struct module module = {
    .name = "sqlite",
    .needed_by = "a token for SQLite needs",
    .library = "SQLite (libsqlite3-dev)",
    .symbol = "sqlite3_holdfastsqlite_init",
};

struct functions {
    int (*db_config)(struct sqlite3 *db, int what, ...);
    int (*load_extension)(struct sqlite3 *db, const char *file, const char *entry,
                          char **ret_error);
    int (*exec)(struct sqlite3 *db, const char *statement, void *callback, void *arg,
                char **ret_error);
    void (*free)(void *memory);
};

/* A function pointer cannot be had from an object pointer by a cast. */
static bool find(const char *name, void *ret_function)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    memcpy(ret_function, &found, sizeof found);
    return found != NULL;
}

static int find_functions(struct functions *f, struct error_text *err)
{
    if (find("sqlite3_db_config", &f->db_config) &&
        find("sqlite3_load_extension", &f->load_extension) && find("sqlite3_exec", &f->exec) &&
        find("sqlite3_free", &f->free))
        return HF_OK;
    return error_set(err, HF_ENOTSUP,
                     "this program has no SQLite that loads extensions and can be found: link "
                     "libsqlite3 as a shared library, or load the extension holdfast-sqlite");
}

static int say_why(const struct functions *f, const char *what, char *why, struct error_text *err)
{
    error_set(err, HF_EREFUSED, "%s: %s", what, why ? why : "SQLite does not say why");
    if (why)
        f->free(why);
    return HF_EREFUSED;
}

static int load(struct sqlite3 *db, struct error_text *err)
{
    struct functions f;
    Dl_info where;
    void *symbol;
    char *why = NULL;
    int result = find_functions(&f, err), was = 0, loaded;

    if (result != HF_OK || (result = module_symbol(&module, &symbol, err)) != HF_OK)
        return result;
    if (!dladdr(symbol, &where))
        return error_set(err, HF_EMODULE, "the module holdfast-sqlite has no file");
    f.db_config(db, CONFIG_LOAD_EXTENSION, -1, &was);
    f.db_config(db, CONFIG_LOAD_EXTENSION, 1, NULL);
    loaded = f.load_extension(db, where.dli_fname, module.symbol, &why);
    f.db_config(db, CONFIG_LOAD_EXTENSION, was, NULL);
    return loaded == SQLITE_OK ? HF_OK : say_why(&f, "cannot load holdfast-sqlite", why, err);
}

static int set_token(struct sqlite3 *db, uint64_t token, struct error_text *err)
{
    char statement[STATEMENT_MAX], *why = NULL;
    struct functions f;
    int result = find_functions(&f, err);

    if (result != HF_OK)
        return result;
    if (token > HF_TOKEN_MAX)
        return error_set(err, HF_EINVAL, "not a fencing token: a number from 1 to %llu",
                         (unsigned long long)HF_TOKEN_MAX);
    if (token == 0)
        snprintf(statement, sizeof statement, "SELECT holdfast_token(NULL)");
    else
        snprintf(statement, sizeof statement, "SELECT holdfast_token(%llu)",
                 (unsigned long long)token);
    if (f.exec(db, statement, NULL, NULL, &why) != SQLITE_OK)
        return say_why(&f, "cannot set the token", why, err);
    return HF_OK;
}

int hf_guard_sqlite(struct sqlite3 *db)
{
    struct error_text err = {""};
    int result = db ? load(db, &err) : error_set(&err, HF_EINVAL, "hf_guard_sqlite: no connection");

    return failure_keep(result, &err);
}

int hf_guard_sqlite_token(struct sqlite3 *db, uint64_t token)
{
    struct error_text err = {""};
    int result = db ? set_token(db, token, &err)
                    : error_set(&err, HF_EINVAL, "hf_guard_sqlite_token: no connection");

    return failure_keep(result, &err);
}
