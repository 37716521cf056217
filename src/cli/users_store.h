/* users_store.h: the file of holdfastd's users, read and exchanged for another in one step.
 *
 * Two who change it at once take turns, by flock(2) on the file. What is new is written beside it, to the disk, and takes its name
 * only when all of it is there: a server that reads sees the one or the other. */
#ifndef CLI_USERS_STORE_H
#define CLI_USERS_STORE_H

#include "cli/users_text.h"

#include <limits.h>
#include <sys/stat.h>

struct users_store {
    char path[PATH_MAX]; /* what a symbolic link leads to */
    int fd;              /* locked; -1: there is no such file yet */
    struct stat status;
    char *bytes;
    size_t size;
};

/* Reads the file. to_change: alone, from now until users_store_close. HF_OK; HF_EREFUSED: there is none (unless may_be_absent), it is no
 * regular file, may not be read, or others can use it. */
int users_store_open(struct users_store *store, const char *path, bool to_change,
                     bool may_be_absent, struct error_text *err);
/* In place of what is there, with the same mode and owner; a new file is its maker's alone. HF_EREFUSED or HF_EIO: nothing has
 * changed, or the words say otherwise. */
int users_store_write(struct users_store *store, const char *bytes, size_t size,
                      struct error_text *err);
void users_store_close(struct users_store *store);

#endif
