/* sql_locks.c: the tables and functions of the store on PostgreSQL, for whoever may make them where its users may not. */
#include "base/pgnames.h"
#include "guard/sql.h"

#include <guard-locks-undo.h> /* made by tools/embed-sql, */
#include <guard-locks.h>      /* and so is this */
#include <stdlib.h>
#include <string.h>

/* The least of a role that does all that there is to do; UPDATE of the last one is for 'holdfast floor', and the first use after a promotion:
 * not of the id, by which everybody's clients know the store, nor of the version. */
static const char grants[] =
    "GRANT SELECT, INSERT, UPDATE ON @@, @_rows@ TO app;\n"
    "GRANT SELECT, INSERT, UPDATE, DELETE ON @_claims@, @_once@ TO app;\n"
    "GRANT SELECT, UPDATE (floor, ahead, era, era_of) ON @_meta@ TO app;\n";

static int read_names(const hf_guard_sql_options *options, struct pgnames *ret_names,
                      struct error_text *err)
{
    int result = pgnames_read(options->table ? options->table : PGNAMES_TABLE, ret_names, err);

    if (result != HF_OK || ret_names->schema[0])
        return result;
    if (options->schema && strpbrk(options->schema, "\"'\\@"))
        return error_set(err, HF_EINVAL, "schema '%.40s': not a name for the tables of locks",
                         options->schema);
    snprintf(ret_names->schema, sizeof ret_names->schema, "%s",
             options->schema ? options->schema : "public");
    return HF_OK;
}

static void write_comment(FILE *out, const char *text)
{
    while (*text) {
        size_t size = strcspn(text, "\n") + 1;

        fprintf(out, "-- %.*s", (int)size, text);
        text += size;
    }
}

/* Where EXECUTE on functions is not everybody's (ALTER DEFAULT PRIVILEGES), it takes that, too, of each that the undoing drops. In one line. */
static void write_execute(FILE *out, const char *undo)
{
    static const char before[] = "DROP FUNCTION IF EXISTS ";
    const char *at = strstr(undo, before);

    fputs("-- GRANT EXECUTE ON FUNCTION ", out);
    for (at = at ? at + strlen(before) : ""; *at && *at != ';'; at++)
        if (*at != '\n')
            fputc(*at, out);
        else
            for (fputc(' ', out); at[1] == ' ';)
                at++;
    fputs(" TO app;\n", out);
}

int sql_write_locks(const hf_guard_sql_options *options, FILE *out, struct error_text *err)
{
    struct pgnames names;
    int result = read_names(options, &names, err);
    char *text, *undo, *rights;

    if (result != HF_OK)
        return result;
    text = pgnames_fill(&names, sql_text_schema);
    undo = pgnames_fill(&names, sql_text_schema_undo);
    rights = pgnames_fill(&names, grants);
    if (!text || !undo || !rights) {
        result = error_set(err, HF_ENOMEM, "out of memory");
    } else if (options->undo) {
        fputs(undo, out);
    } else {
        fprintf(out, "BEGIN;\n%sCOMMIT;\n\n-- What a role needs that uses them, here app:\n--\n",
                text);
        if (strcmp(names.schema, "public") != 0)
            fprintf(out, "-- GRANT USAGE ON SCHEMA \"%s\" TO app;\n", names.schema);
        write_comment(out, rights);
        write_execute(out, undo);
        fputs("\n-- To undo it:\n--\n", out);
        write_comment(out, undo);
    }
    free(text);
    free(undo);
    free(rights);
    return result;
}
