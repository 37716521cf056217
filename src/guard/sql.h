/* sql.h: what the two dialects share: names that are checked and quoted, and texts with words in
 * them. The texts are the .sql files beside. */
#ifndef GUARD_SQL_H
#define GUARD_SQL_H

#include "base/error.h"

#include <holdfast/guard.h>
#include <stdbool.h>
#include <stdio.h>

/* A name of 63 bytes in quotes may have 128, and two with a dot between them 257. As a literal every
 * byte of that may become two, in E'' and NUL. */
#define SQL_VALUE_MAX 1040
#define SQL_WORDS_MAX 32

/* A text says @name@ where the value comes in. A line with a word whose value is NULL is left out. */
struct sql_word {
    const char *name;
    const char *value; /* NULL, a constant, or in `values` */
};

struct sql_words {
    struct sql_word words[SQL_WORDS_MAX];
    size_t count;
    char values[SQL_WORDS_MAX][SQL_VALUE_MAX];
};

/* What is asked for, checked, with every default put in. */
struct sql_wish {
    hf_guard_sql_options options;
    char schema[HF_SQL_NAME_MAX + 1];
    char table_schema[HF_SQL_NAME_MAX + 1]; /* "": none was given */
    char table[HF_SQL_NAME_MAX + 1];        /* "": enter only */
    char key[HF_SQL_NAME_MAX + 1];
    char column[HF_SQL_NAME_MAX + 1];
};

struct sql_dialect {
    const char *enter, *enter_undo, *table, *table_undo; /* texts */
    const char *rights; /* of those who may enter; NULL: nobody is told apart */
    int (*check)(const struct sql_wish *wish, struct error_text *err);
    void (*fill)(const struct sql_wish *wish, struct sql_words *words);
};

extern const struct sql_dialect sql_postgres, sql_sqlite;

/* sql_locks.c: instead of all that, the tables and functions of the store on PostgreSQL. */
int sql_write_locks(const hf_guard_sql_options *options, FILE *out, struct error_text *err);

/* ---- names ------------------------------------------------------------------------------------ */

/* One name as it is: not empty, not too long, UTF-8, no control characters. */
int sql_check_name(const char *what, const char *name, struct error_text *err);
/* "[SCHEMA.]TABLE" into two names. */
int sql_read_table(const char *text, char ret_schema[HF_SQL_NAME_MAX + 1],
                   char ret_table[HF_SQL_NAME_MAX + 1], struct error_text *err);

/* ---- words ------------------------------------------------------------------------------------ */

/* value is borrowed until the texts are written. */
void sql_put(struct sql_words *words, const char *name, const char *value);
/* A line that begins with @name@ is there only if on. */
void sql_put_switch(struct sql_words *words, const char *name, bool on);
/* "name", or "schema"."name" if schema is not NULL. */
void sql_put_name(struct sql_words *words, const char *name, const char *schema, const char *value);
/* 'text' */
void sql_put_literal(struct sql_words *words, const char *name, const char *text);
/* The same where a backslash may or may not mean something: E'text' if there is one. */
void sql_put_literal_escaped(struct sql_words *words, const char *name, const char *text);
/* The value of a word that is there. */
const char *sql_value(const struct sql_words *words, const char *name);

#endif
