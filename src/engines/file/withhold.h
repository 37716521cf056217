/* withhold.h: a name that was broken is nobody's until its old holders have let go.
 *
 * Whoever breaks it keeps the new file locked for so long. But he may be killed, or close his store: so the
 * new file says by itself that it is withheld, until when at most, and where the old one is, which stays
 * under a name of its own. Whoever has locked a file looks for that, and first asks the kernel whether the
 * old one is still held. If nobody holds it, be it after a reboot, it is over, whatever any clock says. If somebody
 * does, this is still the kernel under which it was broken, so that its clock can tell whether the time is over
 * (bootclock.h); boot ids, of which a container may have its own, are not asked. Whoever finds that it is over
 * lifts it for all. Whoever cannot tell, for want of a descriptor, say, leaves it as it is, and has nothing. */
#ifndef ENGINES_FILE_WITHHOLD_H
#define ENGINES_FILE_WITHHOLD_H

#include "engines/file/store.h"

/* Before `fresh` takes the place of `old`, for grace_ms. 0, or an errno. The clock must be open. */
int withhold_begin(const struct engine_store *store, const struct lockfile *old,
                   const struct lockfile *fresh, int64_t grace_ms);
/* `fresh` did not take it, or nobody is left to withhold it from. */
void withhold_end(const struct engine_store *store, const struct lockfile *fresh);
/* By one who has it locked: ENGINE_HELD: it is not withheld; ENGINE_BUSY: it is; or an error: nobody can tell.
 * Costs a load unless somebody was broken. */
int withhold_check(struct engine_store *store, const struct lockfile *file, struct error_text *err);
/* Somebody breaks a name that is withheld already: not for longer than his grace. 0, or an errno. The clock
 * must be open. */
int withhold_shorten(const struct engine_store *store, const struct lockfile *file,
                     int64_t grace_ms);

/* To look only: for how many ms at most it is withheld; 0: it is not. */
int withhold_look(struct engine_store *store, const struct lockfile *file, int64_t *ret_left_ms,
                  struct error_text *err);

#endif
