/* directory.h: the directory that is the store: finding it, making it, and refusing unsafe ones. */
#ifndef ENGINES_FILE_DIRECTORY_H
#define ENGINES_FILE_DIRECTORY_H

#include "base/error.h"
#include "base/url.h"

#include <stdbool.h>
#include <sys/stat.h>

#define FILE_STATE_NAME "holdfast-state" /* the token file, in DIR */
#define ONCE_FOLDER "once"               /* there, too: of keys */

struct directory {
    int fd;           /* DIR */
    int locks_fd;     /* DIR/locks, or another folder of lock files */
    mode_t file_mode; /* what new files get: DIR's own permissions, less execute */
    mode_t
        set_group; /* S_ISGID or 0, as DIR has it, for folders in it: files are to be of DIR's group */
    uid_t owner; /* and, when we are root, DIR's owner and group */
    gid_t group;
    bool made;                            /* by this very open */
    char path[HF_URL_MAX + 1];            /* absolute */
    char locks_path[HF_URL_MAX + 1 + 16]; /* path, "/locks" */
};

/* Finds DIR in the URL (or the default), makes it if it is not there (if it was named: where the directory that it is
 * in exists), and refuses one that cannot keep the promises: tmpfs, network filesystems, others able to write. */
int directory_open(struct url *url, struct directory *ret_directory, struct error_text *err);
/* True if open would make DIR, with its path; HF_URL_MAX + 1 bytes. */
bool directory_is_unmade(struct url *url, char *ret_path);
void directory_close(struct directory *directory);
/* The same store, with another folder in the place of DIR/locks; closed by itself. make: if it is not
 * there; else *ret_other is left alone then. */
int directory_open_folder(const struct directory *directory, const char *folder, bool make,
                          struct directory *ret_other, struct error_text *err);

/* A file that is there, as openat with O_NOFOLLOW and O_CLOEXEC. Never waits, whatever else somebody has
 * put in its place: -1 and ELOOP, EISDIR or ENXIO if that is not a regular file. */
int directory_open_file(int dirfd, const char *name, int flags);
/* All of it, however many reads that takes. 0; -1: the file ends before; or an errno. */
int directory_read_file(int fd, void *bytes, size_t size, off_t offset);
/* A new file, with the right mode and owner. */
int directory_create_file(const struct directory *directory, int dirfd, const char *name,
                          int *ret_fd, struct error_text *err);
/* The same under a name of its own in dirfd, to be overwritten in place. ret_name: at least
 * DIRECTORY_TEMP_MAX bytes. */
#define DIRECTORY_TEMP_MAX 48
int directory_temp_file(const struct directory *directory, int dirfd, char *ret_name, int *ret_fd,
                        struct error_text *err);

/* Turns an errno of an operation on this store's files into the right result and sentence. */
int directory_failure(const struct directory *directory, int errno_value, const char *doing,
                      struct error_text *err);

#endif
