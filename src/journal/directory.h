/* directory.h: the data directory: made if need be, and locked against other processes. */
#ifndef JOURNAL_DIRECTORY_H
#define JOURNAL_DIRECTORY_H

#include "base/error.h"
#include "journal/disk.h"

#define DIRECTORY_LOCK "lock" /* a file in it */

struct directory {
    const struct disk *disk; /* it is on this one: borrowed */
    char path[PATH_MAX];     /* absolute */
    int handle;              /* that disk's */
    int lock;                /* its lock file: locked as long as it is open */
    bool lock_is_new;        /* it was made just now */
};

/* As far as they are missing, and durable. */
int directory_make_parents(const char *path, unsigned mode, struct error_text *err);
/* On the system's disk. HF_EBUSY: another process uses it. HF_EREFUSED: it may not be used. HF_EIO: it cannot be. */
int directory_open(const char *path, struct directory *ret_directory, struct error_text *err);
int directory_open_on(const struct disk *disk, const char *path, struct directory *ret_directory,
                      struct error_text *err);
void directory_close(struct directory *directory);
/* Of a directory that turns out not to be ours: what was made in it goes. It still has to be closed. */
void directory_leave_alone(struct directory *directory);

/* Calls fn for each file, in no order, until it does not return HF_OK; returns what it did. */
typedef int directory_file_fn(void *context, const char *name, struct error_text *err);
int directory_each(const struct directory *directory, directory_file_fn *fn, void *context,
                   struct error_text *err);
bool directory_has(const struct directory *directory, const char *name);
int directory_remove(const struct directory *directory, const char *name, struct error_text *err);
/* What was made, renamed and removed in it is durable. */
int directory_sync(const struct directory *directory, struct error_text *err);
/* Is it the prefix and then a number, as in "log-17"? */
bool directory_number_in(const char *name, const char *prefix, uint64_t *ret_number);

#endif
