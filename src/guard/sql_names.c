/* sql_names.c: names and literals from outside, and how they get into a text.
 *
 * Any name may be used that the database may have, quotes and all. Control characters are refused:
 * a line break would end the comment in which the undo is printed. */
#include "base/text.h"
#include "guard/sql.h"

#include <string.h>

int sql_check_name(const char *what, const char *name, struct error_text *err)
{
    size_t length = strlen(name);

    if (length == 0)
        return error_set(err, HF_EINVAL, "%s: the name is empty", what);
    if (length > HF_SQL_NAME_MAX)
        return error_set(err, HF_EINVAL, "%s '%.20s...': a name has at most %d bytes", what, name,
                         HF_SQL_NAME_MAX);
    if (!text_is_utf8(name, length))
        return error_set(err, HF_EINVAL, "%s: the name is not UTF-8", what);
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return error_set(err, HF_EINVAL, "%s '%s': no control characters in a name", what,
                             name);
    return HF_OK;
}

/* One part of SCHEMA.TABLE, quoted or not. Returns what comes after it; NULL: it is too long, or its
 * quote is not closed. */
static const char *read_part(const char *text, char ret_name[HF_SQL_NAME_MAX + 1])
{
    bool quoted = *text == '"', closed = false;
    size_t length = 0;

    for (text += quoted; *text && (quoted || *text != '.'); text++) {
        if (quoted && *text == '"' && *++text != '"') { /* two of them are one */
            closed = true;
            break;
        }
        if (length == HF_SQL_NAME_MAX)
            return NULL;
        ret_name[length++] = *text;
    }
    ret_name[length] = '\0';
    return quoted == closed ? text : NULL;
}

int sql_read_table(const char *text, char ret_schema[HF_SQL_NAME_MAX + 1],
                   char ret_table[HF_SQL_NAME_MAX + 1], struct error_text *err)
{
    char first[HF_SQL_NAME_MAX + 1], second[HF_SQL_NAME_MAX + 1] = "";
    const char *rest = read_part(text, first);
    bool dot = rest && *rest == '.';
    int result;

    if (dot)
        rest = read_part(rest + 1, second);
    if (!rest || *rest)
        return error_set(err, HF_EINVAL,
                         "table '%.40s': not [SCHEMA.]TABLE, each of at most %d bytes, and in "
                         "double quotes if it has a dot",
                         text, HF_SQL_NAME_MAX);
    result = sql_check_name(dot ? "schema" : "table", first, err);
    if (result == HF_OK && dot)
        result = sql_check_name("table", second, err);
    if (result != HF_OK)
        return result;
    memcpy(ret_table, dot ? second : first, HF_SQL_NAME_MAX + 1);
    memcpy(ret_schema, dot ? first : second, HF_SQL_NAME_MAX + 1);
    return HF_OK;
}

/* ---- words ------------------------------------------------------------------------------------ */

void sql_put(struct sql_words *words, const char *name, const char *value)
{
    INVARIANT(words->count < SQL_WORDS_MAX);
    words->words[words->count++] = (struct sql_word){name, value};
}

void sql_put_switch(struct sql_words *words, const char *name, bool on)
{
    sql_put(words, name, on ? "" : NULL);
}

/* In quotes, with those inside doubled. Returns the end. */
static char *put_quoted(char *at, const char *text, char quote)
{
    *at++ = quote;
    for (; *text; text++) {
        if (*text == quote)
            *at++ = quote;
        *at++ = *text;
    }
    *at++ = quote;
    *at = '\0';
    return at;
}

void sql_put_name(struct sql_words *words, const char *name, const char *schema, const char *value)
{
    char *begin = words->values[words->count], *at = begin;

    if (schema) {
        at = put_quoted(at, schema, '"');
        *at++ = '.';
    }
    put_quoted(at, value, '"');
    sql_put(words, name, begin);
}

void sql_put_literal(struct sql_words *words, const char *name, const char *text)
{
    char *begin = words->values[words->count];

    INVARIANT(2 * strlen(text) + 3 <= SQL_VALUE_MAX);
    put_quoted(begin, text, '\'');
    sql_put(words, name, begin);
}

void sql_put_literal_escaped(struct sql_words *words, const char *name, const char *text)
{
    char doubled[SQL_VALUE_MAX], *begin = words->values[words->count], *at = doubled;

    if (!strchr(text, '\\')) {
        sql_put_literal(words, name, text);
        return;
    }
    INVARIANT(4 * strlen(text) + 4 <= SQL_VALUE_MAX);
    for (; *text; text++) {
        if (*text == '\\')
            *at++ = '\\';
        *at++ = *text;
    }
    *at = '\0';
    *begin = 'E';
    put_quoted(begin + 1, doubled, '\'');
    sql_put(words, name, begin);
}

const char *sql_value(const struct sql_words *words, const char *name)
{
    for (size_t i = 0; i < words->count; i++)
        if (strcmp(words->words[i].name, name) == 0)
            return words->words[i].value;
    return NULL;
}
