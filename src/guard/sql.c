/* sql.c: hf_guard_sql: what is asked for, and the text that comes of it. */
#include "guard/sql.h"

#include "base/failure.h"
#include "base/switches.h"

#include <stdlib.h>
#include <string.h>

/* What an unknown tail of the options may be at most. */
#define OPTIONS_TAIL_MAX 4096
#define WORD_NAME_MAX 32

/* ---- options ---------------------------------------------------------------------------------- */

/* As in src/client/options.c: an older program's struct is shorter, a newer one's longer. */
static int copy_options(const hf_guard_sql_options *from, hf_guard_sql_options *into,
                        struct error_text *err)
{
    const unsigned char *bytes = (const unsigned char *)from;
    size_t size = from ? from->size : 0;

    if (size < sizeof size || size > sizeof *into + OPTIONS_TAIL_MAX)
        return error_set(err, HF_EINVAL,
                         "hf_guard_sql_options: the size field is not set; initialise with "
                         "HF_GUARD_SQL_OPTIONS_INIT");
    for (size_t i = sizeof *into; i < size; i++)
        if (bytes[i])
            return error_set(err, HF_EINVAL,
                             "hf_guard_sql_options: uses something that this version of the "
                             "library does not know");
    memcpy(into, from, size < sizeof *into ? size : sizeof *into);
    return HF_OK;
}

static int take_name(const char *what, const char *given, const char *otherwise,
                     char ret_name[HF_SQL_NAME_MAX + 1], struct error_text *err)
{
    int result = sql_check_name(what, given ? given : otherwise, err);

    if (result == HF_OK)
        snprintf(ret_name, HF_SQL_NAME_MAX + 1, "%s", given ? given : otherwise);
    return result;
}

static int check_wish(const hf_guard_sql_options *options, struct sql_wish *wish,
                      struct error_text *err)
{
    hf_guard_sql_options *o = &wish->options;
    int result = copy_options(options, o, err);

    if (result != HF_OK)
        return result;
    if (o->dialect != HF_SQL_POSTGRES && o->dialect != HF_SQL_SQLITE)
        return error_set(err, HF_EINVAL, "no such dialect: there are postgres and sqlite");
    if (o->mode != HF_NOT_OLDER && o->mode != HF_NEWER)
        return error_set(err, HF_EINVAL, "no such mode: there are HF_NOT_OLDER and HF_NEWER");
    if (o->locks && o->dialect != HF_SQL_POSTGRES)
        return error_set(err, HF_EINVAL, "locks are kept in PostgreSQL only");
    if (o->locks && (o->key_column || o->column || o->require || o->setting || o->add_column ||
                     o->mode != HF_NOT_OLDER || o->sqlite_version))
        return error_set(err, HF_EINVAL,
                         "of the tables of locks only table and schema can be chosen");
    if (o->locks)
        return HF_OK;
    if (!o->table && (o->key_column || o->column || o->require || o->setting || o->add_column ||
                      o->mode != HF_NOT_OLDER))
        return error_set(err, HF_EINVAL, "columns and what is required are for a table: name it");
    if ((result = take_name("schema", o->schema, "public", wish->schema, err)) != HF_OK ||
        (result = take_name("key column", o->key_column, "id", wish->key, err)) != HF_OK ||
        (result = take_name("column", o->column, "fence_token", wish->column, err)) != HF_OK)
        return result;
    if (strcmp(wish->key, wish->column) == 0)
        return error_set(err, HF_EINVAL, "the key and the token cannot be in one column");
    return o->table ? sql_read_table(o->table, wish->table_schema, wish->table, err) : HF_OK;
}

/* ---- the text --------------------------------------------------------------------------------- */

/* The word that begins here, and its length with both signs. Our own texts have no others. */
static const struct sql_word *find_word(const struct sql_words *words, const char *at,
                                        size_t *ret_length)
{
    const char *end = strchr(at + 1, '@');
    size_t length = end ? (size_t)(end - at) - 1 : 0;

    INVARIANT(length > 0 && length < WORD_NAME_MAX);
    *ret_length = length + 2;
    for (size_t i = 0;; i++) {
        INVARIANT(i < words->count);
        if (strlen(words->words[i].name) == length &&
            memcmp(words->words[i].name, at + 1, length) == 0)
            return &words->words[i];
    }
}

