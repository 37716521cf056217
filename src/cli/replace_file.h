/* replace_file.h: what those share who write a file beside its place, and let it take that when it is whole. */
#ifndef CLI_REPLACE_FILE_H
#define CLI_REPLACE_FILE_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>

/* Where it is: a link's end is what changes, and the link stays. What is not there yet has a directory that is; then *ret_is_new. In words that
 * begin with what ("cannot write", "users file"). HF_EREFUSED, HF_EIO. */
int replace_file_resolve(const char *what, const char *path, char ret_path[PATH_MAX],
                         bool *ret_is_new, struct error_text *err);
/* Its name is there after a power failure, too. path: of replace_file_resolve. 0, or an errno. */
int replace_file_sync_name(const char *path);
/* HF_EIO for what is wrong with the disk, HF_EREFUSED for what the user can change. In words. */
int replace_file_failed(const char *what, const char *path, int errno_value,
                        struct error_text *err);

#endif
