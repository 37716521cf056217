/* sqlite_token.c: the module holdfast-sqlite: a setting that a transaction of SQLite carries.
 *
 *     SELECT holdfast_token(35)     sets it, until the transaction ends
 *     SELECT holdfast_token(NULL)   takes it back
 *     SELECT holdfast_token()       reads it: NULL if there is none; the triggers of guards ask this
 *
 * It is an extension that any SQLite may load; it calls the one that does, and links none.
 *
 * How it learns that a transaction is over: there is one commit hook to a connection, and that is the
 * program's. So the setting is written through a virtual table, which takes part in the transaction
 * and is told of its end. That it is written makes the transaction a writing one: as with BEGIN
 * IMMEDIATE, nobody else writes from here on, which is what a holder wants before it reads. */
#include <sqlite3ext.h>

#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

SQLITE_EXTENSION_INIT1

#define TABLE "holdfast_setting"

struct setting {
    sqlite3 *db;
    sqlite3_int64 token; /* 0: none */
};

/* ---- the table: it can be written, and is always empty ----------------------------------------- */

struct table {
    sqlite3_vtab base;
    struct setting *setting;
};

static int table_connect(sqlite3 *db, void *arg, int count, const char *const *words,
                         sqlite3_vtab **ret_table, char **ret_error)
{
    struct table *table;
    int result = sqlite3_declare_vtab(db, "CREATE TABLE x(token INTEGER)");

    (void)count, (void)words, (void)ret_error;
    if (result != SQLITE_OK)
        return result;
    table = sqlite3_malloc64(sizeof *table);
    if (!table)
        return SQLITE_NOMEM;
    *table = (struct table){.setting = arg};
    *ret_table = &table->base;
    return SQLITE_OK;
}

static int table_disconnect(sqlite3_vtab *table)
{
    sqlite3_free(table);
    return SQLITE_OK;
}

static int table_best(sqlite3_vtab *table, sqlite3_index_info *info)
{
    (void)table, (void)info;
    return SQLITE_OK;
}

static int cursor_open(sqlite3_vtab *table, sqlite3_vtab_cursor **ret_cursor)
{
    (void)table;
    *ret_cursor = sqlite3_malloc64(sizeof **ret_cursor);
    return *ret_cursor ? SQLITE_OK : SQLITE_NOMEM;
}

static int cursor_close(sqlite3_vtab_cursor *cursor)
{
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int cursor_filter(sqlite3_vtab_cursor *cursor, int index, const char *name, int count,
                         sqlite3_value **values)
{
    (void)cursor, (void)index, (void)name, (void)count, (void)values;
    return SQLITE_OK;
}

static int cursor_next(sqlite3_vtab_cursor *cursor)
{
    (void)cursor;
    return SQLITE_OK;
}

static int cursor_end(sqlite3_vtab_cursor *cursor)
{
    (void)cursor;
    return 1;
}

static int cursor_column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int column)
{
    (void)cursor, (void)column;
    sqlite3_result_null(context);
    return SQLITE_OK;
}

static int cursor_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *ret_rowid)
{
    (void)cursor;
    *ret_rowid = 0;
    return SQLITE_OK;
}

static int table_begin(sqlite3_vtab *table)
{
    (void)table;
    return SQLITE_OK;
}

/* INSERT: values are two row numbers, then the columns. There are no rows to update or delete. */
static int table_update(sqlite3_vtab *table, int count, sqlite3_value **values,
                        sqlite3_int64 *ret_rowid)
{
    if (count != 3)
        return SQLITE_READONLY;
    ((struct table *)table)->setting->token = sqlite3_value_int64(values[2]);
    *ret_rowid = 1;
    return SQLITE_OK;
}

/* Commit, or rollback. */
static int table_over(sqlite3_vtab *table)
{
    ((struct table *)table)->setting->token = 0;
    return SQLITE_OK;
}

static const sqlite3_module table_module = {
    .iVersion = 1,
    .xConnect = table_connect, /* without xCreate: it is there by itself */
    .xBestIndex = table_best,
    .xDisconnect = table_disconnect,
    .xOpen = cursor_open,
    .xClose = cursor_close,
    .xFilter = cursor_filter,
    .xNext = cursor_next,
    .xEof = cursor_end,
    .xColumn = cursor_column,
    .xRowid = cursor_rowid,
    .xUpdate = table_update,
    .xBegin = table_begin,
    .xCommit = table_over,
    .xRollback = table_over,
};