static bool line_counts(const struct sql_words *words, const char *line, size_t size)
{
    for (const char *at = line; (at = memchr(at, '@', size - (size_t)(at - line)));) {
        size_t length;

        if (!find_word(words, at, &length)->value)
            return false;
        at += length;
    }
    return true;
}

static void write_line(FILE *out, const struct sql_words *words, const char *line, size_t size)
{
    const char *end = line + size, *at;

    while ((at = memchr(line, '@', (size_t)(end - line)))) {
        size_t length;

        fwrite(line, 1, (size_t)(at - line), out);
        fputs(find_word(words, at, &length)->value, out);
        line = at + length;
    }
    fwrite(line, 1, (size_t)(end - line), out);
}

/* before: what each line begins with. */
static void write_text(FILE *out, const struct sql_words *words, const char *text,
                       const char *before)
{
    while (*text) {
        size_t size = strcspn(text, "\n") + 1;

        if (line_counts(words, text, size)) {
            fputs(before, out);
            write_line(out, words, text, size);
        }
        text += size;
    }
}

static void write_rights(FILE *out, const struct sql_words *words, const char *rights)
{
    fputs(
        "\n-- Until this is said, every role may raise any mark, and so shut all holders out. Each "
        "role that enters, or writes to\n"
        "-- a guarded table, needs the GRANT, here app:\n--\n",
        out);
    write_text(out, words, rights, "-- ");
}

static void write_all(FILE *out, const struct sql_wish *wish, const struct sql_dialect *dialect,
                      const struct sql_words *words)
{
    bool table = wish->table[0];
    const char *undo = table ? dialect->table_undo : dialect->enter_undo;

    if (wish->options.undo) {
        write_text(out, words, undo, "");
        return;
    }
    write_text(out, words, dialect->enter, "");
    if (table)
        write_text(out, words, dialect->table, "");
    if (dialect->rights)
        write_rights(out, words, dialect->rights);
    fputs("\n-- To undo it:\n--\n", out);
    write_text(out, words, undo, "-- ");
}

static int make_text(const struct sql_wish *wish, char **ret_text, struct error_text *err)
{
    const struct sql_dialect *dialect =
        wish->options.dialect == HF_SQL_POSTGRES ? &sql_postgres : &sql_sqlite;
    struct sql_words words = {.count = 0};
    char *text = NULL;
    size_t size;
    FILE *out;
    int result = wish->options.locks ? HF_OK : dialect->check(wish, err);

    if (result != HF_OK)
        return result;
    if (!wish->options.locks)
        dialect->fill(wish, &words);
    out = open_memstream(&text, &size);
    if (!out)
        return error_set(err, HF_ENOMEM, "out of memory");
    if (wish->options.locks)
        result = sql_write_locks(&wish->options, out, err);
    else
        write_all(out, wish, dialect, &words);
    if (fclose(out) != 0 && result == HF_OK)
        result = error_set(err, HF_ENOMEM, "out of memory");
    if (result != HF_OK) {
        free(text);
        return result;
    }
    SWITCHED_TEXT(SWITCH_GUARD_SQLITE_OLDER, text, "m.token > CAST(NEW.token AS INTEGER)", "0");
    SWITCHED_TEXT(SWITCH_GUARD_PG_OLDER, text, "(m.token < a_token OR", "(true OR");
    SWITCHED_TEXT(SWITCH_GUARD_PG_UNHELD, text, "AND m.xact <> me", "AND false");
    SWITCHED_TEXT(SWITCH_GUARD_PG_UNHELD, text, "seen = a_token AND writer = me", "seen = a_token");
    SWITCHED_TEXT(SWITCH_GUARD_PG_UNHELD, text, "FOR NO KEY UPDATE", "");
    *ret_text = text;
    return HF_OK;
}

int hf_guard_sql(const hf_guard_sql_options *options, char **ret_text)
{
    struct error_text err = {""};
    struct sql_wish wish = {.options = HF_GUARD_SQL_OPTIONS_INIT};
    int result = check_wish(options, &wish, &err);

    if (result == HF_OK)
        result = make_text(&wish, ret_text, &err);
    return failure_keep(result, &err);
}
