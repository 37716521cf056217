/* pgnames.h: the names of the SQL objects that a store in PostgreSQL consists of, put into a text.
 *
 * All of them are called after one table. The text says where:
 *
 *     @_claims@       "schema"."TABLE_claims"; @@ is the table itself
 *     @!_claims@      "TABLE_claims"
 *     @^_enter_held@  "schema"."STEM_enter_held": the stem is the table's name without a _locks behind it; @!^...@ likewise
 *     @'_once'@       '"schema"."TABLE_once"', a literal; @''@ is the table
 *     @'%f(text)'@    '"schema".f(text)', a literal */
#ifndef BASE_PGNAMES_H
#define BASE_PGNAMES_H

#include "base/error.h"

#include <stddef.h>

#define PGNAMES_MAX 63       /* bytes of a name in PostgreSQL */
#define PGNAMES_TABLE_MAX 48 /* what comes behind it has room, too */
#define PGNAMES_TABLE "holdfast_locks"

struct pgnames {
    char schema[PGNAMES_MAX + 1]; /* "": none, and names stand alone */
    char table[PGNAMES_TABLE_MAX + 1];
};

/* "[SCHEMA.]TABLE", of letters, digits and '_' in each; taken as it is written. */
int pgnames_read(const char *text, struct pgnames *ret_names, struct error_text *err);
/* The text with all names in it; free it. NULL: out of memory. */
char *pgnames_fill(const struct pgnames *names, const char *text);

#endif
