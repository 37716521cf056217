/* filesystem.h: which file systems do not keep what stores, servers and guards promise. */
#ifndef BASE_FILESYSTEM_H
#define BASE_FILESYSTEM_H

#include "base/error.h"

enum filesystem_kind {
    FILESYSTEM_ON_DISK,   /* or one that is not known to be anything else */
    FILESYSTEM_IN_MEMORY, /* forgets everything at a reboot */
    FILESYSTEM_ON_NETWORK /* another machine may write there without seeing our locks */
};

/* Of the path, or of the nearest directory above it that exists, so that it can be asked before anything is made. *ret_name is a literal:
 * "tmpfs"; "" on disk. HF_EREFUSED: it cannot be told, in words. */
int filesystem_look(const char *path, enum filesystem_kind *ret_kind, const char **ret_name,
                    struct error_text *err);

#endif
