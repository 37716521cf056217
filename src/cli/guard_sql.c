/* guard_sql.c: holdfast guard sql: prints SQL for a database that is to refuse stale tokens. */
#include "cli/guard.h"

#include "base/text.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

#define VERSION_PARTS 3
#define VERSION_PART_MAX 999

enum {
    OPT_DIALECT = 256,
    OPT_TABLE,
    OPT_KEY,
    OPT_COLUMN,
    OPT_REQUIRE,
    OPT_MODE,
    OPT_UNDO,
    OPT_SCHEMA,
    OPT_SETTING,
    OPT_ADD,
    OPT_VERSION,
    OPT_LOCKS
};

static const struct option_spec options[] = {
    {OPT_DIALECT, "dialect", "NAME", "postgres or sqlite"},
    {OPT_TABLE, "table", "TABLE", "triggers for this table, too; [SCHEMA.]TABLE"},
    {OPT_KEY, "key-column", "NAME", "the column that has the key (default: id)"},
    {OPT_COLUMN, "column", "NAME", "the column for the token (default: fence_token)"},
    {OPT_REQUIRE, "require", NULL, "refuse a write that brings no token of its own"},
    {OPT_MODE, "mode", "MODE", "not-older (default), or newer: no token twice"},
    {OPT_UNDO, "undo", NULL, "print what takes it out again, instead"},
    {OPT_SCHEMA, "schema", "NAME", "PostgreSQL: of what is named without one (default: public)"},
    {OPT_LOCKS, "locks", NULL, "PostgreSQL: instead, the tables of the store postgres:"},
    {OPT_SETTING, "setting", NULL, "SQLite: ask holdfast_token() where a statement names no token"},
    {OPT_ADD, "add-column", NULL, "SQLite: add the column, too (the first time)"},
    {OPT_VERSION, "sqlite-version", "N.N",
     "SQLite: least version; from 3.47 on errors name both tokens"},
    {0},
};

static bool read_dialect(const struct args *args, int *ret_dialect)
{
    if (strcmp(args->value, "postgres") == 0 || strcmp(args->value, "postgresql") == 0)
        *ret_dialect = HF_SQL_POSTGRES;
    else if (strcmp(args->value, "sqlite") == 0)
        *ret_dialect = HF_SQL_SQLITE;
    else {
        args_complain(args, "no dialect '%s': there are postgres and sqlite",
                      printable(args->value));
        return false;
    }
    return true;
}

static bool read_mode(const struct args *args, int *ret_mode)
{
    if (strcmp(args->value, "not-older") == 0)
        *ret_mode = HF_NOT_OLDER;
    else if (strcmp(args->value, "newer") == 0)
        *ret_mode = HF_NEWER;
    else {
        args_complain(args, "no mode '%s': there are not-older and newer", printable(args->value));
        return false;
    }
    return true;
}

/* "3.47" and "3.47.1" as SQLite counts them: 3047000, 3047001. */
static bool read_version(const struct args *args, int *ret_version)
{
    const char *at = args->value;
    char part[8];
    uint64_t value;
    int version = 0, parts = 0;

    for (; parts < VERSION_PARTS; parts++) {
        size_t length = strcspn(at, ".");

        if (length >= sizeof part)
            break;
        memcpy(part, at, length);
        part[length] = '\0';
        if (!text_to_u64(part, VERSION_PART_MAX, &value))
            break;
        version = version * 1000 + (int)value;
        at += length;
        if (*at == '\0') {
            for (parts++; parts < VERSION_PARTS; parts++)
                version *= 1000;
            *ret_version = version;
            return true;
        }
        at++;
    }
    args_complain(args, "'%s' is not a version of SQLite, such as 3.47", printable(args->value));
    return false;
}

