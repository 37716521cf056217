/* telling.h: the table and its effects in words, as scripts record them: lines that begin with four
 * blanks. */
#ifndef TESTS_CORE_TELLING_H
#define TESTS_CORE_TELLING_H

#include "core/core.h"

#include <stdio.h>

#define HEADING_MAX 64

/* numbered: with the number of the command that it answers. */
void tell_effect(FILE *out, const struct core_effect *effect, bool numbered);
/* The effect without its names and numbers. */
void tell_heading(const struct core_effect *effect, char ret_heading[HEADING_MAX]);
void tell_lock(FILE *out, const struct core *core, struct core_text name, bool once);
void tell_counts(FILE *out, const struct core *core);

#endif
