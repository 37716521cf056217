/* directory.h: the data directory, before libraft may use it. */
#ifndef REPLICA_DIRECTORY_H
#define REPLICA_DIRECTORY_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct directory {
    char path[PATH_MAX]; /* absolute */
    int fd;
    int lock_fd; /* of its lock file: locked as long as it is open */
};

/* Makes it if it is not there, locks it, looks whether it can be written to and is whole. See
 * replica_uv_open; torn_max: see segments_check. */
int directory_open(const char *path, bool founding, uint64_t torn_max,
                   struct directory *ret_directory, struct error_text *err);
void directory_close(struct directory *directory);

/* The newest snapshot by its name, if there is any. Older ones are kept, and libraft quietly takes
 * one of them if the newest is damaged. */
bool directory_newest_snapshot(const struct directory *directory, uint64_t *ret_term,
                               uint64_t *ret_index);

#endif