/* ---- the function ------------------------------------------------------------------------------ */

static void token_read(sqlite3_context *context, int count, sqlite3_value **values)
{
    const struct setting *setting = sqlite3_user_data(context);

    (void)count, (void)values;
    if (setting->token)
        sqlite3_result_int64(context, setting->token);
}

/* Whole numbers, also as text: a token is often read from the environment. 0: it is none. */
static sqlite3_int64 token_of(sqlite3_value *value)
{
    double real = sqlite3_value_double(value);
    const char *text;
    size_t length;
    sqlite3_int64 token;

    if (sqlite3_value_type(value) == SQLITE_FLOAT) /* that is how JavaScript sends numbers */
        return real >= 1 && real <= (double)HF_TOKEN_MAX && real == (double)(sqlite3_int64)real
                   ? (sqlite3_int64)real
                   : 0;
    text = (const char *)sqlite3_value_text(value);
    length = text ? strlen(text) : 0;
    if (length == 0 || length > 16 || strspn(text, "0123456789") != length)
        return 0;
    token = strtoll(text, NULL, 10);
    return token <= (sqlite3_int64)HF_TOKEN_MAX ? token : 0;
}

static int write_setting(sqlite3 *db, sqlite3_int64 token)
{
    sqlite3_stmt *statement = NULL;
    int result =
        sqlite3_prepare_v2(db, "INSERT INTO " TABLE "(token) VALUES(?)", -1, &statement, NULL);

    if (result != SQLITE_OK)
        return result;
    sqlite3_bind_int64(statement, 1, token);
    sqlite3_step(statement);
    return sqlite3_finalize(statement);
}

static void token_set(sqlite3_context *context, int count, sqlite3_value **values)
{
    struct setting *setting = sqlite3_user_data(context);
    bool none = sqlite3_value_type(values[0]) == SQLITE_NULL;
    sqlite3_int64 token = none ? 0 : token_of(values[0]);
    int result;

    (void)count;
    if (!none && token == 0) {
        sqlite3_result_error(context, "not a fencing token: a number from 1 to 9007199254740991",
                             -1);
        return;
    }
    if (sqlite3_get_autocommit(setting->db)) {
        sqlite3_result_error(context,
                             "holdfast_token: BEGIN a transaction first, the token ends "
                             "with it",
                             -1);
        return;
    }
    result = write_setting(setting->db, token);
    if (result != SQLITE_OK) {
        sqlite3_result_error(context, sqlite3_errmsg(setting->db), -1);
        sqlite3_result_error_code(context, result);
    } else if (!none) {
        sqlite3_result_int64(context, token);
    }
}

/* ---- being loaded ------------------------------------------------------------------------------ */

static bool is_loaded(sqlite3 *db)
{
    sqlite3_stmt *statement = NULL;
    bool found =
        sqlite3_prepare_v2(db, "SELECT token FROM " TABLE, -1, &statement, NULL) == SQLITE_OK;

    sqlite3_finalize(statement);
    return found;
}

/* SQLite finds it by the file's name. Loading it again changes nothing: the transaction that is under
 * way may have a token. */
HF_API int sqlite3_holdfastsqlite_init(sqlite3 *db, char **ret_error,
                                       const sqlite3_api_routines *api);

int sqlite3_holdfastsqlite_init(sqlite3 *db, char **ret_error, const sqlite3_api_routines *api)
{
    struct setting *setting;
    int result;

    SQLITE_EXTENSION_INIT2(api)
    (void)ret_error;
    if (is_loaded(db))
        return SQLITE_OK;
    setting = sqlite3_malloc64(sizeof *setting);
    if (!setting)
        return SQLITE_NOMEM;
    *setting = (struct setting){.db = db};
    /* It is freed with the module, which a connection gives up last. */
    result = sqlite3_create_module_v2(db, TABLE, &table_module, setting, sqlite3_free);
    if (result == SQLITE_OK)
        result = sqlite3_create_function_v2(db, "holdfast_token", 0, SQLITE_UTF8 | SQLITE_INNOCUOUS,
                                            setting, token_read, NULL, NULL, NULL);
    if (result == SQLITE_OK)
        result =
            sqlite3_create_function_v2(db, "holdfast_token", 1, SQLITE_UTF8 | SQLITE_DIRECTONLY,
                                       setting, token_set, NULL, NULL, NULL);
    return result;
}
