/* segments.h: the segments of the log that libraft was writing when it was interrupted. */
#ifndef REPLICA_SEGMENTS_H
#define REPLICA_SEGMENTS_H

#include "base/error.h"

#include <stdint.h>

/* Where an open segment is damaged, libraft takes that for a write that was interrupted, and drops
 * the rest of it without a word. That is right only if nothing in it was acknowledged. This looks
 * first: HF_EIO if after the damage more than `torn_max` whole entries follow, which is how many can
 * have been on their way to the disk at once; or any at all in a later segment. Nothing is changed.
 * path: of the directory fd, for the words. */
int segments_check(int fd, const char *path, uint64_t torn_max, struct error_text *err);

#endif
