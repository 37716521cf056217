#include "base/pgnames.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEM_TAIL "_locks"

static bool is_plain(const char *name, size_t length, size_t max)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

    return length > 0 && length <= max && strspn(name, allowed) >= length &&
           !(name[0] >= '0' && name[0] <= '9');
}

int pgnames_read(const char *text, struct pgnames *ret_names, struct error_text *err)
{
    const char *dot = strchr(text, '.'), *table = dot ? dot + 1 : text;
    size_t schema_length = dot ? (size_t)(dot - text) : 0;
    struct pgnames names = {"", ""};

    if ((dot && !is_plain(text, schema_length, PGNAMES_MAX)) ||
        !is_plain(table, strlen(table), PGNAMES_TABLE_MAX))
        return error_set(
            err, HF_EINVAL,
            "table '%.80s': not [SCHEMA.]TABLE of letters, digits and '_', the table of at "
            "most %d bytes",
            text, PGNAMES_TABLE_MAX);
    memcpy(names.schema, text, schema_length);
    memcpy(names.table, table, strlen(table));
    *ret_names = names;
    return HF_OK;
}

static void put_schema(FILE *out, const struct pgnames *names)
{
    if (names->schema[0])
        fprintf(out, "\"%s\".", names->schema);
}

static void put_word(FILE *out, const struct pgnames *names, const char *word, size_t length)
{
    size_t stem = strlen(names->table), tail = strlen(STEM_TAIL);
    bool alone = length > 0 && word[0] == '!';

    word += alone;
    length -= alone;
    if (length >= 2 && word[0] == '\'') {
        fputc('\'', out);
        put_schema(out, names);
        if (word[1] == '%')
            fwrite(word + 2, 1, length - 3, out);
        else
            fprintf(out, "\"%s%.*s\"", names->table, (int)length - 2, word + 1);
        fputc('\'', out);
        return;
    }
    if (length > 0 && word[0] == '^') {
        if (stem > tail && strcmp(names->table + stem - tail, STEM_TAIL) == 0)
            stem -= tail;
        word++;
        length--;
    }
    if (!alone)
        put_schema(out, names);
    fprintf(out, "\"%.*s%.*s\"", (int)stem, names->table, (int)length, word);
}

char *pgnames_fill(const struct pgnames *names, const char *text)
{
    char *filled = NULL;
    size_t size;
    FILE *out = open_memstream(&filled, &size);

    if (!out)
        return NULL;
    for (const char *at; (at = strchr(text, '@')); text = strchr(at + 1, '@') + 1) {
        const char *end = strchr(at + 1, '@');

        INVARIANT(end); /* our own texts have them in pairs */
        fwrite(text, 1, (size_t)(at - text), out);
        put_word(out, names, at + 1, (size_t)(end - at) - 1);
    }
    fputs(text, out);
    if (fclose(out) == 0)
        return filled;
    free(filled);
    return NULL;
}
