/* sql_sqlite.c: the words of the texts for SQLite. */
#include "guard/sql.h"

#include <guard-sql.h> /* made by tools/embed-sql */
#include <string.h>

#define VERSION_RAISES_EXPRESSIONS 3047000 /* before, RAISE takes nothing but a literal */

#define STALE "'stale fencing token (see holdfast_marks)'"

static int check(const struct sql_wish *wish, struct error_text *err)
{
    int version = wish->options.sqlite_version;

    if (wish->table_schema[0])
        return error_set(err, HF_EINVAL,
                         "table '%s': SQLite's tables have no schema; apply it to the file that "
                         "has the table",
                         wish->options.table);
    if (wish->options.schema)
        return error_set(err, HF_EINVAL, "a schema is for the dialect postgres");
    if (version != 0 && (version < 3000000 || version > 3999999))
        return error_set(err, HF_EINVAL, "no version of SQLite: 3.47.0 is 3047000");
    return HF_OK;
}

/* SQLite finds a table whatever case its letters are in, so the marks must be found again, too. */
static void put_guard(struct sql_words *words, const char *table)
{
    char lower[HF_SQL_NAME_MAX + 1];
    size_t length = strlen(table);

    for (size_t i = 0; i <= length; i++)
        lower[i] = table[i] >= 'A' && table[i] <= 'Z' ? (char)(table[i] - 'A' + 'a') : table[i];
    sql_put_literal(words, "guard", lower);
}

static void put_trigger(struct sql_words *words, const char *word, const char *begin,
                        const char *table)
{
    char name[HF_SQL_NAME_MAX + 32];

    snprintf(name, sizeof name, "%s%s", begin, table);
    sql_put_name(words, word, NULL, name);
}

static void fill_table(const struct sql_wish *wish, struct sql_words *words)
{
    const hf_guard_sql_options *o = &wish->options;
    bool newer = o->mode == HF_NEWER;
    char *inserted, name[HF_SQL_NAME_MAX + 32];

    sql_put_name(words, "table", NULL, wish->table);
    put_guard(words, wish->table);
    put_trigger(words, "insert_trigger", "holdfast_insert_", wish->table);
    put_trigger(words, "upsert_trigger", "holdfast_upsert_", wish->table);
    put_trigger(words, "named_trigger", "holdfast_named_", wish->table);
    put_trigger(words, "clear_trigger", "holdfast_clear_", wish->table);
    put_trigger(words, "update_trigger", "holdfast_update_", wish->table);
    put_trigger(words, "delete_trigger", "holdfast_delete_", wish->table);
    snprintf(name, sizeof name, "holdfast_insert_%s", wish->table);
    sql_put_literal(words, "trigger_name", name);
    sql_put_name(words, "key", NULL, wish->key);
    sql_put_literal(words, "key_name", wish->key);
    sql_put_name(words, "column", NULL, wish->column);
    sql_put(words, "set", o->setting ? "holdfast_token()" : "NULL");
    inserted = words->values[words->count];
    snprintf(inserted, SQL_VALUE_MAX, o->setting ? "coalesce(NEW.%s, holdfast_token())" : "NEW.%s",
             sql_value(words, "column"));
    sql_put(words, "inserted", inserted);
    sql_put(words, "mode", newer ? "'newer'" : "NULL");
    sql_put_switch(words, "if_newer", newer);
    sql_put_switch(words, "if_older", !newer);
    sql_put_switch(words, "if_add", o->add_column);
    sql_put_switch(words, "if_require", o->require);
    sql_put_switch(words, "if_setting", o->setting);
    sql_put_switch(words, "if_setting_newer", o->setting && newer);
    sql_put_switch(words, "if_setting_older", o->setting && !newer);
    sql_put_switch(words, "if_after", o->require || o->setting);
    sql_put_switch(words, "if_update", o->require || o->setting || newer);
}

static void fill(const struct sql_wish *wish, struct sql_words *words)
{
    bool tells = wish->options.sqlite_version >= VERSION_RAISES_EXPRESSIONS;

    sql_put(words, "stale",
            tells ? "'stale fencing token ' || NEW.token || ' for \"' || ltrim(NEW.guard || ':', "
                    "':') || NEW.key || '\": ' || m.token || ' was seen'"
                  : STALE);
    if (wish->table[0])
        fill_table(wish, words);
}

const struct sql_dialect sql_sqlite = {
    .enter = sql_text_sqlite_enter,
    .enter_undo = sql_text_sqlite_enter_undo,
    .table = sql_text_sqlite_table,
    .table_undo = sql_text_sqlite_table_undo,
    .check = check,
    .fill = fill,
};
