/* withhold.h: a name that was broken is nobody's until its old holders have let go.
 *
 * Whoever breaks it keeps the new file locked for so long. But he may be killed, or close his store: so the
 * new file says by itself that it is withheld, until when at most, and where the old one is, which stays
 * under a name of its own. Whoever has locked a file looks for that. If it says so he looks whether the old
 * one is still held; if not, or if the time is over, he lifts it for all. */
#ifndef ENGINES_FILE_WITHHOLD_H
#define ENGINES_FILE_WITHHOLD_H

#include "engines/file/lockfile.h"

/* Before `fresh` takes the place of `old`, for grace_ms. 0, or an errno. */
int withhold_begin(const struct directory *directory, const struct lockfile *old,
                   const struct lockfile *fresh, int64_t grace_ms);
/* `fresh` did not take it, or nobody is left to withhold it from. */
void withhold_end(const struct directory *directory, const struct lockfile *fresh);
/* By one who has it locked. Costs a load unless somebody was broken. */
bool withhold_stands(const struct directory *directory, const struct lockfile *file);
/* Somebody breaks a name that is withheld already: not for longer than his grace. */
void withhold_shorten(const struct directory *directory, const struct lockfile *file,
                      int64_t grace_ms);

/* To look only: for how many ms at most it is withheld; 0: it is not. */
int64_t withhold_left_ms(const struct directory *directory, const struct lockfile *file);

#endif
