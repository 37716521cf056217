/* directory.h: the directory of a fence: making it, refusing unsafe ones, files in it. */
#ifndef GUARD_FENCE_DIRECTORY_H
#define GUARD_FENCE_DIRECTORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define FENCE_PATH_MAX 2048 /* bytes of the path, without its NUL */

struct fence_directory {
    int fd;
    mode_t file_mode; /* what new files get: the directory's own permissions, less execute */
    uid_t owner;      /* and, when we are root, the directory's owner and group */
    gid_t group;
    char path[FENCE_PATH_MAX + 1];
};

/* Makes it if it is not there, unless `existing`. allow: of enum hf_fence_allow. On failure there is
 * nothing to close. */
int fence_directory_open(const char *path, int allow, bool existing,
                         struct fence_directory *ret_directory, struct error_text *err);
void fence_directory_close(struct fence_directory *directory);

/* Makes an empty file, if it is not there, without opening it. */
int fence_directory_make(const struct fence_directory *directory, const char *name,
                         struct error_text *err);
/* The same, and opens it for reading and appending, with at least so many bytes (zeros). */
int fence_directory_file(const struct fence_directory *directory, const char *name, size_t size,
                         int *ret_fd, struct error_text *err);
/* HF_EREFUSED if it has marks but not the files with the locks. Made anew, they would not know who is
 * inside. */
int fence_directory_check_locks(const struct fence_directory *directory, struct error_text *err);
/* What was made in it survives a power cut. */
int fence_directory_sync(const struct fence_directory *directory, struct error_text *err);

/* Turns an errno into the right result and sentence. doing: "lock a key". */
int fence_directory_explain(const struct fence_directory *directory, int errno_value,
                            const char *doing, struct error_text *err);

#endif
