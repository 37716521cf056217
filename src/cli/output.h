/* output.h: what people read: one-line messages on stderr, names made printable, tables. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/cli.h"

#include <stdio.h>

/* One line on stderr, in one write so that lines of many processes do not mix: "holdfast: ...". */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What a store said, followed by where to look if a holdfastd said that nobody leads. */
void say_failure(const char *words);
/* That last part of it; "" of other words. */
const char *leader_advice(const char *words);
/* hf_error() as a line, and the exit status that goes with the result. */
int say_result(int result);
int status_of(int result);

/* Any bytes as printable text: control characters, bytes that are not UTF-8 and characters that
 * redirect text (bidi) become \xNN. The answer lives in one of a few rotating buffers, so several
 * can be used in one message; text too long is cut. */
const char *printable(const char *text);

const char *mode_name(int mode);
/* "3.2 s", "?" when not known, "no limit". Rotating buffers likewise. */
const char *span(int64_t ms);

/* The time of day for people, `age_ms` ago: "02:14:05". */
const char *clock_time(int64_t age_ms);

/* Ages are by a clock that stands still while nobody leads, as that of holdfastd: then they are the least, and no time of day can be told. */
bool ages_are_least(hf_store *store);
/* Of a key for which hf_once_withheld is true. */
#define WITHHELD_RUN "withheld for the TTL of a run from before a floor or a promotion"
/* Of one report: "withheld after a break or a lock-delay, for another 3s"; "": it is not. */
void describe_withheld(const hf_report *report, char *ret_text, size_t size);
/* The process that took a hold which is the kernel's has ended: one that it left behind has inherited it. As far as can be seen from here: a
 * process of another container may look like that, too. */
bool holder_has_ended(hf_store *store, const hf_entry *entry);
/* "root@host backup[17], token 4, since 02:14:05 (3.2 s)", or "..., for at least 3.2 s" */
void describe_holder(hf_store *store, const hf_entry *entry, char *ret_text, size_t size);

/* What was printed so far is to be seen now. */
void flush_output(void);
/* Whether stdout took everything; if not says so and returns EXIT_UNAVAILABLE, else `status`. */
int finish_output(int status);

/* ---- tables -----------------------------------------------------------------------------------
 */

#define TABLE_COLUMNS_MAX 12

struct table {
    int columns;
    char **cells; /* rows * columns, owned */
    size_t used, room;
    bool failed; /* out of memory: said at the end */
};

void table_begin(struct table *table, int columns);
void table_cell(struct table *table, const char *text); /* copied */
/* Prints it with the columns aligned, and frees it. */
int table_end(struct table *table);

#endif
