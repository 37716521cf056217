/* resets.h: the log of marks that were set on purpose. One line each, for people:
 *
 *     2026-11-15T02:14:05Z account:7 35 -> 0 by root@db1 holdfast[4711]: moved to the new store
 *
 * The key is percent-encoded, and has no blanks therefore. */
#ifndef GUARD_FENCE_RESETS_H
#define GUARD_FENCE_RESETS_H

#include "guard/fence/directory.h"

#include <stdint.h>

#define RESETS_FILE "resets.log"
#define RESETS_SIZE_MAX (64 * 1024 * 1024) /* of the log: then it must be moved away */

struct reset {
    const struct fence_directory *directory;
    const char *key, *why; /* why: NULL, or at most HF_REASON_MAX bytes */
    uint64_t was, mark;
};

/* Appends the line; it is on the disk when this returns HF_OK. One caller at a time. */
int resets_append(const struct reset *reset, struct error_text *err);

#endif