/* False: it has said what is wrong. */
static bool take(const struct args *args, int id, hf_guard_sql_options *o)
{
    switch (id) {
    case OPT_DIALECT:
        return read_dialect(args, &o->dialect);
    case OPT_MODE:
        return read_mode(args, &o->mode);
    case OPT_VERSION:
        return read_version(args, &o->sqlite_version);
    case OPT_TABLE:
        o->table = args->value;
        break;
    case OPT_KEY:
        o->key_column = args->value;
        break;
    case OPT_COLUMN:
        o->column = args->value;
        break;
    case OPT_SCHEMA:
        o->schema = args->value;
        break;
    case OPT_REQUIRE:
        o->require = 1;
        break;
    case OPT_UNDO:
        o->undo = 1;
        break;
    case OPT_LOCKS:
        o->locks = 1;
        break;
    case OPT_SETTING:
        o->setting = 1;
        break;
    default: /* OPT_ADD */
        o->add_column = 1;
    }
    return true;
}

static int run(struct cli *cli, struct args *args)
{
    hf_guard_sql_options wanted = HF_GUARD_SQL_OPTIONS_INIT;
    char *text;
    int id, result;

    (void)cli;
    while ((id = args_next(args)) != ARGS_END) {
        if (id == ARGS_WORD)
            return args_complain(args, "one word too many: '%s'", printable(args->value));
        if (id < 0)
            return args_status(id);
        if (!take(args, id, &wanted))
            return EXIT_USAGE;
    }
    if (!wanted.dialect)
        return args_complain(args, "which database? --dialect postgres or --dialect sqlite");
    result = hf_guard_sql(&wanted, &text);
    if (result == HF_EINVAL)
        return args_complain(args, "%s", hf_error());
    if (result != HF_OK)
        return say_result(result);
    fputs(text, stdout);
    free(text);
    return finish_output(EXIT_DONE);
}

const struct command command_guard_sql = {
    .name = "guard sql",
    .summary = "make a PostgreSQL or SQLite database refuse a stale holder",
    .usage = "--dialect postgres|sqlite [--table TABLE] [OPTION...]",
    .description =
        "Prints SQL to read and to apply. Without --table: holdfast_enter, which raises the mark\n"
        "of a key or fails, and holds it until commit; call it first in the transaction. With a\n"
        "table also triggers, which refuse an INSERT, UPDATE or DELETE with a stale token: the\n"
        "token is what the statement gives to the column, or else the transaction's own.\n"
        "Applying it again is harmless. The undo is printed at the end, as a comment.\n"
        "With --locks: what the store postgres: keeps its locks in, for those who may not create\n"
        "tables themselves; --table is the one of its URL then (default: holdfast_locks).",
    .options = options,
    .examples =
        "  holdfast guard sql --dialect postgres | psql -v ON_ERROR_STOP=1 shop\n"
        "  BEGIN; SELECT holdfast_enter('batch:4472', 35); ...; COMMIT;\n"
        "\n"
        "  holdfast guard sql --dialect postgres --table batches | psql -v ON_ERROR_STOP=1 shop\n"
        "  UPDATE batches SET state = 'done', fence_token = 35 WHERE id = 7;\n"
        "\n"
        "  holdfast guard sql --dialect sqlite | sqlite3 -bail shop.db\n"
        "  BEGIN IMMEDIATE; INSERT INTO holdfast_enter(key, token) VALUES('batch:4472', 35); ...\n"
        "\n"
        "  # from lock to write\n"
        "  holdfast run batch-4472 -- sh -c \\\n"
        "      'psql -v ON_ERROR_STOP=1 -v token=$HOLDFAST_TOKEN shop <batch.sql'\n"
        "\n"
        "  # the tables of postgres://…/shop, made by whoever may\n"
        "  holdfast guard sql --dialect postgres --locks | psql -v ON_ERROR_STOP=1 shop\n"
        "\n"
        "  # undo\n"
        "  holdfast guard sql --dialect sqlite --table batches --undo | sqlite3 -bail shop.db\n",
    .statuses = "  0 printed   64 usage   69 standard output fails\n",
    .run = run,
};
