/* keys.h: one at a time inside a key, among all threads and processes of a machine. keys.c says
 * how. */
#ifndef GUARD_FENCE_KEYS_H
#define GUARD_FENCE_KEYS_H

#include "base/error.h"
#include "guard/fence/directory.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct keys {
    const struct fence_directory *directory; /* borrowed */
    _Atomic uint32_t *bells;                 /* mapped; NULL: not open */
};

int keys_open(struct keys *keys, const struct fence_directory *directory, struct error_text *err);
void keys_close(struct keys *keys);

/* Where a key is locked, never PLACE_WRITER. The same for all versions of holdfast that may run at
 * once. */
int64_t keys_place(const char *key, size_t size);
#define PLACE_WRITER INT64_C(0) /* whoever writes marks */

/* A descriptor to lock places with, for one user at a time. Or a negative HF_E... */
int keys_descriptor(const struct keys *keys, struct error_text *err);
/* HF_OK, HF_EBUSY (without words) when it is still taken at deadline_ms (clock_boot_ms), or another
 * failure. */
int keys_take(struct keys *keys, int fd, int64_t place, int64_t deadline_ms,
              struct error_text *err);
void keys_leave(struct keys *keys, int fd, int64_t place);

#endif
