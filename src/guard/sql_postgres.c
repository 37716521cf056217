/* sql_postgres.c: the words of the texts for PostgreSQL.
 *
 * A name of a table or schema is taken as it is written: none is folded to lower case, and a table
 * without a schema is in the one that the options name, whatever anybody's search_path says. Marks
 * are kept under that name, and must be found again. */
#include "base/hash.h"
#include "guard/sql.h"

#include <guard-sql.h> /* made by tools/embed-sql */
#include <string.h>

#define HASH_DIGITS 16

static int check(const struct sql_wish *wish, struct error_text *err)
{
    if (wish->options.sqlite_version)
        return error_set(err, HF_EINVAL, "a version of SQLite is for the dialect sqlite");
    return HF_OK;
}

/* Is it what PostgreSQL takes for the same name without quotes? Key words may pass: nothing that we
 * make of it minds them. */
static bool is_plain(const char *name)
{
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name) &&
           !strchr("0123456789", name[0]);
}

/* What the marks of a table are kept under: 'public.batches', 'public."Odd name"'. */
static void put_guard(struct sql_words *words, const char *schema, const char *table)
{
    struct sql_words quoted = {.count = 0};
    char text[SQL_VALUE_MAX];

    sql_put_name(&quoted, "schema", NULL, schema);
    sql_put_name(&quoted, "table", NULL, table);
    snprintf(text, sizeof text, "%s.%s", is_plain(schema) ? schema : sql_value(&quoted, "schema"),
             is_plain(table) ? table : sql_value(&quoted, "table"));
    sql_put_literal_escaped(words, "guard", text);
}

/* A function beside the table. Longer names are cut by PostgreSQL: then a hash keeps them apart. */
static void put_function(struct sql_words *words, const char *word, const char *begin,
                         const char *schema, const char *table)
{
    char name[HF_SQL_NAME_MAX + 1];
    size_t room = HF_SQL_NAME_MAX - strlen(begin);

    if (strlen(table) <= room) {
        snprintf(name, sizeof name, "%s%s", begin, table);
    } else {
        size_t kept = room - HASH_DIGITS - 1;

        while (((unsigned char)table[kept] & 0xc0) == 0x80) /* not in the middle of a character */
            kept--;
        snprintf(name, sizeof name, "%s%.*s_%016llx", begin, (int)kept, table,
                 (unsigned long long)hash_bytes(table, strlen(table)));
    }
    sql_put_name(words, word, schema, name);
}

/* Dollar quotes that no name can end. */
static void put_quotes(const struct sql_wish *wish, struct sql_words *words)
{
    static const char *const names[][3] = {
        /* word, and what it begins and ends with */
        {"outer", "$holdfast", "$"},
        {"inner", "$body", "$"},
    };
    const char *all[] = {wish->schema, wish->table_schema, wish->table, wish->key, wish->column};

    for (size_t i = 0; i < 2; i++) {
        char *tag = words->values[words->count];
        bool taken = false;
        int number = 0;

        do {
            if (number == 0)
                snprintf(tag, SQL_VALUE_MAX, "%s%s", names[i][1], names[i][2]);
            else
                snprintf(tag, SQL_VALUE_MAX, "%s%d%s", names[i][1], number, names[i][2]);
            taken = false;
            for (size_t n = 0; n < sizeof all / sizeof *all; n++)
                taken |= strstr(all[n], tag) != NULL;
            number++;
        } while (taken);
        sql_put(words, names[i][0], tag);
    }
}

/* A literal that holds a quoted name, for regclass. */
static void put_name_literal(struct sql_words *words, const char *word, const char *schema,
                             const char *table)
{
    struct sql_words quoted = {.count = 0};

    sql_put_name(&quoted, "name", schema, table);
    sql_put_literal_escaped(words, word, sql_value(&quoted, "name"));
}

static void fill_table(const struct sql_wish *wish, struct sql_words *words)
{
    const char *schema = wish->table_schema[0] ? wish->table_schema : wish->schema;
    bool newer = wish->options.mode == HF_NEWER, require = wish->options.require;
    /* Where it matters, for plain tables, too, whether a statement names the column with the value
     * that is there. */
    bool named = require || newer;

    sql_put_name(words, "table", schema, wish->table);
    put_name_literal(words, "table_name", schema, wish->table);
    put_guard(words, schema, wish->table);
    put_function(words, "guard_function", "holdfast_guard_", schema, wish->table);
    put_function(words, "truncate_function", "holdfast_truncate_", schema, wish->table);
    sql_put_name(words, "key", NULL, wish->key);
    sql_put_literal_escaped(words, "key_name", wish->key);
    sql_put_name(words, "column", NULL, wish->column);
    sql_put_literal_escaped(words, "column_name", wish->column);
    sql_put(words, "mode", newer ? "'newer'" : "'not-older'");
    sql_put(words, "too_old", newer ? "<=" : "<");
    sql_put(words, "require", require ? "true" : "false");
    sql_put(words, "require_hint",
            "'Name it in the statement, or begin with SET LOCAL holdfast.token = ''35''.'");
    sql_put(words, "named", named ? "true" : "false");
    sql_put_switch(words, "if_unnamed", !named);
    sql_put_switch(words, "if_older", !newer);
    sql_put_switch(words, "if_newer", newer);
    sql_put_switch(words, "if_require", require);
    sql_put_switch(words, "if_lax", !require);
}

static void fill(const struct sql_wish *wish, struct sql_words *words)
{
    put_quotes(wish, words);
    sql_put_name(words, "own", NULL, wish->schema);
    sql_put_literal_escaped(words, "own_name", sql_value(words, "own"));
    sql_put_switch(words, "if_schema", strcmp(wish->schema, "public") != 0);
    sql_put_switch(words, "if_table", wish->table[0] != '\0');
    put_name_literal(words, "marks_name", wish->schema, "holdfast_marks");
    put_name_literal(words, "guards_name", wish->schema, "holdfast_guards");
    if (wish->table[0])
        fill_table(wish, words);
}

const struct sql_dialect sql_postgres = {
    .enter = sql_text_postgres_enter,
    .enter_undo = sql_text_postgres_enter_undo,
    .rights = sql_text_postgres_rights,
    .table = sql_text_postgres_table,
    .table_undo = sql_text_postgres_table_undo,
    .check = check,
    .fill = fill,
};
